#include "nn/models/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "autograd/tape.h"
#include "nn/dropout.h"
#include "ops/attention/position_error.h"
#include "ops/create.h"

namespace stretto::nn {
namespace {

constexpr const char* op = "beam_search";

struct Continuation {
  double log_probability;
  int64_t row, token;  // the hypothesis and its next token
};

// Returns the logits of a row as log probabilities, in f64. A row with only −∞ has no continuation;
// it throws unless there is `another` hypothesis.
std::vector<double> log_probabilities(const Tensor& logits, bool another) {
  std::vector<double> x = logits.to_vector<double>();
  double top = -std::numeric_limits<double>::infinity(), total = 0;
  for (const double value : x) {
    check(!std::isnan(value), op, "the logits contain NaN");
    top = std::max(top, value);
  }
  if (another && top < 0 && std::isinf(top)) return x;
  check(std::isfinite(top), op, "the largest logit is ", top, "; must be finite");
  for (const double value : x) total += std::exp(value - top);
  const double log_total = std::log(total);
  for (double& value : x) value = (value - top) - log_total;
  return x;
}

void check_options(const BeamSearchOptions& o) {
  check(o.beam >= 1, op, "beam ", o.beam, "; must be at least 1");
  check(o.n_best >= 1 && o.n_best <= o.beam, op, "n_best ", o.n_best,
        "; must be at least 1 and at most beam, which is ", o.beam);
  check(o.max_tokens >= 0, op, "max_tokens ", o.max_tokens, "; must be 0 or more");
  check(o.length_penalty >= 0 && std::isfinite(o.length_penalty), op, "length_penalty ",
        o.length_penalty, "; must be 0 or more");
}

// The search from one prompt.
class Search {
 public:
  explicit Search(const BeamSearchOptions& options) : o_(options), forbidden_(o_.forbidden) {
    std::sort(forbidden_.begin(), forbidden_.end());
  }

  bool unfinished(int64_t n) const { return n < o_.max_tokens && !live_.empty() && !hopeless(); }
  const std::vector<Hypothesis>& live() const { return live_; }

  // Continues by one token from logits [live, m, V]. Returns the row that each of the new
  // live hypotheses continues.
  std::vector<int64_t> step(const Tensor& logits) {
    std::vector<Hypothesis> grown;
    std::vector<int64_t> from;
    for (const Continuation& c : best(logits)) {
      Hypothesis h = live_[size_t(c.row)];
      h.tokens.push_back(c.token);
      h.log_probability = c.log_probability;
      if (std::find(o_.end_tokens.begin(), o_.end_tokens.end(), c.token) != o_.end_tokens.end()) {
        end(std::move(h), GenerationEnd::end_token);
      } else {
        grown.push_back(std::move(h));
        from.push_back(c.row);
      }
    }
    live_ = std::move(grown);
    return from;
  }

  // The live hypotheses have max_tokens tokens, or cannot become better than the results, or the
  // model has no position for another token.
  std::vector<Hypothesis> result(bool model_ended) {
    for (Hypothesis& h : live_)
      end(std::move(h), model_ended ? GenerationEnd::length : GenerationEnd::max_tokens);
    if (int64_t(ended_.size()) > o_.n_best) ended_.resize(size_t(o_.n_best));
    return std::move(ended_);
  }

 private:
  double score(double log_probability, int64_t n) const {
    const double length = o_.penalty == LengthPenalty::gnmt ? (5.0 + double(n)) / 6.0
                                                            : double(std::max<int64_t>(n, 1));
    return log_probability / std::pow(length, o_.length_penalty);
  }

  void end(Hypothesis h, GenerationEnd reason) {
    h.end = reason;
    h.score = score(h.log_probability, int64_t(h.tokens.size()));
    const auto after = std::find_if(ended_.begin(), ended_.end(),
                                    [&](const Hypothesis& e) { return e.score < h.score; });
    ended_.insert(after, std::move(h));
  }

  // Log probabilities only fall and the divisor only grows with the length: no live hypothesis can
  // reach a better score than this.
  bool hopeless() const {
    return int64_t(ended_.size()) >= o_.n_best &&
           ended_[size_t(o_.n_best - 1)].score >= score(live_[0].log_probability, o_.max_tokens);
  }

