// The files of a run, and resuming it: no step is lost, skipped or repeated, and runs never mix.
#include <atomic>
#include <cmath>
#include <filesystem>
#include <thread>

#include "nn/dropout.h"
#include "nn/linear.h"
#include "nn/training/trainer.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_dir.h"

using namespace stretto;           // NOLINT
using namespace stretto::testing;  // NOLINT
namespace fs = std::filesystem;

namespace {

struct Net : nn::Module {
  nn::Linear first{*this, "first", {.in = 3, .out = 4}};
  nn::Dropout dropout{*this, "dropout", {.p = 0.2}};
  nn::Linear last{*this, "last", {.in = 4, .out = 1}};
  Tensor operator()(const Tensor& x) const { return last(dropout(relu(first(x)))); }
};

struct Fit {
  Net net = (manual_seed(3), Net());
  nn::AdamW optimizer{net.parameters(), {.lr = 0.01}};
  nn::Trainer trainer;
  std::vector<int64_t> batches;  // in the order of their losses
  double validation = 1;

  explicit Fit(nn::TrainerOptions o) : trainer(net, optimizer, (o.quiet = true, o)) {}
  Tensor loss(int64_t batch) {
    batches.push_back(batch);
    const auto make = [](int64_t i) { return Tensors{full({2, 3}, double(i % 5) - 2)}; };
    const Tensor x = trainer.stage(batch, make)[0], error = net(x) - sum(x, {1}, true);
    return mean(error * error);
  }
  bool run() {
    return trainer.run([&](int64_t i) { return loss(i); }, [&] { return validation; });
  }
  std::vector<float> weights() const { return net.first.weight.to_vector<float>(); }
};

std::function<bool()> after(int64_t steps) {
  return [steps, asked = int64_t(0)]() mutable { return ++asked > steps; };
}

}  // namespace

TEST_CASE("A learning rate set by the program is resumed", "[trainer]") {
  const TempDir dir;
  const auto run = [&](const std::string& name, std::function<bool()> stop) {
    Fit fit({.steps = 10, .folder = dir.file(name), .stop = std::move(stop)});
    fit.trainer.options.after_step = [&](const nn::StepResult&) {
      fit.optimizer.set_learning_rate(0.7 * fit.optimizer.learning_rate());
    };
    fit.trainer.resume();
    fit.run();
    return std::pair(fit.trainer.learning_rate(), fit.weights());
  };
  const auto whole = run("whole", {});
  run("parts", after(5));
  CHECK(run("parts", {}) == whole);
  CHECK(whole.first == Approx(0.01 * std::pow(0.7, 10)));
  CHECK(read_file(dir.file("parts/checkpoint.safetensors")) ==
        read_file(dir.file("whole/checkpoint.safetensors")));
}

TEST_CASE("The number of micro-batches is part of the checkpoint", "[trainer]") {
  const TempDir dir;
  Fit fit({.steps = 3, .micro_batches = 2, .folder = dir.file("x")});
  REQUIRE(fit.run());
  CHECK(fit.batches == std::vector<int64_t>{0, 0, 1, 1, 2, 2});
  Fit other({.steps = 5, .micro_batches = 4, .folder = dir.file("x")});
  const std::string path = other.trainer.checkpoint_path();
  CHECK(error_of<Error>([&] { other.trainer.resume(); }) ==
        "[load] " + path +
            ": has micro_batches 2, this run 4; a run can only be resumed with equal settings");
  Fit more({.steps = 5, .folder = dir.file("x")});
  REQUIRE(more.trainer.resume());
  CHECK(more.trainer.options.micro_batches == 2);
  REQUIRE(more.run());
  CHECK(more.batches == std::vector<int64_t>{3, 3, 4, 4});

  nn::TrainingState state = nn::load_training_state(path);
  CHECK(state.metadata.at("trainer.micro_batches") == "2");
  state.metadata["trainer.micro_batches"] = "1.5";
  const std::string odd = dir.file("odd");
  nn::save_checkpoint(odd, more.net, &more.optimizer, state);
  CHECK(error_of<Error>([&] { more.trainer.load(odd); }) ==
        "[load] " + odd + ": metadata \"trainer.micro_batches\" is missing or malformed");
}

