#include "ops/attention/linear_attention_terms.h"

#include <cmath>

#include "ops/attention/heads.h"
#include "ops/indexing.h"
#include "ops/view.h"

namespace stretto {
namespace {

constexpr const char* op = "linear_attention";

}  // namespace

void check_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                            const LinearAttentionOptions& o) {
  check_heads(op, q, k, v, o.mask.key_padding);
  const char* const other = setting_besides(o.mask, {"causal", "key_padding"});
  check(!other, op, other ? other : "",
        " is set; accepted: causal and key_padding, as there are no scores to mask");
  check(std::isfinite(o.eps) && o.eps >= 0, op, "eps ", o.eps, "; must be 0 or more");
  check(o.chunk >= 1, op, "chunk ", o.chunk, "; must be at least 1");
}

void check_linear_state(const Tensor& q, const Tensor& k, const Tensor& v, const LinearState& state,
                        const LinearAttentionOptions& o) {
  check(!o.mask.causal || q.size(2) <= k.size(2) || k.size(2) == 0, op, q.size(2), " queries and ",
        k.size(2),
        " keys continue a state causally; accepted: a key for each query, or no keys, because no "
        "query may precede keys in the state");
  if (!state.sums.defined()) return;
  const Shape shape{k.size(0), k.size(1), k.size(3), v.size(3) + 1};
  const DType dtype = compute_type(q.dtype());
  check(state.sums.shape() == shape && state.sums.dtype() == dtype, op, "the state is ", state.sums,
        "; for k ", k, " and v ", v, " it must be ", dtype, " ", shape);
  check_same_device(op, {&q, &state.sums});
}

Tensor LinearState::s() const { return sums.slice(3, 0, -1); }
Tensor LinearState::z() const { return sums.select(3, -1); }

void LinearState::reorder(const Tensor& rows) {
  for (Tensor* x : {&sums, &shift, &history})
    if (x->defined()) *x = index_select(*x, 0, rows);
}

}  // namespace stretto