  // Returns the most probable continuations, as many as the beam has free places.
  std::vector<Continuation> best(const Tensor& logits) const {
    std::vector<Continuation> all;
    const auto rows = int64_t(live_.size());
    for (int64_t row = 0; row < rows; ++row) {
      const std::vector<double> log_p =
          log_probabilities(logits[row][-1], rows > 1 || !ended_.empty());
      for (int64_t token = 0; token < int64_t(log_p.size()); ++token) {
        const double p = live_[size_t(row)].log_probability + log_p[size_t(token)];
        if (std::isfinite(p) && !std::binary_search(forbidden_.begin(), forbidden_.end(), token))
          all.push_back({p, row, token});
      }
    }
    check(!all.empty() || !ended_.empty(), op, "every token is forbidden or impossible");
    const size_t count = std::min(all.size(), size_t(o_.beam) - ended_.size());
    std::partial_sort(all.begin(), all.begin() + int64_t(count), all.end(),
                      [](const Continuation& a, const Continuation& b) {
                        if (a.log_probability != b.log_probability)
                          return a.log_probability > b.log_probability;
                        return a.row != b.row ? a.row < b.row : a.token < b.token;
                      });
    all.resize(count);
    return all;
  }

  const BeamSearchOptions& o_;
  std::vector<int64_t> forbidden_;                             // sorted
  std::vector<Hypothesis> live_ = std::vector<Hypothesis>(1);  // most probable first
  std::vector<Hypothesis> ended_;                              // best first
};

}  // namespace

std::vector<Hypothesis> beam_search(const std::function<Tensor(const Tensor&)>& model,
                                    const std::function<void(const Tensor&)>& reorder,
                                    const std::vector<int64_t>& prompt,
                                    const BeamSearchOptions& options) {
  check(!prompt.empty(), op, "the prompt is empty; pass at least a start token");
  return beam_search(model, reorder, tensor(prompt, {1, int64_t(prompt.size())}), options)[0];
}

std::vector<std::vector<Hypothesis>> beam_search(const std::function<Tensor(const Tensor&)>& model,
                                                 const std::function<void(const Tensor&)>& reorder,
                                                 const Tensor& prompts,
                                                 const BeamSearchOptions& o) {
  check_options(o);
  check(prompts.dim() == 2 && prompts.size(1) >= 1 && is_index(prompts.dtype()), op, "prompts ",
        prompts, "; must be i64 or i32 [P, m] with m at least 1");
  NoGrad guard;
  std::vector<Search> searches(size_t(prompts.size(0)), Search(o));
  std::vector<size_t> active;  // unfinished searches; the model's rows are their hypotheses
  for (size_t i = 0; i < searches.size(); ++i)
    if (searches[i].unfinished(0)) active.push_back(i);
  int64_t rows = prompts.size(0);
  std::vector<int64_t> next = prompts.to_vector<int64_t>();
  bool model_ended = false;
  for (int64_t n = 1; !active.empty(); ++n) {
    Tensor logits;
    try {
      const RefuseDropout refuse(op);
      logits = model(tensor(next, {rows, int64_t(next.size()) / rows}));
    } catch (const PositionError&) {
      if (n == 1) throw;
      model_ended = true;
      break;
    }
    check(logits.dim() == 3 && logits.size(0) == rows && logits.size(1) >= 1 && logits.size(2) >= 1,
          op, "logits ", logits, "; must be [", rows, ", m, V]");
    std::vector<int64_t> from, same_rows(static_cast<size_t>(rows));
    std::iota(same_rows.begin(), same_rows.end(), 0);
    std::vector<size_t> still;
    next.clear();
    int64_t first = 0;
    for (const size_t i : active) {
      Search& search = searches[i];
      const auto count = int64_t(search.live().size());
      const std::vector<int64_t> own = search.step(logits.slice(0, first, first + count));
      if (search.unfinished(n)) {
        still.push_back(i);
        for (const int64_t row : own) from.push_back(first + row);
        for (const Hypothesis& h : search.live()) next.push_back(h.tokens.back());
      }
      first += count;
    }
    if (!still.empty() && from != same_rows) reorder(tensor(from, {int64_t(from.size())}));
    active = std::move(still);
    rows = int64_t(from.size());
  }
  std::vector<std::vector<Hypothesis>> all;
  for (Search& search : searches) all.push_back(search.result(model_ended));
  return all;
}

}  // namespace stretto::nn
