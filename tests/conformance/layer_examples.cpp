#include "tests/conformance/layer_examples.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "ops/create.h"
#include "tests/conformance/example.h"

namespace stretto::conformance {

using testing::Number;

namespace {

// Rows of Numbers: [B][L][E] flattened to B·L rows.
using Row = std::vector<Number>;
using Rows = std::vector<Row>;

Rows rows_of(const Example& x, const std::string& name, int64_t b, int64_t l, int64_t e) {
  Rows all;
  for (int64_t i = 0; i < b; ++i)
    for (int64_t j = 0; j < l; ++j) {
      all.emplace_back();
      for (int64_t d = 0; d < e; ++d) all.back().push_back(x(name, i, j, d));
    }
  return all;
}

Rows stored(const Example& x, Rows rows) {
  for (Row& row : rows)
    for (Number& v : row) v = x.stored(v);
  return rows;
}

Rows linear(const Example& x, const std::string& name, const Rows& in, int64_t width, bool bias) {
  Rows all;
  for (const Row& row : in) {
    all.emplace_back();
    for (int64_t o = 0; o < width; ++o) {
      Number sum = bias ? x(name + ".bias", o) : Number();
      for (size_t d = 0; d < row.size(); ++d)
        sum = sum + row[d] * x(name + ".weight", o, int64_t(d));
      all.back().push_back(sum);
    }
  }
  return stored(x, all);
}

Rows layer_norm(const Example& x, const std::string& name, const Rows& in) {
  Rows all;
  for (const Row& row : in) {
    Number mean, variance;
    for (const Number& v : row) mean = mean + v / double(row.size());
    for (const Number& v : row) variance = variance + (v - mean) * (v - mean) / double(row.size());
    all.emplace_back();
    for (size_t d = 0; d < row.size(); ++d)
      all.back().push_back((row[d] - mean) * rsqrt(variance + 1e-5) *
                               x(name + ".weight", int64_t(d)) +
                           x(name + ".bias", int64_t(d)));
  }
  return stored(x, all);
}

Rows add(const Example& x, const Rows& a, const Rows& b) {
  Rows all = a;
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t d = 0; d < a[i].size(); ++d) all[i][d] = a[i][d] + b[i][d];
  return stored(x, all);
}

Rows feed_forward(const Example& x, const Rows& in, int64_t e, int64_t ff, bool gelu,
                  std::vector<double>* before_relu) {
  Rows hidden = linear(x, "param.ff.1", in, ff, true);
  for (Row& row : hidden)
    for (Number& v : row) {
      if (before_relu && !gelu) before_relu->push_back(v.value);
      if (gelu)
        v = v * (1 + erf(v * std::sqrt(0.5))) * 0.5;
      else if (v.value < 0)
        v = Number();
    }
  return linear(x, "param.ff.2", stored(x, hidden), e, true);
}

// Computes attention head by head from `score` and the mask `see`: v [B·N rows] → [B·M rows].
using Score = std::function<Number(int64_t b, int64_t h, int64_t i, int64_t j)>;
using See = std::function<bool(int64_t b, int64_t i, int64_t j)>;
Rows attend(const Example& x, int64_t b, int64_t h, int64_t m, int64_t n, const Rows& v,
            const Score& score, const See& see) {
  Rows all(static_cast<size_t>(b * m));
  for (int64_t at = 0; at < b * m; ++at)
    for (int64_t head = 0; head < h; ++head) {
      const int64_t batch = at / m, i = at % m, d = int64_t(v[0].size()) / h;
      Number total;
      Row sums(static_cast<size_t>(d));
      for (int64_t j = 0; j < n; ++j) {
        if (!see(batch, i, j)) continue;
        const Number weight = exp(score(batch, head, i, j));
        total = total + weight;
        for (int64_t c = 0; c < d; ++c)
          sums[size_t(c)] =
              sums[size_t(c)] + weight * v[size_t(batch * n + j)][size_t(head * d + c)];
      }
      for (const Number& sum : sums)
        all[size_t(at)].push_back(total.value == 0 ? Number() : sum / total);
    }
  return stored(x, all);
}

Row flat(const Rows& rows) {
  Row all;
  for (const Row& row : rows) all.insert(all.end(), row.begin(), row.end());
  return all;
}

void weights(Example& x, const std::string& name, int64_t out, int64_t in, bool bias,
             double scale = 1) {
  x.input(name + ".weight", {out, in}, scale / std::sqrt(double(in)));
  if (bias) x.input(name + ".bias", {out}, 0.3);
}

void norms_and_feed_forward(Example& x, int64_t e, int64_t ff) {
  weights(x, "param.ff.1", ff, e, true);
  weights(x, "param.ff.2", e, ff, true);
  for (const char* name : {"param.norm.1", "param.norm.2"}) {
    x.input(str(name, ".weight"), {e}, 0.3, 1);
    x.input(str(name, ".bias"), {e}, 0.3);
  }
}

}  // namespace

