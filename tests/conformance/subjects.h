// The subjects of conformance cases, computed with the library's public functions and modules.
#pragma once

#include "tests/conformance/case.h"

namespace stretto::conformance {

/// Returns every way in which the library computes a subject, the fastest first; none if the
/// subject is unknown.
std::vector<Candidate> candidates(const std::string& subject);

}  // namespace stretto::conformance
