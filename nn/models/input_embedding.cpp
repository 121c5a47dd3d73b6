#include "nn/models/input_embedding.h"

#include <algorithm>
#include <cmath>

#include "nn/init.h"
#include "ops/attention/position_error.h"
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

// Positions counted from the start of each run of equal ids.
std::vector<int64_t> positions_in_segments(const Tensor& x, const Tensor& segments) {
  const Shape expected{x.size(0), x.size(1)};
  check(segments.shape() == expected, "AbsolutePosition", "segments ", segments, " for x ", x,
        "; must be ", expected);
  const std::vector<int64_t> ids = segments.to_vector<int64_t>();
  std::vector<int64_t> at(ids.size());
  for (size_t i = 1; i < ids.size(); ++i)
    if (int64_t(i) % x.size(1) != 0 && ids[i] == ids[i - 1]) at[i] = at[i - 1] + 1;
  return at;
}

std::vector<int64_t> positions_after_padding(const Tensor& x, const ForwardContext& forward,
                                             int64_t step) {
  const auto batch = int64_t(forward.left_padding.size());
  check(batch == x.size(0), "AbsolutePosition", "padding of ", batch, " sequences in a batch of ",
        x.size(0), "; must have one entry for each sequence");
  std::vector<int64_t> at;
  for (const int64_t padding : forward.left_padding)
    for (int64_t i = 0; i < x.size(1); ++i)
      at.push_back(std::max<int64_t>(forward.first_position + i * step - padding, 0));
  return at;
}

}  // namespace

PositionTraits InputOptions::traits() const {
  const bool absolute = sinusoid || learned_length > 0;
  return {.memory = !absolute,
          .max_positions = learned_length > 0 ? learned_length : INT64_MAX,
          .relative = !absolute};
}

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

// Returns the sum of x and its positions. The padding, whose output is undefined, has position 0.
Tensor AbsolutePosition::added(const Tensor& x, const ForwardContext& forward, int64_t step) const {
  const InputOptions& o = options.input;
  const int64_t n = x.size(1), first = forward.first_position,
                last = first + std::min((n - 1) * step, INT64_MAX - std::max<int64_t>(first, 0));
  const auto check_learned = [&](int64_t from, int64_t to) {
    if (to >= o.learned_length)
      throw PositionError(str("[AbsolutePosition] positions ", from, " to ", to,
                              " are needed, but only ", o.learned_length, " are learned"));
  };
  Tensor y = x;
  if (forward.segments.defined() && !o.sinusoid && !table.defined()) return y;
  if (forward.left_padding.empty() && !forward.segments.defined()) {
    if (o.sinusoid) y = y + sinusoids(n, options.d_model, *o.sinusoid, first, step, options_of(x));
    if (!table.defined()) return y;
    check_learned(first, last);
    return y + table.slice(0, first, last + 1, step);
  }
  const std::vector<int64_t> at = forward.segments.defined()
                                      ? positions_in_segments(x, forward.segments)
                                      : positions_after_padding(x, forward, step);
  const Shape& shape = x.shape();
  if (o.sinusoid) {
    const std::vector<double> positions(at.begin(), at.end());
    y = y + sinusoids(positions, options.d_model, *o.sinusoid, options_of(x)).reshape(shape);
  }
  if (!table.defined() || at.empty()) return y;
  check_learned(first, *std::max_element(at.begin(), at.end()));
  const Tensor rows = tensor(at, {int64_t(at.size())}).to(table.device());
  return y + index_select(table, 0, rows).reshape(shape);
}

Tensor AbsolutePosition::operator()(const Tensor& x, const ForwardContext& forward,
                                    int64_t step) const {
  const InputOptions& o = options.input;
  Tensor y = added(o.dropout_before_position ? dropout(x, forward) : x, forward, step);
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

InputEmbedding::InputEmbedding(Module& parent, std::string name, const Options& o)
    : Module(parent, std::move(name)),
      options(checked(o)),
      tables(make_tables()),
      weight(tables.weights[0]),
      positions(o.adaptive ? parent : *this, "positions",
                {o.d_model, o.input, o.dropout, o.norm, o.drawn}) {
  for (size_t i = 0; i < tables.weights.size(); ++i) {
    normal_(tables.weights[i], 0, tables.options.std);
    if (tables.options.projected())
      normal_(tables.projections[i], 0, tables.options.projection_std);
  }
}

AdaptiveTables InputEmbedding::make_tables() {
  AdaptiveOptions o = options.adaptive.value_or(AdaptiveOptions{.std = options.std});
  o.vocabulary = options.vocabulary;
  o.d_model = options.d_model;
  AdaptiveTables made(std::move(o));
  if (!options.adaptive) parameter("weight", made.weights[0]);
  for (size_t i = 0; i < made.weights.size() && options.adaptive; ++i) {
    parameter(str("weight", i), made.weights[i]);
    if (made.options.projected()) parameter(str("projection", i), made.projections[i]);
  }
  return made;
}

Tensor InputEmbedding::lookup(const Tensor& tokens) const {
  check(tokens.dim() == 2, "InputEmbedding", "tokens ", tokens, "; must be i64 or i32 [B, L]");
  const Tensor x = tables(tokens);
  const double factor =
      options.input.factor * (options.input.scale ? std::sqrt(double(options.d_model)) : 1);
  return factor == 1 ? x : x * factor;
}

Tensor InputEmbedding::operator()(const Tensor& tokens, const ForwardContext& forward,
                                  int64_t step) const {
  return positions(lookup(tokens), forward, step);
}

std::string InputEmbedding::label() const {
  const int64_t clusters = tables.options.n_clusters();
  return str("InputEmbedding(", options.vocabulary, " tokens",
             clusters > 1 ? str(", ", clusters, " clusters)") : ")");
}

}  // namespace stretto::nn
