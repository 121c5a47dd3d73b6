#include "nn/distributed/gradient_reducer.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "autograd/profile.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/float_mode.h"
#include "nn/distributed/nccl_reducer.h"
#include "ops/view.h"

namespace stretto::nn {
namespace {

constexpr int64_t bucket_bytes = int64_t(4) << 20;

}  // namespace

Tensor all_gather_rows(const Tensor& mine, ProcessGroup& group) {
  if (group.size() == 1) return mine;
  const Tensor rows = mine.detach().to(Device()).contiguous();
  Shape shape = rows.shape();
  shape[0] *= group.size();
  Tensor all = empty(shape, {.dtype = rows.dtype(), .device = Device()});
  group.all_gather(rows.raw_data(), size_t(rows.numel() * item_size(rows.dtype())), all.raw_data());
  return all;
}

void broadcast(const Tensor& x, ProcessGroup& group) {
  if (group.size() > 1) x.copy_(all_gather_rows(x.unsqueeze(0), group)[0]);
}

struct GradientReducer::State {
  struct Slot {
    Tensor parameter;
    std::vector<Tensor> waiting;  // by level l: a sum over 2^l micro-batches, to be paired
    bool arrived = false;         // got its gradient in this micro-batch
    bool trained = false;         // required a gradient when this step began
    bool reached = false;         // got a gradient in this step
    bool watched = false;         // has a hook of this reducer
    size_t bucket = 0;
    int64_t offset = 0;
  };
  struct Bucket {
    Tensor values;  // gradients of one dtype, on the device that sums them
    std::vector<size_t> slots;
    size_t filled = 0, trained = 0;  // numbers of slots; a bucket without trained slots is not sent
    std::vector<int64_t> ends;       // ends of the chunks of the processes
  };

  State(ProcessGroup& g, int64_t all, int64_t n, bool s)
      : group(g), sequence_size(n), count(all * n / g.size()), scatter(s), deferred(n > 1) {}

  ProcessGroup& group;
  const int64_t sequence_size, count;
  const bool scatter;
  bool deferred;  // communication starts in finish()
  std::vector<Slot> slots;
  std::vector<Bucket> buckets;
  std::unique_ptr<NcclReducer> nccl;  // null: the sender thread below uses the group
  bool open = false;                  // between begin_micro_batch() and end_micro_batch()
  int64_t micro_batch = -1;           // counted from the first micro-batch of this rank

  // This thread reduces the posted buckets in order.
  std::thread sender;
  std::mutex mutex;
  std::condition_variable changed;
  size_t posted = 0, summed = 0;
  FloatMode float_mode = stretto::float_mode();  // of the thread that posts
  bool stopping = false;
  std::exception_ptr failure;
  Communication statistics;

