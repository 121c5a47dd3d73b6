// The position study: runs are made once, resumed after a kill and repeated to the last digit; the
// tables of given rows are those expected.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "benchmarks/position_study/study.h"
#include "benchmarks/position_study/tables.h"
#include "examples/chorales/chorale_tokens.h"
#include "examples/common/error.h"
#include "examples/training/output_folder.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace stretto;

namespace {

// A study of two positions on a generated task, with models of 16 features.
study::StudyOptions tiny(const std::string& out) {
  return {.out = out,
          .data = out,
          .positions = {"none", "alibi", "rope"},
          .kernels = {"softmax", "linear-elu"},
          .seeds = {1, 2},
          .steps = 3,
          .length = 16,
          .batch = 4,
          .size = {.layers = 1, .d_model = 16, .heads = 2, .hidden = 16},
          .origin = {{"commit", "0123"}, {"processor", "test"}}};
}

std::vector<study::Row> rows_of(const study::StudyOptions& o) {
  return study::read_rows(study::csv_path(o.out, "copy"), study::csv_columns());
}

// Returns the text of the file without the columns of times, which differ from run to run.
std::string results_of(const std::vector<study::Row>& rows) {
  std::string text;
  for (const study::Row& row : rows) {
    for (const char* name : {"position", "kernel", "seed"})
      text += study::value_of(row, name) + " ";
    for (const std::string& name : study::reproducible_results())
      text += study::value_of(row, name) + " ";
    text += "\n";
  }
  return text;
}

void set(study::Row& row, const std::string& column, const std::string& value) {
  for (auto& [name, text] : row)
    if (name == column) text = value;
}

// A row with these results; the other columns are empty.
study::Row result(const std::string& position, const std::string& seed, const std::string& bits) {
  study::Row row;
  for (const std::string& name : study::csv_columns()) row.emplace_back(name, "");
  const examples::NamedTexts values{
      {"task", "text"},        {"position", position},    {"kernel", "softmax"},
      {"seed", seed},          {"layers", "2"},           {"d_model", "64"},
      {"heads", "4"},          {"length", "128"},         {"batch", "16"},
      {"steps", "500"},        {"bits_1x", bits},         {"bits_2x", "2"},
      {"bits_4x", "3"},        {"beyond_4x", "4"},        {"parameters", "12345"},
      {"step_seconds", "0.5"}, {"step_bytes", "100"},     {"token_seconds", "0.25"},
      {"cache_bytes", "1280"}, {"cache_bytes_4x", "8960"}};
  for (const auto& [name, value] : values) set(row, name, value);
  return row;
}

const study::TaskInfo& text_task() { return study::tasks().at(0); }

}  // namespace

TEST_CASE("A position study makes each run once, softmax and the first seed first") {
  const testing::TempDir dir;
  const study::StudyOptions o = tiny(dir.str());
  CHECK(study::make_missing(o) == 10);
  const std::vector<study::Row> rows = rows_of(o);
  REQUIRE(rows.size() == 10);
  std::string order;
  for (const study::Row& row : rows) {
    CHECK(study::value_of(row, "error").empty());
    CHECK(std::isfinite(study::number_of(row, "bits_4x")));
    CHECK(study::value_of(row, "commit") == "0123");
    for (const char* name : {"position", "kernel", "seed"})
      order += study::value_of(row, name) + " ";
  }
  CHECK(order ==
        "none softmax 1 alibi softmax 1 rope softmax 1 none linear-elu 1 rope linear-elu 1 "
        "none softmax 2 alibi softmax 2 rope softmax 2 none linear-elu 2 rope linear-elu 2 ");
  const study::Plan plan = study::plan_of(o);
  REQUIRE(plan.refused.size() == 1);
  CHECK(plan.refused[0].condition.position == "alibi");
  CHECK_THAT(plan.refused[0].reason, Containing("acts on scores"));
  CHECK(plan.skipped.size() == 4);

  CHECK(study::make_missing(o) == 0);
  CHECK(results_of(rows_of(o)) == results_of(rows));
  CHECK_THAT(study::overview(o), Containing("10 runs,    0 missing"));
}

