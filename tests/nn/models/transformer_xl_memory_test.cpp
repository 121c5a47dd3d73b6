// Segments and memory of Transformer-XL: which rows are stored, seen, and given gradients.
#include "autograd/tape.h"
#include "core/parallel.h"
#include "core/storage.h"
#include "nn/models/generation.h"
#include "ops/reduce.h"
#include "tests/nn/models/transformer_xl.h"
#include "tests/support/catch.h"

using namespace stretto;
using nn::LanguageModel;
using nn::NormPlace;
using reference::Matrix;
using testing::fixed_noise;
using testing::hidden_by_loops;
using testing::in_segments;
using testing::make_xl;
using testing::same_bits;
using testing::some_tokens;
using testing::tiny_xl;
using testing::worst_error;

using Cache = LanguageModel::Cache;
using nn::SameLength;

TEST_CASE("segments with memory equal one long pass") {
  const Tensor tokens = some_tokens(2, 17);
  for (const NormPlace norm : {NormPlace::post, NormPlace::pre})
    for (const int64_t extended : {0, 1, 3, 6, 40})
      for (const int64_t segment : {1, 2, 5, 16, 17}) {
        LanguageModel::Options o = tiny_xl({.length = 17, .extended = extended});
        o.layer.norm = norm;
        const auto model = make_xl(o);
        const Tensor once = model->hidden(tokens);
        REQUIRE(once.shape() == Shape{2, 17, 8});
        INFO("extended " << extended << ", segment " << segment);
        CHECK(worst_error(in_segments(*model, tokens, segment), once) < 1e-10);
      }
}

TEST_CASE("segments may have changing lengths") {
  const auto model = make_xl(tiny_xl({.length = 30, .extended = 2}));
  const Tensor tokens = some_tokens(1, 17);
  Cache memory = model->make_memory();
  Tensors all;
  int64_t at = 0;
  for (const int64_t n : {3, 1, 1, 7, 2, 3}) {
    all.push_back(model->hidden(tokens.slice(1, at, at + n), &memory));
    CHECK(all.back().size(1) == n);
    at += n;
  }
  CHECK(worst_error(cat(all, 1), model->hidden(tokens)) < 1e-10);
}

TEST_CASE("a memory shorter than the history: exactly its rows are seen") {
  // The inputs of the layers, stored by hand, against the model's memory, at every length.
  for (const int64_t length : {1, 2, 5, 6, 9}) {
    const auto model = make_xl(tiny_xl({.length = length}));
    const Tensor tokens = some_tokens(1, 14);
    Cache memory = model->make_memory();
    std::vector<Matrix> kept;
    for (int64_t t = 0; t < 14; t += 4) {
      const Tensor segment = tokens.slice(1, t, t + 4);
      std::vector<Matrix> inputs;
      const Tensor expected = hidden_by_loops(*model, segment, kept, {}, &inputs);
      CHECK(worst_error(model->hidden(segment, &memory), expected) < 1e-11);
      CHECK(memory.length() == std::min(length, t + segment.size(1)));
      REQUIRE(memory.inputs.size() == 3);
      kept.resize(3, Matrix{0, 8});
      for (size_t i = 0; i < 3; ++i) {
        const Tensor all = cat({reference::tensor(kept[i]), reference::tensor(inputs[i])});
        const Tensor last = all.slice(0, std::max<int64_t>(all.size(0) - length, 0));
        CHECK(worst_error(memory.inputs[i][0], last) < 1e-11);
        kept[i] = reference::matrix(last);
      }
    }
  }
}

