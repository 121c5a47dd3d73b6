// The types and functions of NCCL 2 that Stretto uses, as declared in nccl.h (tests/nccl compares).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace stretto::cuda::nccl {

using Comm = struct ncclComm*;
struct UniqueId {
  char internal[128];
};
constexpr int success = 0, in_progress = 7;
/// ncclConfig_t of NCCL 2.14; later versions append fields, which take their defaults.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef, version = 21400;
  int blocking = 0;  // calls that wait for other processes return in_progress
};
constexpr int int8 = 0;  // ncclDataType_t

using GetVersion = int (*)(int*);
using GetUniqueId = int (*)(UniqueId*);
using CommInitRankConfig = int (*)(Comm*, int size, UniqueId, int rank, Config*);
using CommAbort = int (*)(Comm);
using CommGetAsyncError = int (*)(Comm, int*);
using GetErrorString = const char* (*)(int);
using GetLastError = const char* (*)(Comm);
using Send = int (*)(const void*, size_t, int type, int peer, Comm, cudaStream_t);
using Recv = int (*)(void*, size_t, int type, int peer, Comm, cudaStream_t);
using GroupStart = int (*)();
using GroupEnd = int (*)();

}  // namespace stretto::cuda::nccl
