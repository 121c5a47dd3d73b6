// --device and --dtype on the command line.
#include "nn/training/device_config.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.h"

using namespace stretto;

namespace {

struct Line {
  explicit Line(std::vector<std::string> words) : words_(std::move(words)) {
    for (std::string& word : words_) argv.push_back(word.data());
    argv.push_back(nullptr);
    argc = int(words_.size());
  }
  std::vector<std::string> rest() const { return {argv.begin() + 1, argv.begin() + argc}; }

  int argc;
  std::vector<char*> argv;

 private:
  std::vector<std::string> words_;
};

// exit() in a child process flushes its output; the threads of the parent do not exist there, so
// nothing else of the parent's program may run.
void leave_at_exit() {
  on_exit(
      [](int status, void*) {
        std::fflush(stdout);
        _exit(status);
      },
      nullptr);
}

// Checks how a program ends that parses `words`, calls `then` and exits with status 99.
void ends(
    std::vector<std::string> words, const std::string& own, int status, const std::string& says,
    void (*then)() = [] {}) {
  words.insert(words.begin(), "program");
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  std::fflush(nullptr);  // or the child writes it once more
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipe_ends[1], 1);
    dup2(pipe_ends[1], 2);
    leave_at_exit();
    Line line(words);
    nn::parse_device_args(line.argc, line.argv.data(), nn::Processes::one, own);
    [&]() noexcept { then(); }();  // as at the end of main()
    _exit(99);
  }
  close(pipe_ends[1]);
  std::string output;
  char part[4096];
  for (ssize_t n = 0; (n = read(pipe_ends[0], part, sizeof part)) > 0;)
    output.append(part, size_t(n));
  close(pipe_ends[0]);
  int result = 0;
  waitpid(child, &result, 0);
  INFO(output);
  CHECK(WIFEXITED(result));
  CHECK(WEXITSTATUS(result) == status);
  CHECK_THAT(output, Containing(says));
}

}  // namespace

TEST_CASE("parse_device_args removes its options and leaves the program's own") {
  Line none({"program"});
  const nn::DeviceConfig plain = nn::parse_device_args(none.argc, none.argv.data());
  CHECK(plain.device == cpu);
  CHECK(plain.dtype == f32);
  CHECK(none.argc == 1);

  Line both({"program", "a", "--dtype", "bf16", "--other", "b", "--device", "cpu"});
  const nn::DeviceConfig config =
      nn::parse_device_args(both.argc, both.argv.data(), nn::Processes::one, "FILE [--other N]");
  CHECK(config.device == cpu);
  CHECK(config.dtype == bf16);
  CHECK(both.rest() == std::vector<std::string>{"a", "--other", "b"});
  CHECK(both.argv[size_t(both.argc)] == nullptr);
}

TEST_CASE("parse_device_args ends the program for unknown arguments and for --help") {
  const std::string options = "[--device cpu|cuda|cuda:N] [--dtype f32|bf16]";
  const std::string unknown = "] is an unknown option or one argument too many; accepted: ";
  ends({"--epochs", "3"}, "", 2, "program: [--epochs" + unknown + options);
  ends({"--divice", "cuda"}, "[FILE]", 2, "[--divice" + unknown + "[FILE] " + options);
  ends({"-v"}, "[FILE]", 2, "[-v" + unknown);
  ends({"a"}, "", 2, "[a" + unknown);
  ends({"a", "b"}, "[FILE]", 2, "[b" + unknown);
  ends({"a", "--help"}, "[FILE]", 0, "usage: program [FILE] " + options);
  ends({"-h"}, "", 0, "usage: program " + options);
  ends({"a", "-"}, "FILE FILE", 99, "");
  ends({"--dtype"}, "", 2, "program: [--dtype] needs a value");
  ends({"--dtype", "f16"}, "", 2, "program: [--dtype] \"f16\"; accepted: f32, bf16");
}

TEST_CASE("after parse_device_args an error that main() does not catch is one line") {
  ends({}, "", 2, "program: [load] a.bin: cannot open\n",
       [] { fail("load", "a.bin: cannot open"); });
  ends({}, "", 1, "program: [cpu] no memory\n", [] { throw OutOfMemory("[cpu] no memory"); });
  ends({}, "", 1, "program: map::at\n", [] { throw std::out_of_range("map::at"); });
}
