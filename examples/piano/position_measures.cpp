#include "examples/piano/position_measures.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/tape.h"
#include "core/parallel.h"
#include "core/random.h"
#include "examples/common/error.h"
#include "nn/training/evaluate.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"

namespace stretto::examples {
namespace {

// The entries of one matrix, within a range.
struct Rows {
  const double* at;
  int64_t length, first, last, max_distance;
  double operator()(int64_t query, int64_t key) const { return at[query * length + key]; }
};

Tensor measured(const char* op, const Tensor& a, AttentionRange range,
                const std::function<double(const Rows&)>& measure) {
  const int64_t n = a.dim();
  check((n == 2 || n == 3) && is_floating(a.dtype()) && a.size(-1) == a.size(-2), op, "attention ",
        a, "; must have a floating-point dtype and shape [L, L] or [H, L, L]");
  const int64_t length = a.size(-1);
  const int64_t last = range.last == 0 ? length : range.last;
  check(range.first >= 0 && range.first < last && last <= length && range.max_distance >= -1, op,
        "rows ", range.first, " to ", last, " and distances up to ", range.max_distance, " of ",
        length, " positions; accepted: 0 ≤ first < last ≤ ", length,
        ", max_distance −1 for all or 0 and more");
  const int64_t distance =
      range.max_distance < 0 ? last - 1 : std::min(range.max_distance, last - 1);
  const std::vector<double> numbers = a.to_vector<double>();
  const int64_t heads = n == 3 ? a.size(0) : 1;
  std::vector<double> results;
  for (int64_t h = 0; h < heads; ++h)
    results.push_back(
        measure({numbers.data() + h * length * length, length, range.first, last, distance}));
  return tensor(results, n == 3 ? Shape{heads} : Shape{});
}

// Accumulates Σ (x − mean)² in one pass (Welford 1962).
struct Squares {
  double mean = 0, sum = 0;
  int64_t n = 0;
  void add(double x) {
    const double before = x - mean;
    mean += before / double(++n);
    sum += before * (x - mean);
  }
};

// sums += exp(scores − top), after raising top to at least the largest score.
void add_exp(const Tensor& sums, double& top, const Tensor& scores) {
  const double highest = max(scores).item();
  const double greatest = highest <= top ? top : highest;            // propagates NaN
  if (greatest == -std::numeric_limits<double>::infinity()) return;  // all keys are masked
  const double before = std::exp(top - greatest);
  top = greatest;
  const Tensor numbers = scores.to(f64);
  const double* from = numbers.data<double>();
  double* to = sums.data<double>();
  parallel_for(numbers.numel(), 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = to[i] * before + std::exp(from[i] - greatest);
  });
}

double invariance(const Rows& a) {
  Squares all;
  double within = 0;
  for (int64_t distance = 0; distance <= a.max_distance; ++distance) {
    Squares diagonal;
    for (int64_t query = std::max(a.first, distance); query < a.last; ++query) {
      diagonal.add(a(query, query - distance));
      all.add(a(query, query - distance));
    }
    within += diagonal.sum;
  }
  return within == 0 ? 0 : within / all.sum;
}

// Returns the number of pairs i < j with x[i] > x[j], and sorts x. `room` is scratch
// space of the same size.
int64_t inversions(double* x, int64_t n, double* room) {
  if (n < 2) return 0;
  const int64_t half = n / 2;
  int64_t count = inversions(x, half, room) + inversions(x + half, n - half, room);
  int64_t left = 0, right = half;
  for (int64_t i = 0; i < n; ++i) {
    if (right == n || (left < half && x[left] <= x[right])) {
      room[i] = x[left++];
    } else {
      room[i] = x[right++];
      count += half - left;
    }
  }
  std::copy(room, room + n, x);
  return count;
}

double share_of_inversions(const Rows& a) {
  std::vector<double> row, room(size_t(a.length));
  double found = 0, pairs = 0;
  for (int64_t query = a.first; query < a.last; ++query) {
    const int64_t key = std::max<int64_t>(0, query - a.max_distance), n = query - key + 1;
    row.assign(a.at + query * a.length + key, a.at + query * a.length + query + 1);
    found += double(inversions(row.data(), n, room.data()));
    pairs += double(n) * double(n - 1) / 2;
  }
  return pairs == 0 ? std::numeric_limits<double>::quiet_NaN() : found / pairs;
}

}  // namespace

Tensor identical_token_attention(const std::function<Tensor(const Tensor& tokens)>& scores,
                                 int64_t vocabulary, int64_t length) {
  const char* op = "identical_token_attention";
  check(vocabulary >= 1 && length >= 1, op, "vocabulary ", vocabulary, ", length ", length,
        "; both must be at least 1");
  NoGrad guard;
  Tensor sums;               // sums of exp(score − the head's largest score so far)
  std::vector<double> tops;  // the heads' largest scores
  for (int64_t token = 0; token < vocabulary; ++token) {
    const Tensor s = scores(full({1, length}, double(token), {.dtype = i64})).to(cpu).contiguous();
    check(s.dim() == 4 && s.size(0) == 1 && is_floating(s.dtype()) &&
              s.shape() == Shape{1, s.size(1), length, length},
          op, "scores ", s, " for tokens [1, ", length,
          "]; must have a floating-point dtype and shape [1, H, ", length, ", ", length, "]");
    const int64_t heads = s.size(1);
    if (!sums.defined()) {
      sums = zeros({heads, length, length}, {.dtype = f64, .device = cpu});
      tops.assign(size_t(heads), -std::numeric_limits<double>::infinity());
    }
    check(sums.size(0) == heads, op, "scores ", s, " after scores of ", sums.size(0),
          " heads; the number of heads must not change");
    for (int64_t h = 0; h < heads; ++h) add_exp(sums[h], tops[size_t(h)], s[0][h]);
  }
  return sums / double(vocabulary);
}

Tensor translation_invariance(const Tensor& attention, AttentionRange range) {
  return measured("translation_invariance", attention, range, invariance);
}

Tensor monotonicity(const Tensor& attention, AttentionRange range) {
  return measured("monotonicity", attention, range, share_of_inversions);
}

std::vector<PositionMeasure> position_measures(nn::LanguageModel& model, int64_t trained,
                                               int64_t length, uint64_t seed) {
  const struct KeepDraws {
    const RandomState state = random_state();
    ~KeepDraws() { set_random_state(state); }
  } draws;
  const nn::EvalMode guard(model);
  model.layers[0].mixer->train();  // new noise is drawn in training mode only
  manual_seed(seed);

  const Device device = model.device();
  const Tensor attention = identical_token_attention(
      [&](const Tensor& tokens) {
        check_interrupt();
        return model.attention_scores(tokens.to(device));
      },
      model.options.vocabulary, length);

  std::vector<PositionMeasure> all;
  const int64_t ends[] = {0, trained / 2, trained, length};
  for (int part = 0; part < 3; ++part)
    for (const int64_t share : {16, 4, 2}) {
      const int64_t first = ends[part], last = std::min(ends[part + 1], length);
      const int64_t distances = trained / share;
      if (first >= last || distances < 2) continue;
      const AttentionRange range{.first = first, .last = last, .max_distance = distances - 1};
      all.push_back({first, last, distances, min(translation_invariance(attention, range)).item(),
                     min(monotonicity(attention, range)).item()});
    }
  return all;
}

}  // namespace stretto::examples
