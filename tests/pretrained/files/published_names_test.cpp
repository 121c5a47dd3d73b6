// Files in the original authors' formats, written here, are loaded into our models; each tensor is
// loaded into the parameter with the same meaning.
#include "pretrained/files/published_names.h"

#include <cmath>

#include "autograd/tape.h"
#include "nn/files/weights.h"
#include "nn/models/transformer_xl.h"
#include "nn/positions/relative_bias.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using testing::fixed_noise;
using testing::TempDir;
using testing::worst_error;

namespace {

// A file's tensors, each with distinct values.
class File {
 public:
  void add(const std::string& name, const Shape& shape) {
    tensors_.push_back({name, fixed_noise(shape, tensors_.size() + 1) * 0.3});
  }
  void add(const std::string& name, const Tensor& value) { tensors_.push_back({name, value}); }
  void remove(const std::string& name) {
    std::erase_if(tensors_, [&](const nn::NamedTensor& n) { return n.name == name; });
  }
  Tensor operator[](const std::string& name) const {
    for (const nn::NamedTensor& n : tensors_)
      if (n.name == name) return n.tensor;
    FAIL("no " << name);
    return {};
  }
  void save(const std::string& path) const { nn::save_safetensors(path, tensors_); }

 private:
  std::vector<nn::NamedTensor> tensors_;
};

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "(nothing thrown)";
}

// ----------------------------------------------------------------------------- Transformer-XL

constexpr int64_t words = 11, width = 8, hidden = 12, heads = 2, per_head = 3, n_layers = 2;

nn::LanguageModel::Options xl_options() {
  nn::LanguageModel::Options o = nn::transformer_xl(words);
  o.n_layers = n_layers;
  o.layer = {.d_model = width,
             .attention = {.n_heads = heads, .d_key = per_head, .d_value = per_head, .bias = false},
             .feed_forward = {.d_hidden = hidden},
             .norm = nn::NormPlace::post};
  return o;
}

// The names of kimiyoung/transformer-xl; with a prefix, those of Hugging Face.
File xl_file(const nn::LanguageModel::Options& o, const std::string& prefix = "") {
  File file;
  const auto clusters = int64_t(o.adaptive->cutoffs.size()) + 1, n = heads * per_head;
  const auto columns = [&](int64_t i) { return width / int64_t(std::pow(o.adaptive->div, i)); };
  const auto rows = [&](int64_t i) {
    const int64_t first = i == 0 ? 0 : o.adaptive->cutoffs[size_t(i - 1)];
    return (i + 1 == clusters ? words : o.adaptive->cutoffs[size_t(i)]) - first;
  };
  const int64_t tables = o.adaptive->div == 1 ? 1 : clusters;
  for (int64_t i = 0; i < tables; ++i) {
    const int64_t length = o.adaptive->div == 1 ? words : rows(i);
    const std::string table = str("word_emb.emb_layers.", i, ".weight");
    file.add(prefix + table, {length, columns(i)});
    if (o.adaptive->div > 1) file.add(str(prefix, "word_emb.emb_projs.", i), {width, columns(i)});
    if (o.tied)
      file.add(str("crit.out_layers.", i, ".weight"), file[prefix + table]);
    else
      file.add(str("crit.out_layers.", i, ".weight"), {length, columns(i)});
    file.add(str("crit.out_layers.", i, ".bias"), {length});
    if (o.adaptive->div > 1) {
      const bool tied = !o.tied_projections.empty() && o.tied_projections[size_t(i)];
      const std::string name = str("crit.out_projs.", i);
      tied ? file.add(name, file[str(prefix, "word_emb.emb_projs.", i)])
           : file.add(name, {width, columns(i)});
    }
  }
  if (clusters > 1) {
    file.add("crit.cluster_weight", {clusters - 1, width});
    file.add("crit.cluster_bias", {clusters - 1});
  }
  file.add(prefix + "pos_emb.inv_freq", {width / 2});
  if (o.tied_biases)
    for (const char* name : {"r_w_bias", "r_r_bias"}) file.add(prefix + name, {heads, per_head});
  for (int64_t l = 0; l < n_layers; ++l) {
    const std::string layer = str(prefix, "layers.", l, ".");
    file.add(layer + "dec_attn.qkv_net.weight", {3 * n, width});
    file.add(layer + "dec_attn.r_net.weight", {n, width});
    file.add(layer + "dec_attn.o_net.weight", {width, n});
    if (!o.tied_biases)
      for (const char* name : {"r_w_bias", "r_r_bias"})
        file.add(layer + "dec_attn." + name, {heads, per_head});
    for (const char* norm : {"dec_attn.layer_norm.", "pos_ff.layer_norm."})
      for (const char* kind : {"weight", "bias"}) file.add(layer + norm + kind, {width});
    file.add(layer + "pos_ff.CoreNet.0.weight", {hidden, width});
    file.add(layer + "pos_ff.CoreNet.0.bias", {hidden});
    file.add(layer + "pos_ff.CoreNet.3.weight", {width, hidden});
    file.add(layer + "pos_ff.CoreNet.3.bias", {width});
  }
  return file;
}

