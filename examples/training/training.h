// One training step and what surrounds it: the learning rate, the update, the checks that nothing
// is NaN or infinite, and a name for the data.
#pragma once

#include <charconv>
#include <functional>
#include <string>

#include "nn/training/optim.h"

namespace stretto::examples {

struct StepResult {
  double loss;           // nats per token over the batch
  double gradient_norm;  // before clipping
};

/// Linear warm-up, then half a cosine to a hundredth of the peak: over `steps` steps, or, where
/// that is 0, over the share `progress` of the run's time that has passed.
struct RunSchedule {
  double peak = 0;
  int64_t warmup = 0;
  int64_t steps = 0;
  double at(int64_t step, double progress) const;  // step counts from 1
};

/// One update by the gradient of `loss()`, at most of the norm `clip`. Throws Error "step 7: ..."
/// when the loss or the gradient is not finite, or where an op fails; the parameters are as before
/// then.
StepResult update(nn::Optimizer& optimizer, const nn::Module& model, double clip, int64_t step,
                  const std::function<Tensor()>& loss);

/// Throws Error "step 7: out.weight holds inf; not saved to FILE" for such a parameter.
void check_finite(const nn::Module& model, int64_t step, const std::string& path);

/// FNV-1a over numbers, in hexadecimal: tells data sets apart.
class Fingerprint {
 public:
  void add(int64_t number) { hash_ = (hash_ ^ uint64_t(number)) * 0x100000001b3; }
  std::string text() const {
    char text[16];
    return {text, std::to_chars(text, text + sizeof text, hash_, 16).ptr};
  }

 private:
  uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace stretto::examples
