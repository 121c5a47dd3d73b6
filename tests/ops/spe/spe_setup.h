// Calls of spe() for the tests: codes of every kind with small parameters, in every form, and the
// same by the loops of tests/reference/spe.
#pragma once

#include <string>
#include <vector>

#include "core/device.h"
#include "ops/spe/spe.h"

namespace stretto::testing {

enum class CodeKind { sine, conv, image };

struct SpeSetup {
  CodeKind kind = CodeKind::sine;
  int64_t batch = 2, heads = 2, queries = 6, keys = 6, d = 3, r = 4;
  int64_t sines = 2;               // sine
  int64_t taps = 3, tap_rows = 2;  // conv and image
  int64_t rows = 3, columns = 5;   // image
  int64_t first = 0;
  bool gated = true;
  bool given = false;  // the noise as tensors
};
std::string describe(const SpeSetup& s);

/// Every kind and policy, with odd sizes.
std::vector<SpeSetup> spe_setups();

/// Of the calls: f64, but f32 where tests make their tensors on a GPU, whose kernels have no f64.
DType exact_dtype();
/// A tolerance of f64's for that dtype.
double within(double tolerance);
/// Values that depend on the stream, of that dtype.
Tensor exact_noise(const Shape& shape, uint64_t stream);
/// The form that is not composed: on a GPU not every code and dtype has it.
Implementation fused_form();

/// How a call is computed; kept_part: the positions that it needs.
enum class SpeWay { composed, fused, kept, kept_part };
inline constexpr SpeWay spe_ways[] = {SpeWay::composed, SpeWay::fused, SpeWay::kept,
                                      SpeWay::kept_part};
const char* name(SpeWay way);

struct SpeCall {
  SpeSetup s;
  /// q, k, then the code's parameters (three for sine, else two), then the gate.
  Tensors inputs;
  Tensor z, epsilon;  // the draws, f64; for sine [H, D, 2K, R], else [H, D, R, n1, n2]

  explicit SpeCall(const SpeSetup& setup, DType dtype = exact_dtype());
  SpeCall& with_gradients();

  SpeCode code(const Tensors& in) const;
  SpeCode code() const { return code(inputs); }
  SpeOptions options(const Tensors& in,
                     Implementation implementation = Implementation::automatic) const;
  SpePair operator()(SpeWay way, const Tensors& in) const;
  SpePair operator()(SpeWay way) const { return (*this)(way, inputs); }
  /// From the first position to the last.
  int64_t begin() const;
  int64_t end() const;
  int64_t first_query() const;
  /// By the loops.
  SpePair reference() const;
};

/// Both results as one tensor, for gradient checks.
Tensor joined(const SpePair& y);

}  // namespace stretto::testing
