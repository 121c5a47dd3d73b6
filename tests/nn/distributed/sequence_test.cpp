// Sequence-parallel attention, with threads as processes, against the same ops in one process.
#include "nn/distributed/sequence.h"

#include <cstring>

#include "autograd/tape.h"
#include "core/parallel.h"
#include "core/storage.h"
#include "ops/attention/elu_features.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/spe/spe.h"
#include "ops/view.h"
#include "tests/support/catch.h"
#include "tests/support/process_threads.h"

using namespace stretto;
using namespace stretto::nn;
using namespace stretto::testing;

namespace {

constexpr int64_t batch = 2, heads = 2, length = 24, width = 5;

// Maps the rows [B, H, L, D] of a rank, shared parameters and the first position to the output.
using Layer = std::function<Tensor(const Tensors& rows, const Tensors& parameters, int64_t first,
                                   ProcessGroup& group)>;

Tensor drawn(const Shape& shape, uint64_t stream, DType dtype) {
  return randn(shape, RandomKey{5, stream}, {.dtype = f64, .device = cpu}).to(dtype) * 0.5;
}

// Returns the output and the gradients of a rank's rows and of the parameters.
Tensors results(const Layer& layer, const Tensors& rows, const Tensors& parameters,
                ProcessGroup& group) {
  const int64_t share = length / group.size(), first = group.rank() * share;
  const auto mine = [&](const Tensor& x) { return x.slice(2, first, first + share).contiguous(); };
  Tensors inputs;
  for (const Tensor& x : rows) inputs.push_back(mine(x).set_requires_grad());
  for (const Tensor& x : parameters) inputs.push_back(x.clone().set_requires_grad());
  const auto split = inputs.begin() + std::ptrdiff_t(rows.size());
  const Tensor y = layer({inputs.begin(), split}, {split, inputs.end()}, first, group);
  const Tensor weights = drawn({batch, heads, length, width}, 99, y.dtype());
  Tensors all{y};
  sum(y * y * mine(weights) / double(length)).backward();
  for (const Tensor& x : inputs) all.push_back(x.grad().clone());
  for (Tensor& x : all) x = x.detach().contiguous();
  return all;
}

void check_close(const Tensor& got, const Tensor& expected, double tolerance) {
  REQUIRE(got.shape() == expected.shape());
  const auto a = got.to_vector<double>(), b = expected.to_vector<double>();
  double most = 0, error = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(b[i]));
    error = std::max(error, std::abs(a[i] - b[i]));
  }
  CHECK(most > 1e-4);
  CHECK(error <= tolerance * std::max(1.0, most));
}

void check_layer(const Layer& layer, size_t n_rows, const std::vector<Shape>& shapes) {
  for (const DType dtype : {f32, f64}) {
    Tensors rows, parameters;
    for (size_t i = 0; i < n_rows; ++i)
      rows.push_back(drawn({batch, heads, length, width}, i, dtype));
    for (size_t i = 0; i < shapes.size(); ++i)
      parameters.push_back(drawn(shapes[i], 50 + i, dtype));
    Post post;
    Threads one(post, 0, 1);
    const Tensors alone = results(layer, rows, parameters, one);
    for (const int size : {2, 4}) {
      std::vector<Tensors> of_all(static_cast<size_t>(size));
      each_of(size, [&](ProcessGroup& group) {
        of_all[size_t(group.rank())] = results(layer, rows, parameters, group);
      });
      for (size_t i = 0; i < alone.size(); ++i) {
        INFO(size << " processes, " << (dtype == f64 ? "f64" : "f32") << ", result " << i);
        Tensors sequence_size;
        for (const Tensors& got : of_all) sequence_size.push_back(got[i]);
        Tensor together = sequence_size[0];
        for (size_t r = 1; i > n_rows && r < sequence_size.size(); ++r)
          together = together + sequence_size[r];
        check_close(i > n_rows ? together : cat(sequence_size, 2), alone[i],
                    dtype == f64 ? 1e-12 : 1e-6);
      }
    }
  }
}

// With one process the op itself, which the others must equal.
Tensor linear(const Tensor& q, const Tensor& k, const Tensor& v, ProcessGroup& group) {
  const LinearAttentionOptions options{.mask = {.causal = true}, .eps = 1e-6, .chunk = 4};
  return group.size() == 1 ? linear_attention(q, k, v, options)
                           : sequence_parallel_linear_attention(q, k, v, options, group);
}

Tensor positive(const Tensor& x) { return elu_features(x); }

// FAVOR+ (Choromanski et al. 2021, eq. 5): e^(wx − |x|²/2).
Tensor favor(const Tensor& x, const Tensor& w) {
  return exp(matmul(x, w) - sum(x * x, {-1}, true) * 0.5);
}

