#include "examples/chorales/chorale_tokens.h"

#include <algorithm>
#include <stdexcept>

#include "nn/data/draws.h"
#include "ops/create.h"

namespace stretto::examples {
namespace {

constexpr int64_t voices = 4;

// Returns the model's input for predicting token i; inputs past the end do not matter.
int64_t input_at(const std::vector<int64_t>& tokens, int64_t i) {
  if (i == 0) return start_token;
  return i <= int64_t(tokens.size()) ? tokens[size_t(i - 1)] : end_token;
}

nn::Batch to_batch(const std::vector<int64_t>& inputs, const std::vector<int64_t>& targets,
                   int64_t length) {
  const Shape shape{int64_t(inputs.size()) / length, length};
  return {tensor(inputs, shape), tensor(targets, shape)};
}

}  // namespace

std::vector<int64_t> to_tokens(const Chorale& chorale, int semitones) {
  std::vector<int64_t> tokens;
  tokens.reserve(chorale.steps.size() * voices);
  for (const auto& step : chorale.steps)
    for (int pitch : step) {
      if (pitch >= 0 && (pitch + semitones < 0 || pitch + semitones > 127))
        throw std::invalid_argument("to_tokens: a pitch leaves 0 … 127");
      tokens.push_back(pitch < 0 ? silence_token : pitch_token + pitch + semitones);
    }
  return tokens;
}

Chorale to_chorale(const std::vector<int64_t>& tokens) {
  Chorale chorale;
  for (size_t i = 0; i + voices <= tokens.size(); i += voices) {
    std::array<int, voices> step{};
    for (size_t v = 0; v < voices; ++v) {
      const int64_t t = tokens[i + v];
      if (t < silence_token || t >= chorale_vocabulary) return chorale;
      step[v] = t == silence_token ? -1 : int(t - pitch_token);
    }
    chorale.steps.push_back(step);
  }
  return chorale;
}

nn::Batch training_batch(const std::vector<Chorale>& pieces, const CropOptions& o, uint64_t seed,
                         int64_t step) {
  int64_t total = 0;
  for (const Chorale& piece : pieces) total += int64_t(piece.steps.size());
  nn::Draws draws(seed ^ 0x63686f72616c65ull, step);  // distinct from the model's random numbers
  std::vector<int64_t> inputs, targets;
  for (int64_t b = 0; b < o.batch; ++b) {
    int64_t at = draws.below(total);
    size_t piece = 0;
    while (at >= int64_t(pieces[piece].steps.size())) at -= int64_t(pieces[piece++].steps.size());
    const Chorale& chorale = pieces[piece];
    int low = 127, high = 0;
    for (const auto& s : chorale.steps)
      for (int pitch : s)
        if (pitch >= 0) low = std::min(low, pitch), high = std::max(high, pitch);
    const int down = std::min(o.transpose, low), up = std::min(o.transpose, 127 - high);
    const int semitones = high < low ? 0 : int(draws.below(down + up + 1)) - down;
    std::vector<int64_t> tokens = to_tokens(chorale, semitones);
    tokens.push_back(end_token);
    const int64_t n = int64_t(tokens.size());
    const int64_t last = (std::max<int64_t>(0, n - o.length) + voices - 1) / voices;
    const int64_t first = draws.below(last + 1) * voices;
    for (int64_t i = first; i < first + o.length; ++i) {
      inputs.push_back(input_at(tokens, i));
      targets.push_back(i < n ? tokens[size_t(i)] : nn::ignore_index);
    }
  }
  return to_batch(inputs, targets, o.length);
}

void scoring_batches(const std::vector<Chorale>& pieces, int64_t length, int64_t stride,
                     int64_t batch, const std::function<void(const nn::Batch&)>& score) {
  if (stride < 1 || stride > length)
    throw std::invalid_argument("scoring_batches: the stride must be in 1 … length");
  std::vector<int64_t> inputs, targets;
  const auto flush = [&] {
    if (inputs.empty()) return;
    score(to_batch(inputs, targets, length));
    inputs.clear();
    targets.clear();
  };
  for (const Chorale& piece : pieces) {
    const std::vector<int64_t> tokens = to_tokens(piece);
    const int64_t n = int64_t(tokens.size());
    for (int64_t scored = 0; scored < n;) {
      const int64_t end = scored == 0 ? length : std::min(n, scored + stride);
      for (int64_t i = end - length; i < end; ++i) {
        inputs.push_back(input_at(tokens, i));
        targets.push_back(i >= scored && i < n ? tokens[size_t(i)] : nn::ignore_index);
      }
      scored = end;
      if (int64_t(inputs.size()) == batch * length) flush();
    }
  }
  flush();
}

}  // namespace stretto::examples
