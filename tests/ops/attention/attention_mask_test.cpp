// The masks of attention that are more than causal, window and block: what they hide, what they cost,
// and what attention refuses.
#include "autograd/tape.h"
#include "core/parallel.h"
#include "core/storage.h"
#include "ops/attention/attention.h"
#include "ops/attention/block_mask.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "tests/ops/attention/attention_check.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/error_of.h"
#include "tests/support/gpu.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using testing::AttentionSetup;
using testing::fixed_noise;
using testing::worst_error;

namespace {

// The mask of batch entry 0 and head 0 as text, one group of characters per query.
std::string text(int64_t m, int64_t n, const AttentionMask& mask) {
  const Tensor all = attention_mask(m, n, mask).to(cpu);
  const Tensor one = all.dim() == 2 ? all : all.expand({1, 1, m, n})[0][0];
  std::string rows;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) rows += one[i][j].item() != 0 ? 'x' : '.';
    rows += i + 1 < m ? "/" : "";
  }
  return rows;
}

Tensor ids(std::vector<int64_t> x) {
  const auto n = int64_t(x.size());
  return tensor(x, {1, n});
}

Tensor marks(std::vector<int64_t> x) { return ids(std::move(x)).to(boolean); }

}  // namespace

TEST_CASE("attention_mask: windows after the query, segments, prefixes, global tokens") {
  CHECK(text(4, 4, {.window_after = 2}) == "..xx/...x/..../....");
  CHECK(text(4, 4, {.window = 1, .window_after = 2}) == "..xx/x..x/xx../xxx.");
  CHECK(text(2, 4, {.window = 2, .window_after = 1}) == "x..x/xx..");
  CHECK(text(4, 4, {.segments = ids({5, 5, 2, 2})}) == "..xx/..xx/xx../xx..");
  CHECK(text(4, 4, {.causal = true, .segments = ids({1, 2, 1, 2})}) == ".xxx/x.xx/.x.x/x.x.");
  CHECK(text(1, 3, {.causal = true, .segments = ids({0, 0, 1})}) == "xx.");
  const Tensor two = tensor(std::vector<int64_t>{2}, {1});
  CHECK(text(4, 4, {.causal = true, .prefix_lengths = two}) == "..xx/..xx/...x/....");
  CHECK(text(4, 4, {.causal = true, .window = 2, .window_after = 2, .prefix_lengths = two}) ==
        "..xx/..xx/x..x/xx..");
  CHECK(text(4, 4, {.causal = true, .window = 1, .global_tokens = marks({1, 0, 0, 0})}) ==
        ".xxx/..xx/.x.x/.xx.");
  CHECK(text(4, 4, {.window = 1, .window_after = 1, .global_tokens = marks({0, 0, 1, 0})}) ==
        ".x.x/x..x/..../xx..");
  CHECK(text(2, 2, {.causal = true, .hidden = marks({1, 0}).unsqueeze(0)}) == "xx/x.");
}

TEST_CASE("attention: the largest windows, blocks and prefixes hide nothing") {
  const Tensor q = fixed_noise({1, 1, 4, 8}, 1, f64), k = fixed_noise({1, 1, 5, 8}, 2, f64);
  const Tensor none = zeros({5}, {.dtype = boolean}), global = marks({1, 0, 0, 1, 0});
  for (const int64_t most : {INT64_MAX, INT64_MAX - 1, int64_t{1} << 62, int64_t{1} << 31}) {
    const Tensor prefix = tensor(std::vector<int64_t>{most}, {1});
    for (const auto& [mask, causal] :
         {std::pair{AttentionMask{.window = most, .window_after = most}, false},
          {AttentionMask{.window = most, .window_after = most, .hidden = none}, false},
          {AttentionMask{.window = most, .window_after = most, .segments = ids({3, 3, 3, 3, 3})},
           false},
          {AttentionMask{.window = most, .window_after = most, .global_tokens = global}, false},
          {AttentionMask{.causal = true, .window = most}, true},
          {AttentionMask{.causal = true, .window = most, .hidden = none}, true},
          {AttentionMask{.block = most}, true},
          {AttentionMask{.block = most, .hidden = none}, true},
          {AttentionMask{.causal = true, .window_after = most, .prefix_lengths = prefix}, false}})
      for (const Implementation implementation :
           {Implementation::composed, Implementation::fused}) {
        AttentionOptions o{.mask = mask, .implementation = implementation};
        o.relative_keys = {fixed_noise({1, 9, 8}, 3, f64), 4};
        o.relative_bias = {fixed_noise({1, 9}, 4, f64), 4};
        AttentionOptions plain = o;
        plain.mask = {.causal = causal};
        CHECK(worst_error(attention(q, k, k, o), attention(q, k, k, plain)) < 1e-14);
        const Tensor more = cat({q, q}, 2);  // M > N
        if (!mask.segments.defined() && !mask.global_tokens.defined())
          CHECK(worst_error(attention(more, k, k, o), attention(more, k, k, plain)) < 1e-14);
      }
  }
}

