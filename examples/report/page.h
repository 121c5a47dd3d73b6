// The page around the data: HTML, style and scripts, as they stand in this folder.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace stretto::examples {

// CMake makes them strings (page.cpp.in).
extern const char* const page_html;
extern const char* const page_style;
extern const char* const page_script;

/// The page with `data`, a JSON text, in it.
std::string page_with(const std::string& title, const std::string& data);

/// The data of the page at `path`, as they went in. Throws UsageError where it cannot be read, is
/// no such page, or has more than 4 MB, which no page has.
std::string data_of_page(const std::string& path);

/// The run of the page at `path`. Throws UsageError as data_of_page() does, and where the data are
/// no JSON, or JSON of more values or levels than a page has: a page may come from anyone, and
/// must not take a memory or a stack of its own choice.
nlohmann::json run_of_page(const std::string& path);

/// Returns the parts of a run that a comparison shows. Throws json::exception or UsageError where
/// one is missing, has an element of another type, or holds numbers or an amount that no program
/// writes: a page may come from anyone, and one run must not keep the page from showing the others.
nlohmann::json checked_run(const nlohmann::json& run);

}  // namespace stretto::examples