Tensor of_codes(const SpePair& x, const Tensor& v, ProcessGroup& group) {
  return linear(positive(x.q), positive(x.k), v, group);
}

}  // namespace

TEST_CASE("Linear attention over several processes equals that of one", "[distributed][sequence]") {
  check_layer(
      [](const Tensors& x, const Tensors&, int64_t, ProcessGroup& group) {
        return linear(positive(x[0]), positive(x[1]), x[2], group);
      },
      3, {});
  check_layer(
      [](const Tensors& x, const Tensors& w, int64_t, ProcessGroup& group) {
        return linear(favor(x[0], w[0]), favor(x[1], w[0]), x[2], group);
      },
      3, {{width, 7}});
}

TEST_CASE("SPE over several processes needs only the first position of each",
          "[distributed][sequence]") {
  const SpeNoise noise(RandomKey{3, 1}, 6);
  check_layer(
      [&](const Tensors& x, const Tensors& w, int64_t first, ProcessGroup& group) {
        return of_codes(spe(x[0], x[1], SpeCode::sine(w[0], w[1], w[2], noise),
                            {.gate = SpeGate{w[3], SpeNoise(RandomKey{3, 2}, 6)}, .first = first}),
                        x[2], group);
      },
      3, {{heads, width, 3}, {heads, width, 3}, {heads, width, 3}, {heads, width}});
  // A filter longer than a process's share.
  check_layer(
      [&](const Tensors& x, const Tensors& w, int64_t first, ProcessGroup& group) {
        return of_codes(spe(x[0], x[1], SpeCode::conv(w[0], w[1], noise), {.first = first}), x[2],
                        group);
      },
      3, {{heads, width, 9}, {heads, width, 9}});
}

TEST_CASE("Softmax attention over several processes equals that of one",
          "[distributed][sequence]") {
  using Make = std::function<AttentionOptions(const Tensors& x, const Tensors& tables)>;
  const auto check_softmax = [](size_t n_rows, const std::vector<Shape>& tables, const Make& make) {
    check_layer(
        [&](const Tensors& x, const Tensors& w, int64_t, ProcessGroup& group) {
          AttentionOptions o = make(x, w);
          o.mask.causal = true;
          return group.size() == 1 ? attention(x[0], x[1], x[2], o)
                                   : sequence_parallel_attention(x[0], x[1], x[2], o, group);
        },
        n_rows, tables);
  };
  check_softmax(3, {}, [](const Tensors&, const Tensors&) { return AttentionOptions{}; });
  // Shaw: keys and values, clipped, for earlier and later keys.
  check_softmax(3, {{1, 9, width}, {1, 9, width}}, [](const Tensors&, const Tensors& w) {
    return AttentionOptions{.relative_keys = {w[0], 4, OutOfRange::clip},
                            .relative_values = {w[1], 4, OutOfRange::clip}};
  });
  // Music Transformer: a row for every distance, or for fewer.
  for (const int64_t rows : {length, length / 2 + 1})
    check_softmax(3, {{heads, rows, width}}, [&](const Tensors&, const Tensors& w) {
      return AttentionOptions{
          .relative_keys = {w[0], rows - 1, rows == length ? OutOfRange::error : OutOfRange::zero}};
    });
  // Transformer-XL: q + u is multiplied by the keys, q + v by the rows of positions.
  check_layer(
      [](const Tensors& x, const Tensors& w, int64_t, ProcessGroup& group) {
        AttentionOptions o;
        o.mask.causal = true;
        o.relative_query = x[0] + w[1];
        o.relative_keys = {w[2], length - 1, OutOfRange::error};
        return group.size() == 1 ? attention(x[0] + w[0], x[1], x[2], o)
                                 : sequence_parallel_attention(x[0] + w[0], x[1], x[2], o, group);
      },
      3, {{heads, 1, width}, {heads, 1, width}, {heads, length, width}});
  // Inkling: a few features of the layer's input are multiplied by one table of all heads.
  for (const int64_t rows : {length, length / 3})
    check_softmax(4, {{1, rows, 2}}, [&](const Tensors& x, const Tensors& w) {
      return AttentionOptions{.relative_query = x[3].slice(3, 0, 2),
                              .relative_keys = {w[0], rows - 1}};
    });
  // T5 and others: a bias per distance.
  check_softmax(3, {{heads, length}}, [](const Tensors&, const Tensors& w) {
    return AttentionOptions{.relative_bias = {w[0], length - 1, OutOfRange::error}};
  });
}

