// Trains a classifier of long sequences on a task of the Long Range Arena, with any attention and
// position, and measures its accuracy.
//
// In: --data FILE, or ListOps that it generates itself. Out, in --out DIR: checkpoint, metrics.csv,
// evaluation.csv, the curve of the loss, and with --write-data what was generated.
#include <CLI/CLI.hpp>
#include <iomanip>
#include <iostream>
#include <utility>

#include "examples/common/file.h"
#include "examples/lra/lra_training.h"
#include "examples/training/model_run.h"
#include "examples/training/run_settings.h"

namespace stretto::examples {
namespace {

struct Options {
  LraSettings settings = lra_settings("listops", false);  // what --help shows
  RunOptions run{.out = "out/lra"};
  LraFiles files;
  bool small = false;
  bool write_data = false;
  int64_t validation_examples = 200;
};

void describe(CLI::App& app, Options& o) {
  LraSettings& s = o.settings;
  app.add_option("--task", s.task, joined(lra_tasks()));
  app.add_flag("--small", o.small,
               "A configuration that learns on two cores in minutes, in place of the published, "
               "which --help shows as it is of listops");
  app.add_option("--data", o.files.data,
                 "Examples to learn from; without it listops generates them")
      ->option_text("FILE");
  app.add_option("--validation", o.files.validation, "Examples to judge by while training")
      ->option_text("FILE");
  app.add_option("--test", o.files.test, "Examples to judge by at the end")->option_text("FILE");
  app.add_option("--held-out", s.held_out,
                 "Without --validation: judge by this share of the data, drawn from each class by "
                 "--seed");
  describe(app, o.run);
  describe_steps_and_seed(app, s.steps, s.seed);

  app.add_option("--expressions", s.expressions, "listops: how many to generate to learn from");
  app.add_option("--held-out-expressions", s.held_out_expressions,
                 "listops: how many to validate by, and as many to test by");
  app.add_option("--min-expression", s.min_expression, "listops: expressions are longer than this");
  app.add_option("--max-expression", s.max_expression, "listops: and shorter than this");
  app.add_option("--max-depth", s.max_depth, "listops: depth of the deepest digit");
  app.add_option("--max-args", s.max_args, "listops: most arguments of an operator");
  app.add_flag("--write-data", o.write_data,
               "listops: leave what was generated in basic_train.tsv, basic_val.tsv and "
               "basic_test.tsv");
  app.add_flag("--strip-brackets", s.strip_brackets,
               "listops: lose closing brackets, as the published results did");

  app.add_option("--pooling", s.pooling,
                 "cls, first or mean: the vector that stands for a sequence");
  app.add_option("--max-length", s.max_length, "Longest sequence; texts are cut there");
  nn::PositionSettings images = s.positions();
  images.plane = {32, 32};
  describe_model(app, s, {images});
  CLI::Option* position = app.get_option("--position");
  position->description(position->get_description() +
                        " (window, grid: of --task image, with --pooling first or mean)");
  app.get_option("--d-hidden")->description("Width of the feed-forward networks and the head");
  app.get_option("--dropout")->description("Dropout on embeddings and residual branches");
  app.get_option("--clip")->description("Largest norm of a step's gradient (inf: any)");
  app.add_option("--attend-to-padding", s.attend_to_padding,
                 "1: pad to --max-length and see it, as the published; 0: do not see padding");
  app.add_option("--schedule", s.schedule, "After the warm-up: rsqrt, cycles (cosines) or cosine");
  app.add_option("--cycle", s.cycle, "Steps of a cycle");
  app.add_option("--weight-decay", s.weight_decay, "Weight decay of AdamW, of all parameters");
  app.add_option("--validation-examples", o.validation_examples,
                 "Judge by only so many while training, drawn by --seed (0: all)");
  app.add_flag("--evaluate", o.run.report_only, "Do not train: score with --resume");
}

// The task's configuration, over it the command line; attention without scores drops none of its
// weights, as published. Of a resumed run, its own settings, which must be those that are given,
// with --small all of that.
void resolve(Options& o) {
  nn::Metadata notes = settings_to_notes(lra_settings(o.settings.task, o.small));
  require_name("--attention", o.settings.attention, nn::kernel_names());
  if (!nn::find_kernel(o.settings.attention).scores) notes["attention_dropout"] = "0";
  take_preset(o.settings, notes, o.run);
  if (!o.run.resume.empty())
    take_saved(o.settings, saved_settings<LraSettings>(o.run.resume, "lra"), o.run, o.small);
}

class Run : public ModelRun<LraTraining> {
 public:
  explicit Run(Options options) : ModelRun(options.run), o_(std::move(options)) {}

 private:
  const LraSettings& settings() const { return o_.settings; }
  bool writes_data() const { return o_.write_data && o_.files.data.empty(); }

