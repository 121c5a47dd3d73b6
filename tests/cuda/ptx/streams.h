// Streams: queues of work that runs as late as the program allows (lazy) or at once (eager).
//
// Every piece of work has a clock: how far each stream had come when it may begin. Two pieces that
// touch one block of memory, one of them writing, must be ordered by their clocks. PTX_STREAMS
// is eager or lazy.
#pragma once

#include <deque>
#include <memory>
#include <mutex>

#include "runtime.h"

namespace interpreter {

using Clock = std::vector<u64>;  // by stream

struct Work {
  std::string what;
  std::function<void()> run;
  Clock after;                   // must have run before
  const void* pinned = nullptr;  // memory of the host that it reads or writes
  u64 pinned_bytes = 0;
  bool writes_host = false;
};

struct Graph {
  std::vector<Work> works;
  bool broken = false;
  bool relaxed = false;  // cudaStreamCaptureModeRelaxed: memory may be taken
};

struct Stream {
  size_t id;
  bool blocking;  // ordered with the default stream
  u64 submitted = 0, done = 0;
  Clock waits;  // what its next work comes after
  std::deque<Work> queue;
  std::unique_ptr<Graph> capture;
};

struct Event {
  Stream* stream = nullptr;
  u64 position = 0;
};

/// All of it belongs to one device and is used by one thread at a time.
std::recursive_mutex& runtime_mutex();

Stream* create_stream(bool blocking);
Stream& stream_of(void* handle);  // nullptr, 1: the legacy default stream
void destroy(Stream*);
bool known(const Stream*);

int submit(Stream&, Work);
/// Runs what was submitted; the host knows of it from then on.
int synchronize(Stream&, u64 up_to);
int synchronize_all();
void wait(Stream&, const Event&);

/// An error when a call cannot stand in a capture, which it breaks; what takes memory can in one
/// that is relaxed.
int refuse_in_capture(const char* call, bool takes_memory = false);
bool capturing();

/// The work that runs now touches a block of device memory: it must come after what others did.
void order_access(u64 block, bool writes, const std::string& what);
void forget_accesses(u64 block);

// Pinned memory of the host. It is held while a copy is under way.
void* allocate_pinned(u64 bytes);
bool free_pinned(void*);
bool is_pinned(const void*, u64 bytes);
void hold_pinned(const void*, u64 bytes, bool writes);
void open_pinned(const void*, u64 bytes);  // for the copy itself
void open_all_pinned();                    // for a function of the host, which has its place
void close_all_pinned();                   // in a stream as copies have
void release_pinned(const void*, u64 bytes);

}  // namespace interpreter
