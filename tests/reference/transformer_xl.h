// Transformer-XL (Dai et al. 2019) as the paper writes it, in loops and double precision. Letters
// are those of §3.3; M queries are the last of N positions, so that query i and key j are
// i + N − M − j apart.
#pragma once

#include <functional>

#include "tests/reference/attention.h"

namespace stretto::reference {

/// R_d: d / 2 sines, then d / 2 cosines of distance · 10000^(−2i/d). `distance` may be negative;
/// with clamp > 0 it is at most that far from 0.
Matrix distance_sinusoid(int64_t distance, int64_t d, int64_t clamp = 0);

/// The four terms of A^rel, each [M, N], for one head.
struct XLTerms {
  Matrix a;  // q_i · k_j               content-based addressing
  Matrix b;  // q_i · W_{k,R} R_{i−j}   content-dependent positional bias
  Matrix c;  // u · k_j                 global content bias
  Matrix d;  // v · W_{k,R} R_{i−j}     global positional bias
};

/// q [M, D], k [N, D], W_{k,R} [D, d_model], u and v [1, D].
XLTerms xl_terms(const Matrix& q, const Matrix& k, const Matrix& w, const Matrix& u,
                 const Matrix& v, int64_t clamp = 0);

/// b + d in linear cost (app. B): (q_i + v) · W R for the distances N − 1 … 0, then the shift.
/// Right where the key is not in the future.
Matrix xl_position_terms_by_shift(const Matrix& q, const Matrix& w, const Matrix& v,
                                  int64_t n_keys);

/// softmax of (a + b + c + d) / √D over the keys that are not hidden(i, j), times the values.
Matrix xl_attention(const XLTerms& terms, const Matrix& values, int64_t size,
                    const std::function<bool(int64_t, int64_t)>& hidden);

/// One layer. Weights are [out, in], biases and norms [1, width].
struct XLLayer {
  int64_t heads = 1;
  bool pre_norm = false;
  Matrix q, k, v, r, out;
  Matrix u, v_bias;  // [heads, D]
  Matrix norm1_weight, norm1_bias, norm2_weight, norm2_bias;
  Matrix linear1, bias1, linear2, bias2;
  int64_t clamp = 0;
  /// Which keys query i may not see, besides those of the future: hidden(i, j, m) with m rows of
  /// memory.
  std::function<bool(int64_t, int64_t, int64_t)> hidden = {};
};

/// x [L, d_model] after memory [m, d_model] → [L, d_model] ("Complete Transformer-XL procedure").
Matrix xl_layer(const XLLayer& layer, const Matrix& x, const Matrix& memory);

}  // namespace stretto::reference
