// The program train_lm: its output and files, stopping and resuming, invalid inputs.

#include "examples/common/settings.h"
#include "examples/text/grammar.h"
#include "examples/text/lm_settings.h"
#include "nn/training/checkpoint.h"
#include "nn/training/metrics.h"
#include "tests/examples/tiny_run.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT

/// Trains on a generated text, text.txt in its directory.
class TinyText : public TinyRun {
 public:
  TinyText()
      : TinyRun("train_lm",
                words("--layers 1 --d-model 16 --heads 2 --d-hidden 32 --length 16 --batch 2 "
                      "--warmup 5 --steps 60 --save-every 7")) {
    write_file(file("text.txt"), generate_text(2, 3000));
    settings.insert(settings.end(), {"--data", file("text.txt")});
  }
};

}  // namespace

TEST_CASE("train_lm trains, evaluates, draws and generates text", "[examples]") {
  NEEDS_PROGRAM("train_lm");
  const TinyText tiny;
  const Ended ended = tiny.run(
      {"--eval-length", "16,64", "--eval-memory", "0,16", "--generate", "50", "--prompt", "with "});
  INFO(ended.err);
  REQUIRE(ended.status == 0);
  CHECK_THAT(ended.out, Containing(" bytes for training and "));
  CHECK_THAT(ended.out, Containing("Held-out bits per byte, "));
  CHECK_THAT(ended.err, Containing(", baseline "));
  for (const char* name :
       {"unigram ", "bigram ", "xl, length 16, context 8.", "xl, length 64, context ",
        "xl, length 16, memory 16, context 17.7", "xl, length 64, memory 16, context "})
    CHECK_THAT(ended.out, Containing(std::string("\n  ") + name));
  const std::string table = read_file(tiny.out("evaluation.csv"));
  CHECK(table.rfind(
            "length,memory,stride,context,tokens,nats_per_token,tokens_per_second\n16,0,16,", 0) ==
        0);
  CHECK(count_lines(table) == 5);
  CHECK(count_lines(read_file(tiny.out("position_loss.csv"))) == 1 + 2 * (16 + 64));
  CHECK(count_lines(read_file(tiny.out("metrics.csv"))) == 21);
  for (const char* name : {"loss", "position_loss"}) CHECK(tiny.drew(name));
  const std::string written = read_file(tiny.out("generated.txt"));
  CHECK(written.rfind("with ", 0) == 0);
  CHECK(written.size() == 5 + 50 + 1);

  // --evaluate gives the same results from the checkpoint and does not change it.
  const auto before = contents(tiny.out());
  const Ended again = tiny.resume({"--evaluate", "--eval-length", "16,64", "--eval-memory", "0,16",
                                   "--out", tiny.file("again")});
  INFO(again.err);
  CHECK(again.status == 0);
  const auto results = [](const std::string& text) { return text.substr(text.find("Held-out")); };
  CHECK(results(ended.out).rfind(results(again.out), 0) == 0);
  CHECK(contents(tiny.out()) == before);
  CHECK(!std::filesystem::exists(tiny.file("again/metrics.csv")));
  CHECK(!std::filesystem::exists(tiny.file("again/checkpoint.safetensors")));
}

TEST_CASE("train_lm accepts words and characters, a validation text and a preset", "[examples]") {
  NEEDS_PROGRAM("train_lm");
  const TinyText tiny;
  write_file(tiny.file("v.txt"), "with something new:\nend something\n");
  const Ended words =
      tiny.run({"--tokens", "words", "--validation", tiny.file("v.txt"), "--vocabulary", "50",
                "--cutoffs", "10,30", "--div", "2", "--generate", "5", "--prompt", "with"});
  INFO(words.err);
  CHECK(words.status == 0);
  CHECK_THAT(words.out, Containing("7 for validation, vocabulary size 50"));
  CHECK_THAT(words.out, Containing("Held-out perplexity, 6 tokens:"));
  CHECK(read_file(tiny.out("generated.txt")).rfind("with", 0) == 0);

  const Ended chars = run(
      tiny.path, {"--preset", "nano", "--steps", "2", "--tokens", "chars", "--position", "rope",
                  "--data", tiny.file("text.txt"), "--batch", "4", "--out", tiny.file("chars")});
  INFO(chars.err);
  CHECK(chars.status == 0);
  CHECK_THAT(chars.out, Containing("rope, length 64, context "));
}

TEST_CASE("train_lm --evaluate accepts another --out-of-range than training", "[examples]") {
  NEEDS_PROGRAM("train_lm");
  const TinyText tiny;
  REQUIRE(tiny.run({"--position", "music", "--max-distance", "4"}).status == 0);
  const auto nats = [&](const std::string& out_of_range) {
    CHECK(tiny.resume({"--evaluate", "--out-of-range", out_of_range}).status == 0);
    return stretto::nn::MetricsCsv::resume(tiny.out("evaluation.csv"),
                                           {"length", "memory", "stride", "context", "tokens",
                                            "nats_per_token", "tokens_per_second"},
                                           INT64_MAX)
        .rows()[0][5];
  };
  CHECK(nats("zero") == nats("zero"));
  CHECK(nats("zero") != nats("clip"));
  const Ended ended = tiny.resume({"--out-of-range", "clip"});  // resumed training does not
  CHECK(ended.status == 2);
  CHECK(ended.err == "train_lm: --out-of-range clip: the run of " +
                         tiny.out("checkpoint.safetensors") +
                         " has zero; it can only be resumed with that\n");
}

