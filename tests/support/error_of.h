// The text of an error that is expected.
#pragma once

#include <string>

namespace stretto::testing {

/// What the Error that `action` throws says; "(nothing thrown)" if it throws none.
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
