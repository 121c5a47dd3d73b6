// What the processor and the system offer to matrix products (core/gemm/gemm.h).
#pragma once

#include <cstdint>
#include <string>

namespace stretto {

/// Instruction sets, each with all before it. `emulated` is amx with its tile product computed by
/// other instructions, to the same bits: what needs AMX is tested anywhere.
enum class Isa : uint8_t { portable, avx2, avx512, amx, emulated };

/// The set of that name: "portable", "avx2", "avx512", "amx", "emulated". Throws for any other.
Isa isa_of(const std::string& name);

/// What serves: the best that there is, but no better than the environment variable STRETTO_CPU
/// says, which is read once. Throws where it has none of the names.
Isa isa();

/// The vectors that serve: avx512 at most, and no more than there are where tiles are emulated.
Isa vector_isa();

/// Whether the processor multiplies bf16 vectors (avx512_bf16), and `isa()` lets it.
bool has_bf16_vectors();

/// "AVX-512 with bf16", "AVX-512; AMX is there, but the system refuses it", …
std::string cpu_description();

/// Caps `isa()` in all threads while it lives, for tests: as STRETTO_CPU does.
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
