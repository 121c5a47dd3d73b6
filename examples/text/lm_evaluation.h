// Evaluation of a language model on a held-out stream, and generation of text.
#pragma once

#include <atomic>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "examples/common/counting.h"
#include "nn/data/contiguous_batches.h"
#include "nn/models/language_model.h"
#include "nn/training/evaluate.h"

namespace stretto::examples {

inline const std::atomic<bool> never_stopped = false;

struct Evaluation {
  nn::EvaluationWindows rule;
  nn::LossSum all;
  std::vector<nn::LossSum> at;  ///< by position within the segment
  /// Mean number of tokens visible to a layer when it predicts a token, itself included.
  double context = 0;
  double seconds = 0;
};

struct EvaluationOptions {
  nn::EvaluationWindows rule;
  int64_t batch = 8;
  int64_t clamp = 0;  ///< see nn::MemoryOptions, like same_length
  bool same_length = false;
  int64_t groups = 1;  ///< number of groups that the columns of a memory are divided into
};

/// Scores every token except the first exactly once (nn::for_each_evaluation_window). Batches, or
/// with memory the groups of columns, are distributed over the processes (nn::EvaluationReducer).
/// Throws Interrupted when the user stops the program.
Evaluation evaluate(nn::LanguageModel& model, const nn::TokenStream& tokens,
                    const EvaluationOptions& options);

/// Fits n-gram models to `train` and returns their loss on every token of `valid` except the first;
/// NaN if `stop` became true meanwhile.
CountingLoss counting_loss(const nn::TokenStream& train, const nn::TokenStream& valid,
                           int64_t n_tokens, const std::atomic<bool>& stop = never_stopped);

/// Computes counting_loss() while a training runs. Texts of up to 16 million tokens (a third of a
/// second) are counted at once, longer ones by another thread if one can be started.
class CountingInBackground {
 public:
  CountingInBackground() = default;
  ~CountingInBackground() { stop_ = true; }
  CountingInBackground(const CountingInBackground&) = delete;
  CountingInBackground& operator=(const CountingInBackground&) = delete;

  void start(const nn::TokenStream& train, const nn::TokenStream& valid, int64_t n_tokens);
  /// Returns the losses if they are known already.
  std::optional<CountingLoss> known() const;
  /// Waits for the losses.
  CountingLoss get() const { return result_.get(); }

 private:
  std::atomic<bool> stop_ = false;
  std::shared_future<CountingLoss> result_;
};

struct WritingOptions {
  int64_t tokens = 0;
  int64_t at_once = INT64_MAX;  ///< maximum number of positions per call, memory included
  int64_t context = 0;          ///< without memory: number of tokens that predict a new token
  double temperature = 1;
  double top_p = 1;
  uint64_t seed = 1;
};

/// Returns new tokens after `prompt` (at least one token). With model.options.memory each token is
/// processed once and stored in the memory; without memory, the last `context` tokens are processed
/// again for every new token. Throws Interrupted as evaluate() does.
std::vector<int64_t> write_tokens(nn::LanguageModel& model, const std::vector<int64_t>& prompt,
                                  const WritingOptions& options);

}  // namespace stretto::examples
