#include "tests/faults/fault.h"

#include <dlfcn.h>

namespace stretto::testing {
namespace {

template <class F>
F* function(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_DEFAULT, name));
}

}  // namespace

bool can_fail() { return function<void()>("stretto_fault_arm") != nullptr; }

Fault::Fault(const std::string& kind, long k, const std::string& how) {
  static const auto arm = function<void(const char*, long, const char*)>("stretto_fault_arm");
  static const auto disarm = function<long()>("stretto_fault_disarm");
  if (disarm) arm(kind.c_str(), k, how.c_str());
}

Fault::~Fault() { end(); }

bool Fault::end() {
  static const auto disarm = function<long()>("stretto_fault_disarm");
  if (!ended_) fired_ = disarm() > 0;
  ended_ = true;
  return fired_;
}

}  // namespace stretto::testing
