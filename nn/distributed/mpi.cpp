// Open MPI 4 and 5, opened at run time through its binary interface. MPICH is not supported: its
// handles are integers, those of Open MPI are pointers.
#include "nn/distributed/mpi.h"

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <thread>
#include <vector>

#include "core/error.h"

namespace stretto::nn {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int serialized = 2;                    // MPI_THREAD_SERIALIZED
constexpr size_t max_message = size_t(1) << 28;  // MPI counts are int

// The tag is a hash of the length (two lengths collide with probability 1 / 32,767). If sender and
// receiver disagree on the length, the receiver therefore times out with an error that names the
// peer. With a single tag, Open MPI 4.1 writes a longer message past the end of the buffer.
constexpr int liveness_tag = 0;
int tag_of(size_t bytes) { return 1 + int(uint32_t(bytes) * 2654435761u % 32767); }

// The messages with liveness_tag.
constexpr char alive = 'a', finished = 'f';

// A time limit for MPI_Init and MPI_Finalize, which wait for all processes without one.
class CallLimit {
 public:
  CallLimit(const char* call, int seconds)
      : thread_([=, this] {
          std::unique_lock lock(mutex_);
          if (ended_.wait_for(lock, std::chrono::seconds(seconds), [this] { return done_; }))
            return;
          std::cerr << str("process ", rank_of_mpirun(), " of ", size_of_mpirun(),
                           ": not all processes have called ", call, " within ", seconds,
                           " seconds (STRETTO_PROCESS_TIMEOUT sets the time limit)\n")
                    << std::flush;
          ::_exit(1);
        }) {}
  ~CallLimit() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    ended_.notify_one();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::thread thread_;
};

class Mpi final : public ProcessGroup {
 public:
  Mpi() {
    const char* const path = std::getenv("STRETTO_MPI");
    library_ = ::dlopen(path ? path : "libmpi.so.40", RTLD_NOW | RTLD_GLOBAL);
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
    int provided = 0;
    {
      const CallLimit limit("MPI_Init", patience_);
      need(init_(nullptr, nullptr, serialized, &provided), "MPI_Init_thread");
    }
    check(provided >= serialized, "processes", "this Open MPI is built without thread support");
    need(get_rank(world_, &rank_), "MPI_Comm_rank");
    need(get_size(world_, &size_), "MPI_Comm_size");
    const char* const local = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    local_size_ = std::max(1, local ? std::atoi(local) : 1);
    for (int peer = rank_ == 0 ? 1 : 0; peer < (rank_ == 0 ? size_ : 1); ++peer)
      peers_.push_back({.rank = peer});
    for (Peer& peer : peers_) expect_message(peer);
    if (size_ > 1) watcher_ = std::thread([this] { watch(); });
  }
  ~Mpi() override { stop_watching(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int local_size() const override { return local_size_; }

  void send_recv(int peer, const void* out, size_t n_out, void* in, size_t n_in) override {
    const char* from = static_cast<const char*>(out);
    char* to = static_cast<char*>(in);
    while (n_out > 0 || n_in > 0) {
      const size_t sent = std::min(n_out, max_message), received = std::min(n_in, max_message);
      void *sending = nullptr, *receiving = nullptr;
      if (received > 0) receiving = receive(peer, to, received, tag_of(received));
      if (sent > 0) sending = send(peer, from, sent, tag_of(sent));
      wait(peer, receiving);
      wait(peer, sending);
      from += sent, to += received, n_out -= sent, n_in -= received;
    }
  }

  // Some processes may still compute for a long time, e.g. rank 0 in a final evaluation. Their
  // watcher threads answer the processes that wait here.
  void finish() override {
    stop_watching();
    if (rank_ == 0) {
      hear_from_all([](const Peer& peer) { return peer.finished; }, true);
      for (Peer& peer : peers_) {
        peer.finished = false;
        expect_message(peer);
        send_message(peer, finished);
      }
      // Each rank answers after it has received this message.
      hear_from_all([](const Peer& peer) { return peer.finished; }, false);
    } else {
      send_message(peers_[0], finished);
      hear_from_all([](const Peer& peer) { return peer.finished; }, false);
      send_message(peers_[0], finished);
    }
    const CallLimit limit("MPI_Finalize", patience_);
    need(finalize_(), "MPI_Finalize");
  }

 private:
  // Rank 0 watches all other ranks; each of these watches rank 0.
  struct Peer {
    int rank;
    bool finished = false;  // it has called finish()
    char message = 0;
    void* receiving = nullptr;
    Clock::time_point heard = Clock::now();
  };

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

  // MPI_THREAD_SERIALIZED: the watcher thread also calls MPI, so a mutex serializes the calls.
  void* send(int peer, const void* from, size_t n, int tag) {
    const std::lock_guard lock(calls_);
    void* request = nullptr;
    need(isend_(from, int(n), byte_, peer, tag, world_, &request), "MPI_Isend");
    return request;
  }
  void* receive(int peer, void* to, size_t n, int tag) {
    const std::lock_guard lock(calls_);
    void* request = nullptr;
    need(irecv_(to, int(n), byte_, peer, tag, world_, &request), "MPI_Irecv");
    return request;
  }
  bool is_done(void*& request) {
    const std::lock_guard lock(calls_);
    int done = 0;
    char status[64];
    need(test_(&request, &done, status), "MPI_Test");
    return done != 0;
  }

  static double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  // Polls at once, then less and less often, because other processes may need this core.
  void wait(int peer, void* request) {
    if (!request) return;
    const auto begin = Clock::now();
    for (int64_t turn = 0; !is_done(request); ++turn) {
      if (turn < 64) {
        ::sched_yield();
        continue;
      }
      const double waited = seconds_since(begin);
      if (waited > patience_) end_all(peer);
      ::usleep(waited < 0.01 ? 50 : 500);
    }
  }

  void send_message(const Peer& peer, char message) {
    wait(peer.rank, send(peer.rank, &message, 1, liveness_tag));
  }
  void expect_message(Peer& peer) {
    peer.receiving = receive(peer.rank, &peer.message, 1, liveness_tag);
  }
  // Reads a message that has arrived. A rank other than 0 that is still computing answers `alive`.
  void hear(Peer& peer) {
    if (!peer.receiving || !is_done(peer.receiving)) return;
    peer.heard = Clock::now();
    peer.receiving = nullptr;
    peer.finished = peer.message == finished;
    if (peer.finished) return;
    expect_message(peer);
    if (rank_ > 0 && !stop_) send_message(peer, alive);
  }

  // Returns when `enough` is true for all peers. With `ask`, sends them `alive` messages, which are
  // also requests for an answer.
  template <class F>
  void hear_from_all(F enough, bool ask) {
    for (Peer& peer : peers_) peer.heard = Clock::now();
    Clock::time_point asked{};
    while (!std::all_of(peers_.begin(), peers_.end(), enough)) {
      if (ask && seconds_since(asked) > beat_) {
        for (const Peer& peer : peers_) send_message(peer, alive);
        asked = Clock::now();
      }
      for (Peer& peer : peers_) {
        hear(peer);
        if (!enough(peer) && seconds_since(peer.heard) > patience_) end_all(peer.rank);
      }
      ::usleep(1000);
    }
  }

  // The watcher thread, until finish(): answers processes that wait in finish().
  void watch() {
    Clock::time_point answered{};
    while (!stop_) {
      for (Peer& peer : peers_) hear(peer);
      if (rank_ == 0 && seconds_since(answered) > beat_) {
        for (const Peer& peer : peers_)
          if (peer.finished) send_message(peer, alive);
        answered = Clock::now();
      }
      std::unique_lock lock(stopping_);
      wake_.wait_for(lock, std::chrono::milliseconds(100), [this] { return stop_.load(); });
    }
  }
  void stop_watching() {
    {
      const std::lock_guard lock(stopping_);
      stop_ = true;
    }
    wake_.notify_one();
    if (watcher_.joinable()) watcher_.join();
  }

  [[noreturn]] void end_all(int silent) {
    std::cerr << str("process ", silent, " of ", size_, " has not answered process ", rank_,
                     " for ", patience_,
                     " seconds: the run ends; its last checkpoint is complete "
                     "(STRETTO_PROCESS_TIMEOUT sets the time limit)\n")
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
  int rank_ = 0, size_ = 1, local_size_ = 1;
  const int patience_ = process_timeout();
  const double beat_ = std::min(1.0, patience_ / 8.0);  // seconds between `alive` messages

  std::mutex calls_;
  std::vector<Peer> peers_;  // used by the watcher, then by finish()
  std::thread watcher_;
  std::mutex stopping_;
  std::condition_variable wake_;
  std::atomic<bool> stop_ = false;  // set by finish() and the destructor
};

}  // namespace

std::unique_ptr<ProcessGroup> open_mpi() { return std::make_unique<Mpi>(); }

}  // namespace stretto::nn