TEST_CASE("A run resumes only with its schedule, lr_scale and weight decay", "[trainer]") {
  const TempDir dir;
  Net net;
  const auto trained = [&](nn::AdamWOptions o, double lr_scale, const nn::TrainerOptions& run) {
    nn::AdamW optimizer({{.parameters = net.first.parameters(), .lr_scale = lr_scale},
                         {.parameters = net.last.parameters(), .weight_decay = 0.0}},
                        o);
    nn::Trainer trainer(net, optimizer, run);
    trainer.resume();
    return trainer.run([&](int64_t) { return mean(square(net(ones({2, 3})))); });
  };
  const auto options = [&](int64_t steps, std::optional<nn::Schedule> schedule) {
    return nn::TrainerOptions{
        .steps = steps, .schedule = schedule, .folder = dir.file("x"), .quiet = true};
  };
  const nn::WarmupCosine cosine{.peak = 0.01, .warmup = 2, .steps = 4};
  REQUIRE(trained({}, 0.5, options(2, cosine)));
  const std::string path = dir.file("x") + "/checkpoint.safetensors",
                    end = "; a run can only be resumed with equal settings; ",
                    saved = "[load] " + path +
                            ": has schedule WarmupCosine(peak 0.01, warmup 2, floor 0), this run ",
                    change = end +
                             "to change the rate, set Trainer::options.schedule, or call "
                             "set_learning_rate() of the optimizer, after loading";
  const auto other = options(4, nn::WarmupCosine{.peak = 0.02, .warmup = 2, .steps = 4});
  CHECK(error_of<Error>([&] { trained({}, 0.5, other); }) ==
        saved + "WarmupCosine(peak 0.02, warmup 2, floor 0)" + change);
  CHECK(error_of<Error>([&] { trained({.lr = 0.5}, 0.5, options(4, {})); }) ==
        saved + "none, lr 0.5" + change);
  const std::string groups =
      "[load] " + path +
      ": has groups lr_scale 0.5, weight_decay 0.01; lr_scale 1, weight_decay 0, this run ";
  CHECK(error_of<Error>([&] { trained({.weight_decay = 0.1}, 0.5, options(4, cosine)); }) ==
        groups + "lr_scale 0.5, weight_decay 0.1; lr_scale 1, weight_decay 0" + end +
            "load_checkpoint() does not compare them");
  CHECK(error_of<Error>([&] { trained({}, 2, options(4, cosine)); }) ==
        groups + "lr_scale 1, weight_decay 0; lr_scale 2, weight_decay 0.01" + end +
            "load_checkpoint() does not compare them");
  CHECK(trained({}, 0.5, options(4, nn::WarmupCosine{.peak = 0.01, .warmup = 2, .steps = 9})));
}

TEST_CASE("A learning rate of the optimizer beside a schedule is an error", "[trainer]") {
  Net net;
  nn::AdamW optimizer(net.parameters(), {.lr = 0.01});
  CHECK_THROWS_WITH(nn::Trainer(net, optimizer, {.steps = 1, .schedule = nn::ConstantRate{}}),
                    "[Trainer] the optimizer has lr 0.01, which the schedule replaces; set one of "
                    "them");
}

TEST_CASE("A finished run can be continued for more steps", "[trainer]") {
  const TempDir dir;
  const auto options = [&](int64_t steps, const char* name) {
    return nn::TrainerOptions{.steps = steps, .evaluate_every = 2, .folder = dir.file(name)};
  };
  Fit whole(options(6, "whole"));
  REQUIRE(whole.run());
  Fit short_one(options(4, "more"));
  REQUIRE(short_one.run());
  Fit more(options(6, "more"));
  REQUIRE(more.trainer.resume());
  REQUIRE(more.run());
  CHECK(more.weights() == whole.weights());
  CHECK(more.trainer.metrics().rows().size() == 3);
}

