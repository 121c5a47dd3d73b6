// Storage: one block of memory on a device, shared by all tensors that view it; and the caching
// allocator that blocks come from.
//
// Policy: a block is the request rounded up to 64 bytes (small ones) or to an eighth of the power
// of two below it, so that few distinct sizes exist; a freed block goes to the free list of its
// size. CPU blocks are aligned to 64 bytes. `live` and `peak` count the bytes that were asked for.
#pragma once

#include <cstdint>
#include <memory>

#include "device.h"
#include "thread_state.h"

namespace stretto {

class PoolBlocks;  // core/storage.cpp

/// What the allocator of a device holds, in bytes. `live` is in use by storages now, `peak` the
/// most that was since the last reset, `cached` is kept for reuse, `limit` caps what is taken from
/// the system.
struct MemoryStats {
  int64_t live = 0;
  int64_t peak = 0;
  int64_t cached = 0;
  int64_t limit = INT64_MAX;
  int64_t allocations = 0;  // requests served since the start
};

MemoryStats memory_stats(Device device = default_device());
void reset_peak_memory(Device device = default_device());

/// Caps the bytes taken from the system (in use and cached). A request beyond it throws
/// OutOfMemory; everything stays usable. Freeing neither allocates nor throws. What is no tensor's
/// memory (a node of the tape, a name, an error's text) comes from `new`, so where memory runs out
/// any call may throw std::bad_alloc instead.
void set_memory_limit(int64_t bytes, Device device = default_device());

/// Returns cached blocks to the system, and the tables that a GPU keeps (core/device_table.h).
void release_cached_memory(Device device = default_device());

/// Memory of a device apart from the rest, for what must keep its place: blocks that are freed
/// serve only this pool's requests, until it and all that it served are gone. They count as in use.
class MemoryPool {
 public:
  explicit MemoryPool(Device device);
  Device device() const;

  /// While it lives, what this thread makes on the pool's device comes from the pool.
  class Use {
   public:
    explicit Use(const MemoryPool& pool);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    const std::shared_ptr<PoolBlocks>* before_;
  };

 private:
  std::shared_ptr<PoolBlocks> blocks_;
};

/// A reference-counted block. `version` grows with every in-place change through any view; the
/// tape uses it to notice that a saved tensor was overwritten.
struct Storage {
  Storage(int64_t bytes, Device device);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data = nullptr;
  int64_t bytes = 0;
  Device device;
  uint32_t version = 0;
  uint64_t scope = thread_state.scope;  // what checkpoint() ran when this was made; 0: nothing
  std::shared_ptr<PoolBlocks> pool;     // where it came from; null: the device's allocator
};

/// Copies bytes between any two devices; returns when the source may be reused.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes);

}  // namespace stretto
