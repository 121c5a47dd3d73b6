#include "tests/reference/sequence_to_sequence.h"

#include <cmath>
#include <map>

namespace stretto::reference {
namespace {

using Tokens = std::vector<int64_t>;

// The functions of the paper, with the model's parameters by their names.
class Reader {
 public:
  explicit Reader(const nn::SequenceToSequence& model) : o_(model.options) {
    for (const auto& [name, tensor] : model.named_parameters())
      values_[name] = tensor.dim() == 2 ? matrix(tensor) : matrix(tensor.unsqueeze(0));
  }

  bool has(const std::string& name) const { return values_.count(name) == 1; }
  const Matrix& operator[](const std::string& name) const { return values_.at(name); }

  // x Wᵀ + b.
  Matrix linear(const Matrix& x, const std::string& name) const {
    Matrix y = times_transposed(x, values_.at(name + ".weight"));
    if (has(name + ".bias"))
      for (int64_t i = 0; i < y.rows; ++i)
        for (int64_t j = 0; j < y.columns; ++j) y(i, j) += values_.at(name + ".bias")(0, j);
    return y;
  }

  // √D · E[token] + PE(pos), PE(pos, 2i) = sin(pos / 10000^(2i/D)) and
  // PE(pos, 2i + 1) = cos(pos / 10000^(2i/D)) (§3.4, §3.5).
  Matrix embed(const Tokens& tokens, const Matrix& table, int64_t step) const {
    Matrix x{int64_t(tokens.size()), o_.layer.d_model};
    for (int64_t i = 0; i < x.rows; ++i)
      for (int64_t d = 0; d < x.columns; ++d) {
        x(i, d) = table(tokens[size_t(i)], d);
        if (o_.input.scale) x(i, d) *= std::sqrt(double(o_.layer.d_model));
        if (!o_.input.sinusoid) continue;
        const int64_t even = d / 2 * 2;
        const double angle =
            double(i * step) / std::pow(10000.0, double(even) / double(o_.layer.d_model));
        x(i, d) += d == even ? std::sin(angle) : std::cos(angle);
      }
    return x;
  }

  // (x − μ) / √(σ² + ε) · g + b, or without μ and b (RMS).
  Matrix norm(const Matrix& x, const std::string& name) const {
    const bool rms = o_.layer.norm_kind == nn::NormKind::rms;
    const double eps = o_.layer.norm_eps.value_or(rms ? 1e-6 : 1e-5);
    Matrix y = x;
    for (int64_t i = 0; i < x.rows; ++i) {
      double mean = 0, square = 0;
      for (int64_t d = 0; d < x.columns; ++d) mean += x(i, d) / double(x.columns);
      if (rms) mean = 0;
      for (int64_t d = 0; d < x.columns; ++d)
        square += (x(i, d) - mean) * (x(i, d) - mean) / double(x.columns);
      for (int64_t d = 0; d < x.columns; ++d) {
        y(i, d) = (x(i, d) - mean) / std::sqrt(square + eps);
        y(i, d) *= values_.at(name + ".weight")(0, d);
        if (!rms) y(i, d) += values_.at(name + ".bias")(0, d);
      }
    }
    return y;
  }

  // Concat(head_1 … head_h) W^O, head = softmax(Q Kᵀ / √d_k) V (§3.2).
  Matrix attention(const Matrix& x, const Matrix& context, const std::string& name,
                   bool causal) const {
    const Matrix q = linear(x, name + ".q"), k = linear(context, name + ".k");
    const Matrix v = linear(context, name + ".v");
    const int64_t heads = o_.layer.attention.n_heads, d = q.columns / heads;
    const double scale = o_.layer.attention.scale.value_or(1 / std::sqrt(double(d)));
    const auto score = [&](int64_t h, int64_t i, int64_t j) {
      return causal && j > i ? unseen : scale * dot(q, i, h, k, j, h, d);
    };
    return linear(attend(x.rows, heads, v, heads, score), name + ".out");
  }

  // max(0, x W₁ + b₁) W₂ + b₂ (§3.3); gated: (gelu(x W₁) · x V) W₂.
  Matrix feed_forward(const Matrix& x, const std::string& name) const {
    Matrix hidden = linear(x, name + (o_.layer.feed_forward.gated ? ".gate" : ".linear1"));
    for (double& value : hidden.values) {
      const double tanh =
          std::tanh(std::sqrt(2 / 3.141592653589793) * (value + 0.044715 * value * value * value));
      value = o_.layer.feed_forward.activation == nn::Activation::relu ? std::max(0.0, value)
                                                                       : 0.5 * value * (1 + tanh);
    }
    if (o_.layer.feed_forward.gated) {
      const Matrix up = linear(x, name + ".up");
      for (size_t i = 0; i < up.values.size(); ++i) hidden.values[i] *= up.values[i];
    }
    return linear(hidden, name + ".linear2");
  }

  // LayerNorm(x + f(x)), or x + f(LayerNorm(x)).
  template <class F>
  Matrix residual(const Matrix& x, const std::string& name, F f) const {
    const bool pre = o_.layer.norm == nn::NormPlace::pre;
    Matrix y = f(pre ? norm(x, name) : x);
    for (size_t i = 0; i < y.values.size(); ++i) y.values[i] += x.values[i];
    return pre ? y : norm(y, name);
  }

 private:
  const nn::SequenceToSequence::Options& o_;
  std::map<std::string, Matrix> values_;
};

}  // namespace

Matrix transformer(const nn::SequenceToSequence& model, const Tokens& source,
                   const Tokens& target) {
  const nn::SequenceToSequence::Options& o = model.options;
  const Reader f(model);
  Matrix x = f.embed(source, f["source_embedding.weight"], o.source_step);
  for (int64_t i = 0; i < o.n_encoder_layers; ++i) {
    const std::string layer = "encoder.layers." + std::to_string(i);
    x = f.residual(x, layer + ".norm1", [&](const Matrix& y) {
      return f.attention(y, y, layer + ".self_attention", false);
    });
    x = f.residual(x, layer + ".norm2",
                   [&](const Matrix& y) { return f.feed_forward(y, layer + ".feed_forward"); });
  }
  const Matrix context = f.has("encoder.norm.weight") ? f.norm(x, "encoder.norm") : x;

  const Matrix& table =
      f[o.shared_embedding ? "source_embedding.weight" : "target_embedding.weight"];
  x = f.embed(target, table, 1);
  for (int64_t i = 0; i < o.n_decoder_layers; ++i) {
    const std::string layer = "decoder.layers." + std::to_string(i);
    x = f.residual(x, layer + ".norm1", [&](const Matrix& y) {
      return f.attention(y, y, layer + ".self_attention", true);
    });
    x = f.residual(x, layer + ".norm2", [&](const Matrix& y) {
      return f.attention(y, context, layer + ".cross_attention", false);
    });
    x = f.residual(x, layer + ".norm3",
                   [&](const Matrix& y) { return f.feed_forward(y, layer + ".feed_forward"); });
  }
  if (f.has("decoder.norm.weight")) x = f.norm(x, "decoder.norm");
  if (o.scale_output)
    for (double& value : x.values) value /= std::sqrt(double(o.layer.d_model));
  return o.tied ? times_transposed(x, table) : f.linear(x, "out");
}

}  // namespace stretto::reference
