// Functions of two tensors, comparisons and masks [ops/elementwise.h].
#include "ops/create.h"
#include "ops/elementwise.h"
#include "tests/support/op_table.h"

namespace stretto::testing {
namespace {

// Pairs of shapes: broadcasting, sizes that are no multiple of a SIMD vector, and empty tensors.
const std::vector<std::pair<Shape, Shape>>& pairs() {
  static const std::vector<std::pair<Shape, Shape>> list = {{{}, {}},
                                                            {{1}, {}},
                                                            {{2}, {}},
                                                            {{1}, {2}},
                                                            {{2, 1}, {2}},
                                                            {{1, 2}, {2}},
                                                            {{3, 2}, {2}},
                                                            {{1, 3, 2}, {2}},
                                                            {{1, 3, 2}, {3, 2}},
                                                            {{3, 1, 2}, {3, 2}},
                                                            {{2, 3, 2}, {}},
                                                            {{3, 1, 2}, {1, 3, 2}},
                                                            {{5}, {}},
                                                            {{5, 1}, {5}},
                                                            {{10, 1, 5}, {1, 10, 5}},
                                                            {{0, 1, 3}, {0, 10, 3}},
                                                            {{}, {0}},
                                                            {{2, 1}, {1, 0}},
                                                            {{23}, {23}},
                                                            {{812}, {812}},
                                                            {{29, 17}, {29, 1}},
                                                            {{17}, {29, 17}},
                                                            {{29, 17}, {29, 17}}};
  return list;
}

std::vector<Sample> pair_samples(Domain a, Domain b) {
  std::vector<Sample> samples;
  for (const auto& [p, q] : pairs()) samples.push_back({{p, a, 9}, {q, b, 9}});
  return samples;
}

template <class Call, class F>
Op binary(const char* name, Call call, F f, Domain domain = Domain::any) {
  return {.name = name,
          .call = [call](const Tensors& x) { return call(x[0], x[1]); },
          .reference =
              [f](const Arrays& x) {
                return build(broadcast_of(x[0].shape, x[1].shape),
                             [&](const Shape& i) { return f(x[0].at(i), x[1].at(i)); });
              },
          .samples = pair_samples(domain, domain),
          .large = {{{257, 281}, domain}, {{281}, domain}},
          .elementwise = true};
}

using TwoTensors = Tensor (*)(const Tensor&, const Tensor&);

ErrorCase refused(const std::string& name, TwoTensors call, Shape a, Shape b, std::string details) {
  return {[=] { call(zeros(a), zeros(b)); },
          str("[", name, "] shapes ", a, " and ", b, " do not broadcast: ", details)};
}

// Pairs of shapes that do not broadcast.
std::vector<ErrorCase> shape_errors(const char* name, TwoTensors call) {
  const std::string rule =
      "; each pair of sizes, aligned at the right, must be equal or contain a 1";
  return {refused(name, call, {2}, {0}, "sizes 2 and 0 at dimension 0" + rule),
          refused(name, call, {2, 1}, {0, 0}, "sizes 2 and 0 at dimension 0"),
          refused(name, call, {3}, {2}, "sizes 3 and 2 at dimension 0"),
          refused(name, call, {1, 3}, {2}, "sizes 3 and 2 at dimension 1"),
          refused(name, call, {3}, {1, 2}, "sizes 2 and 3 at dimension 1"),
          refused(name, call, {1, 3, 2}, {1, 2, 2}, "sizes 3 and 2 at dimension 1")};
}

Op arithmetic(const char* name, TwoTensors call, Number (*f)(const Number&, const Number&)) {
  Op op = binary(name, call, f);
  op.errors = shape_errors(name, call);
  return op;
}

Op without_gradient(Op op) {
  op.differentiable = false;
  op.elementwise = false;  // a comparison with NaN is false, not NaN
  return op;
}

Op comparison(const char* name, TwoTensors call, bool (*f)(double, double)) {
  Op op = without_gradient(binary(
      name, call, [f](const Number& a, const Number& b) { return Number(f(a.value, b.value)); }));
  op.errors = shape_errors(name, call);
  // Equal values occur among small integers.
  op.samples.push_back({{{29, 17}, Domain::index, 3}, {{17}, Domain::index32, 3}});
  return op;
}

Op comparison_with(const char* name, Tensor (*call)(const Tensor&, double),
                   bool (*f)(double, double)) {
  Op op = without_gradient({.name = name,
                            .call = [call](const Tensors& x) { return call(x[0], 1); },
                            .reference =
                                [f](const Arrays& x) {
                                  return build(x[0].shape, [&](const Shape& i) {
                                    return Number(f(x[0].at(i).value, 1));
                                  });
                                },
                            .large = {{{259, 283}}}});
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{23}, Shape{29, 17}})
    for (Domain domain : {Domain::any, Domain::index, Domain::mask})
      op.samples.push_back({{shape, domain, 3}});
  return op;
}

Op logical(const char* name, TwoTensors call, bool (*f)(bool, bool)) {
  Op op = without_gradient(binary(
      name, call,
      [f](const Number& a, const Number& b) { return Number(f(a.value != 0, b.value != 0)); },
      Domain::mask));
  op.errors = {{[call] { call(ones({2}), ones({2})); },
                str("[", name, "] mask is f32 [2]; accepted: bool, u8")}};
  return op;
}

