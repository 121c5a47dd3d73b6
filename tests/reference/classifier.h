// The encoder and the classifier of the Long Range Arena, one sequence at a time, by loops, in
// double precision: what nn/models/classifier.h says, from the numbers of its parameters.
#pragma once

#include <vector>

#include "nn/models/classifier.h"
#include "tests/reference/attention.h"

namespace stretto::reference {

/// The vector [1, d_model] that stands for the whole of `tokens`, by softmax attention.
Matrix encode(const nn::SequenceClassifier& model, const std::vector<int64_t>& tokens);

/// Scores of the classes [1, n_classes], of one sequence or of a pair.
Matrix classify(const nn::SequenceClassifier& model, const std::vector<int64_t>& tokens);
Matrix classify(const nn::SequenceClassifier& model, const std::vector<int64_t>& first,
                const std::vector<int64_t>& second);

}  // namespace stretto::reference
