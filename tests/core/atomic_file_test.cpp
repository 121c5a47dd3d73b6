#include "core/atomic_file.h"

#include <sys/stat.h>

#include "core/error.h"
#include "tests/support/catch.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using stretto::AtomicFile;
using stretto::testing::FileSizeLimit;
using stretto::testing::read_file;
using stretto::testing::TempDir;
using stretto::testing::write_file;

namespace {

std::string error_of_write(const std::string& path, size_t bytes) {
  const std::string content(bytes, 'x');
  try {
    AtomicFile file(path);
    file.write(content.data(), int64_t(bytes));
    file.commit();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("an atomic file appears on commit") {
  const TempDir dir;
  const std::string path = dir.file("a");
  {
    AtomicFile file(path);
    file.write("one ", 4);
    file.write("two", 3);
    CHECK_FALSE(std::filesystem::exists(path));
    CHECK(std::filesystem::exists(path + ".tmp"));
    file.commit();
    CHECK_THROWS_WITH(file.write("x", 1), Containing("already committed"));
    CHECK_THROWS_WITH(file.commit(), Containing("already committed"));
  }
  CHECK(read_file(path) == "one two");
  CHECK(dir.entries() == 1);
}

TEST_CASE("an atomic file that is not committed leaves nothing behind") {
  const TempDir dir;
  write_file(dir.file("a"), "old");
  {
    AtomicFile file(dir.file("a"));
    file.write("new", 3);
  }
  CHECK(read_file(dir.file("a")) == "old");
  CHECK(dir.entries() == 1);
}

TEST_CASE("an atomic file overwrites the temporary file of a killed process") {
  const TempDir dir;
  write_file(dir.file("a.tmp"), "longer than the new content");
  {
    AtomicFile file(dir.file("a"));
    file.write("new", 3);
    file.commit();
  }
  CHECK(read_file(dir.file("a")) == "new");
  CHECK(dir.entries() == 1);
}

TEST_CASE("two writers of the same atomic file do not mix their data") {
  const TempDir dir;
  AtomicFile file(dir.file("a"));
  file.write("one", 3);
  CHECK(error_of_write(dir.file("a"), 1) == "[save] " + dir.file("a") + ": cannot create " +
                                                dir.file("a.tmp") + ": Device or resource busy");
  file.write(" two", 4);
  file.commit();
  CHECK(read_file(dir.file("a")) == "one two");
  CHECK(error_of_write(dir.file("a"), 1).empty());
}

TEST_CASE(
    "an atomic file neither waits for nor writes to links, pipes or files at its temporary path") {
  const TempDir dir;
  const std::string path = dir.file("a"), temporary = dir.file("a.tmp"), other = dir.file("other");
  write_file(other, "precious");
  const auto check_saved = [&] {
    CHECK(error_of_write(path, 10).empty());
    CHECK(read_file(path) == "xxxxxxxxxx");
    CHECK(read_file(other) == "precious");
    CHECK(dir.entries() == 2);
  };
  std::filesystem::create_hard_link(other, temporary);
  check_saved();
  std::filesystem::create_symlink(other, temporary);
  check_saved();
  std::filesystem::create_symlink(dir.file("nowhere"), temporary);
  check_saved();
  REQUIRE(::mkfifo(temporary.c_str(), 0600) == 0);
  check_saved();
  std::filesystem::create_directory(temporary);
  CHECK_THAT(error_of_write(path, 1), Containing("Is a directory"));
  CHECK(read_file(path) == "xxxxxxxxxx");
}

TEST_CASE("an atomic file is written to the target of a symbolic link, and the link stays") {
  const TempDir dir;
  std::filesystem::create_directory(dir.file("far"));
  const std::string target = dir.file("far/file"), link = dir.file("link");
  write_file(target, "old");
  std::filesystem::create_symlink("far/file", link);
  std::filesystem::create_symlink(link, dir.file("second"));
  CHECK(error_of_write(dir.file("second"), 10).empty());
  CHECK(std::filesystem::is_symlink(dir.file("second")));
  CHECK(std::filesystem::is_symlink(link));
  CHECK(!std::filesystem::is_symlink(target));
  CHECK(read_file(target) == "xxxxxxxxxx");
  std::filesystem::remove(target);  // a link whose target does not exist yet
  CHECK(error_of_write(link, 3).empty());
  CHECK(read_file(target) == "xxx");
  CHECK(dir.entries() == 3);
  std::filesystem::create_symlink("round", dir.file("round"));
  CHECK_THAT(error_of_write(dir.file("round"), 1), Containing("symbolic links"));
}

TEST_CASE("an atomic file has the permissions of the file that it replaces") {
  const TempDir dir;
  const std::string path = dir.file("a");
  write_file(path, "old");
  std::filesystem::permissions(path, std::filesystem::perms(0600));
  CHECK(error_of_write(path, 1).empty());
  CHECK(std::filesystem::status(path).permissions() == std::filesystem::perms(0600));
}

TEST_CASE("an atomic file cannot be committed after a failed write") {
  const TempDir dir;
  AtomicFile file(dir.file("a"));
  {
    const FileSizeLimit limit(10);
    CHECK_THROWS_WITH(file.write("twelve bytes", 12), Containing("File too large"));
  }
  CHECK(dir.entries() == 0);
  CHECK_THROWS_WITH(file.write("x", 1), Containing("an earlier write failed"));
  CHECK_THROWS_WITH(file.commit(), Containing("an earlier write failed"));
}

TEST_CASE("an atomic file can be overwritten in part before it is committed") {
  const TempDir dir;
  {
    AtomicFile file(dir.file("a"));
    file.write("one ... three", 13);
    file.rewrite("two", 3, 4);
    file.write(" four", 5);
    file.commit();
  }
  CHECK(read_file(dir.file("a")) == "one two three four");
}

TEST_CASE("a full disk leaves the old file and no temporary file") {
  const TempDir dir;
  const std::string path = dir.file("a");
  write_file(path, "old");
  std::string message;
  {
    const FileSizeLimit limit(4096);
    message = error_of_write(path, 10000);
  }
  CHECK(message == "[save] " + path + ": write failed: File too large");
  CHECK(read_file(path) == "old");
  CHECK(dir.entries() == 1);
  CHECK(error_of_write(path, 10000).empty());
  CHECK(read_file(path).size() == 10000);
}

TEST_CASE("an error of an atomic file names the path that is in its way") {
  const TempDir dir;
  CHECK_THAT(error_of_write(dir.file("no/such/folder"), 1),
             Containing(dir.file("no/such/folder") + ": cannot create "));
  CHECK_THAT(error_of_write(dir.file("no/such/folder"), 1),
             Containing("No such file or directory"));
  CHECK(error_of_write("/dev/full", 1) == "[save] /dev/full: exists and is not a regular file");
  CHECK_THAT(error_of_write(dir.file("."), 1), Containing("exists and is not a regular file"));
}

TEST_CASE("an atomic file can be written by its bare name in the current directory") {
  const TempDir dir;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(dir.file("."));
  const std::string message = error_of_write("bare", 10);
  std::filesystem::current_path(before);
  CHECK(message.empty());
  CHECK(read_file(dir.file("bare")).size() == 10);
}
