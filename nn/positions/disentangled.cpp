#include "nn/positions/disentangled.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/device_table.h"
#include "nn/init.h"
#include "ops/create.h"
#include "ops/indexing.h"

namespace stretto::nn {
namespace {

// Returns a projection of the attention that owns the encoding.
const Linear& projection_of(const Module& attention, const char* name, HeadShape shape) {
  const Linear* found = nullptr;
  for (const auto& [child, module] : attention.children())
    if (child == name) found = dynamic_cast<const Linear*>(module);
  check(found != nullptr && found->options.out == shape.n_heads * shape.d_key, "Disentangled",
        "shared_projections need an attention with a projection ", name, " of ", shape.n_heads,
        " heads; as many key heads as query heads");
  return *found;
}

}  // namespace

Disentangled::Disentangled(Module& parent, HeadShape shape, Options o)
    : PositionalEncoding(parent), options(std::move(o)), rows(table(shape)), shape_(shape) {
  if (options.shared_projections) {
    to_k_ = &projection_of(parent, "k", shape);
    to_q_ = &projection_of(parent, "q", shape);
  } else {
    const int64_t out = shape.n_heads * shape.d_key;
    if (options.content_to_position)
      to_k_ = &k.emplace(*this, "k", Linear::Options{shape.d_model, out, options.key_bias});
    if (options.position_to_content)
      to_q_ = &q.emplace(*this, "q", Linear::Options{shape.d_model, out});
  }
}

Tensor Disentangled::table(HeadShape shape) {
  const char* op = "Disentangled";
  const int64_t max_distance = options.max_distance, buckets = options.buckets;
  const Tensor& shared = options.rows;
  check(max_distance >= 1, op, "max_distance ", max_distance, "; needs at least 1");
  check(buckets == 0 || (buckets >= 2 && buckets / 2 < max_distance - 1), op, "buckets ", buckets,
        " for max_distance ", max_distance,
        "; accepted: 0 for no buckets, or at least 2 with buckets / 2 < max_distance − 1");
  check(options.content_to_position || options.position_to_content, op,
        "content_to_position and position_to_content are both false; set at least one of them");
  const Shape expected{options.n_rows(), shape.d_model};
  if (shared.defined()) {
    check(shared.shape() == expected, op, "rows ", shared, "; must be ", expected);
    return shared_parameter("rows", shared);
  }
  const Tensor value = empty(expected);
  normal_(value, 0, 0.02);
  return parameter("rows", value);
}

// Returns a table with one row for each relative position r that can occur: the projected row
// [H·D] of the distance sign · r.
RelativeTable Disentangled::per_distance(const Tensor& projected, const AttentionInputs& inputs,
                                         int64_t sign) const {
  const int64_t m = inputs.n_queries(), n = inputs.n_keys_of_all(), count = rows.size(0);
  const int64_t last = inputs.options.mask.is_causal() ? 0 : std::max<int64_t>(m - 1, 0);
  const auto make = [&] {
    std::vector<int64_t> index;
    for (int64_t r = -(n - 1); r <= last; ++r) {
      int64_t distance = sign * r;
      if (options.buckets > 0)
        distance = log_bucket(distance, options.buckets, options.max_distance);
      index.push_back(std::clamp<int64_t>(distance + count / 2, 0, count - 1));
    }
    return tensor(index, {n + last});
  };
  const Tensor heads = projected.reshape({count, shape_.n_heads, shape_.d_key}).transpose(0, 1);
  const Tensor at = device_table(rows.device(), make, "disentangled", n, last, sign, count,
                                 options.buckets, options.max_distance);
  return {index_select(heads, 1, at), n - 1};
}

void Disentangled::apply(AttentionInputs& inputs) const {
  if (inputs.n_keys() == 0) return;
  AttentionOptions& o = inputs.options;
  const int64_t terms = int(options.content_to_position) + int(options.position_to_content);
  if (!o.scale) o.scale = 1 / std::sqrt(double(shape_.d_key * (1 + terms)));
  Tensor table = rows;
  if (const Tensor& given = inputs.forward.shared_table; given.defined()) {
    check(given.shape() == rows.shape(), "Disentangled", "shared table ", given, "; must be ",
          rows.shape());
    table = given;
  }
  table = dropout(table, inputs.forward);
  if (options.content_to_position) o.relative_keys = per_distance((*to_k_)(table), inputs, -1);
  if (options.position_to_content)
    add_key_side_term(inputs, per_distance((*to_q_)(table), inputs, options.mirrored ? 1 : -1));
}

std::string Disentangled::label() const {
  return str("Disentangled(", rows.size(0), " rows",
             options.content_to_position ? ", content to position" : "",
             options.position_to_content ? ", position to content" : "",
             options.shared_projections ? ", shared projections)" : ")");
}

int64_t log_bucket(int64_t distance, int64_t buckets, int64_t max_distance) {
  const int64_t mid = buckets / 2, size = std::abs(distance);
  if (size <= mid) return distance;
  const double span = std::log(double(max_distance - 1) / double(mid));
  const double steps = std::ceil(std::log(double(size) / double(mid)) / span * double(mid - 1));
  return (distance > 0 ? 1 : -1) * (mid + int64_t(steps));
}

}  // namespace stretto::nn
