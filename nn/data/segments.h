// Token streams cut into the segments that a language model is trained and judged on.
#pragma once

#include <functional>

#include "../../core/tensor.h"
#include "batch.h"
#include "token_stream.h"

namespace stretto::nn {

/// The stream trimmed to B columns of equal length, side by side; segment k is positions k·L …
/// (k+1)·L − 1 of every column, so that row b continues row b of the segment before. The last
/// segment of an epoch may be shorter; the next epoch begins at the start.
class ContiguousBatches {
 public:
  /// The columns must hold at least two tokens.
  ContiguousBatches(TokenStream tokens, int64_t batch, int64_t length);
  int64_t per_epoch() const { return (column_ - 2) / length_ + 1; }
  Batch operator()(int64_t step) const;
  bool starts_epoch(int64_t step) const { return step % per_epoch() == 0; }

 private:
  TokenStream tokens_;
  int64_t batch_, length_, column_;
};

/// How a held-out stream is scored: in segments of `length`, with so much memory.
struct EvaluationWindows {
  int64_t length = 0;
  int64_t memory = 0;  // > 0: columns, each with a memory that is empty at its start
  int64_t stride = 0;  // without memory: how far apart segments begin, at most length
};

/// Calls f with segments that score every token but the very first exactly once, in order within a
/// column. With memory, row b continues row b of the segment before, in `batch` columns, or fewer
/// where those would be shorter than a segment; without, rows are independent, and all but the
/// first are scored on their last `stride` positions only (the last row: on what is left).
///
/// With memory the columns are cut into `groups`, one scored after the other, or into fewer where
/// there are fewer columns. `begins` is true of a segment that continues none.
void for_each_evaluation_window(const TokenStream& tokens, const EvaluationWindows& windows,
                                int64_t batch,
                                const std::function<void(const Batch&, bool begins)>& f,
                                int64_t groups = 1);

}  // namespace stretto::nn
