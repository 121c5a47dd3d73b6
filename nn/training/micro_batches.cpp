#include "nn/training/micro_batches.h"

#include <algorithm>
#include <limits>

#include "autograd/tape.h"
#include "nn/data/batch.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"

namespace stretto::nn {
namespace {

Tensor at_least_1(const Tensor& count) {
  return clamp(count, 1, std::numeric_limits<double>::infinity());
}

}  // namespace

void MicroBatches::begin() {
  ++begun_;
  count_ = {};
  if (n_ > 1) watch_.emplace();
}

void MicroBatches::count(const Tensors& batch, int scored) {
  if (n_ == 1 || (scored < 0 && count_.defined())) return;
  const NoGrad guard;
  const Tensor& x = batch.at(size_t(std::max(scored, 0)));
  const TensorOptions kind{.dtype = f64, .device = x.device()};
  count_ = scored < 0 ? empty({}, kind).fill_(double(x.size(0)))
                      : sum(ne(x, double(not_scored)).to(f64));
}

void MicroBatches::end() {
  if (n_ == 1) return;
  const Tensors means = watch_->counts();
  watch_.reset();
  if (count_.defined() || means.empty()) return;
  if (means.size() == 1) {
    count_ = means[0];
  } else if (means[0].device().is_cpu()) {  // else the host would have to wait
    std::vector<double> counts;
    for (const Tensor& mean : means) counts.push_back(mean.item());
    if (several_.empty()) several_ = counts;
    check(counts == several_, "train", "losses of micro-batches are sums of means over ",
          several_[0], ", ", several_[1], ", … and ", counts[0], ", ", counts[1],
          ", … targets; take the batches from Trainer::fed, which is told what counts");
  }
}

Tensor MicroBatches::weighted(const Tensor& loss) {
  Tensor value = loss.detach().to(f64).reshape({1});
  if (!count_.defined()) {
    loss_ = loss_.defined() ? loss_ + value : value;
    return loss;
  }
  ++counted_;
  const NoGrad guard;
  if (!first_.defined()) first_ = at_least_1(count_);
  total_ = total_.defined() ? total_ + count_ : count_;
  const Tensor weight = (count_ / first_).to(loss.device());
  // The mean of nothing may be 0 / 0.
  value = where(eq(weight, 0.0), zeros_like(value), value * weight);
  loss_ = loss_.defined() ? loss_ + value : value;
  const GradMode recorded(true);
  return loss * weight.to(loss.dtype());
}

bool MicroBatches::scores_nothing() const { return count_.defined() && count_.item() == 0; }

Tensor MicroBatches::finish(const Tensors& parameters) {
  const NoGrad guard;
  if (n_ == 1) return loss_;
  check(counted_ == 0 || counted_ == begun_, "train", counted_, " of ", begun_,
        " micro-batches have a number of scored targets; take all from Trainer::fed or fed_batch");
  const Tensor factor = counted_ > 0 ? first_ / at_least_1(total_)
                                     : empty({}, options_of(loss_)).fill_(1.0 / double(n_));
  for (const Tensor& p : parameters) {
    const Tensor g = p.grad();
    if (!g.defined()) continue;
    if (g.device().is_cpu()) {
      g.mul_(factor.item());
    } else {
      const DType wide = g.dtype() == f64 ? f64 : f32;
      g.copy_(g.to(wide) * factor.to(wide));
    }
  }
  return loss_ * factor.to(loss_.device());
}

}  // namespace stretto::nn
