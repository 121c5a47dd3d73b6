// What goes into the first layer of a model: vectors of tokens, and absolute positions added to
// them.
//
// Reference: tests/reference/classifier.cpp, encode()
#pragma once

#include <optional>

#include "../dropout.h"
#include "../module.h"
#include "../norm.h"
#include "../positions/sinusoid.h"

namespace stretto::nn {

/// Settings of a model's input. Positions that act in the attention are LayerOptions::position
/// instead, or too.
struct InputOptions {
  bool scale = true;                      // token vectors are multiplied by √d_model
  std::optional<Sinusoid> sinusoid = {};  // added
  int64_t learned_length = 0;  // > 0: a trained vector for each of so many positions, added
  bool dropout_before_position = false;  // on the token vectors alone, not on what is added
  bool norm = false;  // of the sum, as the layers' norms are, before dropout (BERT, BLOOM)
};

struct AbsolutePositionOptions {
  int64_t d_model = 0;
  InputOptions input = {};
  double dropout = 0;
  Norm::Options norm = {};  // where input.norm; its dim is d_model
  /// Whether the constructor draws the table. Models whose table is drawn after all else set it to
  /// false, and call reset_parameters(); until then the table is 0.
  bool drawn = true;
};

/// Adds absolute positions to x [B, L, d_model], and applies norm and dropout. Positions from
/// learned_length on are an error.
class AbsolutePosition : public Module {
 public:
  using Options = AbsolutePositionOptions;
  AbsolutePosition(Module& parent, std::string name, Options options);

  /// Row i of x is at position forward.first_position + i · step.
  Tensor operator()(const Tensor& x, const ForwardContext& forward = {}, int64_t step = 1) const;
  /// Draws the table's first values, normal with standard deviation 0.02. The models of the library
  /// do so after all others, so that one with learned positions starts, but for them, as one
  /// without.
  void reset_parameters() const;
  std::string label() const override;

  const Options options;
  const Tensor table;  // [learned_length, d_model]; undefined without
  std::optional<Norm> norm;
  Dropout dropout{*this, "dropout", {options.dropout}};
};

struct InputEmbeddingOptions {
  int64_t vocabulary = 0;
  int64_t d_model = 0;
  InputOptions input = {};
  double dropout = 0;
  double std = 1;
  Norm::Options norm = {};  // AbsolutePosition::Options
  bool drawn = true;        // the same; the vectors are always drawn
};

/// Tokens [B, L] (i64 or i32, in [0, vocabulary)) → [B, L, d_model]. `weight` [vocabulary, d_model]
/// starts normal with standard deviation `std`.
class InputEmbedding : public Module {
 public:
  using Options = InputEmbeddingOptions;
  InputEmbedding(Module& parent, std::string name, Options options);

  Tensor operator()(const Tensor& tokens, const ForwardContext& forward = {},
                    int64_t step = 1) const;
  /// The vectors alone, scaled: no position, no dropout.
  Tensor lookup(const Tensor& tokens) const;
  std::string label() const override;

  const Options options;
  const Tensor weight;
  AbsolutePosition positions{
      *this,
      "positions",
      {options.d_model, options.input, options.dropout, options.norm, options.drawn}};
};

}  // namespace stretto::nn
