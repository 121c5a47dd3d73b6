// Sums of products in Einstein's notation [ops/matmul.h].
#include <map>
#include <string>

#include "ops/create.h"
#include "ops/matmul.h"
#include "tests/support/op_table.h"

namespace stretto::testing {
namespace {

struct Equation {
  std::vector<std::string> inputs;
  std::string output;
};

// An equation of letters with "->".
Equation parsed(const std::string& text) {
  Equation e;
  const size_t arrow = text.find("->");
  e.output = text.substr(arrow + 2);
  e.inputs.emplace_back();
  for (char c : text.substr(0, arrow)) {
    if (c == ',')
      e.inputs.emplace_back();
    else
      e.inputs.back() += c;
  }
  return e;
}

// The sum over all values of all letters, term by term. Sizes of 1 broadcast.
Array einsum_reference(const std::string& text, const Arrays& x) {
  const Equation e = parsed(text);
  std::map<char, int64_t> sizes;
  for (size_t k = 0; k < x.size(); ++k)
    for (size_t d = 0; d < e.inputs[k].size(); ++d) {
      const int64_t n = x[k].shape[int64_t(d)];
      const auto at = sizes.emplace(e.inputs[k][d], n).first;
      if (at->second == 1) at->second = n;
    }
  Shape outer, inner;
  std::string summed;
  for (char c : e.output) outer.push_back(sizes[c]);
  for (const auto& [c, n] : sizes)
    if (e.output.find(c) == std::string::npos) {
      summed += c;
      inner.push_back(n);
    }
  return build(outer, [&](const Shape& i) {
    Number sum;
    build(inner, [&](const Shape& j) {
      Number term(1);
      for (size_t k = 0; k < x.size(); ++k) {
        Shape at;
        for (char c : e.inputs[k]) {
          const size_t place = e.output.find(c);
          at.push_back(place != std::string::npos ? i[int64_t(place)] : j[int64_t(summed.find(c))]);
        }
        term = k == 0 ? x[0].at(at) : term * x[k].at(at);
        if (k > 0 && k + 1 < x.size()) term.storing += std::fabs(term.value);
      }
      sum = sum + term;
      return Number();
    });
    sum.storing += std::fabs(sum.value);  // a sum over letters of one operand is stored
    return sum;
  });
}

// `loops`: the same equation without "..." and with "->".
Op einsum_op(const std::string& text, std::vector<Sample> samples, Sample large,
             std::string loops = {}) {
  if (loops.empty()) loops = text;
  return {.name = "einsum " + text,
          .call = [text](const Tensors& x) { return einsum(text, x); },
          .reference = [loops](const Arrays& x) { return einsum_reference(loops, x); },
          .samples = std::move(samples),
          .large = std::move(large),
          .any_layout_exact = false};  // as matmul
}

}  // namespace

void add_einsum_ops(std::vector<Op>& table) {
  const auto add = [&](auto... arguments) { table.push_back(einsum_op(arguments...)); };
  using Samples = std::vector<Sample>;
  add("ij,jk->ik", Samples{{{{2, 3}}, {{3, 4}}}, {{{9, 0}}, {{0, 3}}}, {{{29, 17}}, {{17, 23}}}},
      Sample{{{130, 140}}, {{140, 150}}});
  add("bhmd,bhnd->bhmn",
      Samples{{{{1, 2, 2, 3}}, {{1, 2, 3, 3}}}, {{{2, 3, 5, 4}}, {{2, 3, 7, 4}}}},
      Sample{{{2, 3, 31, 17}}, {{2, 3, 29, 17}}});
  add("i,j->ij", Samples{{{{3}}, {{4}}}, {{{0}}, {{2}}}}, Sample{{{257}}, {{101}}});
  add("i,i->", Samples{{{{5}}, {{5}}}, {{{0}}, {{0}}}, {{{1}}, {{5}}}}, Sample{{{812}}, {{812}}});
  add("ii->i", Samples{{{{3, 3}}}, {{{1, 1}}}}, Sample{{{83, 83}}});
  add("ii->", Samples{{{{3, 3}}}, {{{0, 0}}}}, Sample{{{83, 83}}});
  add("ijk->kj", Samples{{{{2, 3, 4}}}, {{{3, 2, 0}}}}, Sample{{{31, 29, 17}}});
  add("ij,jk,kl->il", Samples{{{{2, 3}}, {{3, 2}}, {{2, 2}}}, {{{5, 7}}, {{7, 3}}, {{3, 9}}}},
      Sample{{{20, 30}}, {{30, 10}}, {{10, 25}}});
  add("bij,bik,b->jk", Samples{{{{2, 2, 2}}, {{2, 2, 3}}, {{2}}}},
      Sample{{{9, 21, 22}}, {{9, 21, 23}}, {{9}}});
  add("iij,jk->ik", Samples{{{{2, 2, 3}}, {{3, 2}}}}, Sample{{{31, 31, 17}}, {{17, 29}}});
  add("...ij,...jk", Samples{{{{2, 2, 3}}, {{2, 3, 2}}}, {{{5, 3, 4}}, {{1, 4, 2}}}},
      Sample{{{7, 31, 29}}, {{7, 29, 17}}}, "bij,bjk->bik");
  add("ba", Samples{{{{2, 3}}}, {{{29, 17}}}}, Sample{{{259, 83}}}, "ba->ab");
  add("b n d, ...d -> ...nb", Samples{{{{2, 3, 2}}, {{4, 2}}}}, Sample{{{13, 17, 19}}, {{23, 19}}},
      "bnd,xd->xnb");
  const auto matrix = [](const char* equation, std::string text) {
    return ErrorCase{[equation] {
                       einsum(equation, {ones({2, 3})});
                     },
                     "[einsum] \"" + std::string(equation) + "\"" + std::move(text)};
  };
  table.back().errors = {
      matrix("ij,jk->ik", " has 2 operands; got 1"),
      matrix("ijk->i", " has 3 letters for f32 [2, 3]"),
      matrix("i->i", " has 1 letters for f32 [2, 3]"),
      matrix("i?->i", ": '?'; accepted: letters, \"...\", \",\" and \"->\""),
      matrix("......ij", ": \"...\" occurs twice in a term"),
      matrix("ij->iji", ": a letter occurs twice in the result"),
      matrix("ij->ik", ": a letter of the result is in no operand"),
      matrix("ii->i", ": dimensions 0 and 1 of f32 [2, 3] have the same letter; the sizes must be"),
      {[] {
         einsum("ij,jk", {ones({2, 3}), ones({4, 2})});
       },
       "sizes 3 of f32 [2, 3] and 4 of f32 [4, 2] have the same letter; they must be equal or"},
      {[] {
         einsum("i,i", {ones({2}), ones({2}, {.dtype = f64})});
       },
       "[einsum] dtypes differ: f32 [2] and f64 [2]"},
      {[] { einsum("i", {arange(2)}); }, "[einsum] got i64 [2]; accepted: f32, f64, bf16"}};
}

}  // namespace stretto::testing
