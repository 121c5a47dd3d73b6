// The tensors and options of softmax attention, as attention() and its CUDA kernels accept them.
#pragma once

#include <optional>

#include "../random.h"
#include "../tensor.h"
#include "attention_mask.h"
#include "implementation.h"

namespace stretto {

/// How a table handles relative positions out of its range: it contributes nothing (`zero`), it
/// contributes its outermost row (`clip`), or an error is thrown (`error`).
enum class OutOfRange { zero, clip, error };

/// A table indexed by relative position: row `zero_row` + r belongs to relative position r.
struct RelativeTable {
  /// [H or 1, R, D], for keys [H or 1, R, P] (AttentionOptions::relative_query), for values
  /// [H or 1, R, Dv], for a bias [H or 1, R]. Undefined: no table.
  Tensor rows;
  /// Row of relative position 0, which must be set. R − 1 for a table of the past only, (R − 1) / 2
  /// for a table with as many positions before as after the query.
  int64_t zero_row = -1;
  OutOfRange out_of_range = OutOfRange::zero;  ///< For relative positions without a row.
  /// True if there is a table.
  bool defined() const { return rows.defined(); }
};

/// Options of attention(). The defaults are dot-product attention without positions.
///
/// The composed implementation stores M × N scores. The fused implementation stores only a strip
/// of scores at a time, so its memory is O((M + N) D) plus `bias` and the gradient of `bias`. On
/// a GPU the fused implementation requires that D, Dv and P are divisible by 8 and at most 128
/// (bf16) or 64 (f32), and with a soft cap that the last dimension of `bias` is not broadcast; with
/// `automatic`, f32 also requires at least 256 keys. Otherwise attention is composed.
struct AttentionOptions {
  AttentionMask mask = {};           ///< Hidden keys.
  std::optional<double> scale = {};  ///< Factor of the scores; default 1/√D (D = 0: scores are 0).
  /// c > 0: scores s, with all their terms, become c · tanh(s / c) before the mask (Gemma 2, 2024).
  double soft_cap = 0;

  /// p [B, H, M, P]: multiplies the rows of relative_keys, which have the same width P. A P below D
  /// makes this product cheaper: its cost is P/D of that of q · k. By default q.
  Tensor relative_query = {};
  RelativeTable relative_keys = {};    ///< K: added to the keys, relative to each query.
  RelativeTable relative_values = {};  ///< V: added to the values.
  RelativeTable relative_bias = {};    ///< b: a scalar per relative position and head; not scaled.
  Tensor bias = {};                    ///< Broadcasts to [B, H, M, N]; not scaled.
  /// [H] or [B, H, M]: the score of a further key of each head, or of each query and head (Inkling
  /// 2), after the soft cap, whose value is zero. The softmax weights of a query then add up to less
  /// than 1 (learned attention sinks, gpt-oss 2025). [B, H, M] has no gradient of the gradient in
  /// the fused implementation, and is composed on a GPU.
  Tensor sinks = {};

  double dropout = 0;                         ///< Dropout probability of the softmax weights.
  std::optional<RandomKey> dropout_key = {};  ///< Default: a key from the random state.

  Implementation implementation = Implementation::automatic;  ///< Composed or fused.
};

/// The tensors and options of attention(), q [B, H, M, D], k [B, G, N, D], v [B, G, N, Dv]; or the
/// gradients of these tensors, undefined for a tensor without a gradient.
struct AttentionOperands {
  Tensor q;                       ///< Queries.
  Tensor k;                       ///< Keys.
  Tensor v;                       ///< Values.
  AttentionOptions options = {};  ///< Options, with the tensors of the position terms.

  /// Calls f(x) for each differentiable tensor, including undefined ones, in the order of the op's
  /// inputs on the tape. This list and `names` are the only ones of these tensors in the library.
  template <class F>
  void for_each_tensor(F f) {
    each(*this, f);
  }
  /// Does the same for constant tensors.
  template <class F>
  void for_each_tensor(F f) const {
    each(*this, f);
  }
  /// Returns the tensors of for_each_tensor().
  Tensors tensors() const {
    Tensors all;
    for_each_tensor([&](const Tensor& x) { all.push_back(x); });
    return all;
  }
  /// Returns the same options with other tensors, in the order of tensors().
  AttentionOperands with(const Tensors& x) const {
    AttentionOperands copy = *this;
    copy.for_each_tensor([at = x.begin()](Tensor& member) mutable { member = *at++; });
    return copy;
  }
  /// Returns the index in tensors() of a member, passed by reference.
  size_t index_of(const Tensor& member) const {
    size_t at = 0, found = 0;
    for_each_tensor([&](const Tensor& x) {
      if (&x == &member) found = at;
      ++at;
    });
    return found;
  }

  /// Returns the relative positions that occur.
  RelativeRange range() const { return visible_range(q.size(2), k.size(2), options.mask); }
  /// Names of tensors() in messages.
  static constexpr const char* names[] = {
      "q",    "k",    "v", "relative_query", "relative_keys", "relative_values", "relative_bias",
      "bias", "sinks"};

 private:
  template <class Self, class F>
  static void each(Self& x, F f) {
    auto& o = x.options;
    for (auto* member : {&x.q, &x.k, &x.v, &o.relative_query, &o.relative_keys.rows,
                         &o.relative_values.rows, &o.relative_bias.rows, &o.bias, &o.sinks})
      f(*member);
  }
};

}  // namespace stretto
