// The code on docs/music.md; see pages_test.cpp.
#include <algorithm>
#include <string>
#include <vector>

#include "stretto_music.h"
#include "stretto_pretrained.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace stretto;  // NOLINT

namespace {

// Two bars: C major and A minor.
music::Song two_bars() {
  music::Song song{.tracks = {{"Piano", 0, 0, {}}}};
  for (const int pitch : {60, 64, 67}) song.tracks[0].notes.push_back({0, 1920, pitch, 64});
  for (const int pitch : {57, 60, 64}) song.tracks[0].notes.push_back({1920, 1920, pitch, 64});
  return song;
}

}  // namespace

TEST_CASE("music.md: files, tokens, infilling", "[repository][docs]") {
  const testing::TempDir folder;
  const std::string path = folder.file("song.mid"), copy = folder.file("copy.mid");
  music::write_midi(path, two_bars());
  double longest = 0;
  const music::MidiFile file = music::read_midi(path);
  for (const music::MidiNote& note : file.notes)
    if (note.channel != music::drum_channel) longest = std::max(longest, note.seconds);
  music::write_midi(copy, file);  // the same notes, tempos, meters, keys, controls and bends
  CHECK(longest == Approx(3));    // four beats at 80 per minute
  CHECK(music::read_midi(copy).notes == file.notes);

  const auto tokens = music::tokenizer("remi", {.chords = true});
  tokens->check_file(file, path);  // throws for files that are no piece of music
  const std::vector<int64_t> ids = tokens->encode(file);
  std::string words;
  for (const int64_t id : ids) words += tokens->token_name(id) + " ";  // Bar_None Beat_0 …
  music::write_midi(copy, tokens->decode(ids));
  CHECK(tokens->id("Tempo_80") == ids[3]);
  CHECK(words.rfind("Bar_None Beat_0 Chord_C_M Tempo_80 Note_Pitch_67 ", 0) == 0);
  CHECK(tokens->encode(music::read_midi(copy)) == ids);

  const std::vector<std::vector<int64_t>> pieces(3, ids);
  const auto merges = nn::TokenMerges::learn(pieces, tokens->size(), 100);
  const std::vector<int64_t> shorter = merges.encode(pieces[0]);  // decode() returns the piece
  CHECK(shorter.size() < ids.size());
  CHECK(merges.decode(shorter) == pieces[0]);

  const music::InfillTokens infill(tokens->size());  // the model has three more ids
  const std::vector<int64_t> bars = music::bar_starts(ids, tokens->bar);
  const std::vector<int64_t> example = music::infill_sequence(ids, bars[1], bars[2], infill);
  const std::vector<int64_t> restored = music::infilled(example, infill);  // equals ids
  CHECK(restored == ids);
}

TEST_CASE("music.md: the numbers of ids", "[repository][docs]") {
  std::vector<int64_t> sizes;
  for (const std::string& name : music::tokenizer_names())
    sizes.push_back(music::tokenizer(name)->size());
  CHECK(sizes == std::vector<int64_t>{390, 333, 445, 347, 476});
}
