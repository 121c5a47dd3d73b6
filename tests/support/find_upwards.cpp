#include "tests/support/find_upwards.h"

namespace stretto::testing {

std::filesystem::path find_upwards(const std::string& relative) {
  namespace fs = std::filesystem;
  for (const fs::path& start : {fs::current_path(), fs::path(__FILE__).parent_path()})
    for (fs::path at = start;; at = at.parent_path()) {
      std::error_code ignored;
      if (fs::exists(at / relative, ignored)) return at / relative;
      if (at == at.parent_path()) break;
    }
  return {};
}

}  // namespace stretto::testing
