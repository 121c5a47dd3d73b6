#include "examples/piano/library.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "core/digest.h"
#include "examples/common/file.h"
#include "examples/common/settings.h"
#include "examples/common/text_file.h"

namespace stretto::examples {
namespace {

namespace fs = std::filesystem;

MidiFiles files_of(const std::string& folder) {
  std::error_code error;
  require(fs::is_directory(folder, error), "--data " + folder + ": is not a folder");
  MidiFiles found = midi_files(folder, error);
  require(!error, "--data " + folder + ": cannot be searched: " + error.message());
  require(!found.names.empty(), "--data " + folder +
                                    ": has no MIDI files (*.mid, *.midi, *.kar, *.rmi, *.smf)" +
                                    (found.locked.empty() ? "" : "; " + found.locked_text()));
  return found;
}

using Part = std::vector<PianoPiece> PianoLibrary::*;

std::map<std::string, Part> read_split(const std::string& path) {
  static const std::map<std::string, Part> parts{{"train", &PianoLibrary::train},
                                                 {"valid", &PianoLibrary::valid},
                                                 {"validation", &PianoLibrary::valid},
                                                 {"test", &PianoLibrary::test}};
  size_t file = 0, split = 0;  // columns
  std::map<std::string, Part> rows;
  const MappedFile table(path);
  each_line(table.bytes(), path, [&](std::string_view line, int64_t number) {
    std::vector<std::string_view> row;
    if (!line.empty()) row = fields_of(line, '\t');
    if (number == 1) {
      const auto column = [&](const std::string& name) {
        const auto it = std::find(row.begin(), row.end(), name);
        require(it != row.end(),
                path + ": its first line has no column \"" + name + "\"" + csv_hint(line, 2));
        return size_t(it - row.begin());
      };
      file = column("file"), split = column("split");
      return;
    }
    const std::string place = path + ", line " + as_text(number) + ": ";
    require(row.size() > std::max(file, split),
            place + "has " + as_text(int64_t(row.size())) + " columns; its first line has more");
    const auto part = parts.find(std::string(row[split]));
    require(part != parts.end(),
            place + "split \"" + std::string(row[split]) + "\"; must be train, valid or test");
    const auto [known, added] = rows.emplace(row[file], part->second);
    require(
        added || known->second == part->second,
        place + "file \"" + std::string(row[file]) + "\" is in another split on an earlier line");
  });
  require(!table.bytes().empty(), path + ": is empty");
  return rows;
}

}  // namespace

PianoLibrary read_library(const PianoLibraryOptions& o, const music::Tokenizer& tokens) {
  const MidiFiles found = files_of(o.folder);
  const std::vector<std::string>& names = found.names;
  std::map<std::string, Part> split;
  if (!o.split.empty()) split = read_split(o.split);
  const fs::path folder(o.folder);
  const std::string above = fs::weakly_canonical(folder).filename().string() + "/";
  PianoLibrary library;
  library.locked = found.locked_text();
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
      const music::MidiFile file = read_midi_file(path);
      plain_usage([&] { tokens.check_file(file, path); });
      (library.*part).push_back({names[i], tokens.encode(file)});
      library.damaged.add(names[i], file.warnings);
      for (const std::string& warning : tokens.warnings(file))
        library.warnings.push_back(names[i] + ": " + warning);
    } catch (const UsageError& e) {
      library.skipped.emplace_back(e.what());
    }
  }
  const auto need = [&](Part part, const char* purpose) {
    if (!(library.*part).empty()) return;
    std::string message = "--data " + o.folder + ": none of " + as_text(int64_t(names.size())) +
                          " MIDI files is left for " + purpose;
    if (library.left_out > 0)
      message += "; " + as_text(library.left_out) + " are not in " + o.split;
    if (!library.skipped.empty())
      message += "; " + as_text(int64_t(library.skipped.size())) +
                 " cannot be used, the first: " + library.skipped.front();
    if (!library.locked.empty()) message += "; " + library.locked;
    if (o.split.empty() && part == &PianoLibrary::valid) message += "; reduce --every";
    throw UsageError(message);
  };
  need(&PianoLibrary::train, "training");
  need(&PianoLibrary::valid, "validation");
  return library;
}

std::string fingerprint(const std::vector<PianoPiece>& pieces) {
  Digest print;
  for (const PianoPiece& piece : pieces) {
    piece.tokens.each([&](int64_t token) { print.add(token); });
    print.add(-1);
  }
  return print.text();
}

}  // namespace stretto::examples
