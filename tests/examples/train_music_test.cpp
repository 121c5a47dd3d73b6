// train_music as a user runs it: what it says and makes, how it stops and goes on, what it refuses.

#include <signal.h>

#include <algorithm>

#include "examples/common/settings.h"
#include "examples/music/chorale.h"
#include "examples/music/midi.h"
#include "examples/piano/piano_settings.h"
#include "tests/examples/program.h"
#include "tests/examples/stopped_run.h"
#include "tests/support/catch.h"

#define NEEDS_TRAIN_MUSIC                                                                     \
  if (program().empty())                                                                      \
  STRETTO_SKIP(                                                                               \
      "train_music is not built (STRETTO_EXAMPLES=OFF) or not where it was; STRETTO_BIN_DIR " \
      "names its folder")

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT
using Arguments = std::vector<std::string>;

std::string program() { return find_program("train_music"); }

/// A folder of six songs and a file that is none, and command lines that train on it into the
/// folder's folder `out`.
class TinyMusic {
 public:
  TinyMusic() {
    const auto chorales = generate_chorales(5, 6, 1, 1).train;
    std::filesystem::create_directory(file("midi"));
    for (size_t i = 0; i < chorales.size(); ++i)
      write_midi(file("midi/" + std::to_string(i) + ".mid"), to_song(chorales[i]));
    write_file(file("midi/x.mid"), "none");
  }

  std::string file(const std::string& name) const { return folder_.file(name); }
  std::string out(const std::string& name = "") const {
    return folder_.file(name.empty() ? "out" : "out/" + name);
  }
  std::string checkpoint() const { return read_file(out("checkpoint.safetensors")); }
  Arguments command(const Arguments& more = {}) const {
    Arguments all{"--data", file("midi"), "--out", out(), "--threads", "1"};
    for (const auto& [option, value] :
         std::vector<std::pair<std::string, std::string>>{{"every", "3"},
                                                          {"layers", "1"},
                                                          {"d-model", "16"},
                                                          {"heads", "2"},
                                                          {"d-hidden", "32"},
                                                          {"features", "8"},
                                                          {"redraw", "5"},
                                                          {"length", "32"},
                                                          {"batch", "2"},
                                                          {"warmup", "5"},
                                                          {"steps", "60"},
                                                          {"save-every", "7"},
                                                          {"validation-windows", "4"},
                                                          {"eval-windows", "4"},
                                                          {"picture-length", "20"},
                                                          {"generate", "40"}}) {
      all.push_back("--" + option);
      all.push_back(value);
    }
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Ended run(const Arguments& more = {}) const { return testing::run(program(), command(more)); }
  Ended resume(Arguments more = {}) const {
    more.insert(more.end(), {"--resume", out("checkpoint.safetensors")});
    return run(more);
  }

 private:
  TempDir folder_;
};

int64_t lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

}  // namespace

TEST_CASE("train_music --help names every option", "[examples]") {
  NEEDS_TRAIN_MUSIC;
  const Ended ended = run(program(), {"--help"});
  CHECK(ended.status == 0);
  Arguments options{"data",
                    "split",
                    "every",
                    "preset",
                    "out",
                    "resume",
                    "minutes",
                    "threads",
                    "device",
                    "save-every",
                    "parameters",
                    "evaluate-every",
                    "anomaly",
                    "evaluate",
                    "eval-length",
                    "eval-windows",
                    "eval-batch",
                    "picture-layers",
                    "picture-heads",
                    "picture-length",
                    "generate",
                    "bars",
                    "temperature",
                    "top-p",
                    "grammar",
                    "help",
                    "validation-windows"};
  for (const auto& [name, value] : settings_to_notes(PianoSettings())) {
    std::string option = name;
    std::replace(option.begin(), option.end(), '_', '-');
    options.push_back(option);
  }
  for (const std::string& option : options) CHECK_THAT(ended.out, Containing("--" + option));
}

