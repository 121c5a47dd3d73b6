// Models of grooves: configurations, training, and continuations.
#include <cmath>
#include <map>
#include <memory>
#include <stdexcept>
#include <tuple>

#include "autograd/tape.h"
#include "examples/common/error.h"
#include "examples/common/settings.h"
#include "examples/groove/groove_generator.h"
#include "examples/groove/groove_grammar.h"
#include "examples/groove/groove_program.h"
#include "examples/groove/groove_tokens.h"
#include "nn/init.h"
#include "ops/create.h"
#include "tests/examples/groove/groove_toys.h"
#include "tests/examples/training_checks.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto;                     // NOLINT
using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT
using namespace stretto::music;              // NOLINT

GrooveSettings tiny_settings() {
  auto s = with_tiny_model<GrooveSettings>();
  s.features = 8;
  s.redraw = 2;
  s.realizations = 4;
  s.taps = 9;
  s.length = 48;
  s.batch = 4;
  s.steps = 100;
  return s;
}

std::vector<Song> tiny_songs() { return generate_grooves(5, 0, 4); }

std::unique_ptr<GrooveProgram> trained(const GrooveSettings& settings, int steps,
                                       const std::vector<Song>& songs = tiny_songs()) {
  auto training = std::make_unique<GrooveProgram>();
  training->settings = settings;
  training->start(songs);
  for (int i = 0; i < steps; ++i) training->train_step(0);
  return training;
}

int64_t parameters(const GrooveSettings& settings) {
  return nn::count_parameters<nn::LanguageModel>(settings.model());
}

}  // namespace

TEST_CASE("groove models have parameters for what their settings say", "[examples][groove]") {
  GrooveSettings s = tiny_settings();
  s.position = "none";
  const int64_t d = 16;
  const int64_t none = 2 * 794 * d + 4 * d * d + 2 * d * 32 + 32 + d + 3 * 2 * d;
  CHECK(parameters(s) == none);
  for (const char* attention : {"performer-hyperbolic", "linear-elu", "linear-relu"}) {
    s.attention = attention;
    for (const char* position : {"none", "sinusoid", "rope"}) {
      s.position = position;
      CHECK(parameters(s) == none);
    }
  }
  s.position = "learned";
  CHECK(parameters(s) == none + 48 * d);
  s.attention = "softmax";
  s.position = "music";
  CHECK(parameters(s) == none + 48 * d);
  s.position = "alibi";
  CHECK(parameters(s) == none);
  s.published_model = true;  // adds biases of attention and output, removes the final norm
  CHECK(parameters(s) == none + 4 * d + 794 - 2 * d);
}

TEST_CASE("invalid groove settings are rejected", "[examples][groove]") {
  const auto error_for = [](auto member, auto value) {
    GrooveSettings s = tiny_settings();
    s.*member = value;
    return error_of<UsageError>([&] { s.check(); });
  };
  using S = GrooveSettings;
  CHECK_NOTHROW(tiny_settings().check());
  CHECK_NOTHROW(published_groove().check());
  CHECK_THAT(error_for(&S::position, "x"),
             Containing("--position x: accepted values are none, sinusoid, "));
  CHECK(error_for(&S::attention, "performer") ==
        "--position music acts on scores, which performer attention does not have; accepted here: "
        "none, sinusoid, learned, rope, sine, sine-ungated, conv, conv-ungated");
  CHECK_THAT(error_for(&S::position, "grid"),
             Containing("--position grid is for bidirectional attention"));
  CHECK(error_for(&S::held_out, 1.0) == "--held-out 1: must be above 0 and below 1");
  CHECK(error_for(&S::skip_bars, -1) == "--skip-bars -1: accepted values are 0 to 1000");
  CHECK(error_for(&S::length, 1) == "--length 1: accepted values are 2 to 1048576");
  CHECK(error_for(&S::weight_decay, -1.0) == "--weight-decay -1: must be a number of at least 0");
  GrooveSettings s = tiny_settings();
  s.position = "rope";
  s.heads = 16;
  CHECK_THAT(
      error_of<UsageError>([&] { s.check(); }),
      Containing(
          "--position rope rotates pairs of features, but the head dimension is 1; accepted"));
  s = tiny_settings();
  s.attention = "performer-hyperbolic";
  s.position = "none";
  s.features = 7;
  CHECK(error_of<UsageError>([&] { s.check(); }) ==
        "--features 7: hyperbolic features come in pairs");
  s = tiny_settings();
  s.attention = "linear-elu";
  s.position = "none";
  s.attention_dropout = 0.5;
  CHECK(error_of<UsageError>([&] { s.check(); }) ==
        "--attention-dropout 0.5: --attention linear-elu has no attention weights; must be 0");
}

