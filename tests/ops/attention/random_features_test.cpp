// Both implementations of random features against loops over the formulas, and against each other.
#include "ops/attention/random_features.h"

#include <cmath>
#include <limits>

#include "autograd/tape.h"
#include "core/cpu.h"
#include "core/parallel.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "tests/reference/random_features.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gpu.h"
#include "tests/support/gradcheck.h"
#include "tests/support/implementations.h"

using namespace stretto;
using testing::fixed_noise;
using testing::same_bits;
using testing::worst_error;

namespace {

using Kind = RandomFeatureKind;
using Stabilizer = FeatureStabilizer;

bool on_gpu() { return default_device().is_cuda(); }

// Returns the implementations for these options: a GPU fuses only two kinds in f32 and bf16, and
// only some sizes.
std::vector<Implementation> implementations_of(const RandomFeatureOptions& o, DType dtype,
                                               bool fits = true) {
  const bool fused = !on_gpu() || (fits && dtype != f64 &&
                                   (o.kind == Kind::positive || o.kind == Kind::hyperbolic));
  return fused ? std::vector{Implementation::composed, Implementation::fused}
               : std::vector{Implementation::composed};
}
constexpr Kind kinds[] = {Kind::positive, Kind::hyperbolic, Kind::trigonometric, Kind::generalized};
constexpr Stabilizer stabilizers[] = {Stabilizer::none, Stabilizer::own_max, Stabilizer::bound};

template <class F>
void for_each_function(F&& f) {
  for (const Kind kind : kinds)
    for (const Stabilizer stabilizer : stabilizers) {
      const RandomFeatureOptions o{.kind = kind, .stabilizer = stabilizer};
      INFO("kind " << int(kind) << ", stabilizer " << int(stabilizer));
      f(o);
    }
}

RandomFeatureOptions with(RandomFeatureOptions o, Implementation implementation) {
  o.implementation = implementation;
  return o;
}

struct Size {
  int64_t batch, heads, length, d, rows;
  bool fits(DType dtype) const {
    return d % (16 / item_size(dtype)) + rows % 4 == 0 && rows <= 256;
  }
};
constexpr Size sizes[] = {{2, 3, 5, 6, 7},   {1, 1, 1, 1, 1},    {2, 3, 1, 5, 4},
                          {1, 2, 300, 4, 3}, {1, 1, 41, 41, 41}, {1, 1, 33, 64, 300},
                          {3, 1, 17, 8, 16}, {2, 2, 70, 40, 72}};

Tensor noise_of(const Size& s) { return fixed_noise({s.batch, s.heads, s.length, s.d}, 1) * 2; }
Tensor projection_of(const Size& s) { return fixed_noise({s.rows, s.d}, 2) * 2; }

// Returns the features of the reference, each row divided by its stabilizer. The threshold of
// `bound` depends on the dtype.
Tensor by_loops(const Tensor& x, const Tensor& projection, const RandomFeatureOptions& o,
                DType dtype) {
  const int64_t d = x.size(3), rows = projection.size(0);
  if (o.kind == Kind::generalized) {
    const std::vector<double> from = x.to_vector<double>(), w = projection.to_vector<double>();
    std::vector<double> y;
    for (int64_t row = 0; row < x.numel() / d; ++row)
      for (int64_t r = 0; r < rows; ++r) {
        double u = 0;
        for (int64_t i = 0; i < d; ++i) u += w[size_t(r * d + i)] * from[size_t(row * d + i)];
        y.push_back(std::max(0.0, u / std::pow(double(d), 0.25)) + o.epsilon);
      }
    return tensor(y, {x.size(0), x.size(1), x.size(2), rows});
  }
  const Tensor plain = o.kind == Kind::positive ? reference::positive_features(x, projection)
                       : o.kind == Kind::hyperbolic
                           ? reference::hyperbolic_features(x, projection)
                           : reference::trigonometric_features(x, projection);
  if (o.stabilizer == Stabilizer::none) return plain;
  const bool waves = o.kind == Kind::trigonometric;
  if (waves && o.stabilizer == Stabilizer::bound) return plain;
  std::vector<double> y = plain.to_vector<double>();
  const auto features = size_t(plain.size(3));
  const std::vector<double> from = x.to_vector<double>(), w = projection.to_vector<double>();
  for (size_t at = 0; at < y.size(); at += features) {
    double divisor = 0;
    if (o.stabilizer == Stabilizer::bound) {
      for (int64_t r = 0; r < rows; ++r) {
        double squares = 0;
        for (int64_t i = 0; i < d; ++i) squares += std::pow(w[size_t(r * d + i)], 2);
        divisor = std::max(divisor, squares / 2);
      }
      divisor = std::exp(std::max(0.0, divisor - (dtype == f64 ? 600 : 60)));
    } else if (waves) {
      for (int64_t i = 0; i < d; ++i)
        divisor += std::pow(from[at / features * size_t(d) + size_t(i)], 2) / std::sqrt(double(d));
      divisor = std::exp(divisor / 2);
    } else {
      for (size_t f = 0; f < features; ++f) divisor = std::max(divisor, y[at + f]);
      divisor *= std::sqrt(double(features));
    }
    for (size_t f = 0; f < features; ++f) y[at + f] /= divisor;
  }
  return tensor(y, plain.shape());
}

// Returns the relative error of a feature, or of the radius for trigonometric features, which is at
// most √2 times the larger of two. Exponents are sums of D products, half a square and a few
// constants, each rounded, and so is the exponential. The bound holds for generalized features too.
double rounding(const Tensor& x, const Tensor& projection, DType dtype) {
  const double unit = dtype == f64 ? 0x1p-53 : 0x1p-24, root = std::sqrt(double(x.size(3)));
  const double products =
      max(matmul(abs(x), abs(projection).transpose(0, 1))).item() / std::sqrt(root);
  const double half = max(sum(square(x), {3})).item() / root / 2;
  const double bound = max(sum(square(projection), {1})).item() / 2;
  return 2 * unit * (double(x.size(3) + 6) * (products + half) + 2 * bound + 10);
}

Tensor gradient(const Tensor& x, const Tensor& projection, const RandomFeatureOptions& o,
                const Tensor& g) {
  const Tensor leaf = x.detach().set_requires_grad();
  return grad({random_features(leaf, projection, o)}, {leaf}, {g})[0];
}

}  // namespace

