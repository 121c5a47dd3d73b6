// Packing whole documents into rows, and models on packed rows.
#include "nn/data/packed_batches.h"

#include <map>
#include <set>

#include "autograd/tape.h"
#include "nn/models/language_model.h"
#include "nn/models/registry.h"
#include "nn/models/transformer_xl.h"
#include "nn/positions/rotary.h"
#include "nn/training/evaluate.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/loss.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/error_of.h"

using namespace stretto;
using testing::worst_error;

namespace {

std::vector<std::vector<int64_t>> documents_of(const std::vector<int>& lengths) {
  std::vector<std::vector<int64_t>> all;
  int64_t next = 0;
  for (const int n : lengths) {
    all.emplace_back();
    for (int i = 0; i < n; ++i) all.back().push_back(next++);
  }
  return all;
}

}  // namespace

TEST_CASE("PackedBatches: an epoch has every position of every document once") {
  const auto documents = documents_of({5, 1, 9, 2, 3, 0, 8, 20, 2});
  const nn::PackedBatches packed(documents, 1, 8, 3, 99);
  std::map<int64_t, int64_t> next;  // token → its target
  int64_t used = 0;
  for (int64_t step = 0; step < packed.n_rows(); ++step) {
    const nn::Batch batch = packed(step);
    REQUIRE(batch.inputs.shape() == Shape{1, 8});
    const auto inputs = batch.inputs.to_vector<int64_t>(),
               targets = batch.targets.to_vector<int64_t>(),
               segments = batch.segments.to_vector<int64_t>();
    for (size_t i = 0; i < 8; ++i) {
      if (targets[i] == nn::ignore_index) {
        CHECK(inputs[i] == 99);
        continue;
      }
      CHECK(next.emplace(inputs[i], targets[i]).second);
      CHECK(targets[i] == inputs[i] + 1);
      if (i > 0) CHECK((segments[i] == segments[i - 1]) == (inputs[i] == inputs[i - 1] + 1));
      ++used;
    }
  }
  CHECK(next.size() == 4 + 8 + 1 + 2 + 7 + 19 + 1);
  CHECK(packed.fill() == Approx(double(used) / double(8 * packed.n_rows())));
  CHECK(packed.n_rows() == 6);  // 42 positions need at least 6 rows of 8
  CHECK(nn::PackedBatches(documents_of({6, 4}), 1, 8, 3).n_rows() == 1);  // 5 + 3 fill a row
  CHECK(equal(packed(4).inputs, nn::PackedBatches(documents, 1, 8, 3, 99)(4).inputs));
}

TEST_CASE("PackedBatches: arguments out of range are errors") {
  const auto error = [](const std::vector<int>& lengths, int64_t batch, int64_t length) {
    return testing::error_of<Error>(
        [&] { nn::PackedBatches(documents_of(lengths), batch, length, 1); });
  };
  CHECK(error({3}, 0, 4) == "[PackedBatches] 0 rows of 4 positions; both must be at least 1");
  CHECK(error({3}, 1, 0) == "[PackedBatches] 1 rows of 0 positions; both must be at least 1");
  CHECK(error({1, 0}, 1, 4) == "[PackedBatches] 2 documents, none of which has two tokens");
}

TEST_CASE("packed rows: each document has the logits that it has by itself") {
  const std::vector<std::vector<int64_t>> documents{{1, 2, 3, 4, 5}, {6}, {7, 8, 9}};
  std::vector<int64_t> tokens, segments;
  for (size_t d = 0; d < 3; ++d)
    for (const int64_t token : documents[d])
      tokens.push_back(token), segments.push_back(int64_t(d));
  nn::ForwardContext forward;
  forward.segments = tensor(segments, {1, 9});
  int64_t relative = 0;
  for (const nn::PositionEntry& entry : nn::positions()) {
    if (!entry.traits().causal) continue;
    INFO(entry.name);
    manual_seed(3);
    nn::LanguageModel::Options o{.vocabulary = 12, .n_layers = 2};
    o.layer = {.d_model = 16, .attention = {.n_heads = 2}, .feed_forward = {.d_hidden = 16}};
    nn::add_position(entry.name, {.length = 16}, o.layer, o.input);
    nn::LanguageModel model(o);
    model.to(f64).eval();
    const NoGrad guard;
    Tensor all;
    const std::string error = testing::error_of<Error>([&] {
      all = model(tensor(tokens, {1, 9}), forward);
    });
    if (!all.defined()) {
      CHECK(error.find("packed segments with") != error.npos);
      continue;
    }
    ++relative;
    int64_t begin = 0;
    for (const auto& document : documents) {
      const auto n = int64_t(document.size());
      CHECK(worst_error(all.slice(1, begin, begin + n), model(tensor(document, {1, n}))) < 1e-12);
      begin += n;
    }
  }
  CHECK(relative >= 12);
}

