// Transformer-XL (Dai et al. 2019): a language model whose segments attend to those before.
//
//     nn::TransformerXL model({.vocabulary = 204, .lengths = {.memory = 512}});
//     nn::TransformerXL::Memory memory;  // one per stream of text, or batch of streams
//     for (…) {  // segments in order; row b of a batch continues row b of the one before
//       const Tensor loss = mean(model.nll(tokens, targets, &memory));
//
// For evaluation it may look further back than in training: model.lengths = {.memory = 2100, …}.
//
// Reference: tests/reference/transformer_xl.cpp, xl_layer()
#pragma once

#include <optional>
#include <vector>

#include "../positions/relative_sinusoid.h"
#include "adaptive.h"
#include "input_embedding.h"
#include "transformer_xl_layer.h"

namespace stretto::nn {

/// How far back each position sees, apart from its own segment and the memory: everything (off);
/// lags 0 … memory alone, the same for all positions (on); lags 0 … memory − 1, as the authors'
/// PyTorch code does, whose published numbers this repeats (original).
enum class SameLength { off, on, original };

/// What may differ between training and evaluation.
struct TransformerXLLengths {
  int64_t memory = 0;  // positions that a Memory keeps; 0: calls with a Memory are errors
  /// Newest tokens that are not kept as memory but seen again, with gradients, at the start of
  /// the next segment: extended context (ext_len).
  int64_t extended = 0;
  int64_t clamp = 0;  // > 0: further lags count as this one, for their sinusoid
  SameLength same_length = SameLength::off;
};

struct TransformerXLOptions {
  int64_t vocabulary = 0;
  int64_t n_layers = 12;
  /// Every layer's; neither form has a norm after the last one. Without a position, and without
  /// one in the input, it is RelativeSinusoid. Every scheme works with memory; attention in
  /// blocks needs a memory of two blocks less one position.
  LayerOptions layer = {};
  /// Absolute positions are counted from the start of each call. Recurrence breaks them: a token
  /// of the memory and one of the segment then carry the same position (§3.3).
  InputOptions input = {};

  TransformerXLLengths lengths = {};
  /// A memory starts as `lengths.memory` rows of zeros, which take part in the softmax (the
  /// authors' TensorFlow code), not as no rows at all (their PyTorch code).
  bool zero_start = false;
  bool tied_biases = true;  // u and v: one pair for all layers

  // Vocabulary and output (nn/models/adaptive.h).
  int64_t d_embedding = 0;  // 0: d_model
  std::vector<int64_t> cutoffs = {};
  int64_t div = 1;
  bool tied = true;  // the output's tables are the embedding's
  std::vector<bool> tied_projections = {};

  double init_std = 0.02;
};

class TransformerXL : public Module {
 public:
  using SameLength = stretto::nn::SameLength;
  using Lengths = TransformerXLLengths;

  using Options = TransformerXLOptions;

  explicit TransformerXL(Options options);
  TransformerXL(Module& parent, std::string name, Options options);

  /// What has been seen of a batch of streams. Starts empty; every call that succeeds advances it.
  struct Memory {
    Tensors layers;  // the input of each layer [B, m, d_model], off the tape; empty at the start
    Tensor context;  // extended context: the newest tokens [B, e], i64; may be undefined
    /// Position of the first row of `layers`, counted from the first row of the stream.
    int64_t first = 0;
    int64_t length() const { return layers.empty() ? 0 : layers[0].size(1); }
  };

  /// Output of the last layer, tokens [B, T] (i64 or i32) → [B, T, d_model]; row i predicts token
  /// i + 1. With a memory the tokens continue those seen before. With `sequence_group`, and without
  /// a memory, the tokens are this process's of longer sequences (ForwardContext).
  Tensor hidden(const Tensor& tokens, Memory* memory = nullptr,
                ProcessGroup* sequence_group = nullptr) const;
  /// −log p(target) of each position, [B, T]; targets [B, T] are the tokens one further on.
  Tensor nll(const Tensor& tokens, const Tensor& targets, Memory* memory = nullptr,
             ProcessGroup* sequence_group = nullptr) const;
  /// log p of every word, [B, T, vocabulary]. These are also logits to draw tokens from.
  Tensor log_probabilities(const Tensor& tokens, Memory* memory = nullptr) const;

  std::string label() const override;

  const Options options;
  Lengths lengths = options.lengths;  // may be changed at any time; a clone has them

  AdaptiveEmbedding embedding{*this, "embedding", embedding_options(options)};
  const Tensor u = shared_bias("u"), v = shared_bias("v");  // [n_heads, d_key] with tied_biases
  Dropout dropout{*this, "dropout", {options.layer.dropout}};
  AbsolutePosition positions{
      *this,
      "positions",
      {options.layer.d_model, options.input, options.layer.dropout, options.layer.norms(), false}};
  List<TransformerXLLayer> layers{*this, "layers", options.n_layers, layer_options()};
  AdaptiveSoftmax output{
      *this, "output", {embedding.options, options.tied, options.tied_projections}, &embedding};

 protected:
  void copy_settings(const Module& from) override;

 private:
  static AdaptiveOptions embedding_options(const Options& options);
  LayerOptions layer_options() const;
  Tensor shared_bias(std::string name);
  void make();
  bool sinusoidal() const;
  AttentionMask visible() const;
  Tensor embed(const Tensor& tokens, const ForwardContext& forward) const;
  Tensor rows(int64_t n_keys, const AttentionMask& visible, const ForwardContext& forward) const;
  void check_memory(const Tensor& tokens, const Memory& memory) const;
  Tensor advance(const Tensor& tokens, Memory& seen, bool remember,
                 ProcessGroup* sequence_group) const;

  LagSinusoids rows_;
};

/// The paper's 12 layers for characters, without a memory: post-norm layers of width 512 without
/// biases in the attention. nn/models/transformer_xl_presets.h has the published ones.
TransformerXL::Options transformer_xl(int64_t vocabulary);

}  // namespace stretto::nn
