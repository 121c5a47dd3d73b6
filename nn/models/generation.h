// Generating tokens with a model, one after the other, for one prompt or several.
//
// Reference: none (sampling, not a formula)
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "../../core/tensor.h"
#include "sampling.h"

namespace stretto::nn {

class LanguageModel;       // nn/models/language_model.h
class SequenceToSequence;  // nn/models/sequence_to_sequence.h

/// Why the continuation of a prompt has ended.
enum class GenerationEnd {
  max_tokens,   ///< It has the largest number of new tokens.
  end_token,    ///< Its last token is one of the end tokens.
  stop_string,  ///< Its text contains a stop string.
  callback,     ///< `on_token` has returned false.
  length        ///< The model has no position for another token (PositionError).
};

/// Options of generate() and generate_batch().
struct GenerationOptions {
  int64_t max_tokens = 256;  ///< Largest number of new tokens.
  /// Generation stops after any of these tokens, which is part of the result; empty: none.
  std::vector<int64_t> end_tokens = {};
  /// Generation stops as soon as the text of the new tokens contains one of these strings; the
  /// token that completes it is part of the result. Requires `decode`. before_stop() cuts the text.
  std::vector<std::string> stop_strings = {};
  /// Returns the text of tokens, for stop_strings: of the new tokens, or of the last ones of them.
  std::function<std::string(const std::vector<int64_t>& tokens)> decode = {};
  /// Receives the number of each prompt (0 in generate()) and why its continuation has ended.
  std::function<void(int64_t prompt, GenerationEnd end)> on_end = {};
  /// The same seed and options give the same tokens. The random numbers differ from those of the
  /// program after manual_seed() with the same seed.
  uint64_t seed = 0;
  SamplingOptions sampling = {};  ///< Options of each sample.
};

/// Continues `prompt` (at least one token) and returns the new tokens. `model(tokens [1, n])`
/// returns logits [1, n, V] for tokens that continue those of earlier calls: a model with its
/// cache. `on_token` receives each token as it is sampled and stops generation by returning false.
/// No gradients are recorded. Call eval() of the model first: its dropout would be an error.
///
/// If the model throws PositionError after the first new token, because its learned positions have
/// ended, the tokens are returned (GenerationEnd::length).
std::vector<int64_t> generate(const std::function<Tensor(const Tensor&)>& model,
                              const std::vector<int64_t>& prompt, const GenerationOptions& options,
                              const std::function<bool(int64_t)>& on_token = {});

/// Continues a prompt with a language model and a new cache or memory, as generate_batch().
std::vector<int64_t> generate(const LanguageModel& model, const std::vector<int64_t>& prompt,
                              const GenerationOptions& options = {},
                              const std::function<bool(int64_t)>& on_token = {});

/// Continues `prompt`, for example a start token, with the decoder of a model that reads `source`.
std::vector<int64_t> generate(const SequenceToSequence& model, const std::vector<int64_t>& source,
                              const std::vector<int64_t>& prompt,
                              const GenerationOptions& options = {},
                              const std::function<bool(int64_t)>& on_token = {});

/// Returns the seed of prompt i of generate_batch(): `seed` for i = 0, else a hash of both, so that
/// neighboring seeds share no random numbers.
uint64_t prompt_seed(uint64_t seed, int64_t i);

/// Continues several prompts, which may have unequal lengths, at once; entry i equals the result of
/// generate() for prompt i with the seed prompt_seed(seed, i), up to rounding of the logits.
///
/// `model(tokens [P, n], left_padding)` returns logits [P, n, V] for tokens that continue those of
/// earlier calls. In the first call the prompts are padded as by pad_left(); `left_padding` is that
/// of pad_left() then, and empty in later calls. A model must ignore the padding
/// (LanguageModel::Cache::left_padding) or accept prompts of equal length only. A prompt that has
/// ended leaves the batch: before the next call, `reorder(rows [n])` is called with the remaining rows;
/// pass the reorder() of a cache. `on_token` receives the number of the prompt and a token; by
/// returning false it stops this prompt. If the model throws PositionError after the first new
/// tokens, the longest sequences end and the call is repeated without them; like a model with its
/// cache, `model` must be unchanged by a call that throws.
std::vector<std::vector<int64_t>> generate_batch(
    const std::function<Tensor(const Tensor& tokens, const std::vector<int64_t>& left_padding)>&
        model,
    const std::function<void(const Tensor& rows)>& reorder,
    const std::vector<std::vector<int64_t>>& prompts, const GenerationOptions& options,
    const std::function<bool(int64_t prompt, int64_t token)>& on_token = {});

/// Continues several prompts with a language model and a new cache with this limit
/// (LanguageModel::make_cache). With limit 0, a model whose options have a memory uses that
/// (LanguageModel::make_memory), and prompts must have equal lengths. Tokens are moved to the device
/// of the model. A model in training mode is in evaluation mode until the call returns.
std::vector<std::vector<int64_t>> generate_batch(
    const LanguageModel& model, const std::vector<std::vector<int64_t>>& prompts,
    const GenerationOptions& options,
    const std::function<bool(int64_t prompt, int64_t token)>& on_token = {},
    int64_t cache_limit = 0);

/// Sequences of unequal length as one batch.
struct LeftPadded {
  Tensor tokens;  ///< [B, L] (i64): each sequence at the end of its row, token 0 before it.
  std::vector<int64_t>
      left_padding;  ///< Number of tokens before each sequence; empty if all are 0.
};
/// Pads sequences, at least one token each, on the left to the length of the longest, on the
/// default device. For beam_search() too: pass `tokens` as prompts, and `left_padding` to
/// LanguageModel::Cache::left_padding.
LeftPadded pad_left(const std::vector<std::vector<int64_t>>& sequences);

/// The part of a text before a stop string.
struct TextBeforeStop {
  /// The text before the stop string that ends first. Without one, the text except for an end that
  /// may be the beginning of a stop string; it is safe to print while the text still grows.
  std::string text;
  bool stopped = false;  ///< True if the text contains a stop string.
};
/// Searches a text that may still grow for stop strings (GenerationOptions::stop_strings).
TextBeforeStop before_stop(const std::string& text, const std::vector<std::string>& stop_strings);

}  // namespace stretto::nn
