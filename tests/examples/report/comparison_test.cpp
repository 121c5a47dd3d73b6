// Several runs in one page: runs without a page, and pages crafted to break the comparison.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "examples/common/words.h"
#include "examples/report/page.h"
#include "examples/report/report.h"
#include "tests/examples/temp_dir.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT
using nlohmann::json;

constexpr const char* metrics =
    "step,seconds,train_loss,valid_loss,learning_rate,gradient_norm,tokens_per_second,peak_bytes\n"
    "10,1,2,3,0.001,1,100,5000\n";

/// Directories of runs.
class Folders {
 public:
  /// Creates a directory with these files.
  std::string add(const std::string& name, const std::string& csv, const std::string& page = "") {
    const std::string path = folder_.file(name);
    std::filesystem::create_directory(path);
    if (!csv.empty()) write_file(path + "/metrics.csv", csv);
    if (!page.empty()) write_file(path + "/report.html", page);
    return path;
  }
  json data(const std::vector<std::string>& runs) {
    comparison = compare_runs(runs, folder_.file("all.html"));
    write_file(folder_.file("all.html"), comparison.page);
    return json::parse(data_of_page(folder_.file("all.html")));
  }
  /// Returns the only problem of a directory, next to a valid run: the number of shown runs and the
  /// problem; "shown" if there is none.
  std::string complaint(const std::string& path) {
    const std::string good = folder_.file("good");
    if (!std::filesystem::exists(good)) add("good", "step,loss\n1,2\n");
    data({good, path});
    if (comparison.problems.empty()) return "shown";
    REQUIRE(comparison.problems.size() == 1);
    REQUIRE(comparison.problems[0].starts_with(path + ": "));
    return std::to_string(comparison.shown) + " " + comparison.problems[0].substr(path.size() + 2);
  }

  Comparison comparison;

 private:
  TempDir folder_;
};

/// The data of a run as on the page of a program.
json whole_run() {
  return json::parse(R"({"program": "train_lm", "name": "x", "about": "", "version": "0.2.0",
    "written": "", "state": "done", "failure": "", "commands": ["train_lm"],
    "settings": [["--layers", "4", false]],
    "loss": {"title": "Loss", "unit": "bits", "scale": 2, "references": [["bigram", 1.5]]},
    "metrics": {"columns": ["step"], "measured": 0, "rows": []},
    "tables": [{"title": "Results", "columns": ["", "loss"], "rows": [["model", "1.0"]]}],
    "charts": [{"title": "c", "x": "position", "y": "bits", "references": [["a", null]],
                "curves": [{"name": "c", "x": [1, 2], "y": [0.1, null]}]}],
    "maps": [],
    "music": [{"title": "Piece", "file": "p.mid", "ticks": 480, "tempos": [[0, 80], [960, 120.5]],
               "cut": false,
               "voices": [{"name": "v", "program": 0, "drums": false,
                           "notes": [0, 480, 60, 80, 480, 240, 64, 90]}]}],
    "texts": [{"title": "Text", "given": "once", "text": " upon", "aligned": false}]})");
}

std::string page_of(const json& run) {
  return page_with("x", json{{"kind", "run"}, {"runs", {run}}, {"problems", json::array()}}.dump());
}

}  // namespace

TEST_CASE("counts have digit groups and a plural", "[examples][report]") {
  CHECK(counted(955904, "parameter") == "955,904 parameters");
  CHECK(counted(1, "thread") == "1 thread");
  CHECK(counted(0, "run") == "0 runs");
  CHECK(grouped(999) == "999");
  CHECK(grouped(1000) == "1,000");
  CHECK(grouped(-123456) == "-123,456");
  CHECK(grouped(-123) == "-123");
  CHECK(grouped(INT64_MIN) == "-9,223,372,036,854,775,808");
}