TEST_CASE("Training and test windows of chorales predict the same voice at each position") {
  const testing::TempDir dir;
  std::filesystem::create_directories(dir.str() + "/jsb");
  std::string piece;  // 40 steps; each voice has two octaves, in which training transposes it
  for (int i = 0; i < 40; ++i) {
    const int low = 36 + i % 5;
    piece += str(i ? "," : "", "[", low + 72, ",", low + 48, ",", low + 24, ",", low, "]");
  }
  std::string sets;
  for (const char* name : {"train", "valid", "test"})
    sets += str(sets.empty() ? "" : ",", "\"", name, "\":[[", piece, "]]");
  testing::write_file(dir.str() + "/jsb/Jsb16thSeparated.json", "{" + sets + "}");

  study::TaskInfo info = study::tasks().at(1);
  REQUIRE(info.name == "chorales");
  info.length = 16;
  const auto task = study::load(info, dir.str());
  std::vector<nn::Batch> batches = task->held_out(1);
  for (const int64_t factor : {2, 4})
    for (nn::Batch& batch : task->held_out(factor)) batches.push_back(batch);
  for (int64_t step = 0; step < 4; ++step) batches.push_back(task->training(1, step));
  for (const nn::Batch& batch : batches) {
    const std::vector<int64_t> targets = batch.targets.to_vector<int64_t>();
    const int64_t n = batch.targets.size(1);
    for (size_t i = 0; i < targets.size(); ++i) {
      if (targets[i] < examples::pitch_token) continue;
      const int64_t from_below = (targets[i] - examples::pitch_token - 31) / 24;
      REQUIRE(3 - from_below == int64_t(i) % n % 4);
    }
  }
}

TEST_CASE("A position study repeats runs to the last digit and finds other results") {
  const testing::TempDir dir;
  study::StudyOptions o = tiny(dir.str());
  o.seeds = {1};
  std::string printed;
  o.print = [&](const std::string& line) { printed += line + "\n"; };
  study::make_missing(o);
  printed.clear();
  CHECK(study::repeat_runs(o, 0.4) == 0);
  CHECK(printed ==
        "copy rope softmax seed 1: the same\n"
        "copy rope linear-elu seed 1: the same\n"
        "2 runs repeated, 0 with other results\n");

  const std::string path = study::csv_path(o.out, "copy");
  std::string text = testing::read_file(path);
  const std::string bits = study::value_of(rows_of(o).at(2), "bits_1x");
  text.replace(text.find(bits), bits.size(), "7.5");
  testing::write_file(path, text);
  printed.clear();
  CHECK(study::repeat_runs(o, 0.4) == 1);
  CHECK_THAT(printed,
             Containing("copy rope softmax seed 1: DIFFERENT; bits_1x 7.5, again " + bits));
}

TEST_CASE("A position study repeats a run whose row is incomplete") {
  const testing::TempDir dir;
  study::StudyOptions o = tiny(dir.str());
  o.seeds = {1};
  study::make_missing(o);
  const std::vector<study::Row> rows = rows_of(o);
  const std::string path = study::csv_path(o.out, "copy");
  const std::string text = testing::read_file(path);
  testing::write_file(path, text.substr(0, text.size() - 40));
  CHECK(rows_of(o).size() == 4);
  CHECK(study::make_missing(o) == 1);
  CHECK(results_of(rows_of(o)) == results_of(rows));

  testing::write_file(path, "task,position");  // killed while it wrote the first line
  CHECK(study::make_missing(o) == 5);
  CHECK(results_of(rows_of(o)) == results_of(rows));
}

TEST_CASE("A position study rejects damaged files, other columns and other settings") {
  const testing::TempDir dir;
  study::StudyOptions o = tiny(dir.str());
  o.seeds = {1};
  o.positions = {"none"};
  study::make_missing(o);
  const std::string path = study::csv_path(o.out, "copy"), text = testing::read_file(path);
  o.batch = 2;
  CHECK_THROWS_WITH(study::make_missing(o),
                    path +
                        ": the run copy none softmax seed 1 has batch 4, this study 2; choose "
                        "another --out");
  testing::write_file(path, text + "copy,rope\n");
  CHECK_THROWS_WITH(rows_of(o), path +
                                    ", line 4: has 2 fields; must be 36; remove the line to "
                                    "repeat the run");
  testing::write_file(path, "task,position\n");
  CHECK_THROWS_WITH(rows_of(o), path +
                                    ", line 1: has other columns than this program writes; "
                                    "choose another --out, or remove the file");
  o.positions = {"rop"};
  CHECK_THROWS_WITH(study::make_missing(o),
                    Containing("--positions rop: accepted values are none"));
}

