// Recognizes common file formats by their signatures, for errors about a file of another format.
#pragma once

#include <string>
#include <string_view>

namespace stretto {

/// Returns the format of `bytes` if they begin with the signature of a format other than plain
/// text: "gzip-compressed", "a zip archive", "UTF-16 text", and so on; else "".
std::string known_format(std::string_view bytes);

}  // namespace stretto