TEST_CASE("random_features agrees with the reference") {
  for (const Size& s : sizes) {
    for_each_function([&](const RandomFeatureOptions& o) {
      const Tensor x = noise_of(s), projection = projection_of(s);
      for (const DType dtype : {f64, f32})
        for (const Implementation implementation : implementations_of(o, dtype, s.fits(dtype))) {
          INFO("implementation " << int(implementation) << ", L " << s.length << ", D " << s.d
                                 << ", W " << s.rows);
          // Inputs rounded to the dtype.
          const Tensor a = x.to(dtype), w = projection.to(dtype);
          const Tensor want = by_loops(a.to(f64), w.to(f64), o, dtype);
          const Tensor got = random_features(a, w, with(o, implementation));
          CHECK(got.dtype() == dtype);
          const double allowed = rounding(a.to(f64), w.to(f64), dtype);
          CHECK(worst_error(got, want) <= (dtype == f64 ? std::max(1e-12, allowed) : allowed));
        }
    });
  }
}

TEST_CASE("random_features: both implementations have the same gradients") {
  for (const Size& s : sizes) {
    for_each_function([&](const RandomFeatureOptions& o) {
      const Tensor x = noise_of(s), projection = projection_of(s);
      const Tensor y = random_features(x, projection, o), g = fixed_noise(y.shape(), 3);
      const Tensor want = gradient(x, projection, with(o, Implementation::composed), g);
      if (!on_gpu())
        CHECK(worst_error(gradient(x, projection, with(o, Implementation::fused), g), want) <
              1e-12);

      // In f32: in Σ_w du_w ω_w and dless x', each p = g·y has the error of a feature, plus the
      // rounding of the sums. Slopes of generalized features jump where u is 0.
      if (o.kind == Kind::generalized) return;
      const Tensor a = x.to(f32), w = projection.to(f32), slope = g.to(f32);
      const Tensor exact =
          gradient(a.to(f64), w.to(f64), with(o, Implementation::composed), slope.to(f64));
      const double quarter = std::pow(double(s.d), -0.25);
      const double magnitude = max(sum(abs(y), {3})).item() * quarter *
                               (2 * max(abs(projection)).item() + quarter * max(abs(x)).item());
      const double relative =
          rounding(a.to(f64), w.to(f64), f32) + 0x1p-24 * double(y.size(3) + s.rows + s.d + 8);
      const double largest = std::max(1.0, max(abs(exact)).item());
      for (const Implementation implementation : implementations_of(o, f32, s.fits(f32)))
        CHECK(worst_error(gradient(a, w, with(o, implementation), slope), exact) * largest <=
              2 * relative * magnitude);
    });
  }
}

