#include "nn/models/moe.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "autograd/recompute.h"
#include "autograd/tape.h"
#include "nn/distributed/process_group.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/grouped_linear.h"
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

// The choices in the order of their experts: `order` has the choice at each place, `place` the place of
// each choice, `offsets` [E + 1] the first place of each expert.
struct Order {
  Tensor order, place, offsets;
};

Order order_of(const Tensor& ids, int64_t n_experts) {
  if (ids.device().is_cuda()) {
    const Sorted sorted = sort(ids, 0);
    return {sorted.indices, argsort(sorted.indices),
            searchsorted(sorted.values, arange(n_experts + 1, options_of(ids)))};
  }
  Order y{empty_like(ids), empty_like(ids), zeros({n_experts + 1}, options_of(ids))};
  const int64_t* const id = ids.data<int64_t>();
  int64_t *const order = y.order.data<int64_t>(), *const place = y.place.data<int64_t>(),
                 *const offsets = y.offsets.data<int64_t>();
  for (int64_t i = 0; i < ids.numel(); ++i) ++offsets[id[i] + 1];
  std::partial_sum(offsets, offsets + n_experts + 1, offsets);
  std::vector<int64_t> next(offsets, offsets + n_experts);
  for (int64_t i = 0; i < ids.numel(); ++i) {
    place[i] = next[size_t(id[i])]++;
    order[place[i]] = i;
  }
  return y;
}

// Returns the rows x[order[i] / k] for a permutation `order` with the inverse `place`. The gradient
// is selected as well, which is faster than a sum by index.
Tensor selected(const Tensor& x, const Tensor& order, const Tensor& place, int64_t k) {
  Tensor y = index_select(x.detach(), 0, k == 1 ? order : floor_divide(order, double(k)));
  return record("MoE", {x}, y, [=, shape = x.shape()](Backward& b) {
    const Tensor g = selected(b.grad(), place, order, 1);
    return Tensors{k == 1 ? g : sum(g.reshape({shape[0], k, shape[1]}), {1})};
  });
}

}  // namespace

