// Functions of one tensor [ops/elementwise.h, ops/dropout.h].
#include "core/random.h"
#include "ops/create.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "tests/support/op_table.h"

namespace stretto::testing {
Number gelu_tanh_reference(const Number& x) {
  const Number inner = Number(std::sqrt(2 / M_PI)) * (x + Number(0.044715) * x * x * x);
  return Number(0.5) * x * (Number(1) + tanh(inner));
}

Number gelu_reference(const Number& x) {
  return x * (Number(0.5) + Number(0.5) * erf(x * Number(std::sqrt(0.5))));
}

namespace {

// Sizes around one and several SIMD vectors, empty and 0-d tensors.
std::vector<Sample> unary_samples(Domain domain) {
  std::vector<Sample> samples;
  for (const Shape& shape :
       {Shape{}, Shape{0}, Shape{0, 3, 3}, Shape{1, 0, 5}, Shape{6, 0, 0, 0}, Shape{3, 0, 1, 0},
        Shape{1}, Shape{3, 4}, Shape{23}, Shape{812}, Shape{1026}, Shape{29, 17}})
    samples.push_back({{shape, domain}});
  return samples;
}

template <class Call, class F>
Op unary(std::string name, Call call, F f, Domain domain = Domain::any) {
  return {.name = std::move(name),
          .call = [call](const Tensors& x) { return call(x[0]); },
          .reference =
              [f](const Arrays& x) {
                return build(x[0].shape, [&](const Shape& i) { return f(x[0].at(i)); });
              },
          .samples = unary_samples(domain),
          .large = {{{259, 283}, domain}},
          .elementwise = true};
}

Op constant_slope(Op op) {
  op.differentiable = false;
  return op;
}

// Dropout; element i of the result depends on the i-th random number.
Op dropout_op(double p, RandomKey key) {
  Op op = unary(
      str("dropout p = ", p), [=](const Tensor& x) { return dropout(x, p, key); },
      [](const Number& x) { return x; });
  op.reference = [=](const Arrays& x) {
    uint64_t i = 0;
    return build(x[0].shape, [&](const Shape& index) {
      const bool dropped = uniform_from_bits(random_bits(key, i++)) < p;
      return dropped ? Number() : x[0].at(index) * Number(1 / (1 - p));
    });
  };
  op.elementwise = false;  // a dropped NaN becomes 0, unlike 0 · NaN
  op.errors = {
      {[] { dropout(ones({2}), -0.1); }, "[dropout] probability -0.1; accepted: 0 to 1"},
      {[] { dropout(ones({2}), 1.5); }, "[dropout] probability 1.5; accepted: 0 to 1"},
      {[] { dropout(arange(2), 0.5); }, "[dropout] got i64 [2]; accepted: f32, f64, bf16"}};
  return op;
}

// Dropout of the first input, added to the second.
Op dropout_add_op(double p, RandomKey key) {
  Op op = dropout_op(p, key);
  const auto dropped = op.reference;
  op.name = str("dropout_add p = ", p);
  op.call = [=](const Tensors& x) { return dropout_add(x[0], x[1], p, key); };
  op.reference = [=](const Arrays& x) {
    const Array first = dropped({x[0]});
    return build(first.shape, [&](const Shape& i) { return first.at(i) + x[1].at(i); });
  };
  for (Sample& sample : op.samples) sample.push_back(sample[0]);
  op.large.push_back(op.large[0]);
  op.errors = {{[] { dropout_add(ones({2}), ones({2}), 1.5); },
                "[dropout_add] probability 1.5; accepted: 0 to 1"},
               {[] { dropout_add(ones({2}), ones({3}), 0.5); },
                "[dropout_add] got f32 [2] and the residual f32 [3]; accepted: one shape, and one "
                "of f32, f64, bf16"},
               {[] { dropout_add(ones({2}), ones({2}, {.dtype = f64}), 0.5); },
                "[dropout_add] got f32 [2] and the residual f64 [2]; accepted: one shape, and one "
                "of f32, f64, bf16"}};
  return op;
}

}  // namespace

void add_unary_ops(std::vector<Op>& table) {
  using N = const Number&;
  const auto positive = Domain::positive;
  table.push_back(unary("exp", stretto::exp, testing::exp));
  table.push_back(unary("log", stretto::log, testing::log, positive));
  table.push_back(unary("log1p", stretto::log1p, testing::log1p, positive));
  table.push_back(unary("expm1", stretto::expm1, testing::expm1));
  table.push_back(unary("sin", stretto::sin, testing::sin));
  table.push_back(unary("cos", stretto::cos, testing::cos));
  table.push_back(unary("tanh", stretto::tanh, testing::tanh));
  table.push_back(unary("sigmoid", stretto::sigmoid, testing::sigmoid));
  table.push_back(unary("erf", stretto::erf, testing::erf));
  table.push_back(unary("abs", stretto::abs, testing::abs));
  table.push_back(unary("relu", stretto::relu, [](N x) {
    return x.value <= 0 ? Number() : x;  // NaN is passed on
  }));
  table.push_back(unary(
      "leaky_relu 0.1", [](const Tensor& x) { return leaky_relu(x, 0.1); },
      [](N x) { return x.value > 0 ? x : x * Number(0.1); }));
  table.push_back(unary(
      "elu 0.7", [](const Tensor& x) { return elu(x, 0.7); },
      [](N x) { return x.value > 0 ? x : Number(0.7) * testing::expm1(x); }));
  table.push_back(unary(
      "maximum with 0.75", [](const Tensor& x) { return maximum(x, 0.75); },
      [](N x) { return x.value < 0.75 ? Number(0.75) : x; }));
  table.push_back(unary(
      "minimum with -0.75", [](const Tensor& x) { return minimum(x, -0.75); },
      [](N x) { return x.value > -0.75 ? Number(-0.75) : x; }));
  table.push_back(unary("gelu", stretto::gelu, gelu_reference));
  table.push_back(unary("gelu_tanh", stretto::gelu_tanh, gelu_tanh_reference));
  table.push_back(unary("silu", stretto::silu, [](N x) { return x * sigmoid(x); }));
  table.push_back(unary("softplus", stretto::softplus, testing::softplus));
  table.push_back(unary("square", stretto::square, [](N x) { return x * x; }));
  table.push_back(unary("sqrt", stretto::sqrt, testing::sqrt, positive));
  table.push_back(unary("rsqrt", stretto::rsqrt, testing::rsqrt, positive));
  table.push_back(unary("neg", stretto::neg, [](N x) { return -x; }));
  table.push_back(constant_slope(unary("heaviside", stretto::heaviside, [](N x) {
    return std::isnan(x.value) ? x : Number(x.value > 0);
  })));
  table.push_back(constant_slope(unary("sign", stretto::sign, [](N x) {
    return std::isnan(x.value) ? x : Number((x.value > 0) - (x.value < 0));
  })));

  const auto rounding = [](const char* name, Tensor (*call)(const Tensor&), double (*f)(double)) {
    return constant_slope(unary(name, call, [f](N x) { return Number(f(x.value)); }));
  };
  table.push_back(rounding("floor", stretto::floor, std::floor));
  table.push_back(rounding("ceil", stretto::ceil, std::ceil));
  table.push_back(rounding("trunc", stretto::trunc, std::trunc));
  table.push_back(rounding("round", stretto::round, std::nearbyint));

  table.push_back(unary(
      "x + 0.3", [](const Tensor& x) { return x + 0.3; }, [](N x) { return x + Number(0.3); }));
  table.push_back(unary(
      "x - 2", [](const Tensor& x) { return x - 2.0; }, [](N x) { return x - Number(2); }));
  table.push_back(unary(
      "1 - x", [](const Tensor& x) { return 1.0 - x; }, [](N x) { return Number(1) - x; }));
  table.push_back(unary(
      "x * -0.7", [](const Tensor& x) { return x * -0.7; }, [](N x) { return x * Number(-0.7); }));
  table.push_back(unary(
      "x / 3", [](const Tensor& x) { return x / 3.0; },
      [](N x) { return x * (Number(1) / Number(3)); }));
  table.push_back(unary(
      "3 / x", [](const Tensor& x) { return 3.0 / x; }, [](N x) { return Number(3) / x; }));

  for (double p : {2.0, 3.0, -1.0, 1.0, 0.0})
    table.push_back(unary(
        str("pow ", p), [p](const Tensor& x) { return pow(x, p); },
        [p](N x) { return pow(x, p); }));
  for (double p : {0.5, 2.3})
    table.push_back(unary(
        str("pow ", p), [p](const Tensor& x) { return pow(x, p); }, [p](N x) { return pow(x, p); },
        positive));
  table.push_back(unary(
      "0.7 to the power of x", [](const Tensor& x) { return pow(0.7, x); },
      [](N x) { return pow(Number(0.7), x); }));
  table.push_back(unary(
      "floor_divide 0.75", [](const Tensor& x) { return floor_divide(x, 0.75); },
      [](N x) { return floor_divide(x, Number(0.75)); }));
  table.back().differentiable = false;
  table.push_back(unary(
      "remainder 0.75", [](const Tensor& x) { return remainder(x, 0.75); },
      [](N x) { return remainder(x, Number(0.75)); }));
  table.push_back(unary(
      "clamp", [](const Tensor& x) { return clamp(x, -0.75, 1.5); },
      [](N x) { return x.value < -0.75 ? Number(-0.75)
                       : x.value > 1.5 ? Number(1.5)
                                       : x; }));
  table.back().errors = {{[] { clamp(ones({2}), 1, -1); }, "[clamp] low 1 is above high -1"}};

  for (double p : {0.0, 0.3, 0.9}) table.push_back(dropout_op(p, {.seed = 5, .stream = 7}));
  for (double p : {0.3, 0.9}) table.push_back(dropout_add_op(p, {.seed = 5, .stream = 8}));
}

}  // namespace stretto::testing
