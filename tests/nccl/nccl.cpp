// A substitute for NCCL that implements the functions that cuda/runtime/nccl.cu uses, over shared
// memory of one host. Messages are copies and host functions on the given stream, so it runs on the
// PTX interpreter (tests/cuda/ptx) and with a CUDA runtime. It reports errors on which NCCL would
// hang or be silent: different sizes, two processes with the same rank, two streams in a group, and
// a message that is not answered within STRETTO_PROCESS_TIMEOUT seconds (default 30). As NCCL it
// waits without limit for the others at the initialization and for the first message of a peer; as
// communicators do not block, these calls return "in progress" until then.
//
// NCCL_STAND_IN_FAILS=init:1 or send:0 makes that call of that rank fail; stop:1 stops rank 1, as
// SIGSTOP does, between its first messages and the next, stop-init:1 and stop-connect:1 before.
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <new>
#include <string>
#include <vector>

namespace {

enum Result {
  success = 0,
  unhandled_cuda = 1,
  system_error = 2,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7
};
constexpr int int8 = 0;  // ncclDataType_t
constexpr int most_ranks = 8;
constexpr size_t room = size_t(64) << 10;
using Clock = std::chrono::steady_clock;
std::chrono::seconds patience() {
  const char* const text = std::getenv("STRETTO_PROCESS_TIMEOUT");
  return std::chrono::seconds(text ? std::atoi(text) : 30);
}

/// A chunk of a message from one process to another, until it is received.
struct Mailbox {
  std::atomic<int> full;
  size_t bytes, total;  // of the chunk; of the message
  char data[room];
};
struct Segment {
  std::atomic<int> claimed[most_ranks], came, broken;
  std::atomic<int> connects[most_ranks][most_ranks];  // rank, peer: has sent or received
  Mailbox boxes[most_ranks][most_ranks];              // from, to
};

thread_local std::string last;
Result tell(Result result, const std::string& text) {
  last = text;
  return result;
}

struct Message {
  bool sends;
  int peer;
  char* device;
  size_t bytes, done;
  char* pinned;
};

}  // namespace

struct ncclComm {
  Segment* segment;
  std::string name;
  int rank, size, runs = 0;
  bool joined = false, waits = false;  // waits: the group waits for its peers
  std::atomic<int> state{success};
  std::string why;
  std::vector<Message> group;
  cudaStream_t stream = nullptr;
  struct Batch {
    ncclComm* comm;
    std::vector<Message> messages;
  };
  std::deque<Batch> batches;  // host functions on the stream point to them

  bool fails(const char* call) const {
    const char* const text = std::getenv("NCCL_STAND_IN_FAILS");
    return text && text == std::string(call) + ":" + std::to_string(rank);
  }
  bool connected() const {
    return std::all_of(group.begin(), group.end(),
                       [&](const Message& m) { return segment->connects[m.peer][rank] != 0; });
  }
  void lose(const std::string& text) {
    why = text;
    state = remote_error;
    segment->broken = 1;
  }
  /// Moves a chunk if one is ready and its destination is free.
  void move(Message& m) {
    Mailbox& box = m.sends ? segment->boxes[rank][m.peer] : segment->boxes[m.peer][rank];
    if (box.full.load(std::memory_order_acquire) == int(m.sends)) return;
    if (m.sends) {
      box.total = m.bytes;
      box.bytes = std::min(room, m.bytes - m.done);
      std::memcpy(box.data, m.pinned + m.done, box.bytes);
    } else if (box.total != m.bytes) {
      return lose("rank " + std::to_string(m.peer) + " sends " + std::to_string(box.total) +
                  " bytes to rank " + std::to_string(rank) + ", which expects " +
                  std::to_string(m.bytes));
    } else {
      std::memcpy(m.pinned + m.done, box.data, box.bytes);
    }
    m.done += box.bytes;
    box.full.store(m.sends ? 1 : 0, std::memory_order_release);
  }
  void run(std::vector<Message>& messages) {
    if (++runs == 2 && fails("stop")) ::raise(SIGSTOP);
    bool open = true;
    size_t moved = 0;
    auto last_moved = Clock::now();
    while (open && state == success && !segment->broken) {
      open = false;
      size_t done = 0;
      for (Message& m : messages) {
        if (m.done < m.bytes) move(m);
        open = open || m.done < m.bytes;
        done += m.done;
      }
      if (done != moved) {
        moved = done;
        last_moved = Clock::now();
      } else if (open && state == success && Clock::now() - last_moved > patience()) {
        lose("a peer of rank " + std::to_string(rank) + " does not come");
      }
      if (open) ::sched_yield();
    }
    if (open && state == success) lose("another rank has failed");
  }
};

