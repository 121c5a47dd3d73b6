// CIFAR-10 (Krizhevsky 2009) as sequences of gray values, row by row.
#pragma once

#include <string>

#include "examples/lra/sequences.h"

namespace stretto::examples {

/// Gray values are the ids; there is no padding.
constexpr int64_t gray_vocabulary = 256;
constexpr int64_t image_pixels = 32 * 32;

/// Returns ⌊(0.2989 R + 0.5870 G + 0.1140 B) · 255.5 / 255⌋, as TensorFlow's rgb_to_grayscale
/// does for integers.
uint16_t gray_value(uint8_t red, uint8_t green, uint8_t blue);

/// Reads records of a label (0 to 9) and 1,024 bytes each of red, green and blue (the official
/// "binary version"), or of a label and 1,024 gray bytes; the format follows from the size and the
/// labels. Throws UsageError for any other file.
LabeledSequences read_images(const std::string& path);

}  // namespace stretto::examples
