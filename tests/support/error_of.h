// The text of an expected error.
#pragma once

#include <string>

namespace stretto::testing {

/// Returns what() of the Error that `action` throws; "(nothing thrown)" if it throws nothing.
template <class Error, class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "(nothing thrown)";
}

}  // namespace stretto::testing
