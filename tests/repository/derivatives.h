// Generates docs/derivatives.md, the gradients of each recorded op, from the sources.
#pragma once

#include <string>

namespace stretto::testing {

/// Returns the whole page.
std::string derivatives_page();

}  // namespace stretto::testing
