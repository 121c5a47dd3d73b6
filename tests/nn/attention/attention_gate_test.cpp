// The gate of attention's output.
#include "nn/attention/attention.h"
#include "nn/attention/gated_linear_attention.h"
#include "nn/positions/rotary.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/reference/attention.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/module_gradcheck.h"

using namespace stretto;
using nn::AttentionGate;
using nn::MultiHeadAttention;
using testing::fixed_noise;
using testing::worst_error;

namespace {

MultiHeadAttention::Options options(AttentionGate gate) {
  return {.d_model = 8, .n_heads = 4, .n_kv_heads = 2, .d_value = 3, .gate = gate};
}

}  // namespace

TEST_CASE("MultiHeadAttention: a gate multiplies each head, or each element, of the output") {
  for (const AttentionGate gate : {AttentionGate::per_head, AttentionGate::per_element}) {
    const bool per_head = gate == AttentionGate::per_head;
    MultiHeadAttention layer(options(gate));
    layer.to(f64);
    REQUIRE(layer.gate);
    CHECK(layer.gate->weight.shape() == Shape{per_head ? 4 : 12, 8});
    CHECK(layer.gate->bias.defined());
    const Tensor x = fixed_noise({2, 5, 8}, 1);
    const nn::AttentionInputs inputs = layer.project(x, x, {.causal = true});
    const Tensor heads =
        reference::attention(inputs.q, inputs.k, inputs.v, {.mask = {.causal = true}});
    Tensor factors = sigmoid((*layer.gate)(x));
    if (per_head) factors = factors.unsqueeze(-1).expand({2, 5, 4, 3}).reshape({2, 5, 12});
    const Tensor want = layer.out(heads.transpose(1, 2).flatten(2) * factors);
    CHECK(worst_error(layer(x, {.causal = true}), want) < 1e-12);
    CHECK(layer(zeros({0, 5, 8}, {.dtype = f64})).shape() == Shape{0, 5, 8});
    CHECK(layer(zeros({2, 0, 8}, {.dtype = f64})).shape() == Shape{2, 0, 8});
    testing::check_parameter_gradients(layer, [&] {
      const Tensor y = layer(x, {.causal = true});
      return sum(y * y);
    });
  }
}

TEST_CASE("MultiHeadAttention: a gate with a cache, a memory, padding and a recurrent kernel") {
  for (const AttentionGate gate : {AttentionGate::per_head, AttentionGate::per_element})
    for (const bool recurrent : {false, true}) {
      MultiHeadAttention::Options o = options(gate);
      o.position = nn::rotary({.dims = 2});
      if (recurrent) o.kernel = nn::retention_kernel();
      MultiHeadAttention layer(o);
      layer.to(f64);
      const Tensor x = fixed_noise({2, 9, 8}, 1);
      const Tensor want = layer(x, {.causal = true});
      for (const int64_t padding : {0, 3}) {
        // Both sequences continue in one cache, the second one behind padding.
        const Tensor all = cat({fixed_noise({2, padding, 8}, 5), x}, 1);
        nn::ForwardContext forward;
        forward.left_padding = {padding, padding};
        nn::KeyValueCache cache = layer.make_cache();
        Tensors parts;
        for (int64_t i = 0; i < all.size(1); i += 4)
          parts.push_back(layer(all.slice(1, i, i + 4), {.causal = true}, &cache, forward));
        CHECK(worst_error(cat(parts, 1).slice(1, padding), want) < 1e-12);
      }
      if (recurrent) continue;
      const nn::AttentionInputs last = layer.project(x.slice(1, 6), x, {.causal = true});
      CHECK(worst_error(layer.attend(last), want.slice(1, 6)) < 1e-12);
    }
}

TEST_CASE("MultiHeadAttention: a gate in cross-attention is an error") {
  const MultiHeadAttention layer(options(AttentionGate::per_head));
  const Tensor x = zeros({1, 3, 8});
  CHECK_THROWS_WITH(layer(x, zeros({1, 4, 8}), {}),
                    "[MultiHeadAttention] an output gate in cross-attention; accepted: "
                    "self-attention, whose input the gate projects");
}
