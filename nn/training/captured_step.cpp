#include "nn/training/captured_step.h"

#include <utility>

#include "core/gpu_runtime.h"

namespace stretto::nn {

// The memory goes last.
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
  check(warmup >= 1, "CapturedStep", warmup, " warmup calls; needs at least 1, which makes what a ",
        "replay only reads");
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
  Graph& own = graphs_.at(key);
  if (own.warmup > 0) {
    --own.warmup;
    return step_();
  }
  if (!own.graph) {
    auto made = std::make_unique<Captured>(device_);
    const MemoryPool::Use use(made->pool);
    made->result = step_();
    cuda::end_capture(made->graph);
    own.graph = std::move(made);
  }
  cuda::replay(own.graph->graph);
  return own.graph->result;
}

}  // namespace stretto::nn
