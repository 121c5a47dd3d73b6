// The settings of train_lm: tokens, model, positional encoding, optimizer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/text/corpus.h"
#include "examples/training/model_settings.h"
#include "nn/files/safetensors.h"
#include "nn/models/language_model.h"

namespace stretto::examples {

/// All settings are stored in the checkpoint. With the same settings and data every step is
/// bit-identical, whatever the number of threads.
struct LmSettings : ModelSettings {
  LmSettings() : ModelSettings{.norm = "post", .position = "xl"} {
    batch = 16;
    max_grad_norm = 0.25;
  }

  std::string tokens = "bytes";  ///< bytes, chars or words
  int64_t vocabulary = 0;        ///< maximum number of words; 0: unlimited
  double held_out = 0.1;

  bool untied_biases = false;
  std::string cutoffs;  ///< "20000,40000"
  int64_t div = 1;

  int64_t length = 128;
  int64_t memory = 0;
  bool pack = false;

  template <class S, class F>
  static void each(S& s, F&& f) {
    f("held_out", s.held_out, "Fraction of the data, at its end, held out for validation",
      require_fraction);
    f("tokens", s.tokens, "Tokens: bytes, chars (of UTF-8) or words", known_to(token_kind));
    f("vocabulary", s.vocabulary, "Maximum vocabulary size, with --tokens words (0: unlimited)",
      between(0, 1 << 30));
    each_of_run(s, f);
    each_of_model(s, f);
    f("untied_biases", s.untied_biases, "Separate biases u and v for each layer (xl)", any_value);
    f("cutoffs", s.cutoffs,
      "Adaptive softmax: ends of the clusters of the vocabulary, such as 20000,40000", any_value);
    f("div", s.div, "Adaptive softmax: factor by which the embedding dimension falls per cluster",
      between(1, 1024));
    f("length", s.length, "Segment length in tokens", between(1, 1 << 20));
    f("memory", s.memory,
      "Memory length: number of cached positions of earlier segments (default: the segment length "
      "with xl, else 0)",
      between(0, 1 << 20));
    f("pack", s.pack,
      "Pack whole documents, separated by blank lines, into segments; attention stays within a "
      "document",
      any_value);
  }
  bool operator==(const LmSettings&) const = default;

  /// Throws UsageError, naming option and value, for settings that cannot be trained.
  void check() const;
  /// Returns the position settings for a segment with its memory.
  nn::PositionSettings positions() const;
  /// True if the positional encoding is Transformer-XL's own: sinusoids of the relative position,
  /// with shared biases.
  bool own_position() const { return position == "xl"; }
  /// True if the positional encoding supports a memory.
  bool has_memory() const;
  /// True if results depend on the absolute position of a token in the text: with a memory and a
  /// positional encoding that is not relative.
  bool counts_tokens() const;
  /// Returns the model's options. Throws as check() for settings that depend on
  /// the number of tokens.
  nn::LanguageModel::Options model(int64_t n_tokens) const;
  /// Returns a lower bound of the bytes that training takes.
  double least_memory(int64_t n_tokens) const;
};

/// Named configurations: those of the Transformer-XL paper, and two small ones.
struct LmPreset {
  nn::Metadata settings;  ///< names and values, as in LmSettings
  int64_t n_tokens = 0;   ///< vocabulary size of the paper's data; 0: vocabulary size of --data
  int64_t eval_length = 0, eval_memory = 0, eval_clamp = 0;  ///< 0: as in training
  bool eval_same_length = false;
};
/// Returns the configuration of one of the authors' scripts, or nano or small; UsageError, listing
/// all names, for any other.
LmPreset lm_preset(const std::string& name);

}  // namespace stretto::examples