TEST_CASE("The error of a checkpoint with other trained parameters names them", "[trainer]") {
  const TempDir dir;
  const std::string path = dir.file("c");
  Fit all({.steps = 2});
  all.run();
  all.trainer.save(path);
  const std::string
      begin = "[load] " + path + ": the saved run",
      end = "; freeze the same parameters and pass the same ones to the optimizer before loading";

  Fit frozen({.steps = 4});
  frozen.net.first.freeze();
  CHECK(error_of<Error>([&] { frozen.trainer.load(path); }) ==
        begin + " trained 2 parameters (first.weight, first.bias) that this one does not" + end);
  Net net;
  nn::AdamW of_head(net.last.parameters(), {.lr = 0.01});
  CHECK(error_of<Error>([&] { nn::Trainer(net, of_head, {.steps = 4}).load(path); }) ==
        begin + " trained 2 parameters (first.weight, first.bias) that this one does not" + end);

  frozen.run();
  frozen.trainer.save(path);
  CHECK(error_of<Error>([&] { all.trainer.load(path); }) ==
        begin + " did not train 2 parameters (first.weight, first.bias) that this one trains" +
            end);
  Fit same({.steps = 4});
  same.net.first.freeze();
  same.trainer.load(path);
  CHECK(same.trainer.steps_done() == 4);
  same.net.first.unfreeze();  // from here on
  same.trainer.options.steps = 5;
  const std::vector<float> before = same.weights();
  same.run();
  CHECK(same.weights() != before);
}

TEST_CASE("A directory that holds another run is an error", "[trainer]") {
  const TempDir dir;
  const nn::TrainerOptions options{.steps = 2, .evaluate_every = 1, .folder = dir.file("x")};
  Fit first(options);
  REQUIRE(first.run());
  const std::string checkpoint = first.trainer.checkpoint_path(),
                    metrics = dir.file("x/metrics.csv");
  const std::string weights = read_file(checkpoint), rows = read_file(metrics);
  const auto refused = [&](const std::string& file) {
    const std::string words = "[Trainer] " + file +
                              " belongs to another run; resume() continues a run that has a "
                              "checkpoint, and .overwrite = true replaces it";
    CHECK(error_of<Error>([&] { Fit(options).run(); }) == words);
    CHECK(error_of<Error>([&] { Fit(options).trainer.metrics(); }) == words);
    CHECK(read_file(metrics) == rows);
  };
  refused(checkpoint);
  CHECK(read_file(checkpoint) == weights);

  // A checkpoint from elsewhere does not allow mixing two runs.
  Fit other({.steps = 2, .folder = dir.file("y")});
  REQUIRE(other.run());
  Fit from_there(options);
  from_there.trainer.load(other.trainer.checkpoint_path());
  CHECK_THROWS_AS(from_there.run(), Error);
  Fit elsewhere({.steps = 3, .folder = dir.file("z")});
  elsewhere.trainer.load(other.trainer.checkpoint_path());
  CHECK(elsewhere.run());

  // With overwrite the old run stays complete until the new one has a checkpoint.
  nn::TrainerOptions over = options;
  over.overwrite = true;
  Fit broken(over);
  CHECK_THROWS_AS(broken.trainer.run([&](int64_t i) { return broken.loss(i) / double(1 - i); }),
                  Error);
  CHECK(read_file(metrics) == rows);
  CHECK(read_file(checkpoint) == weights);
  over.steps = 3;
  Fit again(over);
  REQUIRE(again.run());
  CHECK(again.trainer.metrics().rows().size() == 3);
  CHECK(nn::load_training_state(checkpoint).step == 3);
  CHECK(entries(dir.file("x")) == 2);

  // Metrics without a checkpoint are a run too; a header without rows is not.
  fs::remove(checkpoint);
  const std::string three = read_file(metrics);
  CHECK_THROWS_AS(Fit(options).run(), Error);
  CHECK(read_file(metrics) == three);
  write_file(metrics, three.substr(0, three.find('\n') + 1));
  CHECK(Fit(options).run());
}

