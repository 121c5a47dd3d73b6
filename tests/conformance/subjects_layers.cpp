// Whole layers and the adaptive softmax, by the modules of nn/.
#include <algorithm>

#include "nn/models/adaptive.h"
#include "nn/positions/relative_sinusoid.h"
#include "nn/transformer.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "tests/conformance/families.h"
#include "tests/support/stand_in.h"

namespace stretto::conformance {
namespace {

void connect(nn::Linear& linear, const Tensors& x, const std::string& name) {
  conformance::connect(linear.weight, x, name + ".weight");
  if (linear.bias.defined()) conformance::connect(linear.bias, x, name + ".bias");
}

void connect(nn::Norm& norm, const Tensors& x, const std::string& name) {
  conformance::connect(norm.weight, x, name + ".weight");
  conformance::connect(norm.bias, x, name + ".bias");
}

// Checks the sizes of the tensors before a module of the config's sizes is constructed.
void check_sizes(const Tensors& x, const Config& config, const char* query_weight) {
  const Tensor& in = x["in.x"];
  check(in.dim() == 3, "conformance", "in.x is ", in, "; must be [B, L, E]");
  const int64_t e = config.integer("E");
  check(config.integer("H") >= 1 && e % config.integer("H") == 0, "conformance", "config: E is ", e,
        ", H is ", config.integer("H"), "; E must be a multiple of H");
  check_shape(
      x, "in.x",
      {config.integer("B", in.size(0)), config.integer("L", config.integer("M", in.size(1))), e});
  check_shape(x, query_weight, {e, e});
  check_shape(x, "param.ff.1.weight", {config.integer("ff"), e});
}

Tensors encoder(const Tensors& x, const Config& config, Implementation implementation) {
  check_sizes(x, config, "param.attn.q.weight");
  nn::TransformerLayer layer(
      {.d_model = config.integer("E"),
       .attention = {.n_heads = config.integer("H"), .kernel = nn::softmax_kernel(implementation)},
       .feed_forward = {.d_hidden = config.integer("ff"),
                        .activation = config.choice("activation", {"relu", "gelu"}) == "gelu"
                                          ? nn::Activation::gelu
                                          : nn::Activation::relu},
       .norm = config.choice("norm", {"post", "pre"}) == "pre" ? nn::NormPlace::pre
                                                               : nn::NormPlace::post});
  connect(layer.self_attention().q, x, "param.attn.q");
  connect(layer.self_attention().k, x, "param.attn.k");
  connect(layer.self_attention().v, x, "param.attn.v");
  connect(layer.self_attention().out, x, "param.attn.o");
  connect(layer.feed_forward().linear1, x, "param.ff.1");
  connect(layer.feed_forward().linear2, x, "param.ff.2");
  connect(layer.norm1, x, "param.norm.1");
  connect(*layer.norm2, x, "param.norm.2");
  AttentionMask visible{.causal = config.flag("causal", false),
                        .window = config.integer("window", 0)};
  if (config.flag("key_padding", x.has("in.key_padding")))
    visible.key_padding = mask(x, "in.key_padding");
  return only("out.y", layer(x["in.x"], visible));
}

// ------------------------------------------------------------------- Transformer-XL

// With `rows`, the sinusoids are passed to the layer, as by a model whose layers share them.
Tensors transformer_xl(const Tensors& x, const Config& config, Implementation implementation,
                       bool rows) {
  check_sizes(x, config, "param.q.weight");
  const Tensor& in = x["in.x"];
  const Tensor memory = x.has("in.memory") ? x["in.memory"] : Tensor();
  const int64_t e = in.size(2), m = memory.defined() ? memory.size(1) : 0;
  if (memory.defined()) check_shape(x, "in.memory", {in.size(0), config.integer("mem", m), e});
  check(config.integer("mem", m) == m, "conformance", "config: mem is ", config.integer("mem", m),
        " without in.memory");
  const int64_t clamp = config.integer("clamp", 0);
  nn::TransformerLayer layer({.d_model = e,
                              .attention = {.n_heads = config.integer("H"),
                                            .bias = false,
                                            .position = nn::relative_sinusoid({.clamp = clamp}),
                                            .kernel = nn::softmax_kernel(implementation)},
                              .feed_forward = {.d_hidden = config.integer("ff")},
                              .norm = nn::NormPlace::post});
  connect(layer.self_attention().q, x, "param.q");
  connect(layer.self_attention().k, x, "param.k");
  connect(layer.self_attention().v, x, "param.v");
  connect(layer.self_attention().out, x, "param.o");
  connect(layer.feed_forward().linear1, x, "param.ff.1");
  connect(layer.feed_forward().linear2, x, "param.ff.2");
  connect(layer.norm1, x, "param.norm.1");
  connect(*layer.norm2, x, "param.norm.2");
  for (const auto& [name, child] : layer.self_attention().children()) {
    auto* position = dynamic_cast<nn::RelativeSinusoid*>(child);
    if (!position) continue;
    connect(position->r, x, "param.r");
    conformance::connect(position->u, x, "param.u");
    conformance::connect(position->v, x, "param.v_bias");
  }
  AttentionMask visible{.causal = true, .window = config.integer("window", 0)};
  if (config.flag("same_length", false)) visible.window = m + 1;
  Tensor sinusoids;
  if (rows) {
    const int64_t furthest = std::max<int64_t>(0, m + in.size(1) - 1);
    sinusoids = nn::DistanceSinusoids()(clamp > 0 ? std::min(clamp, furthest) : furthest, 0, e,
                                        options_of(in));
  }
  return only("out.y", layer(in, memory, visible, {.shared_table = sinusoids}));
}

// ------------------------------------------------------------------- adaptive softmax

std::vector<nn::AdaptiveCluster> clusters_of(const Tensors& x, const nn::AdaptiveOptions& o) {
  std::vector<nn::AdaptiveCluster> clusters;
  for (int64_t i = 0; i < o.n_clusters(); ++i) {
    const std::string weight = str("param.weight.", i), bias = str("param.bias.", i);
    const std::string projection = str("param.proj.", i);
    const int64_t rows = o.last(i) - o.first(i) + (i == 0 ? o.n_clusters() - 1 : 0);
    check_shape(x, weight, {rows, o.width(i)});
    check_shape(x, bias, {rows});
    clusters.push_back({.weight = x[weight], .bias = x[bias]});
    if (!o.projected()) continue;
    check_shape(x, projection, {o.d_model, o.width(i)});
    clusters.back().projection = x[projection];
  }
  return clusters;
}

nn::AdaptiveOptions adaptive_options(const Tensors& x, const Config& config) {
  const Tensor &in = x["in.x"], &first = x["param.weight.0"];
  check(in.dim() == 2 && in.size(1) == config.integer("D", in.size(1)), "conformance", "in.x is ",
        in, "; must be [n, D]");
  check(first.dim() == 2, "conformance", "param.weight.0 is ", first, "; must be [rows, width]");
  nn::AdaptiveOptions o{
      .vocabulary = config.integer("V"),
      .d_model = in.size(1),
      .d_embedding = first.size(1),
      .cutoffs = config.has("cutoffs") ? config.integers("cutoffs") : std::vector<int64_t>{},
      .div = config.integer("div", 1)};
  check(o.div >= 1, "conformance", "config: div is ", o.div, "; must be at least 1");
  int64_t before = 0;
  for (int64_t i = 0; i < o.n_clusters(); ++i) {
    check(o.last(i) > before, "conformance", "config: cutoffs must rise from above 0 to below V ",
          o.vocabulary);
    before = o.last(i);
  }
  check_shape(x, "in.target", {in.size(0)});
  return o;
}

Tensors adaptive_function(const Tensors& x, const Config& config) {
  const auto clusters = clusters_of(x, adaptive_options(x, config));
  return only("out.y", nn::adaptive_nll(x["in.x"], indices(x, "in.target"), clusters));
}

Tensors adaptive_all_words(const Tensors& x, const Config& config) {
  const auto clusters = clusters_of(x, adaptive_options(x, config));
  const Tensor all = nn::adaptive_log_probabilities(x["in.x"], clusters);
  return only("out.y", -gather(all, 1, indices(x, "in.target").unsqueeze(1)).squeeze(1));
}

Tensors adaptive_module(const Tensors& x, const Config& config) {
  const nn::AdaptiveOptions o = adaptive_options(x, config);
  const auto clusters = clusters_of(x, o);
  nn::AdaptiveSoftmax module({.clusters = o});
  const int64_t shortlist = o.last(0);
  using testing::stand_in;
  stretto::Tensors weights{clusters[0].weight.slice(0, 0, shortlist)};
  stretto::Tensors biases{clusters[0].bias.slice(0, 0, shortlist)};
  for (size_t i = 1; i < clusters.size(); ++i) {
    weights.push_back(clusters[i].weight);
    biases.push_back(clusters[i].bias);
  }
  if (o.n_tables() == 1) weights = {cat(weights)};
  for (size_t i = 0; i < weights.size(); ++i) stand_in(weights[i], module.weights[i]);
  stand_in(cat(biases), module.bias);
  if (o.n_clusters() > 1) {
    stand_in(clusters[0].weight.slice(0, shortlist), module.cluster_weight);
    stand_in(clusters[0].bias.slice(0, shortlist), module.cluster_bias);
  }
  for (size_t i = 0; i < module.projections.size(); ++i)
    stand_in(clusters[i].projection, module.projections[i]);
  return only("out.y", module.nll(x["in.x"], indices(x, "in.target")));
}

// ------------------------------------------------------------------- candidates

template <class Layer>
std::vector<Candidate> in_every_form(Layer layer) {
  std::vector<Candidate> all;
  for (const auto& [name, implementation] : attention_implementations)
    all.push_back(
        {name, [layer, implementation = implementation](const Tensors& x, const Config& config) {
           return layer(x, config, implementation);
         }});
  return all;
}

}  // namespace

Subjects layer_subjects() {
  std::vector<Candidate> xl =
      in_every_form([](const Tensors& x, const Config& c, Implementation f) {
        return transformer_xl(x, c, f, false);
      });
  xl.push_back({"sinusoids given", [](const Tensors& x, const Config& c) {
                  return transformer_xl(x, c, Implementation::automatic, true);
                }});
  return {
      {"layer.encoder", in_every_form(encoder)},
      {"layer.xl", xl},
      {"loss.adaptive_softmax",
       {{"function", adaptive_function},
        {"module", adaptive_module},
        {"all words", adaptive_all_words}}},
  };
}

}  // namespace stretto::conformance
