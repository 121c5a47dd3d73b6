// Products of groups of rows [ops/grouped_linear.h, cuda/grouped_linear.h] on CPU and GPU, against a
// linear layer per group in f64.
#include <algorithm>
#include <numeric>

#include "autograd/tape.h"
#include "nn/data/draws.h"
#include "ops/grouped_linear.h"
#include "tests/cuda/kernel_counts.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

namespace {

struct Case {
  std::vector<int64_t> sizes;  // of the groups
  int64_t in, out;
  DType dtype;
  bool biases = true, transposed = false;  // transposed: all operands lie in memory as columns
  int64_t begin = 0;                       // of the operands, in elements after an aligned address

  int64_t rows() const { return std::accumulate(sizes.begin(), sizes.end(), int64_t(0)); }
  int64_t groups() const { return int64_t(sizes.size()); }
};

Tensor offsets_of(const Case& c) {
  std::vector<int64_t> ends{0};
  for (const int64_t size : c.sizes) ends.push_back(ends.back() + size);
  return tensor(ends, {c.groups() + 1});
}

// x, the weights and the biases with the values of c.dtype.
Tensors leaves_of(const Case& c, DType type, Device device) {
  uint64_t stream = 2000;
  const auto leaf = [&](Shape shape) {
    Tensor x = noise(shape, ++stream, c.dtype).to(type);
    if (c.transposed && shape.dim() == 2) x = x.t().contiguous().t();
    if (device.is_cuda())
      x = c.begin > 0 ? begins_at(c.begin, x) : x.numel() > 0 ? on_gpu(x) : x.to(gpu);
    return x.detach().set_requires_grad();
  };
  Tensors all{leaf({c.rows(), c.in})};
  for (int64_t e = 0; e < c.groups(); ++e) all.push_back(leaf({c.out, c.in}));
  for (int64_t e = 0; e < c.groups() && c.biases; ++e) all.push_back(leaf({c.out}));
  return all;
}

Tensors with_gradients(const Case& c, const Tensors& leaves, const Tensor& y) {
  const Tensor g = noise({c.rows(), c.out}, 1999, c.dtype).to(y.dtype()).to(y.device());
  Tensors all = grad({y}, leaves, {g});
  all.push_back(y.detach());
  return all;
}

// The result and all gradients.
Tensors results(const Case& c, Device device) {
  const Tensors leaves = leaves_of(c, c.dtype, device);
  const auto first = leaves.begin() + 1, bias = first + c.groups();
  const Tensor y =
      grouped_linear(leaves[0], {first, bias}, {bias, leaves.end()}, offsets_of(c).to(device));
  return with_gradients(c, leaves, y);
}

Tensors expected(const Case& c) {
  const Tensors leaves = leaves_of(c, f64, cpu);
  Tensors parts = split(leaves[0], c.sizes);
  for (size_t e = 0; e < parts.size(); ++e)
    parts[e] = linear(parts[e], leaves[1 + e], c.biases ? leaves[1 + parts.size() + e] : Tensor());
  return with_gradients(c, leaves, cat(parts, 0));
}

void check_case(const Case& c, Device device) {
  const Tensors want = expected(c), got = results(c, device), again = results(c, device);
  // One rounding, and sums of at most `depth` products of normally distributed factors.
  const double depth = double(std::max({c.rows(), c.in, c.out})),
               sums = 2 * depth * depth * unit(compute_type(c.dtype));
  for (size_t i = 0; i < want.size(); ++i) {
    CAPTURE(c.sizes, c.in, c.out, name(c.dtype), c.biases, c.transposed, device, i);
    REQUIRE(got[i].dtype() == c.dtype);
    REQUIRE(got[i].shape() == want[i].shape());
    const std::vector<double> a = got[i].to_vector<double>(), b = want[i].to_vector<double>();
    double worst = 0;
    for (size_t k = 0; k < a.size(); ++k) {
      const double error = std::abs(a[k] - b[k]) / (1.01 * unit(c.dtype) * std::abs(b[k]) + sums);
      worst = error <= worst ? worst : error;  // NaN is the worst
    }
    CHECK(worst <= 1);
    CHECK(same_values(got[i], again[i]));
  }
}

std::vector<Device> devices() {
  return cuda_available() ? std::vector<Device>{cpu, gpu} : std::vector<Device>{cpu};
}

}  // namespace

