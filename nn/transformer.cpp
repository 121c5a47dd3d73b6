#include "nn/transformer.h"

#include <cmath>
#include <utility>

#include "core/all_or_nothing.h"
#include "nn/attention/left_padding.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/softmax.h"

namespace stretto::nn {

namespace {

// Fills in the options of attention and feed-forward network that the layer determines.
LayerOptions completed(const char* op, LayerOptions o, bool context = false) {
  check(o.d_model >= 1 && o.attention.n_heads >= 1 &&
            (o.feed_forward.d_hidden >= 1 || o.feed_forward.network),
        op, "d_model ", o.d_model, ", attention.n_heads ", o.attention.n_heads,
        ", feed_forward.d_hidden ", o.feed_forward.d_hidden, "; must be at least 1");
  for (int64_t* part : {&o.attention.d_model, &o.feed_forward.d_model}) {
    check(*part == 0 || *part == o.d_model, op, "d_model of attention or feed_forward is ", *part,
          ", d_model of the layer ", o.d_model, "; must be 0 or the same");
    *part = o.d_model;
  }
  if (!o.feed_forward.dropout) o.feed_forward.dropout = o.dropout;
  check(o.norm == NormPlace::pre || o.norm == NormPlace::post || !context, op,
        "NormPlace::sandwich and output are for TransformerLayer; use NormPlace::pre or post");
  check(o.branch_scale == 1 || !context, op, "branch_scale ", o.branch_scale,
        " is for TransformerLayer; accepted: 1");
  check(o.branch_taps >= 0 && (!context || (o.branch_taps == 0 && !o.network_scale)), op,
        "branch_taps ", o.branch_taps, o.network_scale ? " and network_scale" : "",
        "; branch_taps must be 0 (none) or more, and both are for TransformerLayer");
  check(std::isfinite(o.branch_scale), op, "branch_scale ", o.branch_scale, "; must be finite");
  check(
      o.mixer_norm || (!context && o.norm == NormPlace::pre && o.residual == Residual::sequential),
      op, "no mixer_norm is for TransformerLayer with NormPlace::pre and Residual::sequential");
  const bool plain = o.norm == NormPlace::pre && o.residual == Residual::sequential && !context;
  check(plain || (o.depth == DepthPlace::none && !o.attention.separate_inputs), op,
        "depth and separate_inputs are for TransformerLayer with NormPlace::pre and "
        "Residual::sequential");
  if (o.residual == Residual::sequential) return o;
  check(o.norm == NormPlace::pre, op,
        "parallel branches do not support NormPlace::post, sandwich and output; use "
        "NormPlace::pre or Residual::sequential");
  check(!context, op,
        "parallel branches do not support cross-attention; use Residual::sequential, or "
        "TransformerLayer as LanguageModel does");
  return o;
}

// Whether branches read a norm of the stream.
bool normalizes_input(NormPlace norm) {
  return norm == NormPlace::pre || norm == NormPlace::sandwich;
}

// Returns what a factory has constructed. Its parameters would be unknown to a layer that is not its
// parent.
template <class T>
std::unique_ptr<T> child_of(const Module& layer, std::unique_ptr<T> part, const char* option) {
  check(part && part->parent() == &layer, "LayerOptions", option, " has constructed ",
        part ? part->label() : "nothing",
        "; must construct a child of the module that it receives");
  return part;
}

template <class T>
T& part_as(const char* op, Module& part, const char* name) {
  auto* const as = dynamic_cast<T*>(&part);
  check(as, op, "the layer has ", part.label(), "; this call needs ", name);
  return *as;
}

}  // namespace

std::unique_ptr<Mixer> make_mixer(Module& layer, const LayerOptions& options) {
  if (options.mixer) return child_of(layer, options.mixer(layer, options.d_model), "mixer");
  return std::make_unique<MultiHeadAttention>(layer, "self_attention", options.attention);
}

std::unique_ptr<PositionWise> make_network(Module& layer, const LayerOptions& options) {
  const FeedForwardOptions& o = options.feed_forward;
  if (o.network) return child_of(layer, o.network(layer, o), "feed_forward.network");
  return std::make_unique<FeedForward>(layer, "feed_forward", o);
}

void ResidualStream::add(const Tensor& branch, const Dropout& dropout,
                         const ForwardContext& forward) {
  x_ = value();
  branch_ = branch;
  dropout_ = dropout.next(forward);
}

Tensor ResidualStream::normed(const Norm& norm) {
  if (!branch_.defined()) return norm(x_);
  const Tensors sum_and_norm = norm.add(std::exchange(branch_, {}), x_, dropout_);
  x_ = sum_and_norm[0];
  return sum_and_norm[1];
}

Tensor ResidualStream::value() {
  if (!branch_.defined()) return x_;
  const Tensor branch = std::exchange(branch_, {});
  const auto [p, key] = dropout_;
  return x_ = p > 0 ? dropout_add(branch, x_, p, key) : x_ + branch;
}

namespace {

// A source of attention over depth, in at least f32.
Tensor normalized(const Tensor& sum) { return rms_norm(sum.to(compute_type(sum.dtype()))); }

}  // namespace

void ResidualStream::begin_block() {
  blocks_.push_back(normalized(value()));
  x_ = zeros_like(x_);
}

Tensors ResidualStream::over_depth(const Tensor& queries) {
  check(!blocks_.empty(), "ResidualStream",
        "attention over depth without a block; accepted: the layers of a LanguageModel");
  Tensors sources = blocks_;
  sources.push_back(normalized(value()));
  const Tensor v = stack(sources);  // [S, B, L, d]
  const Tensor q = queries.reshape({-1, v.size(3)}).to(v.dtype());
  const Tensor scores = matmul(v, q.transpose(0, 1)) * (1 / std::sqrt(double(v.size(3))));
  const Tensor weights = softmax(scores, 0);
  Tensors all;
  for (int64_t i = 0; i < q.size(0); ++i)
    all.push_back(sum(weights.slice(3, i, i + 1) * v, {0}).to(x_.dtype()));
  return all;
}

TransformerLayer::TransformerLayer(LayerOptions o)
    : options(completed("TransformerLayer", std::move(o))) {}
TransformerLayer::TransformerLayer(Module& parent, std::string name, LayerOptions o)
    : Module(parent, std::move(name)), options(completed("TransformerLayer", std::move(o))) {}

Norm::Options TransformerLayer::first_norm() const {
  Norm::Options o = options.norms();
  if (!options.mixer_norm) o.kind = NormKind::none;
  return o;
}

std::unique_ptr<Norm> TransformerLayer::second_norm() {
  if (options.residual == Residual::parallel_one_norm) return nullptr;
  return std::make_unique<Norm>(*this, "norm2", options.norms());
}

std::unique_ptr<ShortConvolution> TransformerLayer::convolution(const char* name) {
  if (options.branch_taps == 0) return nullptr;
  return std::make_unique<ShortConvolution>(
      *this, name,
      ShortConvolution::Options{
          .features = options.d_model, .taps = options.branch_taps, .residual = true});
}

std::unique_ptr<Norm> TransformerLayer::out_norm(const char* name) {
  if (options.norm != NormPlace::sandwich) return nullptr;
  return std::make_unique<Norm>(*this, name, options.norms());
}

std::unique_ptr<Norm> TransformerLayer::key_or_value_norm(const char* name) {
  return has_separate_inputs() ? std::make_unique<Norm>(*this, name, first_norm()) : nullptr;
}

Tensor TransformerLayer::depth_query(const char* name, int64_t rows) {
  if (options.depth == DepthPlace::none) return {};
  const int64_t d = options.d_model;
  return parameter(name, zeros(rows == 1 ? Shape{d} : Shape{rows, d}));
}

Tensor TransformerLayer::mixer_input(ResidualStream& x) const {
  if (!normalizes_input(options.norm)) return x.value();
  if (!mixer_query.defined() && !k_norm1) return x.normed(norm1);
  const Tensors in = mixer_query.defined() ? x.over_depth(mixer_query) : Tensors{x.value()};
  if (!k_norm1) return norm1(in[0]);
  return cat({norm1(in[0]), (*k_norm1)(in[in.size() / 2]), (*v_norm1)(in.back())}, 2);
}

Tensor TransformerLayer::operator()(const Tensor& x, const AttentionMask& mask,
                                    KeyValueCache* cache, const ForwardContext& forward) const {
  check(options.depth == DepthPlace::none, "TransformerLayer",
        "attention over depth in a layer by itself; accepted: the layers of a LanguageModel");
  return all_or_nothing(cache, [&](KeyValueCache* after) {
    ResidualStream stream(x);
    (*this)(stream, mask, after, forward);
    return stream.value();
  });
}

void TransformerLayer::operator()(ResidualStream& x, const AttentionMask& mask,
                                  KeyValueCache* cache, const ForwardContext& forward) const {
  const Tensor input = mixer_input(x);
  Convolved convolved{{}, cache ? &cache->histories : nullptr};
  if (options.branch_taps > 0)
    convolved.mask = convolution_mask("TransformerLayer", input, mask, forward, cache);
  const Tensor mixed = (*mixer)(input, mask, cache, forward);
  if (options.depth == DepthPlace::first || options.depth == DepthPlace::begins) x.begin_block();
  add_branches(x, input, mixed, convolved, forward);
}

Tensor TransformerLayer::operator()(const Tensor& x, const Tensor& memory,
                                    const AttentionMask& mask,
                                    const ForwardContext& forward) const {
  ResidualStream stream(x);
  (*this)(stream, memory, mask, forward);
  return stream.value();
}

void TransformerLayer::operator()(ResidualStream& x, const Tensor& memory,
                                  const AttentionMask& mask, const ForwardContext& forward) const {
  const MultiHeadAttention& attention = self_attention();
  check(options.branch_taps == 0 && attention.options.taps == 0, "TransformerLayer",
        "a memory with short convolutions; accepted: a cache, or no memory");
  check(options.depth == DepthPlace::none && !k_norm1, "TransformerLayer",
        "a memory with attention over depth or separate inputs; accepted: a cache, or no memory");
  const Tensor input = x.value();
  check(!memory.defined() || (memory.dim() == 3 && memory.size(0) == input.size(0)),
        "TransformerLayer", "memory ", memory, " for x ", input, "; must be [B, m, d_model]");
  const int64_t m = memory.defined() ? memory.size(1) : 0;
  const Tensor all = m > 0 ? cat({memory.detach(), input}, 1) : input;
  const bool normed = normalizes_input(options.norm);
  const Tensor context = normed ? norm1(all) : all, queries = !normed ? input
                                                              : m > 0 ? context.slice(1, m)
                                                                      : context;
  AttentionInputs inputs = attention.project(queries, context, mask, forward);
  add_branches(x, queries, attention.attend(std::move(inputs)), {}, forward);
}

void TransformerLayer::add_branches(ResidualStream& x, const Tensor& input, Tensor attended,
                                    const Convolved& convolved,
                                    const ForwardContext& forward) const {
  ConvolutionHistories* const h = convolved.histories;
  if (mixer_convolution)
    attended = (*mixer_convolution)(attended, convolved.mask, h ? &h->mixer : nullptr);
  const auto computed = [&](const Tensor& t) {
    Tensor y = (*network)(t, forward);
    if (network_scale.defined()) y = y * network_scale;
    if (!network_convolution) return y;
    return (*network_convolution)(y, convolved.mask, h ? &h->network : nullptr);
  };
  const auto add = [&](const Tensor& branch) {
    x.add(options.branch_scale == 1 ? branch : branch * options.branch_scale, dropout, forward);
  };
  const auto with = [](const std::unique_ptr<Norm>& norm, const Tensor& t) {
    return norm ? (*norm)(t) : t;
  };
  if (options.residual != Residual::sequential) {
    const Tensor before = x.value();
    add(attended);
    x.value();  // added before norm2 is applied: the order in which gradients are summed
    add(computed(norm2 ? (*norm2)(before) : input));
  } else if (options.norm == NormPlace::post) {
    add(attended);
    x = ResidualStream(x.normed(norm1));
    add(computed(x.value()));
    x = ResidualStream(x.normed(*norm2));
  } else if (options.norm == NormPlace::output) {
    add(norm1(attended));
    add((*norm2)(computed(x.value())));
  } else {
    add(with(norm1_out, attended));
    const bool over_depth = network_query.defined();
    add(with(norm2_out,
             computed(over_depth ? (*norm2)(x.over_depth(network_query)[0]) : x.normed(*norm2))));
  }
}

MultiHeadAttention& TransformerLayer::self_attention() const {
  return part_as<MultiHeadAttention>("TransformerLayer", *mixer, "MultiHeadAttention");
}

FeedForward& TransformerLayer::feed_forward() const {
  return part_as<FeedForward>("TransformerLayer", *network, "FeedForward");
}

std::string TransformerLayer::label() const {
  switch (options.norm) {
    case NormPlace::pre:
      return "TransformerLayer(pre-norm)";
    case NormPlace::post:
      return "TransformerLayer(post-norm)";
    case NormPlace::sandwich:
      return "TransformerLayer(sandwich norm)";
    case NormPlace::output:
      return "TransformerLayer(output norm)";
  }
  fail("TransformerLayer", "unknown place of the norms");
}

void DecoderCache::reorder(const Tensor& rows) {
  all_or_nothing(*this, [&](DecoderCache& after) {
    after.self.reorder(rows);
    after.cross.reorder(rows);
  });
}

DecoderLayer::DecoderLayer(LayerOptions o)
    : options(completed("DecoderLayer", std::move(o), true)) {}
DecoderLayer::DecoderLayer(Module& parent, std::string name, LayerOptions o)
    : Module(parent, std::move(name)), options(completed("DecoderLayer", std::move(o), true)) {}

MultiHeadAttention::Options DecoderLayer::plain(MultiHeadAttention::Options o) {
  o.position = {};
  o.kernel = {};
  o.window = o.window_after = 0;
  o.gate = AttentionGate::none;
  o.taps = 0;
  o.scaled_taps = o.dynamic_taps = false;
  return o;
}

Tensor DecoderLayer::operator()(const Tensor& x, const Tensor& context, const AttentionMask& self,
                                const AttentionMask& cross, DecoderCache* cache,
                                const ForwardContext& forward) const {
  return all_or_nothing(cache, [&](DecoderCache* after) {
    ResidualStream stream(x);
    (*this)(stream, context, self, cross, after, forward);
    return stream.value();
  });
}

void DecoderLayer::operator()(ResidualStream& x, const Tensor& context, const AttentionMask& self,
                              const AttentionMask& cross, DecoderCache* cache,
                              const ForwardContext& forward) const {
  const auto add = [&](const Norm& norm, const auto& branch) {
    const bool post = options.norm == NormPlace::post;
    x.add(branch(post ? x.value() : x.normed(norm)), dropout, forward);
    if (post) x = ResidualStream(x.normed(norm));
  };
  add(norm1,
      [&](const Tensor& t) { return (*mixer)(t, self, cache ? &cache->self : nullptr, forward); });
  add(norm2, [&](const Tensor& t) {
    return cross_attention(t, context, cross, cache ? &cache->cross : nullptr, forward);
  });
  add(norm3, [&](const Tensor& t) { return (*network)(t, forward); });
}

MultiHeadAttention& DecoderLayer::self_attention() const {
  return part_as<MultiHeadAttention>("DecoderLayer", *mixer, "MultiHeadAttention");
}

FeedForward& DecoderLayer::feed_forward() const {
  return part_as<FeedForward>("DecoderLayer", *network, "FeedForward");
}

std::string DecoderLayer::label() const {
  return options.norm == NormPlace::pre ? "DecoderLayer(pre-norm)" : "DecoderLayer(post-norm)";
}

}  // namespace stretto::nn
