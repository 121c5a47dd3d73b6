// The files of a run: checkpoints, metrics and resuming from them.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "autograd/profile.h"
#include "core/parse_number.h"
#include "nn/distributed/process_group.h"
#include "nn/optim/weight_average.h"
#include "nn/training/stop_signals.h"
#include "nn/training/training_step.h"

namespace stretto::nn {
namespace {

constexpr const char* waiting_metrics = "metrics.csv.new";
constexpr const char* previous_checkpoint = "checkpoint.previous.safetensors";
constexpr const char* average_note = "trainer.average_updates";
constexpr std::string_view average_prefix = "average.";

// The settings of an optimization that a resumed run must share.
std::string rate_of(const TrainerOptions& options, const Optimizer& optimizer) {
  if (options.schedule) return options.schedule->text();
  return str("none, lr ", optimizer.given_learning_rate().value_or(1e-3));
}
std::string groups_of(const Optimizer& optimizer) {
  std::set<std::string> kinds;
  for (const ParameterGroup& g : optimizer.groups())
    kinds.insert(str("lr_scale ", g.lr_scale, g.lr_factor ? " with lr_factor" : "",
                     ", weight_decay ", *g.weight_decay));
  std::string all;
  for (const std::string& kind : kinds) all += (all.empty() ? "" : "; ") + kind;
  return all;
}

// Reads numbers from the metadata of a checkpoint.
struct Notes {
  const std::string& path;
  const Metadata& notes;