TEST_CASE("extended context is seen again but not stored") {
  const auto model = make_xl(tiny_xl({.length = 6, .extended = 3}));
  const Tensor tokens = some_tokens(1, 12);
  Cache memory = model->make_memory();
  model->hidden(tokens.slice(1, 0, 4), &memory);
  CHECK(memory.length() == 1);
  CHECK(same_bits(memory.context, tokens.slice(1, 1, 4)));
  // The second segment is computed after one row of memory, on the last 3 tokens and its own.
  std::vector<Matrix> rows;
  for (const Tensor& m : memory.inputs) rows.push_back(reference::matrix(m[0]));
  const Tensor expected = hidden_by_loops(*model, tokens.slice(1, 1, 8), rows);
  const Tensor y = model->hidden(tokens.slice(1, 4, 8), &memory);
  CHECK(worst_error(y, expected.slice(1, 3)) < 1e-11);
  CHECK(memory.length() == 5);
  CHECK(same_bits(memory.context, tokens.slice(1, 5, 8)));
  // Gradients reach the embeddings of the extended context.
  const Tensor only = some_tokens(1, 1, 3);
  model->zero_grad();
  sum(model->hidden(only, &memory)).backward();
  const Tensor g = model->embedding.weight.grad();
  for (const int64_t word : tokens.slice(1, 5, 8).to_vector<int64_t>())
    CHECK(sum(abs(g[word])).item() > 0);
  CHECK(memory.length() == 6);
}

TEST_CASE("nll() updates a memory as hidden() does, and leaves it unchanged when it throws") {
  const auto model = make_xl(tiny_xl({.length = 6, .extended = 2}));
  const Tensor tokens = some_tokens(2, 11), inputs = tokens.slice(1, 0, 10);
  const Tensor targets = tokens.slice(1, 1);
  Cache a = model->make_memory(), b = a;
  for (int64_t t = 0; t < 10; t += 5) {
    const Tensor x = inputs.slice(1, t, t + 5), y = targets.slice(1, t, t + 5);
    const Tensor log_p = (*model)(x, &a);
    CHECK(worst_error(model->nll(x, y, &b), -gather(log_p, 2, y.unsqueeze(2)).squeeze(2)) < 1e-13);
    for (size_t i = 0; i < 3; ++i) CHECK(same_bits(a.inputs[i], b.inputs[i]));
    CHECK(same_bits(a.context, b.context));
  }
  if (default_device().is_cuda()) return;  // it reports a wrong index too late
  const Tensor before = b.inputs[2];
  CHECK_THROWS(model->nll(inputs, targets + 20, &b));
  CHECK_THROWS(model->nll(inputs + 20, targets, &b));
  CHECK(b.inputs[2].same(before));
}

TEST_CASE("a memory of another model is an error, and reorder() permutes its streams") {
  const auto model = make_xl(tiny_xl({.length = 6, .extended = 2}));
  const Tensor tokens = some_tokens(3, 8);
  const Tensor first = tokens.slice(1, 0, 5), next = tokens.slice(1, 5);
  Cache memory = model->make_memory(), other = memory;
  model->hidden(first, &memory);
  const auto twin = nn::clone(*model);
  CHECK_THROWS_WITH(twin->hidden(next, &memory),
                    str("[LanguageModel] the memory was filled by the model with serial number ",
                        model->serial(), ", but this one has ", twin->serial(),
                        "; accepted: a memory that this model has filled, or an empty one"));
  const Tensor rows = tensor<int64_t>({2, 0}).to(tokens.device());
  memory.reorder(rows);
  model->hidden(index_select(first, 0, rows), &other);
  CHECK(worst_error(model->hidden(index_select(next, 0, rows), &memory),
                    model->hidden(index_select(next, 0, rows), &other)) < 1e-13);
  if (tokens.device().is_cpu())  // a GPU reports the index later
    CHECK_THROWS(memory.reorder(tensor<int64_t>({2})));
  CHECK(memory.inputs[0].size(0) == 2);
  Cache empty = model->make_memory();
  CHECK_NOTHROW(empty.reorder(rows));
}

