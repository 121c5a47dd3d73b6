#include "ops/create.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/tape.h"
#include "core/parallel.h"
#include "cuda/create.h"
#include "cuda/random.h"
#include "ops/on_device.h"

namespace stretto {
namespace {

// Returns a tensor filled on the CPU by fill(x), and then copied to its device.
template <class F>
Tensor made_on_host(const char* op, const Shape& shape, TensorOptions options, F fill) {
  check_sizes(op, shape);
  NoGrad guard;
  Tensor x = empty(shape, {.dtype = options.dtype, .device = cpu});
  fill(x);
  x = x.to(options.device);
  return options.requires_grad ? x.set_requires_grad() : x;
}

// The same, but on CUDA returns the tensor made(device), converted to its dtype.
template <class F, class G>
Tensor made_on_device(const char* op, const Shape& shape, TensorOptions options, F fill, G made) {
  if (options.device.is_cpu()) return made_on_host(op, shape, options, fill);
  check_sizes(op, shape);
  check_device(op, options.device);
  NoGrad guard;
  const Tensor x = made(options.device).to(options.dtype);
  return options.requires_grad ? x.set_requires_grad() : x;
}

Tensor filled(const char* op, const Shape& shape, double value, TensorOptions options) {
  check_sizes(op, shape);
  check_value(op, options.dtype, value);
  NoGrad guard;
  return empty(shape, options).fill_(value);
}

constexpr int64_t lanes = philox_lanes, batch = 4 * lanes;

// Writes samples begin … end − 1 of the key's sequence as f32; begin is a multiple of 4.
STRETTO_CLONES void uniform_run(float* y, RandomKey key, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i += batch) {
    PhiloxWords draws;
    philox_words(key, uint64_t(i) / 4, draws);
    float values[batch];
    for (int64_t l = 0; l < lanes; ++l)
      for (int64_t j = 0; j < 4; ++j) values[4 * l + j] = uniform_from_bits(uint32_t(draws[j][l]));
    std::copy_n(values, std::min(batch, end - i), y + (i - begin));
  }
}

STRETTO_CLONES void normal_run(float* y, RandomKey key, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i += batch) {
    PhiloxWords draws;
    philox_words(key, uint64_t(i) / 4, draws);
    float normal[4][lanes], values[batch];
    for (int64_t j = 0; j < 4; j += 2)
      for (int64_t l = 0; l < lanes; ++l)
        normals_from_bits(uint32_t(draws[j][l]), uint32_t(draws[j + 1][l]), normal[j][l],
                          normal[j + 1][l]);
    for (int64_t l = 0; l < lanes; ++l)
      for (int64_t j = 0; j < 4; ++j) values[4 * l + j] = normal[j][l];
    std::copy_n(values, std::min(batch, end - i), y + (i - begin));
  }
}

BFloat16 toward_zero(float value) {
  BFloat16 y;
  y.bits = uint16_t(std::bit_cast<uint32_t>(value) >> 16);
  return y;
}

using Run = void (*)(float*, RandomKey, int64_t, int64_t);

// Samples are f32 for every dtype. With below_one, bf16 is truncated rather than rounded, so that
// it never reaches 1.
void fill_random(const Tensor& x, RandomKey key, Run run, bool below_one) {
  parallel_for(x.numel(), 256 * batch, [&](int64_t begin, int64_t end) {
    if (x.dtype() == f32) return run(x.data<float>() + begin, key, begin, end);
    float values[batch];
    for (int64_t i = begin; i < end; i += batch) {
      const int64_t n = std::min(batch, end - i);
      run(values, key, i, i + n);
      if (x.dtype() == f64) {
        std::copy_n(values, n, x.data<double>() + i);
      } else {
        BFloat16* y = x.data<BFloat16>() + i;
        for (int64_t l = 0; l < n; ++l)
          y[l] = below_one ? toward_zero(values[l]) : BFloat16(values[l]);
      }
    }
  });
}

void fill_uniform_cpu(const Tensor& x, RandomKey key) { fill_random(x, key, uniform_run, true); }
void fill_normal_cpu(const Tensor& x, RandomKey key) { fill_random(x, key, normal_run, false); }

