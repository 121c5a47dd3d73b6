#include "tests/ops/attention/attention_check.h"

#include <cmath>

#include "autograd/tape.h"
#include "ops/create.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

namespace stretto::testing {

AttentionCase moved(const AttentionCase& in, Device device, DType type) {
  AttentionCase to = in;
  to.for_each_tensor([&](Tensor& x) {
    if (x.defined()) x = x.detach().to(type).to(device).set_requires_grad();
  });
  AttentionMask& mask = to.options.mask;
  for (Tensor* x :
       {&mask.key_padding, &mask.segments, &mask.prefix_lengths, &mask.global_tokens, &mask.hidden})
    if (x->defined()) *x = x->to(device);
  return to;
}

Tensors output_and_gradients(const AttentionCase& in, Implementation implementation) {
  const Tensor y = in(implementation);
  const Tensor incoming = fixed_noise(y.shape(), 9).to(bf16).to(y.dtype()).to(y.device());
  Tensors all = grad({y}, in.leaves(), {incoming});
  const Tensors leaves = in.leaves();
  for (size_t i = 0; i < all.size(); ++i)
    if (!all[i].defined()) all[i] = zeros_like(leaves[i]);
  all.insert(all.begin(), y.detach());
  return all;
}

Difference difference(const Tensor& got, const Tensor& want, double least) {
  const auto g = got.to_vector<double>(), w = want.to_vector<double>();
  REQUIRE(g.size() == w.size());
  double num = 0, den = 0, worst = 0, most = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    const double d = std::isfinite(g[i]) ? g[i] - w[i] : HUGE_VAL;
    num += d * d, den += w[i] * w[i];
    worst = std::max(worst, std::fabs(d)), most = std::max(most, std::fabs(w[i]));
  }
  return {std::sqrt(num / std::max(den, least * least * double(w.size()))),
          worst / std::max(most, 4 * least)};
}

// In bf16, weights and score gradients are rounded to 8 bits.
void check_fused(const AttentionSetup& s, Device device, DType type,
                 const std::function<void(AttentionOptions&)>& change) {
  INFO(describe(s) << ", " << name(type));
  AttentionCase in = make_inputs(s, type);
  if (change) change(in.options);
  const Tensors want = output_and_gradients(moved(in, cpu, f64), Implementation::composed);
  const AttentionCase on_device = moved(in, device, type);
  const Tensors got = output_and_gradients(on_device, Implementation::fused);
  REQUIRE(got.size() == want.size());
  const double size = type == bf16 ? 8e-3 : 3e-6, worst = type == bf16 ? 2e-2 : 1e-5;
  for (size_t i = 0; i < got.size(); ++i) {
    INFO((i == 0 ? std::string("output") : str("gradient ", i)));
    CHECK(got[i].dtype() == type);
    const bool table = i >= (s.relative_query && s.table > 0 ? 5 : 4);
    const double terms = double(s.batch * s.queries * (s.shared ? s.heads : 1));
    const Difference e = difference(got[i], want[i], table ? 0.4 * std::sqrt(terms) : 0.4);
    CHECK(e.size < size);
    CHECK(e.worst < worst);
  }
  if (s.batch > 1) return;
  const Tensors again = output_and_gradients(on_device, Implementation::fused);
  for (size_t i = 0; i < got.size(); ++i) CHECK(same_bits(got[i], again[i]));
}

}  // namespace stretto::testing