TEST_CASE("generate_batch: a Transformer-XL continues prompts of equal length as one by one") {
  const auto model = make_xl(tiny_xl({.length = 8, .extended = 1}));
  const std::vector<std::vector<int64_t>> prompts{{1, 2, 3}, {3, 0, 2}, {2, 2, 1}, {0, 1, 0}};
  nn::GenerationOptions o{.max_tokens = 6, .end_tokens = {2}, .seed = 1};
  const auto together = nn::generate_batch(*model, prompts, o);
  size_t longest = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    Cache memory = model->make_memory();
    o.seed = nn::prompt_seed(1, int64_t(i));
    const auto alone =
        nn::generate([&](const Tensor& x) { return (*model)(x, &memory); }, prompts[i], o);
    CHECK(together[i] == alone);
    longest = std::max(longest, alone.size());
  }
  CHECK(longest > 2);
  const std::vector<std::vector<int64_t>> unequal{{1}, {1, 2}};
  CHECK_THROWS_WITH(nn::generate_batch(*model, unequal, o),
                    Containing("a memory does not support padding"));
  // A KV cache does.
  o.seed = 1;
  const auto with_cache = nn::generate_batch(*model, unequal, o, {}, 8);
  CHECK(with_cache[0] == nn::generate_batch(*model, {unequal[0]}, o, {}, 8)[0]);
}

TEST_CASE("zero start: rows of zeros are attended to, unlike missing rows") {
  for (const NormPlace norm : {NormPlace::post, NormPlace::pre}) {
    LanguageModel::Options o = tiny_xl({.length = 5});
    o.layer.norm = norm;
    const auto empty_start = make_xl(o);
    o.memory.zero_start = true;
    const auto zero_start = make_xl(o);
    const Tensor tokens = some_tokens(2, 12);
    Cache zero = empty_start->make_memory();
    zero.position = 5;
    zero.inputs.assign(3, zeros({2, 5, 8}, {.dtype = f64}));
    Cache start = zero_start->make_memory();
    const Tensor first = zero_start->hidden(tokens.slice(1, 0, 4), &start);
    CHECK(start.length() == 5);
    CHECK(same_bits(first, empty_start->hidden(tokens.slice(1, 0, 4), &zero)));
    CHECK(same_bits(in_segments(*zero_start, tokens.slice(1, 4), 4, &start),
                    in_segments(*empty_start, tokens.slice(1, 4), 4, &zero)));
    CHECK(worst_error(first, empty_start->hidden(tokens.slice(1, 0, 4))) > 1e-2);
    // Without a memory the option has no effect.
    CHECK(same_bits(zero_start->hidden(tokens), empty_start->hidden(tokens)));
    const Matrix nothing{5, 8};
    CHECK(worst_error(first.slice(0, 0, 1),
                      hidden_by_loops(*zero_start, tokens.slice(0, 0, 1).slice(1, 0, 4),
                                      {nothing, nothing, nothing})) < 1e-11);
  }
}

