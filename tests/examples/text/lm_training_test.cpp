// Training, evaluation and generation of a language model, with every positional encoding.

#include <algorithm>
#include <cmath>

#include "autograd/tape.h"
#include "examples/common/error.h"
#include "examples/text/grammar.h"
#include "examples/text/lm_evaluation.h"
#include "examples/text/lm_program.h"
#include "tests/examples/training_checks.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto;                     // NOLINT
using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT

LmSettings tiny(const std::string& position = "xl", int64_t memory = 0) {
  auto s = with_tiny_model<LmSettings>();
  s.position = position;
  s.layers = 2;
  s.length = 12;
  s.memory = memory;
  s.batch = 3;
  s.steps = 200;
  return s;
}

const std::string& text() {
  static const std::string all = generate_text(5, 600).substr(0, 600);
  return all;
}

/// Trains on text() or another text.
struct Training : LmProgram {
  explicit Training(const LmSettings& s, const std::string& learned = text()) {
    settings = s;
    tokenizer = nn::VocabularyTokenizer::learn(token_kind(s.tokens), text());
    start(tokenizer->encode(learned), "the text");
  }
};

double loss(Training& t, nn::EvaluationWindows rule, int64_t batch = 4, int64_t groups = 1) {
  return evaluate(*t.model, t.tokenizer->encode(text()),
                  {.rule = rule, .batch = batch, .groups = groups})
      .all.mean();
}

}  // namespace

TEST_CASE("a language model learns from packed documents", "[examples]") {
  std::string documents;
  for (size_t i = 0; i < text().size(); i += 40) documents += text().substr(i, 40) + "\n\n";
  LmSettings s = tiny();
  s.pack = true;
  Training t(s, documents);
  const double first = t.train_step(0).loss;
  while (t.step() < 60) t.train_step(0);
  CHECK(t.train_step(0).loss < 0.8 * first);
  std::string one_line = text();
  std::replace(one_line.begin(), one_line.end(), '\n', ' ');
  CHECK_THROWS_WITH(Training(s, one_line),
                    "the text: has no blank line, which separates the documents of --pack");
  s.memory = 4;
  CHECK_THROWS_WITH(s.check(), "--pack: documents have no memory; accepted: --memory 0");
}

TEST_CASE("a language model learns with every positional encoding", "[examples]") {
  for (const std::string& position : nn::position_names()) {
    for (const int64_t memory : {0, 12}) {
      const LmSettings s = tiny(position, memory);
      if (!nn::refusal(position, s.attention, s.positions(), s.layer()).empty()) continue;
      if (memory > 0 && !s.has_memory()) continue;
      INFO(position << ", memory " << memory);
      Training t(tiny(position, memory));
      const double first = t.train_step(0).loss;
      CHECK(first == Approx(std::log(double(t.tokenizer->size()))).margin(0.3));
      while (t.step() < 40) t.train_step(0);
      CHECK(loss(t, {12, memory, 12}) < 0.85 * first);
      // At four times the trained length.
      const auto long_loss = [&] { return loss(t, {48, memory, 48}); };
      if (position == "bert" || position == "learned") {
        CHECK_THROWS_AS(long_loss(), Error);
      } else {
        CHECK(std::isfinite(long_loss()));
      }
    }
  }
}

TEST_CASE("a resumed language model training is bit-identical", "[examples]") {
  LmSettings s = tiny("xl", GENERATE(0, 5, 12, 30));
  s.steps = GENERATE(40, 0);  // 0: limited by time
  s.attention_dropout = 0.1;
  // An epoch has 17 segments; the resumed part begins in the first epoch and ends in the third.
  check_resumes([&] { return std::make_unique<Training>(s); }, 8, 30,
                [](Training& t) {
                  loss(t, {12, 12, 12});
                });  // with its own memory
}

TEST_CASE("language model training is bit-identical with one and two threads", "[examples]") {
  LmSettings s = tiny("xl", 40);
  s.length = 40, s.d_model = 64, s.d_hidden = 300, s.tokens = "words", s.cutoffs = "5,10";
  s.batch = 2;
  check_any_threads([&] { return std::make_unique<Training>(s); });
}

TEST_CASE("checkpoints of other texts and malformed memories are rejected", "[examples]") {
  const TempDir folder;
  const std::string path = folder.file("c");
  Training t(tiny("xl", 6));
  for (int i = 0; i < 3; ++i) t.train_step(0);
  t.save(path);

  const std::string other_text = text().substr(0, 500);
  Training other(tiny("xl", 6), other_text);
  CHECK(error_of<UsageError>([&] { other.load(path); }) ==
        path + ": was trained on other text than that of --data (or of --seed without it)");

  nn::LanguageModel model(t.settings.model(t.tokenizer->size()));
  nn::TrainingState state = nn::load_checkpoint(path, model, nullptr);
  REQUIRE(state.tensors.size() == 2);
  CHECK(state.tensors[0].tensor.shape() == Shape{3, 6, 16});
  nn::AdamW optimizer(t.model->parameters(), {});
  const auto refused = [&](const nn::TrainingState& bad) {
    nn::save_checkpoint(path, *t.model, &optimizer, bad);
    Training resumed(tiny("xl", 6));
    CHECK(error_of<UsageError>([&] { resumed.load(path); }) == path + ": its memory is malformed");
  };
  nn::TrainingState bad = state;
  bad.tensors.pop_back();
  refused(bad);
  bad.tensors.clear();
  refused(bad);
  bad = state;
  bad.tensors[1].name = "memory.2";
  refused(bad);
  bad = state;
  bad.tensors[0].tensor = bad.tensors[0].tensor.slice(1, 0, 2).contiguous();
  refused(bad);
  bad = state;
  bad.metadata.erase("vocabulary.tokens");
  CHECK(error_of<UsageError>([&] { saved_tokenizer(t.settings, bad.metadata, "f"); }) ==
        "f: its vocabulary is missing");
}

