// The Transformer of Vaswani et al. (2017): an encoder reads the source sequence, a decoder writes
// the target sequence. T5 (Raffel et al. 2020) is a configuration of it.
//
// Reference: tests/reference/sequence_to_sequence.cpp, transformer()
// Reference: tests/reference/published/t5.cpp, t5()
#pragma once

#include <optional>
#include <vector>

#include "../stack.h"
#include "input_embedding.h"

namespace stretto::nn {

/// Options of SequenceToSequence.
struct SequenceToSequenceOptions {
  int64_t source_vocabulary = 0;  ///< Number of source tokens.
  int64_t target_vocabulary = 0;  ///< Number of target tokens.
  int64_t n_encoder_layers = 6;   ///< Number of encoder layers.
  int64_t n_decoder_layers = 6;   ///< Number of decoder layers.
  /// Options of the layers of both stacks. Positional encoding and kernel are those of
  /// self-attention, which is causal in the decoder only. Cross-attention is softmax
  /// attention without positions.
  LayerOptions layer = {};
  MakePositionalEncoding encoder_position = {};  ///< Replaces layer.attention.position.
  MakePositionalEncoding decoder_position = {};  ///< Replaces layer.attention.position.
  /// Whether there is a norm after each stack; by default only with NormPlace::pre.
  std::optional<bool> final_norm = {};
  bool final_dropout = false;  ///< Dropout after each stack too (T5).

  InputOptions input = {};        ///< Options of token vectors and absolute positions.
  int64_t source_step = 1;        ///< Source token i is at position i · source_step.
  bool shared_embedding = false;  ///< One table for source and target.
  bool tied = false;              ///< Uses the target's table as the output projection.
  bool output_bias = false;       ///< Bias of the output projection, unless tied.
  bool scale_output = false;      ///< Scales by 1/√d_model before the projection (T5 1.0, tied).
};

/// An encoder and a decoder with cross-attention.
class SequenceToSequence : public Module {
 public:
  using Options = SequenceToSequenceOptions;  ///< Options of the constructor.

  /// Constructs a root module. Throws if sizes or vocabularies do not fit together.
  explicit SequenceToSequence(Options options);
  /// Constructs a child of `parent`. Throws if sizes or vocabularies do not fit together.
  SequenceToSequence(Module& parent, std::string name, Options options);

  /// The caches of the decoder, for generation.
  struct Cache {
    std::vector<DecoderCache> layers;  ///< One per decoder layer; empty at the start.
    Tensor source_padding;             ///< As passed to the first decode().
    int64_t position = 0;              ///< Number of target tokens seen.
    /// Replaces the batch: row i becomes the former row rows[i]. rows [n] (i64) may
    /// omit and repeat rows.
    void reorder(const Tensor& rows);
  };

  /// Computes the context [B, N, d_model] of source [B, N] (i64 or i32). source_padding [B, N] is
  /// bool or u8, true = ignore.
  Tensor encode(const Tensor& source, const Tensor& source_padding = {},
                const ForwardContext& forward = begin_forward()) const;
  /// Computes logits [B, M, target_vocabulary] from target [B, M] (i64 or i32), the sequence so
  /// far; row i predicts token i + 1.
  ///
  /// With a cache, the tokens continue those seen before, and the result equals that of one call
  /// with all tokens; only the first call uses context and padding. A call that throws leaves
  /// the cache unchanged.
  Tensor decode(const Tensor& target, const Tensor& context, const Tensor& source_padding = {},
                Cache* cache = nullptr, ForwardContext forward = begin_forward()) const;
  /// Returns an empty cache whose self-attention holds the last `limit` target positions; 0: all.
  /// A default-constructed Cache has the same effect as make_cache(0).
  Cache make_cache(int64_t limit = 0) const;
  /// Computes decode(target, encode(source)) → logits [B, M, target_vocabulary].
  Tensor operator()(const Tensor& source, const Tensor& target,
                    const Tensor& source_padding = {}) const;

  /// Returns the token vectors of the target, [target_vocabulary, d_model].
  const Tensor& target_table() const { return target().weight; }
  std::string label() const override;

  const Options options;  ///< As passed to the constructor.
  /// Token vectors and positions of the source.
  InputEmbedding source_embedding{*this, "source_embedding",
                                  embedding_options(options, options.source_vocabulary)};
  /// Token vectors and positions of the target; empty if shared with the source.
  std::optional<InputEmbedding> target_embedding;
  Encoder encoder{*this, "encoder", stack(options, true)};   ///< Reads the source.
  Decoder decoder{*this, "decoder", stack(options, false)};  ///< Writes the target.
  std::optional<Linear> out;                                 ///< Output projection, unless tied.

 private:
  void make();
  static InputEmbedding::Options embedding_options(const Options& options, int64_t vocabulary);
  static StackOptions stack(const Options& options, bool encoder);
  const InputEmbedding& target() const {
    return target_embedding ? *target_embedding : source_embedding;
  }
};

/// Returns the options of the base model of Vaswani et al. (2017). For their single table of 37,000
/// tokens, pass it as both vocabularies and set shared_embedding and tied.
SequenceToSequence::Options transformer_base(int64_t source_vocabulary, int64_t target_vocabulary);

/// The versions of T5.
enum class T5Version {
  v1_0,  ///< ReLU, one table for source, target and output.
  v1_1   ///< Gated gelu_tanh, a separate output projection (Shazeer 2020).
};

/// Returns the options of T5 small: pre-norm with RMSNorm, no biases, no sinusoids, unscaled scores,
/// one t5_bias() per stack. Larger models differ only in size.
SequenceToSequence::Options t5_options(int64_t vocabulary, T5Version version = T5Version::v1_0);

/// Initializes the weights as in T5: normal; the weights of q have the additional factor 1/√d_key,
/// which the scores lack.
void t5_initialize(const SequenceToSequence& model);

}  // namespace stretto::nn
