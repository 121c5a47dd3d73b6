// Calls of the library whose instructions instructions.sh counts. Each is run once before, so that
// what is computed only once does not count.
//   instructions          makes all calls
//   instructions --names  prints their names, one per line
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "autograd/tape.h"
#include "core/parallel.h"
#include "nn/attention/feature_map.h"
#include "nn/attention/linear_attention.h"
#include "nn/models/language_model.h"
#include "nn/models/moe.h"
#include "nn/optim/muon.h"
#include "nn/optim/optim.h"
#include "nn/positions/relative_table.h"
#include "nn/positions/spe.h"
#include "ops/attention/attention.h"
#include "ops/attention/gated_linear_attention.h"
#include "ops/attention/linear_attention.h"
#include "ops/attention/rotary.h"
#include "ops/conv/conv.h"
#include "ops/create.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/feed_forward.h"
#include "ops/fft/fft.h"
#include "ops/fft/fft_conv.h"
#include "ops/indexing.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/reduce.h"
#include "ops/softmax.h"

using namespace stretto;

/// The function whose instructions are counted.
extern "C" __attribute__((noinline)) void counted_call(const std::function<void()>& call) {
  call();
  asm volatile("" ::: "memory");  // no tail call
}

namespace {

struct Call {
  std::string name;
  std::function<void()> run;
};
std::vector<Call> calls;

uint64_t stream = 0;
Tensor input(const Shape& shape, DType type = f32) {
  return randn(shape, RandomKey{5, ++stream}).to(type);
}
Tensor leaf(const Shape& shape, DType type = f32) { return input(shape, type).set_requires_grad(); }

void add_call(const std::string& name, const std::function<void()>& run) {
  calls.push_back({name, run});
}
/// Adds f with its backward pass.
void add_trained(const std::string& name, const Tensors& leaves, const std::function<Tensor()>& f) {
  const Tensor g = input(f().shape(), f().dtype());
  add_call(name, [=] { grad({f()}, leaves, {g}); });
}

void add_products() {
  struct Form {
    std::string name;
    int64_t m, n, k;
    bool a_transposed, b_transposed;
    DType type;
  };
  for (const Form& f : {Form{"NN f32", 128, 192, 160, false, false, f32},
                        Form{"NT f32", 128, 192, 160, false, true, f32},
                        Form{"TN f32", 128, 192, 160, true, false, f32},
                        Form{"NN f64", 128, 96, 96, false, false, f64},
                        Form{"NT bf16", 128, 192, 160, false, true, bf16},
                        Form{"TN bf16", 128, 192, 160, true, false, bf16},
                        Form{"row NT f32", 1, 512, 768, false, true, f32},
                        Form{"row NN f32", 1, 512, 768, false, false, f32},
                        Form{"row NT bf16", 1, 512, 768, false, true, bf16}}) {
    const Tensor a = input(f.a_transposed ? Shape{f.k, f.m} : Shape{f.m, f.k}, f.type),
                 b = input(f.b_transposed ? Shape{f.n, f.k} : Shape{f.k, f.n}, f.type);
    const Tensor x = f.a_transposed ? a.t() : a, y = f.b_transposed ? b.t() : b;
    add_call("product " + f.name, [=] { matmul(x, y); });
  }
  const Tensor a = input({16, 40, 24}), b = input({16, 24, 40});
  add_call("product batch f32", [=] { matmul(a, b); });
}

void add_attention() {
  const int64_t H = 2, L = 192, D = 64;
  for (const DType type : {f32, bf16}) {
    const auto tensor_of = [&](const Shape& shape) { return leaf(shape, type); };
    const Tensor q = tensor_of({1, H, L, D}), k = tensor_of({1, H, L, D}),
                 v = tensor_of({1, H, L, D});
    const auto trained = [&](const std::string& name, const AttentionOptions& o,
                             const Tensors& more = {}) {
      Tensors leaves{q, k, v};
      leaves.insert(leaves.end(), more.begin(), more.end());
      add_trained("attention " + name + ' ' + stretto::name(type), leaves,
                  [=] { return attention(q, k, v, o); });
    };
    const AttentionOptions causal{.mask = {.causal = true}};
    trained("causal", causal);
    AttentionOptions o = causal;
    o.relative_keys = {.rows = tensor_of({H, L, D}), .zero_row = L - 1};
    trained("table", o, {o.relative_keys.rows});
    o.relative_query = tensor_of({1, H, L, 16});
    o.relative_keys.rows = tensor_of({1, L, 16});
    trained("narrow table", o, {o.relative_query, o.relative_keys.rows});
    if (type == bf16) continue;
    o = causal;
    o.relative_keys = {.rows = leaf({1, 17, D}), .zero_row = 16, .out_of_range = OutOfRange::clip};
    o.relative_values = o.relative_keys;
    trained("clipped keys and values", o, {o.relative_keys.rows});
    o = causal;
    o.relative_bias = {.rows = leaf({H, L}), .zero_row = L - 1};
    trained("bias of the distance", o, {o.relative_bias.rows});
    trained("dense bias", {.bias = leaf({1, H, L, L})});
    trained("window", {.mask = {.causal = true, .window = 32}});
    const Tensor row = input({1, 8, 1, D}), keys = input({1, 8, 768, D}),
                 values = input({1, 8, 768, D});
    add_call("attention, one query f32", [=] { attention(row, keys, values, causal); });
    const Tensor keys16 = keys.to(bf16), values16 = values.to(bf16), row16 = row.to(bf16);
    add_call("attention, one query bf16", [=] { attention(row16, keys16, values16, causal); });
    add_trained("rotate f32", {q}, [=] { return rotate(q, 0); });
  }
}

void add_linear_attention() {
  const int64_t H = 2, L = 256, D = 32;
  for (const DType type : {f32, bf16}) {
    const std::string suffix = std::string(" ") + name(type);
    const Tensor q = leaf({1, H, L, D}, type), k = leaf({1, H, L, D}, type),
                 v = leaf({1, H, L, D}, type);
    const Tensor q1 = relu(q).detach().set_requires_grad(),
                 k1 = relu(k).detach().set_requires_grad();
    add_trained("linear attention" + suffix, {q1, k1, v}, [=] {
      return linear_attention(q1, k1, v, {.mask = {.causal = true}, .eps = 1e-3});
    });
    if (type == bf16) continue;
    GatedLinearAttentionOptions o{.log_decay = input({H}) * 0.0 - 0.1};
    add_trained("retention", {q, k, v}, [=] { return gated_linear_attention(q, k, v, o); });
    o.log_decay = (input({1, H, L, D}) * 0.0 - 0.1).set_requires_grad();
    add_trained("gated linear attention", {q, k, v, o.log_decay},
                [=] { return gated_linear_attention(q, k, v, o); });
    o = {.beta = (input({1, H, L}) * 0.0 + 0.01).set_requires_grad()};
    add_trained("delta rule", {q, k, v, o.beta},
                [=] { return gated_linear_attention(q, k, v, o); });
  }
}

void add_rows() {
  for (const DType type : {f32, bf16}) {
    const std::string suffix = std::string(" ") + name(type);
    const Tensor x = leaf({256, 512}, type), w = leaf({512}, type), b = leaf({512}, type);
    add_trained("layer_norm" + suffix, {x, w, b}, [=] { return layer_norm(x, w, b); });
    add_trained("rms_norm" + suffix, {x, w}, [=] { return rms_norm(x, w); });
    add_trained("softmax" + suffix, {x}, [=] { return softmax(x); });
    add_trained("gelu" + suffix, {x}, [=] { return gelu(x); });
    add_trained("gated silu" + suffix, {x},
                [=] { return gated_activation(x, x, Activation::silu); });
    add_call("add" + suffix, [=] { add(x.detach(), x.detach()); });
    add_call("sum of columns" + suffix, [=] { sum(x.detach(), {0}); });
    const Tensor targets = randint(0, 512, {256});
    add_trained("cross_entropy" + suffix, {x}, [=] { return cross_entropy(x, targets); });
    const Tensor table = leaf({300, 256}, type), ids = randint(0, 300, {400});
    add_trained("embedding" + suffix, {table}, [=] { return embedding(table, ids); });
    add_trained("dropout" + suffix, {x}, [=] { return dropout(x, 0.1, RandomKey{1, 2}); });
  }
  const Tensor x = input({256, 512});
  for (const auto& [name, f] : std::vector<std::pair<std::string, Tensor (*)(const Tensor&)>>{
           {"exp", exp}, {"tanh", tanh}, {"log", log}, {"sin", sin}})
    add_call(name, [=, f = f] { f(x); });
  add_call("randn", [] { randn({1 << 16}, RandomKey{1, 2}); });
  add_call("sort", [=] { sort(x, 1); });
  add_call("topk", [=] { topk(x, 8, 1); });
  add_call("transpose", [=] { x.t().contiguous(); });
  const Tensor y = leaf({16, 512}), filters = leaf({16, 512});
  add_trained("fft_conv", {y, filters}, [=] { return fft_conv(y, filters); });
  add_call("fft of 1000", [=] { rfft(input({16, 1000})); });
  const Tensor image = leaf({2, 8, 24, 24}), kernel = leaf({16, 8, 3, 3});
  add_trained("conv2d", {image, kernel}, [=] { return conv2d(image, kernel); });
}

void add_models() {
  nn::LanguageModelOptions o{
      .vocabulary = 64,
      .n_layers = 1,
      .layer = {.d_model = 64, .attention = {.n_heads = 2}, .feed_forward = {.d_hidden = 128}}};
  const auto add_model = [&](const std::string& name, const nn::LanguageModelOptions& options) {
    const auto model = std::make_shared<nn::LanguageModel>(options);
    const auto optimizer = std::make_shared<nn::AdamW>(model->parameters(), nn::AdamWOptions{});
    const Tensor ids = randint(0, 64, {2, 64});
    add_call("training step, " + name, [=] {
      optimizer->zero_grad();
      cross_entropy((*model)(ids), ids).backward();
      nn::clip_grad_norm(model->parameters(), 1.0);
      optimizer->step();
    });
    add_call("decoding, " + name, [=] {
      const nn::EvalMode guard(*model);
      nn::LanguageModel::Cache cache;
      for (int64_t i = 0; i < 16; ++i) (*model)(ids.slice(1, i, i + 1).slice(0, 0, 1), &cache);
    });
  };
  o.layer.attention.position = nn::music_relative({.max_length = 64});
  add_model("music", o);
  o.layer.feed_forward.network = nn::moe({.n_experts = 4, .top_k = 2});
  add_model("experts", o);
  o.layer.feed_forward.network = {};
  o.layer.attention.position = nn::sine_spe({.realizations = 16});
  o.layer.attention.kernel = nn::linear_kernel(nn::favor({.features = 32}));
  add_model("Performer with SPE", o);

  const Tensor w = leaf({96, 64});
  w.set_grad(input({96, 64}));
  const auto muon = std::make_shared<nn::Muon>(Tensors{w}, nn::MuonOptions{});
  add_call("Muon", [=] { muon->step(); });
}

}  // namespace

int main(int argc, char** argv) {
  set_num_threads(1);
  manual_seed(1);
  add_products();
  add_attention();
  add_linear_attention();
  add_rows();
  add_models();
  for (const Call& c : calls) {
    if (argc > 1 && std::string_view(argv[1]) == "--names") {
      std::printf("%s\n", c.name.c_str());
      continue;
    }
    c.run();
    counted_call(c.run);
  }
}
