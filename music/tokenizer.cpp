#include "music/tokenizer.h"

#include <algorithm>
#include <bitset>
#include <limits>
#include <utility>

#include "core/error.h"
#include "music/event_tokenizer.h"
#include "music/performance.h"
#include "music/piano_notes.h"
#include "music/remi.h"

namespace stretto::music {
namespace {

const RemiWord* remi_word(int64_t token) {
  return token >= 0 && token < remi_size ? &remi_words()[size_t(token)] : nullptr;
}

bool is(int64_t token, RemiKind kind) {
  const RemiWord* word = remi_word(token);
  return word && word->kind == kind;
}

// Beats do not go backwards within a bar.
class RemiGrammar : public Grammar {
 public:
  void see(int64_t token) override {
    if (is(token, RemiKind::bar)) beat_ = 0;
    if (is(token, RemiKind::beat)) beat_ = remi_words()[size_t(token)].value;
  }
  std::vector<int64_t> forbidden() const override {
    std::vector<int64_t> ids{remi_id(RemiKind::end)};
    for (int beat = 0; beat < beat_; ++beat) ids.push_back(remi_id(RemiKind::beat, beat));
    return ids;
  }

 private:
  int beat_ = 0;
};

// A note-off needs a sounding note.
class PerformanceGrammar : public Grammar {
 public:
  void see(int64_t token) override {
    if (token < 0) return;
    if (token < performance_off)
      sounding_.set(size_t(token));
    else if (token < performance_shift)
      sounding_.reset(size_t(token - performance_off));
  }
  std::vector<int64_t> forbidden() const override {
    std::vector<int64_t> ids{performance_end};
    for (int pitch = 0; pitch < 128; ++pitch)
      if (!sounding_.test(size_t(pitch))) ids.push_back(performance_off + pitch);
    return ids;
  }

 private:
  std::bitset<128> sounding_;
};

class RemiTokenizer : public Tokenizer {
 public:
  explicit RemiTokenizer(bool chords)
      : Tokenizer("remi", remi_size + 1,
                  {.pad = remi_pad,
                   .end = remi_id(RemiKind::end),
                   .first = remi_id(RemiKind::bar),
                   .bar = remi_id(RemiKind::bar)},
                  remi_low, remi_high),
        chords_(chords) {}
  std::vector<int64_t> encode(const MidiFile& file) const override {
    return remi_tokens(quantized(file, chords_));
  }
  Song decode(const std::vector<int64_t>& tokens) const override {
    return to_song(remi_song(tokens));
  }
  std::string token_name(int64_t token) const override {
    const RemiWord* word = remi_word(token);
    return word ? word->name : token == pad ? "PAD_None" : "";
  }
  int pitch(int64_t token) const override {
    return is(token, RemiKind::pitch) ? remi_word(token)->value : -1;
  }
  int64_t transposed(int64_t token, int semitones) const override {
    check_id("transposed", token);
    const RemiWord* word = remi_word(token);
    if (!word) return token;
    if (word->kind == RemiKind::pitch) {
      check_transposed(token, semitones);
      return remi_id(RemiKind::pitch, word->value + semitones);
    }
    if (word->kind != RemiKind::chord || word->value == remi_no_chord) return token;
    constexpr int n = remi_chord_qualities;
    const int root = ((word->value / n + semitones % 12) % 12 + 12) % 12;
    return remi_id(RemiKind::chord, n * root + word->value % n);
  }
  std::unique_ptr<Grammar> grammar() const override { return std::make_unique<RemiGrammar>(); }

 private:
  bool chords_;
};

class PerformanceTokenizer : public Tokenizer {
 public:
  explicit PerformanceTokenizer(bool pedal)
      : Tokenizer("performance", performance_size,
                  {.pad = performance_pad,
                   .end = performance_end,
                   .first = performance_velocity + 15,
                   .bar = -1},
                  0, 127),
        pedal_(pedal) {}
  std::vector<int64_t> encode(const MidiFile& file) const override {
    return performance_tokens(performed(file, pedal_));
  }
  Song decode(const std::vector<int64_t>& tokens) const override {
    return to_song(performance_notes(tokens));
  }
  std::string token_name(int64_t token) const override {
    if (token < 0 || token >= performance_size) return "";
    if (token < performance_off) return "NoteOn_" + std::to_string(token);
    if (token < performance_shift) return "NoteOff_" + std::to_string(token - performance_off);
    if (token < performance_velocity)
      return "TimeShift_" + std::to_string(token - performance_shift + 1);
    if (token < performance_end)
      return "Velocity_" + std::to_string(token - performance_velocity + 1);
    return token == performance_end ? "EOS_None" : "PAD_None";
  }
  int pitch(int64_t token) const override {
    return token >= 0 && token < performance_shift ? int(token % performance_off) : -1;
  }
  int64_t transposed(int64_t token, int semitones) const override {
    check_id("transposed", token);
    if (pitch(token) < 0) return token;
    check_transposed(token, semitones);
    return token + semitones;
  }
  std::unique_ptr<Grammar> grammar() const override {
    return std::make_unique<PerformanceGrammar>();
  }

