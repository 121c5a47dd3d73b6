// The memory that attention needs: that of the fused implementation is linear in the length.
#include <algorithm>

#include "autograd/tape.h"
#include "core/gemm/packed.h"
#include "core/parallel.h"
#include "core/storage.h"
#include "ops/attention/attention.h"
#include "ops/create.h"
#include "ops/reduce.h"
#include "tests/ops/attention/attention_setup.h"
#include "tests/support/catch.h"
#include "tests/support/gpu.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // false alarms on options inside options
#endif

using namespace stretto;
using testing::AttentionCase;
using testing::AttentionSetup;
using testing::live_bytes;
using testing::make_inputs;

namespace {

bool on_gpu() { return default_device().is_cuda(); }

// Returns the peak bytes of forward and backward above those in use before, for one sequence.
int64_t peak(const AttentionSetup& s, Implementation implementation, DType dtype = f32) {
  AttentionCase in = make_inputs(s, dtype);
  for (const Tensor& x : in.leaves()) Tensor(x).set_requires_grad();
  const int64_t before = live_bytes();
  reset_peak_memory();
  {
    const Tensor y = in(implementation);
    y.backward(ones(y.shape(), options_of(y)));
  }
  return memory_stats().peak - before;
}

// Returns the bytes that the fused implementation needs on a GPU, forward and backward, for all
// heads. Output, gradients of q, k and v: twice, as results and as gradients of leaves; lse and
// deltas. Gradients of the tables in f32: for each of up to 8 parts of the sequence, their sum, and
// in the dtype; the same for the relative bias. f32 operands (four and the tables): once more as
// three bf16 terms. A dense bias: its gradient in f32, in the dtype and as the leaf's; if queries
// share it, also one for each batch entry and head.
int64_t gpu_bytes_of(const AttentionSetup& s, DType dtype) {
  const int64_t item = item_size(dtype), rows = s.batch * s.heads * s.queries;
  const int64_t tables = s.values ? 2 : 1, reach = s.heads * s.table;
  const int64_t parts = std::min<int64_t>(8, s.batch * ((s.queries + 255) / 256));
  const int64_t results = item * s.d * rows * (2 + 3 + 3) + 4 * 2 * rows;
  const int64_t table = reach * (tables * s.d * (4 * (parts + 2) + 2 * item) + 4 * (parts + 4));
  const int64_t cut = dtype == f32 ? 3 * 2 * s.d * (4 * rows + tables * reach) : 0;
  int64_t bias = s.bias.empty() ? 0 : (4 + 2 * item) * s.queries;
  for (const char d : s.bias)
    bias *= d == 'B' ? s.batch : d == 'H' ? s.heads : d == 'M' ? s.queries : 1;
  return results + table + cut + bias + (s.bias.find('M') == std::string::npos ? 4 * rows : 0);
}

// Returns the bytes of `pairs` pairs of operands [n, d] and their transposes, packed.
int64_t packed_bytes(int64_t n, int64_t d, int64_t pairs) {
  return pairs * (PackedB<float>::bytes(d, n, true) + PackedB<float>::bytes(n, d, false));
}

}  // namespace

TEST_CASE("attention memory: fused is linear in the length, composed is quadratic", "[large]") {
  const int threads = num_threads();
  set_num_threads(2);
  const int64_t h = 2, d = 16;
  auto setup = [&](int64_t n, bool all = true) {
    return AttentionSetup{.batch = 1,
                          .heads = h,
                          .queries = n,
                          .d = d,
                          .causal = true,
                          .table = n,
                          .relative_bias = true,
                          .values = all,
                          .bias = all ? "HN" : ""};
  };
  if (on_gpu()) {
    for (const bool all : {false, true})
      for (const DType dtype : {bf16, f32})
        for (const int64_t n : {256, 512, 768}) {
          const AttentionSetup s = setup(n, all);
          const int64_t fused = peak(s, Implementation::fused, dtype);
          INFO("N " << n << ": " << fused << " bytes, " << gpu_bytes_of(s, dtype));
          CHECK(fused <= gpu_bytes_of(s, dtype) + 4096);
          // The elements per position are as many as the scores of 512 positions.
          if (n > 512) CHECK(fused < h * n * n * (all ? 8 : 4));
        }
    CHECK(peak(setup(512), Implementation::composed) >= 2 * 4 * h * 512 * 512);
    set_num_threads(threads);
    return;
  }
  for (const int64_t n : {2048, 4096}) {
    const int64_t fused = peak(setup(n), Implementation::fused);
    // The output and its gradient; gradients of q, k, v and of the rows of two tables, per head and
    // in total. Per thread: weights of 32 queries, their gradient and the strip of relative
    // positions, and keys, values and the rows of two tables of one head, packed.
    const int64_t tensors = 4 * h * n * d * (2 + 3 + 4), vectors = 4 * h * n * 6;
    const int64_t strips = 2 * 4 * 32 * (n + n + (n + 31)), packed = 2 * packed_bytes(n, d, 4);
    INFO("N " << n << ": " << fused << " bytes");
    CHECK(fused <= tensors + vectors + strips + packed + 65536);
  }
  const int64_t n = 1024, scores = 4 * h * n * n;
  CHECK(peak(setup(n), Implementation::composed) >= 2 * scores);
  CHECK(peak(setup(n), Implementation::fused) < scores);
  set_num_threads(1);  // with two, the peak depends on chance
  const int64_t once = peak(setup(2048), Implementation::fused);
  CHECK(double(peak(setup(4096), Implementation::fused)) / double(once) < 2.1);
  CHECK(peak(setup(2048), Implementation::automatic) == once);
  // Narrow position queries and their gradients, 4 of 16 features, instead of a table as wide as q.
  AttentionSetup narrow = setup(2048, false);
  narrow.relative_query = true, narrow.d_query = 4, narrow.table = 1024;
  AttentionSetup wide = narrow;
  wide.d_query = d;
  CHECK(peak(narrow, Implementation::fused) <
        peak(wide, Implementation::fused) - 4 * (d - 4) * h * (narrow.queries + narrow.table));
  set_num_threads(threads);
}

