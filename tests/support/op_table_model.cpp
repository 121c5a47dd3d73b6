// Matrix products, normalization and rotation [ops/matmul.h, feed_forward.h, norm.h, rotary.h].
#include <cmath>
#include <tuple>

#include "nn/feed_forward.h"
#include "ops/attention/rotary.h"
#include "ops/create.h"
#include "ops/grouped_linear.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "tests/support/op_table.h"

namespace stretto::testing {
namespace {

Shape matmul_shape(const Shape& a, const Shape& b) {
  Shape y = broadcast_of(Shape(a.begin(), std::max<int64_t>(a.dim() - 2, 0)),
                         Shape(b.begin(), std::max<int64_t>(b.dim() - 2, 0)));
  if (a.dim() > 1) y.push_back(a[a.dim() - 2]);
  if (b.dim() > 1) y.push_back(b.back());
  return y;
}

Array matmul_reference(const Arrays& x) {
  const Array &a = x[0], &b = x[1];
  const int64_t k = a.shape.back();
  return build(matmul_shape(a.shape, b.shape), [&](const Shape& index) {
    Shape batch = index;
    int64_t row = 0, column = 0;
    if (b.shape.dim() > 1) {
      column = batch.back();
      batch.erase(batch.dim() - 1);
    }
    if (a.shape.dim() > 1) {
      row = batch.back();
      batch.erase(batch.dim() - 1);
    }
    Number sum;
    for (int64_t p = 0; p < k; ++p) {
      Shape in_a = batch, in_b = batch;
      if (a.shape.dim() > 1) in_a.push_back(row);
      in_a.push_back(p);
      in_b.push_back(p);
      if (b.shape.dim() > 1) in_b.push_back(column);
      sum = sum + a.at(in_a) * b.at(in_b);
    }
    return sum;
  });
}

Op matmul_op() {
  Op op = {.name = "matmul",
           .call = [](const Tensors& x) { return matmul(x[0], x[1]); },
           .reference = matmul_reference,
           .large = {{{130, 140}}, {{140, 150}}}};
  // K = 0 and other empty dimensions; 1-d operands; broadcast batches; odd sizes.
  for (const auto& [a, b] : std::vector<std::pair<Shape, Shape>>{{{2, 0}, {0, 3}},
                                                                 {{0, 2}, {2, 3}},
                                                                 {{2, 3}, {3, 0}},
                                                                 {{0, 2, 3}, {0, 3, 4}},
                                                                 {{2, 3, 0}, {2, 0, 4}},
                                                                 {{3}, {3}},
                                                                 {{3}, {3, 2}},
                                                                 {{2, 3}, {3}},
                                                                 {{2, 2, 3}, {3}},
                                                                 {{3}, {2, 3, 2}},
                                                                 {{0}, {0}},
                                                                 {{1, 5}, {5, 1}},
                                                                 {{5, 1}, {1, 5}},
                                                                 {{9, 9}, {9, 9}},
                                                                 {{2, 3}, {3, 4}},
                                                                 {{2, 1, 2, 3}, {3, 3, 2}},
                                                                 {{2, 2, 3}, {3, 2}},
                                                                 {{2, 3}, {2, 3, 2}},
                                                                 {{1, 2, 3}, {4, 3, 2}},
                                                                 {{31, 33}, {33, 29}},
                                                                 {{2, 17, 23}, {2, 23, 5}}})
    op.samples.push_back({{a}, {b}});
  op.any_layout_exact = false;  // BLAS has different kernels for transposed operands
  op.errors = {
      {[] {
         matmul(ones({2, 3}), ones({4, 5}));
       },
       "[matmul] inner sizes differ: a f32 [2, 3], b f32 [4, 5]; the last size of a must equal the "
       "second to last size of b"},
      {[] { matmul(ones({2}), ones({3})); }, "[matmul] inner sizes differ"},
      {[] { matmul(ones({}), ones({3})); },
       "[matmul] a f32 [], b f32 [3]; both must have at least 1 dimension"},
      {[] {
         matmul(ones({2, 2}), ones({2, 2}, {.dtype = f64}));
       },
       "[matmul] a f32 [2, 2], b f64 [2, 2]; both must have one floating-point dtype"},
      {[] {
         matmul(ones({2, 2}, {.dtype = i64}), ones({2, 2}, {.dtype = i64}));
       },
       "both must have one floating-point dtype"},
      {[] {
         matmul(ones({2, 2, 3}), ones({3, 3, 2}));
       },
       "[matmul] shapes [2] and [3] do not broadcast"}};
  return op;
}

Number activation_reference(Activation f, const Number& x) {
  switch (f) {
    case Activation::relu:
      return x.value <= 0 ? Number() : x;
    case Activation::gelu:
      return gelu_reference(x);
    case Activation::gelu_tanh:
      return gelu_tanh_reference(x);
    case Activation::silu:
      break;
  }
  return x * sigmoid(x);
}

Op feed_forward_op(Activation f, bool biases, double p) {
  const RandomKey key{5, 3};
  const auto call = [=](const Tensors& x) {
    return biases ? feed_forward(x[0], x[1], x[2], x[3], x[4], f, p, key)
                  : feed_forward(x[0], x[1], {}, x[2], {}, f, p, key);
  };
  Op op = {.name = str("feed_forward ", nn::name(f), biases ? "" : " without biases", ", p = ", p),
           .call = call,
           .reference =
               [=](const Arrays& x) {
                 Array hidden = linear_reference(x[0], x[1], biases ? &x[2] : nullptr);
                 uint64_t i = 0;
                 for (Number& h : hidden.values) {  // in bf16 input and output of f are stored
                   h.storing += std::fabs(h.value);
                   h = activation_reference(f, h);
                   h.storing += std::fabs(h.value);
                   if (p == 0) continue;
                   h = uniform_from_bits(random_bits(key, i++)) < p ? Number()
                                                                    : h * Number(1 / (1 - p));
                   h.storing += std::fabs(h.value);
                 }
                 return biases ? linear_reference(hidden, x[3], &x[4])
                               : linear_reference(hidden, x[2], nullptr);
               },
           .large = {{{130, 40}}, {{144, 40}}, {{144}}, {{50, 144}}, {{50}}},
           .any_layout_exact = false};
  for (const auto& [x, hidden, out] :
       std::vector<std::tuple<Shape, int64_t, int64_t>>{{{3}, 8, 2},
                                                        {{4, 3}, 8, 3},
                                                        {{2, 2, 5}, 16, 1},
                                                        {{7, 2}, 5, 3},
                                                        {{0, 3}, 8, 2},
                                                        {{2, 0}, 8, 2},
                                                        {{2, 3}, 0, 2},
                                                        {{2, 3}, 8, 0}})
    op.samples.push_back({{x}, {{hidden, x.back()}}, {{hidden}}, {{out, hidden}}, {{out}}});
  if (!biases) {
    op.samples.push_back(op.large);
    for (Sample& sample : op.samples) {
      sample.erase(sample.begin() + 4);
      sample.erase(sample.begin() + 2);
    }
    op.large = op.samples.back();
    op.samples.pop_back();
  }
  const auto call_ones = [f](Shape x, Shape w1, Shape b1, Shape w2, double dropped) {
    feed_forward(ones(x), ones(w1), ones(b1), ones(w2), ones({2}), f, dropped);
  };
  op.errors = {{[=] {
                  call_ones({2, 3}, {4, 2}, {4}, {2, 4}, 0);
                },
                "[feed_forward] x f32 [2, 3], w1 f32 [4, 2], w2 f32 [2, 4]; x must be"},
               {[=] {
                  call_ones({2, 3}, {4, 3}, {3}, {2, 4}, 0);
                },
                "[feed_forward] b1 f32 [3], b2 f32 [2]; must be [4] and [2]"},
               {[=] {
                  call_ones({2, 3}, {4, 3}, {4}, {2, 4}, 1.5);
                },
                "[feed_forward] dropout probability 1.5; accepted: 0 to 1"}};
  return op;
}

Op gated_activation_op(Activation f, double p) {
  const RandomKey key{5, 4};
  return {.name = str("gated_activation ", nn::name(f), ", p = ", p),
          .call = [=](const Tensors& x) { return gated_activation(x[0], x[1], f, p, key); },
          .reference =
              [=](const Arrays& x) {
                uint64_t i = 0;
                return build(x[0].shape, [&](const Shape& index) {
                  Number y = activation_reference(f, x[0].at(index)) * x[1].at(index);
                  if (p == 0) return y;
                  y.storing += std::fabs(y.value);  // bf16 stores the argument of dropout
                  return uniform_from_bits(random_bits(key, i++)) < p ? Number()
                                                                      : y * Number(1 / (1 - p));
                });
              },
          .samples = {{{{7}}, {{7}}}, {{{}}, {{}}}, {{{0}}, {{0}}}, {{{3, 5, 2}}, {{3, 5, 2}}}},
          .large = {{{70, 150}}, {{70, 150}}},
          .errors = {{[] { gated_activation(ones({2}), ones({3}), Activation::silu); },
                      "[gated_activation] gate f32 [2] and up f32 [3]; accepted: one shape"},
                     {[] { gated_activation(ones({2}), ones({2}), Activation::silu, 1.5); },
                      "[gated_activation] dropout probability 1.5; accepted: 0 to 1"}}};
}

Op linear_op(bool bias) {
  Op op = {
      .name = bias ? "linear with bias" : "linear",
      .call = [bias](const Tensors& x) { return linear(x[0], x[1], bias ? x[2] : Tensor()); },
      .reference =
          [bias](const Arrays& x) { return linear_reference(x[0], x[1], bias ? &x[2] : nullptr); },
      .large = {{{130, 140}}, {{150, 140}}, {{150}}},
      .any_layout_exact = false};
  for (const auto& [x, w] : std::vector<std::pair<Shape, Shape>>{{{3}, {2, 3}},
                                                                 {{4, 3}, {2, 3}},
                                                                 {{2, 2, 3}, {4, 3}},
                                                                 {{29, 17}, {23, 17}},
                                                                 {{0, 3}, {2, 3}},
                                                                 {{2, 0}, {3, 0}},
                                                                 {{2, 3}, {0, 3}},
                                                                 {{5, 1}, {1, 1}}})
    op.samples.push_back({{x}, {w}, {{w[0]}}});
  if (!bias)
    for (Sample* s = op.samples.data(); s != op.samples.data() + op.samples.size(); ++s)
      s->pop_back();
  op.errors = {{[] {
                  linear(ones({2, 3}), ones({4, 2}));
                },
                "[linear] x f32 [2, 3], weight f32 [4, 2]; x must be [.., in] and weight"},
               {[] {
                  linear(ones({2, 3}), ones({4, 3}), ones({3}));
                },
                "[linear] bias f32 [3] for weight f32 [4, 3]; it must be [out]"},
               {[] {
                  linear(ones({2, 3}), ones({4, 3}), ones({4}, {.dtype = f64}));
                },
                "[linear]"},
               {[] {
                  linear(ones({}), ones({4, 3}));
                },
                "[linear] x f32 []"}};
  return op;
}

// Two layers whose weights are the rows of one matrix: the layer with all rows.
Op two_linear_op() {
  Op op = linear_op(true);
  op.name = "linear of two layers";
  op.call = [](const Tensors& x) {
    const int64_t half = x[1].size(0) / 2;
    const Tensors y = linear(x[0], {x[1].slice(0, 0, half), x[1].slice(0, half)},
                             {x[2].slice(0, 0, half), x[2].slice(0, half)});
    return cat(y, -1);
  };
  op.errors = {{[] {
                  linear(ones({2, 3}), Tensors{ones({4, 3})}, Tensors());
                },
                "[linear] got 1 weights and 0 biases"}};
  return op;
}

// Three groups of rows: the second is empty, and so is the first if there are less than three rows.
Op grouped_linear_op() {
  const auto call = [](const Tensors& x) {
    const int64_t n = x[0].size(0);
    return grouped_linear(x[0], {x[1], x[2], x[3]}, {x[4], x[5], x[6]},
                          tensor<int64_t>({0, n / 3, n / 3, n}, {4}, x[0].device()));
  };
  Op op = {.name = "grouped_linear",
           .call = call,
           .reference =
               [](const Arrays& x) {
                 const Array first = linear_reference(x[0], x[1], &x[4]),
                             last = linear_reference(x[0], x[3], &x[6]);
                 return build(first.shape, [&](const Shape& i) {
                   return (i[0] < first.shape[0] / 3 ? first : last).at(i);
                 });
               },
           .any_layout_exact = false};
  for (const auto& [x, out] : std::vector<std::pair<Shape, int64_t>>{{{4, 2}, 1},
                                                                     {{2, 1}, 2},
                                                                     {{29, 17}, 23},
                                                                     {{12, 8}, 16},
                                                                     {{0, 3}, 2},
                                                                     {{4, 0}, 2},
                                                                     {{4, 3}, 0},
                                                                     {{130, 140}, 150}})
    op.samples.push_back(
        {{x}, {{out, x[1]}}, {{out, x[1]}}, {{out, x[1]}}, {{out}}, {{out}}, {{out}}});
  op.large = op.samples.back();
  op.samples.pop_back();
  const auto error = [](const std::vector<Shape>& w, const std::vector<Shape>& b,
                        const std::vector<int64_t>& offsets, const std::string& text) {
    const auto fails = [=] {
      Tensors weights, biases;
      for (const Shape& shape : w) weights.push_back(ones(shape));
      for (const Shape& shape : b) biases.push_back(ones(shape));
      grouped_linear(ones({5, 3}), weights, biases, tensor(offsets, {int64_t(offsets.size())}));
    };
    return ErrorCase{fails, "[grouped_linear] " + text};
  };
  const Shape w{2, 3};
  op.errors = {error({}, {}, {0}, "got 0 weights and 0 biases; needs a weight per group"),
               error({w, w}, {{2}}, {0, 1, 5}, "got 2 weights and 1 biases"),
               error({w, {3, 3}}, {}, {0, 1, 5}, "x f32 [5, 3], weight 1 f32 [3, 3]; weights"),
               error({w}, {{3}}, {0, 5}, "bias 0 f32 [3] for weight f32 [2, 3]; it must be"),
               error({w}, {}, {0, 1, 5}, "offsets i64 [3] of 1 groups; must be i64 [2]"),
               error({w, w}, {}, {0, 6, 5}, "offsets [0, 6, 5]  i64 [3]; must ascend from 0 to 5"),
               error({w, w}, {}, {0, 1, 4}, "offsets [0, 1, 4]  i64 [3]; must ascend from 0 to 5")};
  return op;
}

// One row of layer norm or, without subtracting the mean, RMS norm; w and b may be null.
std::vector<Number> normalized(const std::vector<Number>& row, const Number* w, const Number* b,
                               double eps, bool center) {
  const Number share = Number(1) / Number(double(row.size()));
  const Number mean = center ? total(row) * share : Number();
  std::vector<Number> deviations, squares;
  for (const Number& v : row) deviations.push_back(center ? v - mean : v);
  for (const Number& d : deviations) squares.push_back(d * d);
  const Number scale = rsqrt(total(squares) * share + Number(eps));
  for (size_t i = 0; i < row.size(); ++i) {
    Number& y = deviations[i];
    y = y * scale;
    if (w) y = y * w[i];
    if (b) y = y + b[i];
  }
  return deviations;
}

Op norm_op(bool center, bool weight, bool bias) {
  Op op = {
      .name = str(center ? "layer_norm" : "rms_norm", weight ? " weight" : "", bias ? " bias" : ""),
      .call =
          [=](const Tensors& x) {
            const Tensor w = weight ? x[1] : Tensor(), b = bias ? x.back() : Tensor();
            return center ? layer_norm(x[0], w, b) : rms_norm(x[0], w);
          },
      .reference =
          [=](const Arrays& x) {
            return along(x[0], x[0].shape.dim() - 1, [&](const std::vector<Number>& row) {
              return normalized(row, weight ? x[1].values.data() : nullptr,
                                bias ? x.back().values.data() : nullptr, center ? 1e-5 : 1e-6,
                                center);
            });
          }};
  const auto sample = [&](const Shape& x) {
    Sample s = {{x}};
    if (weight) s.push_back({{x.back()}});
    if (bias) s.push_back({{x.back()}});
    return s;
  };
  for (const Shape& x : {Shape{5}, Shape{2, 3, 4}, Shape{29, 17}, Shape{3, 23}, Shape{0, 3},
                         Shape{2, 0}, Shape{2, 1}, Shape{130, 3}})
    op.samples.push_back(sample(x));
  op.large = sample({700, 101});
  op.errors = {
      {[] {
         layer_norm(ones({2, 3}), ones({2}));
       },
       "[layer_norm] weight or bias f32 [2] for x f32 [2, 3]; it must be [D] of the same dtype"},
      {[] {
         rms_norm(ones({2, 3}), ones({3}, {.dtype = f64}));
       },
       "[rms_norm] weight or bias f64 [3] for x f32 [2, 3]"},
      {[] { layer_norm(ones({})); },
       "[layer_norm] got f32 []; accepted: a floating-point tensor with at least 1 dimension"},
      {[] { rms_norm(arange(3)); }, "[rms_norm] got i64 [3]"}};
  return op;
}

// The sum and the norm of a residual branch, one after the other along the first dimension.
Op add_norm_op(bool center, double p) {
  const RandomKey key{6, 9};
  Op op = {
      .name = str(center ? "add_layer_norm" : "add_rms_norm", ", p = ", p),
      .call =
          [=](const Tensors& x) {
            return cat(center ? add_layer_norm(x[0], x[1], {p, key}, x[2], x[3])
                              : add_rms_norm(x[0], x[1], {p, key}, x[2]),
                       0);
          },
      .reference =
          [=](const Arrays& x) {
            uint64_t i = 0;
            const Array sum = build(x[0].shape, [&](const Shape& index) {
              const bool dropped = uniform_from_bits(random_bits(key, i++)) < p;
              const Number branch = p == 0 ? x[0].at(index) : x[0].at(index) * Number(1 / (1 - p));
              Number y = dropped ? x[1].at(index) : branch + x[1].at(index);
              y.storing += std::fabs(y.value);  // the norm is that of the stored sum
              return y;
            });
            const Array norm = along(sum, sum.shape.dim() - 1, [&](const std::vector<Number>& row) {
              return normalized(row, x[2].values.data(), center ? x[3].values.data() : nullptr,
                                center ? 1e-5 : 1e-6, center);
            });
            Array all{with_entry(sum.shape, 0, 2 * sum.shape[0]), sum.values};
            all.values.insert(all.values.end(), norm.values.begin(), norm.values.end());
            return all;
          }};
  const auto sample = [&](const Shape& x) {
    Sample s = {{x}, {x}, {{x.back()}}};
    if (center) s.push_back({{x.back()}});
    return s;
  };
  for (const Shape& x : {Shape{2, 3, 4}, Shape{29, 17}, Shape{3, 64}, Shape{0, 3}, Shape{5, 8}})
    op.samples.push_back(sample(x));
  op.large = sample({700, 104});
  op.errors = {{[] {
                  add_layer_norm(ones({2, 3}), ones({2, 4}), {});
                },
                "[add_layer_norm] got f32 [2, 3] and the residual f32 [2, 4]; accepted: one shape"},
               {[] {
                  add_rms_norm(ones({2, 3}), ones({2, 3}), {.p = 2});
                },
                "[add_rms_norm] probability 2; accepted: 0 to 1"},
               {[] {
                  add_rms_norm(ones({2, 3}), ones({2, 3}), {}, ones({2}));
                },
                "[add_rms_norm] weight or bias f32 [2] for x f32 [2, 3]"}};
  return op;
}

// Rotates pairs of elements by t · 10000^(−2i/dims), t = 3 + row.
Op rotate_op(RotaryPairing pairing, int64_t dims) {
  const bool half = pairing == RotaryPairing::half;
  Op op = {
      .name = str("rotate ", dims, half ? ", half" : ", interleaved"),
      .call = [=](const Tensors& x) { return rotate(x[0], 3, {.dims = dims, .pairing = pairing}); },
      .reference =
          [=](const Arrays& x) {
            return build(x[0].shape, [&](const Shape& index) {
              const int64_t n = index[3], t = 3 + index[2];
              if (n >= dims) return x[0].at(index);
              const int64_t i = half ? n % (dims / 2) : n / 2;
              const bool first = half ? n < dims / 2 : n % 2 == 0;
              const int64_t other = n + (first ? 1 : -1) * (half ? dims / 2 : 1);
              const double angle = double(t) * std::pow(10000, -2 * double(i) / double(dims));
              const Number turned = x[0].at(with_entry(index, 3, other)) * Number(std::sin(angle));
              const Number along = x[0].at(index) * Number(std::cos(angle));
              return first ? along - turned : along + turned;
            });
          },
      .large = {{{3, 5, 77, 66}}}};
  for (const Shape& shape : {Shape{1, 1, 1, 6}, Shape{1, 2, 2, 6}, Shape{2, 3, 5, 9},
                             Shape{2, 0, 5, 6}, Shape{1, 1, 7, 38}})
    op.samples.push_back({{shape}});
  op.errors = {{[] {
                  rotate(ones({2, 3, 4}), 0);
                },
                "[rotate] x f32 [2, 3, 4]; must be a floating-point"},
               {[] {
                  rotate(ones({1, 1, 2, 5}), 0);
                },
                "[rotate] dims 0 of heads with 5 features"}};
  return op;
}

}  // namespace

void add_model_ops(std::vector<Op>& table) {
  table.push_back(rotate_op(RotaryPairing::half, 6));
  table.push_back(rotate_op(RotaryPairing::interleaved, 4));
  table.push_back(matmul_op());
  table.push_back(linear_op(false));
  table.push_back(linear_op(true));
  table.push_back(two_linear_op());
  table.push_back(grouped_linear_op());
  table.push_back(feed_forward_op(Activation::gelu_tanh, true, 0));
  table.push_back(feed_forward_op(Activation::gelu, true, 0.25));
  table.push_back(feed_forward_op(Activation::silu, false, 0));
  table.push_back(feed_forward_op(Activation::relu, true, 0));
  table.push_back(feed_forward_op(Activation::relu, true, 0.25));
  table.push_back(gated_activation_op(Activation::silu, 0));
  table.push_back(gated_activation_op(Activation::gelu_tanh, 0.25));
  table.push_back(gated_activation_op(Activation::gelu, 0));
  table.push_back(gated_activation_op(Activation::relu, 0.25));
  table.push_back(norm_op(true, false, false));
  table.push_back(norm_op(true, true, false));
  table.push_back(norm_op(true, true, true));
  table.push_back(norm_op(false, false, false));
  table.push_back(norm_op(false, true, false));
  for (const double p : {0.0, 0.3})
    for (const bool center : {true, false}) table.push_back(add_norm_op(center, p));
}

}  // namespace stretto::testing
