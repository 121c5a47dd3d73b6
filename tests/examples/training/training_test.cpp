#include <cmath>

#include "core/storage.h"
#include "examples/chorales/chorale_program.h"
#include "examples/common/error.h"
#include "ops/create.h"
#include "tests/examples/chorales/train_chorales.h"
#include "tests/examples/training_checks.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto;                     // NOLINT
using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT

ChoraleSettings tiny_settings() {
  auto s = with_tiny_model<ChoraleSettings>();
  s.length = 32;
  s.batch = 2;
  s.steps = 40;
  return s;
}

struct Training : ChoraleProgram {
  explicit Training(const ChoraleSettings& s,
                    const std::vector<Chorale>& pieces = tiny_chorales().train) {
    settings = s;
    start(pieces);
  }
};

}  // namespace

TEST_CASE("training lowers the loss", "[examples]") {
  ChoraleSettings settings = tiny_settings();
  settings.position = GENERATE("music", "sinusoid");
  settings.transpose = 0;
  settings.steps = 150;
  Training training(settings);
  const double first = training.train_step(0).loss;
  CHECK(first == Approx(std::log(double(chorale_vocabulary))).margin(0.7));  // untrained
  double last = 0;
  while (training.step() < 150) last = training.train_step(0).loss;
  CHECK(last < 0.6 * first);
}

TEST_CASE("the loss of pieces that fit into the length is the same for all strides", "[examples]") {
  Training training(tiny_settings());
  for (int i = 0; i < 5; ++i) training.train_step(0);
  std::vector<Chorale> fitting = tiny_chorales().train;
  for (Chorale& piece : fitting) piece.steps.resize(8);  // 32 tokens
  const auto loss = [&](const std::vector<Chorale>& pieces, int64_t stride, int64_t batch) {
    return validation_loss(*training.model, pieces, 32, stride, batch);
  };
  const double whole = loss(fitting, 32, 4);
  for (const int64_t stride : {1, 7, 16}) CHECK(loss(fitting, stride, 4) == whole);
  CHECK(loss(fitting, 32, 1) == Approx(whole).epsilon(1e-6));  // other shapes round differently
  CHECK(loss(tiny_chorales().train, 1, 4) != loss(tiny_chorales().train, 32, 4));
  CHECK(training.model->training());  // the mode is restored
}

TEST_CASE("training is bit-identical with one and two threads", "[examples]") {
  ChoraleSettings settings = tiny_settings();
  settings.d_model = 96, settings.d_hidden = 300, settings.length = 128, settings.batch = 3;
  settings.attention_dropout = 0.1;
  check_any_threads([&] { return std::make_unique<Training>(settings); });
}

TEST_CASE("every training step frees the memory it allocates", "[examples]") {
  Training training(tiny_settings());
  training.train_step(0);  // allocates gradients and moments
  const int64_t live = memory_stats().live;
  for (int i = 0; i < 5; ++i) {
    training.train_step(0);
    CHECK(memory_stats().live == live);
  }
  validation_loss(*training.model, tiny_chorales().valid, 32, 4, 2);
  continue_chorale(*training.model, {}, 4, 32, {.top_p = 0.9}, 1);
  CHECK(memory_stats().live == live);
}

TEST_CASE("least_memory() is below the memory that training uses", "[examples]") {
  ChoraleSettings settings = tiny_settings();
  settings.d_model = 64, settings.d_hidden = 256, settings.length = 256, settings.layers = 2;
  settings.position = GENERATE("music", "sinusoid");
  check_least_memory([&] { return std::make_unique<Training>(settings); },
                     [](const Training& t) { return t.settings.least_memory(); });
}

TEST_CASE("a resumed training is bit-identical", "[examples]") {
  ChoraleSettings settings = tiny_settings();
  settings.steps = GENERATE(40, 0);  // 0: limited by time
  check_resumes([&] { return std::make_unique<Training>(settings); }, 3, 3,
                [](Training& t) { validation_loss(*t.model, tiny_chorales().valid, 32, 4, 2); });
}

TEST_CASE("checkpoints of other data are rejected", "[examples]") {
  const TempDir folder;
  const ChoraleSettings settings = tiny_settings();
  const std::string path = folder.file("c");
  Training(settings).save(path);
  std::vector<Chorale> others = tiny_chorales().train;
  others.pop_back();
  Training other(settings, others);
  CHECK(error_of<UsageError>([&] { other.load(path); }).rfind(path + ": was trained on other", 0) ==
        0);
}

TEST_CASE("settings are the same after conversion to metadata and back", "[examples]") {
  ChoraleSettings settings = tiny_settings();
  settings.learning_rate = 0.1 + 0.2;
  settings.max_grad_norm = INFINITY;
  settings.seed = UINT64_MAX;
  const auto chorale_settings = [](const nn::Metadata& metadata, const std::string& path) {
    return settings_from_metadata<ChoraleSettings>(metadata, path, "train_chorales");
  };
  CHECK(chorale_settings(settings_to_metadata(settings), "f") == settings);
  for (const auto& [name, value] : settings_to_metadata(settings)) {
    nn::Metadata metadata = settings_to_metadata(settings);
    metadata.erase(name);
    CHECK_THAT(error_of<UsageError>([&] { chorale_settings(metadata, "f"); }),
               Containing("f: not a checkpoint of train_chorales (its setting \"" + name + "\""));
    metadata[name] = value + " ";
    CHECK_THROWS_AS(chorale_settings(metadata, "f"), UsageError);
  }
}

TEST_CASE("a continuation begins with its opening and is the same for the same seed",
          "[examples]") {
  Training training(tiny_settings());
  const Chorale opening = tiny_chorales().valid[0];
  const auto piece = [&](int64_t steps, uint64_t seed) {
    return continue_chorale(*training.model, opening, steps, 32, {}, seed).steps;
  };
  const auto first = piece(6, 1);
  CHECK(first.size() > opening.steps.size());
  CHECK(first.size() <= opening.steps.size() + 6);
  CHECK(std::equal(opening.steps.begin(), opening.steps.end(), first.begin()));
  CHECK(first == piece(6, 1));
  CHECK(first != piece(6, 2));
  CHECK(piece(0, 1) == opening.steps);
}