TEST_CASE("A position study skips runs that another process has claimed") {
  const testing::TempDir dir;
  study::StudyOptions o = tiny(dir.str());
  o.seeds = {1};
  o.positions = {"none"};
  {
    const study::Claim other(dir.file("claims"), "copy none softmax seed 1");
    REQUIRE(other.held());
    CHECK(!study::Claim(dir.file("claims"), "copy none softmax seed 1").held());
    CHECK(study::Claim(dir.file("claims"), "copy none softmax seed 2").held());
    CHECK(study::make_missing(o) == 1);
    CHECK(study::value_of(rows_of(o).at(0), "kernel") == "linear-elu");
  }
  CHECK(study::make_missing(o) == 1);
}

TEST_CASE("A position study stops when its time is over") {
  const testing::TempDir dir;
  study::StudyOptions o = tiny(dir.str());
  o.budget = 1e-9;
  CHECK(study::make_missing(o) == 0);
}

TEST_CASE("Bytes of a text are a task of the position study") {
  const testing::TempDir dir;
  std::filesystem::create_directories(dir.file("text"));
  std::string text;
  for (int i = 0; i < 5000; ++i) text += char('a' + i * i % 26);
  testing::write_file(dir.file("text/enwik8.first4M.xml"), text);
  study::TaskInfo info = text_task();
  info.length = 16;
  const std::unique_ptr<study::Task> task = study::load(info, dir.str());
  const std::string held = text.substr(4500);
  for (const int64_t factor : {1, 2, 4}) {
    // Seven windows of 64 bytes and their next byte, whatever the length of their parts.
    std::vector<int64_t> scored;
    for (const nn::Batch& batch : task->held_out(factor)) {
      CHECK(batch.inputs.size(1) == factor * 16);
      for (const int64_t token : batch.targets.to_vector<int64_t>()) scored.push_back(token);
    }
    REQUIRE(scored.size() == 7 * 64);
    for (size_t i = 0; i < scored.size(); ++i) CHECK(scored[i] == held[i + 1]);
  }
  CHECK(task->stream().size() == 4500);
}

TEST_CASE("The position study removes the folders of killed processes only") {
  namespace fs = std::filesystem;
  const testing::TempDir folder;
  ::setenv("TMPDIR", folder.str().c_str(), 1);
  const std::string prefix = folder.file("stretto-position_study-"), killed = prefix + "aaaaaa",
                    used = prefix + "bbbbbb";
  fs::create_directories(killed + "/pop909");
  testing::write_file(killed + "/.lock", "1\n");
  for (const std::string& path :
       {used, prefix + "results", folder.file("position_study-1"), folder.file("midi")})
    fs::create_directory(path);
  testing::write_file(folder.file("midi/pop909.tar.gz"), "no archive");
  {
    const examples::FolderLock lock(used);
    CHECK_THROWS_AS(study::load(study::tasks().at(2), folder.str()), examples::UsageError);
    CHECK(!fs::exists(killed));
    CHECK(folder.entries() == 4);
  }
  ::unsetenv("TMPDIR");
}

TEST_CASE("Processes of a position study unpack at the same time") {
  const testing::TempDir folder;
  ::setenv("TMPDIR", folder.str().c_str(), 1);
  std::filesystem::create_directory(folder.file("midi"));
  testing::write_file(folder.file("midi/pop909.tar.gz"), "no archive");
  std::vector<pid_t> processes;
  for (int i = 0; i < 4; ++i)
    if (processes.push_back(::fork()); processes.back() == 0) {
      int failed = 0;
      for (int turn = 0; turn < 25; ++turn) {
        try {
          study::load(study::tasks().at(2), folder.str());
        } catch (const std::exception& e) {
          failed += std::string(e.what()).find("tar cannot unpack it") == std::string::npos;
        }
      }
      ::_exit(failed);
    }
  for (const pid_t process : processes) {
    int status = -1;
    ::waitpid(process, &status, 0);
    CHECK(status == 0);
  }
  CHECK(folder.entries() == 1);
  ::unsetenv("TMPDIR");
}

