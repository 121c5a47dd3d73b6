// The program continue_music: its output and files, exported weights, invalid inputs.
#include "examples/chorales/chorale.h"
#include "examples/chorales/chorale_song.h"
#include "music/midi_reader.h"
#include "music/midi_writer.h"
#include "tests/examples/tiny_run.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT

/// A model that train_music has trained for some steps, and a piece to continue.
class Continuing {
 public:
  explicit Continuing(const std::string& tokens = "remi")
      : training_("train_music",
                  words("--layers 1 --d-model 16 --heads 2 --d-hidden 32 --length 32 "
                        "--batch 2 --steps 4 --validation-windows 2 --eval-windows 2 "
                        "--picture-length 8 --generate 0 --attention softmax "
                        "--position xl --tokens " +
                        tokens)) {
    const Ended ended = training_.run();
    INFO(ended.err);
    REQUIRE(ended.status == 0);
    stretto::music::write_midi(piece, to_song(generate_chorales(5, 1, 1, 1).train.front()));
  }
  std::string file(const std::string& name) const { return training_.file(name); }
  Ended run(const std::string& file, const Arguments& more) const {
    Arguments all{file, "--out", out};
    all.insert(all.end(), more.begin(), more.end());
    return testing::run(find_program("continue_music"), all);
  }
  /// Returns the contents of the results: MIDI files and the losses that were printed.
  std::string results(const std::string& model, const Arguments& more = {}) const {
    const Ended ended = run(model, more);
    INFO(ended.err);
    REQUIRE(ended.status == 0);
    std::string all = ended.out.substr(0, ended.out.find('\n'));
    for (const std::string name : {"continuation_1", "continuation_2"})
      all += read_file(out + "/" + name + ".mid");
    return all;
  }

 private:
  TinyRun training_;

 public:
  const std::string checkpoint = training_.out("checkpoint.safetensors"), piece = file("piece.mid"),
                    out = file("continued");
};

}  // namespace

TEST_CASE("continue_music continues a piece in several ways", "[examples]") {
  NEEDS_PROGRAM("continue_music");
  const Continuing c;
  const Arguments options{"--prompt", c.piece, "--prompt-bars",   "2",
                          "--bars",   "2",     "--continuations", "2"};
  const std::string first = c.results(c.checkpoint, options);
  CHECK_THAT(first, Containing("Prompt: ") && Containing(" nats per token"));
  CHECK(c.results(c.checkpoint, options) == first);
  Arguments other = options;
  other.insert(other.end(), {"--seed", "2"});
  CHECK(c.results(c.checkpoint, other) != first);

  const std::string page = read_file(c.out + "/continuations.html");
  for (const char* text : {"The prompt", "Continuation 1", "Continuation 2", "continue_music"})
    CHECK_THAT(page, Containing(text));
  // Both continuations begin with the two bars of the prompt, and have two more.
  const auto prompt = stretto::music::read_midi(c.out + "/prompt.mid");
  for (const char* name : {"/continuation_1.mid", "/continuation_2.mid"}) {
    const auto song = stretto::music::read_midi(c.out + name);
    REQUIRE(song.notes.size() >= prompt.notes.size());
    const int64_t bar = 4 * int64_t(song.division.ticks_per_quarter);
    for (const auto& note : song.notes) CHECK(note.start < 4 * bar);
  }
}

TEST_CASE("continue_music begins a piece, also with tokens without bars", "[examples]") {
  NEEDS_PROGRAM("continue_music");
  for (const char* tokens : {"remi", "performance", "tsd-multitrack"}) {
    INFO(tokens);
    const Continuing c(tokens);
    const Ended ended = c.run(c.checkpoint, {"--bars", "1", "--continuations", "2"});
    INFO(ended.err);
    CHECK(ended.status == 0);
    CHECK(ended.out.find("Prompt") == std::string::npos);
    CHECK_FALSE(std::filesystem::exists(c.out + "/prompt.mid"));
    CHECK(std::filesystem::exists(c.out + "/continuation_2.mid"));
    const Ended whole = c.run(c.checkpoint, {"--prompt", c.piece, "--continuations", "1"});
    INFO(whole.err);
    CHECK(whole.status == 0);
  }
}

