// Every program writes a page: at each evaluation, when it is stopped, and at its end.
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "examples/report/page.h"
#include "examples/text/grammar.h"
#include "tests/examples/tiny_run.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT
using nlohmann::json;

/// A program, and the minimum number of parts of each kind on its page.
struct Subject {
  std::string name;
  Arguments settings;
  std::map<std::string, size_t> parts;
};

std::vector<Subject> subjects() {
  std::vector<Subject> all{
      {"train_chorales",
       words("--length 64 --final-stride 64 --generate 24 --prime 8"),
       {{"maps", 1}, {"music", 1}, {"tables", 1}}},
      {"harmonize", words("--length 16 --pieces 1 --beam 1"), {{"music", 2}, {"tables", 1}}},
      {"train_music",
       words("--length 16 --eval-length 32 --validation-windows 2 --eval-windows 2 "
             "--tokens performance --generate 100 --picture-length 16 --features 8 "
             "--attention performer --position sine --realizations 8"),
       {{"maps", 2}, {"music", 1}, {"tables", 2}, {"charts", 1}}},
      {"groove",
       words("--length 64 --continuations 1 --tokens 40 --features 8"),
       {{"music", 2}, {"tables", 1}, {"texts", 1}}},
      {"lra",
       words("--small --expressions 60 --held-out-expressions 20 --max-depth 2 "
             "--min-expression 2 --max-expression 8 --max-length 8 --d-head 0"),
       {{"tables", 1}}},
      {"train_lm",
       words("--length 16 --validation-tokens 64 --held-out 0.001 --generate 30"),
       {{"tables", 1}, {"charts", 1}, {"texts", 1}}}};
  std::erase_if(all, [](const Subject& s) { return find_program(s.name).empty(); });
  for (Subject& s : all)
    s.settings.insert(s.settings.begin(),
                      {"--layers", "1", "--d-model", "16", "--heads", "2", "--batch", "2",
                       "--warmup", "5", "--steps", "40", "--d-hidden", "32", "--save-every", "1"});
  return all;
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

json run_of(const TinyRun& tiny) {
  return json::parse(data_of_page(tiny.out("report.html"))).at("runs").at(0);
}

}  // namespace

TEST_CASE("every program writes a page with all its parts", "[examples][report]") {
  for (const Subject& subject : subjects()) {
    INFO(subject.name);
    const TinyRun tiny(subject.name, subject.settings);
    const Ended ended = tiny.run();
    INFO(ended.err);
    REQUIRE(ended.status == 0);
    CHECK(std::filesystem::file_size(tiny.out("report.html")) < 3'000'000);
    const json run = run_of(tiny);
    CHECK(run.at("program") == subject.name);
    CHECK(run.at("state") == "done");
    CHECK(run.at("name") == tiny.out());
    REQUIRE(run.at("commands").size() == 1);
    CHECK_THAT(run.at("commands")[0], Containing(subject.name + " --layers 1 --d-model 16"));
    std::map<std::string, json> settings;
    for (const json& setting : run.at("settings")) settings[setting[0]] = setting;
    CHECK(settings.at("--d-model") == json{"--d-model", "16", true});
    CHECK(settings.at("--seed") == json{"--seed", "1", false});
    CHECK(settings.at("--threads") == json{"--threads", "1", true});

    const std::string metrics = read_file(tiny.out("metrics.csv"));
    CHECK(int64_t(run.at("metrics").at("rows").size()) == count_lines(metrics) - 1);
    CHECK(run.at("metrics").at("rows").size() == 20);
    CHECK(run.at("metrics").at("columns").back() == "peak_bytes");
    for (const json& row : run.at("metrics").at("rows")) CHECK(row.back() > 1000);
    for (const auto& [kind, least] : subject.parts) {
      INFO(kind);
      CHECK(run.at(kind).size() >= least);
    }
    for (const json& piece : run.at("music")) {
      CHECK(std::filesystem::exists(tiny.out(piece.at("file"))));
      size_t notes = 0;
      for (const json& voice : piece.at("voices")) notes += voice.at("notes").size();
      CHECK(notes > 0);
    }
  }
}

TEST_CASE("the page of a stopped run says so, and the page of a resumed run is complete",
          "[examples][report]") {
  for (const Subject& subject : subjects()) {
    INFO(subject.name);
    const TinyRun tiny(subject.name, subject.settings);
    const Arguments longer = words("--steps 3000 --evaluate-every 150 --save-every 100");
    {
      Program program(tiny.path, tiny.command(longer));
      REQUIRE(program.wait_for("step 300:"));
      program.signal(SIGTERM);
      REQUIRE(program.wait().status == 128 + SIGTERM);
    }
    const json stopped = run_of(tiny);
    CHECK(stopped.at("state") == "stopped");
    const size_t before = stopped.at("metrics").at("rows").size();
    CHECK(before >= 2);
    CHECK(before < 20);
    REQUIRE(tiny.resume(longer).status == 0);
    const json resumed = run_of(tiny);
    CHECK(resumed.at("state") == "done");
    CHECK(resumed.at("metrics").at("rows").size() == 20);
    CHECK(resumed.at("commands").size() == 2);
    CHECK_THAT(resumed.at("commands")[1], Containing("--resume"));
  }
}

TEST_CASE("the page of a failed run has the reason", "[examples][report]") {
  NEEDS_PROGRAM("train_chorales");
  const TinyRun tiny("train_chorales", subjects().front().settings);
  const Ended ended = tiny.run({"--learning-rate", "1e5", "--warmup", "0"});
  REQUIRE(ended.status == 1);
  const json run = run_of(tiny);
  CHECK(run.at("state") == "failed");
  CHECK_THAT(run.at("failure"), Containing("step "));
}

TEST_CASE("training continues if its page cannot be written", "[examples][report]") {
  NEEDS_PROGRAM("train_lm");
  const auto trained = [](const TinyRun& tiny, long largest_file) {
    write_file(tiny.file("text.txt"), generate_text(2, 3000));
    return run(tiny.path, tiny.command({"--data", tiny.file("text.txt"), "--generate", "0"}),
               {.largest_file = largest_file});
  };
  const Arguments small = words(
      "--layers 1 --d-model 8 --heads 1 --d-hidden 8 --length 8 --batch 2 "
      "--steps 40 --eval-length 8");
  const TinyRun whole("train_lm", small), full("train_lm", small);
  REQUIRE(trained(whole, 0).status == 0);
  const auto size = [&](const char* name) {
    return long(std::filesystem::file_size(whole.out(name)));
  };
  const long page = size("report.html");
  for (const char* name : {"checkpoint.safetensors", "metrics.csv", "loss.svg"})
    REQUIRE(size(name) < page - 8000);
  const Ended ended = trained(full, page - 8000);
  INFO(ended.err);
  CHECK(count_of(ended.err, "The page has not been written: ") == 1);
  CHECK(full.checkpoint() == whole.checkpoint());
  // At the end the missing page is an error.
  CHECK(ended.status == 1);
  CHECK_THAT(ended.complaint(), Containing("report.html: write failed: File too large"));
}
