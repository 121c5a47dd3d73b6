// Instruction sets of the processor, and caps on them [core/cpu.h].
#include "core/cpu.h"

#include <algorithm>
#include <string>

#include "core/error.h"
#include "core/gemm/gemm.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace stretto {
namespace {

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("instruction sets are parsed and printed by name", "[core]") {
  CHECK(isa_of("portable") == Isa::portable);
  CHECK(isa_of("neon") == Isa::neon);
  CHECK(isa_of("avx512") == Isa::avx512);
  CHECK(isa_of("emulated") == Isa::emulated);
  CHECK(
      testing::error_of<Error>([] { isa_of("avx1024"); }) ==
      "[cpu] STRETTO_CPU is \"avx1024\"; it must be portable, neon, avx2, avx512, amx or emulated, "
      "or not be set");
}

TEST_CASE("an IsaCap limits the instruction set until it is destroyed", "[core]") {
  const Isa before = isa();
  {
    const IsaCap cap(Isa::portable);
    CHECK(isa() == Isa::portable);
    CHECK(vector_isa() == Isa::portable);
    CHECK(!has_bf16_vectors());
    CHECK(contains(cpu_description(), "portable"));
    const IsaCap emulated(Isa::emulated);
    CHECK(isa() == Isa::emulated);
    CHECK(!includes(vector_isa(), Isa::amx));
    CHECK(contains(cpu_description(), "emulated"));
  }
  CHECK(isa() == before);
  const IsaCap none(Isa::amx);  // the cap never raises the instruction set above the processor's
  CHECK(includes(Isa::amx, isa()));
  CHECK(!includes(vector_isa(), Isa::amx));
}

TEST_CASE("a cap selects the largest instruction set that the cap and the processor include",
          "[core]") {
  const Isa x86[] = {Isa::portable, Isa::avx2, Isa::avx512, Isa::amx};
  for (const Isa best : x86) {
    for (const Isa most : x86) CHECK(capped(best, most) == std::min(best, most));
    CHECK(capped(best, Isa::neon) == Isa::portable);
    CHECK(capped(best, Isa::emulated) == Isa::emulated);
  }
  for (const Isa most : x86) CHECK(capped(Isa::neon, most) == Isa::portable);
  CHECK(capped(Isa::neon, Isa::neon) == Isa::neon);
  CHECK(capped(Isa::neon, Isa::emulated) == Isa::emulated);
#if defined(__aarch64__)
  const IsaCap neon(Isa::neon);
  CHECK(cpu_description() == "NEON");
  const IsaCap emulated(Isa::emulated);
  CHECK(vector_isa() == Isa::neon);
#endif
}

}  // namespace stretto
