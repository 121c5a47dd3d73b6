// Grooves as training data: sequences of tokens, batches of them, and what counting makes of them.
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

/// start, the groove's tokens, end: at most `length` in all.
GrooveSequence groove_sequence(const Groove& groove, int64_t length);

/// Inputs and targets, both [B, L] with L one less than the longest sequence. Shorter ones are
/// padded with end tokens, which are not scored. The end of a sequence is, so that a model learns
/// when to stop; with `published_eos` it is not either, as in the published training, whose models
/// never learned it.
nn::Batch groove_batch(const std::vector<GrooveSequence>& sequences, bool published_eos);

struct GrooveSplit {
  std::vector<GrooveSource> train, valid;
};

/// 200 and 20 generated songs.
GrooveSplit generate_groove_split(uint64_t seed);

/// Holds out a share of the songs, evenly spread over their order, at least one. Throws UsageError,
/// naming `data`, for less than two songs.
GrooveSplit split_grooves(std::vector<GrooveSource> songs, double held_out,
                          const std::string& data);

/// Batch `step` of an endless random order that depends on settings.seed and step alone: songs
/// drawn with equal chances, augmented (groove_augmentation.h) unless settings.augment is false,
/// when they play their fullest harmony.
std::vector<GrooveSequence> training_grooves(const std::vector<GrooveSource>& songs,
                                             const GrooveSettings& settings, int64_t step);

/// Each song once, with its fullest harmony.
std::vector<GrooveSequence> validation_grooves(const std::vector<GrooveSource>& songs,
                                               int64_t length);

/// What counting makes of the same sequences (common/counting.h), with all of every song and its
/// fullest harmony to count and, with settings.augment, all its twelve transpositions.
CountingLoss counted_loss(const std::vector<GrooveSource>& train,
                          const std::vector<GrooveSequence>& valid, const GrooveSettings& settings);

/// A name for the data of a run.
std::string fingerprint(const std::vector<GrooveSource>& songs);

}  // namespace stretto::examples
