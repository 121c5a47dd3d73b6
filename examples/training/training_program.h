// The base class of all training programs: options and settings, data, a model that learns, and a
// report. A program adds its data, the loss of a step, and the evaluation and use of the trained
// model. The base class has the rest: the folder of results, the training loop with progress,
// evaluations and checkpoints, Ctrl-C, and bit-exact resumption.
#pragma once

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/device.h"
#include "core/random.h"
#include "examples/common/error.h"
#include "examples/common/words.h"
#include "examples/report/report.h"
#include "examples/training/model_settings.h"
#include "examples/training/optimizer.h"
#include "examples/training/output_folder.h"
#include "examples/training/run_options.h"
#include "nn/optim/optim.h"
#include "nn/training/trainer.h"

namespace stretto::examples {

std::string fixed(double value, int digits);

/// A program also has declare(OptionList&), which run_program calls (common/command_line.h), and
/// its settings: a TrainingSettings with more members.
class TrainingProgram {
 public:
  explicit TrainingProgram(RunOptions options) : run_(std::move(options)) {}
  virtual ~TrainingProgram() = default;
  TrainingProgram(const TrainingProgram&) = delete;
  TrainingProgram& operator=(const TrainingProgram&) = delete;

  /// Runs everything after the command line is parsed; returns the exit code.
  virtual int run();

  // For programs that have a model and a trainer.
  nn::Trainer& trainer() { return *trainer_; }
  int64_t step() const { return trainer_->steps_done(); }
  /// Makes one update, as nn::Trainer::step.
  nn::StepResult train_step(double progress) {
    return trainer_->step([&] { return loss(step()); }, progress);
  }
  void save(const std::string& path) const;
  /// Continues from a checkpoint with the same settings. Throws Error or UsageError for any other
  /// file and for a checkpoint that was trained on other data.
  void load(const nn::SafetensorsFile& file);
  void load(const std::string& path) { load(nn::SafetensorsFile(path)); }

 protected:
  // The steps of a program, called in this order.

  /// Determines the settings from presets, the command line and --resume, and checks them and all
  /// other options. Throws UsageError.
  virtual void resolve() = 0;
  /// Returns the number of parameters for --parameters; may print a line about the model first.
  virtual int64_t count_parameters() = 0;
  /// Reads the data, creates the model and its trainer, and sets files_ and curve_. Finds
  /// all errors before anything is written; throws UsageError. Must call use_device()
  /// before creating tensors.
  virtual void prepare() = 0;
  /// Prints an introduction and writes the files that describe the data.
  virtual void begin() = 0;
  /// Returns the mean loss of training batch `step`, in nats per token.
  virtual Tensor loss(int64_t step) = 0;
  /// Returns the mean loss of the held-out data, in nats per token.
  virtual double validate() = 0;
  /// Reports the results after the last step.
  virtual void report() = 0;
  /// Returns text to print after a validation loss: its distance to the lowest reference line of
  /// curve_, ", baseline 0.9038: 0.1252 below", or "".
  virtual std::string annotation(double validation) const;

  /// State of a program beyond the model's, for checkpoints: keep() adds it to the state to save;
  /// take() restores it from a loaded state, or throws UsageError naming `path`.
  virtual void keep(nn::TrainingState&) const {}
  virtual void take(const nn::TrainingState&, const std::string& /*path*/) {}

  /// Sets threads, matmul precision, anomaly detection and the device. Throws UsageError if
  /// --minutes is combined with `steps`, if the device does not exist, and, on a CPU, if less
  /// memory is free than `least_bytes`; `smaller` names the options that reduce it.
  void use_device(
      int64_t steps, double least_bytes,
      const std::string& smaller = "--layers, --d-model, --d-hidden, --length or --batch");
  /// Throws UsageError if --sequence-parallel cannot split sequences of `length` positions in a
  /// model with weights of this dtype.
  void check_sequence_parallel(int64_t length, DType weights) const;
  /// Creates the model, which lives as long as the program. Its initial values depend only on
  /// the seed; with --evaluate they come from --resume. Throws UsageError for errors of the
  /// file or the device.
  template <class Model, class Settings>
  Model* make_model(const typename Model::Options& options, const Settings& settings) {
    return as_usage([&] {
      if (!run_.report_only) manual_seed(settings.seed);
      const auto model = std::make_shared<Model>(options);
      use_model(model, settings);
      if (run_.report_only) load_model();
      return model.get();
    });
  }
  /// Uses a model that exists already.
  template <class Settings>
  void use_model(std::shared_ptr<nn::Module> model, const Settings& settings) {
    settings_ = settings;
    notes_ = settings_to_metadata(settings);
    model_ = std::move(model);
  }
  /// The data of a run, as a checkpoint identifies them: a fingerprint, which another thread may
  /// still compute, and the end of the error "was trained on other …", such as "chorales than those
  /// of --data".
  struct Data {
    Data(std::string fingerprint_, std::string others_);
    Data(std::shared_future<std::string> fingerprint_, std::string others_)
        : fingerprint(std::move(fingerprint_)), others(std::move(others_)) {}

