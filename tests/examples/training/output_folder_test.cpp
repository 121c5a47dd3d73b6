// Which files a run may replace in its output directory.
#include "examples/training/output_folder.h"

#include <filesystem>
#include <memory>
#include <set>

#include "examples/common/error.h"
#include "tests/examples/temp_dir.h"
#include "tests/support/catch.h"

namespace stretto::examples::testing {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> names{"a.txt", "b.csv"};

/// Returns the error of check().
std::string error_for(const std::string& folder, const std::vector<RunInput>& inputs, bool replace,
                      const std::vector<std::string>& kept = {}) {
  OutputFolder out(folder);
  return error_of<UsageError>([&] { out.check(names, inputs, kept, replace); });
}

bool accepted(const std::string& folder, const std::vector<RunInput>& inputs, bool replace,
              const std::vector<std::string>& kept = {}) {
  return error_for(folder, inputs, replace, kept) == "(nothing thrown)";
}

}  // namespace

TEST_CASE("without --overwrite only files of runs are replaced", "[examples]") {
  const TempDir folder;
  const std::string out = folder.str();
  CHECK(accepted(out, {}, false));
  {
    OutputFolder run(out);
    run.add_made({"a.txt"});
    write_file(run.path("a.txt"), "made");
  }
  CHECK(accepted(out, {}, false));
  write_file(folder.file("b.csv"), "mine");
  CHECK(error_for(out, {}, false) ==
        "--out: " + out +
            " has a file b.csv that was not made by a run; --overwrite "
            "replaces it");
  CHECK(accepted(out, {}, true));
  CHECK(read_file(folder.file("b.csv")) == "mine");
}

TEST_CASE("an output that is an input is rejected, under any name", "[examples]") {
  const TempDir folder, data;
  const std::string out = folder.str();
  write_file(folder.file("a.txt"), "text");
  fs::create_hard_link(folder.file("a.txt"), data.file("hard"));
  fs::create_symlink(folder.file("a.txt"), data.file("soft"));
  const std::string message = "--out: " + folder.file("a.txt") + " is an input of this run, of ";
  for (const std::string& path :
       {folder.file("a.txt"), folder.file("./a.txt"), data.file("hard"), data.file("soft")})
    CHECK(error_for(out, {{"--data", path}}, true) ==
          message + "--data " + path + "; choose another one");
  CHECK(accepted(out, {{"--data", data.file("none")}}, true));

  // Also temporary names of a writer, and each MIDI file of a directory.
  write_file(folder.file("b.csv.tmp"), "text");
  CHECK_THAT(error_for(out, {{"--data", folder.file("b.csv.tmp")}}, true),
             Containing("b.csv.tmp is an input of this run"));
  fs::create_hard_link(folder.file("a.txt"), data.file("x.mid"));
  CHECK_THAT(error_for(out, {{"--data", data.str()}}, true), Containing("a.txt is an input"));

  // The checkpoint that a run resumes from may be replaced by the next one.
  CHECK(accepted(out, {{"--resume", folder.file("a.txt")}}, true, {"a.txt"}));
  CHECK_THAT(error_for(out, {{"--data", folder.file("a.txt")}}, true, {"a.txt"}),
             Containing("is an input"));
}

TEST_CASE("each file below an input folder is an input", "[examples]") {
  const TempDir folder, model;
  const std::string out = folder.str();
  fs::create_directory(model.file("pooling"));
  write_file(folder.file("a.txt"), "text");
  for (const char* name : {"config.json", "pooling/config.json"}) {
    fs::create_symlink(folder.file("a.txt"), model.file(name));
    CHECK(error_for(out, {{"MODEL", model.str(), true}}, true) ==
          "--out: " + folder.file("a.txt") + " is an input of this run, of MODEL " + model.str() +
              "; choose another one");
    fs::remove(model.file(name));
  }
  CHECK(accepted(out, {{"MODEL", model.str(), true}}, true));
}

TEST_CASE("a link that appears during a run is not followed", "[examples]") {
  const TempDir folder, outside;
  OutputFolder out(folder.str());
  out.check(names, {}, {}, false);
  CHECK(out.path("a.txt") == folder.file("a.txt"));
  fs::create_symlink(outside.file("victim"), folder.file("b.csv"));
  CHECK(error_of<UsageError>([&] { out.path("a.txt"); }) ==
        "--out: cannot write " + folder.file("b.csv") + ": it is a symbolic link");
}

TEST_CASE("unfinished files of a killed run are removed", "[examples]") {
  const TempDir folder;
  write_file(folder.file(".stretto.tmp"), "metr");
  fs::create_directory(folder.file(".stretto-partial"));
  write_file(folder.file(".stretto-partial/config.json"), "{");
  const OutputFolder out(folder.str());
  CHECK(names_in(folder.str()) == std::set<std::string>{".lock"});
}

