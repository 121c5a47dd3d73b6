// Trains a Transformer on grooves, that is bass, drums and one harmony instrument, and lets it
// continue some: does it stay in the style it was given?
//
// In: MIDI files of --data DIR, or songs that it generates itself; --prompt FILE to continue. Out,
// in --out DIR: checkpoint, metrics.csv, a picture of the loss, the prompt and its continuations as
// MIDI and as piano rolls, and how alike they are, which --prompts measures over several songs.
// --compare only compares MIDI files.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "examples/groove/groove_midi.h"
#include "examples/groove/groove_report.h"
#include "examples/groove/groove_tokens.h"
#include "examples/groove/groove_training.h"
#include "examples/training/model_run.h"
#include "examples/training/run_settings.h"
#include "nn/training/progress.h"

namespace stretto::examples {
namespace {

struct Options {
  GrooveSettings settings;
  RunOptions run{.out = "out/groove"};
  std::string data;
  bool published = false;
  std::string prompt;
  int64_t prompt_bars = 2, prompts = 1, continuations = 3, tokens = 300;
  double temperature = 0.6;
  std::vector<std::string> compare;
  bool published_onsets = false, published_shifts = false;

  OnsetUnit onsets() const {
    return published_onsets ? OnsetUnit::published_ticks : OnsetUnit::beats;
  }
};

void describe(CLI::App& app, Options& o) {
  GrooveSettings& s = o.settings;
  app.add_option("--data", o.data, "Folder of MIDI files; without it songs are generated")
      ->option_text("DIR");
  app.add_option("--held-out", s.held_out, "Share of the files to judge by");
  app.add_option("--skip-bars", s.skip_bars, "Leave out so many bars at the start of every file");
  app.add_option("--augment", s.augment,
                 "1: other harmony instruments, beginnings, keys and missing tracks; 0: not");
  app.add_flag("--published", o.published,
               "The published configuration of 76 million parameters, for options not given");
  describe(app, o.run);
  describe_steps_and_seed(app, s.steps, s.seed);

  app.add_flag("--published-model", s.published_model,
               "Norms after the layers, biases everywhere, small first values");
  app.add_flag("--published-eos", s.published_eos,
               "Do not learn where songs end, as the published models");
  describe_model(app, s, {s.position_settings(s.length)});
  app.add_option("--length", s.length, "Sequences are cut to so many tokens");
  app.add_option("--weight-decay", s.weight_decay, "Decoupled weight decay");

  app.add_flag("--evaluate", o.run.report_only, "Do not train: judge and continue with --resume");
  app.add_option("--prompt", o.prompt, "MIDI file to continue; without it a song held out")
      ->option_text("FILE");
  app.add_option("--prompt-bars", o.prompt_bars, "How much of it the model sees");
  app.add_option("--prompts", o.prompts, "Continue so many of the songs held out");
  app.add_option("--continuations", o.continuations, "How many to write of each (0: none)");
  app.add_option("--tokens", o.tokens, "New tokens of each, at most");
  app.add_option("--temperature", o.temperature, "Of the drawing of tokens");
  app.add_flag("--published-shifts", o.published_shifts,
               "Write no time shift of no time, as the published code: chords fall apart");
  app.add_option("--compare", o.compare,
                 "Only tell how alike in style other MIDI files are to the first one")
      ->option_text("FILE FILE...");
  app.add_flag("--published-onsets", o.published_onsets,
               "Compare onsets as the published code did, by the first five ticks of a bar");
}

// The configuration, over it the command line. Of a resumed run, its own settings, which must be
// those that are given, with --published all of that.
void resolve(Options& o) {
  take_preset(o.settings, settings_to_notes(o.published ? published_groove() : GrooveSettings()),
              o.run);
  if (!o.run.resume.empty())
    take_saved(o.settings, saved_settings<GrooveSettings>(o.run.resume, "groove"), o.run,
               o.published);
  o.settings.check();
  require_range("--prompt-bars", o.prompt_bars, 1, 1000);
  require_range("--prompts", o.prompts, 1, 1'000'000);
  require(o.prompt.empty() || o.prompts == 1,
          "--prompts " + as_text(o.prompts) + ": --prompt FILE is one");
  require(o.prompt.empty() || o.continuations > 0, "--prompt: needs --continuations above 0");
  require_range("--continuations", o.continuations, 0, 1000);
  require_range("--tokens", o.tokens, 1, 1'000'000);
  require_not_negative("--temperature", o.temperature);
}

void tell(const MidiDefects& damaged) {
  if (damaged.files() > 0) std::cout << damaged.text() << std::endl;
}

class Run : public ModelRun<GrooveTraining> {
 public:
  explicit Run(Options options) : ModelRun(options.run), o_(std::move(options)) {}

