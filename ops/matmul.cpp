#include "ops/matmul.h"

#include <algorithm>

#include "autograd/tape.h"
#include "core/gemm/gemm.h"
#include "core/gemm/kernels.h"
#include "core/parallel.h"
#include "cuda/linear.h"
#include "cuda/matmul.h"
#include "ops/elementwise.h"
#include "ops/linear_into.h"
#include "ops/loops.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "ops/weight_gradients.h"

namespace stretto {
namespace {

// The last two dimensions as a BLAS operand, if their strides allow it.
template <class T>
bool as_matrix(const Tensor& x, MatrixRef<T>& m) {
  const int64_t rows = x.size(-2), columns = x.size(-1);
  const int64_t s0 = x.strides()[x.dim() - 2], s1 = x.strides()[x.dim() - 1];
  if ((s1 == 1 || columns == 1) && (s0 >= columns || rows == 1)) {
    m = {x.data<T>(), std::max<int64_t>(rows == 1 ? columns : s0, 1), false};
    return true;
  }
  if ((s0 == 1 || rows == 1) && (s1 >= rows || columns == 1)) {
    m = {x.data<T>(), std::max<int64_t>(columns == 1 ? rows : s1, 1), true};
    return true;
  }
  return false;
}

template <class T>
MatrixRef<T> matrix(Tensor& x) {
  MatrixRef<T> m{};
  if (!as_matrix(x, m)) {
    x = x.contiguous();
    as_matrix(x, m);
  }
  return m;
}

// Strides of the batch dimensions of x, broadcast to the batch shape of the result.
Shape batch_strides(const Tensor& x, const Shape& batch) {
  Shape sizes(x.shape().begin(), x.dim() - 2), strides(x.strides().begin(), x.dim() - 2);
  return broadcast_strides(sizes, strides, batch);
}

// C [m, n] = A B.
template <class T>
void multiply(bool threads, int64_t m, int64_t n, int64_t k, MatrixRef<T> a, MatrixRef<T> b, T* c) {
  const int64_t ldc = std::max<int64_t>(n, 1);
  if constexpr (std::is_same_v<T, BFloat16>)
    threads ? gemm_parallel(m, n, k, a, b, nullptr, c, ldc) : gemm(m, n, k, a, b, nullptr, c, ldc);
  else
    threads ? gemm_parallel<T>({m, n, k, 1, a, b, 0, c, ldc})
            : gemm(m, n, k, T(1), a, b, T(0), c, ldc);
}

// Converts matrices. A matrix that is stored transposed stays so.
Tensor converted(const Tensor& x, DType type) {
  const bool transposed = x.strides()[x.dim() - 2] == 1 && x.size(-1) > 1;
  return transposed ? x.transpose(-1, -2).to(type).transpose(-1, -2) : x.to(type);
}

Tensor linear_product(const Tensor& x, const Tensor& weight, const Tensor& bias,
                      const Shape& shape);

// a [.., M, K] · b [.., K, N] on the CPU, detached, both at least 2-d.
Tensor product(Tensor a, Tensor b, const Shape& batch) {
  const int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1);
  Shape shape = batch;
  shape.push_back(m);
  shape.push_back(n);
  if (a.dtype() == bf16 && !has_bf16_products()) {
    if (batch.numel() == 1 && m <= kernels::few_rows)
      return linear_product(a, b.reshape({k, n}).t(), {}, shape);
    return product(converted(a, f32), converted(b, f32), batch).to(bf16);
  }
  Tensor y = empty(shape, options_of(a));
  auto run = [&]<class T>() {
    const MatrixRef<T> ma = matrix<T>(a), mb = matrix<T>(b);
    T* c = y.data<T>();
    const int64_t count = batch.numel();
    if (count == 1) return multiply<T>(true, m, n, k, ma, mb, c);
    const Shape sa = batch_strides(a, batch), sb = batch_strides(b, batch);
    const int64_t each = std::max<int64_t>(1, 500'000 / std::max<int64_t>(1, m * n * k));
    parallel_for(count, each, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t at_a = 0, at_b = 0, rest = i;
        for (int64_t d = batch.dim() - 1; d >= 0; --d) {
          at_a += rest % batch[d] * sa[d];
          at_b += rest % batch[d] * sb[d];
          rest /= batch[d];
        }
        multiply<T>(false, m, n, k, {ma.data + at_a, ma.ld, ma.transposed},
                    {mb.data + at_b, mb.ld, mb.transposed}, c + i * m * n);
      }
    });
  };
  dispatch_among<BFloat16, double, float>(a.dtype(), run);
  return y;
}

