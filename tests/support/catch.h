#pragma once

// Catch2 2.13 (Debian 12) and 3.x under common names. Tests include this header
// instead of Catch2. In addition to the macros of Catch2: Approx, Containing("text")
// for error messages, STRETTO_SKIP(reason).

#include <string>

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_approx.hpp>
#include <catch2/catch_message.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_all.hpp>
using Catch::Approx;
inline auto Containing(const std::string& text) { return Catch::Matchers::ContainsSubstring(text); }
#else
#include <catch2/catch.hpp>
inline auto Containing(const std::string& text) { return Catch::Matchers::Contains(text); }
#endif

namespace stretto::testing {
/// Prints "SKIPPED: <test name>: <reason>" and counts the running test as skipped.
void skip(const std::string& reason);
}  // namespace stretto::testing

/// Returns from the running test, which then counts as skipped. For the body of a TEST_CASE only.
#define STRETTO_SKIP(reason)          \
  do {                                \
    ::stretto::testing::skip(reason); \
    return;                           \
  } while (false)
