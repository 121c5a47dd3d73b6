// The training loop: steps, the files of a run, and resuming it bit for bit.
#include "nn/training/trainer.h"

#include <cmath>
#include <filesystem>

#include "nn/dropout.h"
#include "nn/linear.h"
#include "nn/training/evaluate.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_dir.h"

using namespace stretto;           // NOLINT
using namespace stretto::testing;  // NOLINT

namespace {

struct Net : nn::Module {
  nn::Linear first{*this, "first", {.in = 3, .out = 8}};
  nn::Dropout dropout{*this, "dropout", {.p = 0.2}};
  nn::Linear last{*this, "last", {.in = 8, .out = 1}};
  Tensor operator()(const Tensor& x) const { return last(dropout(relu(first(x)))); }
};

// Fits the sum of three numbers; batches are random numbers of the program's random state.
struct Fit {
  Net net = (manual_seed(3), Net());
  nn::AdamW optimizer;
  nn::Trainer trainer;

  explicit Fit(nn::TrainerOptions o)
      : optimizer(net.parameters(), {.lr = o.schedule ? std::optional<double>() : 0.01}),
        trainer(net, optimizer, (o.quiet = true, o)) {}
  Tensor loss(int64_t rows = 8) {
    const auto batch = [rows](int64_t) { return Tensors{randn({rows, 3})}; };
    const Tensor x = trainer.stage(trainer.steps_done(), batch)[0];
    const Tensor error = net(x) - sum(x, {1}, true);
    return mean(error * error);
  }
  double validation() {
    const nn::EvalMode guard(net);
    return mean(net(ones({1, 3}))).item();
  }
  bool run() {
    return trainer.run([&](int64_t) { return loss(); }, [&] { return validation(); });
  }
};

}  // namespace

TEST_CASE("A run learns and writes metrics and a checkpoint", "[trainer]") {
  const TempDir dir;
  Fit fit({.steps = 60,
           .schedule = nn::WarmupCosine{.peak = 0.03, .warmup = 5},
           .max_grad_norm = 1,
           .evaluate_every = 20,
           .folder = dir.file("new")});
  CHECK_FALSE(fit.trainer.resume());
  const double before = fit.loss().item();
  REQUIRE(fit.run());
  CHECK(fit.trainer.steps_done() == 60);
  CHECK(fit.trainer.progress() == 1);
  CHECK(fit.loss().item() < before / 2);
  const auto rows = fit.trainer.metrics().rows();
  REQUIRE(rows.size() == 3);
  CHECK(rows[2][0] == 60);
  CHECK(rows[2][3] == fit.validation());
  CHECK(rows[2][4] == nn::WarmupCosine{.peak = 0.03, .warmup = 5}.at(60, 59.0 / 60));
  CHECK(nn::load_training_state(fit.trainer.checkpoint_path()).step == 60);
}

TEST_CASE("A run that was stopped is resumed bit for bit", "[trainer]") {
  const TempDir dir;
  const auto options = [&](const std::string& name) {
    return nn::TrainerOptions{.steps = 30,
                              .schedule = nn::WarmupCosine{.peak = 0.03, .steps = 30},
                              .max_grad_norm = 0.5,
                              .micro_batches = 2,
                              .evaluate_every = 7,
                              .folder = dir.file(name),
                              .metadata = {{"width", "8"}},
                              .save_every = 4};
  };
  Fit whole(options("whole"));
  REQUIRE(whole.run());

  int64_t steps = 0;
  nn::TrainerOptions stopped = options("parts");
  stopped.stop = [&] { return ++steps == 14; };
  Fit interrupted(stopped);
  CHECK_FALSE(interrupted.run());
  CHECK(interrupted.trainer.steps_done() == 13);
  // An evaluation that was interrupted is repeated when the run resumes.
  Fit broken(options("parts"));
  REQUIRE(broken.trainer.resume());
  CHECK_THROWS_AS(broken.trainer.run([&](int64_t) { return broken.loss(); },
                                     []() -> double { throw std::string("stopped"); }),
                  std::string);
  CHECK(broken.trainer.steps_done() == 14);
  broken.trainer.save(broken.trainer.checkpoint_path());

  Fit rest(options("parts"));
  REQUIRE(rest.trainer.resume());
  CHECK(rest.trainer.steps_done() == 14);
  REQUIRE(rest.run());
  CHECK(read_file(dir.file("whole") + "/checkpoint.safetensors") ==
        read_file(dir.file("parts") + "/checkpoint.safetensors"));
  const auto a = whole.trainer.metrics().rows(), b = rest.trainer.metrics().rows();
  REQUIRE(a.size() == 4);
  REQUIRE(b.size() == 4);
  for (size_t i = 0; i < a.size(); ++i)
    for (const size_t column : {0, 2, 3, 4, 5}) CHECK(a[i][column] == b[i][column]);

  nn::TrainerOptions other = options("parts");
  other.metadata["width"] = "9";
  CHECK(error_of<Error>([&] { Fit(other).trainer.resume(); }) ==
        "[load] " + rest.trainer.checkpoint_path() +
            ": has width 8, this run 9; a run can only be resumed with equal settings");
}

