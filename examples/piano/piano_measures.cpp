#include "examples/piano/piano_measures.h"

#include <algorithm>

#include "core/random.h"
#include "examples/common/interrupt.h"
#include "examples/piano/position_measures.h"
#include "nn/training/evaluate.h"
#include "ops/reduce.h"

namespace stretto::examples {

std::vector<PositionMeasure> position_measures(nn::LanguageModel& model, int64_t trained,
                                               int64_t length, uint64_t seed) {
  const struct KeepDraws {
    const RandomState state = random_state();
    ~KeepDraws() { set_random_state(state); }
  } draws;
  const nn::EvalMode guard(model);
  model.layers[0].self_attention.train();  // positions draw anew in training only
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
      const int64_t lags = trained / share;
      if (first >= last || lags < 2) continue;
      const AttentionRange range{.first = first, .last = last, .max_lag = lags - 1};
      all.push_back({first, last, lags, min(translation_invariance(attention, range)).item(),
                     min(monotonicity(attention, range)).item()});
    }
  return all;
}

}  // namespace stretto::examples
