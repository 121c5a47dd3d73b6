// What fixes a run of groove: the data, the model, the optimiser.
#pragma once

#include <cstdint>
#include <string>

#include "examples/training/model_settings.h"
#include "examples/training/spe_settings.h"
#include "nn/models/music_transformer.h"

namespace stretto::examples {

/// With the same settings and data every step has the same bits, whatever the number of threads.
/// All of it is kept in the checkpoint.
struct GrooveSettings : ModelSettings, SpeSettings {
  GrooveSettings() : ModelSettings{.clip = 0.5} {}

  double held_out = 0.1;
  int64_t skip_bars = 0;  // at the start of every song
  bool augment = true;
  bool published_eos = false;

  std::string attention = "softmax";  // kernel_names()
  std::string position = "music";     // groove_positions()
  bool published_model = false;
  double attention_dropout = 0;
  int64_t features = 64;
  int64_t redraw = 40;

  int64_t length = 512;
  double weight_decay = 0.01;

  template <class S, class F>
  static void each(S& s, F&& f) {
    f("held_out", s.held_out);
    f("skip_bars", s.skip_bars);
    f("augment", s.augment);
    f("published_eos", s.published_eos);
    f("attention", s.attention);
    f("position", s.position);
    f("published_model", s.published_model);
    ModelSettings::each_of_model(s, f);
    f("attention_dropout", s.attention_dropout);
    f("features", s.features);
    f("redraw", s.redraw);
    SpeSettings::each_spe(s, f);
    f("length", s.length);
    f("weight_decay", s.weight_decay);
  }
  bool operator==(const GrooveSettings&) const = default;

  /// Throws UsageError, naming option and value, for what cannot be trained.
  void check() const;
  /// A training takes more bytes than this.
  double least_memory() const;
};

/// The configuration of Liutkus et al. 2021 with absolute positions: 76,471,066 parameters, and
/// with sine 76,495,642. The published learning rate went to a twentieth, here it goes to a
/// hundredth; the rest is theirs.
GrooveSettings published_groove();

/// The names of --position: "alibi, learned, …".
std::string groove_positions();

/// The model of a run, all of it.
///   attention  softmax; performer (`features` hyperbolic random features, drawn again every
///              `redraw` steps); linear-relu and linear-elu
///   position   music (a relative table for `length` distances), alibi: with softmax alone;
///              rope; sine and conv, with gates or without; sinusoid and learned, added to the
///              input; none
/// With `published_model` norms stand after the layers, all projections have biases, and values
/// start small, as in nn::music_performer.
/// Throws UsageError for other names and for pairs that do not go together.
nn::MusicTransformer::Options groove_model(const GrooveSettings& settings);

}  // namespace stretto::examples
