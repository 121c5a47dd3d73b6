// The program train_music: trains a model of piano music on MIDI files, with any attention
// kernel and positional encoding, measures how it extrapolates past the trained length, and
// generates a piece.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "examples/common/counting.h"
#include "examples/piano/infilling.h"
#include "examples/piano/library.h"
#include "examples/piano/piano_settings.h"
#include "examples/piano/piano_writing.h"
#include "examples/training/model_program.h"
#include "nn/data/packed_batches.h"

namespace stretto::examples {

/// Returns the mean negative log-likelihood in nats at each of `length` positions, over `windows`
/// (at least one), with the model in evaluation mode. At position i the next token is predicted
/// from i + 1 tokens. Throws Interrupted when the user stops the program.
std::vector<double> loss_by_position(nn::LanguageModel& model,
                                     const std::vector<PianoWindow>& windows, int64_t length,
                                     int64_t batch);

/// Returns the mean of the elements [first, last); NaN if there are none.
double mean_of(const std::vector<double>& numbers, int64_t first, int64_t last);

class PianoProgram : public TokenProgram<PianoSettings> {
 public:
  PianoProgram() : TokenProgram({.out = "out/music"}) {}

  void declare(OptionList& options);

 private:
  void resolve() override;
  void resolve_settings();
  int64_t count_parameters() override;
  void prepare() override;
  void read_windows(const music::Tokenizer& language);
  void set_files();
  void begin() override;
  nn::Batch training(int64_t i) override;
  double validate() override { return mean_loss(validation_, settings.length); }
  double mean_loss(const std::vector<PianoWindow>& all, int64_t length);
  std::vector<double> losses(const std::vector<PianoWindow>& all, int64_t length);
  void report() override;
  void write_losses(const std::vector<double>& all, int64_t trained, double within,
                    double extrapolated);
  bool has_measures() const;
  void measure_position();
  void draw_attention();
  void write_music();
  void fill_in_bars();

  std::string preset_ = "small";
  std::string data_, split_;
  int64_t every_ = 10;
  int64_t validation_windows_ = 32;
  int64_t eval_length_ = 0;
  int64_t eval_windows_ = 200;
  int64_t eval_batch_ = 4;
  std::string picture_layers_;
  int64_t picture_heads_ = 4;
  int64_t picture_length_ = 256;
  int64_t generate_ = 1024;
  PianoWritingOptions writing_;

  PianoLibrary library_;
  std::optional<nn::PackedBatches> packed_;  // with --pack
  int64_t n_train_ = 0, n_tokens_ = 0;
  std::vector<PianoWindow> validation_, evaluation_;
  std::vector<InfillPiece> gaps_;  // with --infill
  CountingLoss baselines_{};
};

}  // namespace stretto::examples
