#include "examples/groove/groove_data.h"

#include <algorithm>

#include "core/digest.h"
#include "examples/common/settings.h"
#include "examples/groove/groove_augmentation.h"
#include "examples/groove/groove_generator.h"
#include "examples/groove/groove_tokens.h"
#include "nn/data/crops.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"

namespace stretto::examples {

GrooveSequence groove_sequence(const music::Song& groove, int64_t length) {
  GrooveSequence sequence{groove_start};
  const std::vector<int64_t> tokens = to_tokens(groove, length - 1);
  sequence.insert(sequence.end(), tokens.begin(), tokens.end());
  if (int64_t(sequence.size()) < length) sequence.push_back(groove_end);
  return sequence;
}

nn::Batch groove_batch(const std::vector<GrooveSequence>& sequences, bool published_eos) {
  nn::Batch batch = nn::next_token_batch(sequences, 0, groove_end);
  if (published_eos)
    batch.targets = masked_fill(batch.targets, eq(batch.targets, groove_end), nn::ignore_index);
  return batch;
}

GrooveSplit generate_groove_split(uint64_t seed) {
  return {generate_grooves(seed, 0, 200), generate_grooves(seed, 1'000'000, 20)};
}

GrooveSplit split_grooves(std::vector<music::Song> songs, double held_out,
                          const std::string& data) {
  const double n = double(songs.size());
  require(n >= 2, data + ": needs at least two songs with bass, drums and harmony; it has " +
                      as_text(int64_t(songs.size())));
  const double share = std::clamp(held_out, 1 / n, (n - 1) / n);
  GrooveSplit split;
  for (size_t i = 0; i < songs.size(); ++i) {
    const bool held = int64_t(double(i + 1) * share + 1e-9) > int64_t(double(i) * share + 1e-9);
    (held ? split.valid : split.train).push_back(std::move(songs[i]));
  }
  return split;
}

std::vector<GrooveSequence> training_grooves(const std::vector<music::Song>& songs,
                                             const GrooveSettings& settings, int64_t step) {
  uint64_t state = settings.seed;
  state = splitmix64(state) + uint64_t(step);
  PortableRandom random(splitmix64(state));
  std::vector<GrooveSequence> sequences;
  for (int64_t i = 0; i < settings.batch; ++i) {
    const music::Song& song = songs[size_t(random.below(int(songs.size())))];
    sequences.push_back(groove_sequence(
        settings.augment ? augmented(song, random) : with_fullest_harmony(song), settings.length));
  }
  return sequences;
}

std::vector<GrooveSequence> validation_grooves(const std::vector<music::Song>& songs,
                                               int64_t length) {
  std::vector<GrooveSequence> sequences;
  for (const music::Song& song : songs)
    sequences.push_back(groove_sequence(with_fullest_harmony(song), length));
  return sequences;
}

CountingLoss counted_loss(const std::vector<music::Song>& train,
                          const std::vector<GrooveSequence>& valid,
                          const GrooveSettings& settings) {
  const auto scored = [&](GrooveSequence sequence) {
    if (settings.published_eos && sequence.back() == groove_end) sequence.pop_back();
    return sequence;
  };
  TokenCounts counts(groove_vocabulary);
  const int lowest = settings.augment ? -5 : 0, highest = settings.augment ? 6 : 0;
  for (const music::Song& song : train)
    for (int semitones = lowest; semitones <= highest; ++semitones)
      counts.add(
          scored(groove_sequence(transposed(with_fullest_harmony(song), semitones), INT64_MAX)));
  std::vector<GrooveSequence> targets;
  for (const GrooveSequence& sequence : valid) targets.push_back(scored(sequence));
  return counts.loss(targets);
}

std::string fingerprint(const std::vector<music::Song>& songs) {
  Digest print;
  for (const music::Song& song : songs)
    for (const music::Track& track : song.tracks) {
      print.add(int64_t(track.notes.size()));
      for (const music::Note& note : track.notes)
        for (const int number : {note.start, note.duration, note.pitch, note.velocity})
          print.add(number);
    }
  return print.text();
}

}  // namespace stretto::examples
