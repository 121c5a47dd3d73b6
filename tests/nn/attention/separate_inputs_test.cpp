// Clipped queries and keys, normalized values, sinks of queries, convolutions whose filters depend on
// the input, and inputs of their own for queries, keys and values.
#include <algorithm>
#include <cmath>
#include <memory>

#include "autograd/tape.h"
#include "nn/attention/gated_linear_attention.h"
#include "nn/positions/relative_table.h"
#include "nn/positions/rotary.h"
#include "nn/transformer.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/reference/attention.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/module_gradcheck.h"

using namespace stretto;
using nn::MultiHeadAttention;
using nn::ShortConvolution;
using testing::fixed_noise;
using testing::worst_error;

namespace {

const AttentionMask causal{.causal = true};

// (x_t + Σ_i (w_{T − 1 − i} + filters(z_t)_{g, i}) x_{t − i}) / √(2T + 1) of each feature, in a loop.
Tensor filtered(const ShortConvolution& f, const Tensor& input, const Tensor& z) {
  const int64_t batch = input.size(0), n = input.size(1), c = input.size(2), taps = f.options.taps;
  const int64_t groups = f.options.groups;
  const std::vector<double> x = input.to_vector<double>(), w = f.weight.to_vector<double>();
  std::vector<double> own, y = x;
  if (groups > 0) own = (*f.filters)(z).to_vector<double>();
  const double scale =
      f.options.scaled ? 1 / std::sqrt(double((groups > 0 ? 2 : 1) * taps + 1)) : 1;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t t = 0; t < n; ++t)
      for (int64_t k = 0; k < c; ++k) {
        double& sum = y[size_t((b * n + t) * c + k)];
        for (int64_t i = 0; i < std::min(taps, t + 1); ++i) {
          double tap = w[size_t(k * taps + taps - 1 - i)];
          if (groups > 0) tap += own[size_t(((b * n + t) * groups + k * groups / c) * taps + i)];
          sum += tap * x[size_t((b * n + t - i) * c + k)];
        }
        sum *= scale;
      }
  return tensor(y, input.shape());
}

// Each vector, times the factors of its head, scaled down to the limit.
Tensor clipped(const Tensor& x, const Tensor& factors, double limit) {
  const int64_t d = x.size(-1);
  std::vector<double> y = (factors.defined() ? x * factors.unsqueeze(1) : x).to_vector<double>();
  for (size_t i = 0; i < y.size(); i += size_t(d)) {
    double sum = 0;
    for (size_t j = i; j < i + size_t(d); ++j) sum += y[j] * y[j];
    const double factor = std::min(1.0, limit / (std::sqrt(sum) + 1e-6));
    for (size_t j = i; j < i + size_t(d); ++j) y[j] *= factor;
  }
  return tensor(y, x.shape());
}

template <class M, class Options = typename M::Options>
std::unique_ptr<M> made(const Options& options) {
  manual_seed(3);
  auto module = std::make_unique<M>(options);
  module->to(f64);
  module->eval();
  const NoGrad guard;
  for (const nn::NamedTensor& n : module->named_parameters())
    if (n.name.ends_with("factors")) n.tensor.copy_(fixed_noise(n.tensor.shape(), 9) + 1.5);
  return module;
}

MultiHeadAttention::Options all_options() {
  return {.d_model = 8,
          .n_heads = 4,
          .n_kv_heads = 2,
          .d_key = 3,
          .d_value = 5,
          .bias = false,
          .qk_clip = 0.4,
          .v_norm_eps = 0.01,
          .separate_inputs = true,
          .taps = 3,
          .scaled_taps = true,
          .dynamic_taps = true,
          .query_sinks = true,
          .gate = nn::AttentionGate::per_element};
}

