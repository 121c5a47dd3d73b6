// The program train_music: its output and files, stopping and resuming, invalid inputs.

#include <algorithm>

#include "examples/chorales/chorale.h"
#include "examples/chorales/chorale_song.h"
#include "examples/common/settings.h"
#include "examples/piano/piano_settings.h"
#include "music/midi_writer.h"
#include "tests/examples/tiny_run.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT
using namespace stretto::music;              // NOLINT

/// Trains on a directory with six songs and an invalid file.
class TinyMusic : public TinyRun {
 public:
  TinyMusic()
      : TinyRun("train_music",
                words("--every 3 --layers 1 --d-model 16 --heads 2 --d-hidden 32 --features 8 "
                      "--redraw 5 --length 32 --batch 2 --warmup 5 --steps 60 --save-every 7 "
                      "--validation-windows 4 --eval-windows 4 --picture-length 20 --generate "
                      "40")) {
    const auto chorales = generate_chorales(5, 6, 1, 1).train;
    std::filesystem::create_directory(file("midi"));
    for (size_t i = 0; i < chorales.size(); ++i)
      write_midi(file("midi/" + std::to_string(i) + ".mid"), to_song(chorales[i]));
    write_file(file("midi/x.mid"), "none");
    settings.insert(settings.end(), {"--data", file("midi")});
  }
};

}  // namespace

TEST_CASE("train_music trains, evaluates, draws and writes music", "[examples]") {
  NEEDS_PROGRAM("train_music");
  const TinyMusic tiny;
  for (const Arguments& more : std::vector<Arguments>{
           {}, words("--tokens performance --attention softmax --position music")}) {
    const Ended ended = tiny.run(more);
    INFO(ended.err);
    REQUIRE(ended.status == 0);
    CHECK_THAT(ended.out, Containing("Read 2 pieces of ") &&
                              Containing(" tokens for training, 2 for validation and 2 for testing"
                                         "; skipped 1, the first: " +
                                         tiny.file("midi/x.mid") + ": byte "));
    for (const char* text : {"\n  unigram  ", "\n  bigram  ", "\n  model, positions 1 to 32  ",
                             "\n  model, positions 33 to 48  ", "generated.mid: "})
      CHECK_THAT(ended.out, Containing(text));
    CHECK(count_lines(read_file(tiny.out("metrics.csv"))) == 21);
    CHECK(count_lines(read_file(tiny.out("evaluation.csv"))) == 2);
    CHECK(count_lines(read_file(tiny.out("position_loss.csv"))) == 1 + 48 / 2);
    for (const char* text : {"translation invariance", "\n  1 to 16      < 2 ",
                             "\n  17 to 32     < 8 ", "\n  33 to 48     < 16 "})
      CHECK_THAT(ended.out, Containing(text));
    CHECK(count_lines(read_file(tiny.out("position_measures.csv"))) == 1 + 9);
    for (const char* name : {"loss", "position_loss", "attention", "generated"})
      CHECK(tiny.drew(name));
    CHECK(read_file(tiny.out("generated.mid")).rfind("MThd", 0) == 0);
    const bool stochastic = std::count(more.begin(), more.end(), "sine") > 0;
    CHECK(tiny.drew("templates") == stochastic);

    // --evaluate gives the same results and music from the checkpoint and does not change it.
    const auto results = [](const std::string& text) {
      return text.substr(text.find(" loss, nats per token"),
                         text.find("Wrote") - text.find(" loss, nats per token"));
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

TEST_CASE("train_music rejects invalid inputs in one line", "[examples]") {
  NEEDS_PROGRAM("train_music");
  const TinyMusic tiny;
  REQUIRE(tiny.run({"--steps", "3"}).status == 0);
  write_file(tiny.file("bad.tsv"), "name\tsplit\n");
  const std::string checkpoint = tiny.out("checkpoint.safetensors");
  const TempDir folder;
  const Ended split = run(
      tiny.path, {"--split", tiny.file("bad.tsv"), "--steps", "1", "--out", folder.file("out")});
  CHECK(split.status == 2);
  CHECK(split.complaint() == "train_music: --split: needs --data DIR");
  check_refusals(
      tiny,
      {
          {{"--tokens", "words"},
           "--tokens words: accepted values are performance, remi, remi-multitrack, tsd, "
           "tsd-multitrack"},
          {{"--preset", "big"}, "--preset big: accepted values are published, small"},
          {{"--attention", "none"},
           "--attention none: accepted values are " + joined(stretto::nn::kernel_names())},
          {{"--position", "music"},
           "--position music acts on scores, which performer-hyperbolic attention does not have; "
           "accepted here: none, sinusoid, learned, rope, sine, sine-ungated, conv, "
           "conv-ungated"},
          {{"--data", tiny.file("none")}, "--data " + tiny.file("none") + ": is not a folder"},
          {{"--split", tiny.file("bad.tsv")},
           tiny.file("bad.tsv") + ": its first line has no column \"file\""},
          {{"--data", ""}, "--data: its value is empty"},
          {{"--every", "1"}, "--every 1: accepted values are 2 to 9223372036854775807"},
          {{"--length", "100000"}, "--length 100000: no validation piece is that long"},
          {{"--eval-length", "100000"}, "--eval-length 100000: no test piece is that long"},
          {{"--position", "learned", "--eval-length", "65"},
           "--eval-length 65: --position learned is limited to 64 positions"},
          {{"--position", "learned", "--generate", "65"},
           "--generate 65: --position learned is limited to 64 positions"},
          {{"--picture-layers", "1,2"}, "--picture-layers 2: accepted values are 1 to 1"},
          {{"--picture-layers", "1,"},
           "--picture-layers 1,: must be whole numbers with commas between them"},
          {{"--generate", "65537"}, "--generate 65537: accepted values are 0 to 65536"},
          {{"--top-p", "0"}, "--top-p 0: must be above 0 and at most 1"},
          {{"--steps", "3", "--resume", checkpoint, "--tokens", "performance"},
           "--tokens performance: the run of " + checkpoint +
               " has remi; it can only be resumed with that"},
          {{"--steps", "3", "--resume", checkpoint, "--every", "2"},
           checkpoint +
               ": was trained on other music than that of --data (or of --seed without it)"},
      });
}