TEST_CASE("grouped products agree with a linear layer per group, for random options", "[cuda]") {
  nn::Draws draws(7, 0);
  const auto one_of = [&](std::vector<int64_t> all) {
    return all[size_t(draws.below(int64_t(all.size())))];
  };
  for (int round = 0; round < 36; ++round) {
    Case c{.in = one_of({1, 3, 8, 24, 64, 72, 136, 200}),
           .out = one_of({1, 5, 8, 16, 40, 64, 128, 144}),
           .dtype = floating[size_t(round % 3)],
           .biases = draws.below(3) > 0,
           .transposed = draws.below(3) == 0};
    for (int64_t e = one_of({1, 2, 3, 7}); e > 0; --e)
      c.sizes.push_back(one_of({0, 0, 1, 5, 16, 63, 64, 65, 130}));
    for (const Device& device : devices()) check_case(c, device);
  }
}

TEST_CASE("grouped products of bf16 on tensor cores", "[cuda]") {
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{
           {}, {0}, {1}, {128}, {300}, {0, 0, 257, 0}, {127, 1, 129}, {1, 1, 1, 1, 200, 0}})
    for (const auto& [in, out] : {std::pair<int64_t, int64_t>{8, 8}, {264, 136}, {64, 256}})
      if (!sizes.empty())
        for (const Device& device : devices()) check_case({sizes, in, out, bf16}, device);
}

TEST_CASE("grouped products of more groups than one launch has", "[cuda]") {
  for (const DType t : {f32, bf16})
    for (const int64_t groups : {128, 129, 300}) {
      Case c{.in = 8, .out = 16, .dtype = t};
      for (int64_t e = 0; e < groups; ++e) c.sizes.push_back(e % 5 == 0 ? 3 : e % 2);
      for (const Device& device : devices()) check_case(c, device);
    }
}

TEST_CASE("grouped products without rows, inputs or outputs", "[cuda]") {
  for (const DType t : floating)
    for (const Case& c : {Case{{0, 0}, 3, 2, t}, Case{{2, 0, 3}, 0, 4, t}, Case{{2, 3}, 3, 0, t}})
      for (const Device& device : devices()) check_case(c, device);
}

TEST_CASE("grouped products of bf16 operands at any address", "[cuda]") {
  NEEDS_GPU();
  for (const int64_t begin : {1, 4, 8}) {
    Case c{.sizes = {5, 70}, .in = 16, .out = 24, .dtype = bf16};
    c.begin = begin;
    check_case(c, gpu);
  }
}

TEST_CASE("only gradients that are needed are computed", "[cuda]") {
  const Case c{.sizes = {2, 3}, .in = 3, .out = 4, .dtype = f32};
  for (const Device& device : devices())
    for (const size_t needed : {0, 1, 2, 3, 4}) {
      Tensors leaves = leaves_of(c, f32, device);
      for (Tensor& x : leaves) x = x.detach();
      leaves[needed].set_requires_grad();
      const Tensor y = grouped_linear(leaves[0], {leaves[1], leaves[2]}, {leaves[3], leaves[4]},
                                      offsets_of(c).to(device));
      const Tensor g = noise({5, 4}, 1999).to(device);
      CHECK(same_values(grad({y}, {leaves[needed]}, {g})[0], results(c, device)[needed]));
    }
}

TEST_CASE("offsets of groups that are out of range are reported", "[cuda]") {
  NEEDS_GPU();
  const Tensor x = noise({5, 3}, 1).to(gpu), w = noise({2, 3}, 2).to(gpu);
  const auto product = [&](const std::vector<int64_t>& offsets) {
    Tensor y = grouped_linear(x, {w, w}, {}, tensor(offsets, {3}, gpu));
    synchronize(gpu);
    return y;
  };
  REQUIRE_THROWS_WITH(product({0, 6, 5}), Containing("[grouped_linear] index 6 at position [1]"));
  REQUIRE_THROWS_WITH(product({-1, 2, 5}), Containing("x has 5 rows"));
  product({5, 0, 3});  // within bounds
  check_close(linear(x.to(cpu), w.to(cpu)), product({0, 2, 5}), [](size_t) { return 1e-5; });
  if (has_counters()) {  // two for the check of the offsets, and one product
    const Tensor offsets = tensor<int64_t>({0, 2, 5}, {3}, gpu);
    CHECK(launches_of([&] { grouped_linear(x, {w, w}, {}, offsets); }).all == 3);
  }
}
