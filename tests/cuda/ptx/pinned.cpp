// Pinned host memory. While a copy from or to it is in flight its pages are protected, so that a
// program that changes the source, or reads the result, too early is caught.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "streams.h"

namespace interpreter {
namespace {

constexpr u64 page = 4096;

std::map<u64, u64>& blocks() {
  static auto* all = new std::map<u64, u64>;
  return *all;
}

struct Pending {
  u64 at, bytes;
  bool writes;
};
constexpr int most = 4096;
Pending pending[most];  // read in a signal handler
std::atomic<int> pending_count = 0;
struct sigaction before;

void protect(u64 at, u64 bytes, int protection) {
  const u64 first = at / page * page, last = (at + bytes + page - 1) / page * page;
  mprotect(reinterpret_cast<void*>(first), last - first, protection);
}

void caught(int, siginfo_t* info, void*) {
  const u64 address = u64(info->si_addr);
  for (int i = 0; i < pending_count; ++i)
    if (address >= pending[i].at && address - pending[i].at < pending[i].bytes) {
      verdict(std::string("host: ") +
              (pending[i].writes
                   ? "memory of the host is used before the copy to it is done, at "
                   : "memory of the host is changed before the copy from it is done, at ") +
              hex(address) + ", byte " + std::to_string(address - pending[i].at) +
              " of a copy of " + std::to_string(pending[i].bytes));
      _exit(verdict_status);
    }
  for (const auto& [at, bytes] : blocks())
    if (address >= at && address < at + (bytes + page - 1) / page * page) {
      protect(address, 1, PROT_READ | PROT_WRITE);  // a neighbor on the same page
      return;
    }
  sigaction(SIGSEGV, &before, nullptr);  // not ours: repeat the access without this handler
}

// Called each time: a test framework may have replaced the handler since.
void watch_signal() {
  struct sigaction now = {};
  sigaction(SIGSEGV, nullptr, &now);
  if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == caught) return;
  before = now;
  now = {};
  now.sa_sigaction = caught;
  now.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &now, nullptr);
}

}  // namespace

void* allocate_pinned(u64 bytes) {
  const u64 room = (bytes + page - 1) / page * page;
  void* p = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  blocks()[u64(p)] = bytes;
  return p;
}

bool free_pinned(void* p) {
  const auto it = blocks().find(u64(p));
  if (it == blocks().end()) return false;
  for (int i = 0; i < pending_count; ++i)
    if (pending[i].at >= it->first && pending[i].at < it->first + it->second)
      verdict("host: pinned memory is freed before its copy is done, " +
              std::to_string(pending[i].bytes) + " bytes at " + hex(pending[i].at));
  munmap(p, (it->second + page - 1) / page * page);
  blocks().erase(it);
  return true;
}

bool is_pinned(const void* p, u64 bytes) {
  auto it = blocks().upper_bound(u64(p));
  if (it == blocks().begin()) return false;
  --it;
  return u64(p) - it->first + bytes <= it->second;
}

void hold_pinned(const void* p, u64 bytes, bool writes) {
  if (pending_count == most || bytes == 0) return;
  watch_signal();
  pending[pending_count] = {u64(p), bytes, writes};
  ++pending_count;
  protect(u64(p), bytes, writes ? PROT_NONE : PROT_READ);
}
void open_all_pinned() {
  for (int i = 0; i < pending_count; ++i)
    protect(pending[i].at, pending[i].bytes, PROT_READ | PROT_WRITE);
}
void close_all_pinned() {
  for (int i = 0; i < pending_count; ++i)
    protect(pending[i].at, pending[i].bytes, pending[i].writes ? PROT_NONE : PROT_READ);
}
void open_pinned(const void* p, u64 bytes) { protect(u64(p), bytes, PROT_READ | PROT_WRITE); }
void release_pinned(const void* p, u64 bytes) {
  for (int i = 0; i < pending_count; ++i)
    if (pending[i].at == u64(p) && pending[i].bytes == bytes) {
      std::copy(pending + i + 1, pending + pending_count, pending + i);
      --pending_count;
      break;
    }
  protect(u64(p), std::max<u64>(bytes, 1), PROT_READ | PROT_WRITE);
  close_all_pinned();  // others on the same pages
}

}  // namespace interpreter
