// A linear layer.
#pragma once

#include <memory>
#include <vector>

#include "dropout.h"
#include "module.h"

namespace stretto::nn {

/// Options of Linear.
struct LinearOptions {
  int64_t in = 0;    ///< Number of input features, at least 1.
  int64_t out = 0;   ///< Number of output features, at least 1.
  bool bias = true;  ///< Adds a bias.
};

/// Options of LoraAdapter.
struct LoraAdapterOptions {
  int64_t in = 0;      ///< Number of input features, at least 1.
  int64_t out = 0;     ///< Number of output features, at least 1.
  int64_t rank = 8;    ///< Rank of the update, at least 1.
  double scale = 1;    ///< Factor of the update.
  double dropout = 0;  ///< Dropout of the input, in training.
};

/// A trained update of low rank for a frozen weight (LoRA, Hu et al. 2022): adds
/// scale · dropout(x) · aᵀ · bᵀ to the output of a Linear. add_lora() attaches it
/// (pretrained/lora.h).
class LoraAdapter : public Module {
 public:
  using Options = LoraAdapterOptions;  ///< Options of the constructor.
  /// Constructs a child of `parent`. Throws if a size is below 1.
  LoraAdapter(Module& parent, std::string name, Options options);
  /// x [.., in] → [.., out], the update alone.
  Tensor operator()(const Tensor& x) const;
  /// Returns the update of the weight, scale · b · a [out, in].
  Tensor delta() const;
  std::string label() const override;

  const Options options;  ///< As passed to the constructor.
  /// [rank, in], initially uniform in ±1/√in, as in PEFT.
  const Tensor a = parameter("a", empty({options.rank, options.in}));
  /// [out, rank], initially 0: training starts from the unchanged model.
  const Tensor b = parameter("b", empty({options.out, options.rank}));
  Dropout dropout{*this, "dropout", {options.dropout}};  ///< Dropout of the input.
};

/// A linear layer, x · weightᵀ + bias, plus the update of a LoraAdapter if it has one.
class Linear : public Module {
 public:
  using Options = LinearOptions;  ///< Options of the constructor.
  /// Constructs a root module. Throws if a size is below 1.
  explicit Linear(Options options);
  /// Constructs a child of `parent`. Throws if a size is below 1.
  Linear(Module& parent, std::string name, Options options);

  /// x [.., in] → [.., out].
  Tensor operator()(const Tensor& x) const;
  std::string label() const override;

  /// Attaches an adapter named "lora" in the weight's dtype and on its device, in place of an
  /// earlier one; `in` and `out` of the options are ignored.
  void set_lora(LoraAdapter::Options lora);
  /// Removes the adapter, if there is one.
  void remove_lora() { lora_.reset(); }
  /// Returns the adapter; null without one.
  LoraAdapter* lora() const { return lora_.get(); }

  const Options options;  ///< As passed to the constructor.
  /// [out, in], initially uniform in ±1/√in, as in PyTorch.
  const Tensor weight = parameter("weight", empty({options.out, options.in}));
  /// [out], initially uniform in ±1/√in; undefined without a bias.
  const Tensor bias = options.bias ? parameter("bias", empty({options.out})) : Tensor();

 private:
  void reset_parameters();
  void copy_settings(const Module& from) override;

  std::unique_ptr<LoraAdapter> lora_;
};

/// Returns the results of several layers for one input x [.., in]. On a GPU one product computes
/// them if their parameters are packed (Module::pack_parameters) and none has an adapter.
Tensors packed_linear(const std::vector<const Linear*>& layers, const Tensor& x);

}  // namespace stretto::nn
