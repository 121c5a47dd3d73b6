#include "nn/dropout.h"

#include "nn/distributed/process_group.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"

namespace stretto::nn {
namespace {

Dropout::Options checked(Dropout::Options o) {
  check(o.p >= 0 && o.p <= 1, "Dropout", "p = ", o.p, " is not a probability");
  return o;
}

}  // namespace

RandomKey dropout_key(const ForwardContext& forward) {
  RandomKey key = next_random_key();
  if (const ProcessGroup* group = forward.sequence_group)
    key.seed ^= uint64_t(group->rank()) * 0x9e3779b97f4a7c15;
  return key;
}

Dropout::Dropout(Options o) : options(checked(o)) {}

Dropout::Dropout(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(checked(o)) {}

Tensor Dropout::operator()(const Tensor& x, const ForwardContext& forward) const {
  return training() && options.p > 0 ? dropout(x, options.p, dropout_key(forward)) : x;
}

ResidualDropout Dropout::next(const ForwardContext& forward) const {
  if (!training() || options.p == 0) return {};
  return {options.p, dropout_key(forward)};
}

std::string Dropout::label() const { return str("Dropout(", options.p, ")"); }

}  // namespace stretto::nn
