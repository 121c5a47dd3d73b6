// The encoder and the classifier of the Long Range Arena (Tay et al. 2021), one sequence at a time,
// by loops in double precision: the model of nn/models/classifier.h from its parameters' values.
#pragma once

#include <vector>

#include "nn/models/classifier.h"
#include "tests/reference/attention.h"

namespace stretto::reference {

/// Encodes `tokens` with softmax attention and pools them to one vector [1, d_model].
Matrix encode(const nn::SequenceClassifier& model, const std::vector<int64_t>& tokens);

/// Returns the logits of the classes [1, n_classes] for one sequence.
Matrix classify(const nn::SequenceClassifier& model, const std::vector<int64_t>& tokens);
/// Returns the logits of the classes [1, n_classes] for a pair of sequences: [first | second] is
/// the input of the head.
Matrix classify(const nn::SequenceClassifier& model, const std::vector<int64_t>& first,
                const std::vector<int64_t>& second);

}  // namespace stretto::reference