// Computes the same on CUDA, in one batched product.
Tensor product_cuda(const Tensor& a, const Tensor& b, const Shape& batch) {
  const auto operand = [&](const Tensor& x) {
    Shape shape = batch;
    shape.push_back(x.size(-2));
    shape.push_back(x.size(-1));
    const Tensor all = broadcast_to(x, shape);
    return cuda::are_matrices(all) ? all : all.contiguous();
  };
  return cuda::matmul(operand(a), operand(b));
}

template <class T>
STRETTO_CLONES void add_row(T* __restrict sums, const T* __restrict row, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sums[i] += row[i];
}

Tensor linear_product(const Tensor& x, const Tensor& weight, const Tensor& bias,
                      const Shape& shape) {
  Tensor y = empty(shape, options_of(x));
  linear_into(y, x, weight, bias);
  return y;
}

// Computes the same on CUDA: with a bias as cuBLASLt's epilogue, if it has one for the dtype.
Tensor linear_cuda(const Tensor& x, const Tensor& weight, const Tensor& bias, const Shape& shape) {
  const int64_t out = weight.size(0), in = weight.size(1);
  if (!bias.defined() || x.dtype() == f64 || x.numel() == 0 || out == 0) {
    const Tensor y = matmul(x, weight.transpose(0, 1));
    return bias.defined() ? y + bias : y;
  }
  const Tensor rows = x.reshape({-1, in}).contiguous();
  return cuda::linear(rows, weight.contiguous(), bias.contiguous(), {}).reshape(shape);
}

// Returns the gradient of a layer's input from g [N, out] and weight [out, in]. On CUDA the product
// is added to the input's gradient from other ops, as of layers with the same input, in one launch.
Tensor input_gradient(Backward& b, const Tensor& g, const Tensor& weight, const Shape& shape) {
  if (!grad_enabled() && g.device().is_cuda() && cuda::are_matrices(g) &&
      cuda::are_matrices(weight))
    if (Tensor onto = b.take_pending(0, true); onto.defined()) {
      cuda::matmul(g.detach(), weight.detach(), onto.view({g.size(0), weight.size(1)}));
      return onto;
    }
  return matmul(g, weight).reshape(shape);
}

// Returns the tensor of which the tensors are consecutive parts, if they are in one block.
Tensor joined(const Tensors& parts, Int d) {
  for (const Tensor& x : parts)
    if (!x.defined()) return {};
  return join_parts(parts, d);
}

// The layers of linear() with several weights as one layer. No weight: they must be computed one by
// one.
struct PackedLayer {
  Tensor weight, bias;
};
PackedLayer packed(const Tensor& x, const Tensors& weights, const Tensors& biases) {
  if (x.device().is_cpu() || x.numel() == 0 || x.dim() == 0 || weights.size() < 2) return {};
  PackedLayer all{joined(weights, 0), joined(biases, 0)};
  const Tensor& w = all.weight;
  if (!w.defined() || w.dim() != 2 || w.numel() == 0 || !w.is_contiguous() ||
      w.dtype() != x.dtype() || w.device() != x.device() || w.size(1) != x.size(-1))
    return {};
  for (size_t i = 0; i < biases.size(); ++i) {
    const bool fits = all.bias.defined()
                          ? biases[i].shape() == Shape{weights[i].size(0)} &&
                                biases[i].dtype() == x.dtype() && all.bias.is_contiguous()
                          : !biases[i].defined();
    if (!fits) return {};
  }
  return all;
}

