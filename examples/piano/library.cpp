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

bool is_csv(const std::string& path) { return path.ends_with(".csv"); }

// Returns the path of MAESTRO's table in a folder; "" if there is none.
std::string maestro_table(const std::string& folder) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("maestro-v") && is_csv(name)) found.push_back(name);
  }
  std::sort(found.begin(), found.end());
  require(found.size() < 2, "--data " + folder + ": has " +
                                (found.size() < 2 ? "" : found[0] + " and " + found[1]) +
                                "; select one with --split");
  return found.empty() ? "" : (fs::path(folder) / found[0]).string();
}

std::vector<std::string> columns_of(std::string_view line, bool csv, const std::string& place) {
  std::vector<std::string> columns;
  std::string text;
  try {
    for (size_t at = 0; !line.empty(); ++at) {
      columns.emplace_back(next_field(line, at, csv ? ',' : '\t', csv, text));
      if (at == line.size()) break;
    }
  } catch (const UsageError& e) {
    throw UsageError(place + e.what());
  }
  return columns;
}

std::map<std::string, Part> read_split(const std::string& path) {
  static const std::map<std::string, Part> parts{{"train", &PianoLibrary::train},
                                                 {"valid", &PianoLibrary::valid},
                                                 {"validation", &PianoLibrary::valid},
                                                 {"test", &PianoLibrary::test}};
  size_t file = 0, split = 0;  // columns
  std::map<std::string, Part> rows;
  const MappedFile table(path);
  const bool csv = is_csv(path);
  each_line(table.bytes(), path, [&](std::string_view line, int64_t number) {
    const std::string place = path + ", line " + as_text(number) + ": ";
    const std::vector<std::string> row = columns_of(line, csv, place);
    if (number == 1) {
      const auto column = [&](const std::string& name) {
        const auto it = std::find(row.begin(), row.end(), name);
        require(it != row.end(), path + ": its first line has no column \"" + name + "\"" +
                                     (csv ? "" : csv_hint(line, 2)));
        return size_t(it - row.begin());
      };
      file = column(csv ? "midi_filename" : "file"), split = column("split");
      return;
    }
    require(row.size() > std::max(file, split),
            place + "has " + as_text(int64_t(row.size())) + " columns; its first line has more");
    const auto part = parts.find(row[split]);
    require(part != parts.end(), place + "split \"" + row[split] + "\"; must be train, " +
                                     (csv ? "validation" : "valid") + " or test");
    const auto [known, added] = rows.emplace(row[file], part->second);
    require(added || known->second == part->second,
            place + "file \"" + row[file] + "\" is in another split on an earlier line");
  });
  require(!table.bytes().empty(), path + ": is empty");
  return rows;
}

// The files of MAESTRO's table are all there, because its splits are those of published losses.
void check_present(const std::map<std::string, Part>& split, const MidiFiles& files,
                   const std::string& above, const std::string& table, const std::string& folder) {
  int64_t missing = 0;
  std::string first;
  for (const auto& [name, part] : split) {
    const std::string below = name.starts_with(above) ? name.substr(above.size()) : name;
    if (std::binary_search(files.names.begin(), files.names.end(), name) ||
        std::binary_search(files.names.begin(), files.names.end(), below))
      continue;
    if (++missing == 1) first = name;
  }
  require(missing == 0, table + ": " + as_text(missing) + " of its " +
                            as_text(int64_t(split.size())) + " files are not in " + folder +
                            ", the first: " + first);
}

}  // namespace

PianoLibrary read_library(const PianoLibraryOptions& o, const music::Tokenizer& tokens) {
  const MidiFiles found = files_of(o.folder);
  const std::vector<std::string>& names = found.names;
  const std::string table = o.split.empty() ? maestro_table(o.folder) : o.split;
  std::map<std::string, Part> split;
  if (!table.empty()) split = read_split(table);
  const fs::path folder(o.folder);
  const std::string above = fs::weakly_canonical(folder).filename().string() + "/";
  if (is_csv(table)) check_present(split, found, above, table, o.folder);
  PianoLibrary library;
  library.locked = found.locked_text();
  library.table = table;
  for (size_t i = 0; i < names.size(); ++i) {
    Part part = &PianoLibrary::train;
    const int64_t place = int64_t(i) % o.every;
    if (!table.empty()) {
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
    if (library.left_out > 0) message += "; " + as_text(library.left_out) + " are not in " + table;
    if (!library.skipped.empty())
      message += "; " + as_text(int64_t(library.skipped.size())) +
                 " cannot be used, the first: " + library.skipped.front();
    if (!library.locked.empty()) message += "; " + library.locked;
    if (table.empty() && part == &PianoLibrary::valid) message += "; reduce --every";
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
