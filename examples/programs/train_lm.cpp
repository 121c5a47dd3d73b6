// Trains a language model on a text, with any of the positions, and measures what each remembers.
//
// In: --data FILE, or text that it generates itself. Out, in --out DIR: checkpoint, metrics.csv,
// evaluation.csv, position_loss.csv, their pictures, and text that the model writes.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <optional>
#include <utility>

#include "examples/common/file.h"
#include "examples/common/settings.h"
#include "examples/common/words.h"
#include "examples/text/lm_evaluation.h"
#include "examples/text/lm_training.h"
#include "examples/training/model_run.h"
#include "examples/training/run_settings.h"
#include "nn/distributed/process_group.h"
#include "nn/training/progress.h"

namespace stretto::examples {
namespace {

struct Options {
  LmSettings settings;
  RunOptions run{.out = "out/lm"};
  std::string preset;
  std::string data, validation;
  int64_t validation_tokens = 100'000;
  std::string eval_length, eval_memory;
  int64_t eval_stride = 0, eval_clamp = 0, eval_batch = 8;
  bool eval_same_length = false;
  int64_t generate = 0;
  std::string prompt;
  double temperature = 1;
  double top_p = 1;
};

void describe(CLI::App& app, Options& o) {
  LmSettings& s = o.settings;
  app.add_option("--data", o.data, "A text; without it one is generated")->option_text("FILE");
  app.add_option("--validation", o.validation, "Judge by this text, and learn from all of --data")
      ->option_text("FILE");
  app.add_option("--held-out", s.held_out, "Judge by this share of the data, its end");
  app.add_option("--tokens", s.tokens, "bytes, chars (of UTF-8) or words");
  app.add_option("--vocabulary", s.vocabulary, "At most so many words (0: all)");
  app.add_option("--preset", o.preset,
                 "enwik8-12l, enwik8-24l, text8-12l, wt103-base, nano or small; options that are "
                 "given count more");
  describe(app, o.run);
  describe_sequence_parallel(app, o.run);
  describe_steps_and_seed(app, s.steps, s.seed);

  describe_model(app, s, {s.positions()});
  app.get_option("--batch")->description("Rows of a step, each a stream of its own");
  app.get_option("--learning-rate")->description("Highest learning rate of Adam");
  app.add_flag("--untied-biases", s.untied_biases, "xl: u and v of their own for each layer");
  app.add_option("--cutoffs", s.cutoffs, "Ends of the clusters of the vocabulary: 20000,40000");
  app.add_option("--div", s.div, "Each cluster is so many times narrower than the one before");
  app.add_option("--length", s.length, "Tokens of a segment");
  app.add_option("--memory", s.memory,
                 "Positions remembered from before (unless given: the length with xl, else 0)");

  app.add_option("--validation-tokens", o.validation_tokens,
                 "Score only so many while training (0: all)");
  app.add_flag("--evaluate", o.run.report_only, "Do not train: score and write with --resume");
  app.add_option("--eval-length", o.eval_length,
                 "At the end score in segments of these lengths: 128,512 (unless given: --length)");
  app.add_option("--eval-memory", o.eval_memory,
                 "Each with these memories: 0,512 (unless given: --memory)");
  app.add_option("--eval-stride", o.eval_stride,
                 "Without memory: tokens between the starts of segments (0: their length)");
  app.add_option("--eval-clamp", o.eval_clamp, "xl: further lags count as this one (0: none)");
  app.add_flag("--eval-same-length", o.eval_same_length,
               "With memory: every token sees as many as the memory has");
  app.add_option("--eval-batch", o.eval_batch, "Segments, or with memory streams, at a time");
  app.add_option("--generate", o.generate, "Tokens to write at the end (0: none)");
  app.add_option("--prompt", o.prompt,
                 "Text to continue; without it, the start of what is held out");
  app.add_option("--temperature", o.temperature, "Of the drawing of tokens");
  app.add_option("--top-p", o.top_p, "Draw among the likeliest tokens that reach this share");
}

// Every option that neither the checkpoint keeps nor every program has.
void check(const Options& o) {
  for (const int64_t length : read_list("--eval-length", o.eval_length))
    require_range("--eval-length", length, 1, 1 << 20);
  for (const int64_t memory : read_list("--eval-memory", o.eval_memory)) {
    require_range("--eval-memory", memory, 0, 1 << 20);
    require(memory == 0 || o.settings.has_memory(), "--eval-memory " + as_text(memory) +
                                                        ": --position " + o.settings.position +
                                                        " has no use for a memory");
  }
  for (const int64_t length : read_list("--eval-length", o.eval_length))
    for (const int64_t memory : read_list("--eval-memory", o.eval_memory))
      o.settings.require_room(
          o.settings.positions(), length + memory,
          "--eval-length " + as_text(length) +
              (memory > 0 ? " with --eval-memory " + as_text(memory) : std::string()));
  require_range("--validation-tokens", o.validation_tokens, 0, INT64_MAX);
  require_range("--eval-stride", o.eval_stride, 0, INT64_MAX);
  require_range("--eval-clamp", o.eval_clamp, 0, 1 << 20);
  require_range("--eval-batch", o.eval_batch, 1, 1 << 20);
  require_range("--generate", o.generate, 0, 1 << 20);
  require(o.prompt.empty() || o.generate > 0, "--prompt: needs --generate above 0");
  require_not_negative("--temperature", o.temperature);
  require_number("--top-p", o.top_p, o.top_p > 0 && o.top_p <= 1, "above 0 and at most 1");
}

// Defaults, over them the preset, over it the command line. Of a resumed run, its own settings,
// which must be those too.
struct Resolver {
  Options& o;
  LmPreset preset;
  nn::Metadata notes;  // of the checkpoint

