// Offsets and random numbers beyond 2^32: tensors of more than 2^32 elements, of which only a few
// are written. On the PTX interpreter such tensors occupy little memory, and launches can be
// limited to their last blocks.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>

#include "autograd/tape.h"
#include "core/random.h"
#include "cuda/activation.h"
#include "cuda/fft/fft.h"
#include "cuda/indexing.h"
#include "cuda/loss.h"
#include "cuda/norm.h"
#include "cuda/random.h"
#include "cuda/reduce.h"
#include "cuda/softmax.h"
#include "cuda/spe/spe_conv.h"
#include "cuda/spe/spe_sine.h"
#include "nn/optim/optim.h"
#include "ops/attention/attention.h"
#include "ops/attention/linear_attention.h"
#include "ops/attention/rotary.h"
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
  const Tensor slopes = ones({ManyRows::count}, {.device = gpu}),
               totals = full({ManyRows::count, 2}, 3, {.device = gpu});
  check_rows("cross_entropy_backward", by_block, bf16, [&](const Tensor& x) {
    const int64_t n = x.size(0);
    return cuda::cross_entropy_backward(x, ids.slice(0, 0, n), -1, 0.1, totals.slice(0, 0, n),
                                        slopes.slice(0, 0, n));
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

TEST_CASE("activations have 64-bit offsets", "[cuda]") {
  NEEDS_INTERPRETER();
  const Setting memory("PTX_MEMORY", "100");
  const int64_t n = int64_t(5) << 30, each = 8;
  const RandomKey key{3, 5};
  const DropoutRule rule(0.25);
  const Tensor x = empty({n}, {.dtype = bf16, .device = gpu});
  last_elements(x, each).fill_(1);
  Tensor y;
  Tensors slopes;
  {
    const Setting last("PTX_LAST_BLOCKS", "1");
    y = cuda::activate(x, x, Activation::relu, rule.below, rule.factor, key);
    slopes = cuda::activate_backward(x, x, x, Activation::relu, rule.below, rule.factor, key);
  }
  for (const Tensor& dropped : {y, slopes[0], slopes[1]}) {
    const auto kept = last_elements(dropped, each).to_vector<double>();
    int64_t wrong = 0;
    for_each_index(n, each, [&](size_t at, uint64_t i) {
      wrong += (kept[at] != 0) != ((random_bits(key, i) >> 8) >= rule.below);
    });
    CHECK(wrong == 0);
  }
}

// The backward kernel has 264 blocks, of which each processes many rows.
TEST_CASE("residual branches have 64-bit offsets", "[cuda][large]") {
  NEEDS_INTERPRETER();
  const Setting memory("PTX_MEMORY", "100");
  const int64_t width = 8192;  // by a block
  const RandomKey key{3, 6};
  const DropoutRule rule(0.25);
  for (const int64_t blocks : {4096, 264}) {
    CAPTURE(blocks);
    const int64_t rounds = ((int64_t(1) << 32) / width + blocks) / blocks, rows = rounds * blocks;
    const auto last_rows = [&](const Tensor& x) {
      return x.view({rounds, blocks, width}).slice(1, blocks - 1);
    };
    const auto tensor_of = [&](double value) {
      Tensor x = empty({rows, width}, {.dtype = bf16, .device = gpu});
      last_rows(x).fill_(value);
      return x;
    };
    const Tensor x = tensor_of(1), onto = tensor_of(0), scale = full({rows}, 1, {.device = gpu});
    const cuda::ResidualBranch branch{onto, empty_like(x), rule.below, rule.factor, key};
    Tensor result;
    {
      const Setting last("PTX_LAST_BLOCKS", "1");
      result = blocks == 4096
                   ? cuda::norm(x, {}, {}, 1e-5, {}, scale, branch)
                   : cuda::norm_backward({onto, {}, {}, scale}, x, {}, false, false, branch).dx;
    }
    if (blocks == 4096) {
      const Tensor sums = last_rows(branch.sum).contiguous().view({rounds, width});
      const Tensor expected = cuda::norm(sums, {}, {}, 1e-5, {}, empty({rounds}, {.device = gpu}));
      CHECK(same_values(last_rows(result), expected));
    } else {
      CHECK(same_values(last_rows(result), last_rows(x)));
    }
    const auto kept = last_rows(branch.sum).to_vector<double>();
    int64_t wrong = 0;
    for (size_t at = 0; at < kept.size(); ++at) {
      const int64_t round = int64_t(at) / width, row = round * blocks + blocks - 1;
      const auto i = uint64_t(row * width + int64_t(at) % width);
      wrong += (kept[at] != 0) != ((random_bits(key, i) >> 8) >= rule.below);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("dropout of attention has 64-bit indices", "[cuda]") {
  NEEDS_INTERPRETER();
  // Queries that see 64 keys each, all with the same score: the output counts the weights that are
  // kept. The indices of their weights, query · N + key, begin at 2^32.
  const int64_t m = 4200, n = (int64_t(1) << 20) - 7, first = m - 64, window = 64;
  const TensorOptions on_gpu{.dtype = bf16, .device = gpu};
  const Tensor q = zeros({1, 1, m, 8}, on_gpu).set_requires_grad(),
               k = randint(-4, 5, {1, 1, n, 8}).to(bf16).to(gpu),
               v = ones({1, 1, n, 8}, on_gpu).set_requires_grad(),
               bias = zeros({1, window}, on_gpu).set_requires_grad(), g = zeros(q.shape(), on_gpu);
  REQUIRE(first * n > int64_t(1) << 32);
  const RandomKey key{5, 6};
  AttentionOptions options{.mask = {.causal = true, .window = window},
                           .relative_bias = {bias, window - 1},
                           .dropout = 0.5};
  options.dropout_key = key;
  options.implementation = Implementation::fused;
  const Tensor y = attention(q, k, v, options);
  g.slice(2, first).fill_(1);
  y.backward(g);
  // The gradient of a value counts weights as well. Those of bias and query are sums of dS and of
  // dS k / √8, with dS = P (dP − δ) and dP = 16 for a weight that is kept.
  const auto got = y.slice(2, first).slice(3, 0, 1).to_vector<double>();
  const auto of_values = v.grad().slice(2, n - 2 * window).slice(3, 0, 1).to_vector<double>(),
             of_bias = bias.grad().to_vector<double>(),
             of_query = q.grad().slice(2, first).slice(3, 0, 1).to_vector<double>(),
             keys = k.slice(2, n - 2 * window).slice(3, 0, 1).to_vector<double>();
  std::vector<double> values(2 * window), biases(window);
  for (int64_t i = first; i < m; ++i) {
    const int64_t from = i + n - m - window + 1;
    std::vector<bool> kept(window);
    for (int64_t c = 0; c < window; ++c)
      kept[size_t(c)] =
          (random_bits(key, uint64_t(i * n + from + c)) >> 8) >= DropoutRule(0.5).below;
    const auto count = double(std::count(kept.begin(), kept.end(), true));
    CHECK(got[size_t(i - first)] == count / 32);
    double query = 0;
    for (int64_t c = 0; c < window; ++c) {
      const auto at = size_t(from + c - (n - 2 * window));
      const double ds = ((kept[size_t(c)] ? 16.0 : 0.0) - count / 4) / 64;
      values[at] += kept[size_t(c)] ? 1.0 / 32 : 0;
      biases[size_t(c)] += ds;
      query += ds * keys[at] / std::sqrt(8.0);
    }
    CHECK(std::abs(of_query[size_t(i - first)] - query) < 0.02 * (1 + std::abs(query)));
  }
  CHECK(of_values == values);
  for (int64_t c = 0; c < window; ++c)
    CHECK(std::abs(of_bias[size_t(c)] - biases[size_t(c)]) <
          0.01 * (1 + std::abs(biases[size_t(c)])));
}

namespace {

// x [1, 2, L, D] in memory where its heads are more than 2^32 elements apart.
Tensor far_heads(const Tensor& x) {
  const int64_t apart = (int64_t(1) << 32) + 1024, l = x.size(2), d = x.size(3);
  const Tensor all = empty({apart + l * d}, options_of(x));
  Tensor y = make_view(all, 0, x.shape(), {2 * apart, apart, d, 1});
  y.copy_(x);
  return y;
}

// Checks that f gives the same results for four operands [1, 2, 70, 32] if their heads are far
// apart.
void check_far_heads(const char* what, const std::function<Tensors(const Tensors&)>& f) {
  const Setting memory("PTX_MEMORY", "200");
  for (const DType t : {bf16, f32}) {
    CAPTURE(what, name(t));
    Tensors in, far;
    for (uint64_t stream = 40; stream < 44; ++stream) {
      in.push_back(rand({1, 2, 70, 32}, RandomKey{11, stream}).to(t).to(gpu));
      far.push_back(far_heads(in.back()));
    }
    const Tensors want = f(in), got = f(far);
    for (size_t i = 0; i < want.size(); ++i) CHECK(same_values(got[i], want[i]));
  }
}

// y = f(the first three operands) and their gradients for the fourth as that of y.
template <class F>
std::function<Tensors(const Tensors&)> with_gradients(F f) {
  return [f](const Tensors& in) {
    Tensors x;
    for (size_t i = 0; i < 3; ++i) x.push_back(in[i].detach().set_requires_grad());
    const Tensor y = f(x);
    y.backward(in[3]);
    Tensors results{y.detach()};
    for (const Tensor& leaf : x)
      if (leaf.grad().defined()) results.push_back(leaf.grad());
    return results;
  };
}

}  // namespace

TEST_CASE("heads of attention may be more than 2^32 elements apart", "[cuda]") {
  NEEDS_INTERPRETER();
  check_far_heads("attention", with_gradients([](const Tensors& x) {
                    AttentionOptions options{.mask = {.causal = true}};
                    options.implementation = Implementation::fused;
                    return attention(x[0], x[1], x[2], options);
                  }));
  check_far_heads("linear_attention", with_gradients([](const Tensors& x) {
                    LinearAttentionOptions options{.mask = {.causal = true}};
                    options.implementation = Implementation::fused;
                    return linear_attention(x[0], x[1], x[2], options);
                  }));
  check_far_heads("rotate", with_gradients([](const Tensors& x) { return rotate(x[0], 3); }));
}

TEST_CASE("heads of SPE may be more than 2^32 elements apart", "[cuda]") {
  NEEDS_INTERPRETER();
  const auto values = [](const Shape& shape, uint64_t stream) {
    return noise(shape, stream).to(gpu);
  };
  const cuda::SineCode sines{.f = values({2, 32, 3}, 60), .w = values({2, 32, 6, 32}, 61), .e = {}};
  check_far_heads("sineSPE", [&](const Tensors& in) {
    const Tensor y = in[1].detach(), dx = in[2].detach();
    cuda::apply_sine_code(sines, in[0], 5, y);
    cuda::sine_code_dx(sines, in[3], 5, dx);
    return Tensors{y.contiguous(), dx.contiguous(), cuda::sine_code_sums(sines, in[0], in[3], 5)};
  });
  const cuda::NoiseCode noises{.key = {7, 8},
                               .apart = 1 << 20,
                               .pitch = 32 * 80,
                               .columns = 80,
                               .realizations = 32,
                               .w = {values({2, 32, 1, 8}, 62), values({2, 32, 1, 8}, 63)},
                               .e = {}};
  check_far_heads("convSPE", [&](const Tensors& in) {
    const cuda::NoiseSide sides[2] = {{in[0], 2, in[1]}, {}}, back[2] = {{in[0], 2, in[3]}, {}};
    const Tensor dx[2] = {in[2], {}};
    cuda::apply_noise_code(noises, sides);
    cuda::noise_code_dx(noises, back, dx);
    return Tensors{in[1].contiguous(), in[2].contiguous(), cuda::noise_code_sums(noises, back).w};
  });
}

TEST_CASE("Fourier transforms have 64-bit offsets", "[cuda]") {
  NEEDS_INTERPRETER();
  const Setting memory("PTX_MEMORY", "100");
  // A block transforms 8 rows of 64 complex elements at a time.
  const int64_t n = 64, height = 8, count = (int64_t(1) << 25) + (int64_t(1) << 20),
                rounds = count / (4096 * height);
  const Tensor x = empty({count, n, 2}, {.device = gpu}), y = empty_like(x);
  const auto last = [&](const Tensor& rows) {
    return rows.view({rounds, 4096 * height, n, 2}).slice(1, 4095 * height);
  };
  const Tensor values = noise({rounds, 1, n, 2}, 64).to(gpu).expand({rounds, height, n, 2});
  last(x).copy_(values);
  {
    const Setting blocks("PTX_LAST_BLOCKS", "1");
    cuda::fft_complex(x, y, false, 1);
  }
  const Tensor alone = values.contiguous(), expected = empty_like(alone);
  cuda::fft_complex(alone, expected, false, 1);
  CHECK(same_values(last(y).contiguous(), expected));
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

// A grid has at most 65,535 blocks in y.
TEST_CASE("attention masks take any number of sequences", "[cuda]") {
  NEEDS_INTERPRETER();
  const int64_t batch = 65536 + 3, n = 2;
  const Tensor q = noise({3, 1, n, 8}, 66, bf16).to(gpu);
  const Tensor all = cat({zeros({batch - 3, 1, n, 8}, options_of(q)), q}, 0);
  const auto compare = [&](const char* what, const auto& mask_of) {
    CAPTURE(what);
    AttentionOptions few, many;
    few.implementation = many.implementation = Implementation::fused;
    mask_of(few.mask, 3), mask_of(many.mask, batch);
    const Tensor expected = attention(q, q, q, few).to(cpu);
    const Setting blocks("PTX_LAST_BLOCKS", "3");
    check_equal(expected, attention(all, all, all, many).slice(0, batch - 3));
  };
  compare("segments", [&](AttentionMask& mask, int64_t b) {
    mask.segments = arange(b * n).view({b, n}).to(gpu);
  });
  compare("global tokens", [&](AttentionMask& mask, int64_t b) {
    mask.global_tokens = zeros({b, n}, {.dtype = boolean, .device = gpu});
    mask.window = 1;
  });
  compare("hidden", [&](AttentionMask& mask, int64_t b) {
    mask.hidden = zeros({b, 1, n, n}, {.dtype = boolean, .device = gpu});
    Tensor(mask.hidden.slice(3, 1)).fill_(1);
  });
}
