// A Transformer encoder that classifies whole sequences, or pairs of them: the model of the Long
// Range Arena (Tay et al. 2021), and its four configurations.
//
// Reference: tests/reference/classifier.cpp, classify()
#pragma once

#include <optional>

#include "nn/embedding.h"
#include "nn/transformer.h"

namespace stretto::nn {

/// Token ids [B, L] (i64 or i32), and which of them are padding [B, L] (bool or u8, true = ignore;
/// undefined: none).
struct Sequences {
  Sequences(Tensor tokens_, Tensor padding_ = {})
      : tokens(std::move(tokens_)), padding(std::move(padding_)) {}
  Tensor tokens, padding;
};

/// Which vector stands for a sequence: that of an extra trained token in front of it, that of its
/// first token, or the mean of all that are not padding.
enum class Pooling { cls, first, mean };

/// What is added to the embeddings; a MakePosition acts in the attention instead, or too.
enum class AddedPosition { none, sinusoid, learned };

/// Embedding, pre-norm layers without biases in the attention, a norm, pooling, and a head of
/// Linear and ReLU. Everything starts as in the authors' code.
class SequenceClassifier : public Module {
 public:
  struct Options {
    int64_t vocabulary = 0;
    int64_t n_classes = 2;
    int64_t max_length = 0;  // of a sequence; only AddedPosition::learned needs to know
    int64_t d_model = 256;
    int64_t d_qkv = 0;  // of all heads together; 0: d_model
    int64_t n_layers = 4;
    int64_t n_heads = 4;
    int64_t d_hidden = 1024;  // of the feed-forward networks and of the head
    Pooling pooling = Pooling::cls;
    bool pairs = false;  // classifies two sequences, each through the same encoder
    AddedPosition added = AddedPosition::sinusoid;
    bool attend_to_padding = false;  // padding counts as tokens, in the attention and in the mean
    double dropout = 0.1;
    double attention_dropout = 0;
    MakePosition position = {};  // none by default
    MakeKernel kernel = {};      // softmax_kernel() by default
  };

  explicit SequenceClassifier(Options options);
  SequenceClassifier(Module& parent, std::string name, Options options);

  /// → logits [B, n_classes].
  Tensor operator()(const Sequences& x) const;
  /// The same of pairs: row i of x with row i of y, whose lengths may differ.
  Tensor operator()(const Sequences& x, const Sequences& y) const;
  /// What the head sees of each sequence, [B, d_model].
  Tensor encode(const Sequences& x) const;
  std::string label() const override;

  const Options options;
  Embedding embedding{*this, "embedding", {options.vocabulary, options.d_model}};
  const Tensor cls = cls_of(options);        // [d_model], with Pooling::cls
  const Tensor places = places_of(options);  // [max_length, one more with Pooling::cls; d_model],
                                             // with AddedPosition::learned
  Dropout dropout{*this, "dropout", {options.dropout}};
  List<EncoderLayer> layers{*this, "layers", options.n_layers, layer_options(options)};
  LayerNorm norm{*this, "norm", {options.d_model, 1e-6}};
  Linear hidden{*this, "hidden", {(options.pairs ? 2 : 1) * options.d_model, options.d_hidden}};
  std::optional<Linear> hidden2;  // of pairs: d_hidden → d_hidden / 2
  std::optional<Linear> out;

 private:
  void make();
  static Tensor cls_of(const Options& options);
  static Tensor places_of(const Options& options);
  static LayerOptions layer_options(const Options& options);
};

/// One configuration of "Relative Positional Encoding for Transformers with Linear Complexity"
/// (Liutkus et al. 2021), as its programs had it. The optimiser is AdamW with β 0.9 and 0.98, eps
/// 1e-9, its weight decay on every parameter; gradients are not clipped.
struct LongRangePreset {
  SequenceClassifier::Options model;
  int64_t batch = 8;
  double base_rate = 0;
  int64_t warmup = 0;
  int64_t cycle = 0;  // > 0: cosines of so many steps, each back from the top; 0: 1/√step
  int64_t steps = 0;
  double weight_decay = 0.1;

  /// The learning rate of a step, counted from 0, where it is 0: base_rate · min(1, step / warmup)
  /// times 1/√max(step, warmup), or (1 + cos(π · frac((step − warmup) / cycle))) / 2.
  double learning_rate(int64_t step) const;
};

/// Vocabularies are those of the programs: padding 0, then the symbols; ListOps without brackets
/// and with an id for unknown ones, bytes for Text and Retrieval; grey values without padding for
/// Image. Attention is to padding, as theirs was; with softmax, as only Image's was.
LongRangePreset lra_listops();    // 19,982,858 parameters
LongRangePreset lra_text();       // 3,486,722
LongRangePreset lra_retrieval();  // 1,087,618
LongRangePreset lra_image();      // 248,458, a learned table of positions included

}  // namespace stretto::nn
