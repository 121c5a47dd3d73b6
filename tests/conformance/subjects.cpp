#include "tests/conformance/subjects.h"

#include <cmath>

#include "autograd/tape.h"
#include "nn/optim.h"
#include "nn/transformer.h"
#include "ops/attention.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/skew.h"
#include "ops/softmax.h"

namespace stretto::conformance {
namespace {

using nlohmann::json;

Tensors only(const char* name, const Tensor& x) {
  Tensors outputs;
  outputs.set(name, x);
  return outputs;
}

// ------------------------------------------------------------------- attention

// in.q, in.k, in.v with options that a subject completes. The subjects' definitions stand in the
// README of the cases.
using Complete = void (*)(Tensors& x, const json& config, AttentionOptions& o);

AttentionOptions common(const Tensors& x, const json& config) {
  AttentionOptions o{.causal = config.value("causal", false), .window = config.value("window", 0)};
  if (config.value("key_padding", false)) o.key_padding = x["in.key_padding"];
  return o;
}

void dot(Tensors&, const json&, AttentionOptions&) {}

void shaw(Tensors& x, const json& config, AttentionOptions& o) {
  const int64_t clip = config.at("clip");
  o.keys = {x["param.rel_k"].unsqueeze(0), clip, Beyond::clip};
  if (config.value("values", true)) o.values = {x["param.rel_v"].unsqueeze(0), clip, Beyond::clip};
}

void skewed(Tensors& x, const json& config, AttentionOptions& o) {
  const Tensor rel = x["param.rel"];
  const bool two_sided = config.value("two_sided", false);
  o.causal = !two_sided;
  o.keys = {rel, two_sided ? (rel.size(1) - 1) / 2 : rel.size(1) - 1,
            config.value("beyond", "zero") == "clip" ? Beyond::clip : Beyond::zero};
}

void skewed_local(Tensors& x, const json& config, AttentionOptions& o) {
  o.block = config.at("block");
  o.keys = {x["param.rel"], 2 * o.block - 1};
}

void transformer_xl(Tensors& x, const json& config, AttentionOptions& o) {
  const Tensor q = x["in.q"], r = x["in.r"];
  o.causal = true;
  if (config.value("same_length", false)) o.window = int64_t(config.at("mem")) + 1;
  o.position_query = q + x["param.v"].unsqueeze(1);
  x.set("query", q + x["param.u"].unsqueeze(1));
  o.keys = {r, r.size(1) - 1};
}

// Slopes of H heads: 2^(−8 (h + 1) / H) for a power of two; else those of the next lower power,
// then every second one of twice that.
std::vector<double> alibi_slopes(int64_t heads) {
  int64_t power = 1;
  while (2 * power <= heads) power *= 2;
  std::vector<double> slopes;
  for (int64_t h = 0; h < power; ++h)
    slopes.push_back(std::exp2(-8 * double(h + 1) / double(power)));
  for (int64_t h = 0; int64_t(slopes.size()) < heads; h += 2)
    slopes.push_back(std::exp2(-8 * double(h + 1) / double(2 * power)));
  return slopes;
}

void alibi(Tensors& x, const json&, AttentionOptions& o) {
  const Tensor q = x["in.q"];
  const int64_t heads = q.size(1), past = x["in.k"].size(2) - 1, future = q.size(2) - 1;
  std::vector<double> rows;
  for (const double slope : alibi_slopes(heads))
    for (int64_t r = -past; r <= future; ++r) rows.push_back(-slope * double(std::abs(r)));
  o.lag_bias = {tensor(rows, {heads, past + future + 1}).to(q.dtype()).to(q.device()), past};
}

void kerple(Tensors& x, const json&, AttentionOptions& o) {
  const Tensor p = x["param.p"].unsqueeze(1), a = x["param.a"].unsqueeze(1);
  const int64_t n = x["in.k"].size(2);
  const Tensor lags = arange(double(n - 1), -1, -1, options_of(p));
  o.causal = true;
  o.lag_bias = {-(p * log(1 + a * lags)), n - 1};
}

Implementation attention_in(AttentionForm form, Complete complete) {
  return {form == AttentionForm::composed ? "composed" : "fastest",
          [form, complete](Tensors& x, const json& config) {
            AttentionOptions o = common(x, config);
            o.form = form;
            complete(x, config, o);
            const Tensor& q = x[x.has("query") ? "query" : "in.q"];
            return only("out.y", attention(q, x["in.k"], x["in.v"], o));
          }};
}

// ------------------------------------------------------------------- layers

// Gives the module's parameter the case's values, and the case the module's parameter.
void connect(Tensors& x, const std::string& name, const Tensor& parameter) {
  Tensor& value = x[name];
  check(value.shape() == parameter.shape(), "conformance", name, " is ", value, "; the module has ",
        parameter);
  parameter.set_data(value.detach());
  value = parameter;
}

void connect(Tensors& x, const std::string& name, const nn::Linear& linear) {
  connect(x, name + ".weight", linear.weight);
  if (linear.bias.defined()) connect(x, name + ".bias", linear.bias);
}

void connect(Tensors& x, const std::string& name, const nn::Norm& norm) {
  connect(x, name + ".weight", norm.weight);
  connect(x, name + ".bias", norm.bias);
}

Implementation encoder_in(AttentionForm form) {
  return {form == AttentionForm::composed ? "composed" : "fastest",
          [form](Tensors& x, const json& config) {
            const nn::EncoderLayer layer(
                {.d_model = config.at("E"),
                 .n_heads = config.at("H"),
                 .d_hidden = config.at("ff"),
                 .norm = config.at("norm") == "pre" ? nn::NormPlace::pre : nn::NormPlace::post,
                 .activation = config.at("activation") == "gelu" ? nn::Activation::gelu
                                                                 : nn::Activation::relu,
                 .kernel = nn::softmax_kernel(form)});
            connect(x, "param.attn.q", layer.self_attention.q);
            connect(x, "param.attn.k", layer.self_attention.k);
            connect(x, "param.attn.v", layer.self_attention.v);
            connect(x, "param.attn.o", layer.self_attention.out);
            connect(x, "param.ff.1", layer.feed_forward.linear1);
            connect(x, "param.ff.2", layer.feed_forward.linear2);
            connect(x, "param.norm.1", layer.norm1);
            connect(x, "param.norm.2", layer.norm2);
            nn::Visibility visible{.causal = config.value("causal", false)};
            if (config.value("key_padding", false)) visible.key_padding = x["in.key_padding"];
            return only("out.y", layer(x["in.x"], visible));
          }};
}

// ------------------------------------------------------------------- ops

Tensors skew_subject(Tensors& x, const json& config) {
  return only("out.y", skew(x["in.x"], config.at("N")));
}

Tensors layer_norm_subject(Tensors& x, const json& config) {
  const Tensor moved = x["in.x"] + config.value("shift", 0.0);
  return only("out.y", layer_norm(moved, x["param.weight"], x["param.bias"]));
}

Tensors softmax_subject(Tensors& x, const json& config) {
  return only("out.y", softmax(x["in.x"], config.value("axis", -1)));
}

Tensors gelu_subject(Tensors& x, const json&) { return only("out.y", gelu(x["in.x"])); }

Tensors matmul_subject(Tensors& x, const json&) {
  return only("out.y", matmul(x["in.a"], x["in.b"]));
}

Tensors mul_subject(Tensors& x, const json&) { return only("out.y", x["in.a"] * x["in.b"]); }

Tensors embedding_subject(Tensors& x, const json&) {
  return only("out.y", embedding(x["param.weight"], x["in.index"]));
}

Tensors cross_entropy_subject(Tensors& x, const json& config) {
  return only("out.y", cross_entropy(x["in.x"], x["in.target"],
                                     {.ignore_index = config.value("ignore", int64_t(-100)),
                                      .label_smoothing = config.value("smoothing", 0.0)}));
}

Tensors adamw_subject(Tensors& x, const json& config) {
  const Tensor w = x["in.w"].detach().clone().set_requires_grad();
  auto run = [&](auto&& optimizer) {
    for (int64_t step = 1; step <= int64_t(config.at("steps")); ++step) {
      w.set_grad(x["in.grad." + std::to_string(step)]);
      optimizer.step();
    }
  };
  const double lr = config.at("lr"), beta1 = config.at("beta1"), beta2 = config.at("beta2");
  const double eps = config.at("eps"), decay = config.at("weight_decay");
  if (config.value("decoupled", true))
    run(nn::AdamW({w}, {lr, beta1, beta2, eps, decay}));
  else
    run(nn::Adam({w}, {lr, beta1, beta2, eps, decay}));
  return only("out.w", w);
}

// ------------------------------------------------------------------- the map

const std::map<std::string, Complete>& attention_subjects() {
  static const std::map<std::string, Complete> map{
      {"attention.dot", dot},           {"attention.shaw", shaw},
      {"attention.skewed", skewed},     {"attention.skewed_local", skewed_local},
      {"attention.xl", transformer_xl}, {"attention.alibi", alibi},
      {"attention.kerple", kerple},
  };
  return map;
}

const std::map<std::string, Evaluate>& other_subjects() {
  static const std::map<std::string, Evaluate> map{
      {"skew", skew_subject},
      {"op.layer_norm", layer_norm_subject},
      {"op.softmax", softmax_subject},
      {"op.gelu", gelu_subject},
      {"op.matmul", matmul_subject},
      {"op.broadcast_mul", mul_subject},
      {"op.embedding", embedding_subject},
      {"op.cross_entropy", cross_entropy_subject},
      {"optim.adamw", adamw_subject},
  };
  return map;
}

}  // namespace

std::vector<Implementation> implementations(const std::string& subject) {
  constexpr AttentionForm forms[] = {AttentionForm::automatic, AttentionForm::composed};
  std::vector<Implementation> all;
  if (const auto at = attention_subjects().find(subject); at != attention_subjects().end()) {
    for (const AttentionForm form : forms) all.push_back(attention_in(form, at->second));
  } else if (subject == "layer.encoder") {
    for (const AttentionForm form : forms) all.push_back(encoder_in(form));
  } else if (const auto op = other_subjects().find(subject); op != other_subjects().end()) {
    all.push_back({"only", op->second});
  }
  return all;
}

}  // namespace stretto::conformance
