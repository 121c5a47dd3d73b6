// cuBLAS and cuBLASLt: their products against plain loops, and operands out of bounds.
#include <cublasLt.h>
#include <cublas_v2.h>

#include <cmath>

#include "faults.h"

namespace {

constexpr int m = 5, n = 4, k = 3;  // d [m, n] = a [m, k] b [k, n], column-major
std::vector<float> numbers(int count, int from) {
  std::vector<float> v;
  for (int i = 0; i < count; ++i) v.push_back(float((i * 7 + from) % 11 - 5) / 4);
  return v;
}
std::vector<float> product(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> d(m * n);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j)
      for (int l = 0; l < k; ++l) d[i + j * m] += a[i + l * m] * b[l + j * k];
  return d;
}

struct Handle {
  cublasHandle_t handle;
  Device<char> workspace{1 << 20};
  Handle() {
    cublasCreate(&handle);
    cublasSetMathMode(handle, cublasMath_t(CUBLAS_DEFAULT_MATH |
                                           CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION));
    cublasSetWorkspace(handle, workspace, 1 << 20);
  }
  ~Handle() { cublasDestroy(handle); }
  /// Two products, `stride` elements apart in the result.
  cublasStatus_t multiply(const float* x, const float* y, float* d, int64_t batch = 1,
                          int64_t stride = m * n,
                          cublasComputeType_t compute = CUBLAS_COMPUTE_32F) {
    const float one = 1, zero = 0;
    return cublasGemmStridedBatchedEx_64(
        handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, x, CUDA_R_32F, m, 0, y, CUDA_R_32F, k, 0,
        &zero, d, CUDA_R_32F, m, stride, batch, compute, CUBLAS_GEMM_DEFAULT);
  }
};
void gemm(int missing) {
  const auto a = numbers(m * k, 1), b = numbers(k * n - missing, 2);
  Device<float> x(a), y(b), d(m * n);
  Handle().multiply(x, y, d);
  expect(d.values() == product(a, numbers(k * n, 2)), "the product");
}
FINE("a product") { gemm(0); }
FAULT("a product that reads over the end", "out of bounds: cublasGemm reads") { gemm(1); }

/// A product with changed settings.
template <class F>
void product_after(F change, int64_t batch = 1, int64_t stride = m * n,
                   cublasComputeType_t compute = CUBLAS_COMPUTE_32F) {
  Device<float> x(numbers(m * k, 1)), y(numbers(k * n, 2)), d(2 * m * n);
  Handle h;
  change(h.handle);
  h.multiply(x, y, d, batch, stride, compute);
}
constexpr auto nothing = [](cublasHandle_t) {};
FINE("two products") { product_after(nothing, 2); }
FAULT("a workspace that is set before the stream", "cublas: a product without a workspace") {
  product_after([](cublasHandle_t h) { cublasSetStream(h, nullptr); });
}
FAULT("TF32 by the mode", "cublas: f32 products in TF32") {
  product_after([](cublasHandle_t h) { cublasSetMathMode(h, CUBLAS_TF32_TENSOR_OP_MATH); });
}
FAULT("TF32 by the compute type", "cublas: a compute type of less precision") {
  product_after(nothing, 1, m * n, CUBLAS_COMPUTE_32F_FAST_TF32);
}
FAULT("results of a batch that overlap", "cublas: results of a batch overlap") {
  product_after(nothing, 2, m * n - 1);
}
FAULT("a batch of 65536", "cublas: a batch of 65536") { product_after(nothing, 65536, 0); }
FAULT("bf16 products with reduced sums", "cublas: bf16 products with partial sums") {
  Handle h;
  cublasSetMathMode(h.handle, CUBLAS_DEFAULT_MATH);
  Device<unsigned short> x(std::vector<unsigned short>(m * n, 0));
  const float one = 1, zero = 0;
  cublasGemmEx(h.handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, x, CUDA_R_16BF, 2, x, CUDA_R_16BF,
               2, &zero, x + 8, CUDA_R_16BF, 2, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}
FINE("workspaces that cuBLAS refuses") {
  Handle h;
  char* const p = h.workspace.p;
  expect(cublasSetWorkspace(h.handle, p + 16, 1024) == CUBLAS_STATUS_INVALID_VALUE, "unaligned");
  expect(cublasSetWorkspace(h.handle, p, 2 << 20) == CUBLAS_STATUS_INVALID_VALUE, "too large");
}
FINE("a handle that is created in a capture breaks it") {
  cudaStream_t s;
  cudaStreamCreate(&s);
  cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);
  cublasHandle_t handle;
  expect(cublasCreate(&handle) != CUBLAS_STATUS_SUCCESS, "the handle");
  cudaGraph_t graph;
  expect(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureInvalidated, "the capture");
}

