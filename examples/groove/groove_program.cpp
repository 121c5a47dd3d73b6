#include "examples/groove/groove_program.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include "examples/common/error.h"
#include "examples/groove/groove_report.h"
#include "examples/groove/groove_tokens.h"
#include "examples/midi/music_sampling.h"
#include "nn/models/generation.h"
#include "nn/training/evaluate.h"
#include "nn/training/progress.h"

namespace stretto::examples {
namespace {

void print_defects(const MidiDefects& damaged) {
  if (damaged.files() > 0) std::cout << damaged.text() << std::endl;
}

}  // namespace

double groove_loss(nn::LanguageModel& model, const std::vector<GrooveSequence>& sequences,
                   int64_t batch, bool published_eos) {
  return nn::mean_loss(model, [&](const auto& score) {
    const auto n = int64_t(sequences.size());
    for (int64_t at = 0; at < n; at += batch) {
      check_interrupt();
      const auto begin = sequences.begin() + at;
      score(groove_batch({begin, begin + std::min(batch, n - at)}, published_eos));
    }
  });
}

music::Song continue_groove(nn::LanguageModel& model, const music::Song& prompt,
                            const GrooveSampling& options) {
  std::vector<int64_t> given = to_tokens(prompt);
  given.insert(given.begin(), groove_start);
  GrooveGrammar grammar(options.shifts);
  for (const int64_t token : given) grammar.see(token);
  music::Song result = to_groove(sample_music(model, given,
                                              {.tokens = options.tokens,
                                               .end = groove_end,
                                               .forbidden = [&] { return grammar.forbidden(); },
                                               .see = [&](int64_t token) { grammar.see(token); },
                                               .sampling = {.temperature = options.temperature},
                                               .seed = options.seed,
                                               .limit = options.limit}));
  result.quarters_per_minute = prompt.quarters_per_minute;
  for (size_t i = 0; i < result.tracks.size(); ++i)
    result.tracks[i].program = prompt.tracks[i].program;
  return result;
}

void GrooveProgram::declare(OptionList& options) {
  options.input("data", data_, "Folder of MIDI files; without it, songs are generated", "DIR");
  options.settings(settings, "augment");
  options("published", published_,
          "Use the published configuration (76 million parameters); explicit options take "
          "precedence");
  run_.declare(options);
  options.settings(settings);
  describe_position(options, settings, {positions()});

  options("evaluate", run_.report_only,
          "Do not train; evaluate and generate with the model of --resume");
  options.input("prompt", prompt_, "MIDI file to continue; without it, held-out songs");
  options("prompt_bars", prompt_bars_, "Prompt length in bars", between(1, 1000));
  options("prompts", n_prompts_, "Number of held-out songs to continue", between(1, 1'000'000));
  options("continuations", continuations_, "Number of continuations per prompt (0: none)",
          between(0, 1000));
  options("tokens", tokens_, "Maximum number of new tokens per continuation",
          between(1, 1'000'000));
  options("temperature", temperature_, "Sampling temperature (0: greedy)", require_not_negative);
  options("published_shifts", published_shifts_,
          "Forbid time shifts of zero length, as the published code does; the notes of a chord "
          "then do not begin together");
  options.path("compare", compare_,
               "Only compare: print the style similarity of the other MIDI files to the first one",
               "FILE FILE...");
  options("published_onsets", published_onsets_,
          "Compare onsets as the published code does: only those in the first five ticks of a bar");
}

int GrooveProgram::run() { return compare_.empty() ? TrainingProgram::run() : compare(); }

int GrooveProgram::compare() const {
  require(compare_.size() >= 2, "--compare: needs a reference and at least one other file");
  std::vector<music::Song> grooves;
  MidiDefects damaged;
  for (const std::string& file : compare_)
    grooves.push_back(with_fullest_harmony(read_groove(file, &damaged)));
  print_defects(damaged);
  const std::vector<music::Song> others(grooves.begin() + 1, grooves.end());
  std::cout << "Style similarity to " << compare_.front()
            << ", for each quarter of the output's length (1: identical):\n"
            << style_table(style_similarity(grooves.front(), others, onsets())) << std::flush;
  return 0;
}

void GrooveProgram::resolve() {
  take_settings(published_ ? published_groove() : GrooveSettings(), published_);
  require(prompt_.empty() || n_prompts_ == 1,
          "--prompts " + as_text(n_prompts_) + ": must be 1 with --prompt FILE");
  require(prompt_.empty() || continuations_ > 0, "--prompt: needs --continuations above 0");
}

void GrooveProgram::prepare() {
  use_device(settings.steps, settings.least_memory());
  GrooveSplit songs = read_songs();
  valid_ = validation_grooves(songs.valid, settings.length);
  n_train_ = int64_t(songs.train.size());
  if (continuations_ > 0) find_prompts(songs.valid);
  baselines_ = counted_loss(songs.train, valid_, settings);
  curve_ = {.title = "Loss of " + settings.attention + " attention, position " + settings.position,
            .references = {{"bigram", baselines_.bigram}}};
  if (continuations_ > 0) list_music("prompt");
  for (int64_t i = 1; i <= continuations_; ++i) list_music("continuation-" + std::to_string(i));
  start(std::move(songs.train));
}

void GrooveProgram::start(std::vector<music::Song> songs) {
  songs_ = std::move(songs);
  create({.weight_decay = settings.weight_decay},
         {fingerprint(songs_), "songs than those of --data (or of --seed without it)"},
         settings.batch * (settings.length - 1));
}

GrooveSplit GrooveProgram::read_songs() {
  if (data_.empty()) return generate_groove_split(settings.seed);
  GrooveFolder folder = read_groove_folder(data_, int(settings.skip_bars));
  const std::string reasons = folder.reasons();
  if (!reasons.empty()) skipped_ = " (skipped: " + reasons + ")";
  damaged_ = folder.damaged;
  return split_grooves(std::move(folder.songs), settings.held_out, data_ + skipped_);
}

// Sets the prompts: the file of --prompt, or the first held-out songs with notes within
// the prompt's bars.
void GrooveProgram::find_prompts(const std::vector<music::Song>& held_out) {
  std::vector<music::Song> songs;
  if (!prompt_.empty())
    songs.push_back(with_fullest_harmony(read_groove(prompt_, &prompt_damaged_)));
  if (prompt_.empty())
    for (const music::Song& song : held_out) songs.push_back(with_fullest_harmony(song));
  for (music::Song& song : songs) {
    const music::Song prompt = first_bars(song, int(prompt_bars_));
    if (end_of(prompt) > 0 && int64_t(prompts_.size()) < n_prompts_)
      prompts_.push_back({std::move(song), prompt});
  }
  const std::string bars = "--prompt-bars " + as_text(prompt_bars_);
  require(!prompts_.empty(), bars + ": no note of " +
                                 (prompt_.empty() ? "the held-out songs" : prompt_) +
                                 " ends within them");
  const int64_t room = settings.room(positions());
  for (const auto& [song, prompt] : prompts_) {
    const auto seen = int64_t(to_tokens(prompt).size());
    require(seen < room, bars + ": the prompt has " + as_text(seen) + " tokens; --position " +
                             settings.position + " is limited to " + as_text(room - 1));
    if (settings.has_position("learned")) tokens_ = std::min(tokens_, room - seen);
  }
}

void GrooveProgram::begin() {
  std::cout << (data_.empty() ? "Generated " : "Read ") << n_train_ << " songs for training and "
            << valid_.size() << " for validation" << skipped_ << ". Attention "
            << settings.attention << ", position " << settings.position << ", "
            << model_and_machine() << std::endl;
  print_defects(damaged_);
  print_defects(prompt_damaged_);
}

nn::Batch GrooveProgram::training(int64_t i) {
  return groove_batch(training_grooves(songs_, settings, i), settings.published_eos);
}

double GrooveProgram::validate() {
  return with_context("validation", [&] {
    return groove_loss(*model, valid_, settings.batch, settings.published_eos);
  });
}

void GrooveProgram::report() {
  if (!run_.report_only)
    std::cout << saved() << " and " << nn::duration_text(trainer().seconds()) << std::endl;
  const double loss = validate();
  show_losses("Validation loss, nats per token", "",
              {{"unigram", baselines_.unigram}, {"bigram", baselines_.bigram}, {"model", loss}});
  if (!run_.report_only) draw_curve();
  if (continuations_ > 0) write_music();
}

void GrooveProgram::write(const std::string& name, const music::Song& groove,
                          const std::string& title) {
  show_music(name, title, groove, groove_roll(groove, title));
}

std::vector<music::Song> GrooveProgram::continuations(const music::Song& prompt) {
  std::vector<music::Song> written;
  for (int64_t i = 0; i < continuations_; ++i) {
    written.push_back(
        continue_groove(*model, prompt,
                        {.tokens = tokens_,
                         .temperature = temperature_,
                         .seed = nn::prompt_seed(settings.seed, i),
                         .shifts = published_shifts_ ? ShiftRule::forward : ShiftRule::as_encoded,
                         .limit = settings.cache_limit(positions(), settings.length)}));
  }
  return written;
}

// Writes the files of the first prompt, and the mean similarity over all prompts.
void GrooveProgram::write_music() {
  std::vector<StyleSimilarity> similarities;
  for (const auto& [song, prompt] : prompts_) {
    const std::vector<music::Song> written = continuations(prompt);
    similarities.push_back(style_similarity(song, written, onsets()));
    if (similarities.size() > 1) continue;
    write("prompt", prompt, "Prompt");
    for (size_t i = 0; i < written.size(); ++i) {
      const std::string number = std::to_string(i + 1);
      write("continuation-" + number, written[i],
            "Continuation " + number + " (prompt: " + std::to_string(prompt_bars_) + " bars)");
    }
  }
  const std::string title =
      "Style similarity of the continuations to the whole song, for each quarter of their length "
      "(1: identical)" +
      (prompts_.size() > 1 ? ", mean of " + as_text(int64_t(prompts_.size())) + " songs" : "");
  const std::string table = style_table(mean_similarity(similarities));
  std::cout << title << ":\n" << table << std::flush;
  show(ReportText{.title = title, .given = "", .text = table, .aligned = true});
}

}  // namespace stretto::examples
