// The checkpoint of a run: model, optimiser, settings, what the data were, and where it stands.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nn/training/checkpoint.h"

namespace stretto::examples {

/// What a run knows beside its model, so that a resumed one measures as if it had gone on.
struct RunProgress {
  double seconds = 0;                    // taken so far
  double loss_sum = 0, loss_weight = 0;  // of the loss as it is shown, smoothed
  struct Unmeasured {
    double gradient_norm, learning_rate;
  };
  std::optional<Unmeasured> unmeasured = {};  // of the last step: its evaluation is to come
};

struct RunRecord {
  nn::Metadata settings;
  std::string data;       // its fingerprint
  bool by_clock = false;  // the schedule follows the time taken, so that it is kept
  int64_t step = 0;
  RunProgress progress = {};
  std::vector<nn::NamedTensor> tensors = {};  // more that the run needs to go on
};

/// Throws Error, and leaves an older file as it is, when a parameter is not finite or writing
/// fails. Where the steps are counted the clock is left out, so that equal runs give equal files.
void save_run(const std::string& path, const nn::Module& model, const nn::Optimizer& optimizer,
              const RunRecord& record);

/// Continues from the checkpoint of a run of the same settings: sets step, progress (where the file
/// has none of the loss: 0) and tensors of `record`, which has the rest. Throws Error or UsageError
/// for any other file, and for one that was trained on other data; `data` names them and their
/// option: "chorales than those of --data".
void load_run(const std::string& path, nn::Module& model, nn::Optimizer& optimizer,
              RunRecord& record, const std::string& data);

}  // namespace stretto::examples
