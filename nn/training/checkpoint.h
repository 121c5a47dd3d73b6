// Checkpoints: all that is needed to go on training bit for bit, in one safetensors file.
//
//   model.NAME             parameters and buffers; a shared parameter once, under its first name
//   optim.NAME.steps       updates this parameter has had, i64 []
//   optim.NAME.SLOT        what the optimiser keeps of it ("m", "v", "momentum", "master", …)
//   state.NAME             tensors of the program's own: a memory, a position in a stream
//   metadata               the format and the version, the step, the random state, the learning
//                          rate, which of the optimiser's parameters are frozen, the program's own
//                          notes, and a digest of all the rest, which reading verifies
//                          (nn/files/safetensors.h)
//
// The weights alone are read by load_weights (nn/files/weights.h).
#pragma once

#include <string>

#include "../../core/random.h"
#include "../files/safetensors.h"
#include "../files/weights.h"
#include "../module.h"
#include "../optim/optim.h"

namespace stretto::nn {

/// What a checkpoint holds besides tensors.
struct TrainingState {
  int64_t step = 0;
  RandomState random = random_state();
  Metadata metadata =
      {};  // the program's: configuration, position in the data, …; no "stretto.…" keys
  std::vector<NamedTensor> tensors = {};  // the program's; load_training_state leaves them out
};

/// Replaces the file at `path` in one step; the same content gives the same bytes. The optimiser
/// may be null.
void save_checkpoint(const std::string& path, const Module& model, const Optimizer* optimizer,
                     const TrainingState& state);

struct LoadOptions {
  /// Take tensors of model and optimiser that hold NaN or infinity, which else are refused by name.
  bool allow_not_finite = false;
};

/// Restores model, optimiser with its learning rate (may be null: its state is then ignored) and
/// the random state of the program. A checkpoint of another version is refused by name. All names,
/// shapes and dtypes must agree; what does not is named, and nothing is changed then:
///     [load] decoder.0.linear1.weight: file has f32 [512, 128], the model f32 [256, 128] (a.st)
/// So must the parameters that the optimiser has and that are not frozen (Module::freeze): what a
/// program freezes or trains from then on, it changes after loading.
TrainingState load_checkpoint(const std::string& path, Module& model, Optimizer* optimizer,
                              LoadOptions options = {});

/// Reads the state alone, before there is a model; the random state is left alone.
TrainingState load_training_state(const std::string& path);

}  // namespace stretto::nn
