// OpenBLAS shared with a host that uses it too [core/gemm/blas.h].
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/gemm/blas.h"
#include "tests/support/catch.h"

namespace stretto {
namespace {

// What the process was started with; nothing where it was not set.
std::string at_start(const std::string& name) {
  std::ifstream file("/proc/self/environ", std::ios::binary);
  for (std::string entry; std::getline(file, entry, '\0');)
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
  return "(not set)";
}

std::string now(const std::string& name) {
  const char* text = std::getenv(name.c_str());
  return text ? text : "(not set)";
}

template <class F>
F find(void* library, const char* name) {
  return reinterpret_cast<F>(::dlsym(library, name));
}

}  // namespace

TEST_CASE("the environment stays as it was when OpenBLAS has been opened", "[core]") {
  blas_description();
  for (const char* name : {"OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE"})
    CHECK(now(name) == at_start(name));
}

TEST_CASE("a host's number of OpenBLAS threads stays, and changes no bit of ours", "[core]") {
  blas_description();
  void* library = ::dlopen("libopenblas.so.0", RTLD_NOW | RTLD_NOLOAD);
  if (!library) STRETTO_SKIP("OpenBLAS is not here");
  const auto get = find<int (*)()>(library, "openblas_get_num_threads");
  const auto set = find<void (*)(int)>(library, "openblas_set_num_threads");
  REQUIRE(get);
  REQUIRE(set);
  const int before = get();
  constexpr int64_t n = 300;
  std::vector<float> a(size_t(n * n));
  for (size_t i = 0; i < a.size(); ++i) a[i] = 1 / float(1 + i % 97);
  const auto product = [&] {
    std::vector<float> c(a.size());
    CHECK(blas_gemm(n, n, n, 1.0f, {a.data(), n}, {a.data(), n}, 0.0f, c.data(), n));
    return c;
  };
  const std::vector<float> alone = product();
  set(3);
  const std::vector<float> beside = product();
  CHECK(get() == 3);
  set(before);
  double worst = 0;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t p = 0; p < n; ++p)
        sum += double(a[size_t(i * n + p)]) * double(a[size_t(p * n + j)]);
      worst = std::max(worst, std::fabs(double(alone[size_t(i * n + j)]) / sum - 1));
    }
  CHECK(worst < double(n + 1) * 0x1p-24);  // all terms are positive
  CHECK(std::memcmp(alone.data(), beside.data(), alone.size() * sizeof(float)) == 0);
  CHECK(get() == before);
  ::dlclose(library);
}

}  // namespace stretto