TEST_CASE("gradients reach the projections of the memory's rows, but not the memory") {
  const auto model = make_xl(tiny_xl({.length = 4}));
  const nn::TransformerLayer& layer = model->layers[0];
  const Tensor x = testing::fixed_leaf({1, 3, 8}, 1), memory = testing::fixed_leaf({1, 4, 8}, 2);
  const AttentionMask causal{.causal = true};
  const nn::DistanceSinusoids sinusoids;
  const Tensor rows = sinusoids(6, 0, 8, {.dtype = f64});

  const Tensor weights = fixed_noise({1, 3, 8}, 3);
  auto gradients = [&](auto&& run) {
    model->zero_grad();
    sum(run() * weights).backward();
    return Tensors{layer.self_attention().k.weight.grad(), layer.self_attention().v.weight.grad()};
  };
  const Tensors got = gradients([&] { return layer(x, memory, causal, {.shared_table = rows}); });
  CHECK_FALSE(memory.grad().defined());
  CHECK(x.grad().defined());
  // The same layer with memory and x as one input: its last rows, and their gradients, with the
  // projections of all rows on the tape.
  const Tensors all = gradients([&] {
    const Tensor joined = cat({memory.detach(), x.detach()}, 1);
    nn::AttentionInputs inputs = layer.self_attention().project(x.detach(), joined, causal);
    inputs.forward.shared_table = rows;
    const Tensor y = layer.norm1(x.detach() + layer.self_attention().attend(inputs));
    return (*layer.norm2)(y + layer.feed_forward()(y));
  });
  for (size_t i = 0; i < 2; ++i) CHECK(worst_error(got[i], all[i]) < 1e-13);
  // Without the projections of the memory on the tape the gradients are different.
  const Tensors without_memory = gradients([&] {
    const Tensor rest = x.detach();
    nn::AttentionInputs inputs = layer.self_attention().project(rest, rest, causal);
    const nn::AttentionInputs old =
        layer.self_attention().project(memory.detach(), memory.detach(), causal);
    inputs.k = cat({old.k.detach(), inputs.k}, 2);
    inputs.v = cat({old.v.detach(), inputs.v}, 2);
    inputs.forward.shared_table = rows;
    const Tensor y = layer.norm1(rest + layer.self_attention().attend(inputs));
    return (*layer.norm2)(y + layer.feed_forward()(y));
  });
  for (size_t i = 0; i < 2; ++i) CHECK(worst_error(got[i], without_memory[i]) > 1e-3);
}

TEST_CASE("a memory is off the tape") {
  const auto model = make_xl(tiny_xl({.length = 4}));
  Cache memory = model->make_memory();
  const Tensor y = model->hidden(some_tokens(1, 3), &memory);
  CHECK(y.requires_grad());
  for (const Tensor& m : memory.inputs) CHECK_FALSE(m.requires_grad());
}

TEST_CASE("same length: the longest memory hides nothing") {
  const Tensor tokens = some_tokens(1, 5);
  const auto hidden = [&](SameLength same) {
    const auto model =
        make_xl(tiny_xl({.length = INT64_MAX, .clamp = INT64_MAX, .same_length = same}));
    return model->hidden(tokens);
  };
  CHECK(worst_error(hidden(SameLength::on), hidden(SameLength::off)) < 1e-14);
}

TEST_CASE("same length: every position sees equally far back, with both definitions") {
  const Tensor tokens = some_tokens(1, 16);
  for (const SameLength same : {SameLength::on, SameLength::original})
    for (const int64_t memory_length : {1, 3, 5, 20})
      for (const int64_t segment : {1, 3, 4}) {
        const auto model = make_xl(tiny_xl({.length = memory_length, .same_length = same}));
        // The authors' mask hides keys j ≤ i − (memory_length − m) once there are more keys than
        // memory_length; the other definition shows one key more.
        const int64_t more = same == SameLength::on ? 1 : 0;
        auto hidden_key = [&](int64_t i, int64_t j, int64_t m) {
          return j <= i - (memory_length + more - m);
        };
        Cache memory = model->make_memory();
        std::vector<Matrix> rows;
        for (int64_t t = 0; t < 16; t += segment) {
          const Tensor part = tokens.slice(1, t, std::min<int64_t>(t + segment, 16));
          const Tensor expected = hidden_by_loops(*model, part, rows, hidden_key);
          CHECK(worst_error(model->hidden(part, &memory), expected) < 1e-11);
          rows.clear();
          for (const Tensor& m : memory.inputs) rows.push_back(reference::matrix(m[0]));
        }
      }
}

TEST_CASE("same length: the result does not depend on the segments if the memory is long enough") {
  // If a position sees fewer earlier positions than the memory has rows, the result does not depend
  // on where segments begin.
  const Tensor tokens = some_tokens(2, 15);
  const auto model = make_xl(tiny_xl({.length = 4, .same_length = SameLength::on}));
  const Tensor once = model->hidden(tokens);
  for (const int64_t segment : {1, 2, 7})
    CHECK(worst_error(in_segments(*model, tokens, segment), once) < 1e-10);
}