TEST_CASE("An evaluation that two resumed runs repeat has one row", "[trainer]") {
  const TempDir dir;
  const nn::TrainerOptions options{.steps = 4, .evaluate_every = 2, .folder = dir.file("x")};
  {  // stopped within the evaluation of step 2, with a checkpoint
    Fit fit(options);
    CHECK_THROWS_AS(fit.trainer.run([&](int64_t i) { return fit.loss(i); },
                                    []() -> double { throw Error("stopped"); }),
                    Error);
    fit.trainer.save(fit.trainer.checkpoint_path());
  }
  {  // killed after that evaluation, before the next checkpoint
    Fit fit(options);
    REQUIRE(fit.trainer.resume());
    CHECK_THROWS_AS(
        fit.trainer.run([](int64_t) -> Tensor { throw Error("killed"); }, [] { return 1.0; }),
        Error);
  }
  Fit rest(options);
  REQUIRE(rest.trainer.resume());
  REQUIRE(rest.run());
  const auto rows = rest.trainer.metrics().rows();
  REQUIRE(rows.size() == 2);
  CHECK(rows[0][0] == 2);
  CHECK(rows[1][0] == 4);
}

TEST_CASE("A checkpoint that another run replaces is read as one file", "[trainer]") {
  const TempDir dir;
  const std::string path = dir.file("checkpoint.safetensors");
  Fit fit({.steps = 3});
  fit.run();
  for (const int64_t step : {1, 2}) {
    const nn::TrainingState state{.step = step};
    fit.net.first.bias.detach().fill_(double(step));
    nn::save_checkpoint(dir.file(std::to_string(step)), fit.net, &fit.optimizer, state);
  }
  std::atomic<bool> done = false;
  fs::copy_file(dir.file("1"), path);
  std::thread other([&] {
    for (int i = 0; !done; ++i) {
      fs::copy_file(dir.file(i % 2 == 0 ? "2" : "1"), dir.file("new"));
      fs::rename(dir.file("new"), path);
    }
  });
  int mixed = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto step = float(fit.trainer.load(path).step);
    mixed += fit.net.first.bias.to_vector<float>()[0] == step ? 0 : 1;
  }
  done = true;
  other.join();
  CHECK(mixed == 0);
}

TEST_CASE("The checkpoint before that of destroyed weights remains", "[trainer]") {
  const TempDir dir;
  const std::string previous = dir.file("x/checkpoint.previous.safetensors");
  nn::TrainerOptions options{.steps = 30, .folder = dir.file("x"), .save_every = 5};
  const auto step_of_previous = [&] { return nn::load_training_state(previous).step; };
  const auto destroy_at = [&](Fit& fit, int64_t step) {
    fit.trainer.options.after_step = [&fit, step](const nn::StepResult&) {
      if (fit.trainer.steps_done() == step - 1) fit.optimizer.set_learning_rate(1e30);
    };
  };
  Fit fit(options);
  destroy_at(fit, 20);
  CHECK_THAT(error_of<Error>([&] { fit.run(); }), Containing("[train] step 21: the loss is "));
  CHECK(nn::load_training_state(fit.trainer.checkpoint_path()).step == 20);
  CHECK(step_of_previous() == 15);
  // A run that resumes from the destroyed weights and makes no step.
  options.stop = [] { return true; };
  Fit stopped(options);
  REQUIRE(stopped.trainer.resume());
  CHECK(!stopped.run());
  CHECK(step_of_previous() == 15);
  options.stop = {};
  Fit same(options);
  same.trainer.load(previous);
  destroy_at(same, 20);
  CHECK_THROWS_AS(same.run(), Error);
  CHECK(nn::load_training_state(fit.trainer.checkpoint_path()).step == 20);
  CHECK(step_of_previous() == 15);
  fs::rename(previous, fit.trainer.checkpoint_path());
  Fit again(options);
  REQUIRE(again.trainer.resume());
  destroy_at(again, 30);  // by the last step, which no other one follows
  CHECK(again.run());
  CHECK(step_of_previous() == 25);
}

