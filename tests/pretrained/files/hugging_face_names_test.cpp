// Weights under the names of Hugging Face's transformers: each tensor is loaded into the parameter
// with the same meaning, and is saved again bit for bit.
#include <algorithm>
#include <set>

#include "nn/files/weights.h"
#include "nn/positions/relative_bias.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "pretrained/files/published_names.h"
#include "tests/support/catch.h"
#include "tests/support/gradcheck.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using nn::NamedTensor;
using nn::NameMap;
using stretto::testing::fixed_noise;
using stretto::testing::TempDir;

namespace {

constexpr int64_t width = 8, heads = 2, per_head = 4, hidden = 12, words = 11;

using Shapes = std::vector<std::pair<std::string, Shape>>;

// A file of tensors with distinct values that F16 can represent.
std::vector<NamedTensor> file_of(const Shapes& shapes) {
  std::vector<NamedTensor> file;
  for (const auto& [name, shape] : shapes)
    file.push_back({name, (fixed_noise(shape, file.size() + 1) * 256.0).to(i64).to(f32) / 256.0});
  return file;
}

Tensor find(const std::vector<NamedTensor>& all, const std::string& name) {
  for (const NamedTensor& n : all)
    if (n.name == name) return n.tensor;
  FAIL("no " << name);
  return {};
}

bool same(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.to_vector<double>() == b.to_vector<double>();
}

void check_same(const std::vector<NamedTensor>& got, const std::vector<NamedTensor>& want) {
  CHECK(got.size() == want.size());
  for (const NamedTensor& n : want) {
    INFO(n.name);
    CHECK(same(find(got, n.name), n.tensor));
  }
}

// Maps a file to the model and back; returns the model's tensors.
std::vector<NamedTensor> there_and_back(const NameMap& names, const std::vector<NamedTensor>& file,
                                        const std::set<std::string>& dropped = {}) {
  std::vector<NamedTensor> model, kept;
  for (const NameMap::Mapped& m : names(file)) model.push_back(m.tensor);
  for (const NamedTensor& n : file) {
    CHECK(names.targets(n.name).empty() == dropped.contains(n.name));
    if (!dropped.contains(n.name)) kept.push_back(n);
  }
  check_same(names.backwards(model), kept);
  return model;
}

// Rows of part 0, 1 or 2 of [H, 3, D] rows.
Tensor rows_of(const Tensor& qkv, int64_t part) {
  Tensors rows;
  for (int64_t h = 0; h < heads; ++h)
    rows.push_back(qkv.slice(0, (3 * h + part) * per_head, (3 * h + part + 1) * per_head));
  return cat(rows, 0);
}

nn::LanguageModel::Options with_heads(bool tied = false) {
  return {.vocabulary = words,
          .layer = {.d_model = width,
                    .attention = {.n_heads = heads, .position = nn::no_position()},
                    .feed_forward = {.d_hidden = hidden}},
          .tied = tied};
}

void add_linear(Shapes& shapes, const std::string& name, const Shape& shape, int64_t bias) {
  shapes.push_back({name + ".weight", shape});
  if (bias > 0) shapes.push_back({name + ".bias", {bias}});
}

}  // namespace