TEST_CASE("train_music learns, measures, draws and writes", "[examples]") {
  NEEDS_TRAIN_MUSIC;
  const TinyMusic tiny;
  for (const Arguments& more : std::vector<Arguments>{
           {}, {"--tokens", "performance", "--attention", "softmax", "--position", "relative"}}) {
    const Ended ended = tiny.run(more);
    INFO(ended.err);
    REQUIRE(ended.status == 0);
    CHECK_THAT(ended.out, Containing("Read 2 pieces of ") &&
                              Containing(" tokens to learn from, 2 to validate by and 2 to test "
                                         "by; skipped 1, the first: " +
                                         tiny.file("midi/x.mid") + ": byte "));
    for (const char* told : {"\n  unigram  ", "\n  bigram  ", "\n  model, positions 1 to 32  ",
                             "\n  model, positions 33 to 48  ", "generated.mid: "})
      CHECK_THAT(ended.out, Containing(told));
    CHECK(lines(read_file(tiny.out("metrics.csv"))) == 21);
    CHECK(lines(read_file(tiny.out("evaluation.csv"))) == 2);
    CHECK(lines(read_file(tiny.out("position_loss.csv"))) == 1 + 48 / 2);
    for (const char* told : {"translation invariance", "\n  1 to 16      < 2 ",
                             "\n  17 to 32     < 8 ", "\n  33 to 48     < 16 "})
      CHECK_THAT(ended.out, Containing(told));
    CHECK(lines(read_file(tiny.out("position_measures.csv"))) == 1 + 9);
    for (const char* name : {"loss.png", "position_loss.png", "attention.png", "generated.png"})
      CHECK(read_file(tiny.out(name)).rfind("\x89PNG", 0) == 0);
    CHECK(read_file(tiny.out("generated.mid")).rfind("MThd", 0) == 0);
    const bool stochastic = std::count(more.begin(), more.end(), "sine") > 0;
    CHECK(std::filesystem::exists(tiny.out("templates.png")) == stochastic);

    // The checkpoint alone gives the same numbers and music, and stays as it is.
    const auto results = [](const std::string& text) {
      return text.substr(text.find("Loss of"), text.find("Wrote") - text.find("Loss of"));
    };
    const auto before = contents(tiny.out());
    Arguments evaluate = more;
    evaluate.insert(evaluate.end(), {"--evaluate", "--out", tiny.file("again")});
    const Ended again = tiny.resume(evaluate);
    INFO(again.err);
    CHECK(again.status == 0);
    CHECK(results(again.out) == results(ended.out));
    CHECK(contents(tiny.out()) == before);
    CHECK(read_file(tiny.file("again/generated.mid")) == read_file(tiny.out("generated.mid")));
    CHECK(!std::filesystem::exists(tiny.file("again/checkpoint.safetensors")));
  }
}

TEST_CASE("train_music composes its own pieces, and goes by the clock", "[examples]") {
  NEEDS_TRAIN_MUSIC;
  const TempDir folder;
  const Ended ended = run(program(), {"--minutes",
                                      "0.005",
                                      "--layers",
                                      "1",
                                      "--d-model",
                                      "16",
                                      "--heads",
                                      "2",
                                      "--d-hidden",
                                      "16",
                                      "--length",
                                      "32",
                                      "--eval-windows",
                                      "4",
                                      "--generate",
                                      "0",
                                      "--picture-length",
                                      "20",
                                      "--picture-layers",
                                      "1",
                                      "--out",
                                      folder.file("out")});
  INFO(ended.err);
  CHECK(ended.status == 0);
  CHECK_THAT(ended.out, Containing("Generated 200 pieces of ") &&
                            Containing(" tokens to learn from, 25 to validate by and 25 to "
                                       "test by. remi, attention performer, position ape, "));
  CHECK(!std::filesystem::exists(folder.file("out/generated.mid")));
}

TEST_CASE("train_music --parameters counts and stops", "[examples]") {
  NEEDS_TRAIN_MUSIC;
  const TempDir folder;
  const auto count = [&](const Arguments& arguments) {
    Arguments all{"--parameters", "--out", folder.file("out")};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Ended ended = run(program(), all);
    CHECK(ended.status == 0);
    CHECK(ended.err.empty());
    const std::string text = ended.out.substr(0, ended.out.size() - 1);
    return text.substr(text.rfind('\n') + 1);
  };
  CHECK(count({"--preset", "published"}) == "75998541");
  CHECK(count({"--preset", "published", "--position", "none"}) == "75998541");
  CHECK(count({"--preset", "published", "--tokens", "performance"}) == "76056966");
  CHECK(count({"--preset", "published", "--position", "sine"}) == "76018509");
  CHECK(count({"--preset", "published", "--position", "conv-ungated"}) == "76522829");
  CHECK(!std::filesystem::exists(folder.file("out")));
}