// The network of the authors' code, written with their names: layer by layer, scores by relative
// position, no dropout. ids [L] → [L, width].
Tensor xl_hidden(const File& f, const nn::LanguageModel::Options& o, const std::string& prefix,
                 const std::vector<int64_t>& ids) {
  const int64_t length = int64_t(ids.size());
  const auto clusters = int64_t(o.adaptive->cutoffs.size()) + 1;
  Tensors rows;
  for (const int64_t id : ids) {
    int64_t i = 0;
    while (o.adaptive->div > 1 && i + 1 < clusters && id >= o.adaptive->cutoffs[size_t(i)]) ++i;
    const int64_t first = i == 0 ? 0 : o.adaptive->cutoffs[size_t(i - 1)];
    Tensor row = f[str(prefix, "word_emb.emb_layers.", i, ".weight")][id - first].unsqueeze(1);
    if (o.adaptive->div > 1) row = matmul(f[str(prefix, "word_emb.emb_projs.", i)], row);
    rows.push_back(row.squeeze(1));
  }
  Tensor x = stack(rows, 0) * std::sqrt(double(width));
  const Tensor r = nn::sinusoids(length, width, nn::Sinusoid::concatenated, 0, 1, {.dtype = f64});
  const auto norm = [&](const Tensor& t, const std::string& name) {
    return layer_norm(t, f[name + ".weight"], f[name + ".bias"]);
  };
  for (int64_t l = 0; l < n_layers; ++l) {
    const std::string layer = str(prefix, "layers.", l, ".");
    const std::string owner = o.tied_biases ? prefix : layer + "dec_attn.";
    const Tensor u = f[owner + "r_w_bias"], v = f[owner + "r_r_bias"];
    const Tensor qkv = linear(x, f[layer + "dec_attn.qkv_net.weight"]);
    const Tensor rk = linear(r, f[layer + "dec_attn.r_net.weight"]);
    const int64_t n = heads * per_head;
    Tensors joined;
    for (int64_t h = 0; h < heads; ++h) {
      const auto head = [&](const Tensor& t, int64_t part) {
        return t.slice(1, part * n + h * per_head, part * n + (h + 1) * per_head);
      };
      const Tensor q = head(qkv, 0), k = head(qkv, 1), value = head(qkv, 2);
      Tensors out;
      for (int64_t i = 0; i < length; ++i) {
        Tensors scores;
        for (int64_t j = 0; j <= i; ++j)
          scores.push_back((sum((q[i] + u[h]) * k[j]) + sum((q[i] + v[h]) * head(rk, 0)[i - j])) /
                           std::sqrt(double(per_head)));
        const Tensor p = softmax(stack(scores, 0), 0);
        out.push_back(sum(p.unsqueeze(1) * value.slice(0, 0, i + 1), {0}));
      }
      joined.push_back(stack(out, 0));
    }
    const Tensor a = linear(cat(joined, 1), f[layer + "dec_attn.o_net.weight"]);
    x = norm(x + a, layer + "dec_attn.layer_norm");
    const std::string net = layer + "pos_ff.CoreNet.";
    const Tensor inner = relu(linear(x, f[net + "0.weight"], f[net + "0.bias"]));
    x = norm(x + linear(inner, f[net + "3.weight"], f[net + "3.bias"]),
             layer + "pos_ff.layer_norm");
  }
  return x;
}

