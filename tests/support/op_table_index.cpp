// Storing and adding by index, and indexing by several tensors [ops/indexing.h, ops/index.h].
#include "ops/create.h"
#include "ops/index.h"
#include "ops/indexing.h"
#include "tests/support/op_table.h"

namespace stretto::testing {
namespace {

int64_t integer(const Number& x) { return int64_t(x.value); }
int64_t integer(const Array& x, const Shape& at) { return integer(x.at(at)); }

Input ids(Shape shape, int64_t classes) { return {shape, Domain::index, classes}; }
Input ids32(Shape shape, int64_t classes) { return {shape, Domain::index32, classes}; }

void add_scatter(std::vector<Op>& table) {
  for (int64_t d : {0, 1}) {
    const Shape more = d == 0 ? Shape{9, 2} : Shape{2, 9};
    table.push_back({.name = str("scatter ", d),
                     .call = [d](const Tensors& x) { return scatter(x[0], d, x[1], x[2]); },
                     .reference =
                         [d](const Arrays& x) {
                           Array y = x[0];
                           build(x[1].shape, [&](const Shape& i) {
                             const Shape to = with_entry(i, d, integer(x[1], i));
                             const_cast<Number&>(y.at(to)) = x[2].at(i);
                             return Number();
                           });
                           return y;
                         },
                     .samples = {{{{3, 3}}, ids({2, 3}, 3), {{2, 3}}},
                                 {{{29, 17}}, ids({29, 17}, 17), {{29, 17}}},
                                 {{{29, 17}}, ids32({5, 4}, 17), {{5, 4}}},
                                 {{{3, 3}}, ids({0, 3}, 3), {{0, 3}}},
                                 {{{2, 2}}, ids(more, 2), {more}}},
                     .large = {{{259, 283}}, ids({259, 283}, 259), {{259, 283}}}});
  }
  table.back().errors = {
      {[] {
         scatter(ones({3}), 0, tensor<int64_t>({0, 7}), ones({2}));
       },
       "[scatter] index 7 at position [1] is out of range: dimension 0 of f32 [3] has size 3"},
      {[] { scatter(ones({3}), 0, arange(2), ones({1})); },
       "[scatter] index i64 [2] for source f32 [1]; shapes must agree"},
      {[] { scatter(ones({3}), 0, arange(2), ones({2}, {.dtype = f64})); },
       "[scatter] dtypes differ: f32 [3] and f64 [2]"},
      {[] { scatter(arange(3), 0, arange(2), 0.5); }, "[scatter] "}};
  table.push_back({.name = "scatter of a number",
                   .call = [](const Tensors& x) { return scatter(x[0], 0, x[1], -1.5); },
                   .reference =
                       [](const Arrays& x) {
                         Array y = x[0];
                         for (const Number& i : x[1].values)
                           y.values[size_t(i.value)] = Number(-1.5);
                         return y;
                       },
                   .samples = {{{{4}}, ids({3}, 4)}, {{{29}}, ids({40}, 29)}},
                   .large = {{{70'000}}, ids({50'000}, 70'000)}});
}

void add_index_add(std::vector<Op>& table) {
  for (int64_t d : {0, 1}) {
    table.push_back(
        {.name = str("index_add ", d),
         .call = [d](const Tensors& x) { return index_add(x[0], d, x[1], x[2], -0.5); },
         .reference =
             [d](const Arrays& x) {
               Array added = build(x[0].shape, [](const Shape&) { return Number(); });
               build(x[2].shape, [&](const Shape& i) {
                 const Shape to = with_entry(i, d, integer(x[1], {i[d]}));
                 Number& sum = const_cast<Number&>(added.at(to));
                 sum = sum + x[2].at(i) * Number(-0.5);
                 return Number();
               });
               return build(x[0].shape, [&](const Shape& i) {
                 Number sum = added.at(i);
                 sum.storing += std::fabs(sum.value);  // bf16 stores the sums before it adds x
                 return x[0].at(i) + sum;
               });
             },
         .samples = {{{{3, 4}}, ids({d == 0 ? 2 : 5}, 3), {d == 0 ? Shape{2, 4} : Shape{3, 5}}},
                     {{{29, 17}}, ids32({40}, 17), {d == 0 ? Shape{40, 17} : Shape{29, 40}}},
                     {{{3, 4}}, ids({0}, 3), {d == 0 ? Shape{0, 4} : Shape{3, 0}}}},
         .large = {{{259, 283}}, ids({300}, 259), {d == 0 ? Shape{300, 283} : Shape{259, 300}}}});
  }
  table.back().errors = {
      {[] {
         index_add(ones({3, 2}), 0, tensor<int64_t>({3}), ones({1, 2}));
       },
       "[index_add] index 3 at position [0] is out of range: dimension 0 of f32 [3, 2] has size 3"},
      {[] {
         index_add(ones({3, 2}), 0, arange(2), ones({3, 2}));
       },
       "[index_add] index i64 [2] and source f32 [3, 2] for f32 [3, 2] along dimension 0; the "
       "index "
       "must have 1 dimension, and the source its size along d"}};
}

void add_selection(std::vector<Op>& table) {
  table.push_back({.name = "masked_select",
                   .call = [](const Tensors& x) { return masked_select(x[0], x[1]); },
                   .reference =
                       [](const Arrays& x) {
                         Array y{{0}, {}};
                         build(broadcast_of(x[0].shape, x[1].shape), [&](const Shape& i) {
                           if (x[1].at(i).value != 0) y.values.push_back(x[0].at(i));
                           return Number();
                         });
                         y.shape[0] = int64_t(y.values.size());
                         return y;
                       },
                   .samples = {{{{7}}, {{7}, Domain::mask}},
                               {{{29, 17}}, {{17}, Domain::mask}},
                               {{{3, 1}}, {{2, 1, 4}, Domain::mask}},
                               {{{}}, {{}, Domain::mask}},
                               {{{0, 3}}, {{3}, Domain::mask}}},
                   .large = {{{259, 283}}, {{259, 283}, Domain::mask}}});
  table.back().errors = {{[] { masked_select(ones({2}), ones({2})); },
                          "[masked_select] mask is f32 [2]; accepted: bool, u8"},
                         {[] { masked_select(ones({2}), ones({3}, {.dtype = boolean})); },
                          "[masked_select] shapes [2] and [3] do not broadcast"}};
  table.push_back({.name = "one_hot 5",
                   .call = [](const Tensors& x) { return one_hot(x[0], 5); },
                   .reference =
                       [](const Arrays& x) {
                         Shape shape = x[0].shape;
                         shape.push_back(5);
                         return build(shape, [&](const Shape& i) {
                           Shape at = i;
                           at.erase(at.dim() - 1);
                           return Number(integer(x[0], at) == i.back());
                         });
                       },
                   .samples = {{ids({}, 5)}, {ids32({7}, 5)}, {ids({2, 3}, 5)}, {ids({0, 3}, 5)}},
                   .large = {ids({257, 83}, 5)},
                   .differentiable = false});
  table.back().errors = {{[] {
                            one_hot(tensor<int64_t>({0, 2}), 2);
                          },
                          "[one_hot] index 2 at position [1] is out of range: there are 2 classes"},
                         {[] {
                            one_hot(tensor<int64_t>({0, -2}));
                          },
                          "[one_hot] index -2 at position [1]"},
                         {[] { one_hot(ones({2})); }, "[one_hot] ids are f32; accepted: i64, i32"}};
}

void add_index(std::vector<Op>& table) {
  table.push_back({.name = "index i",
                   .call = [](const Tensors& x) { return x[0].index({x[1]}); },
                   .reference =
                       [](const Arrays& x) {
                         Shape shape = x[1].shape;
                         for (int64_t d = 1; d < x[0].shape.dim(); ++d)
                           shape.push_back(x[0].shape[d]);
                         return build(shape, [&](const Shape& i) {
                           const int64_t n = x[1].shape.dim();
                           Shape at{integer(x[1], Shape(i.begin(), n))};
                           for (int64_t d = n; d < i.dim(); ++d) at.push_back(i[d]);
                           return x[0].at(at);
                         });
                       },
                   .samples = {{{{4}}, ids({3}, 4)},
                               {{{29, 17}}, ids32({2, 3}, 29)},
                               {{{3, 2, 2}}, ids({}, 3)},
                               {{{3, 4}}, ids({0}, 3)}},
                   .large = {{{259, 283}}, ids({300}, 259)}});
  table.push_back({.name = "index 1, :, i",
                   .call =
                       [](const Tensors& x) {
                         return x[0].index({1, Slice(), x[1]});
                       },
                   .reference =
                       [](const Arrays& x) {
                         return build({x[0].shape[1], x[1].shape[0]}, [&](const Shape& i) {
                           return x[0].at({1, i[0], integer(x[1], {i[1]})});
                         });
                       },
                   .samples = {{{{2, 3, 4}}, ids({2}, 4)}, {{{3, 29, 17}}, ids({40}, 17)}},
                   .large = {{{2, 259, 283}}, ids({300}, 283)}});
  table.push_back({.name = "index i, j",
                   .call =
                       [](const Tensors& x) {
                         return x[0].index({x[1], x[2]});
                       },
                   .reference =
                       [](const Arrays& x) {
                         Shape shape = broadcast_of(x[1].shape, x[2].shape);
                         const int64_t n = shape.dim();
                         for (int64_t d = 2; d < x[0].shape.dim(); ++d)
                           shape.push_back(x[0].shape[d]);
                         return build(shape, [&](const Shape& i) {
                           const Shape picked(i.begin(), n);
                           Shape at{integer(x[1], picked), integer(x[2], picked)};
                           for (int64_t d = n; d < i.dim(); ++d) at.push_back(i[d]);
                           return x[0].at(at);
                         });
                       },
                   .samples = {{{{3, 4}}, ids({5}, 3), ids({5}, 4)},
                               {{{29, 17}}, ids({6, 1}, 29), ids32({7}, 17)},
                               {{{3, 4, 2}}, ids({2}, 3), ids({}, 4)}},
                   .large = {{{259, 283}}, ids({90, 1}, 259), ids({80}, 283)}});
  table.push_back({.name = "index i, ..., j",  // the shape of the indices comes first
                   .call =
                       [](const Tensors& x) {
                         return x[0].index({x[1], "...", x[2]});
                       },
                   .reference =
                       [](const Arrays& x) {
                         return build({x[1].shape[0], x[0].shape[1]}, [&](const Shape& i) {
                           return x[0].at({integer(x[1], {i[0]}), i[1], integer(x[2], {i[0]})});
                         });
                       },
                   .samples = {{{{3, 2, 4}}, ids({2}, 3), ids({2}, 4)},
                               {{{29, 3, 17}}, ids({23}, 29), ids32({23}, 17)}},
                   .large = {{{259, 5, 83}}, ids({700}, 259), ids({700}, 83)}});
  table.push_back({.name = "index ..., mask",
                   .call =
                       [](const Tensors& x) {
                         return x[0].index({"...", x[1]});
                       },
                   .reference =
                       [](const Arrays& x) {
                         std::vector<Shape> picked;
                         build(x[1].shape, [&](const Shape& i) {
                           if (x[1].at(i).value != 0) picked.push_back(i);
                           return Number();
                         });
                         return build({x[0].shape[0], int64_t(picked.size())}, [&](const Shape& i) {
                           Shape at{i[0]};
                           for (int64_t p : picked[size_t(i[1])]) at.push_back(p);
                           return x[0].at(at);
                         });
                       },
                   .samples = {{{{2, 5}}, {{5}, Domain::mask}},
                               {{{2, 3, 2}}, {{3, 2}, Domain::mask}},
                               {{{4, 0}}, {{0}, Domain::mask}}},
                   .large = {{{101, 283}}, {{283}, Domain::mask}}});
  table.back().errors = {
      {[] {
         ones({3}).index({tensor<int64_t>({0, -4})});
       },
       "[index] index -4 at position [1] is out of range: dimension 0 of f32 [3] has size 3"},
      {[] {
         ones({3}).index({0, Slice()});
       },
       "[index] 2 dimensions are indexed, f32 [3] has 1"},
      {[] { ones({3}).index({ones({3})}); }, "[index] indices are f32; accepted: i64, i32"},
      {[] {
         ones({3, 2}).index({ones({2}, {.dtype = boolean})});
       },
       "[index] mask bool [2] for f32 [3, 2] from dimension 0 on; the sizes must be equal"},
      {[] {
         ones({3, 2}).index({arange(3), arange(2)});
       },
       "[index] shapes [3] and [2] do not broadcast"},
      {[] {
         ones({3, 2}).index({"...", "..."});
       },
       "[index] \"...\" occurs twice"},
      {[] { ones({3}).index({":"}); }, "[index] got a text; the only text that is an index is"}};
}

}  // namespace

void add_index_ops(std::vector<Op>& table) {
  add_scatter(table);
  add_index_add(table);
  add_selection(table);
  add_index(table);
}

}  // namespace stretto::testing
