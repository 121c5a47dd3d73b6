#include <stretto/stretto.h>

#include <cstdio>
using namespace stretto;

// A classifier that loads attention weights published under other names.
struct Tagger : nn::Module {
  nn::Embedding words{*this, "words", {.count = 100, .dim = 16}};
  nn::MultiHeadAttention attention{
      *this, "attention", {.d_model = 16, .n_heads = 4, .n_kv_heads = 2}};
  nn::Linear out{*this, "out", {.in = 16, .out = 5}};
};

int main(int argc, char** argv) {
  const nn::DeviceConfig config = nn::parse_device_args(argc, argv);
  nn::NameMap names;
  names.rename("[model.]embed_tokens.weight", "words.weight")
      .split("[model.]attn.qkv.weight",  // 4 query heads, 2 key heads, 2 value heads
             {{"attention.q.weight", 4}, {"attention.k.weight", 2}, {"attention.v.weight", 2}})
      .split("[model.]attn.qkv.bias",
             {{"attention.q.bias", 4}, {"attention.k.bias", 2}, {"attention.v.bias", 2}})
      .convert("[model.]attn.c_proj.weight", "attention.out.weight", nn::transposed())
      .rename("[model.]attn.c_proj.bias", "attention.out.bias")
      .drop("*.inv_freq");
  std::printf("%s", names.describe().c_str());

  // A published file: here the initial weights under the other names, with an additional buffer and
  // without the last layer.
  Tagger theirs, model;
  for (Tagger* tagger : {&theirs, &model}) tagger->to(config.device).to(config.dtype);
  nn::save_weights("theirs.safetensors", theirs, names);
  nn::Safetensors file = nn::load_safetensors("theirs.safetensors");
  std::erase_if(file.tensors, [](const auto& n) { return n.name.starts_with("out."); });
  file.tensors.push_back({"model.attn.rotary.inv_freq", ones({2})});
  nn::save_safetensors("theirs.safetensors", file.tensors);

  const nn::LoadReport report =
      nn::load_weights("theirs.safetensors", model, names, {.strict = false});
  std::printf("%s\n", report.describe().c_str());
}
