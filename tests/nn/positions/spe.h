// Models for the tests of nn/positions/spe.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/attention/attention.h"
#include "nn/attention/linear_attention.h"
#include "nn/positions/spe.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using nn::SpeShare;
using testing::fixed_noise;
using testing::same_bits;
using testing::worst_error;

namespace stretto::testing {

struct NamedCode {
  std::string name;
  nn::MakePositionalEncoding make;
  SpeShare share;
};

/// Small codes with every setting. Each is a new call of nn::sine_spe or nn::conv_spe, so that
/// layers share only within one of them.
inline std::vector<NamedCode> spe_codes(Implementation implementation = Implementation::automatic) {
  std::vector<NamedCode> all;
  for (const bool gated : {false, true})
    for (const SpeShare share : {SpeShare::nothing, SpeShare::parameters, SpeShare::draws}) {
      const std::string rest = str(gated ? ", gated" : "", ", shares ", int(share));
      all.push_back({"sine" + rest,
                     nn::sine_spe({.realizations = 6,
                                   .sines = 3,
                                   .gated = gated,
                                   .shared = share,
                                   .implementation = implementation}),
                     share});
      all.push_back({"conv" + rest,
                     nn::conv_spe({.realizations = 6,
                                   .taps = {5},
                                   .gated = gated,
                                   .shared = share,
                                   .implementation = implementation}),
                     share});
    }
  return all;
}

struct NamedKernel {
  std::string name;
  nn::MakeKernel make;
  bool projects = false;
};

inline std::vector<NamedKernel> spe_kernels() {
  using nn::FavorKind;
  using nn::linear_kernel;
  return {{"softmax", nn::softmax_kernel()},
          {"elu + 1", linear_kernel(nn::elu_plus_one(), {.chunk = 4})},
          {"relu", linear_kernel(nn::relu_plus(), {.chunk = 4})},
          {"positive", linear_kernel(nn::favor({.features = 16}), {.chunk = 4}), true},
          {"hyperbolic",
           linear_kernel(nn::favor({.features = 16, .kind = FavorKind::hyperbolic}), {.chunk = 4}),
           true},
          {"generalized",
           linear_kernel(nn::favor({.features = 16, .kind = FavorKind::generalized}), {.chunk = 4}),
           true}};
}

/// Three attention layers with residual connections, d_model 8, two heads.
struct Layers : nn::Module {
  using Options = nn::MultiHeadAttention::Options;
  explicit Layers(Options o) : options(std::move(o)) {}

  Tensor operator()(const Tensor& x, const AttentionMask& visible = {.causal = true},
                    std::vector<nn::KeyValueCache>* caches = nullptr) const {
    const nn::ForwardContext forward = nn::begin_forward();
    Tensor y = x;
    for (int64_t i = 0; i < 3; ++i)
      y = y + layers[i](y, visible, caches ? &(*caches)[size_t(i)] : nullptr, forward);
    return y;
  }
  /// Runs one of the layers in a forward pass.
  Tensor layer(int64_t i, const Tensor& x, const nn::ForwardContext& forward) const {
    return layers[i](x, {.causal = true}, nullptr, forward);
  }
  /// Returns the positional encoding of one of the layers.
  nn::Spe* spe(int64_t i) {
    for (const auto& [name, child] : layers[i].children())
      if (name == "position") return dynamic_cast<nn::Spe*>(child);
    return nullptr;
  }

  const Options options;
  nn::List<nn::MultiHeadAttention> layers{*this, "layers", 3, options};
};

/// In f64 and training mode.
inline std::unique_ptr<Layers> layers_of(const nn::MakePositionalEncoding& position,
                                         const nn::MakeKernel& kernel = {}) {
  auto model = std::make_unique<Layers>(
      Layers::Options{.d_model = 8, .n_heads = 2, .position = position, .kernel = kernel});
  model->to(f64);
  return model;
}

}  // namespace stretto::testing