// The authors' adaptive softmax for one row h [width]: cluster i is column −i of the head in the
// PyTorch code, and column cutoffs[0] + i − 1 in Hugging Face's forward pass.
double xl_nll(const File& f, const nn::LanguageModel::Options& o, bool from_the_end,
              const Tensor& h, int64_t target) {
  const auto clusters = int64_t(o.adaptive->cutoffs.size()) + 1;
  const auto scores = [&](int64_t i) {
    const int64_t table = o.adaptive->div == 1 ? 0 : i;
    const int64_t first = o.adaptive->div > 1 || i == 0 ? 0 : o.adaptive->cutoffs[size_t(i - 1)];
    Tensor w = f[str("crit.out_layers.", table, ".weight")];
    Tensor b = f[str("crit.out_layers.", table, ".bias")];
    if (o.adaptive->div == 1) {
      const int64_t last = i + 1 == clusters ? words : o.adaptive->cutoffs[size_t(i)];
      w = w.slice(0, first, last);
      b = b.slice(0, first, last);
    }
    if (i == 0 && clusters > 1) {
      w = cat({w, f["crit.cluster_weight"]}, 0);
      b = cat({b, f["crit.cluster_bias"]}, 0);
    }
    Tensor x = h.unsqueeze(0);
    if (o.adaptive->div > 1) x = matmul(x, f[str("crit.out_projs.", i)]);
    return log_softmax(linear(x, w, b), -1)[0];
  };
  int64_t cluster = 0;
  while (cluster + 1 < clusters && target >= o.adaptive->cutoffs[size_t(cluster)]) ++cluster;
  const Tensor head = scores(0);
  if (cluster == 0) return -head[target].item();
  const int64_t column =
      from_the_end ? head.size(0) - cluster : o.adaptive->cutoffs[0] + cluster - 1;
  return -head[column].item() -
         scores(cluster)[target - o.adaptive->cutoffs[size_t(cluster - 1)]].item();
}

void check_xl(const nn::LanguageModel::Options& o, nn::TransformerXLSource source) {
  const TempDir dir;
  const bool pytorch = source == nn::TransformerXLSource::pytorch;
  const std::string prefix = pytorch ? "" : "transformer.";
  const File file = xl_file(o, prefix);
  file.save(dir.file("w"));
  nn::LanguageModel model(o);
  model.to(f64);
  model.eval();
  nn::load_weights(dir.file("w"), model, nn::transformer_xl_names(model.options, source));
  NoGrad guard;
  const std::vector<int64_t> ids{3, 10, 0, 7, 5, 9};
  const std::vector<int64_t> targets{10, 0, 7, 5, 9, 2};
  const Tensor tokens = tensor(ids, {1, 6});
  const Tensor got = model.hidden(tokens), want = xl_hidden(file, o, prefix, ids);
  CHECK(worst_error(got[0], want) < 1e-12);

  // Saved under the authors' names and loaded again: tied tensors and duplicates, once each.
  const auto names = nn::transformer_xl_names(model.options, source);
  nn::save_weights(dir.file("back"), model, names);
  const nn::Safetensors back = nn::load_safetensors(dir.file("back"));
  for (const auto& [name, value] : back.tensors) CHECK(worst_error(value, file[name]) == 0);
  nn::LanguageModel other(o);
  other.to(f64);
  CHECK(nn::load_weights(dir.file("back"), other, names).missing.empty());
  const Tensor nll = model.nll(tokens, tensor(targets, {1, 6}));
  for (int64_t i = 0; i < 6; ++i)
    CHECK(nll[0][i].item() ==
          Approx(xl_nll(file, o, pytorch, want[i], targets[size_t(i)])).epsilon(1e-11));
}

}  // namespace

