// Decoders: what turns the texts of tokens into text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../files/definition.h"
#include "../text/pattern.h"

namespace stretto::nn::tokenizers {

/// A decoder. Immutable, hence thread-safe.
class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Changes the texts of tokens, whose concatenation is the text.
  virtual void apply(std::vector<std::string>& tokens, MatchScratch& scratch) const = 0;
  /// True if each token is decoded to bytes by itself (byte_level_bytes()).
  virtual bool is_byte_level() const { return false; }
};

/// Returns the bytes of a token of the alphabet of byte_level.h; of other tokens their UTF-8.
std::string byte_level_bytes(std::string_view token);

/// Returns the decoder of a definition; null if there is none. Throws Error for a component that is
/// not supported.
std::unique_ptr<Decoder> make_decoder(const Definition& definition);

/// The ids around those of the text.
struct Template {
  std::vector<int32_t> before, after;
};

/// Returns what the post-processor of a definition adds. Throws Error for a component that is not
/// supported.
Template make_template(const Definition& definition);

}  // namespace stretto::nn::tokenizers