  void operator()() {
    if (!o.preset.empty()) preset = lm_preset(o.preset);
    const auto given = [&](const std::string& name) { return o.run.given(option_of(name)); };
    if (given("minutes")) preset.settings.erase("steps");
    LmSettings& s = o.settings;
    take_preset(s, preset.settings, o.run);
    if (!given("memory") && !preset.settings.contains("memory"))
      s.memory = s.own_position() ? s.length : 0;
    if (!o.run.resume.empty()) resume();
    if (o.eval_length.empty())
      o.eval_length = as_text(preset.eval_length > 0 ? preset.eval_length : s.length);
    if (o.eval_memory.empty()) {
      o.eval_memory = as_text(s.memory);
      if (preset.eval_memory > 0 && s.memory > 0) o.eval_memory = as_text(preset.eval_memory);
    }
    if (!given("eval_clamp")) o.eval_clamp = preset.eval_clamp;
    if (!given("eval_same_length")) o.eval_same_length = preset.eval_same_length;
  }

  void resume() {
    const std::string& path = o.run.resume;
    notes = as_usage([&] { return nn::load_training_state(path); }).notes;
    const LmSettings saved = settings_from_notes<LmSettings>(notes, path, "train_lm");
    RunOptions asked = o.run;
    asked.given = [&](const std::string& option) {
      std::string name = option.substr(2);
      std::replace(name.begin(), name.end(), '-', '_');
      return o.run.given(option) || preset.settings.contains(name);
    };
    LmSettings wanted = with_steps(saved, o.settings, o.run);
    // Nothing is learned about what lies beyond a table, so an evaluation may choose.
    if (o.run.report_only && o.run.given("--beyond")) wanted.beyond = o.settings.beyond;
    check_same_settings(settings_to_notes(wanted), settings_to_notes(o.settings), asked, path);
    o.settings = wanted;
  }
};

class Run : public ModelRun<LmTraining> {
 public:
  Run(Options options, nn::Metadata notes)
      : ModelRun(options.run), o_(std::move(options)), notes_(std::move(notes)) {}

