// Sorting, taking and adding by index, cross-entropy: CPU against CUDA.
#include <cmath>
#include <vector>

#include "autograd/tape.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/loss.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/view.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

namespace {

Tensor random_ids(const Shape& shape, int64_t below, uint64_t stream) {
  return mul(rand(shape, RandomKey{13, stream}), double(below)).to(i64);
}

void compare_sort(const Tensor& x) {
  CAPTURE(str(x), str(x.strides()));
  for (int64_t d = 0; d < x.dim(); ++d) {
    for (const bool descending : {false, true}) {
      const Sorted expected = sort(x, d, descending), got = sort(on_gpu(x), d, descending);
      check_equal(expected.values, got.values);
      check_equal(expected.indices, got.indices);
    }
    for (const int64_t k : {int64_t(0), std::min<int64_t>(x.size(d), 3), x.size(d)}) {
      const Sorted expected = topk(x, k, d), got = topk(on_gpu(x), k, d);
      check_equal(expected.values, got.values);
      check_equal(expected.indices, got.indices);
    }
  }
}

}  // namespace

TEST_CASE("sort and topk agree with the CPU: stable, with NaN last", "[cuda]") {
  NEEDS_GPU();
  uint64_t stream = 1;
  for (const DType t : {f32, f64, bf16, i64, i32, u8, boolean}) {
    for (const Shape& shape : {Shape{1}, Shape{0}, Shape{3, 0}, Shape{63}, Shape{65}, Shape{3, 17},
                               Shape{2, 1024}, Shape{2, 1025}, Shape{5000}})
      compare_sort(mul(noise(shape, ++stream), 30).to(i32).to(t));  // with ties
    const Tensor x = mul(noise({30, 40}, ++stream), 30).to(i32).to(t);
    compare_sort(x.transpose(0, 1));
    compare_sort(x.slice(1, 3, 40, 2));
  }
  for (const DType t : floating) {
    compare_sort(noise({3, 3001}, ++stream, t));
    Tensor x = noise({2, 1500}, ++stream, t);
    x.slice(1, 5, 1500, 7).fill_(std::nan(""));
    x.slice(1, 6, 1500, 7).fill_(-0.0);
    x.slice(1, 2, 1500, 7).fill_(0.0);
    x.slice(1, 3, 1500, 70).fill_(inf);
    x.slice(1, 4, 1500, 70).fill_(-inf);
    compare_sort(x);
  }
}

TEST_CASE("searchsorted agrees with the CPU", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : {f32, f64, bf16, i64, i32, u8})
    for (const int64_t n : {0, 1, 2, 700}) {
      Tensor row = mul(noise({n}, 30), 5).to(i32).to(t), values = mul(noise({9, 70}, 31), 5).to(t);
      if (is_floating(t)) {  // NaN, two zeros and infinities
        values[0].fill_(std::nan(""));
        values[1].fill_(-0.0);
        values[2].fill_(-inf);
        if (n > 2) row.slice(0, 0, 5).fill_(std::nan(""));
      }
      row = sort(row).values;
      for (const bool right : {false, true}) {
        CAPTURE(name(t), n, right);
        check_equal(searchsorted(row, values, right),
                    searchsorted(on_gpu(row), on_gpu(values), right));
        check_equal(searchsorted(row, values.t(), right),
                    searchsorted(on_gpu(row), on_gpu(values).t(), right));
      }
    }
}

