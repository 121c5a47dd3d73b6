// Songs, options and texts for the tests of EventTokenizer.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "examples/common/portable_random.h"
#include "music/event_tokenizer.h"
#include "music/piano_notes.h"
#include "tests/music/songs.h"
#include "tests/support/catch.h"

namespace stretto::music::testing {

/// Returns the names of tokens, without the end token.
inline std::string text(const Tokenizer& tokens, std::vector<int64_t> ids) {
  REQUIRE(!ids.empty());
  CHECK(ids.back() == tokens.end);
  ids.pop_back();
  std::string all;
  for (const int64_t id : ids) all += (all.empty() ? "" : " ") + tokens.token_name(id);
  return all;
}

/// Returns tokenizers with all combinations of options.
inline std::vector<EventTokenizer> all_event_tokenizers() {
  std::vector<EventTokenizer> all;
  for (int i = 0; i < 192; ++i) {
    const int pedals = i / 64;  // none, on and off, duration
    all.emplace_back(
        "options " + std::to_string(i),
        EventTokenizerOptions{.time = (i & 1) != 0 ? EventTime::bars : EventTime::shifts,
                              .programs = (i & 2) != 0,
                              .tempos = (i & 4) != 0,
                              .time_signatures = (i & 8) != 0,
                              .rests = (i & 16) != 0,
                              .sustain_pedals = pedals > 0,
                              .sustain_pedal_duration = pedals > 1,
                              .pitch_bends = (i & 32) != 0});
  }
  return all;
}

/// Random tracks: programs 0, 5 and 90, and drums. Notes of one pitch do not overlap.
inline Song random_song(uint64_t seed) {
  examples::PortableRandom random(seed);
  Song song{480, 30.0 + random.below(200), {}, {}, {}};
  const int channels[] = {0, 1, drum_channel, 2};
  const int programs[] = {0, 5, 0, 90};
  for (int t = 0; t < 4; ++t) {
    Track track{"Track " + std::to_string(t), channels[t], programs[t], {}};
    for (int i = random.below(30); i > 0; --i)
      track.notes.push_back({random.below(20000), 1 + random.below(7000),
                             t == 2 ? 27 + 7 * i % 62 : 21 + 7 * i % 89,  // no pitch twice
                             1 + random.below(127)});
    song.tracks.push_back(track);
  }
  for (int tick = 0; random.below(3) > 0;)
    song.tempos.push_back({tick += 1 + random.below(3000), 30.0 + random.below(300)});
  return song;
}

/// Adds meters, at the beginning of bars or anywhere, some without a token.
inline void add_random_meters(Song& song, uint64_t seed) {
  constexpr MeterMark all[] = {{0, 3, 8}, {0, 12, 8}, {0, 6, 8},    {0, 5, 4}, {0, 6, 4},
                               {0, 3, 4}, {0, 2, 4},  {0, 1, 4},    {0, 4, 4}, {0, 9, 8},
                               {0, 2, 2}, {0, 7, 16}, {0, 255, 128}};
  examples::PortableRandom random(seed);
  int tick = random.percent(70) ? 0 : random.below(3000);
  for (int i = random.below(6); i > 0; --i) {
    MeterMark mark = all[random.below(int(std::size(all)))];
    mark.tick = tick;
    song.meters.push_back(mark);
    const int bar = 1920 * mark.numerator / mark.denominator;
    tick += random.percent(70) ? bar * (1 + random.below(3)) : 1 + random.below(4000);
  }
}

/// Returns a random song with meters, pedals and bends.
inline Song song_with_everything(uint64_t seed) {
  Song song = random_song(seed);
  add_random_meters(song, seed);
  examples::PortableRandom random(seed);
  for (Track& track : song.tracks)
    for (int i = random.below(8); i > 0; --i) {
      track.controls.push_back({random.below(20000), sustain_pedal, random.below(128)});
      track.bends.push_back({random.below(20000), random.below(16384) - 8192});
    }
  return song;
}

}  // namespace stretto::music::testing
