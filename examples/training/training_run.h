// A training program around its model: options, the folder of results, the loop with its progress,
// evaluations and checkpoints, Ctrl-C, and going on from a checkpoint.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/device.h"
#include "core/error.h"
#include "examples/common/error.h"
#include "examples/report/report.h"
#include "examples/training/output_folder.h"
#include "nn/files/safetensors.h"
#include "nn/training/trainer.h"

namespace CLI {
class App;
}

namespace stretto::examples {

/// Texts by name, in an order.
using NamedTexts = std::vector<std::pair<std::string, std::string>>;

/// What a checkpoint does not keep and every program has.
struct RunOptions {
  std::string out;
  std::string resume;
  bool overwrite = false;  // an earlier run, or files of other origin, in `out`
  double minutes = 4;
  int64_t threads = 0;
  int64_t parts = 0;
  bool shard_optimizer = false;
  int64_t sequence_parallel = 1;
  std::string device = "cpu";
  bool cuda_graph = false;
  std::string matmul_precision = "highest";  // Float32MatmulPrecision
  int64_t save_every = 100;
  int64_t evaluate_every = 0;
  bool anomaly = false;
  bool parameters = false;   // no training: the program prints how many its model has, and stops
  bool report_only = false;  // no training: prepare(), begin() and report()
  std::function<bool(const std::string&)> given;  // whether an option is on the command line
  std::function<NamedTexts()> all;                // every option with its value or default
};

void describe(CLI::App& app, RunOptions& options);
/// --sequence-parallel, of programs whose models take pieces of sequences.
void describe_sequence_parallel(CLI::App& app, RunOptions& options);
/// --steps and --seed, which checkpoints keep.
void describe_steps_and_seed(CLI::App& app, int64_t& steps, uint64_t& seed);

std::string fixed(double value, int digits);

/// Of settings as texts, those on the command line must be those of the run of `path`.
void check_same_settings(const nn::Metadata& saved, const nn::Metadata& asked,
                         const RunOptions& options, const std::string& path);

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
  /// Mean loss of a batch to learn from.
  virtual Tensor loss(int64_t step) = 0;
  /// Mean loss of the data that is held out, in nats per token.
  virtual double validate() = 0;
  /// A checkpoint, to checkpoint().
  virtual void save() = 0;
  /// The results, after the last step.
  virtual void report() = 0;
  /// Where there is training, after prepare().
  virtual nn::Trainer& trainer() = 0;
  /// Settings, data and weights by name: what all processes of a run must have the same of, besides
  /// the command line.
  virtual NamedTexts identity() = 0;
  /// How the loss is shown, in loss.svg, loss.png and on the page; what is not known yet is left
  /// out. Each evaluation tells how far it is below or above the least of the references.
  virtual LossCurve loss_curve() = 0;
  /// What a checkpoint keeps of the settings, and the model and the machine in a line: for the
  /// page.
  virtual nn::Metadata notes() = 0;
  virtual std::string about() = 0;
  /// Names in the folder that are written, except those of every training (own_files()).
  virtual std::vector<std::string> files() const = 0;
  /// What is read, --resume left out: no output may be one of these.
  virtual std::vector<RunInput> inputs() const = 0;

  /// Checks the options here, sets threads, the precision of products and anomaly detection, and
  /// returns the device.
  /// Throws UsageError where --sequence-parallel cannot cut sequences of so many positions, of
  /// weights of this dtype.
  void check_sequence_parallel(int64_t length, DType weights) const;
  Device use_device(int64_t steps, double least_bytes, const std::string& smaller);
  /// Where a file of --out is written (OutputFolder::path).
  std::string path(const std::string& name) const;
  /// Where it is when the run is done, to be told.
  std::string final_path(const std::string& name) const;
  std::string checkpoint() const { return final_path("checkpoint.safetensors"); }
  /// loss.svg and loss.png from metrics.csv.
  void draw_curve();

  // What a program makes in report() goes to files of these names, pictures as `name`.svg and
  // `name`.png, and into the page too.
  void show_chart(const std::string& name, const ReportChart& chart);
  void show_maps(const std::string& name, const ReportMaps& maps);
  /// With `name`.mid.
  void show_music(const std::string& name, const std::string& title, const Song& song,
                  const Picture& roll);
  /// Of these there is no file.
  void show(ReportText text) { page_.texts.push_back(std::move(text)); }
  void show(ReportTable table) { page_.tables.push_back(std::move(table)); }

  RunOptions run_;

 private:
  void claim_folder();
  void open_folder();
  bool resumes_here() const;
  std::vector<std::string> all_files() const;
  void save_and_publish();
  bool train();
  int follow();
  void check_same_on_all(const NamedTexts& mine);
  void say_communication();
  std::string stopped();
  std::string beside_counting(double validation);
  void begin_page();
  void write_page(RunState state);
  void try_to_write_page(RunState state);
  void after_evaluation();

  Device device_;
  Report page_;
  bool page_failed_ = false;            // and that was told
  double page_at_ = 0, page_took_ = 0;  // of the last one, in seconds
  std::optional<OutputFolder> folder_;  // of the process that writes
};

}  // namespace stretto::examples
