// The training programs with tiny models on generated data.
#pragma once

#include <string>
#include <vector>

#include "tests/examples/tiny_run.h"

namespace stretto::examples::testing {

inline const Arguments tiny_model{"--layers", "1",  "--d-model",  "16", "--heads",   "2",
                                  "--batch",  "2",  "--warmup",   "5",  "--threads", "1",
                                  "--steps",  "40", "--d-hidden", "32"};

/// A program with a tiny model (a few hundredths of a second) on generated data.
struct Tiny {
  std::string name;
  Arguments more;

  std::string path() const { return find_program(name); }
  /// Arguments for a run with output directory `out`.
  Arguments command(const std::string& out, const Arguments& others = {}) const {
    Arguments all = tiny_model;
    all.insert(all.end(), more.begin(), more.end());
    all.insert(all.end(), {"--out", out});
    all.insert(all.end(), others.begin(), others.end());
    return all;
  }
};

inline const Tiny lm{
    "train_lm",
    {"--length", "16", "--validation-tokens", "64", "--eval-length", "64", "--held-out", "0.001"}};
inline const Tiny lra{
    "lra",
    {"--small", "--expressions", "60", "--held-out-expressions", "20", "--max-depth", "2",
     "--min-expression", "2", "--max-expression", "8", "--max-length", "8", "--d-head", "0"}};

/// Returns the programs that were built.
inline std::vector<Tiny> programs() {
  std::vector<Tiny> all{
      lm,
      lra,
      {"train_chorales", {"--length", "32", "--generate", "0", "--final-stride", "32"}},
      {"harmonize", {"--length", "8", "--pieces", "0"}},
      {"train_music",
       {"--length", "16", "--eval-length", "16", "--validation-windows", "2", "--eval-windows", "2",
        "--generate", "0", "--picture-length", "8", "--features", "8"}},
      {"groove", {"--length", "16", "--continuations", "0", "--features", "8"}}};
  std::erase_if(all, [](const Tiny& tiny) { return tiny.path().empty(); });
  return all;
}

}  // namespace stretto::examples::testing
