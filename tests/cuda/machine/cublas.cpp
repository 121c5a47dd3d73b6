// libcublas: products as plain loops, column-major, as its documentation has it.
#include <cublas_v2.h>

#include <algorithm>

#include "floats.h"
#include "runtime.h"

namespace {

using namespace machine;

struct Matrix {
  const void* at;
  s64 leading, stride;
  bool transposed;
};

double number(const u8* p, cudaDataType type) {
  switch (type) {
    case CUDA_R_64F: {
      double x;
      return std::memcpy(&x, p, 8), x;
    }
    case CUDA_R_16BF: {
      u16 x;
      return std::memcpy(&x, p, 2), double(from_bf16(x));
    }
    default: {
      float x;
      return std::memcpy(&x, p, 4), double(x);
    }
  }
}
void put(u8* p, cudaDataType type, double x) {
  const float f = float(x);
  const u16 h = to_bf16(f);
  if (type == CUDA_R_64F) std::memcpy(p, &x, 8);
  if (type == CUDA_R_32F) std::memcpy(p, &f, 4);
  if (type == CUDA_R_16BF) std::memcpy(p, &h, 2);
}
s64 bytes_of(cudaDataType t) { return t == CUDA_R_64F ? 8 : t == CUDA_R_32F ? 4 : 2; }

/// op(x) as rows × columns numbers of type C, row-major.
template <class C>
std::vector<C> gathered(const Matrix& x, cudaDataType type, s64 batch, s64 rows, s64 columns) {
  const s64 item = bytes_of(type), height = x.transposed ? columns : rows,
            width = x.transposed ? rows : columns;
  const u8* first = static_cast<const u8*>(x.at) + batch * x.stride * item;
  for (s64 c = 0; c < width; ++c)
    check_device_read("cublasGemm", first + c * x.leading * item, u64(height * item));
  const u8* p = DeviceMemory::get().bytes(u64(first));
  std::vector<C> all(size_t(rows * columns));
  for (s64 r = 0; r < rows; ++r)
    for (s64 c = 0; c < columns; ++c)
      all[size_t(r * columns + c)] =
          C(number(p + (x.transposed ? c + r * x.leading : r + c * x.leading) * item, type));
  return all;
}

template <class C>
void product(s64 m, s64 n, s64 k, C alpha, const Matrix& a, const Matrix& b, C beta,
             const Matrix& c, cudaDataType type, cudaDataType out, s64 batch) {
  const s64 item = bytes_of(out);
  const auto x = gathered<C>(a, type, batch, m, k), y = gathered<C>(b, type, batch, k, n);
  u8* first = static_cast<u8*>(const_cast<void*>(c.at)) + batch * c.stride * item;
  std::vector<C> row(static_cast<size_t>(n));
  for (s64 j = 0; j < n; ++j)
    check_device_write("cublasGemm", first + j * c.leading * item, u64(m * item));
  for (s64 i = 0; i < m; ++i) {
    std::fill(row.begin(), row.end(), C(0));
    for (s64 l = 0; l < k; ++l) {
      const C left = x[size_t(i * k + l)];
      for (s64 j = 0; j < n; ++j) row[size_t(j)] += left * y[size_t(l * n + j)];
    }
    for (s64 j = 0; j < n; ++j) {
      u8* at = first + (i + j * c.leading) * item;
      C value = alpha * row[size_t(j)];
      if (beta != C(0)) {
        check_device_read("cublasGemm", at, u64(item));
        value += beta * C(number(DeviceMemory::get().bytes(u64(at)), out));
      }
      put(DeviceMemory::get().bytes(u64(at)), out, double(value));
      DeviceMemory::get().mark(u64(at), u64(item), written);
    }
  }
}

struct Handle {
  void* stream = nullptr;
};

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* h) {
  *h = reinterpret_cast<cublasHandle_t>(new Handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t h) {
  delete reinterpret_cast<Handle*>(h);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t h, cudaStream_t stream) {
  reinterpret_cast<Handle*>(h)->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t, cublasPointerMode_t mode) {
  return mode == CUBLAS_POINTER_MODE_HOST ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
size_t cublasGetCudartVersion() { return CUDART_VERSION; }
const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS         ? "CUBLAS_STATUS_SUCCESS"
         : status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE"
                                                 : "CUBLAS_STATUS_EXECUTION_FAILED";
}

cublasStatus_t cublasGemmStridedBatchedEx_64(
    cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int64_t m, int64_t n,
    int64_t k, const void* alpha, const void* a, cudaDataType type, int64_t lda,
    long long int stride_a, const void* b, cudaDataType type_b, int64_t ldb, long long int stride_b,
    const void* beta, void* c, cudaDataType type_c, int64_t ldc, long long int stride_c,
    int64_t batch, cublasComputeType_t compute, cublasGemmAlgo_t) {
  const bool ta = op_a != CUBLAS_OP_N, tb = op_b != CUBLAS_OP_N;
  if (m < 0 || n < 0 || k < 0 || lda < std::max<int64_t>(1, ta ? k : m) ||
      ldb < std::max<int64_t>(1, tb ? n : k) || ldc < std::max<int64_t>(1, m) || type_b != type ||
      (type != CUDA_R_64F && type != CUDA_R_32F && type != CUDA_R_16BF))
    return CUBLAS_STATUS_INVALID_VALUE;
  const Matrix x{a, lda, stride_a, ta}, y{b, ldb, stride_b, tb}, z{c, ldc, stride_c, false};
  auto queue = [&](auto scale) {
    using C = decltype(scale);
    const C al = *static_cast<const C*>(alpha), be = *static_cast<const C*>(beta);
    return submit(reinterpret_cast<Handle*>(handle)->stream, "cublasGemm", [=] {
      for (s64 i = 0; i < batch; ++i) product<C>(m, n, k, al, x, y, be, z, type, type_c, i);
    });
  };
  const int error = compute == CUBLAS_COMPUTE_64F ? queue(double()) : queue(float());
  return error == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
cublasStatus_t cublasGemmEx_64(cublasHandle_t h, cublasOperation_t op_a, cublasOperation_t op_b,
                               int64_t m, int64_t n, int64_t k, const void* alpha, const void* a,
                               cudaDataType ta, int64_t lda, const void* b, cudaDataType tb,
                               int64_t ldb, const void* beta, void* c, cudaDataType tc, int64_t ldc,
                               cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  return cublasGemmStridedBatchedEx_64(h, op_a, op_b, m, n, k, alpha, a, ta, lda, 0, b, tb, ldb, 0,
                                       beta, c, tc, ldc, 0, 1, compute, algorithm);
}
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t op_a,
                                          cublasOperation_t op_b, int m, int n, int k,
                                          const void* alpha, const void* a, cudaDataType ta,
                                          int lda, long long int sa, const void* b, cudaDataType tb,
                                          int ldb, long long int sb, const void* beta, void* c,
                                          cudaDataType tc, int ldc, long long int sc, int batch,
                                          cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  return cublasGemmStridedBatchedEx_64(h, op_a, op_b, m, n, k, alpha, a, ta, lda, sa, b, tb, ldb,
                                       sb, beta, c, tc, ldc, sc, batch, compute, algorithm);
}
cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t op_a, cublasOperation_t op_b, int m,
                            int n, int k, const void* alpha, const void* a, cudaDataType ta,
                            int lda, const void* b, cudaDataType tb, int ldb, const void* beta,
                            void* c, cudaDataType tc, int ldc, cublasComputeType_t compute,
                            cublasGemmAlgo_t algorithm) {
  return cublasGemmStridedBatchedEx_64(h, op_a, op_b, m, n, k, alpha, a, ta, lda, 0, b, tb, ldb, 0,
                                       beta, c, tc, ldc, 0, 1, compute, algorithm);
}

}  // extern "C"
