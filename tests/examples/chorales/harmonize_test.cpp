// Harmonization: data, training, beam search, and the whole program.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "examples/chorales/baselines.h"
#include "examples/chorales/harmony_program.h"
#include "examples/common/error.h"
#include "nn/training/evaluate.h"
#include "ops/create.h"
#include "tests/examples/chorales/train_chorales.h"
#include "tests/examples/training_checks.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto;                     // NOLINT
using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT
using Numbers = std::vector<int64_t>;

HarmonySettings tiny_settings() {
  auto s = with_tiny_model<HarmonySettings>();
  s.length = 8;
  s.batch = 4;
  s.transpose = 0;
  s.steps = 40;
  return s;
}

std::unique_ptr<HarmonyProgram> trained(
    const HarmonySettings& settings, int steps,
    const std::vector<Chorale>& pieces = tiny_chorales().train) {
  auto training = std::make_unique<HarmonyProgram>();
  training->settings = settings;
  training->start(pieces);
  for (int i = 0; i < steps; ++i) training->train_step(0);
  return training;
}

/// Trains on tiny_chorales(), saved as tiny.json in its directory.
class TinyHarmony : public TinyRun {
 public:
  TinyHarmony()
      : TinyRun("harmonize",
                words("--layers 1 --heads 2 --d-model 16 --d-hidden 32 --length 8 --batch 2 "
                      "--warmup 5 --steps 20 --pieces 1")) {
    save_chorales(file("tiny.json"), tiny_chorales());
    settings.insert(settings.end(), {"--data", file("tiny.json")});
  }
};

}  // namespace

TEST_CASE("harmony_batch: the encoder reads the soprano, the decoder writes the other voices",
          "[examples]") {
  // A piece of two sixteenth notes, padded to three.
  const nn::Batch four_voices{
      tensor(Numbers{start_token, 73, 63, 53, 43, 74, 64, 54, 44, end_token, 1, 1}, {1, 12}),
      tensor(Numbers{73, 63, 53, 43, 74, 64, 54, 44, end_token, -100, -100, -100}, {1, 12})};
  const HarmonyBatch b = harmony_batch(four_voices);
  CHECK(b.soprano.shape() == Shape{1, 3});
  CHECK(b.soprano.to_vector<int64_t>() == Numbers{73, 74, end_token});
  CHECK(b.padding.dtype() == boolean);
  CHECK(b.padding.to_vector<int64_t>() == Numbers{0, 0, 1});
  CHECK(b.inputs.shape() == Shape{1, 9});
  CHECK(b.inputs.to_vector<int64_t>() == Numbers{start_token, 63, 53, 43, 64, 54, 44, 1, 1});
  CHECK(b.targets.to_vector<int64_t>() == Numbers{63, 53, 43, 64, 54, 44, -100, -100, -100});
}

TEST_CASE("harmony_batch: crops and scoring windows agree with the pieces", "[examples]") {
  const std::vector<Chorale> pieces = tiny_chorales().train;
  for (int64_t step = 0; step < 5; ++step) {
    const HarmonyBatch b = harmony_batch(training_batch(pieces, {4, 48, 0}, 3, step));
    const Numbers padding = b.padding.to_vector<int64_t>(),
                  targets = b.targets.to_vector<int64_t>();
    const Numbers inputs = b.inputs.to_vector<int64_t>();
    for (size_t i = 0; i < targets.size(); ++i) {
      CHECK((targets[i] == nn::ignore_index) == (padding[i / 3] == 1));
      CHECK(targets[i] != end_token);
      if (i % 36 > 0 && targets[i] != nn::ignore_index) CHECK(inputs[i] == targets[i - 1]);
    }
  }
  // Every note of alto, tenor and bass is scored once.
  Numbers counts(chorale_vocabulary), scored(chorale_vocabulary);
  for (const Chorale& piece : pieces)
    for (const auto& s : piece.steps)
      for (size_t voice = 1; voice < 4; ++voice)
        ++counts[size_t(s[voice] < 0 ? silence_token : pitch_token + s[voice])];
  scoring_batches(pieces, 32, 12, 3, [&](const nn::Batch& batch) {
    for (const int64_t t : harmony_batch(batch).targets.to_vector<int64_t>())
      if (t != nn::ignore_index) ++scored[size_t(t)];
  });
  CHECK(scored == counts);
}

