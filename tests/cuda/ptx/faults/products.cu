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

void gemm(int missing) {
  const auto a = numbers(m * k, 1), b = numbers(k * n - missing, 2);
  Device<float> x(a), y(b), d(m * n);
  cublasHandle_t handle;
  cublasCreate(&handle);
  const float one = 1, zero = 0;
  cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, x, CUDA_R_32F, m, y, CUDA_R_32F, k,
               &zero, d, CUDA_R_32F, m, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  const auto expected = product(a, numbers(k * n, 2));
  expect(d.values() == expected, "the product");
  cublasDestroy(handle);
}
FINE("a product") { gemm(0); }
FAULT("a product that reads over the end", "out of bounds: cublasGemm reads") { gemm(1); }

struct Lt {
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t a, b, d;
  explicit Lt(cublasLtEpilogue_t epilogue, void* bias, void* aux) {
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const int64_t leading = m;
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
  void multiply(const float* x, const float* y, float* to) {
    const float one = 1, zero = 0;
    const cublasStatus_t s = cublasLtMatmul(handle, desc, &one, x, a, y, b, &zero, to, d, to, d,
                                            nullptr, nullptr, 0, nullptr);
    expect(s == CUBLAS_STATUS_SUCCESS, "the call");
  }
};
double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}
bool near(double a, double b) { return std::abs(a - b) <= 1e-6 * (1 + std::abs(b)); }

FINE("a product with bias and GELU, whose argument is kept") {
  const auto a = numbers(m * k, 1), b = numbers(k * n, 2), c = numbers(m, 3);
  Device<float> x(a), y(b), bias(c), aux(m * n), d(m * n);
  Lt(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, bias.p, aux.p).multiply(x, y, d);
  const auto p = product(a, b), before = aux.values(), after = d.values();
  for (int i = 0; i < m * n; ++i) {
    expect(near(before[i], p[i] + c[i % m]), "the argument");
    expect(near(after[i], gelu(p[i] + c[i % m])), "GELU");
  }
}
FINE("its gradient, and that of the bias") {
  const auto a = numbers(m * k, 1), b = numbers(k * n, 2), h = numbers(m * n, 5);
  Device<float> x(a), y(b), bias(m), aux(h), d(m * n);
  Lt(CUBLASLT_EPILOGUE_DGELU_BGRAD, bias.p, aux.p).multiply(x, y, d);
  const auto p = product(a, b), got = d.values(), sums = bias.values();
  std::vector<double> expected(m);
  for (int i = 0; i < m * n; ++i) {
    const double slope = (gelu(h[i] + 1e-5) - gelu(h[i] - 1e-5)) / 2e-5;
    expect(near(got[i], p[i] * slope), "the gradient");
    expected[i % m] += p[i] * slope;
  }
  for (int i = 0; i < m; ++i) expect(near(sums[i], expected[i]), "the bias's");
}
FAULT("a bias that is not there", "out of bounds: cublasLtMatmul reads") {
  Device<float> x(numbers(m * k, 1)), y(numbers(k * n, 2)), bias(numbers(m - 1, 3)), d(m * n);
  Lt(CUBLASLT_EPILOGUE_BIAS, bias.p, nullptr).multiply(x, y, d);
}

}  // namespace