TEST_CASE("groove models learn, and resume bit-identically from a checkpoint",
          "[examples][groove]") {
  GrooveSettings s = tiny_settings();
  std::tie(s.attention, s.position) =
      GENERATE(table<std::string, std::string>({{"softmax", "music"},
                                                {"softmax", "learned"},
                                                {"performer-hyperbolic", "sinusoid"},
                                                {"performer-hyperbolic", "rope"},
                                                {"performer-hyperbolic", "sine"},
                                                {"softmax", "conv-ungated"},
                                                {"linear-relu", "none"},
                                                {"linear-elu", "sinusoid"}}));
  CAPTURE(s.attention, s.position);
  const TempDir folder;
  const auto training = trained(s, 1);
  const auto valid = validation_grooves(tiny_songs(), s.length);
  const double first = groove_loss(*training->model, valid, 4, false);
  CHECK(first == Approx(std::log(794.0)).margin(0.7));  // untrained
  while (training->step() < 5) training->train_step(0);
  training->save(folder.file("a"));
  while (training->step() < 100) training->train_step(0);
  training->save(folder.file("b"));
  CHECK(groove_loss(*training->model, valid, 4, false) < 0.7 * first);
  CHECK(training->model->training());  // the mode is restored

  const auto again = trained(s, 1);
  again->load(folder.file("a"));
  CHECK(again->step() == 5);
  while (again->step() < 100) again->train_step(0);
  again->save(folder.file("c"));
  CHECK(read_file(folder.file("b")) == read_file(folder.file("c")));

  const auto other = trained(s, 0, generate_grooves(6, 0, 4));
  CHECK_THAT(error_of<UsageError>([&] { other->load(folder.file("a")); }),
             Containing(": was trained on other songs than those of --data"));
}

TEST_CASE("the loss of grooves is the mean over tokens, however they are batched",
          "[examples][groove]") {
  const auto training = trained(tiny_settings(), 3);
  const auto valid = validation_grooves(tiny_songs(), 30);
  std::vector<GrooveSequence> uneven = valid;
  uneven[1].resize(7);
  uneven[2].push_back(groove_end);
  const double whole = groove_loss(*training->model, uneven, 4, false);
  for (const int64_t batch : {1, 2, 3, 9})
    CHECK(groove_loss(*training->model, uneven, batch, false) == Approx(whole).epsilon(1e-6));
  double sum = 0, n = 0;
  for (const GrooveSequence& sequence : uneven) {
    const double tokens = double(sequence.size()) - 1;
    sum += tokens * groove_loss(*training->model, {sequence}, 1, false);
    n += tokens;
  }
  CHECK(whole == Approx(sum / n).epsilon(1e-6));
  CHECK(groove_loss(*training->model, uneven, 4, true) != whole);
  CHECK(groove_loss(*training->model, valid, 4, true) ==
        groove_loss(*training->model, valid, 4, false));
  CHECK(std::isnan(groove_loss(*training->model, {}, 4, false)));
}

TEST_CASE("a continuation begins with its prompt and obeys the grammar", "[examples][groove]") {
  GrooveSettings s = tiny_settings();
  std::tie(s.attention, s.position) =
      GENERATE(table<std::string, std::string>({{"softmax", "music"},
                                                {"performer-hyperbolic", "sinusoid"},
                                                {"linear-elu", "rope"},
                                                {"performer-hyperbolic", "conv"},
                                                {"linear-relu", "sine-ungated"},
                                                {"softmax", "sine"}}));
  const auto training = trained(s, 20);
  Song prompt = first_bars(with_fullest_harmony(tiny_songs()[0]), 1);
  prompt.tracks[bass_track].program = 35;
  prompt.tracks[harmony_track].program = 27;
  prompt.quarters_per_minute = 90;
  const GrooveSampling sampling{.tokens = 60, .temperature = 1, .seed = 3};
  const Song written = continue_groove(*training->model, prompt, sampling);
  for (size_t i = 0; i < 3; ++i) CHECK(written.tracks[i].program == prompt.tracks[i].program);
  CHECK(written.quarters_per_minute == 90);
  for (size_t track = 0; track < 3; ++track)
    for (const Note& note : prompt.tracks[track].notes)
      CHECK(std::any_of(written.tracks[track].notes.begin(), written.tracks[track].notes.end(),
                        [&](const Note& n) { return same_note(n, note); }));
  CHECK(same_notes(continue_groove(*training->model, prompt, sampling), written));

  // Step by step, without a cache: the most likely allowed token.
  NoGrad guard;
  training->model->eval();
  std::vector<int64_t> tokens = to_tokens(prompt), seen{groove_start};
  seen.insert(seen.end(), tokens.begin(), tokens.end());
  GrooveGrammar grammar;
  for (const int64_t token : seen) grammar.see(token);
  for (int i = 0; i < 60 && seen.back() != groove_end; ++i) {
    const Tensor logits = (*training->model)(tensor(seen, {1, int64_t(seen.size())}))[0][-1];
    const std::vector<double> scores = logits.to_vector<double>();
    int64_t best = -1;
    for (int64_t token = 0; token < groove_vocabulary; ++token)
      if (grammar.allows(token) && (best < 0 || scores[size_t(token)] > scores[size_t(best)]))
        best = token;
    grammar.see(best);
    seen.push_back(best);
  }
  const Song expected = to_groove(seen);
  CHECK(same_notes(continue_groove(*training->model, prompt, {.tokens = 60, .temperature = 0}),
                   expected));
}

TEST_CASE("grooves: least_memory() is below the memory that training uses", "[examples][groove]") {
  GrooveSettings s = tiny_settings();
  s.d_model = 64, s.d_hidden = 256, s.layers = 2, s.length = 64;
  s.position = GENERATE("none", "music");
  check_least_memory([&] { return trained(s, 0); },
                     [](const GrooveProgram& t) { return t.settings.least_memory(); });
}
