#include "examples/training/training_file.h"

#include <cmath>

#include "examples/common/settings.h"
#include "examples/training/training.h"

namespace stretto::examples {

void save_run(const std::string& path, const nn::Module& model, const nn::Optimizer& optimizer,
              const RunRecord& record) {
  check_finite(model, record.step, path);
  nn::TrainingState state{.step = record.step, .notes = record.settings, .tensors = record.tensors};
  state.notes["data"] = record.data;
  const RunProgress& p = record.progress;
  if (record.by_clock) state.notes["seconds"] = as_text(p.seconds);
  if (p.loss_weight > 0) {
    state.notes["train_loss.sum"] = as_text(p.loss_sum);
    state.notes["train_loss.weight"] = as_text(p.loss_weight);
  }
  if (p.unmeasured) {
    state.notes["unmeasured.gradient_norm"] = as_text(p.unmeasured->gradient_norm);
    state.notes["unmeasured.learning_rate"] = as_text(p.unmeasured->learning_rate);
  }
  nn::save_checkpoint(path, model, &optimizer, state);
}

void load_run(const std::string& path, nn::Module& model, nn::Optimizer& optimizer,
              RunRecord& record, const std::string& data) {
  nn::TrainingState state = nn::load_training_state(path);
  require(state.step >= 0, path + ": malformed, its step is " + as_text(state.step));
  require(state.notes["data"] == record.data, path + ": was trained on other " + data);
  RunProgress progress;
  const auto read = [&](const char* name, double& value, bool needed = false) {
    const auto note = state.notes.find(name);
    if (note == state.notes.end() && !needed) return false;
    require(note != state.notes.end() && read_text(note->second, value) && std::isfinite(value),
            path + ": its note \"" + name + "\" is missing or malformed");
    return true;
  };
  if (record.by_clock) read("seconds", progress.seconds, true);
  require(progress.seconds >= 0, path + ": its note \"seconds\" is missing or malformed");
  if (read("train_loss.weight", progress.loss_weight))
    read("train_loss.sum", progress.loss_sum, true);
  require(progress.loss_weight >= 0 && progress.loss_weight <= 1 + 1e-9,
          path + ": its note \"train_loss.weight\" is missing or malformed");
  RunProgress::Unmeasured unmeasured{};
  if (read("unmeasured.gradient_norm", unmeasured.gradient_norm)) {
    read("unmeasured.learning_rate", unmeasured.learning_rate, true);
    require(progress.loss_weight > 0, path + ": its note \"train_loss.weight\" is missing");
    progress.unmeasured = unmeasured;
  }
  record.tensors = nn::load_checkpoint(path, model, &optimizer).tensors;
  record.step = state.step;
  record.progress = progress;
}

}  // namespace stretto::examples