struct Lt {
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t a, b, d;
  explicit Lt(cublasLtEpilogue_t epilogue, void* bias, void* aux, int64_t leading = 8) {
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    auto set = [&](cublasLtMatmulDescAttributes_t what, const auto& value) {
      const cublasStatus_t s = cublasLtMatmulDescSetAttribute(desc, what, &value, sizeof value);
      expect(s == CUBLAS_STATUS_SUCCESS, "an attribute");
    };
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, leading);
    cublasLtMatrixLayoutCreate(&a, CUDA_R_32F, m, k, m);
    cublasLtMatrixLayoutCreate(&b, CUDA_R_32F, k, n, k);
    cublasLtMatrixLayoutCreate(&d, CUDA_R_32F, m, n, m);
  }
  cublasStatus_t run(const float* x, const float* y, float* to,
                     const cublasLtMatmulAlgo_t* algo = nullptr, void* workspace = nullptr,
                     size_t bytes = 0) {
    const float one = 1, zero = 0;
    return cublasLtMatmul(handle, desc, &one, x, a, y, b, &zero, to, d, to, d, algo, workspace,
                          bytes, nullptr);
  }
  void multiply(const float* x, const float* y, float* to) {
    expect(run(x, y, to) == CUBLAS_STATUS_SUCCESS, "the call");
  }
  cublasStatus_t choose(cublasLtMatmulHeuristicResult_t& best) {
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulPreferenceCreate(&preference);
    const uint64_t bytes = 1 << 20;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &bytes, sizeof bytes);
    int found = 0;
    return cublasLtMatmulAlgoGetHeuristic(handle, desc, a, b, d, d, preference, 1, &best, &found);
  }
};
double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}
bool near(double a, double b) { return std::abs(a - b) <= 2e-4 * (1 + std::abs(b)); }

FINE("a product with bias and GELU, whose argument is kept") {
  const auto a = numbers(m * k, 1), b = numbers(k * n, 2), c = numbers(m, 3);
  Device<float> x(a), y(b), bias(c), aux(std::vector<float>(8 * n)), d(m * n);
  Lt(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, bias.p, aux.p).multiply(x, y, d);
  const auto p = product(a, b), before = aux.values(), after = d.values();
  for (int i = 0; i < m * n; ++i) {
    expect(near(before[i / m * 8 + i % m], p[i] + c[i % m]), "the argument");
    expect(near(after[i], gelu(p[i] + c[i % m])), "GELU");
  }
}
FINE("its gradient, and that of the bias") {
  const auto a = numbers(m * k, 1), b = numbers(k * n, 2), h = numbers(8 * n, 5);
  Device<float> x(a), y(b), bias(m), aux(h), d(m * n);
  Lt(CUBLASLT_EPILOGUE_DGELU_BGRAD, bias.p, aux.p).multiply(x, y, d);
  const auto p = product(a, b), got = d.values(), sums = bias.values();
  std::vector<double> expected(m);
  for (int i = 0; i < m * n; ++i) {
    const double at = h[i / m * 8 + i % m];
    const double slope = (gelu(at + 1e-5) - gelu(at - 1e-5)) / 2e-5;
    expect(near(got[i], p[i] * slope), "the gradient");
    expected[i % m] += p[i] * slope;
  }
  for (int i = 0; i < m; ++i) expect(near(sums[i], expected[i]), "the bias's");
}
FAULT("a bias that is not there", "out of bounds: cublasLtMatmul reads") {
  Device<float> x(numbers(m * k, 1)), y(numbers(k * n, 2)), bias(numbers(m - 1, 3)), d(m * n);
  Lt(CUBLASLT_EPILOGUE_BIAS, bias.p, nullptr).multiply(x, y, d);
}

FINE("descriptions that cuBLASLt refuses") {
  Device<float> x(numbers(m * k, 1)), y(numbers(k * n, 2)), bias(numbers(m, 3)), aux(64), d(m * n);
  cublasLtMatmulHeuristicResult_t best;
  const auto refused = [&](cublasLtEpilogue_t e, void* of_bias, void* of_aux, int64_t leading) {
    Lt lt(e, of_bias, of_aux, leading);
    return lt.choose(best) == CUBLAS_STATUS_INVALID_VALUE &&
           lt.run(x, y, d) == CUBLAS_STATUS_INVALID_VALUE;
  };
  expect(!refused(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, bias.p, aux.p, 8), "none");
  expect(refused(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, bias.p, aux.p, 12), "no multiple of 8");
  expect(refused(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, bias.p, aux.p, 0), "overlapping columns");
  expect(refused(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, bias.p, nullptr, 8), "no buffer");
  expect(refused(CUBLASLT_EPILOGUE_BIAS, nullptr, nullptr, 8), "no bias");
  Lt lt(CUBLASLT_EPILOGUE_BIAS, bias + 1, nullptr);
  expect(lt.run(x, y, d) == CUBLAS_STATUS_EXECUTION_FAILED, "an unaligned bias");
}
FINE("algorithms are for a product and a workspace") {
  Device<float> x(numbers(m * k, 1)), y(numbers(k * n, 2)), bias(numbers(m, 3)), d(m * n);
  Device<char> workspace(2 << 20);
  Lt plain(CUBLASLT_EPILOGUE_DEFAULT, nullptr, nullptr),
      biased(CUBLASLT_EPILOGUE_BIAS, bias, nullptr);
  cublasLtMatmulHeuristicResult_t best;
  expect(plain.choose(best) == CUBLAS_STATUS_SUCCESS, "an algorithm");
  const auto run = [&](Lt& lt, char* at, size_t bytes) {
    return lt.run(x, y, d, &best.algo, at, bytes) == CUBLAS_STATUS_SUCCESS;
  };
  expect(run(plain, workspace.p, 1 << 20), "the product");
  expect(!run(biased, workspace.p, 1 << 20), "another epilogue");
  expect(!run(plain, workspace.p, 1 << 10), "a workspace that is too small");
  expect(!run(plain, workspace.p + 64, 1 << 20), "an unaligned workspace");
  expect(!run(plain, workspace.p, 4 << 20), "a workspace that is not there");
}

}  // namespace
