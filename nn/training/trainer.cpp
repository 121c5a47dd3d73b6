#include "nn/training/trainer.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <optional>
#include <unordered_set>

#include "autograd/leaf_watch.h"
#include "autograd/tape.h"
#include "core/storage.h"
#include "nn/distributed/optimizer_shards.h"
#include "nn/distributed/parted_step.h"
#include "nn/distributed/process_group.h"
#include "nn/leaf_owners.h"
#include "nn/optim/weight_average.h"
#include "nn/training/micro_batches.h"
#include "nn/training/progress.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"

namespace stretto::nn {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void check_number(int64_t step, const char* what, double value) {
  check(std::isfinite(value), "train", "step ", step, ": the ", what, " is ", value,
        anomaly_detection() ? "" : "; anomaly detection names the op that first makes it so");
}

// What fails in f is told with the step.
template <class F>
auto at_step(int64_t step, F&& f) {
  const auto told = [&](const Error& e) {
    const std::string begin = str("[train] step ", step, ": "), text = e.what();
    return text.starts_with(begin) ? text : begin + text;
  };
  try {
    return f();
  } catch (const OutOfMemory& e) {
    throw OutOfMemory(told(e));
  } catch (const Error& e) {
    throw Error(told(e));
  }
}

std::string fixed(double value) {
  char text[64];
  return {text, std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, 4).ptr};
}

}  // namespace

Trainer::Trainer(Module& model, Optimizer& optimizer, TrainerOptions o)
    : options(std::move(o)), model_(model), optimizer_(optimizer) {
  check(options.steps >= 0 && options.minutes >= 0 && options.micro_batches >= 1 &&
            options.evaluate_every >= 0 && options.save_every >= 0 && options.save_minutes >= 0 &&
            options.parts >= 0,
        "Trainer", "steps ", options.steps, ", minutes ", options.minutes, ", micro_batches ",
        options.micro_batches, ", evaluate_every ", options.evaluate_every, ", save_every ",
        options.save_every, ", save_minutes ", options.save_minutes,
        "; micro_batches must be ≥ 1 and the others ≥ 0");
}

Trainer::~Trainer() = default;

int64_t Trainer::parts() const {
  if (options.parts > 0) return options.parts;
  return started_by_mpirun() ? 8 : 1;
}
bool Trainer::cuts() const {
  return parts() > 1 || options.sequence_parallel > 1 || process_group().size() > 1;
}
int64_t Trainer::first_part() const { return cuts() ? parted().first() : 0; }
int64_t Trainer::part_count() const { return cuts() ? parted().count() : 1; }
int64_t Trainer::part() const { return parted_ && parted_->running() ? parted_->part() : 0; }
ProcessGroup* Trainer::sequence_group() const {
  return parted_ ? parted_->sequence_group() : nullptr;
}
Communication Trainer::communication() const {
  return parted_ ? parted_->sums().communication() : Communication();
}

PartedStep& Trainer::parted() const {
  check(options.micro_batches == 1 && !options.cuda_graph, "Trainer",
        "a batch that is cut into parts goes neither with micro_batches nor with cuda_graph");
  const int64_t pieces = options.sequence_parallel;
  if (!parted_ || parted_->parts() != parts() || parted_->pieces() != pieces) {
    // The norm of gradients on a GPU is summed there, of all of them.
    const bool scatter = options.shard_optimizer && model_.device().is_cpu();
    shards_.reset();
    parted_ = std::make_unique<PartedStep>(model_, optimizer_.parameters(), parts(),
                                           process_group(), pieces, scatter);
  }
  return *parted_;
}

OptimizerShards* Trainer::shards() const {
  if (!options.shard_optimizer || process_group().size() == 1) return nullptr;
  PartSums& sums = parted().sums();
  if (!shards_) shards_ = std::make_unique<OptimizerShards>(optimizer_, sums, process_group());
  return shards_.get();
}

double Trainer::clip() const {
  if (cuts() && parted().sums().scatters()) return shards()->clip(options.clip);
  return clip_grad_norm(optimizer_.parameters(), options.clip).item();
}

// While a step is taken.
struct Trainer::InStep {
  explicit InStep(Trainer& t) : trainer(t), micro(t.options.micro_batches) {
    t.micro_ = &micro;
    if (!t.leaves_checked_) t.watch_ = &watch.emplace();
  }
  ~InStep() {
    trainer.micro_ = nullptr;
    trainer.watch_ = nullptr;
  }
  InStep(const InStep&) = delete;
  InStep& operator=(const InStep&) = delete;

