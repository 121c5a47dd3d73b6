#include "tests/reference/adaptive.h"

#include <cmath>

#include "ops/view.h"

namespace stretto::reference {

std::vector<double> nll_by_loops(const Tensor& hidden, const Tensor& targets,
                                 const std::vector<nn::AdaptiveCluster>& clusters) {
  // The log-softmax of row `row` of `hidden` over a cluster, through its projection if it has one.
  auto log_softmax = [&](int64_t row, const nn::AdaptiveCluster& c) {
    const Tensor h = hidden.reshape({-1, hidden.size(-1)})[row];
    const auto x = h.to_vector<double>(), w = c.weight.to_vector<double>();
    const auto b = c.bias.to_vector<double>();
    const int64_t width = c.weight.size(1);
    std::vector<double> projected = x, y;
    if (c.projection.defined()) {
      const auto p = c.projection.to_vector<double>();
      projected.assign(size_t(width), 0);
      for (size_t d = 0; d < x.size(); ++d)
        for (int64_t e = 0; e < width; ++e)
          projected[size_t(e)] += x[d] * p[d * size_t(width) + size_t(e)];
    }
    double total = 0;
    for (size_t r = 0; r < b.size(); ++r) {
      double logit = b[r];
      for (int64_t e = 0; e < width; ++e)
        logit += projected[size_t(e)] * w[r * size_t(width) + size_t(e)];
      y.push_back(logit);
      total += std::exp(logit);
    }
    for (double& logit : y) logit -= std::log(total);
    return y;
  };
  // Cluster 0 has the words of the shortlist, then one logit for each other cluster.
  const int64_t shortlist = clusters[0].weight.size(0) - int64_t(clusters.size()) + 1;
  std::vector<double> all;
  const auto words = targets.to_vector<int64_t>();
  for (size_t n = 0; n < words.size(); ++n) {
    const auto first = log_softmax(int64_t(n), clusters[0]);
    int64_t word = words[n], i = 0;  // becomes word `word` of cluster i
    for (int64_t rows = shortlist; word >= rows; rows = clusters[size_t(i)].weight.size(0)) {
      word -= rows;
      ++i;
    }
    double log_p = first[size_t(i == 0 ? word : shortlist + i - 1)];
    if (i > 0) log_p += log_softmax(int64_t(n), clusters[size_t(i)])[size_t(word)];
    all.push_back(-log_p);
  }
  return all;
}

}  // namespace stretto::reference
