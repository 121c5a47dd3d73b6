#include "examples/training/training.h"

#include <algorithm>
#include <cmath>

#include "autograd/tape.h"
#include "examples/common/settings.h"
#include "nn/training/schedule.h"

namespace stretto::examples {

double RunSchedule::at(int64_t step, double progress) const {
  const double floor = peak / 100;
  if (steps > 0)
    return nn::WarmupCosine{.peak = peak, .warmup = warmup, .steps = steps, .floor = floor}.at(
        step);
  const double warm = std::min(1.0, double(step) / double(std::max<int64_t>(1, warmup)));
  const double wave = 0.5 + 0.5 * std::cos(3.141592653589793 * std::clamp(progress, 0.0, 1.0));
  return warm * (floor + (peak - floor) * wave);
}

namespace {

void require_finite(const char* what, double value) {
  if (std::isfinite(value)) return;
  throw Error("the " + std::string(what) + " is " + as_text(value) +
              (anomaly_detection() ? "" : "; --anomaly names the op that first makes it so"));
}

}  // namespace

StepResult update(nn::Optimizer& optimizer, const nn::Module& model, double clip, int64_t step,
                  const std::function<Tensor()>& loss) {
  optimizer.zero_grad();
  StepResult result{};
  try {
    const Tensor value = loss();
    require_finite("loss", result.loss = value.item());
    value.backward();
    result.gradient_norm = nn::clip_grad_norm(model.parameters(), clip);
    require_finite("norm of the gradient", result.gradient_norm);
  } catch (const Error& e) {
    throw Error("step " + as_text(step) + ": " + e.what());
  }
  optimizer.step();
  return result;
}

void check_finite(const nn::Module& model, int64_t step, const std::string& path) {
  for (const nn::NamedTensor& p : model.named_parameters())
    for (float value : p.tensor.to_vector<float>())
      if (!std::isfinite(value))
        throw Error("step " + as_text(step) + ": " + p.name + " holds " + as_text(value) +
                    "; not saved to " + path);
}

}  // namespace stretto::examples
