#include "nn/positions/relative_table.h"

#include <cmath>

#include "nn/init.h"
#include "ops/attention/skew.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/view.h"

namespace stretto::nn {
namespace {

Tensor music_table(HeadShape shape, const MusicRelative::Options& o) {
  check(o.length >= 1, "MusicRelative", "length ", o.length, "; needs at least 1");
  const int64_t rows = o.two_sided ? 2 * o.length - 1 : o.length;
  Tensor table = empty({o.shared_by_heads ? 1 : shape.n_heads, rows, shape.d_key});
  normal_(table, 0, 1 / std::sqrt(double(shape.d_key)));
  return table;
}

Tensor shaw_table(HeadShape shape, int64_t width, const ShawRelative::Options& o) {
  check(o.clip >= 0, "ShawRelative", "clip ", o.clip, "; must not be negative");
  Tensor table = empty({o.shared_by_heads ? 1 : shape.n_heads, 2 * o.clip + 1, width});
  for (int64_t h = 0; h < table.size(0); ++h) xavier_uniform_(table[h]);
  return table;
}

Tensor bert_table(HeadShape shape, const BertRelative::Options& o) {
  check(o.length >= 1, "BertRelative", "length ", o.length, "; needs at least 1");
  Tensor table = empty({1, 2 * o.length - 1, shape.d_key});
  normal_(table, 0, 0.02);
  return table;
}

}  // namespace

MusicRelative::MusicRelative(Module& parent, HeadShape shape, Options o)
    : Position(parent), options(o), table(parameter("table", music_table(shape, o))) {}

void MusicRelative::apply(AttentionCall& call) const {
  call.options.keys = {.rows = table, .zero_row = options.length - 1, .beyond = options.beyond};
  if (options.block > 0) call.options.mask.block = options.block;
}

std::string MusicRelative::label() const {
  return str("MusicRelative(length ", options.length, options.two_sided ? ", two-sided" : "",
             options.shared_by_heads ? ", shared by heads)" : ")");
}

ShawRelative::ShawRelative(Module& parent, HeadShape shape, Options o)
    : Position(parent),
      options(o),
      keys(parameter("keys", shaw_table(shape, shape.d_key, o))),
      values(o.values ? parameter("values", shaw_table(shape, shape.d_value, o)) : Tensor()) {}

void ShawRelative::apply(AttentionCall& call) const {
  call.options.keys = {.rows = keys, .zero_row = options.clip, .beyond = Beyond::clip};
  if (options.values)
    call.options.values = {.rows = values, .zero_row = options.clip, .beyond = Beyond::clip};
}

std::string ShawRelative::label() const {
  return str("ShawRelative(clip ", options.clip, options.values ? "" : ", keys only",
             options.shared_by_heads ? ", shared by heads)" : ")");
}

BertRelative::BertRelative(Module& parent, HeadShape shape, Options o)
    : Position(parent), options(o), table(parameter("table", bert_table(shape, o))) {}

void BertRelative::apply(AttentionCall& call) const {
  call.options.keys = {.rows = table, .zero_row = options.length - 1, .beyond = Beyond::error};
  if (options.keys_too) add_key_side_term(call, call.options.keys);
}

std::string BertRelative::label() const {
  return str("BertRelative(length ", options.length, options.keys_too ? ", keys too)" : ")");
}

void add_key_side_term(AttentionCall& call, const RelativeTable& table) {
  const Tensor& k = call.k;
  const int64_t batch = k.size(0), groups = k.size(1), heads = call.q.size(1);
  const int64_t m = call.n_queries(), n = call.n_keys(), d = k.size(3);
  check(table.rows.dim() == 3 && (table.rows.size(0) == heads || table.rows.size(0) == 1) &&
            table.rows.size(2) == d,
        "add_key_side_term", "table ", table.rows, "; must be [", heads, " or 1, R, ", d, "]");
  if (n == 0) return;
  // The skew with keys in the place of queries: its column c is relative position M − 1 − c.
  Tensor rows = flip(relative_rows(table, -(n - 1), n + m - 1), 1).transpose(-1, -2);
  if (rows.size(0) > 1) rows = rows.reshape({groups, heads / groups, d, rows.size(2)});
  const Tensor term = skew(matmul(k.unsqueeze(2), rows), m).transpose(-1, -2);  // [B, G, ?, M, N]
  const double scale = call.options.scale.value_or(1 / std::sqrt(double(d)));
  add_bias(call, term.expand({batch, groups, heads / groups, m, n}).reshape({batch, heads, m, n}) *
                     scale);
}

}  // namespace stretto::nn