// The gradients of x, the weights and the biases from g [N, Σ out_i], in one product each.
Tensors packed_gradients(Backward& b, const Tensor& g, const Tensor& x, const Tensors& weights) {
  const size_t count = weights.size();
  bool of_weights = false, of_biases = false;
  Shape sizes;
  for (size_t i = 0; i < count; ++i) {
    of_weights = of_weights || b.needs(1 + i);
    of_biases = of_biases || b.needs(1 + count + i);
    sizes.push_back(weights[i].size(0));
  }
  Tensors all(1);
  if (b.needs(0)) all[0] = input_gradient(b, g, joined(weights, 0), x.shape());
  const WeightGradients sums =
      weight_gradients(g, x.reshape({g.size(0), x.size(-1)}), of_weights, of_biases);
  for (const Tensor& sum : {sums.weight, sums.bias}) {
    const Tensors parts = sum.defined() ? split_into_parts(sum, 0, sizes) : Tensors(count);
    all.insert(all.end(), parts.begin(), parts.end());
  }
  return all;
}

// The same gradients from one tensor g_i [.., out_i] for each layer.
Tensors separate_gradients(Backward& b, const Tensors& g, const Tensor& x, const Tensors& weights) {
  const size_t count = weights.size();
  const Tensor rows = x.reshape({x.numel() / x.size(-1), x.size(-1)});
  Tensors all(1 + 2 * count);
  for (size_t i = 0; i < count; ++i) {
    Tensor of_rows = g[i].reshape({rows.size(0), weights[i].size(0)});
    if (!cuda::are_matrices(of_rows)) of_rows = of_rows.contiguous();
    if (b.needs(0) && i == 0) all[0] = input_gradient(b, of_rows, weights[0], x.shape());
    if (b.needs(0) && i > 0) cuda::matmul(of_rows, weights[i].detach(), all[0].view(rows.shape()));
    const auto [of_weight, of_bias] =
        weight_gradients(of_rows, rows, b.needs(1 + i), b.needs(1 + count + i));
    all[1 + i] = of_weight, all[1 + count + i] = of_bias;
  }
  return all;
}

Tensors separate_layers(const Tensor& x, const Tensors& weights, const Tensors& biases) {
  Tensors all;
  for (size_t i = 0; i < weights.size(); ++i) all.push_back(linear(x, weights[i], biases[i]));
  return all;
}

}  // namespace

