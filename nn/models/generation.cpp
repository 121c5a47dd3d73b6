#include "nn/models/generation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/tape.h"
#include "ops/create.h"

namespace stretto::nn {

int64_t sample(const Tensor& logits, const SamplingOptions& o, double draw) {
  check(logits.dim() == 1 && logits.numel() > 0, "sample", "logits ", logits, "; must be [V]");
  check(o.temperature >= 0 && std::isfinite(o.temperature), "sample", "temperature ", o.temperature,
        "; must be 0 or more");
  check(o.top_k >= 0, "sample", "top_k ", o.top_k, "; must be 0 (all) or more");
  check(o.top_p > 0 && o.top_p <= 1, "sample", "top_p ", o.top_p, "; must be above 0, at most 1");
  std::vector<double> score = logits.to_vector<double>();
  for (double s : score) check(!std::isnan(s), "sample", "the logits contain NaN");
  std::vector<int64_t> order(score.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(
      order, [&](int64_t t) { return std::count(o.forbidden.begin(), o.forbidden.end(), t) > 0; });
  check(!order.empty(), "sample", "every token is forbidden");
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return score[size_t(a)] > score[size_t(b)]; });
  const double top = score[size_t(order[0])];
  check(std::isfinite(top), "sample", "the largest logit is ", top, "; must be finite");
  if (o.temperature == 0) return order[0];
  if (o.top_k > 0 && o.top_k < int64_t(order.size())) order.resize(size_t(o.top_k));

  std::vector<double> weight;
  double total = 0;
  for (int64_t t : order) {
    weight.push_back(std::exp((score[size_t(t)] - top) / o.temperature));
    total += weight.back();
  }
  if (o.top_p < 1) {
    double reached = 0;
    size_t keep = 0;
    while (keep < weight.size() && reached < o.top_p * total) reached += weight[keep++];
    weight.resize(keep);
    total = reached;
  }
  double rest = draw * total;
  size_t last = 0;  // chosen if rounding leaves `rest` ≥ 0: the last token with a positive weight
  for (size_t i = 0; i < weight.size() && weight[i] > 0; ++i) {
    rest -= weight[last = i];
    if (rest < 0) break;
  }
  return order[last];
}

std::vector<int64_t> generate(const std::function<Tensor(const Tensor&)>& model,
                              const std::vector<int64_t>& prompt, const GenerationOptions& o,
                              const std::function<bool(int64_t)>& on_token) {
  check(!prompt.empty(), "generate", "the prompt is empty; pass at least a start token");
  check(o.max_tokens >= 0, "generate", "max_tokens ", o.max_tokens, "; must be 0 or more");
  NoGrad guard;
  // Uses the last stream. The program's streams start at 0: after manual_seed(seed), stream 0 would
  // give the same random numbers as the first weights.
  const RandomKey key{o.seed, ~uint64_t{0}};
  std::vector<int64_t> tokens, next = prompt;
  while (int64_t(tokens.size()) < o.max_tokens) {
    const Tensor logits = model(tensor(next, {1, int64_t(next.size())}));
    const double draw = uniform_from_bits(random_bits(key, tokens.size()));
    const int64_t token = sample(logits[0][-1], o.sampling, draw);
    tokens.push_back(token);
    if (on_token && !on_token(token)) break;
    if (token == o.end_token) break;
    next = {token};
  }
  return tokens;
}

}  // namespace stretto::nn
