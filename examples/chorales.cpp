// Trains a Music Transformer on chord progressions in four voices and generates one as a MIDI file.
//
//     chorales [OUT.mid]
#include <stretto/stretto.h>
#include <stretto/stretto_music.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <random>

using namespace stretto;

constexpr int n_chords = 16, length = 4 * n_chords, lowest = 36, pitches = 60;

// Returns the MIDI pitch of a white key, counted from C2.
int pitch(int key) {
  return lowest + 12 * (key / 7) + std::array{0, 2, 4, 5, 7, 9, 11}[size_t(key % 7)];
}

// Returns the key at or below `key` that belongs to the triad on `root`.
int in_triad(int key, int root) {
  while ((key - root + 7) % 7 % 2 == 1 || (key - root + 7) % 7 == 6) --key;
  return key;
}

// Returns a progression in C major as tokens: bass, tenor, alto and soprano of each chord in turn.
// The sequence of roots follows textbook rules; the upper voices are in close position, and the
// soprano moves in small steps.
std::vector<int64_t> progression(std::mt19937& random) {
  static const std::vector<int> next[7] = {{1, 2, 3, 4, 5}, {4, 6}, {5, 3}, {0, 1, 4},
                                           {0, 5},          {1, 3}, {0}};
  std::vector<int64_t> tokens;
  int root = 0, soprano = 21;
  for (int chord = 0; chord < n_chords; ++chord) {
    const int alto = in_triad(soprano - 1, root), tenor = in_triad(alto - 1, root);
    for (int key : {root, tenor, alto, soprano}) tokens.push_back(pitch(key) - lowest);
    root = next[root][random() % next[root].size()];
    soprano = in_triad(std::clamp(soprano + int(random() % 4) - 1, 20, 26), root);
  }
  return tokens;
}

Tensor batch_of(int64_t count, std::mt19937& random) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < count; ++i)
    for (int64_t token : progression(random)) all.push_back(token);
  return tensor(all, {count, length});
}

// Returns the fraction of chords that are triads in the key of C major, in close position.
double well_formed(const std::vector<int64_t>& tokens) {
  int right = 0;
  for (size_t at = 0; at + 4 <= tokens.size(); at += 4)
    for (int root = 0; root < 7; ++root)
      for (int top = 18; top < 27; ++top) {
        const int alto = in_triad(top - 1, root), tenor = in_triad(alto - 1, root);
        right += in_triad(top, root) == top && tokens[at] == pitch(root) - lowest &&
                 tokens[at + 1] == pitch(tenor) - lowest &&
                 tokens[at + 2] == pitch(alto) - lowest && tokens[at + 3] == pitch(top) - lowest;
      }
  const size_t chords = tokens.size() / 4;
  return double(right) / double(chords);
}

int main(int argc, char** argv) {
  const nn::DeviceConfig config =
      nn::parse_device_args(argc, argv, nn::Processes::one, "[OUT.mid]");
  std::mt19937 random(1);
  manual_seed(1);
  nn::LanguageModel::Options options = nn::music_transformer(pitches, length);
  options.n_layers = 2;
  options.layer.d_model = 64, options.layer.attention.n_heads = 4,
  options.layer.feed_forward.d_hidden = 128;
  options.layer.dropout = 0;
  nn::LanguageModel model(options);
  model.to(config.device).to(config.dtype);
  nn::AdamW optimizer(model.parameters(), {.lr = 2e-3});
  for (int step = 1; step <= 300; ++step) {
    const Tensor tokens = batch_of(16, random).to(config.device);
    const Tensor loss =
        cross_entropy(model(tokens.slice(1, 0, length - 1)), tokens.slice(1, 1, length));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    if (step % 50 == 0) std::printf("step %d  loss %.3f nats per note\n", step, loss.item());
  }

  // Continue a C major chord.
  const nn::EvalMode guard(model);
  std::vector<int64_t> tokens = progression(random);
  tokens.resize(4);
  nn::LanguageModel::Cache cache;
  for (int64_t token :
       nn::generate([&](const Tensor& x) { return model(x.to(config.device), &cache); }, tokens,
                    {.max_tokens = length - 4, .seed = 1, .sampling = {.top_p = 0.95}}))
    tokens.push_back(token);
  std::printf("%.0f %% of the generated chords are triads in the key of C major\n",
              100 * well_formed(tokens));

  music::Song song;
  const char* names[] = {"bass", "tenor", "alto", "soprano"};
  for (int voice = 0; voice < 4; ++voice) {
    music::Track track{.name = names[voice], .channel = voice, .program = 52, .notes = {}};
    for (int chord = 0; chord < n_chords; ++chord)
      track.notes.push_back({.start = 480 * chord,
                             .duration = 480,
                             .pitch = lowest + int(tokens[size_t(4 * chord + voice)]),
                             .velocity = 80});
    song.tracks.push_back(track);
  }
  const char* path = argc > 1 ? argv[1] : "chorale.mid";
  music::write_midi(path, song);
  std::printf("wrote %s\n", path);
}
