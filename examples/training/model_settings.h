// Settings that every training of a model has: its layers, its attention, its optimiser.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/common/options.h"
#include "examples/common/settings.h"
#include "nn/init.h"
#include "nn/models/registry.h"

namespace stretto::examples {

std::vector<std::string> activation_names();

/// Whether a position is a stochastic one: sine, sine-ungated, conv and conv-ungated, also behind
/// one of the input ("learned+sine").
inline bool is_stochastic(const std::string& position) {
  const std::string name = position.substr(position.find('+') + 1);  // all of it without a +
  return name.starts_with("sine") || name.starts_with("conv");
}

/// A program's settings begin with these, and may start with other values.
struct ModelSettings {
  int64_t layers = 4;
  int64_t d_model = 128;
  int64_t heads = 4;
  int64_t d_head = 0;    // 0: d_model / heads
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t d_hidden = 512;
  std::string activation = "relu";
  bool gated = false;
  std::string norm = "pre";  // or post
  bool rms_norm = false;
  double dropout = 0.1;
  double attention_dropout = 0;

  std::string attention = "softmax";  // nn::kernel_names()
  int64_t features = 64;              // of a performer
  int64_t redraw = 0;                 // steps between its projections; 0: never
  std::string position = "music";     // nn::position_names(), or two with a + between
  int64_t max_distance = 0;           // PositionSettings
  std::string out_of_range = "zero";  // or clip
  int64_t realizations = 64, sines = 5, taps = 128;

  std::string dtype = "f32";  // of the weights; or bf16, beside which the optimiser keeps f32
  int64_t batch = 8;
  double learning_rate = 1e-3;  // the highest
  int64_t warmup = 100;
  double max_grad_norm = 1;
  int64_t steps = 0;  // 0: no number of steps was given; the schedule follows the clock
  uint64_t seed = 1;

  template <class S, class F>
  static void each_of_run(S& s, F&& f) {
    f("steps", s.steps,
      "Train this many steps instead: repeatable to the last bit (0: not set); with --resume, more "
      "than before or fewer",
      between(0, INT64_MAX));
    f("seed", s.seed, "Of everything that is drawn", any_value);
  }
  template <class S, class F>
  static void each_of_model(S& s, F&& f) {
    const std::vector<std::string> kernels = nn::kernel_names();
    f("attention", s.attention, joined(kernels), one_of(kernels));
    f("position", s.position, "", any_value);  // describe_position(), check_position()
    f("features", s.features, "performer: random features", between(2, 65536));
    f("redraw", s.redraw, "performer: draw them again after so many steps (0: never)",
      between(0, INT64_MAX));
    f("max_distance", s.max_distance,
      "music, shaw, fire, bert, deberta: lags told apart; the block of music-local (0: follows)",
      between(0, 1 << 20));
    f("out_of_range", s.out_of_range, "music: lags without a row count zero or clip to the last",
      one_of({"clip", "zero"}));
    f("realizations", s.realizations, "sine and conv: draws, the width of their heads",
      between(1, 65536));
    f("sines", s.sines, "sine: sines of each template", between(1, 65536));
    f("taps", s.taps, "conv: taps of each filter, how far it reaches", between(1, 1 << 20));
    f("layers", s.layers, "Layers", between(1, 1000));
    f("d_model", s.d_model, "Width of the model", between(1, 65536));
    f("heads", s.heads, "Attention heads", between(1, 65536));
    f("d_head", s.d_head, "Width of a head (0: d-model / heads)", between(0, 65536));
    f("kv_heads", s.kv_heads, "Heads of keys and values, shared (0: --heads)", between(0, s.heads));
    f("d_hidden", s.d_hidden, "Width of the feed-forward networks", between(1, 1 << 20));
    f("activation", s.activation, joined(activation_names()), one_of(activation_names()));
    f("gated", s.gated, "Gated feed-forward networks (GLU)", any_value);
    f("norm", s.norm, "pre or post: before or after each branch", one_of({"post", "pre"}));
    f("rms_norm", s.rms_norm, "RMSNorm instead of LayerNorm", any_value);
    f("dropout", s.dropout, "Dropout on embeddings and residual branches", require_share);
    f("attention_dropout", s.attention_dropout, "Dropout on attention weights", require_share);
    f("dtype", s.dtype, "f32 or bf16: of the weights and all between them",
      one_of({"bf16", "f32"}));
    f("batch", s.batch, "Sequences of a step", between(1, 1 << 20));
    f("learning_rate", s.learning_rate, "Highest learning rate of the optimiser", require_positive);
    f("warmup", s.warmup, "Steps of linear warm-up", between(0, INT64_MAX));
    f("max_grad_norm", s.max_grad_norm, "Largest norm of a step's gradient", require_above_zero);
  }
  bool operator==(const ModelSettings&) const = default;

  /// Throws UsageError, naming option and value, for what cannot be trained; check_each() comes
  /// before it.
  void check_model() const;
  /// The same for positions in attention as `p` says: a program calls it for each that it has.
  void check_position(const nn::PositionSettings& p) const;
  /// Of a position by name, "learned" of "learned+rope" too.
  bool has_position(const std::string& name) const;
  /// How many positions a sequence may have: learned and bert have tables that end.
  int64_t room(const nn::PositionSettings& p) const;
  /// UsageError "--eval-length 80: --position bert has room for 64 positions" above that.
  void require_room(const nn::PositionSettings& p, int64_t positions,
                    const std::string& given) const;
  /// The limit of a cache to generate with (KeyValueCache): of attention with scores `context`, 0
  /// for none, and no more than bert's table reaches; a recurrent state has no limit.
  int64_t cache_limit(const nn::PositionSettings& p, int64_t context) const;

  DType weights() const { return dtype == "bf16" ? bf16 : f32; }
  /// Layers with this attention, but without a position.
  nn::LayerOptions layer() const;
  nn::PositionSettings position_settings(int64_t length) const;
  int64_t width_of_head() const { return d_head > 0 ? d_head : d_model / heads; }
  /// A training of a Model takes more bytes than this: parameters with their gradients and moments,
  /// and of the activations those that surely stay until the backward pass, of so many tokens in a
  /// step, each with `logits` numbers at the end.
  template <class Model>
  double least_memory_of(const typename Model::Options& options, double tokens,
                         double logits) const {
    double parameters = 0x1p45;  // of one that no address space holds
    try {
      parameters = double(nn::count_parameters<Model>(options));
    } catch (const OutOfMemory&) {
    }
    const double activations = tokens * (double(layers) * double(6 * d_model + d_hidden) + logits);
    return sizeof(float) * (4 * parameters + activations);
  }
};

/// --help offers the positions that fit attention as each of `attentions` says; `more` ends it.
void describe_position(OptionList& options, const ModelSettings& settings,
                       const std::vector<nn::PositionSettings>& attentions,
                       const std::string& more = "");

}  // namespace stretto::examples