TEST_CASE("Evaluations do not change the training", "[trainer]") {
  const auto weights = [](int64_t micro_batches, int64_t every, int64_t batches, int failures) {
    Fit fit({.steps = 8, .micro_batches = micro_batches, .evaluate_every = every});
    fit.trainer.options.after_evaluation = [] { randn({1}); };
    const auto validate = [&] {
      return nn::mean_loss(fit.net, batches, [&](int64_t i) {
        const double loss = mean(randn({4})).item();
        check(i > 0 || --failures < 0, "test", "the evaluation fails");
        return nn::LossSum{loss, 1};
      });
    };
    bool done = false;
    while (!done) try {
        done = fit.trainer.run([&](int64_t) { return fit.loss(); }, validate);
      } catch (const Error&) {
      }
    return std::pair(fit.net.first.weight.to_vector<float>(), random_state().next_stream);
  };
  for (const int64_t micro_batches : {1, 2}) {
    const auto expected = weights(micro_batches, 8, 1, 0);
    CHECK(weights(micro_batches, 8, 3, 0) == expected);
    CHECK(weights(micro_batches, 2, 3, 0) == expected);
    CHECK(weights(micro_batches, 3, 2, 2) == expected);
  }
}

TEST_CASE("The gradient of micro-batches is that of the mean of their losses", "[trainer]") {
  const Tensor x = randn({4, 3});
  const auto gradient = [&](int64_t n) {
    Fit fit({.steps = 1, .micro_batches = n});
    fit.net.eval();
    const nn::StepResult result = fit.trainer.step([&] {
      const Tensor y = fit.net(fit.trainer.stage(0, [&](int64_t) { return Tensors{x}; })[0]);
      return mean(y * y);
    });
    return std::pair(result, fit.net.first.weight.grad().to_vector<double>());
  };
  const auto [one, whole] = gradient(1);
  const auto [two, halves] = gradient(2);
  CHECK(two.loss == Approx(one.loss).epsilon(1e-6));
  CHECK(two.gradient_norm == Approx(one.gradient_norm).epsilon(1e-6));
  for (size_t i = 0; i < whole.size(); ++i)
    CHECK(halves[i] == Approx(whole[i]).epsilon(1e-5).margin(1e-7));
}

TEST_CASE("A step that fails changes nothing", "[trainer]") {
  Fit fit({.steps = 3, .schedule = nn::WarmupCosine{.peak = 0.03, .warmup = 5}});
  int64_t reported = 0;
  fit.trainer.options.after_step = [&](const nn::StepResult&) { ++reported; };
  fit.trainer.step([&] { return fit.loss(); });
  const std::vector<float> before = fit.net.first.weight.to_vector<float>();
  const double rate = fit.trainer.learning_rate();
  CHECK(error_of<Error>([&] {
          fit.trainer.step([&] { return fit.loss() / 0.0; });
        }).rfind("[train] step 2: the loss is inf", 0) == 0);
  CHECK(error_of<Error>([&] {
          fit.trainer.step([&] { return matmul(ones({2, 3}), ones({2, 3})); });
        }).rfind("[train] step 2: [matmul] ", 0) == 0);
  CHECK(fit.net.first.weight.to_vector<float>() == before);
  CHECK(fit.trainer.learning_rate() == rate);
  CHECK(fit.trainer.steps_done() == 1);
  CHECK(reported == 1);
}

