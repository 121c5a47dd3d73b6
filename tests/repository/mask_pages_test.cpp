// The code on docs/attention-masks.md; see pages_test.cpp.
#include <cmath>

#include "stretto.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

using namespace stretto;  // NOLINT
using testing::worst_error;

namespace {

const Tensor q = randn({2, 2, 8, 4}, RandomKey{1, 1}), k = randn({2, 2, 8, 4}, RandomKey{1, 2}),
             v = randn({2, 2, 8, 4}, RandomKey{1, 3});

}  // namespace

TEST_CASE("attention-masks.md: packed documents", "[repository][docs]") {
  nn::LanguageModel model({.vocabulary = 12,
                           .n_layers = 1,
                           .layer = {.d_model = 16,
                                     .attention = {.n_heads = 2, .position = nn::rotary()},
                                     .feed_forward = {.d_hidden = 16}}});
  const std::vector<std::vector<int64_t>> documents{{1, 2, 3, 4}, {5, 6, 7}, {8, 9}, {10, 11, 1}};
  const nn::PackedBatches packed(documents, 2, 8, 1);  // rows of 8 positions, seed 1
  const nn::Batch batch = packed(0);                   // of step 0
  nn::ForwardContext forward = nn::begin_forward();
  forward.segments = batch.segments;
  const Tensor logits = model(batch.inputs, forward);
  const Tensor loss = cross_entropy(logits, batch.targets, {.ignore_index = nn::ignore_index});
  CHECK(std::isfinite(loss.item()));
}

TEST_CASE("attention-masks.md: prefix-LM, windows, global tokens", "[repository][docs]") {
  const Tensor is_first = zeros({2, 8}, {.dtype = boolean}), is_question = is_first;
  is_first.slice(1, 0, 2).fill_(1);
  AttentionMask prefix{.causal = true, .prefix_lengths = tensor<int64_t>({3, 5})};  // two sequences
  AttentionMask longformer{.window = 4, .window_after = 4, .global_tokens = is_question};
  AttentionMask streaming{.causal = true, .window = 4, .global_tokens = is_first};  // StreamingLLM
  const Tensor y = attention(q, k, v, {.mask = prefix}) + attention(q, k, v, {.mask = longformer}) +
                   attention(q, k, v, {.mask = streaming});
  CHECK(y.shape() == v.shape());
}

TEST_CASE("attention-masks.md: a prefix-LM", "[repository][docs]") {
  nn::LanguageModel model(
      {.vocabulary = 12,
       .n_layers = 1,
       .layer = {.d_model = 16,
                 .attention = {.n_heads = 2, .sinks = true, .position = nn::rotary()},
                 .feed_forward = {.d_hidden = 16}}});
  const Tensor tokens = ones({2, 8}, {.dtype = i64});
  nn::ForwardContext forward = nn::begin_forward();
  forward.prefix_lengths = tensor<int64_t>({3, 5});  // two sequences
  const Tensor logits = model(tokens, forward);
  CHECK(logits.shape() == Shape{2, 8, 12});
}

TEST_CASE("attention-masks.md: soft cap and sinks", "[repository][docs]") {
  const Tensor sinks = zeros({2}).set_requires_grad();
  AttentionOptions options{.mask = {.causal = true}, .soft_cap = 50};  // Gemma 2
  options.sinks = sinks;  // gpt-oss: one score per head
  const Tensor y = attention(q, k, v, options);
  sum(y).backward();
  CHECK(sinks.grad().shape() == Shape{2});
}

TEST_CASE("attention-masks.md: forget gates", "[repository][docs]") {
  const nn::Linear gates({8, 2});
  const Tensor x = randn({2, 8, 8}, RandomKey{1, 4});
  const Tensor log_gates = -softplus(-gates(x)).transpose(1, 2);   // log f [B, H, N]
  const Tensor bias = (cumsum(log_gates, 2) * -1.0).unsqueeze(2);  // [B, H, 1, N]
  const Tensor y = attention(q, k, v, {.mask = {.causal = true}, .bias = bias});
  // With all pairs in memory: the product of the gates after key j, up to query i.
  const Tensor all = cumsum(log_gates, 2);
  const Tensor pairs = all.unsqueeze(3) - all.unsqueeze(2);
  CHECK(worst_error(y, attention(q, k, v, {.mask = {.causal = true}, .bias = pairs})) < 1e-5);
}