void linear_into(const Tensor& to, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const int64_t out = weight.size(0), in = weight.size(1);
  const int64_t n = Shape(to.shape().begin(), to.dim() - 1).numel();
  const int64_t lda = std::max<int64_t>(in, 1), ldc = std::max<int64_t>(out, 1);
  const bool narrow = x.dtype() == bf16 && has_bf16_products();
  const DType wide = narrow ? bf16 : compute_type(x.dtype());
  const Tensor input = x.to(wide).contiguous();
  Tensor w = weight;
  const Tensor y = wide == to.dtype() ? to : empty(to.shape(), {.dtype = wide, .device = cpu});
  if (narrow) {
    const Tensor row = bias.defined() ? bias.contiguous() : Tensor();
    MatrixRef<BFloat16> m = matrix<BFloat16>(w);
    m.transposed = !m.transposed;
    gemm_parallel(n, out, in, {input.data<BFloat16>(), lda}, m,
                  row.defined() ? row.data<BFloat16>() : nullptr, y.data<BFloat16>(), ldc);
    return;
  }
  const Tensor row = bias.defined() ? bias.to(wide).contiguous() : Tensor();
  if (x.dtype() == bf16) {  // for few rows, weights are converted to f32 while they are read
    MatrixRef<BFloat16> m = matrix<BFloat16>(w);
    m.transposed = !m.transposed;
    if (gemm_widening({n, out, in, 1, {input.data<float>(), lda}, m, 0, y.data<float>(), ldc})) {
      for (int64_t r = 0; row.defined() && r < n; ++r)
        add_row(y.data<float>() + r * ldc, row.data<float>(), out);
      return void(to.copy_(y));
    }
  }
  w = converted(weight, wide);
  auto run = [&]<class T>() {
    MatrixRef<T> m = matrix<T>(w);
    m.transposed = !m.transposed;
    const auto with_bias = [&](int64_t, int64_t j, int64_t rows, int64_t columns, T* sums,
                               int64_t ld) {
      for (int64_t r = 0; r < rows; ++r) add_row(sums + r * ld, row.data<T>() + j, columns);
    };
    const auto epilogue = epilogue_of<T>(with_bias);
    gemm_parallel<T>({n, out, in, 1, {input.data<T>(), lda}, m, 0, y.data<T>(), ldc},
                     row.defined() ? &epilogue : nullptr);
  };
  dispatch_among<double, float>(wide, run);
  if (wide != to.dtype()) to.copy_(y);
}

Tensor matmul(const Tensor& left, const Tensor& right) {
  check(left.defined() && right.defined() && left.dim() >= 1 && right.dim() >= 1, "matmul", "a ",
        left, ", b ", right, "; both must have at least 1 dimension");
  check(left.dtype() == right.dtype() && is_floating(left.dtype()), "matmul", "a ", left, ", b ",
        right, "; both must have one floating-point dtype");
  check_same_device("matmul", {&left, &right});
  if (left.dim() == 1) {
    const Tensor y = matmul(left.unsqueeze(0), right);
    return y.squeeze(right.dim() == 1 ? -1 : -2);
  }
  if (right.dim() == 1) return matmul(left, right.unsqueeze(1)).squeeze(-1);
  check(left.size(-1) == right.size(-2), "matmul", "inner sizes differ: a ", left, ", b ", right,
        "; the last size of a must equal the second to last size of b");
  // A batch of rows times one matrix is a single large product.
  if (right.dim() == 2 && left.dim() > 2) {
    Shape shape = left.shape();
    shape.back() = right.size(1);
    const int64_t rows = Shape(left.shape().begin(), left.dim() - 1).numel();
    return matmul(left.reshape({rows, left.size(-1)}), right).reshape(shape);
  }
  const Shape batch = broadcast_shapes("matmul", Shape(left.shape().begin(), left.dim() - 2),
                                       Shape(right.shape().begin(), right.dim() - 2));
  const Tensor a = left.detach(), b = right.detach();
  Tensor y = on_device(a, product, product_cuda, b, batch);
  return record("matmul", {left, right}, y, [a = Saved(left), b = Saved(right)](Backward& g) {
    return Tensors{
        g.needs(0) ? sum_to(matmul(g.grad(), b().transpose(-1, -2)), a().shape()) : Tensor(),
        g.needs(1) ? sum_to(matmul(a().transpose(-1, -2), g.grad()), b().shape()) : Tensor()};
  });
}

