#include "nn/training/trainer.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <optional>

#include "autograd/tape.h"
#include "core/parse_number.h"
#include "core/storage.h"
#include "nn/distributed/process_group.h"
#include "nn/training/optimizer_shards.h"
#include "nn/training/parted_step.h"
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
  const auto told = [&](const Error& e) { return str("[train] step ", step, ": ", e.what()); };
  try {
    return f();
  } catch (const OutOfMemory& e) {
    throw OutOfMemory(told(e));
  } catch (const Error& e) {
    throw Error(told(e));
  }
}

// The shortest text that reads back equal.
std::string exact(double value) {
  char text[40];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

std::string fixed(double value) {
  char text[64];
  return {text, std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, 4).ptr};
}

// The numbers among a checkpoint's notes.
struct Notes {
  const std::string& path;
  const Metadata& notes;

  void require(bool good, const char* name) const {
    check(good, "load", path, ": its note \"", name, "\" is missing or malformed");
  }
  // False where there is none, which only `needed` forbids.
  bool read(const char* name, double& value, bool needed = false) const {
    const auto note = notes.find(name);
    if (note == notes.end() && !needed) return false;
    require(note != notes.end(), name);
    const std::optional<double> number = parse_double(note->second);
    require(number && std::isfinite(*number), name);
    value = *number;
    return true;
  }
};

}  // namespace

Trainer::Trainer(Module& model, Optimizer& optimizer, TrainerOptions o)
    : options(std::move(o)), model_(model), optimizer_(optimizer) {
  check(options.steps >= 0 && options.minutes >= 0 && options.micro_batches >= 1 &&
            options.evaluate_every >= 0 && options.save_every >= 0 && options.parts >= 0,
        "Trainer", "steps ", options.steps, ", minutes ", options.minutes, ", micro_batches ",
        options.micro_batches, ", evaluate_every ", options.evaluate_every, ", save_every ",
        options.save_every, "; micro_batches must be ≥ 1 and the others ≥ 0");
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

StepResult Trainer::step(const std::function<Tensor()>& loss, double progress) {
  const int64_t number = step_ + 1, n = options.micro_batches;
  if (options.schedule) optimizer_.set_learning_rate(options.schedule->at(number, progress));
  StepResult result{};
  if (const Device device = model_.device(); device.is_cuda() && !cuts()) {
    loss_ = loss;
    if (options.cuda_graph && !captured_)
      captured_ = std::make_unique<CapturedStep>(device, [this] { return step_on_gpu(); });
    Tensor both;
    const int64_t kind = captured_ && options.step_kind ? options.step_kind(step_ * n) : 0;
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
      optimizer_.zero_grad();
      for (int64_t i = 0; i < n; ++i) {
        Tensor value = at_step(number, loss);
        if (n > 1) value = value / double(n);
        check_number(number, "loss", result.loss += value.item());
        at_step(number, [&] { value.backward(); });
      }
    }
    at_step(number, [&] { result.gradient_norm = clip(); });
    check_number(number, "norm of the gradient", result.gradient_norm);
    shards() ? shards()->step() : optimizer_.step();
  }
  ++step_;
  if (options.after_step) options.after_step(result);
  return result;
}

// The loss and the norm of the gradient, f64 [2], which are read together. A captured step has the
// optimiser's in it, so that nothing is read before.
Tensor Trainer::step_on_gpu() {
  optimizer_.zero_grad();
  const int64_t n = options.micro_batches;
  Tensor sum;
  for (int64_t i = 0; i < n; ++i) {
    Tensor value = loss_();
    if (n > 1) value = value / double(n);
    const Tensor part = value.detach().to(f64).reshape({1});
    sum = sum.defined() ? sum + part : part;
    value.backward();
  }
  const Tensor norm = clip_grad_norm(optimizer_.parameters(), options.clip);
  if (captured_) optimizer_.step();
  return cat({sum, norm.to(sum.device()).reshape({1})}, 0);
}

Tensors Trainer::fed(int64_t batch, const std::function<Tensors(int64_t)>& make, int scored) const {
  if (parted_ && parted_->running()) {
    Tensors there;
    for (const Tensor& x : parted_->cut(batch, make, scored))
      there.push_back(x.to(model_.device()));
    return there;
  }
  const int64_t within = batch - step_ * options.micro_batches;
  return nn::fed(model_.device(),
                 [=, this] { return make(step_ * options.micro_batches + within); });
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
  if (group.size() == 1) return {progress(), stop};
  const std::vector<double> all = group.all_gather({progress(), stop ? 1.0 : 0.0});
  Agreed result{all[0], false};
  for (size_t i = 1; i < all.size(); i += 2) result.stop |= all[i] > 0;
  return result;
}

