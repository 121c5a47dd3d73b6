// Matrix products for the stand-ins of cuBLAS and cuBLASLt: column-major, plain loops. Every
// operand is checked like a kernel's.
#pragma once

#include <library_types.h>

#include <algorithm>
#include <functional>

#include "floats.h"
#include "runtime.h"

namespace interpreter {

struct Matrix {
  const void* at;
  s64 leading, stride;
  bool transposed;
};

inline s64 bytes_of(cudaDataType t) { return t == CUDA_R_64F ? 8 : t == CUDA_R_32F ? 4 : 2; }

inline double number(const u8* p, cudaDataType type) {
  if (type == CUDA_R_64F) {
    double x;
    return std::memcpy(&x, p, 8), x;
  }
  if (type == CUDA_R_16BF) {
    u16 x;
    return std::memcpy(&x, p, 2), double(from_bf16(x));
  }
  float x;
  return std::memcpy(&x, p, 4), double(x);
}
inline double read_number(const char* what, const void* at, cudaDataType type) {
  check_device_read(what, at, u64(bytes_of(type)));
  return number(DeviceMemory::get().bytes(u64(at)), type);
}
inline void write_number(const char* what, void* at, cudaDataType type, double x) {
  const u64 n = u64(bytes_of(type));
  check_device_write(what, at, n);
  u8* p = DeviceMemory::get().bytes(u64(at));
  const float f = float(x);
  const u16 h = to_bf16(f);
  std::memcpy(p,
              n == 8   ? static_cast<const void*>(&x)
              : n == 4 ? &f
                       : static_cast<const void*>(&h),
              n);
  DeviceMemory::get().mark(u64(at), n, written);
}

/// d = alpha op(a) op(b) + beta c.
struct Product {
  s64 m, n, k;
  double alpha, beta;
  Matrix a, b, c, d;
  cudaDataType type, out;

  /// op(x) as rows × columns elements, row-major.
  template <class C>
  std::vector<C> gathered(const char* what, const Matrix& x, s64 batch, s64 rows,
                          s64 columns) const {
    const s64 item = bytes_of(type), height = x.transposed ? columns : rows,
              width = x.transposed ? rows : columns;
    const u8* first = static_cast<const u8*>(x.at) + batch * x.stride * item;
    for (s64 j = 0; j < width; ++j)
      check_device_read(what, first + j * x.leading * item, u64(height * item));
    const u8* p = DeviceMemory::get().bytes(u64(first));
    std::vector<C> all(size_t(rows * columns));
    for (s64 i = 0; i < rows; ++i)
      for (s64 j = 0; j < columns; ++j)
        all[size_t(i * columns + j)] =
            C(number(p + (x.transposed ? j + i * x.leading : i + j * x.leading) * item, type));
    return all;
  }

  /// One product of the batch, computed in type C; `then` may change the values, [n][m].
  template <class C>
  void run(const char* what, s64 batch,
           const std::function<void(std::vector<double>&)>& then = {}) const {
    const s64 item = bytes_of(out);
    Products& all = products()[type == CUDA_R_64F ? "f64" : type == CUDA_R_32F ? "f32" : "bf16"];
    if (batch == 0) ++all.calls;
    all.multiply_adds += u64(m * n * k);
    all.bytes += u64((m + n) * k * bytes_of(type) + (beta == 0 ? 1 : 2) * m * n * item);
    const auto x = gathered<C>(what, a, batch, m, k), y = gathered<C>(what, b, batch, k, n);
    std::vector<double> values(size_t(m * n));
    std::vector<C> row(static_cast<size_t>(n));
    const u8* added = static_cast<const u8*>(c.at) + batch * c.stride * item;
    for (s64 i = 0; i < m; ++i) {
      std::fill(row.begin(), row.end(), C(0));
      for (s64 l = 0; l < k; ++l) {
        const C left = x[size_t(i * k + l)];
        for (s64 j = 0; j < n; ++j) row[size_t(j)] += left * y[size_t(l * n + j)];
      }
      for (s64 j = 0; j < n; ++j) {
        C value = C(alpha) * row[size_t(j)];
        if (beta != 0)
          value += C(beta) * C(read_number(what, added + (i + j * c.leading) * item, out));
        values[size_t(j * m + i)] = double(value);
      }
    }
    if (then) then(values);
    u8* to = static_cast<u8*>(const_cast<void*>(d.at)) + batch * d.stride * item;
    for (s64 j = 0; j < n; ++j)
      for (s64 i = 0; i < m; ++i)
        write_number(what, to + (i + j * d.leading) * item, out, values[size_t(j * m + i)]);
  }
};

}  // namespace interpreter