TEST_CASE("attention: packed documents attend as they do alone") {
  const int64_t lengths[] = {1, 70, 3, 130};
  std::vector<int64_t> of;
  for (int64_t d = 0; d < 4; ++d) of.insert(of.end(), size_t(lengths[d]), d);
  const auto n = int64_t(of.size());
  const Tensor q = fixed_noise({1, 2, n, 8}, 1, f64), k = fixed_noise({1, 2, n, 8}, 2, f64),
               v = fixed_noise({1, 2, n, 8}, 3, f64);
  AttentionOptions o{.mask = {.causal = true}};
  o.relative_keys = {fixed_noise({2, 50, 8}, 4, f64), 49, OutOfRange::clip};
  AttentionOptions packed = o;
  packed.mask.segments = ids(of);
  const Tensor all = attention(q, k, v, packed);
  for (int64_t d = 0, begin = 0; d < 4; begin += lengths[d++]) {
    const auto rows = [&](const Tensor& x) { return x.slice(2, begin, begin + lengths[d]); };
    CHECK(worst_error(rows(all), attention(rows(q), rows(k), rows(v), o)) < 1e-14);
  }
}

TEST_CASE("attention: a sink takes its share of the weights") {
  const Tensor q = zeros({1, 2, 1, 4}), v = ones({1, 2, 3, 4});
  AttentionOptions o;
  o.sinks = tensor(std::vector<float>{0, -INFINITY}, {2});
  const Tensor y = attention(q, v, v, o);  // all scores are 0
  CHECK(y[0][0][0][0].item() == Approx(0.75));
  CHECK(y[0][1][0][0].item() == Approx(1.0));
  CHECK(sum(attention_weights(q, v, o)[0][0]).item() == Approx(0.75));
}

TEST_CASE("attention: the lse of a query that sees no key is −∞") {
  if (default_device().is_cuda()) return;
  const Tensor x = fixed_noise({1, 1, 2, 4}, 1);
  AttentionOptions o{.mask = {.causal = true, .key_padding = marks({1, 0})}};
  const Tensor lse = attention_with_lse(x, x, x, o).lse;
  CHECK(lse[0][0][0].item() == -INFINITY);
  CHECK(lse[0][0][1].item() > 0);  // a score of |x|² / 2
}

TEST_CASE("attention: a block of queries needs only the keys that its mask shows") {
  if (default_device().is_cuda()) return;
  const auto ranges = [](const AttentionMask& mask, int64_t i0, int64_t rows, int64_t n = 1000) {
    std::string all;
    for (const KeyRange& r : BlockMask(mask, {1, 1, n, n}).ranges(0, 0, i0, rows))
      all += str(all.empty() ? "" : " ", r.begin, "-", r.end);
    return all;
  };
  std::vector<int64_t> documents, first(1000);
  for (int64_t i = 0; i < 1000; ++i) documents.push_back(i / 100), first[size_t(i)] = i < 4;
  CHECK(ranges({.segments = ids(documents)}, 250, 20) == "200-300");
  CHECK(ranges({.causal = true, .segments = ids(documents)}, 290, 20) == "200-310");
  CHECK(ranges({.causal = true, .window = 50, .global_tokens = marks(first)}, 640, 64) ==
        "0-64 576-704");
  // Key 575 is the only one of its block that a query sees.
  CHECK(ranges({.causal = true, .window = 66, .global_tokens = marks(first)}, 640, 64) ==
        "0-64 512-704");
  CHECK(ranges({.window = 50, .window_after = 50, .global_tokens = marks(first)}, 0, 64) ==
        "0-1000");
  CHECK(ranges({.causal = true, .prefix_lengths = tensor(std::vector<int64_t>{300}, {1})}, 0, 64) ==
        "0-300");
  const Tensor hidden = ones({1000, 1000}, {.dtype = boolean});
  hidden.slice(1, 70, 71).fill_(0);
  hidden.slice(1, 500, 501).fill_(0);
  CHECK(ranges({.hidden = hidden}, 0, 64) == "64-128 448-512");
  CHECK(ranges({.hidden = ones({1}, {.dtype = boolean})}, 0, 64) == "0-0");
}

