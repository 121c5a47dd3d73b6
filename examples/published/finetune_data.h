// What finetune learns: a text, or the answers of conversations.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/digest.h"
#include "nn/data/batch.h"
#include "pretrained/pretrained.h"

namespace stretto::examples {

/// Training batches and held-out batches of one form of data.
class FinetuneData {
 public:
  virtual ~FinetuneData() = default;
  /// Returns the training batch of a step, on the CPU.
  virtual nn::Batch batch(int64_t step) = 0;
  /// Calls `score` with batches of at most `rows` rows, which have each held-out token once.
  virtual void score(int64_t rows, const std::function<void(const nn::Batch&)>& score) const = 0;
  /// Returns the number of held-out tokens that are scored.
  virtual int64_t scored() const = 0;
  /// Returns the sizes of both parts: "9,000 tokens for training and 1,000 tokens for validation".
  virtual std::string sizes() const = 0;
  /// Adds all tokens.
  virtual void add_to(Digest& digest) const = 0;
};

struct FinetuneFiles {
  std::string text;           ///< A text in UTF-8; or
  std::string conversations;  ///< a file for nn::read_conversations().
  std::string validation;     ///< Empty: the last `held_out` of the other file.
  double held_out = 0.1;      ///< A fraction.
  int64_t most_scored = 0;    ///< Tokens of a text that are scored (0: all).
};

struct FinetuneBatches {
  int64_t batch = 1, length = 1;  ///< Rows and positions.
  bool same_length = false;       ///< All batches of conversations have `length` positions.
  uint64_t seed = 1;
};

/// Reads the files and encodes them for a model. Throws UsageError, naming the file.
std::unique_ptr<FinetuneData> read_finetune_data(const FinetuneFiles& files,
                                                 const FinetuneBatches& batches,
                                                 const nn::Pretrained& model);

}  // namespace stretto::examples
