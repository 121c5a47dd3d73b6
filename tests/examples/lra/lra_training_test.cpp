// Settings, data, training and evaluation of the tasks of the Long Range Arena.

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "autograd/tape.h"
#include "examples/common/error.h"
#include "examples/common/settings.h"
#include "examples/lra/image.h"
#include "examples/lra/lra_program.h"
#include "nn/init.h"
#include "tests/examples/training_checks.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

namespace {

using namespace stretto;                     // NOLINT
using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT

LraSettings tiny() {
  LraSettings s = with_tiny_model(lra_settings("listops", true));
  s.expressions = 200;
  s.held_out_expressions = 50;
  s.max_depth = 2;
  s.max_args = 4;
  s.min_expression = 2;
  s.max_expression = 8;
  s.max_length = 8;
  s.batch = 8;
  s.steps = 100;
  return s;
}

struct Training : LraProgram {
  Training(const LraSettings& s, const LabeledSequences& train) {
    settings = s;
    start(train);
  }
  explicit Training(const LraSettings& s) : Training(s, read_lra_data(s, {}).train) {}
};

std::string refused(void (*change)(LraSettings&), const std::string& task = "listops") {
  LraSettings s = lra_settings(task);
  change(s);
  return error_of<UsageError>([&] { s.check(); });
}

}  // namespace

