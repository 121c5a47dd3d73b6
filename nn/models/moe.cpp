#include "nn/models/moe.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "autograd/recompute.h"
#include "autograd/tape.h"
#include "nn/distributed/process_group.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/softmax.h"

namespace stretto::nn {
namespace {

constexpr const char* op = "MoE";

const MoEOptions& checked(const MoEOptions& o) {
  check(o.n_experts >= 1 && o.top_k >= 1 && o.top_k <= o.n_experts, op, "n_experts ", o.n_experts,
        ", top_k ", o.top_k, "; accepted: at least 1 expert, and a top_k of 1 to n_experts");
  check(o.d_shared >= 0 && o.n_always >= 0 && o.balance >= 0, op, "d_shared ", o.d_shared,
        ", n_always ", o.n_always, ", balance ", o.balance, "; cannot be negative");
  const int64_t g = o.n_groups;
  check(g >= 1 && o.n_experts % g == 0 && o.top_groups >= 1 && o.top_groups <= g &&
            o.n_experts / g * o.top_groups >= o.top_k &&
            (g == 1 || o.score == RouterScore::softmax || o.n_experts / g >= 2),
        op, "n_groups ", g, ", top_groups ", o.top_groups, ", n_experts ", o.n_experts, ", top_k ",
        o.top_k,
        "; accepted: a divisor of n_experts, and top_groups of 1 to n_groups with at least "
        "top_k experts; with sigmoid at least 2 experts in a group");
  check(o.d_shared > 0 || !o.shared_gate, op, "shared_gate without d_shared; set d_shared");
  return o;
}

// One expert by itself, without the factory that makes MoE.
FeedForwardOptions plain(FeedForwardOptions o) {
  o.network = {};
  return o;
}

}  // namespace

MoE::MoE(Module& parent, const FeedForwardOptions& expert_, MoEOptions o)
    : PositionWise(parent, "feed_forward"),
      options(checked(o)),
      expert(plain(expert_)),
      selection_bias(o.selection_bias ? buffer("selection_bias", zeros({o.n_experts}),
                                               {.dtype = BufferDtype::at_least_f32})
                                      : Tensor()),
      load_(size_t(o.n_experts)) {
  FeedForwardOptions wide = expert;
  wide.d_hidden = o.d_shared;
  if (o.d_shared > 0) shared.emplace(*this, "shared", wide);
  if (o.shared_gate)
    shared_gate.emplace(*this, "shared_gate", Linear::Options{expert.d_model, 1, false});
}

std::string MoE::label() const {
  return str("MoE(", options.top_k, " of ", options.n_experts, " experts)");
}

// Makes the scores [T, E] of experts in other groups than the token's best ones −∞.
void MoE::hide_other_groups(Tensor& scores) const {
  const int64_t g = options.n_groups;
  if (g == 1) return;
  const Tensor groups = scores.reshape({scores.size(0), g, options.n_experts / g});
  const int64_t best = options.score == RouterScore::softmax ? 1 : 2;
  const Tensor ids = topk(sum(topk(groups, best).values, {2}), options.top_groups).indices;
  const Tensor hidden =
      scatter(ones({scores.size(0), g}, {.dtype = boolean, .device = scores.device()}), 1, ids, 0);
  scores = masked_fill(groups, hidden.unsqueeze(2), -std::numeric_limits<double>::infinity())
               .reshape(scores.shape());
}

// x [T, d_model].
MoE::Choice MoE::choose(const Tensor& x, const ForwardContext& forward) const {
  Tensor logits = router(x);
  logits = logits.to(compute_type(logits.dtype()));
  const Tensor scores =
      options.score == RouterScore::softmax ? softmax(logits, -1) : sigmoid(logits);
  const Tensor routed = scores.slice(1, 0, options.n_experts);
  Tensor seen = routed.detach();
  if (selection_bias.defined()) seen = seen + selection_bias.to(seen.dtype());
  hide_other_groups(seen);
  Tensor ids = topk(seen, options.top_k).indices;
  if (options.balance > 0 && training() && forward.store) add_balance(routed, ids, forward);
  if (const int64_t n = options.n_always; n > 0) {
    const Tensor all = arange(options.n_experts, n_all, 1, options_of(ids));
    ids = cat({ids, all.expand({ids.size(0), n})}, 1);
  }
  Tensor weights = gather(scores, 1, ids);
  if (options.normalize)  // 1e-20, as in transformers: all sigmoids may be 0
    weights = weights / (sum(weights, {1}, true) + 1e-20);
  if (options.scale != 1) weights = weights * options.scale;
  return {ids, weights.to(x.dtype())};
}

void MoE::add_balance(const Tensor& scores, const Tensor& ids,
                      const ForwardContext& forward) const {
  const int64_t choices = ids.numel();
  if (choices == 0) return;
  const Tensor share =
      bincount(ids.flatten(), {}, options.n_experts).to(scores.dtype()) / double(choices);
  forward.add_loss(options.balance * double(options.n_experts) * sum(share * mean(scores, {0})));
}

Tensor MoE::operator()(const Tensor& x, const ForwardContext& forward) const {
  check(x.dim() >= 1 && x.size(-1) == expert.d_model, op, "input ", x, "; must be [.., ",
        expert.d_model, "]");
  const Tensor rows = x.reshape({x.numel() / expert.d_model, expert.d_model});
  const Choice choice = choose(rows, forward);
  const int64_t k = options.top_k + options.n_always, n = rows.size(0) * k;

  // Copies of the rows in the order of their experts; `place` has the row of each choice among them.
  const std::vector<int64_t> ids = choice.ids.flatten().to_vector<int64_t>();
  std::vector<int64_t> sizes(size_t(experts.size())), token(ids.size()), place(ids.size());
  for (const int64_t e : ids) ++sizes[size_t(e)];
  std::vector<int64_t> next(sizes.size());
  std::exclusive_scan(sizes.begin(), sizes.end(), next.begin(), int64_t(0));
  for (size_t i = 0; i < ids.size(); ++i) {
    place[i] = next[size_t(ids[i])]++;
    token[size_t(place[i])] = int64_t(i) / k;
  }

  // An expert without tokens is called, too: its gradients are then 0 in every process.
  Tensors parts = split(index_select(rows, 0, tensor(token, {n}, x.device())), sizes);
  for (int64_t e = 0; e < n_all; ++e) {
    Tensor& part = parts[size_t(e)];
    part = experts[e](part, forward);
  }
  const Tensor each = index_select(cat(parts, 0), 0, tensor(place, {n}, x.device()));
  const Tensor weights = choice.weights.unsqueeze(1);  // [T, 1, k]
  Tensor y = matmul(weights, each.reshape({rows.size(0), k, expert.d_model})).squeeze(1);
  if (shared) {
    const Tensor all = (*shared)(rows, forward);
    y = y + (shared_gate ? all * sigmoid((*shared_gate)(rows)) : all);
  }
  if (training() && !is_recomputing())
    for (size_t e = 0; e < load_.size(); ++e) load_[e] += double(sizes[e]);
  return y.reshape(x.shape());
}

void MoE::update_selection_bias(double rate, ProcessGroup* group) const {
  check(selection_bias.defined(), op,
        "update_selection_bias() without MoEOptions::selection_bias; set it");
  if (group) group->all_reduce(load_.data(), options.n_experts);
  const double mean = std::accumulate(load_.begin(), load_.end(), 0.0) / double(load_.size());
  std::vector<float> step;
  for (const double load : load_)
    step.push_back(float(load < mean ? rate : load > mean ? -rate : 0));
  const NoGrad guard;
  selection_bias.add_(
      tensor(step, {options.n_experts}, selection_bias.device()).to(selection_bias.dtype()));
  std::fill(load_.begin(), load_.end(), 0.0);
}

MakePositionWise moe(MoEOptions options) { return position_wise<MoE>(options); }

}  // namespace stretto::nn
