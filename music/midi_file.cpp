#include "music/midi_file.h"

#include <algorithm>
#include <cmath>

namespace stretto::music {

const TempoMap& MidiFile::tempo_map(int track) const {
  return format == 2 ? tempo_maps.at(size_t(track)) : tempo_maps.at(0);
}

int64_t MidiFile::grid_step(int64_t tick, int64_t parts, int track) const {
  const int64_t quarter = division.ticks_per_quarter;
  if (quarter > 0) return (2 * parts * tick + quarter) / (2 * quarter);
  const TempoMap& map = tempo_map(track);
  return std::llround(std::min(double(parts) * map.beats(map.seconds(double(tick))), 1e15));
}

double MidiFile::seconds() const {
  double last = 0;
  for (size_t i = 0; i < tracks.size(); ++i) {
    const double end = tempo_map(int(i)).seconds(double(tracks[i].end));
    last = std::max(last, end);
  }
  return last;
}

}  // namespace stretto::music