Op where_op() {
  Op op = {.name = "where",
           .call = [](const Tensors& x) { return where(x[0], x[1], x[2]); },
           .reference =
               [](const Arrays& x) {
                 const Shape shape = broadcast_of(x[0].shape, broadcast_of(x[1].shape, x[2].shape));
                 return build(shape, [&](const Shape& i) {
                   return x[0].at(i).value != 0 ? x[1].at(i) : x[2].at(i);
                 });
               },
           .large = {{{257, 281}, Domain::mask}, {{257, 281}}, {{281}}}};
  for (const auto& [p, q] : pairs()) {
    op.samples.push_back({{broadcast_of(p, q), Domain::mask}, {p}, {q}});
    op.samples.push_back({{p, Domain::mask}, {q}, {p}});
  }
  op.errors = {{[] { where(ones({2}), ones({2}), ones({2})); },
                "[where] mask is f32 [2]; accepted: bool, u8"},
               {[] { where(ones({2}, {.dtype = u8}), ones({2}), ones({3})); },
                "[where] shapes [2] and [3] do not broadcast"}};
  return op;
}

Op masked_fill_op() {
  Op op = {.name = "masked_fill",
           .call = [](const Tensors& x) { return masked_fill(x[0], x[1], -2.5); },
           .reference =
               [](const Arrays& x) {
                 return build(x[0].shape, [&](const Shape& i) {
                   return x[1].at(i).value != 0 ? Number(-2.5) : x[0].at(i);
                 });
               },
           .large = {{{257, 281}}, {{281}, Domain::mask}}};
  for (const auto& [x, mask] : std::vector<std::pair<Shape, Shape>>{
           {{}, {}}, {{0, 3}, {3}}, {{23}, {23}}, {{29, 17}, {17}}, {{2, 3, 4}, {3, 1}}})
    op.samples.push_back({{x}, {mask, Domain::mask}});
  op.errors = {{[] {
                  masked_fill(ones({3}), ones({2, 3}, {.dtype = boolean}), 0);
                },
                "[masked_fill] mask bool [2, 3] is larger than f32 [3]"}};
  return op;
}

}  // namespace

void add_binary_ops(std::vector<Op>& table) {
  using N = const Number&;
  table.push_back(arithmetic("add", stretto::add, [](N a, N b) { return a + b; }));
  table.push_back(arithmetic("sub", stretto::sub, [](N a, N b) { return a - b; }));
  table.push_back(arithmetic("mul", stretto::mul, [](N a, N b) { return a * b; }));
  table.push_back(arithmetic("div", stretto::div, [](N a, N b) { return a / b; }));

  // At ties each input gets half of the gradient. NaN wins.
  table.push_back(arithmetic("maximum", stretto::maximum, [](N a, N b) {
    return a.value == b.value                         ? Number(0.5) * a + Number(0.5) * b
           : a.value > b.value || std::isnan(a.value) ? a
                                                      : b;
  }));
  table.push_back(arithmetic("minimum", stretto::minimum, [](N a, N b) {
    return a.value == b.value                         ? Number(0.5) * a + Number(0.5) * b
           : a.value < b.value || std::isnan(a.value) ? a
                                                      : b;
  }));

  table.push_back(binary<TwoTensors>(
      "pow of two", stretto::pow, [](N a, N b) { return pow(a, b); }, Domain::positive));
  table.back().elementwise = false;  // pow(1, NaN) = 1
  table.back().errors = shape_errors("pow", stretto::pow);
  table.push_back(arithmetic("floor_divide", stretto::floor_divide,
                             [](N a, N b) { return testing::floor_divide(a, b); }));
  table.back().differentiable = false;
  table.push_back(arithmetic("remainder", stretto::remainder,
                             [](N a, N b) { return testing::remainder(a, b); }));

  table.push_back(comparison("eq", eq, [](double a, double b) { return a == b; }));
  table.push_back(comparison("ne", ne, [](double a, double b) { return a != b; }));
  table.push_back(comparison("lt", lt, [](double a, double b) { return a < b; }));
  table.push_back(comparison("le", le, [](double a, double b) { return a <= b; }));
  table.push_back(comparison("gt", gt, [](double a, double b) { return a > b; }));
  table.push_back(comparison("ge", ge, [](double a, double b) { return a >= b; }));
  table.push_back(comparison_with("eq 1", eq, [](double a, double b) { return a == b; }));
  table.push_back(comparison_with("ne 1", ne, [](double a, double b) { return a != b; }));
  table.push_back(comparison_with("lt 1", lt, [](double a, double b) { return a < b; }));
  table.push_back(comparison_with("le 1", le, [](double a, double b) { return a <= b; }));
  table.push_back(comparison_with("gt 1", gt, [](double a, double b) { return a > b; }));
  table.push_back(comparison_with("ge 1", ge, [](double a, double b) { return a >= b; }));

  table.push_back(logical("logical_and", logical_and, [](bool a, bool b) { return a && b; }));
  table.push_back(logical("logical_or", logical_or, [](bool a, bool b) { return a || b; }));
  table.push_back(without_gradient(
      {.name = "logical_not",
       .call = [](const Tensors& x) { return logical_not(x[0]); },
       .reference =
           [](const Arrays& x) {
             return build(x[0].shape,
                          [&](const Shape& i) { return Number(x[0].at(i).value == 0); });
           },
       .samples = {{{{}, Domain::mask}}, {{{0, 2}, Domain::mask}}, {{{29, 17}, Domain::mask}}},
       .large = {{{259, 283}, Domain::mask}}}));
  table.push_back(where_op());
  table.push_back(masked_fill_op());
}

}  // namespace stretto::testing
