// Failing calls on demand: the library of preload/faults.cpp, where it is loaded.
#pragma once

#include <string>

namespace stretto::testing {

/// Whether this process runs under the library.
bool can_fail();

/// While it lives, the k-th call of a kind fails (preload/faults.cpp names kinds and ways).
class Fault {
 public:
  Fault(const std::string& kind, long k, const std::string& how);
  ~Fault();
  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;

  /// Ends it; whether the call came.
  bool end();

 private:
  bool fired_ = false, ended_ = false;
};

}  // namespace stretto::testing
