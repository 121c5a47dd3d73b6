// Memory that a thread reuses for its products and convolutions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stretto::kernels {

/// Memory of a thread: use it for thread_local variables only. Has no destructor, so that products
/// in destructors of static objects find it valid; it is freed at the end of its thread.
class Workspace {
 public:
  /// Returns memory for `count` elements, aligned to 64 bytes and uninitialized. Invalidates the
  /// memory returned before. Throws OutOfMemory.
  template <class T>
  T* reserve(int64_t count) {
    const size_t bytes = size_t(count) * sizeof(T);
    if (bytes > size_) grow(bytes);
    return static_cast<T*>(memory_);
  }

 private:
  friend struct FreeWorkspaces;
  void grow(size_t bytes);
  void release();

  void* memory_ = nullptr;
  size_t size_ = 0;
  bool listed_ = false;  // in the list of the thread's workspaces
  Workspace* next_ = nullptr;
};

}  // namespace stretto::kernels