// Random integer `index` of a sequence, in [0, range), range ≤ 2³², from two random words.
uint64_t below(uint64_t range, RandomKey key, uint64_t index) {
  return below_from_bits(range, random_bits(key, 2 * index), random_bits(key, 2 * index + 1));
}

// The range of integers that `dtype` represents exactly without gaps.
std::pair<double, double> exact_integers(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return {-0x1p24, 0x1p24};
    case DType::f64:
      return {-0x1p53, 0x1p53};
    case DType::bf16:
      return {-0x1p8, 0x1p8};
    case DType::i64:
      return {-0x1p63, 0x1p63};
    case DType::i32:
      return {-0x1p31, 0x1p31 - 1};
    case DType::u8:
      return {0, 255};
    case DType::boolean:
      break;
  }
  return {0, 1};
}

}  // namespace

Tensor zeros(const Shape& shape, TensorOptions options) {
  return filled("zeros", shape, 0, options);
}
Tensor ones(const Shape& shape, TensorOptions options) { return filled("ones", shape, 1, options); }
Tensor full(const Shape& shape, double value, TensorOptions options) {
  return filled("full", shape, value, options);
}
Tensor scalar(double value, TensorOptions options) { return filled("scalar", {}, value, options); }

Tensor arange(Int n, TensorOptions options) {
  check(n >= 0, "arange", "n = ", n, "; must be 0 or more");
  check(options.dtype != boolean, "arange", "got bool; accepted: all other dtypes");
  if (n > 0) check_value("arange", options.dtype, double(n - 1));
  return made_on_device(
      "arange", {n}, options,
      [](const Tensor& x) {
        dispatch(x.dtype(), [&]<class T>() {
          for (int64_t i = 0; i < x.numel(); ++i) x.data<T>()[i] = static_cast<T>(i);
        });
      },
      [n](Device device) { return cuda::line(n, n, 0, 1, 0, device); });
}

Tensor arange(double start, double end, double step, TensorOptions options) {
  const double n = std::ceil((end - start) / step);
  check(std::isfinite(n) && n >= 0, "arange", "start ", start, ", end ", end, ", step ", step,
        "; the step must not be 0 and must lead from start toward end");
  check(n < 0x1p58, "arange", "start ", start, ", end ", end, ", step ", step, " has ", n,
        " elements, which is too many");
  check(is_floating(options.dtype) || (start == std::floor(start) && step == std::floor(step)),
        "arange", options.dtype, " from ", start, " with step ", step,
        "; for an integer dtype start and step must be whole numbers");
  check(options.dtype != boolean, "arange", "got bool; accepted: all other dtypes");
  if (n > 0)
    for (const double value : {start, start + (n - 1) * step})
      check_value("arange", options.dtype, value);
  return made_on_device(
      "arange", {int64_t(n)}, options,
      [=](const Tensor& x) {
        dispatch(x.dtype(), [&]<class T>() {
          for (int64_t i = 0; i < x.numel(); ++i)
            x.data<T>()[i] = static_cast<T>(start + double(i) * step);
        });
      },
      [=](Device device) { return cuda::line(int64_t(n), int64_t(n), start, step, 0, device); });
}

Tensor linspace(double start, double end, Int n, TensorOptions options) {
  check(n >= 0, "linspace", "n = ", n, "; must be 0 or more");
  check_floating("linspace", options.dtype);
  const double step = n > 1 ? (end - start) / double(n - 1) : 0;
  // Each half is computed from its own end, so that both ends are exact.
  const int64_t counted = (n + 1) / 2;
  return made_on_device(
      "linspace", {n}, options,
      [=](const Tensor& x) {
        dispatch_floating(x.dtype(), "linspace", [&]<class T>() {
          for (int64_t i = 0; i < n; ++i)
            x.data<T>()[i] = static_cast<T>(i < counted ? start + step * double(i)
                                                        : end - step * double(n - 1 - i));
        });
      },
      [=](Device device) { return cuda::line(n, counted, start, step, end, device); });
}

