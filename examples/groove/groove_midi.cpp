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

bool is_bass(const GroovePart& part) {
  const std::string name = lower(part.name);
  if (part.program >= 32 && part.program <= 39) return true;
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
GrooveSource source_of(const music::MidiFile& file, const std::string& path) {
  require(!file.notes.empty(), "has no notes");
  GrooveSource song = to_groove_source(file);
  song.name = path;
  return song;
}

}  // namespace

GrooveSource to_groove_source(const music::MidiFile& file) {
  require(file.format != 2 || !file.tracks.empty(), "has no tracks (format 2)");
  require(file.format != 2 || file.tracks.size() == 1,
          "its tracks do not sound together (format 2)");
  GrooveSource song{
      .name = {},
      .bass = {.name = {}, .program = 33, .notes = {}},
      .drums = {},
      .harmony = {},
      .quarters_per_minute = std::clamp(file.tempo_map().quarters_per_minute(0), 4.0, 1000.0)};
  std::map<std::array<int, 3>, GroovePart> parts;  // by track, channel and program
  for (const music::MidiNote& note : file.notes) {
    if (note.channel == music::drum_channel) {
      song.drums.notes.push_back(on_grid(file, note));
      continue;
    }
    GroovePart& part = parts[{note.track, note.channel, note.program}];
    if (part.notes.empty()) {
      part.name = file.tracks[size_t(note.track)].name;
      part.program = note.program;
    }
    part.notes.push_back(on_grid(file, note));
  }
  for (auto& [place, part] : parts) {
    if (!is_bass(part)) {
      song.harmony.push_back(std::move(part));
    } else if (part.notes.size() > song.bass.notes.size()) {
      song.bass = std::move(part);
    }
  }
  return song;
}

GrooveSource read_groove(const std::string& path, MidiDefects* damaged) {
  const music::MidiFile file = read_midi_file(path);
  try {
    GrooveSource song = source_of(file, path);
    if (damaged != nullptr) damaged->add(path, file.warnings);
    return song;
  } catch (const UsageError& error) {
    throw UsageError(path + ": " + error.what());
  }
}

std::string missing_part(const GrooveSource& song) {
  if (song.bass.notes.empty()) return "no bass";
  if (song.drums.notes.empty()) return "no drums";
  for (const GroovePart& part : song.harmony)
    if (!part.notes.empty()) return "";
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
        GrooveSource song = without_bars(source_of(midi, file), skip_bars);
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
