// Streams: queues of work that runs as late as the program allows (lazy) or at once (eager).
//
// Every work has a vector clock: the position that each stream has reached when it may begin. Two
// works that access the same block of memory, one of them writing, must be ordered by their clocks.
// PTX_STREAMS is eager or lazy.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "runtime.h"

namespace interpreter {

using Clock = std::vector<u64>;  // by stream

struct Work {
  std::string what;
  std::function<void()> run;
  Clock after;                   // must have run before
  const void* pinned = nullptr;  // host memory that it reads or writes
  u64 pinned_bytes = 0;
  bool writes_host = false;
};

struct Graph {
  std::vector<Work> works;
  bool broken = false;
  bool relaxed = false;  // cudaStreamCaptureModeRelaxed: memory may be allocated
  std::thread::id thread = std::this_thread::get_id();  // which began the capture
};

struct Stream {
  size_t id;
  bool blocking;  // ordered with the default stream
  u64 submitted = 0, done = 0;
  u64 queried = 0;  // by ready()
  Clock waits;      // what its next work must come after
  std::deque<Work> queue;
  std::unique_ptr<Graph> capture;
};

struct Event {
  Stream* stream = nullptr;
  u64 position = 0;
  bool captured = false;  // recorded in a capture: it stands for a node of the graph
};

/// All of this belongs to one device and is used by one thread at a time.
std::recursive_mutex& runtime_mutex();

Stream* create_stream(bool blocking);
Stream& stream_of(void* handle);  // nullptr, 1: the legacy default stream
void destroy(Stream*);
bool known(const Stream*);

int submit(Stream&, Work);
/// Runs the work up to a position; from then on the host knows that it is done.
int synchronize(Stream&, u64 up_to);
int synchronize_all();
/// False if work is left of which no earlier call has returned false: a lazy stream is not ready once
/// after each submission.
bool ready(Stream&);
void wait(Stream&, const Event&);

/// Breaks the captures in which a call is not allowed, and returns an error. Allocations are
/// allowed in relaxed captures.
int refuse_in_capture(const char* call, bool takes_memory = false);
bool capturing();

/// The running work accesses a block of device memory: it must come after conflicting accesses.
void order_access(u64 block, bool writes, const std::string& what);
void forget_accesses(u64 block);

// Pinned host memory. It is protected while a copy is in flight.
void* allocate_pinned(u64 bytes);
bool free_pinned(void*);
bool is_pinned(const void*, u64 bytes);
void hold_pinned(const void*, u64 bytes, bool writes);
void open_pinned(const void*, u64 bytes);  // for the copy itself
void open_all_pinned();                    // for a host function, which is ordered
void close_all_pinned();                   // in its stream as copies are
void release_pinned(const void*, u64 bytes);

}  // namespace interpreter
