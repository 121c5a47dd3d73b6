// A trainer compares its ranks before the first step, and their number with a checkpoint.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "nn/distributed/process_group.h"
#include "nn/linear.h"
#include "nn/training/trainer.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/examples/training/mpirun.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace stretto;                     // NOLINT
using namespace stretto::examples::testing;  // NOLINT

constexpr const char* variable = "STRETTO_TEST_DIFFERENCE";
constexpr const char* folder_variable = "STRETTO_TEST_FOLDER";

namespace {

// Trains or resumes a run of `steps` steps in a folder. Prints an error, and if it changed weights.
void train_in(const std::string& folder, int64_t steps) {
  manual_seed(1);
  nn::Linear model({.in = 4, .out = 2});
  nn::SGD optimizer(model.parameters(), {.lr = 0.1});
  nn::Trainer trainer(model, optimizer, {.steps = steps, .folder = folder, .quiet = true});
  const std::vector<double> before = model.weight.to_vector<double>();
  try {
    trainer.resume();
    trainer.run([&](int64_t) { return mean(square(model(ones({4, 4}, {.device = cpu})))); });
  } catch (const Error& e) {
    const bool unchanged = model.weight.to_vector<double>() == before;
    std::fprintf(stderr, "%s (%s)\n", e.what(), unchanged ? "unchanged" : "changed");
  }
}

}  // namespace

// Started by mpirun below. Rank 1 differs in what the variable names.
TEST_CASE("trains on ranks that differ", "[.][differing_ranks]") {
  const auto differs = [](const char* what) {
    return nn::process_group().rank() == 1 && std::string(std::getenv(variable)) == what;
  };
  manual_seed(1);
  nn::Linear model({.in = 4, .out = 2});
  if (differs("weights")) model.weight.detach().mul_(1.5);
  if (differs("seed")) manual_seed(2);
  if (differs("frozen")) model.freeze();
  nn::ParameterGroup all;
  all.parameters = model.parameters();
  all.lr_scale = differs("lr_scale") ? 0.5 : 1;
  nn::SGD optimizer(std::vector{all}, {.lr = differs("rate") ? 0.2 : 0.1});
  nn::Trainer trainer(model, optimizer,
                      {.steps = differs("steps") ? 3 : 2,
                       .micro_batches = 2,
                       .metadata = {{"text", differs("metadata") ? "b" : "a"}},
                       .quiet = true});
  try {
    trainer.run([&](int64_t batch) {
      const Tensors x = trainer.stage(batch, [](int64_t) {
        return Tensors{ones({4, 4}, {.device = cpu})};
      });
      return mean(square(model(x[0])));
    });
    std::fprintf(stderr, "trained %d steps\n", int(trainer.steps_done()));
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
  }
  nn::process_group().finish();
}

TEST_CASE("A trainer names what differs between ranks, on all of them", "[processes]") {
  if (!has_mpirun()) STRETTO_SKIP(no_mpirun);
  const std::vector<std::pair<std::string, std::string>> differences{
      {"nothing", "trained 2 steps"},
      {"steps", "[Trainer] rank 1 has steps 3, rank 0 has 2; all ranks must make the same calls"},
      {"metadata", "[Trainer] rank 1 has text b, rank 0 has a;"},
      {"rate", "[Trainer] rank 1 has learning rates 0.2, rank 0 has 0.1;"},
      {"frozen", "[Trainer] rank 1 has trained parameters none, rank 0 has weight, bias;"},
      {"lr_scale", "[Trainer] rank 1 has parameter groups 2 tensors, lr_scale 0.5, weight_decay 0"},
      {"weights", "[Trainer] rank 1 has weights with the checksum "},
      {"seed", "[Trainer] rank 1 has random state 2 "}};
  for (const auto& [difference, text] : differences) {
    const Ended ended = run(env, mpirun({std::string(variable) + "=" + difference},
                                        {"-n", "2", std::filesystem::read_symlink("/proc/self/exe"),
                                         "[differing_ranks]"}));
    INFO(difference << ": " << ended.err);
    CHECK(lines_with(ended.err, text) == 2);
  }
}

// Started by mpirun below, with the folder in the variable.
TEST_CASE("resumes a run of one process", "[.][resuming_ranks]") {
  const char* const folder = std::getenv(folder_variable);
  if (!folder) return;
  train_in(folder, 2);
  nn::process_group().finish();
}

TEST_CASE("Processes that do not divide a checkpoint's micro-batches are named", "[processes]") {
  if (!has_mpirun()) STRETTO_SKIP(no_mpirun);
  const testing::TempDir dir;
  train_in(dir.file("x"), 1);  // one micro-batch
  const Ended ended =
      run(env,
          mpirun({std::string(folder_variable) + "=" + dir.file("x")},
                 {"-n", "2", std::filesystem::read_symlink("/proc/self/exe"), "[resuming_ranks]"}));
  INFO(ended.err);
  CHECK(lines_with(ended.err,
                   "checkpoint.safetensors: has micro_batches 1, this run 2 processes; "
                   "a run can only be resumed with a number of processes that divides "
                   "micro_batches (unchanged)") == 2);
}