TEST_CASE("Transformer-XL's weights load under its authors' names and Hugging Face's") {
  using Source = nn::TransformerXLSource;
  for (const Source source : {Source::pytorch, Source::hugging_face})
    for (const bool tied_biases : {true, false}) {
      if (source == Source::pytorch && !tied_biases) continue;  // no such option there
      nn::LanguageModel::Options o = xl_options();
      o.tied_biases = tied_biases;
      check_xl(o, source);
      o.adaptive->cutoffs = {4, 6, 9};
      check_xl(o, source);
      o.tied = false;
      check_xl(o, source);
      o.adaptive->div = 2;
      check_xl(o, source);
      o.tied = true;
      o.tied_projections = {false, true, true, false};
      check_xl(o, source);
    }
}

TEST_CASE("Transformer-XL's weights: tensors that do not fit are named") {
  const TempDir dir;
  const std::string path = dir.file("w");
  nn::LanguageModel model(xl_options());
  const auto names = nn::transformer_xl_names(model.options, nn::TransformerXLSource::pytorch);
  const auto load = [&](const File& file) {
    file.save(path);
    return error_of([&] { nn::load_weights(path, model, names); });
  };
  const File good = xl_file(xl_options());
  CHECK(load(good) == "(nothing thrown)");
  const std::vector<float> before = model.u.to_vector<float>();

  File file = good;
  file.remove("layers.1.dec_attn.qkv_net.weight");
  CHECK(load(file) ==
        "[load] layers.1.self_attention.q.weight: not in the file; "
        "layers.1.self_attention.k.weight: not in the file; "
        "layers.1.self_attention.v.weight: not in the file (" +
            path + ")");
  file = good;
  file.add("layers.2.dec_attn.r_net.weight", {6, 8});
  CHECK(load(file) ==
        "[load] layers.2.self_attention.position.r.weight "
        "(layers.2.dec_attn.r_net.weight): in the file, but not expected (" +
            path + ")");
  file = good;
  file.remove("r_w_bias");
  file.add("r_w_bias", {2, 4});
  CHECK(load(file) ==
        "[load] u (r_w_bias): file has f64 [2, 4], the model f32 [2, 3] (" + path + ")");
  file = good;
  file.remove("crit.out_layers.0.weight");
  CHECK(load(file) == "(nothing thrown)");  // tied: once is enough
  file.add("crit.out_layers.0.weight", {words, width});
  CHECK_THAT(load(file), Containing("embedding.weight0 (word_emb.emb_layers.0.weight): in the file "
                                    "twice, with different values"));
  CHECK(model.u.to_vector<float>() == before);
}

