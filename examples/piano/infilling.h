// Infilling by train_music: passages of 12 bars whose bars 5 to 8 the model writes.
#pragma once

#include <string>
#include <vector>

#include "examples/piano/library.h"
#include "examples/piano/piano_writing.h"

namespace stretto::examples {

/// Twelve bars of a piece.
struct InfillPiece {
  std::string name;
  std::vector<int64_t> tokens;
  int64_t first, last;  ///< bars 5 to 8: tokens first … last − 1

  /// Returns the passage with other tokens in place of bars 5 to 8.
  std::vector<int64_t> with_bars(const std::vector<int64_t>& bars) const;
};

/// Returns consecutive passages of each piece that fit into sequences of `length` tokens with the
/// three tokens of infilling; at most `most`, evenly spaced.
std::vector<InfillPiece> infill_pieces(const std::vector<PianoPiece>& pieces,
                                       const music::Tokenizer& tokens, int64_t length,
                                       int64_t most);

/// Returns the mean loss in nats of the tokens of bars 5 to 8, given bars 1 to 4 and, with `after`,
/// bars 9 to 12.
double infill_loss(nn::LanguageModel& model, const std::vector<InfillPiece>& pieces,
                   const music::Tokenizer& tokens, bool after, int64_t batch);

/// Returns new tokens for bars 5 to 8: four bars, unless the whole sequence reaches `length` + 1
/// tokens before. Of the options, `tokens` and `bars` are not used.
std::vector<int64_t> write_infill(nn::LanguageModel& model, const music::Tokenizer& tokens,
                                  const InfillPiece& piece, int64_t length,
                                  const PianoWritingOptions& options);

}  // namespace stretto::examples
