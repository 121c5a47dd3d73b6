#include "tests/reference/channel_norm.h"

#include <map>
#include <vector>

namespace stretto::reference {

using testing::Array;
using testing::build;
using testing::Number;

namespace {

// Normalizes the elements of each set; set_of(index) is the number of an element's set.
template <class SetOf>
Array normalized(const Array& x, const Array* weight, const Array* bias, double eps, SetOf set_of) {
  std::map<int64_t, std::vector<Number>> sets;
  build(x.shape, [&](const Shape& at) {
    sets[set_of(at)].push_back(x.at(at));
    return Number();
  });
  std::map<int64_t, Number> means, scales;
  for (const auto& [set, values] : sets) {
    const Number share = Number(1) / Number(double(values.size()));
    const Number mean = testing::total(values) * share;
    std::vector<Number> squares;
    for (const Number& v : values) squares.push_back((v - mean) * (v - mean));
    means[set] = mean;
    scales[set] = rsqrt(testing::total(squares) * share + Number(eps));
  }
  return build(x.shape, [&](const Shape& at) {
    Number y = (x.at(at) - means[set_of(at)]) * scales[set_of(at)];
    if (weight) y = y * weight->at({at[1]});
    return bias ? y + bias->at({at[1]}) : y;
  });
}

}  // namespace

Array group_norm(const Array& x, int64_t groups, const Array* weight, const Array* bias,
                 double eps) {
  return normalized(x, weight, bias, eps, [&](const Shape& at) {
    return at[0] * groups + at[1] / (x.shape[1] / groups);
  });
}

Array batch_norm(const Array& x, const Array* weight, const Array* bias, double eps) {
  return normalized(x, weight, bias, eps, [](const Shape& at) { return at[1]; });
}

}  // namespace stretto::reference
