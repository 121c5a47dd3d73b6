// Text inside HTML and SVG.
#pragma once

#include <string>

namespace stretto::examples {

/// As a page or a picture shows it: <, > and & by their names. For content, not for attributes.
std::string escaped(const std::string& text);

}  // namespace stretto::examples