 private:
  const LmSettings& settings() const { return o_.settings; }
  bool words() const { return settings().tokens == "words"; }
  std::string name() const { return o_.data.empty() ? "the generated text" : o_.data; }

  void prepare() override {
    std::optional<nn::Tokenizer> known;
    if (!run_.resume.empty()) known = saved_tokenizer(settings(), notes_, run_.resume);
    Corpus corpus = read_corpus({.data = o_.data,
                                 .validation = o_.validation,
                                 .kind = token_kind(settings().tokens),
                                 .vocabulary = settings().vocabulary,
                                 .held_out = settings().held_out,
                                 .seed = settings().seed},
                                std::move(known));
    const int64_t n_tokens = corpus.tokenizer.size();
    const Device device =
        use_device(settings().steps, settings().least_memory(n_tokens),
                   "--layers, --d-model, --d-hidden, --length, --batch or the vocabulary");
    check_sequence_parallel(settings().length, settings().weights());
    require(run_.sequence_parallel == 1 || settings().memory == 0,
            "--sequence-parallel: needs --memory 0");
    require(corpus.valid.size() >= 2, (o_.validation.empty() ? name() : o_.validation) +
                                          ": 1 token to judge by is too few; 2 are needed");
    valid_ = std::move(corpus.valid);
    generated_ = std::move(corpus.generated);
    files_ = std::move(corpus.files);
    note_ = std::move(corpus.note);
    train_ = corpus.train;
    set_prompt(corpus.tokenizer);
    if (nn::process_group().leads()) counting_.start(train_, valid_, n_tokens);
    if (run_.report_only) {
      load_model(settings().model(n_tokens), settings().weights(), device);
      tokenizer_.emplace(std::move(corpus.tokenizer));
      return;
    }
    make_training(settings(), std::move(corpus.tokenizer), std::move(corpus.train), device, name());
  }

  void set_prompt(const nn::Tokenizer& tokenizer) {
    if (o_.prompt.empty()) {
      prompt_.resize(size_t(std::min<int64_t>(64, valid_.size())));
      valid_.read(0, int64_t(prompt_.size()), prompt_.data());
      return;
    }
    require(tokenizer.kind() == nn::TokenKind::bytes || nn::invalid_utf8(o_.prompt) < 0,
            "--prompt: is not UTF-8");
    std::vector<int32_t> tokens;
    try {
      tokens = tokenizer.encode(o_.prompt);
    } catch (const Error& e) {
      throw UsageError("--prompt: " + plain(e));
    }
    if (words() && o_.prompt.back() != '\n') tokens.pop_back();  // the line goes on
    require(!tokens.empty(), "--prompt: has no word");
    prompt_.assign(tokens.begin(), tokens.end());
  }

  void begin() override {
    if (o_.data.empty() && !run_.report_only) write_file_atomically(path("text.txt"), generated_);
    std::cout << (o_.data.empty() ? "Generated " : "Read ") << train_.size() << " "
              << settings().tokens << " to learn from and " << valid_.size() << " to judge by, "
              << model().options.vocabulary << " different. Position " << settings().position
              << ", " << model_and_machine() << std::endl;
    if (!note_.empty()) std::cout << note_ << std::endl;
  }

  std::vector<std::string> files() const override {
    std::vector<std::string> all{"evaluation.csv", "position_loss.csv", "position_loss.svg",
                                 "position_loss.png"};
    if (o_.generate > 0) all.emplace_back("generated.txt");
    if (o_.data.empty() && !run_.report_only) all.emplace_back("text.txt");
    return all;
  }
  std::vector<RunInput> inputs() const override {
    std::vector<RunInput> all;
    if (!o_.data.empty()) all.push_back({"--data", o_.data});
    if (!o_.validation.empty()) all.push_back({"--validation", o_.validation});
    return all;
  }

