// A temporary directory for the files of one test.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#include "core/input_file.h"

namespace stretto::testing {

/// Returns the number of entries of a directory, to detect temporary files that remain.
inline size_t entries(const std::string& folder) {
  const std::filesystem::directory_iterator all(folder);
  return size_t(std::distance(begin(all), end(all)));
}

/// A new directory in the system's temporary directory; the destructor removes it
/// with its contents.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "stretto-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp " + pattern);
    path_ = pattern;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string str() const { return path_.string(); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  size_t entries() const { return testing::entries(str()); }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary);
  out << bytes << std::flush;
  if (!out) throw std::runtime_error("cannot write " + path);
}

using stretto::read_file;

}  // namespace stretto::testing
