// The page of a run: its data, escaping, its size; and several runs in one page.
#include "examples/report/report.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/utf8.h"
#include "examples/common/error.h"
#include "examples/report/page.h"
#include "tests/examples/tiny_run.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT
using namespace stretto::music;              // NOLINT
using nlohmann::json;

Report small_report() {
  Report r;
  r.program = "train_lm", r.folder = "out/lm", r.about = "7 parameters";
  r.commands = {"train_lm --steps 20"};
  r.state = RunState::done;
  r.settings = {{"--layers", "4", false}, {"--steps", "20", true}};
  r.loss = {.title = "Loss", .unit = "bits", .scale = 2, .references = {{"bigram", 1.5}}};
  r.columns = {"step", "seconds", "train_loss", "valid_loss"};
  r.rows = {{10, 0.5, 2, 2.5}, {20, 1, 1, NAN}};
  r.tables = {{"Results", {"", "loss"}, {{"model", "1.0"}}}};
  r.charts = {{{.title = "Position", .x_label = "position", .y_label = "bits"},
               {{"curve", {1, 2}, {0.1, INFINITY}}}}};
  r.maps = {{"Attention", "query", "key", {{"head 1", 2, 2, {0, 1, 0.25F, NAN}}}}};
  Song song{.tracks = {{"Piano", 0, 3, {{480, 240, 64, 90}, {0, 480, 60, 80}}}}};
  song.tempos = {{960, 120}};
  r.music = {{"Piece", "piece.mid", song}};
  r.texts = {{"Text", "once", " upon a time"}};
  return r;
}

// The data of a page.
json data_in(const std::string& page) {
  const TempDir folder;
  write_file(folder.file("p.html"), page);
  return json::parse(data_of_page(folder.file("p.html")));
}

