// Weights of a model alone, from files of any origin and to them: docs/published-weights.md.
#pragma once

#include <string>
#include <vector>

#include "../module.h"
#include "name_map.h"
#include "safetensors.h"

namespace stretto::nn {

struct WeightOptions {
  /// Names must agree in both directions. Without, a model's tensors that the file lacks stay as
  /// they are, what the file has besides is left out, and the report tells both; shapes must fit
  /// all the same, and nothing at all loaded is an error.
  bool strict = true;
  /// Take tensors that hold NaN or infinity, which else are refused by name.
  bool allow_not_finite = false;
};

struct LoadReport {
  std::vector<std::string> loaded, missing;  // the model's names
  std::vector<std::string> unused, dropped;  // the file's: without a place, and by a rule

  /// Loaded 12 of 14 tensors; not in the file: …; not wanted here: …; dropped: 3
  std::string describe() const;
};

/// Reads parameters and buffers from a safetensors file, an index of shards, a folder that has
/// either (SafetensorsFile), or a checkpoint of this version. `names` turns the file's names into
/// the model's (nn/files/name_map.h). All names and shapes must then agree; what does not is told,
/// with the nearest that the file has, and nothing is changed:
///     [load] out.weight: not in the file (wanted f32 [9, 4]; nearest there: head.w f32 [9, 4])
/// Floating values are converted to the model's dtype. Tensors that are dropped, or without a place
/// in the model, are not read and may have any dtype.
LoadReport load_weights(const std::string& path, Module& model, const NameMap& names = {},
                        WeightOptions options = {});
/// The same from a file that is open, or from tensors at hand.
LoadReport load_weights(const SafetensorsFile& file, Module& model, const NameMap& names = {},
                        WeightOptions options = {});
LoadReport load_weights(const Safetensors& file, Module& model, const NameMap& names = {},
                        WeightOptions options = {});

/// Writes parameters and buffers under the file's names: `names` run backwards. What load_weights
/// read with the same map comes back bit for bit, but F16 as F32. Programs in Python look for the
/// text "format". Throws, before anything is written, where a rule has no way back.
void save_weights(const std::string& path, const Module& model, const NameMap& names = {},
                  const Metadata& metadata = {{"format", "pt"}});

}  // namespace stretto::nn