  void save() override {
    for (const auto& file : files_) file->check_unchanged();
    ModelRun::save();
  }

  double validate() override {
    const LmSettings& s = settings();
    const int64_t scored_all = valid_.size() - 1;  // all but the first
    const int64_t most = o_.validation_tokens > 0 ? o_.validation_tokens : scored_all;
    const nn::TokenStream part = valid_.first(1 + std::min(most, scored_all));
    return scored(part, {.rule = {s.length, s.memory, s.length},
                         .batch = s.batch,
                         .groups = trainer().parts()})
        .all.mean();
  }

  LossCurve loss_curve() override {
    LossCurve curve{.title = "Loss with the position " + settings().position,
                    .unit = words() ? "nats per word" : unit(),
                    .scale = words() ? 1 : 1 / std::log(2.0)};
    if (const auto counted = counting_.known())
      curve.references = {{"bigram", curve.scale * counted->bigram}};
    return curve;
  }

  Evaluation scored(const nn::TokenStream& tokens, const EvaluationOptions& options) {
    return told_with(
        str("evaluation with length ", options.rule.length, " and memory ", options.rule.memory),
        [&] { return evaluate(model(), tokens, options); });
  }

  // Bits per character or byte; of words, the perplexity.
  double shown(double nats) const { return words() ? std::exp(nats) : nats / std::log(2.0); }
  std::string unit() const {
    return words()                        ? "perplexity"
           : settings().tokens == "bytes" ? "bits per byte"
                                          : "bits per character";
  }
  int digits() const { return words() ? 2 : 4; }

  // `before` only on the console: rows of a table are the same for each position.
  void line(ReportTable& table, const std::string& what, double nats,
            const std::string& before = "") const {
    const std::string value = fixed(shown(nats), digits());
    std::cout << "  " << std::left << std::setw(44) << before + what << value << std::endl;
    table.rows.push_back({what, value});
  }

  void report() override {
    if (!run_.report_only)
      std::cout << saved() << ", " << nn::duration_text(trainer().seconds())
                << "; now scoring all that is held out" << std::endl;
    const CountingLoss counted_only = counting_.get();
    ReportTable table{
        "Held-out " + unit() + ", " + counted(valid_.size() - 1, "token"), {"", unit()}, {}};
    std::cout << table.title << ":\n";
    line(table, "unigram", counted_only.unigram);
    line(table, "bigram", counted_only.bigram);
    std::vector<Evaluation> all;
    for (const int64_t memory : read_list("--eval-memory", o_.eval_memory)) {
      for (const int64_t length : read_list("--eval-length", o_.eval_length)) {
        const int64_t stride =
            memory > 0 || o_.eval_stride == 0 ? length : std::min(length, o_.eval_stride);
        all.push_back(scored(valid_, {.rule = {length, memory, stride},
                                      .batch = o_.eval_batch,
                                      .clamp = o_.eval_clamp,
                                      .same_length = o_.eval_same_length}));
        line(table, lengths(all.back()) + ", sees " + fixed(all.back().context, 1),
             all.back().all.mean(), settings().position + ", ");
      }
    }
    show(std::move(table));
    write_evaluations(all);
    if (!run_.report_only) draw_curve();
    if (o_.generate > 0) write_text();
  }

  static std::string lengths(const Evaluation& e) {
    const std::string text = "length " + as_text(e.rule.length);
    if (e.rule.memory > 0) return text + ", memory " + as_text(e.rule.memory);
    return e.rule.stride < e.rule.length ? text + ", stride " + as_text(e.rule.stride) : text;
  }

