#include "core/gemm/blas.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"

namespace stretto {
namespace {

enum { row_major = 101, no_transpose = 111, transpose = 112 };
using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int,
                       float, float*, int);
using Dgemm = void (*)(int, int, int, int, int, int, double, const double*, int, const double*, int,
                       double, double*, int);

// An environment variable as OpenBLAS shall read it when it is opened; the host's is put back.
class Setting {
 public:
  Setting(const char* name, const char* value, bool even_if_set) : name_(name) {
    if (const char* text = std::getenv(name)) before_ = text;
    if (before_ && !even_if_set) return;
    // With another setting the products would have other bits.
    if (::setenv(name, value, 1) != 0) throw std::bad_alloc();
    changed_ = true;
  }
  ~Setting() {
    if (!changed_) return;
    if (before_) {
      ::setenv(name_, before_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
  bool changed_ = false;
};

// OpenBLAS, and the libraries that it opens, end the process or try for ever where they get no
// memory, so it is made sure of first. This is twice the buffer of the builds known.
void need_address_space() {
  constexpr size_t size = size_t(256) << 20;
  void* probe = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (probe == MAP_FAILED)
    throw OutOfMemory(
        str("[gemm] out of memory: OpenBLAS needs address space of ", size >> 20, " MiB"));
  ::munmap(probe, size);
}

constexpr const char* files[] = {"libopenblas.so.0", "libopenblas.so"};

void* open_library() {
  for (const char* file : files)  // the host's own, as it has set it up
    if (void* handle = ::dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) return handle;
  std::optional<Setting> core;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    core.emplace("OPENBLAS_CORETYPE", "SkylakeX", false);
#endif
  const Setting threads("OPENBLAS_NUM_THREADS", "1", true);
  need_address_space();
  for (const char* file : files) {
    if (void* handle = ::dlopen(file, RTLD_NOW | RTLD_LOCAL)) return handle;
    const char* reason = ::dlerror();
    // One that is there, but not to be had now, would come back later, with other bits.
    if (!reason || !std::strstr(reason, std::strerror(ENOENT)))
      throw OutOfMemory(str("[gemm] cannot open OpenBLAS: ", reason ? reason : file));
  }
  return nullptr;
}

template <class F>
void find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(::dlsym(library, name));
}

struct Library {
  Sgemm sgemm = nullptr;
  Dgemm dgemm = nullptr;
  int (*threads)() = nullptr;
  void (*set_threads)(int) = nullptr;
  void* (*take_buffer)(int) = nullptr;
  void (*give_buffer)(void*) = nullptr;
  std::string description;

  Library() {
    void* handle = open_library();
    if (!handle) return;
    find(handle, "cblas_sgemm", sgemm);
    find(handle, "cblas_dgemm", dgemm);
    if (!sgemm || !dgemm) {
      sgemm = nullptr;
      dgemm = nullptr;
      return;
    }
    find(handle, "openblas_get_num_threads", threads);
    find(handle, "openblas_set_num_threads", set_threads);
    if (!threads || !set_threads) threads = nullptr;
    find(handle, "blas_memory_alloc", take_buffer);
    find(handle, "blas_memory_free", give_buffer);
    if (!take_buffer || !give_buffer) take_buffer = nullptr;
    char* (*config)() = nullptr;
    char* (*core)() = nullptr;
    find(handle, "openblas_get_config", config);
    find(handle, "openblas_get_corename", core);
    description = config ? config() : "OpenBLAS";
    description = description.substr(0, description.find(' ', description.find(' ') + 1));
    if (core) description += std::string(" ") + core();
  }
};

const Library& library() {
  static const Library loaded;
  return loaded;
}

// OpenBLAS maps a buffer for each product that runs beside others, keeps it, and where there is no
// address space for one it tries for ever. So the buffers are made here, once it is sure that
// there is room; products that find no more take turns.
class Buffers {
 public:
  void enter() {
    for (;;) {
      const int callers = callers_.fetch_add(1, std::memory_order_acq_rel) + 1;
      if (callers <= ready_.load(std::memory_order_acquire)) [[likely]]
        return;
      try {
        return make(callers);
      } catch (const std::exception&) {
        leave();
        if (ready_ == 0) throw;
      }
      std::this_thread::yield();  // one of those that there are will be free
    }
  }
  void leave() { callers_.fetch_sub(1, std::memory_order_acq_rel); }

 private:
  // Holding so many at once shows that there are so many.
  void make(int count) {
    std::lock_guard lock(mutex_);
    if (count <= ready_) return;
    const Library& blas = library();
    struct Held {
      const Library& blas;
      std::vector<void*> buffers;
      ~Held() {
        for (void* buffer : buffers) blas.give_buffer(buffer);
      }
    } held{blas, {}};
    held.buffers.reserve(size_t(count));
    for (int i = 0; i < count; ++i) {
      need_address_space();
      if (blas.take_buffer) held.buffers.push_back(blas.take_buffer(0));
    }
    ready_.store(count, std::memory_order_release);
  }

  alignas(64) std::atomic<int> callers_{0};
  alignas(64) std::atomic<int> ready_{0};
  std::mutex mutex_;
};

// Our products take one thread each. A host that has set OpenBLAS to more finds it so again, but
// for the time that one of ours runs.
class OneThread {
 public:
  // Once the host has set threads they may be ours for the moment, so all calls count.
  bool needed() const {
    const Library& blas = library();
    return (blas.threads && blas.threads() != 1) || used_.load();
  }
  void enter() {
    const Library& blas = library();
    std::lock_guard lock(mutex_);
    used_ = true;
    if (calls_++ > 0) return;
    before_ = blas.threads();
    blas.set_threads(1);
  }
  void leave() {
    std::lock_guard lock(mutex_);
    if (--calls_ == 0) library().set_threads(before_);
  }

 private:
  std::mutex mutex_;
  std::atomic<bool> used_{false};
  int calls_ = 0, before_ = 1;
};

constinit Buffers buffers;
constinit OneThread one_thread;

class Call {
 public:
  Call() : alone_(one_thread.needed()) {
    buffers.enter();
    if (alone_) one_thread.enter();
  }
  ~Call() {
    if (alone_) one_thread.leave();
    buffers.leave();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  const bool alone_;
};

template <class T, class Blas>
bool run(Blas blas, int64_t m, int64_t n, int64_t k, T alpha, MatrixRef<T> a, MatrixRef<T> b,
         T beta, T* c, int64_t ldc) {
  if (!blas) return false;
  check(std::max({m, n, k, a.ld, b.ld, ldc}) <= INT32_MAX, "matmul", "a size or stride of [", m,
        ", ", k, "] @ [", k, ", ", n, "] is beyond the 2^31 - 1 that BLAS can count");
  const Call call;
  blas(row_major, a.transposed ? transpose : no_transpose, b.transposed ? transpose : no_transpose,
       int(m), int(n), int(k), alpha, a.data, int(a.ld), b.data, int(b.ld), beta, c, int(ldc));
  return true;
}

}  // namespace

bool blas_gemm(int64_t m, int64_t n, int64_t k, float alpha, MatrixRef<float> a, MatrixRef<float> b,
               float beta, float* c, int64_t ldc) {
  return run(library().sgemm, m, n, k, alpha, a, b, beta, c, ldc);
}

bool blas_gemm(int64_t m, int64_t n, int64_t k, double alpha, MatrixRef<double> a,
               MatrixRef<double> b, double beta, double* c, int64_t ldc) {
  return run(library().dgemm, m, n, k, alpha, a, b, beta, c, ldc);
}

const std::string& blas_description() { return library().description; }

}  // namespace stretto
