#include "examples/piano/library.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>

#include "examples/common/file.h"
#include "examples/common/settings.h"
#include "examples/piano/notes.h"
#include "examples/training/fingerprint.h"

namespace stretto::examples {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> files_of(const std::string& folder) {
  std::error_code error;
  require(fs::is_directory(folder, error), "--data " + folder + ": is not a folder");
  std::vector<std::string> names = midi_files(folder, error);
  require(!error, "--data " + folder + ": cannot be searched: " + error.message());
  require(!names.empty(), "--data " + folder + ": holds no MIDI files (*.mid, *.midi)");
  return names;
}

std::vector<std::string> fields(const std::string& line) {
  std::vector<std::string> all;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, '\t');) all.push_back(field);
  return all;
}

using Part = std::vector<PianoPiece> PianoLibrary::*;

std::map<std::string, Part> read_split(const std::string& path) {
  static const std::map<std::string, Part> parts{{"train", &PianoLibrary::train},
                                                 {"valid", &PianoLibrary::valid},
                                                 {"validation", &PianoLibrary::valid},
                                                 {"test", &PianoLibrary::test}};
  std::string text = read_whole_file(path);
  std::erase(text, '\r');
  std::istringstream in(text);
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> names = fields(line);
  const auto column = [&](const char* name) {
    const auto it = std::find(names.begin(), names.end(), name);
    require(it != names.end(), path + ": its first line has no column \"" + name + "\"");
    return size_t(it - names.begin());
  };
  const size_t file = column("file"), split = column("split");
  std::map<std::string, Part> rows;
  for (int64_t number = 2; std::getline(in, line); ++number) {
    const std::vector<std::string> row = fields(line);
    const std::string place = path + ", line " + as_text(number) + ": ";
    require(row.size() > std::max(file, split),
            place + "has " + as_text(int64_t(row.size())) + " columns; its first line has more");
    const auto part = parts.find(row[split]);
    require(part != parts.end(),
            place + "split \"" + row[split] + "\"; accepted are train, valid and test");
    rows.emplace(row[file], part->second);
  }
  return rows;
}

}  // namespace

PianoLibrary read_library(const PianoLibraryOptions& o, const PianoTokens& tokens) {
  const std::vector<std::string> names = files_of(o.folder);
  std::map<std::string, Part> split;
  if (!o.split.empty()) split = read_split(o.split);
  const fs::path folder(o.folder);
  const std::string above = fs::weakly_canonical(folder).filename().string() + "/";
  PianoLibrary library;
  for (size_t i = 0; i < names.size(); ++i) {
    Part part = &PianoLibrary::train;
    const int64_t place = int64_t(i) % o.every;
    if (!o.split.empty()) {
      auto row = split.find(names[i]);
      if (row == split.end()) row = split.find(above + names[i]);
      if (row == split.end()) {
        ++library.left_out;
        continue;
      }
      part = row->second;
    } else if (place == o.every - 1) {
      part = &PianoLibrary::valid;
    } else if (place == o.every - 2 && o.every > 2) {
      part = &PianoLibrary::test;
    }
    const std::string path = (folder / names[i]).string();
    try {
      const MidiFile file = read_midi(path);
      check_piano_file(file, path);
      (library.*part).push_back({names[i], tokens.encode(file, o.pedal)});
      library.damaged.add(names[i], file.warnings);
    } catch (const UsageError& e) {
      library.skipped.emplace_back(e.what());
    }
  }
  const auto need = [&](Part part, const char* what) {
    if (!(library.*part).empty()) return;
    std::string told = "--data " + o.folder + ": of " + as_text(int64_t(names.size())) +
                       " MIDI files none is left to " + what;
    if (library.left_out > 0) told += "; " + as_text(library.left_out) + " are not in " + o.split;
    if (!library.skipped.empty())
      told += "; " + as_text(int64_t(library.skipped.size())) +
              " cannot be used, the first: " + library.skipped.front();
    if (o.split.empty() && part == &PianoLibrary::valid) told += "; make --every smaller";
    throw UsageError(told);
  };
  need(&PianoLibrary::train, "learn from");
  need(&PianoLibrary::valid, "validate by");
  return library;
}

std::string fingerprint(const std::vector<PianoPiece>& pieces) {
  Fingerprint print;
  for (const PianoPiece& piece : pieces) {
    for (const int token : piece.tokens) print.add(token);
    print.add(-1);
  }
  return print.text();
}

}  // namespace stretto::examples
