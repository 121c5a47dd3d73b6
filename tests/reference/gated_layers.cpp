#include "tests/reference/gated_layers.h"

#include <cmath>
#include <functional>
#include <vector>

#include "ops/create.h"
#include "tests/reference/gated_linear_attention.h"
#include "tests/reference/relative_bias.h"

namespace stretto::reference {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }
double softplus(double x) { return std::log1p(std::exp(x)); }

// Rows [B, N, C].
struct Rows {
  int64_t batch, n, width;
  std::vector<double> at;

  explicit Rows(const Tensor& x)
      : batch(x.size(0)), n(x.size(1)), width(x.size(2)), at(x.to_vector<double>()) {}
  Rows(int64_t b, int64_t l, int64_t c) : batch(b), n(l), width(c), at(size_t(b * l * c)) {}
  double& operator()(int64_t b, int64_t t, int64_t c) {
    return at[size_t((b * n + t) * width + c)];
  }
  double operator()(int64_t b, int64_t t, int64_t c) const {
    return at[size_t((b * n + t) * width + c)];
  }
  Rows columns(int64_t first, int64_t count) const {
    return made(count, [&](int64_t b, int64_t t, int64_t c) { return (*this)(b, t, first + c); });
  }
  // Rows of the same number with elements f(b, t, c).
  Rows made(int64_t columns, const std::function<double(int64_t, int64_t, int64_t)>& f) const {
    Rows y(batch, n, columns);
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t t = 0; t < n; ++t)
        for (int64_t c = 0; c < columns; ++c) y(b, t, c) = f(b, t, c);
    return y;
  }
  Rows each(const std::function<double(double)>& f) const {
    return made(width, [&](int64_t b, int64_t t, int64_t c) { return f((*this)(b, t, c)); });
  }
  Tensor tensor() const { return stretto::tensor(at, {batch, n, width}); }
  // [B, H, N, D].
  Tensor heads(int64_t h) const {
    return tensor().reshape({batch, n, h, width / h}).transpose(1, 2);
  }
};

Rows linear(const Rows& x, const Tensor& weight, const Tensor& bias = {}) {
  const std::vector<double> w = weight.to_vector<double>();
  const std::vector<double> more = bias.defined() ? bias.to_vector<double>() : w;
  return x.made(weight.size(0), [&](int64_t b, int64_t t, int64_t c) {
    double sum = bias.defined() ? more[size_t(c)] : 0;
    for (int64_t i = 0; i < x.width; ++i) sum += w[size_t(c * x.width + i)] * x(b, t, i);
    return sum;
  });
}

// Divides each group of `size` columns by √(Σ x² · factor + eps), after subtracting the mean.
Rows normalized(const Rows& x, int64_t size, double factor, double eps, bool centered = false) {
  return x.made(x.width, [&](int64_t b, int64_t t, int64_t c) {
    const int64_t first = c / size * size;
    double mean = 0, squares = 0;
    for (int64_t i = first; i < first + size && centered; ++i) mean += x(b, t, i) / double(size);
    for (int64_t i = first; i < first + size; ++i) squares += std::pow(x(b, t, i) - mean, 2);
    return (x(b, t, c) - mean) / std::sqrt(squares * factor + eps);
  });
}

// [B, N, H·D] from [B, H, N, D].
Rows joined(const Tensor& y) { return Rows(y.transpose(1, 2).flatten(2)); }

}  // namespace

Tensor short_convolution(const Tensor& inputs, const Tensor& weight, const Tensor& bias) {
  const Rows x(inputs);
  const std::vector<double> w = weight.to_vector<double>();
  const std::vector<double> more = bias.defined() ? bias.to_vector<double>() : w;
  const int64_t taps = weight.size(1);
  return x
      .made(x.width,
            [&](int64_t b, int64_t t, int64_t c) {
              double sum = bias.defined() ? more[size_t(c)] : 0;
              for (int64_t j = 0; j < taps; ++j)
                if (t - taps + 1 + j >= 0)
                  sum += w[size_t(c * taps + j)] * x(b, t - taps + 1 + j, c);
              return silu(sum);
            })
      .tensor();
}