TEST_CASE("A step that fails uses no random numbers", "[trainer]") {
  // Batches and dropout are random numbers; step 3 fails at first.
  const auto weights_after = [](bool failing) {
    Fit fit({.steps = 5});
    const auto run = [&] {
      fit.trainer.run([&](int64_t step) {
        const Tensor loss = fit.loss();
        return failing && step == 2 ? loss / 0.0 : loss;
      });
    };
    if (failing) CHECK_THROWS_AS(run(), Error);
    failing = false;
    run();
    return fit.net.first.weight.to_vector<float>();
  };
  CHECK(weights_after(true) == weights_after(false));
}

TEST_CASE("A model with NaN in a parameter is not saved", "[trainer]") {
  const TempDir dir;
  Fit fit({.steps = 3, .folder = dir.file("x")});
  fit.trainer.metrics();
  fit.trainer.save(fit.trainer.checkpoint_path());
  const std::string before = read_file(fit.trainer.checkpoint_path());
  fit.net.last.weight.detach().flatten()[5].fill_(INFINITY);
  CHECK(error_of<Error>([&] { fit.trainer.save(fit.trainer.checkpoint_path()); }) ==
        "[train] step 0: last.weight holds inf; not saved to " + fit.trainer.checkpoint_path());
  CHECK(read_file(fit.trainer.checkpoint_path()) == before);
}

TEST_CASE("A run with a time limit saves the time that it took", "[trainer]") {
  const TempDir dir;
  const std::string path = dir.file("c");
  Fit fit({.minutes = 1e-4});
  REQUIRE(fit.run());
  CHECK(fit.trainer.seconds() >= 0.006);
  fit.trainer.save(path);
  Fit again({.minutes = 1});
  again.trainer.load(path);
  CHECK(again.trainer.seconds() >= 0.006);
  CHECK(again.trainer.progress() > 0);
}

TEST_CASE("A checkpoint with invalid metadata is an error", "[trainer]") {
  const TempDir dir;
  const std::string path = dir.file("c");
  Fit fit({.minutes = 1});
  fit.trainer.save(path);
  nn::TrainingState state = nn::load_training_state(path);
  const auto refused = [&](const std::string& what) {
    nn::save_checkpoint(path, fit.net, &fit.optimizer, state);
    CHECK(error_of<Error>([&] { fit.trainer.load(path); }) == "[load] " + path + ": " + what);
  };
  for (const char* name : {"trainer.train_loss.weight", "trainer.unmeasured.gradient_norm"}) {
    state.metadata[name] = "nan";
    refused(str("metadata \"", name, "\" is missing or malformed"));
    state.metadata.erase(name);
  }
  state.metadata["trainer.train_loss.weight"] = "0.5";
  refused("metadata \"trainer.train_loss.sum\" is missing or malformed");
  state.metadata.erase("trainer.train_loss.weight");
  state.metadata["trainer.seconds"] = "-1";
  refused("metadata \"trainer.seconds\" is missing or malformed");
  state.metadata.erase("trainer.seconds");
  refused("metadata \"trainer.seconds\" is missing or malformed");
  state.step = -1;
  refused("malformed, its step is -1");

  CHECK(error_of<Error>([] {
          Fit({.steps = 1, .micro_batches = -1});
        }).rfind("[Trainer] steps 1", 0) == 0);
  // Metadata of a loaded checkpoint, passed on whole, would make the new run impossible to resume.
  CHECK(error_of<Error>([] {
          Fit({.steps = 1, .metadata = {{"trainer.train_loss.sum", "1"}}});
        }).find("keys that begin with \"trainer.\" are reserved") != std::string::npos);
  CHECK(error_of<Error>([] { Fit({}).run(); }).rfind("[Trainer] neither steps nor minutes", 0) ==
        0);
}
