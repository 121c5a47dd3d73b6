#include "examples/piano/piano_training.h"

#include <algorithm>
#include <limits>

#include "autograd/tape.h"
#include "examples/common/interrupt.h"
#include "examples/common/settings.h"
#include "nn/init.h"
#include "ops/loss.h"

namespace stretto::examples {

nn::MusicTransformer::Options seeded_model(const PianoSettings& settings) {
  manual_seed(settings.seed);
  return settings.model();
}

std::vector<double> loss_by_position(nn::MusicTransformer& model,
                                     const std::vector<PianoWindow>& windows, int64_t length,
                                     int64_t batch) {
  const struct Evaluating {
    nn::MusicTransformer& model;
    const bool before = model.training();
    ~Evaluating() { model.train(before); }
  } guard{model};
  model.eval();
  NoGrad no_grad;
  const Device device = model.embedding.weight.device();
  const int64_t n = int64_t(windows.size());
  std::vector<double> losses(size_t(length), 0);
  for (int64_t at = 0; at < n; at += batch) {
    check_interrupt();
    const Batch b = window_batch(windows, at, std::min(batch, n - at), length);
    const std::vector<double> all = cross_entropy(model(b.inputs.to(device)), b.targets.to(device),
                                                  {.reduction = Reduction::none})
                                        .to_vector<double>();
    for (size_t i = 0; i < all.size(); ++i) losses[i % size_t(length)] += all[i] / double(n);
  }
  return losses;
}

double mean_of(const std::vector<double>& numbers, int64_t first, int64_t last) {
  double sum = 0;
  for (int64_t i = first; i < last; ++i) sum += numbers[size_t(i)];
  return first < last ? sum / double(last - first) : std::numeric_limits<double>::quiet_NaN();
}

PianoTraining::PianoTraining(const PianoSettings& s, std::vector<PianoPiece> pieces, Device device)
    : settings(s),
      model(seeded_model(s)),
      optimizer_(
          model.parameters(),
          {.lr = s.learning_rate, .beta2 = 0.98, .eps = 1e-9, .weight_decay = s.weight_decay}),
      pieces_(std::move(pieces)),
      fingerprint_(fingerprint(pieces_)),
      device_(device) {
  model.to(device);
}

StepResult PianoTraining::train_step(double progress) {
  const Batch batch =
      training_batch(pieces_, settings.language(), settings.crops(), settings.seed, step_);
  const RunSchedule schedule{settings.learning_rate, settings.warmup, settings.steps};
  optimizer_.set_learning_rate(schedule.at(step_ + 1, progress));
  const StepResult result = update(optimizer_, model, settings.clip, step_ + 1, [&] {
    return cross_entropy(model(batch.inputs.to(device_)), batch.targets.to(device_),
                         {.ignore_index = not_scored});
  });
  ++step_;
  return result;
}

RunRecord PianoTraining::record(double seconds) const {
  return {.step = step_,
          .settings = settings_to_notes(settings),
          .data = fingerprint_,
          .by_clock = settings.steps == 0,
          .seconds = seconds};
}

void PianoTraining::save(const std::string& path, double seconds) const {
  save_run(path, model, optimizer_, record(seconds));
}

double PianoTraining::load(const std::string& path) {
  RunRecord before = record(0);
  load_run(path, model, optimizer_, before, "music than that of --data (or of --seed without it)");
  step_ = before.step;
  return before.seconds;
}

}  // namespace stretto::examples
