// Offsets and random numbers beyond 2^32: tensors of more than 2^32 elements, of which only a few
// are written. On the PTX interpreter such tensors occupy little memory, and launches can be limited
// to their last blocks.
#include <cstdlib>

#include "autograd/tape.h"
#include "core/random.h"
#include "cuda/indexing.h"
#include "cuda/loss.h"
#include "cuda/norm.h"
#include "cuda/random.h"
#include "cuda/reduce.h"
#include "cuda/softmax.h"
#include "nn/optim/optim.h"
#include "ops/attention/attention.h"
#include "ops/elementwise.h"
#include "tests/cuda/kernel_counts.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

namespace {

#define NEEDS_INTERPRETER() \
  NEEDS_GPU();              \
  if (!has_counters()) STRETTO_SKIP("needs the PTX interpreter: its memory is sparse")

// Sets a variable of the interpreter during its lifetime.
struct Setting {
  const char* name;
  Setting(const char* n, const char* value) : name(n) { ::setenv(n, value, 1); }
  ~Setting() { ::unsetenv(name); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;
};

// Rows [4325376, 1025] of more than 2^32 elements. A launch has 4096 blocks, which process rows in
// turn: the last block those with i % period >= period − height. Only these have values.
struct ManyRows {
  static constexpr int64_t count = 33 << 17, width = 1025;
  const int64_t period, height;

