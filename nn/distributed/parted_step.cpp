#include "nn/distributed/parted_step.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "autograd/tape.h"
#include "core/error.h"
#include "nn/data/batch.h"
#include "nn/data/stage.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/view.h"

namespace stretto::nn {
namespace {

constexpr uint64_t streams_of_a_part = uint64_t(1) << 24;

int64_t count_scored(const Tensor& targets) {
  int64_t n = 0;
  for (const int64_t t : targets.to_vector<int64_t>()) n += t != not_scored;
  return n;
}

}  // namespace

PartedStep::PartedStep(const Module& model, Tensors parameters, int64_t parts, ProcessGroup& group,
                       int64_t pieces, bool scatter)
    : model_(model),
      parameters_(parameters),
      parts_(parts),
      group_(group),
      sequence_(neighbours(group, int(pieces))),
      sums_(std::move(parameters), parts, group, pieces, scatter) {}

void PartedStep::begin(int64_t batch) {
  begin_ = random_state();
  number_ = batch;
  batch_.reset();
  whole_.clear();
}

Tensor PartedStep::operator()(int64_t batch, const std::function<Tensor()>& loss) {
  struct Ended {
    PartedStep& step;
    ~Ended() {
      step.part_ = -1;
      step.batch_.reset();
      step.whole_.clear();
    }
  };
  begin(batch);
  const std::vector<NamedTensor> buffers = model_.named_buffers();
  Tensors at_begin, of_first, losses;
  for (const NamedTensor& b : buffers) at_begin.push_back(b.tensor.clone());
  {
    const Ended ended{*this};
    for (int64_t i = 0; i < count(); ++i) {
      part_ = first() + i;
      share_ = -1;
      if (i > 0)
        for (size_t b = 0; b < buffers.size(); ++b) buffers[b].tensor.copy_(at_begin[b]);
      set_random_state({begin_.seed, begin_.next_stream + uint64_t(part_ + 1) * streams_of_a_part});
      sums_.begin_part();
      losses.push_back(weighted(loss()));
      sums_.end_part();
      if (i == 0)
        for (const NamedTensor& b : buffers) of_first.push_back(b.tensor.clone());
    }
  }
  sums_.finish();
  for (size_t b = 0; b < buffers.size(); ++b) {
    buffers[b].tensor.copy_(of_first[b]);
    take_first(buffers[b].tensor, group_);
  }
  set_random_state({begin_.seed, begin_.next_stream + uint64_t(parts_ + 1) * streams_of_a_part});
  return finish(losses);
}

// Differentiates a part's loss times its share, and returns that, f64 [1].
Tensor PartedStep::weighted(Tensor loss) const {
  check(share_ >= 0, "train",
        "a batch that is cut into parts must come from Trainer::fed or fed_batch");
  check(pieces() == 1 || group_passed_, "train",
        "processes share the sequences: the loss must pass Trainer::sequence_group() to its model");
  loss = loss * weight_.to(loss.device()).to(loss.dtype());
  // The mean of nothing may be 0 / 0. Others wait for the backward pass of a piece.
  const bool looks = share_ == 0 && pieces() == 1 && loss.device().is_cpu();
  if (looks && !std::isfinite(loss.item())) return zeros({1}, {.dtype = f64, .device = cpu});
  loss.backward();
  return loss.detach().to(f64).reshape({1});
}

ProcessGroup* PartedStep::sequence_group() {
  if (!running()) return nullptr;
  group_passed_ = true;
  return pieces() > 1 ? sequence_.get() : nullptr;
}

// The sum of the losses of all processes. Which parameters have been reached goes with them, 32 in
// a number.
Tensor PartedStep::finish(const Tensors& losses) {
  const std::vector<bool> own = sums_.reached();
  std::vector<bool> reached(own.size());
  Tensor sum;
  if (group_.size() == 1) {
    const NoGrad guard;
    for (const Tensor& loss : losses) sum = sum.defined() ? sum + loss : loss;
    reached = own;
  } else {
    std::vector<double> message;
    for (const Tensor& loss : losses) message.push_back(loss.item());
    for (size_t i = 0; i < own.size(); ++i) {
      if (i % 32 == 0) message.push_back(0);
      if (own[i]) message.back() += double(int64_t(1) << (i % 32));
    }
    const std::vector<double> all = group_.all_gather(message);
    double total = 0;
    for (auto at = all.begin(); at != all.end(); at += int64_t(message.size())) {
      const auto flags = at + int64_t(losses.size());
      total = std::accumulate(at, flags, total);
      for (size_t i = 0; i < own.size(); ++i)
        if (int64_t(flags[int64_t(i / 32)]) >> (i % 32) & 1) reached[i] = true;
    }
    sum = full({1}, total, {.dtype = f64, .device = cpu});
  }
  for (size_t i = 0; i < own.size(); ++i)
    if (!reached[i]) parameters_[i].set_grad({});
  return sum;
}

Tensors PartedStep::stage(int64_t batch, const std::function<Tensors(int64_t)>& make, int scored) {
  const double before = share_;
  // A replay of a captured step makes the rows of another batch.
  Tensors staged = fed(model_.device(), [=, this, within = batch - number_, part = part_] {
    Cut now = cut(number_ + within, make, scored, part);
    share_ = now.share;
    now.rows.push_back(full({}, now.share, {.dtype = f64, .device = cpu}));
    return now.rows;
  });
  if (before >= 0 && scored < 0)
    share_ = before;
  else
    weight_ = staged.back();
  staged.pop_back();
  return staged;
}

PartedStep::Cut PartedStep::cut(int64_t batch, const std::function<Tensors(int64_t)>& make,
                                int scored, int64_t part) {
  if (batch_ != batch) {
    const RandomState now = random_state();
    set_random_state(begin_);
    whole_ = make(batch);
    set_random_state(now);
    batch_ = batch;
  }
  Cut result{.rows = {}, .share = 1.0 / double(parts_ * pieces())};
  const int64_t n = whole_.at(0).size(0);
  check(n % parts_ == 0, "train", "a batch of ", n, " rows cannot be cut into ", parts_, " parts");
  const int64_t size = n / parts_;
  for (const Tensor& x : whole_) {
    check(x.size(0) == n, "train", "of a batch that is cut, ", x, " has not ", n, " rows");
    result.rows.push_back(piece(x.slice(0, part * size, (part + 1) * size)).contiguous());
  }
  if (scored >= 0) {
    const int64_t all = count_scored(whole_.at(size_t(scored)));
    result.share =
        double(count_scored(result.rows[size_t(scored)])) / double(std::max<int64_t>(all, 1));
  }
  return result;
}

Tensor PartedStep::piece(const Tensor& rows) const {
  if (pieces() == 1) return rows;
  const int64_t n = rows.dim() > 1 ? rows.size(1) : 1;
  check(n % pieces() == 0, "train", "sequences of ", n, " positions cannot be cut into ", pieces(),
        " pieces of one length");
  const int64_t first = sequence_->rank() * (n / pieces());
  return rows.slice(1, first, first + n / pieces());
}

}  // namespace stretto::nn
