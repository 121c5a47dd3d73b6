#include "tests/reference/moe.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "ops/create.h"

namespace stretto::reference {
namespace {

using Row = std::vector<double>;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

Row linear(const Row& x, const nn::Linear& layer) {
  const Row weight = layer.weight.to_vector<double>();
  Row y(size_t(layer.weight.size(0)));
  if (layer.bias.defined()) y = layer.bias.to_vector<double>();
  for (size_t i = 0; i < y.size(); ++i)
    for (size_t j = 0; j < x.size(); ++j) y[i] += weight[i * x.size() + j] * x[j];
  return y;
}

// With the activations ReLU and SiLU.
Row network(const Row& x, const nn::FeedForward& f) {
  Row hidden = linear(x, f.linear1);
  for (double& h : hidden)
    h = f.options.activation == nn::Activation::relu ? std::max(h, 0.0) : h * sigmoid(h);
  if (f.up) {
    const Row up = linear(x, *f.up);
    for (size_t i = 0; i < hidden.size(); ++i) hidden[i] *= up[i];
  }
  return linear(hidden, f.linear2);
}

Row scores_of(const Row& x, const nn::MoE& module) {
  Row s = linear(x, module.router);
  double sum = 0;
  for (double& v : s)
    sum += v = module.options.score == nn::RouterScore::softmax ? std::exp(v) : sigmoid(v);
  if (module.options.score == nn::RouterScore::softmax)
    for (double& v : s) v /= sum;
  return s;
}

// The indices of the scores, the largest first.
std::vector<size_t> best_first(const Row& scores) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  return order;
}

// Makes the scores of experts in all but the best groups −∞.
void hide_other_groups(Row& seen, const nn::MoEOptions& o) {
  const auto groups = size_t(o.n_groups), size = seen.size() / groups;
  Row of_groups;
  for (size_t g = 0; g < groups; ++g) {
    Row group(seen.begin() + int64_t(g * size), seen.begin() + int64_t((g + 1) * size));
    std::sort(group.rbegin(), group.rend());
    of_groups.push_back(group[0] +
                        (o.score == nn::RouterScore::sigmoid && size > 1 ? group[1] : 0));
  }
  const std::vector<size_t> order = best_first(of_groups);
  for (size_t g = size_t(o.top_groups); g < groups; ++g)
    for (size_t e = 0; e < size; ++e)
      seen[order[g] * size + e] = -std::numeric_limits<double>::infinity();
}

Row token(const Row& x, const nn::MoE& module) {
  const nn::MoEOptions& o = module.options;
  const Row scores = scores_of(x, module);
  Row seen(scores.begin(), scores.begin() + o.n_experts);
  if (o.selection_bias) {
    const Row bias = module.selection_bias.to_vector<double>();
    for (size_t e = 0; e < seen.size(); ++e) seen[e] += bias[e];
  }
  hide_other_groups(seen, o);
  std::vector<size_t> chosen = best_first(seen);
  chosen.resize(size_t(o.top_k));
  for (size_t e = seen.size(); e < scores.size(); ++e) chosen.push_back(e);
  double sum = 0;
  for (const size_t e : chosen) sum += scores[e];
  Row y(x.size());
  for (const size_t e : chosen) {
    const double weight = scores[e] / (o.normalize ? sum : 1) * o.scale;
    const Row one = network(x, module.experts[int64_t(e)]);
    for (size_t c = 0; c < y.size(); ++c) y[c] += weight * one[c];
  }
  if (module.shared) {
    const double gate = module.shared_gate ? sigmoid(linear(x, *module.shared_gate)[0]) : 1;
    const Row one = network(x, *module.shared);
    for (size_t c = 0; c < y.size(); ++c) y[c] += gate * one[c];
  }
  return y;
}

}  // namespace

Tensor moe(const nn::MoE& module, const Tensor& x) {
  const Row all = x.to_vector<double>();
  const auto d = int64_t(module.expert.d_model);
  Row y;
  for (auto at = all.begin(); at != all.end(); at += d) {
    const Row one = token({at, at + d}, module);
    y.insert(y.end(), one.begin(), one.end());
  }
  return tensor(y, x.shape());
}

}  // namespace stretto::reference
