// The subjects of conformance cases, computed by the library's public functions and modules.
#pragma once

#include "tests/conformance/case.h"

namespace stretto::conformance {

/// Every way in which the library computes a subject, the fastest first; none for a subject that it
/// does not know.
std::vector<Candidate> candidates(const std::string& subject);

}  // namespace stretto::conformance