  void open_nccl();
  void cut_into_buckets();
  void cut_into_chunks(Bucket& bucket) const;
  ElementRange range(const Slot& slot, int rank) const;
  Tensor values_of(const Slot& slot, ElementRange s) const;
  void reduce_on_device(const Bucket& bucket);
  void finish_on_device();
  void wait_for_sums(std::unique_lock<std::mutex>& lock);
  template <class T>
  void sum(Bucket& bucket);
  void begin_step();
  void arrive(size_t i);
  void add(size_t i, Tensor g);
  void complete(Slot& slot, const Tensor& sum);
  void post();
  void send();
};

// Uses NCCL if all parameters are on one GPU and NCCL is available.
void GradientReducer::State::open_nccl() {
  const Device device = slots.empty() ? Device() : slots[0].parameter.device();
  if (!device.is_cuda()) return;
  for (const Slot& slot : slots)
    if (slot.parameter.device() != device) return;
  nccl = NcclReducer::open(group, device);
}

// Gradients arrive in about the reverse order of declaration, so buckets are filled from the end.
void GradientReducer::State::cut_into_buckets() {
  int64_t limit = 0, n = 0;  // of the open bucket, in elements
  DType dtype = f32;
  const Device device = nccl ? slots[0].parameter.device() : Device();
  const auto close = [&] {
    if (n > 0) {
      // Elements of frozen parameters are sent with their bucket and ignored.
      buckets.back().values = empty({n}, {.dtype = dtype, .device = device}).zero_();
      cut_into_chunks(buckets.back());
    }
    n = 0;
  };
  for (size_t i = slots.size(); i-- > 0;) {
    Slot& slot = slots[i];
    const DType sum_dtype = compute_type(slot.parameter.dtype());
    const int64_t size = slot.parameter.numel();
    if (n == 0 || sum_dtype != dtype || n + size > limit) {
      close();
      dtype = sum_dtype;
      limit = std::max(size, bucket_bytes / item_size(dtype));
      buckets.emplace_back();
    }
    slot.bucket = buckets.size() - 1;
    slot.offset = n;
    buckets.back().slots.push_back(i);
    n += size;
  }
  close();
}

// Cuts near equal chunks, at parameter boundaries or at multiples of norm_block after them, so that
// a block of the gradient norm never spans two ranks.
void GradientReducer::State::cut_into_chunks(Bucket& bucket) const {
  const int64_t n = bucket.values.numel(), size = group.size();
  std::vector<int64_t> cuts;
  for (const size_t i : bucket.slots)
    for (int64_t at = 0; at < slots[i].parameter.numel(); at += norm_block)
      cuts.push_back(slots[i].offset + at);
  cuts.push_back(n);
  for (int64_t chunk = 1; chunk < size; ++chunk) {
    const int64_t equal = n * chunk / size;
    const auto above = std::lower_bound(cuts.begin(), cuts.end(), equal);
    const auto below = above == cuts.begin() ? above : above - 1;
    bucket.ends.push_back(equal - *below < *above - equal ? *below : *above);
  }
  bucket.ends.push_back(n);
}

ElementRange GradientReducer::State::range(const Slot& slot, int rank) const {
  if (group.size() == 1) return {0, slot.parameter.numel()};
  const std::vector<int64_t>& cut = buckets[slot.bucket].ends;
  const size_t chunk = size_t(group.chunk_of(rank));
  const auto within = [&](int64_t at) {
    return std::clamp<int64_t>(at - slot.offset, 0, slot.parameter.numel());
  };
  return {within(chunk == 0 ? 0 : cut[chunk - 1]), within(cut[chunk])};
}

Tensor GradientReducer::State::values_of(const Slot& slot, ElementRange s) const {
  return buckets[slot.bucket].values.slice(0, slot.offset + s.begin, slot.offset + s.end);
}

void GradientReducer::State::arrive(size_t i) {
  Slot& slot = slots[i];
  if (!open || slot.arrived || !slot.trained) return;
  slot.arrived = slot.reached = true;
  const NoGrad guard;
  Tensor g = slot.parameter.grad();
  slot.parameter.set_grad({});
  add(i, std::move(g));
}

void GradientReducer::State::add(size_t i, Tensor g) {
  Slot& slot = slots[i];
  g = g.to(compute_type(slot.parameter.dtype()));
  size_t level = 0;
  for (int64_t p = micro_batch; p & 1; p >>= 1, ++level) {
    slot.waiting[level].add_(g);
    g = std::exchange(slot.waiting[level], {});
  }
  if (micro_batch + 1 < count) {
    slot.waiting[level] = std::move(g);
  } else {
    complete(slot, g);
  }
}

void GradientReducer::State::complete(Slot& slot, const Tensor& sum) {
  if (group.size() == 1) return slot.parameter.set_grad(sum.to(slot.parameter.dtype()));
  Bucket& bucket = buckets[slot.bucket];
  values_of(slot, {0, sum.numel()}).copy_(sum.reshape({sum.numel()}));
  if (++bucket.filled == bucket.trained) post();
}

// Posts the full buckets, strictly in order.
void GradientReducer::State::post() {
  if (deferred) return;
  const std::lock_guard lock(mutex);
  float_mode = stretto::float_mode();
  for (; posted < buckets.size() && buckets[posted].filled == buckets[posted].trained; ++posted)
    if (nccl && buckets[posted].trained > 0) reduce_on_device(buckets[posted]);
  changed.notify_all();
}

void GradientReducer::State::reduce_on_device(const Bucket& bucket) {
  nccl->reduce_scatter(bucket.values, bucket.ends);
  if (!scatter) nccl->all_gather_chunks(bucket.values, bucket.ends);
}

void GradientReducer::State::finish_on_device() {
  nccl->finish();
  statistics.seconds = nccl->seconds(), statistics.bytes = nccl->bytes();
}

// Waits until all posted buckets are summed.
void GradientReducer::State::wait_for_sums(std::unique_lock<std::mutex>& lock) {
  if (nccl) {
    finish_on_device();
  } else {
    changed.wait(lock, [&] { return failure || summed == posted; });
  }
  if (failure) std::rethrow_exception(failure);
}

template <class T>
void GradientReducer::State::sum(Bucket& bucket) {
  if (bucket.trained == 0) return;
  T* const values = bucket.values.data<T>();
  scatter ? group.reduce_scatter(values, bucket.ends)
          : group.all_reduce(values, bucket.values.numel());
}

void GradientReducer::State::send() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return stopping || (!failure && summed < posted); });
    if (stopping) return;
    Bucket& bucket = buckets[summed];
    set_float_mode(float_mode);
    lock.unlock();
    const double begin = steady_seconds();
    const int64_t before = group.bytes_reduced();
    std::exception_ptr thrown;
    try {
      bucket.values.dtype() == f64 ? sum<double>(bucket) : sum<float>(bucket);
    } catch (...) {
      thrown = std::current_exception();
    }
    lock.lock();
    statistics.seconds += steady_seconds() - begin;
    statistics.bytes += group.bytes_reduced() - before;
    failure = thrown;
    ++summed;
    changed.notify_all();
  }
}

