// What fixes a run of lra: the task and its data, the model, the optimiser.
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

/// The names of --task. The table stands in lra_tables.cpp.
std::vector<std::string> lra_tasks();

/// What a task's sequences are made of.
struct LraTask {
  int64_t n_classes = 2;
  bool pairs = false;
  int64_t (*vocabulary)(const LraSettings&) = nullptr;
  nn::SequenceClassifier::Options (*published)() = nullptr;
  // The published training, by AdamW with β 0.9 and 0.98, eps 1e-9, its weight decay on every
  // parameter; gradients are not clipped.
  int64_t max_length = 0;
  int64_t batch = 8;
  double base_rate = 0;  // of the schedule rsqrt at step 1, of cycles at the top
  int64_t warmup = 0;
  int64_t cycle = 0;  // > 0: the schedule is cycles
  int64_t steps = 0;
  double weight_decay = 0.1;
};
/// UsageError for an unknown name, with the names that are known.
const LraTask& lra_task(const std::string& name);
/// UsageError for another name than cls, first and mean.
nn::Pooling lra_pooling(const std::string& name);

/// With the same settings and data every step has the same bits, whatever the number of threads.
/// All of it is kept in the checkpoint.
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
                      .sines = 10,
                      .learning_rate = 4e-4,
                      .warmup = 1000} {}

  std::string task = "listops";  // lra_tasks()
  // ListOps that is generated: expressions to learn from, as many to validate as to test, and
  // ListOpsOptions.
  int64_t expressions = 96'000;
  int64_t held_out_expressions = 2000;
  int64_t min_expression = 500, max_expression = 2000, max_depth = 10, max_args = 10;
  bool strip_brackets = false;
  double held_out = 0.1;  // of --data, where there is no --validation

  std::string pooling = "cls";  // cls, first, mean
  int64_t max_length = 2000;    // texts are cut there
  bool attend_to_padding = true;

  std::string schedule = "rsqrt";  // rsqrt, cycles, cosine
  int64_t cycle = 0;
  double weight_decay = 0.1;

  template <class S, class F>
  static void each(S& s, F&& f) {
    f("task", s.task, joined(lra_tasks()), known_to(lra_task));
    f("held_out", s.held_out,
      "Without --validation: judge by this share of the data, drawn from each class by --seed",
      require_fraction);
    each_of_run(s, f);
    f("expressions", s.expressions, "listops: how many to generate to learn from",
      between(1, 10'000'000));
    f("held_out_expressions", s.held_out_expressions,
      "listops: how many to validate by, and as many to test by", between(1, 10'000'000));
    f("min_expression", s.min_expression, "listops: expressions are longer than this",
      between(0, 60'000));
    f("max_expression", s.max_expression, "listops: and shorter than this",
      between(s.min_expression + 2, 60'000));
    f("max_depth", s.max_depth, "listops: depth of the deepest digit", between(1, 100));
    f("max_args", s.max_args, "listops: most arguments of an operator", between(2, 100));
    f("strip_brackets", s.strip_brackets,
      "listops: lose closing brackets, as the published results did", any_value);
    f("pooling", s.pooling, "cls, first or mean: the vector that stands for a sequence",
      known_to(lra_pooling));
    f("max_length", s.max_length, "Longest sequence; texts are cut there", between(1, 1 << 20));
    each_of_model(s, f);
    f("attend_to_padding", s.attend_to_padding,
      "1: pad to --max-length and see it, as the published; 0: do not see padding", any_value);
    f("schedule", s.schedule, "After the warm-up: rsqrt, cycles (cosines) or cosine", any_value);
    f("cycle", s.cycle, "Steps of a cycle", between(s.schedule == "cycles" ? 1 : 0, INT64_MAX));
    f("weight_decay", s.weight_decay, "Weight decay of AdamW, of all parameters",
      require_not_negative);
  }
  bool operator==(const LraSettings&) const = default;

  /// Throws UsageError, naming option and value, for what cannot be trained.
  void check() const;
  nn::SequenceClassifier::Options model() const;
  /// As published: sines of each layer's own; filters that all layers share, with draws of their
  /// own. An image without a token in front of it is a plane.
  nn::PositionSettings positions() const;
  ListOpsOptions listops() const;
  /// rsqrt: a linear rise to learning_rate in `warmup` steps, then learning_rate · √(warmup /
  /// step). cycles: the same rise, then cosines of `cycle` steps, each back from the top. cosine:
  /// cosine_of(), over the steps or the share `progress` of the time. Steps count from 0, where the
  /// rate is 0.
  double rate(int64_t step, double progress) const;
  /// Ids of a sequence that a batch is padded to; 0: as many as its longest has. Padding that is
  /// attended to must not depend on what else is in the batch.
  int64_t padded_length() const { return attend_to_padding ? max_length : 0; }
  /// A training takes more bytes than this, if its sequences have so many ids on average.
  double least_memory(double length) const;
};

/// The published configuration of a task (with brackets), or with `small` one
/// that learns something on two cores in minutes. UsageError for an unknown task.
LraSettings lra_settings(const std::string& task, bool small = false);

}  // namespace stretto::examples