TEST_CASE("LLaMA's names: F16 in two shards, with grouped-query attention") {
  for (const bool tied : {false, true}) {
    nn::LanguageModel::Options o = nn::llama(words);
    o.n_layers = 2;
    o.layer.d_model = width;
    o.layer.attention.n_heads = heads;
    o.layer.attention.n_kv_heads = 1;
    o.layer.feed_forward.d_hidden = hidden;
    o.tied = tied;
    nn::LanguageModel model(o);
    Shapes shapes{{"model.embed_tokens.weight", {words, width}}, {"model.norm.weight", {width}}};
    if (!tied) shapes.push_back({"lm_head.weight", {words, width}});
    for (int l = 0; l < 2; ++l) {
      const std::string layer = str("model.layers.", l, ".");
      for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
        shapes.push_back({layer + norm + ".weight", {width}});
      for (const char* x : {"q", "o"})
        shapes.push_back({layer + "self_attn." + x + "_proj.weight", {width, width}});
      for (const char* x : {"k", "v"})
        shapes.push_back({layer + "self_attn." + x + "_proj.weight", {per_head, width}});
      for (const char* x : {"gate", "up"})
        shapes.push_back({layer + "mlp." + x + "_proj.weight", {hidden, width}});
      shapes.push_back({layer + "mlp.down_proj.weight", {width, hidden}});
    }
    const std::vector<NamedTensor> file = file_of(shapes);
    std::vector<NamedTensor> with_buffer = file;
    with_buffer.push_back({"model.layers.1.self_attn.rotary_emb.inv_freq", ones({2})});

    const TempDir dir;
    const NameMap names = nn::llama_names(model.options);
    const nn::LoadReport report =
        nn::load_weights(stretto::testing::save_two_shards(dir, with_buffer, true), model, names);
    CHECK(report.dropped.size() == 1);
    CHECK(same(model.layers[1].self_attention().k.weight,
               find(file, "model.layers.1.self_attn.k_proj.weight")));
    CHECK(same(model.layers[0].norm2->weight,
               find(file, "model.layers.0.post_attention_layernorm.weight")));
    CHECK(same(model.embedding.weight, find(file, "model.embed_tokens.weight")));
    // The activation is applied to gate_proj.
    CHECK(same(model.layers[1].feed_forward().linear1.weight,
               find(file, "model.layers.1.mlp.gate_proj.weight")));

    nn::save_weights(dir.file("back"), model, names);
    check_same(nn::load_safetensors(dir.file("back")).tensors, file);
    // The model without its head has no prefix.
    std::vector<NamedTensor> bare = file;
    for (NamedTensor& n : bare)
      if (n.name.starts_with("model.")) n.name.erase(0, 6);
    nn::save_safetensors(dir.file("bare"), bare);
    CHECK(nn::load_weights(dir.file("bare"), model, names).missing.empty());
  }
}

TEST_CASE("GPT-2's names: transposed matrices, with q, k and v in one") {
  nn::LanguageModel::Options o = with_heads(true);
  o.n_layers = 2;
  o.input = {.scale = false, .learned_length = 5};
  nn::LanguageModel model(o);
  Shapes shapes{{"transformer.wte.weight", {words, width}}, {"transformer.wpe.weight", {5, width}}};
  add_linear(shapes, "transformer.ln_f", {width}, width);
  std::vector<NamedTensor> buffers;
  for (int l = 0; l < 2; ++l) {
    const std::string layer = str("transformer.h.", l, ".");
    add_linear(shapes, layer + "ln_1", {width}, width);
    add_linear(shapes, layer + "ln_2", {width}, width);
    add_linear(shapes, layer + "attn.c_attn", {width, 3 * width}, 3 * width);
    add_linear(shapes, layer + "attn.c_proj", {width, width}, width);
    add_linear(shapes, layer + "mlp.c_fc", {width, hidden}, hidden);
    add_linear(shapes, layer + "mlp.c_proj", {hidden, width}, width);
    buffers.push_back({layer + "attn.bias", ones({1, 1, 5, 5})});
    buffers.push_back({layer + "attn.masked_bias", ones({})});
  }
  const std::vector<NamedTensor> file = file_of(shapes);
  std::vector<NamedTensor> all = file;
  all.insert(all.end(), buffers.begin(), buffers.end());
  all.push_back({"lm_head.weight", file[0].tensor});  // tied, and yet in the file

  const TempDir dir;
  const NameMap names = nn::gpt2_names(model.options);
  CHECK(
      nn::load_weights(stretto::testing::save_two_shards(dir, all), model, names).dropped.size() ==
      4);
  const auto& layer = model.layers[1];
  const Tensor qkv = find(file, "transformer.h.1.attn.c_attn.weight");
  CHECK(same(layer.self_attention().k.weight, qkv.slice(1, width, 2 * width).transpose(0, 1)));
  CHECK(same(layer.self_attention().v.bias,
             find(file, "transformer.h.1.attn.c_attn.bias").slice(0, 2 * width)));
  CHECK(same(layer.self_attention().out.weight,
             find(file, "transformer.h.1.attn.c_proj.weight").transpose(0, 1)));
  CHECK(same(layer.feed_forward().linear2.weight,
             find(file, "transformer.h.1.mlp.c_proj.weight").transpose(0, 1)));
  CHECK(same(model.embedding.positions.table, find(file, "transformer.wpe.weight")));
  nn::save_weights(dir.file("back"), model, names);
  check_same(nn::load_safetensors(dir.file("back")).tensors, file);
}

