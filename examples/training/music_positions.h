// --position of a MusicTransformer: names that the programs have in common, with what each adds to
// a model. A new one is a line in music_positions.cpp.
#pragma once

#include <map>
#include <string>

#include "examples/training/spe_settings.h"
#include "nn/models/music_transformer.h"

namespace stretto::examples {

struct MusicPositionSettings {
  std::string position;
  int64_t length;   // of what the model learns from
  int64_t longest;  // that a sequence may have, of learned positions
  SpeSettings spe;
};

struct MusicPosition {
  void (*add)(nn::MusicTransformer::Options&, const MusicPositionSettings&);
  bool needs_scores = false;  // and so softmax attention
};
using MusicPositions = std::map<std::string, MusicPosition>;

/// none, learned, rope, sine, sine-ungated, conv and conv-ungated, and a program's own.
MusicPositions music_positions(const MusicPositions& own);

/// Sinusoids added to the input, as Liutkus et al. 2021.
inline void add_sinusoids(nn::MusicTransformer::Options& model, const MusicPositionSettings&) {
  model.sinusoid = nn::Sinusoid::interleaved;
}

}  // namespace stretto::examples
