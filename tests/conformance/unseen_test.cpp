// Generated cases: every attention subject by loops that follow README.md, at sizes that the files
// of cases/ do not have.
#include <algorithm>
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
  int64_t b = 2, h = 2, g = 0, m = 5, n = 5, d = 4, dv = 0;  // g 0: h, dv 0: d
  bool causal = false;
  int64_t window = 0;
  bool padding = false;
};

// One row, one query of many keys, lengths that no block divides, a head of 41, empty tensors.
const Setting settings[] = {
    {.m = 1, .n = 1},
    {.b = 1, .m = 1, .n = 9, .causal = true},
    {.b = 1, .h = 3, .m = 7, .n = 7, .d = 41, .dv = 3, .causal = true},
    {.b = 1, .h = 4, .g = 2, .m = 3, .n = 8, .d = 2, .causal = true, .padding = true},
    {.b = 3, .h = 6, .g = 2, .m = 6, .n = 6, .d = 2, .padding = true},
    {.b = 1, .h = 1, .m = 66, .n = 66, .d = 2, .causal = true},
    {.b = 1, .h = 2, .m = 65, .n = 130, .d = 2},
    {.b = 1, .m = 67, .n = 71, .d = 2, .causal = true, .window = 5},
    {.b = 1, .m = 9, .n = 9, .d = 3, .window = 1},
    {.b = 1, .m = 4, .n = 12, .d = 2, .causal = true, .window = 40},
    {.b = 0, .m = 3, .n = 3, .causal = true},
    {.b = 1, .m = 6, .n = 2},  // queries before the first key
    {.b = 1, .m = 3, .n = 0},
    {.b = 1, .m = 0, .n = 3, .causal = true},
    {.b = 1, .m = 0, .n = 0, .causal = true},
};

std::string text(const Setting& s, const std::string& more = "") {
  return str(R"({"B": )", s.b, R"(, "H": )", s.h, R"(, "M": )", s.m, R"(, "N": )", s.n,
             R"(, "D": )", s.d, s.g > 0 ? str(R"(, "key_heads": )", s.g) : "",
             s.dv > 0 ? str(R"(, "Dv": )", s.dv) : "", s.causal ? R"(, "causal": true)" : "",
             s.window > 0 ? str(R"(, "window": )", s.window) : "",
             s.padding ? R"(, "key_padding": true)" : "", more, "}");
}

// Builds a case of attention. A subject declares its parameters, then defines its terms.
struct Attention {
  Setting s;
  Example x;

  explicit Attention(const std::string& subject, Setting given, const std::string& more = "")
      : s(given), x("attention." + subject, text(given, more)) {
    if (s.g == 0) s.g = s.h;
    if (s.dv == 0) s.dv = s.d;
    x.input("in.q", {s.b, s.h, s.m, s.d}, 1.5);
    x.input("in.k", {s.b, s.g, s.n, s.d}, 1.5);
    x.input("in.v", {s.b, s.g, s.n, s.dv});
    if (!s.padding) return;
    Tensor ignored = zeros({s.b, s.n}, {.dtype = boolean, .device = cpu});
    for (int64_t b = 0; b < s.b; ++b)
      for (int64_t j = 0; j < s.n; ++j)
        ignored.data<bool>()[b * s.n + j] = b == 2 || (j + b) % 3 == 1;  // entry 2: every key
    x.constant("in.key_padding", ignored);
  }

  int64_t position(int64_t i) const { return i + s.n - s.m; }
  double root() const { return 1 / std::sqrt(double(s.d)); }

  Number dot(int64_t b, int64_t h, int64_t i, int64_t j) const {
    Number sum;
    for (int64_t d = 0; d < s.d; ++d)
      sum = sum + x("in.q", b, h, i, d) * x("in.k", b, h * s.g / s.h, j, d);
    return sum;
  }

  bool visible(int64_t b, int64_t i, int64_t j) const {
    if (s.causal && j > position(i)) return false;
    if (s.window > 0 && position(i) - j >= s.window) return false;
    return !s.padding || x("in.key_padding", b, j).value == 0;
  }

  using Score = std::function<Number(int64_t b, int64_t h, int64_t i, int64_t j)>;
  using Value = std::function<Number(int64_t i, int64_t j, int64_t d)>;
  using See = std::function<bool(int64_t i, int64_t j)>;

  // Computes the softmax over the visible keys, times the values plus the added terms.
  Case finish(const Score& score, const Value& added = {}, const See& see = {}) {
    std::vector<Number> out;
    for (int64_t b = 0; b < s.b; ++b)
      for (int64_t h = 0; h < s.h; ++h)
        for (int64_t i = 0; i < s.m; ++i) {
          std::vector<Number> weights(static_cast<size_t>(s.n));
          Number total;
          for (int64_t j = 0; j < s.n; ++j) {
            if (!visible(b, i, j) || (see && !see(i, j))) continue;
            weights[size_t(j)] = exp(score(b, h, i, j));
            total = total + weights[size_t(j)];
          }
          for (int64_t d = 0; d < s.dv; ++d) {
            Number sum;
            for (int64_t j = 0; j < s.n; ++j) {
              if (weights[size_t(j)].value == 0) continue;
              const Number v = x("in.v", b, h * s.g / s.h, j, d);
              sum = sum + weights[size_t(j)] * (added ? v + added(i, j, d) : v);
            }
            out.push_back(total.value == 0 ? Number() : sum / total);
          }
        }
    return x.finish("y", {s.b, s.h, s.m, s.dv}, out);
  }
};

}  // namespace

