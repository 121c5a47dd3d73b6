// How well a language model predicts a held-out stream, and text that it writes.
#pragma once

#include <atomic>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "examples/common/counting.h"
#include "nn/data/segments.h"
#include "nn/models/transformer_xl.h"
#include "nn/training/evaluate.h"

namespace stretto::examples {

inline const std::atomic<bool> never_stopped = false;

struct Evaluation {
  nn::EvaluationWindows rule;
  nn::LossSum all;
  std::vector<nn::LossSum> at;  // by the position within the segment
  /// Tokens that a layer can see when it predicts one, itself included, on average.
  double context = 0;
  double seconds = 0;
};

struct EvaluationOptions {
  nn::EvaluationWindows rule;
  int64_t batch = 8;
  int64_t clamp = 0;  // TransformerXL::Lengths, as the next
  bool same_length = false;
  int64_t groups = 1;  // that the columns of a memory are cut into
};

/// Scores every token but the very first exactly once (nn::for_each_evaluation_window). Processes
/// share out the batches, or with memory the groups of columns (nn::EvaluationReducer). The model's
/// lengths are as before afterwards. Throws Interrupted when the user stops the program.
Evaluation evaluate(nn::TransformerXL& model, const nn::TokenStream& tokens,
                    const EvaluationOptions& options);

/// Of every token of `valid` but the very first, after counting `train`; NaN where `stop` became
/// true meanwhile.
CountingLoss counting_loss(const nn::TokenStream& train, const nn::TokenStream& valid,
                           int64_t n_tokens, const std::atomic<bool>& stop = never_stopped);

/// counting_loss() while a training goes on: a text of up to 16 million tokens, a third of a
/// second, is counted at once, a larger one by a thread where one can be had.
class CountingInBackground {
 public:
  CountingInBackground() = default;
  ~CountingInBackground() { stop_ = true; }
  CountingInBackground(const CountingInBackground&) = delete;
  CountingInBackground& operator=(const CountingInBackground&) = delete;

  void start(const nn::TokenStream& train, const nn::TokenStream& valid, int64_t n_tokens);
  /// The losses, once they are known.
  std::optional<CountingLoss> known() const;
  /// The losses, which are waited for.
  CountingLoss get() const { return result_.get(); }

 private:
  std::atomic<bool> stop_ = false;
  std::shared_future<CountingLoss> result_;
};

struct WritingOptions {
  int64_t tokens = 0;
  int64_t at_once = INT64_MAX;  // most positions of a call, those of the memory included
  int64_t context = 0;          // without memory: the tokens that are seen again for each new one
  double temperature = 1;
  double top_p = 1;
  uint64_t seed = 1;
};

/// New tokens after `prompt` (at least one). With model.lengths.memory each token is read once and
/// kept as memory; without, the last `context` tokens are read again for every new one. Throws
/// Interrupted as above.
std::vector<int64_t> write_tokens(nn::TransformerXL& model, const std::vector<int64_t>& prompt,
                                  const WritingOptions& options);

}  // namespace stretto::examples