TEST_CASE("continue_music writes weights alone, which continue a piece too", "[examples]") {
  NEEDS_PROGRAM("continue_music");
  const Continuing c;
  const std::string small = c.file("small.safetensors"), again = c.file("again.safetensors");
  const Ended ended = c.run(c.checkpoint, {"--export", small});
  INFO(ended.err);
  REQUIRE(ended.status == 0);
  CHECK_FALSE(std::filesystem::exists(c.out));
  CHECK(std::filesystem::file_size(small) < std::filesystem::file_size(c.checkpoint) / 4);
  REQUIRE(c.run(small, {"--export", again}).status == 0);
  CHECK(read_file(again) == read_file(small));
  CHECK_THAT(c.results(small, {"--prompt", c.piece, "--continuations", "2"}),
             Containing("Prompt: "));
}

TEST_CASE("continue_music continues with a model trained in bf16 on tokens with meters",
          "[examples]") {
  NEEDS_PROGRAM("continue_music");
  const Continuing c(
      "remi-multitrack --time-signatures --rests --sustain-pedals --pitch-bends "
      "--dtype bf16");
  stretto::music::Song song = to_song(generate_chorales(5, 1, 1, 1).train.front());
  song.meters = {{0, 3, 4}, {1440, 6, 8}};
  song.tracks[0].controls = {{0, 64, 127}, {960, 64, 0}};
  stretto::music::write_midi(c.piece, song);
  const Arguments options{"--prompt", c.piece, "--continuations", "2", "--bars", "2"};
  const std::string first = c.results(c.checkpoint, options);
  CHECK(c.results(c.checkpoint, options) == first);
  const auto loss = [](const std::string& text) {
    return std::stod(text.substr(text.find("loss ") + 5));
  };
  CHECK(loss(first) > 0);
  const auto continued = stretto::music::read_midi(c.out + "/continuation_1.mid");
  REQUIRE(continued.time_signatures.size() >= 2);
  CHECK(continued.time_signatures[0].numerator == 3);
  CHECK(continued.time_signatures[1].denominator == 8);

  const std::string small = c.file("small.safetensors");
  REQUIRE(c.run(c.checkpoint, {"--export", small}).status == 0);
  // Weights of bf16 have errors of 2^-9 at most; small logits change the loss by less.
  CHECK(loss(c.results(small, options)) == Approx(loss(first)).margin(0.02));
}

TEST_CASE("continue_music: what is refused", "[examples]") {
  NEEDS_PROGRAM("continue_music");
  const Continuing c, other("performance");
  write_file(c.file("text"), "no model");
  write_file(c.file("none.mid"), "none");
  std::filesystem::create_directory(c.file("mine"));
  write_file(c.file("mine/continuation_1.mid"), "mine");
  const std::vector<std::pair<Arguments, std::string>> all{
      {{c.file("absent")}, "absent"},
      {{c.file("text")}, "text"},
      {{c.checkpoint, "--prompt", c.file("none.mid")}, "none.mid: byte "},
      {{other.checkpoint, "--prompt", c.piece, "--prompt-bars", "4"}, "have no bars"},
      {{c.checkpoint, "--export", c.checkpoint}, "--export: "},
      {{c.checkpoint, "--export", c.piece}, "piece.mid exists"},
      {{c.checkpoint, "--out", c.file("mine")}, "--out: "},
      {{c.checkpoint, "--bars", "0"}, "--bars 0: accepted values are 1 to 10000"}};
  for (const auto& [arguments, expected] : all) {
    const Ended ended = run(find_program("continue_music"), arguments);
    INFO(ended.err << " " << ended.out);
    CHECK(ended.status == 2);
    CHECK_THAT(ended.err, Containing(expected));
  }
  CHECK(read_file(c.file("mine/continuation_1.mid")) == "mine");
}
