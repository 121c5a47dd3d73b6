#include "examples/text/lm_program.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <utility>

#include "core/digest.h"
#include "core/utf8.h"
#include "examples/common/file.h"
#include "examples/common/words.h"
#include "nn/distributed/gradient_reducer.h"
#include "nn/distributed/process_group.h"
#include "nn/training/progress.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"

namespace stretto::examples {
namespace {

constexpr const char* vocabulary_note = "vocabulary.tokens";
constexpr const char* first_note = "memory.first";  // position of the first row of the memory

// Computes the fingerprint of a large text in another thread if one can be started: it takes a while,
// and training need not wait for the result. Waiting for it throws if one of `files` changed before.
std::shared_future<std::string> fingerprint(const nn::TokenStream& tokens,
                                            const MappedFiles& files = {}) {
  const auto compute = [tokens, files] {
    Digest all;
    tokens.each([&](int64_t token) { all.add(token); });
    for (const auto& file : files) file->check_unchanged();
    return all.text();
  };
  if (tokens.size() > 1 << 20) return std::async(compute);
  std::shared_future<std::string> now = std::async(std::launch::deferred, compute);
  now.wait();
  return now;
}

const nn::TokenStream& enough(const nn::TokenStream& tokens, const LmSettings& s,
                              const std::string& data) {
  const int64_t needed = s.batch * (s.length + 1);
  require(tokens.size() >= needed, data + ": " + as_text(tokens.size()) +
                                       " training tokens are too few; " + as_text(needed) +
                                       " are needed, one segment of --length " + as_text(s.length) +
                                       " for each row of --batch " + as_text(s.batch));
  return tokens;
}

// "length 64, memory 32".
std::string lengths(const Evaluation& e) {
  const std::string text = "length " + as_text(e.rule.length);
  if (e.rule.memory > 0) return text + ", memory " + as_text(e.rule.memory);
  return e.rule.stride < e.rule.length ? text + ", stride " + as_text(e.rule.stride) : text;
}

}  // namespace

void LmProgram::declare(OptionList& options) {
  options.input("data", data_, "The text to learn; without it one is generated");
  options.input("validation", validation_,
                "Validation text; all of --data is then used for training");
  options.settings(settings, "vocabulary");
  options("preset", preset_name_,
          "Default settings: enwik8-12l, enwik8-24l, text8-12l, text8-24l, wt103-base, "
          "wt103-large, lm1b-base, lm1b-large, nano or small; explicit options take precedence");
  run_.declare(options);
  run_.declare_sequence_parallel(options);
  options.settings(settings);
  describe_position(options, settings, {settings.positions()});
  options.describe("batch", "Batch size: rows per step, each a contiguous stream");

  options("validation_tokens", validation_tokens_,
          "Number of tokens scored by evaluations during training (0: all)", between(0, INT64_MAX));
  options("evaluate", run_.report_only,
          "Do not train; evaluate and generate with the model of --resume");
  options("eval_length", eval_length_,
          "Segment lengths of the final evaluation, such as 128,512 (default: --length)",
          each_between(1, 1 << 20));
  options("eval_memory", eval_memory_,
          "Memory lengths of the final evaluation, such as 0,512 (default: --memory)",
          each_between(0, 1 << 20));
  options("eval_stride", eval_stride_,
          "Final evaluation without memory: stride of the segments in tokens (0: their length)",
          between(0, INT64_MAX));
  options("eval_clamp", eval_clamp_,
          "Final evaluation: distances are clamped to this one (xl; 0: not clamped)",
          between(0, 1 << 20));
  options("eval_same_length", eval_same_length_,
          "Final evaluation with memory: every token attends to the same number of positions, the "
          "memory length");
  options("eval_batch", eval_batch_,
          "Batch size of the final evaluation: number of segments (with a memory: of streams)",
          between(1, 1 << 20));
  options("generate", generate_, "Number of tokens to generate (0: none)", between(0, 1 << 20));
  options("prompt", prompt_, "Text to continue (default: the start of the held-out text)");
  options("temperature", temperature_, "Sampling temperature (0: greedy)", require_not_negative);
  options("top_p", top_p_, "Nucleus sampling: cumulative probability of the candidate tokens",
          require_top_p);
}

// Sets the settings: the defaults, overridden by the preset and then by the command line. A resumed
// run uses the settings of its checkpoint; presets and options must equal them.
void LmProgram::resolve() {
  if (!preset_name_.empty()) preset_ = lm_preset(preset_name_);
  if (run_.given("--minutes")) preset_.settings.erase("steps");
  take_preset(settings, preset_.settings, run_);
  if (!run_.given("--memory") && !preset_.settings.contains("memory"))
    settings.memory = settings.own_position() && !settings.pack ? settings.length : 0;
  if (!run_.resume.empty()) resume();
  if (eval_length_.empty())
    eval_length_ = as_text(preset_.eval_length > 0 ? preset_.eval_length : settings.length);
  if (eval_memory_.empty()) {
    eval_memory_ = as_text(settings.memory);
    if (preset_.eval_memory > 0 && settings.memory > 0) eval_memory_ = as_text(preset_.eval_memory);
  }
  if (!run_.given("--eval-clamp")) eval_clamp_ = preset_.eval_clamp;
  if (!run_.given("--eval-same-length")) eval_same_length_ = preset_.eval_same_length;
  settings.check();
  check_evaluation();
  require(prompt_.empty() || generate_ > 0, "--prompt: needs --generate above 0");
}

void LmProgram::resume() {
  const std::string& path = run_.resume;
  saved_notes_ = as_usage([&] { return nn::load_training_state(run_.checkpoint()); }).metadata;
  const LmSettings saved = settings_from_metadata<LmSettings>(saved_notes_, path, "train_lm");
  RunOptions asked = run_;
  asked.given = [&](const std::string& option) {
    std::string name = option.substr(2);
    std::replace(name.begin(), name.end(), '-', '_');
    return run_.given(option) || preset_.settings.contains(name);
  };
  LmSettings resumed = with_steps(saved, settings, run_);
  // No parameters belong to relative positions out of range, so an evaluation may use another value
  // than the training.
  if (run_.report_only && run_.given("--out-of-range"))
    resumed.out_of_range = settings.out_of_range;
  check_same_settings(settings_to_metadata(resumed), settings_to_metadata(settings), asked, path);
  settings = resumed;
}

void LmProgram::check_evaluation() const {
  for (const int64_t memory : read_list("--eval-memory", eval_memory_)) {
    require(memory == 0 || settings.has_memory(), "--eval-memory " + as_text(memory) +
                                                      ": --position " + settings.position +
                                                      " does not support a memory");
    for (const int64_t length : read_list("--eval-length", eval_length_))
      settings.require_room(
          settings.positions(), length + memory,
          "--eval-length " + as_text(length) +
              (memory > 0 ? " with --eval-memory " + as_text(memory) : std::string()));
  }
}

CorpusOptions LmProgram::corpus() const {
  return {.data = data_,
          .validation = validation_,
          .kind = token_kind(settings.tokens),
          .vocabulary = settings.vocabulary,
          .held_out = settings.held_out,
          .seed = settings.seed};
}

int64_t LmProgram::count_parameters() {
  int64_t n_tokens = preset_.n_tokens;
  if (n_tokens == 0 || !data_.empty()) n_tokens = read_corpus(corpus()).tokenizer.size();
  std::cout << "Position " << settings.position << ", " << settings.layers
            << " layers, vocabulary size " << n_tokens << "\n";
  return nn::count_parameters<nn::LanguageModel>(settings.model(n_tokens));
}

void LmProgram::prepare() {
  std::optional<nn::VocabularyTokenizer> known;
  if (!run_.resume.empty()) known = saved_tokenizer(settings, saved_notes_, run_.resume);
  Corpus corpus = read_corpus(this->corpus(), std::move(known));
  tokenizer = std::move(corpus.tokenizer);
  const int64_t n_tokens = tokenizer->size();
  use_device(settings.steps, settings.least_memory(n_tokens),
             "--layers, --d-model, --d-hidden, --length, --batch or the vocabulary");
  check_sequence_parallel(settings.length, settings.weights());
  require(run_.sequence_parallel == 1 || settings.memory == 0,
          "--sequence-parallel: needs --memory 0");
  require(corpus.valid.size() >= 2, (validation_.empty() ? name() : validation_) +
                                        ": 1 validation token is too few; 2 are needed");
  valid_ = std::move(corpus.valid);
  generated_ = std::move(corpus.generated);
  mapped_ = std::move(corpus.files);
  note_ = std::move(corpus.note);
  train_ = corpus.train;
  set_prompt();
  if (nn::process_group().is_root()) counting_.start(train_, valid_, n_tokens);
  start(std::move(corpus.train), name());
  curve_ = {.title = "Loss, position " + settings.position,
            .unit = words() ? "nats per word" : unit(),
            .scale = words() ? 1 : 1 / std::log(2.0)};
  show_bigram();
  files_ = {"evaluation.csv", "position_loss.csv", "position_loss.svg"};
  if (generate_ > 0) files_.emplace_back("generated.txt");
  if (data_.empty() && !run_.report_only) files_.emplace_back("text.txt");
}

void LmProgram::set_prompt() {
  if (prompt_.empty()) {
    prompt_tokens_ = valid_.read(0, std::min<int64_t>(64, valid_.size()));
    return;
  }
  require(
      tokenizer->kind() == nn::TokenKind::bytes || find_invalid_utf8(prompt_).at == prompt_.size(),
      "--prompt: is not UTF-8");
  try {
    prompt_tokens_ = tokenizer->encode(prompt_);
  } catch (const Error& e) {
    throw UsageError("--prompt: " + plain(e));
  }
  if (words() && prompt_.back() != '\n') prompt_tokens_.pop_back();  // no <eos>: the line continues
  require(!prompt_tokens_.empty(), "--prompt: has no word");
}

nn::PackedBatches LmProgram::packed(const nn::TokenStream& train, const std::string& data) const {
  std::vector<nn::TokenStream> documents = documents_of(train, *tokenizer);
  require(documents.size() > 1,
          data + ": has no blank line, which separates the documents of --pack");
  return {std::move(documents), settings.batch, settings.length, settings.seed};
}

void LmProgram::start(nn::TokenStream train, const std::string& data) {
  model = make_model<nn::LanguageModel>(settings.model(tokenizer->size()), settings);
  if (run_.report_only) return;
  train_print_ = fingerprint(enough(train, settings, data), mapped_);
  valid_print_ = fingerprint(valid_, mapped_);
  if (settings.pack) packed_.emplace(packed(train, data));
  segments_.emplace(std::move(train), settings.batch, settings.length);
  make_trainer(optimizer({.weight_decay = 0}), schedule_of(settings),
               {train_print_, "text than that of --data (or of --seed without it)"},
               settings.batch * settings.length);
  trainer().options.after_step = [this](const nn::StepResult&) {
    for (Remembered& part : parts_) {
      if (part.after) part.memory = std::move(*part.after);
      part.after.reset();
    }
    if (trainer().options.cuda_graph && remembered().memory.length() == settings.memory &&
        !settings.counts_tokens())
      keep_in_place();
  };
  trainer().options.graph_key = [this](int64_t step) { return goes_on(step) ? 0 : -1; };
}

void LmProgram::begin() {
  if (data_.empty() && !run_.report_only) write_file_atomically(path("text.txt"), generated_);
  std::cout << (data_.empty() ? "Generated " : "Read ") << train_.size() << " " << settings.tokens
            << " for training and " << valid_.size() << " for validation, vocabulary size "
            << model->options.vocabulary << ". Position " << settings.position << ", "
            << model_and_machine() << std::endl;
  if (!note_.empty()) std::cout << note_ << std::endl;
}

LmProgram::Remembered& LmProgram::remembered() {
  parts_.resize(size_t(trainer().local_micro_batches()));
  return parts_[size_t(
      std::max<int64_t>(0, trainer().micro_batch() - trainer().first_micro_batch()))];
}

bool LmProgram::goes_on(int64_t step) {
  return !segments_->starts_epoch(step) && remembered().memory.length() == settings.memory &&
         !settings.counts_tokens();
}

void LmProgram::keep_in_place() {
  Tensors& rows = remembered().memory.inputs;
  if (place_.empty()) {
    for (const Tensor& m : rows) place_.push_back(m.clone());
  } else {
    for (size_t i = 0; i < place_.size(); ++i)
      if (!place_[i].same(rows[i])) place_[i].copy_(rows[i]);
  }
  rows = place_;
}

Tensor LmProgram::packed_loss(int64_t step) {
  const nn::Batch batch = trainer().stage_batch(step, [this](int64_t i) { return (*packed_)(i); });
  const Tensor scored = ne(batch.targets, double(nn::ignore_index));
  nn::ForwardContext forward = nn::begin_forward();
  forward.segments = batch.segments;
  const Tensor nll = model->nll(batch.inputs, batch.targets * scored.to(i64), forward);
  return sum(nll * scored.to(nll.dtype())) / clamp(sum(scored).to(nll.dtype()), 1, INFINITY);
}

Tensor LmProgram::loss(int64_t step) {
  if (packed_) return packed_loss(step);
  const nn::Batch batch =
      trainer().stage_batch(step, [this](int64_t i) { return (*segments_)(i); });
  if (settings.memory == 0)
    return mean(model->nll(batch.inputs, batch.targets, nullptr, trainer().sequence_group()));
  if (trainer().options.cuda_graph && goes_on(step)) {
    // A replay reads and writes the memory in place; the backward pass gets a copy of it.
    keep_in_place();
    nn::LanguageModel::Cache memory = remembered().memory;
    for (Tensor& m : memory.inputs) m = m.clone();
    Tensor loss = mean(model->nll(batch.inputs, batch.targets, &memory));
    for (size_t i = 0; i < place_.size(); ++i) place_[i].copy_(memory.inputs[i]);
    return loss;
  }
  Remembered& own = remembered();
  own.after = segments_->starts_epoch(step) ? model->make_memory() : own.memory;
  return mean(model->nll(batch.inputs, batch.targets, &*own.after));
}

void LmProgram::keep(nn::TrainingState& state) const {
  const auto same_texts = [this] {
    return fingerprint(train_).get() == train_print_.get() &&
           fingerprint(valid_).get() == valid_print_.get();
  };
  for (const auto& file : mapped_) file->check_unchanged(same_texts);
  state.metadata[vocabulary_note] = tokenizer->to_note();
  if (parts_.empty()) return;
  if (settings.counts_tokens())
    state.metadata[first_note] = as_text(parts_[0].memory.position - parts_[0].memory.length());
  for (size_t i = 0; i < parts_[0].memory.inputs.size(); ++i) {
    Tensors rows;
    for (const Remembered& part : parts_) rows.push_back(part.memory.inputs[i]);
    state.tensors.push_back({"memory." + std::to_string(i), nn::all_gather_rows(cat(rows, 0))});
  }
}

void LmProgram::take(const nn::TrainingState& state, const std::string& path) {
  const std::vector<nn::NamedTensor>& tensors = state.tensors;
  const size_t n = tensors.size();
  bool good = n == 0 || n == size_t(settings.layers);
  Tensors memory(n);
  for (const nn::NamedTensor& t : tensors) {
    int64_t i = -1;
    good = good && t.name.starts_with("memory.") && read_text(t.name.substr(7), i) && i >= 0 &&
           size_t(i) < n && t.tensor.dtype() == settings.weights() && t.tensor.dim() == 3 &&
           t.tensor.size(0) == settings.batch && t.tensor.size(1) <= settings.memory &&
           t.tensor.size(1) == tensors[0].tensor.size(1) && t.tensor.size(2) == settings.d_model;
    require(good, path + ": its memory is malformed");
    memory[size_t(i)] = t.tensor.to(model->device());
  }
  require(good && (n > 0) == (settings.memory > 0 && state.step > 0),
          path + ": its memory is malformed");
  int64_t first = 0;
  if (const auto note = state.metadata.find(first_note); note != state.metadata.end())
    require(read_text(note->second, first) && first >= 0, path + ": its memory is malformed");
  parts_.assign(size_t(trainer().local_micro_batches()), {});
  const int64_t size = settings.batch / trainer().n_micro_batches();
  for (size_t part = 0; part < parts_.size() && n > 0; ++part) {
    nn::LanguageModel::Cache& own = parts_[part].memory = model->make_memory();
    const int64_t begin = (trainer().first_micro_batch() + int64_t(part)) * size;
    for (const Tensor& m : memory)
      own.inputs.push_back(m.slice(0, begin, begin + size).contiguous());
    own.position = first + own.length();
  }
}

double LmProgram::validate() {
  const LmSettings& s = settings;
  const int64_t scored_all = valid_.size() - 1;  // all tokens except the first
  const int64_t most = validation_tokens_ > 0 ? validation_tokens_ : scored_all;
  const nn::TokenStream part = valid_.slice(0, 1 + std::min(most, scored_all));
  show_bigram();
  return scored(part, {.rule = {s.length, s.memory, s.length},
                       .batch = s.batch,
                       .groups = trainer().n_micro_batches()})
      .all.mean();
}

Evaluation LmProgram::scored(const nn::TokenStream& tokens, const EvaluationOptions& options) {
  return with_context(
      str("evaluation with length ", options.rule.length, " and memory ", options.rule.memory),
      [&] { return evaluate(*model, tokens, options); });
}

// Adds the bigram's loss once it is known.
void LmProgram::show_bigram() {
  if (const auto counted = counting_.known())
    curve_.references = {{"bigram", curve_.scale * counted->bigram}};
}

// Converts to bits per character or byte, or, for words, to perplexity.
double LmProgram::shown(double nats) const {
  return words() ? std::exp(nats) : nats / std::log(2.0);
}
std::string LmProgram::score(double nats) const { return fixed(shown(nats), words() ? 2 : 4); }
std::string LmProgram::unit() const {
  return words()                      ? "perplexity"
         : settings.tokens == "bytes" ? "bits per byte"
                                      : "bits per character";
}
void LmProgram::report() {
  if (!run_.report_only)
    std::cout << saved() << ", " << nn::duration_text(trainer().seconds())
              << "; now scoring all held-out tokens" << std::endl;
  const CountingLoss counted_only = counting_.get();
  show_bigram();
  ReportTable table{
      "Held-out " + unit() + ", " + counted(valid_.size() - 1, "token"), {"", unit()}, {}};
  std::cout << table.title << ":\n";
  add_row(table, 44, "unigram", score(counted_only.unigram));
  add_row(table, 44, "bigram", score(counted_only.bigram));
  std::vector<Evaluation> all;
  for (const int64_t memory : read_list("--eval-memory", eval_memory_)) {
    for (const int64_t length : read_list("--eval-length", eval_length_)) {
      const int64_t stride =
          memory > 0 || eval_stride_ == 0 ? length : std::min(length, eval_stride_);
      all.push_back(scored(valid_, {.rule = {length, memory, stride},
                                    .batch = eval_batch_,
                                    .clamp = eval_clamp_,
                                    .same_length = eval_same_length_}));
      add_row(table, 44, lengths(all.back()) + ", context " + fixed(all.back().context, 1),
              score(all.back().all.mean()), settings.position + ", ");
    }
  }
  show(std::move(table));
  write_evaluations(all);
  if (!run_.report_only) draw_curve();
  if (generate_ > 0) write_text();
}

void LmProgram::write_evaluations(const std::vector<Evaluation>& all) {
  nn::MetricsCsv table(path("evaluation.csv"), {"length", "memory", "stride", "context", "tokens",
                                                "nats_per_token", "tokens_per_second"});
  nn::MetricsCsv positions(path("position_loss.csv"),
                           {"length", "memory", "position", "tokens", "nats_per_token"});
  std::vector<Series> curves;
  for (const Evaluation& e : all) {
    const nn::EvaluationWindows& r = e.rule;
    table.row({double(r.length), double(r.memory), double(r.stride), e.context,
               double(e.all.tokens), e.all.mean(), double(e.all.tokens) / e.seconds});
    curves.push_back({settings.position + ", " + lengths(e), {}, {}});
    // Means over `bin` positions make the curve smoother.
    const size_t bin = std::max<size_t>(1, e.at.size() / 64);
    nn::LossSum sum;
    for (size_t i = 0; i < e.at.size(); ++i) {
      if (e.at[i].tokens == 0) continue;
      positions.row(
          {double(r.length), double(r.memory), double(i), double(e.at[i].tokens), e.at[i].mean()});
      sum.loss += e.at[i].loss;
      sum.tokens += e.at[i].tokens;
      if ((i + 1) % bin != 0) continue;
      curves.back().x.push_back(double(i) - double(bin - 1) / 2);
      curves.back().y.push_back(words() ? sum.mean() : shown(sum.mean()));
      sum = {};
    }
  }
  show_chart("position_loss", {{.title = "Held-out loss by position in the segment",
                                .x_label = "position",
                                .y_label = words() ? "nats per word" : unit()},
                               std::move(curves)});
}

void LmProgram::write_text() {
  const std::vector<int64_t> drawn = write_tokens(*model, prompt_tokens_,
                                                  {.tokens = generate_,
                                                   .at_once = settings.room(settings.positions()),
                                                   .context = settings.length,
                                                   .temperature = temperature_,
                                                   .top_p = top_p_,
                                                   .seed = settings.seed});
  std::vector<int64_t> tokens = prompt_tokens_;
  tokens.insert(tokens.end(), drawn.begin(), drawn.end());
  const std::string given = tokenizer->decode(prompt_tokens_), all = tokenizer->decode(tokens);
  write_file_atomically(path("generated.txt"), all + "\n");
  const size_t begin = all.starts_with(given) ? given.size() : 0;
  show(ReportText{"Generated text", all.substr(0, begin), all.substr(begin)});
  std::cout << "Wrote " << path("generated.txt") << std::endl;
}

nn::VocabularyTokenizer saved_tokenizer(const LmSettings& settings, const nn::Metadata& notes,
                                        const std::string& path) {
  const auto note = notes.find(vocabulary_note);
  require(note != notes.end(), path + ": its vocabulary is missing");
  try {
    return nn::VocabularyTokenizer::from_note(token_kind(settings.tokens), note->second);
  } catch (const Error& e) {
    throw UsageError(path + ": " + plain(e));
  }
}

}  // namespace stretto::examples
