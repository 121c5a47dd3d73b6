#include "benchmarks/position_study/run.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>
#include <map>
#include <memory>

#include "core/storage.h"
#include "nn/data/contiguous_batches.h"
#include "nn/models/classifier.h"
#include "nn/models/language_model.h"
#include "nn/models/transformer_xl.h"
#include "nn/optim/optim.h"
#include "nn/optim/schedule.h"
#include "nn/training/evaluate.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/loss.h"
#include "ops/reduce.h"

namespace stretto::study {
namespace {

using examples::as_text;
using Results = std::map<std::string, std::string>;

// Seconds of processor time of this process, which other processes hardly change.
double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double bits(double nats) { return nats / std::log(2.0); }

nn::PositionSettings position_settings(const TaskInfo& task, const Size& size) {
  return {.length = task.length,
          .longest = 4 * task.length,
          .bidirectional = task.classifies,
          .realizations = size.realizations,
          .taps = task.length};
}

nn::LayerOptions layer_options(const Size& size) {
  return {.d_model = size.d_model,
          .attention = {.n_heads = size.heads},
          .feed_forward = {.d_hidden = size.hidden}};
}

// A model and its use: training loss (nats) of a step, and losses and answers for a test batch.
class Subject {
 public:
  virtual ~Subject() = default;
  virtual nn::Module& module() = 0;
  virtual Tensor loss(int64_t step) = 0;
  /// Logits of a test batch at `factor` times the trained length: [B, L, V], or [B, classes].
  virtual Tensor logits(const nn::Batch& batch, int64_t factor) = 0;
  /// Measures generation, if the model can generate.
  virtual void generation(Results&) {}
};

class Language : public Subject {
 public:
  Language(const Task& task, uint64_t seed, const nn::LanguageModelOptions& options)
      : task_(task), seed_(seed), model_(options) {}
  nn::Module& module() override { return model_; }
  Tensor loss(int64_t step) override {
    const nn::Batch batch = task_.training(seed_, step);
    return cross_entropy(model_(batch.inputs), batch.targets);
  }
  Tensor logits(const nn::Batch& batch, int64_t) override { return model_(batch.inputs); }

  void generation(Results& results) override {
    const nn::EvalMode guard(model_);
    const Tensor tokens = task_.held_out(4).at(0).inputs.slice(0, 0, 1);
    const int64_t length = task_.info.length;
    results["cache_bytes_4x"] = as_text(cache_bytes(tokens));
    results["cache_bytes"] = as_text(cache_bytes(tokens.slice(1, 0, length)));
    nn::LanguageModel::Cache cache;
    model_(tokens.slice(1, 0, length / 2), &cache);
    std::vector<double> seconds;
    for (int64_t i = length / 2; i < length; ++i) {
      const double start = processor_seconds();
      model_(tokens.slice(1, i, i + 1), &cache);
      seconds.push_back(processor_seconds() - start);
    }
    results["token_seconds"] = as_text(median(seconds));
  }

 private:
  // The bytes of a cache of all layers, its spare capacity included.
  int64_t cache_bytes(const Tensor& tokens) const {
    auto cache = std::make_unique<nn::LanguageModel::Cache>();
    model_(tokens, cache.get());
    const int64_t with = memory_stats().live;
    cache.reset();
    return with - memory_stats().live;
  }

  const Task& task_;
  const uint64_t seed_;
  nn::LanguageModel model_;
};

class Classifier : public Subject {
 public:
  Classifier(const Task& task, uint64_t seed, const nn::SequenceClassifierOptions& options)
      : task_(task), seed_(seed), model_(options) {}
  nn::Module& module() override { return model_; }
  Tensor loss(int64_t step) override {
    const nn::Batch batch = task_.training(seed_, step);
    return cross_entropy(logits(batch, 1), batch.targets);
  }
  Tensor logits(const nn::Batch& batch, int64_t) override {
    return model_(batch.inputs, batch.padding);
  }

