#include "tests/repository/derivatives.h"

#include <cstdlib>
#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/find_upwards.h"
#include "tests/support/sources.h"

using namespace stretto;

TEST_CASE("docs/derivatives.md agrees with the sources", "[repository][derivatives]") {
  const std::string page = testing::derivatives_page();
  if (std::getenv("STRETTO_WRITE_DOCS"))
    std::ofstream(testing::find_upwards("stretto.h").parent_path() / "docs/derivatives.md") << page;
  INFO("STRETTO_WRITE_DOCS=1 stretto_tests \"[derivatives]\" regenerates it");
  CHECK((testing::text_of("docs/derivatives.md") == page));
}

TEST_CASE("docs/derivatives.md has elementwise functions and matmul, and no empty cells",
          "[repository][derivatives]") {
  const std::string page = testing::derivatives_page();
  for (const char* row :
       {"| `exp` | `x` | `g * y` |\n", "| `tanh` | `x` | `g * (1 - y * y)` |\n",
        "| `matmul` | `left, right` | `sum_to(matmul(g, right.transpose(-1, -2)), left.shape()), "
        "sum_to(matmul(left.transpose(-1, -2), g), right.shape())` |\n"}) {
    INFO(row);
    CHECK(page.find(row) != std::string::npos);
  }
  CHECK(page.find("|  |") == std::string::npos);  // an op without a gradient
}
