// cuBLASLt: products with an epilogue (cuda/matmul.cu explains how row-major operands are passed).
//
// The algorithm is cuBLASLt's first choice for a shape, queried once, so that results
// for a shape are bit-identical each time on one kind of GPU. Tested by the table of
// ops (linear, feed_forward).
#include "cuda/linear.h"

#include <cublasLt.h>

#include <array>
#include <map>
#include <optional>
#include <tuple>

#include "core/gpu_runtime.h"
#include "cuda/runtime/blas.cuh"

namespace stretto::cuda {
namespace {

constexpr uintptr_t alignment = 16;  // bytes, of all pointers passed to cuBLASLt

struct Description {
  cublasLtMatmulDesc_t handle = nullptr;
  explicit Description(cublasComputeType_t compute) {
    STRETTO_CUBLAS(cublasLtMatmulDescCreate(&handle, compute, CUDA_R_32F));
  }
  ~Description() { cublasLtMatmulDescDestroy(handle); }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;
  template <class T>
  void set(cublasLtMatmulDescAttributes_t what, const T& value) const {
    STRETTO_CUBLAS(cublasLtMatmulDescSetAttribute(handle, what, &value, sizeof value));
  }
};

// Column-major [rows, columns] without gaps.
struct Layout {
  cublasLtMatrixLayout_t handle = nullptr;
  Layout(cudaDataType type, int64_t rows, int64_t columns) {
    STRETTO_CUBLAS(
        cublasLtMatrixLayoutCreate(&handle, type, uint64_t(rows), uint64_t(columns), rows));
  }
  ~Layout() { cublasLtMatrixLayoutDestroy(handle); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
};

struct Preference {
  cublasLtMatmulPreference_t handle = nullptr;
  Preference() {
    STRETTO_CUBLAS(cublasLtMatmulPreferenceCreate(&handle));
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(Blas::workspace_bytes));
    // No partial sums in bf16.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    for (const auto which :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      set(which, uint32_t(alignment));
  }
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t what, const T& value) const {
    STRETTO_CUBLAS(cublasLtMatmulPreferenceSetAttribute(handle, what, &value, sizeof value));
  }
  ~Preference() { cublasLtMatmulPreferenceDestroy(handle); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
};

// out [N, M] = x · w with an epilogue. In memory x is [N, K] and w [K, M], or [K, N] and [M, K] if
// they are transposed.
struct Call {
  Tensor x, w, out;
  bool x_transposed, w_transposed;
  cublasLtEpilogue_t epilogue;
  Tensor bias, aux;  // undefined: none
};

// The key by which an algorithm is chosen.
struct Product {
  int64_t n, m, k;
  DType dtype;
  cublasLtEpilogue_t epilogue;
  bool x_transposed, w_transposed;
  bool operator<(const Product& o) const {
    return std::tie(n, m, k, dtype, epilogue, x_transposed, w_transposed) <
           std::tie(o.n, o.m, o.k, o.dtype, o.epilogue, o.x_transposed, o.w_transposed);
  }
};

// The product in cuBLASLt's terms.
struct Plan {
  Plan(const Product& p, const void* bias, const void* aux)
      : type(p.dtype == bf16 ? CUDA_R_16BF : CUDA_R_32F),
        w(type, p.w_transposed ? p.k : p.m, p.w_transposed ? p.m : p.k),
        x(type, p.x_transposed ? p.n : p.k, p.x_transposed ? p.k : p.n),
        out(type, p.m, p.n) {
    if (p.w_transposed) d.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    if (p.x_transposed) d.set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_T);
    d.set(CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue);
    if (bias) d.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    if (aux) {
      d.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
      d.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.m);
    }
  }
  cudaDataType type;
  Description d{CUBLAS_COMPUTE_32F};
  Layout w, x, out;
};

cublasLtHandle_t lt(const Blas& blas) {  // as documented
  return reinterpret_cast<cublasLtHandle_t>(cublasHandle_t(blas));
}