TEST_CASE("conformance, unseen: attention.dot") {
  for (const Setting& s : settings) {
    Attention a("dot", s);
    check_everywhere(
        a.finish([&](auto b, auto h, auto i, auto j) { return a.dot(b, h, i, j) * a.root(); }));
  }
}

TEST_CASE("conformance, unseen: attention.shaw") {
  for (const Setting& s : settings)
    for (const int64_t clip : {0, 3, 80})
      for (const bool values : {true, false}) {
        if (values && s.n > 100) continue;
        Attention a("shaw", s, str(R"(, "clip": )", clip, values ? "" : R"(, "values": false)"));
        a.x.input("param.rel_k", {2 * clip + 1, s.d});
        if (values) a.x.input("param.rel_v", {2 * clip + 1, a.s.dv});
        auto row = [&](int64_t i, int64_t j) {
          return std::clamp(j - a.position(i), -clip, clip) + clip;
        };
        auto score = [&](int64_t b, int64_t h, int64_t i, int64_t j) {
          Number sum = a.dot(b, h, i, j);
          for (int64_t d = 0; d < s.d; ++d)
            sum = sum + a.x("in.q", b, h, i, d) * a.x("param.rel_k", row(i, j), d);
          return sum * a.root();
        };
        auto added = [&](int64_t i, int64_t j, int64_t d) {
          return a.x("param.rel_v", row(i, j), d);
        };
        check_everywhere(values ? a.finish(score, added) : a.finish(score));
      }
}

TEST_CASE("conformance, unseen: attention.skewed") {
  for (const Setting& given : settings)
    for (const bool bidirectional : {false, true})
      for (const bool clip : {false, true})
        for (const int64_t length : {1, 4, 90}) {
          Setting s = given;
          s.causal = !bidirectional;
          if (s.causal && s.m > s.n) continue;
          const bool shared = length == 4;
          Attention a(
              "skewed", s,
              str(R"(, "Lmax": )", length, bidirectional ? R"(, "two_sided": true)" : "",
                  clip ? R"(, "beyond": "clip")" : "", shared ? R"(, "shared": true)" : ""));
          const int64_t rows = bidirectional ? 2 * length - 1 : length;
          a.x.input("param.rel", {shared ? 1 : s.h, rows, s.d});
          check_everywhere(a.finish([&](auto b, auto h, auto i, auto j) {
            Number sum = a.dot(b, h, i, j);
            int64_t row = length - 1 + j - a.position(i);
            if (clip) row = std::clamp<int64_t>(row, 0, rows - 1);
            for (int64_t d = 0; d < s.d && row >= 0 && row < rows; ++d)
              sum = sum + a.x("in.q", b, h, i, d) * a.x("param.rel", shared ? 0 : h, row, d);
            return sum * a.root();
          }));
        }
}

TEST_CASE("conformance, unseen: attention.skewed_local") {
  for (const Setting& given : settings)
    for (const int64_t block : {1, 3, 64}) {
      Setting s = given;
      s.causal = true;
      s.window = 0;
      if (s.m > s.n) continue;
      Attention a("skewed_local", s, str(R"(, "block": )", block));
      a.x.input("param.rel", {s.h, 2 * block, s.d});
      check_everywhere(a.finish(
          [&](auto b, auto h, auto i, auto j) {
            Number sum = a.dot(b, h, i, j);
            for (int64_t d = 0; d < s.d; ++d)
              sum = sum + a.x("in.q", b, h, i, d) *
                              a.x("param.rel", h, 2 * block - 1 + j - a.position(i), d);
            return sum * a.root();
          },
          {}, [&](int64_t i, int64_t j) { return j / block >= a.position(i) / block - 1; }));
    }
}

TEST_CASE("conformance, unseen: attention.xl") {
  for (const Setting& given : settings)
    for (const bool same_length : {false, true}) {
      Setting s = given;
      s.causal = true;
      s.window = 0;
      if (s.m > s.n) continue;
      const int64_t mem = s.n - s.m;
      Attention a("xl", s, str(R"(, "mem": )", mem, same_length ? R"(, "same_length": true)" : ""));
      a.x.input("in.r", {s.h, s.n, s.d});
      a.x.input("param.u", {s.h, s.d});
      a.x.input("param.v", {s.h, s.d});
      check_everywhere(a.finish(
          [&](auto b, auto h, auto i, auto j) {
            Number sum;
            const int64_t lag = a.position(i) - j;
            for (int64_t d = 0; d < s.d; ++d) {
              const Number q = a.x("in.q", b, h, i, d);
              sum = sum + (q + a.x("param.u", h, d)) * a.x("in.k", b, h * a.s.g / s.h, j, d) +
                    (q + a.x("param.v", h, d)) * a.x("in.r", h, s.n - 1 - lag, d);
            }
            return sum * a.root();
          },
          {}, [&](int64_t i, int64_t j) { return !same_length || a.position(i) - j <= mem; }));
    }
}

