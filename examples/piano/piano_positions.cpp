// --position: names, with what each adds to a model. A new one is a line here or, for other
// programs too, in examples/training/music_positions.cpp.

#include "examples/common/settings.h"
#include "examples/piano/piano_settings.h"
#include "examples/training/music_positions.h"
#include "nn/positions/relative_table.h"

namespace stretto::examples {
namespace {

using Model = nn::MusicTransformer::Options;

const MusicPositions& positions() {
  static const MusicPositions all =
      music_positions({{"ape", {add_sinusoids}},
                       // Distances that no crop had look like the farthest one that it had.
                       {"relative",
                        {[](Model& m, const MusicPositionSettings& s) {
                           m.position =
                               nn::music_relative({.length = s.length, .beyond = Beyond::clip});
                         },
                         true}}});
  return all;
}

}  // namespace

std::vector<std::string> piano_positions() { return names_of(positions()); }

void add_position(Model& model, const PianoSettings& s) {
  const MusicPosition& position = find_name(positions(), "--position", s.position);
  require(
      !position.needs_scores || s.attention == "softmax",
      "--position " + s.position + ": needs --attention softmax; linear attention has no scores");
  position.add(model, {s.position, s.length, s.longest(), s});
}

}  // namespace stretto::examples
