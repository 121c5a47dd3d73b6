#include "nn/dropout.h"

#include <utility>

#include "nn/distributed/process_group.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"

namespace stretto::nn {
namespace {

Dropout::Options checked(Dropout::Options o) {
  check(o.p >= 0 && o.p <= 1, "Dropout", "p = ", o.p, " is not a probability");
  return o;
}

thread_local const char* refusing = nullptr;  // the op

}  // namespace

RefuseDropout::RefuseDropout(const char* op) : before_(std::exchange(refusing, op)) {}
RefuseDropout::~RefuseDropout() { refusing = before_; }

double dropout_now(const Module& module, double p) {
  if (!module.training() || p == 0) return 0;
  check(!refusing, refusing ? refusing : "", "the model is in training mode, with dropout ", p,
        "; call eval() of the model first");
  return p;
}

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
  const double p = dropout_now(*this, options.p);
  return p > 0 ? dropout(x, p, dropout_key(forward)) : x;
}

ResidualDropout Dropout::next(const ForwardContext& forward) const {
  const double p = dropout_now(*this, options.p);
  return p > 0 ? ResidualDropout{p, dropout_key(forward)} : ResidualDropout{};
}

std::string Dropout::label() const { return str("Dropout(", options.p, ")"); }

}  // namespace stretto::nn
