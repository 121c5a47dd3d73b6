// Decoders turn the texts of tokens into text.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../files/definition.h"
#include "../text/pattern.h"
#include "decoder_state.h"

namespace stretto::nn::tokenizers {

class Decoder;

/// The text of a token or, if a decoder passes it on before it is complete, a part of it.
struct TokenText {
  std::string_view text;
  bool starts = true, ends = true;
};

/// A text that is being decoded by a sequence of decoders.
struct Decoding {
  const std::vector<std::unique_ptr<Decoder>>& decoders;
  std::vector<DecoderState>& states;  ///< One for each decoder.
  MatchScratch& scratch;
  std::string& text;       ///< Receives the text.
  bool is_stream = false;  ///< True if text is passed on as soon as it is certain.

  /// Passes a token to a decoder. Throws Error if the decoders multiply the text beyond the limit of
  /// MatchScratch.
  void pass(size_t decoder, const TokenText& token);
  /// Ends the text.
  void finish();
};

/// The next decoder.
struct NextDecoder {
  Decoding& decoding;
  size_t index;

  void operator()(std::string_view text, bool starts = true, bool ends = true) const {
    decoding.pass(index, {text, starts, ends});
  }
};

/// A decoder. Immutable, hence thread-safe.
class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Changes a token and passes it on; `state` holds text that later tokens can change.
  virtual void add(const TokenText& token, DecoderState& state, NextDecoder next) const = 0;
  /// Passes on the text that `state` holds.
  virtual void finish(DecoderState&, NextDecoder) const {}
};

/// Returns the decoders of a definition in their order and one that appends tokens to the text.
/// Throws Error for a component that is not supported.
std::vector<std::unique_ptr<Decoder>> make_decoders(const Definition& definition);

/// The ids around those of the text.
struct Template {
  std::vector<int64_t> before, after;
};

/// Returns what the post-processor of a definition adds. Throws Error for a component that is not
/// supported.
Template make_template(const Definition& definition);

}  // namespace stretto::nn::tokenizers
