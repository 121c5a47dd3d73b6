// A training program around its model: options, the folder of results, the loop with its progress,
// evaluations and checkpoints, Ctrl-C, and going on from a checkpoint.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/error.h"
#include "examples/common/error.h"
#include "examples/common/folder_lock.h"
#include "examples/plot/chart.h"
#include "examples/training/metrics.h"
#include "examples/training/training.h"
#include "examples/training/training_file.h"
#include "nn/files/safetensors.h"

namespace CLI {
class App;
}

namespace stretto::examples {

class Progress;

/// What a checkpoint does not keep and every program has.
struct RunOptions {
  std::string out;
  std::string resume;
  bool overwrite = false;  // a checkpoint of another run in `out`
  double minutes = 4;
  int64_t threads = 0;
  std::string device = "cpu";
  int64_t save_every = 100;
  int64_t evaluate_every = 0;
  bool anomaly = false;
  bool parameters = false;   // no training: the program prints how many its model has, and stops
  bool report_only = false;  // no training: prepare(), begin() and report()
  std::function<bool(const std::string&)> given;  // whether an option is on the command line
};

void describe(CLI::App& app, RunOptions& options);
/// --steps and --seed, which checkpoints keep.
void describe_steps_and_seed(CLI::App& app, int64_t& steps, uint64_t& seed);

std::string fixed(double value, int digits);

/// The library's complaints about a user's file or device are the user's to mend, but too little
/// memory is not.
template <class F>
auto as_usage(F&& f) {
  try {
    return f();
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error& e) {
    throw UsageError(e.what());
  }
}

/// Of settings as texts, those on the command line must be those of the run of `path`.
void check_same_settings(const nn::Metadata& saved, const nn::Metadata& asked,
                         const RunOptions& options, const std::string& path);

/// A model that no memory can hold is refused here; what cannot be foreseen throws OutOfMemory
/// later, before the system would end a program at random. `smaller` names options that help.
void check_memory(double least_bytes, const std::string& smaller);

/// Where a training stands.
struct RunState {
  int64_t step = 0;   // steps done
  int64_t steps = 0;  // steps in all; 0: the run goes by the clock
  double learning_rate = 0;
};

class TrainingRun {
 public:
  explicit TrainingRun(RunOptions options) : run_(std::move(options)) {}
  virtual ~TrainingRun() = default;
  /// Everything; returns the exit code.
  int operator()();

 protected:
  // A program is made of these, called in this order.

  /// Finds all that can be wrong, before anything is written: throws UsageError. Calls
  /// use_device() before it makes tensors.
  virtual void prepare() = 0;
  /// First words, and files that belong to the data.
  virtual void begin() = 0;
  virtual StepResult train_step(double progress) = 0;
  /// Mean loss of the data that is held out, in nats per token.
  virtual double validate() = 0;
  virtual void save(const std::string& path, const RunProgress& progress) const = 0;
  /// The results, after the last step.
  virtual void report() = 0;
  virtual RunState state() const = 0;
  /// Tokens of a step, for the speed.
  virtual double tokens_per_step() const = 0;
  /// Names in the folder that are replaced.
  virtual std::vector<std::string> files() const = 0;

  /// Checks the options here, sets threads and anomaly detection, and returns the device.
  Device use_device(int64_t steps, double least_bytes, const std::string& smaller) const;
  std::string path(const std::string& name) const;
  std::string checkpoint() const { return path("checkpoint.safetensors"); }
  double seconds() const;
  /// loss.png from metrics.csv, nats times `scale`.
  void draw_curve(const std::string& title, const std::string& unit, double scale,
                  const std::vector<ReferenceLine>& references) const;

  RunOptions run_;
  RunProgress earlier_;  // where the run that is resumed was

 private:
  void claim_folder();
  void open_folder();
  void train();
  void measure(Progress& bar, double rate);
  void save_checkpoint() const;
  std::string stopped() const;
  double progress() const;
  bool evaluation_is_due(double before) const;

  std::optional<FolderLock> lock_;
  std::optional<MetricsCsv> metrics_;
  RunProgress so_far_;  // but for its seconds
  double started_ = 0;
};

}  // namespace stretto::examples
