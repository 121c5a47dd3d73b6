// TSD and REMI for any instruments, as the package MidiTok defines them: notes as pitch, velocity
// and duration, in time shifts or in bars and positions.
//
//     tsd              TimeShift_1.0.8 Pitch_60 Velocity_63 Duration_0.4.8 …
//     tsd-multitrack   Tempo_121.29 Program_0 Pitch_60 Velocity_63 Duration_0.4.8
//                      Program_-1 PitchDrum_36 Velocity_99 Duration_0.1.8 …
//     remi-multitrack  Bar_None Position_0 Tempo_121.29 Program_0 Pitch_60 …
//
// b.p.r means b + p / r beats. With time signatures, each bar begins with its meter, and a beat is
// the note value that the meter counts:
//
//     remi-multitrack  Bar_None TimeSig_6/8 Position_0 Tempo_121.29 Program_0 Pitch_60 …
#pragma once

#include "tokenizer.h"

namespace stretto::music {

class EventVocabulary;  // event_tokenizer.cpp

/// How EventTokenizer writes time.
enum class EventTime {
  shifts,  ///< TimeShift tokens between events (TSD, Fradet et al. 2021)
  bars     ///< Bar, and Position within the bar in eighths of a beat (REMI, Huang & Yang 2020)
};

/// Options of EventTokenizer.
struct EventTokenizerOptions {
  EventTime time = EventTime::shifts;  ///< how time is written
  /// True: Program tokens and drums. False: all instruments except drums become one piano.
  bool programs = true;
  bool tempos = true;            ///< Tempo tokens
  bool time_signatures = false;  ///< TimeSig tokens: bars follow the meter of the file
  bool rests = false;            ///< Rest tokens for time in which nothing sounds
  bool sustain_pedals = false;   ///< Pedal and PedalOff tokens
  /// With sustain_pedals: Pedal and Duration tokens in place of Pedal and PedalOff
  bool sustain_pedal_duration = false;
  bool pitch_bends = false;  ///< PitchBend tokens
};

/// The tokens of MidiTok 3 with the options here, whose names there begin with use_, and otherwise
/// its defaults, with the same names and ids: PAD, BOS, EOS, MASK; pitches 21 to 109; 32
/// velocities; durations and time shifts of 1/8 beat up to 4 beats and of 1/4 beat up to 12; drums
/// 27 to 88; 32 tempos from 40 to 250; programs 0 to 127, and −1 for drums; the meters 3/8, 6/8,
/// 12/8, and 1/4 to 6/4; rests of 1/8 beat to 12 beats; a pedal per program; 32 bends. Without time
/// signatures a bar has four beats.
///
/// encode() ignores meters without a token (see warnings()), and a meter that begins inside a bar
/// begins with the next bar. decode() ignores meters inside a bar. encode() rounds starts to
/// eighths of a beat, and durations, velocities and tempos to the nearest token; notes outside of
/// the pitch range are left out. Instruments with the same program are merged. Notes at the same
/// time are ordered by instrument, and instruments by track, channel and program. BOS is not
/// written; MidiTok does not write EOS either.
class EventTokenizer : public Tokenizer {
 public:
  /// Creates a tokenizer with any name. Throws Error for sustain_pedal_duration without
  /// sustain_pedals.
  explicit EventTokenizer(std::string name_, const EventTokenizerOptions& options = {});
  ~EventTokenizer() override;

  std::vector<int64_t> encode(const MidiFile& file) const override;
  std::vector<std::string> warnings(const MidiFile& file) const override;
  Song decode(const std::vector<int64_t>& tokens) const override;
  std::string token_name(int64_t token) const override;
  int64_t id(const std::string& token_name) const override;
  int pitch(int64_t token) const override;
  int64_t transposed(int64_t token, int semitones) const override;
  std::unique_ptr<Grammar> grammar() const override;

 private:
  EventTokenizer(std::string name_, const EventTokenizerOptions& options,
                 std::shared_ptr<const EventVocabulary> words);

  EventTokenizerOptions options_;
  std::shared_ptr<const EventVocabulary> words_;
};

}  // namespace stretto::music
