// The page around the data: HTML, style and scripts, as they stand in this folder.
#pragma once

#include <string>

namespace stretto::examples {

// CMake makes them strings (page.cpp.in).
extern const char* const page_html;
extern const char* const page_style;
extern const char* const page_script;

/// The page with `data`, a JSON text, in it.
std::string page_with(const std::string& title, const std::string& data);

/// The data of the page at `path`, as they went in. Throws UsageError where it cannot be read or is
/// no such page.
std::string data_of_page(const std::string& path);

}  // namespace stretto::examples
