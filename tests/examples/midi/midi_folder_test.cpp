// The search of a directory for MIDI files: links, cycles, and directories without permission.

#include "examples/midi/midi_folder.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "examples/common/error.h"
#include "tests/examples/temp_dir.h"
#include "tests/support/catch.h"

namespace {

namespace fs = std::filesystem;
using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT

std::string joined(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : " ") + name;
  return all;
}

std::string midi_names(const std::string& folder) {
  std::error_code error;
  const MidiFiles found = midi_files(folder, error);
  CHECK(!error);
  CHECK(found.locked.empty());
  return joined(found.names);
}

/// Returns the result of `text` in an unprivileged process.
std::string without_privileges(const std::function<std::string()>& text) {
  const TempDir folder;
  fs::permissions(folder.str(), fs::perms::all);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(1);
    write_file(folder.file("text"), text());
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status == 0 ? read_file(folder.file("text")) : "(no user of fewer rights)";
}

}  // namespace

TEST_CASE("links to directories are followed, each directory once", "[examples][midi]") {
  const TempDir folder;
  for (const char* name : {"data/own", "far/deep", "far/loops"})
    fs::create_directories(folder.file(name));
  for (const char* name : {"data/a.mid", "data/own/b.MIDI", "far/c.mid", "far/deep/d.mid"})
    write_file(folder.file(name), "");
  const std::string data = folder.file("data");
  fs::create_directory_symlink("../far", data + "/linked");
  CHECK(midi_names(data) == "a.mid linked/c.mid linked/deep/d.mid own/b.MIDI");

  // Additional links to directories found already, and cycles: to a parent, to itself,
  // between two links.
  fs::create_directory_symlink("own", data + "/again");
  fs::create_directory_symlink("../../far/deep", data + "/own/deeper");
  fs::create_directory_symlink("..", data + "/own/up");
  fs::create_directory_symlink("../..", data + "/own/above");
  fs::create_directory_symlink("itself", data + "/itself");
  fs::create_directory_symlink("../../data", folder.file("far/loops/back"));
  fs::create_directory_symlink("nowhere", data + "/gone");
  fs::create_symlink("nowhere.mid", data + "/gone.mid");
  fs::create_symlink("a.mid", data + "/same.mid");  // a file is read under each of its names
  CHECK(midi_names(data) == "a.mid linked/c.mid linked/deep/d.mid own/b.MIDI same.mid");

  // The given directory may be a link, or its path may contain one.
  fs::create_directory_symlink("data", folder.file("link"));
  CHECK(midi_names(folder.file("link")) == midi_names(data));
  CHECK(midi_names(folder.file("link/own")) == "b.MIDI deeper/d.mid");
}

TEST_CASE("MIDI files are found by five extensions in any case", "[examples][midi]") {
  const TempDir folder;
  for (const char* name : {"a.KAR", "b.rmi", "c.Smf", "d.mIDi", "e.mid", "f.mid.txt", "mid"})
    write_file(folder.file(name), "");
  CHECK(midi_names(folder.str()) == "a.KAR b.rmi c.Smf d.mIDi e.mid");
}

TEST_CASE("a directory without permission is reported and skipped", "[examples][midi]") {
  const TempDir folder;
  fs::permissions(folder.str(), fs::perms::all);
  for (const char* name : {"data/a", "data/locked", "data/z", "far"})
    fs::create_directories(folder.file(name));
  for (const char* name : {"data/a/1.mid", "data/locked/2.mid", "data/z/3.mid"})
    write_file(folder.file(name), "");
  fs::create_directory_symlink("../far", folder.file("data/link"));
  for (const char* name : {"data/locked", "far"})
    fs::permissions(folder.file(name), fs::perms::none);
  const auto result_for = [&](const std::string& path) {
    return without_privileges([&] {
      std::error_code error;
      const MidiFiles found = midi_files(path, error);
      return joined(found.names) + "; " + found.locked_text() + "; " + error.message();
    });
  };
  const std::string below = result_for(folder.file("data")),
                    itself = result_for(folder.file("far"));
  for (const char* name : {"data/locked", "far"})
    fs::permissions(folder.file(name), fs::perms::owner_all);
  CHECK(below == "a/1.mid z/3.mid; 2 folders may not be searched: link, locked; Success");
  CHECK(itself == "; ; Permission denied");

  CHECK(MidiFiles{}.locked_text().empty());
  CHECK(MidiFiles{{}, {"x"}}.locked_text() == "1 folder may not be searched: x");
  CHECK(MidiFiles{{}, {"x", "y", "z", "u"}}.locked_text() ==
        "4 folders may not be searched: x, y, z …");
}
