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
    f("task", s.task);
    f("expressions", s.expressions);
    f("held_out_expressions", s.held_out_expressions);
    f("min_expression", s.min_expression);
    f("max_expression", s.max_expression);
    f("max_depth", s.max_depth);
    f("max_args", s.max_args);
    f("strip_brackets", s.strip_brackets);
    f("held_out", s.held_out);
    f("pooling", s.pooling);
    f("max_length", s.max_length);
    ModelSettings::each_of_model(s, f);
    f("attend_to_padding", s.attend_to_padding);
    f("schedule", s.schedule);
    f("cycle", s.cycle);
    f("weight_decay", s.weight_decay);
  }
  bool operator==(const LraSettings&) const = default;

  /// Throws UsageError, naming option and value, for what cannot be trained.
  void check() const;
  nn::SequenceClassifier::Options model() const;
  /// As published: sines of each layer's own; filters that all layers share, with draws of their
  /// own. An image without a token in front of it is a plane.
  nn::PositionSettings positions() const;
  ListOpsOptions listops() const;
  /// rsqrt and cycles: nn::LongRangePreset with this highest rate, the first step at 0. cosine:
  /// cosine_of(), over the steps or the share `progress` of the time. Steps count from 0.
  double rate(int64_t step, double progress) const;
  /// Ids of a sequence that a batch is padded to; 0: as many as its longest has. Padding that is
  /// attended to must not depend on what else is in the batch.
  int64_t padded_length() const { return attend_to_padding ? max_length : 0; }
  /// A training takes more bytes than this, if its sequences have so many ids on average.
  double least_memory(double length) const;
};

/// The published configuration of a task (nn::LongRangePreset, with brackets), or with `small` one
/// that learns something on two cores in minutes. UsageError for an unknown task.
LraSettings lra_settings(const std::string& task, bool small = false);

/// The names of --task. The table stands in lra_tables.cpp.
std::vector<std::string> lra_tasks();

/// What a task's sequences are made of.
struct LraTask {
  int64_t n_classes = 2;
  bool pairs = false;
  int64_t (*vocabulary)(const LraSettings&) = nullptr;
  nn::LongRangePreset (*published)() = nullptr;
};
/// UsageError for an unknown name, with the names that are known.
const LraTask& lra_task(const std::string& name);
}  // namespace stretto::examples
