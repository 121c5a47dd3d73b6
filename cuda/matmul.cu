// Matrix products by cuBLAS.
//
// out = op(a) · op(b), row-major. cuBLAS is column-major and reads the same memory as the
// transpose: it computes outᵀ [N, M] = op(b)ᵀ · op(a)ᵀ, so b comes first and nothing is moved.
// Results are bit-identical each time on one kind of GPU (one stream, no atomics), for operands of
// equal alignment: cuBLAS may choose another kernel for a view that begins within 16 bytes.
#include "cuda/matmul.h"
#include "cuda/runtime/blas.cuh"
#include "cuda/runtime/common.cuh"
#include "cuda/runtime/copy.h"

namespace stretto::cuda {
namespace {

constexpr int64_t max_batch = 65535;  // per call; some cuBLAS kernels map it to grid.z

struct Types {
  cudaDataType data;
  cublasComputeType_t compute;
};

Types types_of(DType t) {
  switch (t) {
    case DType::f32:
      return {CUDA_R_32F, CUBLAS_COMPUTE_32F};
    case DType::f64:
      return {CUDA_R_64F, CUBLAS_COMPUTE_64F};
    case DType::bf16:
      return {CUDA_R_16BF, CUBLAS_COMPUTE_32F};
    default:
      fail("matmul", "got ", t, " on CUDA; accepted: f32, f64, bf16");
  }
}

// Matrices in memory; if `transposed`, the elements of a column are adjacent, not those of a row.
struct Matrices {
  bool good = false, transposed = false;
  int64_t leading = 1;        // from one row (transposed: column) to the next
  int64_t matrix_stride = 0;  // from one matrix to the next
};

Matrices matrices_in(const Tensor& x) {
  const int64_t rows = x.size(-2), columns = x.size(-1);
  const int64_t down = x.strides()[x.dim() - 2], right = x.strides()[x.dim() - 1];
  Matrices m;
  if ((right == 1 || columns == 1) && (rows == 1 || down >= columns)) {
    m.leading = rows == 1 ? columns : down;
  } else if ((down == 1 || rows == 1) && (columns == 1 || right >= rows)) {
    m.transposed = true;
    m.leading = columns == 1 ? rows : right;
  } else {
    return m;
  }
  int64_t count = 1;
  for (int64_t d = x.dim() - 3; d >= 0; --d) {
    if (x.size(d) == 1) continue;
    if (count == 1) m.matrix_stride = x.strides()[d];
    if (x.strides()[d] != m.matrix_stride * count) return m;
    count *= x.size(d);
  }
  m.leading = std::max<int64_t>(m.leading, 1);
  m.good = true;
  return m;
}

}  // namespace

bool are_matrices(const Tensor& x) { return x.numel() == 0 || matrices_in(x).good; }

Tensor matmul(const Tensor& a, const Tensor& b, const Tensor& onto) {
  const int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1);
  Shape shape = a.shape();
  shape[a.dim() - 1] = n;
  Tensor out = onto.defined() ? onto : empty_like(a, shape);
  if (out.numel() == 0 || (k == 0 && onto.defined())) return out;
  if (k == 0) {
    fill(out, 0);
    return out;
  }
  const Matrices left = matrices_in(a), right = matrices_in(b);
  int64_t batch = out.numel() / (m * n), rows = m;
  if (right.matrix_stride == 0 && !left.transposed && left.matrix_stride == m * left.leading) {
    rows = batch * m;  // one tall product
    batch = 1;
  }
  const Types types = types_of(a.dtype());
  const float one_f = 1, zero_f = 0;
  const double one_d = 1, zero_d = 0;
  const bool f64_scale = types.compute == CUBLAS_COMPUTE_64F;
  const void* one = f64_scale ? static_cast<const void*>(&one_d) : &one_f;
  const void* zero = f64_scale ? static_cast<const void*>(&zero_d) : &zero_f;
  const void* const beta = onto.defined() ? one : zero;
  const Blas handle(a.device().index);
  const int64_t item = item_size(a.dtype());
  const auto operation = [](const Matrices& x) { return x.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  for (int64_t first = 0; first < batch; first += max_batch) {
    const auto at = [&](const Tensor& x, int64_t matrix_stride) {
      return static_cast<char*>(x.raw_data()) + first * matrix_stride * item;
    };
    STRETTO_CUBLAS(cublasGemmStridedBatchedEx_64(
        handle, operation(right), operation(left), n, rows, k, one, at(b, right.matrix_stride),
        types.data, right.leading, right.matrix_stride, at(a, left.matrix_stride), types.data,
        left.leading, left.matrix_stride, beta, at(out, m * n), types.data, n, m * n,
        std::min(max_batch, batch - first), types.compute, CUBLAS_GEMM_DEFAULT));
    queued("matmul", a.device().index);
  }
  return out;
}

}  // namespace stretto::cuda
