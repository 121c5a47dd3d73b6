// Inputs of positional encodings, and checks that each must pass in causal self-attention.
#pragma once

#include <memory>
#include <vector>

#include "autograd/tape.h"
#include "nn/attention/attention.h"
#include "ops/indexing.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

namespace stretto::testing {

/// The number of queries and of keys, or of rows and columns.
struct Size {
  int64_t m, n;
};

/// Returns inputs of attention with noise, q [2, heads, m, d], k [2, heads, n, d], v [2, heads, n, 3].
inline nn::AttentionInputs call_of(int64_t heads, Size size, int64_t d = 4, DType dtype = f64) {
  return {fixed_noise({2, heads, size.m, d}, 1, dtype),
          fixed_noise({2, heads, size.n, d}, 2, dtype),
          fixed_noise({2, heads, size.n, 3}, 3, dtype),
          {}};
}

/// A layer in f64 in evaluation mode: two query heads share a key head, values are
/// narrower than keys.
inline std::unique_ptr<nn::MultiHeadAttention> layer_with(
    const nn::MakePositionalEncoding& position,
    Implementation implementation = Implementation::automatic) {
  manual_seed(11);
  auto layer = std::make_unique<nn::MultiHeadAttention>(
      nn::MultiHeadAttention::Options{.d_model = 8,
                                      .n_heads = 4,
                                      .n_kv_heads = 2,
                                      .d_key = 6,
                                      .d_value = 3,
                                      .position = position,
                                      .kernel = nn::softmax_kernel(implementation)});
  layer->to(f64);
  layer->eval();
  return layer;
}

/// Passes x [B, L, d] through `layer` in chunks.
inline Tensor in_pieces(const nn::MultiHeadAttention& layer, const Tensor& x,
                        const AttentionMask& visible, const std::vector<int64_t>& pieces,
                        nn::KeyValueCache cache = {}) {
  Tensors parts;
  int64_t at = 0;
  for (const int64_t n : pieces) {
    parts.push_back(layer(x.slice(1, at, at + n), visible, &cache));
    at += n;
  }
  return cat(parts, 1);
}

/// Checks that both implementations agree; that generation with a cache, step by step and in
/// chunks, equals one pass, also with a limited cache and a window; and that later positions and
/// other sequences of the batch change nothing.
inline void check_causal_position(const nn::MakePositionalEncoding& position) {
  NoGrad guard;
  const int64_t l = 23;
  const Tensor x = fixed_noise({2, l, 8}, 1), other = fixed_noise({2, l, 8}, 2);
  const Tensor composed = (*layer_with(position, Implementation::composed))(x, {.causal = true});
  for (const Implementation implementation :
       {Implementation::automatic, Implementation::composed}) {
    const auto layer = layer_with(position, implementation);
    const Tensor y = (*layer)(x, {.causal = true});
    CHECK(worst_error(y, composed) < 1e-12);

    const std::vector<int64_t> steps(size_t(l), 1);
    for (const auto& pieces : {steps, {7, 1, 1, 5, 9}, {1, 22}})
      CHECK(worst_error(in_pieces(*layer, x, {.causal = true}, pieces), y) < 1e-12);
    const AttentionMask window{.causal = true, .window = 6};
    const Tensor windowed = (*layer)(x, window);
    CHECK(worst_error(in_pieces(*layer, x, window, steps), windowed) < 1e-12);
    CHECK(worst_error(in_pieces(*layer, x, window, steps, {.limit = 5}), windowed) < 1e-12);

    for (const int64_t t : {1, 9, 22}) {
      const Tensor changed = cat({x.slice(1, 0, t), other.slice(1, t)}, 1);
      CHECK(same_bits((*layer)(changed, {.causal = true}).slice(1, 0, t), y.slice(1, 0, t)));
    }
    const Tensor changed = cat({x.slice(0, 0, 1), other.slice(0, 1)}, 0);
    CHECK(same_bits((*layer)(changed, {.causal = true})[0], y[0]));
  }
}

}  // namespace stretto::testing
