// A name for data, to tell them from others.
#pragma once

#include "nn/files/digest.h"

namespace stretto::examples {

/// Of numbers, in hexadecimal.
class Fingerprint {
 public:
  void add(int64_t number) { digest_.add(&number, sizeof number); }
  std::string text() const { return digest_.text(); }

 private:
  nn::Digest digest_;
};

}  // namespace stretto::examples
