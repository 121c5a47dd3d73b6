// Storage: one block of memory on a device, shared by all tensors that view it; and the caching
// allocator of these blocks.
//
// The allocator rounds a request up, so that few distinct sizes exist: to a multiple of 64 bytes
// (up to 512 bytes), or of an eighth of the power of two below the request. A freed block goes to
// the free list of its size. CPU blocks are aligned to 64 bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "device.h"
#include "thread_state.h"

namespace stretto {

class PoolBlocks;  // core/storage.cpp

/// The memory of a device's allocator, in bytes.
struct MemoryStats {
  int64_t live = 0;           ///< Requested bytes that are in use now.
  int64_t peak = 0;           ///< Maximum of `live` since the last reset.
  int64_t cached = 0;         ///< Bytes of freed blocks that can be reused.
  int64_t limit = INT64_MAX;  ///< Maximum taken from the system (set_memory_limit()).
  int64_t allocations = 0;    ///< The number of requests since the start.
};

/// Returns the statistics of a device's allocator.
MemoryStats memory_stats(Device device = default_device());
/// Sets `peak` to `live`.
void reset_peak_memory(Device device = default_device());

/// Caps the bytes taken from the system, in use and cached. A request that exceeds the cap throws
/// OutOfMemory; everything remains usable. Freeing neither allocates nor throws. Only tensors
/// count: tape nodes, names and error texts come from `new`, so when memory runs out any call may
/// throw std::bad_alloc instead.
void set_memory_limit(int64_t bytes, Device device = default_device());

/// Returns cached blocks to the system and drops the cached tables of a GPU (core/device_table.h).
void release_cached_memory(Device device = default_device());

/// Memory of a device that is separate from other allocations, for tensors whose addresses must
/// stay valid (CUDA graphs). Freed blocks are reused only for requests to this pool, until the pool
/// and all its tensors are gone. All its blocks count as live.
class MemoryPool {
 public:
  /// Makes an empty pool.
  explicit MemoryPool(Device device);
  /// Returns the device.
  Device device() const;

  /// A scope in which this thread's new tensors on the pool's device are allocated in the pool.
  class Use {
   public:
    /// Starts the scope.
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

/// A block of memory that tensors share.
struct Storage {
  /// Allocates a block; throws OutOfMemory.
  Storage(int64_t bytes, Device device);
  /// Refers to memory of another owner, which memory_stats() does not count. `give_back` is called
  /// when the last tensor that views the memory is gone; it must not throw.
  Storage(void* memory, int64_t n, Device where, std::function<void()> give_back);
  /// Refers to the memory of `of`, or of the storage that `of` is a part of: for a tensor whose
  /// elements no other tensor has, so that in-place changes of others do not concern it.
  explicit Storage(const std::shared_ptr<Storage>& of);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  /// True if the memory belongs to another owner, who may read and write it too.
  bool is_borrowed() const { return whole ? whole->is_borrowed() : bool(release); }

  void* data = nullptr;  ///< The first byte; null if `bytes` is 0.
  int64_t bytes = 0;     ///< The requested size.
  Device device;         ///< The device of the memory.
  /// Incremented by every in-place change through any view, so that the tape detects that a saved
  /// tensor was overwritten.
  uint32_t version = 0;
  /// The run of recompute() in which the storage was made; 0 if outside of any run.
  uint64_t scope = thread_state.scope;
  std::shared_ptr<PoolBlocks> pool;  ///< The pool of the block; null for the allocator.
  std::function<void()> release;     ///< Returns memory of another owner; else empty.
  std::shared_ptr<Storage> whole;    ///< The owner of the memory of a part; else null.
};

/// Copies bytes between any two devices. When it returns, the source may be overwritten.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes);

}  // namespace stretto
