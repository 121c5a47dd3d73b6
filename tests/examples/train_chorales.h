// What the tests of the program train_chorales share: a run of a few hundredths of a second.
#pragma once

#include <string>
#include <vector>

#include "examples/common/portable_random.h"
#include "examples/music/chorale.h"
#include "tests/examples/program.h"
#include "tests/support/catch.h"

/// Skips the running test where the program was not built.
#define NEEDS_TRAIN_CHORALES                                                     \
  if (::stretto::examples::testing::find_program("train_chorales").empty())      \
  STRETTO_SKIP(                                                                  \
      "train_chorales is not built (STRETTO_EXAMPLES=OFF) or not where it was; " \
      "STRETTO_BIN_DIR names its folder")

namespace stretto::examples::testing {

inline Chorale random_chorale(PortableRandom& random, int steps) {
  Chorale chorale;
  for (int i = 0; i < steps; ++i) {
    chorale.steps.push_back({60 + random.below(12), 55 + random.below(10), 48 + random.below(12),
                             random.percent(20) ? -1 : 36 + random.below(16)});
  }
  return chorale;
}

inline ChoraleSet tiny_chorales() {
  PortableRandom random(7);
  ChoraleSet set;
  for (int i = 0; i < 3; ++i) set.train.push_back(random_chorale(random, 20));
  set.valid.push_back(random_chorale(random, 12));
  set.test.push_back(random_chorale(random, 12));
  return set;
}

/// A folder with tiny.json, and command lines that train on it into the folder's folder `out`.
class TinyRun {
 public:
  TinyRun() { save_chorales(folder_.file("tiny.json"), tiny_chorales()); }

  std::string out(const std::string& name = "") const {
    return folder_.file(name.empty() ? "out" : "out/" + name);
  }
  std::string file(const std::string& name) const { return folder_.file(name); }
  std::string checkpoint() const { return read_file(out("checkpoint.safetensors")); }

  /// Defaults come first: of an option given twice the last one counts.
  std::vector<std::string> command(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = settings;
    all.insert(all.end(), {"--data", file("tiny.json"), "--out", out(), "--threads", "1",
                           "--save-every", "3", "--generate", "0"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::vector<std::string> resuming(std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"--resume", out("checkpoint.safetensors")});
    return command(more);
  }

  /// Those that a checkpoint keeps; may be emptied.
  std::vector<std::string> settings{
      "--layers", "1",  "--d-model", "16", "--heads",  "2", "--d-hidden",          "32",
      "--length", "32", "--batch",   "2",  "--warmup", "5", "--attention-dropout", "0.1",
      "--steps",  "60"};

  static std::string program() { return find_program("train_chorales"); }
  Ended run(const std::vector<std::string>& more = {}) const {
    return testing::run(program(), command(more));
  }
  Ended resume(const std::vector<std::string>& more = {}) const {
    return testing::run(program(), resuming(more));
  }

 private:
  TempDir folder_;
};

}  // namespace stretto::examples::testing
