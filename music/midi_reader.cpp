#include "music/midi_reader.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/input_file.h"
#include "core/known_format.h"
#include "music/midi_track.h"

namespace stretto::music {
namespace {

constexpr const char* too_long = "the file is longer than the limit of 64 MiB";

/// Iterates over the chunks of a file.
class FileReader {
 public:
  explicit FileReader(const MidiSource& source) : source_(source), size_(source.bytes.size()) {}

  MidiFile read() {
    unwrap();
    header();
    while (size_ - at_ >= 8 && chunk()) {
    }
    if (at_ < size_)
      source_.warn(at_, std::to_string(size_ - at_) + " bytes follow the last chunk");
    const size_t found = file_.tracks.size();
    const std::string counted =
        "tracks announced: " + std::to_string(announced_) + ", found: " + std::to_string(found);
    if (found == 0 && announced_ > 0) source_.refuse(size_, counted);
    if (found != size_t(announced_)) source_.warn(begin_ + 10, counted);
    if (file_.format == 0 && found > 1) {
      source_.warn(begin_ + 8,
                   "the file of format 0 has more than one track and is read as format 1");
      file_.format = 1;
    }
    settle();
    return std::move(file_);
  }

 private:
  std::string_view type(size_t at) const { return source_.bytes.substr(at, 4); }

  uint32_t number(size_t at, size_t count) const {
    uint32_t value = 0;
    for (size_t i = 0; i < count; ++i) value = value << 8 | uint32_t(source_.byte(at + i));
    return value;
  }

  /// True if a chunk can begin at `at`: four printable characters.
  bool is_chunk(size_t at) const {
    if (size_ - at < 8) return false;
    const std::string_view four = type(at);
    return std::all_of(four.begin(), four.end(), [](char c) { return c >= ' ' && c <= '~'; });
  }

  bool is_track(size_t at) const { return size_ - at >= 8 && type(at) == "MTrk"; }

  /// Returns the beginning of the next track from `at` on, or the end of the file. All tracks are
  /// searched for at once, because a damaged file may cause this call at each of its tracks.
  size_t next_track(size_t at) {
    if (!looked_up_) {
      const std::string_view bytes = source_.bytes.substr(0, size_);
      for (size_t found = bytes.find("MTrk", at_); found != std::string_view::npos;
           found = bytes.find("MTrk", found + 4)) {
        track_begins_.push_back(found);
      }
      looked_up_ = true;
    }
    const auto next = std::lower_bound(track_begins_.begin(), track_begins_.end(), at);
    return next == track_begins_.end() ? size_ : *next;
  }

  /// RIFF: "RIFF", length, "RMID", then chunks of a type, a length (all little-endian) and data,
  /// padded to an even length; the MIDI file is the data of "data".
  void unwrap() {
    if (size_ < 12 || type(0) != "RIFF" || type(8) != "RMID") return;
    at_ = 12;
    while (size_ - at_ >= 8) {
      size_t length = 0;
      for (size_t i = 0; i < 4; ++i) length |= size_t(source_.byte(at_ + 4 + i)) << 8 * i;
      const bool data = type(at_) == "data";
      at_ += 8;
      if (data) {
        if (length > size_ - at_) source_.warn(at_ - 4, "the RIFF data is truncated");
        begin_ = at_;
        size_ = at_ + std::min(length, size_ - at_);
        return;
      }
      at_ += std::min(length + length % 2, size_ - at_);
    }
    source_.refuse(at_, "the RIFF file has no MIDI data");
  }

  void header() {
    const size_t left = size_ - begin_;
    if (left == 0) source_.refuse(begin_, "the file is empty");
    if (left < 4 || type(begin_) != "MThd") {
      const std::string format = known_format(source_.bytes);
      source_.refuse(begin_, format.empty() ? "not a MIDI file: it does not begin with MThd"
                                            : "not a MIDI file: it is " + format);
    }
    if (left < 14) source_.refuse(size_, "the header is truncated");
    const size_t length = number(begin_ + 4, 4);
    if (length < 6) {
      source_.refuse(begin_ + 4,
                     "the header's length is " + std::to_string(length) + "; expected 6 or more");
    }
    if (length > left - 8) source_.refuse(size_, "the header is truncated");
    file_.format = int(number(begin_ + 8, 2));
    if (file_.format > 2)
      source_.refuse(begin_ + 8, "format " + std::to_string(file_.format) + "; expected 0, 1 or 2");
    announced_ = int(number(begin_ + 10, 2));
    const int division = int(number(begin_ + 12, 2));
    if (division < 0x8000) {
      file_.division = {division, 0, 0};
    } else {
      file_.division = {0, 256 - (division >> 8), division & 0xFF};
    }
    if ((division < 0x8000 ? division : division & 0xFF) == 0) {
      source_.refuse(begin_ + 12, division == 0 ? "the division is 0 ticks per quarter note"
                                                : "the division is 0 ticks per frame");
    }
    at_ = begin_ + 8 + length;
  }

  /// Reads or skips the chunk that begins here; returns false if the remaining
  /// bytes are not a chunk.
  bool chunk() {
    const size_t begin = at_;
    const size_t body = begin + 8;
    const size_t length = number(begin + 4, 4);
    if (type(begin) == "MTrk") {
      track(body, length);
    } else if (is_chunk(begin) && type(begin) != "MThd" && length <= size_ - body) {
      at_ = body + length;
    } else {
      const size_t next = next_track(begin);
      if (next == size_ || type(begin) == "MThd") return false;
      source_.warn(begin, "there is no chunk here; reading continues with the next track");
      at_ = next;
    }
    return true;
  }