TEST_CASE("GPT-NeoX's and BLOOM's names: q, k and v of each head side by side") {
  for (const bool bloom : {false, true}) {
    const std::string prefix = bloom ? "transformer." : "gpt_neox.";
    const std::string layer = prefix + (bloom ? "h.1." : "layers.1.");
    const std::string attention = layer + (bloom ? "self_attention." : "attention.");
    Shapes shapes{{prefix + (bloom ? "word_embeddings" : "embed_in") + ".weight", {words, width}}};
    if (!bloom) shapes.push_back({"embed_out.weight", {words, width}});
    if (bloom) add_linear(shapes, prefix + "word_embeddings_layernorm", {width}, width);
    add_linear(shapes, prefix + (bloom ? "ln_f" : "final_layer_norm"), {width}, width);
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
      add_linear(shapes, layer + norm, {width}, width);
    add_linear(shapes, attention + "query_key_value", {3 * width, width}, 3 * width);
    add_linear(shapes, attention + "dense", {width, width}, width);
    add_linear(shapes, layer + "mlp.dense_h_to_4h", {hidden, width}, hidden);
    add_linear(shapes, layer + "mlp.dense_4h_to_h", {width, hidden}, width);
    std::set<std::string> dropped;
    if (!bloom)
      dropped = {attention + "bias", attention + "masked_bias", attention + "rotary_emb.inv_freq"};
    for (const std::string& name : dropped) shapes.push_back({name, {1}});
    const std::vector<NamedTensor> file = file_of(shapes);
    const NameMap names =
        bloom ? nn::bloom_names(with_heads(true)) : nn::gpt_neox_names(with_heads());
    const std::vector<NamedTensor> model = there_and_back(names, file, dropped);
    const Tensor qkv = find(file, attention + "query_key_value.weight");
    const char* parts[] = {"q", "k", "v"};
    for (int64_t i = 0; i < 3; ++i) {
      const std::string ours = str("layers.1.self_attention.", parts[i]);
      CHECK(same(find(model, ours + ".weight"), rows_of(qkv, i)));
      CHECK(same(find(model, ours + ".bias"),
                 rows_of(find(file, attention + "query_key_value.bias"), i)));
    }
    CHECK(same(find(model, "layers.1.self_attention.out.bias"),
               find(file, attention + "dense.bias")));
    CHECK(same(find(model, "layers.1.norm2.bias"),
               find(file, layer + "post_attention_layernorm.bias")));
    CHECK(same(find(model, "norm.weight"),
               find(file, prefix + (bloom ? "ln_f.weight" : "final_layer_norm.weight"))));
    if (bloom)
      CHECK(same(find(model, "embedding.positions.norm.bias"),
                 find(file, "transformer.word_embeddings_layernorm.bias")));
  }
}

TEST_CASE("GPT-J's and Qwen3's names") {
  Shapes shapes{{"transformer.wte.weight", {words, width}}};
  add_linear(shapes, "lm_head", {words, width}, words);
  add_linear(shapes, "transformer.ln_f", {width}, width);
  add_linear(shapes, "transformer.h.10.ln_1", {width}, width);
  for (const char* x : {"q", "k", "v", "out"})
    add_linear(shapes, str("transformer.h.10.attn.", x, "_proj"), {width, width}, 0);
  add_linear(shapes, "transformer.h.10.mlp.fc_in", {hidden, width}, hidden);
  add_linear(shapes, "transformer.h.10.mlp.fc_out", {width, hidden}, width);
  shapes.push_back({"transformer.h.10.attn.bias", {1}});
  shapes.push_back({"transformer.h.10.attn.masked_bias", {1}});
  const std::vector<NamedTensor> file = file_of(shapes);
  const std::vector<NamedTensor> model =
      there_and_back(nn::gptj_names(with_heads()), file,
                     {"transformer.h.10.attn.bias", "transformer.h.10.attn.masked_bias"});
  CHECK(same(find(model, "layers.10.self_attention.out.weight"),
             find(file, "transformer.h.10.attn.out_proj.weight")));
  CHECK(same(find(model, "out.bias"), find(file, "lm_head.bias")));
  CHECK(same(find(model, "layers.10.feed_forward.linear1.bias"),
             find(file, "transformer.h.10.mlp.fc_in.bias")));

  const NameMap qwen = nn::llama_names(with_heads());
  const auto normed =
      there_and_back(qwen, file_of({{"model.layers.0.self_attn.q_norm.weight", {per_head}},
                                    {"model.layers.0.self_attn.q_proj.bias", {width}}}));
  CHECK(find(normed, "layers.0.self_attention.q_norm.weight").defined());
  CHECK(find(normed, "layers.0.self_attention.q.bias").defined());
}