TEST_CASE("index_select and its gradient agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  uint64_t stream = 100;
  struct Sizes {
    Shape shape;
    int64_t d, n;
  };
  for (const Sizes& s : std::vector<Sizes>{{{7, 3}, 0, 5},
                                           {{300, 64}, 0, 2000},
                                           {{5, 33}, 0, 3000},     // many gradients per slice
                                           {{5, 300}, 0, 600},     // also with long rows
                                           {{9000, 70}, 0, 300},   // a strip of 96 columns
                                           {{5000, 128}, 0, 300},  // two strips of 64
                                           {{2, 9, 16}, 1, 700},
                                           {{1, 8}, 0, 1025},
                                           {{4, 6, 3}, 2, 11},
                                           {{3, 0}, 0, 4},
                                           {{3, 4}, 0, 0}}) {
    const Tensor ids = random_ids({s.n}, s.shape[s.d], ++stream);
    const Tensor whole = mul(noise(s.shape, ++stream), 9).to(i64);
    for (const DType t : {i64, boolean})
      check_equal(index_select(whole.to(t), s.d, ids),
                  index_select(whole.to(t).to(gpu), s.d, ids.to(gpu)));
    for (const DType t : floating) {
      CAPTURE(str(s.shape), s.d, s.n, name(t));
      const Tensor x = noise(s.shape, ++stream, t);
      const auto run = [&](Device device) {
        const Tensor leaf = x.to(device).detach().set_requires_grad();
        const Tensor y = index_select(leaf, s.d, ids.to(device));
        const Tensor g = noise(y.shape(), stream + 1, t).to(device);
        return std::pair(y.detach(), grad({y}, {leaf}, {g})[0]);
      };
      const auto expected = run(cpu), got = run(gpu);
      check_equal(expected.first, got.first);
      // f64 sums in another order, then rounded: at most to a neighboring value.
      const auto e = expected.second.to_vector<double>();
      check_close(expected.second, got.second, [&](size_t i) {
        return 2 * unit(t) * std::abs(e[i]) + double(s.n) * 16 * unit(f64);
      });
      CHECK(same_values(got.second, run(gpu).second));
    }
  }
}

TEST_CASE("gather and scatter_add are bit-identical on GPU and CPU", "[cuda]") {
  NEEDS_GPU();
  uint64_t stream = 200;
  struct Sizes {
    Shape shape, index;
    int64_t d;
  };
  for (const Sizes& s : std::vector<Sizes>{{{5, 6}, {3, 4}, 0},
                                           {{5, 6}, {5, 100}, 1},
                                           {{40, 3}, {1000, 3}, 0},  // sorted columns
                                           {{3, 7}, {2, 900}, 1},
                                           {{2, 5, 9}, {2, 400, 9}, 1},
                                           {{4, 4}, {0, 4}, 0},
                                           {{700, 2}, {1, 2}, 0}}) {
    const Tensor index = random_ids(s.index, s.shape[s.d], ++stream);
    for (const DType t : {f32, f64, bf16, i64, i32, u8}) {
      CAPTURE(str(s.shape), str(s.index), s.d, name(t));
      const Tensor x = mul(noise(s.shape, ++stream), 40).to(t),
                   source = mul(noise(s.index, ++stream), 40).to(t);
      check_equal(gather(x, s.d, index), gather(x.to(gpu), s.d, index.to(gpu)));
      check_equal(scatter_add(x, s.d, index, source),
                  scatter_add(x.to(gpu), s.d, index.to(gpu), source.to(gpu)));
    }
  }
  const Tensor x = noise({6, 8}, ++stream), index = random_ids({8, 6}, 6, ++stream);
  check_equal(gather(x.transpose(0, 1), 1, index),
              gather(on_gpu(x).transpose(0, 1), 1, on_gpu(index)));
  check_equal(gather(x, 0, index.slice(0, 0, 6).transpose(0, 1)),
              gather(on_gpu(x), 0, on_gpu(index).slice(0, 0, 6).transpose(0, 1)));
}

TEST_CASE("an index out of range gives the same error on GPU and CPU", "[cuda]") {
  NEEDS_GPU();
  const auto text = [](auto f) {
    try {
      f();
      synchronize(gpu);  // the GPU reports it here
    } catch (const Error& error) {
      std::string message = error.what();
      for (size_t at; (at = message.find(" on cuda:0")) != std::string::npos;)
        message.erase(at, 10);
      return message;
    }
    return std::string("nothing");
  };
  Tensor ids = random_ids({2, 5000}, 10, 300);
  ids[1].slice(0, 4321, 4322).fill_(10);
  const Tensor x = noise({10, 4}, 301);
  const std::string expected = text([&] { embedding(x, ids); });
  CHECK(expected.find("[embedding] index 10 at position [1, 4321]") == 0);
  CHECK(text([&] { embedding(x.to(gpu), ids.to(gpu)); }) == expected);
  CHECK(text([&] { index_select(x.to(gpu), 0, ids[1].to(gpu)); }) ==
        text([&] { index_select(x, 0, ids[1]); }));
  const Tensor logits = noise({5000, 10}, 302);
  CHECK(text([&] { cross_entropy(logits.to(gpu), ids[1].to(gpu)); }) ==
        text([&] { cross_entropy(logits, ids[1]); }));
}

