// Views, copies and conversions [core/tensor.h, ops/view.h]. They only move elements, so every
// dtype must be bit-identical to the reference.
#include "ops/create.h"
#include "ops/view.h"
#include "tests/support/op_table.h"

namespace stretto::testing {
namespace {

template <class Call, class F>
Op moving(std::string name, std::vector<Shape> shapes, Shape large, Call call, F reference) {
  Op op = {.name = std::move(name),
           .call = [call](const Tensors& x) { return call(x[0]); },
           .reference = [reference](const Arrays& x) { return reference(x[0]); },
           .large = {{large}}};
  for (const Shape& shape : shapes) op.samples.push_back({{shape}});
  return op;
}

// The same elements in the same order under another shape.
auto reshaped(Shape (*to)(const Shape&)) {
  return [to](const Array& x) {
    Array y = x;
    y.shape = to(x.shape);
    return y;
  };
}

Array same(const Array& x) { return x; }

Shape swapped(Shape shape, int64_t a, int64_t b) {
  std::swap(shape[a], shape[b]);
  return shape;
}

std::vector<ErrorCase> error(std::string text, std::function<void()> call) {
  return {{std::move(call), std::move(text)}};
}

void add_shape_views(std::vector<Op>& table) {
  const Shape large = {6, 101, 113};
  table.push_back(moving(
      "reshape [-1, 6]", {{4, 3}, {2, 1, 9}, {12, 17}, {0, 6}}, large,
      [](const Tensor& x) {
        return x.reshape({x.numel() / 6, -1});
      },
      reshaped([](const Shape& s) {
        return Shape{s.numel() / 6, s.numel() == 0 ? 0 : 6};
      })));
  table.back().samples.pop_back();  // −1 is ambiguous for an empty tensor
  table.back().errors = {
      {[] {
         ones({5}).reshape({-1, 2});
       },
       "[reshape] 5 elements do not fit shape [-1, 2]"},
      {[] {
         ones({4}).reshape({-1, -1});
       },
       "[reshape] shape [-1, -1] has more than one -1"},
      {[] { ones({4}).reshape({3}); }, "[reshape] 4 elements do not fit shape [3]"},
      {[] {
         ones({4}).reshape({-2, -2});
       },
       "[reshape] shape [-2, -2] has a negative size"},
      {[] {
         ones({0}).reshape({-1, 0});
       },
       "[reshape] 0 elements do not fit shape [-1, 0]"}};
  table.push_back(moving(
      "view of itself", {{}, {0, 3}, {7}, {2, 3, 4}}, large,
      [](const Tensor& x) { return x.contiguous().view(x.shape()); }, same));
  table.back().errors = error("[view] no view of f32 [2, 3] with strides [1, 2] has shape [6]", [] {
    ones({3, 2}).transpose(0, 1).view({6});
  });
  table.push_back(moving(
      "flatten 1 2", {{2, 3, 4}, {2, 0, 4}, {1, 1, 1}}, large,
      [](const Tensor& x) { return x.flatten(1, 2); }, reshaped([](const Shape& s) {
        return Shape{s[0], s[1] * s[2]};
      })));
  table.back().errors = error("[flatten] first dimension 1 is after last dimension 0", [] {
    ones({2, 2}).flatten(1, 0);
  });
  table.push_back(moving(
      "flatten", {{}, {1}, {29, 17}, {0, 3}, {2, 2, 2}}, large,
      [](const Tensor& x) { return x.flatten(); },
      reshaped([](const Shape& s) { return Shape{s.numel()}; })));
  table.push_back(moving(
      "unsqueeze -1", {{}, {3}, {0, 2}, {29, 17}}, large,
      [](const Tensor& x) { return x.unsqueeze(-1); }, reshaped([](const Shape& s) {
        Shape y = s;
        y.push_back(1);
        return y;
      })));
  table.back().errors =
      error("[unsqueeze] dimension 3 is out of range for a tensor with 2 dimensions",
            [] { ones({3}).unsqueeze(3); });
  table.push_back(moving(
      "squeeze 1", {{3, 1}, {3, 1, 2}, {0, 1, 2}, {1, 1}}, {101, 1, 601},
      [](const Tensor& x) { return x.squeeze(1); }, reshaped([](const Shape& s) {
        Shape y = s;
        y.erase(1);
        return y;
      })));
  table.back().errors = error("[squeeze] dimension 1 of f32 [2, 3] is not of size 1", [] {
    ones({2, 3}).squeeze(1);
  });
}

void add_permuted_views(std::vector<Op>& table) {
  const Shape large = {6, 101, 113};
  table.push_back(moving(
      "transpose 0 -1", {{29, 17}, {2, 3, 4}, {0, 3}, {1}, {5, 1}}, large,
      [](const Tensor& x) { return x.transpose(0, -1); },
      [](const Array& x) {
        const int64_t last = x.shape.dim() - 1;
        return build(swapped(x.shape, 0, last),
                     [&](const Shape& i) { return x.at(swapped(i, 0, last)); });
      }));
  table.back().errors =
      error("[transpose] dimension 2 is out of range for a tensor with 2 dimensions", [] {
        ones({2, 3}).transpose(0, 2);
      });
  table.push_back(moving(
      "permute 2 0 1", {{2, 3, 4}, {29, 1, 17}, {2, 0, 3}}, large,
      [](const Tensor& x) {
        return x.permute({2, 0, -2});
      },
      [](const Array& x) {
        return build({x.shape[2], x.shape[0], x.shape[1]}, [&](const Shape& i) {
          return x.at({i[1], i[2], i[0]});
        });
      }));
  table.back().errors = {{[] {
                            ones({2, 3}).permute({0, 0});
                          },
                          "[permute] order [0, 0] names dimension 0 twice"},
                         {[] {
                            ones({2, 3}).permute({0});
                          },
                          "[permute] order [0] for f32 [2, 3]; must contain each dimension once"}};
}

void add_expanded_views(std::vector<Op>& table) {
  for (const Shape& to : {Shape{3, 1}, Shape{3, 7}}) {  // from size 1
    table.push_back(moving(
        str("expand to ", Shape{3, -1, to[1]}), {{1, to[1]}, {5, to[1]}, {5, 1}, {1}}, {211, 1},
        [to](const Tensor& x) {
          return x.expand(x.dim() == 1 ? Shape{3, 2, to[1]} : Shape{3, -1, to[1]});
        },
        [to](const Array& x) {
          return build({3, x.shape.dim() == 1 ? 2 : x.shape[0], to[1]},
                       [&](const Shape& i) { return x.at(i); });
        }));
  }
  table.back().errors = {
      {[] { ones({2}).expand({3}); }, "[expand] f32 [2] does not broadcast to [3]"},
      {[] {
         ones({2, 2}).expand({2});
       },
       "[expand] f32 [2, 2] does not broadcast to [2]"},
      {[] {
         ones({1}).expand({int64_t(1) << 40, int64_t(1) << 40});
       },
       "too many elements"}};
  table.push_back(moving(
      "broadcast_to [4, .., 3]", {{}, {3}, {1, 3}, {4, 1}}, {1, 1},
      [](const Tensor& x) {
        return broadcast_to(x, {4, 3});
      },
      [](const Array& x) {
        return build({4, 3}, [&](const Shape& i) { return x.at(i); });
      }));
  table.back().errors = {
      {[] { broadcast_to(ones({2}), {3}); }, "[broadcast_to] shapes [2] and [3] do not broadcast"},
      {[] {
         broadcast_to(ones({2, 3}), {3});
       },
       "[broadcast_to] f32 [2, 3] does not broadcast to [3]"}};
}

void add_slices(std::vector<Op>& table) {
  const Shape large = {6, 101, 113};
  struct Slice {
    int64_t start, end, step;
  };
  for (const Slice s : {Slice{1, INT64_MAX, 2}, Slice{-3, -1, 1}, Slice{0, 0, 1}, Slice{-90, 90, 3},
                        Slice{2, 3, 500}}) {
    table.push_back(moving(
        str("slice -1 ", s.start, " ", s.end, " ", s.step), {{4}, {5}, {2, 7}, {29, 17}, {3, 0}},
        large, [s](const Tensor& x) { return x.slice(-1, s.start, s.end, s.step); },
        [s](const Array& x) {
          const int64_t d = x.shape.dim() - 1, n = x.shape[d];
          std::vector<int64_t> taken;  // Python's range(n)[start:end:step]
          const auto clipped = [n](int64_t at) {
            return at < 0 ? std::max<int64_t>(0, at + n) : std::min(at, n);
          };
          for (int64_t at = clipped(s.start); at < clipped(s.end); at += s.step)
            taken.push_back(at);
          return build(with_entry(x.shape, d, int64_t(taken.size())),
                       [&](const Shape& i) { return x.at(with_entry(i, d, taken[size_t(i[d])])); });
        }));
  }
  table.back().errors = {
      {[] { ones({3}).slice(0, 0, 3, 0); }, "[slice] step 0; must be at least 1"},
      {[] { ones({3}).slice(1, 0); },
       "[slice] dimension 1 is out of range for a tensor with 1 dimension"}};
  table.push_back(moving(
      "select 1 of the middle", {{2, 3, 4}, {0, 2, 3}, {29, 17}}, large,
      [](const Tensor& x) { return x.select(1, -2); },
      [](const Array& x) {
        Shape shape = x.shape;
        shape.erase(1);
        return build(shape, [&](const Shape& i) {
          Shape at = i;
          at.insert(1, x.shape[1] - 2);
          return x.at(at);
        });
      }));
  table.back().errors = error("[select] index 3 is out of range for dimension 1 of f32 [2, 3]", [] {
    ones({2, 3}).select(1, 3);
  });
}

void add_copies(std::vector<Op>& table) {
  const Shape large = {6, 101, 113};
  const std::vector<Shape> shapes = {{}, {0, 3}, {23}, {29, 17}};
  table.push_back(moving(
      "clone", shapes, large, [](const Tensor& x) { return x.clone(); }, same));
  table.push_back(moving(
      "contiguous of a transpose", {{29, 17}, {2, 3}, {3, 0}}, {259, 283},
      [](const Tensor& x) { return x.transpose(0, 1).contiguous(); },
      [](const Array& x) {
        return build(swapped(x.shape, 0, 1),
                     [&](const Shape& i) { return x.at(swapped(i, 0, 1)); });
      }));
  table.push_back(moving(
      "flip", {{4}, {29, 17}, {2, 0}, {1, 1}}, large, [](const Tensor& x) { return flip(x, -1); },
      [](const Array& x) {
        const int64_t d = x.shape.dim() - 1;
        return build(x.shape,
                     [&](const Shape& i) { return x.at(with_entry(i, d, x.shape[d] - 1 - i[d])); });
      }));
  table.push_back(moving(
      "flip 0", {{4}, {29, 17}, {2, 0}, {2, 3, 2}}, large,
      [](const Tensor& x) { return flip(x, 0); },
      [](const Array& x) {
        return build(x.shape,
                     [&](const Shape& i) { return x.at(with_entry(i, 0, x.shape[0] - 1 - i[0])); });
      }));
  for (const auto& [before, after] : {std::pair{2, 1}, std::pair{0, 3}, std::pair{0, 0}}) {
    table.push_back(moving(
        str("pad 0 ", before, " ", after), {{3}, {0}, {2, 3}, {29, 17}, {0, 2}}, large,
        [before = before, after = after](const Tensor& x) {
          return pad(x, 0, before, after, -1.5);
        },
        [before = before, after = after](const Array& x) {
          const int64_t n = x.shape[0];
          return build(with_entry(x.shape, 0, n + before + after), [&](const Shape& i) {
            const int64_t at = i[0] - before;
            return at < 0 || at >= n ? Number(-1.5) : x.at(with_entry(i, 0, at));
          });
        }));
  }
  table.back().errors = {
      {[] { pad(ones({2}), 0, -1, 0); }, "[pad] padding -1, 0; must not be negative"},
      {[] { pad(ones({2}), 0, INT64_MAX, INT64_MAX); }, "too many elements"},
      {[] { pad(ones({2}), 0, INT64_MAX, 0); }, "too many elements"}};
  for (int64_t k : {-2, 0, 1, 50}) {
    const auto triangle = [k](const char* name, Tensor (*call)(const Tensor&, Int), bool lower) {
      return moving(
          str(name, ' ', k), {{3, 3}, {29, 17}, {2, 3, 4}, {0, 3}, {1, 1}}, {2, 157, 211},
          [=](const Tensor& x) { return call(x, k); },
          [=](const Array& x) {
            const int64_t r = x.shape.dim() - 2;
            return build(x.shape, [&](const Shape& i) {
              return (lower ? i[r + 1] - i[r] <= k : i[r + 1] - i[r] >= k) ? x.at(i) : Number();
            });
          });
    };
    table.push_back(triangle("tril", tril, true));
    table.push_back(triangle("triu", triu, false));
  }
  table.back().errors = {
      {[] { tril(ones({3})); }, "[tril] got f32 [3]; accepted: at least 2 dimensions"},
      {[] { triu(ones({3})); }, "[triu] got f32 [3]; accepted: at least 2 dimensions"}};
}

Array summed_to(const Array& x, const Shape& shape) {
  Array y{shape, std::vector<Number>(size_t(shape.numel()))};
  build(x.shape, [&](const Shape& index) {
    int64_t at = 0;
    for (int64_t d = 0; d < shape.dim(); ++d)
      at = at * shape[d] + (shape[d] == 1 ? 0 : index[d + x.shape.dim() - shape.dim()]);
    y.values[size_t(at)] = y.values[size_t(at)] + x.at(index);
    return Number();
  });
  return y;
}

}  // namespace

void add_view_ops(std::vector<Op>& table) {
  add_shape_views(table);
  add_permuted_views(table);
  add_expanded_views(table);
  add_slices(table);
  add_copies(table);
  for (const Shape& to : {Shape{}, Shape{3}, Shape{1, 3}, Shape{2, 1, 3}, Shape{2, 4, 1}})
    table.push_back(moving(
        str("sum_to ", to), {{2, 4, 3}, {2, 0, 3}}, {2, 157, 3},
        [to](const Tensor& x) {
          return sum_to(x, to.dim() == 3 && to[1] == 4 ? Shape{2, x.size(1), 1} : to);
        },
        [to](const Array& x) {
          return summed_to(x, to.dim() == 3 && to[1] == 4 ? Shape{2, x.shape[1], 1} : to);
        }));
}

}  // namespace stretto::testing
