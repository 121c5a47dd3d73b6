// The leaf tensors that the last backward pass has reached. An optimizer looks among them for those
// that are not trained.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace stretto {

struct TapeEntry;  // autograd/tape.h

/// Returns the tape entries of the leaves to which the last backward pass of this thread has added a
/// gradient, including leaves read by functions under recompute(). Leaves that do not exist any
/// more are left out.
std::vector<std::shared_ptr<const TapeEntry>> last_leaves();

/// Returns the TapeEntry::number of the next leaf.
uint64_t next_tape_number();

}  // namespace stretto