TEST_CASE("Windows and blocks over several processes equal those of one",
          "[distributed][sequence]") {
  struct Case {
    int64_t window, block, rows;
  };
  // Of 24 positions a process has 12 or 6. Windows that end at the neighbor's last position, that
  // span several neighbors, and that reach before the sequence; blocks as long as a process's
  // share, shorter, longer, and with boundaries anywhere in it.
  const Case cases[]{{2, 0, 2}, {7, 0, 7},  {9, 0, 9},  {20, 0, 24}, {40, 0, 24},
                     {0, 2, 4}, {0, 6, 12}, {0, 5, 10}, {0, 8, 16},  {0, 12, 24}};
  for (const Case& c : cases) {
    INFO("window " << c.window << ", block " << c.block);
    check_layer(
        [&](const Tensors& x, const Tensors& w, int64_t, ProcessGroup& group) {
          AttentionOptions o;
          o.mask = {.causal = c.block == 0, .window = c.window, .block = c.block};
          o.relative_keys = {w[0], c.rows - 1, OutOfRange::error};
          o.relative_bias = {w[1], c.rows - 1, OutOfRange::zero};
          return group.size() == 1 ? attention(x[0], x[1], x[2], o)
                                   : sequence_parallel_attention(x[0], x[1], x[2], o, group);
        },
        3, {{heads, c.rows, width}, {heads, c.rows}});
  }
}

TEST_CASE("A process needs only the memory of its share of the sequence",
          "[distributed][sequence]") {
  // The last of `size` processes; the others send zeros.
  class Last final : public ProcessGroup {
   public:
    explicit Last(int size) : size_(size) {}
    int rank() const override { return size_ - 1; }
    int size() const override { return size_; }
    int local_size() const override { return size_; }
    void send_recv(int, const void*, size_t, void* in, size_t n_in) override {
      if (n_in > 0) std::memset(in, 0, n_in);
    }
    void finish() override {}

   private:
    const int size_;
  };
  const auto peak = [](int size, bool softmax) {
    Last group(size);
    const Shape shape{1, 2, 4096 / size, 16};
    const auto row = [&](uint64_t i) { return drawn(shape, i, f32).set_requires_grad(); };
    const Tensor q = row(1), k = row(2), v = row(3);
    const MemoryStats before = memory_stats(cpu);
    reset_peak_memory(cpu);
    if (softmax) {
      AttentionOptions o;
      o.mask.causal = true;
      sum(sequence_parallel_attention(q, k, v, o, group)).backward();
    } else {
      sum(sequence_parallel_linear_attention(positive(q), positive(k), v,
                                             {.mask = {.causal = true}}, group))
          .backward();
    }
    return double(memory_stats(cpu).peak - before.live);
  };
  const int threads = num_threads();
  set_num_threads(1);  // with more, the peak depends on chance
  // Compared with four: with fewer earlier ranks softmax saves no partial results to merge.
  for (const bool softmax : {false, true})
    for (const int size : {8, 16}) {
      INFO((softmax ? "softmax, " : "linear, ") << size << " processes: " << peak(size, softmax)
                                                << " bytes, four: " << peak(4, softmax));
      CHECK(peak(size, softmax) <= 1.05 * 4 / size * peak(4, softmax));
    }
  set_num_threads(threads);
}

TEST_CASE("Inputs that sequence parallelism does not support are errors",
          "[distributed][sequence]") {
  Post post;
  Threads one(post, 0, 1);
  const Tensor x = ones({1, 1, 4, 2});
  CHECK_THROWS_WITH(sequence_parallel_linear_attention(x, x, x, {}, one),
                    Containing("sequence parallelism needs a causal mask"));
  AttentionOptions o;
  o.mask.causal = true;
  o.dropout = 0.5;
  CHECK_THROWS_WITH(sequence_parallel_attention(x, x, x, o, one),
                    Containing("no key_padding and no dropout"));
  CHECK_THROWS_WITH(gather_left_kv(x, x, o, one), Containing("no key_padding and"));
  o.dropout = 0;
  o.bias = zeros({4, 4});
  CHECK_THROWS_WITH(sequence_parallel_attention(x, x, x, o, one), Containing("gather_left_kv"));
  o.bias = {};
  const Tensor w = x.clone().set_requires_grad();
  const BackwardOptions again{.create_graph = true};
  CHECK_THROWS_WITH(grad({sum(sequence_parallel_attention(w, x, x, o, one))}, {w}, {}, again),
                    Containing("no second derivative"));
  CHECK_THROWS_WITH(grad({sum(exclusive_prefix_sum(w, one))}, {w}, {}, again),
                    Containing("no second derivative"));
  CHECK_THROWS_WITH(grad({sum(with_left_halo(w, 2, one))}, {w}, {}, again),
                    Containing("no second derivative"));
  CHECK_THROWS_WITH(with_left_halo(x, -1, one), Containing("-1 positions"));
}
