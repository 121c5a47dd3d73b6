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
  LmSettings() : ModelSettings{.batch = 16, .clip = 0.25} {}

  std::string tokens = "bytes";  // bytes, chars, words
  int64_t vocabulary = 0;        // most words; 0: all
  double held_out = 0.1;

  std::string position = "xl";  // lm_positions()
  std::string beyond = "zero";  // zero or clip: further lags than a table of music has
  int64_t reach = 0;            // lags with a row or of one's own (lm_position); 0: follows
  int64_t d_head = 0;           // 0: d_model / heads
  double attention_dropout = 0;
  std::string norm = "post";
  bool untied_biases = false;
  std::string cutoffs;  // "20000,40000"
  int64_t div = 1;

  int64_t length = 128;
  int64_t memory = 0;

  template <class S, class F>
  static void each(S& s, F&& f) {
    f("tokens", s.tokens);
    f("vocabulary", s.vocabulary);
    f("held_out", s.held_out);
    f("position", s.position);
    f("beyond", s.beyond);
    f("reach", s.reach);
    ModelSettings::each_of_model(s, f);
    f("d_head", s.d_head);
    f("attention_dropout", s.attention_dropout);
    f("norm", s.norm);
    f("untied_biases", s.untied_biases);
    f("cutoffs", s.cutoffs);
    f("div", s.div);
    f("length", s.length);
    f("memory", s.memory);
  }
  bool operator==(const LmSettings&) const = default;

  /// Throws UsageError, naming option and value, for what cannot be trained.
  void check() const;
  /// As `check`, for what hangs on the number of tokens.
  nn::TransformerXL::Options model(int64_t n_tokens) const;
  /// A training takes more bytes than this.
  double least_memory(int64_t n_tokens) const;
};

/// The names of --position.
std::vector<std::string> lm_positions();

/// The position of a model, for its attention; for "xl" and "sinusoid", which the model has itself,
/// none.
///   none         attention sees the order of the tokens by its mask alone
///   shaw         `reach` is the clip (default 16)
///   music        rows for `reach` lags (default length + memory), `beyond` them zero or clip
///   music-local  the same in blocks of `reach` (default half the length), tables of two blocks
///   t5           one table for all layers; scores keep 1/√D, as all others here
///   fire         `reach` is where its normalisation sets in (default length + memory)
///   alibi, kerple, kerple-power, rope, xpos
nn::MakePosition lm_position(const LmSettings& settings);

/// How many numbers a model's parameters have, without making them (but for those of positions;
/// make new options for a model, as positions that layers share belong to one).
int64_t parameter_count(const nn::TransformerXL::Options& options);

/// Named configurations: the papers' and two small ones.
struct LmPreset {
  nn::Metadata settings;  // names and values, as in LmSettings
  int64_t n_tokens = 0;   // of the paper's data; 0: follows from the data
  int64_t eval_length = 0, eval_memory = 0, eval_clamp = 0;  // 0: as in training
  bool eval_same_length = false;
};
/// UsageError for another name than enwik8-12l, enwik8-24l, text8-12l, wt103-base, nano and small.
LmPreset lm_preset(const std::string& name);

}  // namespace stretto::examples
