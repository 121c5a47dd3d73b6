#include "examples/midi/midi_folder.h"

#include <algorithm>
#include <filesystem>

namespace stretto::examples {

std::vector<std::string> midi_files(const std::string& folder, std::error_code& error) {
  namespace fs = std::filesystem;
  std::vector<std::string> names;
  fs::recursive_directory_iterator it(folder, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    std::string end = it->path().extension().string();
    std::transform(end.begin(), end.end(), end.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
    std::error_code none;
    if ((end == ".mid" || end == ".midi") && it->is_regular_file(none))
      names.push_back(it->path().lexically_relative(folder).generic_string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

void MidiDefects::add(const std::string& name, const std::vector<std::string>& warnings) {
  if (warnings.empty()) return;
  ++files_;
  if (files_ == 1) names_ = name + " (" + warnings.front() + ")";
  if (files_ == 2 || files_ == 3) names_ += ", " + name;
  if (files_ == 4) names_ += " …";
}

std::string MidiDefects::text() const {
  if (files_ == 0) return "";
  return (files_ == 1
              ? "1 file is damaged and was read as far as it goes: "
              : std::to_string(files_) + " files are damaged and were read as far as they go: ") +
         names_;
}

}  // namespace stretto::examples
