// Attention on scores: one function for all schemes that act on q·k.
//
//   score(i, j) = scale · (q_i · k_j  +  p_i · K[r])  +  b[r]  +  bias(i, j),   r = j − p(i)
//   out_i = Σ_j softmax_j(score)_ij (v_j + V[r])
//
// Query i stands at key position p(i) = i + N − M: queries are the last M of the N positions; where
// M > N the first of them stand before all keys. r is the relative position of the key; the past is
// negative. K, V and b are tables over r. What each paper calls its scheme is a setting of these
// (README, "Attention").
//
// Reference: tests/reference/attention.cpp, attention()
#pragma once

#include <optional>

#include "core/random.h"
#include "core/tensor.h"

namespace stretto {

/// What a table says of relative positions beyond its rows: nothing (zero), the same as its
/// outermost row (clip), or that the sequence is too long (error).
enum class Beyond { zero, clip, error };

/// Rows over relative positions: row `zero_row` + r belongs to relative position r.
struct RelativeTable {
  Tensor rows;           // [H or 1, R, D], or [H or 1, R] for a bias
  int64_t zero_row = 0;  // R − 1: only the past; (R − 1) / 2: both sides
  Beyond beyond = Beyond::zero;
  bool defined() const { return rows.defined(); }
};

/// How attention is computed. `composed` is the papers line by line in differentiable ops, with
/// M × N scores; `fused` keeps only a strip of scores at a time, memory O((M + N) D), and can be
/// differentiated once. `automatic` takes the fused form wherever it covers the options.
enum class AttentionForm { automatic, composed, fused };

struct AttentionOptions {
  bool causal = false;      // only r ≤ 0
  int64_t window = 0;       // > 0: only −r < window
  int64_t block = 0;        // > 0: causal, own block and the one before (Music Transformer)
  Tensor key_padding = {};  // [B, N] bool or u8, true = ignore that key
  std::optional<double> scale = {};  // 1/√D (D = 0: scores are 0) when not given

  Tensor position_query = {};   // p [B, H, M, D], for `keys` alone; q where undefined
  RelativeTable keys = {};      // K: added to the keys, as seen from each query
  RelativeTable values = {};    // V: added to the values
  RelativeTable lag_bias = {};  // b: one number per relative position and head, not scaled
  Tensor bias = {};             // broadcasts to [B, H, M, N], not scaled

  double dropout = 0;  // of the softmax weights
  std::optional<RandomKey> dropout_key = {};

  AttentionForm form = AttentionForm::automatic;
};

/// q [B, H, M, D], k [B, G, N, D], v [B, G, N, Dv] → [B, H, M, Dv]; H is a multiple of G and head h
/// uses key head ⌊h·G/H⌋. All of one floating dtype; bf16 is computed in f32 and
/// rounded once, at the end (on the CPU). A query with nothing to attend to gives zeros.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, AttentionOptions options = {});

/// The softmax weights [B, H, M, N] of the same attention, without dropout; for pictures and tests.
Tensor attention_weights(const Tensor& q, const Tensor& k, AttentionOptions options = {});
/// What they are the softmax of, [B, H, M, N]: score(i, j), and −∞ for a key that is not seen.
Tensor attention_scores(const Tensor& q, const Tensor& k, AttentionOptions options = {});

/// Which keys each query may see under causal, window and block: bool [M, N], true = masked out.
/// Undefined when none is set.
Tensor attention_mask(int64_t n_queries, int64_t n_keys, const AttentionOptions& options,
                      Device device = cpu);

/// The table's rows for relative positions `first` … `first + count − 1`, following its policy;
/// differentiable. rows [H or 1, R, ..] → [H or 1, count, ..].
Tensor relative_rows(const RelativeTable& table, int64_t first, int64_t count);

}  // namespace stretto
