// A build without CUDA: every function of the headers below, and every function of the runtime that
// needs a GPU, raises an error that says so. Each header of kernels is included at the end.
#include "core/gpu_channel.h"
#include "core/gpu_runtime.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

namespace stretto::cuda {
namespace {

constexpr const char* reason =
#ifdef STRETTO_CUDA_OFF
    "this build of Stretto has no CUDA: it was configured with STRETTO_CUDA=OFF";
#else
    "this build of Stretto has no CUDA: no CUDA Toolkit was found when it was configured";
#endif

[[noreturn]] void none(const char* op) { fail(op, reason); }

}  // namespace

int device_count() { return 0; }
std::string description() { return reason; }

void* allocate(int64_t, int) { none("cuda"); }
void free(void*, int) { none("cuda"); }
void copy(void*, Device, const void*, Device, int64_t) { none("cuda"); }
void synchronize(int) { none("cuda"); }

Graph* begin_capture(int) { none("cuda"); }
void end_capture(Graph*) { none("cuda"); }
void replay(Graph*) { none("cuda"); }
bool capturing(int) { return false; }
bool capture_under_way(int) { return false; }
void before_replay(int, std::function<void()>) { none("cuda"); }  // NOLINT: the real one stores it
void destroy(Graph*) noexcept {}

std::string channel_missing() { return reason; }
std::string channel_id() { none("cuda"); }
std::unique_ptr<Channel> open_channel(const std::string&, int, int, int, int) { none("cuda"); }

}  // namespace stretto::cuda

#define STRETTO_KERNEL(...)       \
  __VA_ARGS__ { none(__func__); } \
  static_assert(true)
#include "cuda/activation.h"
#include "cuda/attention/attention.h"
#include "cuda/attention/attention_decode.h"
#include "cuda/attention/elu_features.h"
#include "cuda/attention/gated_linear_attention.h"
#include "cuda/attention/linear_attention.h"
#include "cuda/attention/random_features.h"
#include "cuda/attention/rotary.h"
#include "cuda/attention/skew.h"
#include "cuda/create.h"
#include "cuda/elementwise.h"
#include "cuda/elementwise_masks.h"
#include "cuda/fft/fft.h"
#include "cuda/fft/fft_conv.h"
#include "cuda/grouped_linear.h"
#include "cuda/indexing.h"
#include "cuda/linear.h"
#include "cuda/loss.h"
#include "cuda/matmul.h"
#include "cuda/norm.h"
#include "cuda/optim.h"
#include "cuda/orthogonal.h"
#include "cuda/random.h"
#include "cuda/reduce.h"
#include "cuda/runtime/composed.h"
#include "cuda/runtime/copy.h"
#include "cuda/runtime/reports.h"
#include "cuda/softmax.h"
#include "cuda/sort.h"
#include "cuda/spe/spe.h"
#include "cuda/spe/spe_conv.h"
#include "cuda/spe/spe_sine.h"
