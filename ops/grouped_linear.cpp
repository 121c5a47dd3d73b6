#include "ops/grouped_linear.h"

#include <algorithm>

#include "autograd/tape.h"
#include "cuda/grouped_linear.h"
#include "ops/indexing.h"
#include "ops/linear_into.h"
#include "ops/matmul.h"
#include "ops/view.h"
#include "ops/weight_gradients.h"

namespace stretto {
namespace {

constexpr const char* op = "grouped_linear";

Tensor rows_of(const Tensor& x, const std::vector<int64_t>& offsets, size_t e) {
  return x.slice(0, offsets[e], offsets[e + 1]);
}

// Each group by itself, in differentiable ops.
Tensor composed(const Tensor& x, const Tensors& weights, const Tensors& biases,
                const std::vector<int64_t>& offsets) {
  std::vector<int64_t> sizes;
  for (size_t e = 0; e < weights.size(); ++e) sizes.push_back(offsets[e + 1] - offsets[e]);
  Tensors parts = split(x, sizes);
  for (size_t e = 0; e < weights.size(); ++e)
    parts[e] = linear(parts[e], weights[e], biases.empty() ? Tensor() : biases[e]);
  return cat(parts, 0);
}

// x · weightᵀ + bias, or with `transposed` x · weight, group by group on the CPU.
Tensor products(const Tensor& x, const Tensors& weights, const Tensors& biases,
                const std::vector<int64_t>& offsets, bool transposed) {
  Tensor y = empty({x.size(0), weights[0].size(transposed ? 1 : 0)}, options_of(x));
  for (size_t e = 0; e < weights.size(); ++e) {
    if (offsets[e] == offsets[e + 1]) continue;
    const Tensor w = weights[e].detach();
    linear_into(rows_of(y, offsets, e), rows_of(x, offsets, e), transposed ? w.t() : w,
                biases.empty() ? Tensor() : biases[e].detach());
  }
  return y;
}

struct Inputs {
  Saved x;
  std::vector<Saved> weights, biases;
  Tensor offsets;                // on a GPU
  std::vector<int64_t> on_host;  // on the CPU
};

// The gradients of x, the weights and the biases.
Tensors gradients(Backward& b, const Inputs& in) {
  const size_t count = in.weights.size();
  const Tensors weights = values_of(in.weights), biases = values_of(in.biases);
  if (grad_enabled()) {
    Tensors all{in.x()};
    all.insert(all.end(), weights.begin(), weights.end());
    all.insert(all.end(), biases.begin(), biases.end());
    const std::vector<int64_t> offsets =
        in.on_host.empty() ? in.offsets.to_vector<int64_t>() : in.on_host;
    const auto again = [count, offsets](const Tensors& t) {
      const auto first = t.begin() + 1, bias = first + int64_t(count);
      return composed(t[0], {first, bias}, {bias, t.end()}, offsets);
    };
    return composed_gradient(b, again, all);
  }
  const Tensor g = b.grad().contiguous(), x = in.x().detach().contiguous();
  bool of_weights = false, of_biases = false;
  for (size_t e = 0; e < count; ++e) {
    of_weights = of_weights || b.needs(1 + e);
    of_biases = of_biases || (!biases.empty() && b.needs(1 + count + e));
  }
  Tensors all(1 + count + biases.size());
  if (x.device().is_cpu()) {
    if (b.needs(0)) all[0] = products(g, weights, {}, in.on_host, true);
    for (size_t e = 0; e < count; ++e) {
      const auto [weight, bias] =
          weight_gradients(rows_of(g, in.on_host, e), rows_of(x, in.on_host, e), b.needs(1 + e),
                           !biases.empty() && b.needs(1 + count + e));
      all[1 + e] = weight;
      if (!biases.empty()) all[1 + count + e] = bias;
    }
    return all;
  }
  if (b.needs(0)) all[0] = cuda::grouped_linear(g, weights, {}, in.offsets, true);
  if (!of_weights && !of_biases) return all;
  const auto part = [](const Tensor& block, int64_t e) {  // has its own storage: leaves adopt it
    const Tensor one = block.select(0, e);
    return split_into_parts(one, 0, {one.size(0)})[0];
  };
  const int64_t n = int64_t(count), out = g.size(1);
  const Tensor of_bias = of_biases ? empty({n, out}, options_of(g)) : Tensor();
  const Tensor of_weight = cuda::grouped_weight_gradients(g, x, in.offsets, of_bias);
  for (int64_t e = 0; e < n; ++e) {
    all[size_t(1 + e)] = part(of_weight, e);
    if (of_biases) all[size_t(1 + n + e)] = part(of_bias, e);
  }
  return all;
}

void check_inputs(const Tensor& x, const Tensors& weights, const Tensors& biases,
                  const Tensor& offsets) {
  const size_t count = weights.size();
  check(count > 0 && (biases.empty() || biases.size() == count), op, "got ", count, " weights and ",
        biases.size(), " biases; needs a weight per group, and as many biases or none");
  check(x.defined() && x.dim() == 2 && is_floating(x.dtype()), op, "x ", x,
        "; must be [T, in], floating-point");
  for (size_t e = 0; e < count; ++e) {
    const Tensor& w = weights[e];
    check(w.defined() && w.dim() == 2 && w.shape() == weights[0].shape() &&
              w.size(1) == x.size(1) && w.dtype() == x.dtype(),
          op, "x ", x, ", weight ", e, " ", w,
          "; weights must be [out, in] of one shape and dtype");
    check_same_device(op, {&x, &w});
    if (biases.empty()) continue;
    check(biases[e].defined() && biases[e].shape() == Shape{w.size(0)} &&
              biases[e].dtype() == x.dtype(),
          op, "bias ", e, " ", biases[e], " for weight ", w, "; it must be [out]");
    check_same_device(op, {&x, &biases[e]});
  }
  check(offsets.defined() && offsets.dtype() == i64 && offsets.shape() == Shape{int64_t(count) + 1},
        op, "offsets ", offsets, " of ", count, " groups; must be i64 [", count + 1, "]");
  check_same_device(op, {&x, &offsets});
}

}  // namespace

Tensor grouped_linear(const Tensor& x, const Tensors& weights, const Tensors& biases,
                      const Tensor& offsets) {
  check_inputs(x, weights, biases, offsets);
  Inputs in{x, {weights.begin(), weights.end()}, {biases.begin(), biases.end()}, {}, {}};
  Tensor y;
  if (x.device().is_cpu()) {
    const std::vector<int64_t>& at = in.on_host = offsets.to_vector<int64_t>();
    check(at.front() == 0 && at.back() == x.size(0) && std::is_sorted(at.begin(), at.end()), op,
          "offsets ", to_string(offsets), "; must ascend from 0 to ", x.size(0));
    y = products(x.detach().contiguous(), weights, biases, at, false);
  } else {
    in.offsets = checked_index(op, offsets, x.size(0) + 1, str("x has ", x.size(0), " rows"));
    y = cuda::grouped_linear(x.detach().contiguous(), weights, biases, in.offsets, false);
  }
  Tensors inputs{x};
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  inputs.insert(inputs.end(), biases.begin(), biases.end());
  // Gradients: for the rows r of group e, dx[r] = g[r] · weights[e], dweights[e] = Σ_r g[r]ᵀ x[r] and
  // dbiases[e] = Σ_r g[r].
  return record(op, inputs, y, [in = std::move(in)](Backward& b) { return gradients(b, in); });
}

}  // namespace stretto