TEST_CASE("harmonization learns with every positional encoding", "[examples]") {
  HarmonySettings settings = tiny_settings();
  settings.position = GENERATE("none", "sinusoid", "sinusoid+music", "rope");
  settings.label_smoothing = GENERATE(0.0, 0.1);
  settings.steps = 150;
  const auto training = trained(settings, 0);
  const double first = training->train_step(0).loss;
  CHECK(first == Approx(std::log(double(chorale_vocabulary))).margin(0.7));  // untrained
  while (training->step() < 150) training->train_step(0);
  const double loss = harmony_loss(*training->model, tiny_chorales().train, 8, 4, 2);
  CHECK(loss < 0.6 * first);
  CHECK(training->model->training());  // the mode is restored
}

TEST_CASE("the harmony loss of pieces that fit into the length is the same for all strides",
          "[examples]") {
  const auto training = trained(tiny_settings(), 5);
  std::vector<Chorale> fitting = tiny_chorales().train;
  for (Chorale& piece : fitting) piece.steps.resize(6);
  const double whole = harmony_loss(*training->model, fitting, 8, 8, 4);
  for (const int64_t stride : {1, 3}) {
    CHECK(harmony_loss(*training->model, fitting, 8, stride, 4) == whole);
    CHECK(harmony_loss(*training->model, tiny_chorales().train, 8, stride, 4) != whole);
  }
}

TEST_CASE("a resumed harmonization training is bit-identical", "[examples]") {
  HarmonySettings settings = tiny_settings();
  settings.steps = GENERATE(40, 0);  // 0: limited by time
  check_resumes([&] { return trained(settings, 0); }, 3, 3,
                [](HarmonyProgram& t) { harmony_loss(*t.model, tiny_chorales().valid, 8, 4, 2); });
  const TempDir folder;
  trained(settings, 0)->save(folder.file("a"));
  const auto other = trained(settings, 0, tiny_chorales().valid);
  CHECK_THAT(error_of<UsageError>([&] { other->load(folder.file("a")); }),
             Containing(": was trained on other chorales than those of --data"));
}

TEST_CASE("greedy search takes the most likely note for each voice in turn", "[examples]") {
  HarmonySettings settings = tiny_settings();
  settings.position = GENERATE("sinusoid", "sinusoid+music");
  const auto training = trained(settings, 30);
  Chorale melody = tiny_chorales().valid[0];
  melody.steps.resize(7);
  melody.steps[2][0] = -1;  // a rest
  const Chorale found = harmonize(*training->model, melody, 8, 1);
  REQUIRE(found.steps.size() == 7);
  const nn::EvalMode guard(*training->model);
  Numbers soprano, inputs{start_token}, chosen;
  for (const auto& step : found.steps)
    for (size_t voice = 0; voice < 4; ++voice) {
      const int64_t token = step[voice] < 0 ? silence_token : pitch_token + step[voice];
      (voice == 0 ? soprano : inputs).push_back(token);
      if (voice > 0) chosen.push_back(token);
    }
  inputs.pop_back();
  const Tensor logits =
      (*training->model)(tensor(soprano, {1, 7}), tensor(inputs, {1, 21}))[0].slice(1,
                                                                                    silence_token);
  for (int64_t i = 0; i < 21; ++i) {
    const std::vector<double> x = logits[i].to_vector<double>();
    CHECK(std::max_element(x.begin(), x.end()) - x.begin() == chosen[size_t(i)] - silence_token);
  }
}

TEST_CASE("a harmony keeps the soprano and the length of its melody", "[examples]") {
  const auto training = trained(tiny_settings(), 20);
  PortableRandom random(11);
  for (const int steps : {1, 7, 8, 9, 12, 13, 30}) {  // windows have length 8 or 9
    const Chorale melody = random_chorale(random, steps);
    for (const int64_t length : {8, 9})
      for (const int64_t beam : {1, 3}) {
        const Chorale found = harmonize(*training->model, melody, length, beam);
        REQUIRE(found.steps.size() == melody.steps.size());
        for (size_t i = 0; i < found.steps.size(); ++i)
          CHECK(found.steps[i][0] == melody.steps[i][0]);
        CHECK(found.steps == harmonize(*training->model, melody, length, beam).steps);
        // The first window does not depend on the rest.
        if (steps <= length) continue;
        Chorale opening = melody;
        opening.steps.resize(size_t(length));
        const Chorale begun = harmonize(*training->model, opening, length, beam);
        CHECK(std::equal(begun.steps.begin(), begun.steps.end(), found.steps.begin()));
      }
  }
  CHECK(harmonize(*training->model, {}, 8, 2).steps.empty());
}

TEST_CASE("agreement compares alto, tenor and bass", "[examples]") {
  const Chorale a{{{{1, 2, 3, 4}, {5, 6, 7, -1}}}}, b{{{{9, 2, 3, 5}, {5, 7, 7, -1}}}};
  CHECK(agreement(a, a) == 1);
  CHECK(agreement(a, b) == Approx(4.0 / 6));
  CHECK(agreement(a, {}) == 0);
}

