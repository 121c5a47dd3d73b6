// --position: names, with what each adds to a model. A new one is a line here.

#include <map>

#include "examples/common/settings.h"
#include "examples/piano/piano_settings.h"
#include "nn/relative_table.h"
#include "nn/rotary.h"
#include "nn/spe.h"

namespace stretto::examples {
namespace {

using Model = nn::MusicTransformer::Options;

struct Position {
  void (*add)(Model&, const PianoSettings&);
  bool needs_scores = false;  // and so softmax attention
};

// As published: one code for all layers, each with a gate of its own.
template <bool gated>
void add_sine(Model& m, const PianoSettings& s) {
  m.position = nn::sine_spe({.realizations = s.realizations,
                             .sines = s.sines,
                             .gated = gated,
                             .shared = nn::SpeShare::draws});
}

template <bool gated>
void add_conv(Model& m, const PianoSettings& s) {
  m.position = nn::conv_spe({.realizations = s.realizations,
                             .taps = {s.taps},
                             .gated = gated,
                             .shared = nn::SpeShare::draws});
}

const std::map<std::string, Position>& positions() {
  static const std::map<std::string, Position> all{
      {"none", {[](Model&, const PianoSettings&) {}}},
      {"ape", {[](Model& m, const PianoSettings&) { m.sinusoid = nn::Sinusoid::interleaved; }}},
      {"learned", {[](Model& m, const PianoSettings& s) { m.learned_length = s.longest(); }}},
      {"sine", {add_sine<true>}},
      {"sine-ungated", {add_sine<false>}},
      {"conv", {add_conv<true>}},
      {"conv-ungated", {add_conv<false>}},
      {"rope", {[](Model& m, const PianoSettings&) { m.position = nn::rotary(); }}},
      // Distances that no crop had look like the farthest one that it had.
      {"relative",
       {[](Model& m, const PianoSettings& s) {
          m.position = nn::music_relative({.length = s.length, .beyond = Beyond::clip});
        },
        true}}};
  return all;
}

}  // namespace

std::vector<std::string> piano_positions() { return names_of(positions()); }

bool is_stochastic(const std::string& position) {
  return position.starts_with("sine") || position.starts_with("conv");
}

void add_position(Model& model, const PianoSettings& s) {
  const Position& position = find_name(positions(), "--position", s.position);
  require(
      !position.needs_scores || s.attention == "softmax",
      "--position " + s.position + ": needs --attention softmax; linear attention has no scores");
  position.add(model, s);
}

}  // namespace stretto::examples
