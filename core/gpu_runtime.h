// The GPU runtime as plain functions, without a CUDA header: devices, memory, copies, graphs.
// Implemented in cuda/runtime/devices.cu, cuda/runtime/memory.cpp and cuda/runtime/capture.cpp; in
// cuda/none.cpp for a build without CUDA.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "device.h"

namespace stretto::cuda {

/// The maximum number of GPUs that one process can use.
inline constexpr int max_gpus = 16;

/// Returns the number of usable GPUs. 0 if the library was built without CUDA, if the driver is
/// missing or too old (cudaErrorInsufficientDriver), or if the GPUs cannot be queried.
int device_count();
/// Implements cuda_description().
std::string description();

/// Returns nullptr if the device has too little free memory.
void* allocate(int64_t bytes, int device);
void free(void* block, int device);
void copy(void* to, Device to_device, const void* from, Device from_device, int64_t bytes);
void synchronize(int device);

/// A captured CUDA graph: work that was queued once and is replayed as one launch.
struct Graph;

/// Starts a capture. Until end_capture() this thread's work on the device is captured instead of
/// run; work of other threads on the device is an error. Work that a replay could not repeat
/// throws: copies from and to the host, and synchronization. Memory must come from a pool
/// (core/storage.h) that lives as long as the graph.
Graph* begin_capture(int device);
/// Ends the capture.
void end_capture(Graph* graph);
/// Queues the graph. Each replay uses new random numbers, computed from the program's random state
/// at the time of the replay.
void replay(Graph* graph);
/// True if this thread is between begin_capture() and end_capture() on the device.
bool capturing(int device);
/// True if any thread is between them.
bool capture_under_way(int device);
/// During a capture: registers a function that the host calls before each replay.
void before_replay(int device, std::function<void()> f);
/// Frees the graph; ends its capture if that is still running.
void destroy(Graph* graph) noexcept;

}  // namespace stretto::cuda
