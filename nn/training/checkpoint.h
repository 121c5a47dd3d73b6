// Checkpoints: everything needed to resume training bit-identically, in one safetensors file.
//
//   model.NAME             parameters and buffers; a shared parameter once, under its first name
//   optim.NAME.steps       number of updates of this parameter so far, i64 []
//   optim.NAME.SLOT        its optimizer state ("m", "v", "momentum", "master", …)
//   state.NAME             tensors of the program, e.g. a memory or a position in a stream
//   metadata               format, version, step, random state, learning rate, names of the
//                          optimizer's frozen parameters, whether frozen parameters are left out,
//                          metadata of the program, and a digest of the rest of the file
//                          (nn/files/safetensors.h), verified on reading
//
// load_weights (nn/files/weights.h) reads only the weights.
#pragma once

#include <string>

#include "../../core/random.h"
#include "../files/safetensors.h"
#include "../files/weights.h"
#include "../module.h"
#include "../optim/optim.h"

namespace stretto::nn {

/// The content of a checkpoint besides model and optimizer.
struct TrainingState {
  int64_t step = 0;                     ///< Number of updates done.
  RandomState random = random_state();  ///< State of the random number generator.
  /// Metadata of the program, e.g. configuration or position in the data. Keys must not begin with
  /// "stretto.".
  Metadata metadata = {};
  /// Tensors of the program; load_training_state() does not read them.
  std::vector<NamedTensor> tensors = {};
};

/// Options of save_checkpoint().
struct SaveOptions {
  /// False: leaves out frozen parameters (Module::freeze), for example the published weights of a
  /// model with LoRA adapters. The program must restore them itself before it loads the checkpoint.
  bool frozen = true;
};

/// Writes a checkpoint. Replaces the file at `path` atomically; equal content gives equal bytes.
/// `optimizer` may be null. The directory of `path` must exist.
void save_checkpoint(const std::string& path, const Module& model, const Optimizer* optimizer,
                     const TrainingState& state, SaveOptions options = {});

/// Options of load_checkpoint().
struct LoadOptions {
  /// Accept NaN and infinity in tensors of model and optimizer; by default an error names them.
  bool allow_not_finite = false;
};

/// Restores the model, the optimizer with its learning rate, and the random state of the program.
/// If `optimizer` is null, the optimizer state in the file is ignored. All names, shapes and dtypes
/// must agree; otherwise an error names the differences, and nothing is changed:
///
///     [load] decoder.0.linear1.weight: file has f32 [512, 128], the model f32 [256, 128] (a.st)
///
/// The set of trained parameters, those of the optimizer that are not frozen (Module::freeze),
/// must agree too. Before loading, freeze the parameters that the saved run had frozen when it
/// wrote the checkpoint, and no others; parameters may be frozen or unfrozen afterwards. If the
/// checkpoint was saved without frozen parameters, those of the model are not changed. For a
/// checkpoint of another format or version (the patch number may differ), throws an error that
/// names both versions.
TrainingState load_checkpoint(const SafetensorsFile& file, Module& model, Optimizer* optimizer,
                              LoadOptions options = {});
/// Restores from the file at `path`.
TrainingState load_checkpoint(const std::string& path, Module& model, Optimizer* optimizer,
                              LoadOptions options = {});

/// Reads only the training state, without tensors, e.g. before the model exists. The random state
/// of the program is unchanged. If load_checkpoint() reads the same open file, both get the content
/// of one checkpoint, even if a run replaces it meanwhile.
TrainingState load_training_state(const SafetensorsFile& file);
/// Reads the training state of the file at `path`.
TrainingState load_training_state(const std::string& path);

}  // namespace stretto::nn
