// The runtime's calls for streams, events, graphs and pinned memory.
#include <cuda_runtime_api.h>

#include "streams.h"

using namespace interpreter;

namespace {

cudaError_t result(int e) { return cudaError_t(set_error(e)); }
using Lock = std::lock_guard<std::recursive_mutex>;
Event& event_of(cudaEvent_t e) { return *reinterpret_cast<Event*>(e); }

}  // namespace

extern "C" {

// ---- streams

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) {
  Lock lock(runtime_mutex());
  *s = reinterpret_cast<cudaStream_t>(create_stream((flags & cudaStreamNonBlocking) == 0));
  return result(lost());
}
cudaError_t cudaStreamCreate(cudaStream_t* s) { return cudaStreamCreateWithFlags(s, 0); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned flags, int) {
  return cudaStreamCreateWithFlags(s, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  Lock lock(runtime_mutex());
  if (!known(reinterpret_cast<Stream*>(s))) return result(invalid_handle);
  destroy(reinterpret_cast<Stream*>(s));
  return result(lost());
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  Lock lock(runtime_mutex());
  ++traffic().synchronizations;
  Stream& s = stream_of(handle);
  if (s.capture) return result(refuse_in_capture("cudaStreamSynchronize"));
  return result(synchronize(s, s.submitted));
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  Lock lock(runtime_mutex());
  Stream& s = stream_of(handle);
  if (s.capture) return result(refuse_in_capture("cudaStreamQuery"));
  if (!ready(s)) return cudaErrorNotReady;     // which is not a last error
  return result(synchronize(s, s.submitted));  // otherwise polling would never make progress
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t e, unsigned) {
  Lock lock(runtime_mutex());
  Stream& s = stream_of(handle);
  if (s.capture ||
      (event_of(e).stream && known(event_of(e).stream) && event_of(e).stream->capture)) {
    if (event_of(e).stream == &s) return cudaSuccess;
    return result(refuse_in_capture("a capture of several streams"));
  }
  if (event_of(e).captured) return result(captured_event);
  wait(s, event_of(e));
  return result(lost());
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void* data) {
  return result(submit(s, "a function of the host", [=] {
    open_all_pinned();
    f(data);
    close_all_pinned();
  }));
}

// ---- events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) {
  *e = reinterpret_cast<cudaEvent_t>(new Event);
  return result(lost());
}
cudaError_t cudaEventCreate(cudaEvent_t* e) { return cudaEventCreateWithFlags(e, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  delete reinterpret_cast<Event*>(e);
  return result(lost());
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t handle) {
  Lock lock(runtime_mutex());
  Stream& s = stream_of(handle);
  event_of(e) = {&s, s.submitted, s.capture != nullptr};
  return result(lost());
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned) {
  return cudaEventRecord(e, s);
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  Lock lock(runtime_mutex());
  ++traffic().synchronizations;
  if (const int error = refuse_in_capture("cudaEventSynchronize")) return cudaError_t(error);
  const Event& event = event_of(e);
  if (event.captured) return result(captured_event);
  if (!event.stream || !known(event.stream)) return result(lost());
  return result(synchronize(*event.stream, event.position));
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  --traffic().synchronizations;
  return cudaEventSynchronize(e);
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  *ms = 1;  // time has no meaning here
  return result(lost());
}

// ---- capture and graphs

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  Lock lock(runtime_mutex());
  Stream& s = stream_of(handle);
  if (s.id == 0) return result(capture_unsupported);
  if (s.capture) return result(capture_unsupported);
  s.capture = std::make_unique<Graph>();
  s.capture->relaxed = mode == cudaStreamCaptureModeRelaxed;
  return result(lost());
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  Lock lock(runtime_mutex());
  Stream& s = stream_of(handle);
  *graph = nullptr;
  if (!s.capture) return result(invalid_value);
  std::unique_ptr<Graph> captured = std::move(s.capture);
  if (captured->broken) return result(capture_invalidated);
  *graph = reinterpret_cast<cudaGraph_t>(captured.release());
  return result(lost());
}
cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  const Stream& s = stream_of(handle);
  *status = !s.capture          ? cudaStreamCaptureStatusNone
            : s.capture->broken ? cudaStreamCaptureStatusInvalidated
                                : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = reinterpret_cast<cudaGraphExec_t>(new Graph(*reinterpret_cast<Graph*>(graph)));
  return result(lost());
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                          unsigned long long flags) {
  return cudaGraphInstantiate(exec, graph, flags);
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* n) {
  if (nodes) return result(invalid_value);
  *n = reinterpret_cast<Graph*>(graph)->works.size();
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return result(lost()); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  Lock lock(runtime_mutex());
  for (const Work& work : reinterpret_cast<Graph*>(exec)->works)
    if (const int error = submit(stream_of(stream), work)) return result(error);
  return result(lost());
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete reinterpret_cast<Graph*>(exec);
  return result(lost());
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<Graph*>(graph);
  return result(lost());
}

// ---- pinned memory

cudaError_t cudaHostAlloc(void** p, size_t n, unsigned) {
  Lock lock(runtime_mutex());
  if (const int e = refuse_in_capture("cudaHostAlloc", true)) return cudaError_t(e);
  *p = allocate_pinned(n);
  return *p ? result(lost()) : result(out_of_memory);
}
cudaError_t cudaMallocHost(void** p, size_t n) { return cudaHostAlloc(p, n, 0); }
cudaError_t cudaFreeHost(void* p) {
  Lock lock(runtime_mutex());
  if (const int e = refuse_in_capture("cudaFreeHost")) return cudaError_t(e);
  return result(!p || free_pinned(p) ? lost() : int(invalid_value));
}

}  // extern "C"