TEST_CASE("clamp below, at and above the number of keys, with memory") {
  const Tensor tokens = some_tokens(1, 12);
  for (const int64_t clamp : {1, 4, 7, 8, 9}) {
    const auto model = make_xl(tiny_xl({.length = 5, .clamp = clamp}));
    Cache memory = model->make_memory();
    std::vector<Matrix> rows;
    for (int64_t t = 0; t < 12; t += 4) {
      const Tensor part = tokens.slice(1, t, t + 4);
      const Tensor expected = hidden_by_loops(*model, part, rows);
      CHECK(worst_error(model->hidden(part, &memory), expected) < 1e-11);
      rows.clear();
      for (const Tensor& m : memory.inputs) rows.push_back(reference::matrix(m[0]));
    }
  }
}

TEST_CASE("memories of one model may have different options, which may change") {
  const auto model = make_xl(tiny_xl({.length = 2}));
  const Tensor tokens = some_tokens(1, 15);
  const Tensor once = model->hidden(tokens);
  CHECK(worst_error(in_segments(*model, tokens, 5), once) > 1e-3);
  Cache memory = model->make_memory({.length = 15});
  CHECK(worst_error(in_segments(*model, tokens, 5, &memory), once) < 1e-10);
  // A memory that is now too long is still seen once, then cut.
  memory = model->make_memory({.length = 15});
  in_segments(*model, tokens.slice(1, 0, 10), 5, &memory);
  memory.memory->length = 3;
  CHECK(worst_error(model->hidden(tokens.slice(1, 10), &memory), once.slice(1, 10)) < 1e-10);
  CHECK(memory.length() == 3);
  memory.memory->extended = -1;
  CHECK_THROWS_WITH(model->hidden(tokens, &memory), Containing("length 3, extended -1"));
}

TEST_CASE("a memory that does not fit is an error") {
  const auto model = make_xl(tiny_xl({.length = 4, .extended = 1}));
  Cache memory = model->make_memory();
  model->hidden(some_tokens(2, 3), &memory);
  CHECK_THROWS_WITH(model->hidden(some_tokens(3, 3), &memory),
                    "[LanguageModel] the memory is of 2 streams, tokens i64 [3, 3] of 3; every "
                    "batch of streams needs its own memory");
  auto refused = [&](auto change, const std::string& text) {
    Cache bad = memory;
    change(bad);
    CHECK_THROWS_WITH(model->hidden(some_tokens(2, 3), &bad), Containing(text));
  };
  refused([](Cache& m) { m.inputs.pop_back(); }, "the memory has 2 layers, the model 3");
  refused(
      [](Cache& m) {
        m.inputs[1] = zeros({2, 2, 8});
      },
      "a layer's memory is f32 [2, 2, 8]; must be [B, 2, 8] of f64");
  refused([](Cache& m) { m.inputs[1] = zeros({2, 3, 8}, {.dtype = f64}); }, "f64 [2, 3, 8]");
  refused([](Cache& m) { m.inputs[1] = zeros({2, 2, 7}, {.dtype = f64}); }, "f64 [2, 2, 7]");
  refused([](Cache& m) { m.inputs[2] = {}; }, "a layer's memory is");
  refused(
      [](Cache& m) {
        m.context = zeros({3, 1}, {.dtype = i64});
      },
      "extended context is i64 [3, 1]; must be [2, e]");
}