// Null: cuBLASLt does not support the product.
const cublasLtMatmulAlgo_t* algorithm(const Blas& blas, int device, const Product& p) {
  using Chosen = std::map<Product, std::optional<cublasLtMatmulAlgo_t>>;
  static auto* of_devices = new std::array<Chosen, max_gpus>;  // never destroyed, like the streams
  Chosen& chosen = (*of_devices)[size_t(device)];              // guarded by the lock of `blas`
  auto at = chosen.find(p);
  if (at == chosen.end()) {
    const Preference preference;
    // The choice depends on the alignment of the bias and of aux: ask for the least.
    const char* const any = static_cast<const char*>(blas.workspace()) + alignment;
    const bool aux = p.epilogue & 128;
    const Plan plan(p, any, aux ? any : nullptr);
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        lt(blas), plan.d.handle, plan.w.handle, plan.x.handle, plan.out.handle, plan.out.handle,
        preference.handle, 1, &best, &found);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) STRETTO_CUBLAS(status);
    at = chosen.emplace(p, std::nullopt).first;
    if (found == 1 && best.state == CUBLAS_STATUS_SUCCESS) at->second = best.algo;
  }
  return at->second ? &*at->second : nullptr;
}

void run(const char* op, const Call& c) {
  const auto aligned = [](const Tensor& t) {
    return t.defined() && reinterpret_cast<uintptr_t>(t.raw_data()) % alignment ? t.clone() : t;
  };
  const Tensor x = aligned(c.x), w = aligned(c.w), bias = aligned(c.bias);
  const int device = x.device().index;
  const Product p{c.out.size(0), c.out.size(1), x.size(c.x_transposed ? 0 : 1),
                  x.dtype(),     c.epilogue,    c.x_transposed,
                  c.w_transposed};
  const Blas blas(device);
  const auto data = [](const Tensor& t) { return t.defined() ? t.raw_data() : nullptr; };
  const Plan plan(p, data(bias), data(c.aux));
  const cublasLtMatmulAlgo_t* const chosen = algorithm(blas, device, p);
  check(chosen, op, "cuBLASLt does not support the product of ", x, " and ", w);
  const float one = 1, zero = 0;
  STRETTO_CUBLAS(cublasLtMatmul(lt(blas), plan.d.handle, &one, w.raw_data(), plan.w.handle,
                                x.raw_data(), plan.x.handle, &zero, c.out.raw_data(),
                                plan.out.handle, c.out.raw_data(), plan.out.handle, chosen,
                                blas.workspace(), size_t(Blas::workspace_bytes), stream(device)));
  queued(op, device);
}

bool has(int device, const Product& p) { return algorithm(Blas(device), device, p) != nullptr; }

}  // namespace

bool serves_gelu(int64_t n, int64_t in, int64_t hidden, int64_t out, DType dtype, int device) {
  return dtype == bf16 && hidden % 8 == 0 &&
         has(device, {n, hidden, in, dtype, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, false, true}) &&
         has(device, {n, hidden, out, dtype, CUBLASLT_EPILOGUE_DGELU_BGRAD, false, false});
}

bool serves_weight_gradient(int64_t n, int64_t in, int64_t out, DType dtype, int device) {
  return dtype == bf16 && has(device, {out, in, n, dtype, CUBLASLT_EPILOGUE_BGRADB, true, false});
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& before) {
  Tensor out = empty_like(x, {x.size(0), weight.size(0)});
  run("linear",
      {x, weight, out, false, true,
       before.defined() ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_BIAS, bias, before});
  return out;
}

Tensor gelu_gradient(const Tensor& g, const Tensor& weight, const Tensor& before,
                     const Tensor& bias) {
  Tensor out = empty_like(before);
  run("gelu_gradient", {g, weight, out, false, false, CUBLASLT_EPILOGUE_DGELU_BGRAD, bias, before});
  return out;
}

Tensor weight_gradient(const Tensor& g, const Tensor& x, const Tensor& bias) {
  Tensor out = empty_like(x, {g.size(1), x.size(1)});
  run("weight_gradient", {g, x, out, true, false, CUBLASLT_EPILOGUE_BGRADB, bias, {}});
  return out;
}

}  // namespace stretto::cuda
