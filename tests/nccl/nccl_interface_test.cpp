// Compares cuda/runtime/nccl_interface.h with nccl.h, if that is installed.
#if __has_include("cuda_runtime_api.h") && __has_include("nccl.h")
#include "cuda/runtime/nccl_interface.h"

#include <nccl.h>
#define STRETTO_HAS_NCCL_H
#endif

#include <cstddef>
#include <type_traits>

#include "tests/support/catch.h"

#ifdef STRETTO_HAS_NCCL_H
namespace {

namespace ours = stretto::cuda::nccl;

// True for types that are passed alike: numbers of one size, pointers, structs of one size.
template <class A, class B>
constexpr bool alike = std::is_same_v<A, B> || (std::is_pointer_v<A> && std::is_pointer_v<B>) ||
                       (std::is_pointer_v<A> == std::is_pointer_v<B> &&
                        std::is_class_v<A> == std::is_class_v<B> && sizeof(A) == sizeof(B));

template <class A, class B>
struct Same : std::false_type {};
template <class R, class... A, class S, class... B>
struct Same<R (*)(A...), S (*)(B...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(A) == sizeof...(B)) {
      return alike<R, S> && (alike<A, B> && ...);
    } else {
      return false;
    }
  }();
};

static_assert(Same<ours::GetVersion, decltype(&ncclGetVersion)>::value);
static_assert(Same<ours::GetUniqueId, decltype(&ncclGetUniqueId)>::value);
static_assert(Same<ours::CommInitRankConfig, decltype(&ncclCommInitRankConfig)>::value);
static_assert(Same<ours::CommAbort, decltype(&ncclCommAbort)>::value);
static_assert(Same<ours::CommGetAsyncError, decltype(&ncclCommGetAsyncError)>::value);
static_assert(Same<ours::GetErrorString, decltype(&ncclGetErrorString)>::value);
static_assert(Same<ours::GetLastError, decltype(&ncclGetLastError)>::value);
static_assert(Same<ours::Send, decltype(&ncclSend)>::value);
static_assert(Same<ours::Recv, decltype(&ncclRecv)>::value);
static_assert(Same<ours::GroupStart, decltype(&ncclGroupStart)>::value);
static_assert(Same<ours::GroupEnd, decltype(&ncclGroupEnd)>::value);
static_assert(!Same<ours::Send, decltype(&ncclAllReduce)>::value);

}  // namespace
#endif

TEST_CASE("cuda/runtime/nccl_interface.h agrees with nccl.h", "[cuda]") {
#ifdef STRETTO_HAS_NCCL_H
  CHECK(ours::success == int(ncclSuccess));
  CHECK(ours::in_progress == int(ncclInProgress));
  CHECK(ours::int8 == int(ncclInt8));
  CHECK(sizeof(ours::UniqueId) == sizeof(ncclUniqueId));
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  const ours::Config own;
  CHECK(own.magic == config.magic);
  CHECK(offsetof(ours::Config, magic) == offsetof(ncclConfig_t, magic));
  CHECK(offsetof(ours::Config, version) == offsetof(ncclConfig_t, version));
  CHECK(offsetof(ours::Config, blocking) == offsetof(ncclConfig_t, blocking));
#else
  STRETTO_SKIP("there is no nccl.h here");
#endif
}
