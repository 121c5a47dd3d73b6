// Fused attention on CUDA in cases where rounding errors could accumulate: large scores in f32, and
// nearly equal values in bf16, whose score gradients cancel.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/attention/attention.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/ops/attention/attention_check.h"
#include "tests/support/gpu.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using namespace stretto::testing;

namespace {

double largest(const Tensor& x) {
  double most = 0;
  for (const double y : x.to_vector<double>()) most = std::max(most, std::fabs(y));
  return most;
}

// Rounds all elements to multiples of 1/8.
Tensor eighths(const Tensor& x) {
  if (!x.defined()) return x;
  std::vector<double> all = x.to_vector<double>();
  for (double& y : all) y = std::round(8 * y) / 8;
  return tensor(all, x.shape()).to(x.dtype());
}

// Replaces the elements by values in 0 … −1e4; 181 consecutive ones are at least 55 apart.
Tensor far_apart(const Tensor& x) {
  std::vector<double> all(size_t(x.numel()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = -1e4 * double(i * 37 % 181) / 181;
  return tensor(all, x.shape()).to(x.dtype());
}

// Sets the first element of each row to `most`.
Tensor raised(const Tensor& x, double most) {
  const Tensor y = x.clone();
  y.select(y.dim() - 1, 0).fill_(most);
  return y;
}

AttentionSetup of_size(int64_t d, int64_t queries, int64_t keys = 0) {
  return {.batch = 1, .queries = queries, .keys = keys, .d = d, .scale = 1};
}

// Setups with tables, masks, shared keys and dropout.
std::vector<AttentionSetup> settings(int64_t d) {
  std::vector<AttentionSetup> all(4, of_size(d, 37));
  all[1].keys = 45;
  all[1].causal = true;
  all[1].table = 45;
  all[1].relative_bias = true;
  all[1].padded = 6;
  all[2].causal = true;
  all[2].table = 37;
  all[2].relative_query = true;
  all[2].heads = 4;
  all[2].key_heads = 2;
  all[2].dropout = 0.25;
  all[3].table = 9;
  all[3].bidirectional = true;
  all[3].values = true;
  all[3].bias = "HMN";
  return all;
}

// Checks f32 on the GPU against the composed implementation in f64 on the same inputs.
void check_f32(const AttentionSetup& s, const AttentionCase& in, double bound) {
  const Tensors want = output_and_gradients(moved(in, cpu, f64), Implementation::composed);
  const Tensors got = output_and_gradients(moved(in, gpu, f32), Implementation::fused);
  for (size_t i = 0; i < got.size(); ++i) {
    INFO(describe(s) << ", result " << i);
    CHECK(difference(got[i], want[i]).size < bound);
  }
}

}  // namespace

// Every score is 100 · 100 plus multiples of 1/64, which is exact in f32 in any order of
// summation. So only the weights have rounding errors, as for ordinary scores, where check_fused
// allows 3e-6. In the gradients of q and k, elements of size 100 multiply sums of score gradients
// that cancel to 2⁻²⁴ each: 100 · 2⁻²⁴ · √45, relative to the minimum size 0.4 in difference();
// twice that for the sums.
TEST_CASE("attention precision: f32 is accurate for exact scores around 1e4", "[cuda]") {
  NEEDS_GPU();
  for (const AttentionSetup& s : settings(8)) {
    AttentionCase in = make_inputs(s, f32);
    in.q = raised(eighths(in.q), 100);
    in.k = raised(eighths(in.k), 100);
    AttentionOptions& o = in.options;
    if (o.relative_query.defined()) o.relative_query = raised(eighths(o.relative_query), 0);
    if (o.relative_keys.defined()) o.relative_keys.rows = raised(eighths(o.relative_keys.rows), 0);
    o.relative_bias.rows = eighths(o.relative_bias.rows);
    o.bias = eighths(o.bias);
    check_f32(s, in, 2 * 100 * 0x1p-24 * std::sqrt(45.0) / 0.4);
    // The gradient of v has no factors of 100.
    const Tensors want = output_and_gradients(moved(in, cpu, f64), Implementation::composed);
    const Tensors got = output_and_gradients(moved(in, gpu, f32), Implementation::fused);
    INFO(describe(s));
    CHECK(difference(got[3], want[3]).size < 3e-6);
  }
}

// With biases far apart each query attends to one key with weight 1. The backward pass must also
// compute weight 1, so its scores must be bit-identical to those of the forward pass. In bf16 they
// are not, but the error of the weights is below their rounding, for which check_fused allows 8e-3.
TEST_CASE("attention precision: biases of size 1e4 lose no precision", "[cuda]") {
  NEEDS_GPU();
  for (const bool table : {false, true})
    for (const bool apart : {false, true}) {
      AttentionSetup s = of_size(24, 90);
      s.scale = 0;
      s.table = table ? 90 : 0;
      s.bidirectional = true;
      s.relative_query = apart;
      s.relative_bias = !apart || table;
      if (apart) s.bias = "MN";
      AttentionCase in = make_inputs(s, f32);
      Tensor& large = s.relative_bias ? in.options.relative_bias.rows : in.options.bias;
      large = far_apart(large);
      for (const DType type : {f32, bf16}) {
        const AttentionCase gpu_case = moved(in, gpu, type);
        const Tensors want =
            output_and_gradients(moved(gpu_case, cpu, f64), Implementation::composed);
        const Tensors got = output_and_gradients(gpu_case, Implementation::fused);
        INFO(describe(s) << ", " << name(type));
        const double bound = type == f32 ? 3e-6 : 8e-3;
        CHECK(difference(got[0], want[0]).size < bound);
        CHECK(difference(got[3], want[3]).size < bound);
      }
    }
}

// All values equal c or are within 1/2 of it, so dP and δ are about Σ g · c, and their difference
// is as accurate as δ. The output and the remainder of its rounding have 16 bits together, so the
// error of δ is 2⁻¹⁷ Σ |g·O|, and the same again for f32 sums of weights and products, which tensor
// cores truncate. The error of the gradient of q is scale · |k| times that, and for the gradient of
// k scale · |q| times the sum of its weights. Rounding results and score gradients to bf16 adds 2⁻⁸
// of their size in total.
TEST_CASE("attention precision: bf16 gradients are accurate for nearly equal values", "[cuda]") {
  NEEDS_GPU();
  for (const int64_t d : {8, 64, 72})
    for (AttentionSetup s : settings(d))
      for (const bool equal : {true, false}) {
        if (s.dropout > 0) s.dropout = 0;  // with dropout, nothing cancels
        s.scale = 1 / std::sqrt(double(d));
        AttentionCase in = make_inputs(s, bf16);
        in.q = (in.q + 1.0).to(bf16);
        in.k = (in.k + 1.0).to(bf16);
        in.v = equal ? zeros_like(in.v).fill_(101) : (in.v * 0.5 + 101.0).to(bf16);
        if (in.options.relative_values.defined())
          in.options.relative_values.rows = zeros_like(in.options.relative_values.rows).fill_(1);
        const AttentionCase exact = moved(in, cpu, f64);
        const Tensors want = output_and_gradients(exact, Implementation::composed);
        const Tensors got = output_and_gradients(moved(in, gpu, bf16), Implementation::fused);
        const Tensor g = fixed_noise(want[0].shape(), 9).to(bf16).to(f64);
        const double delta = 0x1p-16 * largest(sum(abs(g * want[0]), {3}, false));
        const Tensor weights = attention_weights(exact.q.detach(), exact.k.detach(), [&] {
          AttentionOptions o = exact.options;
          o.relative_values = {};
          return o;
        }());
        const double heads = double(s.heads) / double(s.key_heads ? s.key_heads : s.heads);
        const double columns = heads * largest(sum(weights, {2}, false));
        INFO(describe(s) << (equal ? ", equal" : ""));
        CHECK(largest(got[1].to(cpu).to(f64) - want[1]) <
              s.scale * 2 * delta + 0x1p-7 * largest(want[1]));
        CHECK(largest(got[2].to(cpu).to(f64) - want[2]) <
              s.scale * 2 * delta * columns + 0x1p-7 * largest(want[2]));
      }
}

// Without gradients only the output is allocated (8 elements per row), nothing for backward.
TEST_CASE("attention precision: nothing is saved without gradients", "[cuda]") {
  NEEDS_GPU();
  const AttentionCase in = moved(make_inputs(of_size(8, 256), bf16), gpu, bf16);
  const auto peak = [&](const Tensor& q) {
    release_cached_memory(gpu);
    const int64_t before = memory_stats(gpu).live;
    reset_peak_memory(gpu);
    const Tensor y = attention(q, in.k.detach(), in.v.detach());
    return memory_stats(gpu).peak - before;
  };
  const int64_t out = 2 * 256 * 8 * 2, lines = 2 * 256 * 4;
  CHECK(peak(in.q.detach()) == out);
  CHECK(peak(in.q) == 2 * out + lines);
}
