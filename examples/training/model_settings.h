// Settings shared by training programs: optimizer, layers, attention, positional encoding.
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

/// True for the stochastic positional encodings sine, sine-ungated, conv and conv-ungated, also
/// combined with one added to the input ("learned+sine").
inline bool is_stochastic(const std::string& position) {
  const std::string name = position.substr(position.find('+') + 1);  // without a +, all of it
  return name.starts_with("sine") || name.starts_with("conv");
}

/// The settings of a training of any model. A program may change their defaults and add settings.
struct TrainingSettings {     // NOLINT(clang-analyzer-core.uninitialized.Assign): all are set
  std::string dtype = "f32";  ///< of the weights; bf16: the optimizer keeps f32 master copies
  int64_t batch = 8;
  std::string optimizer = "adamw";  ///< or muon
  std::string schedule = "cosine";  ///< one of schedule_names()
  double learning_rate = 1e-3;      ///< the peak of the schedule
  int64_t warmup = 100;
  double max_grad_norm = 1;
  int64_t steps = 0;  ///< 0: not given; training and schedule follow the clock (--minutes)
  uint64_t seed = 1;

  template <class S, class F>
  static void each_of_run(S& s, F&& f) {
    f("steps", s.steps,
      "Train for this many steps instead of --minutes; the result is bit-identical every time (0: "
      "not set). With --resume it may differ from the saved number",
      between(0, INT64_MAX));
    f("seed", s.seed, "Seed of all random numbers", any_value);
  }
  /// A program with other schedules hides this function and describes --schedule.
  static std::vector<std::string> schedule_names() { return {"cosine", "wsd"}; }

  template <class S, class F>
  static void each_of_training(S& s, F&& f) {
    f("dtype", s.dtype, "Dtype of weights and activations: f32 or bf16", one_of({"bf16", "f32"}));
    f("batch", s.batch, "Batch size: sequences per step", between(1, 1 << 20));
    f("optimizer", s.optimizer,
      "Optimizer: adamw, or muon (for the weight matrices in layers; adamw for the rest)",
      one_of({"adamw", "muon"}));
    f("schedule", s.schedule,
      "Learning-rate schedule after the warm-up: cosine, or wsd (constant, then linear in the last "
      "fifth)",
      one_of(s.schedule_names()));
    f("learning_rate", s.learning_rate, "Peak learning rate", require_positive);
    f("warmup", s.warmup, "Steps of linear learning-rate warm-up", between(0, INT64_MAX));
    f("max_grad_norm", s.max_grad_norm, "Gradients are clipped to this norm", require_above_zero);
  }
  bool operator==(const TrainingSettings&) const = default;

  DType weights() const { return dtype == "bf16" ? bf16 : f32; }
};

/// The settings of the programs that train a model from random weights, in addition.
struct ModelSettings : TrainingSettings {
  int64_t layers = 4;
  int64_t d_model = 128;
  int64_t heads = 4;
  int64_t d_head = 0;    ///< 0: d_model / heads
  int64_t kv_heads = 0;  ///< 0: the number of heads
  int64_t d_hidden = 512;
  std::string activation = "relu";
  bool gated = false;
  std::string norm = "pre";  ///< or post
  bool rms_norm = false;
  double dropout = 0.1;
  double attention_dropout = 0;

  std::string attention = "softmax";  ///< one of nn::kernel_names()
  int64_t features = 64;              ///< random features of a performer
  int64_t redraw = 0;                 ///< steps between redraws of its projections; 0: never
  std::string position = "music";     ///< one of nn::position_names(), or two joined by +
  int64_t max_distance = 0;           ///< see PositionSettings
  std::string out_of_range = "zero";  ///< or clip
  int64_t realizations = 64, sines = 5, taps = 128;

