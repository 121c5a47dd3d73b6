#include "core/error.h"

#include <cstdio>

namespace stretto {

void append_text(std::string& to, double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  to += text;
}

}  // namespace stretto