  Tensor part(const Tensor& x) const {  // [rounds, height, ...]
    Shape shape = x.shape();
    shape[0] = period;
    shape.insert(0, count / period);
    return x.view(shape).slice(1, period - height);
  }
  Tensor rows(DType t, uint64_t stream) const {
    Tensor x = empty({count, width}, {.dtype = t, .device = gpu});
    Shape shape = part(x).shape();
    shape[1] = 1;  // the rows of a round differ from those of the next
    part(x).copy_(noise(shape, stream, t).to(gpu).expand(part(x).shape()));
    return x;
  }
  // The rows with values, without gaps.
  Tensor gathered(const Tensor& x) const {
    Shape shape = x.shape();
    shape[0] = count / period * height;
    return part(x).contiguous().view(shape);
  }
};

// Checks that f of all rows, run by the last block, gives the rows that f gives alone.
template <class F>
void check_rows(const char* what, const ManyRows& many, DType t, const F& f) {
  CAPTURE(what);
  const Tensor x = many.rows(t, 20);
  Tensor got;
  {
    const Setting last("PTX_LAST_BLOCKS", "1");
    got = f(x);
  }
  CHECK(same_values(many.gathered(got), f(many.gathered(x))));
}

// The elements that the 4096 blocks of a launch process at a time, in groups of one thread's.
constexpr int64_t groups = int64_t(4096) * 256;

// The elements that the last block processes, `each` per thread: [rounds, 256, each].
Tensor last_elements(const Tensor& x, int64_t each) {
  return x.view({x.numel() / (groups * each), groups, each}).slice(1, groups - 256);
}
// Their indices in the order of last_elements().
template <class F>
void for_each_index(int64_t n, int64_t each, const F& f) {
  for (int64_t round = 0, at = 0; round < n / (groups * each); ++round)
    for (int64_t i = (groups - 256) * each; i < groups * each; ++i, ++at)
      f(size_t(at), uint64_t(round * groups * each + i));
}

}  // namespace

TEST_CASE("kernels for rows have 64-bit offsets", "[cuda]") {
  NEEDS_INTERPRETER();
  const Setting memory("PTX_MEMORY", "100");
  const ManyRows by_warp{.period = 1 << 15, .height = 8},
      by_block{.period = 1 << 12, .height = 1};  // if more than 512 elements
  const auto of_rows = [](const Tensor& x, DType t) {
    return empty({x.size(0)}, {.dtype = t, .device = gpu});
  };
  check_rows("softmax", by_block, bf16, [](const Tensor& x) { return cuda::softmax(x, false); });
  check_rows("softmax_backward", by_block, bf16,
             [](const Tensor& x) { return cuda::softmax_backward(x, x, false); });
  check_rows("norm", by_block, bf16, [&](const Tensor& x) {
    return cuda::norm(x, {}, {}, 1e-5, empty({2, x.size(0)}, {.device = gpu}), of_rows(x, f32));
  });
  const Tensor ids = full({ManyRows::count}, 7, {.dtype = i64, .device = gpu});
  check_rows("cross_entropy", by_block, bf16, [&](const Tensor& x) {
    const Tensor totals = empty({x.size(0), 2}, {.device = gpu});
    return cuda::cross_entropy(x, ids.slice(0, 0, x.size(0)), -1, 0.1, totals);
  });
  check_rows("logsumexp", by_block, bf16, [&](const Tensor& x) {
    Tensor y = of_rows(x, bf16);
    cuda::logsumexp(x, y);
    return y;
  });
  check_rows("argmax", by_block, bf16, [&](const Tensor& x) {
    Tensor y = of_rows(x, bf16), places = of_rows(x, i64);
    cuda::extremes(x, true, y, places);
    return places;
  });
  check_rows("cumsum", by_block, bf16, [](const Tensor& x) { return cuda::cumsum(x, 1); });
  // Sums of gradients by index have a warp per row; here there is one row per batch entry.
  const Tensor id = tensor<int64_t>({0}).to(gpu);
  check_rows("place", by_warp, bf16, [&](const Tensor& x) {
    return cuda::place(x.view({x.size(0), 1, x.size(1)}), id, 1).view(x.shape());
  });
}

TEST_CASE("take has 64-bit offsets", "[cuda]") {
  NEEDS_INTERPRETER();
  const Setting memory("PTX_MEMORY", "100");
  const int64_t rows = (33 << 17) + 2;
  const Tensor last = noise({2, 1025}, 30, bf16);
  const Tensor x = empty({1, rows, 1025}, {.dtype = bf16, .device = gpu});
  x.slice(1, rows - 2).copy_(last.view({1, 2, 1025}).to(gpu));
  const Tensor ids = tensor<int64_t>({rows - 1, rows - 2, rows - 1}).to(gpu);
  const Tensor y = cuda::take(x, ids);
  check_equal(last.slice(0, 1), y.select(0, 0).slice(0, 0, 1));
  check_equal(last, y.select(0, 0).slice(0, 1, 3));
}

TEST_CASE("elementwise kernels have 64-bit offsets", "[cuda]") {
  NEEDS_INTERPRETER();
  const Setting memory("PTX_MEMORY", "100");
  const int64_t n = int64_t(5) << 30, each = 8;
  const Tensor x = empty({n}, {.dtype = bf16, .device = gpu});
  const Tensor values = noise({n / (groups * each), 1, each}, 31, bf16);
  last_elements(x, each).copy_(values.to(gpu).expand({values.size(0), 256, each}));
  Tensor y;
  {
    const Setting last("PTX_LAST_BLOCKS", "1");
    y = x * 2.0;
  }
  check_equal((values * 2.0).expand({values.size(0), 256, each}).contiguous(),
              last_elements(y, each).contiguous());
}

TEST_CASE("random numbers and dropout have 64-bit indices", "[cuda]") {
  NEEDS_INTERPRETER();
  const Setting memory("PTX_MEMORY", "100");
  const int64_t n = int64_t(5) << 30;
  const RandomKey key{3, 4};
  for (const DType t : {f32, bf16}) {
    CAPTURE(name(t));
    const int64_t each = t == f32 ? 4 : 8;
    const Tensor x = empty({n}, {.dtype = t, .device = gpu});
    last_elements(x, each).fill_(1);
    const DropoutRule rule(0.25);
    Tensor dropped;
    {
      const Setting last("PTX_LAST_BLOCKS", "1");
      dropped = cuda::dropout(x, rule.below, rule.factor, key);
      cuda::fill_uniform(x, key);
    }
    const auto drawn = last_elements(x, each).to_vector<double>(),
               kept = last_elements(dropped, each).to_vector<double>();
    int64_t wrong = 0;
    for_each_index(n, each, [&](size_t at, uint64_t i) {
      const uint32_t bits = random_bits(key, i);
      const double exact = uniform_from_bits(bits);
      wrong += (kept[at] != 0) != ((bits >> 8) >= rule.below);
      wrong += drawn[at] > exact || drawn[at] < exact * (t == f32 ? 1 : 1 - 2 * unit(bf16));
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("dropout of attention has 64-bit indices", "[cuda]") {
  NEEDS_INTERPRETER();
  // Queries that see 64 keys each, all with the same score: the output counts the weights that are
  // kept. The indices of their weights, query · N + key, begin at 2^32.
  const int64_t m = 4200, n = (int64_t(1) << 20) - 8, first = m - 64, window = 64;
  const NoGrad guard;
  const Tensor q = zeros({1, 1, m, 8}, {.dtype = bf16, .device = gpu}),
               k = zeros({1, 1, n, 8}, {.dtype = bf16, .device = gpu}),
               v = ones({1, 1, n, 8}, {.dtype = bf16, .device = gpu});
  REQUIRE(first * n > int64_t(1) << 32);
  const RandomKey key{5, 6};
  AttentionOptions options{.mask = {.causal = true, .window = window}, .dropout = 0.5};
  options.dropout_key = key;
  options.implementation = Implementation::fused;
  const auto got = attention(q, k, v, options).slice(2, first).slice(3, 0, 1).to_vector<double>();
  for (int64_t i = first; i < m; ++i) {
    int64_t kept = 0;
    const int64_t position = i + n - m;
    for (int64_t j = position - window + 1; j <= position; ++j)
      kept += (random_bits(key, uint64_t(i * n + j)) >> 8) >= DropoutRule(0.5).below;
    CHECK(got[size_t(i - first)] == double(kept) / 32);
  }
}

TEST_CASE("heads of attention may be more than 2^32 elements apart", "[cuda]") {
  NEEDS_INTERPRETER();
  const Setting memory("PTX_MEMORY", "100");
  const NoGrad guard;
  const int64_t apart = (int64_t(1) << 32) + 1024, l = 70;
  for (const DType t : {bf16, f32}) {
    CAPTURE(name(t));
    const auto spread = [&](const Tensor& x) {  // [1, 2, L, 32]
      const Tensor all = empty({apart + l * 32}, options_of(x));
      Tensor y = make_view(all, 0, x.shape(), {2 * apart, apart, 32, 1});
      y.copy_(x);
      return y;
    };
    Tensors in;
    for (uint64_t stream = 40; stream < 43; ++stream)
      in.push_back(noise({1, 2, l, 32}, stream, t).to(gpu));
    AttentionOptions options{.mask = {.causal = true}};
    options.implementation = Implementation::fused;
    const Tensor want = attention(in[0], in[1], in[2], options);
    const Tensor got = attention(spread(in[0]), spread(in[1]), spread(in[2]), options);
    CHECK(same_values(got, want));
  }
}

TEST_CASE("optimizers have 64-bit offsets", "[cuda]") {
  NEEDS_INTERPRETER();
  const Setting memory("PTX_MEMORY", "100");
  const int64_t n = (int64_t(1) << 32) + 4096;
  const Tensor w = empty({n}, {.device = gpu}), g = empty({n}, {.device = gpu});
  const Tensor start = noise({4096}, 50), slope = noise({4096}, 51);
  w.slice(0, n - 4096).copy_(start.to(gpu));
  g.slice(0, n - 4096).copy_(slope.to(gpu));
  w.set_requires_grad();
  w.set_grad(g);
  nn::SGD optimizer({w}, {.lr = 0.5});
  {
    const Setting last("PTX_LAST_BLOCKS", "1");
    optimizer.step();
  }
  check_equal(start - slope * 0.5, w.detach().slice(0, n - 4096));
}