TEST_CASE("harmonization: least_memory() is below the memory that training uses", "[examples]") {
  HarmonySettings settings = tiny_settings();
  settings.d_model = 64, settings.d_hidden = 256, settings.length = 64, settings.layers = 2;
  settings.position = GENERATE("none", "sinusoid+music");
  check_least_memory([&] { return trained(settings, 0); },
                     [](const HarmonyProgram& t) { return t.settings.least_memory(); });
}

TEST_CASE("harmonize trains, prints its losses and writes music", "[examples]") {
  NEEDS_PROGRAM("harmonize");
  const TinyHarmony tiny, same;
  const Ended ended = tiny.run({"--beam", "2"});
  INFO(ended.err);
  REQUIRE(ended.status == 0);
  CHECK_THAT(ended.out, Containing("Read 3 chorales for training and 1 for validation. Position "
                                   "sinusoid+music, "));
  const ChoraleSet set = tiny_chorales();
  std::ostringstream bigram;
  bigram.precision(4);
  bigram << std::fixed << voice_bigram_loss(set.train, set.valid, 1);
  for (const std::string& text :
       {std::string("\n  unigram per voice "), "\n  bigram per voice   " + bigram.str(),
        std::string("\n  model             "),
        std::string(" % of the notes below the soprano are those of")})
    CHECK_THAT(ended.out, Containing(text));
  for (const char* name : {"loss", "composed-1", "harmonized-1"}) CHECK(tiny.drew(name));
  for (const char* name : {"composed-1.mid", "harmonized-1.mid"})
    CHECK(read_file(tiny.out(name)).rfind("MThd", 0) == 0);
  CHECK_THAT(read_file(tiny.out("metrics.csv")), Containing("step,seconds,train_loss,valid_loss"));

  // A run with two threads, without music, then resumed, writes the same bytes.
  REQUIRE(same.run({"--threads", "2", "--pieces", "0"}).status == 0);
  CHECK(read_file(same.out("checkpoint.safetensors")) ==
        read_file(tiny.out("checkpoint.safetensors")));
  const Ended again = same.run({"--resume", same.out("checkpoint.safetensors"), "--beam", "2"});
  CHECK(again.status == 0);
  CHECK(read_file(same.out("harmonized-1.mid")) == read_file(tiny.out("harmonized-1.mid")));
}

TEST_CASE("harmonize rejects invalid inputs and changes no files", "[examples]") {
  NEEDS_PROGRAM("harmonize");
  const TinyHarmony tiny;
  REQUIRE(tiny.run({"--steps", "3", "--pieces", "0"}).status == 0);
  const std::string checkpoint = tiny.out("checkpoint.safetensors");
  write_file(tiny.file("bad.json"), "{\"train\": oops}");
  struct Case {
    Arguments arguments;
    std::string expected;
  };
  std::vector<Case> cases{
      {{"--data", tiny.file("none.json")}, tiny.file("none.json") + ": no such file"},
      {{"--data", tiny.file("bad.json")}, "malformed JSON at byte 11 (line 1)"},
      {{"--position", "xpos"},
       "--position xpos is for causal attention only; accepted here: none, sinusoid, "},
      {{"--label-smoothing", "1"}, "--label-smoothing 1: must be at least 0 and below 1"},
      {{"--length", "1"}, "--length 1: accepted values are 2 to 1048576"},
      {{"--beam", "0"}, "--beam 0: accepted values are 1 to 64"},
      {{"--pieces", "-1"}, "--pieces -1: accepted values are 0 to 1000"},
      {{"--resume", tiny.file("tiny.json")}, tiny.file("tiny.json")},
      {{"--resume", checkpoint, "--steps", "3", "--position", "none"},
       "--position none: the run of " + checkpoint + " has sinusoid+music;"},
  };
  // Two layers of this model are allocated to count its parameters: too much if memory is filled.
  if (!std::getenv("STRETTO_ALLOC"))
    cases.push_back({{"--layers", "1000", "--d-model", "65536"}, " GB of memory, and "});
  const auto before = contents(tiny.file(""));
  for (const Case& c : cases) {
    const Ended ended = tiny.run(c.arguments);
    INFO(ended.err);
    CHECK(ended.status == 2);
    CHECK(ended.one_line());
    CHECK(ended.out.empty());
    CHECK(ended.err.rfind("harmonize: ", 0) == 0);
    CHECK_THAT(ended.err, Containing(c.expected));
    CHECK(contents(tiny.file("")) == before);
  }
}
