// The programs under mpirun: the same bytes for any number of processes, and errors.
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>

#include "tests/examples/training/mpirun.h"
#include "tests/support/catch.h"

using namespace stretto::examples::testing;
using std::string, std::vector;

namespace {

const vector<string> tiny = words(
    "--layers 1 --d-model 32 --heads 2 --d-hidden 64 --batch 8 "
    "--evaluate-every 5");

vector<Case> cases() {
  return {{"train_lm", words("--position xl --length 32 --memory 32 --dropout 0.1")},
          {"train_lm", words("--position alibi --length 32 --memory 0")},
          {"train_chorales", {"--length", "32", "--dropout", "0.1"}},
          {"harmonize", {"--length", "16"}},
          {"groove", {"--attention", "performer", "--position", "sine"}},
          {"train_music", {"--length", "64", "--attention", "performer-hyperbolic"}},
          {"lra", words("--max-length 120 --min-expression 20 --max-expression 100 "
                        "--expressions 64 --held-out-expressions 16 --attention linear-elu "
                        "--position conv")}};
}

vector<string> arguments(const Case& c, int processes, const string& out, int steps,
                         const vector<string>& more = {}) {
  vector<string> all{"-n", std::to_string(processes), find_program(c.program)};
  all.insert(all.end(), tiny.begin(), tiny.end());
  all.insert(all.end(), c.settings.begin(), c.settings.end());
  all.insert(all.end(), {"--steps", std::to_string(steps), "--out", out});
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// Validation losses as printed in metrics.csv, one per line.
string validation_losses(const string& folder) {
  std::ifstream file(folder + "/metrics.csv");
  string line, losses;
  for (std::getline(file, line); std::getline(file, line);) {
    size_t at = 0;
    for (int column = 0; column < 3; ++column) at = line.find(',', at) + 1;
    losses += line.substr(at, line.find(',', at) - at) + "\n";
  }
  return losses;
}

}  // namespace

TEST_CASE("1, 2 and 4 processes write the same checkpoint", "[processes]") {
  if (!has_mpirun()) STRETTO_SKIP(no_mpirun);
  for (const Case& c : cases()) {
    const TempDir dir;
    string losses;  // evaluations are distributed, too
    const auto checkpoint = [&](int n, const vector<string>& more) {
      const string out = dir.file(std::to_string(n) + std::to_string(more.size()));
      const Ended ended = run(env, mpirun({}, arguments(c, n, out, 12, more)));
      INFO(c.program << ", " << n << " processes: " << ended.err);
      REQUIRE(ended.status == 0);
      if (n > 1)
        CHECK(lines_with(ended.out, " processes; gradient communication per process and step: ") ==
              1);
      if (n == 1) losses = validation_losses(out);
      CHECK(lines_with(losses, "\n") == 2);
      CHECK(validation_losses(out) == losses);
      return checkpoint_bytes(out);
    };
    const string one = checkpoint(1, {});
    INFO(c.program);
    REQUIRE(one.size() > 1000);
    CHECK(checkpoint(2, {}) == one);
    CHECK(checkpoint(4, {}) == one);
    CHECK(checkpoint(4, {"--shard-optimizer"}) == one);
  }
}

TEST_CASE("One process with 8 micro-batches has the checkpoint of two processes", "[processes]") {
  const TempDir dir;
  Case c = cases()[0];
  vector<string> alone = arguments(c, 1, dir.file("alone"), 6, {"--micro-batches", "8"});
  const Ended ended = run(alone[2], {alone.begin() + 3, alone.end()});
  INFO(ended.err);
  REQUIRE(ended.status == 0);
  if (!has_mpirun()) STRETTO_SKIP(no_mpirun);
  const string out = dir.file("two");
  REQUIRE(run(env, mpirun({}, arguments(c, 2, out, 6))).status == 0);
  CHECK(checkpoint_bytes(out) == checkpoint_bytes(dir.file("alone")));
}

TEST_CASE("Evaluations of two processes do not change the training", "[processes]") {
  if (!has_mpirun()) STRETTO_SKIP(no_mpirun);
  const TempDir dir;
  const auto tensors = [&](const string& tokens, const string& every) {
    const string out = dir.file(tokens + "-" + every);
    const Ended ended =
        run(env, mpirun({}, arguments(cases()[0], 2, out, 6,
                                      {"--validation-tokens", tokens, "--evaluate-every", every})));
    INFO(ended.err);
    REQUIRE(ended.status == 0);
    string file = checkpoint_bytes(out);  // without the header, which has the settings
    uint64_t header = 0;
    std::memcpy(&header, file.data(), sizeof header);
    return file.substr(8 + header);
  };
  const string expected = tensors("200", "3");
  REQUIRE(expected.size() > 1000);
  CHECK((tensors("500", "3") == expected));
  CHECK((tensors("500", "2") == expected));
}

TEST_CASE("A run ends if a process is killed, and resumes on another number of processes",
          "[processes]") {
  if (!has_mpirun()) STRETTO_SKIP(no_mpirun);
  const Case c = cases()[0];
  const TempDir dir;
  const string whole = dir.file("whole"), cut = dir.file("cut");
  const int steps = 200;
  int killed = 0;
  const char* const kills = std::getenv("STRETTO_KILLS");  // default 2, as more take long
  const int turns = kills ? std::atoi(kills) : 2;
  REQUIRE(turns > 0);
  REQUIRE(run(env, mpirun({}, arguments(c, 2, whole, steps, {"--save-every", "20"}))).status == 0);
  for (int turn = 0; turn < turns; ++turn) {
    INFO("turn " << turn);
    std::filesystem::remove_all(cut);
    {
      Program program(env, mpirun({}, arguments(c, 4, cut, steps, {"--save-every", "20"})));
      REQUIRE(program.wait_for("step"));
      std::this_thread::sleep_for(std::chrono::milliseconds(turn * 397 % 900));
      // One of the four processes.
      signal_process(program, "KILL", "train_lm.*" + cut, turn * 3 % 4);
      const Ended ended = program.wait();
      INFO(ended.err);
      if (ended.status != 0) CHECK(ended.err.find("Killed") != string::npos);
      killed += ended.status != 0;
    }
    vector<string> more{"--save-every", "20"};
    if (!checkpoint_bytes(cut).empty()) {
      more.insert(more.end(), {"--resume", cut + "/checkpoint.safetensors"});
    } else {
      more.emplace_back("--overwrite");
    }
    const Ended again = run(env, mpirun({}, arguments(c, turn % 2 == 1 ? 1 : 2, cut, steps, more)));
    INFO(again.err);
    REQUIRE(again.status == 0);
    CHECK(checkpoint_bytes(cut) == checkpoint_bytes(whole));
  }
  CHECK(killed > 0);
  if (kills) std::cout << killed << " of " << turns << " runs were killed before their end\n";
}

TEST_CASE("Errors between processes are one clear line", "[processes]") {
  const Case c = cases()[0];
  const TempDir dir;
  const string out = dir.file("out");
  {  // as started by mpirun, but without the MPI library
    const vector<string> plain = arguments(c, 1, out, 5);
    vector<string> all{"OMPI_COMM_WORLD_SIZE=1", "OMPI_COMM_WORLD_RANK=0",
                       "STRETTO_MPI=/nowhere.so", plain[2]};
    all.insert(all.end(), plain.begin() + 3, plain.end());
    const Ended ended = run(env, all);
    CHECK(ended.status != 0);
    INFO(ended.err);
    CHECK(ended.one_line());
    CHECK(ended.complaint().find("/nowhere.so") != string::npos);
    CHECK_FALSE(std::filesystem::exists(out));
  }
  if (!has_mpirun()) STRETTO_SKIP(no_mpirun);
  const auto check_error = [&](const vector<string>& settings, const vector<string>& command,
                               const string& line) {
    const Ended ended = run(env, mpirun(settings, command));
    INFO(ended.err);
    CHECK(ended.status != 0);
    CHECK(lines_with(ended.err, line) == 1);
    CHECK_FALSE(std::filesystem::exists(out));
  };
  check_error({}, arguments(c, 3, out, 5), "3 processes; the number must be a power of two");
  check_error({}, arguments(c, 2, out, 5, {"--micro-batches", "1"}),
              "micro_batches 1 with 2 processes; must be");
  check_error({}, arguments(c, 2, out, 5, {"--micro-batches", "16"}),
              "8 rows cannot be split into 16 micro-batches");
  vector<string> others = arguments(c, 1, out, 5);
  const vector<string> second = arguments(c, 1, out, 5, {"--seed", "2"});
  others.emplace_back(":");
  others.insert(others.end(), second.begin(), second.end());
  check_error({}, others, "rank 1 has --seed 2, rank 0 has 1");
}

TEST_CASE("A run ends if a process hangs", "[processes]") {
  if (!has_mpirun()) STRETTO_SKIP(no_mpirun);
  const Case c = cases()[0];
  const TempDir dir;
  const string out = dir.file("out");
  Program program(env, mpirun({"STRETTO_PROCESS_TIMEOUT=3"}, arguments(c, 2, out, 5'000'000)));
  REQUIRE(program.wait_for("step"));
  signal_process(program, "STOP", "train_lm.*" + out, 1);
  const Ended ended = program.wait();
  INFO(ended.err);
  CHECK(ended.status != 0);
  CHECK(lines_with(ended.err, "process 1 of 2 has not answered process 0 for 3 seconds") == 1);
}
