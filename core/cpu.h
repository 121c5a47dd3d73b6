// The instruction sets that the CPU and the operating system offer (for core/gemm/gemm.h).
#pragma once

#include <cstdint>
#include <string>

namespace stretto {

/// Instruction sets; each includes all before it. `emulated` is amx with the tile products computed
/// by other instructions, bit-identically, so that code for AMX can be tested on any CPU.
enum class Isa : uint8_t { portable, avx2, avx512, amx, emulated };

/// Returns the set named "portable", "avx2", "avx512", "amx" or "emulated"; throws for other names.
Isa isa_of(const std::string& name);

/// Returns the instruction set in use: the best that the CPU supports, capped by the environment
/// variable STRETTO_CPU, which is read once. Throws if its value is not one of the names.
Isa isa();

/// Returns the set with the widest vectors in use: at most avx512; with `emulated` the widest
/// vectors of the CPU.
Isa vector_isa();

/// True if the CPU multiplies bf16 vectors (avx512_bf16) and isa() is at least avx512.
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
