#include "nn/distributed/data_parallel_step.h"

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

constexpr uint64_t streams_per_micro_batch = uint64_t(1) << 24;

int64_t count_scored(const Tensor& targets) {
  int64_t n = 0;
  for (const int64_t t : targets.to_vector<int64_t>()) n += t != ignore_index;
  return n;
}

}  // namespace

DataParallelStep::DataParallelStep(const Module& model, Tensors parameters, int64_t micro_batches,
                                   ProcessGroup& group, int64_t sequence_size, bool scatter)
    : model_(model),
      parameters_(parameters),
      micro_batches_(micro_batches),
      group_(group),
      sequence_(subgroup(group, int(sequence_size))),
      reducer_(std::move(parameters), micro_batches, group, sequence_size, scatter) {}

void DataParallelStep::begin(int64_t batch) {
  begin_ = random_state();
  number_ = batch;
  batch_.reset();
  whole_.clear();
}

Tensor DataParallelStep::operator()(int64_t batch, const std::function<Tensor()>& loss) {
  struct Ended {
    DataParallelStep& step;
    ~Ended() {
      step.micro_batch_ = -1;
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
      micro_batch_ = first() + i;
      share_ = -1;
      if (i > 0)
        for (size_t b = 0; b < buffers.size(); ++b) buffers[b].tensor.copy_(at_begin[b]);
      set_random_state(
          {begin_.seed, begin_.next_stream + uint64_t(micro_batch_ + 1) * streams_per_micro_batch});
      reducer_.begin_micro_batch();
      losses.push_back(weighted(loss()));
      reducer_.end_micro_batch();
      if (i == 0)
        for (const NamedTensor& b : buffers) of_first.push_back(b.tensor.clone());
    }
  }
  reducer_.finish();
  for (size_t b = 0; b < buffers.size(); ++b) {
    buffers[b].tensor.copy_(of_first[b]);
    broadcast(buffers[b].tensor, group_);
  }
  set_random_state(
      {begin_.seed, begin_.next_stream + uint64_t(micro_batches_ + 1) * streams_per_micro_batch});
  return finish(losses);
}

// Multiplies the loss of a micro-batch by its share, runs the backward pass of the product, and
// returns the product, f64 [1].
Tensor DataParallelStep::weighted(Tensor loss) const {
  check(share_ >= 0, "train",
        "with micro-batches, the loss must get its batch from Trainer::stage() or stage_batch()");
  check(sequence_size() == 1 || group_passed_, "train",
        "with sequence_parallel, the loss must pass Trainer::sequence_group() to its model");
  loss = loss * weight_.to(loss.device()).to(loss.dtype());
  // A mean over no targets may be NaN: skip its backward pass. Not under sequence parallelism,
  // where other ranks would wait for it.
  const bool check_nan = share_ == 0 && sequence_size() == 1 && loss.device().is_cpu();
  if (check_nan && !std::isfinite(loss.item())) return zeros({1}, {.dtype = f64, .device = cpu});
  loss.backward();
  return loss.detach().to(f64).reshape({1});
}

ProcessGroup* DataParallelStep::sequence_group() {
  if (!running()) return nullptr;
  group_passed_ = true;
  return sequence_size() > 1 ? sequence_.get() : nullptr;
}

// Sums the losses of all processes. The same message carries the flags of the reached parameters,
// 32 to a double.
Tensor DataParallelStep::finish(const Tensors& losses) {
  const std::vector<bool> own = reducer_.reached();
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

Tensors DataParallelStep::stage(int64_t batch, const std::function<Tensors(int64_t)>& make,
                                int scored) {
  const double before = share_;
  // A replay of a captured step calls this lambda again, with another value of number_.
  Tensors staged =
      nn::stage(model_.device(), [=, this, within = batch - number_, micro_batch = micro_batch_] {
        Cut now = cut(number_ + within, make, scored, micro_batch);
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

DataParallelStep::Cut DataParallelStep::cut(int64_t batch,
                                            const std::function<Tensors(int64_t)>& make, int scored,
                                            int64_t micro_batch) {
  if (batch_ != batch) {
    const RandomState now = random_state();
    set_random_state(begin_);
    whole_ = make(batch);
    set_random_state(now);
    batch_ = batch;
  }
  Cut result{.rows = {}, .share = 1.0 / double(micro_batches_ * sequence_size())};
  const int64_t n = whole_.at(0).size(0);
  check(n % micro_batches_ == 0, "train", "a batch of ", n, " rows cannot be divided into ",
        micro_batches_, " micro-batches");
  const int64_t size = n / micro_batches_;
  for (const Tensor& x : whole_) {
    check(x.size(0) == n, "train", "a tensor of the batch is ", x, "; all must have ", n, " rows");
    result.rows.push_back(
        sequence_chunk(x.slice(0, micro_batch * size, (micro_batch + 1) * size)).contiguous());
  }
  if (scored >= 0) {
    const int64_t all = count_scored(whole_.at(size_t(scored)));
    result.share =
        double(count_scored(result.rows[size_t(scored)])) / double(std::max<int64_t>(all, 1));
  }
  return result;
}

Tensor DataParallelStep::sequence_chunk(const Tensor& rows) const {
  if (sequence_size() == 1) return rows;
  const int64_t n = rows.dim() > 1 ? rows.size(1) : 1;
  check(n % sequence_size() == 0, "train", "sequences of ", n, " positions cannot be divided into ",
        sequence_size(), " chunks of equal length");
  const int64_t first = sequence_->rank() * (n / sequence_size());
  return rows.slice(1, first, first + n / sequence_size());
}

}  // namespace stretto::nn
