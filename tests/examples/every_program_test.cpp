// Common behavior of all training programs: streams, output directory, options, signals.

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <thread>

#include "core/device.h"
#include "examples/text/grammar.h"
#include "nn/files/safetensors.h"
#include "tests/cuda/traffic.h"
#include "tests/examples/tiny_programs.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT

const std::string checkpoint = "/checkpoint.safetensors";

}  // namespace

TEST_CASE("an earlier checkpoint is overwritten only with --overwrite", "[examples]") {
  for (const Tiny& tiny : programs()) {
    const TempDir folder;
    const std::string out = folder.file("out"), held = out + checkpoint;
    INFO(tiny.name);
    const auto run_with = [&](const Arguments& more) {
      return run(tiny.path(), tiny.command(out, more));
    };
    REQUIRE(run_with({"--steps", "2"}).status == 0);
    const auto before = contents(out);
    const Ended refused = run_with({"--steps", "1"});
    CHECK(refused.status == 2);
    CHECK(refused.one_line());
    CHECK(refused.complaint() == tiny.name + ": --out: " + out +
                                     " has the checkpoint of an earlier run; --resume " + held +
                                     " continues it, and --overwrite replaces it");
    const Ended unset = run_with({"--steps", "1", "--resume", ""});
    CHECK(unset.status == 2);
    CHECK(unset.complaint() == tiny.name + ": --resume: its value is empty");
    CHECK(contents(out) == before);

    // Resuming a checkpoint of another directory does not replace it, either.
    const Ended moved = run(tiny.path(), tiny.command(folder.file("two"), {"--steps", "2"}));
    REQUIRE(moved.status == 0);
    CHECK(run_with({"--steps", "2", "--resume", folder.file("two") + checkpoint}).status == 2);
    CHECK(contents(out) == before);

    CHECK(run_with({"--steps", "2", "--resume", held}).status == 0);
    CHECK(run_with({"--steps", "1", "--overwrite"}).status == 0);
    CHECK(read_file(held) != before.at(held));
  }
}

TEST_CASE("programs train in bf16 and resume in bf16", "[examples]") {
  for (const Tiny& tiny : programs()) {
    const TempDir folder;
    const std::string out = folder.file("out"), file = out + checkpoint;
    INFO(tiny.name);
    const auto run_with = [&](const Arguments& more) {
      return run(tiny.path(), tiny.command(out, more));
    };
    const Ended begun = run_with({"--steps", "20", "--dtype", "bf16"});
    INFO(begun.err);
    REQUIRE(begun.status == 0);
    bool halves = false, masters = false;
    const stretto::nn::SafetensorsFile saved(file);
    for (const auto& entry : saved.entries()) {
      halves = halves || entry.dtype == "BF16";
      masters = masters || (entry.name.ends_with("master") && entry.dtype == "F32");
    }
    CHECK(halves);
    CHECK(masters);
    const Ended other = run_with({"--steps", "20", "--resume", file, "--dtype", "f32"});
    CHECK(other.status == 2);
    CHECK_THAT(other.complaint(), Containing("--dtype f32: the run of " + file + " has bf16"));
    CHECK(run_with({"--steps", "20", "--dtype", "bf16", "--resume", file}).status == 0);
  }
}

TEST_CASE("programs accept --matmul-precision", "[examples]") {
  setenv("STRETTO_CPU", "emulated", 1);  // the emulated CPU has all three precisions
  for (const Tiny& tiny : programs()) {
    const TempDir folder;
    INFO(tiny.name);
    const auto after = [&](const std::string& precision) {
      const std::string out = folder.file(precision);
      const Ended ended =
          run(tiny.path(), tiny.command(out, {"--steps", "2", "--d-model", "64", "--d-head", "0",
                                              "--matmul-precision", precision}));
      INFO(ended.err);
      CHECK(ended.status == 0);
      return read_file(out + checkpoint);
    };
    const std::string highest = after("highest"), high = after("high"), medium = after("medium");
    CHECK(high != highest);
    CHECK(medium != high);
    const Ended other =
        run(tiny.path(), tiny.command(folder.file("out"), {"--matmul-precision", "low"}));
    CHECK(other.status == 2);
    CHECK(other.complaint() ==
          tiny.name + ": --matmul-precision low: accepted values are high, highest, medium");
  }
  unsetenv("STRETTO_CPU");
}

