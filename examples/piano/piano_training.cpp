#include "examples/piano/piano_training.h"

#include <algorithm>
#include <limits>

#include "examples/common/interrupt.h"
#include "nn/distributed/process_group.h"
#include "nn/training/evaluate.h"
#include "ops/loss.h"

namespace stretto::examples {

std::vector<double> loss_by_position(nn::LanguageModel& model,
                                     const std::vector<PianoWindow>& windows, int64_t length,
                                     int64_t batch) {
  const nn::EvalMode guard(model);
  const int64_t n = int64_t(windows.size());
  nn::BatchSums sums{size_t(length)};
  for (int64_t at = 0; at < n; at += batch) {
    check_interrupt();
    if (!sums.next()) continue;
    const nn::Batch b =
        window_batch(windows, at, std::min(batch, n - at), length).to(model.device());
    const std::vector<double> all =
        cross_entropy(model(b.inputs), b.targets, {.reduction = Reduction::none})
            .to_vector<double>();
    std::vector<double> losses(size_t(length), 0);
    for (size_t i = 0; i < all.size(); ++i) losses[i % size_t(length)] += all[i] / double(n);
    sums.add(losses);
  }
  return sums.total();
}

double mean_of(const std::vector<double>& numbers, int64_t first, int64_t last) {
  double sum = 0;
  for (int64_t i = first; i < last; ++i) sum += numbers[size_t(i)];
  return first < last ? sum / double(last - first) : std::numeric_limits<double>::quiet_NaN();
}

PianoTraining::PianoTraining(const PianoSettings& s, std::vector<PianoPiece> pieces, Device device)
    : ModelTraining(s, s.model(), adamw_of(s),
                    {fingerprint(pieces), "music than that of --data (or of --seed without it)"},
                    device, cosine_of(s), s.batch * s.length),
      pieces_(std::move(pieces)) {}

Tensor PianoTraining::loss(int64_t step) {
  const nn::Batch batch = trainer.fed_batch(step, [this](int64_t i) {
    return training_batch(pieces_, settings.language(), settings.crops(), settings.seed, i);
  });
  const Tensor logits = model(batch.inputs, nullptr, trainer.sequence_group());
  return cross_entropy(logits, batch.targets, {.ignore_index = nn::not_scored});
}

}  // namespace stretto::examples
