// Files as the programs read them, and how a program says that there is no memory.

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

/// The exit code of a child process that runs `body`, and what it says on standard error.
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

TEST_CASE("a mapped file is its bytes", "[examples]") {
  const TempDir folder;
  const std::string bytes("one\0two\n", 8);
  write_file(folder.file("a"), bytes);
  write_file(folder.file("empty"), "");
  CHECK(MappedFile(folder.file("a")).bytes() == bytes);
  CHECK(MappedFile(folder.file("empty")).bytes().empty());
  for (const char* name : {"none", "pipe", "."}) {
    const std::string path = folder.file(name);
    if (std::string(name) == "pipe") REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    const std::string told = error_of<UsageError>([&] { MappedFile{path}; });
    CHECK(told.rfind("cannot read '" + path + "': ", 0) == 0);
    CHECK(error_of<UsageError>([&] { read_whole_file(path); }) == told);
  }
}

TEST_CASE("a file that is cut while it is mapped ends the program with a line", "[examples]") {
  const TempDir folder;
  write_file(folder.file("a"), std::string(1 << 16, 'x'));
  const auto [code, told] = in_child([&] {
    const MappedFile file(folder.file("a"));
    if (::truncate(folder.file("a").c_str(), 0) != 0) return 2;
    return int(file.bytes()[1 << 15]);
  });
  CHECK(code == 1);
  CHECK(told == "a file that was being read has become shorter, or its disk fails\n");
}

TEST_CASE("a file larger than the memory is refused before it is read", "[examples]") {
  const TempDir folder;
  write_file(folder.file("a"), "");
  constexpr long size = 1L << 44;  // no disk holds it: it has holes
  if (::truncate(folder.file("a").c_str(), size - 4096) != 0)
    STRETTO_SKIP("the file system has no files of such a size");
  CHECK(error_of<UsageError>([&] { read_whole_file(folder.file("a")); }) ==
        "cannot read '" + folder.file("a") + "': its " + std::to_string(size - 4096) +
            " bytes do not fit into the memory that is free");
  CHECK(MappedFile(folder.file("a")).bytes().size() == size_t(size) - 4096);
}

TEST_CASE("too little memory is said in a line, with exit code 1", "[examples]") {
  const auto [code, told] =
      in_child([] { return run_that([]() -> int { throw std::bad_alloc(); }); });
  CHECK(code == 1);
  CHECK(told == "name: out of memory\n");
  // Also out of a function that may not throw; other exceptions there still abort.
  const auto ended = in_child([] { return run_that([]() noexcept { return thrown(true); }); });
  CHECK(ended == std::pair<int, std::string>(1, "name: out of memory\n"));
  const auto aborted = in_child([] {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
    std::signal(SIGABRT, SIG_DFL);  // not for the test program to report
    return run_that([]() noexcept { return thrown(false); });
  });
  CHECK(aborted.first == 128 + SIGABRT);
  // Also where other errors of the library are the user's to mend.
  const auto [library, line] = in_child([] {
    return run_that([] {
      return as_usage([]() -> int { throw stretto::OutOfMemory("[allocate] no memory"); });
    });
  });
  CHECK(library == 1);
  CHECK(line == "name: [allocate] no memory\n");
}

TEST_CASE("a file that cannot be opened for the moment is no bad file", "[examples]") {
  const TempDir folder;
  write_file(folder.file("a"), "text");
  // A folder of files is read over what is bad in it, and must not be over this.
  const auto [code, told] = in_child([&] {
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
  CHECK(told == "name: cannot read '" + folder.file("a") + "': Too many open files\n");
}