TEST_CASE("packed rows: every kernel that supports segments keeps documents apart") {
  const std::vector<int64_t> tokens{1, 2, 3, 4, 5, 6, 7, 8, 9};
  nn::Batch batch{tensor(tokens, {1, 9}), tensor(tokens, {1, 9})};
  batch.segments = tensor(std::vector<int64_t>{0, 0, 0, 0, 1, 2, 2, 2, 2}, {1, 9});
  nn::ForwardContext forward;
  forward.segments = batch.segments;
  const nn::MakePositionalEncoding all_positions[] = {nn::no_position(), nn::rotary()};
  for (const nn::MakePositionalEncoding& position : all_positions)
    for (const nn::KernelEntry& kernel : nn::kernels()) {
      const bool rotated = &position == &all_positions[1];
      INFO(kernel.name << ", position " << &position - all_positions);
      manual_seed(3);
      nn::LanguageModel::Options o{.vocabulary = 12, .n_layers = 2};
      o.layer = {.d_model = 16,
                 .attention = {.n_heads = 2, .kernel = kernel.make({})},
                 .feed_forward = {.d_hidden = 16}};
      o.layer.attention.position = position;
      nn::LanguageModel model(o);
      model.to(f64).eval();
      const NoGrad guard;
      const nn::KernelTraits traits = kernel.traits();
      if (!traits.segments || (rotated && traits.recurrent && !traits.keeps_rotary_relative)) {
        CHECK_THROWS_WITH(model(batch.inputs, forward), Containing("segments"));
        continue;
      }
      const Tensor all = model(batch.inputs, forward);
      for (const auto& [begin, end] : {std::pair{0, 4}, {4, 5}, {5, 9}})
        CHECK(worst_error(all.slice(1, begin, end), model(batch.inputs.slice(1, begin, end))) <
              1e-12);
      CHECK(nn::mean_loss(model, std::vector<nn::Batch>{batch}) ==
            Approx(cross_entropy(all.flatten(0, 1), batch.targets.flatten()).item()).epsilon(1e-9));
    }
}

TEST_CASE("packed rows: Transformer-XL's loss is that of the documents by themselves") {
  nn::LanguageModel::Options o = nn::transformer_xl(12);
  o.n_layers = 2, o.layer.d_model = 16, o.layer.attention.n_heads = 2;
  o.layer.feed_forward.d_hidden = 16;
  manual_seed(4);
  nn::LanguageModel model(o);
  model.to(f64).eval();
  const NoGrad guard;
  const Tensor tokens = tensor(std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7}, {1, 7});
  nn::ForwardContext forward = nn::begin_forward();
  forward.segments = tensor(std::vector<int64_t>{0, 0, 0, 1, 1, 1, 1}, {1, 7});
  const Tensor all = model.nll(tokens, tokens, forward);
  const auto alone = [&](int64_t begin, int64_t end) {
    const Tensor part = tokens.slice(1, begin, end);
    return model.nll(part, part);
  };
  CHECK(worst_error(all.slice(1, 0, 3), alone(0, 3)) < 1e-12);
  CHECK(worst_error(all.slice(1, 3), alone(3, 7)) < 1e-12);
}

TEST_CASE("packed rows: what cannot be packed is refused by name") {
  nn::LanguageModel::Options o{.vocabulary = 12, .n_layers = 1};
  o.layer = {.d_model = 16,
             .attention = {.n_heads = 2, .position = nn::no_position()},
             .feed_forward = {.d_hidden = 16}};
  const Tensor tokens = zeros({1, 4}, {.dtype = i64});
  nn::ForwardContext forward;
  forward.segments = zeros({1, 4}, {.dtype = i64});
  const auto error = [&](const nn::LanguageModel::Options& options) {
    const nn::LanguageModel model(options);
    return testing::error_of<Error>([&] { model(tokens, forward); });
  };
  CHECK(error(o) == "(nothing thrown)");
  o.block = 2;
  CHECK(error(o) == "[MultiHeadAttention] packed segments with blocks; use one of them");
  o.block = 0;
  forward.left_padding = {1};
  CHECK(error(o) == "[MultiHeadAttention] packed segments with padding; use one of them");
  forward.left_padding.clear();
  forward.segments = zeros({1, 3}, {.dtype = i64});
  CHECK(error(o) == "[attention] segments i64 [1, 3]; must be i64 or i32 [1, 4]");
  o.input.sinusoid = nn::Sinusoid::interleaved;
  CHECK(error(o) == "[AbsolutePosition] segments i64 [1, 3] for x f32 [1, 4, 16]; must be [1, 4]");
}
