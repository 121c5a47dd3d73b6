// Transformer-XL (Dai et al. 2019): a language model whose segments attend to earlier segments.
//
//     nn::TransformerXL model({.vocabulary = 204, .lengths = {.memory = 512}});
//     nn::TransformerXL::Memory memory;  // one per stream of text, or batch of streams
//     for (…) {  // segments in order; row b of a batch continues row b of the previous batch
//       const Tensor loss = mean(model.nll(tokens, targets, &memory));
//
// Evaluation may use a longer memory than training: model.lengths = {.memory = 2100, …}.
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

/// The keys that each position attends to within the memory and its own segment.
enum class SameLength {
  off,  ///< All up to its own position.
  on,   ///< Distances 0 … memory, the same number for all positions.
  /// Distances 0 … memory − 1, as in the authors' PyTorch code; reproduces its published results.
  original
};

/// Lengths that may differ between training and evaluation.
struct TransformerXLLengths {
  /// Positions that a Memory holds. If it and `extended` are 0, calls with a Memory throw.
  int64_t memory = 0;
  /// Extended context (ext_len): the number of newest tokens that are not stored in the memory but
  /// processed again, with gradients, at the start of the next segment.
  int64_t extended = 0;
  int64_t clamp = 0;  ///< > 0: larger distances have the sinusoid of this distance.
  SameLength same_length = SameLength::off;  ///< The keys that each position attends to.
};

/// Options of TransformerXL.
struct TransformerXLOptions {
  int64_t vocabulary = 0;  ///< Number of words.
  int64_t n_layers = 12;   ///< Number of layers.
  /// Options of every layer. There is no norm after the last layer, not even with NormPlace::pre.
  /// If neither the layer nor the input has positions, the encoding is RelativeSinusoid. Attention
  /// in blocks needs a memory of two blocks less one position.
  LayerOptions layer = {};
  /// Absolute positions are counted from the start of each call. Recurrence breaks them: a token of
  /// the memory and a token of the segment then have the same position (§3.3).
  InputOptions input = {};

  TransformerXLLengths lengths = {};  ///< Initial value of TransformerXL::lengths.
  /// Starts a memory as `lengths.memory` rows of zeros, which take part in the softmax (the
  /// authors' TensorFlow code), instead of without rows (their PyTorch code).
  bool zero_start = false;
  bool tied_biases = true;  ///< One pair of biases u and v for all layers.

  int64_t d_embedding = 0;                  ///< AdaptiveOptions::d_embedding.
  std::vector<int64_t> cutoffs = {};        ///< AdaptiveOptions::cutoffs.
  int64_t div = 1;                          ///< AdaptiveOptions::div.
  bool tied = true;                         ///< AdaptiveSoftmaxOptions::tied.
  std::vector<bool> tied_projections = {};  ///< AdaptiveSoftmaxOptions::tied_projections.

  double init_std = 0.02;  ///< Initial standard deviation of the weights.
};

/// A language model with a memory of the inputs of its layers (Dai et al. 2019).
class TransformerXL : public Module {
 public:
  using SameLength = stretto::nn::SameLength;  ///< The keys that each position attends to.
  using Lengths = TransformerXLLengths;        ///< Lengths of memory and context.

  using Options = TransformerXLOptions;  ///< Options of the constructor.

  /// Constructs a root module. Throws if sizes or lengths do not fit together.
  explicit TransformerXL(Options options);
  /// Constructs a child of `parent`. Throws if sizes or lengths do not fit together.
  TransformerXL(Module& parent, std::string name, Options options);

  /// The memory of a batch of streams. Starts empty; every successful call advances it.
  struct Memory {
    Tensors layers;  ///< Inputs of the layers [B, m, d_model], off the tape; empty at the start.
    Tensor context;  ///< Extended context: the newest tokens [B, e], i64; may be undefined.
    /// Position of the first row of `layers`, counted from the first row of the stream.
    int64_t first = 0;
    uint64_t model = 0;  ///< Module::serial() of the model that has filled it; 0: none.
    /// Replaces the streams: stream i becomes the former stream rows[i]. rows [n] (i64) may omit
    /// and repeat streams.
    void reorder(const Tensor& rows);
    /// Returns m, the number of positions in the memory.
    int64_t length() const { return layers.empty() ? 0 : layers[0].size(1); }
  };

  /// Computes the output of the last layer [B, T, d_model] from tokens [B, T] (i64 or i32); row i
  /// predicts token i + 1. With a memory, the tokens continue those seen before. With
  /// `sequence_group`, the tokens are those of this process under sequence parallelism
  /// (ForwardContext); a memory is then not supported.
  Tensor hidden(const Tensor& tokens, Memory* memory = nullptr,
                ProcessGroup* sequence_group = nullptr) const;
  /// The same for whole sequences with a ForwardContext of your own, for example with
  /// ForwardContext::segments for packed documents. Throws for padding and prefix_lengths.
  Tensor hidden(const Tensor& tokens, const ForwardContext& forward) const;
  /// Computes −log p(target) of each position [B, T]; targets [B, T] are the tokens shifted by one.
  Tensor nll(const Tensor& tokens, const Tensor& targets, Memory* memory = nullptr,
             ProcessGroup* sequence_group = nullptr) const;
  /// The same for whole sequences with a ForwardContext of your own.
  Tensor nll(const Tensor& tokens, const Tensor& targets, const ForwardContext& forward) const;
  /// Computes log p of every word, [B, T, vocabulary], which are also logits for sampling.
  Tensor log_probabilities(const Tensor& tokens, Memory* memory = nullptr) const;

  std::string label() const override;

  const Options options;              ///< As passed to the constructor, with defaults filled in.
  Lengths lengths = options.lengths;  ///< May be changed at any time; clones copy it.

  /// Token vectors.
  AdaptiveEmbedding embedding{*this, "embedding", embedding_options(options)};
  const Tensor u = shared_bias("u");  ///< Bias of content [H, D], with tied_biases.
  const Tensor v = shared_bias("v");  ///< Bias of position [H, D], with tied_biases.
  /// Dropout of the sinusoids and of the output.
  Dropout dropout{*this, "dropout", {options.layer.dropout}};
  /// Absolute positions, and dropout of the input.
  AbsolutePosition positions{
      *this,
      "positions",
      {options.layer.d_model, options.input, options.layer.dropout, options.layer.norms(), false}};
  /// The layers.
  List<TransformerXLLayer> layers{*this, "layers", options.n_layers, layer_options()};
  /// Output layer.
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
  void check_tokens(const Tensor& tokens) const;
  Tensor advance(const Tensor& tokens, Memory& seen, bool remember, ForwardContext forward) const;

  DistanceSinusoids rows_;
};

/// Returns the options of the paper's model with 12 layers for characters, without a
/// memory: post-norm layers of width 512 without biases in the attention. The published
/// models are in nn/models/transformer_xl_presets.h.
TransformerXL::Options transformer_xl(int64_t vocabulary);

}  // namespace stretto::nn