  Trainer& trainer;
  MicroBatches micro;
  std::optional<LeafWatch> watch;
};

StepResult Trainer::step(const std::function<Tensor()>& loss, double progress) {
  const int64_t number = step_ + 1, n = options.micro_batches;
  if (options.schedule) optimizer_.set_learning_rate(options.schedule->at(number, progress));
  StepResult result{};
  {
    const InStep scope(*this);
    if (const Device device = model_.device(); device.is_cuda() && !cuts()) {
      loss_ = loss;
      if (captured_batches_ != n) captured_.reset();
      if (options.cuda_graph && !captured_)
        captured_ = std::make_unique<CapturedStep>(device, [this] { return step_on_gpu(); });
      captured_batches_ = n;
      Tensor both;
      const int64_t kind = captured_ && options.step_kind ? options.step_kind(batches_) : 0;
      at_step(number, [&] { both = captured_ ? (*captured_)(kind) : step_on_gpu(); });
      const auto read = both.to_vector<double>();
      check_number(number, "loss", result.loss = read[0]);
      check_number(number, "norm of the gradient", result.gradient_norm = read[1]);
      if (!captured_) at_step(number, [&] { optimizer_.step(); });
    } else {
      if (cuts()) {
        at_step(number, [&] { result.loss = parted()(loss); });
        check_number(number, "loss", result.loss);
      } else {
        result.loss = gradient_on_host(loss);
      }
      check_leaves();
      at_step(number, [&] { result.gradient_norm = clip(); });
      check_number(number, "norm of the gradient", result.gradient_norm);
      shards() ? shards()->step() : optimizer_.step();
    }
  }
  ++step_;
  batches_ += n;
  if (options.average) options.average->update();
  if (options.after_step) options.after_step(result);
  return result;
}

// Of all micro-batches; returns their mean loss.
double Trainer::gradient_on_host(const std::function<Tensor()>& loss) {
  const int64_t number = step_ + 1;
  optimizer_.zero_grad();
  for (int64_t i = 0; i < options.micro_batches; ++i) {
    micro_->begin();
    Tensor value = at_step(number, [&] {
      const Tensor made = loss();
      micro_->end();
      return made;
    });
    const double mean = value.item();
    // The mean of nothing may be 0 / 0.
    const bool nothing = micro_->scores_nothing() && !std::isfinite(mean);
    if (!nothing) check_number(number, "loss", mean);
    at_step(number, [&] {
      value = micro_->weighted(value);
      if (!nothing) value.backward();
    });
  }
  return at_step(number, [&] { return micro_->finish(optimizer_.parameters()).item(); });
}

// The loss and the norm of the gradient, f64 [2], which are read together. A captured step has the
// optimiser's in it, so that nothing is read before.
Tensor Trainer::step_on_gpu() {
  optimizer_.zero_grad();
  for (int64_t i = 0; i < options.micro_batches; ++i) {
    micro_->begin();
    const Tensor loss = loss_();
    micro_->end();
    micro_->weighted(loss).backward();
  }
  const Tensor loss = micro_->finish(optimizer_.parameters());
  check_leaves();
  const Tensor norm = clip_grad_norm(optimizer_.parameters(), options.clip);
  if (captured_) optimizer_.step();
  return cat({loss, norm.to(loss.device()).reshape({1})}, 0);
}

// In the first step: a module that its parent does not know computes, and would never be trained.
// Parameters of other models have optimizers of their own.
void Trainer::check_leaves() {
  if (!watch_) return;
  std::unordered_set<const TapeEntry*> own;
  for (const Tensor& p : model_.root().parameters()) own.insert(p.tape().get());
  for (const TapeEntry* leaf : watch_->leaves()) {
    if (own.contains(leaf)) continue;
    const std::optional<LeafOwner> owner = owner_of(leaf);
    check(!owner || owner->updated, "train", "step ", step_ + 1, ": the ", owner->name, " ",
          leaf->dtype, " ", leaf->shape, " of a ", owner->module,
          " got a gradient, but is a parameter neither of ", model_.root().label(),
          " nor of an optimizer; declare the module as a child, ", owner->module,
          " name{*this, \"name\", …}, or freeze() what is not to be trained");
  }
  watch_ = nullptr;
  leaves_checked_ = true;
}