TEST_CASE("A new run does not keep the previous checkpoint of another", "[trainer]") {
  const TempDir dir;
  const std::string previous = dir.file("x/checkpoint.previous.safetensors");
  fs::create_directory(dir.file("x"));
  write_file(previous, "mine");
  nn::TrainerOptions options{.steps = 5, .folder = dir.file("x")};
  CHECK_THAT(error_of<Error>([&] { Fit(options).run(); }),
             Containing(previous + " belongs to another run"));
  CHECK(read_file(previous) == "mine");
  options.overwrite = true;
  CHECK(Fit(options).run());
  CHECK(!fs::exists(previous));
}

TEST_CASE("Each step has the rate of its number, and a failed evaluation draws nothing",
          "[trainer]") {
  const nn::Schedule schedule = nn::WarmupCosine{.peak = 1e-3, .warmup = 3, .steps = 6};
  Net net;
  nn::AdamW optimizer(net.parameters(), {});
  std::vector<double> rates;
  nn::Trainer trainer(net, optimizer,
                      {.steps = 6,
                       .schedule = schedule,
                       .evaluate_every = 6,
                       .after_step = [&](auto&) { rates.push_back(optimizer.learning_rate()); },
                       .quiet = true});
  RandomState before{};
  CHECK_THROWS_AS(trainer.run(
                      [&](int64_t) {
                        return sum(square(net(ones({2, 3}))));
                      },
                      [&]() -> double {
                        before = random_state();
                        rand({1});
                        throw Error("validate");
                      }),
                  Error);
  CHECK(random_state().next_stream == before.next_stream);
  REQUIRE(rates.size() == 6);
  for (int64_t i = 0; i < 6; ++i) CHECK(rates[size_t(i)] == schedule.at(i + 1, 0));
}

TEST_CASE("A run is also saved after save_minutes", "[trainer]") {
  const TempDir dir;
  Fit fit({.steps = 10, .folder = dir.file("x"), .save_minutes = 1e-12});
  CHECK_THROWS_AS(fit.trainer.run([&](int64_t i) { return fit.loss(i) / double(7 - i); }), Error);
  CHECK(nn::load_training_state(fit.trainer.checkpoint_path()).step == 7);
  CHECK(nn::TrainerOptions().save_minutes > 0);
  int64_t saved = 0;
  Fit by_steps({.steps = 10, .save_every = 5, .save_minutes = 1e-12, .save = [&] { ++saved; }});
  by_steps.run();
  CHECK(saved == 3);  // 5, 10, and the end
}

TEST_CASE("Callbacks see the evaluation, custom columns and whether it is the best", "[trainer]") {
  const TempDir dir;
  const std::vector<double> validations{3, 1, 1, NAN, 0.5};
  const auto options = [&](std::function<bool()> stop) {
    return nn::TrainerOptions{.steps = 5,
                              .evaluate_every = 1,
                              .keep_best = true,
                              .columns = {{"accuracy", [] { return 0.25; }}},
                              .folder = dir.file("x"),
                              .stop = std::move(stop)};
  };
  std::vector<bool> best;
  const auto run = [&](std::function<bool()> stop) {
    Fit fit(options(std::move(stop)));
    fit.trainer.resume();
    fit.trainer.options.after_evaluation = [&] {
      const nn::Evaluation& e = fit.trainer.evaluation().value();
      CHECK(e.step == fit.trainer.steps_done());
      CHECK((e.validation == fit.validation || std::isnan(fit.validation)));
      best.push_back(e.best);
      if (!e.best) return;
      CHECK(fit.trainer.best_validation() == e.validation);
      CHECK(nn::load_training_state(fit.trainer.best_checkpoint_path()).step == e.step);
    };
    fit.trainer.run([&](int64_t i) { return fit.loss(i); },
                    [&] {
                      fit.validation = validations.at(size_t(fit.trainer.steps_done()) - 1);
                      return fit.validation;
                    });
    return fit.trainer.metrics().rows();
  };
  run(after(2));
  const auto rows = run({});
  CHECK(best == std::vector<bool>{true, true, false, false, true});
  REQUIRE(rows.size() == 5);
  CHECK(rows[4].size() == 9);
  CHECK(rows[4].back() == 0.25);
}