TEST_CASE("programs train on a GPU as on the CPU", "[examples][cuda]") {
  if (!stretto::cuda_available()) STRETTO_SKIP(stretto::cuda_description());
  for (const Tiny& tiny : programs()) {
    const TempDir folder;
    INFO(tiny.name);
    const auto losses = [&](const std::string& out, Arguments more) {
      more.insert(more.end(), {"--steps", "20", "--evaluate-every", "4"});
      const Ended ended = run(tiny.path(), tiny.command(folder.file(out), more));
      INFO(ended.err);
      CHECK(ended.status == 0);
      std::vector<double> all;
      std::istringstream lines(read_file(folder.file(out) + "/metrics.csv"));
      std::string line, cell;
      std::getline(lines, line);  // the header
      while (std::getline(lines, line)) {
        std::istringstream cells(line);
        for (int i = 0; i < 4 && std::getline(cells, cell, ','); ++i)
          if (i >= 2) all.push_back(std::stod(cell));  // train_loss, valid_loss
      }
      return all;
    };
    const std::vector<double> here = losses("cpu", {}),
                              there = losses("cuda", {"--device", "cuda"});
    REQUIRE(here.size() == 10);
    REQUIRE(there.size() == here.size());
    for (size_t i = 0; i < here.size(); ++i) CHECK(std::abs(there[i] - here[i]) <= 1e-5);
    CHECK(losses("graph", {"--device", "cuda", "--cuda-graph"}) == there);
  }
}

TEST_CASE("programs' steps on a GPU: tokens go up, a loss comes down", "[examples][cuda]") {
  if (!stretto::testing::traffic()) STRETTO_SKIP("needs the counters of the PTX interpreter");
  const std::map<std::string, int64_t> tensors{{"harmonize", 4}, {"lra", 3}};  // others: 2
  for (const Tiny& tiny : programs()) {
    const TempDir folder;
    INFO(tiny.name);
    const auto counters = [&](const std::string& steps) {
      const std::string file = folder.file(steps);
      setenv("PTX_COUNTERS", file.c_str(), 1);
      const Ended ended =
          run(tiny.path(),
              tiny.command(folder.file("out" + steps),
                           {"--device", "cuda", "--steps", steps, "--evaluate-every", "1000"}));
      unsetenv("PTX_COUNTERS");
      INFO(ended.err);
      CHECK(ended.status == 0);
      return read_file(file);
    };
    const std::string some = counters("6"), more = counters("10");
    const stretto::testing::Traffic four =
        stretto::testing::traffic_in(more) - stretto::testing::traffic_in(some);
    const auto known = tensors.find(tiny.name);
    CHECK(four.uploads == 4 * (known == tensors.end() ? 2 : known->second));
    CHECK(four.downloads == 8);  // each loss together with the check of indices
    CHECK(four.synchronizations == 4);
  }
}

TEST_CASE("a directory can be used by only one run at a time", "[examples]") {
  for (const Tiny& tiny : programs()) {
    const TempDir folder;
    const std::string out = folder.file("out"), held = out + checkpoint;
    INFO(tiny.name);
    {
      Program first(tiny.path(), tiny.command(out, {"--steps", "1000000", "--save-every", "1"}));
      REQUIRE(first.wait_for("step "));
      while (!std::filesystem::exists(held))
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::string busy = tiny.name + ": --out: another run, of process " +
                               std::to_string(first.pid()) + ", is using " + out;
      for (const Arguments& more : {Arguments{"--overwrite"}, Arguments{"--resume", held}}) {
        Arguments all = tiny.command(out, more);
        all.insert(all.end(), {"--steps", "1000000"});
        const Ended second = run(tiny.path(), all);
        CHECK(second.status == 2);
        CHECK(second.one_line());
        CHECK(second.complaint() == busy);
      }
      first.signal(SIGKILL);
      CHECK(first.wait().status == 128 + SIGKILL);
    }
    // The lock of the killed run does not block the next run, whose end removes it.
    Program again(tiny.path(), tiny.command(out, {"--steps", "1000000", "--resume", held}));
    REQUIRE(again.wait_for("step "));
    again.signal(SIGTERM);
    CHECK(again.wait().status == 128 + SIGTERM);
    CHECK(!std::filesystem::exists(out + "/.lock"));
  }
}

