// train_chorales, ended at any moment in any way, resumes bit-identically.

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "tests/examples/chorales/train_chorales.h"

namespace {

using namespace stretto::examples::testing;  // NOLINT
using stretto::examples::PortableRandom;

void check_finished(const Ended& ended) {
  INFO(ended.err);
  CHECK(ended.status == 0);
}

// A run long enough for a signal to arrive before its end, with one or two threads.
const Arguments longer{"--steps", "2000", "--save-every", "500"};

}  // namespace

TEST_CASE("train_chorales killed at any moment resumes bit-identically", "[examples]") {
  NEEDS_PROGRAM("train_chorales");
  const TinyChorales whole;
  const Ended reference = whole.run();
  check_finished(reference);
  const std::set<std::string> files = names_in(whole.out());
  CHECK(files.count("checkpoint.safetensors") == 1);

  PortableRandom random(2024);
  int killed = 0, resumed = 0;
  for (int trial = 0; trial < 20; ++trial) {
    const TinyChorales tiny;
    const double share = trial == 0 ? 0 : random.below(1000) / 1000.0;
    {
      Program program(tiny.path, tiny.command());
      std::this_thread::sleep_for(std::chrono::duration<double>(share * reference.seconds));
      program.signal(SIGKILL);
      killed += program.wait().status == 128 + SIGKILL;
    }
    const bool begun = std::filesystem::exists(tiny.out("checkpoint.safetensors"));
    resumed += begun;
    INFO("trial " << trial << ", killed after " << share << " of " << reference.seconds << " s");
    check_finished(begun ? tiny.resume() : tiny.run());
    CHECK(tiny.checkpoint() == whole.checkpoint());
    CHECK(names_in(tiny.out()) == files);  // no temporary file remains
  }
  CHECK(killed > 0);
  CHECK(resumed > 0);
}

TEST_CASE("train_chorales overwrites the unfinished files of a killed run", "[examples]") {
  NEEDS_PROGRAM("train_chorales");
  const TinyChorales tiny;
  std::filesystem::create_directory(tiny.out());
  for (const char* name : {"checkpoint.safetensors.tmp", "metrics.csv.tmp", "loss.svg.tmp"})
    write_file(tiny.out(name), std::string(1 << 20, 'x'));
  check_finished(tiny.run({"--steps", "6"}));
  check_finished(tiny.resume({"--steps", "6"}));  // a resumed run rewrites metrics.csv
  for (const std::string& name : names_in(tiny.out()))
    CHECK(name.find(".tmp") == std::string::npos);
}

TEST_CASE("evaluation, generation and threads do not change the random numbers of train_chorales",
          "[examples]") {
  NEEDS_PROGRAM("train_chorales");
  const TinyChorales plain, busy;
  check_finished(plain.run({"--evaluate-every", "1000"}));
  check_finished(
      busy.run(words("--evaluate-every 1 --final-stride 1 --generate 8 --save-every 7 "
                     "--threads 2 --anomaly")));
  CHECK(plain.checkpoint() == busy.checkpoint());
  // Resuming a finished run repeats only its final evaluation and output.
  check_finished(busy.resume({"--generate", "8"}));
  CHECK(plain.checkpoint() == busy.checkpoint());
}

TEST_CASE("train_chorales can be stopped during the final evaluation", "[examples]") {
  NEEDS_PROGRAM("train_chorales");
  const TinyChorales tiny;
  PortableRandom random(3);
  stretto::examples::ChoraleSet set = tiny_chorales();
  set.valid = {random_chorale(random, 8000)};  // takes seconds
  save_chorales(tiny.file("tiny.json"), set);
  Program program(tiny.path, tiny.command({"--final-stride", "1", "--evaluate-every", "1000"}));
  REQUIRE(program.wait_for("step 60/60"));
  program.signal(SIGTERM);
  const Ended ended = program.wait();
  INFO(ended.err << ended.out);
  CHECK(ended.status == 128 + SIGTERM);
  CHECK_THAT(ended.out, Containing("Stopped at step 60. "));
}

TEST_CASE("train_chorales keeps the last good checkpoint on a full disk", "[examples]") {
  NEEDS_PROGRAM("train_chorales");
  const TinyChorales whole, tiny;
  check_finished(whole.run(longer));
  {
    Program program(tiny.path, tiny.command(longer));
    REQUIRE(program.wait_for("step 100:"));
    program.signal(SIGINT);
    REQUIRE(program.wait().status == 130);
  }
  const std::string before = tiny.checkpoint();
  const std::string name = tiny.out("checkpoint.safetensors");
  const long too_little = long(before.size()) / 2;
  const auto check_complaint = [&](const Ended& ended) {
    INFO(ended.err);
    CHECK(ended.status == 1);
    CHECK(ended.complaint() == "train_chorales: [save] " + name + ": write failed: File too large");
    CHECK(tiny.checkpoint() == before);
    CHECK(names_in(tiny.out()).count("checkpoint.safetensors.tmp") == 0);
  };
  check_complaint(run(tiny.path, tiny.resuming(longer), {.largest_file = too_little}));

  // Saving on Ctrl-C fails, too.
  Program program(tiny.path, tiny.resuming({"--steps", "2000", "--save-every", "5000"}),
                  {.largest_file = too_little});
  REQUIRE(program.wait_for("step "));
  program.signal(SIGINT);
  check_complaint(program.wait());

  check_finished(tiny.resume(longer));
  CHECK(tiny.checkpoint() == whole.checkpoint());
}

TEST_CASE("train_chorales stops if it cannot write its metrics", "[examples]") {
  NEEDS_PROGRAM("train_chorales");
  const TinyChorales tiny;
  const Ended ended =
      run(tiny.path, tiny.command({"--save-every", "5000", "--evaluate-every", "1"}),
          {.largest_file = 180});
  INFO(ended.err);
  CHECK(ended.status == 1);
  CHECK(ended.complaint() == "train_chorales: [MetricsCsv] cannot write '" +
                                 tiny.out("metrics.csv") + "': File too large");
}
