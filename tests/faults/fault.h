// Makes calls fail on demand, if the library of preload/faults.cpp is loaded.
#pragma once

#include <string>

namespace stretto::testing {

/// True if the library is loaded into this process.
bool can_fail();

/// During its lifetime, the k-th call of a kind fails (kinds and ways: preload/faults.cpp).
class Fault {
 public:
  Fault(const std::string& kind, long k, const std::string& how);
  ~Fault();
  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;

  /// Disarms the fault. Returns true if the call occurred.
  bool end();

 private:
  bool fired_ = false, ended_ = false;
};

}  // namespace stretto::testing