TEST_CASE("a lock file that is a link or pipe is rejected and changes no other file",
          "[examples]") {
  if (programs().empty()) STRETTO_SKIP("no program is built");
  const Tiny tiny = programs().front();
  const TempDir folder;
  const std::string out = folder.file("out"), lock = out + "/.lock";
  std::filesystem::create_directory(out);
  write_file(folder.file("precious"), "precious");
  const auto refused = [&] {
    const Ended ended = run(tiny.path(), tiny.command(out));
    CHECK(ended.status == 2);
    CHECK(ended.one_line());
    std::filesystem::remove(lock);
    CHECK(read_file(folder.file("precious")) == "precious");
  };
  std::filesystem::create_hard_link(folder.file("precious"), lock);
  refused();
  std::filesystem::create_symlink(folder.file("precious"), lock);
  refused();
  REQUIRE(::mkfifo(lock.c_str(), 0600) == 0);
  refused();
}

TEST_CASE("files of a run are correct if standard streams are closed", "[examples]") {
  for (const Tiny& tiny : programs()) {
    const TempDir folder;
    INFO(tiny.name);
    const std::string out = folder.file("out"), open = folder.file("open");
    CHECK(run(tiny.path(), tiny.command(open)).status == 0);
    for (const std::vector<int>& closed : {std::vector<int>{2}, {1}, {1, 2}, {0, 1, 2}}) {
      CHECK(run(tiny.path(), tiny.command(out, {"--overwrite"}), {.closed = closed}).status == 0);
      CHECK(read_file(out + checkpoint) == read_file(open + checkpoint));
      CHECK(count_lines(read_file(out + "/metrics.csv")) ==
            count_lines(read_file(open + "/metrics.csv")));
      CHECK(run(tiny.path(), tiny.command(out, {"--resume", out + checkpoint}), {.closed = closed})
                .status == 0);
    }
  }
}

TEST_CASE("failing to write to standard output gives exit status 1", "[examples]") {
  for (const Tiny& tiny : programs()) {
    INFO(tiny.name);
    const std::string complaint = tiny.name + ": cannot write to standard output";
    const Ended help = run(tiny.path(), {"--help"}, {.output = "/dev/full"});
    CHECK(help.status == 1);
    CHECK(help.err == complaint + "\n");

    const TempDir folder;
    const std::string out = folder.file("out");
    for (const Surroundings& surroundings :
         {Surroundings{.output = "/dev/full"}, Surroundings{.broken_pipe = true}}) {
      const Ended ended = run(tiny.path(), tiny.command(out, {"--overwrite"}), surroundings);
      CHECK(ended.status == 1);
      CHECK(ended.complaint() == complaint);
      CHECK(std::filesystem::exists(out + checkpoint));
      for (const auto& [path, content] : contents(out)) CHECK(!path.ends_with(".tmp"));
    }
  }
}

TEST_CASE("numbers on a command line are read strictly", "[examples]") {
  for (const Tiny& tiny : programs()) {
    const TempDir folder;
    const auto refused = [&](const std::string& option, const std::string& value,
                             const std::string& expected) {
      INFO(tiny.name << " " << option << " " << value);
      const Ended ended = run(tiny.path(), tiny.command(folder.file("out"), {option, value}));
      CHECK(ended.status == 2);
      CHECK(ended.err == tiny.name + ": " + option + expected + "\n");
    };
    const std::string whole = ": must be a whole number of 64 bits";
    for (const char* value : {"9223372036854775808", "-9223372036854775809", "0x10", "1e3", "2.0",
                              "2 ", " 2", "+2", "2,000", "two"})
      refused("--steps", value, std::string(" ") + value + whole);
    for (const char* value : {"18446744073709551616", "-1", "1.5"})
      refused("--seed", value, std::string(" ") + value + whole + ", not negative");
    for (const char* value : {"0.1x", "1e999", "0x1p3", "1,5"})
      refused("--dropout", value, std::string(" ") + value + ": must be a number");
    for (const char* option :
         {"--steps", "--seed", "--dropout", "--data", "--out", "--resume", "--device", "--minutes"})
      refused(option, "", ": its value is empty");
    if (tiny.name == "groove") refused("--augment", "7", " 7: must be 0 or 1");
    if (tiny.name == "lra") refused("--attend-to-padding", "yes", " yes: must be 0 or 1");
    CHECK(run(tiny.path(), {"--parameters=2"}).status == 2);
    CHECK(!std::filesystem::exists(folder.file("out")));

    // A leading zero does not mean octal.
    const Ended ten = run(tiny.path(), tiny.command(folder.file("out"), {"--steps", "010"}));
    CHECK(ten.status == 0);
    CHECK_THAT(ten.err, Containing("step 10/10"));
  }
}

