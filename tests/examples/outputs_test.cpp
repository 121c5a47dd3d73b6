// Which files programs replace: never their inputs, and files of other origin only on request.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <set>
#include <sstream>

#include "tests/examples/chorales/train_chorales.h"
#include "tests/examples/tiny_programs.h"

namespace stretto::examples::testing {
namespace {

namespace fs = std::filesystem;

/// A program that writes all kinds of files, one of them, `own`, that only this program writes.
struct Writer : Tiny {
  std::string own;
};

std::vector<Writer> writers(const TempDir& folder) {
  const std::string chorales = folder.file("tiny.json");
  save_chorales(chorales, tiny_chorales());
  std::vector<Writer> all{{tiny_program("train_lm"), "generated.txt"},
                          {tiny_program("lra"), "basic_val.tsv"},
                          {tiny_program("train_chorales"), "primed.mid"},
                          {tiny_program("harmonize"), "harmonized-1.mid"},
                          {tiny_program("train_music"), "templates.svg"},
                          {tiny_program("groove"), "continuation-1.mid"}};
  const std::vector<std::string> more{"--generate 4",
                                      "--expressions 20 --held-out-expressions 5 --write-data",
                                      "--generate 4 --prime 2 --data " + chorales,
                                      "--pieces 1 --data " + chorales,
                                      "--generate 8 --position learned+sine",
                                      "--length 300 --continuations 1 --tokens 4"};
  for (size_t i = 0; i < all.size(); ++i)
    for (const std::string& word : words("--steps 2 " + more[i])) all[i].more.push_back(word);
  return all;
}

Ended run_in(const std::string& out, const Tiny& tiny, const Arguments& others = {}) {
  return run(tiny.path(), tiny.command(out, others));
}

std::set<std::string> lines_of(const std::string& path) {
  std::istringstream lines(read_file(path));
  std::set<std::string> all;
  for (std::string line; std::getline(lines, line);) all.insert(line);
  return all;
}

}  // namespace

TEST_CASE("a program does not replace files of other origin or links", "[examples]") {
  NEEDS_PROGRAM("train_lm");
  const TempDir folder;
  const std::string victim = folder.file("victim");
  write_file(victim, "precious");
  for (const Writer& tiny : writers(folder)) {
    INFO(tiny.name);
    const std::string out = folder.file(tiny.name);
    const Ended first = run_in(out, tiny);
    INFO(first.err);
    REQUIRE(first.status == 0);
    // It has written exactly the files that it listed in .stretto, and one checkpoint only.
    std::set<std::string> made = names_in(out);
    CHECK(made.erase(".stretto") == 1);
    CHECK(made.insert("checkpoint.previous.safetensors").second);
    CHECK(lines_of(out + "/.stretto") == made);

    const std::string other = folder.file(tiny.name + "-2");
    fs::create_directory(other);
    REQUIRE(made.count(tiny.own) == 1);
    for (const std::string& name : {tiny.own, std::string("metrics.csv")}) {
      write_file(other + "/" + name, "mine");
      const Ended ended = run_in(other, tiny);
      CHECK(ended.status == 2);
      CHECK(ended.complaint() == tiny.name + ": --out: " + other + " has a file " + name +
                                     " that was not made by a run; --overwrite replaces it");
      CHECK(read_file(other + "/" + name) == "mine");
      fs::remove(other + "/" + name);
    }
    fs::create_symlink(victim, other + "/" + tiny.own);
    const Ended linked = run_in(other, tiny, {"--overwrite"});
    CHECK(linked.status == 2);
    CHECK(linked.complaint() == tiny.name + ": --out: cannot write " + other + "/" + tiny.own +
                                    ": it is a symbolic link");
    fs::remove(other + "/" + tiny.own);
    CHECK(names_in(other).empty());
    CHECK(read_file(victim) == "precious");
  }
}

TEST_CASE("files of an earlier run remain until the new run has a checkpoint", "[examples]") {
  NEEDS_PROGRAM("train_lm");
  const TempDir folder;
  const Tiny writer = writers(folder)[0];
  const std::string out = folder.file("out");
  REQUIRE(run_in(out, writer).status == 0);
  const auto before = contents(out);
  const auto whole = [&] {
    for (const auto& [path, bytes] : before) CHECK(read_file(path) == bytes);
  };
  const Arguments other{"--overwrite", "--seed", "2", "--evaluate-every", "1"};
  const auto with = [&](Arguments more) {
    more.insert(more.begin(), other.begin(), other.end());
    return more;
  };
  // Invalid options are found before anything is written.
  for (const Arguments& wrong : {Arguments{"--micro-batches", "3"}, {"--micro-batches", "4"}}) {
    const Ended ended = run_in(out, writer, with(wrong));
    CHECK(ended.status == 2);
    CHECK(contents(out) == before);
  }
  ::setenv("STRETTO_CPU", "foo", 1);
  const Ended unknown = run_in(out, writer, other);
  ::unsetenv("STRETTO_CPU");
  CHECK(unknown.status == 2);
  CHECK_THAT(unknown.complaint(), Containing("STRETTO_CPU is \"foo\""));
  CHECK(contents(out) == before);
  {  // killed after evaluations, before it saves
    Program program(writer.path(),
                    writer.command(out, with({"--steps", "1000000", "--save-every", "1000000"})));
    REQUIRE(program.wait_for("step 3:"));
    whole();
    program.signal(SIGKILL);
    program.wait();
  }
  whole();
  CHECK(run_in(out, writer, {"--resume", out + "/checkpoint.safetensors"}).status == 0);
  CHECK(names_in(out).count(".stretto-staged") == 0);
  CHECK(read_file(out + "/checkpoint.safetensors") == before.at(out + "/checkpoint.safetensors"));

  // After its first checkpoint the directory looks as if it were the only run.
  REQUIRE(run_in(out, writer, other).status == 0);
  const std::string single = folder.file("single");
  REQUIRE(run_in(single, writer, {"--seed", "2", "--evaluate-every", "1"}).status == 0);
  CHECK(names_in(out) == names_in(single));
  for (const char* name : {"checkpoint.safetensors", "text.txt", "generated.txt", "loss.svg"})
    CHECK(read_file(out + "/" + name) == read_file(single + "/" + name));
  CHECK(count_lines(read_file(out + "/metrics.csv")) == 3);
}

TEST_CASE("a resumed run does not replace files of other origin", "[examples]") {
  NEEDS_PROGRAM("train_lm");
  const TempDir folder;
  const Tiny writer = writers(folder)[0];
  const std::string out = folder.file("out"), text = out + "/generated.txt";
  REQUIRE(run_in(out, writer, {"--generate", "0"}).status == 0);
  write_file(text, "mine");
  const Arguments resume{"--resume", out + "/checkpoint.safetensors"};
  const Ended ended = run_in(out, writer, resume);
  CHECK(ended.status == 2);
  CHECK_THAT(ended.complaint(), Containing(" has a file generated.txt that was not made by a run"));
  CHECK(read_file(text) == "mine");
  fs::remove(out + "/.stretto");  // as with earlier versions, which wrote no list
  CHECK(run_in(out, writer, resume).status == 0);
  CHECK(read_file(text) != "mine");
}

TEST_CASE("an evaluation replaces that of another run only with --overwrite", "[examples]") {
  NEEDS_PROGRAM("train_lm");
  const TempDir folder;
  const Tiny writer = writers(folder)[0];
  const std::string a = folder.file("a"), b = folder.file("b"), c = folder.file("c");
  REQUIRE(run_in(a, writer).status == 0);
  REQUIRE(run_in(b, writer, {"--seed", "2"}).status == 0);
  const std::string text = read_file(b + "/generated.txt");
  const auto evaluate = [&](const std::string& out, const Arguments& more = {}) {
    Arguments all{"--evaluate", "--resume", a + "/checkpoint.safetensors", "--generate", "9"};
    all.insert(all.end(), more.begin(), more.end());
    return run_in(out, writer, all);
  };
  const Ended refused = evaluate(b);
  CHECK(refused.status == 2);
  CHECK_THAT(refused.complaint(), Containing("b has the checkpoint of an earlier run; --resume "));
  CHECK_THAT(refused.complaint(), Containing(" and --overwrite replaces its evaluation"));
  CHECK(read_file(b + "/generated.txt") == text);
  CHECK(evaluate(b, {"--overwrite"}).status == 0);
  CHECK(read_file(b + "/generated.txt") != text);
  for (int i = 0; i < 2; ++i) CHECK(evaluate(c).status == 0);  // a folder of evaluations
  CHECK(evaluate(a).status == 0);
}

TEST_CASE("a run whose directory was removed does not write into the next run's", "[examples]") {
  NEEDS_PROGRAM("train_lm");
  const TempDir folder;
  const Tiny writer = writers(folder)[0];
  const std::string out = folder.file("two words");
  Arguments all = writer.command(out, words("--steps 1000000 --save-every 1000000"));
  Program first(find_program("train_lm"), all);
  REQUIRE(first.wait_for("step "));
  fs::remove_all(out);
  all.insert(all.end(), {"--seed", "2"});
  Program second(find_program("train_lm"), all);
  REQUIRE(second.wait_for("step "));
  first.signal(SIGTERM);
  const Ended ended = first.wait();
  CHECK(ended.status == 1);
  CHECK(ended.complaint() == "train_lm: --out: " + out +
                                 " was removed or replaced during this run; no more files are "
                                 "written");
  CHECK(!fs::exists(out + "/checkpoint.safetensors"));
  const Ended third = run_in(out, writer, {"--overwrite"});
  CHECK(third.status == 2);
  CHECK_THAT(third.complaint(),
             Containing("another run, of process " + std::to_string(second.pid()) + ", is using "));
  second.signal(SIGTERM);
  const Ended stopped = second.wait();
  CHECK(stopped.status == 128 + SIGTERM);
  CHECK(stopped.out.ends_with("repeat the command with --resume '" + out +
                              "/checkpoint.safetensors'\n"));
}

TEST_CASE("a run that a full disk ended at its start can be started again", "[examples]") {
  NEEDS_PROGRAM("train_lm");
  const TempDir folder;
  const Tiny writer = writers(folder)[0];
  for (const long bytes : {1, 50, 100, 200, 1000}) {
    const std::string out = folder.file(std::to_string(bytes));
    INFO(bytes);
    CHECK(run(writer.path(), writer.command(out), {.largest_file = bytes}).status != 0);
    const Ended again = run_in(out, writer);
    INFO(again.err);
    CHECK(again.status == 0);
  }
}

TEST_CASE("what happens to a directory during a run", "[examples]") {
  NEEDS_PROGRAM("train_lm");
  const TempDir folder;
  const Tiny writer = writers(folder)[0];
  const std::string text = folder.file("text"), victim = folder.file("victim");
  write_file(text, std::string(3000, 'a') + std::string(3000, 'b'));
  write_file(victim, "precious");
  const auto run_while = [&](const std::string& name, const std::string& steps, int signal,
                             const std::function<void(const std::string&)>& change) {
    const std::string out = folder.file(name);
    Program program(writer.path(),
                    writer.command(out, {"--data", text, "--held-out", "0.1", "--steps", steps,
                                         "--evaluate-every", "1000", "--save-every", "1000000"}));
    REQUIRE(program.wait_for("step 1000:"));
    change(out);
    if (signal != 0) program.signal(signal);
    return program.wait();
  };
  SECTION("metrics.csv is removed") {
    const Ended ended =
        run_while("a", "3000", 0, [](const std::string& out) { fs::remove(out + "/metrics.csv"); });
    INFO(ended.err);
    CHECK(ended.status == 0);
    CHECK(count_lines(read_file(folder.file("a/metrics.csv"))) == 4);
    CHECK(fs::exists(folder.file("a/generated.txt")));
  }
  SECTION("a link appears in place of the checkpoint") {
    const Ended ended = run_while("b", "1000000", SIGTERM, [&](const std::string& out) {
      fs::create_symlink(victim, out + "/checkpoint.safetensors");
    });
    CHECK(ended.status == 1);
    CHECK(ended.complaint() == "train_lm: --out: cannot write " + folder.file("b") +
                                   "/checkpoint.safetensors: it is a symbolic link");
    CHECK(read_file(victim) == "precious");
  }
  SECTION("the text gets another time, but keeps its content") {
    const Ended ended = run_while("c", "1000000", SIGTERM, [&](const std::string&) {
      fs::last_write_time(text, fs::last_write_time(text) + std::chrono::hours(1));
    });
    INFO(ended.err);
    CHECK(ended.status == 128 + SIGTERM);
    CHECK(fs::exists(folder.file("c/checkpoint.safetensors")));
  }
}

TEST_CASE("a text that changes during a run is reported", "[examples]") {
  NEEDS_PROGRAM("train_lm");
  const TempDir folder;
  const Tiny writer = writers(folder)[0];
  const std::string text = folder.file("text"), out = folder.file("out");
  write_file(text, std::string(3000, 'a') + std::string(3000, 'b'));
  Program program(writer.path(),
                  writer.command(out, {"--data", text, "--held-out", "0.1", "--steps", "1000000",
                                       "--save-every", "1000000"}));
  REQUIRE(program.wait_for("step "));
  {
    std::fstream file(text, std::ios::in | std::ios::out);
    file << "b";
  }
  program.signal(SIGTERM);
  const Ended ended = program.wait();
  CHECK(ended.status == 1);
  CHECK(ended.complaint() ==
        "train_lm: " + text +
            ": was changed while it was being read; the last checkpoint was trained on the text "
            "before the change");
  CHECK(!fs::exists(out + "/checkpoint.safetensors"));
}

TEST_CASE("stretto-report replaces only its own pages", "[examples]") {
  NEEDS_PROGRAM("stretto-report");
  const TempDir folder;
  const Tiny writer = writers(folder)[0];
  const std::string one = folder.file("one"), two = folder.file("two"),
                    page = folder.file("page.html"), report = find_program("stretto-report");
  REQUIRE(run_in(one, writer).status == 0);
  REQUIRE(run_in(two, writer).status == 0);
  for (const std::string& path : {one + "/checkpoint.safetensors", one + "/metrics.csv",
                                  two + "/report.html", one + "/.stretto"}) {
    const std::string before = read_file(path);
    const Ended ended = run(report, {one, "--out", path});
    CHECK(ended.status == 2);
    CHECK(ended.complaint() == "stretto-report: --out: " + path +
                                   " exists and is not a page of stretto-report; only such a page "
                                   "is replaced");
    CHECK(read_file(path) == before);
  }
  CHECK(run(report, {one, "--out", page}).status == 0);
  CHECK(run(report, {one, two, "--out", page}).status == 0);
}

}  // namespace stretto::examples::testing
