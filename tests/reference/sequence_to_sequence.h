// The Transformer as its paper writes it: one short function per formula, in double precision, one
// sentence pair at a time.
//
//   Vaswani et al. 2017   Attention Is All You Need
//   Raffel et al. 2020    T5, with the gated network of Shazeer 2020
#pragma once

#include "nn/models/sequence_to_sequence.h"
#include "tests/reference/attention.h"

namespace stretto::reference {

/// Computes the logits [M, target_vocabulary] of an encoder and decoder for the source tokens [N]
/// and the target tokens so far [M] (Vaswani et al., §3), with the model's options and the values
/// of its parameters. Ignores positional encodings in attention and dropout.
Matrix transformer(const nn::SequenceToSequence& model, const std::vector<int64_t>& source,
                   const std::vector<int64_t>& target);

}  // namespace stretto::reference