namespace {

// The bucket of T5 (Raffel et al. 2020), as in the authors' code, in double.
int64_t t5_bucket(int64_t relative, int64_t buckets, double furthest, bool bidirectional) {
  int64_t first = 0, distance = std::max<int64_t>(-relative, 0);
  if (bidirectional) {
    buckets /= 2;
    first = relative > 0 ? buckets : 0;
    distance = std::abs(relative);
  }
  const int64_t exact = buckets / 2;
  if (distance < exact) return first + distance;
  const double share =
      std::log(double(distance) / double(exact)) / std::log(furthest / double(exact));
  return first + std::min(buckets - 1, exact + int64_t(share * double(buckets - exact)));
}

double alibi_slope(int64_t h, int64_t heads) {
  int64_t power = 1;
  while (2 * power <= heads) power *= 2;
  if (h < power) return std::exp2(-8.0 * double(h + 1) / double(power));
  return std::exp2(-8.0 * double(2 * (h - power) + 1) / double(2 * power));
}

}  // namespace

TEST_CASE("conformance, unseen: attention.t5") {
  struct Buckets {
    int64_t count, furthest;
  };
  for (const Setting& s : settings)
    for (const Buckets& n : {Buckets{32, 128}, Buckets{6, 50}, Buckets{10, 7}}) {
      const std::string sizes =
          n.count == 32 ? ""  // the defaults
                        : str(R"(, "num_buckets": )", n.count, R"(, "max_distance": )", n.furthest);
      Attention a("t5", s, sizes);
      a.x.input("param.bias", {n.count, s.h});
      check_everywhere(a.finish([&](auto b, auto h, auto i, auto j) {
        const int64_t bucket = t5_bucket(j - a.position(i), n.count, double(n.furthest), !s.causal);
        return a.dot(b, h, i, j) + a.x("param.bias", bucket, h);
      }));
    }
}

TEST_CASE("conformance, unseen: attention.alibi") {
  for (const Setting& s : settings) {
    Attention a("alibi", s);
    check_everywhere(a.finish([&](auto b, auto h, auto i, auto j) {
      return a.dot(b, h, i, j) * a.root() -
             alibi_slope(h, s.h) * double(std::abs(j - a.position(i)));
    }));
  }
}

TEST_CASE("conformance, unseen: attention.kerple") {
  for (const Setting& given : settings)
    for (const double least : {0.1, 0.001}) {
      Setting s = given;
      s.causal = true;
      if (s.m > s.n) continue;
      Attention a("kerple", s);
      a.x.input("param.p", {s.h}, 0.4, 0.4 + least);
      a.x.input("param.a", {s.h}, 0.4, 0.4 + least);
      check_everywhere(a.finish([&](auto b, auto h, auto i, auto j) {
        return a.dot(b, h, i, j) * a.root() -
               a.x("param.p", h) * log(1 + a.x("param.a", h) * double(a.position(i) - j));
      }));
    }
}

TEST_CASE("conformance, unseen: attention.rope") {
  for (const Setting& s : settings)
    for (const bool half : {true, false}) {
      if (s.d % 2 == 1) continue;
      Attention a("rope", s, half ? R"(, "pairing": "half")" : R"(, "pairing": "interleaved")");
      // Element d of a row that was rotated to `position`.
      auto rotated = [&](const char* name, int64_t b, int64_t h, int64_t row, int64_t position,
                         int64_t d) {
        const int64_t pair = half ? d % (s.d / 2) : d / 2;
        const bool second = half ? d >= s.d / 2 : d % 2 == 1;
        const int64_t one = half ? pair : 2 * pair, two = half ? pair + s.d / 2 : 2 * pair + 1;
        const double angle =
            double(position) * std::pow(10000.0, -2.0 * double(pair) / double(s.d));
        const Number x = a.x(name, b, h, row, one), y = a.x(name, b, h, row, two);
        return second ? x * std::sin(angle) + y * std::cos(angle)
                      : x * std::cos(angle) - y * std::sin(angle);
      };
      check_everywhere(a.finish([&](auto b, auto h, auto i, auto j) {
        Number sum;
        for (int64_t d = 0; d < s.d; ++d)
          sum = sum + rotated("in.q", b, h, i, a.position(i), d) *
                          rotated("in.k", b, h * a.s.g / s.h, j, j, d);
        return sum * a.root();
      }));
    }
}
