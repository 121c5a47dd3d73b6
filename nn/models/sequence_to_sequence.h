// The Transformer of Vaswani et al. (2017): an encoder reads one sequence, a decoder writes
// another. T5 (Raffel et al. 2020) is a setting of it.
//
// Reference: tests/reference/sequence_to_sequence.cpp, transformer()
// Reference: tests/reference/published/t5.cpp, t5()
#pragma once

#include <optional>
#include <vector>

#include "../stack.h"
#include "input_embedding.h"

namespace stretto::nn {

struct SequenceToSequenceOptions {
  int64_t source_vocabulary = 0;
  int64_t target_vocabulary = 0;
  int64_t n_encoder_layers = 6;
  int64_t n_decoder_layers = 6;
  /// Of both stacks. Its position and kernel are those of self-attention, which is causal in the
  /// decoder only; attention to the source has no position, and is softmax attention.
  LayerOptions layer = {};
  MakePositionalEncoding encoder_position = {};  // in place of layer.attention.position
  MakePositionalEncoding decoder_position = {};
  bool share_position = false;          // one position per stack, not per layer (T5)
  std::optional<bool> final_norm = {};  // after each stack; with NormPlace::pre if not given
  bool final_dropout = false;           // after each stack too (T5)

  InputOptions input = {};
  int64_t source_step = 1;        // source token i is at position i · source_step
  bool shared_embedding = false;  // one table for source and target
  bool tied = false;              // the target's table is also the output projection
  bool output_bias = false;       // unless tied
  bool scale_output = false;      // by 1/√d_model, before the projection (T5 where tied)
};

class SequenceToSequence : public Module {
 public:
  using Options = SequenceToSequenceOptions;

  explicit SequenceToSequence(Options options);
  SequenceToSequence(Module& parent, std::string name, Options options);

  /// What decode() keeps of a call for the next.
  struct Cache {
    std::vector<DecoderCache> layers;
    Tensor source_padding;
    int64_t position = 0;  // target tokens seen
    /// Row i goes on from what row rows[i] was: rows [n] (i64) may leave some out and repeat
    /// others.
    void reorder(const Tensor& rows);
  };

  /// source [B, N] (i64 or i32), source_padding [B, N] bool, true = no token → context
  /// [B, N, d_model].
  Tensor encode(const Tensor& source, const Tensor& source_padding = {},
                const ForwardContext& forward = begin_forward()) const;
  /// target [B, M] (i64 or i32), the sequence written so far → logits [B, M, target_vocabulary];
  /// row i predicts token i + 1. With a cache the tokens continue those seen before, the result
  /// equals that of one pass over all, and only the first call looks at context and padding; a call
  /// that throws leaves the cache as it was.
  Tensor decode(const Tensor& target, const Tensor& context, const Tensor& source_padding = {},
                Cache* cache = nullptr, ForwardContext forward = begin_forward()) const;
  /// An empty cache whose self-attention keeps the last `limit` target positions, or with 0 all;
  /// without a limit an empty Cache does, too.
  Cache make_cache(int64_t limit = 0) const;
  /// decode(target, encode(source)), in one pass.
  Tensor operator()(const Tensor& source, const Tensor& target,
                    const Tensor& source_padding = {}) const;

  /// The table [target_vocabulary, d_model] of the target's tokens.
  const Tensor& target_table() const { return target().weight; }
  std::string label() const override;

  const Options options;
  InputEmbedding source_embedding{*this, "source_embedding",
                                  embedding_options(options, options.source_vocabulary)};
  std::optional<InputEmbedding> target_embedding;  // unless shared
  Encoder encoder{*this, "encoder", stack(options, true)};
  Decoder decoder{*this, "decoder", stack(options, false)};
  std::optional<Linear> out;  // unless tied

 private:
  void make();
  static InputEmbedding::Options embedding_options(const Options& options, int64_t vocabulary);
  static StackOptions stack(const Options& options, bool encoder);
  const InputEmbedding& target() const {
    return target_embedding ? *target_embedding : source_embedding;
  }
};

/// The base model of Vaswani et al. (2017). Theirs had one table of 37,000 tokens: give both
/// vocabularies, shared_embedding and tied for it.
SequenceToSequence::Options transformer_base(int64_t source_vocabulary, int64_t target_vocabulary);

/// 1.0: ReLU, one table for everything. 1.1: gated gelu_tanh, an output matrix of its own (Shazeer
/// 2020).
enum class T5Version { v1_0, v1_1 };

/// The settings of T5 small, but for its position: pre-norm with RMSNorm, no biases, no sinusoids,
/// scores that are not scaled, one position per stack. The larger ones differ in sizes only.
SequenceToSequence::Options t5_options(int64_t vocabulary, T5Version version = T5Version::v1_0);

/// T5's first weights: normal; those of q have the factor 1/√d_key that its scores lack.
void t5_initialise(const SequenceToSequence& model);

}  // namespace stretto::nn
