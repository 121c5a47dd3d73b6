// A Transformer encoder that classifies whole sequences, or pairs of them: the model of the Long
// Range Arena (Tay et al. 2021), and its four configurations.
//
// Reference: tests/reference/classifier.cpp, classify()
#pragma once

#include <optional>

#include "../transformer.h"
#include "input_embedding.h"

namespace stretto::nn {

/// A batch of token sequences, with an optional mask of padding.
struct TokenBatch {
  /// Wraps tokens [B, L] and, if given, padding [B, L].
  explicit TokenBatch(Tensor tokens_, Tensor padding_ = {})
      : tokens(std::move(tokens_)), padding(std::move(padding_)) {}
  Tensor tokens;   ///< Token ids [B, L], i64 or i32.
  Tensor padding;  ///< [B, L] bool or u8, true = ignore; undefined: no padding.
};

/// The vector that represents a sequence.
enum class Pooling {
  cls,    ///< The output for an additional learned token in front of the sequence.
  first,  ///< The output for the first token.
  mean    ///< The mean of the outputs of all tokens that are not padding.
};

/// Initializes a layer as the code of ViT and of the Long Range Arena: xavier_uniform_ weights;
/// biases of the feed-forward network normal with standard deviation 1e-6. Other biases stay as
/// they are.
void init_encoder_layer(const TransformerLayer& layer);

/// Options of SequenceClassifier.
struct SequenceClassifierOptions {
  int64_t vocabulary = 0;   ///< Number of tokens.
  int64_t n_classes = 2;    ///< Number of classes.
  int64_t n_layers = 4;     ///< Number of layers.
  LayerOptions layer = {};  ///< Options of every layer; its dropout applies to the input too.
  InputOptions input = {};  ///< learned_length does not count the token of Pooling::cls.
  Pooling pooling = Pooling::cls;  ///< The vector that represents a sequence.
  bool pairs = false;              ///< Classifies pairs of sequences, with one encoder for both.
  bool attend_to_padding = false;  ///< Treats padding as tokens, in attention and in the mean.
};

/// A Transformer encoder with a classification head: embedding, layers, norm, pooling, and a head
/// of Linear layers and ReLU of the width of the layers' feed-forward networks.
///
/// Parameters start as in the authors' code, which does not scale token vectors: they have standard
/// deviation 1. With InputOptions::scale they start with 1/√d_model, which scaling makes 1.
class SequenceClassifier : public Module {
 public:
  using Options = SequenceClassifierOptions;  ///< Options of the constructor.

  /// Constructs a root module. Throws if a size is below 1.
  explicit SequenceClassifier(Options options);
  /// Constructs a child of `parent`. Throws if a size is below 1.
  SequenceClassifier(Module& parent, std::string name, Options options);

  /// Returns the logits [B, n_classes] of sequences.
  Tensor operator()(const TokenBatch& x) const;
  /// Returns the logits [B, n_classes] of pairs: row i of x with row i of y. The lengths
  /// of x and y may differ.
  Tensor operator()(const TokenBatch& x, const TokenBatch& y) const;
  /// Returns the logits [B, n_classes] of tokens [B, L]. `second` is their padding if bool or u8;
  /// with Options::pairs it is the token ids of the second sequences. Other arguments throw.
  Tensor operator()(const Tensor& tokens, const Tensor& second = {}) const;
  /// Returns the pooled vector of each sequence, [B, d_model].
  Tensor encode(const TokenBatch& x) const;
  /// Returns the pooled vector of each sequence, [B, d_model].
  Tensor encode(const Tensor& tokens, const Tensor& padding = {}) const;
  std::string label() const override;

  const Options options;  ///< As passed to the constructor.
  /// Token vectors and positions.
  InputEmbedding embedding{*this, "embedding", embedding_options(options)};
  const Tensor cls = cls_of(options);  ///< Vector of the added token [d_model], with Pooling::cls.
  /// The encoder's layers.
  List<TransformerLayer> layers{*this, "layers", options.n_layers, options.layer};
  Norm norm{*this, "norm", options.layer.norms()};  ///< Norm after the last layer.
  /// First layer of the head: d_model, or 2 · d_model for pairs, → d_hidden.
  Linear hidden{
      *this,
      "hidden",
      {(options.pairs ? 2 : 1) * options.layer.d_model, options.layer.feed_forward.d_hidden}};
  std::optional<Linear> hidden2;  ///< For pairs: d_hidden → d_hidden / 2.
  std::optional<Linear> out;      ///< Output layer → n_classes; never empty.

 private:
  void make();
  static Tensor cls_of(const Options& options);
  static InputEmbedding::Options embedding_options(const Options& options);
};

/// @name Long Range Arena
/// The configurations of "Relative Positional Encoding for Transformers with Linear Complexity"
/// (Liutkus et al. 2021), as in its programs (their training: examples/lra/lra_tables.cpp).
///
/// Vocabularies are those of the programs: padding 0, then the symbols. ListOps has no brackets and
/// one id for unknown symbols; Text and Retrieval have bytes; Image has gray values and no padding.
/// As in the programs, padding is attended to. Attention is softmax, which the programs used only
/// for Image.
/// @{
SequenceClassifier::Options lra_listops();    ///< ListOps, 19,982,858 parameters.
SequenceClassifier::Options lra_text();       ///< IMDB bytes, 3,486,722 parameters.
SequenceClassifier::Options lra_retrieval();  ///< Pairs of documents, 1,087,618 parameters.
/// Image, 248,458 parameters, a learned table of positions included.
SequenceClassifier::Options lra_image();
/// @}

}  // namespace stretto::nn
