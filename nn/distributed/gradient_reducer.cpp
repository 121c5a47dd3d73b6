#include "nn/distributed/gradient_reducer.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "autograd/tape.h"
#include "core/error.h"
#include "nn/distributed/nccl_reducer.h"
#include "ops/view.h"

namespace stretto::nn {
namespace {

constexpr int64_t bucket_bytes = int64_t(4) << 20;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

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
    std::vector<Tensor> waiting;  // sums of 1, 2, 4 … parts that wait for their neighbours
    bool arrived = false;         // in this part
    bool trained = false;         // in this step: it required a gradient when that began
    bool reached = false;         // in this step
    bool watched = false;         // it has our hook
    size_t bucket = 0;
    int64_t offset = 0;
  };
  struct Bucket {
    Tensor numbers;  // of one dtype, where they are summed
    std::vector<size_t> slots;
    size_t filled = 0, trained = 0;  // of the slots; nothing is sent where none is trained
    std::vector<int64_t> ends;       // of the processes' pieces
  };

  State(ProcessGroup& g, int64_t all, int64_t n, bool s)
      : group(g), sequence_size(n), count(all * n / g.size()), scatter(s), waits(n > 1) {}

  ProcessGroup& group;
  const int64_t sequence_size, count;
  const bool scatter;
  bool waits;  // to send, for finish()
  std::vector<Slot> slots;
  std::vector<Bucket> buckets;
  std::unique_ptr<NcclReducer> on_device;  // sums there, or the sender below by the group
  bool open = false;                       // a part's backward runs
  int64_t micro_batch = -1;                // of this process

  // The thread that sums buckets, in their order, as many as are posted.
  std::thread sender;
  std::mutex mutex;
  std::condition_variable changed;
  size_t posted = 0, summed = 0;
  bool ends = false;
  std::exception_ptr failure;
  Communication told;

  void open_device();
  void cut_into_buckets();
  void cut_into_chunks(Bucket& bucket) const;
  ElementRange range(const Slot& slot, int rank) const;
  Tensor numbers_of(const Slot& slot, ElementRange s) const;
  void sum_there(const Bucket& bucket);
  void finish_there();
  template <class T>
  void sum(Bucket& bucket);
  void begin_step();
  void arrive(size_t i);
  void add(size_t i, Tensor g);
  void complete(Slot& slot, const Tensor& sum);
  void post();
  void send();
};

// Where all parameters are on one GPU, and NCCL serves it.
void GradientReducer::State::open_device() {
  const Device device = slots.empty() ? Device() : slots[0].parameter.device();
  if (!device.is_cuda()) return;
  for (const Slot& slot : slots)
    if (slot.parameter.device() != device) return;
  on_device = NcclReducer::open(group, device);
}

// Gradients arrive in about the reverse order of declaration.
void GradientReducer::State::cut_into_buckets() {
  int64_t room = 0, n = 0;
  DType dtype = f32;
  const Device device = on_device ? slots[0].parameter.device() : Device();
  const auto close = [&] {
    if (n > 0) {
      // What is not trained is sent with the rest of its bucket, and ignored.
      buckets.back().numbers = empty({n}, {.dtype = dtype, .device = device}).zero_();
      cut_into_chunks(buckets.back());
    }
    n = 0;
  };
  for (size_t i = slots.size(); i-- > 0;) {
    Slot& slot = slots[i];
    const DType wanted = compute_type(slot.parameter.dtype());
    const int64_t size = slot.parameter.numel();
    if (n == 0 || wanted != dtype || n + size > room) {
      close();
      dtype = wanted;
      room = std::max(size, bucket_bytes / item_size(dtype));
      buckets.emplace_back();
    }
    slot.bucket = buckets.size() - 1;
    slot.offset = n;
    buckets.back().slots.push_back(i);
    n += size;
  }
  close();
}