TEST_CASE("results inside a directory of data are rejected", "[examples]") {
  const TempDir data;
  write_file(data.file("a.mid"), "");
  const auto refused = [&](const std::string& out) {
    CHECK(error_of<UsageError>([&] {
            check_outside_inputs(out, {{"--data", data.str(), true}});
          }) == "--out: " + out + " is inside the folder of --data, " + data.str() +
                    "; choose one outside of it");
  };
  refused(data.str());
  refused(data.file("results"));
  refused(data.file("results/of/today"));
  const TempDir other;
  fs::create_directory_symlink(data.str(), other.file("link"));
  refused(other.file("link"));
  refused(other.file("link/results"));
  check_outside_inputs(other.file("out"), {{"--data", data.str(), true}});
  check_outside_inputs(data.file(".."), {{"--data", data.str(), true}});
  check_outside_inputs(data.str(), {{"--data", data.file("a.mid")}});
}

TEST_CASE("outputs do not follow links out of the directory", "[examples]") {
  const TempDir folder, outside;
  const std::string out = folder.str();
  write_file(outside.file("victim"), "precious");
  for (const std::string& target : {outside.file("victim"), outside.file("none"), std::string("x")})
    for (const char* name : {"a.txt", "b.csv", ".stretto"}) {
      fs::create_symlink(target, folder.file(name));
      CHECK(error_for(out, {}, true) ==
            "--out: cannot write " + folder.file(name) + ": it is a symbolic link");
      fs::remove(folder.file(name));
    }
  for (const char* name : {".stretto-staged", ".stretto-replacing"}) {
    fs::create_directory_symlink(outside.str(), folder.file(name));
    OutputFolder run(out);
    CHECK(error_of<UsageError>([&] { run.stage(); }) ==
          "--out: cannot write " + folder.file(name) + ": it exists already");
    fs::remove(folder.file(name));
  }
  CHECK(names_in(outside.str()) == std::set<std::string>{"victim"});
  CHECK(read_file(outside.file("victim")) == "precious");
}

TEST_CASE("a run replaces an earlier one in one step", "[examples]") {
  const TempDir folder;
  const std::string out = folder.str();
  write_file(folder.file("a.txt"), "old");
  write_file(folder.file("b.csv"), "old");
  write_file(folder.file("notes"), "mine");
  {
    OutputFolder run(out);
    CHECK(run.has_any(names));
    run.stage();
    run.add_made(names);
    write_file(run.path("a.txt"), "new");
    CHECK(read_file(folder.file("a.txt")) == "old");
    CHECK(read_file(folder.file("b.csv")) == "old");
    run.publish(names);
    CHECK(run.path("a.txt") == folder.file("a.txt"));
  }
  CHECK(read_file(folder.file("a.txt")) == "new");
  CHECK(names_in(out) == std::set<std::string>{".stretto", "a.txt", "notes"});  // no old b.csv
  CHECK(read_file(folder.file(".stretto")) == "a.txt\nb.csv\n");
  {
    OutputFolder run(out);  // a run that fails
    run.stage();
    write_file(run.path("a.txt"), "newer");
  }
  CHECK(read_file(folder.file("a.txt")) == "new");
  CHECK(names_in(out) == std::set<std::string>{".stretto", "a.txt", "notes"});
}

TEST_CASE("staged files of a killed process are completed or discarded", "[examples]") {
  const TempDir folder;
  const std::string out = folder.str();
  write_file(folder.file("a.txt"), "old");
  fs::create_directory(folder.file(".stretto-staged"));
  write_file(folder.file(".stretto-staged/a.txt"), "never published");
  CHECK(!OutputFolder(out).completed());
  CHECK(read_file(folder.file("a.txt")) == "old");
  fs::create_directory(folder.file(".stretto-replacing"));
  write_file(folder.file(".stretto-replacing/a.txt"), "new");
  CHECK(OutputFolder(out).completed());
  CHECK(read_file(folder.file("a.txt")) == "new");
  CHECK(names_in(out) == std::set<std::string>{"a.txt"});
}

TEST_CASE("a directory that was replaced during a run is not changed", "[examples]") {
  const TempDir parent;
  const std::string out = parent.file("out"), moved = parent.file("moved");
  const std::string gone =
      "--out: " + out + " was removed or replaced during this run; no more files are written";
  fs::create_directory(out);
  {
    const OutputFolder run(out);
    CHECK(run.path("a.txt") == out + "/a.txt");
    fs::remove(out + "/.lock");  // removed by hand: the directory still belongs to the run
    CHECK(run.path("a.txt") == out + "/a.txt");
    fs::remove_all(out);
    CHECK(error_of<std::runtime_error>([&] { run.path("a.txt"); }) == gone);
    fs::create_directory(out);
    const OutputFolder second(out);
    CHECK(error_of<std::runtime_error>([&] { run.path("a.txt"); }) == gone);
    CHECK(second.path("a.txt") == out + "/a.txt");
  }
  {
    const auto run = std::make_unique<OutputFolder>(out);
    fs::rename(out, moved);
    fs::create_directory(out);
    write_file(out + "/.lock", "");
    CHECK(error_of<std::runtime_error>([&] { run->path("a.txt"); }) == gone);
  }
  CHECK(names_in(out) == std::set<std::string>{".lock"});  // of the new directory
  CHECK(names_in(moved).empty());

  // A file named .lock that is not a lock is not removed.
  write_file(out + "/.lock", "of another program");
  CHECK(error_of<UsageError>([&] { OutputFolder{out}; }) ==
        "--out: cannot write " + out + "/.lock: it was not left by an earlier run");
  CHECK(read_file(out + "/.lock") == "of another program");
}

}  // namespace stretto::examples::testing