  template <class S, class F>
  static void each_of_model(S& s, F&& f) {
    const std::vector<std::string> kernels = nn::kernel_names();
    f("attention", s.attention, "Attention kernel: " + joined(kernels), one_of(kernels));
    f("position", s.position, "", any_value);  // describe_position(), check_position()
    f("features", s.features, "Number of random features per head (performer)", between(2, 65536));
    f("redraw", s.redraw, "Steps between redraws of the random features (performer; 0: never)",
      between(0, INT64_MAX));
    f("max_distance", s.max_distance,
      "Range of distances (music, shaw, fire, bert, deberta) or block size (music-local); 0: "
      "derived from the sequence length (shaw: 16)",
      between(0, 1 << 20));
    f("out_of_range", s.out_of_range,
      "Relative positions beyond --max-distance (music): zero adds no term, clip uses the last row",
      one_of({"clip", "zero"}));
    f("realizations", s.realizations,
      "Number of noise realizations, the head dimension inside attention (sine and conv)",
      between(1, 65536));
    f("sines", s.sines, "Number of sinusoids per feature of a head (sine)", between(1, 65536));
    f("taps", s.taps,
      "Number of filter taps; positions at least this far apart are uncorrelated (conv)",
      between(1, 1 << 20));
    f("layers", s.layers, "Number of layers", between(1, 1000));
    f("d_model", s.d_model, "Model dimension", between(1, 65536));
    f("heads", s.heads, "Number of attention heads", between(1, 65536));
    f("d_head", s.d_head, "Head dimension (0: d-model / heads)", between(0, 65536));
    f("kv_heads", s.kv_heads, "Number of KV heads, for grouped-query attention (0: --heads)",
      between(0, s.heads));
    f("d_hidden", s.d_hidden, "Hidden dimension of the feed-forward networks", between(1, 1 << 20));
    f("activation", s.activation,
      "Activation of the feed-forward networks: " + joined(activation_names()),
      one_of(activation_names()));
    f("gated", s.gated, "Gated feed-forward networks (GLU)", any_value);
    f("norm", s.norm, "Normalization before (pre) or after (post) each residual branch",
      one_of({"post", "pre"}));
    f("rms_norm", s.rms_norm, "RMSNorm instead of LayerNorm", any_value);
    f("dropout", s.dropout, "Dropout on embeddings and residual branches", require_share);
    f("attention_dropout", s.attention_dropout, "Dropout on attention weights", require_share);
    each_of_training(s, f);
  }
  bool operator==(const ModelSettings&) const = default;

  /// Throws UsageError, naming option and value, for settings that cannot be trained.
  /// Call check_each() first.
  void check_model() const;
  /// Checks --position for an attention with the settings `p`. A program calls it for each of its
  /// kinds of attention.
  void check_position(const nn::PositionSettings& p) const;
  /// True if the positional encoding is or includes `name`: "learned" in "learned+rope" too.
  bool has_position(const std::string& name) const;
  /// Returns the largest number of positions in a sequence (PositionTraits::max_positions).
  int64_t room(const nn::PositionSettings& p) const;
  /// Throws UsageError "--eval-length 80: --position bert is limited to 64 positions"
  /// if there are more.
  void require_room(const nn::PositionSettings& p, int64_t positions,
                    const std::string& given) const;
  /// Returns the limit of the cache for generation (KeyValueCache). Softmax attention uses `context`
  /// (0: no limit), capped for relative positions with a limited table; a recurrent state has no
  /// limit (0).
  int64_t cache_limit(const nn::PositionSettings& p, int64_t context) const;

  /// Returns the options of a layer with this attention, without a positional encoding.
  nn::LayerOptions layer() const;
  nn::PositionSettings position_settings(int64_t length) const;
  int64_t width_of_head() const { return d_head > 0 ? d_head : d_model / heads; }
  /// Returns a lower bound of the bytes that training a Model takes: parameters with their
  /// gradients and moments, and the activations that are certainly saved for the backward pass,
  /// with `tokens` tokens per step and `logits` output elements per token.
  template <class Model>
  double least_memory_of(const typename Model::Options& options, double tokens,
                         double logits) const {
    double parameters = 0x1p45;  // used for a model that is too large to be described
    try {
      parameters = double(nn::count_parameters<Model>(options));
    } catch (const OutOfMemory&) {
    }
    const double activations = tokens * (double(layers) * double(6 * d_model + d_hidden) + logits);
    return sizeof(float) * (4 * parameters + activations);
  }
};

/// Sets the help text of --position: the positional encodings that fit each of
/// `attentions`, then `more`.
void describe_position(OptionList& options, const ModelSettings& settings,
                       const std::vector<nn::PositionSettings>& attentions,
                       const std::string& more = "");

}  // namespace stretto::examples
