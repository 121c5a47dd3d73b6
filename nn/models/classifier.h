// A Transformer encoder that classifies whole sequences, or pairs of them: the model of the Long
// Range Arena (Tay et al. 2021), and its four configurations.
//
// Reference: tests/reference/classifier.cpp, classify()
#pragma once

#include <optional>

#include "../transformer.h"
#include "input_embedding.h"

namespace stretto::nn {

/// Token ids [B, L] (i64 or i32), and which of them are padding [B, L] (bool or u8, true = ignore;
/// undefined: none).
struct TokenBatch {
  explicit TokenBatch(Tensor tokens_, Tensor padding_ = {})
      : tokens(std::move(tokens_)), padding(std::move(padding_)) {}
  Tensor tokens, padding;
};

/// Which vector stands for a sequence: that of an extra trained token in front of it, that of its
/// first token, or the mean of all that are not padding.
enum class Pooling { cls, first, mean };

struct SequenceClassifierOptions {
  int64_t vocabulary = 0;
  int64_t n_classes = 2;
  int64_t n_layers = 4;
  LayerOptions layer = {};  // every layer's; its dropout is the input's too
  InputOptions input = {};  // learned_length: of a sequence, without the token of Pooling::cls
  Pooling pooling = Pooling::cls;
  bool pairs = false;              // classifies two sequences, each through the same encoder
  bool attend_to_padding = false;  // padding counts as tokens, in the attention and in the mean
};

/// Embedding, layers, a norm, pooling, and a head of Linear and ReLU, as wide as the layers'
/// feed-forward networks. Everything starts as in the authors' code; with InputOptions::scale,
/// which they do not have, token vectors have the deviation 1/√d_model, and 1 when scaled.
class SequenceClassifier : public Module {
 public:
  using Options = SequenceClassifierOptions;

  explicit SequenceClassifier(Options options);
  SequenceClassifier(Module& parent, std::string name, Options options);

  /// → logits [B, n_classes].
  Tensor operator()(const TokenBatch& x) const;
  /// The same of pairs: row i of x with row i of y, whose lengths may differ.
  Tensor operator()(const TokenBatch& x, const TokenBatch& y) const;
  /// The same of tensors: model(tokens), or model(tokens, padding) with `padding` bool or u8; with
  /// the option `pairs` model(x, y), where y are ids too. Anything else is an error.
  Tensor operator()(const Tensor& tokens, const Tensor& second = {}) const;
  /// What the head sees of each sequence, [B, d_model].
  Tensor encode(const TokenBatch& x) const;
  Tensor encode(const Tensor& tokens, const Tensor& padding = {}) const;
  std::string label() const override;

  const Options options;
  InputEmbedding embedding{*this, "embedding", embedding_options(options)};
  const Tensor cls = cls_of(options);  // [d_model], with Pooling::cls
  List<TransformerLayer> layers{*this, "layers", options.n_layers, options.layer};
  Norm norm{*this, "norm", options.layer.norms()};
  Linear hidden{
      *this,
      "hidden",
      {(options.pairs ? 2 : 1) * options.layer.d_model, options.layer.feed_forward.d_hidden}};
  std::optional<Linear> hidden2;  // of pairs: d_hidden → d_hidden / 2
  std::optional<Linear> out;

 private:
  void make();
  static Tensor cls_of(const Options& options);
  static InputEmbedding::Options embedding_options(const Options& options);
};

/// The configurations of "Relative Positional Encoding for Transformers with Linear Complexity"
/// (Liutkus et al. 2021), as its programs had them (their training: examples/lra/lra_tables.cpp).
/// Vocabularies are those of the programs: padding 0, then the symbols; ListOps without brackets
/// and with an id for unknown ones, bytes for Text and Retrieval; grey values without padding for
/// Image. Attention is to padding, as theirs was; with softmax, as only Image's was.
SequenceClassifier::Options lra_listops();    // 19,982,858 parameters
SequenceClassifier::Options lra_text();       // 3,486,722
SequenceClassifier::Options lra_retrieval();  // 1,087,618
SequenceClassifier::Options lra_image();      // 248,458, a learned table of positions included

}  // namespace stretto::nn
