#include "examples/chorales/harmony.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <limits>

namespace stretto::examples {
namespace {

enum class Function { tonic, subdominant, dominant };
enum VoiceIndex : size_t { soprano_voice, alto_voice, tenor_voice, bass_voice };

constexpr std::array<int, 7> major_scale = {0, 2, 4, 5, 7, 9, 11};
constexpr std::array<int, 7> minor_scale = {0, 2, 3, 5, 7, 8, 10};

Chord tonic_chord(PortableRandom& random, Function after) {
  switch (random.weighted({60, after == Function::dominant ? 12 : 25, 22, 6})) {
    case 0:
      return {0, 0, false};
    case 1:
      return {0, 1, false};
    case 2:
      return {5, 0, false};
    default:
      return {2, 0, false};
  }
}

Chord subdominant_chord(PortableRandom& random) {
  switch (random.weighted({40, 12, 28, 20})) {
    case 0:
      return {3, 0, false};
    case 1:
      return {3, 1, false};
    case 2:
      return {1, 1, false};
    default:
      return {1, 1, true};
  }
}

Chord dominant_chord(PortableRandom& random) {
  switch (random.weighted({45, 20, 20, 15})) {
    case 0:
      return {4, 0, false};
    case 1:
      return {4, 1, false};
    case 2:
      return {4, 0, true};
    default:
      return {6, 1, false};
  }
}

Function next_function(PortableRandom& random, Function current) {
  switch (current) {
    case Function::tonic:
      return static_cast<Function>(random.weighted({25, 45, 30}));
    case Function::subdominant:
      return static_cast<Function>(random.weighted({20, 20, 60}));
    default:
      return random.percent(80) ? Function::tonic : Function::dominant;
  }
}

Chord chord_with(PortableRandom& random, Function function, Function before) {
  if (function == Function::tonic) return tonic_chord(random, before);
  return function == Function::subdominant ? subdominant_chord(random) : dominant_chord(random);
}

int melodic_cost(int move) {
  constexpr std::array<int, 10> interval_costs = {7, 0, 0, 3, 4, 6, 20, 10, 16, 18};
  const auto size = size_t(std::abs(move));
  return size < interval_costs.size() ? interval_costs[size] : 30;
}

int bass_cost(int move) {
  const int size = std::abs(move);
  if (size == 0) return 3;
  if (size == 6) return 8;
  return size <= 7 ? size / 2 : 3 + size;
}

/// Returns the cost of parallel or hidden fifths and octaves between two chords.
int parallel_cost(const Voicing& from, const Voicing& to) {
  int cost = 0;
  for (size_t upper = 0; upper < 4; ++upper) {
    for (size_t lower = upper + 1; lower < 4; ++lower) {
      const int interval = (to[upper] - to[lower]) % 12;
      if (interval != 0 && interval != 7) continue;
      const int up = to[upper] - from[upper];
      const int low = to[lower] - from[lower];
      if (up == 0 || low == 0) continue;
      const bool outer = upper == soprano_voice && lower == bass_voice;
      if ((from[upper] - from[lower]) % 12 == interval) {
        cost += outer ? 200 : 60;
      } else if (outer && (up > 0) == (low > 0) && std::abs(up) > 2) {
        cost += 8;
      }
    }
  }
  return cost;
}

int leading_cost(const Voicing& from, const Voicing& to) {
  int cost = melodic_cost(to[soprano_voice] - from[soprano_voice]) +
             bass_cost(to[bass_voice] - from[bass_voice]);
  for (const size_t voice : {alto_voice, tenor_voice}) {
    const int move = std::abs(to[voice] - from[voice]);
    cost += move <= 4 ? move : 2 * move;
  }
  // A cost for each pair of neighboring voices of which one crosses the previous pitch of the other.
  for (size_t voice = 0; voice + 1 < 4; ++voice) {
    if (to[voice] < from[voice + 1] || to[voice + 1] > from[voice]) cost += 5;
  }
  return cost + parallel_cost(from, to);
}

/// Returns the cost of a voicing by itself, without the transition from the previous one.
/// `tones` are the pitch classes of the chord.
int sonority_cost(const Key& key, const std::vector<int>& tones, const Voicing& v) {
  std::array<int, 4> uses{};
  for (const int pitch : v) {
    const auto tone = std::find(tones.begin(), tones.end(), pitch % 12);
    ++uses[size_t(tone - tones.begin())];
  }
  int cost = 0;
  if (uses[0] == 0) cost += 40;
  if (uses[1] == 0) cost += 100;
  if (uses[2] == 0) cost += 6;
  if (tones.size() == 4 && uses[3] != 1) cost += 60;
  if (uses[1] > 1) cost += 4;
  const int leading_tone = (key.tonic + 11) % 12;
  const auto leading =
      std::count_if(v.begin(), v.end(), [&](int pitch) { return pitch % 12 == leading_tone; });
  if (leading > 1) cost += 50;
  for (size_t voice = 0; voice + 1 < 4; ++voice)
    if (v[voice] == v[voice + 1]) cost += 8;
  constexpr std::array<int, 4> comfort = {70, 64, 57, 49};
  for (const size_t voice : {alto_voice, tenor_voice, bass_voice})
    cost += std::max(0, std::abs(v[voice] - comfort[voice]) - 5);
  return cost;
}

/// Returns the pitches of `voice` between `low` and `high` that belong to `tones`.
std::vector<int> candidates(const std::vector<int>& tones, size_t voice, int low, int high) {
  std::vector<int> pitches;
  for (int p = std::max(low, voice_ranges[voice].low);
       p <= std::min(high, voice_ranges[voice].high); ++p)
    if (std::find(tones.begin(), tones.end(), p % 12) != tones.end()) pitches.push_back(p);
  return pitches;
}

}  // namespace

int scale_pitch(const Key& key, int degree) {
  const int octave = degree >= 0 ? degree / 7 : -((6 - degree) / 7);
  const auto note = size_t(degree - 7 * octave);
  return key.tonic + 12 * octave + (key.minor ? minor_scale : major_scale)[note];
}

int degree_of(const Key& key, int pitch) {
  int degree = 7 * ((pitch - key.tonic) / 12) - 7;
  while (scale_pitch(key, degree + 1) <= pitch) ++degree;
  return degree;
}

std::vector<int> chord_tones(const Key& key, const Chord& chord) {
  const bool dominant = chord.root == 4 || chord.root == 6;
  std::vector<int> tones;
  for (int i = 0; i < (chord.seventh ? 4 : 3); ++i) {
    const int degree = (chord.root + 2 * i) % 7;
    const int raise = dominant && key.minor && degree == 6 ? 1 : 0;
    tones.push_back((scale_pitch(key, degree) + raise) % 12);
  }
  return tones;
}

std::vector<Chord> cadence_chords(PortableRandom& random, Cadence cadence) {
  const Chord before = random.percent(50) ? Chord{1, 1, random.percent(40)} : Chord{3, 0, false};
  const Chord dominant{4, 0, false};
  if (cadence == Cadence::half) return {{0, random.below(2), false}, before, dominant, dominant};
  const Chord tonic{0, 0, false};
  return {before, {4, 0, random.percent(50)}, tonic, tonic};
}

std::vector<Chord> progression(PortableRandom& random, int quarters, Cadence cadence) {
  std::vector<Chord> chords = {{0, 0, false}};
  Function function = Function::tonic;
  while (int(chords.size()) < quarters - 4) {
    if (random.percent(15)) {
      chords.push_back(chords.back());
      continue;
    }
    const Function before = function;
    function = next_function(random, function);
    // An authentic cadence opens with a subdominant, which does not follow a dominant.
    const bool last = int(chords.size()) == quarters - 5;
    if (last && function == Function::dominant) function = Function::tonic;
    chords.push_back(chord_with(random, function, before));
  }
  for (const Chord& chord : cadence_chords(random, cadence)) chords.push_back(chord);
  return chords;
}

Voicing voice_chord(PortableRandom& random, const Key& key, const Chord& chord,
                    const Voicing* previous, const Melody& melody) {
  const std::vector<int> tones = chord_tones(key, chord);
  const std::vector<int> bass_tone = {tones[size_t(chord.bass)]};
  const int leading_tone = (key.tonic + 11) % 12;
  Voicing best{};
  int best_cost = std::numeric_limits<int>::max();
  for (const int bass : candidates(bass_tone, bass_voice, 0, 127)) {
    for (const int tenor : candidates(tones, tenor_voice, bass, bass + 21)) {
      for (const int alto : candidates(tones, alto_voice, tenor, tenor + 12)) {
        for (const int soprano : candidates(tones, soprano_voice, alto, alto + 12)) {
          const Voicing v = {soprano, alto, tenor, bass};
          int cost = sonority_cost(key, tones, v) + random.below(4);
          cost += std::abs(soprano - melody.target);
          if (melody.ends_closed && soprano % 12 != key.tonic) cost += 25;
          if (previous != nullptr) {
            cost += leading_cost(*previous, v);
            const bool led = (*previous)[soprano_voice] % 12 == leading_tone;
            if (led && chord.root == 0 && soprano != (*previous)[soprano_voice] + 1) cost += 12;
          }
          if (cost >= best_cost) continue;
          best_cost = cost;
          best = v;
        }
      }
    }
  }
  return best;
}

}  // namespace stretto::examples
