// What the tests of the training programs share: runs of a few hundredths of a second, and what
// every such program must do.
#pragma once

#include <csignal>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/examples/program.h"
#include "tests/support/catch.h"

/// Skips the running test where the program was not built.
#define NEEDS_PROGRAM(name)                                                                 \
  if (::stretto::examples::testing::find_program(name).empty())                             \
  STRETTO_SKIP(name                                                                         \
               " is not built (STRETTO_EXAMPLES=OFF) or not where it was; STRETTO_BIN_DIR " \
               "names its folder")

namespace stretto::examples::testing {

using Arguments = std::vector<std::string>;

/// Command lines of a program that work in a folder of their own, into its folder `out`.
class TinyRun {
 public:
  /// `settings`: what every command line begins with; of an option given twice the last one counts.
  /// They may overwrite earlier results.
  TinyRun(const std::string& program_, Arguments settings_);

  std::string file(const std::string& name) const { return folder_.file(name); }
  std::string out(const std::string& name = "") const {
    return file(name.empty() ? "out" : "out/" + name);
  }
  /// Whether there is a picture of this name, whole and in both files.
  bool drew(const std::string& name) const;
  std::string checkpoint_path() const { return read_file(out("checkpoint.safetensors")); }

  Arguments command(const Arguments& more = {}) const;
  Arguments resuming(Arguments more = {}) const;
  Ended run(const Arguments& more = {}) const { return testing::run(path, command(more)); }
  Ended resume(const Arguments& more = {}) const { return testing::run(path, resuming(more)); }

  const std::string program, path;  // its name, and where it lies
  Arguments settings;

 private:
  TempDir folder_;
};

/// metrics.csv without its times: what two equal runs measure.
std::string measured(const TinyRun& tiny);

int64_t count_lines(const std::string& text);

/// --help names the options of `settings` (settings_to_metadata) and `others`, each with a
/// description.
void check_help(const std::string& name, const std::map<std::string, std::string>& settings,
                const Arguments& others);

/// The last line that the program prints with --parameters; it makes nothing.
std::string printed_parameters(const std::string& name, const Arguments& arguments);

/// A command line that is refused, and all that is said then, without the program's name.
struct Refusal {
  Arguments arguments;
  std::string told;
};
/// Each is refused with status 2 and one line, and nothing in the folder changes.
void check_refusals(const TinyRun& tiny, const std::vector<Refusal>& refusals);

/// A run that Ctrl-C stops says how to go on, and then ends with the checkpoint of one that was not
/// stopped. `Tiny` is a TinyRun without arguments.
template <class Tiny>
void check_stopped_run_goes_on(const Arguments& longer) {
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
  CHECK(tiny.checkpoint_path() != whole.checkpoint_path());
  REQUIRE(tiny.resume(longer).status == 0);
  CHECK(tiny.checkpoint_path() == whole.checkpoint_path());
}

}  // namespace stretto::examples::testing
