// The GPU's runtime, as the rest of the library sees it: devices, memory, copies. Plain functions,
// no CUDA header. cuda/runtime/devices.cu, cuda/runtime/memory.cpp and cuda/runtime/capture.cpp
// implement them, and cuda/none.cpp in a build without CUDA.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "device.h"

namespace stretto::cuda {

/// GPUs of a process that the library can use.
inline constexpr int max_gpus = 16;

/// Usable GPUs; 0 without toolkit, driver or GPU (driver answers 35 and 100 both mean that).
int device_count();
std::string description();

/// nullptr when the device has not that much memory.
void* allocate(int64_t bytes, int device);
void free(void* block, int device);
void copy(void* to, Device to_device, const void* from, Device from_device, int64_t bytes);
void synchronize(int device);

/// Work on a device that was queued once, kept, and is queued again as one launch.
struct Graph;

/// From here to end_capture() this thread's work on the device is kept, not done, and that of
/// other threads is refused. What a replay could not repeat throws: copies from and to the
/// host, waiting. The memory must come from a pool (core/storage.h) that lives as long as
/// the graph.
Graph* begin_capture(int device);
void end_capture(Graph* graph);
/// Queues it, with the random numbers that the program would draw now.
void replay(Graph* graph);
/// Whether this thread is between begin_capture() and end_capture() on the device.
bool capturing(int device);
/// There: what the host does before each replay.
void before_replay(int device, std::function<void()> f);
/// Ends a capture that was begun and not ended, and frees the graph.
void destroy(Graph* graph) noexcept;

}  // namespace stretto::cuda