Tensor gated_linear_layer(const nn::MultiHeadAttention& layer,
                          const nn::GatedLinearKernelOptions& o, const Tensor& input) {
  const Rows x(input);
  const auto of = [&](const std::string& name) { return layer.get_parameter(name); };
  const auto biased = [&](const std::string& name) {
    return layer.options.bias ? of(name + ".bias") : Tensor();
  };
  const int64_t queries = layer.options.n_heads, g = layer.options.n_kv_heads,
                values = layer.options.n_value_heads, h = std::max(queries, values),
                d = layer.options.d_key, dv = layer.options.d_value;
  Rows q = linear(x, of("q.weight"), biased("q")), k = linear(x, of("k.weight"), biased("k")),
       v = linear(x, of("v.weight"), biased("v"));
  if (o.taps > 0) {
    const Tensor w = of("kernel.convolution.weight");
    const int64_t end = (queries + g) * d;
    q = Rows(short_convolution(q.tensor(), w.slice(0, 0, queries * d)));
    k = Rows(short_convolution(k.tensor(), w.slice(0, queries * d, end)));
    v = Rows(short_convolution(v.tensor(), w.slice(0, end)));
  } else if (o.silu) {
    q = q.each(silu), k = k.each(silu), v = v.each(silu);
  }
  GatedLinearAttentionOptions options{.scale = layer.options.scale};
  if (o.delta) {
    q = normalized(q, d, 1, 1e-6), k = normalized(k, d, 1, 1e-6);
    const double largest = o.negative_eigenvalues ? 2 : 1;
    options.beta = linear(x, of("kernel.beta.weight"))
                       .each([&](double z) { return largest * sigmoid(z); })
                       .tensor()
                       .transpose(1, 2);
  }
  const Tensor slopes = alibi_bias(h, 1, 2);  // the first key is at distance 1
  std::vector<double> fixed;
  for (int64_t i = 0; i < h; ++i)
    fixed.push_back(o.decay == nn::StateDecay::retention
                        ? std::log(1 - std::pow(2.0, double(-5 - i)))
                        : o.rate * slopes[i][0][0].item());
  if (o.decay == nn::StateDecay::retention || o.decay == nn::StateDecay::slopes)
    options.log_decay = stretto::tensor(fixed, {h});
  const bool kda = o.decay == nn::StateDecay::kda;
  if (o.decay == nn::StateDecay::token || kda) {
    const std::vector<double> a = of("kernel.decay_rate").to_vector<double>(),
                              bias = of("kernel.decay_bias").to_vector<double>();
    Rows steps = linear(x, of("kernel.decay.weight"));
    if (kda) steps = linear(steps, of("kernel.decay_up.weight"));
    const int64_t each = kda ? d : 1;
    const Rows decays = steps.made(h * each, [&](int64_t b, int64_t t, int64_t i) {
      return -std::exp(a[size_t(i / each)]) * softplus(steps(b, t, i) + bias[size_t(i)]);
    });
    options.log_decay = kda ? decays.heads(h) : decays.tensor().transpose(1, 2);
  }
  if (o.decay == nn::StateDecay::feature)
    options.log_decay = linear(linear(x, of("kernel.decay.weight")), of("kernel.decay_up.weight"),
                               of("kernel.decay_up.bias"))
                            .each([](double z) { return std::log(sigmoid(z)) / 16; })
                            .heads(h);
  const Rows y = joined(
      reference::gated_linear_attention(q.heads(queries), k.heads(g), v.heads(values), options));
  Rows out = normalized(y, dv, 1 / double(dv), o.norm_eps, o.norm == nn::NormKind::layer);
  const std::vector<double> weight = of("kernel.norm.weight").to_vector<double>();
  out = out.made(out.width, [&, normed = out](int64_t b, int64_t t, int64_t c) {
    return normed(b, t, c) * weight[size_t(c % dv)];
  });
  if (o.gate != nn::OutputGate::none) {
    Rows gate = linear(x, of("kernel.gate.weight"));
    if (o.gate == nn::OutputGate::low_rank) gate = linear(gate, of("kernel.gate_up.weight"));
    out = out.made(out.width, [&, normed = out](int64_t b, int64_t t, int64_t c) {
      const double z = gate(b, t, c);
      return normed(b, t, c) * (o.gate == nn::OutputGate::silu ? silu(z) : sigmoid(z));
    });
  }
  return linear(out, of("out.weight"), biased("out")).tensor();
}

Tensor mamba2(const nn::Mamba2& mixer, const Tensor& input) {
  const nn::Mamba2Options& o = mixer.options;
  const auto of = [&](const std::string& name) { return mixer.get_parameter(name); };
  const int64_t inner = o.expand * o.d_model, h = inner / o.d_head, states = o.n_groups * o.d_state;
  const Rows all = linear(Rows(input), of("in.weight"));
  const Rows z = all.columns(0, inner), dt = all.columns(2 * inner + 2 * states, h);
  const Rows mixed(short_convolution(all.columns(inner, inner + 2 * states).tensor(),
                                     of("convolution.weight"), of("convolution.bias")));
  const Rows x = mixed.columns(0, inner);
  const std::vector<double> a = of("a").to_vector<double>(), bias = of("b").to_vector<double>(),
                            skip = of("skip").to_vector<double>(),
                            weight = of("norm").to_vector<double>();
  const auto step = [&](int64_t b, int64_t t, int64_t i) {
    return softplus(dt(b, t, i) + bias[size_t(i)]);
  };
  const Rows inputs = x.made(inner, [&](int64_t b, int64_t t, int64_t c) {
    return x(b, t, c) * step(b, t, c / o.d_head);
  });
  const Tensor log_decay =
      dt.made(h, [&](int64_t b, int64_t t,
                     int64_t i) { return -std::exp(a[size_t(i)]) * step(b, t, i); })
          .tensor()
          .transpose(1, 2);
  const Rows y = joined(
      reference::gated_linear_attention(mixed.columns(inner + states, states).heads(o.n_groups),
                                        mixed.columns(inner, states).heads(o.n_groups),
                                        inputs.heads(h), {.log_decay = log_decay, .scale = 1}));
  const Rows gated = y.made(inner, [&](int64_t b, int64_t t, int64_t c) {
    return (y(b, t, c) + skip[size_t(c / o.d_head)] * x(b, t, c)) * silu(z(b, t, c));
  });
  const int64_t group = inner / o.n_groups;
  const Rows normed = normalized(gated, group, 1 / double(group), o.norm_eps);
  return linear(normed.made(inner, [&](int64_t b, int64_t t,
                                       int64_t c) { return normed(b, t, c) * weight[size_t(c)]; }),
                of("out.weight"))
      .tensor();
}

}  // namespace stretto::reference
