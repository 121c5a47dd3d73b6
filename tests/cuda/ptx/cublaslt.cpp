// libcublasLt: a product with its epilogue, as plain loops.
#include <cublasLt.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "products.h"

namespace {

using namespace interpreter;

struct Description {
  cublasComputeType_t compute;
  cudaDataType scale;
  s32 transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  u32 epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  void* aux = nullptr;
  s64 aux_leading = 0, aux_stride = 0, bias_stride = 0;
  s32 bias_type = -1, aux_type = -1;
};
struct Preference {
  u32 alignment[4] = {256, 256, 256, 256};  // of A, B, C and D, as documented
  u64 workspace = 0;
  u32 reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
};
constexpr u32 reductions_in_f32 =
    CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
struct Layout {
  cudaDataType type;
  u64 rows, columns;
  s64 leading;
  s32 order = CUBLASLT_ORDER_COL, batch = 1;
  s64 stride = 0;
};

template <class T>
cublasStatus_t set(T& to, const void* from, size_t n) {
  if (n != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, from, n);
  return CUBLAS_STATUS_SUCCESS;
}

Description& of(cublasLtMatmulDesc_t d) { return *reinterpret_cast<Description*>(d); }
const Layout& of(cublasLtMatrixLayout_t l) { return *reinterpret_cast<const Layout*>(l); }

// GELU by tanh, as cuBLASLt computes it: approximately, in f32 too. On an H200 gradients in f32 were
// off by up to 2e-4 of their value; here values have 13 bits.
constexpr double c0 = 0.7978845608028654, c1 = 0.044715;
double approximate(double x) {
  constexpr double steps = 1 << 13;
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(fraction * steps) / steps, exponent);
}
double gelu(double x) { return approximate(0.5 * x * (1 + std::tanh(c0 * (x + c1 * x * x * x)))); }
double gelu_gradient(double x) {
  const double t = std::tanh(c0 * (x + c1 * x * x * x));
  return approximate(0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c0 * (1 + 3 * c1 * x * x));
}

/// Applies the epilogue to the values of the product, [n columns][m rows]. The bias runs along the
/// rows; its gradient is the sum along the columns, or that of op(b) [k, n] over k (BGRADB).
struct Epilogue {
  const Description d;
  cudaDataType in, out;
  s64 m, n, k;
  Matrix b;

  void apply(std::vector<double>& v, s64 batch) const {
    const u32 e = d.epilogue;
    const cudaDataType bias_type = d.bias_type < 0 ? out : cudaDataType(d.bias_type);
    const cudaDataType aux_type = d.aux_type < 0 ? out : cudaDataType(d.aux_type);
    u8* bias = static_cast<u8*>(d.bias) + batch * d.bias_stride * bytes_of(bias_type);
    u8* aux = static_cast<u8*>(d.aux) + batch * d.aux_stride * bytes_of(aux_type);
    if (e & CUBLASLT_EPILOGUE_BIAS)
      for (s64 i = 0; i < m; ++i) {
        const double more =
            read_number("cublasLtMatmul", bias + i * bytes_of(bias_type), bias_type);
        for (s64 j = 0; j < n; ++j) v[size_t(j * m + i)] += more;
      }
    for (s64 j = 0; j < n; ++j)
      for (s64 i = 0; i < m; ++i) {
        double& x = v[size_t(j * m + i)];
        u8* at = aux + (i + j * d.aux_leading) * bytes_of(aux_type);
        if ((e & 64) != 0) {  // DGELU: aux has the argument of GELU
          x *= gelu_gradient(read_number("cublasLtMatmul", at, aux_type));
        } else if ((e & 32) != 0) {  // GELU, and with 128 its argument is stored
          if (e & 128) write_number("cublasLtMatmul", at, aux_type, x);
          x = gelu(x);
        } else if ((e & 2) != 0) {
          x = std::max(x, 0.0);
        }
      }
    if (e & 512)  // BGRADB
      for (s64 j = 0; j < n; ++j) {
        float sum = 0;
        for (s64 p = 0; p < k; ++p) {
          const s64 at = batch * b.stride + (b.transposed ? j + p * b.leading : p + j * b.leading);
          sum += float(
              read_number("cublasLtMatmul", static_cast<const u8*>(b.at) + at * bytes_of(in), in));
        }
        write_number("cublasLtMatmul", bias + j * bytes_of(bias_type), bias_type, sum);
      }
    if (e & 16)  // BGRAD
      for (s64 i = 0; i < m; ++i) {
        double sum = 0;
        for (s64 j = 0; j < n; ++j) sum += v[size_t(j * m + i)];
        write_number("cublasLtMatmul", bias + i * bytes_of(bias_type), bias_type, sum);
      }
  }
};

