// The code on docs/music.md; see pages_test.cpp.
#include <algorithm>
#include <string>
#include <vector>

#include "stretto_music.h"
#include "stretto_pretrained.h"
#include "tests/music/event_songs.h"
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

TEST_CASE("music.md: gaps and merges of event tokens with any options", "[repository][docs]") {
  using namespace music;           // NOLINT
  using namespace music::testing;  // NOLINT
  using Tokens = std::vector<int64_t>;
  uint64_t seed = 0;
  for (const EventTokenizer& tokens : all_event_tokenizers()) {
    INFO(tokens.name << ", seed " << seed);
    const InfillTokens ids(tokens.size());
    examples::PortableRandom random(++seed);
    std::vector<Tokens> pieces, sequences;
    for (int i = 0; i < 3; ++i) {
      pieces.push_back(tokens.encode(parsed(song_with_everything(3 * seed + uint64_t(i)))));
      Tokens cuts = bar_starts(pieces.back(), tokens.bar);
      if (cuts.size() < 3) cuts = {0, int64_t(pieces.back().size())};
      const int first = random.below(int(cuts.size())), last = random.below(int(cuts.size()));
      sequences.push_back(infill_sequence(pieces.back(), cuts[size_t(std::min(first, last))],
                                          cuts[size_t(std::max(first, last))], ids));
    }
    const Tokens unseen = std::move(sequences.back());
    sequences.pop_back();
    const int64_t n = tokens.size() + InfillTokens::count;
    const auto learned = nn::TokenMerges::learn(sequences, n, 40);
    const nn::TokenMerges merges(n, learned.pairs());
    CHECK(learned.pairs().size() > 5);
    CHECK(merges.encode(sequences[0]).size() < sequences[0].size());
    CHECK(merges.decode(merges.encode(unseen)) == unseen);
    CHECK(infilled(merges.decode(merges.encode(unseen)), ids) == pieces[2]);
    for (size_t i = 0; i < 2; ++i)
      CHECK(infilled(merges.decode(learned.encode(sequences[i])), ids) == pieces[i]);
  }
}