TEST_CASE("live memory does not grow from segment to segment") {
  // With two threads a peak depends on whether both hold a buffer at the same time.
  const int threads = num_threads();
  set_num_threads(1);
  for (const int64_t extended : {0, 2}) {
    const auto model = make_xl(tiny_xl({.length = 6, .extended = extended}));
    const Tensor tokens = some_tokens(2, 40);
    Cache memory = model->make_memory();
    std::vector<int64_t> live, peak;
    for (int64_t t = 0; t < 40; t += 4) {
      reset_peak_memory();
      const Tensor part = tokens.slice(1, t, t + 4);
      sum(model->nll(part, part, &memory)).backward();
      live.push_back(memory_stats().live);
      peak.push_back(memory_stats().peak);
    }
    for (size_t i = 4; i < live.size(); ++i) {
      CHECK(live[i] == live[3]);
      CHECK(peak[i] == peak[4]);
    }
    // The storage of a memory has exactly its rows.
    for (const Tensor& m : memory.inputs) CHECK(m.storage().bytes == 2 * 6 * 8 * 8);
  }
  set_num_threads(threads);
}

TEST_CASE("generation token by token equals one pass") {
  const auto model = make_xl(tiny_xl({.length = 40}));
  Cache memory = model->make_memory();
  const auto tokens = nn::generate([&](const Tensor& t) { return (*model)(t, &memory); }, {1, 2, 3},
                                   {.max_tokens = 12, .sampling = {.temperature = 0}});
  REQUIRE(tokens.size() == 12);
  std::vector<int64_t> all{1, 2, 3};
  all.insert(all.end(), tokens.begin(), tokens.end());
  const Tensor log_p = (*model)(tensor(all, {1, 15}));
  for (int64_t t = 2; t < 14; ++t)
    CHECK(argmax(log_p[0][t], 0).item() == double(all[size_t(t + 1)]));
}

TEST_CASE("a memory has the model's dtype") {
  const auto model = make_xl(tiny_xl({.length = 5, .extended = 1}));
  const Tensor tokens = some_tokens(2, 12);
  Cache memory = model->make_memory();
  in_segments(*model, tokens.slice(1, 0, 8), 4, &memory);
  const Tensor exact = in_segments(*model, tokens, 4);
  model->to(f32);
  CHECK_THROWS_WITH(model->hidden(tokens, &memory),
                    Containing(str("of f32 on ", default_device(), " like the model")));
  Cache single = model->make_memory();
  const Tensor y = in_segments(*model, tokens, 4, &single);
  CHECK(y.dtype() == f32);
  CHECK(single.inputs[0].dtype() == f32);
  CHECK(worst_error(y, exact) < 1e-4);
  model->to(bf16);
  Cache half = model->make_memory();
  CHECK(in_segments(*model, tokens, 4, &half).dtype() == bf16);
  CHECK(half.inputs[2].dtype() == bf16);
  CHECK(model->nll(tokens, tokens).dtype() == bf16);
}

TEST_CASE("make_memory() of a model without a memory length is an error") {
  const auto model = make_xl(tiny_xl({}));
  const Tensor tokens = some_tokens(1, 3);
  CHECK_THROWS_WITH(model->make_memory(),
                    "[LanguageModel] a memory of length 0; must be at least 1, or call without a "
                    "memory");
  Cache memory = model->make_memory({.length = 2});
  model->hidden(tokens, &memory);
  CHECK(memory.length() == 2);
  Cache none{.memory = nn::MemoryOptions{}};  // its options without its rows
  for (int i = 0; i < 2; ++i) CHECK(same_bits(model->hidden(tokens, &none), model->hidden(tokens)));
  CHECK(none.length() == 0);
}

TEST_CASE("parallel branches with a memory equal one long pass") {
  for (const nn::Residual residual : {nn::Residual::parallel, nn::Residual::parallel_one_norm}) {
    LanguageModel::Options o = tiny_xl({.length = 17});
    o.layer.norm = nn::NormPlace::pre;
    o.layer.residual = residual;
    o.layer.attention.qk_norm = nn::NormOptions{};
    const auto model = make_xl(o);
    const Tensor tokens = some_tokens(2, 12);
    Cache memory = model->make_memory();
    CHECK(worst_error(in_segments(*model, tokens, 5, &memory), model->hidden(tokens)) < 1e-11);
  }
}
