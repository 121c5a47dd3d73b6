// The program groove: its output and files, stopping and resuming, invalid inputs.

#include <filesystem>

#include "examples/common/settings.h"
#include "examples/groove/groove_generator.h"
#include "examples/groove/groove_midi.h"
#include "examples/groove/groove_settings.h"
#include "tests/examples/groove/groove_toys.h"
#include "tests/examples/tiny_run.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT
using namespace stretto::music;              // NOLINT

/// Trains on a directory of generated songs, one of them without drums.
class TinyGroove : public TinyRun {
 public:
  TinyGroove()
      : TinyRun("groove",
                words("--layers 1 --d-model 16 --heads 2 --d-hidden 32 --length 40 --batch 2 "
                      "--warmup 5 --steps 20 --tokens 50 --continuations 2")) {
    std::filesystem::create_directory(file("midi"));
    for (uint64_t i = 0; i < 4; ++i)
      write_midi(file("midi/" + std::to_string(i) + ".mid"),
                 with_fullest_harmony(generate_groove(2, i)));
    Song silent = with_fullest_harmony(generate_groove(2, 9));
    silent.tracks[drum_track].notes.clear();
    write_midi(file("midi/silent.mid"), silent);
    settings.insert(settings.end(), {"--data", file("midi")});
  }
};

}  // namespace

TEST_CASE("groove trains, continues and compares", "[examples][groove]") {
  NEEDS_PROGRAM("groove");
  const TinyGroove tiny;
  const Ended ended = tiny.run();
  INFO(ended.err);
  REQUIRE(ended.status == 0);
  CHECK_THAT(ended.out, Containing("Read 3 songs for training and 1 for validation (skipped: no "
                                   "drums: 1). Attention softmax, position music, "));
  for (const char* text :
       {"\n  unigram  ", "\n  bigram   ", "\n  model    ", "\n  onset-drum, drums  "})
    CHECK_THAT(ended.out, Containing(text));
  for (const char* name : {"prompt", "continuation-1", "continuation-2"}) {
    CHECK(tiny.drew(name));
    CHECK(end_of(with_fullest_harmony(read_groove(tiny.out(name) + ".mid"))) > 0);
  }
  CHECK(tiny.drew("loss"));
  const Song song = with_fullest_harmony(read_groove(tiny.file("midi/3.mid")));
  CHECK(same_notes(with_fullest_harmony(read_groove(tiny.out("prompt.mid"))), first_bars(song, 2)));

  // --evaluate repeats the results from the checkpoint, also with another prompt, and changes
  // no other file.
  const auto before = contents(tiny.out());
  const auto results = [](const Ended& e) { return e.out.substr(e.out.find("Validation loss")); };
  const Ended again = tiny.resume({"--evaluate", "--out", tiny.file("again")});
  INFO(again.err);
  CHECK(again.status == 0);
  CHECK(results(again) == results(ended));
  CHECK(contents(tiny.out()) == before);
  CHECK(!std::filesystem::exists(tiny.file("again/checkpoint.safetensors")));
  CHECK(read_file(tiny.file("again/continuation-2.mid")) ==
        read_file(tiny.out("continuation-2.mid")));
  CHECK(tiny.resume({"--evaluate", "--out", tiny.file("again"), "--prompt",
                     tiny.file("midi/silent.mid"), "--prompt-bars", "1"})
            .status == 0);
  const Song prompt = with_fullest_harmony(read_groove(tiny.file("again/prompt.mid")));
  CHECK(end_of(prompt) < 48);
  CHECK(prompt.tracks[drum_track].notes.empty());

  // --compare prints the same table for the same outputs.
  const Ended compared =
      run(tiny.path, {"--compare", tiny.file("midi/3.mid"), tiny.out("continuation-1.mid"),
                      tiny.out("continuation-2.mid")});
  CHECK(compared.status == 0);
  const auto table = [](const Ended& e) { return e.out.substr(e.out.find("1st")); };
  CHECK(table(compared) == table(ended));
  CHECK(run(tiny.path, {"--compare", tiny.file("midi/3.mid"), tiny.out("continuation-1.mid"),
                        tiny.out("continuation-2.mid"), "--published-onsets"})
            .out != compared.out);
}

TEST_CASE("groove continues several songs and prints their mean similarity", "[examples][groove]") {
  NEEDS_PROGRAM("groove");
  const TinyGroove tiny;
  const Ended ended = tiny.run(words("--steps 3 --held-out 0.5 --prompts 9 --continuations 1"));
  INFO(ended.err);
  REQUIRE(ended.status == 0);
  CHECK_THAT(ended.out, Containing("(1: identical), mean of 2 songs:\n"));
  CHECK(std::filesystem::exists(tiny.out("continuation-1.mid")));
  CHECK(!std::filesystem::exists(tiny.out("continuation-2.mid")));
  const Ended one = tiny.resume({"--held-out", "0.5", "--evaluate", "--steps", "3", "--out",
                                 tiny.file("one"), "--continuations", "1"});
  INFO(one.err);
  CHECK(one.status == 0);
  CHECK_THAT(one.out, Containing("(1: identical):\n"));
  CHECK(read_file(tiny.file("one/continuation-1.mid")) ==
        read_file(tiny.out("continuation-1.mid")));
}

TEST_CASE("groove rejects invalid inputs in one line", "[examples][groove]") {
  NEEDS_PROGRAM("groove");
  const TinyGroove tiny;
  REQUIRE(tiny.run({"--steps", "3", "--continuations", "0"}).status == 0);
  std::filesystem::create_directory(tiny.file("empty"));
  write_file(tiny.file("bad.mid"), "nonsense");
  const std::string checkpoint = tiny.out("checkpoint.safetensors"), song = tiny.file("midi/3.mid");
  check_refusals(
      tiny, {
                {{"--data", tiny.file("none")},
                 "cannot read the folder " + tiny.file("none") + ": No such file or directory"},
                {{"--data", tiny.file("empty")},
                 tiny.file("empty") +
                     ": needs at least two songs with bass, drums and harmony; it has 0"},
                {{"--prompt", tiny.file("none")},
                 "cannot read '" + tiny.file("none") + "': No such file or directory"},
                {{"--prompts", "0"}, "--prompts 0: accepted values are 1 to 1000000"},
                {{"--prompts", "2", "--prompt", song}, "--prompts 2: must be 1 with --prompt FILE"},
                {{"--prompt-bars", "0"}, "--prompt-bars 0: accepted values are 1 to 1000"},
                {{"--continuations", "-1"}, "--continuations -1: accepted values are 0 to 1000"},
                {{"--tokens", "0"}, "--tokens 0: accepted values are 1 to 1000000"},
                {{"--temperature", "-1"}, "--temperature -1: must be a number of at least 0"},
                {{"--compare", song}, "--compare: needs a reference and at least one other file"},
                {{"--position", "learned", "--length", "12"},
                 "--prompt-bars 2: the prompt has 211 tokens; --position learned is limited to 11"},
                {{"--steps", "3", "--resume", checkpoint, "--data", tiny.file("midi"), "--held-out",
                  "0.5"},
                 "--held-out 0.5: the run of " + checkpoint +
                     " has 0.1; it can only be resumed with that"},
            });
  const auto before = contents(tiny.file(""));
  const Ended compared = run(tiny.path, {"--compare", song, tiny.file("bad.mid")});
  CHECK(compared.status == 2);
  CHECK_THAT(compared.err, Containing("groove: " + tiny.file("bad.mid") + ": byte 0"));
  CHECK(contents(tiny.file("")) == before);
}
