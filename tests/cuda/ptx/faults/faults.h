// Kernels with one fault each, and the interpreter's expected verdict; next to them correct
// kernels, which must have none. Every case runs in a process of its own (main.cpp).
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

struct Case {
  std::string name, verdict;  // empty: no verdict expected
  void (*run)();
};
std::vector<Case>& cases();
struct Add {
  Add(const char* name, const char* verdict, void (*run)()) {
    cases().push_back({name, verdict, run});
  }
};

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define CASE(what, verdict, body)                           \
  static void body();                                       \
  static const Add JOIN(body, _added)(what, verdict, body); \
  static void body()
/// A body with one fault.
#define FAULT(what, verdict) CASE(what, verdict, JOIN(case_, __LINE__))
/// Its correct counterpart.
#define FINE(what) CASE(what, "", JOIN(case_, __LINE__))

/// Elements in device memory, initially unwritten.
template <class T>
struct Device {
  explicit Device(size_t n) : size(n) {
    if (cudaMalloc(&p, n * sizeof(T)) != cudaSuccess) std::exit(2);
  }
  explicit Device(const std::vector<T>& values) : Device(values.size()) {
    cudaMemcpy(p, values.data(), size * sizeof(T), cudaMemcpyHostToDevice);
  }
  ~Device() { cudaFree(p); }
  std::vector<T> values() const {
    std::vector<T> v(size);
    cudaMemcpy(v.data(), p, size * sizeof(T), cudaMemcpyDeviceToHost);
    return v;
  }
  operator T*() const { return p; }
  T* p = nullptr;
  size_t size;
};

inline void expect(bool yes, const char* what) {
  if (yes) return;
  std::fprintf(stderr, "wrong: %s\n", what);
  std::exit(3);
}
template <class T>
std::vector<T> counting(size_t n) {
  std::vector<T> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = T(i);
  return v;
}