TEST_CASE("deberta_names maps DeBERTa of versions 2 and 3") {
  Shapes shapes{{"deberta.embeddings.word_embeddings.weight", {words, width}},
                {"deberta.encoder.rel_embeddings.weight", {6, width}}};
  add_linear(shapes, "deberta.embeddings.LayerNorm", {width}, width);
  add_linear(shapes, "deberta.encoder.LayerNorm", {width}, width);
  const std::string layer = "deberta.encoder.layer.0.";
  for (const char* x : {"self.query_proj", "self.key_proj", "self.value_proj", "output.dense"})
    add_linear(shapes, layer + "attention." + x, {width, width}, width);
  add_linear(shapes, layer + "attention.output.LayerNorm", {width}, width);
  add_linear(shapes, layer + "intermediate.dense", {hidden, width}, hidden);
  add_linear(shapes, layer + "output.dense", {width, hidden}, width);
  add_linear(shapes, layer + "output.LayerNorm", {width}, width);
  const std::set<std::string> dropped{
      "deberta.embeddings.position_ids", "cls.predictions.transform.dense.weight",
      "lm_predictions.lm_head.bias", "deberta.embeddings.position_embeddings.weight",
      "pooler.dense.weight"};
  for (const std::string& name : dropped) shapes.push_back({name, {1}});
  shapes.push_back({"deberta.encoder.conv.conv.weight", {width, width, 3}});
  add_linear(shapes, "deberta.encoder.conv.LayerNorm", {width}, width);
  const std::vector<NamedTensor> file = file_of(shapes);
  nn::Bert::Options options = nn::deberta_v3_base(words);
  options.kernel_size = 3;
  const std::vector<NamedTensor> model = there_and_back(nn::deberta_names(options), file, dropped);
  const auto in_model = [](const std::string& name) { return "encoder.layers.0." + name; };
  CHECK(same(find(model, in_model("self_attention.q.bias")),
             find(file, layer + "attention.self.query_proj.bias")));
  CHECK(same(find(model, in_model("norm1.weight")),
             find(file, layer + "attention.output.LayerNorm.weight")));
  CHECK(same(find(model, in_model("norm2.weight")), find(file, layer + "output.LayerNorm.weight")));
  CHECK(same(find(model, "relative_norm.bias"), find(file, "deberta.encoder.LayerNorm.bias")));
  const Tensor window = find(file, "deberta.encoder.conv.conv.weight");
  for (int64_t i = 0; i < 3; ++i)
    CHECK(same(find(model, "convolution.window.weight").slice(1, i * width, (i + 1) * width),
               window.select(2, i)));
  CHECK(model.size() == file.size() - dropped.size());
}

TEST_CASE("the maps of T5 and the other older models can be inverted too") {
  nn::SequenceToSequence::Options t5 = nn::t5_options(13, nn::T5Version::v1_0);
  t5.n_encoder_layers = t5.n_decoder_layers = 1;
  t5.layer.d_model = width;
  t5.layer.attention.n_heads = heads;
  t5.layer.attention.d_key = t5.layer.attention.d_value = per_head;
  t5.layer.feed_forward.d_hidden = hidden;
  t5.encoder_position = nn::t5_bias({.buckets = 8, .max_distance = 20});
  t5.decoder_position = nn::t5_bias({.buckets = 8, .max_distance = 20});
  const TempDir dir;
  const auto check_back = [&](nn::Module& model, nn::Module& other, const NameMap& names) {
    nn::save_weights(dir.file("w"), model, names);
    nn::load_weights(dir.file("w"), other, names);
    check_same(other.named_parameters(), model.named_parameters());
    nn::save_weights(dir.file("v"), other, names);
    CHECK(stretto::testing::read_file(dir.file("v")) == stretto::testing::read_file(dir.file("w")));
  };
  nn::SequenceToSequence encoder_decoder(t5), other(t5);
  check_back(encoder_decoder, other, nn::t5_names(encoder_decoder.options));
  const nn::Safetensors file = nn::load_safetensors(dir.file("w"));
  CHECK(file["decoder.block.0.layer.2.DenseReluDense.wi.weight"].size(0) == hidden);
  CHECK(file["shared.weight"].size(0) == 13);

  nn::LanguageModel::Options music = nn::gwinndr_options(9, 5);
  music.layer.d_model = width;
  music.layer.attention.n_heads = heads;
  music.layer.feed_forward.d_hidden = hidden;
  music.n_layers = 1;
  nn::LanguageModel a(music), b(music);
  check_back(a, b, nn::gwinndr_names());
  CHECK(nn::load_safetensors(dir.file("w"))["transformer.encoder.layers.0.self_attn.Er"].dim() ==
        2);
}