// The attention of all_options() with some options off, in loops. x: [B, N, 8] or [B, N, 24].
Tensor expected(const MultiHeadAttention& a, const Tensor& x) {
  const auto& o = a.options;
  const Tensors in = o.separate_inputs ? chunk(x, 3, 2) : Tensors{x, x, x};
  const auto heads = [](const Tensor& y, int64_t n) {
    return y.reshape({y.size(0), y.size(1), n, y.size(2) / n}).transpose(1, 2);
  };
  Tensor k = a.k(in[1]), v = a.v(in[2]);
  if (o.taps > 0)
    k = filtered(*a.k_convolution, k, in[1]), v = filtered(*a.v_convolution, v, in[2]);
  Tensor q = heads(a.q(in[0]), 4);
  k = heads(k, 2), v = heads(v, 2);
  if (o.qk_clip > 0) q = clipped(q, a.q_factors, o.qk_clip), k = clipped(k, {}, o.qk_clip);
  if (o.v_norm_eps) v = v / sqrt(mean(square(v), {3}, true) + *o.v_norm_eps);
  AttentionOptions options{.mask = causal};
  if (o.query_sinks) options.sinks = (*a.query_sinks)(in[0]).transpose(1, 2);
  Tensor y = reference::attention(q, k, v, options).transpose(1, 2).flatten(2);
  if (a.gate) y = y * sigmoid((*a.gate)(in[0]));
  return a.out(y);
}

}  // namespace

TEST_CASE("attention: clips, value norms, sinks, dynamic taps and separate inputs are loops",
          "[attention]") {
  for (int bits = 0; bits < 64; ++bits) {
    INFO("options " << bits);
    MultiHeadAttention::Options o = all_options();
    if (bits & 1) o.qk_clip = 0;
    if (bits & 2) o.v_norm_eps = {};
    if (bits & 4) o.separate_inputs = false;
    if (bits & 8) o.query_sinks = false;
    if (bits & 16) o.dynamic_taps = false;
    if (bits & 32) o.scaled_taps = false;
    const auto layer = made<MultiHeadAttention>(o);
    const Tensor x = fixed_noise({2, 7, o.separate_inputs ? 24 : 8}, 1);
    CHECK(worst_error((*layer)(x, causal), expected(*layer, x)) < 1e-12);
    nn::KeyValueCache cache;
    Tensors parts;
    {
      const NoGrad guard;
      for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, 1}, {1, 5}, {5, 7}})
        parts.push_back((*layer)(x.slice(1, from, to), causal, &cache));
    }
    CHECK(worst_error(cat(parts, 1), expected(*layer, x)) < 1e-12);
    CHECK((*layer)(x.slice(1, 0, 0), causal).shape() == Shape{2, 0, 8});
    if (bits % 7 == 0)
      testing::check_parameter_gradients(*layer, [&] { return sum(square((*layer)(x, causal))); });
  }
}

TEST_CASE("attention without position encodes separate inputs of a window and padding",
          "[attention]") {
  const NoGrad guard;
  for (const bool relative : {true, false}) {  // false: each sequence is encoded by itself
    MultiHeadAttention::Options o = all_options();
    o.window = 4;
    o.position = nn::inkling_relative(
        {.dim = 2, .extent = 5, .clip = 0.3, .log_floor = relative ? 0 : 3, .log_strength = 0.6});
    const auto layer = made<MultiHeadAttention>(o);
    const Tensor x = fixed_noise({2, 7, 24}, 1);
    nn::ForwardContext forward = nn::begin_forward();
    forward.left_padding = {2, 0};
    for (const bool cached : {false, true}) {
      nn::KeyValueCache cache;
      Tensor y = cached ? cat({(*layer)(x.slice(1, 0, 4), causal, &cache, forward),
                               (*layer)(x.slice(1, 4), causal, &cache, forward)},
                              1)
                        : (*layer)(x, causal, nullptr, forward);
      CHECK(worst_error(y[1], (*layer)(x.slice(0, 1), causal)[0]) < 1e-12);
      CHECK(worst_error(y[0].slice(0, 2), (*layer)(x.slice(0, 0, 1).slice(1, 2), causal)[0]) <
            1e-12);
    }
  }
  MultiHeadAttention::Options o = all_options();  // SPE's kind of encoding, with left padding
  o.d_key = 4;
  o.position = nn::rotary();
  const auto layer = made<MultiHeadAttention>(o);
  const Tensor x = fixed_noise({2, 6, 24}, 1);
  nn::ForwardContext forward = nn::begin_forward();
  forward.left_padding = {0, 3};
  CHECK(worst_error((*layer)(x, causal, nullptr, forward)[1].slice(0, 3),
                    (*layer)(x.slice(0, 1).slice(1, 3), causal)[0]) < 1e-12);
}