namespace {

void exchange(void* data) {
  auto* const batch = static_cast<ncclComm::Batch*>(data);
  batch->comm->run(batch->messages);
}

// Queues the group on the stream.
int queue(ncclComm* comm) {
  comm->batches.push_back({comm, std::move(comm->group)});
  comm->group.clear();
  ncclComm::Batch& batch = comm->batches.back();
  bool good = true;
  for (Message& m : batch.messages) {
    good = good && cudaMallocHost(reinterpret_cast<void**>(&m.pinned), m.bytes) == cudaSuccess;
    if (good && m.sends)
      good = cudaMemcpyAsync(m.pinned, m.device, m.bytes, cudaMemcpyDeviceToHost, comm->stream) ==
             cudaSuccess;
  }
  good = good && cudaLaunchHostFunc(comm->stream, exchange, &batch) == cudaSuccess;
  for (const Message& m : batch.messages)
    if (good && !m.sends)
      good = cudaMemcpyAsync(m.device, m.pinned, m.bytes, cudaMemcpyHostToDevice, comm->stream) ==
             cudaSuccess;
  return good ? success : tell(unhandled_cuda, "a copy to or from the host");
}

// Queues the group when all its peers have called.
int connect(ncclComm* comm) {
  if (comm->fails("stop-connect")) ::raise(SIGSTOP);
  for (const Message& m : comm->group) comm->segment->connects[comm->rank][m.peer] = 1;
  comm->waits = !comm->connected();
  return comm->waits ? in_progress : queue(comm);
}

// The state of the call that has returned "in progress".
int progress(ncclComm* comm) {
  if (comm->state == success && !comm->joined) {
    if (comm->segment->broken)
      comm->lose("another rank has failed");
    else if (comm->segment->came < comm->size)
      return in_progress;
    else
      comm->joined = true;
    if (comm->rank == 0) ::shm_unlink(comm->name.c_str());
  }
  if (comm->state == success && comm->waits) {
    if (!comm->connected()) return in_progress;
    comm->waits = false;
    return queue(comm);
  }
  return comm->state;
}

int depth = 0;
std::vector<ncclComm*> open_groups;

int add(ncclComm* comm, Message m, cudaStream_t stream, const char* call) {
  if (m.peer < 0 || m.peer >= comm->size || m.peer == comm->rank)
    return tell(invalid_argument, "rank " + std::to_string(m.peer) + " of " +
                                      std::to_string(comm->size) + " is no peer");
  if (comm->fails(call)) return tell(system_error, "the stand-in was told to fail");
  if (comm->state != success) return tell(remote_error, comm->why);
  if (!comm->joined || comm->waits) return tell(invalid_usage, "the call before is in progress");
  if (!comm->group.empty() && comm->stream != stream)
    return tell(invalid_usage, "two streams in a group");
  comm->stream = stream;
  comm->group.push_back(m);
  if (depth == 0) return connect(comm);
  if (open_groups.empty() || open_groups.back() != comm) open_groups.push_back(comm);
  return success;
}

}  // namespace

