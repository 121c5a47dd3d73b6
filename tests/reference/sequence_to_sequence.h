// The Transformer as its paper writes it: one short function per formula, in double precision, one
// sentence pair at a time.
//
//   Vaswani et al. 2017   Attention Is All You Need
//   Raffel et al. 2020    T5, with the gated network of Shazeer 2020
#pragma once

#include "nn/models/sequence_to_sequence.h"
#include "tests/reference/attention.h"

namespace stretto::reference {

/// Logits [M, target_vocabulary] for the source tokens [N] and the target tokens so far [M], with
/// the model's settings and the values of its parameters, by their names. Without positions in
/// attention and without dropout.
Matrix transformer(const nn::SequenceToSequence& model, const std::vector<int64_t>& source,
                   const std::vector<int64_t>& target);

}  // namespace stretto::reference