 private:
  const Task& task_;
  const uint64_t seed_;
  nn::SequenceClassifier model_;
};

// Transformer-XL: trained on consecutive segments with a memory of L positions, tested on segments
// of L tokens with a memory of `factor` · L positions. The memory is empty at the start of a window.
class Recurrent : public Subject {
 public:
  Recurrent(const Task& task, uint64_t seed, const nn::LanguageModelOptions& options)
      : length_(task.info.length),
        model_(options),
        segments_(task.stream(), task.info.batch, task.info.length),
        first_(int64_t(seed * 7919) % segments_.per_epoch()) {}
  nn::Module& module() override { return model_; }
  Tensor loss(int64_t step) override {
    if (segments_.starts_epoch(first_ + step)) memory_ = model_.make_memory();
    const nn::Batch batch = segments_(first_ + step);
    return mean(model_.nll(batch.inputs, batch.targets, &memory_));
  }
  Tensor logits(const nn::Batch& batch, int64_t factor) override {
    nn::LanguageModel::Cache memory = model_.make_memory({.length = factor * length_});
    Tensors parts;
    for (int64_t at = 0; at < batch.inputs.size(1); at += length_)
      parts.push_back(model_(batch.inputs.slice(1, at, at + length_), &memory));
    return cat(parts, 1);
  }

