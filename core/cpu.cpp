#include "core/cpu.h"

#include <atomic>
#include <cstdlib>

#include "core/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

// All sources of the library have the same options (cmake/targets.cmake).
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || \
    (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ > 0)
#error "Stretto relies on NaN, infinity and the order of sums: add -fno-fast-math"
#endif

namespace stretto {
namespace {

struct Cpu {
  Isa best = Isa::portable;
  bool bf16_vectors = false, amx_refused = false;
};

#if defined(__x86_64__)
// True if the processor has tiles and bf16 tile products.
bool has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  return (d >> 22 & 1) && (d >> 24 & 1);  // AMX-BF16, AMX-TILE
}
// True if the operating system saves the tile registers.
bool tiles_are_enabled() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return false;  // OSXSAVE
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low >> 17 & 3) == 3;  // TILECFG, TILEDATA
}
// Requests tiles: on Linux a process must do so before any of its threads uses them.
bool ask_for_tiles() {
  constexpr int arch_req_xcomp_perm = 0x1023, tile_data = 18;
  return ::syscall(SYS_arch_prctl, arch_req_xcomp_perm, tile_data) == 0;
}
#endif

Cpu detect() {
  Cpu cpu;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) cpu.best = Isa::avx2;
  if (cpu.best == Isa::avx2 && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    cpu.best = Isa::avx512;
  if (cpu.best == Isa::avx512) cpu.bf16_vectors = __builtin_cpu_supports("avx512bf16");
  if (cpu.bf16_vectors && has_amx()) {
    if (tiles_are_enabled() && ask_for_tiles())
      cpu.best = Isa::amx;
    else
      cpu.amx_refused = true;
  }
#elif defined(__aarch64__)
  cpu.best = Isa::neon;  // a part of the base architecture
#endif
  return cpu;
}

const Cpu& detected() {
  static const Cpu cpu = detect();
  return cpu;
}

// The value of STRETTO_CPU, or "" if it is not set.
std::string environment() {
  const char* text = std::getenv("STRETTO_CPU");
  return text ? text : "";
}

std::atomic<Isa>& chosen() {
  static std::atomic<Isa> isa{
      environment().empty() ? detected().best : capped(detected().best, isa_of(environment()))};
  return isa;
}

}  // namespace

Isa isa_of(const std::string& name) {
  constexpr const char* names[] = {"portable", "neon", "avx2", "avx512", "amx", "emulated"};
  for (int i = 0; i < 6; ++i)
    if (name == names[i]) return Isa(i);
  fail("cpu", "STRETTO_CPU is \"", name,
       "\"; it must be portable, neon, avx2, avx512, amx or emulated, or not be set");
}

Isa capped(Isa best, Isa most) {
  if (most == Isa::emulated || includes(best, most)) return most;
  return includes(most, best) ? best : Isa::portable;
}

Isa isa() { return chosen().load(std::memory_order_relaxed); }

Isa vector_isa() {
  const Isa set = isa() == Isa::emulated ? detected().best : isa();
  return set == Isa::amx ? Isa::avx512 : set;
}

bool has_bf16_vectors() { return detected().bf16_vectors && includes(isa(), Isa::avx512); }

std::string cpu_description() {
  std::string text;
  switch (isa()) {
    case Isa::portable:
      text = "portable";
      break;
    case Isa::neon:
      text = "NEON";
      break;
    case Isa::avx2:
      text = "AVX2";
      break;
    case Isa::avx512:
      text = "AVX-512";
      break;
    case Isa::amx:
      text = "AMX";
      break;
    case Isa::emulated:
      text = "AMX emulated";
      break;
  }
  if (has_bf16_vectors() && isa() == Isa::avx512) text += " with bf16";
  if (isa() != Isa::emulated && isa() != detected().best) text += ", capped";
  if (detected().amx_refused) text += "; the processor has AMX, but the system refuses it";
  return text;
}

IsaCap::IsaCap(Isa most) : before_(isa()) { chosen() = capped(detected().best, most); }
IsaCap::~IsaCap() { chosen() = before_; }

}  // namespace stretto