// At what is nearest to equal pieces: where parameters begin, and whole norm_stretches after that.
void GradientReducer::State::cut_into_chunks(Bucket& bucket) const {
  const int64_t n = bucket.numbers.numel(), size = group.size();
  std::vector<int64_t> cuts;
  for (const size_t i : bucket.slots)
    for (int64_t at = 0; at < slots[i].parameter.numel(); at += norm_block)
      cuts.push_back(slots[i].offset + at);
  cuts.push_back(n);
  for (int64_t sequence_chunk = 1; sequence_chunk < size; ++sequence_chunk) {
    const int64_t wanted = n * sequence_chunk / size;
    const auto above = std::lower_bound(cuts.begin(), cuts.end(), wanted);
    const auto below = above == cuts.begin() ? above : above - 1;
    bucket.ends.push_back(wanted - *below < *above - wanted ? *below : *above);
  }
  bucket.ends.push_back(n);
}

ElementRange GradientReducer::State::range(const Slot& slot, int rank) const {
  if (group.size() == 1) return {0, slot.parameter.numel()};
  const std::vector<int64_t>& cut = buckets[slot.bucket].ends;
  const size_t sequence_chunk = size_t(group.chunk_of(rank));
  const auto within = [&](int64_t at) {
    return std::clamp<int64_t>(at - slot.offset, 0, slot.parameter.numel());
  };
  return {within(sequence_chunk == 0 ? 0 : cut[sequence_chunk - 1]), within(cut[sequence_chunk])};
}

Tensor GradientReducer::State::numbers_of(const Slot& slot, ElementRange s) const {
  return buckets[slot.bucket].numbers.slice(0, slot.offset + s.begin, slot.offset + s.end);
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
  numbers_of(slot, {0, sum.numel()}).copy_(sum.reshape({sum.numel()}));
  if (++bucket.filled == bucket.trained) post();
}

// All buckets that are full, but none before the one in front of it.
void GradientReducer::State::post() {
  if (waits) return;
  const std::lock_guard lock(mutex);
  for (; posted < buckets.size() && buckets[posted].filled == buckets[posted].trained; ++posted)
    if (on_device && buckets[posted].trained > 0) sum_there(buckets[posted]);
  changed.notify_all();
}

void GradientReducer::State::sum_there(const Bucket& bucket) {
  on_device->reduce_scatter(bucket.numbers, bucket.ends);
  if (!scatter) on_device->all_gather_chunks(bucket.numbers, bucket.ends);
}

void GradientReducer::State::finish_there() {
  on_device->finish();
  told.seconds = on_device->seconds(), told.bytes = on_device->bytes();
}

template <class T>
void GradientReducer::State::sum(Bucket& bucket) {
  if (bucket.trained == 0) return;
  T* const numbers = bucket.numbers.data<T>();
  scatter ? group.reduce_scatter(numbers, bucket.ends) : group.sum(numbers, bucket.numbers.numel());
}

void GradientReducer::State::send() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return ends || (!failure && summed < posted); });
    if (ends) return;
    Bucket& bucket = buckets[summed];
    lock.unlock();
    const double begin = now();
    const int64_t before = group.bytes_reduced();
    std::exception_ptr thrown;
    try {
      bucket.numbers.dtype() == f64 ? sum<double>(bucket) : sum<float>(bucket);
    } catch (...) {
      thrown = std::current_exception();
    }
    lock.lock();
    told.seconds += now() - begin;
    told.bytes += group.bytes_reduced() - before;
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
        "parts", micro_batches, " of a batch cannot be shared out to ", group.size(), " processes",
        sequence_size > 1 ? str(", ", sequence_size, " to a sequence") : "",
        ": their number must be a power of two, and a multiple of that of processes",
        sequence_size > 1 ? str(" / ", sequence_size) : "");
  size_t levels = 1;
  for (int64_t n = state_->count; n > 1; n >>= 1) ++levels;
  for (Tensor& parameter : parameters)
    state_->slots.push_back({.parameter = std::move(parameter), .waiting = Tensors(levels)});
  if (group.size() > 1) {
    state_->open_device();
    state_->cut_into_buckets();
    if (!state_->on_device) state_->sender = std::thread([state = state_.get()] { state->send(); });
  }
}

