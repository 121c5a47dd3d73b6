// Loading and saving the weights of a model, also those of other programs:
// docs/published-weights.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "../module.h"
#include "name_map.h"
#include "safetensors.h"

namespace stretto::nn {

/// Options of load_weights().
struct WeightOptions {
  /// Model and file must have the same names. If false, tensors of the model that the file lacks
  /// are not changed, other tensors of the file are ignored, and the report lists both; shapes must
  /// still agree, and it is an error if no tensor at all is loaded.
  bool strict = true;
  /// Accept NaN and infinity; by default an error names the tensors that have them.
  bool allow_not_finite = false;
  /// The floating dtype to which the model is converted while it is loaded, as by model.to(dtype);
  /// by default its own. A model that was constructed in f32 under SkipInit then never needs memory
  /// for its weights in f32.
  std::optional<DType> dtype = {};
};

/// The result of load_weights().
struct LoadReport {
  std::vector<std::string> loaded;   ///< Names in the model of the loaded tensors.
  std::vector<std::string> missing;  ///< Names in the model that the file lacks.
  std::vector<std::string> unused;   ///< Names in the file that the model does not have.
  std::vector<std::string> dropped;  ///< Names in the file that a rule drops.

  /// Returns "loaded 12 of 14 tensors; not in the file: …; not expected: …; dropped: …".
  std::string describe() const;
};

/// Loads parameters and buffers from a safetensors file, an index of shards or a directory, as
/// SafetensorsFile accepts them, or from a checkpoint of this version. `names` maps the names of
/// the file to those of the model (nn/files/name_map.h). All names and shapes must then agree;
/// otherwise an error lists the differences, with similar names in the file, and nothing is
/// changed:
///
///     [load] out.weight: not in the file (expected f32 [9, 4]; similar: head.w f32 [9, 4])
///
/// Floating values are converted to the model's dtype while they are read. Tensors that are dropped
/// or that the model does not have are not read and may have any dtype. On the CPU, parameters take
/// over the memory of the values that were read, unless views of them or gradients exist: a model
/// that was constructed under SkipInit then needs memory for its weights only once.
LoadReport load_weights(const std::string& path, Module& model, const NameMap& names = {},
                        WeightOptions options = {});
/// Loads parameters and buffers from an open file, in the same way; open_weights() of the component
/// `pretrained` opens other formats.
LoadReport load_weights(const WeightsFile& file, Module& model, const NameMap& names = {},
                        WeightOptions options = {});
/// Loads parameters and buffers from tensors in memory, in the same way.
LoadReport load_weights(const Safetensors& file, Module& model, const NameMap& names = {},
                        WeightOptions options = {});

/// Saves parameters and buffers under the names of the file, the inverse of `names`. Tensors that
/// load_weights() has read with the same map are written bit-identically, except that F16 becomes
/// F32. Python programs read the metadata key "format". The directory of `path` must exist. Throws
/// Error before anything is written if a rule is not invertible.
void save_weights(const std::string& path, const Module& model, const NameMap& names = {},
                  const Metadata& metadata = {{"format", "pt"}});

}  // namespace stretto::nn
