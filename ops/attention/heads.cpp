#include "ops/attention/heads.h"

namespace stretto {

void check_heads(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                 const Tensor& padding) {
  const bool fit = q.dim() == 4 && k.dim() == 4 && v.dim() == 4 && q.size(0) == k.size(0) &&
                   k.size(0) == v.size(0) && q.size(3) == k.size(3) && k.size(1) == v.size(1) &&
                   k.size(2) == v.size(2) && k.size(1) > 0 && q.size(1) % k.size(1) == 0;
  check(fit, op, "q ", q, ", k ", k, ", v ", v,
        "; accepted: q [B, H, M, D], k [B, G, N, D], v [B, G, N, Dv] with H a multiple of G");
  check(is_floating(q.dtype()) && q.dtype() == k.dtype() && q.dtype() == v.dtype(), op, "q ", q,
        ", k ", k, ", v ", v, "; all must have one floating-point dtype");
  check_same_device(op, {&q, &k, &v, &padding});
  check(!padding.defined() ||
            (is_mask(padding.dtype()) && padding.shape() == Shape{q.size(0), k.size(2)}),
        op, "key_padding ", padding, "; must be bool or u8 [", q.size(0), ", ", k.size(2), "]");
}

}  // namespace stretto
