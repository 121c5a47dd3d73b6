// einsum (ops/matmul.h): each operand is a tensor whose dimensions have distinct labels; pairs are
// permuted to [batch, M, K] and [batch, K, N] and multiplied.
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/view.h"

namespace stretto {
namespace {

// Letters A to Z and a to z are labels 0 to 51; dimension k of "...", counted from the right, is
// 52 + k.
constexpr int letters = 52;
using Labels = std::vector<int>;

int label_of(char c) {
  return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? 26 + c - 'a' : -1;
}

bool has(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

struct Term {
  Labels labels;
  int ellipsis = -1;  // the position of "..." among the labels; −1: none
};

Term parse_term(const std::string& equation, const std::string& text) {
  Term term;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 3, "...") == 0) {
      check(term.ellipsis < 0, "einsum", "\"", equation, "\": \"...\" occurs twice in a term");
      term.ellipsis = int(term.labels.size());
      i += 2;
      continue;
    }
    const int label = label_of(text[i]);
    check(label >= 0, "einsum", "\"", equation, "\": '", text[i],
          "'; accepted: letters, \"...\", \",\" and \"->\"");
    term.labels.push_back(label);
  }
  return term;
}

// The labels of a term with `n` dimensions for "...".
Labels expanded(const Term& term, int64_t n) {
  Labels labels = term.labels;
  for (int64_t k = 0; k < n; ++k)
    labels.insert(labels.begin() + term.ellipsis + k, letters + int(n - 1 - k));
  return labels;
}

struct Equation {
  std::vector<Term> inputs;
  Term output;
  bool has_output = false;

  explicit Equation(const std::string& text) {
    std::string compact;
    std::copy_if(text.begin(), text.end(), std::back_inserter(compact),
                 [](char c) { return c != ' '; });
    const size_t arrow = compact.find("->");
    has_output = arrow != std::string::npos;
    const std::string left = compact.substr(0, arrow);
    for (size_t at = 0;;) {
      const size_t comma = left.find(',', at);
      inputs.push_back(parse_term(text, left.substr(at, comma - at)));
      if (comma == std::string::npos) break;
      at = comma + 1;
    }
    if (has_output) output = parse_term(text, compact.substr(arrow + 2));
  }
};

// A tensor whose dimensions have distinct labels.
struct Operand {
  Tensor x;
  Labels labels;

  int64_t size(int label) const {
    const auto at = std::find(labels.begin(), labels.end(), label);
    return at == labels.end() ? 1 : x.shape()[at - labels.begin()];
  }
  // Sums over the labels that are not kept.
  void reduce(const Labels& kept) {
    Dims dims;
    Labels left;
    for (size_t d = 0; d < labels.size(); ++d)
      has(kept, labels[d]) ? left.push_back(labels[d]) : dims.push_back(int64_t(d));
    if (!dims.empty()) x = sum(x, dims);
    labels = std::move(left);
  }
  // Returns x with dimensions in the order of `order`; of size 1 for labels that it does not have.
  Tensor arranged(const Labels& order) const {
    Shape permutation, sizes;
    for (int label : order) {
      const auto at = std::find(labels.begin(), labels.end(), label);
      if (at != labels.end()) permutation.push_back(at - labels.begin());
      sizes.push_back(size(label));
    }
    return x.permute(permutation).reshape(sizes);
  }
};

// Replaces labels that occur twice by their diagonal.
Operand distinct(const std::string& equation, Operand a) {
  for (size_t i = 0; i < a.labels.size(); ++i)
    for (size_t j = i + 1; j < a.labels.size(); ++j) {
      if (a.labels[i] != a.labels[j]) continue;
      const auto d0 = int64_t(i), d1 = int64_t(j);
      check(a.x.size(d0) == a.x.size(d1), "einsum", "\"", equation, "\": dimensions ", d0, " and ",
            d1, " of ", a.x, " have the same letter; the sizes must be equal");
      const int label = a.labels[i];
      a.x = diagonal(a.x, 0, d0, d1);
      a.labels.erase(a.labels.begin() + d1);
      a.labels.erase(a.labels.begin() + d0);
      a.labels.push_back(label);
      return distinct(equation, std::move(a));
    }
  return a;
}

int64_t product(const Shape& shape) { return shape.numel(); }

