// The terms of attention's scores: its options and tensors, and what all of its implementations
// make of them.
//
// Reference: tests/reference/attention.cpp, attention()
#pragma once

#include <optional>

#include "../../core/random.h"
#include "../../core/tensor.h"
#include "../implementation.h"
#include "mask.h"

namespace stretto {

/// What a table says of relative positions beyond its rows: nothing (zero), the same as its
/// outermost row (clip), or that the sequence is too long (error).
enum class OutOfRange { zero, clip, error };

/// Rows over relative positions: row `zero_row` + r belongs to relative position r.
struct RelativeTable {
  Tensor rows;           // [H or 1, R, D], or [H or 1, R] for a bias
  int64_t zero_row = 0;  // R − 1: only the past; (R − 1) / 2: both sides
  OutOfRange out_of_range = OutOfRange::zero;
  bool defined() const { return rows.defined(); }
};

/// The composed form has M × N scores; the fused one keeps a strip of them at a time: memory
/// O((M + N) D) beside `bias` and its gradient. On a GPU there is one for heads in multiples of 8,
/// up to 128 in bf16 and 64 in f32 (from 256 keys); else composed.
struct AttentionOptions {
  AttentionMask mask = {};
  std::optional<double> scale = {};  // 1/√D (D = 0: scores are 0) when not given

  Tensor relative_query = {};          // p [B, H, M, D], for `keys` alone; q where undefined
  RelativeTable relative_keys = {};    // K: added to the keys, as seen from each query
  RelativeTable relative_values = {};  // V: added to the values
  RelativeTable relative_bias = {};    // b: one number per relative position and head, not scaled
  Tensor bias = {};                    // broadcasts to [B, H, M, N], not scaled

  double dropout = 0;  // of the softmax weights
  std::optional<RandomKey> dropout_key = {};

  Implementation implementation = Implementation::automatic;
};

/// The tensors and options of a call, q [B, H, M, D], k [B, G, N, D], v [B, G, N, Dv]; or the
/// gradients of these tensors, undefined for a tensor without a gradient.
struct AttentionOperands {
  Tensor q, k, v;
  AttentionOptions options = {};

  /// f(x) for each differentiable tensor, undefined ones too, in the order of the tape: whatever
  /// computes, converts, sends or differentiates attention goes through this list.
  template <class F>
  void for_each_tensor(F f) {
    each(*this, f);
  }
  template <class F>
  void for_each_tensor(F f) const {
    each(*this, f);
  }
  Tensors tensors() const;
  /// The same call of other tensors, in the order of tensors().
  AttentionOperands with(const Tensors& x) const;
  /// The same call of tensors in another dtype.
  AttentionOperands to(DType type) const;
  /// Where one of the members, named by reference, is in tensors().
  size_t index_of(const Tensor& member) const;

  RelativeRange range() const { return visible_range(q.size(2), k.size(2), options.mask); }
  /// The same call with tables in `type` and no longer than the relative positions that occur:
  /// `keys` and `values` keep a stretch of their rows, never an empty one of rows there are;
  /// `relative_bias` gets a number for each, from range().first() on.
  AttentionOperands with_short_tables(DType type) const;

 private:
  template <class Self, class F>
  static void each(Self& x, F f) {
    auto& o = x.options;
    for (auto* member : {&x.q, &x.k, &x.v, &o.relative_query, &o.relative_keys.rows,
                         &o.relative_values.rows, &o.relative_bias.rows, &o.bias})
      f(*member);
  }
};

/// The table's rows for relative positions `first` … `first + count − 1`, following its policy;
/// differentiable. rows [H or 1, R, ..] → [H or 1, count, ..].
Tensor relative_rows(const RelativeTable& table, int64_t first, int64_t count);

/// What scores are multiplied with: 1/√D unless the options say so; heads of size 0 have scores of
/// 0.
double score_scale(const Tensor& q, const AttentionOptions& options);

/// Throws an Error of `attention` unless the arguments fit together.
void check_attention(const AttentionOperands& inputs);

}  // namespace stretto