  /// Reads a track. The length in its header is used if a chunk or the end of the file follows;
  /// otherwise the track extends to its End of Track, or to the next track or the end of the file.
  void track(size_t body, size_t length) {
    if (file_.tracks.size() == max_midi_tracks)
      source_.refuse(body - 8,
                     "the file has more than " + std::to_string(max_midi_tracks) + " tracks");
    const bool trusted =
        length <= size_ - body && (body + length == size_ || is_chunk(body + length));
    size_t end = trusted ? body + length : size_;
    if (!trusted && length < size_ - body) end = next_track(body + length);
    MidiTrackPlayer player(source_, file_, changes_);
    MidiEvents events(source_, body, end);
    MidiEvent event;
    while (events.next(event)) {
      if (++events_ > max_midi_events)
        source_.refuse(event.offset,
                       "the file has more than " + std::to_string(max_midi_events) + " events");
      player.play(event);
    }
    player.finish();
    if (file_.format == 2) settle_changes();

    at_ = events.offset();
    if (trusted && at_ < end && !is_track(at_)) {
      source_.warn(at_, std::to_string(end - at_) + " bytes follow End of Track");
      at_ = end;
    } else if (at_ != body + length) {
      source_.warn(body - 4, "the track's length is " + std::to_string(length) +
                                 ", but it is read as " + std::to_string(at_ - body));
    }
  }

  /// Ends notes by the events of other tracks: a note without an end in its own track by the next
  /// note-off that has ended no note, and all notes of a channel by its silences.
  void end_notes() {
    for (std::vector<int64_t>& silences : changes_.silences)
      std::sort(silences.begin(), silences.end());
    const auto next_silence = [&](const MidiNote& note) {
      const std::vector<int64_t>& silences = changes_.silences[size_t(note.channel)];
      const auto next = std::upper_bound(silences.begin(), silences.end(), note.start);
      return next == silences.end() ? INT64_MAX : *next;
    };
    for (auto& [key, notes] : changes_.open) {
      std::vector<int64_t>& releases = changes_.releases[key];
      std::sort(releases.begin(), releases.end());
      std::stable_sort(notes.begin(), notes.end(),
                       [](const auto& a, const auto& b) { return a.not_before < b.not_before; });
      auto next = releases.begin();
      for (const MidiChanges::OpenNote& open : notes) {
        MidiNote& note = file_.notes[open.index];
        next = std::lower_bound(next, releases.end(), open.not_before);
        if (next != releases.end())
          note.duration = *next++ - note.start;
        else if (next_silence(note) == INT64_MAX)
          source_.warn(open.offset, "a note has no end and lasts until the end of its track");
      }
    }
    for (; ended_notes_ < file_.notes.size(); ++ended_notes_) {
      MidiNote& note = file_.notes[ended_notes_];
      note.duration = std::min(note.duration, next_silence(note) - note.start);
    }
  }

  /// Creates a tempo map from the changes so far and clears them.
  void settle_changes() {
    end_notes();
    file_.tempo_maps.emplace_back(file_.division, std::move(changes_.tempos));
    changes_ = {};
  }

  /// Sets everything that depends on all tracks: programs, seconds and the order of the notes.
  void settle() {
    const bool apart = file_.format == 2;
    for (auto& programs : changes_.programs) {
      std::stable_sort(programs.begin(), programs.end(),
                       [](const auto& a, const auto& b) { return a.tick < b.tick; });
    }
    for (MidiNote& note : file_.notes) {
      if (note.program != no_program) continue;
      const auto& programs = changes_.programs[size_t(note.channel)];
      const auto after =
          std::upper_bound(programs.begin(), programs.end(), note.start,
                           [](int64_t tick, const auto& change) { return tick < change.tick; });
      note.program = after == programs.begin() ? 0 : (after - 1)->program;
    }
    if (!apart) settle_changes();
    for (MidiNote& note : file_.notes) {
      const TempoMap& clock = file_.tempo_map(note.track);
      note.start_seconds = clock.seconds(double(note.start));
      note.seconds = clock.seconds(double(note.start + note.duration)) - note.start_seconds;
    }
    std::stable_sort(file_.notes.begin(), file_.notes.end(),
                     [&](const MidiNote& a, const MidiNote& b) {
                       if (apart && a.track != b.track) return a.track < b.track;
                       return a.start < b.start;
                     });
  }

  const MidiSource& source_;
  size_t size_;       // end of the MIDI file in the bytes
  size_t begin_ = 0;  // its beginning
  size_t at_ = 0;
  int announced_ = 0;  // tracks
  bool looked_up_ = false;
  std::vector<size_t> track_begins_;
  size_t events_ = 0;
  size_t ended_notes_ = 0;  // notes that end_notes() has seen
  MidiFile file_;
  MidiChanges changes_;
};

}  // namespace

MidiFile read_midi(const std::string& path) {
  return parse_midi(read_text("read_midi", path, max_midi_bytes), path);
}

MidiFile parse_midi(std::string_view bytes, const std::string& path) {
  std::vector<std::string> warnings;
  const MidiSource source{bytes, path, warnings};
  if (bytes.size() > max_midi_bytes) source.refuse(max_midi_bytes, too_long);
  MidiFile file = FileReader(source).read();
  file.warnings = std::move(warnings);
  return file;
}

}  // namespace stretto::music
