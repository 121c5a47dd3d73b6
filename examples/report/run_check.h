// Whether a run that was read from a page is what the page's scripts rely on.
#pragma once

#include <nlohmann/json.hpp>

namespace stretto::examples {

/// Returns the parts of a run that a comparison shows. Throws json::exception or UsageError where
/// one is missing, has an element of another type, or holds numbers or an amount that no program
/// writes: a page may come from anyone, and one run must not keep the page from showing the others.
nlohmann::json checked_run(const nlohmann::json& run);

}  // namespace stretto::examples
