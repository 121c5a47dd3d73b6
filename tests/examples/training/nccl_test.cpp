// Programs on several GPUs, one per process, with gradients all-reduced by NCCL. Here by the
// stand-in for NCCL (tests/nccl) on the PTX interpreter; each process has one.
#include <filesystem>

#include "nn/distributed/nccl_reducer.h"
#include "tests/cuda/kernel_counts.h"
#include "tests/examples/training/mpirun.h"
#include "tests/support/catch.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::examples::testing;
using namespace stretto::testing;
using std::string, std::vector;

namespace {

const string through_host = "gradients go through the host";

vector<string> command(int processes, const string& out, const vector<string>& more = {},
                       const char* steps = "4") {
  vector<string> all{"-n", std::to_string(processes), find_program("train_lm")};
  all.insert(all.end(),
             {"--device",   "cuda", "--layers", "1",   "--d-model",        "32", "--heads",  "2",
              "--d-hidden", "64",   "--batch",  "8",   "--length",         "32", "--memory", "32",
              "--dropout",  "0.1",  "--steps",  steps, "--evaluate-every", "4",  "--out",    out});
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

TEST_CASE("several GPUs: checkpoints are bit-identical with NCCL and through the host", "[cuda]") {
  NEEDS_GPU();
  if (!has_counters())
    STRETTO_SKIP("NCCL needs a GPU per process; the stand-in needs the PTX interpreter");
  if (!has_mpirun()) STRETTO_SKIP(no_mpirun);
  const TempDir dir;
  int runs = 0;
  const auto checkpoint = [&](int n, const vector<string>& settings, bool by_nccl,
                              const vector<string>& more = {}) {
    const string out = dir.file(std::to_string(runs++));
    const Ended ended = run(env, mpirun(settings, command(n, out, more)));
    INFO(n << " processes: " << ended.err);
    REQUIRE(ended.status == 0);
    CHECK((ended.err.find(through_host) == string::npos) == by_nccl);
    return checkpoint_bytes(out);
  };
  const string one = checkpoint(1, {}, true);
  REQUIRE(one.size() > 1000);
  CHECK(checkpoint(4, {"PTX_STREAMS=lazy"}, true, {"--shard-optimizer"}) == one);
  CHECK(checkpoint(2, {"STRETTO_NCCL=/nowhere/libnccl.so"}, false) == one);
  CHECK(checkpoint(2, {"NCCL_STAND_IN_FAILS=init:1"}, false) == one);
}

TEST_CASE("several GPUs: an error of NCCL is printed in one line", "[cuda]") {
  NEEDS_GPU();
  if (!has_counters())
    STRETTO_SKIP("NCCL needs a GPU per process; the stand-in needs the PTX interpreter");
  if (!has_mpirun()) STRETTO_SKIP(no_mpirun);
  const TempDir dir;
  const Ended ended =
      run(env, mpirun({"NCCL_STAND_IN_FAILS=send:1"}, command(2, dir.file("failed"))));
  INFO(ended.err);
  CHECK(ended.status != 0);
  const string line = "[NCCL] ncclSend: unhandled system error; the stand-in was told to fail";
  CHECK(ended.err.find(line) != string::npos);
  CHECK(ended.err.find(line) == ended.err.rfind(line));
}

TEST_CASE("several GPUs: a process that hangs ends the run", "[cuda]") {
  NEEDS_GPU();
  if (!has_counters())
    STRETTO_SKIP("NCCL needs a GPU per process; the stand-in needs the PTX interpreter");
  if (!has_mpirun()) STRETTO_SKIP(no_mpirun);
  const TempDir dir;
  const vector<string> settings{"STRETTO_PROCESS_TIMEOUT=3", "PTX_STREAMS=lazy"};
  const string out = dir.file("hangs");
  Program program(env, mpirun(settings, command(2, out, {}, "100000")));
  REQUIRE(program.wait_for("step"));
  signal_process(program, "STOP", "train_lm.*" + out, 1);
  const Ended ended = program.wait();
  INFO(ended.err);
  CHECK(ended.status != 0);
  const int64_t silent = lines_with(ended.err, "has not answered");
  CHECK(silent <= 1);
  // If it was stopped during a message of NCCL, all processes have answered, and NCCL times out.
  CHECK((silent == 1 || lines_with(ended.err, "does not come") > 0));

  vector<string> stops = settings;
  stops.push_back("NCCL_STAND_IN_FAILS=stop:1");
  const Ended stopped = run(env, mpirun(stops, command(2, dir.file("stops"))));
  INFO(stopped.err);
  CHECK(stopped.status != 0);
  CHECK(lines_with(stopped.err, "a peer of rank 0 does not come") == 1);
}

TEST_CASE("Two processes add by NCCL", "[.][nccl_sums]") {
  nn::ProcessGroup& group = nn::process_group();
  if (group.size() != 2) STRETTO_SKIP("started by the next test, in two processes");
  const auto nccl = nn::NcclReducer::open(group, gpu);
  REQUIRE(nccl);
  const Tensor x = full({4}, group.rank() + 1, {.device = gpu});
  for (int i = 0; i < 3; ++i) {
    nccl->reduce_scatter(x, {1, 4});
    nccl->all_gather_chunks(x, {1, 4});
  }
  nccl->finish();
  CHECK(x.to_vector<float>() == vector<float>{12, 12, 12, 12});
  group.finish();
}

TEST_CASE("several GPUs: a process that does not open or connect NCCL ends the run", "[cuda]") {
  NEEDS_GPU();
  if (!has_counters())
    STRETTO_SKIP("NCCL needs a GPU per process; the stand-in needs the PTX interpreter");
  if (!has_mpirun()) STRETTO_SKIP(no_mpirun);
  const vector<std::pair<string, string>> failures{
      {"", ""},
      {"stop-init:1", "process 1 of 2 has not answered process 0"},
      {"stop-connect:1", "process 1 has not connected within 2 seconds"}};
  for (const auto& [call, line] : failures) {
    const Ended ended = run(
        env, mpirun({"STRETTO_PROCESS_TIMEOUT=2", "NCCL_STAND_IN_FAILS=" + call},
                    {"-n", "2", std::filesystem::read_symlink("/proc/self/exe"), "[nccl_sums]"}));
    INFO(call << ": " << ended.err << ended.out);
    CHECK((ended.status == 0) == call.empty());
    CHECK((ended.out + ended.err).find(line) != string::npos);
  }
}