TEST_CASE("random_features: gradients equal finite differences") {
  for_each_function([&](const RandomFeatureOptions& o) {
    for (const Implementation implementation : implementations_of(o, f64)) {
      INFO("implementation " << int(implementation));
      const Tensor projection = fixed_noise({3, 2}, 2) * 2;
      testing::check_gradients(
          [&](const Tensors& in) {
            return random_features(in[0], projection, with(o, implementation));
          },
          {testing::fixed_leaf({1, 2, 3, 2}, 1)}, implementation == Implementation::composed);
    }
    // `bound` is a constant of the projection, here 1.
    testing::check_gradients([&](const Tensors& in) { return random_features(in[0], in[1], o); },
                             {testing::fixed_leaf({1, 1, 3, 2}, 1), testing::fixed_leaf({3, 2}, 2)},
                             false);
  });
}

TEST_CASE("random_features: among equal largest features the first gets the gradient") {
  const RandomFeatureOptions options[] = {
      {.kind = Kind::positive, .stabilizer = Stabilizer::own_max},
      {.kind = Kind::hyperbolic, .stabilizer = Stabilizer::own_max}};
  // u is the same along two axes, or the opposite; at 0 all features are equal.
  const Tensor x = tensor<double>({1, 1, 1, -1, -1, 1, -1, -1, 0, 0}, {1, 1, 5, 2});
  for (const Tensor& projection :
       {tensor<double>({0.5, 0, 1, 0, 0, 1}, {3, 2}), tensor<double>({0, 1, 1, 0, -1, 0}, {3, 2}),
        tensor<double>({0, -1, 1, 0}, {2, 2})})
    for (const RandomFeatureOptions& o : options)
      for (const DType dtype : {f64, f32}) {
        if (on_gpu() && dtype == f64) continue;
        // Padded to 4 features and rows, as a GPU requires, with zeros and rows that
        // are not the largest.
        const Tensor low = full({4 - projection.size(0), 2}, -0.1, {.dtype = f64});
        const Tensor a = pad(x, 3, 0, 2).to(dtype),
                     w = pad(cat({projection, low}, 0), 1, 0, 2).to(dtype);
        const Tensor g = fixed_noise(random_features(a, w, o).shape(), 3, dtype);
        const Tensor want = gradient(a, w, with(o, Implementation::composed), g);
        CHECK(worst_error(gradient(a, w, with(o, Implementation::fused), g), want) <
              (dtype == f64 ? 1e-15 : 1e-6));
      }
}

TEST_CASE("random_features: at 0 the first of all features gets the gradient") {
  // With y = 1/√F everywhere, du_w = (g_w − g_{W+w}) y, and the largest, u_0, gives −Σ g y.
  const Tensor w = tensor<double>({0.5, 1, -1, 2, 1, 1, 0, 3, 2, 0, 1, 1, -1, 0, 0, 1}, {4, 4});
  for (const auto& [implementation, dtype] : {std::pair{Implementation::composed, f64},
                                              {Implementation::fused, f64},
                                              {Implementation::composed, f32},
                                              {Implementation::fused, f32}}) {
    if (on_gpu() && implementation == Implementation::fused && dtype == f64) continue;
    const RandomFeatureOptions o{.kind = Kind::hyperbolic,
                                 .stabilizer = Stabilizer::own_max,
                                 .implementation = implementation};
    const Tensor x = zeros({1, 1, 1, 4}, {.dtype = dtype}), g = fixed_noise({1, 1, 1, 8}, 3, dtype);
    const double y = 1 / std::sqrt(8.0);
    Tensor du = (g.slice(3, 0, 4) - g.slice(3, 4, 8)).to(f64) * y;
    du = cat({du.slice(3, 0, 1) - sum(g.to(f64)) * y, du.slice(3, 1, 4)}, 3);
    const Tensor want = matmul(du.reshape({1, 4}), w) / std::sqrt(2.0);
    CHECK(worst_error(gradient(x, w.to(dtype), o, g).reshape({1, 4}), want) <
          (dtype == f64 ? 1e-15 : 1e-6));
  }
}

