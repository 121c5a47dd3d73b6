// Windows, diagonals, splitting and repetition [ops/view.h, ops/indexing.h].
#include <algorithm>

#include "ops/create.h"
#include "ops/indexing.h"
#include "ops/view.h"
#include "tests/support/op_table.h"

namespace stretto::testing {
namespace {

// An op whose element at `i` is element from(i, shape of x) of x.
template <class Call>
Op moving(std::string name, std::vector<Shape> shapes, Shape large, Call call,
          Shape (*to)(const Shape&), Shape (*from)(const Shape& i, const Shape& x)) {
  Op op = {.name = std::move(name),
           .call = [call](const Tensors& x) { return call(x[0]); },
           .reference =
               [to, from](const Arrays& x) {
                 return build(to(x[0].shape),
                              [&](const Shape& i) { return x[0].at(from(i, x[0].shape)); });
               },
           .large = {{large}}};
  for (const Shape& shape : shapes) op.samples.push_back({{shape}});
  return op;
}

void add_dimension_views(std::vector<Op>& table) {
  table.push_back(moving(
      "movedim 0 -1", {{2, 3, 4}, {5}, {0, 3}, {29, 17}}, {6, 101, 113},
      [](const Tensor& x) { return movedim(x, 0, -1); },
      [](const Shape& x) {
        Shape y = x;
        y.erase(0);
        y.push_back(x[0]);
        return y;
      },
      [](const Shape& i, const Shape&) {
        Shape at = i;
        at.insert(0, at.back());
        at.erase(at.dim() - 1);
        return at;
      }));
  table.back().errors = {{[] {
                            movedim(ones({2, 3}), 0, 2);
                          },
                          "[movedim] dimension 2 is out of range for a tensor with 2 dimensions"}};
  table.push_back(moving(
      "unflatten 1 [2, -1]", {{3, 4}, {2, 6, 3}, {29, 16}, {0, 2}}, {101, 112},
      [](const Tensor& x) {
        return unflatten(x, 1, {2, -1});
      },
      [](const Shape& x) {
        Shape y = x;
        y[1] = 2;
        y.insert(2, x[1] / 2);
        return y;
      },
      [](const Shape& i, const Shape& x) {
        Shape at = i;
        at[1] = i[1] * (x[1] / 2) + i[2];
        at.erase(2);
        return at;
      }));
  table.back().errors = {{[] {
                            unflatten(ones({2, 3}), 1, {2, -1});
                          },
                          "[unflatten] 3 elements do not fit shape [2, -1]"}};
}

void add_diagonals(std::vector<Op>& table) {
  const auto diagonals = [](const Shape& x, int64_t row, int64_t column) {
    Shape y = x;
    const int64_t n = std::min(y[0] - row, y[1] - column);
    y.erase(0);
    y.erase(0);
    y.push_back(std::max<int64_t>(n, 0));
    return y;
  };
  static const auto shape_of = diagonals;
  const std::vector<Shape> shapes = {{3, 3}, {2, 5}, {4, 2, 3}, {29, 17}, {0, 3}, {1, 1}};
  table.push_back(moving(
      "diagonal", shapes, {211, 259}, [](const Tensor& x) { return diagonal(x); },
      [](const Shape& x) { return shape_of(x, 0, 0); },
      [](const Shape& i, const Shape&) {
        Shape at = i;
        at.erase(at.dim() - 1);
        at.insert(0, i.back());
        at.insert(0, i.back());
        return at;
      }));
  table.push_back(moving(
      "diagonal 1", shapes, {211, 259}, [](const Tensor& x) { return diagonal(x, 1); },
      [](const Shape& x) { return shape_of(x, 0, 1); },
      [](const Shape& i, const Shape&) {
        Shape at = i;
        at.erase(at.dim() - 1);
        at.insert(0, i.back() + 1);
        at.insert(0, i.back());
        return at;
      }));
  table.push_back(moving(
      "diagonal -2 of the last two", {{3, 3}, {2, 5, 4}, {29, 17}, {0, 3}}, {7, 101, 113},
      [](const Tensor& x) { return diagonal(x, -2, -2, -1); },
      [](const Shape& x) {
        Shape y = x;
        const int64_t n = std::min(y[y.dim() - 2] - 2, y.back());
        y.erase(y.dim() - 1);
        y.back() = std::max<int64_t>(n, 0);
        return y;
      },
      [](const Shape& i, const Shape&) {
        Shape at = i;
        at.back() += 2;
        at.push_back(i.back());
        return at;
      }));
  table.back().errors = {{[] {
                            diagonal(ones({2, 3}), 0, 1, -1);
                          },
                          "[diagonal] dimensions 1 and -1 of f32 [2, 3] are the same"}};
}

template <int64_t size, int64_t step>
Op unfold_op() {
  return moving(
      str("unfold 0 ", size, " ", step), {{5}, {9, 2}, {29, 17}, {6, 0}, {3}}, {259, 83},
      [](const Tensor& x) { return unfold(x, 0, size, step); },
      [](const Shape& x) {
        Shape y = x;
        y[0] = (x[0] - size) / step + 1;
        y.push_back(size);
        return y;
      },
      [](const Shape& i, const Shape&) {
        Shape at = i;
        at.erase(at.dim() - 1);
        at[0] = i[0] * step + i.back();
        return at;
      });
}

void add_windows(std::vector<Op>& table) {
  table.push_back(unfold_op<3, 1>());  // windows that overlap
  table.push_back(unfold_op<2, 2>());
  table.push_back(unfold_op<2, 3>());  // elements in no window
  table.push_back(unfold_op<0, 2>());
  table.back().errors = {{[] { unfold(ones({3}), 0, 4, 1); },
                          "[unfold] windows of size 4 and step 1 of dimension 0 of f32 [3]; "
                          "accepted: sizes 0 to 3 and steps of at least 1"},
                         {[] { unfold(ones({3}), 0, 2, 0); }, "and step 0 of dimension 0"}};
}

// Joins the parts in reverse order, so that a gradient for the wrong part is noticed.
Tensor reversed(Tensors parts, int64_t d) {
  std::reverse(parts.begin(), parts.end());
  return cat(parts, d);
}

void add_parts(std::vector<Op>& table) {
  const auto same = [](const Shape& x) { return x; };
  table.push_back(moving(
      "chunk 2, the chunks in reverse order", {{5}, {4, 2}, {29, 17}, {1, 3}}, {257, 283},
      [](const Tensor& x) { return reversed(chunk(x, 2, 0), 0); }, same,
      [](const Shape& i, const Shape& x) {
        const int64_t first = (x[0] + 1) / 2, rest = x[0] - first;
        Shape at = i;
        at[0] = i[0] < rest ? i[0] + first : i[0] - rest;
        return at;
      }));
  table.back().errors = {{[] { chunk(ones({3}), 0); }, "[chunk] 0 chunks; must be at least 1"}};
  table.push_back(moving(
      "unbind 1, the entries in reverse order", {{2, 3}, {4, 1}, {29, 17}, {0, 2}}, {101, 60},
      [](const Tensor& x) {
        Tensors entries = unbind(x, 1);
        std::reverse(entries.begin(), entries.end());
        return stack(entries, 1);
      },
      same, [](const Shape& i, const Shape& x) { return with_entry(i, 1, x[1] - 1 - i[1]); }));
  table.push_back(moving(
      "roll 2 -5 of the first and last", {{7, 3}, {29, 17}, {1, 4}, {0, 3}, {2, 3, 4}}, {257, 283},
      [](const Tensor& x) {
        return roll(x, {2, -5}, {0, -1});
      },
      same,
      [](const Shape& i, const Shape& x) {
        Shape at = i;
        at[0] = ((i[0] - 2) % x[0] + x[0]) % x[0];
        at.back() = (i.back() + 5) % x.back();
        return at;
      }));
  table.back().errors = {
      {[] {
         roll(ones({3}), {1, 2}, {0});
       },
       "[roll] shifts [1, 2] for dimensions [0]; accepted: one shift for each dimension"}};
}

void add_repetition(std::vector<Op>& table) {
  // Along the first dimension, then along the last; the gradient of the first is stored.
  table.push_back({.name = "repeat [2, 1, 3]",
                   .call =
                       [](const Tensors& x) {
                         return repeat(x[0], {2, 1, 3});
                       },
                   .reference =
                       [](const Arrays& x) {
                         Shape from = x[0].shape;
                         while (from.dim() < 3) from.insert(0, 1);
                         const Array given{from, x[0].values};
                         const Array rows =
                             build({2 * from[0], from[1], from[2]}, [&](const Shape& i) {
                               const Number& v = given.at({i[0] % from[0], i[1], i[2]});
                               return result(v.value, v.rounding, v.storing,
                                             {.value = 1, .storing = 1, .parent = v.node});
                             });
                         return build({2 * from[0], from[1], 3 * from[2]}, [&](const Shape& i) {
                           return rows.at({i[0], i[1], i[2] % from[2]});
                         });
                       },
                   .samples = {{{{}}}, {{{3}}}, {{{2, 2}}}, {{{2, 1, 3}}}, {{{0, 3}}}},
                   .large = {{{61, 53}}}});
  table.back().errors = {
      {[] {
         repeat(ones({2, 3}), {2});
       },
       "[repeat] counts [2] for f32 [2, 3]; accepted: at least one for each dimension"},
      {[] { repeat(ones({2}), {-1}); }, "[repeat] counts [-1]; must not be negative"}};
  table.push_back(moving(
      "repeat_interleave 3 of 0", {{2}, {2, 2}, {29, 17}, {0, 3}}, {101, 83},
      [](const Tensor& x) { return repeat_interleave(x, 3, 0); },
      [](const Shape& x) { return with_entry(x, 0, 3 * x[0]); },
      [](const Shape& i, const Shape&) { return with_entry(i, 0, i[0] / 3); }));
  table.back().errors = {{[] { repeat_interleave(ones({2}), -1, 0); },
                          "[repeat_interleave] -1 repetitions; must not be negative"}};
  table.push_back({.name = "repeat_interleave by counts",
                   .call = [](const Tensors& x) { return repeat_interleave(x[0], x[1], 0); },
                   .reference =
                       [](const Arrays& x) {
                         std::vector<int64_t> from;
                         for (int64_t i = 0; i < x[0].shape[0]; ++i)
                           for (int64_t n = 0; n < int64_t(flat(x[1], i).value); ++n)
                             from.push_back(i);
                         return build(with_entry(x[0].shape, 0, int64_t(from.size())),
                                      [&](const Shape& i) {
                                        return x[0].at(with_entry(i, 0, from[size_t(i[0])]));
                                      });
                       },
                   .samples = {{{{4}}, {{4}, Domain::index, 3}},
                               {{{29, 17}}, {{29}, Domain::index32, 4}},
                               {{{0, 2}}, {{0}, Domain::index, 3}}},
                   .large = {{{101, 83}}, {{101}, Domain::index, 5}}});
  table.back().errors = {
      {[] { repeat_interleave(ones({2}), arange(3), 0); },
       "[repeat_interleave] counts i64 [3] for dimension 0 of f32 [2]; accepted: one i64 or i32"}};
  table.push_back({.name = "meshgrid, the product",
                   .call =
                       [](const Tensors& x) {
                         const Tensors grid = meshgrid(x);
                         return stack(grid, 0);
                       },
                   .reference =
                       [](const Arrays& x) {
                         return build({2, x[0].shape[0], x[1].shape[0]}, [&](const Shape& i) {
                           return i[0] == 0 ? flat(x[0], i[1]) : flat(x[1], i[2]);
                         });
                       },
                   .samples = {{{{2}}, {{3}}}, {{{1}}, {{4}}}, {{{29}}, {{17}}}, {{{0}}, {{2}}}},
                   .large = {{{257}}, {{101}}}});
  table.back().errors = {{[] {
                            meshgrid({ones({2, 2})});
                          },
                          "[meshgrid] axis f32 [2, 2]; must have 1 dimension"}};
}

}  // namespace

void add_rearranging_ops(std::vector<Op>& table) {
  add_dimension_views(table);
  add_diagonals(table);
  add_windows(table);
  add_parts(table);
  add_repetition(table);
}

}  // namespace stretto::testing
