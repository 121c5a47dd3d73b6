// Streams, events, host memory, graphs.
#include <thread>

#include "faults.h"

namespace {

__global__ void copy(float* to, const float* from) { to[threadIdx.x] = from[threadIdx.x]; }
__global__ void twice(float* x) { x[threadIdx.x] *= 2; }

struct Streams {
  cudaStream_t a, b;
  cudaEvent_t event;
  Streams() {
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  }
};
float* pinned(size_t n) {
  float* p = nullptr;
  cudaMallocHost(reinterpret_cast<void**>(&p), n * sizeof(float));
  for (size_t i = 0; i < n; ++i) p[i] = float(i);
  return p;
}

FINE("two streams with an event between") {
  Streams s;
  Device<float> x(counting<float>(32)), y(32);
  twice<<<1, 32, 0, s.a>>>(x);
  cudaEventRecord(s.event, s.a);
  cudaStreamWaitEvent(s.b, s.event, 0);
  copy<<<1, 32, 0, s.b>>>(y, x);
  cudaStreamSynchronize(s.b);
  expect(y.values()[31] == 62, "the values");
}
FINE("a query finds work unfinished once") {
  Streams s;
  Device<float> x(counting<float>(32));
  expect(cudaStreamQuery(s.a) == cudaSuccess, "a query without work");
  for (int i = 0; i < 2; ++i) {
    twice<<<1, 32, 0, s.a>>>(x);
    expect(cudaStreamQuery(s.a) == cudaErrorNotReady, "the first query");
    expect(cudaGetLastError() == cudaSuccess, "the last error");
    expect(cudaStreamQuery(s.a) == cudaSuccess, "the second query");
  }
  expect(x.values()[31] == 124, "the values");
}
FINE("errors of another thread are not the last error of this one") {
  std::thread([] { cudaSetDevice(7); }).join();
  expect(cudaGetLastError() == cudaSuccess, "the last error");
  cudaSetDevice(7);
  expect(cudaGetLastError() == cudaErrorInvalidDevice, "the own last error");
}
FINE("two streams with a synchronization between") {
  Streams s;
  Device<float> x(counting<float>(32)), y(32);
  twice<<<1, 32, 0, s.a>>>(x);
  cudaStreamSynchronize(s.a);
  copy<<<1, 32, 0, s.b>>>(y, x);
  cudaStreamSynchronize(s.b);
  expect(y.values()[31] == 62, "the values");
}
FINE("two streams read the same") {
  Streams s;
  Device<float> x(counting<float>(32)), y(32), z(32);
  copy<<<1, 32, 0, s.a>>>(y, x);
  copy<<<1, 32, 0, s.b>>>(z, x);
}
FAULT("two streams without an event between", "streams: ") {
  Streams s;
  Device<float> x(counting<float>(32)), y(32);
  copy<<<1, 32, 0, s.b>>>(y, x);
  twice<<<1, 32, 0, s.a>>>(x);
  cudaDeviceSynchronize();
}
FAULT("an event that was recorded too early", "streams: ") {
  Streams s;
  Device<float> x(counting<float>(32)), y(32);
  cudaEventRecord(s.event, s.a);
  twice<<<1, 32, 0, s.a>>>(x);
  cudaStreamWaitEvent(s.b, s.event, 0);
  copy<<<1, 32, 0, s.b>>>(y, x);
}
FAULT("a copy that does not wait for a stream", "streams: ") {
  Streams s;
  Device<float> x(counting<float>(32));
  twice<<<1, 32, 0, s.a>>>(x);
  std::vector<float> v(32);
  cudaMemcpy(v.data(), x, 128, cudaMemcpyDeviceToHost);
  cudaDeviceSynchronize();
}
FAULT("a result read on another stream before it is there", "unwritten: a load") {
  Streams s;
  Device<float> x(counting<float>(32)), y(32), z(32);
  copy<<<1, 32, 0, s.a>>>(y, x);
  copy<<<1, 32, 0, s.b>>>(z, y);
  cudaStreamSynchronize(s.b);
}

FINE("pinned memory, there and back") {
  Streams s;
  float* host = pinned(32);
  Device<float> x(32);
  cudaMemcpyAsync(x, host, 128, cudaMemcpyHostToDevice, s.a);
  twice<<<1, 32, 0, s.a>>>(x);
  cudaMemcpyAsync(host, x, 128, cudaMemcpyDeviceToHost, s.a);
  cudaStreamSynchronize(s.a);
  expect(host[31] == 62, "the values");
  host[0] = 1;
  cudaFreeHost(host);
}
FINE("pageable memory may be used again at once") {
  Streams s;
  std::vector<float> v = counting<float>(32);
  Device<float> x(32);
  cudaMemcpyAsync(x, v.data(), 128, cudaMemcpyHostToDevice, s.a);
  v.assign(32, 0);
  twice<<<1, 32, 0, s.a>>>(x);
  cudaMemcpyAsync(v.data(), x, 128, cudaMemcpyDeviceToHost, s.a);
  expect(v[31] == 62, "the values");
}
FINE("the other half of pinned memory may be used") {
  Streams s;
  float* host = pinned(64);
  Device<float> x(32);
  cudaMemcpyAsync(x, host, 128, cudaMemcpyHostToDevice, s.a);
  host[40] = 7;
  cudaStreamSynchronize(s.a);
  expect(x.values()[31] == 31 && host[40] == 7, "the values");
}
FAULT("a buffer of the host is changed before its copy is done",
      "host: memory of the host is changed") {
  Streams s;
  float* host = pinned(32);
  Device<float> x(32);
  cudaMemcpyAsync(x, host, 128, cudaMemcpyHostToDevice, s.a);
  host[3] = 1;
}
FAULT("a buffer of the host is freed before its copy is done", "host: pinned memory is freed") {
  Streams s;
  float* host = pinned(32);
  Device<float> x(32);
  cudaMemcpyAsync(x, host, 128, cudaMemcpyHostToDevice, s.a);
  cudaFreeHost(host);
  std::exit(0);
}
FAULT("a result is read before the synchronization", "host: memory of the host is used before") {
  Streams s;
  float* host = pinned(32);
  Device<float> x(counting<float>(32));
  cudaMemcpyAsync(host, x, 128, cudaMemcpyDeviceToHost, s.a);
  volatile float sum = host[5];
  (void)sum;
}

FAULT("a copy in the other direction than it says", "copies: cudaMemcpyKind 2") {
  std::vector<float> v(32);
  Device<float> x(32);
  cudaMemcpy(x, v.data(), 128, cudaMemcpyDeviceToHost);
}
FAULT("a copy within the device that claims to come from the host", "copies: cudaMemcpyKind 1") {
  Device<float> x(counting<float>(32)), y(32);
  cudaMemcpy(y, x, 128, cudaMemcpyHostToDevice);
}
FAULT("a copy to itself, moved by one", "copies: 124 bytes") {
  Device<float> x(counting<float>(32));
  cudaMemcpyAsync(x + 1, x, 124, cudaMemcpyDeviceToDevice);
}
FINE("copies to the neighbor, and by default") {
  Device<float> x(counting<float>(32)), y(32);
  cudaMemcpy(x + 16, x, 64, cudaMemcpyDeviceToDevice);
  cudaMemcpy(y, x, 128, cudaMemcpyDefault);
  expect(y.values()[31] == 15, "the values");
  expect(cudaMemcpyPeerAsync(y, 1, x, 0, 128, nullptr) == cudaErrorInvalidDevice, "no device 1");
}

FINE("memory that cannot be freed, or not in a capture") {
  Streams s;
  Device<float> x(32);
  float* host = pinned(32);
  void* p = nullptr;
  cudaMalloc(&p, 64);
  expect(cudaFree(p) == cudaSuccess && cudaFree(p) == cudaErrorInvalidValue, "freed twice");
  expect(cudaFreeHost(x) == cudaErrorInvalidValue, "not pinned");
  expect(cudaFree(x + 1) == cudaErrorInvalidValue, "not its beginning");
  for (const bool relaxed : {false, true}) {
    cudaStreamBeginCapture(s.a,
                           relaxed ? cudaStreamCaptureModeRelaxed : cudaStreamCaptureModeGlobal);
    expect((cudaMallocHost(&p, 64) == cudaSuccess) == relaxed, "pinned memory");
    expect((cudaMalloc(&p, 64) == cudaSuccess) == relaxed, "memory");
    expect(cudaFreeHost(host) != cudaSuccess, "freed");
    cudaGraph_t graph;
    expect(cudaStreamEndCapture(s.a, &graph) == cudaErrorStreamCaptureInvalidated, "the capture");
  }
}
FINE("an event of a capture is no event outside") {
  Streams s;
  Device<float> x(counting<float>(32));
  cudaStreamBeginCapture(s.a, cudaStreamCaptureModeRelaxed);
  twice<<<1, 32, 0, s.a>>>(x);
  cudaEventRecord(s.event, s.a);
  cudaGraph_t graph;
  cudaStreamEndCapture(s.a, &graph);
  expect(cudaEventSynchronize(s.event) == cudaErrorCapturedEvent, "a wait of the host");
  expect(cudaEventQuery(s.event) == cudaErrorCapturedEvent, "a query");
  expect(cudaStreamWaitEvent(s.b, s.event, 0) == cudaErrorCapturedEvent, "a wait of a stream");
}
FINE("a graph repeats what was captured") {
  Streams s;
  Device<float> x(counting<float>(32));
  cudaStreamBeginCapture(s.a, cudaStreamCaptureModeGlobal);
  twice<<<1, 32, 0, s.a>>>(x);
  twice<<<1, 32, 0, s.a>>>(x);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  expect(cudaStreamEndCapture(s.a, &graph) == cudaSuccess, "the capture");
  expect(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess, "the graph");
  cudaGraphDestroy(graph);
  expect(x.values()[1] == 1, "a capture runs nothing");
  for (int i = 0; i < 3; ++i) cudaGraphLaunch(exec, s.a);
  cudaStreamSynchronize(s.a);
  expect(x.values()[1] == 64, "six times twice");
  cudaGraphExecDestroy(exec);
}
FINE("what waits, allocates or uses the default stream breaks a capture") {
  Streams s;
  Device<float> x(counting<float>(32));
  void* p = nullptr;
  cudaGraph_t graph;
  auto broken = [&](auto&& call) {
    cudaStreamBeginCapture(s.a, cudaStreamCaptureModeGlobal);
    const cudaError_t error = call();
    expect(error != cudaSuccess, "the call");
    expect(cudaStreamEndCapture(s.a, &graph) == cudaErrorStreamCaptureInvalidated, "the capture");
    cudaGetLastError();
  };
  broken([&] { return cudaStreamSynchronize(s.a); });
  broken([&] { return cudaDeviceSynchronize(); });
  broken([&] { return cudaMalloc(&p, 64); });
  broken([&] { return cudaMemcpy(x + 16, x, 64, cudaMemcpyDefault), cudaStreamQuery(s.a); });
  broken([&] {
    twice<<<1, 32>>>(x);
    return cudaGetLastError();
  });
  std::vector<float> v(32);
  broken([&] { return cudaMemcpyAsync(v.data(), x, 128, cudaMemcpyDeviceToHost, s.a); });
}
FAULT("work of another thread in a capture", "streams: cudaMemcpy by a thread") {
  Streams s;
  Device<float> x(counting<float>(32));
  float* const p = pinned(32);
  cudaStreamBeginCapture(s.a, cudaStreamCaptureModeRelaxed);
  std::thread([&] { cudaMemcpyAsync(x, p, 128, cudaMemcpyHostToDevice, s.a); }).join();
  cudaGraph_t graph;
  cudaStreamEndCapture(s.a, &graph);
}
FAULT("a graph whose block is gone", "out of bounds: ") {
  Streams s;
  float* x = nullptr;
  cudaMalloc(reinterpret_cast<void**>(&x), 128);
  cudaMemset(x, 0, 128);
  cudaStreamBeginCapture(s.a, cudaStreamCaptureModeGlobal);
  twice<<<1, 32, 0, s.a>>>(x);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaStreamEndCapture(s.a, &graph);
  cudaGraphInstantiate(&exec, graph, 0);
  cudaFree(x);
  cudaGraphLaunch(exec, s.a);
}

}  // namespace
