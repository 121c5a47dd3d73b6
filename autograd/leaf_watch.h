// The leaves that receive gradients in backward passes.
#pragma once

#include <vector>

namespace stretto {

struct TapeEntry;  // autograd/tape.h

/// While it exists, records each leaf that a backward pass of the calling thread adds a gradient
/// to, leaves that a function under checkpoint() reads among them. A leaf may be listed several
/// times. Compare with Tensor::tape(). If several watches exist, only the newest one records.
class LeafWatch {
 public:
  LeafWatch();
  ~LeafWatch();
  LeafWatch(const LeafWatch&) = delete;
  LeafWatch& operator=(const LeafWatch&) = delete;

  const std::vector<const TapeEntry*>& leaves() const { return leaves_; }

 private:
  friend struct Engine;
  std::vector<const TapeEntry*> leaves_;
  LeafWatch* const outer_;
};

}  // namespace stretto
