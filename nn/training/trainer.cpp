#include "nn/training/trainer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "autograd/profile.h"
#include "core/digest.h"
#include "core/one_line.h"
#include "core/random.h"
#include "core/storage.h"
#include "nn/distributed/process_group.h"
#include "nn/optim/weight_average.h"
#include "nn/training/progress.h"
#include "nn/training/training_step.h"

namespace stretto::nn {
namespace {

std::string fixed(double value) {
  char text[64];
  return {text, std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, 4).ptr};
}

}  // namespace

Trainer::Trainer(Module& model, Optimizer& optimizer, TrainerOptions o)
    : options(std::move(o)), model_(model), optimizer_(optimizer) {
  check(options.steps >= 0 && options.minutes >= 0 && options.micro_batches >= 0 &&
            options.evaluate_every >= 0 && options.save_every >= 0 && options.save_minutes >= 0,
        "Trainer", "steps ", options.steps, ", minutes ", options.minutes, ", micro_batches ",
        options.micro_batches, ", evaluate_every ", options.evaluate_every, ", save_every ",
        options.save_every, ", save_minutes ", options.save_minutes, "; none may be negative");
  for (const auto& [key, value] : options.metadata)
    check(!key.starts_with("trainer."), "Trainer", "metadata key \"", one_line(key),
          "\"; keys that begin with \"trainer.\" are reserved: pass only your own keys of a loaded "
          "checkpoint");
  check(!options.schedule || !optimizer.given_learning_rate(), "Trainer", "the optimizer has lr ",
        optimizer.given_learning_rate().value_or(0),
        ", which the schedule replaces; set one of them");
  check_step_options(options);
}

Trainer::~Trainer() = default;

TrainingStep& Trainer::training_step() const {
  if (!training_step_) training_step_ = make_training_step(model_, optimizer_, options);
  return *training_step_;
}

int64_t Trainer::n_micro_batches() const { return micro_batches_of(options); }
int64_t Trainer::first_micro_batch() const { return training_step().first_micro_batch(); }
int64_t Trainer::local_micro_batches() const { return training_step().local_micro_batches(); }
int64_t Trainer::micro_batch() const { return training_step().micro_batch(); }
ProcessGroup* Trainer::sequence_group() const { return training_step().sequence_group(); }
Communication Trainer::communication() const { return training_step().communication(); }

// Compares what all ranks must have in common, before the first step: a difference would change the
// result without a sign.
void Trainer::check_ranks_agree() {
  if (std::exchange(ranks_agree_, true)) return;
  ProcessGroup& group = process_group();
  if (group.size() == 1) return;
  std::vector<std::pair<std::string, std::string>> settings;
  const auto add = [&](const char* name, const std::string& value) {
    settings.emplace_back(name, value);
  };
  add("steps done", str(step_));
  add("steps", str(options.steps));
  add("minutes", str(options.minutes));
  add("micro_batches", str(n_micro_batches()));
  add("sequence_parallel", str(options.sequence_parallel));
  add("shard_optimizer", str(options.shard_optimizer));
  add("max_grad_norm", str(options.max_grad_norm));
  add("evaluate_every", str(options.evaluate_every));
  add("save_every", str(options.save_every));
  std::string rates = str(learning_rate());
  for (const double at : {0.0, 0.1, 0.5, 0.9})
    if (options.schedule) rates += str(" ", options.schedule->at(step_ + 1, at));
  add("learning rates", rates);
  for (const auto& [name, value] : options.metadata) settings.emplace_back(name, value);
  std::string trained, groups;
  for (const NamedTensor& p : model_.named_parameters())
    if (p.tensor.requires_grad()) trained += (trained.empty() ? "" : ", ") + p.name;
  for (const ParameterGroup& g : optimizer_.groups())
    groups += str(groups.empty() ? "" : ", ", g.parameters.size(), " tensors, lr_scale ",
                  g.lr_scale, g.lr_factor ? " with lr_factor" : "", ", weight_decay ",
                  *g.weight_decay, ", use_muon ", g.use_muon);
  add("trained parameters", trained);
  add("parameter groups", groups);
  Digest weights;
  for (const NamedTensor& x : model_.named_tensors()) {
    const Tensor host = x.tensor.detach().to(Device()).contiguous();
    weights.add(host.raw_data(), host.numel() * item_size(host.dtype()));
  }
  add("weights with the checksum", weights.text());
  add("random state", str(random_state().seed, " ", random_state().next_stream));
  const std::string difference = group.first_difference(settings);
  check(difference.empty(), "Trainer", difference,
        "; all ranks must make the same calls with the same settings, weights and seed");
}

StepResult Trainer::step(const std::function<Tensor()>& loss, double progress) {
  return take_step([&](int64_t) { return loss(); }, progress);
}

StepResult Trainer::take_step(const std::function<Tensor(int64_t)>& loss, double progress) {
  check_ranks_agree();
  const double learning_rate = optimizer_.learning_rate();
  if (options.schedule) optimizer_.set_learning_rate(options.schedule->at(step_ + 1, progress));
  const RandomState random = random_state();
  StepResult result;
  try {
    result = training_step().take(loss, step_ + 1);
  } catch (...) {
    set_random_state(random);
    optimizer_.set_learning_rate(learning_rate);
    throw;
  }
  ++step_;
  has_stepped_ = true;
  if (options.average) options.average->update();
  if (options.after_step) options.after_step(result);
  return result;
}

Tensors Trainer::stage(int64_t batch, const std::function<Tensors(int64_t)>& make,
                       int scored) const {
  return training_step().stage(batch, make, scored);
}

