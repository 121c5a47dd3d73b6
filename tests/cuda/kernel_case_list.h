// The families of cases of kernel_cases.h, with helpers to define a case.
#pragma once

#include <algorithm>

#include "cuda/attention/attention.h"
#include "ops/create.h"
#include "tests/cuda/kernel_cases.h"
#include "tests/support/gpu.h"

namespace stretto::testing {

constexpr double straight = 1.05, transposing = 1.2;
constexpr double processors = 132;  // each loads data that rows share
constexpr double sector = 32;       // bytes: writing one element per row costs a sector

struct KernelCaseList {
  const int64_t rows;
  DType dtype;
  double item = double(item_size(dtype));
  std::vector<KernelCase> all;
  uint64_t stream = 9000;

  Tensor noise(const Shape& shape) {
    return randn(shape, RandomKey{17, ++stream}, {.dtype = dtype, .device = gpu});
  }
  Tensor wide(const Shape& shape) { return empty(shape, {.dtype = f32, .device = gpu}); }
  /// Adds a case that must move `items` elements of the dtype and `bytes` other bytes.
  KernelCase& add(const std::string& name, double items, double bytes, double budget,
                  std::function<void()> run) {
    all.push_back({name, items * item + bytes, budget, std::move(run)});
    return all.back();
  }
  /// 90 % of the bytes of a warp access with one element per lane (at most 4 bytes each).
  double lanes() const { return 32 * std::min(item, 4.0) * 0.9; }

  void elementwise();
  void copies();
  void reductions();
  void norms();
  void losses();
  void indices();
  void grouped_products();
  void created();
  void optimizers();
  void transforms();
  void positions();
  void noise_codes();
  void linear_attentions();
  void gated_linear_attentions();
  void attentions();
  void attention(const std::string& name, const AttentionOperands& call, double forward,
                 double backward, int64_t times = 0);
  void decoding();
  void published_attentions();
};

}  // namespace stretto::testing
