// LoRA: fine-tuning a model by small updates of its linear layers (Hu et al. 2022).
//
//     nn::add_lora(model, {.rank = 8, .targets = {"q", "v"}});  // only the updates are trained
//     …                                                        // train as usual
//     nn::save_lora("adapter", model, names);                   // a folder of PEFT's format
//     nn::merge_lora(model);                                    // adds the updates to the weights
#pragma once

#include <string>
#include <vector>

#include "../nn/files/name_map.h"
#include "../nn/module.h"

namespace stretto::nn {

/// Options of add_lora().
struct LoraOptions {
  int64_t rank = 8;    ///< Rank of the updates, at least 1.
  double alpha = 16;   ///< Updates are multiplied by alpha / rank.
  double dropout = 0;  ///< Dropout of the adapters' inputs, in training.
  /// Layers that get an adapter: every Linear whose name ends with one of these, at a dot: "q"
  /// stands for "layers.0.self_attention.q" and all others of this name. "all" stands for every
  /// Linear except direct children of the model, such as its output projection.
  std::vector<std::string> targets = {"q", "v"};
};

/// Freezes all parameters of the model and adds an adapter to each target. Returns the names of the
/// layers with adapters. Throws Error, and changes nothing, if a target matches no Linear, or if the
/// model has adapters already.
/// An optimizer must be made afterwards: it then trains the adapters alone.
std::vector<std::string> add_lora(Module& model, const LoraOptions& options = {});

/// Adds the updates to the weights and removes the adapters. The parameters stay frozen. Outputs
/// change only by rounding.
void merge_lora(Module& model);

/// Returns the parameters of all adapters of the model.
std::vector<NamedTensor> lora_parameters(const Module& model);

/// Returns the adapters under their names in files of PEFT. Throws Error as save_lora() does, for
/// example to find before a training that its result cannot be saved.
std::vector<NamedTensor> peft_tensors(const Module& model, const NameMap& names);

/// Saves the adapters as PEFT does: adapter_config.json and adapter_model.safetensors in `folder`,
/// which is created. `names` is the map with which the model's weights were loaded; `base_model`
/// is the name of the model that the adapters belong to. Throws Error if there are no adapters, or
/// if a rule of `names` splits or converts the weight of a layer with an adapter, or if the layer is an
/// expert or a router.
void save_lora(const std::string& folder, const Module& model, const NameMap& names,
               const std::string& base_model = "");

/// Adds the adapters of a folder of PEFT's format and freezes all other parameters. An adapter of a
/// matrix that the map splits, such as GPT-2's c_attn, becomes one adapter per part. Adapters of
/// matrices that the map drops, such as the head of BERT's pretraining, are ignored, as the matrices
/// are. Fields of adapter_config.json that change the computation in another way are refused by
/// name. Throws Error, and changes nothing, if a tensor does not fit or is not finite, if no adapter
/// is left, if a layer of "target_modules" has no adapter in the file, or if the model has adapters
/// already. Returns the names of the layers with adapters.
std::vector<std::string> load_lora(const std::string& folder, Module& model, const NameMap& names);

}  // namespace stretto::nn
