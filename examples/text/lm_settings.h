// What fixes a run of train_lm: the text's tokens, the model, the position, the optimiser.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/text/corpus.h"
#include "examples/training/model_settings.h"
#include "nn/files/safetensors.h"
#include "nn/models/transformer_xl.h"

namespace stretto::examples {

/// With the same settings and data every step has the same bits, whatever the number of threads.
/// All of it is kept in the checkpoint.
struct LmSettings : ModelSettings {
  LmSettings()
      : ModelSettings{.norm = "post", .position = "xl", .batch = 16, .max_grad_norm = 0.25} {}

  std::string tokens = "bytes";  // bytes, chars, words
  int64_t vocabulary = 0;        // most words; 0: all
  double held_out = 0.1;

  bool untied_biases = false;
  std::string cutoffs;  // "20000,40000"
  int64_t div = 1;

  int64_t length = 128;
  int64_t memory = 0;

  template <class S, class F>
  static void each(S& s, F&& f) {
    f("held_out", s.held_out, "Judge by this share of the data, its end", require_fraction);
    f("tokens", s.tokens, "bytes, chars (of UTF-8) or words", known_to(token_kind));
    f("vocabulary", s.vocabulary, "At most so many words (0: all)", between(0, 1 << 30));
    each_of_run(s, f);
    each_of_model(s, f);
    f("untied_biases", s.untied_biases, "xl: u and v of their own for each layer", any_value);
    f("cutoffs", s.cutoffs, "Ends of the clusters of the vocabulary: 20000,40000", any_value);
    f("div", s.div, "Each cluster is so many times narrower than the one before", between(1, 1024));
    f("length", s.length, "Tokens of a segment", between(1, 1 << 20));
    f("memory", s.memory,
      "Positions remembered from before (unless given: the length with xl, else 0)",
      between(0, 1 << 20));
  }
  bool operator==(const LmSettings&) const = default;

  /// Throws UsageError, naming option and value, for what cannot be trained.
  void check() const;
  /// Of the segment and its memory together.
  nn::PositionSettings positions() const;
  /// Whether the model's own positions are used: sinusoids of the lag, with shared biases.
  bool own_position() const { return position == "xl"; }
  /// Whether the position counts on from a memory.
  bool has_memory() const;
  /// Whether the position depends on how far into the text a token is (PositionEntry::counted).
  bool counts_tokens() const;
  /// As `check`, for what hangs on the number of tokens.
  nn::TransformerXL::Options model(int64_t n_tokens) const;
  /// A training takes more bytes than this.
  double least_memory(int64_t n_tokens) const;
};

/// Named configurations: the papers' and two small ones.
struct LmPreset {
  nn::Metadata settings;  // names and values, as in LmSettings
  int64_t n_tokens = 0;   // of the paper's data; 0: follows from the data
  int64_t eval_length = 0, eval_memory = 0, eval_clamp = 0;  // 0: as in training
  bool eval_same_length = false;
};
/// One of the authors' scripts by name, nano or small; UsageError for any other, with these names.
LmPreset lm_preset(const std::string& name);

}  // namespace stretto::examples
