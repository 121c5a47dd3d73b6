// Shared by the tests of the training programs: runs of a few hundredths of a second, and checks
// that every program must pass.
#pragma once

#include <csignal>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/examples/program.h"
#include "tests/support/catch.h"

/// Skips the running test if the program was not built.
#define NEEDS_PROGRAM(name)                                                                 \
  if (::stretto::examples::testing::find_program(name).empty())                             \
  STRETTO_SKIP(name                                                                         \
               " is not built (STRETTO_EXAMPLES=OFF) or not where it was; STRETTO_BIN_DIR " \
               "names its folder")

namespace stretto::examples::testing {

using Arguments = std::vector<std::string>;

/// Command lines of a program with its own directory and --out `out` in it.
class TinyRun {
 public:
  /// `settings` begin every command line; if an option is given twice, the last one counts. Earlier
  /// results may be overwritten.
  TinyRun(const std::string& program_, Arguments settings_);

  std::string file(const std::string& name) const { return folder_.file(name); }
  std::string out(const std::string& name = "") const {
    return file(name.empty() ? "out" : "out/" + name);
  }
  /// True if the picture of this name exists and is complete.
  bool drew(const std::string& name) const;
  std::string checkpoint() const { return read_file(out("checkpoint.safetensors")); }

  Arguments command(const Arguments& more = {}) const;
  Arguments resuming(Arguments more = {}) const;
  Ended run(const Arguments& more = {}) const { return testing::run(path, command(more)); }
  Ended resume(const Arguments& more = {}) const { return testing::run(path, resuming(more)); }

  const std::string program, path;  // its name and path
  Arguments settings;

 private:
  TempDir folder_;
};

/// Returns metrics.csv without times, speed and memory: the same for equal runs.
std::string measured(const TinyRun& tiny);

int64_t count_lines(const std::string& text);

/// Checks that --help lists the options of `settings` (settings_to_metadata) and `others`, each
/// with a description.
void check_help(const std::string& name, const std::map<std::string, std::string>& settings,
                const Arguments& others);

/// Returns the last line that the program prints with --parameters; checks that it writes nothing.
std::string printed_parameters(const std::string& name, const Arguments& arguments);

/// A command line that is rejected, and the whole error message without the name of the program.
struct Refusal {
  Arguments arguments;
  std::string expected;
};
/// Checks that each is rejected with status 2 and one line, and that no file changes.
void check_refusals(const TinyRun& tiny, const std::vector<Refusal>& refusals);

/// Checks that a run stopped by Ctrl-C prints how to resume, and after resuming has the checkpoint
/// of an undisturbed run. `Tiny` is a TinyRun without arguments.
template <class Tiny>
void check_stopped_run_resumes(const Arguments& longer) {
  const Tiny whole, tiny;
  REQUIRE(whole.run(longer).status == 0);
  {
    Program running(tiny.path, tiny.command(longer));
    REQUIRE(running.wait_for("step "));
    running.signal(SIGINT);
    const Ended ended = running.wait();
    INFO(ended.err << ended.out);
    CHECK(ended.status == 130);
    CHECK_THAT(ended.out, Containing("repeat the command with --resume " +
                                     tiny.out("checkpoint.safetensors") + "\n"));
  }
  CHECK(tiny.checkpoint() != whole.checkpoint());
  REQUIRE(tiny.resume(longer).status == 0);
  CHECK(tiny.checkpoint() == whole.checkpoint());
}

}  // namespace stretto::examples::testing
