// train_chorales from start to end: what it says and what it makes.

#include "tests/examples/train_chorales.h"

#include <algorithm>
#include <filesystem>

#include "examples/music/chorale_training.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT

}  // namespace

TEST_CASE("train_chorales --help names every option", "[examples]") {
  NEEDS_TRAIN_CHORALES;
  const Ended ended = run(TinyRun::program(), {"--help"});
  CHECK(ended.status == 0);
  CHECK(ended.err.empty());
  std::vector<std::string> options{"data",           "out",          "resume",   "minutes",
                                   "threads",        "device",       "generate", "prime",
                                   "save-every",     "final-stride", "top-p",    "temperature",
                                   "evaluate-every", "anomaly",      "help",     "parameters"};
  for (const auto& note : ChoraleSettings().to_notes()) {
    std::string name = note.first;
    std::replace(name.begin(), name.end(), '_', '-');
    options.push_back(name);
  }
  for (const std::string& option : options) CHECK_THAT(ended.out, Containing("--" + option + " "));
  std::istringstream lines(ended.out);
  for (std::string line; std::getline(lines, line);)
    if (line.find("  --") == 0) CHECK(line.size() > 33);  // all have a description
}

TEST_CASE("train_chorales makes music, pictures and metrics", "[examples]") {
  NEEDS_TRAIN_CHORALES;
  const TinyRun tiny;
  const Ended ended = tiny.run({"--steps", "40", "--generate", "24", "--prime", "4"});
  INFO(ended.err);
  REQUIRE(ended.status == 0);
  CHECK_THAT(ended.out, Containing("Read 3 chorales to learn from and 1 to judge by. relative"));
  for (const char* name : {"\n  unigram  ", "\n  bigram per voice  ", "\n  relative model  "})
    CHECK_THAT(ended.out, Containing(name));

  for (const char* name : {"loss.png", "attention.png", "generated.png", "primed.png"})
    CHECK(read_file(tiny.out(name)).rfind("\x89PNG", 0) == 0);
  for (const char* name : {"generated.mid", "primed.mid"})
    CHECK(read_file(tiny.out(name)).rfind("MThd", 0) == 0);

  std::istringstream metrics(read_file(tiny.out("metrics.csv")));
  std::string line;
  std::getline(metrics, line);
  CHECK(line == "step,seconds,train_loss,valid_loss,learning_rate,gradient_norm,tokens_per_second");
  int step = 0;
  while (std::getline(metrics, line)) CHECK(std::stoi(line) == (step += 2));  // twenty in all
  CHECK(step == 40);
}

TEST_CASE("train_chorales composes its own data, and goes by the clock", "[examples]") {
  NEEDS_TRAIN_CHORALES;
  const TinyRun tiny;
  const Ended ended =
      run(TinyRun::program(),
          {"--minutes", "0.005", "--layers", "1", "--d-model", "16", "--heads", "2", "--d-hidden",
           "16", "--length", "32", "--final-stride", "32", "--generate", "0", "--out", tiny.out()});
  INFO(ended.err);
  CHECK(ended.status == 0);
  CHECK_THAT(ended.out, Containing("Generated 200 chorales"));
  CHECK(load_chorales(tiny.out("chorales.json")).train.size() == 200);
}

TEST_CASE("train_chorales --parameters prints their number and makes nothing", "[examples]") {
  NEEDS_TRAIN_CHORALES;
  const TinyRun tiny;
  CHECK(tiny.run({"--parameters"}).status == 0);
  CHECK_FALSE(std::filesystem::exists(tiny.out()));
  // The defaults: 148 tokens twice, 4 layers with attention without biases, and with tables of 512
  // rows for 4 heads of 32.
  const int64_t layer = 4 * 128 * 128 + 2 * 128 * 512 + 512 + 128 + 4 * 128;
  const int64_t absolute = 2 * chorale_vocabulary * 128 + 4 * layer + 2 * 128;
  CHECK(run(TinyRun::program(), {"--parameters"}).out ==
        std::to_string(absolute + 4 * 4 * 512 * 32) + "\n");
  CHECK(run(TinyRun::program(), {"--parameters", "--attention", "absolute"}).out ==
        std::to_string(absolute) + "\n");
}

TEST_CASE("train_chorales stops at NaN, and --anomaly names the op", "[examples]") {
  NEEDS_TRAIN_CHORALES;
  const std::vector<std::string> explosive{"--learning-rate", "1e5", "--warmup",         "0",
                                           "--save-every",    "1",   "--evaluate-every", "1000"};
  std::vector<std::string> watched = explosive;
  watched.push_back("--anomaly");
  for (const bool anomaly : {false, true}) {
    const TinyRun tiny;
    const Ended ended = tiny.run(anomaly ? watched : explosive);
    INFO(ended.err);
    CHECK(ended.status == 1);
    const std::string start = "train_chorales: step ";
    REQUIRE(ended.complaint().rfind(start, 0) == 0);
    const int step = std::stoi(ended.complaint().substr(start.size()));
    CHECK(step > 1);
    CHECK_THAT(ended.complaint(),
               anomaly ? Containing(": [") && Containing("] the ") &&
                             Containing(" of this op is the first with NaN or infinity")
                       : Containing(": the ") && Containing(" is ") &&
                             Containing("; --anomaly names the op that first makes it so"));

    const std::string saved = tiny.checkpoint();  // the one of the step before
    CHECK_THAT(saved, Containing("\"stretto.step\":\"" + std::to_string(step - 1) + "\""));
    const Ended again = tiny.resume(anomaly ? watched : explosive);
    CHECK(again.status == 1);
    CHECK(again.complaint() == ended.complaint());
    CHECK(tiny.checkpoint() == saved);
  }
}