  void write_evaluations(const std::vector<Evaluation>& all) {
    nn::MetricsCsv table(path("evaluation.csv"), {"length", "memory", "stride", "context", "tokens",
                                                  "nats_per_token", "tokens_per_second"});
    nn::MetricsCsv positions(path("position_loss.csv"),
                             {"length", "memory", "position", "tokens", "nats_per_token"});
    std::vector<Series> curves;
    for (const Evaluation& e : all) {
      const nn::ScoringRule& r = e.rule;
      table.row({double(r.length), double(r.memory), double(r.stride), e.context,
                 double(e.all.tokens), e.all.mean(), double(e.all.tokens) / e.seconds});
      curves.push_back({settings().position + ", " + lengths(e), {}, {}});
      const size_t bin = std::max<size_t>(1, e.at.size() / 64);  // a steadier curve
      nn::LossSum sum;
      for (size_t i = 0; i < e.at.size(); ++i) {
        if (e.at[i].tokens == 0) continue;
        positions.row({double(r.length), double(r.memory), double(i), double(e.at[i].tokens),
                       e.at[i].mean()});
        sum.loss += e.at[i].loss;
        sum.tokens += e.at[i].tokens;
        if ((i + 1) % bin != 0) continue;
        curves.back().x.push_back(double(i) - double(bin - 1) / 2);
        curves.back().y.push_back(words() ? sum.mean() : shown(sum.mean()));
        sum = {};
      }
    }
    show_chart("position_loss", {{.title = "Held-out loss against the position in the segment",
                                  .x_label = "position",
                                  .y_label = words() ? "nats per word" : unit()},
                                 std::move(curves)});
  }

  void write_text() {
    const std::vector<int64_t> drawn =
        write_tokens(model(), prompt_,
                     {.tokens = o_.generate,
                      .at_once = settings().room(settings().positions()),
                      .context = settings().length,
                      .temperature = o_.temperature,
                      .top_p = o_.top_p,
                      .seed = settings().seed});
    std::vector<int64_t> tokens = prompt_;
    tokens.insert(tokens.end(), drawn.begin(), drawn.end());
    const nn::Tokenizer& tokenizer = training_ ? training_->tokenizer() : *tokenizer_;
    const std::string given = tokenizer.decode(prompt_), all = tokenizer.decode(tokens);
    write_file_atomically(path("generated.txt"), all + "\n");
    const size_t begin = all.starts_with(given) ? given.size() : 0;
    show(ReportText{"What the model writes", all.substr(0, begin), all.substr(begin)});
    std::cout << "Wrote " << path("generated.txt") << std::endl;
  }

  Options o_;
  const nn::Metadata notes_;  // of the checkpoint
  nn::TokenStream train_, valid_;
  std::string generated_, note_;
  std::vector<std::shared_ptr<const MappedFile>> files_;
  std::vector<int64_t> prompt_;
  std::optional<nn::Tokenizer> tokenizer_;
  CountingInBackground counting_;
};

int print_parameters(const Options& o, const LmPreset& preset) {
  int64_t n_tokens = preset.n_tokens;
  if (n_tokens == 0 || !o.data.empty())
    n_tokens = read_corpus({.data = o.data,
                            .validation = o.validation,
                            .kind = token_kind(o.settings.tokens),
                            .vocabulary = o.settings.vocabulary,
                            .held_out = o.settings.held_out,
                            .seed = o.settings.seed})
                   .tokenizer.size();
  return examples::print_parameters<nn::TransformerXL>(
      o.settings.model(n_tokens), str("Position ", o.settings.position, ", ", o.settings.layers,
                                      " layers, ", n_tokens, " different tokens"));
}

int run(Options& options) {
  Resolver resolve{options, {}, {}};
  resolve();
  options.settings.check();
  check(options);
  if (options.run.parameters) return print_parameters(options, resolve.preset);
  return Run(options, std::move(resolve.notes))();
}

}  // namespace
}  // namespace stretto::examples

int main(int argc, char** argv) {
  return stretto::examples::run_program<stretto::examples::Options>(
      argc, argv, "train_lm",
      "Trains a language model on a text and measures what its positions remember.");
}