TEST_CASE("a signal ends a program that generates data", "[examples]") {
  if (lra.path().empty()) STRETTO_SKIP("lra is not built");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const TempDir folder;
    Program program(lra.path(), lra.command(folder.file("out"), {"--expressions", "10000000"}));
    REQUIRE(program.wait_for_handler(signal));
    program.signal(signal);
    const Ended ended = program.wait();
    INFO(ended.err);
    CHECK(ended.status == 128 + signal);
    CHECK(ended.out == "Stopped before training.\n");
    CHECK(!std::filesystem::exists(folder.file("out")));
  }
}

TEST_CASE("a run under nohup ignores SIGHUP", "[examples]") {
  if (lm.path().empty()) STRETTO_SKIP("train_lm is not built");
  const TempDir folder;
  Program program(lm.path(), lm.command(folder.file("out"), {"--steps", "1000000"}),
                  {.nohup = true});
  REQUIRE(program.wait_for("step "));
  program.signal(SIGHUP);
  program.signal(SIGTERM);
  CHECK(program.wait().status == 128 + SIGTERM);
}

TEST_CASE("--data rejects paths that are not regular files", "[examples]") {
  for (const Tiny& tiny : {lm, lra}) {
    if (tiny.path().empty()) continue;
    const TempDir folder;
    const std::string pipe = folder.file("pipe");
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    const auto complaint_for = [&](const std::string& data) {
      const Ended ended = run(tiny.path(), tiny.command(folder.file("out"), {"--data", data}));
      CHECK(ended.status == 2);
      CHECK(ended.one_line());
      return ended.complaint();
    };
    const std::string cannot = tiny.name + ": cannot read '";
    CHECK(complaint_for(pipe) == cannot + pipe + "': it is not a regular file");
    CHECK(complaint_for("/dev/zero") == cannot + "/dev/zero': it is not a regular file");
    CHECK(complaint_for(folder.str()) == cannot + folder.str() + "': Is a directory");
    CHECK(!std::filesystem::exists(folder.file("out")));
  }
}

TEST_CASE("a directory without write permission is reported", "[examples]") {
  if (lm.path().empty()) STRETTO_SKIP("train_lm is not built");
  const TempDir folder;
  std::filesystem::permissions(folder.str(), std::filesystem::perms(0755));
  const std::string out = folder.file("locked");
  std::filesystem::create_directory(out);
  std::filesystem::permissions(out, std::filesystem::perms(0555));
  const Surroundings nobody{.nobody = true};
  if (run(lm.path(), {"--parameters"}, nobody).status != 0)
    STRETTO_SKIP("the program cannot be run as another user");
  const auto complaint_for = [&](const std::string& path) {
    const Ended ended = run(lm.path(), lm.command(path), nobody);
    CHECK(ended.status == 2);
    return ended.complaint();
  };
  CHECK(complaint_for(out) == "train_lm: --out: cannot write " + out + ": Permission denied");

  const std::string open = folder.file("open");
  std::filesystem::create_directory(open);
  std::filesystem::permissions(open, std::filesystem::perms(0777));
  write_file(open + "/metrics.csv", "");
  std::filesystem::permissions(open + "/metrics.csv", std::filesystem::perms(0444));
  CHECK(complaint_for(open) ==
        "train_lm: --out: cannot write " + open + "/metrics.csv: Permission denied");
}

