// Initial values of parameters, in place. All draw from the random state of the program.
//
// Fans as in PyTorch: a weight [out, in, k…] has fan_in = in·k… and fan_out = out·k….
#pragma once

#include <cmath>

#include "../core/random.h"
#include "../core/tensor.h"

namespace stretto::nn {

/// While one exists, the functions below leave their tensors as they are, in this thread: for
/// modules whose values come from a file, or do not matter. Memory that nobody writes to is only
/// reserved, so that a module too large for this machine can still be described and counted.
class SkipInit {
 public:
  SkipInit();
  ~SkipInit();
  SkipInit(const SkipInit&) = delete;
  SkipInit& operator=(const SkipInit&) = delete;
  static bool active();

 private:
  bool before_;
};

/// Numbers in all parameters of an M with these options: count_parameters<Linear>({.in = 2, …}).
template <class M>
int64_t count_parameters(const typename M::Options& options) {
  const SkipInit skip;
  const DefaultDevice host(cpu);
  return M(options).parameter_count();
}

void constant_(const Tensor& x, double value);
/// Uniform in [low, high).
void uniform_(const Tensor& x, double low = 0, double high = 1);
void normal_(const Tensor& x, double mean = 0, double std = 1);
/// Normal, but only values in [low, high]; the probability of all others goes to these evenly.
void trunc_normal_(const Tensor& x, double mean = 0, double std = 1, double low = -2,
                   double high = 2);

struct Fans {
  int64_t in = 0, out = 0;
};
/// Inputs per output and outputs per input of a weight with at least 2 dimensions.
Fans fans(const Tensor& x);

/// Variance 2·gain² / (fan_in + fan_out) (Glorot & Bengio, 2010): U(±gain·√(6 / (in + out))).
void xavier_uniform_(const Tensor& x, double gain = 1);
void xavier_normal_(const Tensor& x, double gain = 1);

enum class Fan { in, out };
/// Variance 2 / ((1 + a²)·fan) (He et al., 2015), a the negative slope of the leaky ReLU that
/// follows, 0 for ReLU: U(±√(6 / ((1 + a²)·fan))).
void kaiming_uniform_(const Tensor& x, double a = 0, Fan fan = Fan::in);
void kaiming_normal_(const Tensor& x, double a = 0, Fan fan = Fan::in);

/// x, taken as a matrix [size(0), rest], becomes gain times one with orthonormal rows or columns,
/// whichever are fewer, uniform over all such matrices (Saxe et al., 2014; Mezzadri, 2007).
void orthogonal_(const Tensor& x, double gain = 1);
/// The same from the draws of `key`.
void orthogonal_(const Tensor& x, double gain, RandomKey key);

}  // namespace stretto::nn
