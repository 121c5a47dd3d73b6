#include "tests/support/op_check.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "autograd/tape.h"
#include "ops/create.h"
#include "tests/support/gradcheck.h"

namespace stretto::testing {

Outcome run(const Op& op, const Tensors& inputs,
            const std::function<Tensor(const Tensor&)>& layout) {
  Tensors given, leaves;
  for (const Tensor& x : inputs) {
    given.push_back(x.detach());
    if (op.differentiable && is_floating(x.dtype()))
      leaves.push_back(given.back().set_requires_grad());
  }
  Outcome outcome{op.call(given), {}};
  const Tensor y = outcome.y;
  outcome.y = y.detach();
  if (leaves.empty()) return outcome;
  const Tensor w = fixed_noise(y.shape(), 999, y.dtype()).to(y.device());
  if (y.requires_grad()) outcome.gradients = grad({y}, leaves, {layout ? layout(w) : w});
  return outcome;
}

bool same_bits(const Tensor& a, const Tensor& b, std::string& difference) {
  if (a.defined() != b.defined() || !a.defined()) return a.defined() == b.defined();
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) {
    difference = str(a, " is not ", b);
    return false;
  }
  const std::vector<double> p = a.to_vector<double>(), q = b.to_vector<double>();
  for (size_t i = 0; i < p.size(); ++i) {
    const bool same =
        std::memcmp(&p[i], &q[i], sizeof(double)) == 0 || (std::isnan(p[i]) && std::isnan(q[i]));
    if (same) continue;
    char text[128];
    std::snprintf(text, sizeof text, "element %zu of %zu: %.17g is not %.17g", i, p.size(), p[i],
                  q[i]);
    difference = text;
    return false;
  }
  return true;
}

bool same_bits(const Outcome& a, const Outcome& b, std::string& difference) {
  if (!same_bits(a.y, b.y, difference)) return false;
  if (a.gradients.size() != b.gradients.size()) {
    difference = "another number of gradients";
    return false;
  }
  for (size_t i = 0; i < a.gradients.size(); ++i)
    if (!same_bits(a.gradients[i], b.gradients[i], difference)) {
      difference = str("gradient ", int(i), ": ", difference);
      return false;
    }
  return true;
}

const Op& find_op(const std::string& name) {
  for (const Op& op : op_table())
    if (op.name == name) return op;
  throw std::runtime_error("no op named " + name + " in the table");
}

namespace {

double unit_roundoff(DType dtype) {
  return dtype == f64 ? 0x1p-53 : dtype == f32 ? 0x1p-24 : 0x1p-8;
}

double allowed_error(const Number& x, DType dtype) {
  if (x.rounding == 0 && x.storing == 0) return 0;
  if (dtype == f64)
    return 4 * x.rounding * 0x1p-53 + 64 * std::numeric_limits<double>::denorm_min();
  const double slack = dtype == f32 ? 0x1p-143 : 0x1p-127;  // 64 of the smallest subnormals
  double bound = x.rounding * 0x1p-24;
  if (dtype == bf16) bound += (x.storing + std::fabs(x.value)) * unit_roundoff(bf16);
  return 2 * bound + slack;
}

// |got − expected| as a fraction of the allowed error.
double part_used(double got, const Number& expected, DType dtype) {
  constexpr double all = HUGE_VAL;
  if (std::isnan(expected.value)) return std::isnan(got) ? 0 : all;
  if (std::isinf(expected.value)) return got == expected.value ? 0 : all;
  if (dtype != f64 && std::fabs(expected.value) > std::numeric_limits<float>::max())
    return std::isinf(got) && (got > 0) == (expected.value > 0) ? 0 : all;
  const double error = std::fabs(got - expected.value);
  if (error == 0) return 0;
  const double allowed = allowed_error(expected, dtype);
  return allowed > 0 && std::isfinite(allowed) && std::isfinite(error) ? error / allowed : all;
}

}  // namespace

