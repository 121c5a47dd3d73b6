// Grooves as training data: token sequences, batches, and n-gram baselines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/common/counting.h"
#include "examples/groove/groove.h"
#include "examples/groove/groove_settings.h"
#include "nn/data/batch.h"

namespace stretto::examples {

using GrooveSequence = std::vector<int64_t>;

/// Returns start token, the groove's tokens, end token; at most `length` in all.
GrooveSequence groove_sequence(const music::Song& groove, int64_t length);

/// Returns inputs and targets, both [B, L], where L is one less than the longest sequence. Shorter
/// sequences are padded with end tokens, which are not scored. The end token of a sequence itself
/// is scored, so that a model learns when to stop. With `published_eos` it is not scored, as in the
/// published training, whose models never learned to stop.
nn::Batch groove_batch(const std::vector<GrooveSequence>& sequences, bool published_eos);

struct GrooveSplit {
  std::vector<music::Song> train, valid;
};

/// Returns 200 training and 20 validation songs, generated.
GrooveSplit generate_groove_split(uint64_t seed);

/// Holds out a fraction of the songs, evenly spaced in their order, at least one. Throws
/// UsageError, naming `data`, for fewer than two songs.
GrooveSplit split_grooves(std::vector<music::Song> songs, double held_out, const std::string& data);

/// Returns batch `step` of an endless random sequence that depends only on settings.seed and step.
/// Songs are chosen uniformly and augmented (groove_augmentation.h); without settings.augment they
/// have their fullest harmony.
std::vector<GrooveSequence> training_grooves(const std::vector<music::Song>& songs,
                                             const GrooveSettings& settings, int64_t step);

/// Returns each song once, with its fullest harmony.
std::vector<GrooveSequence> validation_grooves(const std::vector<music::Song>& songs,
                                               int64_t length);

/// Returns the n-gram baselines for the same sequences (common/counting.h). They are
/// fitted to all tokens of every song with its fullest harmony and, with settings.augment,
/// to its twelve transpositions.
CountingLoss counted_loss(const std::vector<music::Song>& train,
                          const std::vector<GrooveSequence>& valid, const GrooveSettings& settings);

/// Returns a digest that identifies the data of a run.
std::string fingerprint(const std::vector<music::Song>& songs);

}  // namespace stretto::examples