  void prepare() override {
    data_ = read_lra_data(settings(), o_.files);
    const SequenceList& train = data_.train.sequences;
    const double length = settings().attend_to_padding
                              ? double(settings().max_length)
                              : double(train.total()) / double(train.size());
    const Device device = use_device(settings().steps, settings().least_memory(length),
                                     "--layers, --d-model, --d-hidden, --max-length or --batch");
    n_train_ = data_.train.size();
    note_missing_classes();
    std::vector<int32_t> judges;  // those that validate() scores
    for (const int64_t row :
         sample_rows(data_.valid.size(), o_.validation_examples, settings().seed))
      judges.push_back(data_.valid.labels[size_t(row)]);
    counted_ = class_frequency_loss(data_.train.labels, judges, settings().model().n_classes);
    if (run_.report_only) return load_model(settings().model(), settings().weights(), device);
    make_training(settings(), std::move(data_.train), device);
  }

  void note_missing_classes() {
    const int64_t n_classes = lra_task(settings().task).n_classes;
    const auto note = [&](const LabelledSequences& data, const char* purpose) {
      const std::string missing = missing_labels(data.labels, n_classes);
      if (data.size() > 0 && !missing.empty())
        missing_ += std::string("Classes without an example to ") + purpose + ": " + missing + "\n";
    };
    note(data_.train, "learn from");
    note(data_.valid, "validate by");
    note(data_.test, "test by");
  }

  void begin() override {
    if (writes_data()) {
      const auto part = [&](const char* name, int64_t first, int64_t n) {
        const auto begin = data_.generated.begin() + first;
        write_listops(path(name), {begin, begin + n});
      };
      const int64_t held = settings().held_out_expressions;
      part("basic_train.tsv", 0, n_train_);
      part("basic_val.tsv", n_train_, held);
      part("basic_test.tsv", n_train_ + held, held);
    }
    std::cout << (o_.files.data.empty() ? "Generated " : "Read ") << n_train_
              << " examples to learn from, " << data_.valid.size() << " to validate by and "
              << data_.test.size() << " to test by. Task " << settings().task << ", attention "
              << settings().attention << ", position " << settings().position << ", "
              << model_and_machine() << std::endl;
    std::cout << missing_ << std::flush;
    data_.generated.clear();
  }

  LossCurve loss_curve() override {
    return {.title = "Loss of " + settings().task + " with " + settings().attention +
                     " attention, " + settings().position,
            .unit = "nats",
            .references = {{"class frequencies", counted_}}};
  }

  double validate() override {
    return evaluate(model(), data_.valid, settings(), o_.validation_examples).loss;
  }
  std::vector<std::string> files() const override {
    std::vector<std::string> all{"evaluation.csv"};
    if (writes_data())
      all.insert(all.end(), {"basic_train.tsv", "basic_val.tsv", "basic_test.tsv"});
    return all;
  }

  std::vector<RunInput> inputs() const override {
    std::vector<RunInput> all;
    for (const auto& [option, path] : {std::pair{"--data", o_.files.data},
                                       {"--validation", o_.files.validation},
                                       {"--test", o_.files.test}})
      if (!path.empty()) all.push_back({option, path});
    return all;
  }

  void report() override {
    if (!run_.report_only) std::cout << saved() << std::endl;
    nn::MetricsCsv table(path("evaluation.csv"), {"test", "examples", "correct", "accuracy", "low",
                                                  "high", "majority", "nats"});
    ReportTable accuracies{
        "Accuracy, %", {"", "accuracy", "95 % from", "to", "most frequent answer", "examples"}, {}};
    const auto score = [&](const char* name, const LabelledSequences& data, bool test) {
      if (data.size() == 0) return;
      const LraScore s = evaluate(model(), data, settings());
      const Accuracy::Interval interval = s.accuracy.interval();
      const double constant = majority(data.labels).value();
      std::cout << name << " accuracy " << fixed(100 * s.accuracy.value(), 2)
                << " % (95 %: " << fixed(100 * interval.low, 2) << " to "
                << fixed(100 * interval.high, 2) << ") of " << s.accuracy.total
                << "; the most frequent answer gets " << fixed(100 * constant, 2) << " %; loss "
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

  Options o_;
  LraData data_;
  int64_t n_train_ = 0;
  std::string missing_;  // classes, a line for each part that lacks some
  double counted_ = 0;   // loss of the class frequencies, which look at no sequence
};

int run(Options& options) {
  resolve(options);
  options.settings.check();
  require_range("--validation-examples", options.validation_examples, 0, INT64_MAX);
  if (options.run.parameters) {
    const LraSettings& s = options.settings;
    return print_parameters<nn::SequenceClassifier>(
        s.model(), "Task " + s.task + ", attention " + s.attention + ", position " + s.position);
  }
  return Run(options)();
}

}  // namespace
}  // namespace stretto::examples

int main(int argc, char** argv) {
  return stretto::examples::run_program<stretto::examples::Options>(
      argc, argv, "lra", "Trains a classifier on a task of the Long Range Arena and measures it.");
}
