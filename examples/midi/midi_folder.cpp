#include "examples/midi/midi_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "examples/common/error.h"
#include "examples/common/file.h"
#include "music/midi_reader.h"

namespace stretto::examples {
namespace {

namespace fs = std::filesystem;

bool has_midi_name(const fs::path& path) {
  std::string end = path.extension().string();
  std::transform(end.begin(), end.end(), end.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return end == ".mid" || end == ".midi" || end == ".kar" || end == ".rmi" || end == ".smf";
}

class FolderSearch {
 public:
  explicit FolderSearch(std::string root) : root_(std::move(root)) {}

  MidiFiles run(std::error_code& error) {
    // A link to a folder above the root leads back into the root.
    std::error_code none;
    for (fs::path above = fs::canonical(root_, none); above.has_relative_path();) {
      above = above.parent_path();
      is_new(above);
    }
    search("", error);
    while (!error && !links_.empty()) search(links_.extract(links_.begin()).value(), error);
    std::sort(found_.names.begin(), found_.names.end());
    std::sort(found_.locked.begin(), found_.locked.end());
    return std::move(found_);
  }

 private:
  // Searches the folder and its subfolders. Links to folders are set aside, because their targets
  // may also have a path without links.
  void search(const std::string& start, std::error_code& error) {
    std::vector<std::string> folders{start};
    while (!error && !folders.empty()) {
      const std::string folder = std::move(folders.back());
      folders.pop_back();
      if (!is_new(path_of(folder))) continue;
      fs::directory_iterator it(path_of(folder), error);
      for (; !error && it != fs::directory_iterator(); it.increment(error)) {
        const std::string file = it->path().filename().string();
        const std::string name = folder.empty() ? file : folder + "/" + file;
        std::error_code reason;  // why a link cannot be followed
        if (it->is_directory(reason)) {
          if (it->is_symlink())
            links_.insert(name);
          else
            folders.push_back(name);
          continue;
        }
        const bool denied = reason == std::errc::permission_denied;
        if (has_midi_name(it->path()) && (denied || it->is_regular_file(reason)))
          found_.names.push_back(name);  // reading the file will report the reason
        else if (denied)
          found_.locked.push_back(name);
      }
      if (folder.empty()) continue;
      if (error == std::errc::permission_denied) found_.locked.push_back(folder);
      const bool gone = error == std::errc::no_such_file_or_directory;
      if (gone || error == std::errc::permission_denied) error.clear();
    }
  }

  fs::path path_of(const std::string& name) const {
    return name.empty() ? fs::path(root_) : fs::path(root_) / name;
  }

  bool is_new(const fs::path& folder) {
    struct stat info {};
    return ::stat(folder.c_str(), &info) != 0 || seen_.emplace(info.st_dev, info.st_ino).second;
  }

  const std::string root_;
  MidiFiles found_;
  std::set<std::string> links_;
  std::set<std::pair<dev_t, ino_t>> seen_;
};

}  // namespace

MidiFiles midi_files(const std::string& folder, std::error_code& error) {
  return FolderSearch(folder).run(error);
}

music::MidiFile read_midi_file(const std::string& path) {
  const fs::file_status status = fs::status(path);
  std::error_code error;
  if (fs::exists(status) && !fs::is_regular_file(status))
    throw UsageError(path + ": is not a regular file");
  if (fs::exists(status) && fs::file_size(path, error) > music::max_midi_bytes && !error)
    throw UsageError(path + ": byte " + std::to_string(music::max_midi_bytes) +
                     ": the file is longer than the limit of 64 MiB");
  const std::string bytes = read_whole_file(path);
  return plain_usage([&] { return music::parse_midi(bytes, path); });
}

std::string MidiFiles::locked_text() const {
  if (locked.empty()) return "";
  std::string text = std::to_string(locked.size()) + (locked.size() == 1 ? " folder" : " folders") +
                     " may not be searched: ";
  for (size_t i = 0; i < locked.size() && i < 3; ++i) text += (i > 0 ? ", " : "") + locked[i];
  return text + (locked.size() > 3 ? " …" : "");
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
              ? "1 file is damaged and was read as far as possible: "
              : std::to_string(files_) + " files are damaged and were read as far as possible: ") +
         names_;
}

}  // namespace stretto::examples