TEST_CASE("random_features: large inputs stay finite with their stabilizer") {
  for (const Kind kind : {Kind::positive, Kind::hyperbolic})
    for (const Stabilizer stabilizer : {Stabilizer::own_max, Stabilizer::bound})
      for (const DType dtype : {f64, f32})
        for (const Implementation implementation : implementations_of({.kind = kind}, dtype))
          for (const double size : {1e-30, 100.0, 1e4, 1e15}) {
            const RandomFeatureOptions o{
                .kind = kind, .stabilizer = stabilizer, .implementation = implementation};
            const Tensor x = fixed_noise({1, 2, 9, 32}, 1, dtype) * size;
            const Tensor w = fixed_noise({20, 32}, 2, dtype) * 5;
            const Tensor y = random_features(x, w, o);
            CHECK(std::isfinite(max(y).item()));
            CHECK(
                std::isfinite(max(abs(gradient(x, w, o, ones(y.shape(), options_of(y))))).item()));
            if (stabilizer == Stabilizer::bound) continue;
            const Tensor largest = max(y, 3) * std::sqrt(double(y.size(3)));
            CHECK(worst_error(largest, ones(largest.shape())) < 1e-5);
          }
}

TEST_CASE("random_features: a NaN stays in its row") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for_each_function([&](const RandomFeatureOptions& o) {
    for (const Implementation implementation : implementations_of(o, f32))
      for (const double bad : {nan, -nan, std::numeric_limits<double>::infinity()}) {
        const Tensor x = fixed_noise({2, 2, 37, 8}, 1, f32), w = fixed_noise({8, 8}, 2, f32);
        const Tensor changed = x.clone();
        changed[0][1][7][2].fill_(bad);
        const Tensor y = random_features(x, w, with(o, implementation));
        const Tensor z = random_features(changed, w, with(o, implementation));
        const Tensor g = fixed_noise(y.shape(), 3, f32);
        const Tensor dx = gradient(x, w, with(o, implementation), g);
        const Tensor dz = gradient(changed, w, with(o, implementation), g);
        for (const auto& [a, b] : {std::pair{y, z}, std::pair{dx, dz}})
          for (int64_t i = 0; i < 37; ++i) {
            CHECK(same_bits(a[0][1][i], b[0][1][i]) == (i != 7));
            CHECK(same_bits(a[0][0], b[0][0]));
            CHECK(same_bits(a[1], b[1]));
          }
        if (!std::isnan(bad)) continue;
        for (const double value : z[0][1][7].to_vector<double>()) CHECK(std::isnan(value));
        for (const double value : dz[0][1][7].to_vector<double>()) CHECK(std::isnan(value));
      }
  });
}

TEST_CASE("random_features: views give the same results as contiguous tensors") {
  for_each_function([&](const RandomFeatureOptions& options) {
    const DType dtype = on_gpu() ? f32 : f64;
    const RandomFeatureOptions o = with(options, implementations_of(options, dtype).back());
    const int64_t d = on_gpu() ? 8 : 5;
    const Tensor w = fixed_noise({8, d}, 2, dtype);
    for (const int64_t length : {1, 19}) {
      const Tensor x = fixed_noise({2, 3, length, d}, 1, dtype);
      const Tensor y = random_features(x, w, o), g = fixed_noise(y.shape(), 3, dtype);
      const Tensor dx = gradient(x, w, o, g);
      const Tensor inside = x.transpose(1, 2).contiguous().transpose(1, 2);
      for (const Tensor& view : {inside, testing::strided_copy(x)}) {
        CHECK(worst_error(random_features(view, w, o), y) < 1e-14);
        CHECK(worst_error(gradient(view, w, o, testing::strided_copy(g)), dx) < 1e-14);
      }
      // On a GPU the product with the projection is summed in another order for another layout.
      CHECK(worst_error(random_features(x, testing::strided_copy(w), o), y) <
            (on_gpu() ? 1e-6 : 1e-14));
      // Gradients of heads have the layout of the heads, so joining them again copies nothing.
      if (length > 1 && o.implementation == Implementation::fused)
        CHECK(gradient(inside, w, o, g).transpose(1, 2).is_contiguous());
      const Tensor repeated = x.slice(1, 0, 1).slice(2, 0, 1).expand(x.shape());
      CHECK(worst_error(random_features(repeated, w, o),
                        random_features(repeated.contiguous(), w, o)) < 1e-14);
    }
  });
}