TEST_CASE("the small settings are small, and settings convert to metadata and back", "[examples]") {
  CHECK(lra_settings("listops").max_grad_norm == std::numeric_limits<double>::infinity());
  for (const std::string& task : lra_tasks()) {
    const LraSettings small = lra_settings(task, true);
    small.check();
    CHECK(nn::count_parameters<nn::SequenceClassifier>(small.model()) < 150'000);
    CHECK(settings_from_metadata<LraSettings>(settings_to_metadata(lra_settings(task)), "f",
                                              "lra") == lra_settings(task));
  }
}

TEST_CASE("learning rates agree with the published schedules", "[examples]") {
  const auto rate = [](const char* task, int64_t step) { return lra_settings(task).rate(step, 0); };
  CHECK(rate("listops", 0) == 0);
  CHECK(rate("listops", 500) == Approx(0.0125 / 2 / std::sqrt(1000.0)).epsilon(1e-14));
  CHECK(rate("listops", 1000) == Approx(3.95e-4).epsilon(2e-3));
  CHECK(rate("listops", 4000) == Approx(0.0125 / std::sqrt(4000.0)).epsilon(1e-14));
  CHECK(rate("text", 8000) == Approx(1.40e-4).epsilon(2e-3));
  CHECK(rate("retrieval", 3000) == Approx(9.13e-5).epsilon(2e-3));
  CHECK(rate("image", 0) == 0);
  CHECK(rate("image", 234) == Approx(0.000125).epsilon(1e-14));
  CHECK(rate("image", 468) == 0.00025);
  CHECK(rate("image", 468 + 17'500) == Approx(0.000125).epsilon(1e-12));
  CHECK(rate("image", 468 + 34'999) < 1e-9);
  CHECK(rate("image", 468 + 35'000) == 0.00025);
  CHECK(rate("image", 70'468) == 0.00025);
}

TEST_CASE("every attention learns ListOps with every positional encoding", "[examples]") {
  int64_t count = 0;
  for (const std::string& attention : nn::kernel_names())
    for (const std::string& position : nn::position_names()) {
      INFO(attention << ", " << position);
      LraSettings s = tiny();
      s.attention = attention;
      s.position = position;
      if (!nn::refusal(position, attention, s.positions(), s.layer()).empty()) continue;
      s.check();
      const LraData data = read_lra_data(s, {});
      Training t(s, data.train);
      const double before = evaluate(*t.model, data.train, s).loss;
      while (t.step() < 60) t.train_step(0);
      CHECK(evaluate(*t.model, data.train, s).loss < 0.9 * before);
      ++count;
    }
  CHECK(count > 70);
}

TEST_CASE("every task supports every attention", "[examples]") {
  for (const std::string& task : lra_tasks())
    for (const std::string& attention : nn::kernel_names())
      for (const bool small : {false, true}) {
        INFO(task << ", " << attention);
        LraSettings s = lra_settings(task, small), plain = s;
        s.attention = attention;
        s.attention_dropout = 0;
        s.check();
        const int64_t more = nn::count_parameters<nn::SequenceClassifier>(s.model()) -
                             nn::count_parameters<nn::SequenceClassifier>(plain.model());
        const bool gated = attention == "retention" || attention == "gla" || attention == "kda" ||
                           attention.find("delta") != std::string::npos;
        CHECK((gated ? more > 0 : more == 0));
      }
  // One training step each on pairs of texts and on pixels.
  for (const std::string& attention : nn::kernel_names())
    for (const bool attended : {false, true}) {
      LraSettings s = tiny();
      s.attention = attention;
      s.attend_to_padding = attended;
      s.task = "retrieval";
      LabeledSequences pairs;
      for (const std::vector<uint16_t>& ids : {std::vector<uint16_t>{1, 2, 3}, {4}}) {
        pairs.sequences.add(ids);
        pairs.others.add({5, 6});
        pairs.labels.push_back(int32_t(ids.size() > 1));
      }
      Training retrieval(s, pairs);
      CHECK(std::isfinite(retrieval.train_step(0).loss));
      s.task = "image";
      s.pooling = "mean";
      s.max_length = image_pixels;
      s.position = "learned";
      LabeledSequences images;
      images.sequences.add(std::vector<uint16_t>(size_t(image_pixels), 255));
      images.labels.push_back(9);
      Training image(s, images);
      CHECK(std::isfinite(image.train_step(0).loss));
    }
}

TEST_CASE("padding affects results only with attend_to_padding", "[examples]") {
  for (const std::string& attention : nn::kernel_names())
    for (const bool attended : {false, true}) {
      INFO(attention);
      LraSettings s = tiny();
      s.attention = attention;
      s.attend_to_padding = attended;
      s.pooling = "mean";
      manual_seed(1);
      nn::SequenceClassifier model(s.model());
      model.to(f64);
      model.eval();
      LabeledSequences data;
      data.sequences.add({3, 4, 5});
      data.labels.push_back(0);
      const auto logits = [&](int64_t length) {
        const SequenceBatch batch = make_batch(data, {0}, length);
        return model(nn::TokenBatch(batch.tokens, batch.padding));
      };
      const Tensor three = logits(3);
      if (attended)
        CHECK(stretto::testing::worst_error(logits(8), three) > 1e-4);
      else
        CHECK(stretto::testing::worst_error(logits(8), three) < 1e-13);
    }
}

TEST_CASE("a performer's projection is redrawn every `redraw` steps", "[examples]") {
  for (const int64_t redraw : {0, 1, 3}) {
    LraSettings s = tiny();
    s.attention = "performer";
    s.redraw = redraw;
    Training t(s);
    const auto projection = [&] { return t.model->named_buffers()[0].tensor.clone(); };
    CHECK_THAT(t.model->named_buffers()[0].name, Containing("feature_map.projection"));
    CHECK(projection().shape() == Shape{256, 8});
    std::vector<Tensor> seen;
    for (int i = 0; i < 6; ++i) {
      t.train_step(0);
      seen.push_back(projection());
      if (i > 0)
        CHECK(stretto::testing::same_bits(seen[size_t(i)], seen[size_t(i - 1)]) ==
              (redraw == 0 || i % redraw != 0));
    }
  }
}

TEST_CASE("a resumed classifier training is bit-identical", "[examples]") {
  LraSettings s = tiny();
  s.steps = GENERATE(60, 0);  // 0: limited by time
  s.attend_to_padding = GENERATE(false, true);
  s.attention = GENERATE("softmax", "performer");
  s.position = GENERATE("sinusoid", "sine", "conv");
  // An epoch has 25 steps; the resumed part begins in the first epoch and ends in the third.
  check_resumes([&] { return std::make_unique<Training>(s); }, 8, 44,
                [&](Training& t) { evaluate(*t.model, read_lra_data(s, {}).valid, s); });
}

TEST_CASE("checkpoints of a classifier of other examples are rejected", "[examples]") {
  const TempDir folder;
  LraSettings s = tiny();
  Training(s).save(folder.file("a"));
  s.seed = 2;
  Training stranger(s);
  CHECK(error_of<UsageError>([&] { stranger.load(folder.file("a")); }) ==
        folder.file("a") +
            ": was trained on other examples than those of --data (or of --seed without it)");
}

TEST_CASE("classifier training is bit-identical with one and two threads", "[examples]") {
  LraSettings s = tiny();
  s.attention = GENERATE("softmax", "performer");
  s.position = GENERATE("sinusoid", "conv");
  s.d_model = 64, s.d_hidden = 300, s.batch = 32, s.max_length = 40;
  s.attend_to_padding = true;
  check_any_threads([&] { return std::make_unique<Training>(s); });
}

TEST_CASE("scores do not depend on how examples are batched", "[examples]") {
  LraSettings s = tiny();
  s.attend_to_padding = GENERATE(false, true);
  s.attention = GENERATE("softmax", "performer", "linear-relu", "linear-elu");
  const LraData data = read_lra_data(s, {});
  Training t(s, data.train);
  for (int i = 0; i < 20; ++i) t.train_step(0);
  const LraScore eight = evaluate(*t.model, data.valid, s);
  CHECK(eight.accuracy.total == 50);
  CHECK(evaluate(*t.model, data.valid, s, 7).accuracy.total == 7);
  CHECK(evaluate(*t.model, data.valid, s, 70).accuracy.total == 50);
  s.batch = 50;
  const LraScore all = evaluate(*t.model, data.valid, s);
  CHECK(all.loss == Approx(eight.loss).epsilon(1e-5));  // other shapes round differently
  CHECK(all.accuracy.correct == eight.accuracy.correct);
  // One example at a time gives the same answers.
  int64_t correct = 0;
  for (int64_t i = 0; i < 50; ++i)
    correct += evaluate(*t.model, data.valid.part(i, 1), s).accuracy.correct;
  CHECK(correct == all.accuracy.correct);
}

TEST_CASE("generated ListOps is split into three disjoint parts", "[examples]") {
  const LraSettings s = tiny();
  const LraData data = read_lra_data(s, {});
  CHECK(data.train.size() == 200);
  CHECK(data.valid.size() == 50);
  CHECK(data.test.size() == 50);
  const LabeledSequences all = listops_sequences(data.generated);
  CHECK(data.generated.size() == 300);
  CHECK(all.part(200, 50).fingerprint() == data.valid.fingerprint());
  CHECK(all.part(250, 50).fingerprint() == data.test.fingerprint());
}

TEST_CASE("tasks read their files", "[examples]") {
  const TempDir folder;
  const std::string path = folder.file("data"), other = folder.file("other");
  const auto with = [](LraSettings s, int64_t max_length) {
    s.max_length = max_length;
    return s;
  };
  LraSettings s = tiny();
  const std::vector<ListOpsExpression> e = generate_listops(3, 20, s.listops()).expressions;
  write_listops(path, e);
  write_listops(other, {{7}});
  const LraData held = read_lra_data(s, {.data = path});
  CHECK(held.train.size() == 18);
  CHECK(held.valid.size() == 2);
  CHECK(held.test.size() == 0);
  const LraData three = read_lra_data(s, {.data = path, .validation = other, .test = path});
  CHECK(three.train.size() == 20);
  CHECK(three.valid.size() == 1);
  CHECK(three.test.size() == 20);
  const auto error_for = [](const LraSettings& settings, const LraFiles& files) {
    return error_of<UsageError>([&] { read_lra_data(settings, files); });
  };
  CHECK_THAT(error_for(with(s, 3), {.data = path}),
             Containing(path + ": an expression has 6 tokens, more than --max-length 3"));
  CHECK(error_for(s, {.data = other}) == other + ": 1 example is too few to hold out 0.1 of");
  CHECK(error_for(with(s, 6), {}) == "--max-expression 8: --max-length 6 is too short for it");
  CHECK(error_for(s, {.test = path}) == "--test: needs --data FILE");
  CHECK(error_for(lra_settings("image"), {}) == "--task image: needs --data FILE");

  std::string reviews, pairs;
  for (int i = 0; i < 20; ++i) {
    reviews += "1\t9\tname\tsome words\n";
    pairs += "0\tA\tB\tsome words\tmore\n";
  }
  write_file(path, reviews);
  CHECK(read_lra_data(with(lra_settings("text"), 4), {.data = path}).train.sequences.longest() ==
        4);
  write_file(path, pairs);
  LraSettings r = tiny();
  r.task = "retrieval";
  const LraData texts = read_lra_data(r, {.data = path});
  CHECK(texts.valid.others.longest() == 4);
  Training t(r, texts.train);
  for (int i = 0; i < 30; ++i) t.train_step(0);
  CHECK(evaluate(*t.model, texts.valid, r).loss < 0.1);  // all examples have the same label
  CHECK(t.trainer().options.tokens_per_step == 8 * (8 + 4));
  CHECK(evaluate(*t.model, texts.valid, r).accuracy.total == 2);
}

TEST_CASE("held-out examples have every class, even if the file is sorted", "[examples]") {
  const TempDir folder;
  const std::string path = folder.file("data");
  LraSettings s = lra_settings("text");
  s.max_length = 100;
  // As in the film reviews: all negative examples, then all positive ones.
  for (const int n_negative : {100, 150, 195}) {
    std::string sorted;
    for (int i = 0; i < 200; ++i)
      sorted +=
          std::string(i < n_negative ? "0" : "1") + "\t9\tname\ttext " + std::to_string(i) + "\n";
    write_file(path, sorted);
    const LraData data = read_lra_data(s, {.data = path});
    CHECK(data.train.size() == 180);
    CHECK(data.valid.size() == 20);
    const auto positive = [](const LabeledSequences& part) {
      return std::count(part.labels.begin(), part.labels.end(), 1);
    };
    CHECK(std::abs(double(positive(data.valid)) - 0.1 * (200 - n_negative)) < 1);
    CHECK(positive(data.valid) + positive(data.train) == 200 - n_negative);

    // The same rows every time, others with another seed; no example is in both parts.
    CHECK(read_lra_data(s, {.data = path}).valid.fingerprint() == data.valid.fingerprint());
    LraSettings other = s;
    other.seed = s.seed + 1;
    CHECK(read_lra_data(other, {.data = path}).valid.fingerprint() != data.valid.fingerprint());
    std::set<std::vector<uint16_t>> seen;
    for (const LabeledSequences* part : {&data.train, &data.valid})
      for (int64_t i = 0; i < part->size(); ++i)
        seen.emplace(part->sequences[i], part->sequences[i] + part->sequences.length(i));
    CHECK(seen.size() == 200);
  }
}

TEST_CASE("a limited number of validation examples is a random sample of all", "[examples]") {
  // A model that always answers 0 has the accuracy of label 0, which the first 200 examples have.
  LraSettings s = tiny();
  nn::SequenceClassifier model(s.model());
  const NoGrad guard;
  for (const Tensor& parameter : model.parameters()) Tensor(parameter).fill_(0);
  LabeledSequences data;
  for (int i = 0; i < 400; ++i) {
    data.sequences.add({uint16_t(1 + i % 10)});
    data.labels.push_back(i < 200 ? 0 : 1);
  }
  CHECK(evaluate(model, data, s).accuracy.correct == 200);
  const Accuracy some = evaluate(model, data, s, 100).accuracy;
  CHECK(some.total == 100);
  // 100 of 400 without replacement: mean 50, standard deviation 4.3.
  CHECK(std::abs(double(some.correct) - 50) < 5 * 4.34);
  CHECK(evaluate(model, data, s, 100).accuracy.correct == some.correct);
  CHECK(evaluate(model, data, s, 400).accuracy.correct == 200);
}

TEST_CASE("least_memory() is below the memory that training a classifier uses", "[examples]") {
  LraSettings s = tiny();
  s.d_model = 64, s.d_hidden = 128, s.attend_to_padding = true, s.max_length = 60;
  const LraData data = read_lra_data(s, {});
  check_least_memory([&] { return std::make_unique<Training>(s, data.train); },
                     [](const Training& t) { return t.settings.least_memory(60); });
}

TEST_CASE("invalid settings of lra are reported", "[examples]") {
  using S = LraSettings;
  CHECK(error_of<UsageError>([] { lra_settings("path"); }) ==
        "--task path: accepted values are image, listops, retrieval, text");
  CHECK_THAT(
      refused([](S& s) { s.position = "here"; }),
      Containing(
          "--position here: accepted values are none, sinusoid, learned, music, music-local, "));
  CHECK(refused([](S& s) { s.pooling = "last"; }) ==
        "--pooling last: accepted values are cls, first and mean");
  CHECK(refused([](S& s) { s.schedule = "none"; }) ==
        "--schedule none: accepted values are cosine, cycles, rsqrt, wsd");
  CHECK(refused([](S& s) { s.max_expression = 501; }) ==
        "--max-expression 501: accepted values are 502 to 60000");
  CHECK(refused([](S& s) { s.max_args = 1; }) == "--max-args 1: accepted values are 2 to 100");
  CHECK(refused([](S& s) { s.strip_brackets = true; }, "text") ==
        "--strip-brackets: only listops has brackets");
  CHECK(refused([](S& s) { s.held_out = 1; }) == "--held-out 1: must be above 0 and below 1");
  CHECK(refused([](S& s) { s.max_length = 1023; }, "image") ==
        "--max-length 1023: an image has 1024 pixels");
  CHECK_THAT(
      refused([](S& s) { s.position = "rope", s.heads = 512; }),
      Containing(
          "--position rope rotates pairs of features, but the head dimension is 1; accepted"));
  CHECK(refused([](S& s) { s.position = "t5", s.attention = "linear-elu"; }) ==
        "--position t5 acts on scores, which linear-elu attention does not have; accepted here: "
        "none, sinusoid, learned, rope, sine, sine-ungated, conv, conv-ungated");
  CHECK(refused([](S& s) { s.attention = "performer"; }, "image") ==
        "--attention-dropout 0.2: --attention performer has no attention weights; must be 0");
  CHECK(refused([](S& s) { s.cycle = 0; }, "image") ==
        "--cycle 0: accepted values are 1 to 9223372036854775807");
  CHECK(refused([](S& s) { s.warmup = 0; }) ==
        "--warmup 0: accepted values are 1 to 9223372036854775807");
  CHECK(refused([](S& s) { s.weight_decay = -1; }) ==
        "--weight-decay -1: must be a number of at least 0");
}
