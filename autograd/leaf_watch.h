// Which leaves backward passes end in.
#pragma once

#include <vector>

namespace stretto {

struct TapeEntry;  // autograd/tape.h

/// Collects, during its life, the leaves that backward passes of the calling thread add gradients
/// to, those that functions under checkpoint() read among them; one may be listed several times.
/// They are for comparison with Tensor::tape(). Of several watches, the newest collects.
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