TEST_CASE("clip_norm keeps short vectors, and vectors of zeros have finite gradients",
          "[attention]") {
  const Tensor x =
      tensor<double>({3, 4, 0, 0, 0.3, 0.4, -30, 40, 1e200, 0}, {5, 2}).set_requires_grad();
  const Tensor y = nn::clip_norm(x, 1);
  CHECK(worst_error(y.slice(0, 0, 4), clipped(x.detach().slice(0, 0, 4), {}, 1)) < 1e-15);
  sum(y.slice(0, 0, 4)).backward();
  for (const double g : x.grad().to_vector<double>()) CHECK(std::isfinite(g));
  CHECK(x.grad()[1].to_vector<double>() == std::vector<double>{1, 1});
  CHECK(nn::clip_norm(ones({2, 4}, {.dtype = bf16}), 1).dtype() == bf16);
  for (const double limit : {0.05, 0.7, 9.0})  // all, some and no vectors are clipped
    testing::check_gradients([&](const Tensors& in) { return nn::clip_norm(in[0], limit); },
                             {testing::fixed_leaf({3, 4}, 2)});
  const auto layer = made<MultiHeadAttention>(all_options());
  const Tensor zero = zeros({1, 4, 24}, {.dtype = f64}).set_requires_grad();
  const Tensor out = (*layer)(zero, causal);
  sum(out).backward();
  for (const Tensor& t : {out, zero.grad(), layer->q.weight.grad(), layer->q_factors.grad()})
    for (const double e : t.to_vector<double>()) CHECK(std::isfinite(e));
}

TEST_CASE("a layer normalizes separate inputs by three norms", "[attention]") {
  nn::LayerOptions o{.d_model = 8,
                     .attention = all_options(),
                     .feed_forward = {.d_hidden = 12},
                     .norm_kind = nn::NormKind::rms};
  const auto layer = made<nn::TransformerLayer>(o);
  {
    const NoGrad guard;
    for (const nn::Norm* norm : {&layer->norm1, layer->k_norm1.get(), layer->v_norm1.get()})
      norm->weight.copy_(fixed_noise({8}, uint64_t(norm->weight.numel()) + norm->serial()) + 1);
  }
  const Tensor x = fixed_noise({2, 5, 8}, 1);
  const Tensor y =
      x + expected(layer->self_attention(),
                   cat({layer->norm1(x), (*layer->k_norm1)(x), (*layer->v_norm1)(x)}, 2));
  CHECK(worst_error((*layer)(x, causal), y + layer->feed_forward()((*layer->norm2)(y))) < 1e-12);
  testing::check_parameter_gradients(*layer, [&] { return mean(square((*layer)(x, causal))); });
  CHECK_THROWS_WITH(
      (*layer)(x, x, causal, nn::ForwardContext{}),
      "[TransformerLayer] a memory with short convolutions; accepted: a cache, or no memory");
  o.attention.taps = 0;
  o.attention.scaled_taps = o.attention.dynamic_taps = false;
  CHECK_THROWS_WITH(made<nn::TransformerLayer>(o)->operator()(x, x, causal, nn::ForwardContext{}),
                    "[TransformerLayer] a memory with attention over depth or separate inputs; "
                    "accepted: a cache, or no memory");
  const std::string only =
      "depth and separate_inputs are for TransformerLayer with NormPlace::pre and "
      "Residual::sequential";
  CHECK_THROWS_WITH(nn::DecoderLayer(o), "[DecoderLayer] " + only);
  for (const nn::NormPlace norm :
       {nn::NormPlace::post, nn::NormPlace::output, nn::NormPlace::sandwich}) {
    o.norm = norm;
    CHECK_THROWS_WITH(nn::TransformerLayer(o), "[TransformerLayer] " + only);
  }
  o.norm = nn::NormPlace::pre;
  o.residual = nn::Residual::parallel;
  CHECK_THROWS_WITH(nn::TransformerLayer(o), "[TransformerLayer] " + only);
}

