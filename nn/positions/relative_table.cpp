#include "nn/positions/relative_table.h"

#include <cmath>

#include "nn/init.h"
#include "nn/norm.h"
#include "ops/attention/skew.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/view.h"

namespace stretto::nn {
namespace {

Tensor music_table(HeadShape shape, const MusicRelative::Options& o) {
  check(o.max_length >= 1, "MusicRelative", "max_length ", o.max_length, "; needs at least 1");
  const int64_t rows = o.bidirectional ? 2 * o.max_length - 1 : o.max_length;
  Tensor table = empty({o.shared_by_heads ? 1 : shape.n_heads, rows, shape.d_key});
  normal_(table, 0, 1 / std::sqrt(double(shape.d_key)));
  return table;
}

Tensor shaw_table(HeadShape shape, int64_t width, const ShawRelative::Options& o) {
  check(o.max_distance >= 0, "ShawRelative", "max_distance ", o.max_distance,
        "; must not be negative");
  Tensor table = empty({o.shared_by_heads ? 1 : shape.n_heads, 2 * o.max_distance + 1, width});
  for (int64_t h = 0; h < table.size(0); ++h) xavier_uniform_(table[h]);
  return table;
}

Tensor bert_table(HeadShape shape, const BertRelative::Options& o) {
  check(o.max_length >= 1, "BertRelative", "max_length ", o.max_length, "; needs at least 1");
  Tensor table = empty({1, 2 * o.max_length - 1, shape.d_key});
  normal_(table, 0, 0.02);
  return table;
}

Tensor inkling_table(const InklingRelative::Options& o) {
  Tensor table = empty({1, o.bidirectional ? 2 * o.extent - 1 : o.extent, o.dim});
  normal_(table, 0, 0.02);
  return table;
}

InklingRelative::Options checked(InklingRelative::Options o) {
  check(o.dim >= 1 && o.extent >= 1, "InklingRelative", "dim ", o.dim, ", extent ", o.extent,
        "; both must be at least 1");
  check(o.log_floor >= 0 && o.log_strength >= 0 && o.clip >= 0 && std::isfinite(o.log_strength) &&
            std::isfinite(o.clip),
        "InklingRelative", "log_floor ", o.log_floor, ", log_strength ", o.log_strength, ", clip ",
        o.clip, "; none may be negative or infinite");
  return o;
}

void check_rows_after_query(const char* op, bool have, const AttentionInputs& inputs) {
  check(have || inputs.options.mask.is_causal(), op,
        "the table has no rows for keys after the query; use a causal mask, or set "
        "bidirectional = true");
}

}  // namespace

MusicRelative::MusicRelative(Module& parent, HeadShape shape, Options o)
    : PositionalEncoding(parent), options(o), table(parameter("table", music_table(shape, o))) {}

void MusicRelative::apply(AttentionInputs& inputs) const {
  check_rows_after_query("MusicRelative", options.bidirectional || options.block > 0, inputs);
  inputs.options.relative_keys = {
      .rows = table, .zero_row = options.max_length - 1, .out_of_range = options.out_of_range};
  if (options.block > 0) inputs.options.mask.block = options.block;
}

std::string MusicRelative::label() const {
  return str("MusicRelative(max_length ", options.max_length,
             options.bidirectional ? ", bidirectional" : "",
             options.shared_by_heads ? ", shared by heads)" : ")");
}

ShawRelative::ShawRelative(Module& parent, HeadShape shape, Options o)
    : PositionalEncoding(parent),
      options(o),
      keys(parameter("keys", shaw_table(shape, shape.d_key, o))),
      values(o.values ? parameter("values", shaw_table(shape, shape.d_value, o)) : Tensor()) {}

void ShawRelative::apply(AttentionInputs& inputs) const {
  inputs.options.relative_keys = {
      .rows = keys, .zero_row = options.max_distance, .out_of_range = OutOfRange::clip};
  if (options.values)
    inputs.options.relative_values = {
        .rows = values, .zero_row = options.max_distance, .out_of_range = OutOfRange::clip};
}

std::string ShawRelative::label() const {
  return str("ShawRelative(max_distance ", options.max_distance,
             options.values ? "" : ", keys only",
             options.shared_by_heads ? ", shared by heads)" : ")");
}

BertRelative::BertRelative(Module& parent, HeadShape shape, Options o)
    : PositionalEncoding(parent), options(o), table(parameter("table", bert_table(shape, o))) {}

void BertRelative::apply(AttentionInputs& inputs) const {
  inputs.options.relative_keys = {
      .rows = table, .zero_row = options.max_length - 1, .out_of_range = OutOfRange::error};
  if (options.keys_too) add_key_side_term(inputs, inputs.options.relative_keys);
}

std::string BertRelative::label() const {
  return str("BertRelative(max_length ", options.max_length,
             options.keys_too ? ", keys too)" : ")");
}

InklingRelative::InklingRelative(Module& parent, HeadShape s, Options o)
    : PositionalEncoding(parent),
      shape(s),
      options(checked(o)),
      table(parameter("table", inkling_table(o))),
      factors(o.clip > 0 ? parameter("factors", ones({s.n_heads, o.dim})) : Tensor()) {}

void InklingRelative::apply(AttentionInputs& inputs) const {
  const int64_t m = inputs.n_queries();
  const Tensor& x = inputs.x;
  check_rows_after_query("InklingRelative", options.bidirectional, inputs);
  check(x.defined() && x.size(1) >= m, "InklingRelative",
        "cross-attention; accepted: self-attention, as position queries are projections of the "
        "layer's input");
  const double scale = inputs.options.scale.value_or(1 / std::sqrt(double(shape.d_key)));
  check(scale != 0, "InklingRelative", "scale 0; accepted: other scales, as p_i is divided by it");
  const Tensor rows = r(x.slice(1, x.size(1) - m));
  Tensor p =
      rows.reshape({x.size(0), m, shape.n_heads, options.dim}).to(compute_type(rows.dtype()));
  if (factors.defined()) p = clip_norm(p * factors, options.clip);
  const int64_t end = inputs.first_position + inputs.n_keys();
  if (options.log_floor > 0 && end > options.log_floor) {
    const TensorOptions wide = options_of(p);
    const Tensor position = arange(double(end - m + 1), double(end + 1), 1, wide);
    const Tensor larger = log(maximum(position * (1 / double(options.log_floor)), 1));
    const Tensor factor = (larger * options.log_strength + 1).unsqueeze(-1);  // [M, 1]
    p = p * factor.unsqueeze(-1);
    inputs.q = (inputs.q.to(wide.dtype) * factor).to(inputs.q.dtype());
  }
  // attention() scales this term with the others.
  inputs.options.relative_query = (p * (1 / scale)).to(rows.dtype()).transpose(1, 2);
  inputs.options.relative_keys = {.rows = table, .zero_row = options.extent - 1};
}

std::string InklingRelative::label() const {
  return str("InklingRelative(dim ", options.dim, ", extent ", options.extent,
             options.bidirectional ? ", bidirectional" : "",
             options.clip > 0 ? str(", clip ", options.clip) : "",
             options.log_floor > 0 ? str(", log floor ", options.log_floor) : "", ")");
}

void add_key_side_term(AttentionInputs& inputs, const RelativeTable& table) {
  const Tensor& k = inputs.k;
  const int64_t batch = k.size(0), groups = k.size(1), heads = inputs.q.size(1);
  const int64_t m = inputs.n_queries(), n = inputs.n_keys(), d = k.size(3);
  check(table.rows.dim() == 3 && (table.rows.size(0) == heads || table.rows.size(0) == 1) &&
            table.rows.size(2) == d,
        "add_key_side_term", "table ", table.rows, "; must be [", heads, " or 1, R, ", d, "]");
  if (n == 0) return;
  // The skew with keys and queries exchanged: its column c is for relative position M − 1 − c.
  Tensor rows = flip(relative_rows(table, -(n - 1), n + m - 1), 1).transpose(-1, -2);
  if (rows.size(0) > 1) rows = rows.reshape({groups, heads / groups, d, rows.size(2)});
  const Tensor term =
      skew(matmul(k.unsqueeze(2), rows), m).transpose(-1, -2);  // [B, G, 1 or H/G, M, N]
  const double scale = inputs.options.scale.value_or(1 / std::sqrt(double(d)));
  add_bias(
      inputs,
      term.expand({batch, groups, heads / groups, m, n}).reshape({batch, heads, m, n}) * scale);
}

}  // namespace stretto::nn