GradientReducer::~GradientReducer() {
  if (!state_->sender.joinable()) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->ends = true;
    state_->changed.notify_all();
  }
  state_->sender.join();
}

int64_t GradientReducer::first() const {
  return state_->group.rank() / state_->sequence_size * state_->count;
}
int64_t GradientReducer::count() const { return state_->count; }

// Parameters may be frozen, and no longer be, between steps.
void GradientReducer::State::begin_step() {
  for (Slot& slot : slots) {
    std::fill(slot.waiting.begin(), slot.waiting.end(), Tensor());
    slot.trained = slot.parameter.requires_grad();
    slot.reached = false;
  }
  const std::lock_guard lock(mutex);
  posted = summed = 0;
  for (Bucket& bucket : buckets) {
    bucket.filled = 0;
    bucket.trained = size_t(std::count_if(bucket.slots.begin(), bucket.slots.end(),
                                          [&](size_t i) { return slots[i].trained; }));
  }
}

void GradientReducer::begin_micro_batch() {
  State& s = *state_;
  // A part that was not ended has failed, and its step with it.
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
  ++s.told.steps;
  if (s.group.size() == 1) return;
  const NoGrad guard;
  const double begin = now();
  s.waits = false;
  s.post();
  s.waits = s.sequence_size > 1;
  std::unique_lock lock(s.mutex);
  if (s.on_device) {
    s.finish_there();
  } else {
    s.changed.wait(lock, [&] { return s.failure || s.summed == s.buckets.size(); });
  }
  s.told.waited_seconds += now() - begin;
  if (s.failure) std::rethrow_exception(s.failure);
  for (const State::Bucket& bucket : s.buckets)
    for (const size_t i : bucket.slots) {
      const State::Slot& slot = s.slots[i];
      if (!slot.trained) continue;
      const Tensor& parameter = slot.parameter;
      const ElementRange all{0, parameter.numel()},
          own = s.scatter ? s.range(slot, s.group.rank()) : all;
      if (own.begin == own.end && all.end > 0) continue;
      Tensor sums = s.numbers_of(slot, all);
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
  const double begin = now();
  const int64_t before = s.group.bytes_reduced();
  for (const State::Bucket& bucket : s.buckets) {
    const auto each =
        [&](const std::function<void(const Tensor&, const Tensor&, ElementRange)>& f) {
          for (const size_t i : bucket.slots) {
            const State::Slot& slot = s.slots[i];
            const Tensor& parameter = slot.parameter;
            const ElementRange all{0, parameter.numel()};
            f(parameter, s.numbers_of(slot, all).reshape(parameter.shape()),
              s.range(slot, s.group.rank()));
          }
        };
    each([](const Tensor& parameter, const Tensor& values, ElementRange own) {
      if (own.begin < own.end) values.copy_(parameter.detach());
    });
    if (s.on_device) {
      s.on_device->all_gather_chunks(bucket.numbers, bucket.ends);
      s.finish_there();
    } else {
      std::vector<int64_t> in_bytes;
      for (const int64_t end : bucket.ends)
        in_bytes.push_back(end * item_size(bucket.numbers.dtype()));
      s.group.all_gather_chunks(bucket.numbers.raw_data(), in_bytes);
    }
    each([](const Tensor& parameter, const Tensor& values, ElementRange own) {
      if (own.end - own.begin < parameter.numel()) parameter.copy_(values);
    });
  }
  const std::lock_guard lock(s.mutex);
  s.told.waited_seconds += now() - begin;
  if (s.on_device) return;
  s.told.seconds += now() - begin;
  s.told.bytes += s.group.bytes_reduced() - before;
}

Communication GradientReducer::communication() const {
  const std::lock_guard lock(state_->mutex);
  return state_->told;
}

}  // namespace stretto::nn
