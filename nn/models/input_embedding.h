// The input of a model: token vectors plus absolute positions.
//
// Reference: tests/reference/classifier.cpp, encode()
#pragma once

#include <optional>

#include "../attention/attention.h"
#include "../dropout.h"
#include "../module.h"
#include "../norm.h"
#include "../positions/positional_encoding.h"
#include "../positions/sinusoid.h"
#include "adaptive.h"

namespace stretto::nn {

/// Options of a model's input. Encodings within the attention are set by
/// MultiHeadAttentionOptions::position, instead or in addition.
struct InputOptions {
  /// Multiplies token vectors by √d_model (Vaswani et al. 2017, §3.4), so that sinusoids do not
  /// outweigh them. The options of LLaMA, BERT, T5 and other later models set it to false.
  bool scale = true;
  double factor = 1;  ///< Multiplies token vectors, with or without `scale` (Granite).
  std::optional<Sinusoid> sinusoid = {};  ///< Adds sinusoids of this layout; by default none.
  int64_t learned_length = 0;             ///< > 0: adds a learned vector for this many positions.
  bool dropout_before_position = false;   ///< Applies dropout to the token vectors only.
  bool norm = false;  ///< Normalizes the sum before dropout, as the layers do (BERT, BLOOM).
  /// Returns the traits of the positions. Absolute positions do not work with a memory: they would
  /// grow without limit in a stream of segments.
  PositionTraits traits() const;
};

/// Throws an Error of a model unless its input (`absolute`) or one of its layers has positions, or
/// the layers are set to no_position(). `other` names the options of the input.
template <class Layers>
void check_position(const char* op, const Layers& layers, bool absolute, const char* other) {
  for (const auto& layer : layers) absolute = absolute || layer.mixer->traits().ordered;
  check(absolute, op, "there is no position; set .layer.attention.position or ", other,
        "; nn::no_position() states that none is wanted");
}

/// Options of AbsolutePosition.
struct AbsolutePositionOptions {
  int64_t d_model = 0;      ///< Dimension of the vectors, at least 1.
  InputOptions input = {};  ///< Positions, norm and order of dropout.
  double dropout = 0;       ///< Dropout probability.
  Norm::Options norm = {};  ///< Options of the norm, with InputOptions::norm; dim is ignored.
  /// Whether the constructor initializes the table. Models that initialize it after all other
  /// parameters pass false and call reset_parameters(); until then the table is 0.
  bool drawn = true;
};

/// Adds absolute positions to x [B, L, d_model], then applies norm and dropout. With a learned
/// table, throws for positions of learned_length and more.
class AbsolutePosition : public Module {
 public:
  using Options = AbsolutePositionOptions;  ///< Options of the constructor.
  /// Constructs a child of `parent`.
  AbsolutePosition(Module& parent, std::string name, Options options);

  /// x [B, L, d_model] → [B, L, d_model]; row i is at position forward.first_position + i · step,
  /// less the padding of its sequence, if any. In packed sequences (forward.segments, read on the
  /// host) positions restart at 0 in each segment.
  Tensor operator()(const Tensor& x, const ForwardContext& forward = {}, int64_t step = 1) const;
  /// Initializes the table, normal with standard deviation 0.02. The library's models do this after
  /// all other parameters, so that the other parameters start with the same values with and without
  /// learned positions.
  void reset_parameters() const;
  std::string label() const override;

  const Options options;     ///< As passed to the constructor.
  const Tensor table;        ///< [learned_length, d_model], or undefined.
  std::optional<Norm> norm;  ///< With InputOptions::norm.
  Dropout dropout{*this, "dropout", {options.dropout}};  ///< Dropout of input or result.

 private:
  Tensor added(const Tensor& x, const ForwardContext& forward, int64_t step) const;
};

/// Options of InputEmbedding.
struct InputEmbeddingOptions {
  int64_t vocabulary = 0;   ///< Number of tokens, at least 1.
  int64_t d_model = 0;      ///< Dimension of the vectors, at least 1.
  InputOptions input = {};  ///< Scale, positions, norm and order of dropout.
  double dropout = 0;       ///< Dropout probability.
  double std = 1;           ///< Initial standard deviation of the token vectors.
  Norm::Options norm = {};  ///< See AbsolutePositionOptions::norm.
  bool drawn = true;  ///< See AbsolutePositionOptions::drawn. Token vectors are always initialized.
  /// Vectors in clusters, with the standard deviations of these options; vocabulary and d_model may
  /// stay 0. The parameters are then weight0, projection0, weight1, …, and the positions are
  /// registered in the parent.
  std::optional<AdaptiveOptions> adaptive = {};
};

/// The vectors of tokens plus AbsolutePosition.
class InputEmbedding : public Module {
 public:
  using Options = InputEmbeddingOptions;  ///< Options of the constructor.
  /// Constructs a child of `parent`.
  InputEmbedding(Module& parent, std::string name, const Options& options);

  /// tokens [B, L] (i64 or i32, in [0, vocabulary)) → [B, L, d_model].
  Tensor operator()(const Tensor& tokens, const ForwardContext& forward = {},
                    int64_t step = 1) const;
  /// Returns the token vectors [B, L, d_model], scaled but without positions and dropout.
  Tensor lookup(const Tensor& tokens) const;
  std::string label() const override;

  const Options options;        ///< As passed to the constructor.
  const AdaptiveTables tables;  ///< Token vectors; one table unless Options::adaptive.
  const Tensor weight;         ///< The first table, [vocabulary, d_model] unless Options::adaptive.
  AbsolutePosition positions;  ///< Absolute positions, norm and dropout.

 private:
  AdaptiveTables make_tables();
};

}  // namespace stretto::nn