double hold_against(const std::string& what, const Tensor& got, const Array& expected,
                    DType dtype) {
  if (!got.defined() || got.shape() != expected.shape) {
    FAIL_CHECK(what << ": " << str(got) << "; the reference has " << str(expected.shape));
    return HUGE_VAL;
  }
  const std::vector<double> values = got.to_vector<double>();
  double worst = 0;
  size_t at = 0, wrong = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double part = part_used(values[i], expected.values[i], dtype);
    if (part > 1) ++wrong;
    if (part > worst) {
      worst = part;
      at = i;
    }
  }
  if (wrong > 0) {
    const Number& x = expected.values[at];
    FAIL_CHECK(what << " in " << name(dtype) << ": " << wrong << " of " << values.size()
                    << " elements are wrong; the worst is element " << at << ": got " << values[at]
                    << ", expected " << x.value << " within " << allowed_error(x, dtype) << " ("
                    << 100 * worst << " % of the allowed error)");
  }
  return worst;
}

void check_value(const Op& op, const Tensors& inputs, const Tensor& got) {
  number_tape().clear();
  Arrays arrays;
  DType dtype = f32;
  for (const Tensor& x : inputs) {
    if (is_floating(x.dtype())) dtype = x.dtype();
    Array& array = arrays.emplace_back(Array{x.shape(), {}});
    for (double v : x.to_vector<double>()) array.values.push_back(exact_number(v));
  }
  hold_against("value", got, op.reference(arrays), dtype);
}

void check_against_reference(const Op& op, const Sample& sample, DType dtype, Device device,
                             Usage& usage) {
  const Tensors inputs = inputs_of(sample, dtype);
  number_tape().clear();
  Arrays arrays;
  std::vector<size_t> leaves;
  for (const Tensor& x : inputs) {
    Array& array = arrays.emplace_back(Array{x.shape(), {}});
    const bool leaf = op.differentiable && is_floating(x.dtype());
    for (double v : x.to_vector<double>())
      array.values.push_back(leaf ? leaf_number(v) : exact_number(v));
    if (leaf) leaves.push_back(arrays.size() - 1);
  }
  const size_t leaf_count = number_tape().size();
  const Array expected = op.reference(arrays);

  Tensors device_inputs;
  for (const Tensor& x : inputs) device_inputs.push_back(x.to(device));
  const Outcome outcome = run(op, device_inputs);
  if (is_floating(outcome.y.dtype()) && outcome.y.dtype() != dtype)
    FAIL_CHECK("the result is " << name(outcome.y.dtype()) << " for " << name(dtype));
  const double values = hold_against("value", outcome.y, expected, dtype);
  const auto where = [&] { return str(describe(op, sample), " in ", dtype); };
  if (values > usage.values) usage = {values, usage.gradients, where(), usage.gradients_at};
  if (leaves.empty()) return;

  if (outcome.gradients.size() != leaves.size()) {
    FAIL_CHECK("the result does not require a gradient");
    return;
  }
  const std::vector<double> weights =
      fixed_noise(expected.shape, 999, outcome.y.dtype()).to_vector<double>();
  const Gradients g = number_gradients(expected.values, weights, leaf_count);
  size_t at = 0;
  for (size_t i = 0; i < leaves.size(); ++i) {
    Array slope{arrays[leaves[i]].shape, {}};
    for (int64_t k = 0; k < slope.shape.numel(); ++k, ++at) {
      Number& n = slope.values.emplace_back(exact_number(g.value[at]));
      n.rounding = g.rounding[at];
      n.storing = g.storing[at];
    }
    Tensor got = outcome.gradients[i];
    if (!got.defined()) got = zeros(slope.shape, {.dtype = dtype});
    if (got.dtype() != dtype) FAIL_CHECK("gradient " << i << " is " << name(got.dtype()));
    const double part = hold_against(str("gradient of input ", int(leaves[i])), got, slope, dtype);
    if (part > usage.gradients) usage = {usage.values, part, usage.values_at, where()};
  }
}

}  // namespace stretto::testing
