#include "nn/training/metrics.h"

#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_dir.h"

namespace {

using namespace stretto;           // NOLINT
using namespace stretto::testing;  // NOLINT
using nn::MetricsCsv;

TEST_CASE("each metrics row is on disk when row() returns", "[metrics]") {
  const TempDir folder;
  const std::string path = folder.file("m.csv");
  write_file(path, "an older run\n");
  MetricsCsv csv(path, {"step", "loss"});
  CHECK(read_file(path) == "step,loss\n");
  csv.row({10, 0.1});
  CHECK(read_file(path) == "step,loss\n10,0.1\n");
  csv.row({20, std::numeric_limits<double>::quiet_NaN()});
  csv.row({1e6, 1.0 / 3});
  CHECK(read_file(path) == "step,loss\n10,0.1\n20,nan\n1e+06,0.3333333333333333\n");
  CHECK(std::stod("0.3333333333333333") == 1.0 / 3);
}

TEST_CASE("resumed metrics keep the rows up to the step", "[metrics]") {
  const TempDir folder;
  const std::string path = folder.file("m.csv");
  write_file(path, "step,loss\n0,4\n10,3\n1e2,nan\n101,1\n102,0.");
  {
    MetricsCsv csv = MetricsCsv::resume(path, {"step", "loss"}, 100);
    CHECK(read_file(path) == "step,loss\n0,4\n10,3\n1e2,nan\n");
    csv.row({101, 2});
  }
  CHECK(read_file(path) == "step,loss\n0,4\n10,3\n1e2,nan\n101,2\n");
  // A line cut short by a crash is dropped even if its step is early enough.
  write_file(path, "step,loss\n0,4\n10,3");
  MetricsCsv::resume(path, {"step", "loss"}, 100);
  CHECK(read_file(path) == "step,loss\n0,4\n");
  CHECK(entries(folder.str()) == 1);
}

TEST_CASE("resumed metrics with fewer columns get the new columns", "[metrics]") {
  const TempDir folder;
  const std::string path = folder.file("m.csv");
  write_file(path, "step,loss\n1,4\n2,3\n");
  MetricsCsv::resume(path, {"step", "loss", "speed", "memory"}, 1).row({2, 3, 4, 5});
  CHECK(read_file(path) == "step,loss,speed,memory\n1,4,nan,nan\n2,3,4,5\n");
  write_file(path, "step,loss\n1,4,2\n");
  CHECK_THROWS_AS(MetricsCsv::resume(path, {"step", "loss", "speed"}, 1), Error);
  for (const char* other : {"step,lo\n", "loss\n", "step,loss,speed,memory\n"}) {
    write_file(path, other);
    CHECK_THROWS_AS(MetricsCsv::resume(path, {"step", "loss", "speed"}, 1), Error);
    CHECK(read_file(path) == other);
  }
}

TEST_CASE("rows() returns the metrics, also those of earlier runs", "[metrics]") {
  const TempDir folder;
  const std::string path = folder.file("m.csv");
  CHECK(MetricsCsv(path, {"step", "loss"}).rows().empty());
  MetricsCsv(path, {"step", "loss"}).row({1, 0.1});
  MetricsCsv csv = MetricsCsv::resume(path, {"step", "loss"}, 1);
  csv.row({2, 1.0 / 3});
  CHECK(csv.rows() == std::vector<std::vector<double>>{{1, 0.1}, {2, 1.0 / 3}});
}

TEST_CASE("metrics that were removed are written again by the next row", "[metrics]") {
  const TempDir folder;
  const std::string path = folder.file("m.csv");
  write_file(path, "step,loss\n1,4\n");
  MetricsCsv csv = MetricsCsv::resume(path, {"step", "loss"}, 1);
  csv.row({2, 3});
  std::filesystem::remove(path);
  CHECK(csv.rows().size() == 2);
  csv.row({3, 2});
  csv.row({4, 1});
  CHECK(read_file(path) == "step,loss\n1,4\n2,3\n3,2\n4,1\n");
  // Not in place of a link, and not if the directory is gone.
  std::filesystem::remove(path);
  std::filesystem::create_symlink(folder.file("other"), path);
  csv.row({5, 1});
  CHECK(!std::filesystem::exists(folder.file("other")));
  std::filesystem::create_directory(folder.file("x"));
  MetricsCsv inside(folder.file("x/m.csv"), {"step"});
  std::filesystem::remove_all(folder.file("x"));
  inside.row({1});
  CHECK(inside.rows().size() == 1);
}

TEST_CASE("resuming without metrics starts a new file", "[metrics]") {
  const TempDir folder;
  const std::string path = folder.file("m.csv");
  MetricsCsv::resume(path, {"step", "loss"}, 5).row({6, 1});
  CHECK(read_file(path) == "step,loss\n6,1\n");
  write_file(path, "");
  MetricsCsv::resume(path, {"step", "loss"}, 5);
  CHECK(read_file(path) == "step,loss\n");
  write_file(path, "step,lo");
  MetricsCsv::resume(path, {"step", "loss"}, 5);
  CHECK(read_file(path) == "step,loss\n");
}

TEST_CASE("resuming other metrics is an error and changes nothing", "[metrics]") {
  const TempDir folder;
  const std::string path = folder.file("m.csv");
  const auto refusal = [&](const std::string& text) {
    write_file(path, text);
    const std::string message = error_of<Error>([&] {
      MetricsCsv::resume(path, {"step", "loss"}, 5);
    });
    CHECK(read_file(path) == text);
    return message;
  };
  CHECK(refusal("step,accuracy\n1,2\n") ==
        "[MetricsCsv] cannot resume '" + path + "': its columns are not 'step,loss'");
  for (const std::string row : {"2", "2,3,4", "2,x", "", "2,3x", " 2,3"}) {
    CHECK(refusal("step,loss\n1,2\n" + row + "\n") ==
          "[MetricsCsv] cannot resume '" + path + "': line 3 is not a row of 2 numbers");
  }
}

TEST_CASE("hard links to an older file keep its content", "[metrics]") {
  const TempDir folder;
  const std::string path = folder.file("m.csv"), other = folder.file("other");
  MetricsCsv(path, {"step"}).row({1});
  std::filesystem::create_hard_link(path, other);
  MetricsCsv csv(path, {"step", "loss"});
  csv.row({2, 3});
  CHECK(read_file(other) == "step\n1\n");
  CHECK(read_file(path) == "step,loss\n2,3\n");
}

TEST_CASE("metrics that cannot be written are an error", "[metrics]") {
  const TempDir folder;
  CHECK(error_of<Error>([&] { MetricsCsv(folder.str(), {"step"}); }) ==
        "[MetricsCsv] cannot write '" + folder.str() + "': Is a directory");
  CHECK(error_of<Error>([&] {
          MetricsCsv::resume(folder.str(), {"step"}, 0);
        }).find("[MetricsCsv] " + folder.str() + ": ") == 0);
  CHECK(error_of<Error>([] { MetricsCsv("/dev/full", {"step"}); }) ==
        "[MetricsCsv] cannot write '/dev/full': No space left on device");
  CHECK_THROWS_AS(MetricsCsv(folder.file("x"), {}), Error);
  CHECK_THROWS_AS(MetricsCsv(folder.file("x"), {"a,b"}), Error);
  MetricsCsv csv(folder.file("x"), {"step", "loss"});
  CHECK_THROWS_AS(csv.row({1}), Error);
}

TEST_CASE("a metrics row that does not fit is an error", "[metrics]") {
  const TempDir folder;
  const std::string path = folder.file("m.csv");
  MetricsCsv csv(path, {"step", "loss"});
  // A limit on the size of files acts as a full disk.
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  rlimit small = before;
  small.rlim_cur = 12;
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const std::string message = error_of<Error>([&] { csv.row({1000, 0.125}); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  CHECK(message == "[MetricsCsv] cannot write '" + path + "': File too large");
  CHECK(read_file(path).size() == 12);
  CHECK(csv.rows().empty());
  MetricsCsv::resume(path, {"step", "loss"}, 2000).row({1, 2});
  CHECK(read_file(path) == "step,loss\n1,2\n");
  csv.row({1000, 0.125});
  csv.row({1001, 0.25});
  CHECK(read_file(path) == "step,loss\n1000,0.125\n1001,0.25\n");
}

}  // namespace
