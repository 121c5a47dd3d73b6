// The HTML page that shows the data of a run. Its HTML, style and scripts are files in this
// directory.
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

/// Returns the data of the page at `path`. Throws UsageError if the file cannot be read, is not a
/// page made by page_with(), or has more than 4,000,000 bytes; pages of runs are smaller.
std::string data_of_page(const std::string& path);

/// Returns the run that the page at `path` shows. Throws UsageError as data_of_page() does, and if
/// the data are not JSON or have more values or nesting levels than allowed (page_data.cpp): a page
/// may come from anyone and must not exhaust memory or stack.
nlohmann::json run_of_page(const std::string& path);

/// Returns the parts of a run that a comparison shows. Throws json::exception or UsageError if a
/// part is missing, has an element of the wrong type, or has values, or a number of values, that no
/// example program writes: a page may come from anyone, and one run must not prevent the comparison
/// from showing the others.
nlohmann::json checked_run(const nlohmann::json& run);

}  // namespace stretto::examples