TEST_CASE("train_music, stopped, goes on where it was, bit for bit", "[examples]") {
  NEEDS_TRAIN_MUSIC;
  const std::string position = GENERATE("ape", "sine", "conv");
  const Arguments longer{"--position", position, "--realizations", "8",   "--taps",           "9",
                         "--steps",    "1000",   "--save-every",   "300", "--evaluate-every", "250",
                         "--generate", "0"};
  check_stopped_run_goes_on<TinyMusic>(program(), longer);
}

TEST_CASE("train_music refuses what it cannot use in one line", "[examples]") {
  NEEDS_TRAIN_MUSIC;
  const TinyMusic tiny;
  REQUIRE(tiny.run({"--steps", "3"}).status == 0);
  write_file(tiny.file("bad.tsv"), "name\tsplit\n");
  const std::string checkpoint = tiny.out("checkpoint.safetensors");
  struct Case {
    Arguments arguments;
    std::string told;  // the whole line
  };
  const std::vector<Case> cases{
      {{"--tokens", "words"}, "--tokens words: accepted are performance and remi"},
      {{"--preset", "big"}, "--preset big: accepted are published, small"},
      {{"--attention", "none"},
       "--attention none: accepted are linear-elu, linear-relu, performer, softmax"},
      {{"--position", "relative"},
       "--position relative: needs --attention softmax; linear attention has no scores"},
      {{"--data", tiny.file("none")}, "--data " + tiny.file("none") + ": is not a folder"},
      {{"--split", tiny.file("bad.tsv")},
       tiny.file("bad.tsv") + ": its first line has no column \"file\""},
      {{"--data", "", "--split", tiny.file("bad.tsv")}, "--split: goes with --data DIR"},
      {{"--every", "1"}, "--every 1: accepted are 2 to 9223372036854775807"},
      {{"--heads", "3"}, "--d-model 16 is not a multiple of --heads 3"},
      {{"--length", "100000"}, "--length 100000: no piece to validate by has so many tokens"},
      {{"--eval-length", "100000"},
       "--eval-length 100000: no piece to judge by has so many tokens"},
      {{"--position", "learned", "--eval-length", "65"},
       "--position learned: has 64 rows, twice --length; --eval-length 65 is too long"},
      {{"--position", "learned", "--generate", "65"},
       "--position learned: has 64 rows, twice --length; --generate 65 is too long"},
      {{"--picture-layers", "1,2"}, "--picture-layers 2: accepted are 1 to 1"},
      {{"--picture-layers", "1,"},
       "--picture-layers 1,: must be whole numbers with commas between them"},
      {{"--generate", "65537"}, "--generate 65537: accepted are 0 to 65536"},
      {{"--top-p", "0"}, "--top-p 0: must be above 0 and at most 1"},
      {{"--evaluate"}, "--evaluate: needs --resume FILE"},
      {{"--minutes", "1"}, "--minutes: this run takes 60 steps, by --steps"},
      {{"--steps", "3", "--resume", checkpoint, "--layers", "2"},
       "--layers 2: the run of " + checkpoint + " has 1; it can only go on with that"},
      {{"--steps", "3", "--resume", checkpoint, "--tokens", "performance"},
       "--tokens performance: the run of " + checkpoint + " has remi; it can only go on with that"},
      {{"--steps", "3", "--resume", checkpoint, "--every", "2"},
       checkpoint + ": was trained on other music than that of --data (or of --seed without it)"},
  };
  const auto before = contents(tiny.file(""));
  for (const Case& c : cases) {
    const Ended ended = tiny.run(c.arguments);
    INFO(ended.err);
    CHECK(ended.status == 2);
    CHECK(ended.out.empty());
    CHECK(ended.err == "train_music: " + c.told + "\n");
  }
  CHECK(contents(tiny.file("")) == before);
}