namespace {

std::vector<Refusal> refused_texts(const TinyText& tiny) {
  const auto file = [&](const char* name) { return tiny.file(name); };
  return {
      {{"--data", file("none")}, "cannot read '" + file("none") + "': No such file or directory"},
      {{"--data", file("out")}, "cannot read '" + file("out") + "': Is a directory"},
      {{"--data", file("empty")}, file("empty") + ": is empty"},
      {{"--validation", file("empty")}, file("empty") + ": is empty"},
      {{"--data", file("bad"), "--tokens", "chars"},
       file("bad") + ": is not UTF-8 at byte 9; --tokens bytes accepts any file"},
      {{"--validation", file("bad"), "--tokens", "words"},
       file("bad") + ": is not UTF-8 at byte 9; --tokens bytes accepts any file"},
      {{"--data", file("short")},
       file("short") + ": 11 training tokens are too few; 34 are needed, one segment of --length "
                       "16 for each row "
                       "of --batch 2"},
      {{"--data", file("short"), "--tokens", "words"},
       file("short") + ": is too short to hold out 0.1 of it in whole lines"},
      {{"--data", file("one"), "--held-out", "0.001"},
       file("one") + ": 1 validation token is too few; 2 are needed"},
  };
}

std::vector<Refusal> refused_options() {
  return {
      {{"--tokens", "letters"}, "--tokens letters: accepted values are bytes, chars, words"},
      {{"--preset", "huge"},
       "--preset huge: accepted values are enwik8-12l, enwik8-24l, lm1b-base, lm1b-large, "
       "text8-12l, "
       "text8-24l, wt103-base, wt103-large, nano and small"},
      {{"--norm", "none"}, "--norm none: accepted values are post, pre"},
      {{"--out-of-range", "error"}, "--out-of-range error: accepted values are clip, zero"},
      {{"--held-out", "1"}, "--held-out 1: must be above 0 and below 1"},
      {{"--vocabulary", "9"}, "--vocabulary: only --tokens words has a limit"},
      {{"--tokens", "words", "--vocabulary", "2"},
       "--vocabulary 2: <eos> and <unk> leave no entry for words"},
      {{"--length", "0"}, "--length 0: accepted values are 1 to 1048576"},
      {{"--memory", "-1"}, "--memory -1: accepted values are 0 to 1048576"},
      {{"--cutoffs", "9,x"}, "--cutoffs 9,x: must be whole numbers with commas between them"},
      {{"--cutoffs", "9,999"},
       "--cutoffs 9,999: must be below the vocabulary, which has 41 tokens"},
      {{"--eval-length", "0"}, "--eval-length 0: accepted values are 1 to 1048576"},
      {{"--eval-memory", "1,,2"},
       "--eval-memory 1,,2: must be whole numbers with commas between them"},
      {{"--position", "sinusoid", "--eval-memory", "16"},
       "--eval-memory 16: --position sinusoid does not support a memory"},
      {{"--generate", "9", "--prompt", "\x01"}, "--prompt: byte 0x01 is not in the vocabulary"},
      {{"--generate", "9", "--prompt", "\xFF", "--tokens", "chars"}, "--prompt: is not UTF-8"},
      {{"--generate", "9", "--prompt", " ", "--tokens", "words"}, "--prompt: has no word"},
      {{"--top-p", "0"}, "--top-p 0: must be above 0 and at most 1"},
  };
}

/// Rejected attempts to resume the checkpoint of a run of 3 steps.
std::vector<Refusal> refused_resumptions(const TinyText& tiny) {
  const std::string checkpoint = tiny.out("checkpoint.safetensors");
  const auto file = [&](const char* name) { return tiny.file(name); };
  return {
      {{"--steps", "3", "--resume", checkpoint, "--preset", "wt103-base"},
       "--cutoffs 20000,40000,200000: the run of " + checkpoint +
           " has none; it can only be resumed with that"},
      {{"--steps", "3", "--resume", checkpoint, "--data", file("odd")},
       file("odd") + ": byte 0x7E ('~') is not in the vocabulary of the checkpoint"},
      {{"--steps", "3", "--resume", checkpoint, "--data", file("one")},
       checkpoint + ": was trained on other text than that of --data (or of --seed without it)"},
      {{"--steps", "3", "--resume", checkpoint, "--validation", file("text.txt")},
       checkpoint + ": was trained on other text than that of --data (or of --seed without it)"},
      {{"--resume", file("text.txt")},
       "[safetensors] " + file("text.txt") +
           ": header of 7593462736100813175 bytes; at most 100000000 allowed; it looks like "
           "text: \"with fail when (fail 7):?  let veestar be [fail]?  with mufes wh\""},
  };
}

}  // namespace

TEST_CASE("train_lm rejects invalid inputs in one line", "[examples]") {
  NEEDS_PROGRAM("train_lm");
  const TinyText tiny;
  REQUIRE(tiny.run({"--steps", "3"}).status == 0);
  write_file(tiny.file("empty"), "");
  write_file(tiny.file("short"), "a short text\n");
  write_file(tiny.file("one"), std::string(1000, 'a'));
  write_file(tiny.file("odd"), std::string(100, '~'));
  write_file(tiny.file("bad"), "caf\xC3\xA9 caf\xE9 and so on");
  check_refusals(tiny, refused_texts(tiny));
  check_refusals(tiny, refused_options());
  check_refusals(tiny, refused_resumptions(tiny));
  // A finished run can be resumed with more steps.
  REQUIRE(tiny.resume({"--steps", "5"}).status == 0);
  const std::string checkpoint = tiny.out("checkpoint.safetensors");
  CHECK(stretto::nn::load_training_state(checkpoint).step == 5);
  CHECK(stretto::nn::load_training_state(checkpoint).metadata.at("steps") == "5");
}