TEST_CASE("cross_entropy of many classes and rows agrees with the CPU", "[cuda]") {
  NEEDS_GPU();
  uint64_t stream = 400;
  for (const Shape& shape :
       {Shape{3, 5}, Shape{40, 1000}, Shape{3, 1001}, Shape{2, 20000}, Shape{700, 12}}) {
    const Tensor ids = random_ids({shape[0]}, shape[1], ++stream);
    for (const DType t : floating) {
      for (const double epsilon : {0.0, 0.1}) {
        for (const Reduction reduction : {Reduction::mean, Reduction::none}) {
          CAPTURE(str(shape), name(t), epsilon, int(reduction));
          const CrossEntropyOptions options{
              .ignore_index = 2, .label_smoothing = epsilon, .reduction = reduction};
          const Tensor x = mul(noise(shape, ++stream), 3).to(t);
          const auto run = [&](Device device, DType type) {
            const Tensor leaf = x.to(type).to(device).detach().set_requires_grad();
            const Tensor y = cross_entropy(leaf, ids.to(device), options);
            const Tensor g = ones(y.shape(), options_of(y));
            return std::pair(y.detach(), grad({y}, {leaf}, {g})[0]);
          };
          const auto exact = run(cpu, f64), got = run(gpu, t);
          // Exponents are below 40; each sum has a thread's part and a tree over threads. Errors
          // are relative to 1 plus the loss; for gradients, to probabilities of at most 1.
          const double u = unit(t == f64 ? f64 : f32) * (t == f64 ? 4 : 1);
          const double depth = 40 + double(shape[1]) / 32 + 64;
          const auto e = exact.first.to_vector<double>();
          check_close(exact.first, got.first, [&](size_t i) {
            return (1 + std::abs(e[i])) * depth * 4 * u +
                   (t == bf16 ? std::abs(e[i]) * 1.01 * unit(bf16) : 0);
          });
          const auto s = exact.second.to_vector<double>();
          check_close(exact.second, got.second, [&](size_t i) {
            return depth * 4 * u + (t == bf16 ? std::abs(s[i]) * 1.01 * unit(bf16) : 0);
          });
          CHECK(same_values(got.second, run(gpu, t).second));
        }
      }
    }
  }
  const Tensor none = full({3}, 1, {.dtype = i64, .device = gpu});
  // A NaN or an infinity among the logits makes only its row NaN, as on the CPU.
  for (const int64_t width : {5, 40, 3000, 3001})
    for (const DType t : floating)
      for (const double bad : {std::nan(""), inf}) {
        CAPTURE(width, name(t), bad);
        const Tensor x = noise({6, width}, ++stream, t);
        x.select(0, 1).slice(0, 0, 1).fill_(bad);              // not the target
        x.select(0, 3).slice(0, width - 1, width).fill_(bad);  // the last one
        x.select(0, 4).slice(0, width / 2, width).fill_(bad);  // many
        const int64_t target = width / 3 + 1;
        const Tensor ids = full({6}, double(target), {.dtype = i64});
        const auto run = [&](Device device) {
          const Tensor leaf = x.to(device).detach().set_requires_grad();
          const Tensor y = cross_entropy(leaf, ids.to(device), {.reduction = Reduction::none});
          return std::pair(y.detach(), grad({y}, {leaf}, {ones(y.shape(), options_of(y))})[0]);
        };
        const auto expected = run(cpu), got = run(gpu);
        const auto loss = got.first.to_vector<double>(), slopes = got.second.to_vector<double>();
        for (int64_t row = 0; row < 6; ++row) {
          CAPTURE(row);
          const bool is_bad = row == 1 || row == 3 || row == 4;
          CHECK(std::isnan(loss[size_t(row)]) == is_bad);
          for (int64_t i = 0; i < width; ++i)
            if (std::isnan(slopes[size_t(row * width + i)]) != is_bad) FAIL("element " << i);
        }
        CHECK(std::isnan(expected.first.to_vector<double>()[1]));
      }
  CHECK(cross_entropy(ones({3, 4}, {.device = gpu}), none, {.ignore_index = 1}).item() == 0);
}
