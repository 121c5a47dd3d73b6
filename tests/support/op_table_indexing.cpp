// Joining, splitting, indexing and the relative shift [ops/indexing.h, ops/attention/skew.h].
#include "ops/attention/skew.h"
#include "ops/create.h"
#include "ops/indexing.h"
#include "tests/support/op_table.h"

namespace stretto::testing {
namespace {

Array joined(const Arrays& x, int64_t d) {
  d = d < 0 ? d + x[0].shape.dim() : d;
  int64_t n = 0;
  for (const Array& part : x) n += part.shape[d];
  return build(with_entry(x[0].shape, d, n), [&](const Shape& i) {
    int64_t at = i[d];
    size_t part = 0;
    while (at >= x[part].shape[d]) at -= x[part++].shape[d];
    return x[part].at(with_entry(i, d, at));
  });
}

void add_cat(std::vector<Op>& table) {
  for (int64_t d : {0, -1})
    table.push_back({.name = str("cat ", d),
                     .call = [d](const Tensors& x) { return cat(x, d); },
                     .reference = [d](const Arrays& x) { return joined(x, d); },
                     .samples = {{{{3}}},
                                 {{{2}}, {{0}}, {{23}}},
                                 {{{29, 17}}, {{29, 17}}},
                                 {{{0, 3}}, {{0, 3}}}},
                     .large = {{{259, 283}}, {{259, 283}}}});
  table[table.size() - 2].samples.push_back({{{2, 3}}, {{4, 3}}});
  table[table.size() - 1].samples.push_back({{{2, 3, 1}}, {{2, 3, 4}}});
  table.back().errors = {
      {[] { cat({}); }, "[cat] got no tensors; accepted: at least one"},
      {[] {
         cat({ones({2, 3}), ones({2, 4})});
       },
       "[cat] f32 [2, 3] and f32 [2, 4] along dimension 0; all other sizes must agree"},
      {[] {
         cat({ones({2}), ones({2}, {.dtype = f64})});
       },
       "[cat] dtypes differ: f32 [2] and f64"},
      {[] { cat({ones({2})}, 1); },
       "[cat] dimension 1 is out of range for a tensor with 1 dimension"}};
}

void add_stack(std::vector<Op>& table) {
  for (int64_t d : {0, -1})
    table.push_back({.name = str("stack ", d),
                     .call = [d](const Tensors& x) { return stack(x, d); },
                     .reference =
                         [d](const Arrays& x) {
                           Shape shape = x[0].shape;
                           const int64_t at = d < 0 ? shape.dim() : 0;
                           shape.insert(at, int64_t(x.size()));
                           return build(shape, [&](const Shape& i) {
                             Shape inner = i;
                             inner.erase(at);
                             return x[size_t(i[at])].at(inner);
                           });
                         },
                     .samples = {{{{}}, {{}}},
                                 {{{23}}, {{23}}, {{23}}},
                                 {{{29, 17}}, {{29, 17}}},
                                 {{{0, 3}}, {{0, 3}}}},
                     .large = {{{259, 283}}, {{259, 283}}}});
  table.back().errors = {{[] { stack({}); }, "[stack] got no tensors; accepted: at least one"},
                         {[] {
                            stack({ones({2}), ones({3})});
                          },
                          "[stack] f32 [2] and f32 [3]; all shapes must agree"}};
}

void add_split(std::vector<Op>& table) {
  // Joins the chunks in reverse order, so that a gradient for the wrong chunk is noticed.
  table.push_back(
      {.name = "split 4",
       .call =
           [](const Tensors& x) {
             const Tensors pieces = split(x[0], 4, -1);
             return cat(Tensors(pieces.rbegin(), pieces.rend()), -1);
           },
       .reference =
           [](const Arrays& x) {
             const int64_t d = x[0].shape.dim() - 1, n = x[0].shape[d];
             Arrays pieces;
             for (int64_t at = 0; at < std::max<int64_t>(n, 1); at += 4)
               pieces.insert(
                   pieces.begin(),
                   build(with_entry(x[0].shape, d, std::min<int64_t>(4, n - at)),
                         [&](const Shape& i) { return x[0].at(with_entry(i, d, at + i[d])); }));
             return joined(pieces, d);
           },
       .samples = {{{{3}}}, {{{4}}}, {{{23}}}, {{{29, 17}}}, {{{3, 0}}}},
       .large = {{{259, 283}}}});
  table.back().errors = {{[] { split(ones({4}), 0); }, "[split] size 0"}};
  table.push_back({.name = "split sizes, the middle one",
                   .call =
                       [](const Tensors& x) {
                         return split(x[0], {1, x[0].size(0) - 2, 1}, 0)[1];
                       },
                   .reference =
                       [](const Arrays& x) {
                         return build(
                             with_entry(x[0].shape, 0, x[0].shape[0] - 2),
                             [&](const Shape& i) { return x[0].at(with_entry(i, 0, i[0] + 1)); });
                       },
                   .samples = {{{{3}}}, {{{2, 4}}}, {{{29, 17}}}},
                   .large = {{{259, 283}}}});
  table.back().errors = {{[] {
                            split(ones({4}), {1, 2});
                          },
                          "[split] sizes add up to 3, but dimension 0 of f32 [4]"},
                         {[] {
                            split(ones({4}), {5, -1});
                          },
                          "[split] size -1"}};
}

int64_t integer(const Number& x) { return int64_t(x.value); }

Input ids(Shape shape, int64_t classes) { return {shape, Domain::index, classes}; }
Input ids32(Shape shape, int64_t classes) { return {shape, Domain::index32, classes}; }

void add_gather(std::vector<Op>& table, int64_t d) {
  const int64_t n = d == 0 ? 29 : 17;
  table.push_back({.name = str("gather ", d),
                   .call = [d](const Tensors& x) { return gather(x[0], d, x[1]); },
                   .reference =
                       [d](const Arrays& x) {
                         return build(x[1].shape, [&](const Shape& i) {
                           return x[0].at(with_entry(i, d, integer(x[1].at(i))));
                         });
                       },
                   .samples = {{{{3, 3}}, ids({2, 3}, 3)},
                               {{{29, 17}}, ids({29, 17}, n)},
                               {{{29, 17}}, ids32({5, 4}, n)},
                               {{{3, 3}}, ids({0, 3}, 3)},
                               {{{2, 2}}, ids(d == 0 ? Shape{9, 2} : Shape{2, 9}, 2)}},
                   .large = {{{259, 283}}, ids({259, 283}, 259)}});
}

void add_scatter_add(std::vector<Op>& table, int64_t d) {
  const int64_t n = d == 0 ? 29 : 17;
  table.push_back({.name = str("scatter_add ", d),
                   .call = [d](const Tensors& x) { return scatter_add(x[0], d, x[1], x[2]); },
                   .reference =
                       [d](const Arrays& x) {
                         Array y = x[0];
                         build(x[1].shape, [&](const Shape& i) {
                           const Shape to = with_entry(i, d, integer(x[1].at(i)));
                           Number& sum = const_cast<Number&>(y.at(to));
                           sum = sum + x[2].at(i);
                           return Number();
                         });
                         return y;
                       },
                   .samples = {{{{3, 3}}, ids({2, 3}, 3), {{2, 3}}},
                               {{{29, 17}}, ids({29, 17}, n), {{29, 17}}},
                               {{{29, 17}}, ids32({5, 4}, n), {{5, 4}}},
                               {{{3, 3}}, ids({0, 3}, 3), {{0, 3}}},
                               {{{2, 2}},
                                ids(d == 0 ? Shape{9, 2} : Shape{2, 9}, 2),
                                {d == 0 ? Shape{9, 2} : Shape{2, 9}}}},
                   .large = {{{259, 283}}, ids({259, 283}, 259), {{259, 283}}}});
}

void add_index_select(std::vector<Op>& table, int64_t d) {
  table.push_back({.name = str("index_select ", d),
                   .call = [d](const Tensors& x) { return index_select(x[0], d, x[1]); },
                   .reference =
                       [d](const Arrays& x) {
                         return build(with_entry(x[0].shape, d, x[1].shape[0]),
                                      [&](const Shape& i) {
                                        const Shape at{i[d]};
                                        return x[0].at(with_entry(i, d, integer(x[1].at(at))));
                                      });
                       },
                   .samples = {{{{3, 4}}, ids({5}, 3)},
                               {{{29, 17}}, ids({40}, 17)},
                               {{{3, 4, 2}}, ids32({2}, 3)},
                               {{{3, 4}}, ids({0}, 3)},
                               {{{3, 4}}, ids({1}, 3)}},
                   .large = {{{259, 283}}, ids({300}, 259)}});
}

void add_indexing(std::vector<Op>& table) {
  for (int64_t d : {0, 1}) {
    add_gather(table, d);
    add_scatter_add(table, d);
    add_index_select(table, d);
  }
  const auto out_of_range = [] { return tensor<int64_t>({0, 7}); };
  for (Op* op : {&table[table.size() - 6], &table[table.size() - 5], &table[table.size() - 4]})
    op->errors = {{[op = op->call, out_of_range] {
                     op({ones({3}), out_of_range(), ones({2})});
                   },
                   "index 7 at position [1] is out of range: dimension 0 of f32 [3] has size 3"},
                  {[op = op->call] {
                     op({ones({3}), ones({2}), ones({2})});
                   },
                   "indices are f32; accepted: i64, i32"}};
  table.back().errors = {
      {[] {
         index_select(ones({3}), 0, zeros({1, 1}, {.dtype = i64}));
       },
       "[index_select] index i64 [1, 1]; must have 1 dimension"},
      {[] {
         gather(ones({3, 3}), 0, zeros({2, 4}, {.dtype = i64}));
       },
       "[gather] index i64 [2, 4] into f32 [3, 3] along dimension 0; the index must have as many"},
      {[] { scatter_add(ones({3}), 0, zeros({2}, {.dtype = i64}), ones({1})); },
       "[scatter_add] index i64 [2] for source f32 [1]; shapes must agree"}};
}

void add_embedding(std::vector<Op>& table) {
  table.push_back({.name = "embedding",
                   .call = [](const Tensors& x) { return embedding(x[0], x[1]); },
                   .reference =
                       [](const Arrays& x) {
                         Shape shape = x[1].shape;
                         shape.push_back(x[0].shape[1]);
                         return build(shape, [&](const Shape& i) {
                           Shape at = i;
                           at.erase(at.dim() - 1);
                           return x[0].at({integer(x[1].at(at)), i.back()});
                         });
                       },
                   .samples = {{{{5, 4}}, ids({}, 5)},
                               {{{5, 4}}, ids({3}, 5)},
                               {{{29, 17}}, ids({2, 40}, 29)},
                               {{{5, 4}}, ids32({2, 0}, 5)},
                               {{{5, 0}}, ids({2}, 5)}},
                   .large = {{{259, 31}}, ids({700}, 259)}});
  table.back().errors = {
      {[] {
         embedding(ones({3, 2}), tensor<int64_t>({0, -1}));
       },
       "[embedding] index -1 at position [1] is out of range: the table has 3 rows"},
      {[] { embedding(ones({3}), zeros({1}, {.dtype = i64})); },
       "[embedding] table f32 [3]; must have 2 dimensions, [V, D]"},
      {[] {
         embedding(ones({3, 2}), ones({1}));
       },
       "[embedding] indices are f32; accepted: i64, i32"}};
}

void add_skew(std::vector<Op>& table) {
  // y[i, j] = x[i, j − i + M − 1] and its inverse; zero outside.
  for (int64_t n : {1, 5, 23}) {
    table.push_back({.name = str("skew to ", n),
                     .call = [n](const Tensors& x) { return skew(x[0], n); },
                     .reference =
                         [n](const Arrays& x) {
                           const int64_t d = x[0].shape.dim() - 1, m = x[0].shape[d - 1];
                           return build(with_entry(x[0].shape, d, n), [&](const Shape& i) {
                             const int64_t c = i[d] - i[d - 1] + m - 1;
                             return c < 0 || c >= x[0].shape[d] ? Number()
                                                                : x[0].at(with_entry(i, d, c));
                           });
                         },
                     .samples = {{{{5, 5}}},
                                 {{{5, 9}}},
                                 {{{2, 3, 4}}},
                                 {{{29, 17}}},
                                 {{{0, 3}}},
                                 {{{3, 0}}},
                                 {{{1, 1}}}},
                     .large = {{{12, 61, 101}}}});
    table.push_back({.name = str("unskew to ", n),
                     .call = [n](const Tensors& x) { return unskew(x[0], n); },
                     .reference =
                         [n](const Arrays& x) {
                           const int64_t d = x[0].shape.dim() - 1, m = x[0].shape[d - 1];
                           return build(with_entry(x[0].shape, d, n), [&](const Shape& i) {
                             const int64_t j = i[d] + i[d - 1] - m + 1;
                             return j < 0 || j >= x[0].shape[d] ? Number()
                                                                : x[0].at(with_entry(i, d, j));
                           });
                         },
                     .samples = {{{{5, 5}}},
                                 {{{5, 9}}},
                                 {{{2, 3, 4}}},
                                 {{{29, 17}}},
                                 {{{0, 3}}},
                                 {{{3, 0}}},
                                 {{{1, 1}}}},
                     .large = {{{12, 61, 101}}}});
  }
  table.back().errors = {{[] { skew(ones({3}), 2); },
                          "[skew] got f32 [3]; accepted: a floating-point tensor with at least 2 "
                          "dimensions"},
                         {[] {
                            skew(ones({3, 3}), -1);
                          },
                          "[skew] n_keys is -1; must be 0 or more"},
                         {[] {
                            unskew(ones({2, 2}, {.dtype = i64}), 2);
                          },
                          "[unskew] got i64 [2, 2]"}};
}

}  // namespace

void add_indexing_ops(std::vector<Op>& table) {
  add_cat(table);
  add_stack(table);
  add_split(table);
  add_indexing(table);
  add_embedding(table);
  add_skew(table);
}

}  // namespace stretto::testing
