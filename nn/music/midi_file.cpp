#include "nn/music/midi_file.h"

#include <algorithm>

namespace stretto::music {

const TempoMap& MidiFile::tempo_map(int track) const {
  return format == 2 ? tempo_maps.at(size_t(track)) : tempo_maps.at(0);
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