TEST_CASE("T5's weights load under Hugging Face's names") {
  for (const nn::T5Version version : {nn::T5Version::v1_0, nn::T5Version::v1_1}) {
    const bool gated = version == nn::T5Version::v1_1;
    nn::SequenceToSequence::Options o = nn::t5_options(13, version);
    o.layer.d_model = 6;
    o.layer.attention.n_heads = 2;
    o.layer.attention.d_key = o.layer.attention.d_value = 4;
    o.layer.feed_forward.d_hidden = 10;
    o.n_encoder_layers = 2;
    o.n_decoder_layers = 2;
    o.encoder_position = nn::t5_bias({.buckets = 8, .max_distance = 20});
    o.decoder_position = nn::t5_bias({.buckets = 8, .max_distance = 20});
    nn::SequenceToSequence model(o);

    File file;
    file.add("shared.weight", {13, 6});
    file.add("encoder.embed_tokens.weight", file["shared.weight"]);
    file.add("decoder.embed_tokens.weight", file["shared.weight"]);
    o.tied ? file.add("lm_head.weight", file["shared.weight"])
           : file.add("lm_head.weight", {13, 6});
    for (const std::string stack : {"encoder.", "decoder."}) {
      const int last = stack == "decoder." ? 2 : 1;
      for (int l = 0; l < 2; ++l) {
        const auto part = [&](int i) { return str(stack, "block.", l, ".layer.", i, "."); };
        for (int i = 0; i < last; ++i) {
          const std::string attention = part(i) + (i == 0 ? "SelfAttention." : "EncDecAttention.");
          for (const char* x : {"q", "k", "v"}) file.add(attention + x + ".weight", {8, 6});
          file.add(attention + "o.weight", {6, 8});
          if (i == 0 && l == 0) file.add(attention + "relative_attention_bias.weight", {8, 2});
        }
        for (int i = 0; i <= last; ++i) file.add(part(i) + "layer_norm.weight", {6});
        const std::string dense = part(last) + "DenseReluDense.";
        for (const char* wi : {"wi_0", "wi_1"})
          if (gated) file.add(dense + wi + ".weight", {10, 6});
        if (!gated) file.add(dense + "wi.weight", {10, 6});
        file.add(dense + "wo.weight", {6, 10});
      }
      file.add(stack + "final_layer_norm.weight", {6});
    }
    const TempDir dir;
    file.save(dir.file("w"));
    nn::load_weights(dir.file("w"), model, nn::t5_names(model.options));

    const auto is = [&](const Tensor& ours, const std::string& name) {
      CHECK(worst_error(ours.detach(), file[name].to(f32)) == 0);
    };
    const auto& encoder = model.encoder.layers[1];
    const auto& decoder = model.decoder.layers[1];
    is(model.source_embedding.weight, "shared.weight");
    is(encoder.self_attention().q.weight, "encoder.block.1.layer.0.SelfAttention.q.weight");
    is(encoder.self_attention().out.weight, "encoder.block.1.layer.0.SelfAttention.o.weight");
    is(encoder.norm1.weight, "encoder.block.1.layer.0.layer_norm.weight");
    is(encoder.norm2->weight, "encoder.block.1.layer.1.layer_norm.weight");
    is(decoder.self_attention().v.weight, "decoder.block.1.layer.0.SelfAttention.v.weight");
    is(decoder.cross_attention.k.weight, "decoder.block.1.layer.1.EncDecAttention.k.weight");
    is(decoder.norm2.weight, "decoder.block.1.layer.1.layer_norm.weight");
    is(decoder.norm3.weight, "decoder.block.1.layer.2.layer_norm.weight");
    const std::string dense = "decoder.block.1.layer.2.DenseReluDense.";
    is(decoder.feed_forward().linear1.weight, dense + (gated ? "wi_0.weight" : "wi.weight"));
    if (gated) is(decoder.feed_forward().up->weight, dense + "wi_1.weight");
    is(decoder.feed_forward().linear2.weight, dense + "wo.weight");
    is(model.decoder.norm->weight, "decoder.final_layer_norm.weight");
    if (gated) is(model.out->weight, "lm_head.weight");
    for (const auto& [name, value] : model.named_parameters())
      if (name == "encoder.layers.0.self_attention.position.table")
        is(value, "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight");

    file.remove("decoder.block.1.layer.1.EncDecAttention.q.weight");
    file.save(dir.file("w"));
    CHECK_THAT(
        error_of([&] { nn::load_weights(dir.file("w"), model, nn::t5_names(model.options)); }),
        Containing("decoder.layers.1.cross_attention.q.weight: not in the file"));
  }
}