WeightGradients weight_gradients(const Tensor& g, const Tensor& x, bool want_weight,
                                 bool want_bias) {
  if (want_weight && want_bias && !grad_enabled() && g.device().is_cuda() && g.numel() > 0 &&
      x.numel() > 0 &&
      cuda::serves_weight_gradient(x.size(0), x.size(1), g.size(1), g.dtype(), g.device().index)) {
    const Tensor bias = empty({g.size(1)}, options_of(g));
    return {cuda::weight_gradient(g.detach().contiguous(), x.detach().contiguous(), bias), bias};
  }
  return {want_weight ? matmul(g.transpose(0, 1), x) : Tensor(),
          want_bias ? sum(g, {0}) : Tensor()};
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check(x.defined() && weight.defined() && x.dim() >= 1 && weight.dim() == 2 &&
            x.size(-1) == weight.size(1),
        "linear", "x ", x, ", weight ", weight, "; x must be [.., in] and weight [out, in]");
  check(
      !bias.defined() || (bias.shape() == Shape{weight.size(0)} && bias.dtype() == weight.dtype()),
      "linear", "bias ", bias, " for weight ", weight, "; it must be [out] of the same dtype");
  check_same_device("linear", {&x, &weight, &bias});
  const int64_t out = weight.size(0), in = weight.size(1);
  Shape shape = x.shape();
  shape.back() = out;
  const int64_t n = Shape(shape.begin(), shape.dim() - 1).numel();
  if (x.dtype() != weight.dtype()) return matmul(x, weight.transpose(0, 1));  // throws
  check(is_floating(x.dtype()), "linear", "got ", x, "; accepted: a floating-point dtype");
  const Tensor values = bias.defined() ? bias.detach() : Tensor();
  const Tensor y = x.device().is_cuda()
                       ? linear_cuda(x.detach(), weight.detach(), values, shape)
                       : linear_product(x.detach(), weight.detach(), values, shape);
  // Gradients: g · weight, gᵀ · x and Σ g for x, weight and bias, with the rows of g and x.
  return record("linear", {x, weight, bias}, y,
                [x = Saved(x), w = Saved(weight), n, in, out](Backward& b) {
                  const Tensor g = b.grad().reshape({n, out});
                  const auto [of_weight, of_bias] = weight_gradients(
                      g, b.needs(1) ? x().reshape({n, in}) : Tensor(), b.needs(1), b.needs(2));
                  return Tensors{b.needs(0) ? input_gradient(b, g, w(), x().shape()) : Tensor(),
                                 of_weight, of_bias};
                });
}

Tensors linear(const Tensor& x, const Tensors& weights, const Tensors& biases) {
  const size_t count = weights.size();
  check(count > 0 && biases.size() == count, "linear", "got ", count, " weights and ",
        biases.size(), " biases; needs as many biases, which may be undefined, as weights");
  const PackedLayer layer = packed(x, weights, biases);
  if (!layer.weight.defined()) return separate_layers(x, weights, biases);
  Shape shape = x.shape(), sizes;
  shape.back() = layer.weight.size(0);
  for (const Tensor& w : weights) sizes.push_back(w.size(0));
  const Tensors parts =
      split_into_parts(linear_cuda(x.detach(), layer.weight, layer.bias, shape), -1, sizes);
  Tensors inputs{x};
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  inputs.insert(inputs.end(), biases.begin(), biases.end());
  const std::vector<Saved> saved_weights(weights.begin(), weights.end()),
      saved_biases(biases.begin(), biases.end());
  const auto backward = [count, x = Saved(x), saved_weights, saved_biases](Backward& b) {
    const Tensors w = values_of(saved_weights);
    if (grad_enabled()) {
      Tensors in{x()};
      in.insert(in.end(), w.begin(), w.end());
      for (const Saved& bias : saved_biases) in.push_back(bias());
      const auto again = [count](const Tensors& all) {
        const auto first = all.begin() + 1, bias = first + int64_t(count);
        return separate_layers(all[0], {first, bias}, {bias, all.end()});
      };
      return composed_gradient(b, again, in);
    }
    Tensors g;
    for (size_t i = 0; i < count; ++i) g.push_back(b.grad(i));
    const Tensor block = join_parts(g, -1);
    return block.defined() && block.is_contiguous()
               ? packed_gradients(b, block.view({-1, block.size(-1)}), x(), w)
               : separate_gradients(b, g, x(), w);
  };
  // Gradients: those of one layer with all rows of the weights, from the gradients side by side.
  return record("linear", inputs, parts, backward);
}

}  // namespace stretto