bool served(u32 epilogue) {
  for (u32 e : {1, 2, 4, 6, 32, 36, 32 | 128, 36 | 128, 64 | 128, 64 | 128 | 16, 512})
    if (e == epilogue) return true;
  return false;
}

/// What an algorithm was chosen for; it is stored in the algorithm, and must be that of the call.
u64 key_of(const Description& d, const Layout& a, const Layout& b, const Layout& c,
           const Layout& out) {
  u64 key = d.epilogue;
  const auto mix = [&](u64 x) { key = (key ^ x) * 0x9e3779b97f4a7c15u; };
  for (const Layout* l : {&a, &b, &c, &out})
    for (const u64 x : {u64(l->type), l->rows, l->columns, u64(l->leading), u64(l->batch)}) mix(x);
  for (const s32 x : {s32(d.compute), d.transpose_a, d.transpose_b}) mix(u64(x));
  return key;
}

/// The documented demands on a product that do not depend on addresses.
cublasStatus_t check(const Description& d, const Layout& a, const Layout& b, const Layout& c,
                     const Layout& out) {
  const bool ta = d.transpose_a != CUBLAS_OP_N, tb = d.transpose_b != CUBLAS_OP_N;
  const u64 m = ta ? a.columns : a.rows, k = ta ? a.rows : a.columns;
  const u64 n = tb ? b.rows : b.columns, ky = tb ? b.columns : b.rows;
  for (const Layout* l : {&a, &b, &c, &out})
    if (l->order != CUBLASLT_ORDER_COL || l->rows == 0 || l->columns == 0 ||
        u64(l->leading) < l->rows || l->batch != out.batch)
      return CUBLAS_STATUS_INVALID_VALUE;
  if (k != ky || out.rows != m || out.columns != n || c.rows != m || c.columns != n)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (d.epilogue & (4 | 16 | 512) && !d.bias) return CUBLAS_STATUS_INVALID_VALUE;
  if (d.epilogue & 128 && (!d.aux || d.aux_leading < s64(m) || d.aux_leading % 8 != 0))
    return CUBLAS_STATUS_INVALID_VALUE;
  const bool wide = a.type == CUDA_R_64F;
  if (a.type != b.type || c.type != out.type || !served(d.epilogue) ||
      d.scale != (wide ? CUDA_R_64F : CUDA_R_32F) ||
      d.compute != (wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* h) {
  *h = reinterpret_cast<cublasLtHandle_t>(new char);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) {
  delete reinterpret_cast<char*>(h);
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusString(cublasStatus_t s) {
  return s == CUBLAS_STATUS_SUCCESS         ? "CUBLAS_STATUS_SUCCESS"
         : s == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                            : "CUBLAS_STATUS_INVALID_VALUE";
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *d = reinterpret_cast<cublasLtMatmulDesc_t>(new Description{compute, scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  delete &of(d);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* from, size_t n) {
  Description& d = of(handle);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(d.transpose_a, from, n);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(d.transpose_b, from, n);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(d.epilogue, from, n);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(d.bias, from, n);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
      return set(d.bias_stride, from, n);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return set(d.bias_type, from, n);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return set(d.aux, from, n);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return set(d.aux_leading, from, n);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
      return set(d.aux_stride, from, n);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
      return set(d.aux_type, from, n);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* l, cudaDataType type, u64 rows,
                                          u64 columns, s64 leading) {
  *l = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, columns, leading});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  delete &of(l);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* from, size_t n) {
  Layout& l = *reinterpret_cast<Layout*>(handle);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) return set(l.batch, from, n);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) return set(l.stride, from, n);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_ORDER) return set(l.order, from, n);
  return CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
  *p = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  delete reinterpret_cast<Preference*>(p);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void* from, size_t n) {
  Preference& of_call = *reinterpret_cast<Preference*>(p);
  if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return set(of_call.workspace, from, n);
  if (what == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) return set(of_call.reductions, from, n);
  const int which = int(what) - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
  if (which < 0 || which > 3) return CUBLAS_STATUS_NOT_SUPPORTED;
  return set(of_call.alignment[which], from, n);
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t to,
                                              cublasLtMatmulPreference_t p, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  *found = 0;
  if (const cublasStatus_t s = check(of(d), of(a), of(b), of(c), of(to)); s != 0) return s;
  const Preference& preference = *reinterpret_cast<const Preference*>(p);
  if (of(a).type == CUDA_R_16BF && preference.reductions & ~u32(reductions_in_f32)) {
    verdict("cublas: cublasLt may choose partial sums in bf16");
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool refused = std::getenv("PTX_NO_EPILOGUES") && of(d).epilogue > 4;
  *found = wanted > 0 && !refused ? 1 : 0;
  if (*found) {  // an algorithm for these alignments, with all of the workspace
    std::memset(&results[0], 0, sizeof results[0]);
    u64* const data = results[0].algo.data;
    for (int i = 0; i < 4; ++i) data[i] = preference.alignment[i];
    data[4] = key_of(of(d), of(a), of(b), of(c), of(to));
    data[5] = results[0].workspaceSize = preference.workspace;
    results[0].state = CUBLAS_STATUS_SUCCESS;
    results[0].wavesCount = 1;
  }
  return *found ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t la, const void* b,
                              cublasLtMatrixLayout_t lb, const void* beta, const void* c,
                              cublasLtMatrixLayout_t lc, void* to, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t* algo, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  const Description d = of(desc);
  const void* const operands[] = {a, b, c, to};
  if (const cublasStatus_t s = check(d, of(la), of(lb), of(lc), of(ld)); s != 0) return s;
  if (workspace_bytes > 0 &&
      (u64(workspace) % 256 != 0 ||
       DeviceMemory::get().allocated(u64(workspace), workspace_bytes) != workspace_bytes))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (algo && (algo->data[4] != key_of(d, of(la), of(lb), of(lc), of(ld)) ||
               workspace_bytes < algo->data[5]))
    return CUBLAS_STATUS_INVALID_VALUE;
  for (int i = 0; i < 4; ++i)
    if (algo && reinterpret_cast<u64>(operands[i]) % algo->data[i])
      return CUBLAS_STATUS_EXECUTION_FAILED;
  if (reinterpret_cast<u64>(d.bias) % 16 || reinterpret_cast<u64>(d.aux) % 16)
    return CUBLAS_STATUS_EXECUTION_FAILED;
  const Layout x = of(la), y = of(lb), z = of(lc), out = of(ld);
  const bool ta = d.transpose_a != CUBLAS_OP_N, tb = d.transpose_b != CUBLAS_OP_N;
  const u64 m = out.rows, n = out.columns, k = ta ? x.rows : x.columns;
  const bool wide = d.scale == CUDA_R_64F;
  const double al = wide ? *static_cast<const double*>(alpha) : *static_cast<const float*>(alpha);
  const double be = wide ? *static_cast<const double*>(beta) : *static_cast<const float*>(beta);
  const Matrix ma{a, x.leading, x.stride, ta}, mb{b, y.leading, y.stride, tb};
  const Matrix mc{c, z.leading, z.stride, false}, md{to, out.leading, out.stride, false};
  const Epilogue epilogue{d, x.type, out.type, s64(m), s64(n), s64(k), mb};
  const int error = submit(stream, "cublasLtMatmul", [=] {
    for (s64 i = 0; i < out.batch; ++i) {
      const Product p{s64(m), s64(n), s64(k), al, be, ma, mb, mc, md, x.type, out.type};
      auto then = [&](std::vector<double>& v) { epilogue.apply(v, i); };
      wide ? p.run<double>("cublasLtMatmul", i, then) : p.run<float>("cublasLtMatmul", i, then);
    }
  });
  return error == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