extern "C" {

struct ncclUniqueId {
  char internal[128];
};
struct ncclConfig {
  size_t size;
  unsigned magic, version;
  int blocking;
};

int ncclGetVersion(int* version) {
  *version = 22800;
  return success;
}

int ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 0, sizeof *id);
  static int count = 0;
  std::snprintf(id->internal, sizeof id->internal, "/stretto-nccl-%d-%d", int(::getpid()), count++);
  const int file = ::shm_open(id->internal, O_CREAT | O_EXCL | O_RDWR, 0600);
  if (file < 0 || ::ftruncate(file, sizeof(Segment)) != 0)
    return tell(system_error, "no shared memory");
  ::close(file);  // zeros: no process has arrived
  return success;
}

int ncclCommInitRankConfig(ncclComm** made, int size, ncclUniqueId id, int rank,
                           const ncclConfig* config) {
  if (size < 1 || size > most_ranks || rank < 0 || rank >= size)
    return tell(invalid_argument, "rank " + std::to_string(rank) + " of " + std::to_string(size));
  if (config->size < sizeof *config || config->magic != 0xcafebeef || config->version < 21400 ||
      config->blocking != 0)
    return tell(invalid_argument, "a configuration that blocks, or is older than 2.14");
  const int file = ::shm_open(id.internal, O_RDWR, 0600);
  void* const at =
      file < 0 ? MAP_FAILED
               : ::mmap(nullptr, sizeof(Segment), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file >= 0) ::close(file);
  if (at == MAP_FAILED) return tell(system_error, "no such id");
  auto* const segment = static_cast<Segment*>(at);
  auto comm = new ncclComm;
  comm->segment = segment, comm->name = id.internal, comm->rank = rank, comm->size = size;
  if (comm->fails("stop-init")) ::raise(SIGSTOP);
  const bool twice = segment->claimed[rank].exchange(1) != 0, fails = comm->fails("init");
  if (!twice && !fails) {
    ++segment->came;
    *made = comm;
    return in_progress;
  }
  segment->broken = 1;
  delete comm;
  ::munmap(at, sizeof(Segment));
  return twice ? tell(invalid_usage, "two processes are rank " + std::to_string(rank))
               : tell(system_error, "the stand-in was told to fail");
}

int ncclCommAbort(ncclComm* comm) {
  comm->state = remote_error;  // functions that wait on the stream give up
  cudaStreamSynchronize(comm->stream);
  if (!comm->joined) ::shm_unlink(comm->name.c_str());
  for (const auto& batch : comm->batches)
    for (const Message& m : batch.messages) cudaFreeHost(m.pinned);
  ::munmap(comm->segment, sizeof(Segment));
  delete comm;
  return success;
}

int ncclCommGetAsyncError(ncclComm* comm, int* state) {
  *state = progress(comm);
  if (comm->state != success) last = comm->why;
  return success;
}
const char* ncclGetErrorString(int result) {
  switch (result) {
    case success:
      return "no error";
    case unhandled_cuda:
      return "unhandled cuda error";
    case system_error:
      return "unhandled system error";
    case invalid_argument:
      return "invalid argument";
    case invalid_usage:
      return "invalid usage";
    default:
      return "remote process exited or there was a network error";
  }
}
const char* ncclGetLastError(ncclComm*) { return last.c_str(); }

int ncclSend(const void* from, size_t n, int type, int peer, ncclComm* comm, cudaStream_t stream) {
  if (!comm || type != int8 || !from) return tell(invalid_argument, "ncclSend");
  char* const device = const_cast<char*>(static_cast<const char*>(from));
  return add(comm, {true, peer, device, n, 0, nullptr}, stream, "send");
}
int ncclRecv(void* to, size_t n, int type, int peer, ncclComm* comm, cudaStream_t stream) {
  if (!comm || type != int8 || !to) return tell(invalid_argument, "ncclRecv");
  return add(comm, {false, peer, static_cast<char*>(to), n, 0, nullptr}, stream, "recv");
}
int ncclGroupStart() {
  ++depth;
  return success;
}
int ncclGroupEnd() {
  if (depth == 0) return tell(invalid_usage, "ncclGroupEnd without ncclGroupStart");
  if (--depth > 0) return success;
  int result = success;
  for (ncclComm* comm : open_groups)
    if (const int one = connect(comm); one != success) result = one;
  open_groups.clear();
  return result;
}

}  // extern "C"
