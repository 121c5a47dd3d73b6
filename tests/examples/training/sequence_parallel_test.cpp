// --sequence-parallel: the losses of one process, with less memory per process.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/examples/training/mpirun.h"
#include "tests/support/catch.h"

using namespace stretto::examples::testing;
using std::string, std::vector;

namespace {

const vector<string> tiny = words(
    "--layers 2 --d-model 32 --heads 2 --d-hidden 64 --batch 2 "
    "--micro-batches 2 --length 256 --dropout 0 --steps 6 --evaluate-every "
    "2");
const vector<string> music = words(
    "--eval-length 64 --eval-windows 1 --validation-windows 2 --generate 0 "
    "--picture-length 8");

vector<string> arguments(const Case& c, int processes, const string& out,
                         const vector<string>& more) {
  vector<string> all{"-n", std::to_string(processes), find_program(c.program)};
  for (const auto* some : {&tiny, &c.settings, &more})
    all.insert(all.end(), some->begin(), some->end());
  all.insert(all.end(), {"--out", out});
  return all;
}

vector<string> with(vector<string> settings, const vector<string>& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

// The rows of metrics.csv: step, seconds, losses, …, peak bytes.
vector<vector<double>> metrics(const string& folder) {
  std::ifstream file(folder + "/metrics.csv");
  vector<vector<double>> all;
  string line, number;
  for (std::getline(file, line); std::getline(file, line);) {
    std::istringstream cells(line);
    all.emplace_back();
    while (std::getline(cells, number, ',')) all.back().push_back(std::stod(number));
  }
  return all;
}

}  // namespace

TEST_CASE("Processes with sequence parallelism have the losses of one process, in less memory",
          "[processes]") {
  if (!has_mpirun()) STRETTO_SKIP(no_mpirun);
  const vector<Case> cases{
      {"train_music", with(music, {"--attention", "softmax", "--position", "music"})},
      {"train_music", with(music, {"--attention", "softmax", "--position", "music-local"})},
      {"train_music", with(music, {"--attention", "performer", "--position", "sine"})},
      {"train_lm", {"--position", "xl", "--memory", "0"}},
      {"train_lm", {"--position", "deberta", "--memory", "0"}}};
  for (const Case& c : cases) {
    const TempDir dir;
    struct Run {
      int processes, chunks;
    };
    vector<string> command = arguments(c, 1, dir.file("none"), {"--parameters"});
    const string answer = run(command[2], {command.begin() + 3, command.end()}).out;
    // Each parameter has a weight, a gradient and two moments of the optimizer.
    const double parameters = std::stod(answer.substr(answer.rfind('\n', answer.size() - 2) + 1));
    vector<vector<double>> one;
    for (const Run r : {Run{1, 1}, Run{4, 2}, Run{4, 4}}) {
      const string out = dir.file(std::to_string(r.processes) + std::to_string(r.chunks));
      const vector<string> more{"--sequence-parallel", std::to_string(r.chunks)};
      const Ended ended = run(env, mpirun({}, arguments(c, r.processes, out, more)));
      INFO(c.program << ", " << r.processes << " processes, " << r.chunks
                     << " chunks per sequence: " << ended.err);
      REQUIRE(ended.status == 0);
      const auto got = metrics(out);
      if (r.processes == 1) one = got;
      REQUIRE(got.size() == 3);
      for (size_t i = 0; i < got.size(); ++i)
        for (const size_t column : {2U, 3U, 5U})  // losses and gradient norm
          CHECK(std::abs(got[i][column] - one[i][column]) < 3e-6);
      const auto activations = [&](const auto& run) { return run.back().back() - 16 * parameters; };
      if (r.chunks == 4) CHECK(activations(got) < 0.7 * activations(one));
    }
  }
}

TEST_CASE("Settings that --sequence-parallel does not support are reported in one line",
          "[processes]") {
  const TempDir dir;
  const string out = dir.file("out");
  const Case c{"train_music", music}, lm{"train_lm", {"--position", "xl"}};
  const auto check_error = [&](const Case& of, int n, const vector<string>& more,
                               const string& line) {
    vector<string> command = arguments(of, n, out, more);
    const Ended ended = n == 1 ? run(command[2], {command.begin() + 3, command.end()})
                               : run(env, mpirun({}, command));
    INFO(ended.err);
    CHECK(ended.status != 0);
    CHECK(ended.err.find(line) != string::npos);
    CHECK_FALSE(std::filesystem::exists(out + "/checkpoint.safetensors"));
  };
  const string number = ": must be a power of two that divides the number of processes, ";
  check_error(c, 1, {"--sequence-parallel", "2"},
              "--sequence-parallel 2" + number + "1 (mpirun -n)");
  check_error(c, 1, {"--sequence-parallel", "0"}, "--sequence-parallel 0" + number);
  if (!has_mpirun()) STRETTO_SKIP(no_mpirun);
  const vector<string> two{"--sequence-parallel", "2"};
  check_error(c, 2, {"--sequence-parallel", "4"}, "--sequence-parallel 4" + number + "2");
  check_error(c, 2, with(two, {"--length", "33"}), "sequences of 33 positions cannot be split");
  check_error(c, 2, with(two, {"--dtype", "bf16"}), "needs f32");
  check_error(lm, 2, with(two, {"--memory", "32"}), "needs --memory 0");
}
