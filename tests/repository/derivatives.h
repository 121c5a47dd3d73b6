// docs/derivatives.md, made from the sources: what each recorded op gives its inputs as gradients.
#pragma once

#include <string>

namespace stretto::testing {

/// The whole page.
std::string derivatives_page();

}  // namespace stretto::testing
