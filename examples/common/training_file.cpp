#include "examples/common/training_file.h"

#include <cmath>

#include "examples/common/settings.h"
#include "examples/common/training.h"

namespace stretto::examples {

void save_run(const std::string& path, const nn::Module& model, const nn::Optimizer& optimizer,
              const RunRecord& record) {
  check_finite(model, record.step, path);
  nn::TrainingState state{.step = record.step, .notes = record.settings, .tensors = record.tensors};
  state.notes["data"] = record.data;
  if (record.by_clock) state.notes["seconds"] = as_text(record.seconds);
  nn::save_checkpoint(path, model, &optimizer, state);
}

void load_run(const std::string& path, nn::Module& model, nn::Optimizer& optimizer,
              RunRecord& record, const std::string& data) {
  nn::TrainingState state = nn::load_training_state(path);
  require(state.step >= 0, path + ": malformed, its step is " + as_text(state.step));
  require(state.notes["data"] == record.data, path + ": was trained on other " + data);
  double seconds = 0;
  if (record.by_clock)
    require(read_text(state.notes["seconds"], seconds) && seconds >= 0 && std::isfinite(seconds),
            path + ": its note \"seconds\" is missing or malformed");
  record.tensors = nn::load_checkpoint(path, model, &optimizer).tensors;
  record.step = state.step;
  record.seconds = seconds;
}

}  // namespace stretto::examples