TEST_CASE("random_features: empty inputs give empty features") {
  for_each_function([&](const RandomFeatureOptions& o) {
    for (const Implementation implementation : implementations_of(o, f64))
      for (const Shape& shape : {Shape{0, 2, 3, 5}, Shape{2, 0, 3, 5}, Shape{2, 2, 0, 5}}) {
        const Tensor x = zeros(shape, {.dtype = f64}), w = fixed_noise({6, 5}, 2);
        const Tensor y = random_features(x, w, with(o, implementation));
        const bool pairs = o.kind == Kind::hyperbolic || o.kind == Kind::trigonometric;
        CHECK(y.shape() == Shape{shape[0], shape[1], shape[2], pairs ? 12 : 6});
        CHECK(gradient(x, w, with(o, implementation), y).shape() == shape);
      }
  });
}

TEST_CASE("random_features: results are bit-identical for any number of threads and in every run") {
  const int threads = num_threads();
  for_each_function([&](const RandomFeatureOptions& o) {
    for (const Implementation implementation : implementations_of(o, f32)) {
      std::vector<Tensors> runs;
      const int64_t length = on_gpu() ? 70 : 700;
      for (const int n : {1, 2, 2}) {
        set_num_threads(n);
        const Tensor x = fixed_noise({2, 3, length, 44}, 1, f32), w = fixed_noise({32, 44}, 2, f32);
        const Tensor y = random_features(x, w, with(o, implementation));
        runs.push_back({y, gradient(x, w, with(o, implementation), y)});
      }
      for (size_t i = 0; i < 2; ++i) {
        CHECK(same_bits(runs[0][i], runs[1][i]));
        CHECK(same_bits(runs[1][i], runs[2][i]));
      }
    }
  });
  set_num_threads(threads);
}

TEST_CASE("random_features: bf16 is computed in f32, and projections are converted") {
  for_each_function([&](const RandomFeatureOptions& o) {
    for (const Implementation implementation : implementations_of(o, bf16)) {
      const Tensor x = fixed_noise({1, 2, 5, 8}, 1, bf16), w = fixed_noise({8, 8}, 2);
      const Tensor y = random_features(x, w, with(o, implementation));
      CHECK(y.dtype() == bf16);
      CHECK(same_bits(y, random_features(x.to(f32), w.to(f32), with(o, implementation)).to(bf16)));
      const Tensor dx = gradient(x, w, with(o, implementation), y);
      CHECK(dx.dtype() == bf16);
      if (implementation == Implementation::fused) continue;
      CHECK(same_bits(dx,
                      gradient(x.to(f32), w.to(f32), with(o, implementation), y.to(f32)).to(bf16)));
    }
  });
}

// Features: in u the projection is two bf16 terms, off by 2^-16 of the sum of magnitudes, in the
// exponent or next to amplitudes; then they are rounded by 2^-8. Gradients: y, du as an operand,
// and the result are rounded.
TEST_CASE("random_features: bf16 errors stay within those of its roundings") {
  for_each_function([&](const RandomFeatureOptions& o) {
    if (implementations_of(o, bf16).size() == 1) return;
    for (const Isa most : {Isa::portable, Isa::avx512, Isa::emulated}) {
      if (on_gpu() && most != Isa::portable) continue;
      const IsaCap cap(most);
      for (const int64_t length : {7, 40}) {
        const Tensor x = fixed_noise({1, 2, length, 16}, 1, bf16), w = fixed_noise({16, 16}, 2);
        const Tensor y = random_features(x, w, with(o, Implementation::fused)).to(f64);
        const Tensor wide = x.to(f64),
                     exact = random_features(wide, w, with(o, Implementation::composed));
        const bool pairs = o.kind == Kind::hyperbolic || o.kind == Kind::trigonometric;
        const double scale = 0.5, one = 0x1p-8;  // 16^(−1/4)
        const Tensor in_u = max(matmul(abs(wide), abs(w).transpose(0, 1)), 3, true) * scale;
        Tensor size = abs(exact);
        if (o.kind == Kind::generalized) size = size + 1.0;
        if (o.kind == Kind::trigonometric) {
          const Tensor one_half = sqrt(square(exact.slice(3, 0, 16)) + square(exact.slice(3, 16)));
          size = cat({one_half, one_half}, 3);
        }
        const Tensor bound = size * (in_u + 1.0) * 0x1p-14 + abs(exact) * one;
        CHECK(max(abs(y - exact) / bound).item() <= 1);

        const Tensor g = fixed_noise(y.shape(), 3, bf16);
        const Tensor dx = gradient(x, w, with(o, Implementation::fused), g).to(f64);
        const Tensor want = gradient(wide, w, with(o, Implementation::composed), g.to(f64));
        Tensor p = abs(g.to(f64)) * size;
        const Tensor total = sum(p, {3}, true);
        if (pairs) p = p.slice(3, 0, 16) + p.slice(3, 16);
        if (o.kind == Kind::trigonometric) p = total.expand(p.shape());  // both factors of both
        const Tensor of_u = matmul(p, abs(w)) * scale;
        const Tensor of_less = total * (abs(wide) * (scale * scale) + max(abs(w)).item() * scale);
        const Tensor most_off = (of_u * 2.0 + of_less + abs(want)) * one * 1.02;
        CHECK(max(abs(dx - want) / most_off).item() <= 1);
      }
    }
  });
}

