// The commit from which the program was built.
#pragma once

#include <string>

namespace stretto::study {

/// Returns the abbreviated hash of the commit, with "-dirty" if files had been changed; "unknown"
/// for a build outside of a Git repository. Defined in a source that the build generates.
std::string commit();

}  // namespace stretto::study
