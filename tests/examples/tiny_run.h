// Shared by the tests of the training programs: runs of a few hundredths of a second, and checks
// that every program must pass.
#pragma once

#include <cstdint>
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

/// Returns the metrics.csv of a directory without times, speed and memory: the same for equal runs.
std::string measured(const std::string& out);

int64_t count_lines(const std::string& text);

/// A command line that is rejected, and the whole error message without the name of the program.
struct Refusal {
  Arguments arguments;
  std::string expected;
};
/// Checks that each is rejected with status 2 and one line, and that no file changes.
void check_refusals(const TinyRun& tiny, const std::vector<Refusal>& refusals);

}  // namespace stretto::examples::testing
