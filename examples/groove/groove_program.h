// The program groove: trains a Transformer on grooves (bass, drums and one harmony instrument),
// lets it continue some, and measures whether it stays in the style of the prompt.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/groove/groove_data.h"
#include "examples/groove/groove_grammar.h"
#include "examples/groove/groove_midi.h"
#include "examples/groove/groove_settings.h"
#include "examples/groove/groove_style.h"
#include "examples/training/model_program.h"

namespace stretto::examples {

/// Returns the mean negative log-likelihood in nats per token; NaN for no sequences. Throws
/// Interrupted when the user stops the program.
double groove_loss(nn::LanguageModel& model, const std::vector<GrooveSequence>& sequences,
                   int64_t batch, bool published_eos);

struct GrooveSampling {
  int64_t tokens = 300;      ///< maximum number of new tokens
  double temperature = 0.6;  ///< as published
  uint64_t seed = 1;
  ShiftRule shifts = ShiftRule::as_encoded;
  int64_t limit = 0;  ///< maximum number of positions in the cache; 0: unlimited
};

/// Returns the prompt and its continuation by the model, sampled token by token as GrooveGrammar
/// allows. The result has the prompt's instruments and tempo; notes without an end when the tokens
/// run out are lost. Throws Interrupted as groove_loss() does.
music::Song continue_groove(nn::LanguageModel& model, const music::Song& prompt,
                            const GrooveSampling& options);

class GrooveProgram : public TokenProgram<GrooveSettings> {
 public:
  GrooveProgram() : TokenProgram({.out = "out/groove"}) {}

  void declare(OptionList& options);
  /// With --compare, which only compares files, nothing else is done.
  int run() override;

  /// Creates the model and its trainer for the training songs.
  void start(std::vector<music::Song> songs);

 private:
  int compare() const;
  void resolve() override;
  void prepare() override;
  GrooveSplit read_songs();
  void find_prompts(const std::vector<music::Song>& held_out);
  void begin() override;
  nn::Batch training(int64_t i) override;
  double validate() override;
  void report() override;
  void write(const std::string& name, const music::Song& groove, const std::string& title);
  std::vector<music::Song> continuations(const music::Song& prompt);
  void write_music();

  nn::PositionSettings positions() const { return settings.position_settings(settings.length); }
  OnsetUnit onsets() const {
    return published_onsets_ ? OnsetUnit::published_ticks : OnsetUnit::beats;
  }

  std::string data_;
  bool published_ = false;
  std::string prompt_;
  int64_t prompt_bars_ = 2, n_prompts_ = 1, continuations_ = 3, tokens_ = 300;
  double temperature_ = 0.6;
  std::vector<std::string> compare_;
  bool published_onsets_ = false, published_shifts_ = false;

  std::vector<music::Song> songs_;
  std::vector<GrooveSequence> valid_;
  int64_t n_train_ = 0;
  std::string skipped_;
  MidiDefects damaged_, prompt_damaged_;
  CountingLoss baselines_{};
  struct Prompt {
    music::Song song, prompt;
  };
  std::vector<Prompt> prompts_;
};

}  // namespace stretto::examples
