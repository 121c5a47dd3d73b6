#include "nn/training/captured_step.h"

#include <utility>

#include "core/gpu_runtime.h"

namespace stretto::nn {

// The graph is destroyed before the memory pool that it uses.
struct CapturedStep::Captured {
  explicit Captured(Device device) : pool(device), graph(cuda::begin_capture(device.index)) {}
  ~Captured() { cuda::destroy(graph); }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  const MemoryPool pool;
  cuda::Graph* const graph;
  Tensor result;
};

CapturedStep::CapturedStep(Device device, Step step, int warmup)
    : device_(device), step_(std::move(step)), warmup_(warmup) {
  check(warmup >= 1, "CapturedStep", warmup, " warmup calls; must be at least 1, which creates ",
        "the state that replays use");
}

CapturedStep::~CapturedStep() = default;

bool CapturedStep::captured(int64_t key) const {
  const auto at = graphs_.find(key);
  return at != graphs_.end() && at->second.graph;
}

Tensor CapturedStep::operator()(int64_t key) {
  if (device_.is_cpu() || key < 0) return step_();
  if (!graphs_.contains(key)) {
    if (graphs_.size() == max_graphs) return step_();
    graphs_.emplace(key, Graph{warmup_, nullptr});
  }
  Graph& current = graphs_.at(key);
  if (current.warmup > 0) {
    --current.warmup;
    return step_();
  }
  if (!current.graph) {
    auto capture = std::make_unique<Captured>(device_);
    const MemoryPool::Use use(capture->pool);
    capture->result = step_();
    cuda::end_capture(capture->graph);
    current.graph = std::move(capture);
  }
  cuda::replay(current.graph->graph);
  return current.graph->result;
}

}  // namespace stretto::nn
