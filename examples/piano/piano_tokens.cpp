#include "examples/piano/piano_tokens.h"

#include <algorithm>
#include <bitset>

#include "examples/common/settings.h"
#include "examples/piano/performance.h"
#include "examples/piano/remi.h"

namespace stretto::examples {
namespace {

const RemiWord* remi_word(int token) {
  return token >= 0 && token < remi_size ? &remi_words()[size_t(token)] : nullptr;
}

bool is(int token, RemiKind kind) {
  const RemiWord* word = remi_word(token);
  return word && word->kind == kind;
}

// Beats do not go backwards within a bar. The end token is always forbidden, so that a piece ends
// only at the caller's limit.
class RemiGrammar : public PianoGrammar {
 public:
  void see(int token) override {
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

// A note-off needs a sounding note. The end token is always forbidden, so that a piece ends only at
// the caller's limit.
class PerformanceGrammar : public PianoGrammar {
 public:
  void see(int token) override {
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

class RemiTokens : public PianoTokens {
 public:
  RemiTokens()
      : PianoTokens("remi", remi_size + 1, remi_pad, remi_id(RemiKind::end), remi_id(RemiKind::bar),
                    remi_low, remi_high) {}
  std::vector<int> encode(const MidiFile& file, bool) const override {
    return remi_tokens(quantized(file));
  }
  Song play(const std::vector<int>& tokens) const override { return to_song(remi_song(tokens)); }
  int64_t crop_start(const std::vector<int>& tokens, int64_t at) const override {
    while (at > 0 && !is(tokens[size_t(at)], RemiKind::bar)) --at;
    return at;
  }
  int pitch(int token) const override {
    return is(token, RemiKind::pitch) ? remi_word(token)->value : -1;
  }
  int transposed(int token, int semitones) const override {
    const RemiWord* word = remi_word(token);
    if (!word) return token;
    if (word->kind == RemiKind::pitch) return remi_id(RemiKind::pitch, word->value + semitones);
    if (word->kind != RemiKind::chord || word->value == remi_no_chord) return token;
    constexpr int n = remi_chord_qualities;
    const int root = ((word->value / n + semitones) % 12 + 12) % 12;
    return remi_id(RemiKind::chord, n * root + word->value % n);
  }
  std::unique_ptr<PianoGrammar> grammar() const override { return std::make_unique<RemiGrammar>(); }
};

class PerformanceTokens : public PianoTokens {
 public:
  PerformanceTokens()
      : PianoTokens("performance", performance_size, performance_pad, performance_end,
                    performance_velocity + 15, 0, 127) {}
  std::vector<int> encode(const MidiFile& file, bool pedal) const override {
    return performance_tokens(performed(file, pedal));
  }
  Song play(const std::vector<int>& tokens) const override {
    return to_song(performance_notes(tokens));
  }
  int64_t crop_start(const std::vector<int>&, int64_t at) const override { return at; }
  int pitch(int token) const override {
    return token >= 0 && token < performance_shift ? token % performance_off : -1;
  }
  int transposed(int token, int semitones) const override {
    return pitch(token) < 0 ? token : token + semitones;
  }
  std::unique_ptr<PianoGrammar> grammar() const override {
    return std::make_unique<PerformanceGrammar>();
  }
};

}  // namespace

const PianoTokens& piano_tokens(const std::string& name) {
  static const RemiTokens remi;
  static const PerformanceTokens performance;
  if (name == remi.name) return remi;
  require(name == performance.name,
          "--tokens " + name + ": accepted values are performance and remi");
  return performance;
}

}  // namespace stretto::examples