 private:
  static constexpr const char* smaller = "--layers, --d-model, --d-hidden, --length or --batch";

  const GrooveSettings& settings() const { return o_.settings; }
  nn::PositionSettings positions() const { return settings().position_settings(settings().length); }

  void prepare() override {
    const Device device = use_device(settings().steps, settings().least_memory(), smaller);
    GrooveSplit songs = read_songs();
    valid_ = validation_grooves(songs.valid, settings().length);
    n_train_ = int64_t(songs.train.size());
    if (o_.continuations > 0) find_prompts(songs.valid);
    baselines_ = counted_loss(songs.train, valid_, settings());
    if (run_.report_only) return load_model(settings().model(), settings().weights(), device);
    make_training(settings(), std::move(songs.train), device);
  }

  GrooveSplit read_songs() {
    if (o_.data.empty()) return generate_groove_split(settings().seed);
    GrooveFolder folder = read_groove_folder(o_.data, int(settings().skip_bars));
    const std::string reasons = folder.reasons();
    if (!reasons.empty()) skipped_ = " (skipped: " + reasons + ")";
    damaged_ = folder.damaged;
    return split_grooves(std::move(folder.songs), settings().held_out, o_.data + skipped_);
  }

  // The file, or of the songs held out the first ones that begin within the bars of a prompt.
  void find_prompts(const std::vector<GrooveSource>& held_out) {
    std::vector<Groove> songs;
    if (!o_.prompt.empty())
      songs.push_back(with_fullest_harmony(read_groove(o_.prompt, &prompt_damaged_)));
    if (o_.prompt.empty())
      for (const GrooveSource& song : held_out) songs.push_back(with_fullest_harmony(song));
    for (Groove& song : songs) {
      const Groove prompt = first_bars(song, int(o_.prompt_bars));
      if (end_of(prompt) > 0 && int64_t(prompts_.size()) < o_.prompts)
        prompts_.push_back({std::move(song), prompt});
    }
    const std::string bars = "--prompt-bars " + as_text(o_.prompt_bars);
    require(!prompts_.empty(), bars + ": no note of " +
                                   (o_.prompt.empty() ? "the songs held out" : o_.prompt) +
                                   " ends within them");
    const int64_t room = settings().room(positions());
    for (const auto& [song, prompt] : prompts_) {
      const auto seen = int64_t(to_tokens(prompt).size());
      require(seen < room, bars + ": has " + as_text(seen) + " tokens, and --position " +
                               settings().position + " has room for " + as_text(room - 1));
      if (settings().has_position("learned")) o_.tokens = std::min(o_.tokens, room - seen);
    }
  }

  void begin() override {
    std::cout << (o_.data.empty() ? "Generated " : "Read ") << n_train_
              << " songs to learn from and " << valid_.size() << " to judge by" << skipped_
              << ". Attention " << settings().attention << ", position " << settings().position
              << ", " << model_and_machine() << std::endl;
    tell(damaged_);
    tell(prompt_damaged_);
  }

  std::vector<std::string> files() const override {
    std::vector<std::string> all;
    if (o_.continuations > 0) all.insert(all.end(), {"prompt.mid", "prompt.svg", "prompt.png"});
    for (int64_t i = 1; i <= o_.continuations; ++i)
      for (const char* ending : {".mid", ".svg", ".png"})
        all.push_back("continuation-" + std::to_string(i) + ending);
    return all;
  }

  std::vector<RunInput> inputs() const override {
    std::vector<RunInput> all;
    if (!o_.data.empty()) all.push_back({"--data", o_.data, true});
    if (!o_.prompt.empty()) all.push_back({"--prompt", o_.prompt});
    return all;
  }

