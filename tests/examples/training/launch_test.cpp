// Launching several processes, and time-outs between them.
#include <dlfcn.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "core/cpu.h"
#include "examples/common/command_line.h"
#include "nn/distributed/process_group.h"
#include "tests/examples/training/mpirun.h"
#include "tests/support/catch.h"

using namespace stretto::examples::testing;
using std::string, std::vector;

namespace {

vector<string> joined(vector<string> all, const vector<string>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

vector<string> training(const string& out, const vector<string>& more = {}) {
  return joined({find_program("train_lm"),
                 "--layers",
                 "1",
                 "--d-model",
                 "32",
                 "--heads",
                 "2",
                 "--d-hidden",
                 "64",
                 "--batch",
                 "8",
                 "--length",
                 "32",
                 "--position",
                 "xl",
                 "--memory",
                 "32",
                 "--steps",
                 "5",
                 "--out",
                 out},
                more);
}

// mpirun arguments for two processes with different commands.
vector<string> each(const vector<string>& first, const vector<string>& second) {
  return joined(joined(joined({"-n", "1"}, first), {":", "-n", "1"}), second);
}

void wait_for_scoring(const string& out) {
  string page;
  while (page.find("\"scoring\"") == string::npos) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::ifstream file(out + "/report.html", std::ios::binary);
    page.assign(std::istreambuf_iterator<char>(file), {});
  }
}

}  // namespace

