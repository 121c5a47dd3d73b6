// Linear attention: by the op on features, and by the kernel of nn/.
#include <cmath>

#include "nn/attention/gated_linear_attention.h"
#include "nn/attention/linear_attention.h"
#include "ops/attention/gated_linear_attention.h"
#include "ops/create.h"
#include "ops/indexing.h"
#include "tests/conformance/families.h"

namespace stretto::conformance {
namespace {

using nn::AttentionInputs;

nn::MakeFeatureMap map_of(const Config& config) {
  if (config.choice("feature", {"elu1", "relu"}) == "elu1") return nn::elu_plus_one();
  return nn::relu_plus(0);
}

// Returns a FAVOR+ map whose projection is that of the case.
nn::MakeFeatureMap with_projection(const Tensors& x, const Config& config,
                                   nn::Stabilizer stabilizer) {
  const Tensor& projection = x["noise.projection"];
  check(projection.dim() == 2, "conformance", "noise.projection is ", projection,
        "; must be [R, D]");
  const int64_t rows = config.integer("R", projection.size(0));
  return [=, &x](nn::Module& parent, nn::HeadShape shape) {
    auto map = std::make_unique<nn::Favor>(
        parent, shape, nn::FavorOptions{.features = rows, .stabilizer = stabilizer});
    connect(map->projection, x, "noise.projection");
    return map;
  };
}

// Computes linear attention by the op, with the features of a map.
Tensor by_op(const AttentionInputs& inputs, const nn::MakeFeatureMap& make, double eps,
             Implementation implementation, int64_t chunk) {
  nn::Module owner;
  const auto map = make(owner, heads_of(inputs));
  return linear_attention(
      (*map)(inputs.q, Side::query), (*map)(inputs.k, Side::key), inputs.v,
      {.mask = inputs.options.mask, .eps = eps, .chunk = chunk, .implementation = implementation});
}

// Computes it by the kernel with a state, in chunks: two positions, then the others one by one.
Tensor by_state(const AttentionInputs& inputs, const nn::MakeFeatureMap& make, double eps) {
  nn::Module owner;
  const nn::LinearKernel kernel(owner, heads_of(inputs), make, {.eps = eps});
  if (!inputs.options.mask.causal || inputs.n_queries() != inputs.n_keys() || inputs.n_keys() == 0)
    return kernel(inputs);
  LinearState state;
  stretto::Tensors parts;
  for (int64_t at = 0, n = 2; at < inputs.n_keys(); at += n, n = 1) {
    const int64_t end = at + n;
    AttentionInputs piece = inputs;
    piece.state = &state;
    piece.q = inputs.q.slice(2, at, end);
    piece.k = inputs.k.slice(2, at, end);
    piece.v = inputs.v.slice(2, at, end);
    if (inputs.options.mask.key_padding.defined())
      piece.options.mask.key_padding = inputs.options.mask.key_padding.slice(1, at, end);
    parts.push_back(kernel(piece));
  }
  return cat(parts, 2);
}

using Make = nn::MakeFeatureMap (*)(const Tensors& x, const Config& config);

std::vector<Candidate> all_of(Make make, double default_eps, const char* prefix = "") {
  auto eps = [=](const Config& config) { return config.number("eps", default_eps); };
  auto op = [=](const char* name, Implementation implementation, int64_t chunk) {
    return Candidate{str(prefix, name), [=](const Tensors& x, const Config& config) {
                       return only("out.y", by_op(plain_call(x, config), make(x, config),
                                                  eps(config), implementation, chunk));
                     }};
  };
  return {op("automatic", Implementation::automatic, 64),
          op("composed", Implementation::composed, 64),
          op("chunks of 3", Implementation::automatic, 3),
          Candidate{str(prefix, "kernel, with a state where it is causal"),
                    [=](const Tensors& x, const Config& config) {
                      return only("out.y",
                                  by_state(plain_call(x, config), make(x, config), eps(config)));
                    }}};
}

// Computes linear attention with decay, as a whole or, with a state, in two pieces.
Tensor gated(const Tensors& x, const Config& config, Implementation implementation, int64_t chunk,
             bool by_state) {
  const Tensor &q = x["in.q"], &k = x["in.k"], &v = x["in.v"];
  GatedLinearAttentionOptions o{.chunk = chunk, .implementation = implementation};
  if (x.has("in.log_decay")) o.log_decay = x["in.log_decay"];
  if (x.has("in.beta")) o.beta = x["in.beta"];
  if (config.choice("decay", {"given", "retention"}) == "retention") {
    std::vector<double> logs;
    for (int64_t h = 0; h < q.size(1); ++h) logs.push_back(std::log1p(-std::exp2(-5 - double(h))));
    o.log_decay = tensor(logs, {q.size(1)}).to(q.device());
  }
  if (!by_state) return gated_linear_attention(q, k, v, o);
  LinearState state;
  stretto::Tensors parts;
  const int64_t n = k.size(2);
  for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, n / 3}, {n / 3, n}}) {
    const auto cut = [from = from, to = to](const Tensor& t) {
      return t.defined() && t.dim() > 1 ? t.slice(2, from, to) : t;
    };
    GatedLinearAttentionOptions piece = o;
    piece.log_decay = cut(o.log_decay), piece.beta = cut(o.beta);
    parts.push_back(gated_linear_attention(cut(q), cut(k), cut(v), state, piece));
  }
  return cat(parts, 2);
}