  LossCurve loss_curve() override {
    return {
        .title = "Loss of " + settings().attention + " attention, position " + settings().position,
        .references = {{"bigram", baselines_.bigram}}};
  }

  double validate() override {
    return told_with("validation", [&] {
      return groove_loss(model(), valid_, settings().batch, settings().published_eos);
    });
  }

  void report() override {
    if (!run_.report_only)
      std::cout << saved() << " and " << nn::duration_text(trainer().seconds()) << std::endl;
    const double loss = validate();
    std::cout << "Validation loss, nats per token:\n"
              << "  unigram  " << fixed(baselines_.unigram, 4) << "\n"
              << "  bigram   " << fixed(baselines_.bigram, 4) << "\n"
              << "  model    " << fixed(loss, 4) << std::endl;
    show(ReportTable{"Validation loss, nats per token",
                     {"", "loss"},
                     {{"unigram", fixed(baselines_.unigram, 4)},
                      {"bigram", fixed(baselines_.bigram, 4)},
                      {"model", fixed(loss, 4)}}});
    if (!run_.report_only) draw_curve();
    if (o_.continuations > 0) write_music();
  }

  void write(const std::string& name, const Groove& groove, const std::string& title) {
    show_music(name, title, to_song(groove), groove_roll(groove, title));
  }

  std::vector<Groove> continuations(const Groove& prompt) {
    std::vector<Groove> written;
    for (int64_t i = 0; i < o_.continuations; ++i) {
      written.push_back(continue_groove(
          model(), prompt,
          {.tokens = o_.tokens,
           .temperature = o_.temperature,
           .seed = settings().seed + uint64_t(i),
           .shifts = o_.published_shifts ? ShiftRule::forward : ShiftRule::as_encoded,
           .limit = settings().cache_limit(positions(), settings().length)}));
    }
    return written;
  }

  // Files of the first prompt, and the likeness of all.
  void write_music() {
    std::vector<StyleSimilarity> likeness;
    for (const auto& [song, prompt] : prompts_) {
      const std::vector<Groove> written = continuations(prompt);
      likeness.push_back(style_similarity(song, written, o_.onsets()));
      if (likeness.size() > 1) continue;
      write("prompt", prompt, "Prompt");
      for (size_t i = 0; i < written.size(); ++i) {
        const std::string number = std::to_string(i + 1);
        write("continuation-" + number, written[i],
              "Continuation " + number + " of " + std::to_string(o_.prompt_bars) + " bars");
      }
    }
    const std::string title =
        "Likeness in style of the continuations, by quarters, to the whole song (1: the same)" +
        (prompts_.size() > 1 ? ", of " + as_text(int64_t(prompts_.size())) + " songs" : "");
    const std::string table = style_table(mean_similarity(likeness));
    std::cout << title << ":\n" << table << std::flush;
    show(ReportText{.title = title, .given = "", .text = table, .aligned = true});
  }

  Options o_;
  std::vector<GrooveSequence> valid_;
  int64_t n_train_ = 0;
  std::string skipped_;
  MidiDefects damaged_, prompt_damaged_;
  CountingLoss baselines_{};
  struct Prompt {
    Groove song, prompt;
  };
  std::vector<Prompt> prompts_;
};

int compare(const Options& o) {
  require(o.compare.size() >= 2, "--compare: needs a reference and at least one other file");
  std::vector<Groove> grooves;
  MidiDefects damaged;
  for (const std::string& file : o.compare)
    grooves.push_back(with_fullest_harmony(read_groove(file, &damaged)));
  tell(damaged);
  const std::vector<Groove> others(grooves.begin() + 1, grooves.end());
  std::cout << "Likeness in style to " << o.compare.front() << ", by quarters (1: the same):\n"
            << style_table(style_similarity(grooves.front(), others, o.onsets())) << std::flush;
  return 0;
}

int run(Options& options) {
  if (!options.compare.empty()) return compare(options);
  resolve(options);
  if (options.run.parameters) return print_parameters<nn::LanguageModel>(options.settings.model());
  return Run(options)();
}

}  // namespace
}  // namespace stretto::examples

int main(int argc, char** argv) {
  return stretto::examples::run_program<stretto::examples::Options>(
      argc, argv, "groove",
      "Trains a Transformer on bass, drums and harmony, and lets it continue some bars.");
}
