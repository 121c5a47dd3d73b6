#include "examples/training/music_positions.h"

#include "nn/positions/rotary.h"

namespace stretto::examples {
namespace {

using Model = nn::MusicTransformer::Options;
using Settings = MusicPositionSettings;

// As published: one code for all layers, each with a gate of its own.
void add_spe(Model& m, const Settings& s) {
  m.position = spe_position(s.position, s.spe, nn::SpeShare::draws, nn::SpeShare::draws);
}

}  // namespace

MusicPositions music_positions(const MusicPositions& own) {
  MusicPositions all{
      {"none", {[](Model&, const Settings&) {}}},
      {"learned", {[](Model& m, const Settings& s) { m.learned_length = s.longest; }}},
      {"rope", {[](Model& m, const Settings&) { m.position = nn::rotary(); }}},
      {"sine", {add_spe}},
      {"sine-ungated", {add_spe}},
      {"conv", {add_spe}},
      {"conv-ungated", {add_spe}}};
  all.insert(own.begin(), own.end());
  return all;
}

}  // namespace stretto::examples