 private:
  const int64_t length_;
  nn::LanguageModel model_;
  nn::ContiguousBatches segments_;
  const int64_t first_;  // segments with which training starts, different for each seed
  nn::LanguageModel::Cache memory_ = model_.make_memory();
};

std::unique_ptr<Subject> make_subject(const Condition& c, const Task& task, const Size& size) {
  const TaskInfo& info = task.info;
  nn::LayerOptions layer = layer_options(size);
  nn::InputOptions input;
  const uint64_t seed = uint64_t(c.seed);
  if (c.position == memory_position) {
    nn::LanguageModelOptions o = nn::transformer_xl(info.vocabulary);
    o.n_layers = size.layers;
    o.layer = layer;
    o.tied = false;
    o.memory.length = info.length;
    o.init_std = 1 / std::sqrt(double(size.d_model));
    return std::make_unique<Recurrent>(task, seed, o);
  }
  layer.attention.kernel = nn::find_kernel(c.kernel).make({.features = size.features});
  nn::add_position(c.position, position_settings(info, size), layer, input);
  if (info.classifies)
    return std::make_unique<Classifier>(
        task, seed,
        nn::SequenceClassifierOptions{.vocabulary = info.vocabulary,
                                      .n_layers = size.layers,
                                      .layer = layer,
                                      .input = input,
                                      .pooling = nn::Pooling::mean});
  return std::make_unique<Language>(
      task, seed,
      nn::LanguageModelOptions{
          .vocabulary = info.vocabulary, .n_layers = size.layers, .layer = layer, .input = input});
}

void train(Subject& subject, const TaskInfo& info, Results& results) {
  nn::AdamW optimizer(subject.module().parameters(), {.lr = info.lr});
  const nn::Schedule schedule =
      nn::WarmupCosine{.peak = info.lr, .warmup = info.steps / 10, .steps = info.steps};
  const int64_t tail = std::max<int64_t>(1, info.steps / 10);
  double last = 0;
  std::vector<double> seconds;
  int64_t peak = 0;
  for (int64_t step = 1; step <= info.steps; ++step) {
    const double start = processor_seconds();
    const int64_t live = memory_stats().live;
    reset_peak_memory();
    optimizer.set_learning_rate(schedule.at(step));
    optimizer.zero_grad();
    const Tensor loss = subject.loss(step - 1);
    loss.backward();
    nn::clip_grad_norm(subject.module().parameters(), 1.0);
    optimizer.step();
    seconds.push_back(processor_seconds() - start);
    peak = memory_stats().peak - live;
    if (step == 1) results["first_loss"] = as_text(bits(loss.item()));
    if (step > info.steps - tail) last += loss.item();
  }
  results["last_loss"] = as_text(bits(last / double(tail)));
  results["step_seconds"] = as_text(median(seconds));
  results["step_bytes"] = as_text(peak);
}

// Writes bits and accuracy at `factor` times the trained length, and bits of the positions past it.
void test(Subject& subject, const Task& task, int64_t factor, Results& results) {
  const nn::EvalMode guard(subject.module());
  nn::LossSum all, beyond;
  double right = 0;
  for (const nn::Batch& batch : task.held_out(factor)) {
    const Tensor logits = subject.logits(batch, factor);
    const Tensor losses = cross_entropy(logits, batch.targets, {.reduction = Reduction::none});
    all.add(losses, batch.targets);
    right += sum(eq(argmax(logits, -1), batch.targets).to(f64)).item();
    if (batch.targets.dim() < 2 || factor == 1) continue;
    beyond.add(losses.slice(1, task.info.length), batch.targets.slice(1, task.info.length));
  }
  const std::string suffix = "_" + as_text(factor) + "x";
  results["bits" + suffix] = as_text(bits(all.mean()));
  results["accuracy" + suffix] = as_text(right / double(all.tokens));
  if (beyond.tokens > 0) results["beyond" + suffix] = as_text(bits(beyond.mean()));
}

// A text without the characters that separate fields and rows.
std::string one_field(std::string text) {
  for (char& c : text)
    if (c == ',' || c == '"' || c == '\n' || c == '\r') c = ';';
  return text;
}

}  // namespace

std::string refusal(const Condition& c, const TaskInfo& task, const Size& size) {
  if (c.position == memory_position) {
    if (c.kernel != "softmax") return memory_position + " is for softmax only";
    return task.stream ? "" : memory_position + " needs one long text";
  }
  return nn::refusal(c.position, c.kernel, position_settings(task, size), layer_options(size));
}

Row settings_of(const Condition& c, const TaskInfo& t, const Size& s) {
  return {{"task", c.task},
          {"position", c.position},
          {"kernel", c.kernel},
          {"seed", as_text(c.seed)},
          {"layers", as_text(s.layers)},
          {"d_model", as_text(s.d_model)},
          {"heads", as_text(s.heads)},
          {"hidden", as_text(s.hidden)},
          {"features", as_text(s.features)},
          {"realizations", as_text(s.realizations)},
          {"length", as_text(t.length)},
          {"batch", as_text(t.batch)},
          {"steps", as_text(t.steps)},
          {"step_tokens", as_text(t.batch * t.length)},
          {"lr", as_text(t.lr)}};
}

const std::vector<std::string>& reproducible_results() {
  static const std::vector<std::string> all{
      "data",        "parameters",  "bits_1x",   "bits_2x",   "bits_4x",    "accuracy_1x",
      "accuracy_2x", "accuracy_4x", "beyond_2x", "beyond_4x", "first_loss", "last_loss"};
  return all;
}

const std::vector<std::string>& result_columns() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> names = reproducible_results();
    for (const char* name : {"step_seconds", "step_bytes", "token_seconds", "cache_bytes",
                             "cache_bytes_4x", "run_seconds", "error"})
      names.emplace_back(name);
    return names;
  }();
  return all;
}

Row run(const Condition& condition, const Task& task, const Size& size) {
  const double start = processor_seconds();
  Results results;
  results["data"] = task.fingerprint();
  try {
    manual_seed(uint64_t(condition.seed));
    const std::unique_ptr<Subject> subject = make_subject(condition, task, size);
    results["parameters"] = as_text(subject->module().parameter_count());
    train(*subject, task.info, results);
    for (const int64_t factor : {1, 2, 4}) test(*subject, task, factor, results);
    subject->generation(results);
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error& e) {
    results = {{"error", one_field(e.what())}};
  }
  results["run_seconds"] = as_text(processor_seconds() - start);
  Row row = settings_of(condition, task.info, size);
  for (const std::string& name : result_columns()) row.emplace_back(name, results[name]);
  return row;
}

}  // namespace stretto::study
