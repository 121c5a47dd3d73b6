// The settings of train_music: tokens, model, crops, optimizer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/piano/crops.h"
#include "examples/training/model_settings.h"
#include "music/infill.h"
#include "music/tokenizer.h"
#include "nn/files/safetensors.h"
#include "nn/models/language_model.h"

namespace stretto::examples {

/// All settings are stored in the checkpoint. With the same settings and data every step is
/// bit-identical, whatever the number of threads.
struct PianoSettings : ModelSettings {
  PianoSettings()
      : ModelSettings{.attention = "performer-hyperbolic",
                      .redraw = 20,
                      .position = "sinusoid",
                      .out_of_range = "clip"} {}  // distances past training use the last row

  std::string tokens = "remi";  ///< see music::tokenizer()
  music::TokenizerOptions token_options;
  bool infill = false;  ///< half of the crops have bars moved to their end (infill.h)

  double init_std = 0;  ///< see LanguageModel::Options

  int64_t length = 512;
  int64_t transpose = 6;
  int64_t stretch = 0;
  bool pack = false;
  double weight_decay = 0.01;

  template <class S, class F>
  static void each(S& s, F&& f) {
    f("tokens", s.tokens, "Tokens: " + joined(music::tokenizer_names()),
      [](const std::string& option, const std::string& name) {
        require_name(option, name, music::tokenizer_names());
      });
    auto& o = s.token_options;
    f("pedal", o.pedal, "Notes last while the sustain pedal is down (performance)", any_value);
    f("chords", o.chords, "Recognize chords and write their tokens (remi)", any_value);
    f("time_signatures", o.time_signatures,
      "Bars follow the meter of the file (tsd, tsd-multitrack, remi-multitrack)", any_value);
    f("rests", o.rests, "Tokens of rests (the same)", any_value);
    f("sustain_pedals", o.sustain_pedals, "Tokens of sustain pedals (the same)", any_value);
    f("sustain_pedal_duration", o.sustain_pedal_duration,
      "Pedals have durations; needs --sustain-pedals", any_value);
    f("pitch_bends", o.pitch_bends, "Tokens of pitch bends (the same)", any_value);
    f("infill", s.infill,
      "Learn to fill in missing bars too, and write bars 5 to 8 of held-out pieces, given bars 1 "
      "to "
      "4 and 9 to 12 (tokens with bars)",
      any_value);
    each_of_run(s, f);
    each_of_model(s, f);
    f("init_std", s.init_std, "Standard deviation of initial weights (0: each layer's default)",
      require_not_negative);
    f("length", s.length, "Sequence length of training crops in tokens", between(1, 1 << 20));
    f("transpose", s.transpose, "Augmentation: largest transposition of a crop in semitones",
      between(0, 24));
    f("stretch", s.stretch,
      "Augmentation: largest change of the speed of a crop in percent (performance)",
      between(0, 50));
    f("pack", s.pack,
      "Pack whole pieces into sequences instead of cropping them; attention stays within a piece",
      any_value);
    f("weight_decay", s.weight_decay, "Decoupled weight decay", require_not_negative);
  }
  bool operator==(const PianoSettings&) const = default;

  /// Throws UsageError, naming option and value, for settings that cannot be trained.
  void check() const;
  /// Returns the tokenizer, which lives as long as the program.
  const music::Tokenizer& language() const;
  /// Returns the number of ids of the model: those of the tokenizer and of infilling.
  int64_t vocabulary() const {
    return language().size() + (infill ? music::InfillTokens::count : 0);
  }
  PianoCropOptions crops() const { return {batch, length, transpose, stretch, infill}; }
  nn::LanguageModel::Options model() const;
  /// Returns a lower bound of the bytes that training takes.
  double least_memory() const;
  /// Returns the position settings; tables of limited size have twice `length` positions.
  nn::PositionSettings positions() const;
};

/// Returns the preset "small", which learns something on two cores in minutes, or "published", the
/// Performer of Liutkus et al. (2021) on pop piano: 24 layers, trained on 2048 tokens.
/// Transposition and stretch depend on the tokens (remi: 6 semitones; performance: 3 semitones and
/// 5 %); the published learning rate, number of steps and taps depend on the positional encoding.
PianoSettings piano_settings(const std::string& preset, const std::string& tokens,
                             const std::string& position);

}  // namespace stretto::examples
