// Transformer-XL (Dai et al. 2019) as the paper writes it, by loops in double precision, with the
// symbols of §3.3. The M queries are the last of N positions, so the distance of query i and key j
// is i + N − M − j, negative for a key after the query.
#pragma once

#include <functional>

#include "tests/reference/attention.h"

namespace stretto::reference {

/// Returns R_distance [1, d]: d / 2 sines, then d / 2 cosines of distance · 10000^(−2i/d) (§3.3).
/// The distance may be negative; with clamp > 0 it is limited to −clamp … clamp.
Matrix distance_sinusoid(int64_t distance, int64_t d, int64_t clamp = 0);

/// The four terms of A^rel, each [M, N], for one head.
struct XLTerms {
  Matrix a;  // q_i · k_j               content-based addressing
  Matrix b;  // q_i · W_{k,R} R_{i−j}   content-dependent positional bias
  Matrix c;  // u · k_j                 global content bias
  Matrix d;  // v · W_{k,R} R_{i−j}     global positional bias
};

/// Computes the four terms (§3.3): q [M, D], k [N, D], w = W_{k,R} [D, d_model], u and v [1, D].
XLTerms xl_terms(const Matrix& q, const Matrix& k, const Matrix& w, const Matrix& u,
                 const Matrix& v, int64_t clamp = 0);

/// Computes b + d [M, N] at linear cost (app. B): (q_i + v) · W R for the distances N − 1 … 0, then
/// the shift. Correct for keys that are not after the query.
Matrix xl_position_terms_by_shift(const Matrix& q, const Matrix& w, const Matrix& v,
                                  int64_t n_keys);

/// Computes softmax((a + b + c + d) / √D) times the values [N, Dv] → [M, Dv] (§3.3), over the keys
/// that are not hidden(i, j); `size` is D.
Matrix xl_attention(const XLTerms& terms, const Matrix& values, int64_t size,
                    const std::function<bool(int64_t, int64_t)>& hidden);

/// The parameters of one layer: weights [out, in], biases and norms [1, width].
struct XLLayer {
  int64_t heads = 1;
  bool pre_norm = false;
  Matrix q, k, v, r, out;
  Matrix u, v_bias;  // [heads, D]
  Matrix norm1_weight, norm1_bias, norm2_weight, norm2_bias;
  Matrix linear1, bias1, linear2, bias2;
  int64_t clamp = 0;
  /// True if key j is hidden from query i, with m rows of memory: hidden(i, j, m). Keys after the
  /// query are hidden in any case.
  std::function<bool(int64_t, int64_t, int64_t)> hidden = {};
};

/// Computes one layer, x [L, d_model] after memory [m, d_model] → [L, d_model] (§3.3).
Matrix xl_layer(const XLLayer& layer, const Matrix& x, const Matrix& memory);

}  // namespace stretto::reference