TEST_CASE("a text shorter than one segment per row is rejected", "[examples]") {
  LmSettings s = tiny();
  s.batch = 50;
  CHECK(error_of<UsageError>([&] { Training t(s); }) ==
        "the text: 600 training tokens are too few; 650 are needed, one segment of --length 12 for "
        "each row of --batch 50");
}

TEST_CASE("evaluation does not depend on how segments are batched", "[examples]") {
  Training t(tiny("xl", 12));
  for (int i = 0; i < 10; ++i) t.train_step(0);
  const double whole = loss(t, {600, 0, 600});
  // Other shapes round differently: f32 sums of about 16 terms, means of 599 losses.
  CHECK(loss(t, {600, 0, 1}, 1) == Approx(whole).epsilon(1e-5));
  CHECK(loss(t, {12, 0, 12}, 1) == Approx(loss(t, {12, 0, 12}, 7)).epsilon(1e-5));
  CHECK(loss(t, {12, 0, 1}) != loss(t, {12, 0, 12}));
  // Segments with a memory as long as the text are equivalent to one pass.
  CHECK(loss(t, {12, 600, 12}, 1) == Approx(whole).epsilon(1e-5));
  CHECK(loss(t, {7, 600, 7}, 1) == Approx(whole).epsilon(1e-5));
  // The grouping of columns with a memory does not matter, either, even with empty groups.
  const double columns = loss(t, {12, 12, 12}, 7);
  for (const int64_t groups : {2, 3, 7, 8})
    CHECK(loss(t, {12, 12, 12}, 7, groups) == Approx(columns).epsilon(1e-5));
  CHECK(t.model->training());  // the mode is restored
}

TEST_CASE("an evaluation reports the mean context and the loss by position", "[examples]") {
  Training t(tiny("xl", 12));
  const std::vector<int64_t> tokens = t.tokenizer->encode(text().substr(0, 25));  // 24 are scored
  const auto run = [&](nn::EvaluationWindows rule, bool same = false) {
    return evaluate(*t.model, tokens, {.rule = rule, .batch = 1, .same_length = same});
  };
  CHECK(run({12, 0, 12}).context == Approx(6.5));
  CHECK(run({12, 0, 1}).context == Approx((78 + 12 * 12) / 24.0));
  CHECK(run({12, 8, 12}).context == Approx((78 + 78 + 12 * 8) / 24.0));
  CHECK(run({12, 8, 12}, true).context == Approx((1 + 2 + 3 + 4 + 5 + 6 + 7 + 17 * 8) / 24.0));
  const Evaluation e = run({12, 0, 12});
  REQUIRE(e.at.size() == 12);
  double sum = 0;
  for (const nn::LossSum& at : e.at) {
    CHECK(at.tokens == 2);
    sum += at.loss;
  }
  CHECK(sum == Approx(e.all.loss));
  CHECK(e.all.tokens == 24);
}

TEST_CASE("a language model generates the same text for the same seed, with and without memory",
          "[examples]") {
  for (const std::string position : {"xl", "rope"}) {
    Training t(tiny(position, 60));
    for (int i = 0; i < 20; ++i) t.train_step(0);
    const std::vector<int64_t> prompt{1, 2, 3};
    WritingOptions o{.tokens = 30, .context = 60, .temperature = 0};
    const std::vector<int64_t> with = write_tokens(*t.model, prompt, o);
    CHECK(with.size() == 30);
    nn::LanguageModel::Options options = t.model->options;
    options.memory.length = 0;  // processes the whole context again for each token
    nn::LanguageModel other(options);
    nn::copy_state(*t.model, other);
    CHECK(write_tokens(other, prompt, o) == with);
    o.temperature = 1;
    const std::vector<int64_t> drawn = write_tokens(*t.model, prompt, o);
    CHECK(write_tokens(*t.model, prompt, o) == drawn);
    o.seed = 2;
    CHECK(write_tokens(*t.model, prompt, o) != drawn);
  }
}

TEST_CASE("an evaluation of a language model frees the memory it allocates", "[examples]") {
  Training t(tiny("xl", 12));
  for (int i = 0; i < 3; ++i) t.train_step(0);
  const int64_t live = memory_stats().live;
  loss(t, {12, 12, 12});
  CHECK(memory_stats().live <= live);
}

TEST_CASE("least_memory() is below the memory that training a language model uses", "[examples]") {
  LmSettings s = tiny("xl", 40);
  s.length = 40, s.d_model = 64, s.d_hidden = 256, s.batch = 8;
  check_least_memory(
      [&] { return std::make_unique<Training>(s); },
      [](const Training& t) { return t.settings.least_memory(t.tokenizer->size()); });
}
