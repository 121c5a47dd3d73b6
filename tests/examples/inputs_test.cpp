// No program replaces its inputs, whatever the names of its inputs and outputs.
#include <filesystem>
#include <set>

#include "tests/examples/chorales/train_chorales.h"
#include "tests/examples/tiny_programs.h"
#include "tests/support/find_upwards.h"

namespace stretto::examples::testing {
namespace {

namespace fs = std::filesystem;

/// A command line whose output would replace one of its inputs.
struct Collision {
  std::string program;
  Arguments arguments;
};

/// Returns collisions of each program that writes files; `folder` has all their files.
std::vector<Collision> collisions(const TempDir& folder) {
  std::vector<Collision> all;
  const auto made = [&](const std::string& name) {
    fs::create_directory(folder.file(name));
    return folder.file(name);
  };
  // A training program reads files, given by `options`, that have the name of one of its outputs.
  const auto train = [&](const std::string& program, const std::string& out,
                         const std::string& input, const Arguments& options,
                         const Arguments& more = {}) {
    for (const Tiny& tiny : programs()) {
      if (tiny.name != program) continue;
      for (const std::string& option : options) {
        Arguments arguments = tiny.command(out, {"--overwrite", option, input});
        arguments.insert(arguments.end(), more.begin(), more.end());
        all.push_back({program, arguments});
      }
    }
  };
  const std::string texts = made("texts"), text = texts + "/metrics.csv";
  write_file(text, std::string(3000, 'a') + std::string(3000, 'b'));
  fs::create_hard_link(text, folder.file("linked"));
  train("train_lm", texts, text, {"--data", "--validation"}, {"--held-out", "0.1"});
  train("train_lm", texts, folder.file("linked"), {"--data"}, {"--held-out", "0.1"});

  const std::string tokens = made("tokens"), numbers = tokens + "/metrics.csv";
  write_file(numbers, "1,2,3\n4 5 6\n");
  train("train_tokens", tokens, numbers, {"--data"}, {"--every", "2"});

  const std::string chorales = made("chorales"), json = chorales + "/metrics.csv";
  save_chorales(json, tiny_chorales());
  train("train_chorales", chorales, json, {"--data"});
  train("harmonize", chorales, json, {"--data"});

  const std::string tables = made("tables"), table = tables + "/metrics.csv",
                    listops = made("listops");
  CHECK(run(lra.path(), lra.command(listops, {"--steps", "1", "--write-data"})).status == 0);
  fs::copy_file(listops + "/basic_val.tsv", table);
  train("lra", tables, table, {"--data"});
  train("lra", tables, table, {"--validation", "--test"}, {"--data", listops + "/basic_train.tsv"});

  const std::string music = made("music"), prompt = music + "/prompt.mid";
  for (const Tiny& tiny : programs())  // writes prompt.mid
    if (tiny.name == "groove")
      run(tiny.path(),
          tiny.command(music, words("--steps 1 --continuations 1 --tokens 4 --prompts 1")));
  for (const std::string& out : {music, music + "/results"}) {
    train("train_music", out, music, {"--data"});
    train("groove", out, music, {"--data"});
  }
  train("groove", music, prompt, {"--prompt"}, {"--continuations", "1"});

  const std::string trained = made("trained");
  for (const Tiny& tiny : programs())
    if (tiny.name == "train_music")
      run(tiny.path(), tiny.command(trained, words("--steps 1 --position none")));
  all.push_back({"continue_music",
                 {trained + "/checkpoint.safetensors", "--prompt", prompt, "--out", music}});

  const std::string model = made("model"), config = model + "/config.json",
                    lines = folder.file("lines");
  write_file(config, R"({"model_type": "bert"})");
  write_file(lines, "a\nb\n");
  all.push_back({"finetune", {model, "--data", text, "--out", model}});
  const std::string links = made("links"), temporary = folder.file("x.tmp");
  fs::create_hard_link(config, folder.file("config"));
  fs::create_symlink(folder.file("linked"), links + "/model.safetensors");
  write_file(temporary, "a\nb\n");
  for (const Arguments& names : {Arguments{model, lines, lines},
                                 {model, lines, config},
                                 {model, lines, model + "/new"},
                                 {model, lines, folder.file("config")},
                                 {links, lines, text},
                                 {model, text, text},
                                 {model, temporary, folder.file("x")}})
    all.push_back({"embed", {names[0], names[1], "--out", names[2]}});

  write_file(folder.file("new.json"), "a\nb\n");
  fs::create_directory(folder.file("linked-model"));
  fs::create_hard_link(folder.file("new.json"), folder.file("linked-model/tokenizer.json"));
  all.push_back(
      {"new_model", {"--data", folder.file("new.json"), "--out", folder.file("linked-model")}});

  all.push_back({"stretto-report", {texts, "--out", text}});
  return all;
}

bool has_output(const std::string& program) {
  const Ended help = run(find_program(program), {"--help"});
  REQUIRE(help.status == 0);
  return help.out.find("--out") != std::string::npos;
}

}  // namespace

TEST_CASE("no program overwrites its inputs", "[examples]") {
  NEEDS_PROGRAM("train_lm");
  const TempDir folder;
  std::set<std::string> tested;
  for (const Collision& c : collisions(folder)) {
    tested.insert(c.program);
    const auto before = contents(folder.str());
    const Ended ended = run(find_program(c.program), c.arguments);
    INFO(c.program << ": " << ended.err);
    CHECK(ended.status == 2);
    CHECK_THAT(ended.complaint(), Containing("--out: "));
    CHECK(contents(folder.str()) == before);
  }
  // A file that the run does not write may be in the folder of its results.
  const std::string text = folder.file("texts/metrics.csv"), other = folder.file("texts/mine");
  fs::rename(text, other);
  CHECK(run(lm.path(), lm.command(folder.file("texts"),
                                  {"--data", other, "--steps", "1", "--held-out", "0.1"}))
            .status == 0);

  const fs::path sources = stretto::testing::find_upwards("examples/programs");
  if (sources.empty()) STRETTO_SKIP("the list of programs needs their sources");
  for (const auto& source : fs::directory_iterator(sources)) {
    const std::string program = source.path().stem();
    INFO(program);
    CHECK(has_output(program) == tested.contains(program));
  }
}

}  // namespace stretto::examples::testing