MoE::MoE(Module& parent, const FeedForwardOptions& expert_, MoEOptions o)
    : PositionWise(parent, "feed_forward"),
      options(checked(o)),
      expert(plain(expert_)),
      selection_bias(o.selection_bias ? buffer("selection_bias", zeros({o.n_experts}),
                                               {.dtype = BufferDtype::at_least_f32})
                                      : Tensor()) {
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
MoE::Choice MoE::choose(const Tensor& x) const {
  Tensor logits = router(x);
  logits = logits.to(compute_type(logits.dtype()));
  const Tensor scores =
      options.score == RouterScore::softmax ? softmax(logits, -1) : sigmoid(logits);
  const Tensor routed = scores.slice(1, 0, options.n_experts);
  Tensor seen = routed.detach();
  if (selection_bias.defined()) seen = seen + selection_bias.to(seen.dtype());
  hide_other_groups(seen);
  Tensor ids = topk(seen, options.top_k).indices;
  if (const int64_t n = options.n_always; n > 0) {
    const Tensor all = arange(options.n_experts, experts.size(), 1, options_of(ids));
    ids = cat({ids, all.expand({ids.size(0), n})}, 1);
  }
  Tensor weights = gather(scores, 1, ids);
  if (options.normalize)  // 1e-20, as in transformers: all sigmoids may be 0
    weights = weights / (sum(weights, {1}, true) + 1e-20);
  if (options.scale != 1) weights = weights * options.scale;
  return {ids, weights.to(x.dtype()), routed};
}

bool MoE::has_adapters() const {
  for (int64_t e = 0; e < experts.size(); ++e) {
    const FeedForward& f = experts[e];
    if (f.linear1.lora() || f.linear2.lora() || (f.up && f.up->lora())) return true;
  }
  return false;
}

// An expert without tokens is called, too: its gradients are then 0 in every process.
Tensor MoE::one_by_one(const Tensor& rows, const Tensor& offsets,
                       const ForwardContext& forward) const {
  const std::vector<int64_t> ends = offsets.to_vector<int64_t>();
  std::vector<int64_t> sizes;
  for (size_t e = 1; e < ends.size(); ++e) sizes.push_back(ends[e] - ends[e - 1]);
  Tensors parts = split(rows, sizes);
  for (int64_t e = 0; e < experts.size(); ++e)
    parts[size_t(e)] = experts[e](parts[size_t(e)], forward);
  return cat(parts, 0);
}

Tensor MoE::grouped(const Tensor& rows, const Tensor& offsets,
                    const ForwardContext& forward) const {
  const auto apply = [&](const Tensor& x, const Linear& (*layer)(const FeedForward&)) {
    Tensors weights, biases;
    for (int64_t e = 0; e < experts.size(); ++e) {
      const Linear& one = layer(experts[e]);
      weights.push_back(one.weight);
      if (one.bias.defined()) biases.push_back(one.bias);
    }
    return grouped_linear(x, weights, biases, offsets);
  };
  const Tensor first = apply(rows, [](const FeedForward& f) -> const Linear& { return f.linear1; });
  const Tensor second =
      expert.gated ? apply(rows, [](const FeedForward& f) -> const Linear& { return *f.up; })
                   : Tensor();
  return apply(experts[0].hidden(first, second, forward),
               [](const FeedForward& f) -> const Linear& { return f.linear2; });
}

void MoE::add_balance(const Tensor& scores, const Tensor& counts,
                      const ForwardContext& forward) const {
  if (scores.numel() == 0) return;
  const Tensor share = counts.to(scores.dtype()) / double(scores.size(0) * options.top_k);
  forward.add_loss(options.balance * double(options.n_experts) * sum(share * mean(scores, {0})));
}

void MoE::add_load(const Tensor& counts) const {
  const NoGrad guard;
  const Tensor more = counts.to(f64);
  load_ = load_.defined() ? load_.to(more.device()) : zeros_like(more);
  load_.add_(more);
}

Tensor MoE::operator()(const Tensor& x, const ForwardContext& forward) const {
  check(x.dim() >= 1 && x.size(-1) == expert.d_model, op, "input ", x, "; must be [.., ",
        expert.d_model, "]");
  const Tensor rows = x.reshape({x.numel() / expert.d_model, expert.d_model});
  const Choice choice = choose(rows);
  const int64_t k = options.top_k + options.n_always;

  const auto [order, place, offsets] = order_of(choice.ids.flatten(), experts.size());
  const Tensor of_experts = selected(rows, order, place, k);
  const bool fused = x.device().is_cpu() && !expert.gated && expert.dropout.value_or(0) == 0;
  const Tensor each = selected(fused || has_adapters() ? one_by_one(of_experts, offsets, forward)
                                                       : grouped(of_experts, offsets, forward),
                               place, order, 1);
  const Tensor weights = choice.weights.unsqueeze(1);  // [T, 1, k]
  Tensor y = matmul(weights, each.reshape({rows.size(0), k, expert.d_model})).squeeze(1);
  if (shared) {
    const Tensor all = (*shared)(rows, forward);
    y = y + (shared_gate ? all * sigmoid((*shared_gate)(rows)) : all);
  }
  if (training()) {
    const int64_t n = options.n_experts;
    const Tensor counts = offsets.slice(0, 1, n + 1) - offsets.slice(0, 0, n);
    if (options.balance > 0 && forward.store) add_balance(choice.scores, counts, forward);
    if (!is_recomputing()) add_load(counts);
  }
  return y.reshape(x.shape());
}

std::vector<double> MoE::load() const {
  return load_.defined() ? load_.to_vector<double>()
                         : std::vector<double>(size_t(options.n_experts));
}

void MoE::update_selection_bias(double rate, ProcessGroup* group) const {
  check(selection_bias.defined(), op,
        "update_selection_bias() without MoEOptions::selection_bias; set it");
  std::vector<double> chosen = load();
  if (group) group->all_reduce(chosen.data(), options.n_experts);
  const double mean = std::accumulate(chosen.begin(), chosen.end(), 0.0) / double(chosen.size());
  std::vector<float> step;
  for (const double load : chosen)
    step.push_back(float(load < mean ? rate : load > mean ? -rate : 0));
  const NoGrad guard;
  selection_bias.add_(
      tensor(step, {options.n_experts}, selection_bias.device()).to(selection_bias.dtype()));
  if (load_.defined()) load_.zero_();
}

MakePositionWise moe(MoEOptions options) { return position_wise<MoE>(options); }

}  // namespace stretto::nn