bool Trainer::run(const std::function<Tensor(int64_t)>& loss,
                  const std::function<double()>& validate) {
  check(options.steps > 0 || options.minutes > 0, "Trainer",
        "neither steps nor minutes are set: the run would have no end");
  if (!started_) start_clock();
  const bool leads = process_group().leads();
  if (!options.folder.empty() && leads) metrics();
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
    int64_t batch = step_ * options.micro_batches;
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
    if (options.save_every > 0 && step_ % options.save_every == 0) save_checkpoint();
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
  try {
    const ShareBatches shared(cuts());
    if (validate) valid = validate();
  } catch (...) {
    set_random_state(random);
    throw;
  }
  const double loss = loss_sum_ / loss_weight_;
  if (metrics_)
    metrics_->row({double(step_), seconds(), loss, valid, unmeasured_->learning_rate,
                   unmeasured_->gradient_norm, speed, double(peak)});
  unmeasured_.reset();
  if (bar)
    bar->message(str("step ", step_, ": loss ", fixed(loss),
                     validate ? ", validation " + fixed(valid) : std::string(),
                     validate && options.remark ? options.remark(valid) : std::string()));
  if (options.after_evaluation) options.after_evaluation();
}

MetricsCsv& Trainer::metrics() {
  if (metrics_) return *metrics_;
  std::error_code error;
  std::filesystem::create_directories(options.folder, error);
  check(!error, "train", "cannot make the folder ", options.folder, ": ", error.message());
  const std::string path = in_folder("metrics.csv");
  const std::vector<std::string> columns{
      "step",          "seconds",       "train_loss",        "valid_loss",
      "learning_rate", "gradient_norm", "tokens_per_second", "peak_bytes"};
  return metrics_.emplace(resumed_ ? MetricsCsv::resume(path, columns, step_)
                                   : MetricsCsv(path, columns));
}

void Trainer::save_checkpoint() const {
  if (options.save) return options.save();
  if (!options.folder.empty()) save(checkpoint());
}

void Trainer::check_finite(const std::string& path) const {
  for (const NamedTensor& p : model_.named_parameters())
    for (const double value : p.tensor.to_vector<double>())
      check(std::isfinite(value), "train", "step ", step_, ": ", p.name, " holds ", value,
            "; not saved to ", path);
}

void Trainer::save(const std::string& path, TrainingState state) const {
  check_finite(path);
  state.step = step_;
  state.random = random_state();
  state.notes.insert(options.notes.begin(), options.notes.end());
  const auto note = [&](const char* name, double value) { state.notes[name] = exact(value); };
  if (options.steps == 0) note("seconds", seconds());
  if (loss_weight_ > 0) {
    note("train_loss.sum", loss_sum_);
    note("train_loss.weight", loss_weight_);
  }
  if (unmeasured_) {
    note("unmeasured.gradient_norm", unmeasured_->gradient_norm);
    note("unmeasured.learning_rate", unmeasured_->learning_rate);
  }
  if (cuts()) state.notes["parts"] = std::to_string(parts());
  if (shards()) shards()->gather();
  if (process_group().leads()) nn::save_checkpoint(path, model_, &optimizer_, state);
  if (shards()) shards()->keep_own();
}

TrainingState Trainer::load(const std::string& path) {
  TrainingState state = load_training_state(path);
  check(state.step >= 0, "load", path, ": malformed, its step is ", state.step);
  for (const auto& [name, value] : options.notes) {
    const auto saved = state.notes.find(name);
    check(saved != state.notes.end() && saved->second == value, "load", path, ": has ", name, " ",
          saved == state.notes.end() ? "none" : saved->second, ", this run ", value,
          "; it can only go on with the same");
  }
  const Notes notes{path, state.notes};
  double seconds = 0, sum = 0, weight = 0;
  if (options.steps == 0) notes.read("seconds", seconds, true);
  notes.require(seconds >= 0, "seconds");
  if (notes.read("train_loss.weight", weight)) notes.read("train_loss.sum", sum, true);
  notes.require(weight >= 0 && weight <= 1 + 1e-9, "train_loss.weight");
  std::optional<Unmeasured> unmeasured;
  if (Unmeasured u{}; notes.read("unmeasured.gradient_norm", u.gradient_norm)) {
    notes.read("unmeasured.learning_rate", u.learning_rate, true);
    notes.require(weight > 0, "train_loss.weight");
    unmeasured = u;
  }
  double parts = 1;
  notes.read("parts", parts);
  notes.require(parts >= 1 && parts <= 1 << 20 && parts == std::floor(parts), "parts");
  check(options.parts == 0 || double(options.parts) == parts, "load", path,
        ": its batches are cut into ", int64_t(parts), " parts, those of this run into ",
        options.parts, "; it can only go on with the same");
  state.tensors = load_checkpoint(path, model_, &optimizer_).tensors;
  options.parts = int64_t(parts);
  shards();  // which forgets what is others'
  step_ = state.step;
  earlier_seconds_ = seconds;
  loss_sum_ = sum;
  loss_weight_ = weight;
  unmeasured_ = unmeasured;
  resumed_ = true;
  metrics_.reset();
  return state;
}

std::string Trainer::in_folder(const char* name) const {
  return (std::filesystem::path(options.folder) / name).string();
}

std::string Trainer::checkpoint() const { return in_folder("checkpoint.safetensors"); }

bool Trainer::resume() {
  if (options.folder.empty() || !std::filesystem::exists(checkpoint())) return false;
  load(checkpoint());
  return true;
}

}  // namespace stretto::nn
