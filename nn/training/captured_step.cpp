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

CapturedStep::CapturedStep(Device device, Step step, int eager)
    : device_(device), step_(std::move(step)), eager_(eager) {
  check(eager >= 1, "CapturedStep", eager, " eager calls; needs at least 1, which makes what a ",
        "replay only reads");
}

CapturedStep::~CapturedStep() = default;

bool CapturedStep::captured(int64_t kind) const {
  const auto at = kinds_.find(kind);
  return at != kinds_.end() && at->second.graph;
}

Tensor CapturedStep::operator()(int64_t kind) {
  if (device_.is_cpu() || kind < 0) return step_();
  if (!kinds_.contains(kind)) {
    if (kinds_.size() == most_kinds) return step_();
    kinds_.emplace(kind, Kind{eager_, nullptr});
  }
  Kind& own = kinds_.at(kind);
  if (own.eager > 0) {
    --own.eager;
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
