// Checks of trainings that a test makes in its own process. `make()` returns a pointer to a
// TrainingProgram that is ready to train.
#pragma once

#include "core/parallel.h"
#include "core/storage.h"
#include "examples/training/training_program.h"
#include "tests/examples/temp_dir.h"
#include "tests/support/catch.h"

namespace stretto::examples::testing {

/// Returns settings of a model with one tiny layer.
template <class Settings>
Settings with_tiny_model(Settings s = {}) {
  s.layers = 1, s.d_model = 16, s.heads = 2, s.d_hidden = 32;
  s.learning_rate = 0.01;
  s.warmup = 5;
  return s;
}

/// Checks that a run resumed after `first` steps has the checkpoint of an undisturbed one `more`
/// steps later, and that `evaluate(training)` in between uses no random numbers.
template <class Make, class Evaluate>
void check_resumes(const Make& make, int first, int more, const Evaluate& evaluate) {
  const TempDir folder;
  const auto whole = make();
  for (int i = 0; i < first; ++i) whole->train_step(0.1);
  whole->save(folder.file("a"));
  for (int i = 0; i < more; ++i) whole->train_step(0.2);
  whole->save(folder.file("b"));

  const auto resumed = make();
  resumed->train_step(0.5);
  resumed->load(folder.file("a"));
  CHECK(resumed->step() == first);
  evaluate(*resumed);
  CHECK(resumed->model->training());  // the mode is restored
  for (int i = 0; i < more; ++i) resumed->train_step(0.2);
  resumed->save(folder.file("c"));
  CHECK(read_file(folder.file("b")) == read_file(folder.file("c")));
}

/// Checks that a checkpoint after four steps does not depend on the number of threads.
template <class Make>
void check_any_threads(const Make& make) {
  const TempDir folder;
  const int before = num_threads();
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    const auto training = make();
    for (int i = 0; i < 4; ++i) training->train_step(0);
    training->save(folder.file(std::to_string(threads)));
  }
  set_num_threads(before);
  CHECK(read_file(folder.file("1")) == read_file(folder.file("2")));
}

/// Checks that `least()`, a lower bound, is at most the memory that two steps use, and not below a
/// tenth of it; and that later steps free what they allocate.
template <class Make, class Least>
void check_least_memory(const Make& make, const Least& least) {
  const int64_t before = memory_stats().live;
  reset_peak_memory();
  const auto training = make();
  for (int i = 0; i < 2; ++i) training->train_step(0);
  const double taken = double(memory_stats().peak - before);
  CHECK(least(*training) < taken);
  CHECK(least(*training) > taken / 10);
  training->train_step(0);
  const int64_t live = memory_stats().live;
  training->train_step(0);
  CHECK(memory_stats().live == live);
}

}  // namespace stretto::examples::testing
