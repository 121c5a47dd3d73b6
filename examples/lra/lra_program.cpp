#include "examples/lra/lra_program.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include "examples/common/error.h"
#include "examples/common/settings.h"
#include "examples/lra/image.h"
#include "examples/lra/text.h"
#include "nn/distributed/process_group.h"
#include "nn/training/evaluate.h"
#include "ops/loss.h"
#include "ops/reduce.h"

namespace stretto::examples {
namespace {

LabeledSequences read_task(const LraSettings& s, const std::string& path) {
  if (s.task == "image") return read_images(path);
  if (s.task == "text") return read_reviews(path, s.max_length);
  if (s.task == "retrieval") return read_text_pairs(path, s.max_length);
  LabeledSequences data = listops_sequences(read_listops(path), s.strip_brackets);
  const int64_t longest = data.sequences.longest();
  require(longest <= s.max_length, path + ": an expression has " + as_text(longest) +
                                       " tokens, more than --max-length " + as_text(s.max_length));
  return data;
}

LraData generated(const LraSettings& s) {
  require(s.max_expression <= s.max_length + 1, "--max-expression " + as_text(s.max_expression) +
                                                    ": --max-length " + as_text(s.max_length) +
                                                    " is too short for it");
  LraData data;
  const int64_t n = s.expressions, held = s.held_out_expressions;
  data.generated = generate_listops(s.seed, n + 2 * held, s.listops()).expressions;
  const LabeledSequences all = listops_sequences(data.generated, s.strip_brackets);
  data.train = all.part(0, n);
  data.valid = all.part(n, held);
  data.test = all.part(n + held, held);
  return data;
}

Tensor logits(const nn::SequenceClassifier& model, const SequenceBatch& batch) {
  const Device device = model.device();
  const nn::TokenBatch x(batch.tokens.to(device), batch.padding.to(device));
  if (!batch.others.defined()) return model(x);
  return model(x, nn::TokenBatch(batch.others.to(device), batch.others_padding.to(device)));
}

}  // namespace

LraData read_lra_data(const LraSettings& s, const LraFiles& files) {
  if (files.data.empty()) {
    require(s.task == "listops", "--task " + s.task + ": needs --data FILE");
    require(
        files.validation.empty() && files.test.empty(),
        std::string(files.validation.empty() ? "--test" : "--validation") + ": needs --data FILE");
    return generated(s);
  }
  LraData data;
  data.train = read_task(s, files.data);
  if (files.validation.empty()) {
    const int64_t n = data.train.size(), kept = n - int64_t(s.held_out * double(n));
    require(kept >= 1 && kept < n, files.data + ": " + as_text(n) +
                                       (n == 1 ? " example is" : " examples are") +
                                       " too few to hold out " + as_text(s.held_out) + " of");
    const HeldOutRows rows = hold_out(data.train.labels, s.held_out, s.seed);
    data.valid = data.train.rows(rows.held);
    data.train = data.train.rows(rows.kept);
  } else {
    data.valid = read_task(s, files.validation);
  }
  if (!files.test.empty()) data.test = read_task(s, files.test);
  return data;
}

LraScore evaluate(nn::SequenceClassifier& model, const LabeledSequences& data,
                  const LraSettings& settings, int64_t most) {
  const nn::EvalMode guard(model);
  const std::vector<int64_t> sample = sample_rows(data.size(), most, settings.seed);
  const auto n = int64_t(sample.size());
  nn::EvaluationReducer sums(2);
  for (int64_t at = 0; at < n; at += settings.batch) {
    check_interrupt();
    if (!sums.next()) continue;
    const auto begin = sample.begin() + at;
    const std::vector<int64_t> rows(begin, begin + std::min(settings.batch, n - at));
    const SequenceBatch batch = make_batch(data, rows, settings.padded_length());
    const Tensor y = logits(model, batch);
    const double loss =
        cross_entropy(y, batch.labels.to(y.device()), {.reduction = Reduction::sum}).item();
    const std::vector<int64_t> answers = argmax(y, 1).to_vector<int64_t>();
    int64_t correct = 0;
    for (size_t i = 0; i < rows.size(); ++i) correct += answers[i] == data.labels[size_t(rows[i])];
    sums.add({loss / double(n), double(correct)});
  }
  const std::vector<double> total = sums.total();
  LraScore score;
  score.loss = total[0];
  score.accuracy.correct = int64_t(total[1]);
  score.accuracy.total = n;
  return score;
}

void LraProgram::declare(OptionList& options) {
  options.settings(settings, "task");
  options("small", small_,
          "Use a small configuration, which learns on two cores in minutes, instead of the "
          "published one (--help shows the published defaults for listops)");
  options.input("data", paths_.data,
                "Training examples; without it, ListOps examples are generated");
  options.input("validation", paths_.validation, "Validation examples, scored during training");
  options.input("test", paths_.test, "Test examples, scored at the end");
  options.settings(settings, "held_out");
  run_.declare(options);
  options.settings(settings, "max_args");
  options("write_data", write_data_,
          "Write the generated examples to basic_train.tsv, basic_val.tsv and basic_test.tsv "
          "(listops)");
  options.settings(settings);
  nn::PositionSettings images = settings.positions();
  images.plane = {32, 32};
  describe_position(options, settings, {images}, " (swin, grid, rope-2d: with --task image)");
  options.describe("d_hidden",
                   "Hidden dimension of the feed-forward networks and of the classification head");
  options.describe("max_grad_norm", "Gradients are clipped to this norm (inf: not clipped)");
  options.describe("schedule",
                   "Learning-rate schedule after the warm-up: rsqrt, cycles (repeated cosine), "
                   "cosine, or wsd (constant, then linear in the last fifth)");
  options("validation_examples", validation_examples_,
          "Number of validation examples scored during training, chosen by --seed (0: all)",
          between(0, INT64_MAX));
  options("evaluate", run_.report_only, "Do not train; evaluate the model of --resume");
}

// Attention without explicit weights has no attention dropout, as published.
void LraProgram::resolve() {
  LraSettings preset = lra_settings(settings.task, small_);
  require_name("--attention", settings.attention, nn::kernel_names());
  if (nn::find_kernel(settings.attention).traits().recurrent) preset.attention_dropout = 0;
  take_settings(preset, small_);
}

int64_t LraProgram::count_parameters() {
  std::cout << "Task " << settings.task << ", attention " << settings.attention << ", position "
            << settings.position << "\n";
  return ModelProgram::count_parameters();
}

void LraProgram::prepare() {
  data_ = read_lra_data(settings, paths_);
  const SequenceList& sequences = data_.train.sequences;
  const double length = settings.attend_to_padding
                            ? double(settings.max_length)
                            : double(sequences.total()) / double(sequences.size());
  use_device(settings.steps, settings.least_memory(length),
             "--layers, --d-model, --d-hidden, --max-length or --batch");
  n_train_ = data_.train.size();
  note_missing_classes();
  std::vector<int32_t> scored;  // labels of the examples that validate() scores
  for (const int64_t row : sample_rows(data_.valid.size(), validation_examples_, settings.seed))
    scored.push_back(data_.valid.labels[size_t(row)]);
  // The baseline predicts the class frequencies for every sequence.
  const double baseline =
      class_frequency_loss(data_.train.labels, scored, settings.model().n_classes);
  curve_ = {.title = "Loss of " + settings.task + " with " + settings.attention + " attention, " +
                     settings.position,
            .unit = "nats",
            .references = {{"class frequencies", baseline}}};
  files_ = {"evaluation.csv"};
  if (writes_data())
    files_.insert(files_.end(), {"basic_train.tsv", "basic_val.tsv", "basic_test.tsv"});
  start(std::move(data_.train));
}

void LraProgram::note_missing_classes() {
  const int64_t n_classes = lra_task(settings.task).n_classes;
  const auto note = [&](const LabeledSequences& data, const char* purpose) {
    const std::string missing = missing_labels(data.labels, n_classes);
    if (data.size() > 0 && !missing.empty())
      missing_ += std::string("Classes without ") + purpose + " examples: " + missing + "\n";
  };
  note(data_.train, "training");
  note(data_.valid, "validation");
  note(data_.test, "test");
}

void LraProgram::start(LabeledSequences train) {
  model = make_model<nn::SequenceClassifier>(settings.model(), settings);
  if (run_.report_only) return;
  train_ = std::move(train);
  order_.emplace(train_.size(), settings.batch, shuffles(train_.size(), settings.seed));
  make_trainer(
      optimizer(vaswani_adam(settings.weight_decay)),
      [this](int64_t step, double progress) { return settings.rate(step - 1, progress); },
      {train_.fingerprint(), "examples than those of --data (or of --seed without it)"}, 0);
  trainer().options.graph_key = [this](int64_t batch) {  // one CUDA graph per shape
    if (settings.padded_length() > 0) return int64_t(0);
    const std::vector<int64_t> rows = (*order_)(batch);
    return longest_of(train_.sequences, rows) << 32 |
           (train_.pairs() ? longest_of(train_.others, rows) : 0);
  };
}

void LraProgram::begin() {
  if (writes_data()) write_data();
  std::cout << (paths_.data.empty() ? "Generated " : "Read ") << n_train_
            << " examples for training, " << data_.valid.size() << " for validation and "
            << data_.test.size() << " for testing. Task " << settings.task << ", attention "
            << settings.attention << ", position " << settings.position << ", "
            << model_and_machine() << std::endl;
  std::cout << missing_ << std::flush;
  data_.generated.clear();
}

void LraProgram::write_data() {
  const auto part = [&](const char* name, int64_t first, int64_t n) {
    const auto begin = data_.generated.begin() + first;
    write_listops(path(name), {begin, begin + n});
  };
  const int64_t held = settings.held_out_expressions;
  part("basic_train.tsv", 0, n_train_);
  part("basic_val.tsv", n_train_, held);
  part("basic_test.tsv", n_train_ + held, held);
}

Tensor LraProgram::loss(int64_t step) {
  const bool pairs = train_.pairs();
  const Tensors b = trainer().stage(step, [this, pairs](int64_t i) {
    const SequenceBatch made = make_batch(train_, (*order_)(i), settings.padded_length());
    trainer().options.tokens_per_step =
        double(made.tokens.numel() + (pairs ? made.others.numel() : 0));
    Tensors all{made.tokens, made.padding, made.labels};
    if (pairs) all.insert(all.end(), {made.others, made.others_padding});
    return all;
  });
  SequenceBatch batch{.tokens = b[0], .padding = b[1], .labels = b[2]};
  if (pairs) batch.others = b[3], batch.others_padding = b[4];
  return cross_entropy(logits(*model, batch), batch.labels);
}

double LraProgram::validate() {
  return evaluate(*model, data_.valid, settings, validation_examples_).loss;
}

void LraProgram::report() {
  if (!run_.report_only) std::cout << saved() << std::endl;
  nn::MetricsCsv table(path("evaluation.csv"), {"test", "examples", "correct", "accuracy", "low",
                                                "high", "majority", "nats"});
  ReportTable accuracies{
      "Accuracy, %", {"", "accuracy", "95 % from", "to", "most frequent class", "examples"}, {}};
  const auto score = [&](const char* name, const LabeledSequences& data, bool test) {
    if (data.size() == 0) return;
    const LraScore s = evaluate(*model, data, settings);
    const Accuracy::Interval interval = s.accuracy.interval();
    const double constant = majority(data.labels).value();
    std::cout << name << " accuracy " << fixed(100 * s.accuracy.value(), 2)
              << " % (95 %: " << fixed(100 * interval.low, 2) << " to "
              << fixed(100 * interval.high, 2) << ") of " << s.accuracy.total
              << "; most frequent class " << fixed(100 * constant, 2) << " %; loss "
              << fixed(s.loss, 4) << std::endl;
    const auto percent = [](double share) { return fixed(100 * share, 2); };
    accuracies.rows.push_back({name, percent(s.accuracy.value()), percent(interval.low),
                               percent(interval.high), percent(constant),
                               as_text(s.accuracy.total)});
    table.row({double(test), double(s.accuracy.total), double(s.accuracy.correct),
               s.accuracy.value(), interval.low, interval.high, constant, s.loss});
  };
  score("Validation", data_.valid, false);
  score("Test", data_.test, true);
  show(std::move(accuracies));
  if (!run_.report_only) draw_curve();
}

}  // namespace stretto::examples
