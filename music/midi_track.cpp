#include "music/midi_track.h"

#include <algorithm>

namespace stretto::music {

MidiTrackPlayer::MidiTrackPlayer(const MidiSource& source, MidiFile& file, MidiChanges& changes)
    : source_(source), file_(file), changes_(changes), track_(int(file.tracks.size())) {
  programs_.fill(no_program);
  file_.tracks.push_back({"", 0});
}

void MidiTrackPlayer::play(const MidiEvent& event) {
  MidiTrack& track = file_.tracks.back();
  track.end = event.tick;
  const int channel = event.status & 15;
  switch (event.status >> 4) {
    case 0x8:
      stop(event, channel);
      break;
    case 0x9:
      event.second > 0 ? start(event, channel) : stop(event, channel);
      break;
    case 0xB:
      if (ends_notes(event.first)) stop_all(event.tick, channel);
      file_.controls.push_back({event.tick, channel, event.first, event.second, track_});
      break;
    case 0xC:
      programs_[size_t(channel)] = event.first;
      changes_.programs[size_t(channel)].push_back({event.tick, event.first});
      break;
    case 0xE:
      file_.pitch_bends.push_back(
          {event.tick, channel, (event.second << 7 | event.first) - 8192, track_});
      break;
    case 0xF:
      if (event.status == 0xFF) meta(event);
      break;
    default:
      break;
  }
}

void MidiTrackPlayer::finish() {
  for (const auto& [key, notes] : sounding_)
    for (const MidiChanges::OpenNote& note : notes) {
      end(note, file_.tracks.back().end);
      changes_.open[key].push_back(note);
      int64_t& not_before = changes_.open[key].back().not_before;
      not_before = std::max(not_before, last_end_[key]);
    }
}

void MidiTrackPlayer::start(const MidiEvent& event, int channel) {
  sounding_[midi_key(channel, event.first)].push_back(
      {file_.notes.size(), event.offset, event.tick});
  file_.notes.push_back({event.tick, 0, 0, 0, event.first, event.second, channel,
                         programs_[size_t(channel)], track_});
}

void MidiTrackPlayer::stop(const MidiEvent& event, int channel) {
  const int key = midi_key(channel, event.first);
  std::deque<MidiChanges::OpenNote>& notes = sounding_[key];
  if (notes.empty()) {
    changes_.releases[key].push_back(event.tick);
    return;
  }
  end(notes.front(), event.tick);
  notes.pop_front();
  last_end_[key] = event.tick;
}

void MidiTrackPlayer::stop_all(int64_t tick, int channel) {
  changes_.silences[size_t(channel)].push_back(tick);
  const auto first = sounding_.lower_bound(midi_key(channel, 0));
  const auto last = sounding_.lower_bound(midi_key(channel + 1, 0));
  for (auto it = first; it != last; it = sounding_.erase(it))
    for (const MidiChanges::OpenNote& note : it->second) end(note, tick);
}

void MidiTrackPlayer::end(const MidiChanges::OpenNote& note, int64_t tick) {
  file_.notes[note.index].duration = tick - file_.notes[note.index].start;
}

void MidiTrackPlayer::meta(const MidiEvent& event) {
  const auto byte = [&](size_t i) { return uint8_t(event.data[i]); };
  const auto has = [&](size_t length, const char* what) {
    if (event.data.size() == length) return true;
    source_.warn(event.offset, std::string("a ") + what + " of " +
                                   std::to_string(event.data.size()) + " bytes is ignored");
    return false;
  };
  if (event.first == 0x03) {
    std::string& name = file_.tracks.back().name;
    if (name.empty()) name = event.data;
  } else if (event.first == 0x51 && has(3, "tempo")) {
    const int tempo = byte(0) << 16 | byte(1) << 8 | byte(2);
    if (tempo == 0) return source_.warn(event.offset, "a tempo of 0 is ignored");
    changes_.tempos.push_back({event.tick, tempo});
  } else if (event.first == 0x58 && has(4, "time signature")) {
    if (byte(0) == 0 || byte(1) > 15) {
      return source_.warn(event.offset, "a time signature of " + std::to_string(byte(0)) + "/2^" +
                                            std::to_string(byte(1)) + " is ignored");
    }
    file_.time_signatures.push_back({event.tick, byte(0), 1 << byte(1), track_});
  } else if (event.first == 0x59 && has(2, "key signature")) {
    const int sharps = static_cast<signed char>(byte(0));
    if (sharps < -7 || sharps > 7 || byte(1) > 1) {
      return source_.warn(event.offset, "a key signature of " + std::to_string(sharps) +
                                            " sharps in mode " + std::to_string(byte(1)) +
                                            " is ignored");
    }
    file_.key_signatures.push_back({event.tick, sharps, byte(1) == 1, track_});
  }
}

}  // namespace stretto::music
