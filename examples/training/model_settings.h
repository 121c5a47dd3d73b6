// Settings that every training of a model has: its layers, its attention, its optimiser; their
// options, checks and names.
#pragma once

#include <cstdint>
#include <string>

#include "examples/common/settings.h"
#include "nn/init.h"
#include "nn/models/registry.h"

namespace CLI {
class App;
}

namespace stretto::examples {

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
  int64_t d_head = 0;     // 0: d_model / heads
  int64_t key_heads = 0;  // 0: as many as heads
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
  int64_t reach = 0;                  // PositionSettings
  std::string beyond = "zero";        // or clip
  int64_t realizations = 64, sines = 5, taps = 128;

  std::string dtype = "f32";  // of the weights; or bf16, beside which the optimiser keeps f32
  int64_t batch = 8;
  double learning_rate = 1e-3;  // the highest
  int64_t warmup = 100;
  double clip = 1;
  int64_t steps = 0;  // 0: no number of steps was given; the schedule follows the clock
  uint64_t seed = 1;

  template <class S, class F>
  static void each_of_model(S& s, F&& f) {
    f("layers", s.layers);
    f("d_model", s.d_model);
    f("heads", s.heads);
    f("d_head", s.d_head);
    f("key_heads", s.key_heads);
    f("d_hidden", s.d_hidden);
    f("activation", s.activation);
    f("gated", s.gated);
    f("norm", s.norm);
    f("rms_norm", s.rms_norm);
    f("dropout", s.dropout);
    f("attention_dropout", s.attention_dropout);
    f("attention", s.attention);
    f("features", s.features);
    f("redraw", s.redraw);
    f("position", s.position);
    f("reach", s.reach);
    f("beyond", s.beyond);
    f("realizations", s.realizations);
    f("sines", s.sines);
    f("taps", s.taps);
    f("dtype", s.dtype);
    f("batch", s.batch);
    f("learning_rate", s.learning_rate);
    f("warmup", s.warmup);
    f("clip", s.clip);
    f("steps", s.steps);
    f("seed", s.seed);
  }
  bool operator==(const ModelSettings&) const = default;

  /// Throws UsageError, naming option and value, for what cannot be trained.
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

/// Declares all of them but --steps and --seed, which describe_steps_and_seed does. --help offers
/// the positions that fit attention as each of `attentions` says.
void describe_model(CLI::App& app, ModelSettings& settings,
                    const std::vector<nn::PositionSettings>& attentions);

}  // namespace stretto::examples
