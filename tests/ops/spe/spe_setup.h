// Calls of spe() for the tests: codes of every kind with small parameters, with every
// implementation, and the same results by the loops of tests/reference/spe.
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
  int64_t sines = 2;               // for sine
  int64_t taps = 3, tap_rows = 2;  // for conv and image
  int64_t rows = 3, columns = 5;   // for image
  int64_t first = 0;
  bool gated = true;
  bool given = false;  // noise is passed as tensors
};
std::string describe(const SpeSetup& s);

/// Every kind of code and option, with odd sizes.
std::vector<SpeSetup> spe_setups();

/// Dtype of the calls: f64, or f32 if tests create their tensors on a GPU, whose kernels lack f64.
DType exact_dtype();
/// Converts an f64 tolerance to one for that dtype.
double within(double tolerance);
/// Values of that dtype that depend on the stream.
Tensor exact_noise(const Shape& shape, uint64_t stream);
/// The implementation that is not composed; a GPU does not have it for every code and dtype.
Implementation fused_form();

/// How a call is computed; kept_part caches only the positions that it needs.
enum class SpeWay { composed, fused, kept, kept_part };
inline constexpr SpeWay spe_ways[] = {SpeWay::composed, SpeWay::fused, SpeWay::kept,
                                      SpeWay::kept_part};
const char* name(SpeWay way);

struct SpeCall {
  SpeSetup s;
  /// q, k, the parameters of the code (three for sine, else two), then the gate.
  Tensors inputs;
  Tensor z, epsilon;  // the noise, f64; for sine [H, D, 2K, R], else [H, D, R, n1, n2]

  explicit SpeCall(const SpeSetup& setup, DType dtype = exact_dtype());
  SpeCall& with_gradients();

  SpeCode code(const Tensors& in) const;
  SpeCode code() const { return code(inputs); }
  SpeOptions options(const Tensors& in,
                     Implementation implementation = Implementation::automatic) const;
  SpePair operator()(SpeWay way, const Tensors& in) const;
  SpePair operator()(SpeWay way) const { return (*this)(way, inputs); }
  /// Positions from the first to the last.
  int64_t begin() const;
  int64_t end() const;
  int64_t first_query() const;
  /// The results of the reference.
  SpePair reference() const;
};

/// Both results as one tensor, for gradient checks.
Tensor joined(const SpePair& y);

}  // namespace stretto::testing
