// What the stand-in for NCCL (tests/nccl) refuses.
#include <dlfcn.h>

#include "cuda/runtime/nccl_interface.h"
#include "faults.h"

namespace {

namespace nccl = stretto::cuda::nccl;
constexpr int invalid_argument = 4, invalid_usage = 5;

template <class F>
F nccl_function(const char* name) {
  static void* const library = dlopen("libnccl.so.2", RTLD_NOW);
  expect(library != nullptr, "the library");
  return reinterpret_cast<F>(dlsym(library, name));
}
struct Alone {  // the only rank of a communicator
  nccl::Comm comm = nullptr;
  cudaStream_t stream = nullptr;
  nccl::Send send = nccl_function<nccl::Send>("ncclSend");
  nccl::GroupStart start = nccl_function<nccl::GroupStart>("ncclGroupStart");
  nccl::GroupEnd end = nccl_function<nccl::GroupEnd>("ncclGroupEnd");
  explicit Alone(int size = 1, int rank = 0) {
    nccl::UniqueId id;
    nccl_function<nccl::GetUniqueId>("ncclGetUniqueId")(&id);
    nccl::Config config;
    result = nccl_function<nccl::CommInitRankConfig>("ncclCommInitRankConfig")(&comm, size, id,
                                                                               rank, &config);
    if (result == nccl::in_progress)
      nccl_function<nccl::CommGetAsyncError>("ncclCommGetAsyncError")(comm, &result);
    cudaStreamCreate(&stream);
  }
  ~Alone() {
    if (comm) nccl_function<nccl::CommAbort>("ncclCommAbort")(comm);
  }
  int result;
};
FINE("a communicator of one rank") { expect(Alone().result == nccl::success, "the result"); }
FINE("ranks that NCCL refuses") {
  expect(Alone(1, 1).result == invalid_argument, "rank 1 of 1");
  expect(Alone(0, 0).result == invalid_argument, "no ranks");
}
FINE("messages that NCCL refuses") {
  Device<char> x(64);
  Alone one;
  constexpr int f32 = 7;
  expect(one.send(x, 4, f32, 0, one.comm, one.stream) == invalid_argument, "another type");
  expect(one.send(x, 4, nccl::int8, 1, one.comm, one.stream) == invalid_argument, "no such rank");
  expect(one.send(x, 4, nccl::int8, 0, one.comm, one.stream) == invalid_argument, "its own rank");
  expect(one.send(nullptr, 4, nccl::int8, 0, one.comm, one.stream) == invalid_argument, "no data");
  expect(one.end() == invalid_usage, "the end of a group without its beginning");
  expect(one.start() == nccl::success && one.end() == nccl::success, "an empty group");
}

}  // namespace