std::vector<Candidate> gated_candidates() {
  const auto one = [](const char* name, Implementation implementation, int64_t chunk,
                      bool by_state = false) {
    return Candidate{name, [=](const Tensors& x, const Config& config) {
                       return only("out.y", gated(x, config, implementation, chunk, by_state));
                     }};
  };
  return {one("automatic", Implementation::automatic, 64),
          one("composed", Implementation::composed, 64),
          one("chunks of 3", Implementation::automatic, 3),
          one("with a state", Implementation::automatic, 16, true)};
}

// ------------------------------------------------------------------- layers with the delta rule

nn::MultiHeadAttentionOptions delta_options(const Tensors& x, const Config& config,
                                            Implementation implementation) {
  const int64_t heads = config.integer("H"), values = config.integer("values", heads);
  for (const char* name : {"param.q", "param.v", "param.convolution"})
    check(x[name].dim() == 2, "conformance", name, " is ", x[name], "; must have two dimensions");
  check(heads >= 1 && values >= 1 && x["param.q"].size(0) % heads == 0 &&
            x["param.v"].size(0) % values == 0,
        "conformance", "config: H is ", heads, ", values is ", values,
        "; must divide the rows of param.q and param.v");
  const bool kda = x.has("param.decay_up");
  return {.d_model = x["in.x"].size(-1),
          .n_heads = heads,
          .n_value_heads = values,
          .d_key = x["param.q"].size(0) / heads,
          .d_value = x["param.v"].size(0) / values,
          .bias = false,
          .kernel = nn::gated_linear_kernel(
              {.decay = kda ? nn::StateDecay::kda : nn::StateDecay::token,
               .delta = true,
               .taps = x["param.convolution"].size(1),
               .norm_eps = config.number("eps", 1e-5),
               .gate = kda ? nn::OutputGate::low_rank : nn::OutputGate::silu,
               .gate_rank = 0,
               .implementation = implementation})};
}

Tensors delta_layer(const Tensors& x, const Config& config, Implementation implementation) {
  nn::MultiHeadAttention layer(delta_options(x, config, implementation));
  for (const nn::NamedTensor& p : layer.named_parameters()) {
    std::string name = p.name;  // "kernel.decay_up.weight" is "param.decay_up"
    if (name.starts_with("kernel.")) name = name.substr(7);
    if (name.ends_with(".weight")) name.resize(name.size() - 7);
    connect(p.tensor, x, "param." + name);
  }
  return only("out.y", layer(x["in.x"], {.causal = true}));
}

std::vector<Candidate> delta_candidates() {
  const auto one = [](const char* name, Implementation implementation) {
    return Candidate{name, [=](const Tensors& x, const Config& config) {
                       return delta_layer(x, config, implementation);
                     }};
  };
  return {one("automatic", Implementation::automatic), one("composed", Implementation::composed)};
}

}  // namespace

Subjects linear_subjects() {
  std::vector<Candidate> favor =
      all_of([](const Tensors& x,
                const Config& config) { return with_projection(x, config, nn::Stabilizer::max); },
             0);
  for (Candidate& plain :
       all_of([](const Tensors&x,
                 const Config&config) { return with_projection(x, config, nn::Stabilizer::none); },
              0, "not stabilized, "))
    favor.push_back(std::move(plain));
  return {{"attention.linear",
           all_of([](const Tensors&, const Config& config) { return map_of(config); }, 0)},
          {"attention.favor", favor},
          {"attention.gated", gated_candidates()},
          {"layer.delta", delta_candidates()}};
}

}  // namespace stretto::conformance
