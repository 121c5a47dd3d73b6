// Dropout as a module, active in training mode.
#pragma once

#include "../core/random.h"
#include "../ops/norm.h"
#include "forward_context.h"
#include "module.h"

namespace stretto::nn {

/// Options of Dropout.
struct DropoutOptions {
  double p = 0.1;  ///< Probability of zeroing an element, in [0, 1].
};

/// While it exists, dropout in training mode is an error of `op` on this thread: generation has no use
/// for it.
class RefuseDropout {
 public:
  /// Starts the scope.
  explicit RefuseDropout(const char* op);
  ~RefuseDropout();
  RefuseDropout(const RefuseDropout&) = delete;
  RefuseDropout& operator=(const RefuseDropout&) = delete;

 private:
  const char* const before_;
};

/// Returns p if the module is in training mode, otherwise 0. Throws for p > 0 under RefuseDropout.
double dropout_now(const Module& module, double p);

/// Takes a key from the random state for the dropout of one call. Under sequence parallelism it
/// differs between the processes, while all of them advance the random state by the same amount.
RandomKey dropout_key(const ForwardContext& forward);

/// Dropout (Srivastava et al., 2014). In training, each element is zeroed with probability p and
/// the others are scaled by 1 / (1 − p), with new random numbers in every call. In evaluation the
/// result is x itself. Under sequence parallelism each process has its own random numbers.
class Dropout : public Module {
 public:
  using Options = DropoutOptions;  ///< Options of the constructor.
  /// Constructs a root module. Throws if p is not a probability.
  explicit Dropout(Options options);
  /// Constructs a child of `parent`. Throws if p is not a probability.
  Dropout(Module& parent, std::string name, Options options);

  /// Returns x of any shape with dropout.
  Tensor operator()(const Tensor& x, const ForwardContext& forward = {}) const;
  /// Returns the probability of the next call, 0 in evaluation, and takes its key from the random
  /// state if that is not 0.
  ResidualDropout next(const ForwardContext& forward = {}) const;
  std::string label() const override;

  const Options options;  ///< As passed to the constructor.
};

}  // namespace stretto::nn