GradientReducer::GradientReducer(Tensors parameters, int64_t micro_batches, ProcessGroup& group,
                                 int64_t sequence_size, bool scatter)
    : state_(std::make_shared<State>(group, micro_batches, sequence_size, scatter)) {
  check(micro_batches > 0 && (micro_batches & (micro_batches - 1)) == 0 &&
            micro_batches * sequence_size % group.size() == 0,
        "GradientReducer", "micro_batches ", micro_batches, " with ", group.size(), " processes",
        sequence_size > 1 ? str(", ", sequence_size, " per sequence") : "",
        "; must be a power of two and a multiple of the number of processes",
        sequence_size > 1 ? str(" / ", sequence_size) : "");
  size_t levels = 1;
  for (int64_t n = state_->count; n > 1; n >>= 1) ++levels;
  for (Tensor& parameter : parameters)
    state_->slots.push_back({.parameter = std::move(parameter), .waiting = Tensors(levels)});
  if (group.size() > 1) {
    state_->open_nccl();
    state_->cut_into_buckets();
    if (!state_->nccl) state_->sender = std::thread([state = state_.get()] { state->send(); });
  }
}

GradientReducer::~GradientReducer() {
  if (!state_->sender.joinable()) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    state_->changed.notify_all();
  }
  state_->sender.join();
}

int64_t GradientReducer::first() const {
  return state_->group.rank() / state_->sequence_size * state_->count;
}
int64_t GradientReducer::count() const { return state_->count; }

// Parameters may be frozen or unfrozen between steps.
void GradientReducer::State::begin_step() {
  for (Slot& slot : slots) {
    std::fill(slot.waiting.begin(), slot.waiting.end(), Tensor());
    slot.trained = slot.parameter.requires_grad();
    slot.reached = false;
  }
  std::unique_lock lock(mutex);
  wait_for_sums(lock);  // of a step that has failed: they use the buckets' memory
  posted = summed = 0;
  for (Bucket& bucket : buckets) {
    bucket.filled = 0;
    bucket.trained = size_t(std::count_if(bucket.slots.begin(), bucket.slots.end(),
                                          [&](size_t i) { return slots[i].trained; }));
  }
}

void GradientReducer::begin_micro_batch() {
  State& s = *state_;
  // A micro-batch that was begun but not ended has failed; this call then begins a new step.
  if (s.open || s.micro_batch + 1 >= s.count) s.micro_batch = -1;
  ++s.micro_batch;
  s.open = true;
  for (State::Slot& slot : s.slots) {
    slot.arrived = false;
    slot.parameter.set_grad({});
  }
  if (s.micro_batch > 0) return;
  s.begin_step();
  for (size_t i = 0; i < s.slots.size(); ++i)
    if (s.slots[i].trained && !std::exchange(s.slots[i].watched, true))
      s.slots[i].parameter.register_post_accumulate_grad_hook(
          [watched = std::weak_ptr<State>(state_), i] {
            if (const auto state = watched.lock()) state->arrive(i);
          });
}