TEST_CASE("random_features: the fused implementation saves its features and little else") {
  const int threads = num_threads();
  set_num_threads(2);
  for_each_function([&](const RandomFeatureOptions& o) {
    if (implementations_of(o, f32).size() == 1) return;
    const Tensor x = fixed_noise({2, 4, 1024, 32}, 1, f32).set_requires_grad();
    const Tensor w = fixed_noise({32, 32}, 2, f32);
    const Tensor g = fixed_noise(random_features(x, w, o).shape(), 3, f32);
    const int64_t in = x.numel() * 4, out = g.numel() * 4, rows = x.numel() / 32 * 4;
    // Tiles of both threads, and the sums over the projection.
    const int64_t little = 2 * (256 * 33 * 4) + 64 * 1024;
    const int64_t before = on_gpu() ? testing::gpu_bytes() : memory_stats().live;
    reset_peak_memory();
    const Tensor y = random_features(x, w, with(o, Implementation::fused));
    CHECK(memory_stats().peak - before <= out + rows + little);
    CHECK(memory_stats().live - before <= out + rows + 1024);
    const Tensor dx = grad({y}, {x}, {g})[0];
    CHECK(memory_stats().peak - before <= out + rows + in + little);
  });
  set_num_threads(threads);
}

TEST_CASE("random_features: errors, and the choice of `automatic`") {
  const Tensor x = fixed_noise({1, 2, 3, 4}, 1), w = fixed_noise({5, 4}, 2);
  CHECK_THROWS_WITH(random_features(x[0], w),
                    "[random_features] x f64 [2, 3, 4], projection f64 [5, 4]; accepted: "
                    "floating-point x [B, H, L, D] and projection [W, D], W and D at least 1");
  CHECK_THROWS_WITH(random_features(x, fixed_noise({5, 3}, 2)),
                    Containing("x f64 [1, 2, 3, 4], projection f64 [5, 3]; accepted: "));
  CHECK_THROWS_WITH(random_features(x, w.slice(0, 0, 0)), Containing("projection f64 [0, 4]; acc"));
  CHECK_THROWS_WITH(random_features(x.slice(3, 0, 0), w.slice(1, 0, 0)),
                    Containing("x f64 [1, 2, 3, 0], projection f64 [5, 0]; accepted"));
  CHECK_THROWS_WITH(random_features(x.to(i64), w), Containing("x i64 [1, 2, 3, 4]"));
  CHECK_THROWS_WITH(random_features(x, w.to(i64)), Containing("projection i64 [5, 4]"));
  CHECK_THROWS_WITH(random_features(x, w, {.epsilon = -1}),
                    "[random_features] epsilon -1; must be 0 or more");
  CHECK_THROWS_WITH(random_features(x, w, {.epsilon = std::nan("")}),
                    Containing("must be 0 or more"));

  const Tensor learned = w.clone().set_requires_grad();
  CHECK_THROWS_WITH(random_features(x, learned, {.implementation = Implementation::fused}),
                    "[random_features] the fused implementation has no gradient for the "
                    "projection, which requires one; use Implementation::composed");
  const Tensor composed = random_features(x, w, {.implementation = Implementation::composed});
  if (on_gpu()) return;  // where f64 is composed
  const Tensor fused = random_features(x, w, {.implementation = Implementation::fused});
  CHECK(same_bits(random_features(x, w), fused));
  CHECK(same_bits(random_features(x, learned), composed));
  const NoGrad guard;
  CHECK(same_bits(random_features(x, learned), fused));
}
