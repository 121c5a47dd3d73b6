// The page around the data: HTML, style and scripts of this directory.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace stretto::examples {

// Strings made by CMake (page.cpp.in).
extern const char* const page_html;
extern const char* const page_style;
extern const char* const page_script;

/// Returns the page that contains `data`, a JSON text.
std::string page_with(const std::string& title, const std::string& data);

/// Returns the data of the page at `path`. Throws UsageError if it cannot be read, is not such a
/// page, or has more than 4 MB, the limit of all pages.
std::string data_of_page(const std::string& path);

/// Returns the run of the page at `path`. Throws UsageError as data_of_page() does, and if the data
/// are not JSON or have more values or levels than a page has: a page may come from anyone and must
/// not exhaust memory or stack.
nlohmann::json run_of_page(const std::string& path);

/// Returns the parts of a run that a comparison shows. Throws json::exception or UsageError if one
/// is missing, has an element of another type, or has values or an amount that no program writes: a
/// page may come from anyone, and one run must not prevent the page from showing the others.
nlohmann::json checked_run(const nlohmann::json& run);

}  // namespace stretto::examples
