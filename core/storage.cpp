#include "core/storage.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <string_view>
#include <vector>

#include "core/device_table.h"
#include "core/gpu_runtime.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace stretto {
namespace {

// True if STRETTO_ALLOC=exact: every request gets its own block of exactly its size, released to
// the system when freed, and new CPU memory is filled with NaN. AddressSanitizer, compute-sanitizer
// and the PTX interpreter then detect invalid reads and writes.
bool exact() {
  static const bool set = [] {
    const char* text = std::getenv("STRETTO_ALLOC");
    check(!text || !*text || std::string_view(text) == "exact", "allocate", "STRETTO_ALLOC is \"",
          text, "\"; it must be exact, or not be set");
    return text && *text;
  }();
  return set;
}

int64_t rounded(int64_t bytes) {
  if (exact()) return bytes;
  if (bytes <= 512) return std::max<int64_t>((bytes + 63) / 64 * 64, 64);
  const int64_t step = int64_t(std::bit_floor(uint64_t(bytes))) / 8;
  return (bytes + step - 1) & -step;  // a power of two
}

// Large blocks use huge pages if the system has them: far fewer page faults on first use, and far
// fewer TLB misses when memory is streamed.
constexpr int64_t huge_page = int64_t(1) << 21;

void* system_allocate(int64_t bytes, Device device) {
  if (device.is_cuda()) return cuda::allocate(bytes, device.index);
  const bool huge = !exact() && bytes >= 4 * huge_page;
  void* block = nullptr;
  if (posix_memalign(&block, huge ? size_t(huge_page) : 64, size_t(bytes)) != 0) return nullptr;
  if (exact()) return std::memset(block, 0xff, size_t(bytes));
#if defined(__linux__)
  // Requests huge pages only for the whole huge pages inside the request, so that no memory beyond
  // the request is committed. Ignored if the system has no huge pages.
  if (huge) madvise(block, size_t(bytes / huge_page * huge_page), MADV_HUGEPAGE);
#endif
  return block;
}

void system_free(void* block, Device device) {
  if (device.is_cuda()) {
    cuda::free(block, device.index);
  } else {
    std::free(block);
  }
}

class Allocator {
 public:
  explicit Allocator(Device device) : device_(device) {}
  ~Allocator() {
    if (device_.is_cpu()) release();  // the CUDA context may be gone; the driver frees its memory
  }

  void* allocate(int64_t request) {
    if (void* block = take(request)) return block;
    drop_tables(device_);  // without the lock, which free() needs
    if (void* block = take(request)) return block;
    const MemoryStats now = stats();
    throw OutOfMemory(
        str("[allocate] out of memory on ", device_, ": ", rounded(request), " bytes requested, ",
            now.live, " in use, limit ",
            now.limit == INT64_MAX ? std::string("none") : std::to_string(now.limit)));
  }

  // Called by destructors, also after memory has run out: must not allocate. grow() has reserved
  // the capacity of the free list.
  void free(void* block, int64_t request) noexcept {
    const int64_t bytes = rounded(request);
    std::lock_guard lock(mutex_);
    stats_.live -= request;
    const auto size = sizes_.find(bytes);
    if (!exact()) {
      stats_.cached += bytes;
      size->second.free.push_back(block);
      return;
    }
    held_ -= bytes;
    if (--size->second.count == 0) sizes_.erase(size);
    try {
      system_free(block, device_);
    } catch (const Error&) {  // the device failed; its memory is lost anyway
    }
  }

  void release() {
    std::lock_guard lock(mutex_);
    release_unlocked();
  }

  MemoryStats stats() {
    std::lock_guard lock(mutex_);
    return stats_;
  }
  void reset_peak() {
    std::lock_guard lock(mutex_);
    stats_.peak = stats_.live;
  }
  void set_limit(int64_t bytes) {
    std::lock_guard lock(mutex_);
    stats_.limit = bytes;
    if (held_ > bytes) release_unlocked();
  }

 private:
  // The blocks of one size: their number, and the free ones, with capacity for all.
  struct Blocks {
    size_t count = 0;
    std::vector<void*> free;
  };

  // Returns null if there is too little memory even without the cached blocks.
  void* take(int64_t request) {
    const int64_t bytes = rounded(request);
    std::lock_guard lock(mutex_);
    void* block = nullptr;
    if (auto it = sizes_.find(bytes); it != sizes_.end() && !it->second.free.empty()) {
      block = it->second.free.back();
      it->second.free.pop_back();
      stats_.cached -= bytes;
    } else {
      block = grow(bytes);
      if (!block) {
        release_unlocked();
        block = grow(bytes);
      }
      if (!block) return nullptr;
    }
    stats_.live += request;
    stats_.peak = std::max(stats_.peak, stats_.live);
    ++stats_.allocations;
    return block;
  }

