// A record of the leaves that receive gradients in backward passes.
#pragma once

#include <vector>

namespace stretto {

struct TapeEntry;  // autograd/tape.h

/// While it exists, lists each leaf to which a backward pass of the calling thread adds a gradient,
/// including leaves read by functions under recompute(). A leaf may be listed several times. If
/// several watches exist, only the newest one is active.
class LeafWatch {
 public:
  LeafWatch();
  ~LeafWatch();
  LeafWatch(const LeafWatch&) = delete;
  LeafWatch& operator=(const LeafWatch&) = delete;

  /// Returns the tape entries of the leaves: compare with Tensor::tape().
  const std::vector<const TapeEntry*>& leaves() const { return leaves_; }

 private:
  friend struct Engine;
  std::vector<const TapeEntry*> leaves_;
  LeafWatch* const outer_;
};

}  // namespace stretto
