// Infilling by train_music: passages, training crops, losses, generation, and the program.
#include "examples/piano/infilling.h"

#include <algorithm>
#include <cmath>

#include "examples/piano/piano_settings.h"
#include "music/infill.h"
#include "music/midi_reader.h"
#include "nn/training/evaluate.h"
#include "ops/create.h"
#include "ops/softmax.h"
#include "tests/examples/tiny_run.h"
#include "tests/music/event_songs.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT
using namespace stretto::music;              // NOLINT
using stretto::music::testing::parsed;
using stretto::music::testing::song_with_everything;
namespace nn = stretto::nn;

const Tokenizer& remi() {
  static const auto tokens = tokenizer("remi");
  return *tokens;
}

const PianoLibrary& library() {
  static const PianoLibrary all = generated_library(1, remi());
  return all;
}

int64_t bars_in(const std::vector<int64_t>& tokens) {
  return std::count(tokens.begin(), tokens.end(), remi().bar);
}

PianoSettings tiny(const std::string& tokens = "remi", const TokenizerOptions& options = {}) {
  PianoSettings s = piano_settings("small", tokens, "rope");
  s.token_options = options;
  s.attention = "softmax";
  s.layers = 1;
  s.d_model = 16;
  s.heads = 2;
  s.d_hidden = 16;
  s.length = 1024;
  s.infill = true;
  s.check();
  return s;
}

}  // namespace

TEST_CASE("passages have twelve bars, and the gap has four", "[examples][piano]") {
  const auto all = infill_pieces(library().valid, remi(), 1024, 1000);
  REQUIRE(all.size() > 5);
  for (const InfillPiece& piece : all) {
    CHECK(piece.tokens.size() + 3 <= 1025);
    CHECK(piece.tokens[0] == remi().bar);
    CHECK(bars_in(piece.tokens) == 12);
    const std::vector<int64_t> gap(piece.tokens.begin() + piece.first,
                                   piece.tokens.begin() + piece.last);
    CHECK(gap[0] == remi().bar);
    CHECK(bars_in(gap) == 4);
    CHECK(piece.with_bars(gap) == piece.tokens);
    CHECK(bars_in({piece.tokens.begin(), piece.tokens.begin() + piece.first}) == 4);
  }
  CHECK(infill_pieces(library().valid, remi(), 1024, 3).size() == 3);
  CHECK(infill_pieces(library().valid, remi(), 64, 1000).empty());
}

TEST_CASE("half of the crops for infilling have their bars moved", "[examples][piano]") {
  const InfillTokens ids(remi().size());
  const PianoCropOptions plain{.batch = 64, .length = 512, .transpose = 0};
  PianoCropOptions infill = plain;
  infill.infill = true;
  const nn::Batch batch = training_batch(library().train, remi(), infill, 1, 0);
  CHECK(training_batch(library().train, remi(), infill, 1, 0).inputs.to_vector<int64_t>() ==
        batch.inputs.to_vector<int64_t>());
  int moved = 0;
  for (int64_t b = 0; b < 64; ++b) {
    std::vector<int64_t> tokens = batch.inputs[b].to_vector<int64_t>();
    const std::vector<int64_t> targets = batch.targets[b].to_vector<int64_t>();
    const auto hole = std::count(tokens.begin(), tokens.end(), ids.hole);
    CHECK(hole <= 1);
    CHECK(std::count(tokens.begin(), tokens.end(), ids.fill) == hole);
    moved += int(hole);
    if (hole == 0) continue;
    // The whole sequence is there: the end of the bars is the last token.
    if (tokens.back() != remi().pad) tokens.push_back(targets.back());
    CHECK(std::count(tokens.begin(), tokens.end(), ids.end) == 1);
    const std::vector<int64_t> restored = infilled(tokens, ids);
    CHECK(restored[0] == remi().bar);
    const auto fill = std::find(tokens.begin(), tokens.end(), ids.fill);
    const std::vector<int64_t> bars(fill + 1, std::find(fill, tokens.end(), ids.end));
    CHECK(bars[0] == remi().bar);
    CHECK(bars_in(bars) >= 1);
    CHECK(bars_in(bars) <= 4);
    CHECK(*(std::find(tokens.begin(), tokens.end(), ids.hole) + 1) == remi().bar);
  }
  CHECK(moved > 16);
  CHECK(moved < 48);
}

TEST_CASE("losses of the gap are those of its tokens alone", "[examples][piano]") {
  const PianoSettings s = tiny();
  stretto::manual_seed(1);
  nn::LanguageModel model(s.model());
  const InfillTokens ids(remi().size());
  const auto pieces = infill_pieces(library().valid, remi(), s.length, 3);
  for (const bool after : {false, true}) {
    double sum = 0, n = 0;
    for (const InfillPiece& piece : pieces) {
      std::vector<int64_t> row(piece.tokens.begin(), piece.tokens.begin() + piece.last);
      if (after) row = infill_sequence(piece.tokens, piece.first, piece.last, ids);
      const int64_t gap = piece.last - piece.first;
      const int64_t begin = int64_t(row.size()) - gap - (after ? 1 : 0);
      const nn::EvalMode guard(model);
      const stretto::Tensor logits =
          stretto::log_softmax(model(stretto::tensor(row, {1, int64_t(row.size())}))[0], -1);
      for (int64_t i = begin; i < begin + gap; ++i, ++n)
        sum -= double(logits[i - 1][row[size_t(i)]].item());
    }
    for (const int64_t batch : {1, 2, 4})
      CHECK(infill_loss(model, pieces, remi(), after, batch) == Approx(sum / n).epsilon(1e-5));
  }
}