TEST_CASE("the weights of gwinndr's Music Transformer load") {
  // Its number of parameters with relative attention, at its sizes.
  CHECK(nn::LanguageModel(nn::gwinndr_options()).parameter_count() == 13'803'910);

  nn::LanguageModel::Options o = nn::gwinndr_options(9, 5);
  o.layer.d_model = 6;
  o.n_layers = 2;
  o.layer.attention.n_heads = 2;
  o.layer.feed_forward.d_hidden = 10;
  nn::LanguageModel model(o);
  File file;
  file.add("embedding.weight", {9, 6});
  file.add("positional_encoding.pe", {5, 1, 6});
  for (int l = 0; l < 2; ++l) {
    const std::string layer = str("transformer.encoder.layers.", l, ".");
    file.add(layer + "self_attn.Er", {5, 3});
    file.add(layer + "self_attn.in_proj_weight", {18, 6});
    file.add(layer + "self_attn.in_proj_bias", {18});
    file.add(layer + "self_attn.out_proj.weight", {6, 6});
    file.add(layer + "self_attn.out_proj.bias", {6});
    file.add(layer + "linear1.weight", {10, 6});
    file.add(layer + "linear1.bias", {10});
    file.add(layer + "linear2.weight", {6, 10});
    file.add(layer + "linear2.bias", {6});
    for (const char* norm : {"norm1.", "norm2."})
      for (const char* kind : {"weight", "bias"}) file.add(layer + norm + kind, {6});
  }
  for (const char* kind : {"weight", "bias"}) file.add(str("transformer.encoder.norm.", kind), {6});
  file.add("Wout.weight", {9, 6});
  file.add("Wout.bias", {9});

  const TempDir dir;
  file.save(dir.file("w"));
  nn::load_weights(dir.file("w"), model, nn::gwinndr_names());
  const auto is = [&](const Tensor& ours, const Tensor& published) {
    CHECK(worst_error(ours.detach(), published.to(f32)) == 0);
  };
  const auto& layer = model.layers[1];
  const std::string prefix = "transformer.encoder.layers.1.";
  is(layer.self_attention().k.weight, file[prefix + "self_attn.in_proj_weight"].slice(0, 6, 12));
  is(layer.self_attention().v.bias, file[prefix + "self_attn.in_proj_bias"].slice(0, 12, 18));
  is(layer.self_attention().out.bias, file[prefix + "self_attn.out_proj.bias"]);
  is(layer.norm2->weight, file[prefix + "norm2.weight"]);
  is(layer.feed_forward().linear1.weight, file[prefix + "linear1.weight"]);
  is(model.norm->bias, file["transformer.encoder.norm.bias"]);
  is(model.out->bias, file["Wout.bias"]);
  for (const auto& [name, value] : model.named_parameters())
    if (name == "layers.1.self_attention.position.table")
      is(value, file[prefix + "self_attn.Er"].unsqueeze(0));
  CHECK_THROWS_WITH(model(zeros({1, 6}, {.dtype = i64})), Containing("key table reaches from -4"));

  file.add("transformer.encoder.layers.0.self_attn.mask", {1});
  file.save(dir.file("w"));
  CHECK_THAT(
      error_of([&] { nn::load_weights(dir.file("w"), model, nn::gwinndr_names()); }),
      Containing("transformer.encoder.layers.0.self_attn.mask: in the file, but not expected"));
}

TEST_CASE("gguf_rotary_rows is the inverse of llama.cpp's order of rows") {
  // 2 heads of 6 rows. In the model, row i and row i + 3 of a head are rotated together; in the
  // file they are adjacent.
  std::vector<float> in_file, in_model;
  for (int head = 0; head < 2; ++head) {
    for (const int row : {0, 3, 1, 4, 2, 5}) in_file.push_back(float(10 * head + row));
    for (int row = 0; row < 6; ++row) in_model.push_back(float(10 * head + row));
  }
  const nn::Conversion rows = nn::gguf_rotary_rows(2);
  const Tensor bias = tensor(in_file, {12}), matrix = bias.unsqueeze(1).expand({12, 3});
  CHECK(rows.moves_only);
  CHECK(rows.there(bias).to_vector<float>() == in_model);
  CHECK(rows.there(matrix).select(1, 2).to_vector<float>() == in_model);
  CHECK(rows.there(matrix).shape() == Shape{12, 3});
  CHECK(rows.back(rows.there(bias)).to_vector<float>() == in_file);
  CHECK_THROWS_WITH(rows.there(zeros({6})), Containing("must be a multiple of 4, for 2 heads"));

  nn::LanguageModel::Options options = nn::llama(10);
  const auto target = [&](nn::GgufRows order, const std::string& name) {
    return nn::gguf_llama_names(options, order).targets(name)[0];
  };
  for (const nn::GgufRows order : {nn::GgufRows::pairs, nn::GgufRows::halves}) {
    CHECK(target(order, "blk.3.attn_q.weight") == "layers.3.self_attention.q.weight");
    CHECK(target(order, "blk.3.attn_k.bias") == "layers.3.self_attention.k.bias");
    CHECK(target(order, "blk.3.ffn_gate.weight") == "layers.3.feed_forward.gate.weight");
    CHECK(target(order, "output.weight") == "out.weight");
    CHECK(target(order, "rope_freqs.weight") == "rope_freqs.weight");  // not dropped: it matters
  }
}
