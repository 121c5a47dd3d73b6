#include "cuda/runtime/capture.h"

#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/gpu_runtime.h"
#include "core/storage.h"
#include "cuda/runtime/reports.h"

namespace stretto::cuda {

struct Graph {
  static constexpr int64_t block_bytes = 65536;
  struct Value {
    int64_t at;
    std::function<void(void*)> fill;
  };

  explicit Graph(int d)
      : device(d),
        on(stream(d)),
        block(block_bytes, Device(DeviceType::cuda, d)),
        host(size_t(block_bytes)) {}

  const int device;
  const cudaStream_t on;
  Storage block;           // values that kernels read again in each replay
  std::vector<char> host;  // what the block holds next
  int64_t used = 0;
  std::vector<std::function<void()>> before;
  std::vector<Value> values;
  RandomState first;     // at the beginning of the capture
  uint64_t streams = 0;  // handed out during the capture
  const uint64_t* later = nullptr;
  cudaGraphExec_t exec = nullptr;
};

namespace {

thread_local Graph* active = nullptr;

// Memory freed by any thread while a step is captured on the device: cudaFree
// would break the capture.
struct Freed {
  std::mutex mutex;
  bool under_way = false;
  std::vector<void*> blocks;
};
Freed& freed(int device) {
  static auto* all = new std::array<Freed, max_gpus>;  // never destroyed, like the streams
  return all->at(size_t(device));
}

void begin_exclusive(int device) {
  own_stream(device);
  const std::lock_guard lock(freed(device).mutex);
  freed(device).under_way = true;
}
void end_exclusive(int device) noexcept {
  share_stream(device);
  const std::lock_guard lock(freed(device).mutex);
  freed(device).under_way = false;
  for (void* block : std::exchange(freed(device).blocks, {})) cudaFree(block);
}

}  // namespace

Graph* begin_capture(int device) {
  check(!active, "graph", "a capture within a capture");
  auto graph = std::make_unique<Graph>(device);
  // Relaxed: the allocator may allocate memory. refuse_in_capture() rejects
  // what cannot be replayed.
  graph->first = random_state();
  ready_reports(device);
  begin_exclusive(device);
  const cudaError_t begun = cudaStreamBeginCapture(graph->on, cudaStreamCaptureModeRelaxed);
  if (begun != cudaSuccess) end_exclusive(device);
  check_call(begun, "cudaStreamBeginCapture");
  active = graph.get();
  return graph.release();
}

void end_capture(Graph* graph) {
  active = nullptr;
  cudaGraph_t made = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(graph->on, &made);
  end_exclusive(graph->device);
  graph->streams = random_state().next_stream - graph->first.next_stream;
  set_random_state(graph->first);  // the captured step has drawn no random numbers yet
  check_call(ended, "cudaStreamEndCapture");
  const cudaError_t error = cudaGraphInstantiate(&graph->exec, made, 0);
  cudaGraphDestroy(made);
  check_call(error, "cudaGraphInstantiate");
}

void replay(Graph* graph) {
  const RandomState now = random_state();
  check(now.seed == graph->first.seed, "graph", "the seed was set after the capture");
  for (const auto& f : graph->before) f();
  for (const Graph::Value& value : graph->values) value.fill(graph->host.data() + value.at);
  copy(graph->block.data, graph->block.device, graph->host.data(), cpu, graph->used);
  STRETTO_CUDA(cudaGraphLaunch(graph->exec, stream(graph->device)));
  queued("graph", graph->device);
  set_random_state({now.seed, now.next_stream + graph->streams});
}

void destroy(Graph* graph) noexcept {
  if (active == graph) {  // the captured step has thrown
    active = nullptr;
    cudaGraph_t made = nullptr;
    cudaStreamEndCapture(graph->on, &made);
    end_exclusive(graph->device);
    if (made) cudaGraphDestroy(made);
    cudaGetLastError();
    set_random_state(graph->first);
  }
  if (graph->exec) cudaGraphExecDestroy(graph->exec);
  delete graph;
}

bool capturing(int device) { return active && active->device == device; }

bool capture_under_way(int device) {
  Freed& own = freed(device);
  const std::lock_guard lock(own.mutex);
  return own.under_way;
}

void before_replay(int device, std::function<void()> f) {
  check(capturing(device), "graph", "no capture is under way");
  active->before.push_back(std::move(f));
}

void* refilled_on_replay(int device, int64_t bytes, std::function<void(void* host)> fill) {
  if (!capturing(device)) return nullptr;
  const int64_t at = (active->used + 15) / 16 * 16;
  check(at + bytes <= Graph::block_bytes, "graph", "more than ", Graph::block_bytes,
        " bytes change from step to step");
  active->used = at + bytes;
  active->values.push_back({at, std::move(fill)});
  return static_cast<char*>(active->block.data) + at;
}

DrawKey draw_key(RandomKey key, int device) {
  if (!capturing(device)) return {key};
  Graph* const graph = active;
  if (!graph->later)
    graph->later = static_cast<const uint64_t*>(
        refilled_on_replay(device, sizeof(uint64_t), [graph](void* host) {
          const uint64_t later = random_state().next_stream - graph->first.next_stream;
          std::memcpy(host, &later, sizeof later);
        }));
  return {key, graph->later};
}

bool free_later(void* block, int device) {
  const std::lock_guard lock(freed(device).mutex);
  if (freed(device).under_way) freed(device).blocks.push_back(block);
  return freed(device).under_way;
}

void refuse_in_capture(const char* what, int device) {
  check(!capturing(device), "graph", what, " in a captured step; a replay could not repeat it");
}

}  // namespace stretto::cuda