TEST_CASE("attention memory: masks by tensors of B × N elements need no M × N scores", "[large]") {
  if (default_device().is_cuda()) return;
  const int threads = num_threads();
  set_num_threads(1);
  const auto peak = [](int64_t n, auto add) {
    testing::AttentionCase in = testing::make_inputs({.batch = 1, .queries = n, .d = 16}, f32);
    for (const Tensor& x : in.leaves()) Tensor(x).set_requires_grad();
    add(in.options, n);
    const int64_t before = testing::live_bytes();
    reset_peak_memory();
    const Tensor y = in(Implementation::fused);
    y.backward(ones(y.shape()));
    return double(memory_stats().peak - before);
  };
  using Add = void (*)(AttentionOptions&, int64_t);
  const Add masks[] = {
      [](AttentionOptions& o, int64_t n) { o.mask.segments = arange(n).unsqueeze(0); },
      [](AttentionOptions& o, int64_t n) {
        o.mask = {.window = 9, .window_after = 9, .global_tokens = ones({1, n}).to(boolean)};
      },
      [](AttentionOptions& o, int64_t n) {
        o.mask = {.causal = true, .prefix_lengths = full({1}, double(n / 2), {.dtype = i64})};
      },
      [](AttentionOptions& o, int64_t) { o.sinks = zeros({2}), o.soft_cap = 1; }};
  for (const Add add : masks) {
    CHECK(peak(4096, add) / peak(2048, add) < 2.1);
    CHECK(peak(4096, add) < 0.2 * 4 * 2 * 4096 * 4096);
  }
  set_num_threads(threads);
}

TEST_CASE("attention: masks that do not fit are refused by name") {
  const Tensor q = zeros({2, 4, 3, 8}), k = zeros({2, 2, 5, 8}), long_q = zeros({2, 4, 9, 8});
  const auto error = [&](AttentionMask mask, const Tensor& queries) {
    return testing::error_of<Error>([&] { attention(queries, k, k, {.mask = std::move(mask)}); });
  };
  const auto of = [](const Shape& shape, DType type) { return zeros(shape, {.dtype = type}); };
  CHECK(error({.window_after = -1}, q) ==
        "[attention] window 0, window_after -1, block 0; must not be negative");
  CHECK(error({.segments = of({2, 3}, i64)}, q) ==
        "[attention] segments i64 [2, 3]; must be i64 or i32 [2, 5]");
  CHECK(error({.segments = of({2, 5}, f32)}, q) ==
        "[attention] segments f32 [2, 5]; must be i64 or i32 [2, 5]");
  CHECK(error({.segments = of({2, 5}, i64)}, long_q) ==
        "[attention] 9 queries and 5 keys with segments or global_tokens; accepted: M ≤ N");
  CHECK(error({.causal = true, .prefix_lengths = of({1}, i64)}, q) ==
        "[attention] prefix_lengths i64 [1]; must be i64 or i32 [2]");
  CHECK(error({.prefix_lengths = of({2}, i64)}, q) ==
        "[attention] prefix_lengths without causal, which they change; set causal");
  CHECK(error({.window = 2, .global_tokens = of({2, 5}, i64)}, q) ==
        "[attention] global_tokens i64 [2, 5]; must be bool or u8 [2, 5]");
  CHECK(error({.global_tokens = of({2, 5}, boolean)}, q) ==
        "[attention] global_tokens without window or window_after, which they change");
  CHECK(
      error({.hidden = of({2, 5}, boolean)}, q) ==
      "[attention] shapes [2, 5] and [2, 4, 3, 5] do not broadcast: sizes 3 and 2 at dimension 2; "
      "each pair of sizes, aligned at the right, must be equal or contain a 1");
  CHECK(error({.hidden = of({3, 5}, f32)}, q) ==
        "[attention] hidden f32 [3, 5]; must be bool or u8 and broadcast to [2, 4, 3, 5]");
  CHECK(error({.block = 2, .window_after = 2}, q) ==
        "[attention] block and window_after are both set; choose one");
  CHECK(error({.causal = true, .block = 2, .prefix_lengths = of({2}, i64)}, q) ==
        "[attention] block and prefix_lengths are both set; choose one");
  AttentionOptions o;
  o.sinks = zeros({3});
  CHECK(testing::error_of<Error>([&] { attention(q, k, k, o); }) ==
        "[attention] sinks f32 [3]; must be [4], one score per head, or [2, 4, 3]");
  o.sinks = zeros({4});
  CHECK(testing::error_of<Error>([&] { attention_with_lse(q, k, k, o); }) ==
        "[attention_with_lse] q f32 [2, 4, 3, 8]; accepted: f32 and f64 on the CPU, fused, without "
        "sinks");
}
