// How the programs read files, and report that memory is exhausted.

#include "examples/common/file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <new>

#include "core/error.h"
#include "examples/common/command_line.h"
#include "examples/common/error.h"
#include "examples/training/training_program.h"
#include "tests/examples/temp_dir.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT

/// Runs `body` in a child process. Returns its exit code and its standard error.
template <class Body>
std::pair<int, std::string> in_child(const Body& body) {
  const TempDir folder;
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(::open(folder.file("err").c_str(), O_WRONLY | O_CREAT, 0600), 2);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          read_file(folder.file("err"))};
}

int thrown(bool for_memory) {
  if (for_memory) throw std::bad_alloc();
  throw 1;
}

int run_that(const std::function<int()>& body) {
  char name[] = "name";
  char* words[] = {name, nullptr};
  return run_program(
      1, words, name, "", [](CLI::App&) {}, body);
}

}  // namespace

TEST_CASE("a mapped file has the bytes of the file", "[examples]") {
  const TempDir folder;
  const std::string bytes("one\0two\n", 8);
  write_file(folder.file("a"), bytes);
  write_file(folder.file("empty"), "");
  CHECK(MappedFile(folder.file("a")).bytes() == bytes);
  CHECK(MappedFile(folder.file("empty")).bytes().empty());
  for (const char* name : {"none", "pipe", "."}) {
    const std::string path = folder.file(name);
    if (std::string(name) == "pipe") REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    const std::string message = error_of<UsageError>([&] { MappedFile{path}; });
    CHECK(message.rfind("cannot read '" + path + "': ", 0) == 0);
    CHECK(error_of<UsageError>([&] { read_whole_file(path); }) == message);
  }
}

TEST_CASE("truncating a mapped file ends the program with an error line", "[examples]") {
  const TempDir folder;
  write_file(folder.file("a"), std::string(1 << 16, 'x'));
  const auto [code, message] = in_child([&] {
    const MappedFile file(folder.file("a"));
    if (::truncate(folder.file("a").c_str(), 0) != 0) return 2;
    return int(file.bytes()[1 << 15]);
  });
  CHECK(code == 1);
  CHECK(message == "a file that was being read has become shorter, or its disk fails\n");
}

TEST_CASE("a file larger than free memory is rejected before it is read", "[examples]") {
  const TempDir folder;
  write_file(folder.file("a"), "");
  constexpr long size = 1L << 44;  // larger than any disk: a sparse file
  if (::truncate(folder.file("a").c_str(), size - 4096) != 0)
    STRETTO_SKIP("the file system has no files of such a size");
  CHECK(error_of<UsageError>([&] { read_whole_file(folder.file("a")); }) ==
        "cannot read '" + folder.file("a") + "': its " + std::to_string(size - 4096) +
            " bytes do not fit into the memory that is free");
  CHECK(MappedFile(folder.file("a")).bytes().size() == size_t(size) - 4096);
}

TEST_CASE("out of memory gives one error line and exit code 1", "[examples]") {
  const auto [code, message] =
      in_child([] { return run_that([]() -> int { throw std::bad_alloc(); }); });
  CHECK(code == 1);
  CHECK(message == "name: out of memory\n");
  // Also if thrown out of a noexcept function; other exceptions there still abort.
  const auto ended = in_child([] { return run_that([]() noexcept { return thrown(true); }); });
  CHECK(ended == std::pair<int, std::string>(1, "name: out of memory\n"));
  const auto aborted = in_child([] {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
    std::signal(SIGABRT, SIG_DFL);  // no report of the test program
    return run_that([]() noexcept { return thrown(false); });
  });
  CHECK(aborted.first == 128 + SIGABRT);
  // Also where other errors of the library become usage errors.
  const auto [library, line] = in_child([] {
    return run_that([] {
      return as_usage([]() -> int { throw stretto::OutOfMemory("[allocate] no memory"); });
    });
  });
  CHECK(library == 1);
  CHECK(line == "name: [allocate] no memory\n");
}

TEST_CASE("a temporary failure to open a file is not reported as a bad file", "[examples]") {
  const TempDir folder;
  write_file(folder.file("a"), "text");
  // Readers of directories skip bad files; they must not skip files because of this error.
  const auto [code, message] = in_child([&] {
    return run_that([&]() -> int {
      rlimit before{};
      ::getrlimit(RLIMIT_NOFILE, &before);
      const rlimit none{0, before.rlim_max};
      ::setrlimit(RLIMIT_NOFILE, &none);
      try {
        read_whole_file(folder.file("a"));
      } catch (const UsageError&) {
        return 9;
      } catch (...) {
        ::setrlimit(RLIMIT_NOFILE, &before);
        throw;
      }
      return 0;
    });
  });
  CHECK(code == 1);
  CHECK(message == "name: cannot read '" + folder.file("a") + "': Too many open files\n");
}