TEST_CASE("In the copying task each answer follows an earlier occurrence of its token") {
  const study::TaskInfo& info = study::tasks().at(3);
  const std::unique_ptr<study::Task> task = study::load(info, "");
  for (const int64_t factor : {1, 4}) {
    const nn::Batch batch = task->held_out(factor).at(0);
    const int64_t n = batch.inputs.size(1);
    CHECK(n == factor * info.length);
    const std::vector<int64_t> inputs = batch.inputs.to_vector<int64_t>();
    const std::vector<int64_t> targets = batch.targets.to_vector<int64_t>();
    int64_t answers = 0;
    for (int64_t row = 0; row < batch.inputs.size(0); ++row)
      for (int64_t i = 1; i < n; ++i) {
        const size_t at = size_t(row * n + i);
        if (targets[at] == nn::ignore_index) continue;
        const auto begin = inputs.begin() + row * n;
        const auto earlier = std::find(begin, begin + i, inputs[at]);
        const bool is_first_answer = earlier == begin + i;  // the end of the first period
        CHECK((is_first_answer ? inputs[size_t(row * n)] : *(earlier + 1)) == targets[at]);
        ++answers;
      }
    CHECK(answers >= batch.inputs.size(0) * n / 2);
  }
}

TEST_CASE("Tables of the position study mark the best mean and its ties") {
  std::vector<study::Row> rows{result("none", "1", "2.5"), result("none", "2", "2.7"),
                               result("rope", "1", "1.1"), result("rope", "2", "1.3"),
                               result("t5", "1", "1.25"),  result("t5", "2", "1.35")};
  for (const size_t rope : {2, 3}) {
    set(rows[rope], "step_seconds", "0.75");
    set(rows[rope], "token_seconds", "0.5");
    set(rows[rope], "step_bytes", "125");
  }
  CHECK(study::task_tables(text_task(), rows) ==
        "## Bytes of enwik8\n\n"
        "Bits per token; L = 128. 2 layers of width 64, 4 heads; 500 steps of 16 × 128 tokens; "
        "seeds 1, 2.\n\n"
        "### Bytes of enwik8: softmax\n\n"
        "| position | L | 2 L | 4 L | past L, at 4 L |\n"
        "| --- | ---: | ---: | ---: | ---: |\n"
        "| rope | **1.200 ± 0.141** | **2.000 ± 0.000** | **3.000 ± 0.000** | **4.000 ± 0.000** |\n"
        "| t5 | 1.300 ± 0.071 ≈ | 2.000 ± 0.000 ≈ | 3.000 ± 0.000 ≈ | 4.000 ± 0.000 ≈ |\n"
        "| none | 2.600 ± 0.141 | 2.000 ± 0.000 ≈ | 3.000 ± 0.000 ≈ | 4.000 ± 0.000 ≈ |\n\n"
        "Costs; times and memory of a step are divided by those of `none`:\n\n"
        "| position | parameters | time of a step | memory of a step | time of a decoded token | "
        "cache at L, bytes per token | each further token, bytes |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        "| rope | 12,345 | 1.50 | 1.25 | 2.00 | 10 | 20 |\n"
        "| t5 | 12,345 | 1.00 | 1.00 | 1.00 | 10 | 20 |\n"
        "| none | 12,345 | 1.00 | 1.00 | 1.00 | 10 | 20 |\n");
  CHECK(study::best_table({{text_task(), rows}}) ==
        "| task | kernel | at L | at 4 L |\n"
        "| --- | --- | --- | --- |\n"
        "| bytes of enwik8 | softmax | **rope**, t5 | **rope**, t5, none |\n");
}

TEST_CASE("One seed has no ties, and a failed run is reported") {
  std::vector<study::Row> rows{result("none", "1", "1.2"), result("rope", "1", "1.2")};
  set(rows[0], "error", "[op] something");
  set(rows[0], "bits_1x", "");
  const std::string tables = study::task_tables(text_task(), rows);
  CHECK_THAT(tables, Containing("| rope | **1.200** | **2.000** |"));
  CHECK_THAT(tables, Containing("| none | – | 2.000 |"));
  CHECK_THAT(tables, Containing("\nnone, seed 1: [op] something\n"));
}

TEST_CASE("The position study writes its tables and plots") {
  const testing::TempDir dir;
  for (const char* seed : {"1", "2"})
    study::append_row(study::csv_path(dir.str(), "text"), result("rope", seed, "1.5"));
  study::write_tables(dir.str(), dir.file("tables"));
  const std::string tables = testing::read_file(dir.file("tables/tables.md"));
  CHECK_THAT(tables, Containing("| bytes of enwik8 | softmax | **rope** | **rope** |"));
  CHECK_THAT(tables, Containing("| rope | **1.500 ± 0.000** |"));
  CHECK_THAT(testing::read_file(dir.file("tables/text-softmax.svg")), Containing("rope"));
  CHECK(testing::entries(dir.file("tables")) == 2);
  CHECK_THROWS_WITH(study::write_tables(dir.file("none"), dir.file("tables")),
                    "--out " + dir.file("none") + ": has no results");
}
