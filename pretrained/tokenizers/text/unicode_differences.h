// Where the character properties of `tokenizers` differ from those of utf8proc and PCRE2.
#pragma once

#include <cstdint>
#include <span>

namespace stretto::nn::tokenizers {

/// Code points first … last.
struct Range {
  uint32_t first, last;
};

/// Code points first … last become to, to + 1, …
struct Mapped {
  uint32_t first, last, to;
};

/// Tables of unicode_differences.cpp, measured by tests/pretrained/tokenizers/unicode_differences.py.
struct UnicodeDifferences {
  /// Members of a general category in Unicode 16 that PCRE2 10.42 does not know.
  std::span<const Range> new_Lu, new_Ll, new_Lm, new_Lo, new_M, new_N, new_P, new_S;
  /// Code points for which a property is the opposite of what utf8proc's category says.
  std::span<const Range> numeric, punctuation, control, accent, mark, word, extend;
  /// Code points that normalization leaves unchanged, as it leaves the order around them.
  std::span<const Range> opaque;
  /// Lower case that utf8proc does not know.
  std::span<const Mapped> lower;
};

UnicodeDifferences unicode_differences();

}  // namespace stretto::nn::tokenizers