TEST_CASE("a resumed run has the same metrics as an undisturbed one", "[examples]") {
  if (lm.path().empty()) STRETTO_SKIP("train_lm is not built");
  const Arguments measuring = words("--steps 60 --evaluate-every 7 --save-every 10");
  const TinyRun whole("train_lm", lm.more), part("train_lm", lm.more);
  const auto command = [&](const TinyRun& tiny, Arguments more) {
    more.insert(more.begin(), measuring.begin(), measuring.end());
    return lm.command(tiny.out(), more);
  };
  REQUIRE(run(lm.path(), command(whole, {})).status == 0);
  for (const char* moment : {"step 7:", "step 14:", "step 28:", "step 42:"}) {
    // After SIGKILL the steps since the checkpoint are repeated, after SIGTERM none.
    for (const int signal : {SIGKILL, SIGTERM}) {
      std::filesystem::remove_all(part.out());
      Program program(lm.path(), command(part, {}));
      REQUIRE(program.wait_for(moment));
      program.signal(signal);
      program.wait();
      if (!std::filesystem::exists(part.out("checkpoint.safetensors"))) continue;
      INFO(moment << " " << signal);
      CHECK(
          run(lm.path(), command(part, {"--resume", part.out("checkpoint.safetensors")})).status ==
          0);
      CHECK(part.checkpoint() == whole.checkpoint());
      CHECK(measured(part.out()) == measured(whole.out()));
      CHECK(read_file(part.out("loss.svg")) == read_file(whole.out("loss.svg")));
    }
  }
}

TEST_CASE("an evaluation that a signal interrupts is repeated when the run resumes", "[examples]") {
  if (lm.path().empty()) STRETTO_SKIP("train_lm is not built");
  const TinyRun whole("train_lm", lm.more), part("train_lm", lm.more);
  // An evaluation after each step takes much longer than the step.
  const auto command = [&](const TinyRun& tiny, Arguments more) {
    more.insert(more.begin(), {"--evaluate-every", "1", "--validation-tokens", "4000", "--held-out",
                               "0.01", "--steps", "12"});
    return lm.command(tiny.out(), more);
  };
  REQUIRE(run(lm.path(), command(whole, {})).status == 0);
  {
    Program program(lm.path(), command(part, {}));
    REQUIRE(program.wait_for("step 4:"));
    program.signal(SIGTERM);
    REQUIRE(program.wait().status == 128 + SIGTERM);
  }
  const std::string half = measured(part.out());
  CHECK(run(lm.path(), command(part, {"--resume", part.out("checkpoint.safetensors")})).status ==
        0);
  CHECK(half != measured(whole.out()));
  CHECK(measured(part.out()) == measured(whole.out()));
  CHECK(part.checkpoint() == whole.checkpoint());
}

TEST_CASE("memory does not grow in proportion to the size of a text", "[examples]") {
  if (lm.path().empty()) STRETTO_SKIP("train_lm is not built");
#ifdef STRETTO_SANITIZED
  STRETTO_SKIP("AddressSanitizer takes more address space than this test leaves");
#endif
  const TempDir folder;
  const std::string text = generate_text(1, 1 << 20), data = folder.file("text");
  {
    std::ofstream out(data, std::ios::binary);
    for (int i = 0; i < 128; ++i) out << text;
  }
  write_file(folder.file("valid"), text.substr(0, 2000));
  // Half of eight bytes per byte of the text.
  const Surroundings little{.memory = 512L << 20};
  const Ended ended =
      run(lm.path(),
          lm.command(folder.file("out"), {"--data", data, "--validation", folder.file("valid")}),
          little);
  INFO(ended.err);
  CHECK(ended.status == 0);
}

TEST_CASE("--validation-tokens accepts any number", "[examples]") {
  if (lm.path().empty()) STRETTO_SKIP("train_lm is not built");
  const TempDir folder;
  const std::string all = folder.file("all"), most = folder.file("most");
  REQUIRE(run(lm.path(), lm.command(all, {"--validation-tokens", "0"})).status == 0);
  REQUIRE(run(lm.path(), lm.command(most, {"--validation-tokens", "9223372036854775807"})).status ==
          0);
  CHECK(read_file(all + checkpoint) == read_file(most + checkpoint));
}