TEST_CASE("attention memory: local attention needs strips of only two blocks", "[large]") {
  const int threads = num_threads();
  set_num_threads(1);
  if (on_gpu()) {  // has no strips; the memory does not depend on their length
    for (const int64_t n : {2048, 16384}) {
      const AttentionSetup s{
          .batch = 1, .heads = 1, .queries = n, .d = 8, .block = 64, .table = 128};
      for (const DType dtype : {bf16, f32})
        CHECK(peak(s, Implementation::fused, dtype) <= gpu_bytes_of(s, dtype) + 4096);
    }
    set_num_threads(threads);
    return;
  }
  for (const auto& [n, rows] : {std::pair<int64_t, int64_t>{2048, 32}, {8192, 16}}) {
    const AttentionSetup s{.batch = 1, .heads = 1, .queries = n, .d = 1, .block = 64, .table = 128};
    const int64_t strip = 4 * rows * (4 * 64 + rows), vectors = 4 * n * 8;
    CHECK(peak(s, Implementation::fused) <= 3 * strip + vectors + packed_bytes(n, 1, 3) + 65536);
  }
  set_num_threads(threads);
}

TEST_CASE(
    "attention memory: a dense bias needs memory only for its gradient, if that is required") {
  if (on_gpu()) {
    const int64_t scores = 2 * 2 * 256 * 256;
    const AttentionSetup s{.batch = 2, .heads = 2, .queries = 256, .d = 8, .bias = "MN"};
    for (const DType dtype : {bf16, f32})
      CHECK(peak(s, Implementation::fused, dtype) <= gpu_bytes_of(s, dtype) + 4096);
    CHECK(peak(s, Implementation::composed) >= 2 * 4 * scores);
    AttentionCase in = make_inputs(s, f32);
    in.q.set_requires_grad();
    const int64_t before = live_bytes();
    reset_peak_memory();
    sum(in(Implementation::fused)).backward();
    AttentionSetup without = s;
    without.bias = "";
    CHECK(memory_stats().peak - before <= gpu_bytes_of(without, f32) + 4096);
    return;
  }
  const int threads = num_threads();
  set_num_threads(1);
  const int64_t b = 2, h = 2, n = 1024, bias = 4 * n * n;
  const AttentionSetup s{.batch = b, .heads = h, .queries = n, .d = 1, .bias = "MN"};
  const int64_t strips = 2 * 4 * 64 * n, vectors = 4 * b * h * n * 8 + packed_bytes(n, 1, 2);
  CHECK(peak(s, Implementation::fused) <= bias + strips + vectors + 65536);
  CHECK(peak(s, Implementation::composed) >= 2 * b * h * bias);
  // No gradient is required for the bias.
  AttentionCase in = make_inputs(s, f32);
  in.q.set_requires_grad();
  const int64_t before = memory_stats().live;
  reset_peak_memory();
  sum(in(Implementation::fused)).backward();
  CHECK(memory_stats().peak - before <= strips + vectors + 65536);
  set_num_threads(threads);
}

TEST_CASE("attention memory: all memory is released") {
  const int64_t before = live_bytes();
  for (const Implementation implementation : {Implementation::composed, Implementation::fused})
    peak({.queries = 100, .table = 20}, implementation);
  CHECK(live_bytes() == before);
}
