#include "examples/groove/groove_midi.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <utility>

#include "examples/common/settings.h"
#include "music/piano_notes.h"

namespace stretto::examples {
namespace {

constexpr int64_t last_tick = (int64_t{1} << 28) - 1;

std::string lower(std::string text) {
  for (char& c : text) c = char(std::tolower(uint8_t(c)));
  return text;
}

bool is_bass(const music::Track& track) {
  const std::string name = lower(track.name);
  if (track.program >= 32 && track.program <= 39) return true;
  return name.find("bass") != std::string::npos && name.find("bassoon") == std::string::npos;
}

music::Note on_grid(const music::MidiFile& file, const music::MidiNote& note) {
  const auto step = [&](int64_t tick) { return file.grid_step(tick, groove_beat, note.track); };
  const int64_t start = step(note.start);
  const int64_t end = std::max(start + 1, step(note.start + note.duration));
  require(end <= last_tick, "a note ends after the limit of 2^28 twelfths of a beat");
  return {int(start), int(end - start), note.pitch, note.velocity};
}

// The song in a file. Errors have no path.
music::Song song_of(const music::MidiFile& file) {
  require(!file.notes.empty(), "has no notes");
  return to_song(file);
}

}  // namespace

music::Song to_song(const music::MidiFile& file) {
  require(file.format != 2 || !file.tracks.empty(), "has no tracks (format 2)");
  require(file.format != 2 || file.tracks.size() == 1,
          "its tracks do not sound together (format 2)");
  music::Song song = empty_groove();
  song.tracks.resize(harmony_track);
  song.quarters_per_minute = std::clamp(file.tempo_map().quarters_per_minute(0), 4.0, 1000.0);
  std::map<std::array<int, 3>, music::Track> instruments;  // by track, channel and program
  for (const music::MidiNote& note : file.notes) {
    if (note.channel == music::drum_channel) {
      song.tracks[drum_track].notes.push_back(on_grid(file, note));
      continue;
    }
    music::Track& instrument = instruments[{note.track, note.channel, note.program}];
    if (instrument.notes.empty())
      instrument = {file.tracks[size_t(note.track)].name, 2, note.program, {}};
    instrument.notes.push_back(on_grid(file, note));
  }
  for (auto& [place, instrument] : instruments) {
    music::Track& bass = song.tracks[bass_track];
    if (!is_bass(instrument)) {
      song.tracks.push_back(std::move(instrument));
    } else if (instrument.notes.size() > bass.notes.size()) {
      bass = std::move(instrument);
    }
  }
  return song;
}

music::Song read_groove(const std::string& path, MidiDefects* damaged) {
  const music::MidiFile file = read_midi_file(path);
  try {
    music::Song song = song_of(file);
    if (damaged != nullptr) damaged->add(path, file.warnings);
    return song;
  } catch (const UsageError& error) {
    throw UsageError(path + ": " + error.what());
  }
}

std::string missing_part(const music::Song& song) {
  for (const size_t track : {bass_track, drum_track})
    if (song.tracks[track].notes.empty()) return str("no ", groove_track_names[track]);
  for (size_t i = harmony_track; i < song.tracks.size(); ++i)
    if (!song.tracks[i].notes.empty()) return "";
  return "no harmony";
}

std::string GrooveFolder::reasons() const {
  std::string text;
  for (const auto& [reason, files] : skipped)
    text += (text.empty() ? "" : ", ") + reason + ": " + std::to_string(files);
  if (!locked.empty()) text += (text.empty() ? "" : "; ") + locked;
  return text;
}

GrooveFolder read_groove_folder(const std::string& path, int skip_bars) {
  std::error_code error;
  const MidiFiles found = midi_files(path, error);
  require(!error, "cannot read the folder " + path + ": " + error.message());
  GrooveFolder folder;
  folder.locked = found.locked_text();
  for (const std::string& name : found.names) {
    const std::string file = (std::filesystem::path(path) / name).string();
    std::string reason = "unreadable";
    try {
      const music::MidiFile midi = read_midi_file(file);
      try {
        music::Song song = without_bars(song_of(midi), skip_bars);
        reason = missing_part(song);
        if (reason.empty()) {
          folder.songs.push_back(std::move(song));
          folder.damaged.add(file, midi.warnings);
        }
      } catch (const UsageError& e) {
        reason = e.what();
      }
    } catch (const UsageError&) {  // `reason` has the text
    }
    if (!reason.empty()) ++folder.skipped[reason];
  }
  return folder;
}

}  // namespace stretto::examples
