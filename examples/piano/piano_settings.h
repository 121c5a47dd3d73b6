// What fixes a run of train_music: the language, the model, the crops, the optimiser.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/piano/crops.h"
#include "examples/piano/piano_tokens.h"
#include "examples/training/model_settings.h"
#include "examples/training/spe_settings.h"
#include "nn/files/safetensors.h"
#include "nn/models/music_transformer.h"

namespace stretto::examples {

/// With the same settings and data every step has the same bits, whatever the number of threads.
/// All of it is kept in the checkpoint.
struct PianoSettings : ModelSettings, SpeSettings {
  std::string tokens = "remi";  // piano_tokens()
  bool pedal = false;           // performance: notes last while the sustain pedal is down

  std::string attention = "performer";  // kernel_names()
  std::string position = "ape";         // piano_positions()
  int64_t features = 64;                // of the performer
  int64_t redraw = 20;                  // steps between its projections; 0: never
  std::string norm = "pre";             // or post
  double init_std = 0;                  // MusicTransformer::Options

  int64_t length = 512;
  int64_t transpose = 6;
  int64_t stretch = 0;
  double weight_decay = 0.01;

  template <class S, class F>
  static void each(S& s, F&& f) {
    f("tokens", s.tokens);
    f("pedal", s.pedal);
    f("attention", s.attention);
    f("position", s.position);
    f("features", s.features);
    f("redraw", s.redraw);
    SpeSettings::each_spe(s, f);
    ModelSettings::each_of_model(s, f);
    f("norm", s.norm);
    f("init_std", s.init_std);
    f("length", s.length);
    f("transpose", s.transpose);
    f("stretch", s.stretch);
    f("weight_decay", s.weight_decay);
  }
  bool operator==(const PianoSettings&) const = default;

  /// Throws UsageError, naming option and value, for what cannot be trained.
  void check() const;
  const PianoTokens& language() const { return piano_tokens(tokens); }
  PianoCropOptions crops() const { return {batch, length, transpose, stretch}; }
  nn::MusicTransformer::Options model() const;
  /// A training takes more bytes than this.
  double least_memory() const;
  /// Most tokens that a sequence may have: learned positions end.
  int64_t longest() const;
};

/// "small", which learns something on two cores in minutes, or "published", the Performer of
/// Liutkus et al. (2021) on pop piano: 24 layers, trained on 2048 tokens. Transposition and stretch
/// are those of the language, 6 semitones with remi, 3 and 5 % with performance; the published
/// learning rate, number of steps and taps those of the position.
PianoSettings piano_settings(const std::string& preset, const std::string& tokens,
                             const std::string& position);

/// The names of --position.
std::vector<std::string> piano_positions();

/// Completes the options with what a position adds to a model. UsageError for an unknown name, and
/// for one that the attention has no use for. The table stands in piano_positions.cpp.
void add_position(nn::MusicTransformer::Options& model, const PianoSettings& settings);

}  // namespace stretto::examples
