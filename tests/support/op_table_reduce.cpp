// Sums, extremes, running sums and softmax [ops/reduce.h, ops/softmax.h].
#include <algorithm>
#include <numeric>

#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/similarity.h"
#include "ops/softmax.h"
#include "tests/support/op_table.h"

namespace stretto::testing {
namespace {

template <class Call, class F>
Op of_one(std::string name, std::vector<Shape> shapes, Shape large, Call call, F reference) {
  Op op = {.name = std::move(name),
           .call = [call](const Tensors& x) { return call(x[0]); },
           .reference = [reference](const Arrays& x) { return reference(x[0]); },
           .large = {{large}}};
  for (const Shape& shape : shapes) op.samples.push_back({{shape}});
  return op;
}

struct Reduction {
  std::vector<int64_t> dims;
  bool keepdim;
  std::vector<Shape> shapes;
};

// All dimensions, keepdim, the first, middle and last dimension, several in any order; empty slices
// and empty tensors.
const std::vector<Reduction>& reductions() {
  static const std::vector<Reduction> list = {
      {{}, false, {{}, {1}, {23}, {812}, {29, 17}, {0}, {2, 0, 3}}},
      {{}, true, {{}, {5}, {29, 17}}},
      {{0}, false, {{1}, {1026}, {29, 17}, {0, 2, 3}, {2, 0, 3}}},
      {{1}, false, {{29, 17}, {3, 31}, {3, 32}, {3, 33}, {2, 3, 4}, {2, 0, 3}}},
      {{-1}, true, {{29, 17}, {2, 3, 4}, {2, 3, 0}, {17, 1}}},
      {{0, 2}, false, {{2, 3, 4}, {5, 0, 2}, {3, 1, 17}}},
      {{3, 0, 2}, false, {{2, 3, 2, 3}, {1, 4, 1, 1}}}};
  return list;
}

template <class F>
void add_reduction(std::vector<Op>& table, const std::string& name,
                   Tensor (*call)(const Tensor&, const Dims&, bool), F f) {
  for (const Reduction& r : reductions()) {
    std::vector<int64_t> dims = r.dims;
    table.push_back(of_one(
        str(name, ' ', Shape(dims), r.keepdim ? " keepdim" : ""), r.shapes,
        r.dims.size() == 3 ? Shape{3, 40, 31, 29} : Shape{7, 101, 113},
        [call, dims, keep = r.keepdim](const Tensor& x) { return call(x, Dims(dims), keep); },
        [f, dims, keep = r.keepdim](const Array& x) { return reduced(x, dims, keep, f); }));
  }
  table.back().errors = {
      {[call] {
         call(ones({2, 3}), {0, 0}, false);
       },
       "[" + name + "] dimensions [0, 0] name"},
      {[call] {
         call(ones({2, 3}), {1, -1}, false);
       },
       "[" + name + "] dimensions [1, -1] name"},
      {[call] {
         call(ones({2, 3}), {2}, false);
       },
       "[" + name + "] dimension 2 is out of range for a tensor with 2 dimensions"},
      {[call] { call(ones({}), {0}, false); },
       "[" + name + "] dimension 0 is out of range for a tensor with 0 dimensions"}};
  if (name != "sum")
    table.back().errors.push_back({[call] { call(arange(3), {}, false); },
                                   "[" + name + "] got i64 [3]; accepted: f32, f64, bf16"});
}

Number average(const std::vector<Number>& values) {
  return total(values) * (Number(1) / Number(double(values.size())));
}

template <int correction>
Number variance(const std::vector<Number>& values) {
  const Number mean = average(values);
  std::vector<Number> squares;
  for (const Number& v : values) squares.push_back((v - mean) * (v - mean));
  const double degrees = std::max(0.0, double(values.size()) - correction);
  return total(squares) * (Number(1) / Number(degrees));
}

const std::vector<Shape> rows = {{1}, {23}, {812}, {29, 17}, {2, 3, 4}, {0, 3}};

void add_extremes(std::vector<Op>& table) {
  const auto extreme = [](double sign) {
    return [sign](const std::vector<Number>& values) {
      size_t best = 0;  // the first of equal values, or the first NaN
      for (size_t i = 0; i < values.size(); ++i)
        if (!std::isnan(values[best].value) &&
            (std::isnan(values[i].value) || sign * values[i].value > sign * values[best].value))
          best = i;
      return std::pair{values[best], best};
    };
  };
  for (const double sign : {1.0, -1.0}) {
    const char* name = sign > 0 ? "max" : "min";
    const auto call = sign > 0 ? +[](const Tensor& x, int64_t d, bool k) { return max(x, d, k); }
                               : +[](const Tensor& x, int64_t d, bool k) { return min(x, d, k); };
    const auto all = sign > 0 ? +[](const Tensor& x) { return max(x); }
                              : +[](const Tensor& x) { return min(x); };
    const auto value = [f = extreme(sign)](const std::vector<Number>& v) { return f(v).first; };
    table.push_back(of_one(str(name, " of all"), {{}, {1}, {29, 17}, {812}}, {259, 283}, all,
                           [value](const Array& x) { return reduced(x, {}, false, value); }));
    table.back().errors = {{[all] {
                              all(zeros({0, 2}));
                            },
                            str("[", name, "] f32 [0, 2] is empty: it has no ")}};
    for (int64_t d : {0, -1}) {
      table.push_back(of_one(
          str(name, ' ', d), rows, {259, 283}, [=](const Tensor& x) { return call(x, d, d == 0); },
          [=](const Array& x) { return reduced(x, {d}, d == 0, value); }));
      if (d == 0) table.back().samples.pop_back();
    }
    table.back().errors = {{[call] {
                              call(zeros({2, 0}), 1, false);
                            },
                            str("[", name, "] dimension 1 of f32 [2, 0] is empty")}};
  }
  table.push_back(of_one(
      "argmax -1", rows, {259, 283}, [](const Tensor& x) { return argmax(x, -1); },
      [f = extreme(1)](const Array& x) {
        return reduced(x, {-1}, false,
                       [f](const std::vector<Number>& v) { return Number(double(f(v).second)); });
      }));
  table.back().differentiable = false;
  table.back().errors = {
      {[] { argmax(zeros({0}), 0); }, "[argmax] dimension 0 of f32 [0] is empty"}};
}

void add_sorting(std::vector<Op>& table) {
  const auto sorted = [](bool descending, size_t keep) {
    return [=](const std::vector<Number>& slice) {
      std::vector<Number> values = slice;
      std::stable_sort(values.begin(), values.end(), [=](const Number& a, const Number& b) {
        return descending ? a.value > b.value : a.value < b.value;
      });
      values.resize(std::min(keep, values.size()));
      return values;
    };
  };
  const std::vector<Shape> shapes = {{4}, {23}, {29, 17}, {2, 5, 3}};
  table.push_back(of_one(
      "sort -1", shapes, {259, 283}, [](const Tensor& x) { return sort(x).values; },
      [=](const Array& x) { return along(x, x.shape.dim() - 1, sorted(false, SIZE_MAX)); }));
  table.push_back(of_one(
      "sort 0 descending", shapes, {259, 283},
      [](const Tensor& x) { return sort(x, 0, true).values; },
      [=](const Array& x) { return along(x, 0, sorted(true, SIZE_MAX)); }));
  table.push_back(of_one(
      "topk 3", shapes, {259, 283}, [](const Tensor& x) { return topk(x, 3, -1).values; },
      [=](const Array& x) { return along(x, x.shape.dim() - 1, sorted(true, 3)); }));
  table.back().errors = {
      {[] { topk(ones({2}), 3); }, "[topk] k = 3 of dimension 0 of f32 [2]; accepted: 0 to 2"}};
}

std::vector<Number> running_sums(const std::vector<Number>& slice) {
  std::vector<Number> sums;
  Number sum;
  for (const Number& v : slice) sums.push_back(sum = sum + v);
  return sums;
}

std::vector<Number> softmax_of(const std::vector<Number>& slice) {
  const double top = largest(slice);
  std::vector<Number> powers;
  for (const Number& v : slice) powers.push_back(exp(v - exact_number(top)));
  const Number scale = Number(1) / total(powers);
  for (Number& p : powers) p = p * scale;
  return powers;
}

Number log_of_sum(const std::vector<Number>& slice) {
  const double top = largest(slice);
  std::vector<Number> powers;
  for (const Number& v : slice) powers.push_back(exp(v - exact_number(top)));
  return exact_number(top) + log(total(powers));
}

// The slope is δ − exp(y) with the computed and stored y, so the error of y is a relative error of
// exp(y). A chain of sums connects the result to its many inputs.
std::vector<Number> log_softmax_of(const std::vector<Number>& slice) {
  std::vector<Number> result_row;
  const Number lse = log_of_sum(slice);
  for (const Number& v : slice) {
    const Number y = v - lse;
    Number chain = v;
    for (const Number& w : slice) {
      const double p = std::exp(w.value - lse.value), error = std::fabs(w.value - lse.value);
      const Number yw = w - lse;
      chain = result(0, 0, 0, {.value = 1, .parent = chain.node},
                     {-p, p * (4 + yw.rounding), p * error, w.node});
    }
    chain.value = y.value;
    chain.rounding = y.rounding;
    chain.storing = y.storing;
    result_row.push_back(chain);
  }
  return result_row;
}

std::vector<Number> unit_vector(const std::vector<Number>& slice) {
  Number squares;
  for (const Number& v : slice) squares = squares + v * v;
  std::vector<Number> unit;
  for (const Number& v : slice) unit.push_back(v * rsqrt(squares));
  return unit;
}

std::vector<Number> gated_half(const std::vector<Number>& slice) {
  std::vector<Number> gated;
  for (size_t i = 0; i < slice.size() / 2; ++i)
    gated.push_back(slice[i] * sigmoid(slice[i + slice.size() / 2]));
  return gated;
}

void add_along(std::vector<Op>& table, const std::string& name, Tensor (*call)(const Tensor&, Int),
               std::vector<Number> (*f)(const std::vector<Number>&),
               const Shape& large = {7, 101, 113}) {
  for (int64_t d : {-1, 0}) {
    table.push_back(of_one(
        str(name, ' ', d), {{1}, {23}, {29, 17}, {2, 3, 4}, {0, 3}, {3, 0}}, large,
        [=](const Tensor& x) { return call(x, d); },
        [=](const Array& x) { return along(x, d < 0 ? x.shape.dim() - 1 : d, f); }));
    table.back().errors = {
        {[=] { call(ones({2}), 1); },
         "[" + name + "] dimension 1 is out of range for a tensor with 1 dimension"}};
    if (name != "cumsum")
      table.back().errors.push_back(
          {[=] { call(arange(3), 0); }, "[" + name + "] got i64 [3]; accepted: f32, f64, bf16"});
  }
}

}  // namespace

void add_reduce_ops(std::vector<Op>& table) {
  add_reduction(table, "sum", sum, total);
  add_reduction(table, "mean", mean, average);
  add_reduction(
      table, "var", [](const Tensor& x, const Dims& d, bool k) { return var(x, d, 1, k); },
      variance<1>);
  table.push_back(of_one(
      "var [-1] correction 0", {{1}, {23}, {29, 17}}, {7, 101, 113},
      [](const Tensor& x) { return var(x, {-1}, 0); },
      [](const Array& x) { return reduced(x, {-1}, false, variance<0>); }));
  add_extremes(table);
  add_sorting(table);
  add_along(table, "cumsum", cumsum, running_sums);
  add_along(
      table, "normalize", [](const Tensor& x, Int d) { return normalize(x, d); }, unit_vector);
  table.push_back(of_one(
      "glu 1", {{3, 2}, {29, 18}, {2, 6, 3}, {4, 0}}, {7, 102, 113},
      [](const Tensor& x) { return glu(x, 1); },
      [](const Array& x) { return along(x, 1, gated_half); }));
  table.back().errors = {{[] {
                            glu(ones({2, 3}));
                          },
                          "[glu] dimension 1 of f32 [2, 3] has an odd size"}};
  add_along(table, "softmax", softmax, softmax_of);
  add_along(table, "log_softmax", log_softmax, log_softmax_of, {5, 1800, 4});
  table.push_back(of_one(
      "softmax of 0-d", {{}}, {}, [](const Tensor& x) { return softmax(x); },
      [](const Array& x) {
        return build({}, [&](const Shape&) { return Number() * x.values[0] + Number(1); });
      }));
  for (bool keepdim : {false, true})
    table.push_back(of_one(
        str("logsumexp -1", keepdim ? " keepdim" : ""), {{1}, {23}, {29, 17}, {2, 3, 4}, {0, 3}},
        {7, 101, 113}, [keepdim](const Tensor& x) { return logsumexp(x, -1, keepdim); },
        [keepdim](const Array& x) { return reduced(x, {-1}, keepdim, log_of_sum); }));
}

}  // namespace stretto::testing
