#include "nn/models/input_embedding.h"

#include <cmath>

#include "nn/init.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"

namespace stretto::nn {

namespace {

const AbsolutePosition::Options& checked(const AbsolutePosition::Options& o) {
  check(o.d_model >= 1 && o.input.learned_length >= 0, "AbsolutePosition", "d_model ", o.d_model,
        ", learned_length ", o.input.learned_length,
        "; d_model must be at least 1, learned_length 0 (none) or more");
  return o;
}

const InputEmbedding::Options& checked(const InputEmbedding::Options& o) {
  check(o.vocabulary >= 1 && o.d_model >= 1, "InputEmbedding", "vocabulary ", o.vocabulary,
        ", d_model ", o.d_model, "; must be at least 1");
  return o;
}

}  // namespace

AbsolutePosition::AbsolutePosition(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)),
      options(checked(o)),
      table(o.input.learned_length > 0
                ? parameter("table", empty({o.input.learned_length, o.d_model}))
                : Tensor()) {
  if (o.drawn)
    reset_parameters();
  else if (table.defined())
    constant_(table, 0);
  if (!o.input.norm) return;
  o.norm.dim = o.d_model;
  norm.emplace(*this, "norm", o.norm);
}

void AbsolutePosition::reset_parameters() const {
  if (table.defined()) normal_(table, 0, 0.02);
}

Tensor AbsolutePosition::operator()(const Tensor& x, const ForwardContext& forward,
                                    int64_t step) const {
  const InputOptions& o = options.input;
  const int64_t n = x.size(1), first = forward.first_position, last = first + (n - 1) * step;
  Tensor y = o.dropout_before_position ? dropout(x, forward) : x;
  if (o.sinusoid) y = y + sinusoids(n, options.d_model, *o.sinusoid, first, step, options_of(x));
  if (table.defined()) {
    check(last < o.learned_length, "AbsolutePosition", "positions ", first, " to ", last,
          " are needed, but only ", o.learned_length, " are learned");
    y = y + table.slice(0, first, last + 1, step);
  }
  if (norm) y = (*norm)(y);
  return o.dropout_before_position ? y : dropout(y, forward);
}

std::string AbsolutePosition::label() const {
  return str("AbsolutePosition(",
             options.input.sinusoid ? "sinusoids"
             : table.defined()      ? "learned"
                                    : "none",
             ")");
}

InputEmbedding::InputEmbedding(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)),
      options(checked(o)),
      weight(parameter("weight", empty({o.vocabulary, o.d_model}))) {
  normal_(weight, 0, o.std);
}

Tensor InputEmbedding::lookup(const Tensor& tokens) const {
  check(tokens.dim() == 2, "InputEmbedding", "tokens ", tokens, "; must be i64 or i32 [B, L]");
  const Tensor x = embedding(weight, tokens);
  return options.input.scale ? x * std::sqrt(double(options.d_model)) : x;
}

Tensor InputEmbedding::operator()(const Tensor& tokens, const ForwardContext& forward,
                                  int64_t step) const {
  return positions(lookup(tokens), forward, step);
}

std::string InputEmbedding::label() const {
  return str("InputEmbedding(", options.vocabulary, " tokens)");
}

}  // namespace stretto::nn
