// Open MPI 4 and 5, opened at run time: of its binary interface these are the functions and objects
// that are used. MPICH's handles are numbers, and it is not taken.
#include "nn/distributed/mpi.h"

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>

#include "core/error.h"

namespace stretto::nn {
namespace {

constexpr int serialized = 2;  // MPI_THREAD_SERIALIZED
constexpr int tag = 1;
constexpr size_t piece = size_t(1) << 28;  // counts are int

class Mpi final : public ProcessGroup {
 public:
  Mpi() {
    const char* const place = std::getenv("STRETTO_MPI");
    library_ = ::dlopen(place ? place : "libmpi.so.40", RTLD_NOW | RTLD_GLOBAL);
    check(library_ != nullptr, "processes", "mpirun has started this process, but ", ::dlerror(),
          " (Debian: apt install libopenmpi3; STRETTO_MPI names another library)");
    world_ = symbol<void*>("ompi_mpi_comm_world");
    byte_ = symbol<void*>("ompi_mpi_byte");
    load(init_, "MPI_Init_thread");
    load(isend_, "MPI_Isend");
    load(irecv_, "MPI_Irecv");
    load(test_, "MPI_Test");
    load(abort_, "MPI_Abort");
    load(finalize_, "MPI_Finalize");
    int (*get_rank)(void*, int*), (*get_size)(void*, int*);
    load(get_rank, "MPI_Comm_rank");
    load(get_size, "MPI_Comm_size");
    int given = 0;
    need(init_(nullptr, nullptr, serialized, &given), "MPI_Init_thread");
    check(given >= serialized, "processes", "this Open MPI is built without threads");
    need(get_rank(world_, &rank_), "MPI_Comm_rank");
    need(get_size(world_, &size_), "MPI_Comm_size");
    const char* const local = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    local_size_ = std::max(1, local ? std::atoi(local) : 1);
    patience_ = process_patience();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int local_size() const override { return local_size_; }

  void exchange(int peer, const void* out, size_t n_out, void* in, size_t n_in,
                bool patient) override {
    const char* from = static_cast<const char*>(out);
    char* to = static_cast<char*>(in);
    while (n_out > 0 || n_in > 0) {
      const size_t sent = std::min(n_out, piece), received = std::min(n_in, piece);
      void *sending = nullptr, *receiving = nullptr;
      if (received > 0)
        need(irecv_(to, int(received), byte_, peer, tag, world_, &receiving), "MPI_Irecv");
      if (sent > 0) need(isend_(from, int(sent), byte_, peer, tag, world_, &sending), "MPI_Isend");
      wait(peer, receiving, patient);
      wait(peer, sending, patient);
      from += sent, to += received, n_out -= sent, n_in -= received;
    }
  }

  void finish() override {
    barrier(true);
    need(finalize_(), "MPI_Finalize");
  }

 private:
  using Clock = std::chrono::steady_clock;

  template <class T>
  T symbol(const char* name) {
    void* const found = ::dlsym(library_, name);
    check(found != nullptr, "processes", "Open MPI has no ", name);
    return reinterpret_cast<T>(found);
  }
  template <class F>
  void load(F& f, const char* name) {
    f = symbol<F>(name);
  }
  static void need(int code, const char* call) {
    check(code == 0, "processes", call, " failed with code ", code);
  }

  // Polled, first at once and then less often: other processes may need this core.
  void wait(int peer, void* request, bool patient) {
    if (!request) return;
    const auto begin = Clock::now();
    char status[64];
    for (int64_t turn = 0;; ++turn) {
      int done = 0;
      need(test_(&request, &done, status), "MPI_Test");
      if (done) return;
      if (turn < 64) {
        ::sched_yield();
        continue;
      }
      const double waited = std::chrono::duration<double>(Clock::now() - begin).count();
      if (!patient && waited > patience_) end_all(peer);
      ::usleep(waited < 0.01 ? 50 : 500);
    }
  }

  [[noreturn]] void end_all(int silent) {
    std::cerr << str("process ", silent, " of ", size_, " has not answered process ", rank_,
                     " for ", patience_,
                     " seconds: the run ends; its last checkpoint is whole "
                     "(STRETTO_PROCESS_TIMEOUT sets the seconds)\n")
              << std::flush;
    abort_(world_, 1);
    ::_exit(1);
  }

  void* library_ = nullptr;
  void *world_ = nullptr, *byte_ = nullptr;
  int (*init_)(int*, char***, int, int*) = nullptr;
  int (*isend_)(const void*, int, void*, int, int, void*, void**) = nullptr;
  int (*irecv_)(void*, int, void*, int, int, void*, void**) = nullptr;
  int (*test_)(void**, int*, void*) = nullptr;
  int (*abort_)(void*, int) = nullptr;
  int (*finalize_)() = nullptr;
  int rank_ = 0, size_ = 1, local_size_ = 1, patience_ = 45;
};

}  // namespace

std::unique_ptr<ProcessGroup> open_mpi() { return std::make_unique<Mpi>(); }

}  // namespace stretto::nn