Tensors Trainer::fed(int64_t batch, const std::function<Tensors(int64_t)>& make, int scored) const {
  if (parted_ && parted_->running()) {
    Tensors there;
    for (const Tensor& x : parted_->cut(batch, make, scored))
      there.push_back(x.to(model_.device()));
    return there;
  }
  const int64_t within = batch - batches_;
  const Tensors there = nn::fed(model_.device(), [=, this] { return make(batches_ + within); });
  if (micro_) micro_->count(there, scored);
  return there;
}

Batch Trainer::fed_batch(int64_t batch, const std::function<Batch(int64_t)>& make) const {
  const Tensors both = fed(
      batch,
      [make](int64_t i) {
        const Batch made = make(i);
        return Tensors{made.inputs, made.targets};
      },
      1);
  return {both[0], both[1]};
}

double Trainer::progress() const {
  return options.steps > 0 ? double(step_) / double(options.steps)
                           : seconds() / (60 * options.minutes);
}

double Trainer::seconds() const { return earlier_seconds_ + (started_ ? now() - *started_ : 0); }

void Trainer::start_clock() { started_ = now(); }

bool Trainer::evaluation_is_due(double before, double after) const {
  if (options.evaluate_every > 0) return step_ % options.evaluate_every == 0;
  return std::floor(20 * after) > std::floor(20 * before);
}

// The clock of the first process is that of all, and one that is asked to stop stops all.
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
  return options.save_minutes > 0 && now() - saved_at_ >= 60 * options.save_minutes;
}

bool Trainer::run(const std::function<Tensor(int64_t)>& loss,
                  const std::function<double()>& validate) {
  check(options.steps > 0 || options.minutes > 0, "Trainer",
        "neither steps nor minutes are set: the run would have no end");
  if (!started_) start_clock();
  const bool leads = process_group().leads();
  check_folder();
  if (!options.folder.empty() && leads) metrics();
  saved_at_ = now();
  std::optional<Progress> bar;
  if (!options.quiet && leads)
    bar.emplace(options.steps, ProgressOptions{.starting_fraction = progress()});
  Progress* const shown = bar ? &*bar : nullptr;
  double speed = 0;  // it and the loss are shown smoothed
  if (unmeasured_) measure(validate, shown, speed);
  Agreed at = agreed();
  while (at.progress < 1) {
    if (at.stop) {
      save_checkpoint();
      return false;
    }
    const double before = at.progress, begin = now();
    int64_t batch = batches_;
    const StepResult result = step([&] { return loss(cuts() ? batch : batch++); }, before);
    const double per_second = options.tokens_per_step / (now() - begin);
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

// A row for the last step. One that is stopped leaves no trace, and is done when the run goes on.
void Trainer::measure(const std::function<double()>& validate, Progress* bar, double speed) {
  const RandomState random = random_state();
  const int64_t peak = memory_stats(model_.device()).peak;
  double valid = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> own;
  try {
    const ShareBatches shared(cuts());
    if (validate) valid = validate();
    for (const MetricColumn& column : options.columns) own.push_back(column.value());
  } catch (...) {
    set_random_state(random);
    throw;
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
    row.insert(row.end(), own.begin(), own.end());
    metrics_->row(row);
  }
  unmeasured_.reset();
  judge(loss, valid);
  if (bar)
    bar->message(str("step ", step_, ": loss ", fixed(loss),
                     validate ? ", validation " + fixed(valid) : std::string(),
                     validate && options.remark ? options.remark(valid) : std::string()));
  if (options.after_evaluation) options.after_evaluation();
}

// All processes keep the best of the first one's evaluations.
void Trainer::judge(double loss, double validation) {
  std::vector<double> of_first{validation, metrics_wait_ ? 1.0 : 0.0};
  if (ProcessGroup& group = process_group(); group.size() > 1)
    of_first = group.all_gather(of_first);
  const bool best = of_first[0] < best_validation_;
  evaluation_ = {step_, loss, validation, best};
  if (!best) return;
  best_validation_ = of_first[0];
  if (!options.keep_best || options.folder.empty()) return;
  if (of_first[1] > 0) save_checkpoint();  // the run that is replaced goes as a whole
  save(best_checkpoint());
}

}  // namespace stretto::nn
