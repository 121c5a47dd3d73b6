// Texts as bytes: film reviews (Maas et al. 2011), and pairs of texts of papers (the AAN corpus).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "examples/lra/sequences.h"

namespace stretto::examples {

/// Padding, and one id per byte value.
constexpr int64_t byte_vocabulary = 257;

/// Returns each byte plus 1, at most `max_length` of them.
std::vector<uint16_t> byte_ids(std::string_view text, int64_t max_length);

/// Reads lines of four tab-separated fields: label (1 positive, 0 negative), rating, name, text.
/// Throws UsageError, naming the line, for anything else and for an empty text.
LabeledSequences read_reviews(const std::string& path, int64_t max_length);

/// Reads lines of five tab-separated fields: label ("1" or "1.0": the papers cite each other; "0"
/// or "0.0"), two names, two texts. Throws as read_reviews() does.
LabeledSequences read_text_pairs(const std::string& path, int64_t max_length);

}  // namespace stretto::examples