  void require(bool good, const char* name) const {
    check(good, "load", path, ": metadata \"", name, "\" is missing or malformed");
  }
  // Returns false if the key is missing; with `needed` that is an error.
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

// The path of a file of another run in the folder, or "".
std::string Trainer::other_run() const {
  namespace fs = std::filesystem;
  std::error_code none;
  const fs::path folder(options.folder);
  if (!last_checkpoint_.empty()) {
    const fs::path from = fs::path(last_checkpoint_).parent_path();
    if (fs::equivalent(from.empty() ? "." : from, folder, none)) return "";
  }
  for (const std::string& checkpoint : {checkpoint_path(), in_folder(previous_checkpoint)})
    if (fs::exists(checkpoint, none)) return checkpoint;
  std::string path = in_folder("metrics.csv");
  std::ifstream file(path);
  std::string line;
  for (int lines = 0; std::getline(file, line);)
    if (++lines > 1) return path;
  return "";
}

void Trainer::check_folder() const {
  ProcessGroup& group = process_group();
  std::string other;
  if (group.is_root() && !metrics_ && !options.folder.empty()) other = other_run();
  if (group.size() > 1) other = group.all_gather(other)[0];
  refuse(other);
}

void Trainer::refuse(const std::string& other) const {
  check(other.empty() || options.overwrite, "Trainer", other,
        " belongs to another run; resume() continues a run that has a checkpoint, and ",
        ".overwrite = true replaces it");
}

MetricsCsv& Trainer::metrics() {
  if (metrics_) return *metrics_;
  const std::string other = other_run();
  refuse(other);
  std::error_code error;
  std::filesystem::create_directories(options.folder, error);
  check(!error, "train", "cannot create the folder ", options.folder, ": ", error.message());
  std::vector<std::string> columns{
      "step",          "seconds",       "train_loss",        "valid_loss",
      "learning_rate", "gradient_norm", "tokens_per_second", "peak_bytes"};
  for (const MetricColumn& column : options.columns) columns.push_back(column.name);
  metrics_wait_ = !other.empty();
  if (metrics_wait_) return metrics_.emplace(in_folder(waiting_metrics), columns);
  const std::string path = in_folder("metrics.csv");
  // An earlier resume may have made the evaluation that is due, and ended before its checkpoint.
  const int64_t measured = unmeasured_ ? step_ - 1 : step_;
  return metrics_.emplace(last_checkpoint_.empty() ? MetricsCsv(path, columns)
                                                   : MetricsCsv::resume(path, columns, measured));
}

// Gives the last saved or loaded checkpoint a second name before it is replaced, if a successful
// step has followed it. Otherwise its weights may be destroyed, which only the next step shows.
void Trainer::keep_previous() {
  namespace fs = std::filesystem;
  const bool is_good = std::exchange(has_stepped_, false);
  if (!is_good || options.folder.empty() || metrics_wait_ || !process_group().is_root()) return;
  std::error_code error;
  if (!fs::equivalent(last_checkpoint_, checkpoint_path(), error)) return;
  fs::remove(in_folder(previous_checkpoint), error);
  fs::create_hard_link(checkpoint_path(), in_folder(previous_checkpoint), error);
}

// Saves a checkpoint. At the first checkpoint of a run, its metrics also replace the metrics of the
// old run in the folder.
void Trainer::save_checkpoint() {
  namespace fs = std::filesystem;
  const DelaySignals delay;
  keep_previous();
  if (options.save) {
    options.save();
  } else if (!options.folder.empty()) {
    save(checkpoint_path());
  }
  if (!options.folder.empty()) last_checkpoint_ = checkpoint_path();
  saved_at_ = steady_seconds();
  if (!std::exchange(metrics_wait_, false)) return;
  std::error_code error;
  fs::rename(in_folder(waiting_metrics), in_folder("metrics.csv"), error);
  check(!error, "train", "cannot replace ", in_folder("metrics.csv"), ": ", error.message());
  metrics_->moved_to(in_folder("metrics.csv"));
  fs::remove(in_folder(previous_checkpoint), error);
  if (!options.keep_best) fs::remove(best_checkpoint_path(), error);
}

void Trainer::check_finite(const std::string& path) const {
  for (const NamedTensor& p : model_.named_parameters()) {
    if (!options.save_frozen && !p.tensor.requires_grad()) continue;
    for (const double value : p.tensor.to_vector<double>())
      check(std::isfinite(value), "train", "step ", step_, ": ", p.name, " holds ", value,
            "; not saved to ", path);
  }
}

void Trainer::save(const std::string& path, TrainingState state) const {
  check_finite(path);
  state.step = step_;
  state.random = random_state();
  state.metadata.insert(options.metadata.begin(), options.metadata.end());
  const auto note = [&](const char* name, double value) {
    state.metadata[name] = exact_text(value);
  };
  state.metadata["trainer.schedule"] = rate_of(options, optimizer_);
  state.metadata["trainer.groups"] = groups_of(optimizer_);
  if (options.steps == 0) note("trainer.seconds", seconds());
  if (loss_weight_ > 0) {
    note("trainer.train_loss.sum", loss_sum_);
    note("trainer.train_loss.weight", loss_weight_);
  }
  if (options.keep_best && std::isfinite(best_validation_))
    note("trainer.best_validation", best_validation_);
  if (unmeasured_) {
    note("trainer.unmeasured.gradient_norm", unmeasured_->gradient_norm);
    note("trainer.unmeasured.learning_rate", unmeasured_->learning_rate);
  }
  TrainingStep& step = training_step();
  if (step.cuts_batches())
    state.metadata["trainer.micro_batches"] = std::to_string(n_micro_batches());
  save_average(state);
  step.gather_state();
  if (process_group().is_root())
    nn::save_checkpoint(path, model_, &optimizer_, state, {.frozen = options.save_frozen});
  step.keep_own_state();
}

void Trainer::save_average(TrainingState& state) const {
  if (!options.average) return;
  state.metadata[average_note] = std::to_string(options.average->updates());
  for (const NamedTensor& n : options.average->tensors())
    state.tensors.push_back({std::string(average_prefix) + n.name, n.tensor});
}

// Moves the average out of the tensors of a checkpoint.
void Trainer::load_average(TrainingState& state, int64_t updates) {
  std::vector<NamedTensor> averages, others;
  for (const NamedTensor& n : state.tensors) {
    if (n.name.starts_with(average_prefix)) {
      averages.push_back({n.name.substr(average_prefix.size()), n.tensor});
    } else {
      others.push_back(n);
    }
  }
  options.average->load(averages, updates);
  state.tensors = std::move(others);
}

TrainingState Trainer::load(const SafetensorsFile& file) {
  const std::string& path = file.path();
  TrainingState state = load_training_state(file);
  check(state.step >= 0, "load", path, ": malformed, its step is ", state.step);
  for (const auto& [name, value] : options.metadata) {
    const auto saved = state.metadata.find(name);
    check(saved != state.metadata.end() && saved->second == value, "load", path, ": has ", name,
          " ", saved == state.metadata.end() ? "none" : saved->second, ", this run ", value,
          "; a run can only be resumed with equal settings");
  }
  const auto compare = [&](const std::string& name, const std::string& value, const char* change) {
    const auto saved = state.metadata.find("trainer." + name);
    if (saved == state.metadata.end()) return;  // not saved by a Trainer
    check(saved->second == value, "load", path, ": has ", name, " ", saved->second, ", this run ",
          value, "; a run can only be resumed with equal settings; ", change);
  };
  compare("schedule", rate_of(options, optimizer_),
          "to change the rate, set Trainer::options.schedule, or call set_learning_rate() of the "
          "optimizer, after loading");
  compare("groups", groups_of(optimizer_), "load_checkpoint() does not compare them");
  const Notes notes{path, state.metadata};
  double seconds = 0, sum = 0, weight = 0;
  if (options.steps == 0) notes.read("trainer.seconds", seconds, true);
  notes.require(seconds >= 0, "trainer.seconds");
  if (notes.read("trainer.train_loss.weight", weight))
    notes.read("trainer.train_loss.sum", sum, true);
  notes.require(weight >= 0 && weight <= 1 + 1e-9, "trainer.train_loss.weight");
  std::optional<Unmeasured> unmeasured;
  if (Unmeasured u{}; notes.read("trainer.unmeasured.gradient_norm", u.gradient_norm)) {
    notes.read("trainer.unmeasured.learning_rate", u.learning_rate, true);
    notes.require(weight > 0, "trainer.train_loss.weight");
    unmeasured = u;
  }
  double best = std::numeric_limits<double>::infinity();
  notes.read("trainer.best_validation", best);
  double micro_batches = 1;
  notes.read("trainer.micro_batches", micro_batches);
  notes.require(
      micro_batches >= 1 && micro_batches <= 1 << 20 && micro_batches == std::floor(micro_batches),
      "trainer.micro_batches");
  check(options.micro_batches == 0 || double(options.micro_batches) == micro_batches, "load", path,
        ": has micro_batches ", int64_t(micro_batches), ", this run ", options.micro_batches,
        "; a run can only be resumed with equal settings");
  const int processes = process_group().size();
  check(int64_t(micro_batches) * options.sequence_parallel % processes == 0, "load", path,
        ": has micro_batches ", int64_t(micro_batches), ", this run ", processes,
        " processes; a run can only be resumed with a number of processes that divides ",
        options.sequence_parallel > 1 ? "micro_batches times sequence_parallel" : "micro_batches");
  const bool averaged = state.metadata.contains(average_note);
  check(averaged == (options.average != nullptr), "load", path,
        averaged ? ": has a weight average, but options.average is not set"
                 : ": has no weight average; set options.average after loading");
  double updates = 0;
  if (averaged) notes.read(average_note, updates);
  state.tensors = load_checkpoint(file, model_, &optimizer_).tensors;
  if (averaged) load_average(state, int64_t(updates));
  if (int64_t(micro_batches) != this->n_micro_batches()) training_step_.reset();
  options.micro_batches = int64_t(micro_batches);
  training_step().keep_own_state();
  step_ = state.step;
  ranks_agree_ = false;
  has_stepped_ = false;
  best_validation_ = best;
  evaluation_.reset();
  earlier_seconds_ = seconds;
  loss_sum_ = sum;
  loss_weight_ = weight;
  unmeasured_ = unmeasured;
  last_checkpoint_ = path;
  metrics_.reset();
  return state;
}

std::string Trainer::in_folder(const char* name) const {
  return (std::filesystem::path(options.folder) / name).string();
}

std::string Trainer::checkpoint_path() const { return in_folder("checkpoint.safetensors"); }

std::string Trainer::best_checkpoint_path() const { return in_folder("best.safetensors"); }

bool Trainer::resume() {
  if (options.folder.empty() || !std::filesystem::exists(checkpoint_path())) return false;
  load(checkpoint_path());
  return true;
}

}  // namespace stretto::nn
