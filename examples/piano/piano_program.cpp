#include "examples/piano/piano_program.h"

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <limits>
#include <optional>
#include <utility>

#include "examples/common/error.h"
#include "examples/piano/piano_report.h"
#include "examples/piano/position_measures.h"
#include "nn/distributed/gradient_reducer.h"
#include "nn/training/evaluate.h"
#include "nn/training/progress.h"
#include "ops/loss.h"

namespace stretto::examples {

std::vector<double> loss_by_position(nn::LanguageModel& model,
                                     const std::vector<PianoWindow>& windows, int64_t length,
                                     int64_t batch) {
  const nn::EvalMode guard(model);
  const int64_t n = int64_t(windows.size());
  nn::EvaluationReducer sums{size_t(length)};
  for (int64_t at = 0; at < n; at += batch) {
    check_interrupt();
    if (!sums.next()) continue;
    const nn::Batch b =
        window_batch(windows, at, std::min(batch, n - at), length).to(model.device());
    const std::vector<double> all =
        cross_entropy(model(b.inputs), b.targets, {.reduction = Reduction::none})
            .to_vector<double>();
    std::vector<double> losses(size_t(length), 0);
    for (size_t i = 0; i < all.size(); ++i) losses[i % size_t(length)] += all[i] / double(n);
    sums.add(losses);
  }
  return sums.total();
}

double mean_of(const std::vector<double>& numbers, int64_t first, int64_t last) {
  double sum = 0;
  for (int64_t i = first; i < last; ++i) sum += numbers[size_t(i)];
  return first < last ? sum / double(last - first) : std::numeric_limits<double>::quiet_NaN();
}

void PianoProgram::declare(OptionList& options) {
  options.input("data", data_, "Folder of MIDI files; without it, pieces are generated", "DIR");
  options.input("split", split_,
                "Assignment of files to splits: tab-separated columns file and split (train, "
                "valid, test), or "
                "MAESTRO's CSV (default: maestro-v*.csv in --data)");
  options("every", every_,
          "Without a table: one of this many files is for validation, and one for testing",
          between(2, INT64_MAX));
  options.settings(settings, "pedal");
  options("preset", preset_,
          "Default settings: small or published; explicit options take precedence");
  run_.declare(options);
  run_.declare_sequence_parallel(options);
  options.settings(settings);
  describe_position(options, settings, {settings.positions()});
  options.describe("batch", "Batch size: crops per step");

  options("evaluate", run_.report_only,
          "Do not train; evaluate and generate with the model of --resume");
  options("validation_windows", validation_windows_,
          "Number of validation windows scored during training (0: all)", between(0, INT64_MAX));
  options("eval_length", eval_length_,
          "Window length of the final evaluation in tokens (0: 1.5 times --length)",
          between(0, 1 << 20));
  options("eval_windows", eval_windows_, "Number of windows of the final evaluation (0: all)",
          between(0, INT64_MAX));
  options("eval_batch", eval_batch_, "Batch size of evaluations: windows", between(1, 1 << 20));
  options("picture_layers", picture_layers_,
          "Attention maps: layers, separated by commas (default: the first and the last)");
  options("picture_heads", picture_heads_, "Attention maps: number of heads per layer",
          between(1, 64));
  options("picture_length", picture_length_, "Attention maps: number of tokens", between(1, 2048));
  options("generate", generate_, "Number of tokens to generate (0: none)", between(0, 65536));
  options("bars", writing_.bars,
          "Maximum number of bars to generate (tokens with bars; 0: unlimited)",
          between(0, INT64_MAX));
  declare_sampling(options, writing_.sampling);
  options("grammar", writing_.grammar,
          "1: only valid tokens are sampled (beats in order, note-offs of sounding notes, no early "
          "end); 0: all tokens");
}

// The preset depends on the tokens and the positional encoding.
void PianoProgram::resolve_settings() {
  if (!run_.resume.empty()) {
    const auto saved = saved_settings<PianoSettings>(run_, program_name());
    if (!run_.given("--tokens")) settings.tokens = saved.tokens;
    if (!run_.given("--position")) settings.position = saved.position;
  }
  take_settings(piano_settings(preset_, settings.tokens, settings.position),
                run_.given("--preset"));
}

void PianoProgram::resolve() {
  resolve_settings();
  require(split_.empty() || !data_.empty(), "--split: needs --data DIR");
  if (eval_length_ == 0) eval_length_ = settings.length + settings.length / 2;
  each_between(1, settings.layers)("--picture-layers", picture_layers_);
  picture_length_ = std::min(picture_length_, eval_length_);
  const nn::PositionSettings positions = settings.positions();
  settings.require_room(positions, eval_length_, "--eval-length " + as_text(eval_length_));
  if (settings.has_position("learned")) {  // with bert the cache is limited instead
    if (!run_.given("--generate")) generate_ = std::min(generate_, settings.room(positions));
    settings.require_room(positions, generate_, "--generate " + as_text(generate_));
  }
}

int64_t PianoProgram::count_parameters() {
  std::cout << "Tokens " << settings.tokens << ", attention " << settings.attention << ", position "
            << settings.position << "\n";
  return TokenProgram::count_parameters();
}

void PianoProgram::prepare() {
  const music::Tokenizer& language = settings.language();
  use_device(settings.steps, settings.least_memory());
  check_sequence_parallel(settings.length, settings.weights());
  library_ = data_.empty()
                 ? generated_library(settings.seed, language)
                 : read_library({.folder = data_, .split = split_, .every = every_}, language);
  read_windows(language);
  n_train_ = int64_t(library_.train.size());
  curve_ = {.title = "Loss of " + settings.attention + " attention, position " + settings.position,
            .references = {{"bigram", baselines_.bigram}}};
  set_files();
  create(vaswani_adam(settings.weight_decay),
         {fingerprint(library_.train), "music than that of --data (or of --seed without it)"},
         settings.batch * settings.length);
  if (settings.pack && !run_.report_only) {
    std::vector<nn::TokenStream> pieces;
    for (const PianoPiece& piece : library_.train) pieces.push_back(piece.tokens);
    packed_.emplace(std::move(pieces), settings.batch, settings.length, settings.seed,
                    language.pad);
  }
}

// Chooses the evaluation windows, and computes the n-gram baselines for the windows of the final
// evaluation.
void PianoProgram::read_windows(const music::Tokenizer& language) {
  validation_ = windows(library_.valid, language, settings.length, validation_windows_);
  require(!validation_.empty(),
          "--length " + as_text(settings.length) + ": no validation piece is that long");
  const auto& scored = library_.test.empty() ? library_.valid : library_.test;
  evaluation_ = windows(scored, language, eval_length_, eval_windows_);
  require(!evaluation_.empty(), "--eval-length " + as_text(eval_length_) + ": no " +
                                    (library_.test.empty() ? "validation" : "test") +
                                    " piece is that long");
  if (settings.infill) {
    gaps_ = infill_pieces(scored, language, settings.length, 200);
    require(!gaps_.empty(), "--infill: no held-out piece has 12 bars in --length " +
                                as_text(settings.length) + " tokens");
  }
  TokenCounts counts(language.size());
  for (const PianoPiece& piece : library_.train) {
    counts.add(piece.tokens.read());
    n_tokens_ += piece.tokens.size();
  }
  std::vector<std::vector<int64_t>> sequences;
  for (const PianoPiece& piece : scored) sequences.push_back(piece.tokens.read());
  baselines_ = counts.loss(sequences);
}

void PianoProgram::set_files() {
  files_ = {"evaluation.csv", "position_loss.csv", "position_loss.svg", "attention.svg"};
  if (generate_ > 0) list_music("generated");
  if (settings.infill)
    for (const char* name : {"infill", "infill_given", "infill_original"}) list_music(name);
  if (is_stochastic(settings.position)) files_.emplace_back("templates.svg");
  if (has_measures()) files_.emplace_back("position_measures.csv");
}

void PianoProgram::begin() {
  std::cout << (data_.empty() ? "Generated " : "Read ") << n_train_ << " pieces of " << n_tokens_
            << " tokens for training, " << library_.valid.size() << " for validation and "
            << library_.test.size() << " for testing";
  if (!library_.table.empty())
    std::cout << "; not in " << library_.table << ": " << library_.left_out;
  if (!library_.skipped.empty())
    std::cout << "; skipped " << library_.skipped.size()
              << ", the first: " << library_.skipped.front();
  if (!library_.locked.empty()) std::cout << "; " << library_.locked;
  if (library_.damaged.files() > 0) std::cout << "; " << library_.damaged.text();
  if (!library_.warnings.empty())
    std::cout << "; " << counted(int64_t(library_.warnings.size()), "meter")
              << " without a token, the first: " << library_.warnings.front();
  std::cout << ". " << settings.tokens << ", attention " << settings.attention << ", position "
            << settings.position << ", " << model_and_machine() << std::endl;
}

nn::Batch PianoProgram::training(int64_t i) {
  if (!packed_)
    return training_batch(library_.train, settings.language(), settings.crops(), settings.seed, i);
  nn::Batch packed = (*packed_)(i);
  transpose_packed(packed, settings.language(), settings.transpose, settings.seed, i);
  return packed;
}

std::vector<double> PianoProgram::losses(const std::vector<PianoWindow>& all, int64_t length) {
  return with_context(str("evaluation with length ", length),
                      [&] { return loss_by_position(*model, all, length, eval_batch_); });
}
double PianoProgram::mean_loss(const std::vector<PianoWindow>& all, int64_t length) {
  return mean_of(losses(all, length), 0, length);
}

void PianoProgram::report() {
  if (!run_.report_only)
    std::cout << saved() << ", " << nn::duration_text(trainer().seconds()) << "; now scoring "
              << evaluation_.size() << " windows" << std::endl;
  const int64_t n = eval_length_, trained = std::min(settings.length, n);
  const std::vector<double> all = losses(evaluation_, n);
  const double within = mean_of(all, 0, trained), extrapolated = mean_of(all, trained, n);
  std::vector<std::pair<std::string, double>> losses{
      {"unigram", baselines_.unigram},
      {"bigram", baselines_.bigram},
      {"model, positions 1 to " + as_text(trained), within}};
  if (n > trained)
    losses.emplace_back("model, positions " + as_text(trained + 1) + " to " + as_text(n),
                        extrapolated);
  show_losses(
      (library_.test.empty() ? "Validation" : "Test") + std::string(" loss, nats per token"), "",
      losses);
  write_losses(all, trained, within, extrapolated);
  if (!run_.report_only) draw_curve();
  if (has_measures()) measure_position();
  draw_attention();
  if (generate_ > 0) write_music();
  if (settings.infill) fill_in_bars();
}

void PianoProgram::write_losses(const std::vector<double>& all, int64_t trained, double within,
                                double extrapolated) {
  nn::MetricsCsv(path("evaluation.csv"), {"windows", "length", "trained_length", "within",
                                          "extrapolation", "unigram", "bigram"})
      .row({double(evaluation_.size()), double(all.size()), double(settings.length), within,
            extrapolated, baselines_.unigram, baselines_.bigram});
  const auto buckets = position_buckets(all, trained, std::max<int64_t>(1, settings.length / 16));
  nn::MetricsCsv table(path("position_loss.csv"), {"first", "last", "nats_per_token"});
  for (const PositionBucket& b : buckets) table.row({double(b.first + 1), double(b.last), b.loss});
  show_chart("position_loss",
             {{.title = "Loss with " + settings.attention + " attention, position " +
                        settings.position + ", trained on " + as_text(settings.length) + " tokens",
               .x_label = "position",
               .y_label = "nats per token"},
              position_curves(buckets, trained)});
}

// True for softmax and for the performers, which approximate its scores.
bool PianoProgram::has_measures() const {
  return settings.attention == "softmax" || settings.attention.starts_with("performer");
}

void PianoProgram::measure_position() {
  nn::MetricsCsv table(path("position_measures.csv"),
                       {"first", "last", "distances", "translation_invariance", "monotonicity"});
  ReportTable shown{"Attention of the first layer on repeated tokens, best head (0 is best)",
                    {"positions", "distances below", "translation invariance", "monotonicity"},
                    {}};
  std::cout << "Attention of the first layer on repeated tokens, best head:\n"
            << "  positions    distance translation invariance   monotonicity (0 is best)\n";
  for (const PositionMeasure& m :
       position_measures(*model, settings.length, eval_length_, settings.seed)) {
    const std::string rows = as_text(m.first + 1) + " to " + as_text(m.last);
    std::cout << "  " << std::left << std::setw(13) << rows << "< " << std::setw(5) << m.distances
              << std::setw(25) << fixed(m.invariance, 4) << fixed(m.monotonicity, 4) << "\n";
    table.row(
        {double(m.first + 1), double(m.last), double(m.distances), m.invariance, m.monotonicity});
    shown.rows.push_back(
        {rows, as_text(m.distances), fixed(m.invariance, 4), fixed(m.monotonicity, 4)});
  }
  std::cout << std::flush;
  show(std::move(shown));
}

void PianoProgram::draw_attention() {
  const nn::EvalMode guard(*model);
  const AttentionPictureOptions shown{.layers = read_list("--picture-layers", picture_layers_),
                                      .heads = picture_heads_};
  const Device device = model->device();
  const Tensor tokens = window_batch(evaluation_, 0, 1, picture_length_).inputs.to(device);
  show_maps("attention", attention_maps(*model, tokens, shown));
  if (const auto templates = template_maps(*model, picture_length_, shown))
    show_maps("templates", *templates);
}

void PianoProgram::write_music() {
  writing_.tokens = generate_;
  writing_.seed = settings.seed;
  writing_.limit = settings.cache_limit(settings.positions(), 0);
  const std::vector<int64_t> tokens = write_piano(*model, settings.language(), {}, writing_);
  const music::Song song = settings.language().decode(tokens);
  const std::string title = "Generated without a prompt";
  show_music("generated", title, song, song_roll(song, title));
  std::cout << "Wrote " << path("generated.mid") << ": " << tokens.size() << " tokens, "
            << song.tracks.front().notes.size() << " notes" << std::endl;
}

void PianoProgram::fill_in_bars() {
  const music::Tokenizer& language = settings.language();
  const auto loss = [&](bool after) {
    return infill_loss(*model, gaps_, language, after, eval_batch_);
  };
  show_losses("Bars 5 to 8 of held-out passages, nats per token",
              ", " + counted(int64_t(gaps_.size()), "passage") + " of 12 bars",
              {{"given bars 1 to 4", loss(false)}, {"given bars 1 to 4 and 9 to 12", loss(true)}});

  const InfillPiece& piece = gaps_.front();
  const std::vector<int64_t> filled =
      write_infill(*model, language, piece, settings.length, writing_);
  const auto show_song = [&](const char* name, const std::string& title,
                             const std::vector<int64_t>& tokens) {
    const music::Song song = language.decode(tokens);
    show_music(name, title, song, song_roll(song, title));
  };
  show_song("infill_given", "Given: bars 1 to 4 and 9 to 12 of " + piece.name,
            piece.with_bars(std::vector<int64_t>(4, language.bar)));
  show_song("infill", "Bars 5 to 8 written by the model", piece.with_bars(filled));
  show_song("infill_original", "The original", piece.tokens);
  std::cout << "Wrote " << path("infill.mid") << ": " << filled.size() << " tokens between bars 4 "
            << "and 9 of " << piece.name << std::endl;
}

}  // namespace stretto::examples
