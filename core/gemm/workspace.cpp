#include "core/gemm/workspace.h"

#include <new>
#include <utility>

#include "core/error.h"

namespace stretto::kernels {
namespace {

constinit thread_local Workspace* first = nullptr;  // the list of workspaces that have had memory

}  // namespace

// The destructor runs at the end of a thread; on the main thread before the destructors of static
// objects. Products in those destructors allocate once more, until the program ends.
struct FreeWorkspaces {
  ~FreeWorkspaces() {
    for (Workspace* w = first; w; w = w->next_) w->release();
  }
};

void Workspace::grow(size_t bytes) {
  release();
  memory_ = ::operator new(bytes, std::align_val_t(64), std::nothrow);
  if (!memory_) throw OutOfMemory(str("[gemm] out of memory: ", bytes, " bytes of workspace"));
  size_ = bytes;
  if (std::exchange(listed_, true)) return;
  next_ = std::exchange(first, this);
  static thread_local const FreeWorkspaces at_end;
}

void Workspace::release() {
  ::operator delete(std::exchange(memory_, nullptr), std::align_val_t(64));
  size_ = 0;
}

}  // namespace stretto::kernels
