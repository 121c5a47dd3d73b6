// The loss of connectionist temporal classification by its definition.
#pragma once

#include <vector>

#include "tests/support/op_table.h"

namespace stretto::reference {

/// Returns the losses of ctc_loss(), [N], as a sum over all paths: log_p [T, N, C], targets [N, S].
std::vector<testing::Number> ctc(const testing::Array& log_p, const testing::Array& targets,
                                 const std::vector<int64_t>& input_lengths,
                                 const std::vector<int64_t>& target_lengths, int64_t blank);

}  // namespace stretto::reference