std::string metrics(int rows) {
  std::string text =
      "step,seconds,train_loss,valid_loss,learning_rate,gradient_norm,"
      "tokens_per_second,peak_bytes\n";
  for (int i = 1; i <= rows; ++i)
    text += std::to_string(10 * i) + ",1,2," + std::to_string(3 - 0.1 * i) + ",0.001,1,100,5000\n";
  return text;
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("a page has the data of its run", "[examples][report]") {
  const json data = data_in(report_page(small_report()));
  CHECK(data.at("kind") == "run");
  const json& run = data.at("runs").at(0);
  CHECK(run.at("program") == "train_lm");
  CHECK(run.at("state") == "done");
  CHECK(run.at("commands") == json{"train_lm --steps 20"});
  CHECK(run.at("settings") == json::parse(R"([["--layers","4",false],["--steps","20",true]])"));
  CHECK(run.at("loss").at("references") == json::parse(R"([["bigram",1.5]])"));
  CHECK(run.at("metrics").at("rows") == json::parse("[[10,0.5,2,2.5],[20,1,1,null]]"));
  CHECK(run.at("tables")[0].at("rows") == json::parse(R"([["model","1.0"]])"));
  CHECK(run.at("charts")[0].at("curves")[0].at("y") == json::parse("[0.1,null]"));
  // One byte per cell: 1, 255, 128 and 0 for NaN.
  CHECK(run.at("maps")[0].at("maps")[0].at("cells") == "Af+AAA==");
  CHECK(run.at("music")[0].at("voices")[0].at("notes") ==
        json::parse("[0,480,60,80,480,240,64,90]"));
  CHECK(run.at("music")[0].at("tempos") == json::parse("[[0,80],[960,120]]"));
  CHECK(run.at("texts")[0].at("text") == " upon a time");
}

TEST_CASE("text of a run cannot become code on its page", "[examples][report]") {
  const std::string plain = report_page(Report());
  for (const std::string evil :
       {"</script><script>alert(1)</script>", "<!-- <script>", "</SCRIPT >", "\"}]}</script>",
        "{{script}}{{data}}", "<img src=x onerror=alert(1)>", "\xFF\xC0\x80</script>",
        "\u2028</style>"}) {
    INFO(evil);
    Report r;
    r.program = r.folder = r.about = r.failure = evil;
    r.commands = {evil};
    r.settings = {{evil, evil, true}};
    r.loss = {.title = evil, .unit = evil, .references = {{evil, 1}}};
    r.columns = {evil};
    r.tables = {{evil, {evil}, {{evil}}}};
    r.charts = {{{.title = evil, .x_label = evil, .y_label = evil}, {{evil, {1}, {1}}}}};
    r.maps = {{evil, evil, evil, {{evil, 1, 1, {1}}}}};
    r.music = {{evil, evil, Song{.tracks = {{evil, 0, 0, {{0, 1, 60, 1}}}}}}};
    r.texts = {{evil, evil, evil}};
    const std::string page = report_page(r);
    for (const char* mark :
         {"<script", "</script", "<!--", "<img", "</style", "<SCRIPT", "</SCRIPT"})
      CHECK(count(page, mark) == count(plain, mark));
    const json data = data_in(page);
    if (evil[0] != '\xFF') CHECK(data.at("runs")[0].at("texts")[0].at("text") == evil);
  }
}

TEST_CASE("a page has less than 3 MB, whatever the run wrote", "[examples][report]") {
  Report r = small_report();
  const std::string long_text(3'000'000, '\x01');  // escaped as six characters each
  r.commands.assign(100, long_text);
  r.failure = long_text;
  r.rows.assign(200'000, std::vector<double>(8, M_PI));
  r.columns.assign(8, "x");
  const std::vector<double> many(100'000, M_PI * 1e-7);
  r.charts.assign(1, {{.title = "t"}, std::vector<Series>(100, Series{"c", many, many})});
  r.maps.assign(2,
                {"m", "r", "c",
                 std::vector<HeatMap>(8, HeatMap{"h", 1000, 1001, std::vector<float>(1001000)})});
  std::vector<Note> notes(100'000);
  for (int i = 0; i < 100'000; ++i) notes[size_t(i)] = {100'000'000 + i, 1234567, 100, 100};
  r.music.assign(100, {"p", "p.mid", Song{.tracks = {{"v", 0, 0, notes}, {"w", 0, 0, notes}}}});
  r.texts.assign(10, {"t", long_text, long_text});
  const std::string page = report_page(r);
  CHECK(page.size() < 3'000'000);
  const json run = data_in(page).at("runs").at(0);
  CHECK(run.at("metrics").at("rows").size() == 1000);
  CHECK(run.at("metrics").at("measured") == 200'000);
  CHECK(run.at("music")[0].at("cut") == true);
  CHECK(run.at("music")[0].at("voices")[1].at("notes").size() == 50'000);
}

TEST_CASE("a coarser map keeps the largest values", "[examples][report]") {
  Report r = small_report();
  HeatMap map{"h", 1001, 1001, std::vector<float>(1001 * 1001)};
  map.values[1001 * 500 + 7] = 1;
  r.maps = {{"m", "r", "c", {map}}};
  const json shown = data_in(report_page(r)).at("runs")[0].at("maps")[0];
  CHECK(shown.at("coarse") == 2);
  CHECK(shown.at("maps")[0].at("rows") == 501);
  CHECK(shown.at("high") == 1);
  CHECK(count(shown.at("maps")[0].at("cells"), "/") == 1);  // 255 in base64
}

TEST_CASE("a comparison shows complete runs and reports broken ones", "[examples][report]") {
  const TempDir folder;
  std::vector<std::string> runs;
  for (int i = 0; i < 10; ++i) {
    runs.push_back(folder.file(std::to_string(i)));
    std::filesystem::create_directory(runs.back());
    Report r = small_report();
    r.settings[0].value = std::to_string(i);
    if (i == 5) r.state = RunState::training;
    write_file(runs.back() + "/report.html", report_page(r));
    write_file(runs.back() + "/metrics.csv", metrics(20));
  }
  const std::string cut = metrics(20), page = read_file(runs[3] + "/report.html");
  write_file(runs[2] + "/metrics.csv", cut.substr(0, cut.size() - 9));
  write_file(runs[3] + "/report.html", page.substr(0, page.find("\"commands\"")));
  Comparison c = compare_runs(runs, folder.file("all.html"));
  CHECK(c.shown == 9);
  CHECK(c.problems ==
        std::vector<std::string>{
            runs[2] + ": metrics.csv is truncated within line 21, shown up to step 190",
            runs[3] + ": " + runs[3] + "/report.html: not the page of a run",
            runs[5] + ": was interrupted, or is still running, at step 200"});
  CHECK(c.page.size() < 3'000'000);
  const json data = data_in(c.page);
  CHECK(data.at("kind") == "comparison");
  CHECK(data.at("problems").size() == 3);
  REQUIRE(data.at("runs").size() == 9);
  CHECK(data.at("runs")[2].at("metrics").at("rows").size() == 19);
  CHECK(data.at("runs")[0].at("metrics").at("rows").size() == 20);
  CHECK(data.at("runs")[0].at("link") == "./0/report.html");
  CHECK(data.at("runs")[0].at("music").size() == 1);

  // Each other defect is reported in one line.
  const auto problem_of = [&](const std::string& file, const std::string& text) {
    const std::string broken = folder.file("broken");
    std::filesystem::remove_all(broken);
    std::filesystem::copy(runs[0], broken);
    write_file(broken + "/" + file, text);
    c = compare_runs({runs[0], broken}, folder.file("all.html"));
    REQUIRE(c.problems.size() == 1);
    CHECK(c.problems[0].find('\n') == std::string::npos);
    REQUIRE(c.problems[0].starts_with(broken + ": "));
    return std::to_string(c.shown) + " " + c.problems[0].substr(broken.size() + 2);
  };
  CHECK(problem_of("metrics.csv", "") ==
        "1 metrics.csv must have exactly one column step, and its first column must be step");
  CHECK(problem_of("metrics.csv", "step,seconds\n1,2\n") ==
        "1 metrics.csv must have exactly one column train_loss, and its first column must be step");
  CHECK(problem_of("metrics.csv", metrics(2) + "x,y\n" + metrics(1)) ==
        "2 line 4 of metrics.csv is not a row of 8 numbers, shown up to step 20");
  CHECK(problem_of("report.html", page_with("x", "{\"runs\": [")) == "1 report.html is broken");
  CHECK(problem_of("report.html", page_with("x", "{\"runs\": [{\"program\": 3}]}")) ==
        "1 report.html is broken");
  CHECK(problem_of("report.html", page_with("x", "{}")) == "1 report.html is broken");
  CHECK(problem_of("report.html", std::string(4'000'001, ' ')) ==
        "1 " + folder.file("broken") +
            "/report.html: has 4000001 bytes; the page of a run has at most 4000000");
  CHECK(problem_of("report.html", page_with("x", std::string(1'000'000, '['))) ==
        "1 report.html is broken");
  CHECK(problem_of("metrics.csv", metrics(2) + "1e300,1,1,1,1,1,1,1\n") ==
        "2 line 4 of metrics.csv is not a row of 8 numbers, shown up to step 20");
  CHECK(compare_runs({folder.file("none")}, "x").problems ==
        std::vector<std::string>{folder.file("none") + ": no such folder"});
  CHECK_THROWS_AS(compare_runs(std::vector<std::string>(101, runs[0]), "x"), UsageError);
}

TEST_CASE("a large or deeply nested page is rejected before it uses much memory",
          "[examples][report]") {
  const TempDir folder;
  const std::string path = folder.file("report.html");
  const auto commands = [&](const std::string& text) {
    write_file(path, text);
    return commands_of_page(path);
  };
  const std::vector<std::string> given{"train_lm --steps 20"};
  CHECK(commands(report_page(small_report())) == given);
  const std::string good = data_in(report_page(small_report())).dump();
  CHECK(commands(page_with("x", good)) == given);
  // The maximum size of a page, and one byte more.
  const std::string page = page_with("x", good);
  CHECK(commands(page + std::string(4'000'000 - page.size(), ' ')) == given);
  CHECK(commands(page + std::string(4'000'001 - page.size(), ' ')).empty());
  const auto refused = [&](const std::string& data) {
    write_file(path, page_with("x", data));
    return error_of<UsageError>([&] { run_of_page(path); });
  };
  CHECK(refused(std::string(3'900'000, '[')) == "report.html is broken");
  CHECK(refused("{\"runs\": [{\"a\": " + std::string(20, '[') + std::string(20, ']') + "}]}") ==
        "report.html is broken");
  std::string many = "{\"runs\": [[";
  for (int i = 0; i < 600'000; ++i) many += "[],";
  CHECK(refused(many + "1]]}") == "report.html is broken");
  CHECK(refused("{\"runs\": [7") == "report.html is broken");
}

TEST_CASE("a page is valid UTF-8 for any directory name", "[examples][report]") {
  Report r = small_report();
  r.folder = "out/\xFF\xFE m\xC3\xA4rz";
  const std::string page = report_page(r);
  CHECK(stretto::find_invalid_utf8(page).at == page.size());
  CHECK_THAT(page, Containing("<title>train_lm · out/\uFFFD\uFFFD märz</title>"));
  CHECK(data_in(page).at("runs")[0].at("name") == "out/\uFFFD\uFFFD märz");

  const TempDir folder;
  const std::string odd = folder.file("\xFFx y#?");
  std::filesystem::create_directory(odd);
  write_file(odd + "/report.html", page);
  write_file(odd + "/metrics.csv", metrics(2));
  const Comparison c = compare_runs({odd}, folder.file("all.html"));
  CHECK(c.problems.empty());
  CHECK(stretto::find_invalid_utf8(c.page).at == c.page.size());
  // A link preserves the bytes.
  CHECK(data_in(c.page).at("runs")[0].at("link") == "./%FFx%20y%23%3F/report.html");
}

TEST_CASE("stretto-report writes one page and reports missing runs", "[examples][report]") {
  NEEDS_PROGRAM("stretto-report");
  const TempDir folder;
  const std::string program = find_program("stretto-report"), good = folder.file("good"),
                    out = folder.file("all.html");
  std::filesystem::create_directory(good);
  write_file(good + "/report.html", report_page(small_report()));
  write_file(good + "/metrics.csv", metrics(3));
  const Ended ended = run(program, {good, folder.file("none"), "--out", out});
  CHECK(ended.status == 0);
  CHECK(ended.out == "Wrote " + out + ": 1 run\n");
  CHECK(ended.err == folder.file("none") + ": no such folder\n");
  CHECK(data_in(read_file(out)).at("runs").size() == 1);

  const Ended none = run(program, {folder.file("none"), "--out", folder.file("other.html")});
  CHECK(none.status == 2);
  CHECK(none.complaint() == "stretto-report: none of these folders has a run that can be shown");
  CHECK(!std::filesystem::exists(folder.file("other.html")));
  CHECK(run(program, {}).status == 2);
  const Ended own = run(program, {good, "--out", good + "/report.html"});
  CHECK(own.status == 2);
  CHECK(own.complaint() ==
        "stretto-report: --out: " + good + "/report.html is the page of one of the runs");
}