Case encoder_example(const EncoderSetting& s, const Noise& noise) {
  Example x("layer.encoder",
            str(R"({"B": )", s.b, R"(, "L": )", s.l, R"(, "E": )", s.e, R"(, "H": )", s.h,
                R"(, "ff": )", s.ff, R"(, "norm": ")", s.pre ? "pre" : "post",
                R"(", "activation": ")", s.gelu ? "gelu" : "relu", R"(", "causal": )", s.causal,
                s.padding ? R"(, "key_padding": true})" : "}"),
            noise.dtype, noise.seed);
  x.input("in.x", {s.b, s.l, s.e}, noise.scale);
  weights(x, "param.attn.q", s.e, s.e, true, noise.scale);
  for (const char* name : {"param.attn.k", "param.attn.v", "param.attn.o"})
    weights(x, name, s.e, s.e, true);
  norms_and_feed_forward(x, s.e, s.ff);
  if (s.padding) {
    Tensor ignored = zeros({s.b, s.l}, {.dtype = u8, .device = cpu});
    for (int64_t i = 1; i < ignored.numel(); i += 3) ignored.data<uint8_t>()[i] = 1;
    x.constant("in.key_padding", ignored);
  }

  const Rows in = rows_of(x, "in.x", s.b, s.l, s.e);
  const Rows at = s.pre ? layer_norm(x, "param.norm.1", in) : in;
  const Rows q = linear(x, "param.attn.q", at, s.e, true);
  const Rows k = linear(x, "param.attn.k", at, s.e, true);
  const Rows v = linear(x, "param.attn.v", at, s.e, true);
  const int64_t d = s.e / s.h;
  const Rows heads = attend(
      x, s.b, s.h, s.l, s.l, v,
      [&](int64_t b, int64_t h, int64_t i, int64_t j) {
        Number sum;
        for (int64_t c = h * d; c < (h + 1) * d; ++c)
          sum = sum + q[size_t(b * s.l + i)][size_t(c)] * k[size_t(b * s.l + j)][size_t(c)];
        return sum / std::sqrt(double(d));
      },
      [&](int64_t b, int64_t i, int64_t j) {
        return (!s.causal || j <= i) && (!s.padding || x("in.key_padding", b, j).value == 0);
      });
  const Rows attended = linear(x, "param.attn.o", heads, s.e, true);
  Rows y = add(x, in, attended);
  if (!s.pre) y = layer_norm(x, "param.norm.1", y);
  const Rows inside = s.pre ? layer_norm(x, "param.norm.2", y) : y;
  y = add(x, y, feed_forward(x, inside, s.e, s.ff, s.gelu, noise.before_relu));
  if (!s.pre) y = layer_norm(x, "param.norm.2", y);
  return x.finish("y", {s.b, s.l, s.e}, flat(y));
}

Case xl_example(const XLSetting& s, const Noise& noise) {
  Example x("layer.xl",
            str(R"({"M": )", s.m, R"(, "mem": )", s.mem, R"(, "E": )", s.e, R"(, "H": )", s.h,
                R"(, "ff": )", s.ff, s.clamp > 0 ? str(R"(, "clamp": )", s.clamp) : "", "}"),
            noise.dtype, noise.seed);
  const int64_t n = s.m + s.mem, d = s.e / s.h;
  x.input("in.x", {s.b, s.m, s.e}, noise.scale);
  weights(x, "param.q", s.e, s.e, false, noise.scale);
  for (const char* name : {"param.k", "param.v", "param.r", "param.o"})
    weights(x, name, s.e, s.e, false);
  x.input("param.u", {s.h, d});
  x.input("param.v_bias", {s.h, d});
  norms_and_feed_forward(x, s.e, s.ff);
  x.constant("in.memory",
             rand({s.b, s.mem, s.e}, RandomKey{.seed = 3 + noise.seed}, {.dtype = f64}));

  const Rows in = rows_of(x, "in.x", s.b, s.m, s.e);
  const Rows memory = rows_of(x, "in.memory", s.b, s.mem, s.e);
  Rows all, sinusoids;
  for (int64_t b = 0; b < s.b; ++b) {
    all.insert(all.end(), memory.begin() + b * s.mem, memory.begin() + (b + 1) * s.mem);
    all.insert(all.end(), in.begin() + b * s.m, in.begin() + (b + 1) * s.m);
  }
  for (int64_t lag = 0; lag < n; ++lag) {
    const auto counted = double(s.clamp > 0 ? std::min(lag, s.clamp) : lag);
    Row row(static_cast<size_t>(s.e));
    for (int64_t c = 0; c < s.e / 2; ++c) {
      const double angle = counted * std::pow(10000.0, -2.0 * double(c) / double(s.e));
      row[size_t(c)] = x.stored(testing::exact_number(std::sin(angle)));
      row[size_t(c + s.e / 2)] = x.stored(testing::exact_number(std::cos(angle)));
    }
    sinusoids.push_back(row);
  }
  const Rows q = linear(x, "param.q", in, s.e, false), k = linear(x, "param.k", all, s.e, false);
  const Rows v = linear(x, "param.v", all, s.e, false);
  const Rows r = linear(x, "param.r", sinusoids, s.e, false);
  const auto plus = [&](const char* name) {
    Rows sums = q;
    for (Row& row : sums)
      for (int64_t at = 0; at < s.e; ++at)
        row[size_t(at)] = row[size_t(at)] + x(name, at / d, at % d);
    return stored(x, sums);
  };
  const Rows content = plus("param.u"), position = plus("param.v_bias");
  const Rows heads = attend(
      x, s.b, s.h, s.m, n, v,
      [&](int64_t b, int64_t h, int64_t i, int64_t j) {
        Number sum;
        for (int64_t c = 0; c < d; ++c) {
          const auto at = size_t(h * d + c);
          sum = sum + content[size_t(b * s.m + i)][at] * k[size_t(b * n + j)][at] +
                position[size_t(b * s.m + i)][at] * r[size_t(i + s.mem - j)][at];
        }
        return sum / std::sqrt(double(d));
      },
      [&](int64_t, int64_t i, int64_t j) { return j <= i + s.mem; });
  Rows y = layer_norm(x, "param.norm.1", add(x, in, linear(x, "param.o", heads, s.e, false)));
  y = layer_norm(x, "param.norm.2",
                 add(x, y, feed_forward(x, y, s.e, s.ff, false, noise.before_relu)));
  return x.finish("y", {s.b, s.m, s.e}, flat(y));
}

}  // namespace stretto::conformance
