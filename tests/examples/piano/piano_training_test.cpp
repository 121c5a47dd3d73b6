// Models of piano music: settings, losses by position, generation.

#include <algorithm>
#include <cmath>

#include "examples/common/error.h"
#include "examples/common/settings.h"
#include "examples/piano/piano_program.h"
#include "examples/piano/piano_report.h"
#include "examples/piano/piano_writing.h"
#include "music/performance.h"
#include "music/remi.h"
#include "nn/init.h"
#include "ops/loss.h"
#include "tests/examples/temp_dir.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT
using namespace stretto::music;              // NOLINT
namespace nn = stretto::nn;

PianoSettings tiny(const std::string& tokens) {
  PianoSettings s = piano_settings("small", tokens, "sinusoid");
  s.layers = 1;
  s.d_model = 16;
  s.heads = 2;
  s.d_hidden = 16;
  s.features = 8;
  s.realizations = 4;
  s.taps = 9;
  s.length = 16;
  return s;
}

}  // namespace

TEST_CASE("published configurations have the published lengths, steps and rates",
          "[examples][piano]") {
  PianoSettings s = piano_settings("published", "remi", "sinusoid");
  CHECK(s.length == 2048);
  CHECK(s.transpose == 6);
  CHECK(s.steps == 62'880);
  CHECK(s.learning_rate == 1e-4);
  s = piano_settings("published", "remi", "conv");
  CHECK(s.steps == 55'020);
  CHECK(s.learning_rate == 2e-4);
  s = piano_settings("small", "performance", "sinusoid");
  CHECK(s.transpose == 3);
  CHECK(s.stretch == 5);
}

TEST_CASE("templates are drawn for models with stochastic positions", "[examples][piano]") {
  PianoSettings s = tiny("remi");
  s.layers = 3;
  s.attention = "softmax";
  for (const std::string& position : nn::position_names()) {
    INFO(position);
    s.position = position;
    if (!nn::refusal(position, s.attention, s.positions(), s.layer()).empty()) continue;
    const nn::LanguageModel model(s.model());
    CHECK(template_maps(model, 20, {}).has_value() == is_stochastic(position));
    CHECK(template_maps(model, 20, {.layers = {2}, .heads = 1}).has_value() ==
          is_stochastic(position));
  }
}

TEST_CASE("losses by position agree with the losses of the windows", "[examples][piano]") {
  const PianoSettings s = tiny("remi");
  nn::LanguageModel model(s.model());
  const PianoLibrary library = generated_library(1, s.language());
  const auto judged = windows(library.test, s.language(), 24, 5);
  const std::vector<double> losses = loss_by_position(model, judged, 24, 2);
  CHECK(model.training());
  REQUIRE(losses.size() == 24);
  model.eval();
  const stretto::nn::Batch batch = window_batch(judged, 0, 5, 24);
  CHECK(mean_of(losses, 0, 24) ==
        Approx(cross_entropy(model(batch.inputs), batch.targets).item()).epsilon(1e-5));
  // Later tokens have no influence.
  const std::vector<double> shorter = loss_by_position(model, judged, 10, 5);
  for (size_t i = 0; i < 10; ++i) CHECK(losses[i] == Approx(shorter[i]).epsilon(1e-5));
  CHECK(std::isnan(mean_of(losses, 3, 3)));
}

TEST_CASE("buckets of positions end at the trained length", "[examples][piano]") {
  const std::vector<double> losses{1, 3, 5, 7, 9, 11, 13, 15};
  const auto buckets = position_buckets(losses, 5, 2);
  std::string text;
  for (const PositionBucket& b : buckets)
    text += as_text(b.first) + "-" + as_text(b.last) + ":" + as_text(b.loss) + " ";
  CHECK(text == "0-2:2 2-4:6 4-5:9 5-7:12 7-8:15 ");
}

TEST_CASE("REMI's grammar keeps beats in order and continues to the requested length",
          "[examples][piano]") {
  const PianoSettings s = tiny("remi");
  stretto::manual_seed(1);
  nn::LanguageModel model(s.model());
  const auto backwards = [&](bool grammar) {
    int count = 0;
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      const std::vector<int64_t> piece = write_piano(model, s.language(), {},
                                                     {.tokens = 400,
                                                      .bars = 0,
                                                      .sampling = {.temperature = 1.2, .top_p = 1},
                                                      .grammar = grammar,
                                                      .seed = seed});
      CHECK(piece.front() == remi_id(RemiKind::bar));
      CHECK(std::count(piece.begin(), piece.end(), remi_pad) == 0);
      if (grammar) CHECK(piece.size() == 401);
      int beat = 0;
      for (const int64_t token : piece) {
        const RemiWord& word = remi_words()[size_t(token)];
        if (word.kind == RemiKind::bar) beat = 0;
        if (word.kind != RemiKind::beat) continue;
        count += word.value < beat;
        beat = word.value;
      }
    }
    return count;
  };
  CHECK(backwards(true) == 0);
  CHECK(backwards(false) > 0);
  const auto bars = [&](int64_t most) {
    const std::vector<int64_t> piece =
        write_piano(model, s.language(), {},
                    {.tokens = 4000, .bars = most, .sampling = {.temperature = 1.2, .top_p = 1}});
    CHECK(piece.back() == remi_id(RemiKind::bar));
    return std::count(piece.begin(), piece.end(), remi_id(RemiKind::bar));
  };
  CHECK(bars(2) == 3);  // the third one ends the piece
}

TEST_CASE("the grammar of performances ends only notes that sound", "[examples][piano]") {
  const PianoSettings s = tiny("performance");
  nn::LanguageModel model(s.model());
  const std::vector<int64_t> prompt{performance_velocity + 9, performance_on + 50};
  const std::vector<int64_t> piece = write_piano(
      model, s.language(), prompt, {.tokens = 500, .sampling = {.temperature = 1.2, .top_p = 1}});
  REQUIRE(piece.size() == 502);
  CHECK(std::equal(prompt.begin(), prompt.end(), piece.begin()));
  std::vector<int> sounding;
  for (const int64_t token : piece) {
    if (token < performance_off) sounding.push_back(token);
    if (token < performance_off || token >= performance_shift) continue;
    CHECK(std::erase(sounding, token - performance_off) > 0);
  }
  CHECK(piece == write_piano(model, s.language(), prompt,
                             {.tokens = 500, .sampling = {.temperature = 1.2, .top_p = 1}}));
  CHECK(piece !=
        write_piano(model, s.language(), prompt,
                    {.tokens = 500, .sampling = {.temperature = 1.2, .top_p = 1}, .seed = 2}));
}

TEST_CASE("invalid settings of piano music are rejected with their names", "[examples][piano]") {
  const auto refusal = [](const std::string& tokens, auto change) {
    PianoSettings s = tiny(tokens);
    change(s);
    return error_of<UsageError>([&] { s.check(); });
  };
  using S = PianoSettings&;
  CHECK(refusal("remi", [](S s) { s.features = 7; }) ==
        "--features 7: hyperbolic features come in pairs");
  CHECK(refusal("remi", [](S s) { s.stretch = 1; }) == "--stretch: needs --tokens performance");
  CHECK(refusal("remi", [](S s) { s.token_options.pedal = true; }) ==
        "--pedal: needs --tokens performance");
  CHECK(refusal("performance", [](S s) { s.token_options.pedal = true; }) == "(nothing thrown)");
  CHECK(refusal("remi", [](S s) { s.norm = "none"; }) ==
        "--norm none: accepted values are post, pre");
  CHECK_THAT(
      refusal("remi",
              [](S s) {
                s.position = "rope";
                s.d_model = 6;
              }),
      Containing(
          "--position rope rotates pairs of features, but the head dimension is 3; accepted"));
  CHECK(refusal("words", [](S) {}) ==
        "--tokens words: accepted values are performance, remi, remi-multitrack, tsd, "
        "tsd-multitrack");
  CHECK(refusal("tsd", [](S s) { s.token_options.chords = true; }) ==
        "--chords: needs --tokens remi");
  CHECK(refusal("remi", [](S s) { s.token_options.time_signatures = true; }) ==
        "--time-signatures: needs --tokens tsd, tsd-multitrack or remi-multitrack");
  CHECK(refusal("tsd", [](S s) { s.token_options.sustain_pedal_duration = true; }) ==
        "--sustain-pedal-duration: needs --sustain-pedals");
  CHECK(refusal("tsd", [](S s) { s.token_options.time_signatures = true; }) == "(nothing thrown)");
  CHECK(refusal("tsd", [](S s) { s.infill = true; }) ==
        "--infill: needs tokens with bars, such as --tokens remi");
  CHECK(error_of<UsageError>([] { piano_settings("large", "remi", "sinusoid"); }) ==
        "--preset large: accepted values are published, small");
}
