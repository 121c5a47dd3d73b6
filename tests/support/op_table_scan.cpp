// Norms, products, logical reductions and scans [ops/reduce.h].
#include <algorithm>
#include <functional>

#include "ops/create.h"
#include "ops/reduce.h"
#include "tests/support/op_table.h"

namespace stretto::testing {
namespace {

using Numbers = std::vector<Number>;

template <class Call, class F>
Op of_one(std::string name, std::vector<Shape> shapes, Shape large, Call call, F reference) {
  Op op = {.name = std::move(name),
           .call = [call](const Tensors& x) { return call(x[0]); },
           .reference = [reference](const Arrays& x) { return reference(x[0]); },
           .large = {{large}}};
  for (const Shape& shape : shapes) op.samples.push_back({{shape}});
  return op;
}

using Reduction = std::function<Tensor(const Tensor&, const Dims&, bool)>;

// Over all dimensions, the last with keepdim, and two of three.
void add_reduction(std::vector<Op>& table, const std::string& name, const Reduction& call,
                   const std::function<Number(const Numbers&)>& f, bool of_empty = true) {
  struct Case {
    std::vector<int64_t> dims;
    bool keepdim;
    std::vector<Shape> shapes, empty;
    Shape large;
  };
  for (const Case& c : {Case{{}, false, {{}, {23}, {5, 3}}, {{0}, {2, 0, 3}}, {31, 29}},
                        Case{{-1}, true, {{29, 17}, {2, 3, 4}, {0, 3}}, {{2, 0}}, {601, 113}},
                        Case{{0, 2}, false, {{2, 3, 4}, {7, 0, 5}}, {{0, 2, 3}}, {7, 101, 113}}}) {
    std::vector<Shape> shapes = c.shapes;
    if (of_empty) shapes.insert(shapes.end(), c.empty.begin(), c.empty.end());
    table.push_back(of_one(
        str(name, ' ', Shape(c.dims), c.keepdim ? " keepdim" : ""), shapes, c.large,
        [call, dims = c.dims, keep = c.keepdim](const Tensor& x) {
          return call(x, Dims(dims), keep);
        },
        [f, dims = c.dims, keep = c.keepdim](const Array& x) {
          return reduced(x, dims, keep, f);
        }));
  }
  const std::string op = name.substr(0, name.find(' '));
  table.back().errors = {{[call] {
                            call(ones({2, 3}), {1, -1}, false);
                          },
                          "[" + op + "] dimensions [1, -1] name a dimension twice"},
                         {[call] {
                            call(ones({2, 3}), {2}, false);
                          },
                          "[" + op + "] dimension 2 is out of range for a tensor with 2 dim"}};
}

Number product(const Numbers& values) {
  Number y(1);
  for (const Number& v : values) y = y * v;
  return y;
}

Number root_of_variance(const Numbers& values) {
  const Number n(1 / double(values.size())), mean = total(values) * n;
  Numbers squares;
  for (const Number& v : values) squares.push_back((v - mean) * (v - mean));
  return sqrt(total(squares) * Number(1 / std::max(0.0, double(values.size()) - 1)));
}

void add_norms(std::vector<Op>& table) {
  const auto with_power = [](double p) {
    return [p](const Tensor& x, const Dims& dims, bool keep) { return norm(x, p, dims, keep); };
  };
  add_reduction(table, "norm 2", with_power(2), [](const Numbers& values) {
    Numbers squares;
    for (const Number& v : values) squares.push_back(v * v);
    return values.empty() ? Number() : sqrt(total(squares));
  });
  add_reduction(table, "norm 1", with_power(1), [](const Numbers& values) {
    Numbers sizes;
    for (const Number& v : values) sizes.push_back(abs(v));
    return total(sizes);
  });
  add_reduction(table, "norm 3", with_power(3), [](const Numbers& values) {
    Numbers powers;
    for (const Number& v : values) powers.push_back(pow(abs(v), 3));
    return values.empty() ? Number() : pow(total(powers), 1.0 / 3);
  });
  const auto greatest = [](const Numbers& values) {
    Number top = abs(values[0]);
    for (const Number& v : values)
      if (std::fabs(v.value) > top.value) top = abs(v);
    return top;
  };
  add_reduction(table, "norm inf", with_power(HUGE_VAL), greatest, false);
  table.back().errors.push_back(
      {[] { norm(ones({2}), 0); }, "[norm] p = 0; accepted: greater than 0"});
  table.back().errors.push_back(
      {[] { norm(arange(2)); }, "[norm] got i64 [2]; accepted: f32, f64, bf16"});
}

void add_logical(std::vector<Op>& table) {
  const auto of_masks = [&](const char* name, Tensor (*call)(const Tensor&, const Dims&, bool),
                            bool (*f)(bool, bool), bool start) {
    const size_t first = table.size();
    add_reduction(table, name, call, [=](const Numbers& values) {
      bool y = start;
      for (const Number& v : values) y = f(y, v.value != 0);
      return Number(y);
    });
    for (size_t i = first; i < table.size(); ++i) {
      Op& op = table[i];
      op.differentiable = false;
      const std::vector<Sample> floats = op.samples;
      for (const Sample& sample : floats) {
        op.samples.push_back({{sample[0].shape, Domain::mask}});
        op.samples.push_back({{sample[0].shape, Domain::index, 2}});
      }
    }
  };
  of_masks(
      "any", any, [](bool a, bool b) { return a || b; }, false);
  of_masks(
      "all", all, [](bool a, bool b) { return a && b; }, true);
}

void add_argmin(std::vector<Op>& table) {
  const auto first_smallest = [](const Numbers& values) {
    size_t best = 0;
    for (size_t i = 0; i < values.size(); ++i)
      if (values[i].value < values[best].value) best = i;
    return Number(double(best));
  };
  table.push_back(of_one(
      "argmin 0", {{1}, {23}, {29, 17}, {2, 3, 4}}, {259, 283},
      [](const Tensor& x) { return argmin(x, 0); },
      [=](const Array& x) { return reduced(x, {0}, false, first_smallest); }));
  table.back().errors = {
      {[] { argmin(zeros({0}), 0); }, "[argmin] dimension 0 of f32 [0] is empty"}};
  table.push_back(of_one(
      "argmin of all", {{}, {23}, {29, 17}}, {259, 283}, [](const Tensor& x) { return argmin(x); },
      [=](const Array& x) { return reduced(x, {}, false, first_smallest); }));
  table.back().errors = {{[] {
                            argmin(zeros({2, 0}));
                          },
                          "[argmin] f32 [2, 0] is empty"},
                         {[] { argmax(zeros({0})); }, "[argmax] f32 [0] is empty"}};
  for (size_t i = table.size() - 2; i < table.size(); ++i) table[i].differentiable = false;
}

Numbers running_products(const Numbers& slice) {
  Numbers products;
  Number y(1);
  for (const Number& v : slice) products.push_back(y = y * v);
  return products;
}

Numbers running_logarithms(const Numbers& slice) {
  Numbers sums;
  for (size_t i = 0; i < slice.size(); ++i) {
    const Numbers part(slice.begin(), slice.begin() + std::ptrdiff_t(i) + 1);
    const double top = largest(part);
    Numbers powers;
    for (const Number& v : part) powers.push_back(exp(v - exact_number(top)));
    sums.push_back(exact_number(top) + log(total(powers)));
  }
  return sums;
}

void add_scan(std::vector<Op>& table, const char* name, Tensor (*call)(const Tensor&, Int),
              Numbers (*f)(const Numbers&)) {
  for (int64_t d : {-1, 0}) {
    table.push_back(of_one(
        str(name, ' ', d), {{1}, {2}, {7}, {23}, {29, 17}, {2, 3, 4}, {0, 3}, {3, 0}},
        d == 0 ? Shape{40, 211} : Shape{211, 40}, [=](const Tensor& x) { return call(x, d); },
        [=](const Array& x) { return along(x, d < 0 ? x.shape.dim() - 1 : d, f); }));
    table.back().errors = {
        {[=] { call(ones({2}), 1); },
         str("[", name, "] dimension 1 is out of range for a tensor with 1 dimension")}};
  }
}

}  // namespace

void add_scan_ops(std::vector<Op>& table) {
  add_norms(table);
  add_reduction(
      table, "std", [](const Tensor& x, const Dims& d, bool k) { return std(x, d, 1, k); },
      root_of_variance);
  add_reduction(table, "prod", prod, product);
  add_logical(table);
  add_argmin(table);
  add_scan(table, "cumprod", cumprod, running_products);
  add_scan(table, "logcumsumexp", logcumsumexp, running_logarithms);
  table.back().errors.push_back(
      {[] { logcumsumexp(arange(3), 0); }, "[logcumsumexp] got i64 [3]; accepted: f32, f64, bf16"});
}

}  // namespace stretto::testing
