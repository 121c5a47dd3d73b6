// Initialization of parameters, in place, with random numbers from the program's random state.
//
// Fans are as in PyTorch: a weight [out, in, k…] has fan_in = in·k… and fan_out = out·k….
#pragma once

#include <cmath>
#include <optional>

#include "../core/random.h"
#include "../core/tensor.h"

namespace stretto::nn {

/// Disables the functions below in this thread while it exists, for modules whose values come from
/// a file or do not matter. Memory that is never written is only reserved by the system, so that a
/// module larger than the machine's memory can still be described and counted.
class SkipInit {
 public:
  /// Disables initialization. With a floating dtype, new parameters of modules have this dtype, so
  /// that a model for which f32 would not fit into memory can be constructed and then loaded; all
  /// of their values are then undefined, also those of norms.
  explicit SkipInit(std::optional<DType> dtype = {});
  /// Restores the previous setting.
  ~SkipInit();
  SkipInit(const SkipInit&) = delete;
  SkipInit& operator=(const SkipInit&) = delete;
  /// Returns true if initialization is disabled in this thread.
  static bool active();

 private:
  bool before_;
  std::optional<DType> dtype_before_;
};

/// Returns the number of elements in all parameters of an M with these options:
/// count_parameters<Linear>({.in = 2, …}).
template <class M>
int64_t count_parameters(const typename M::Options& options) {
  const SkipInit skip;
  const DefaultDevice host(cpu);
  return M(options).parameter_count();
}

/// Fills x with a value.
void constant_(const Tensor& x, double value);
/// Fills x with uniform random numbers in [low, high).
void uniform_(const Tensor& x, double low = 0, double high = 1);
/// Fills x with normal random numbers.
void normal_(const Tensor& x, double mean = 0, double std = 1);
/// Fills x with random numbers of the normal distribution truncated to [low, high].
void trunc_normal_(const Tensor& x, double mean = 0, double std = 1, double low = -2,
                   double high = 2);

/// The fans of a weight.
struct Fans {
  int64_t in = 0;   ///< Inputs per output.
  int64_t out = 0;  ///< Outputs per input.
};
/// Returns the fans of a weight with at least 2 dimensions.
Fans fans(const Tensor& x);

/// Fills x with uniform random numbers in ±gain·√(6 / (fan_in + fan_out)), which have variance
/// 2·gain² / (fan_in + fan_out) (Glorot & Bengio, 2010).
void xavier_uniform_(const Tensor& x, double gain = 1);
/// Fills x with normal random numbers of variance 2·gain² / (fan_in + fan_out).
void xavier_normal_(const Tensor& x, double gain = 1);

/// Fills x with normal random numbers of variance 1 / fan_in, truncated at two standard deviations
/// of the normal distribution before truncation (LeCun et al. 1998; Flax).
void lecun_normal_(const Tensor& x);

/// The fan that determines the variance.
enum class Fan {
  in,  ///< Fans::in.
  out  ///< Fans::out.
};
/// Fills x with uniform random numbers in ±√(6 / ((1 + a²)·fan)), which have variance
/// 2 / ((1 + a²)·fan) (He et al., 2015); a is the negative slope of the following leaky ReLU, 0 for
/// ReLU.
void kaiming_uniform_(const Tensor& x, double a = 0, Fan fan = Fan::in);
/// Fills x with normal random numbers of variance 2 / ((1 + a²)·fan).
void kaiming_normal_(const Tensor& x, double a = 0, Fan fan = Fan::in);

/// Fills x, viewed as a matrix [size(0), rest], with gain times a random matrix with
/// orthonormal rows or columns, whichever are fewer, uniform over all such matrices (Saxe et
/// al., 2014; Mezzadri, 2007).
void orthogonal_(const Tensor& x, double gain = 1);
/// Does the same as orthogonal_(x, gain), with random numbers from `key`.
void orthogonal_(const Tensor& x, double gain, RandomKey key);

}  // namespace stretto::nn
