#include "nn/distributed/nccl_reducer.h"

#include <unistd.h>

#include <iostream>

#include "autograd/profile.h"
#include "core/error.h"
#include "core/gpu_channel.h"
#include "nn/distributed/recursive_halving.h"
#include "ops/create.h"

namespace stretto::nn {
namespace {

// True if no process reports an error; otherwise rank 0 prints the first error.
bool all_succeeded(ProcessGroup& group, const std::string& error) {
  const std::vector<std::string> all = group.all_gather(error);
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
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

std::unique_ptr<NcclReducer> NcclReducer::open(ProcessGroup& group, Device device) {
  if (!all_succeeded(group, cuda::channel_missing())) return nullptr;
  std::string id;
  if (!all_succeeded(group, error_of([&] {
                       if (group.is_root()) id = cuda::channel_id();
                     })))
    return nullptr;
  id = group.all_gather(id)[0];
  std::unique_ptr<cuda::Channel> channel;
  if (!all_succeeded(group, error_of([&] {
                       channel = cuda::open_channel(id, group.rank(), group.size(), device.index,
                                                    process_timeout());
                     })))
    return nullptr;
  return std::unique_ptr<NcclReducer>(new NcclReducer(group, std::move(channel)));
}

NcclReducer::NcclReducer(ProcessGroup& group, std::unique_ptr<cuda::Channel> channel)
    : group_(group), channel_(std::move(channel)) {}
NcclReducer::~NcclReducer() = default;

void NcclReducer::begin(const Tensor& values) {
  const DType dtype = values.dtype();
  check((dtype == f32 || dtype == f64) && values.is_contiguous() && values.device().is_cuda(),
        "NcclReducer", "got ", values, "; accepted: f32 or f64, contiguous on a GPU");
  if (begin_ == 0) begin_ = steady_seconds();
  channel_->follow();
}

void NcclReducer::send_recv(int peer, const void* out, int64_t n_out, void* in, int64_t n_in) {
  channel_->send_recv(peer, out, size_t(n_out), in, size_t(n_in));
  bytes_ += n_out;
}

void NcclReducer::reduce_scatter(const Tensor& values, const std::vector<int64_t>& ends) {
  const DType dtype = values.dtype();
  const int64_t item = item_size(dtype), most = values.numel() * item;
  if (!received_.defined() || received_.numel() < most) {
    finish();
    received_ = empty({most}, {.dtype = u8, .device = values.device()});
  }
  begin(values);
  char* const all = static_cast<char*>(values.raw_data());
  void* const received = received_.raw_data();
  recursive_halving(group_.rank(), group_.size(), ends,
                    [&](int peer, int64_t out, int64_t n_out, int64_t first, int64_t n) {
                      send_recv(peer, all + out * item, n_out * item, received, n * item);
                      channel_->add(dtype, all + first * item, received, n);
                    });
}

void NcclReducer::all_gather_chunks(const Tensor& values, const std::vector<int64_t>& ends) {
  const int64_t item = item_size(values.dtype());
  begin(values);
  char* const all = static_cast<char*>(values.raw_data());
  recursive_doubling(group_.rank(), group_.size(), ends,
                     [&](int peer, int64_t out, int64_t n_out, int64_t first, int64_t n) {
                       send_recv(peer, all + out * item, n_out * item, all + first * item,
                                 n * item);
                     });
}

void NcclReducer::finish() {
  if (begin_ == 0) return;
  // After the barrier all processes have queued their work; a process that does not respond ends
  // the run with an error that names it.
  group_.barrier();
  const double start = steady_seconds();
  while (!channel_->done()) {
    check(steady_seconds() - start < process_timeout(), "processes",
          "NCCL has not finished within ", process_timeout(),
          " seconds, although all processes respond");
    ::usleep(50);
  }
  channel_->lead();
  seconds_ += steady_seconds() - begin_;
  begin_ = 0;
}

}  // namespace stretto::nn
