// Token streams divided into segments for training and evaluating a language model.
#pragma once

#include <functional>

#include "../../core/tensor.h"
#include "batch.h"
#include "token_stream.h"

namespace stretto::nn {

/// Contiguous batches for truncated backpropagation through time, as in Transformer-XL: the stream
/// is trimmed and divided into B columns of equal length. Segment k has positions k·L … (k+1)·L − 1
/// of every column, so that row b continues row b of the previous segment. The last segment of an
/// epoch may be shorter; the next epoch begins at the start again.
class ContiguousBatches {
 public:
  /// Makes `batch` columns and segments of `length` positions. Throws Error if a column has fewer
  /// than two tokens.
  ContiguousBatches(TokenStream tokens, int64_t batch, int64_t length);
  /// Returns the number of segments per epoch.
  int64_t per_epoch() const { return (column_ - 2) / length_ + 1; }
  /// Returns the batch of a step (from 0) with next-token targets, i64 [batch, length], on the CPU.
  Batch operator()(int64_t step) const;
  /// True if the batch of a step is the first one of an epoch; a memory must then be empty.
  bool starts_epoch(int64_t step) const { return step % per_epoch() == 0; }

 private:
  TokenStream tokens_;
  int64_t batch_, length_, column_;
};

/// The windows in which a held-out stream is scored.
struct EvaluationWindows {
  int64_t length = 0;  ///< Positions per window, at least 1.
  int64_t memory = 0;  ///< > 0: contiguous columns, each with a memory that is empty at its start.
  /// Without memory: distance between window starts, 1 … `length`; 0: `length`. A smaller stride
  /// gives each token more context and costs more windows.
  int64_t stride = 0;
};

/// Calls f with windows that score every token exactly once, except the first token of the stream.
///
/// Without memory, rows are independent windows. The first row is scored at all positions, the
/// other rows only at their last `stride` positions (the last row at the remaining positions).
/// `begins` is then always true.
///
/// With memory, the stream is divided into `batch` columns, fewer if a column would be shorter than
/// a window. Row b continues row b of the previous window. Columns are processed in `groups` (at
/// most one per column), one after the other; `begins` is true for the first window of a group.
/// Throws Error if length, stride, batch or groups is out of range.
void for_each_evaluation_window(const TokenStream& tokens, const EvaluationWindows& windows,
                                int64_t batch,
                                const std::function<void(const Batch&, bool begins)>& f,
                                int64_t groups = 1);

}  // namespace stretto::nn