Batch Trainer::stage_batch(int64_t batch, const std::function<Batch(int64_t)>& make) const {
  // A missing member becomes a tensor without columns, so that all batches have as many tensors.
  const Tensors staged = stage(
      batch,
      [make](int64_t i) {
        const Batch made = make(i);
        const Tensor none = empty({made.inputs.size(0), 0}, {.dtype = u8, .device = cpu});
        return Tensors{made.inputs, made.targets, made.padding.defined() ? made.padding : none,
                       made.segments.defined() ? made.segments : none};
      },
      1);
  const auto member = [&](size_t i) {
    return staged[i].dim() == 2 && staged[i].size(1) == 0 ? Tensor() : staged[i];
  };
  return {staged[0], staged[1], member(2), member(3)};
}

double Trainer::progress() const {
  return options.steps > 0 ? double(step_) / double(options.steps)
                           : seconds() / (60 * options.minutes);
}

double Trainer::seconds() const {
  return earlier_seconds_ + (started_ ? steady_seconds() - *started_ : 0);
}

void Trainer::start_clock() { started_ = steady_seconds(); }

bool Trainer::evaluation_is_due(double before, double after) const {
  if (options.evaluate_every > 0) return step_ % options.evaluate_every == 0;
  return std::floor(20 * after) > std::floor(20 * before);
}

// All processes use the clock of rank 0; if one is asked to stop, all stop.
Trainer::Agreed Trainer::agreed() const {
  const bool stop = options.stop && options.stop();
  ProcessGroup& group = process_group();
  if (group.size() == 1) return {progress(), stop, save_is_due()};
  const std::vector<double> all =
      group.all_gather({progress(), stop ? 1.0 : 0.0, save_is_due() ? 1.0 : 0.0});
  Agreed result{all[0], false, all[2] > 0};
  for (size_t i = 1; i < all.size(); i += 3) result.stop |= all[i] > 0;
  return result;
}

bool Trainer::save_is_due() const {
  if (options.save_every > 0) return step_ % options.save_every == 0;
  return options.save_minutes > 0 && steady_seconds() - saved_at_ >= 60 * options.save_minutes;
}

bool Trainer::run(const std::function<Tensor(int64_t)>& loss,
                  const std::function<double()>& validate) {
  check(options.steps > 0 || options.minutes > 0, "Trainer",
        "neither steps nor minutes is set; one must be positive");
  check_ranks_agree();
  if (!started_) start_clock();
  const bool is_root = process_group().is_root();
  check_folder();
  if (!options.folder.empty() && is_root) metrics();
  saved_at_ = steady_seconds();
  std::optional<Progress> bar;
  if (!options.quiet && is_root)
    bar.emplace(options.steps, ProgressOptions{.starting_fraction = progress()});
  Progress* const shown = bar ? &*bar : nullptr;
  double speed = 0;  // smoothed, as the loss
  if (unmeasured_) measure(validate, shown, speed);
  Agreed at = agreed();
  while (at.progress < 1) {
    if (at.stop) {
      save_checkpoint();
      return false;
    }
    const double before = at.progress, begin = steady_seconds();
    const StepResult result = take_step(loss, before);
    const double per_second = options.tokens_per_step / (steady_seconds() - begin);
    speed = speed == 0 ? per_second : 0.95 * speed + 0.05 * per_second;
    loss_sum_ = 0.98 * loss_sum_ + 0.02 * result.loss;
    loss_weight_ = 0.98 * loss_weight_ + 0.02;
    at = agreed();
    if (shown)
      shown->update(step_, at.progress, loss_sum_ / loss_weight_,
                    speed > 0 ? speed : std::numeric_limits<double>::quiet_NaN());
    if (evaluation_is_due(before, at.progress)) {
      unmeasured_ = {result.gradient_norm, learning_rate()};
      measure(validate, shown, speed);
    }
    if (at.save) save_checkpoint();
  }
  if (shown) shown->finish();
  save_checkpoint();
  return true;
}

// Evaluates the last step and writes its row. If `validate` throws, nothing has changed and the
// evaluation is repeated when the run resumes.
void Trainer::measure(const std::function<double()>& validate, Progress* bar, double speed) {
  const int64_t peak = memory_stats(model_.device()).peak;
  double valid = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> extra;
  {
    const DistributedEvaluation shared(training_step().cuts_batches());
    if (validate) valid = validate();
    for (const MetricColumn& column : options.columns) extra.push_back(column.value());
  }
  const double loss = loss_sum_ / loss_weight_;
  if (metrics_) {
    std::vector<double> row{double(step_),
                            seconds(),
                            loss,
                            valid,
                            unmeasured_->learning_rate,
                            unmeasured_->gradient_norm,
                            speed,
                            double(peak)};
    row.insert(row.end(), extra.begin(), extra.end());
    metrics_->row(row);
  }
  unmeasured_.reset();
  judge(loss, valid);
  if (bar)
    bar->message(str("step ", step_, ": loss ", fixed(loss),
                     validate ? ", validation " + fixed(valid) : std::string(),
                     validate && options.annotate ? options.annotate(valid) : std::string()));
  const DistributedEvaluation restored(false);
  if (options.after_evaluation) options.after_evaluation();
}

// Updates the best validation, with the value of rank 0 on all processes.
void Trainer::judge(double loss, double validation) {
  std::vector<double> of_root{validation, metrics_wait_ ? 1.0 : 0.0};
  if (ProcessGroup& group = process_group(); group.size() > 1) of_root = group.all_gather(of_root);
  const bool best = of_root[0] < best_validation_;
  evaluation_ = {step_, loss, validation, best};
  if (!best) return;
  best_validation_ = of_root[0];
  if (!options.keep_best || options.folder.empty()) return;
  if (of_root[1] > 0) save_checkpoint();  // replaces the old run's files first
  save(best_checkpoint_path());
}

}  // namespace stretto::nn