  void* grow(int64_t bytes) {
    if (bytes > stats_.limit - held_) return nullptr;
    Blocks* blocks = nullptr;
    try {
      blocks = &sizes_[bytes];
      if (blocks->free.capacity() == blocks->count)
        blocks->free.reserve(std::max<size_t>(8, 2 * blocks->count));
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
    void* block = system_allocate(bytes, device_);
    if (!block) return nullptr;
    ++blocks->count;
    held_ += bytes;
    return block;
  }

  // Updates the counts before freeing a block, because freeing throws on a device lost to a fault.
  // Frees nothing while any thread captures a graph: that would synchronize.
  void release_unlocked() {
    if (device_.is_cuda() && cuda::capture_under_way(device_.index)) return;
    if (device_.is_cuda() && stats_.cached > 0) cuda::synchronize(device_.index);
    for (auto it = sizes_.begin(); it != sizes_.end();) {
      auto& [bytes, blocks] = *it;
      while (!blocks.free.empty()) {
        void* block = blocks.free.back();
        blocks.free.pop_back();
        --blocks.count;
        stats_.cached -= bytes;
        held_ -= bytes;
        system_free(block, device_);
      }
      it = blocks.count == 0 ? sizes_.erase(it) : std::next(it);
    }
  }

  Device device_;
  std::mutex mutex_;
  std::map<int64_t, Blocks> sizes_;
  int64_t held_ = 0;  // bytes taken from the system: blocks in use and cached
  MemoryStats stats_;
};

Allocator& allocator(Device device) {
  // Must outlive the last static tensor: leaked on purpose, but reachable for leak checkers.
  static auto* all = [] {
    auto* list = new std::vector<std::unique_ptr<Allocator>>;
    list->push_back(std::make_unique<Allocator>(cpu));
    for (int i = 0; i < cuda::max_gpus; ++i)
      list->push_back(std::make_unique<Allocator>(Device(DeviceType::cuda, i)));
    return list;
  }();
  check(device.index >= 0 && device.index < cuda::max_gpus, "Device", "there is no device ",
        device);
  return *(*all)[device.is_cpu() ? 0 : size_t(device.index) + 1];
}

}  // namespace

MemoryStats memory_stats(Device device) { return allocator(device).stats(); }
void reset_peak_memory(Device device) { allocator(device).reset_peak(); }
void set_memory_limit(int64_t bytes, Device device) { allocator(device).set_limit(bytes); }
void release_cached_memory(Device device) {
  drop_tables(device);
  allocator(device).release();
}

// The blocks of a MemoryPool, taken from the device's allocator, by rounded size.
class PoolBlocks {
 public:
  explicit PoolBlocks(Device device) : device_(device) {}
  ~PoolBlocks() {
    for (const auto& [bytes, blocks] : free_)
      for (void* block : blocks)
        if (!is_part(bytes)) allocator(device_).free(block, bytes);
    for (const Divided& block : divided_) allocator(device_).free(block.data, divided_bytes);
  }
  Device device() const { return device_; }

  void* allocate(int64_t request) {
    const int64_t bytes = rounded(request);
    std::unique_lock lock(mutex_);
    std::vector<void*>& blocks = free_[bytes];
    if (!blocks.empty()) {
      void* block = blocks.back();
      blocks.pop_back();
      return block;
    }
    blocks.reserve(size_t(++count_[bytes]));  // so that free() does not allocate
    if (is_part(bytes)) return part(bytes);
    lock.unlock();  // the allocator may drop a table whose memory is from this pool
    return allocator(device_).allocate(bytes);
  }

  void free(void* block, int64_t request) noexcept {
    const std::lock_guard lock(mutex_);
    free_.find(rounded(request))->second.push_back(block);
  }

 private:
  // On the CPU, small blocks are parts of blocks with huge pages, so that many small tensors are read
  // faster.
  static constexpr int64_t divided_bytes = 16 * huge_page;
  bool is_part(int64_t bytes) const {
    return device_.is_cpu() && !exact() && bytes < 4 * huge_page;
  }
  struct Divided {
    char* data;
    int64_t left;  // bytes at its start that are not in use
  };
  void* part(int64_t bytes) {
    auto block = std::find_if(divided_.begin(), divided_.end(),
                              [&](const Divided& d) { return d.left >= bytes; });
    if (block == divided_.end()) {
      divided_.reserve(divided_.size() + 1);
      void* const data = allocator(device_).allocate(divided_bytes);
      divided_.push_back({static_cast<char*>(data), divided_bytes});
      block = divided_.end() - 1;
    }
    block->left -= bytes;
    return block->data + block->left;
  }

  const Device device_;
  std::mutex mutex_;
  std::vector<Divided> divided_;
  std::map<int64_t, std::vector<void*>> free_;
  std::map<int64_t, int64_t> count_;  // the number of blocks of each size, in use or free
};

MemoryPool::MemoryPool(Device device) : blocks_(std::make_shared<PoolBlocks>(device)) {}

Device MemoryPool::device() const { return blocks_->device(); }

MemoryPool::Use::Use(const MemoryPool& pool) : before_(thread_state.pool) {
  thread_state.pool = &pool.blocks_;
}

MemoryPool::Use::~Use() { thread_state.pool = before_; }

Storage::Storage(int64_t n, Device where) : bytes(n), device(where) {
  if (bytes == 0) return;
  if (const auto* active = thread_state.pool; active && (*active)->device() == device) {
    data = (*active)->allocate(bytes);
    pool = *active;
  } else {
    data = allocator(device).allocate(bytes);
  }
}

Storage::Storage(void* memory, int64_t n, Device where, std::function<void()> give_back)
    : data(memory), bytes(n), device(where), release(std::move(give_back)) {}

Storage::Storage(const std::shared_ptr<Storage>& of)
    : data(of->data), bytes(of->bytes), device(of->device), whole(of->whole ? of->whole : of) {}

Storage::~Storage() {
  if (whole) return;
  if (release) {
    release();
    return;
  }
  if (!data) return;
  pool ? pool->free(data, bytes) : allocator(device).free(data, bytes);
}

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes) {
  if (bytes == 0) return;
  if (to_device.is_cpu() && from_device.is_cpu()) {
    std::memcpy(to, from, size_t(bytes));
  } else {
    cuda::copy(to, to_device, from, from_device, bytes);
  }
}

}  // namespace stretto
