// The training programs with tiny models on generated data.
#pragma once

#include <string>
#include <vector>

#include "tests/examples/tiny_run.h"

namespace stretto::examples::testing {

inline const Arguments tiny_model = words(
    "--layers 1 --d-model 16 --heads 2 --batch 2 --warmup 5 --threads 1 "
    "--steps 40 --d-hidden 32");

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

/// Returns the programs of programs.def.
inline std::vector<Tiny> all_programs() {
#define PROGRAM(name, options) {#name, words(options)},
  return {
#include "tests/examples/programs.def"
  };
#undef PROGRAM
}

/// Returns those that were built.
inline std::vector<Tiny> programs() {
  std::vector<Tiny> all = all_programs();
  std::erase_if(all, [](const Tiny& tiny) { return tiny.path().empty(); });
  return all;
}

inline Tiny tiny_program(const std::string& name) {
  for (const Tiny& tiny : all_programs())
    if (tiny.name == name) return tiny;
  return {name, {}};
}
inline const Tiny lm = tiny_program("train_lm"), lra = tiny_program("lra");

}  // namespace stretto::examples::testing