 private:
  bool pedal_;
};

}  // namespace

void Tokenizer::check_file(const MidiFile& file, const std::string& path) const {
  const auto refuse_unless = [&](bool good, const char* reason) {
    check(good, "tokenizer", path, ": ", reason);
  };
  refuse_unless(file.format != 2, "is of format 2, whose tracks are separate pieces");
  double seconds = -1;
  for (const MidiNote& note : file.notes) {
    refuse_unless(note.start >= 0, "has a note before tick 0");
    if (drums || note.channel != drum_channel)
      seconds =
          std::max(seconds, file.tempo_map().seconds(double(note.start) + double(note.duration)));
  }
  refuse_unless(seconds >= 0, file.notes.empty() ? "has no notes" : "has no notes except drums");
  refuse_unless(seconds <= 6 * 3600 && file.tempo_map().beats(seconds) <= double(max_beats),
                "lasts more than six hours or 40000 beats");
}

std::vector<std::string> Tokenizer::warnings(const MidiFile&) const { return {}; }

int64_t Tokenizer::id(const std::string& token_name) const {
  for (int64_t token = 0; token < size_ && !token_name.empty(); ++token)
    if (this->token_name(token) == token_name) return token;
  return -1;
}

void Tokenizer::check_id(const char* op, int64_t token) const {
  check(0 <= token && token < size(), op, "token ", token, "; ", name, " has ", size(),
        " (merged tokens must be decoded first)");
}

void Tokenizer::check_transposed(int64_t token, int semitones) const {
  const int64_t moved = int64_t(pitch(token)) + semitones;
  check(lowest <= moved && moved <= highest, "transposed", token_name(token), " by ", semitones,
        " semitones; pitches are ", lowest, " to ", highest);
}

int64_t Tokenizer::crop_start(const std::vector<int64_t>& tokens, int64_t at) const {
  check(at >= 0 && at < int64_t(tokens.size()), "crop_start", "index ", at, " of ",
        int64_t(tokens.size()), " tokens");
  if (bar < 0) return at;
  while (at > 0 && tokens[size_t(at)] != bar) --at;
  return at;
}

std::pair<int, int> Tokenizer::transpositions(const std::vector<int64_t>& tokens, int most) const {
  check(most >= 0, "transpositions", "at most ", most, " semitones; expected 0 or more");
  int low = highest + 1, high = lowest - 1;
  for (const int64_t token : tokens) check_id("transpositions", token);
  for (const int64_t token : tokens)
    if (const int p = pitch(token); p >= 0) low = std::min(low, p), high = std::max(high, p);
  if (low > high) return {0, 0};
  return {-std::min(most, low - lowest), std::min(most, highest - high)};
}

std::function<void(std::span<double>, const std::vector<int64_t>&)> constrain(
    std::shared_ptr<const Tokenizer> tokens) {
  return
      [tokens = std::move(tokens)](std::span<double> logits, const std::vector<int64_t>& sequence) {
        check(int64_t(logits.size()) >= tokens->size(), "constrain", int64_t(logits.size()),
              " logits; ", tokens->name, " has ", tokens->size(), " tokens");
        const auto grammar = tokens->grammar();
        for (const int64_t token : sequence) grammar->see(token);
        constexpr double never = -std::numeric_limits<double>::infinity();
        for (const int64_t token : grammar->forbidden()) logits[size_t(token)] = never;
        logits[size_t(tokens->pad)] = never;
        std::fill(logits.begin() + tokens->size(), logits.end(), never);
      };
}

std::vector<std::string> tokenizer_names() {
  return {"performance", "remi", "remi-multitrack", "tsd", "tsd-multitrack"};
}

std::shared_ptr<const Tokenizer> tokenizer(const std::string& name, const TokenizerOptions& o) {
  const bool events = name == "tsd" || name == "tsd-multitrack" || name == "remi-multitrack";
  const auto require_option = [&](bool good, const char* option) {
    check(good, "tokenizer", name, " has no option ", option);
  };
  require_option(!o.pedal || name == "performance", "pedal");
  require_option(!o.chords || name == "remi", "chords");
  require_option(!o.time_signatures || events, "time_signatures");
  require_option(!o.rests || events, "rests");
  require_option(!o.sustain_pedals || events, "sustain_pedals");
  require_option(!o.sustain_pedal_duration || events, "sustain_pedal_duration");
  require_option(!o.pitch_bends || events, "pitch_bends");
  if (name == "remi") return std::make_shared<RemiTokenizer>(o.chords);
  if (name == "performance") return std::make_shared<PerformanceTokenizer>(o.pedal);
  if (events)
    return std::make_shared<EventTokenizer>(
        name, EventTokenizerOptions{
                  .time = name == "remi-multitrack" ? EventTime::bars : EventTime::shifts,
                  .programs = name != "tsd",
                  .time_signatures = o.time_signatures,
                  .rests = o.rests,
                  .sustain_pedals = o.sustain_pedals,
                  .sustain_pedal_duration = o.sustain_pedal_duration,
                  .pitch_bends = o.pitch_bends});
  std::string names;
  for (const std::string& known : tokenizer_names()) names += (names.empty() ? "" : ", ") + known;
  fail("tokenizer", "unknown tokenizer ", name, "; expected ", names);
}

}  // namespace stretto::music
