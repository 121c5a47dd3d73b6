#include "nn/training/progress.h"

#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <limits>
#include <sstream>
#include <streambuf>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace {

using namespace stretto::nn;  // NOLINT

const double kNan = std::numeric_limits<double>::quiet_NaN();

/// A progress display that writes to a string, with a clock that the test sets.
struct Fixture {
  std::ostringstream out;
  double now = 0;

  ProgressOptions options(bool terminal, int columns = 120) {
    ProgressOptions options;
    options.out = &out;
    options.terminal = terminal;
    options.columns = columns;
    options.clock = [this] { return now; };
    return options;
  }
  /// Returns the text written since the last call.
  std::string taken() {
    std::string text = out.str();
    out.str("");
    return text;
  }
};

TEST_CASE("a terminal without escape sequences gets none", "[progress]") {
  const auto shown = [](const char* kind) {
    int terminal = -1;
    const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
    if (child < 0) return std::string("no terminal");
    if (child == 0) {
      ::setenv("TERM", kind, 1);
      {
        Progress progress(10, {});
        progress.update(1, 0.1, 2.5, 100);
        progress.message("told");
        progress.finish();
      }
      ::_exit(0);
    }
    std::string text;
    char block[1024];
    for (ssize_t n; (n = ::read(terminal, block, sizeof block)) > 0;) text.append(block, size_t(n));
    ::close(terminal);
    ::waitpid(child, nullptr, 0);
    return text;
  };
  const std::string usual = shown("xterm"), dumb = shown("dumb");
  if (usual == "no terminal") STRETTO_SKIP("no pseudo-terminal can be had");
  CHECK(usual.find('\x1b') != usual.npos);
  CHECK(dumb.find('\x1b') == dumb.npos);
  CHECK(dumb.find("told\r\n") != dumb.npos);
}

TEST_CASE("durations are short and readable", "[progress]") {
  CHECK(duration_text(0) == "0s");
  CHECK(duration_text(59.4) == "59s");
  CHECK(duration_text(59.6) == "1m00s");
  CHECK(duration_text(185) == "3m05s");
  CHECK(duration_text(7620) == "2h07m");
  CHECK(duration_text(356400) == "4d03h");
  CHECK(duration_text(kNan) == "?");
  CHECK(duration_text(std::numeric_limits<double>::infinity()) == "?");
}

TEST_CASE("a log gets a plain line every few seconds", "[progress]") {
  Fixture f;
  Progress progress(1000, f.options(false));
  f.now = 1;
  progress.update(10, 0.01, 3.5, 1234);
  CHECK(f.taken() == "  1.0%  step 10/1000  loss 3.5000  1234 tok/s  1s  left 1m39s\n");
  f.now = 5.9;
  progress.update(20, 0.02, 3.4, 1234);
  CHECK(f.taken().empty());
  f.now = 6;
  progress.update(250, 0.25, 3.25, 45678);
  CHECK(f.taken() == " 25.0%  step 250/1000  loss 3.2500  45.7k tok/s  6s  left 18s\n");
  progress.message("saved");
  CHECK(f.taken() == "saved\n");
  f.now = 8;
  progress.update(1000, 1, 3, 2.5e6);
  CHECK(f.taken().empty());
  progress.finish();
  CHECK(f.taken() == "100.0%  step 1000/1000  loss 3.0000  2.50M tok/s  8s  left 0s\n");
  progress.finish();
  progress.update(1001, 1, 3, 1);
  CHECK(f.taken().empty());
}

TEST_CASE("a terminal gets one line that is redrawn", "[progress]") {
  Fixture f;
  Progress progress(100, f.options(true));
  f.now = 10;
  progress.update(50, 0.5, 1.5, 100);
  CHECK(f.taken() ==
        "\r[============>-----------]  50% step 50/100  loss 1.5000  100 tok/s  10s  left 10s"
        "\x1b[K");
  f.now = 10.05;
  progress.update(51, 0.51, 1.5, 100);
  CHECK(f.taken().empty());  // too soon to redraw
  progress.message("note");
  const std::string text = f.taken();
  CHECK(text.rfind("\r\x1b[Knote\n\r[", 0) == 0);
  CHECK(text.find("step 51/100") != std::string::npos);
  progress.finish();
  CHECK(f.taken() == "\n");
  progress.message("after");
  CHECK(f.taken() == "after\n");
}

TEST_CASE("a progress line never wraps", "[progress]") {
  for (const int columns : {1, 10, 40, 64, 80, 200}) {
    Fixture f;
    {
      Progress progress(123456789, f.options(true, columns));
      f.now = 90000;
      progress.update(12345678, 0.1, 1.23456, 123456);
    }
    const std::string text = f.taken();
    const std::string end = "\x1b[K\n";  // the destructor ends the open line
    REQUIRE(text.size() >= end.size() + 1);
    CHECK(text.substr(text.size() - end.size()) == end);
    CHECK(static_cast<int>(text.size() - end.size() - 1) <= columns - 1);
  }
}

TEST_CASE("unknown values are left out", "[progress]") {
  Fixture f;
  Progress progress(0, f.options(false));
  progress.update(3, 0, kNan, kNan);
  CHECK(f.taken() == "  0.0%  step 3  0s  left ?\n");
  f.now = 10;
  progress.update(4, kNan, 2, kNan);
  CHECK(f.taken() == "  0.0%  step 4  loss 2.0000  10s  left ?\n");
}

TEST_CASE("the time left of a resumed run counts only its own steps", "[progress]") {
  Fixture f;
  ProgressOptions options = f.options(false);
  options.starting_fraction = 0.5;
  Progress progress(100, options);
  f.now = 10;
  progress.update(60, 0.6, 1, 1);
  CHECK(f.taken().find("left 40s") != std::string::npos);
}

// Keeps each write apart, as standard error does.
class Writes : public std::streambuf {
 public:
  std::vector<std::string> texts;

 private:
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    texts.emplace_back(text, size_t(size));
    return size;
  }
  int overflow(int c) override {
    texts.emplace_back(1, char(c));
    return c;
  }
};

TEST_CASE("a line is one write, so that a signal handler's line cannot divide it", "[progress]") {
  Fixture f;
  Writes writes;
  std::ostream out(&writes);
  ProgressOptions options = f.options(false);
  options.out = &out;
  Progress progress(100, options);
  progress.update(1, 0.01, 1, 1);
  progress.message("a message");
  f.now = 100;
  progress.update(2, 0.02, 1, 1);
  REQUIRE(writes.texts.size() == 3);
  for (const std::string& text : writes.texts) CHECK(text.back() == '\n');
}

TEST_CASE("nothing is shown before the first update", "[progress]") {
  Fixture f;
  { Progress progress(10, f.options(true)); }
  CHECK(f.taken().empty());
  Progress progress(10, f.options(true));
  progress.finish();
  CHECK(f.taken().empty());
}

}  // namespace
