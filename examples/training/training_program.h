// A training program: its options and settings, its data, a model that learns, and a report. What a
// program adds to this class is its data, the loss of a step, and what it measures and makes of the
// trained model; what all have is here: the folder of results, the loop with its progress,
// evaluations and checkpoints, Ctrl-C, and resuming from a checkpoint bit for bit.
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
#include "examples/training/output_folder.h"
#include "examples/training/run_options.h"
#include "nn/optim/optim.h"
#include "nn/training/trainer.h"

namespace stretto::examples {

std::string fixed(double value, int digits);

/// Linear warm-up, then half a cosine to a hundredth of the peak: over the steps, or, where their
/// number is 0, over the share of the run's time that has passed.
nn::WarmupCosine cosine_of(const ModelSettings& settings);

/// A program also has declare(OptionList&), which run_program calls (common/command_line.h), and
/// its settings, a ModelSettings with more members.
class TrainingProgram {
 public:
  explicit TrainingProgram(RunOptions options) : run_(std::move(options)) {}
  virtual ~TrainingProgram() = default;
  TrainingProgram(const TrainingProgram&) = delete;
  TrainingProgram& operator=(const TrainingProgram&) = delete;

  /// Everything after the command line; returns the exit code.
  virtual int run();

  // Of a program that has a model and a trainer.
  nn::Trainer& trainer() { return *trainer_; }
  int64_t step() const { return trainer_->steps_done(); }
  /// One update, as nn::Trainer::step.
  nn::StepResult train_step(double progress) {
    return trainer_->step([&] { return loss(step()); }, progress);
  }
  void save(const std::string& path) const;
  /// Continues from a checkpoint of the same settings. Throws Error or UsageError for any other
  /// file, and for one that was trained on other data.
  void load(const std::string& path);

 protected:
  // A program is made of these, called in this order.

  /// Makes the settings of presets, the command line and --resume, checks them and all other
  /// options: throws UsageError.
  virtual void resolve() = 0;
  /// For --parameters: the number, after a line about the model that it may print.
  virtual int64_t count_parameters() = 0;
  /// Reads the data and makes the model and its trainer, and sets files_ and curve_: finds all that
  /// can be wrong, before anything is written, and throws UsageError. Calls use_device() before it
  /// makes tensors.
  virtual void prepare() = 0;
  /// First words, and files that belong to the data.
  virtual void begin() = 0;
  /// Mean loss of batch `step` of the data to learn from, in nats per token.
  virtual Tensor loss(int64_t step) = 0;
  /// Mean loss of the data that is held out, in nats per token.
  virtual double validate() = 0;
  /// The results, after the last step.
  virtual void report() = 0;

  /// More that a checkpoint keeps: adds it to what is saved, and takes it from what was read, or
  /// throws UsageError naming `path`.
  virtual void keep(nn::TrainingState&) const {}
  virtual void take(const nn::TrainingState&, const std::string& /*path*/) {}

  /// Sets threads, the precision of products, anomaly detection and the device. Throws UsageError
  /// for --minutes beside `steps`, for a device that is not there, and on a CPU where a model that
  /// takes more than `least_bytes` finds less memory free; `smaller` names options that help.
  void use_device(
      int64_t steps, double least_bytes,
      const std::string& smaller = "--layers, --d-model, --d-hidden, --length or --batch");
  /// Throws UsageError where --sequence-parallel cannot cut sequences of so many positions, of
  /// weights of this dtype.
  void check_sequence_parallel(int64_t length, DType weights) const;
  /// Makes the model, which lives as long as the program: its first values are a function of the
  /// seed alone, or with --evaluate those of --resume. UsageError for what the file or the device
  /// refuses.
  template <class Model, class Settings>
  Model* make_model(const typename Model::Options& options, const Settings& settings) {
    settings_ = settings;
    notes_ = settings_to_notes(settings);
    return as_usage([&] {
      if (!run_.report_only) manual_seed(settings.seed);
      auto made = std::make_unique<Model>(options);
      Model* model = made.get();
      model_ = std::move(made);
      if (run_.report_only) load_model();
      return model;
    });
  }
  /// What a checkpoint knows of the data: their fingerprint, which may still be in the making, and
  /// what load() says of others, with their option: "chorales than those of --data".
  struct Data {
    Data(std::string fingerprint_, std::string others_);
    Data(std::shared_future<std::string> fingerprint_, std::string others_)
        : fingerprint(std::move(fingerprint_)), others(std::move(others_)) {}

    std::shared_future<std::string> fingerprint;
    std::string others;
  };
  /// Makes the trainer of the model and moves both to the device, where --resume left them if that
  /// is given. `tokens` are those of a step, for the speed. UsageError as above.
  void make_trainer(std::unique_ptr<nn::Optimizer> optimizer, nn::Schedule schedule, Data data,
                    int64_t tokens);
  /// Adam of the model's parameters as Vaswani et al. 2017 set it (§5.3), with weight decay.
  std::unique_ptr<nn::Optimizer> adamw(double weight_decay) const;

  /// Where a file of --out is written (OutputFolder::path).
  std::string path(const std::string& name) const;
  /// "1,000 parameters, 1 thread, AVX-512 …"
  std::string model_and_machine() const;
  /// "Saved out/checkpoint.safetensors after 100 steps".
  std::string saved() const {
    return str("Saved ", checkpoint_path(), " after ", step(), " steps");
  }
  std::string checkpoint_path() const { return final_path("checkpoint.safetensors"); }
  /// loss.svg and loss.png from metrics.csv.
  void draw_curve();
  /// Prints "  name  value", the name over `width` columns, and adds it to the table, there as
  /// `name` alone where it is printed with `before` in front.
  static void add_row(ReportTable& table, int width, const std::string& name,
                      const std::string& value, const std::string& before = "");

  // Adds the files of show_chart and show_maps, or of show_music, to files_.
  void list_picture(const std::string& name);
  void list_music(const std::string& name);

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
  /// Names in the folder that are written, except those of every training (all_files()).
  std::vector<std::string> files_;
  /// How the loss is shown, in loss.svg, loss.png and on the page; what is not known yet is left
  /// out. Each evaluation tells how far it is below or above the least of the references.
  LossCurve curve_;

 private:
  void load_model();
  NamedTexts identity() const;
  std::string final_path(const std::string& name) const;
  void claim_folder();
  void open_folder();
  bool resumes_here() const;
  std::vector<std::string> all_files() const;
  void save_and_publish();
  void set_trainer_options();
  void finish(bool done);
  std::string stopped();
  std::string beside_counting(double validation) const;
  void say_communication();
  void begin_page();
  void write_page(RunState state);
  void try_to_write_page(RunState state);
  void after_evaluation();

  Device device_;
  ModelSettings settings_;
  nn::Metadata notes_;  // of the settings
  std::optional<Data> trained_data_;
  std::unique_ptr<nn::Module> model_;
  std::unique_ptr<nn::Optimizer> optimizer_;
  std::optional<nn::Trainer> trainer_;
  Report page_;
  bool page_failed_ = false;            // and that was told
  double page_at_ = 0, page_took_ = 0;  // of the last one, in seconds
  std::optional<OutputFolder> folder_;  // of the process that writes
};

}  // namespace stretto::examples