TEST_CASE("the model writes four bars into the gap", "[examples][piano]") {
  const PianoSettings s = tiny();
  stretto::manual_seed(1);
  nn::LanguageModel model(s.model());
  const auto pieces = infill_pieces(library().valid, remi(), s.length, 1);
  for (const bool grammar : {false, true}) {
    const std::vector<int64_t> filled =
        write_infill(model, remi(), pieces[0], s.length, {.grammar = grammar, .seed = 3});
    REQUIRE(!filled.empty());
    CHECK(filled[0] == remi().bar);
    CHECK(bars_in(filled) <= 4);
    for (const int64_t token : filled) CHECK((token < remi().size() && token != remi().end));
    CHECK(int64_t(pieces[0].with_bars(filled).size()) + 2 <= s.length + 1);
    CHECK(filled ==
          write_infill(model, remi(), pieces[0], s.length, {.grammar = grammar, .seed = 3}));
  }
}

TEST_CASE("what the model writes into a gap is whole, with any options", "[examples][piano]") {
  for (int i = 0; i < 24; i += 1 + i % 3) {
    const PianoSettings s = tiny("remi-multitrack", {.time_signatures = i % 2 == 0,
                                                     .rests = i / 2 % 2 == 0,
                                                     .sustain_pedals = i / 8 > 0,
                                                     .sustain_pedal_duration = i / 8 > 1,
                                                     .pitch_bends = i / 4 % 2 == 0});
    const Tokenizer& tokens = s.language();
    stretto::manual_seed(uint64_t(i));
    nn::LanguageModel model(s.model());
    std::vector<InfillPiece> pieces;
    for (uint64_t seed = 0; pieces.size() < 2; ++seed) {
      const auto ids = tokens.encode(parsed(song_with_everything(seed)));
      for (const InfillPiece& piece : infill_pieces({{"", ids}}, tokens, 700, 1))
        pieces.push_back(piece);
    }
    for (const InfillPiece& piece : pieces) {
      const std::vector<int64_t> filled =
          write_infill(model, tokens, piece, s.length, {.grammar = true, .seed = uint64_t(i)});
      if (int64_t(piece.with_bars(filled).size()) + 2 > s.length) continue;  // at the limit
      const auto grammar = tokens.grammar();
      for (int64_t at = 0; at < piece.first; ++at) grammar->see(piece.tokens[size_t(at)]);
      for (const int64_t token : filled) {
        const auto forbidden = grammar->forbidden();
        CHECK(std::count(forbidden.begin(), forbidden.end(), token) == 0);
        grammar->see(token);
      }
      const auto forbidden = grammar->forbidden();  // a bar follows
      INFO(i << ", the last token: " << tokens.token_name(filled.back()));
      CHECK(std::count(forbidden.begin(), forbidden.end(), tokens.bar) == 0);
    }
  }
}

TEST_CASE("train_music --infill writes the gap, the given bars and the original", "[examples]") {
  NEEDS_PROGRAM("train_music");
  const TinyRun tiny(
      "train_music",
      words("--layers 1 --d-model 16 --heads 2 --d-hidden 16 --attention softmax "
            "--position rope --length 512 --batch 2 --steps 1 --validation-windows "
            "1 --eval-windows 1 --generate 0 --threads 1 --eval-length 512 --infill"));
  const Ended ended = tiny.run();
  INFO(ended.err);
  REQUIRE(ended.status == 0);
  CHECK_THAT(ended.out, Containing("\n  given bars 1 to 4 and 9 to 12 ") &&
                            Containing("infill.mid: ") &&
                            Containing(" tokens between bars 4 and 9"));
  const auto notes_between = [&](const std::string& name, double first, double last) {
    const MidiFile file = read_midi(tiny.out(name));
    return std::count_if(file.notes.begin(), file.notes.end(), [&](const MidiNote& note) {
      const double beats = double(note.start) / file.division.ticks_per_quarter;
      return first <= beats && beats < last;
    });
  };
  CHECK(notes_between("infill_given.mid", 16, 32) == 0);
  CHECK(notes_between("infill_original.mid", 16, 32) > 0);
  for (const auto& [first, last] : {std::pair{0, 16}, {32, 48}})
    CHECK(notes_between("infill_given.mid", first, last) ==
          notes_between("infill_original.mid", first, last));
  CHECK(tiny.drew("infill"));
  const std::string page = read_file(tiny.out("report.html"));
  CHECK_THAT(page, Containing("Bars 5 to 8 written by the model"));
  const Ended refused = tiny.run({"--length", "64", "--eval-length", "64"});
  CHECK(refused.status == 2);
  CHECK_THAT(refused.complaint(), Containing("--infill: no held-out piece has 12 bars in "));
}
