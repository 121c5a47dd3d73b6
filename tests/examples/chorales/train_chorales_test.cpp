// train_chorales from start to end: its output and its files.

#include "tests/examples/chorales/train_chorales.h"

#include <cmath>
#include <filesystem>
#include <regex>

#include "examples/chorales/chorale_program.h"
#include "tests/examples/tiny_programs.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT

}  // namespace

TEST_CASE("train_chorales writes music, pictures and metrics", "[examples]") {
  NEEDS_PROGRAM("train_chorales");
  const TinyChorales tiny;
  const Ended ended = tiny.run(words("--steps 40 --generate 24 --prime 4"));
  INFO(ended.err);
  REQUIRE(ended.status == 0);
  CHECK_THAT(ended.out,
             Containing("Read 3 chorales for training and 1 for validation. Position music, "));
  for (const char* name : {"\n  unigram  ", "\n  bigram per voice  ", "\n  music model  "})
    CHECK_THAT(ended.out, Containing(name));

  for (const char* name : {"loss", "attention", "generated", "primed"}) CHECK(tiny.drew(name));

  // Each evaluation is compared with the n-gram baseline.
  const std::string all = ended.out + ended.err;
  const std::regex comparison(
      "validation ([0-9.]+), baseline ([0-9.]+): ([0-9.]+) (below|above)(\n|\r|$)");
  std::smatch bigram;
  REQUIRE(std::regex_search(ended.out, bigram, std::regex("bigram per voice +([0-9.]+)")));
  int evaluations = 0;
  for (std::sregex_iterator at(all.begin(), all.end(), comparison), end; at != end;
       ++at, ++evaluations) {
    const double validation = std::stod((*at)[1]), counting = std::stod((*at)[2]);
    CHECK((*at)[2] == bigram[1]);
    CHECK(std::stod((*at)[3]) == Approx(std::abs(validation - counting)).margin(2e-4));
    CHECK((*at)[4] == (validation < counting ? "below" : "above"));
  }
  CHECK(evaluations == 20);
  for (const char* name : {"generated.mid", "primed.mid"})
    CHECK(read_file(tiny.out(name)).rfind("MThd", 0) == 0);

  std::istringstream metrics(read_file(tiny.out("metrics.csv")));
  std::string line;
  std::getline(metrics, line);
  CHECK(line ==
        "step,seconds,train_loss,valid_loss,learning_rate,gradient_norm,tokens_per_second,"
        "peak_bytes");
  int step = 0;
  while (std::getline(metrics, line)) CHECK(std::stoi(line) == (step += 2));  // twenty rows
  CHECK(step == 40);
}

TEST_CASE("generated chorales are saved", "[examples]") {
  for (const char* name : {"train_chorales", "harmonize"}) {
    if (find_program(name).empty()) continue;
    const TempDir folder;
    const Ended ended =
        run(find_program(name), tiny_program(name).command(folder.file("out"), {"--steps", "2"}));
    INFO(ended.err);
    CHECK(ended.status == 0);
    CHECK_THAT(ended.out, Containing("Generated 200 chorales"));
    CHECK(load_chorales(folder.file("out/chorales.json")).train.size() == 200);
  }
}

TEST_CASE("train_chorales stops at NaN, and --anomaly names the op", "[examples]") {
  NEEDS_PROGRAM("train_chorales");
  const std::vector<std::string> explosive =
      words("--learning-rate 1e5 --warmup 0 --save-every 1 --evaluate-every 1000");
  std::vector<std::string> watched = explosive;
  watched.push_back("--anomaly");
  for (const bool anomaly : {false, true}) {
    const TinyChorales tiny;
    const Ended ended = tiny.run(anomaly ? watched : explosive);
    INFO(ended.err);
    CHECK(ended.status == 1);
    const std::string start = "train_chorales: [train] step ";
    REQUIRE(ended.complaint().rfind(start, 0) == 0);
    const int step = std::stoi(ended.complaint().substr(start.size()));
    CHECK(step > 1);
    CHECK_THAT(ended.complaint(),
               anomaly ? Containing(": [") && Containing("this op produced NaN or infinity")
                       : Containing(": the ") && Containing(" is ") &&
                             Containing("; anomaly detection names the op that first produces it"));

    const std::string saved = tiny.checkpoint();  // of the previous step
    CHECK_THAT(saved, Containing("\"stretto.step\":\"" + std::to_string(step - 1) + "\""));
    const Ended again = tiny.resume(anomaly ? watched : explosive);
    CHECK(again.status == 1);
    CHECK(again.complaint() == ended.complaint());
    CHECK(tiny.checkpoint() == saved);
  }
}
