// Generated cases: stochastic positional encoding by loops that follow README.md, at sizes that the
// files of cases/ do not have.
#include <cmath>
#include <numbers>

#include "ops/create.h"
#include "tests/conformance/example.h"
#include "tests/support/catch.h"

using namespace stretto;
using conformance::Case;
using conformance::check_everywhere;
using conformance::Example;
using testing::Number;

namespace {

struct Setting {
  int64_t b = 2, l = 5, h = 2, d = 3, r = 4;
  int64_t sines = 2;     // for spe.sine
  Shape taps = {3};      // for spe.conv
  Shape positions = {};  // their axes; {l} if empty
  bool gated = true;
};

enum Side { query, key };

struct Spe {
  Setting s;
  Example x;

  Spe(const std::string& subject, const Setting& given, const std::string& config)
      : s(given), x(subject, str("{\"gated\": ", given.gated ? "true" : "false", config, "}")) {
    x.input("in.q", {s.b, s.l, s.h, s.d});
    x.input("in.k", {s.b, s.l, s.h, s.d});
    if (!s.gated) return;
    x.input("param.gate", {s.h, s.d}, 2);
  }

  // Adds noise that is exact in every dtype.
  void noise(const std::string& name, const Shape& shape) {
    const Tensor z = empty(shape, {.dtype = f64, .device = cpu});
    for (int64_t i = 0; i < z.numel(); ++i)
      z.data<double>()[i] = double((i * i + 3 * i) % 17 - 8) / 4;
    x.constant(name, z);
  }

  template <class Code>  // code(side, position, h, d, r), without the factor
  Case finish(Code&& code) {
    if (s.gated) noise("noise.gate", {s.h, s.d, s.r});
    const Number factor(std::pow(double(s.r * s.d), -0.25));
    std::vector<Number> out[2];
    for (const Side side : {query, key})
      for (int64_t b = 0; b < s.b; ++b)
        for (int64_t l = 0; l < s.l; ++l)
          for (int64_t h = 0; h < s.h; ++h)
            for (int64_t r = 0; r < s.r; ++r) {
              Number sum;
              for (int64_t d = 0; d < s.d; ++d) {
                Number c = code(side, l, h, d, r);
                if (s.gated) {
                  const Number g = sigmoid(x("param.gate", h, d));
                  c = sqrt(Number(1) - g) * c + sqrt(g) * x("noise.gate", h, d, r);
                }
                sum = sum + x(side == query ? "in.q" : "in.k", b, l, h, d) * c * factor;
              }
              out[side].push_back(sum);
            }
    const Shape shape{s.b, s.l, s.h, s.r};
    return x.finish({{"q", shape, out[query]}, {"k", shape, out[key]}});
  }
};

// One position, head dimension 1, one realization, a head of 41, more positions than a tile has.
const Setting settings[] = {
    {.l = 1},
    {.l = 7, .h = 1, .d = 1, .r = 1, .sines = 1, .taps = {1}},
    {.b = 1, .l = 3, .h = 1, .d = 41, .r = 2, .sines = 1, .taps = {5}, .gated = false},
    {.b = 1, .l = 67, .h = 1, .d = 2, .r = 3, .sines = 1, .taps = {2}},
    {.b = 3, .l = 4, .h = 3, .d = 2, .r = 5, .sines = 3, .taps = {9}},
};

}  // namespace

TEST_CASE("unseen cases: spe.sine") {
  for (const Setting& s : settings) {
    Spe a("spe.sine", s, "");
    for (const char* name : {"param.freqs", "param.offsets", "param.gains"})
      a.x.input(name, {s.h, s.d, s.sines});
    a.noise("noise.z", {s.h, s.d, 2 * s.sines, s.r});
    check_everywhere(a.finish([&](Side side, int64_t l, int64_t h, int64_t d, int64_t r) {
      Number sum;
      for (int64_t k = 0; k < s.sines; ++k) {
        Number phase = sigmoid(a.x("param.freqs", h, d, k)) * Number(std::numbers::pi * double(l));
        if (side == query) phase = phase + a.x("param.offsets", h, d, k);
        sum = sum + softplus(a.x("param.gains", h, d, k)) *
                        (cos(phase) * a.x("noise.z", h, d, 2 * k, r) +
                         sin(phase) * a.x("noise.z", h, d, 2 * k + 1, r));
      }
      return sum * Number(1 / std::sqrt(2 * double(s.sines)));
    }));
  }
}

TEST_CASE("unseen cases: spe.conv") {
  for (const Setting& s : settings) {
    const int64_t taps = s.taps[0];
    Spe a("spe.conv", s, "");
    for (const char* name : {"param.filter_q", "param.filter_k"})
      a.x.input(name, {s.h, s.d, taps}, 0.5, 0.5);
    a.noise("noise.z", {s.h, s.d, s.r, s.l + taps - 1});
    check_everywhere(a.finish([&](Side side, int64_t l, int64_t h, int64_t d, int64_t r) {
      Number sum;
      for (int64_t p = 0; p < taps; ++p)
        sum = sum + a.x(side == query ? "param.filter_q" : "param.filter_k", h, d, p) *
                        a.x("noise.z", h, d, r, l - p + taps - 1);
      return sum;
    }));
  }
}

TEST_CASE("unseen cases: spe.conv over two axes") {
  for (Setting s : {Setting{.l = 6, .taps = {2, 3}, .positions = {2, 3}},
                    Setting{.b = 1, .l = 5, .d = 2, .taps = {3, 1}, .positions = {1, 5}},
                    Setting{.l = 4, .h = 1, .taps = {5, 2}, .positions = {4, 1}, .gated = false}}) {
    const int64_t p1 = s.taps[0], p2 = s.taps[1], columns = s.positions[1];
    Spe a("spe.conv", s,
          str(", \"shape\": [", s.positions[0], ", ", columns, "], \"kernel\": [", p1, ", ", p2,
              "]"));
    for (const char* name : {"param.filter_q", "param.filter_k"})
      a.x.input(name, {s.h, s.d, p1, p2}, 0.5, 0.5);
    a.noise("noise.z", {s.h, s.d, s.r, s.positions[0] + p1 - 1, columns + p2 - 1});
    check_everywhere(a.finish([&](Side side, int64_t l, int64_t h, int64_t d, int64_t r) {
      Number sum;
      for (int64_t p = 0; p < p1; ++p)
        for (int64_t t = 0; t < p2; ++t)
          sum =
              sum + a.x(side == query ? "param.filter_q" : "param.filter_k", h, d, p, t) *
                        a.x("noise.z", h, d, r, l / columns - p + p1 - 1, l % columns - t + p2 - 1);
      return sum;
    }));
  }
}
