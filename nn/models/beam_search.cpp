#include "nn/models/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "autograd/tape.h"
#include "ops/create.h"

namespace stretto::nn {
namespace {

struct Continuation {
  double log_probability;
  int64_t row, token;  // of which hypothesis, by what
};

double penalty(int64_t n, double alpha) { return std::pow((5.0 + double(n)) / 6.0, alpha); }

// The log probabilities of the last logits of each row, in f64. A row of −∞ alone, which has no
// continuation, is an error unless there is `another` hypothesis.
std::vector<std::vector<double>> log_probabilities(const Tensor& logits, int64_t rows,
                                                   bool another) {
  check(logits.dim() == 3 && logits.size(0) == rows && logits.size(1) >= 1 && logits.size(2) >= 1,
        "beam_search", "logits ", logits, "; must be [", rows, ", m, V]");
  std::vector<std::vector<double>> all;
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<double> x = logits[row][-1].to_vector<double>();
    double top = -std::numeric_limits<double>::infinity(), total = 0;
    for (const double value : x) {
      check(!std::isnan(value), "beam_search", "the logits contain NaN");
      top = std::max(top, value);
    }
    const bool none = another && top < 0 && std::isinf(top);
    check(none || std::isfinite(top), "beam_search", "the largest logit is ", top,
          "; must be finite");
    if (!none) {
      for (const double value : x) total += std::exp(value - top);
      const double log_total = std::log(total);
      for (double& value : x) value = (value - top) - log_total;
    }
    all.push_back(std::move(x));
  }
  return all;
}

}  // namespace

std::vector<Hypothesis> beam_search(const std::function<Tensor(const Tensor&)>& model,
                                    const std::function<void(const Tensor&)>& reorder,
                                    const std::vector<int64_t>& prompt,
                                    const BeamSearchOptions& o) {
  const char* op = "beam_search";
  check(!prompt.empty(), op, "the prompt is empty; give at least a start token");
  check(o.beam >= 1, op, "beam ", o.beam, "; must be at least 1");
  check(o.n_best >= 1 && o.n_best <= o.beam, op, "n_best ", o.n_best, "; accepted are 1 to beam, ",
        o.beam);
  check(o.max_tokens >= 0, op, "max_tokens ", o.max_tokens, "; must be 0 or more");
  check(o.length_penalty >= 0 && std::isfinite(o.length_penalty), op, "length_penalty ",
        o.length_penalty, "; must be 0 or more");
  NoGrad guard;
  const auto score = [&](double log_probability, int64_t n) {
    return log_probability / penalty(n, o.length_penalty);
  };
  std::vector<Hypothesis> live(1), ended;  // live: the likeliest first; ended: the best first
  const auto end = [&](Hypothesis h) {
    h.score = score(h.log_probability, int64_t(h.tokens.size()));
    const auto after = std::find_if(ended.begin(), ended.end(),
                                    [&](const Hypothesis& e) { return e.score < h.score; });
    ended.insert(after, std::move(h));
  };
  // Log P only falls and the penalty only grows: no live hypothesis can end with more than this.
  const auto hopeless = [&] {
    return int64_t(ended.size()) >= o.n_best &&
           ended[size_t(o.n_best - 1)].score >= score(live[0].log_probability, o.max_tokens);
  };
  for (int64_t n = 0; n < o.max_tokens && !live.empty() && !hopeless(); ++n) {
    std::vector<int64_t> next = prompt;
    if (n > 0) {
      next.clear();
      for (const Hypothesis& h : live) next.push_back(h.tokens.back());
    }
    const auto rows = int64_t(live.size());
    const auto log_p = log_probabilities(model(tensor(next, {rows, int64_t(next.size()) / rows})),
                                         rows, rows > 1 || !ended.empty());

    std::vector<Continuation> all;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t token = 0; token < int64_t(log_p[size_t(row)].size()); ++token) {
        const double p = live[size_t(row)].log_probability + log_p[size_t(row)][size_t(token)];
        if (std::isfinite(p) &&
            std::find(o.forbidden.begin(), o.forbidden.end(), token) == o.forbidden.end())
          all.push_back({p, row, token});
      }
    check(!all.empty() || !ended.empty(), op, "every token is forbidden or impossible");
    const size_t room = std::min(all.size(), size_t(o.beam) - ended.size());
    std::partial_sort(all.begin(), all.begin() + int64_t(room), all.end(),
                      [](const Continuation& a, const Continuation& b) {
                        if (a.log_probability != b.log_probability)
                          return a.log_probability > b.log_probability;
                        return a.row != b.row ? a.row < b.row : a.token < b.token;
                      });
    std::vector<Hypothesis> grown;
    std::vector<int64_t> from;
    for (size_t i = 0; i < room; ++i) {
      Hypothesis h = live[size_t(all[i].row)];
      h.tokens.push_back(all[i].token);
      h.log_probability = all[i].log_probability;
      if (all[i].token == o.end_token) {
        end(std::move(h));
      } else {
        grown.push_back(std::move(h));
        from.push_back(all[i].row);
      }
    }
    live = std::move(grown);
    std::vector<int64_t> as_before(log_p.size());
    std::iota(as_before.begin(), as_before.end(), 0);
    if (!live.empty() && from != as_before) reorder(tensor(from, {int64_t(from.size())}));
  }
  // max_tokens long; or hopeless, and then ranked after all that are wanted.
  for (Hypothesis& h : live) end(std::move(h));
  if (int64_t(ended.size()) > o.n_best) ended.resize(size_t(o.n_best));
  return ended;
}

}  // namespace stretto::nn