Tensor eye(Int n, TensorOptions options) {
  Tensor x = filled("eye", {n, n}, 0, options);
  NoGrad guard;
  make_view(x, 0, {n}, {n + 1}).fill_(1);
  return x;
}

template <class T>
Tensor tensor(const std::vector<T>& values, const Shape& shape, Device device) {
  check_sizes("tensor", shape);
  check(int64_t(values.size()) == shape.numel(), "tensor", "got ", values.size(),
        " values for shape ", shape, ", which has ", shape.numel(), " elements");
  return made_on_host(
      "tensor", shape, {.dtype = dtype_of<T>(), .device = device},
      [&](const Tensor& x) { std::copy(values.begin(), values.end(), x.template data<T>()); });
}

template Tensor tensor(const std::vector<float>&, const Shape&, Device);
template Tensor tensor(const std::vector<double>&, const Shape&, Device);
template Tensor tensor(const std::vector<BFloat16>&, const Shape&, Device);
template Tensor tensor(const std::vector<int64_t>&, const Shape&, Device);
template Tensor tensor(const std::vector<int32_t>&, const Shape&, Device);
template Tensor tensor(const std::vector<uint8_t>&, const Shape&, Device);
template Tensor tensor(const std::vector<bool>&, const Shape&, Device);

Tensor rand(const Shape& shape, TensorOptions options) {
  return rand(shape, next_random_key(), options);
}

Tensor rand(const Shape& shape, RandomKey key, TensorOptions options) {
  check_sizes("rand", shape);
  check_floating("rand", options.dtype);
  Tensor x = empty(shape, options);
  on_device(x, fill_uniform_cpu, cuda::fill_uniform, key);
  return x;
}

Tensor randn(const Shape& shape, TensorOptions options) {
  return randn(shape, next_random_key(), options);
}

Tensor randn(const Shape& shape, RandomKey key, TensorOptions options) {
  check_sizes("randn", shape);
  check_floating("randn", options.dtype);
  Tensor x = empty(shape, options);
  on_device(x, fill_normal_cpu, cuda::fill_normal, key);
  return x;
}

void normal_draws(RandomKey key, int64_t first, int64_t n, float* y) {
  if (const int64_t before = first % 4; before > 0) {  // `first` is in the middle of a block
    float block[4];
    normal_run(block, key, first - before, first - before + 4);
    const int64_t count = std::min(n, 4 - before);
    std::copy_n(block + before, count, y);
    first += count, y += count, n -= count;
  }
  normal_run(y, key, first, first + n);
}

Tensor randint(Int low, Int high, const Shape& shape, TensorOptions options) {
  const uint64_t range = uint64_t(high) - uint64_t(low);
  check(low < high && range <= uint64_t(1) << 32, "randint", "range [", low, ", ", high,
        "); low must be less than high, and the range at most 2^32 integers");
  const auto [least, most] = exact_integers(options.dtype);
  check(double(low) >= least && double(high) - 1 <= most, "randint", "range [", low, ", ", high,
        ") has integers that ", options.dtype, " cannot represent exactly");
  return made_on_device(
      "randint", shape, options,
      [=](const Tensor& x) {
        const RandomKey key = next_random_key();
        dispatch(x.dtype(), [&]<class T>() {
          T* y = x.data<T>();
          parallel_for(x.numel(), 16384, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i)
              y[i] = static_cast<T>(int64_t(uint64_t(low) + below(range, key, uint64_t(i))));
          });
        });
      },
      [=](Device device) { return cuda::randint(shape, low, range, next_random_key(), device); });
}

Tensor randperm(Int n, Device device) {
  check(n >= 0 && n <= int64_t(1) << 32, "randperm", "n = ", n, "; accepted: 0 to 2^32");
  Tensor x = arange(n, {.dtype = i64, .device = cpu});
  int64_t* y = x.data<int64_t>();
  const RandomKey key = next_random_key();
  for (int64_t i = n - 1; i > 0; --i) std::swap(y[i], y[below(uint64_t(i) + 1, key, uint64_t(i))]);
  return x.to(device);
}

}  // namespace stretto
