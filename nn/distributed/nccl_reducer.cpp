#include "nn/distributed/nccl_reducer.h"

#include <unistd.h>

#include <chrono>
#include <iostream>

#include "core/error.h"
#include "core/gpu_channel.h"
#include "nn/distributed/recursive_halving.h"
#include "ops/create.h"

namespace stretto::nn {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Whether no process has a complaint; else the first process tells one of them.
bool agreed(ProcessGroup& group, const std::string& complaint) {
  const std::vector<std::string> all = group.all_gather(complaint);
  for (size_t i = 0; i < all.size(); ++i)
    if (!all[i].empty()) {
      if (group.is_root())
        std::cerr << str("gradients go through the host: process ", int64_t(i), ": ", all[i], '\n')
                  << std::flush;
      return false;
    }
  return true;
}

template <class F>
std::string complaint_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

std::unique_ptr<NcclReducer> NcclReducer::open(ProcessGroup& group, Device device) {
  if (!agreed(group, cuda::channel_missing())) return nullptr;
  std::string id;
  if (!agreed(group, complaint_of([&] {
                if (group.is_root()) id = cuda::channel_id();
              })))
    return nullptr;
  id = group.all_gather(id)[0];
  std::unique_ptr<cuda::Channel> channel;
  if (!agreed(group, complaint_of([&] {
                channel = cuda::open_channel(id, group.rank(), group.size(), device.index);
              })))
    return nullptr;
  return std::unique_ptr<NcclReducer>(new NcclReducer(group, std::move(channel)));
}

NcclReducer::NcclReducer(ProcessGroup& group, std::unique_ptr<cuda::Channel> channel)
    : group_(group), channel_(std::move(channel)) {}
NcclReducer::~NcclReducer() = default;

void NcclReducer::begin(const Tensor& numbers) {
  const DType dtype = numbers.dtype();
  check((dtype == f32 || dtype == f64) && numbers.is_contiguous() && numbers.device().is_cuda(),
        "NcclReducer", "sums f32 or f64 that are contiguous on a GPU, not ", numbers);
  if (begin_ == 0) begin_ = now();
  channel_->follow();
}

void NcclReducer::trade(int peer, const void* out, int64_t n_out, void* in, int64_t n_in) {
  channel_->send_recv(peer, out, size_t(n_out), in, size_t(n_in));
  bytes_ += n_out;
}

void NcclReducer::reduce_scatter(const Tensor& numbers, const std::vector<int64_t>& ends) {
  const DType dtype = numbers.dtype();
  const int64_t item = item_size(dtype), most = numbers.numel() * item;
  if (!theirs_.defined() || theirs_.numel() < most) {
    finish();
    theirs_ = empty({most}, {.dtype = u8, .device = numbers.device()});
  }
  begin(numbers);
  char* const all = static_cast<char*>(numbers.raw_data());
  void* const theirs = theirs_.raw_data();
  recursive_halving(group_.rank(), group_.size(), ends,
                    [&](int peer, int64_t out, int64_t n_out, int64_t first, int64_t n) {
                      trade(peer, all + out * item, n_out * item, theirs, n * item);
                      channel_->add(dtype, all + first * item, theirs, n);
                    });
}

void NcclReducer::all_gather_chunks(const Tensor& numbers, const std::vector<int64_t>& ends) {
  const int64_t item = item_size(numbers.dtype());
  begin(numbers);
  char* const all = static_cast<char*>(numbers.raw_data());
  recursive_doubling(group_.rank(), group_.size(), ends,
                     [&](int peer, int64_t out, int64_t n_out, int64_t first, int64_t n) {
                       trade(peer, all + out * item, n_out * item, all + first * item, n * item);
                     });
}

void NcclReducer::finish() {
  if (begin_ == 0) return;
  group_.barrier();  // all have queued what they have to, or the silent one is named
  const double asked = now();
  while (!channel_->done()) {
    check(now() - asked < process_patience(), "processes", "NCCL has not summed gradients for ",
          process_patience(), " seconds, but all processes answer");
    ::usleep(50);
  }
  channel_->lead();
  seconds_ += now() - begin_;
  begin_ = 0;
}

}  // namespace stretto::nn
