// The terms of attention scores: checks and conversions of the tensors and options of attention(),
// which all its implementations share.
//
// Reference: tests/reference/attention.cpp, attention()
#pragma once

#include "../../core/formulas/attention_operands.h"
#include "mask.h"

namespace stretto {

/// Returns the same operands with tensors converted to another dtype.
AttentionOperands converted(AttentionOperands x, DType type);

/// Returns the same operands with tables in `type`, cut to the relative positions that occur.
/// relative_keys and relative_values become a range of their rows, which is never empty.
/// relative_bias becomes one scalar for each relative position from range().first() on; positions
/// out of its range follow its `out_of_range`.
AttentionOperands with_short_tables(AttentionOperands x, DType type);

/// Returns the table's rows for relative positions `first` … `first + count − 1`: rows
/// [H or 1, R, ..] → [H or 1, count, ..]. Positions out of the table's range follow its
/// `out_of_range`. Differentiable.
Tensor relative_rows(const RelativeTable& table, int64_t first, int64_t count);

/// Returns the rows from relative position −(N − 1) on. skew() expects one column for each row.
Tensor skewed_rows(const RelativeTable& table, int64_t m, int64_t n, bool causal);

/// Returns scores [B, H, M, N] plus the terms that are not products: relative_bias and bias.
/// Differentiable.
Tensor with_score_terms(Tensor scores, const AttentionOptions& options);

/// Returns the tensors of `gradients` in the shapes and dtypes of the inputs. A gradient that has
/// more elements is summed over the batch entries, heads and queries that share the input.
Tensors reduced_gradients(const AttentionOperands& gradients, const AttentionOperands& inputs);

/// Returns the factor of the scores: options.scale, or 1/√D. With D = 0 all scores are 0.
double score_scale(const Tensor& q, const AttentionOptions& options);

/// Throws an Error of `attention` unless the arguments fit together.
void check_attention(const AttentionOperands& inputs);

}  // namespace stretto