void GradientReducer::end_micro_batch() {
  State& s = *state_;
  const NoGrad guard;
  for (size_t i = s.slots.size(); i-- > 0;)
    if (s.slots[i].trained && !std::exchange(s.slots[i].arrived, true)) {
      const Tensor& parameter = s.slots[i].parameter;
      s.add(i, empty_like(parameter).zero_());
    }
  s.open = false;
}

void GradientReducer::finish() {
  State& s = *state_;
  ++s.statistics.steps;
  if (s.group.size() == 1) return;
  const NoGrad guard;
  const double begin = steady_seconds();
  s.deferred = false;
  s.post();
  s.deferred = s.sequence_size > 1;
  std::unique_lock lock(s.mutex);
  check(s.posted == s.buckets.size(), "GradientReducer", "finish() before the last micro-batch");
  s.wait_for_sums(lock);
  s.statistics.waited_seconds += steady_seconds() - begin;
  for (const State::Bucket& bucket : s.buckets)
    for (const size_t i : bucket.slots) {
      const State::Slot& slot = s.slots[i];
      if (!slot.trained) continue;
      const Tensor& parameter = slot.parameter;
      const ElementRange all{0, parameter.numel()},
          own = s.scatter ? s.range(slot, s.group.rank()) : all;
      if (own.begin == own.end && all.end > 0) continue;
      Tensor sums = s.values_of(slot, all);
      for (const ElementRange& other : {ElementRange{0, own.begin}, ElementRange{own.end, all.end}})
        sums.slice(0, other.begin, other.end).zero_();
      Tensor g = empty_like(parameter);
      g.copy_(sums.reshape(parameter.shape()));
      parameter.set_grad(g);
    }
}

std::vector<bool> GradientReducer::reached() const {
  std::vector<bool> all;
  for (const State::Slot& slot : state_->slots) all.push_back(slot.reached);
  return all;
}

bool GradientReducer::scatters() const { return state_->scatter && state_->group.size() > 1; }

std::vector<ElementRange> GradientReducer::ranges(int rank) const {
  std::vector<ElementRange> all;
  for (const State::Slot& slot : state_->slots) all.push_back(state_->range(slot, rank));
  return all;
}

void GradientReducer::share_parameters() {
  State& s = *state_;
  if (s.group.size() == 1) return;
  const NoGrad guard;
  const double begin = steady_seconds();
  const int64_t before = s.group.bytes_reduced();
  for (const State::Bucket& bucket : s.buckets) {
    const auto each =
        [&](const std::function<void(const Tensor&, const Tensor&, ElementRange)>& f) {
          for (const size_t i : bucket.slots) {
            const State::Slot& slot = s.slots[i];
            const Tensor& parameter = slot.parameter;
            const ElementRange all{0, parameter.numel()};
            f(parameter, s.values_of(slot, all).reshape(parameter.shape()),
              s.range(slot, s.group.rank()));
          }
        };
    each([](const Tensor& parameter, const Tensor& values, ElementRange own) {
      if (own.begin < own.end) values.copy_(parameter.detach());
    });
    if (s.nccl) {
      s.nccl->all_gather_chunks(bucket.values, bucket.ends);
      s.finish_on_device();
    } else {
      std::vector<int64_t> in_bytes;
      for (const int64_t end : bucket.ends)
        in_bytes.push_back(end * item_size(bucket.values.dtype()));
      s.group.all_gather_chunks(bucket.values.raw_data(), in_bytes);
    }
    each([](const Tensor& parameter, const Tensor& values, ElementRange own) {
      if (own.end - own.begin < parameter.numel()) parameter.copy_(values);
    });
  }
  const std::lock_guard lock(s.mutex);
  s.statistics.waited_seconds += steady_seconds() - begin;
  if (s.nccl) return;
  s.statistics.seconds += steady_seconds() - begin;
  s.statistics.bytes += s.group.bytes_reduced() - before;
}

Communication GradientReducer::communication() const {
  const std::lock_guard lock(state_->mutex);
  return state_->statistics;
}

}  // namespace stretto::nn
