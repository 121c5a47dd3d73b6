// generate_chorales(): ornamented phrases of voiced chords, repeated according to song forms.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

#include "examples/chorales/chorale.h"
#include "examples/chorales/harmony.h"
#include "examples/common/portable_random.h"

namespace stretto::examples {
namespace {

using Step = std::array<int, 4>;

/// The ornament of a voice within a quarter.
enum class Ornament {
  none,
  passing,         // the note between two notes a third apart, on the second eighth
  run,             // the two notes between two notes a fourth apart, as sixteenths
  upper_neighbor,  // the note above a repeated note, between its two occurrences
  lower_neighbor,  // the note below a repeated note, between its two occurrences
  anticipation,    // the next note, a sixteenth early
  suspension,      // the previous note, an eighth too long
};

/// A composed phrase: one voicing per quarter, and the ornaments.
struct Phrase {
  Key key;
  Cadence cadence;
  int center;  // pitch about which the melody moves
  std::vector<Chord> chords;
  std::vector<Voicing> beats;
  std::vector<std::array<Ornament, 4>> ornaments;
};

/// Returns the melody's target pitch on `beat` of `phrase`: it rises to the middle
/// and falls to the end.
Melody melody_at(const Phrase& phrase, size_t beat) {
  const int count = int(phrase.chords.size());
  const int position = int(beat);
  const int from_end = std::min(position, count - 1 - position);
  const bool closing = phrase.cadence == Cadence::authentic && position >= count - 2;
  return {phrase.center - 2 + 12 * from_end / count, closing};
}

/// Returns the note of the key that follows `from` in the direction of `to`; in minor, an approach
/// to the leading tone uses the raised sixth.
int scale_neighbor(const Key& key, int from, int to) {
  const int degree = degree_of(key, from);
  const bool raised = scale_pitch(key, degree) != from;
  if (to < from) return scale_pitch(key, raised ? degree : degree - 1);
  const int above = scale_pitch(key, degree + 1);
  const bool to_leading_tone = key.minor && to % 12 == (key.tonic + 11) % 12;
  return to_leading_tone && to - above == 3 ? above + 1 : above;
}

void decorate(PortableRandom& random, Phrase& phrase, size_t beat) {
  std::array<Ornament, 4>& ornaments = phrase.ornaments[beat];
  ornaments.fill(Ornament::none);
  if (beat + 2 >= phrase.beats.size()) return;  // the final chord has no ornaments
  int used = 0;
  for (size_t voice = 0; voice < 4 && used < 2; ++voice) {
    // Soprano and bass are not ornamented in the same quarter.
    if (voice == 3 && ornaments[0] != Ornament::none) continue;
    if (!random.percent(voice == 0 ? 34 : 24)) continue;
    const int move = phrase.beats[beat + 1][voice] - phrase.beats[beat][voice];
    const int since = beat == 0 ? 0 : phrase.beats[beat - 1][voice] - phrase.beats[beat][voice];
    const int size = std::abs(move);
    if (size == 3 || size == 4) {
      ornaments[voice] = Ornament::passing;
    } else if (size == 5) {
      ornaments[voice] = Ornament::run;
    } else if (size == 0) {
      ornaments[voice] = random.percent(60) ? Ornament::lower_neighbor : Ornament::upper_neighbor;
    } else if ((since == 1 || since == 2) && random.percent(60)) {
      ornaments[voice] = Ornament::suspension;
    } else if (size <= 2 && random.percent(40)) {
      ornaments[voice] = Ornament::anticipation;
    }
    if (ornaments[voice] != Ornament::none) ++used;
  }
}

/// Returns the sixteenths of one voice in one quarter.
std::array<int, 4> ornamented(const Phrase& phrase, size_t beat, size_t voice) {
  const int now = phrase.beats[beat][voice];
  const int next = phrase.beats[std::min(beat + 1, phrase.beats.size() - 1)][voice];
  const int before = phrase.beats[beat == 0 ? 0 : beat - 1][voice];
  switch (phrase.ornaments[beat][voice]) {
    case Ornament::passing: {
      const int between = scale_neighbor(phrase.key, now, next);
      return {now, now, between, between};
    }
    case Ornament::run: {
      const int first = scale_neighbor(phrase.key, now, next);
      return {now, now, first, scale_neighbor(phrase.key, first, next)};
    }
    case Ornament::upper_neighbor: {
      const int neighbor = scale_neighbor(phrase.key, now, now + 12);
      return {now, now, neighbor, neighbor};
    }
    case Ornament::lower_neighbor: {
      const int neighbor = scale_neighbor(phrase.key, now, now - 12);
      return {now, now, neighbor, neighbor};
    }
    case Ornament::anticipation:
      return {now, now, now, next};
    case Ornament::suspension:
      return {before, before, now, now};
    default:
      return {now, now, now, now};
  }
}

/// True if `pitch` fits into `voice` of `step` within its range and without crossing a neighbor.
bool fits(const Step& step, size_t voice, int pitch) {
  if (pitch < voice_ranges[voice].low || pitch > voice_ranges[voice].high) return false;
  if (voice > 0 && pitch > step[voice - 1]) return false;
  return voice == 3 || pitch >= step[voice + 1];
}

std::vector<Step> play(const Phrase& phrase) {
  std::vector<Step> steps;
  for (size_t beat = 0; beat < phrase.beats.size(); ++beat) {
    std::array<Step, 4> quarter;
    quarter.fill(phrase.beats[beat]);
    for (size_t voice = 0; voice < 4; ++voice) {
      const std::array<int, 4> pitches = ornamented(phrase, beat, voice);
      bool good = true;
      for (size_t i = 0; i < 4; ++i) good = good && fits(quarter[i], voice, pitches[i]);
      for (size_t i = 0; good && i < 4; ++i) quarter[i][voice] = pitches[i];
    }
    steps.insert(steps.end(), quarter.begin(), quarter.end());
  }
  return steps;
}

/// Chooses the voicings and the ornaments of the chords of `phrase` from beat `first` on.
void realise(PortableRandom& random, Phrase& phrase, size_t first,
             const std::optional<Voicing>& before) {
  phrase.beats.resize(phrase.chords.size());
  phrase.ornaments.resize(phrase.chords.size());
  for (size_t beat = first; beat < phrase.chords.size(); ++beat) {
    const bool last = beat + 1 == phrase.chords.size();
    if (beat > 0 && phrase.chords[beat] == phrase.chords[beat - 1] &&
        (last || random.percent(50))) {
      phrase.beats[beat] = phrase.beats[beat - 1];
      continue;
    }
    const Voicing* previous = beat > 0 ? &phrase.beats[beat - 1] : before ? &*before : nullptr;
    phrase.beats[beat] =
        voice_chord(random, phrase.key, phrase.chords[beat], previous, melody_at(phrase, beat));
  }
  for (size_t beat = first == 0 ? 0 : first - 1; beat < phrase.beats.size(); ++beat)
    decorate(random, phrase, beat);
}

Phrase compose(PortableRandom& random, const Key& key, int bars, Cadence cadence,
               const std::optional<Voicing>& before) {
  Phrase phrase{key, cadence, 67 + random.below(6), {}, {}, {}};
  phrase.chords = progression(random, 4 * bars, cadence);
  realise(random, phrase, 0, before);
  return phrase;
}

/// Makes `phrase` end with `cadence`.
void close_with(PortableRandom& random, Phrase& phrase, Cadence cadence) {
  if (phrase.cadence == cadence) return;
  phrase.cadence = cadence;
  const std::vector<Chord> ending = cadence_chords(random, cadence);
  const size_t first = phrase.chords.size() - ending.size();
  std::copy(ending.begin(), ending.end(), phrase.chords.begin() + int64_t(first));
  realise(random, phrase, first, std::nullopt);
}

/// Transposes `phrase` by `degrees` within its key, unless that leaves the range of a voice.
bool transpose(Phrase& phrase, int degrees) {
  Phrase moved = phrase;
  for (Voicing& beat : moved.beats) {
    for (size_t voice = 0; voice < 4; ++voice) {
      const int degree = degree_of(phrase.key, beat[voice]) + degrees;
      beat[voice] = scale_pitch(phrase.key, degree);
      if (beat[voice] < voice_ranges[voice].low || beat[voice] > voice_ranges[voice].high)
        return false;
    }
  }
  for (Chord& chord : moved.chords) chord.root = (chord.root + degrees + 7) % 7;
  phrase = std::move(moved);
  return true;
}

/// Returns a repetition of `phrase`: unchanged, with some other ornaments, or on other degrees of
/// the key.
Phrase returned(PortableRandom& random, const Phrase& phrase) {
  Phrase again = phrase;
  switch (random.weighted({50, 30, 20})) {
    case 0:
      break;
    case 1:
      for (int i = 1 + random.below(3); i > 0; --i) {
        const int beat = random.below(int(again.beats.size()));
        decorate(random, again, size_t(beat));
      }
      break;
    default: {
      constexpr std::array<int, 6> moves = {1, -1, 2, -2, 3, -3};
      const int first = random.below(6);
      for (int i = 0; i < 6; ++i)
        if (transpose(again, moves[size_t((first + i) % 6)])) break;
    }
  }
  return again;
}

/// The order of the phrases of a piece; every form ends with a phrase that was heard before.
struct Form {
  const char* phrases;
  int bars;  // number of bars per phrase
  int weight;
};

constexpr std::array<Form, 14> forms = {{{"AABA", 2, 14},
                                         {"ABAB", 2, 10},
                                         {"AABB", 2, 10},
                                         {"AABBA", 2, 8},
                                         {"ABACA", 2, 8},
                                         {"AABACA", 2, 8},
                                         {"ABABCB", 2, 8},
                                         {"AABAABA", 2, 6},
                                         {"AABBCCAA", 2, 6},
                                         {"ABA", 4, 6},
                                         {"AABA", 4, 6},
                                         {"ABAB", 4, 4},
                                         {"ABACA", 4, 3},
                                         {"AABBAA", 4, 3}}};

const Form& choose_form(PortableRandom& random) {
  int total = 0;
  for (const Form& form : forms) total += form.weight;
  int left = random.below(total);
  for (const Form& form : forms) {
    if (left < form.weight) return form;
    left -= form.weight;
  }
  return forms.front();
}

Chorale compose_chorale(uint64_t seed) {
  PortableRandom random(seed);
  const Key key{random.below(12), random.percent(45)};
  const Form& form = choose_form(random);
  const bool breathes = random.percent(20);  // an eighth of silence between phrases
  const std::string order = form.phrases;
  std::map<char, Phrase> known;
  std::optional<Voicing> before;
  Chorale chorale;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto found = known.find(order[i]);
    const bool last = i + 1 == order.size();
    Phrase phrase;
    if (found == known.end()) {
      const Cadence cadence = random.percent(50) ? Cadence::half : Cadence::authentic;
      phrase = compose(random, key, form.bars, cadence, before);
      known.emplace(order[i], phrase);
    } else if (!last) {
      phrase = returned(random, found->second);
    } else {
      phrase = found->second;
      close_with(random, phrase, Cadence::authentic);
    }
    std::vector<Step> steps = play(phrase);
    if (breathes && !last) std::fill(steps.end() - 2, steps.end(), Step{-1, -1, -1, -1});
    chorale.steps.insert(chorale.steps.end(), steps.begin(), steps.end());
    before = phrase.beats.back();
  }
  const int held = 4 * random.weighted({50, 10, 30, 0, 10});
  chorale.steps.insert(chorale.steps.end(), size_t(held), chorale.steps.back());
  return chorale;
}

std::vector<Chorale> compose_split(uint64_t seed, uint64_t split, int count) {
  if (count < 0) throw std::invalid_argument("cannot generate a negative number of chorales");
  std::vector<Chorale> chorales;
  uint64_t state = seed;
  state = splitmix64(state) + split;
  uint64_t seeds = splitmix64(state);
  for (int i = 0; i < count; ++i) chorales.push_back(compose_chorale(splitmix64(seeds)));
  return chorales;
}

}  // namespace

ChoraleSet generate_chorales(uint64_t seed, int n_train, int n_valid, int n_test) {
  return {compose_split(seed, 0, n_train), compose_split(seed, 1, n_valid),
          compose_split(seed, 2, n_test)};
}

}  // namespace stretto::examples
