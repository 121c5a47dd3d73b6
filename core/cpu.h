// The instruction sets that the CPU and the operating system offer (for core/gemm/gemm.h).
#pragma once

#include <cstdint>
#include <string>

namespace stretto {

/// Instruction sets: portable on any CPU, neon on AArch64, the others on x86-64. Compare them with
/// includes(), not by order. `emulated` is amx with the tile products computed by other
/// instructions, bit-identically, so that code for AMX can be tested on any CPU.
enum class Isa : uint8_t { portable, neon, avx2, avx512, amx, emulated };

/// True if `set` has the instructions of `part`: amx includes avx512, which includes avx2;
/// `emulated` includes amx; every set includes itself and portable.
constexpr bool includes(Isa set, Isa part) {
  const bool of_x86 = part != Isa::portable && part != Isa::neon;
  return part == set || part == Isa::portable || (of_x86 && part < set);
}

/// Returns the set named "portable", "neon", "avx2", "avx512", "amx" or "emulated"; throws for
/// other names.
Isa isa_of(const std::string& name);

/// Returns the largest set that a CPU with the set `best` and the cap `most` both include, for
/// example portable for neon and avx2. `emulated` runs on any CPU.
Isa capped(Isa best, Isa most);

/// Returns the instruction set in use: the best that the CPU supports, capped by the environment
/// variable STRETTO_CPU, which is read once. Throws if its value is not one of the names.
Isa isa();

/// Returns the set with the widest vectors in use: never amx or `emulated`; with `emulated` the
/// widest vectors of the CPU.
Isa vector_isa();

/// True if the CPU multiplies bf16 vectors (avx512_bf16) and isa() includes avx512.
bool has_bf16_vectors();

/// Returns a description of isa() in one line: "AVX-512 with bf16", "AVX-512; the processor has
/// AMX, but the system refuses it", …
std::string cpu_description();

/// Caps isa() in all threads while it exists, as STRETTO_CPU does. For tests.
class IsaCap {
 public:
  explicit IsaCap(Isa most);
  ~IsaCap();
  IsaCap(const IsaCap&) = delete;
  IsaCap& operator=(const IsaCap&) = delete;

 private:
  Isa before_;
};

}  // namespace stretto
