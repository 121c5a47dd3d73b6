// cuBLASLt: products with an epilogue (cuda/matmul.cu says how row-major operands are given).
//
// The algorithm is its first choice for a shape, asked for once, so that a shape has the same bits
// each time on one kind of GPU. Tested by the table of ops (linear, feed_forward).
#include "cuda/linear.h"

#include <cublasLt.h>

#include <array>
#include <map>

#include "cuda/blas.cuh"

namespace stretto::cuda {
namespace {

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
  explicit Preference(uint64_t workspace) {
    STRETTO_CUBLAS(cublasLtMatmulPreferenceCreate(&handle));
    STRETTO_CUBLAS(cublasLtMatmulPreferenceSetAttribute(
        handle, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
  }
  ~Preference() { cublasLtMatmulPreferenceDestroy(handle); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
};

// out [N, M] = x [N, K] · w with an epilogue; w is [M, K] in memory where `transposed`, else [K,
// M].
struct Call {
  Tensor x, w, out;
  bool transposed;
  cublasLtEpilogue_t epilogue;
  Tensor bias, aux;  // undefined: none
};

using Product = std::array<int64_t, 6>;  // N, M, K, dtype, epilogue, whether w is transposed

void run(const char* op, const Call& c) {
  const int device = c.x.device().index;
  const int64_t n = c.out.size(0), m = c.out.size(1), k = c.x.size(1);
  const cudaDataType type = c.x.dtype() == bf16 ? CUDA_R_16BF : CUDA_R_32F;
  const Blas blas(device);
  const auto handle = reinterpret_cast<cublasLtHandle_t>(cublasHandle_t(blas));  // as documented

  const Description d(CUBLAS_COMPUTE_32F);
  const cublasOperation_t turned = CUBLAS_OP_T;
  if (c.transposed) d.set(CUBLASLT_MATMUL_DESC_TRANSA, turned);
  d.set(CUBLASLT_MATMUL_DESC_EPILOGUE, c.epilogue);
  if (c.bias.defined()) d.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, c.bias.raw_data());
  if (c.aux.defined()) {
    d.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, c.aux.raw_data());
    d.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, m);
  }
  const Layout w(type, c.transposed ? k : m, c.transposed ? m : k), x(type, k, n), out(type, m, n);

  static std::array<std::map<Product, cublasLtMatmulAlgo_t>, Blas::most_devices> of_devices;
  auto& chosen = of_devices[size_t(device)];  // under the lock of `blas`
  const Product key{n, m, k, int64_t(c.x.dtype()), int64_t(c.epilogue), c.transposed};
  auto at = chosen.find(key);
  if (at == chosen.end()) {
    const Preference preference{uint64_t(Blas::workspace_bytes)};
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    STRETTO_CUBLAS(cublasLtMatmulAlgoGetHeuristic(handle, d.handle, w.handle, x.handle, out.handle,
                                                  out.handle, preference.handle, 1, &best, &found));
    check(found == 1, op, "cuBLASLt has no product of ", c.x, " and ", c.w);
    at = chosen.emplace(key, best.algo).first;
  }
  const float one = 1, zero = 0;
  STRETTO_CUBLAS(cublasLtMatmul(handle, d.handle, &one, c.w.raw_data(), w.handle, c.x.raw_data(),
                                x.handle, &zero, c.out.raw_data(), out.handle, c.out.raw_data(),
                                out.handle, &at->second, blas.workspace(),
                                size_t(Blas::workspace_bytes), stream(device)));
  queued(op, device);
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& before) {
  Tensor out = empty_like(x, {x.size(0), weight.size(0)});
  run("linear",
      {x, weight, out, true,
       before.defined() ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_BIAS, bias, before});
  return out;
}

Tensor gelu_gradient(const Tensor& g, const Tensor& weight, const Tensor& before,
                     const Tensor& bias) {
  Tensor out = empty_like(before);
  run("gelu_gradient", {g, weight, out, false, CUBLASLT_EPILOGUE_DGELU_BGRAD, bias, before});
  return out;
}

}  // namespace stretto::cuda