// The product of two operands, summed over the labels that are not kept.
Operand contract(Operand a, Operand b, const Labels& kept) {
  const auto both = [](Labels first, const Labels& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  };
  a.reduce(both(b.labels, kept));
  b.reduce(both(a.labels, kept));
  Labels batch, left, right, summed;
  for (int label : a.labels)
    (!has(b.labels, label) ? left : has(kept, label) ? batch : summed).push_back(label);
  for (int label : b.labels)
    if (!has(a.labels, label)) right.push_back(label);
  const Labels result = both(both(batch, left), right);
  if (summed.empty()) return {a.arranged(result) * b.arranged(result), result};

  const auto sizes = [&](const Labels& labels) {
    Shape shape;
    for (int label : labels) shape.push_back(std::max(a.size(label), b.size(label)));
    for (size_t i = 0; i < labels.size(); ++i)
      if (a.size(labels[i]) == 0 || b.size(labels[i]) == 0) shape[int64_t(i)] = 0;
    return shape;
  };
  const int64_t n_batch = product(sizes(batch)), n_summed = product(sizes(summed));
  const Labels rows = both(both(batch, left), summed), columns = both(both(batch, summed), right);
  const Tensor p = broadcast_to(a.arranged(rows), sizes(rows))
                       .reshape({n_batch, product(sizes(left)), n_summed});
  const Tensor q = broadcast_to(b.arranged(columns), sizes(columns))
                       .reshape({n_batch, n_summed, product(sizes(right))});
  return {matmul(p, q).reshape(sizes(result)), result};
}

// The labels of the result: those after "->", or the dimensions of "..." and the letters that occur
// once.
Labels result_labels(const Equation& equation, const std::vector<Operand>& operands,
                     int64_t ellipsis) {
  if (equation.has_output)
    return expanded(equation.output, equation.output.ellipsis < 0 ? 0 : ellipsis);
  std::array<int, letters> count{};
  for (const Operand& a : operands)
    for (int label : a.labels)
      if (label < letters) ++count[size_t(label)];
  Labels result;
  for (int64_t k = ellipsis; k-- > 0;) result.push_back(letters + int(k));
  for (int label = 0; label < letters; ++label)
    if (count[size_t(label)] == 1) result.push_back(label);
  return result;
}

void check_sizes_agree(const std::string& equation, const std::vector<Operand>& operands) {
  for (const Operand& a : operands)
    for (const Operand& b : operands)
      for (int label : a.labels)
        check(a.size(label) == b.size(label) || a.size(label) == 1 || b.size(label) == 1, "einsum",
              "\"", equation, "\": sizes ", a.size(label), " of ", a.x, " and ", b.size(label),
              " of ", b.x, " have the same letter; they must be equal or contain a 1");
}

}  // namespace

Tensor einsum(const std::string& text, const Tensors& tensors) {
  const Equation equation(text);
  check(equation.inputs.size() == tensors.size(), "einsum", "\"", text, "\" has ",
        equation.inputs.size(), " operands; got ", tensors.size());
  std::vector<Operand> operands;
  int64_t ellipsis = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& x = tensors[i];
    const Term& term = equation.inputs[i];
    check_floating("einsum", x);
    check_same_device("einsum", {&tensors[0], &x});
    check(x.dtype() == tensors[0].dtype(), "einsum", "dtypes differ: ", tensors[0], " and ", x);
    const int64_t more = x.dim() - int64_t(term.labels.size());
    check(term.ellipsis < 0 ? more == 0 : more >= 0, "einsum", "\"", text, "\" has ",
          term.labels.size(), " letters for ", x);
    ellipsis = std::max(ellipsis, more);
    operands.push_back({x, expanded(term, more)});
  }
  const Labels result = result_labels(equation, operands, ellipsis);
  for (Operand& a : operands) a = distinct(text, std::move(a));
  check_sizes_agree(text, operands);
  for (size_t i = 0; i < result.size(); ++i) {
    check(!has(Labels(result.begin() + int64_t(i) + 1, result.end()), result[i]), "einsum", "\"",
          text, "\": a letter occurs twice in the result");
    check(result[i] >= letters ||
              std::any_of(operands.begin(), operands.end(),
                          [&](const Operand& a) { return has(a.labels, result[i]); }),
          "einsum", "\"", text, "\": a letter of the result is in no operand");
  }
  Operand y = operands[0];
  for (size_t i = 1; i < operands.size(); ++i) {
    Labels kept = result;
    for (size_t j = i + 1; j < operands.size(); ++j)
      kept.insert(kept.end(), operands[j].labels.begin(), operands[j].labels.end());
    y = contract(std::move(y), operands[i], kept);
  }
  y.reduce(result);
  return y.arranged(result);
}

}  // namespace stretto