    std::shared_future<std::string> fingerprint;
    std::string others;
  };
  /// Creates the trainer and moves the model and the trainer's state to the device, resuming from
  /// --resume if it is given. `tokens` is the number of tokens per step, for the reported speed.
  /// Throws UsageError as make_model does.
  void make_trainer(std::unique_ptr<nn::Optimizer> optimizer, nn::Schedule schedule, Data data,
                    int64_t tokens);
  /// Returns the optimizer of the settings for the parameters of the model that are not frozen,
  /// with these options of AdamW; their learning rate is ignored.
  std::unique_ptr<nn::Optimizer> optimizer(nn::AdamW::Options options) const {
    return make_optimizer(*model_, settings_, options);
  }
  /// Returns the constants of Vaswani et al. 2017 (§5.3) with decoupled weight decay.
  static nn::AdamW::Options vaswani_adam(double weight_decay) {
    return {.beta2 = 0.98, .eps = 1e-9, .weight_decay = weight_decay};
  }

  /// Returns the path to write a file of --out to (OutputFolder::path).
  std::string path(const std::string& name) const;
  /// Returns "1,000 parameters, 1 thread, AVX-512 …".
  std::string model_and_machine() const;
  /// Returns "Saved out/checkpoint.safetensors after 100 steps".
  std::string saved() const {
    return str("Saved ", checkpoint_path(), " after ", step(), " steps");
  }
  std::string checkpoint_path() const { return final_path("checkpoint.safetensors"); }
  /// Draws loss.svg from metrics.csv.
  void draw_curve();
  /// Prints "  name  value", with the name `width` columns wide, and adds the row to the table.
  /// `before` is put in front of the name only in the printed line.
  static void add_row(ReportTable& table, int width, const std::string& name,
                      const std::string& value, const std::string& before = "");
  /// Prints losses as a table, with `more` after its title, and adds it to the page. `before` is
  /// put in front of the last name only in the printed line.
  void show_losses(const std::string& title, const std::string& more,
                   const std::vector<std::pair<std::string, double>>& losses,
                   const std::string& before = "");

  /// Adds the files of show_music() to files_.
  void list_music(const std::string& name);

  // Write a result of report() to `name`.svg, and add it to the page.
  void show_chart(const std::string& name, const ReportChart& chart);
  void show_maps(const std::string& name, const ReportMaps& maps);
  /// Writes `name`.mid, too.
  void show_music(const std::string& name, const std::string& title, const music::Song& song,
                  const std::string& roll);
  /// Add a text or a table to the page only.
  void show(ReportText text) { page_.texts.push_back(std::move(text)); }
  void show(ReportTable table) { page_.tables.push_back(std::move(table)); }

  RunOptions run_;
  /// The files that this program writes, in addition to those of every training (all_files()).
  std::vector<std::string> files_;
  /// How the loss is shown in loss.svg and on the page. References that are not known yet are left
  /// out.
  LossCurve curve_;

 private:
  void load_model();
  void check_ranks_agree();
  std::string final_path(const std::string& name) const;
  void claim_folder();
  void open_folder();
  bool resumes_here() const;
  std::vector<std::string> all_files() const;
  void save_and_publish();
  void set_trainer_options();
  void finish(bool done);
  std::string stopped();
  void say_communication();
  void begin_page();
  void write_page(RunState state);
  void try_to_write_page(RunState state);
  void after_evaluation();

  Device device_;
  TrainingSettings settings_;
  nn::Metadata notes_;  // the settings as metadata
  std::optional<Data> trained_data_;
  std::shared_ptr<nn::Module> model_;
  std::unique_ptr<nn::Optimizer> optimizer_;
  std::optional<nn::Trainer> trainer_;
  Report page_;
  bool page_failed_ = false;            // a failure was reported
  double page_at_ = 0, page_took_ = 0;  // end and duration of the last write, in seconds
  std::optional<OutputFolder> folder_;  // only in rank 0, which writes
};

}  // namespace stretto::examples
