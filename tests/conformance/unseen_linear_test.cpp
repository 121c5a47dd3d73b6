// Generated cases: linear attention by loops that follow README.md, at sizes that the files of
// cases/ do not have.
#include <cmath>
#include <functional>

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
  int64_t b = 2, h = 2, g = 2, m = 5, n = 5, d = 4, dv = 4;
  bool causal = false, padding = false;
};

// One row, one query of many keys, lengths that no chunk divides, a head of 41, empty tensors.
const Setting settings[] = {
    {.m = 1, .n = 1, .causal = true},
    {.b = 1, .m = 1, .n = 9, .causal = true},
    {.b = 1, .h = 3, .g = 3, .m = 7, .n = 7, .d = 41, .dv = 3, .causal = true},
    {.b = 1, .h = 4, .g = 2, .m = 3, .n = 8, .d = 2, .causal = true, .padding = true},
    {.b = 3, .h = 6, .g = 2, .m = 6, .n = 6, .d = 2, .padding = true},
    {.b = 1, .h = 1, .g = 1, .m = 66, .n = 66, .d = 2, .dv = 1, .causal = true},
    {.b = 1, .h = 2, .g = 1, .m = 65, .n = 130, .d = 2, .dv = 2},
    {.b = 0, .m = 3, .n = 3, .causal = true},
    {.b = 1, .m = 6, .n = 2, .causal = true},
    {.b = 1, .m = 3, .n = 0},
    {.b = 1, .m = 0, .n = 3, .causal = true},
};

using Features = std::function<std::vector<Number>(const std::vector<Number>& x)>;

struct Linear {
  Setting s;
  Example x;

  Linear(const std::string& subject, const Setting& given, const std::string& more)
      : s(given),
        x("attention." + subject,
          str(R"({"key_heads": )", s.g, s.causal ? R"(, "causal": true)" : "",
              s.padding ? R"(, "key_padding": true)" : "", more, "}")) {
    x.input("in.q", {s.b, s.h, s.m, s.d});
    x.input("in.k", {s.b, s.g, s.n, s.d});
    x.input("in.v", {s.b, s.g, s.n, s.dv});
    if (!s.padding) return;
    Tensor ignored = zeros({s.b, s.n}, {.dtype = boolean, .device = cpu});
    for (int64_t b = 0; b < s.b; ++b)
      for (int64_t j = 0; j < s.n; ++j)
        ignored.data<bool>()[b * s.n + j] = b == 2 || (j + b) % 3 == 1;  // entry 2: every key
    x.constant("in.key_padding", ignored);
  }

  std::vector<Number> row(const char* name, int64_t b, int64_t h, int64_t i) const {
    std::vector<Number> all;
    for (int64_t d = 0; d < s.d; ++d) all.push_back(x(name, b, h, i, d));
    return all;
  }

  Case finish(const Features& features, double eps) {
    std::vector<Number> out;
    for (int64_t b = 0; b < s.b; ++b)
      for (int64_t h = 0; h < s.h; ++h)
        for (int64_t i = 0; i < s.m; ++i) {
          const int64_t kh = h * s.g / s.h;
          const std::vector<Number> q = features(row("in.q", b, h, i));
          std::vector<Number> sums(size_t(s.dv), Number());
          Number total;
          for (int64_t j = 0; j < s.n; ++j) {
            if (s.causal && j > i + s.n - s.m) continue;
            if (s.padding && x("in.key_padding", b, j).value != 0) continue;
            const std::vector<Number> k = features(row("in.k", b, kh, j));
            Number product;
            for (size_t f = 0; f < q.size(); ++f) product = product + q[f] * k[f];
            for (int64_t d = 0; d < s.dv; ++d)
              sums[size_t(d)] = sums[size_t(d)] + product * x("in.v", b, kh, j, d);
            total = total + product;
          }
          for (const Number& sum : sums)
            out.push_back(total.value == 0 ? Number() : sum / (total + Number(eps)));
        }
    return x.finish("y", {s.b, s.h, s.m, s.dv}, out);
  }
};

}  // namespace

TEST_CASE("unseen cases: attention.linear") {
  const Features elu = [](const std::vector<Number>& x) {
    std::vector<Number> phi;
    for (const Number& a : x) phi.push_back(a.value > 0 ? a + Number(1) : exp(a));
    return phi;
  };
  for (const Setting& s : settings)
    for (const double eps : {0.0, 0.25})
      check_everywhere(
          Linear("linear", s, str(R"(, "feature": "elu1", "eps": )", eps)).finish(elu, eps));
}

TEST_CASE("unseen cases: attention.favor") {
  for (const Setting& s : settings) {
    const int64_t rows = 6;
    Linear a("favor", s, str(R"(, "R": )", rows));
    const Tensor projection = empty({rows, s.d}, {.dtype = f64, .device = cpu});
    for (int64_t i = 0; i < projection.numel(); ++i)  // exact in every dtype
      projection.data<double>()[i] = double(i * i % 7 - 3) / 2;
    a.x.constant("noise.projection", projection);
    check_everywhere(a.finish(
        [&](const std::vector<Number>& x) {
          std::vector<Number> scaled, phi;
          Number squares;
          for (const Number& value : x) {
            scaled.push_back(value * Number(std::pow(double(s.d), -0.25)));
            squares = squares + scaled.back() * scaled.back();
          }
          for (int64_t r = 0; r < rows; ++r) {
            Number u;
            for (int64_t d = 0; d < s.d; ++d)
              u = u + a.x("noise.projection", r, d) * scaled[size_t(d)];
            phi.push_back(exp(u - squares * Number(0.5)) * Number(1 / std::sqrt(double(rows))));
          }
          return phi;
        },
        0));
  }
}