TEST_CASE("a directory with only metrics is a run", "[examples][report]") {
  Folders folders;
  const std::string trainer = folders.add(
      "trainer",
      "step,seconds,train_loss,valid_loss,learning_rate,gradient_norm,tokens_per_second,"
      "peak_bytes,accuracy\n10,1,2,3,0.001,1,100,5000,0.25\n20,2,1,nan,0.001,1,100,5000,0.5\n");
  const std::string own = folders.add("own", "epoch, top 5,\r\n1, 0.5,7\r\n2,,inf\r\n");
  const json data = folders.data({trainer, own});
  CHECK(folders.comparison.problems.empty());
  REQUIRE(data.at("runs").size() == 2);
  const json& first = data.at("runs")[0];
  CHECK(first.at("metrics").at("columns").back() == "accuracy");
  CHECK(first.at("metrics").at("rows")[1] == json::parse("[20,2,1,null,0.001,1,100,5000,0.5]"));
  CHECK(first.at("loss").at("unit") == "loss");
  CHECK(!first.contains("link"));
  const json& metrics_of_own = data.at("runs")[1].at("metrics");
  CHECK(metrics_of_own.at("columns") == json{"epoch", "top 5", "column 3"});
  CHECK(metrics_of_own.at("rows") == json::parse("[[1,0.5,7],[2,null,null]]"));

  const auto complaint = [&](const std::string& csv) {
    static int number = 0;
    return folders.complaint(folders.add("bad" + std::to_string(++number), csv));
  };
  CHECK(complaint("") == "1 has no metrics.csv");
  CHECK(complaint("step,loss\n") == "1 metrics.csv has no rows");
  CHECK(complaint("step,loss") == "1 metrics.csv is truncated within line 1");
  CHECK(complaint("1,2\n3,4\n") == "1 line 1 of metrics.csv does not name its columns");
  CHECK(complaint("\n1,2\n") == "1 line 1 of metrics.csv does not name its columns");
  CHECK(complaint("step,loss\nx,1\n") == "1 line 2 of metrics.csv is not a row of 2 numbers");
  CHECK(complaint("step,loss\n,1\n") == "1 line 2 of metrics.csv is not a row of 2 numbers");
  CHECK(complaint("step,loss\n1,1\n2,1,1\n") ==
        "2 line 3 of metrics.csv is not a row of 2 numbers, shown up to step 1");
  CHECK(complaint("step,loss\n1000,1\n2,1") ==
        "2 metrics.csv is truncated within line 3, shown up to step 1,000");
  const std::string wide_or_long =
      "1 metrics.csv has more than 200 columns or 20,000 bytes of their names";
  std::string wide = "step";
  for (int i = 0; i < 200; ++i) wide += ",c";
  CHECK(complaint(wide + "\n") == wide_or_long);
  CHECK(complaint(std::string(20'001, 'x') + "\n1\n") == wide_or_long);
  CHECK(complaint(std::string(1'000'000, ',') + "\n") == wide_or_long);
  CHECK(complaint("step,loss\n" + std::string(1'000'000, ',') + "\n") ==
        "1 line 2 of metrics.csv is not a row of 2 numbers");
  CHECK(complaint("\xEF\xBB\xBFstep,loss\n1,2\n") == "shown");
  CHECK(complaint("step,loss\n1,2\n\n \r\n") == "shown");
  CHECK(complaint("step,loss\n1,2\n\n2,3\n") ==
        "2 line 3 of metrics.csv is not a row of 2 numbers, shown up to step 1");

  // Of very many rows a subset is shown, including the first and the last.
  std::string many = "step,loss\n";
  for (int i = 1; i <= 50'000; ++i) many += std::to_string(i) + ",1\n";
  const json shown = folders.data({folders.add("many", many)}).at("runs")[0].at("metrics");
  CHECK(shown.at("measured") == 50'000);
  CHECK(shown.at("rows").size() == 20'000);
  CHECK(shown.at("rows")[0][0] == 1);
  CHECK(shown.at("rows").back()[0] == 50'000);
}

TEST_CASE("a run crafted to break a comparison is left out and reported", "[examples][report]") {
  Folders folders;
  const std::string crafted = folders.add("crafted", metrics, page_of(whole_run()));
  CHECK(folders.complaint(crafted) == "shown");
  const auto set = [&](const std::string& pointer, const json& value) {
    json run = whole_run();
    run[json::json_pointer(pointer)] = value;
    write_file(crafted + "/report.html", page_of(run));
    INFO(pointer << " " << value.dump().substr(0, 100));
    return folders.complaint(crafted);
  };
  // Replaces every value by one of another type.
  const json parts = whole_run().flatten();
  for (const auto& [pointer, value] : parts.items()) {
    if (pointer.starts_with("/metrics") || pointer.starts_with("/maps") || pointer == "/name" ||
        pointer.starts_with("/commands"))
      continue;  // these are not taken from the page
    CHECK(set(pointer, json::object()) == "1 report.html is broken");
    const bool may_be_none = pointer == "/charts/0/references/0/1" ||
                             pointer == "/loss/references/0/1" ||
                             pointer.starts_with("/charts/0/curves/0/x/") ||
                             pointer.starts_with("/charts/0/curves/0/y/");
    CHECK(set(pointer, nullptr) == (may_be_none ? "shown" : "1 report.html is broken"));
    const json other = value.is_string() ? json(7) : json("text");
    CHECK(set(pointer, other) == "1 report.html is broken");
  }
  for (const char* part : {"settings", "tables", "charts", "music", "texts"})
    for (const json& value : {json(nullptr), json{nullptr}, json{7}, json{"x"}, json{json::array()},
                              json{json::object()}, json("x"), json::object()}) {
      if (value.empty()) continue;
      CHECK(set("/" + std::string(part), value) == "1 report.html is broken");
    }
  // Sizes and values that no program writes.
  const auto many = [](size_t n, const json& value) { return json(std::vector<json>(n, value)); };
  const json run = whole_run();
  CHECK(set("/settings", many(501, run["settings"][0])) == "1 report.html is broken");
  CHECK(set("/charts/0/curves", many(101, run["charts"][0]["curves"][0])) ==
        "1 report.html is broken");
  CHECK(set("/charts/0/curves/0/x", json{1}) == "1 report.html is broken");
  CHECK(set("/tables/0/rows/0", json{"a", "b", "c"}) == "1 report.html is broken");
  CHECK(set("/settings/0/1", std::string(5001, '1')) == "1 report.html is broken");
  CHECK(set("/settings/0/1", std::string(34, '1') + "x") == "shown");  // page_test.py opens it
  CHECK(set("/music/0/ticks", 0) == "1 report.html is broken");
  CHECK(set("/music/0/tempos", json::array()) == "1 report.html is broken");
  CHECK(set("/music/0/tempos/1/1", -1) == "1 report.html is broken");
  CHECK(set("/music/0/tempos/1/0", -5) == "1 report.html is broken");
  CHECK(set("/music/0/voices", many(501, run["music"][0]["voices"][0])) ==
        "1 report.html is broken");
  for (const char* notes : {"[0,480,60]", "[0,480,60.5,80]", "[0,480,128,80]", "[0,-1,60,80]",
                            "[0,1e300,60,80]", "[480,1,60,80,0,1,60,80]", "[[],1,60,80]"})
    CHECK(set("/music/0/voices/0/notes", json::parse(notes)) == "1 report.html is broken");
  // Data that is not shown is not copied.
  CHECK(set("/junk", std::string(100'000, 'x')) == "shown");
  CHECK(folders.comparison.page.find(std::string(1000, 'x')) == std::string::npos);
}