TEST_CASE("Launchers other than Open MPI's mpirun are rejected in one line", "[processes]") {
  const TempDir dir;
  const string out = dir.file("out");
  const auto tried = [&](const vector<string>& variables, const vector<string>& command) {
    return run(env, joined(joined({"-C", dir.file("")}, variables), command));
  };
  const vector<std::pair<string, string>> launchers{{"PMI_SIZE", "PMI_RANK"},
                                                    {"MPI_LOCALNRANKS", "MPI_LOCALRANKID"},
                                                    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
                                                    {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"},
                                                    {"FLUX_JOB_SIZE", "FLUX_TASK_RANK"},
                                                    {"LOCAL_WORLD_SIZE", "LOCAL_RANK"}};
  for (const auto& [size, rank] : launchers) {
    INFO(size);
    for (const vector<string>& command :
         {training(out), {find_program("melody")}, {find_program("character_model")}}) {
      const Ended first = tried({size + "=2", rank + "=0"}, command);
      CHECK(first.status == 2);
      CHECK(first.one_line());
      CHECK(first.complaint().find(size + "=2: this process is one of several, started by another "
                                          "launcher than Open MPI's") != string::npos);
      const Ended second = tried({size + "=2", rank + "=1"}, command);
      CHECK(second.status == 2);
      CHECK(second.err.empty());
      CHECK(first.out + second.out == "");
    }
    CHECK(tried({size + "=1", rank + "=0"}, training(out, {"--parameters"})).status == 0);
  }
  CHECK(contents(dir.file("")).empty());
}

TEST_CASE("A rank of mpirun without a number of processes is ignored", "[processes]") {
  const TempDir dir;
  const Ended ended =
      run(env, joined({"OMPI_COMM_WORLD_RANK=1"}, training(dir.file("out"), {"--parameters"})));
  CHECK(ended.status == 0);
  CHECK_FALSE(ended.out.empty());
}

TEST_CASE("A time-out that is not a valid number of seconds is rejected", "[processes]") {
  const TempDir dir;
  for (const string value : {"1e9", "abc", "-5", "0.5", "0", "86401"}) {
    const Ended ended =
        run(env, joined({"STRETTO_PROCESS_TIMEOUT=" + value}, training(dir.file("out"))));
    INFO(value << ": " << ended.err);
    CHECK(ended.status != 0);
    CHECK(ended.one_line());
    CHECK(ended.complaint().find("STRETTO_PROCESS_TIMEOUT") != string::npos);
    CHECK_FALSE(std::filesystem::exists(dir.file("out")));
  }
}

TEST_CASE("Options that differ between processes are reported before anything is written",
          "[processes]") {
  if (!has_mpirun()) STRETTO_SKIP(no_mpirun);
  const TempDir dir;
  const string out = dir.file("out");
  struct Difference {
    vector<string> settings, options;
    string line;
  };
  vector<Difference> all{
      {{}, {"--shard-optimizer"}, "--shard-optimizer true, rank 0 has none"},
      {{}, {"--evaluate-every", "3"}, "--evaluate-every 3, rank 0 has 0"},
      {{}, {"--save-every", "2"}, "--save-every 2, rank 0 has 100"},
      {{}, {"--validation-tokens", "100"}, "--validation-tokens 100, rank 0 has "},
      {{}, {"--matmul-precision", "high"}, "--matmul-precision high, rank 0 has "},
      {{}, {"--generate", "7"}, "--generate 7, rank 0 has 0"}};
  if (stretto::isa() != stretto::Isa::portable)
    all.push_back({{"STRETTO_CPU=portable"}, {}, "the instructions portable, rank 0 has vector"});
  for (const Difference& d : all) {
    const vector<string> second = joined(joined({env}, d.settings), training(out, d.options));
    const Ended ended = run(env, mpirun({}, each(training(out), second)));
    INFO(d.line << ": " << ended.err);
    CHECK(ended.status != 0);
    CHECK(lines_with(ended.err, "rank 1 has " + d.line) == 1);
    CHECK_FALSE(std::filesystem::exists(out));
  }
}

TEST_CASE("Processes that send messages of different sizes time out", "[.][differing_messages]") {
  stretto::nn::ProcessGroup& group = stretto::nn::process_group();
  vector<char> bytes(size_t(1) << 20);
  const size_t mine = group.is_root() ? bytes.size() : 8;
  group.send_recv(1 - group.rank(), bytes.data(), mine, bytes.data(), mine);
}

TEST_CASE("A message of another length than expected ends the run", "[processes]") {
  if (!has_mpirun()) STRETTO_SKIP(no_mpirun);
  const Ended ended = run(env, mpirun({"STRETTO_PROCESS_TIMEOUT=2"},
                                      {"-n", "2", std::filesystem::read_symlink("/proc/self/exe"),
                                       "[differing_messages]"}));
  INFO(ended.err);
  CHECK(ended.status != 0);
  CHECK(lines_with(ended.err, " of 2 has not answered process ") >= 1);
}

TEST_CASE("A process that never meets the others ends the run", "[processes]") {
  if (!has_mpirun()) STRETTO_SKIP(no_mpirun);
  const TempDir dir;
  const string out = dir.file("out");
  for (const vector<string>& other : {vector<string>{"sleep", "100"}, {"true"}}) {
    const Ended ended = run(env, mpirun({"STRETTO_PROCESS_TIMEOUT=2"}, each(training(out), other)));
    INFO(ended.err);
    CHECK(ended.status != 0);
    CHECK(lines_with(ended.err,
                     "process 0 of 2: not all processes have called MPI_Init within 2 "
                     "seconds") == 1);
    CHECK_FALSE(std::filesystem::exists(out));
  }
}

TEST_CASE("Rank 0 works longer than the time-out", "[.][independent]") {
  char name[] = "independent";
  char* arguments[] = {name, nullptr};
  const auto work = [] {
    if (stretto::nn::rank_of_mpirun() == 0) std::this_thread::sleep_for(std::chrono::seconds(3));
    return 0;
  };
  CHECK(stretto::examples::run_program(
            1, arguments, name, "", [](CLI::App&) {}, work) == 0);
}

TEST_CASE("Processes of a program that sends no messages do not wait", "[processes]") {
  if (!has_mpirun()) STRETTO_SKIP(no_mpirun);
  const Ended ended = run(
      env, mpirun({"STRETTO_PROCESS_TIMEOUT=1"},
                  {"-n", "2", std::filesystem::read_symlink("/proc/self/exe"), "[independent]"}));
  INFO(ended.err);
  CHECK(ended.status == 0);
}

// MPI_Finalize first deletes the attributes of MPI_COMM_SELF.
TEST_CASE("Rank 1 stops in MPI_Finalize", "[.][stops_in_finalize]") {
  stretto::nn::ProcessGroup& group = stretto::nn::process_group();
  using Function = int (*)(void*, int, void*, void*);
  void* const library = ::dlopen("libmpi.so.40", RTLD_NOW | RTLD_NOLOAD);
  const auto load = [&](const char* name) { return ::dlsym(library, name); };
  const auto create =
      reinterpret_cast<int (*)(void*, Function, int*, void*)>(load("MPI_Comm_create_keyval"));
  const auto set = reinterpret_cast<int (*)(void*, int, void*)>(load("MPI_Comm_set_attr"));
  const Function stop = [](void*, int, void*, void*) { return ::raise(SIGSTOP); };
  int key = 0;
  if (!group.is_root()) {
    REQUIRE(create(load("OMPI_C_MPI_COMM_NULL_COPY_FN"), stop, &key, nullptr) == 0);
    REQUIRE(set(load("ompi_mpi_comm_self"), key, nullptr) == 0);
  }
  group.finish();
}

TEST_CASE("A process that hangs in MPI_Finalize ends the run", "[processes]") {
  if (!has_mpirun()) STRETTO_SKIP(no_mpirun);
  const Ended ended = run(env, mpirun({"STRETTO_PROCESS_TIMEOUT=2"},
                                      {"-n", "2", std::filesystem::read_symlink("/proc/self/exe"),
                                       "[stops_in_finalize]"}));
  INFO(ended.err);
  CHECK(ended.status != 0);
  CHECK(lines_with(ended.err,
                   "process 0 of 2: not all processes have called MPI_Finalize within 2 "
                   "seconds") == 1);
}

// The final evaluation of the first process takes longer than the time-out.
TEST_CASE("Processes wait for one that works alone, but not for one that hangs", "[processes]") {
  if (!has_mpirun()) STRETTO_SKIP(no_mpirun);
  const TempDir dir;
  const auto arguments = [&](const string& out) {
    return mpirun({"STRETTO_PROCESS_TIMEOUT=3"},
                  joined({"-n", "2"}, training(out, {"--generate", "100000"})));
  };
  const auto with_one_stopped = [&](int rank, const string& line) {
    const string out = dir.file("stopped" + std::to_string(rank));
    Program program(env, arguments(out));
    wait_for_scoring(out);
    signal_process(program, "STOP", "train_lm.*" + out, rank);
    const Ended ended = program.wait();
    INFO(ended.err);
    CHECK(ended.status != 0);
    CHECK(lines_with(ended.err, line) == 1);
  };
  const Ended whole = run(env, arguments(dir.file("whole")));
  INFO(whole.err);
  CHECK(whole.status == 0);
  with_one_stopped(0, "process 0 of 2 has not answered process 1 for 3 seconds");
  with_one_stopped(1, "process 1 of 2 has not answered process 0 for 3 seconds");
}
