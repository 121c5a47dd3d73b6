// The settings of lra: task and data, model, optimizer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/lra/listops.h"
#include "examples/training/model_settings.h"
#include "nn/files/safetensors.h"
#include "nn/models/classifier.h"

namespace stretto::examples {

struct LraSettings;

/// Returns the names accepted by --task. The table is in lra_tables.cpp.
std::vector<std::string> lra_tasks();

/// Constants of a task and its published configuration.
struct LraTask {
  int64_t n_classes = 2;
  bool pairs = false;
  int64_t (*vocabulary)(const LraSettings&) = nullptr;
  nn::SequenceClassifier::Options (*published)() = nullptr;
  // The published training: AdamW with β 0.9 and 0.98, eps 1e-9, weight decay on all parameters,
  // no gradient clipping.
  int64_t max_length = 0;
  int64_t batch = 8;
  double base_rate = 0;  ///< rsqrt: rate · √step after the warm-up; cycles: the peak
  int64_t warmup = 0;
  int64_t cycle = 0;  ///< > 0: the schedule is cycles
  int64_t steps = 0;
  double weight_decay = 0.1;
};
/// Returns the task of that name. Throws UsageError, listing the names, for any other name.
const LraTask& lra_task(const std::string& name);
/// Parses cls, first or mean. Throws UsageError for any other name.
nn::Pooling lra_pooling(const std::string& name);

/// All settings are stored in the checkpoint. With the same settings and data every step is
/// bit-identical, whatever the number of threads.
struct LraSettings : ModelSettings {
  LraSettings()
      : ModelSettings{.layers = 6,
                      .d_model = 512,
                      .heads = 8,
                      .d_hidden = 2048,
                      .activation = "gelu_tanh",
                      .features = 256,
                      .redraw = 1,
                      .position = "sinusoid",
                      .sines = 10} {
    learning_rate = 4e-4;
    warmup = 1000;
    schedule = "rsqrt";
  }
  static std::vector<std::string> schedule_names() { return {"cosine", "cycles", "rsqrt", "wsd"}; }

  std::string task = "listops";  ///< one of lra_tasks()
  // Generated ListOps: the number of training expressions, of validation and of test
  // expressions, and ListOpsOptions.
  int64_t expressions = 96'000;
  int64_t held_out_expressions = 2000;
  int64_t min_expression = 500, max_expression = 2000, max_depth = 10, max_args = 10;
  bool strip_brackets = false;
  double held_out = 0.1;  ///< fraction of --data without --validation

  std::string pooling = "cls";  ///< cls, first or mean
  int64_t max_length = 2000;    ///< longer texts are truncated
  bool attend_to_padding = true;

  int64_t cycle = 0;
  double weight_decay = 0.1;

  template <class S, class F>
  static void each(S& s, F&& f) {
    f("task", s.task, "Task: " + joined(lra_tasks()), known_to(lra_task));
    f("held_out", s.held_out,
      "Without --validation: fraction of each class of the data held out, chosen by --seed",
      require_fraction);
    each_of_run(s, f);
    f("expressions", s.expressions, "Number of generated training expressions (listops)",
      between(1, 10'000'000));
    f("held_out_expressions", s.held_out_expressions,
      "Number of generated expressions for validation, and again for testing (listops)",
      between(1, 10'000'000));
    f("min_expression", s.min_expression,
      "Generated expressions have more tokens than this (listops)", between(0, 60'000));
    f("max_expression", s.max_expression,
      "Generated expressions have fewer tokens than this (listops)",
      between(s.min_expression + 2, 60'000));
    f("max_depth", s.max_depth, "Maximum nesting depth (listops)", between(1, 100));
    f("max_args", s.max_args, "Maximum number of arguments of an operator (listops)",
      between(2, 100));
    f("strip_brackets", s.strip_brackets,
      "Drop closing brackets, as in the published results (listops)", any_value);
    f("pooling", s.pooling,
      "Pooling to one vector per sequence: cls (class token), first (position) or mean",
      known_to(lra_pooling));
    f("max_length", s.max_length, "Maximum sequence length; longer texts are truncated",
      between(1, 1 << 20));
    each_of_model(s, f);
    f("attend_to_padding", s.attend_to_padding,
      "1: pad to --max-length and attend to padding, as published; 0: mask padding", any_value);
    f("cycle", s.cycle, "Steps per cycle (--schedule cycles)",
      between(s.schedule == "cycles" ? 1 : 0, INT64_MAX));
    f("weight_decay", s.weight_decay, "Decoupled weight decay, of all parameters",
      require_not_negative);
  }
  bool operator==(const LraSettings&) const = default;

  /// Throws UsageError, naming option and value, for settings that cannot be trained.
  void check() const;
  nn::SequenceClassifier::Options model() const;
  /// Returns the position settings, as published: separate sinusoids in each layer; filters shared
  /// by all layers, with separate noise. An image is a plane.
  nn::PositionSettings positions() const;
  ListOpsOptions listops() const;
  /// Returns the learning rate. rsqrt: linear warm-up to learning_rate in `warmup` steps, then
  /// learning_rate · √(warmup / step). cycles: the same warm-up, then cosine cycles of `cycle`
  /// steps, each starting at the peak. cosine and wsd: schedule_of(), over the steps or the elapsed
  /// fraction `progress` of the time. Steps count from 0, where the rate is 0.
  double rate(int64_t step, double progress) const;
  /// Returns the length to which batches are padded; 0: the length of the longest sequence. If
  /// padding is attended to, the length must not depend on the other sequences of the batch.
  int64_t padded_length() const { return attend_to_padding ? max_length : 0; }
  /// Returns a lower bound of the bytes that training takes, for sequences of this mean length.
  double least_memory(double length) const;
};

/// Returns the published configuration of a task (with brackets) or, with `small`, a configuration
/// that learns something on two cores in minutes. Throws UsageError for an unknown task.
LraSettings lra_settings(const std::string& task, bool small = false);

}  // namespace stretto::examples