TEST_CASE("a SwiGLU between soft caps", "[attention]") {
  const nn::FeedForward::Options o{
      .d_model = 6, .d_hidden = 5, .gated = true, .capped = nn::CappedSwiGlu{0.3, 0.7}};
  const auto network = made<nn::FeedForward>(o);
  const Tensor x = fixed_noise({3, 6}, 1) * 4;
  const std::vector<double> g = network->linear1(x).to_vector<double>(),
                            u = (*network->up)(x).to_vector<double>();
  std::vector<double> hidden;
  for (size_t i = 0; i < g.size(); ++i)
    hidden.push_back(0.3 * std::tanh(g[i] / 0.3) / (1 + std::exp(-g[i])) * 0.7 *
                     std::tanh(u[i] / 0.7));
  CHECK(worst_error((*network)(x), network->linear2(tensor(hidden, {3, 5}))) < 1e-13);
  testing::check_parameter_gradients(*network, [&] { return sum(square((*network)(x))); });
  CHECK(network->label() == "FeedForward(6 → 5, capped silu, gated)");
  const std::string accepted = "; accepted: gated, positive caps, and no clamped gate";
  const auto error = [&](bool gated, nn::CappedSwiGlu caps, bool clamped) {
    nn::FeedForward::Options wrong = o;
    wrong.gated = gated;
    wrong.capped = caps;
    if (clamped) wrong.clamped = nn::ClampedSwiGlu{};
    CHECK_THROWS_WITH(nn::FeedForward(wrong), Containing(accepted));
  };
  error(false, {}, false);
  error(true, {.gate = 0}, false);
  error(true, {.up = -1}, false);
  CHECK_NOTHROW(nn::FeedForward(o));
}

TEST_CASE("attention: options of Inkling 2 that do not fit together", "[attention]") {
  const auto refused = [](const std::string& text, const auto& change) {
    MultiHeadAttention::Options o = all_options();
    change(o);
    CHECK_THROWS_WITH(MultiHeadAttention(o), Containing(text));
  };
  using Options = MultiHeadAttention::Options;
  refused("scaled_taps or dynamic_taps without taps; set taps", [](Options& o) { o.taps = 0; });
  refused("qk_clip -1; must be 0 (none) or more and finite, and 0 with qk_norm",
          [](Options& o) { o.qk_clip = -1; });
  refused("qk_clip 0.4 with qk_norm; must be", [](Options& o) { o.qk_norm = nn::Norm::Options{}; });
  refused("sinks and query_sinks are both set; choose one", [](Options& o) { o.sinks = true; });
  const auto layer = made<MultiHeadAttention>(all_options());
  CHECK_THROWS_WITH((*layer)(zeros({1, 3, 8}, {.dtype = f64}), causal),
                    Containing("must be [B, L, 24]"));
  CHECK_THROWS_WITH((*layer)(fixed_noise({1, 3, 24}, 1), fixed_noise({1, 4, 24}, 1), causal),
                    "[MultiHeadAttention] separate_inputs in cross-attention or with a memory; "
                    "accepted: self-attention");
  struct Parent : nn::Module {
  } parent;
  const auto convolution = [&](ShortConvolution::Options o) {
    CHECK_THROWS_AS(ShortConvolution(parent, "c", o), Error);
  };
  convolution({.features = 6, .scaled = true});
  convolution({.features = 6, .residual = true, .groups = 4, .d_input = 3});
  convolution({.features = 6, .residual = true, .groups = 2});
  MultiHeadAttention::Options linear{.d_model = 8, .n_heads = 2, .query_sinks = true};
  linear.kernel = nn::retention_kernel();
  const auto kernel = made<MultiHeadAttention>(linear);
  CHECK_THROWS_WITH((*kernel)(fixed_noise({1, 3, 8}, 1), causal), Containing("sinks"));
}
