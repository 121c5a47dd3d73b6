// The memory-bound ops of a training step (norms, activations, softmax, losses, dropout, AdamW),
// each compared with a loop that reads and writes the same bytes and computes nothing.
//
// The loop uses the op's inputs, an output from the same allocator and the same threads, and
// alternates with the op. The column `of copy` is the time of the loop divided by that of the op: 1
// means that the op is limited by memory bandwidth only. benchmarks/row_kernels_torch.py compares
// PyTorch's ops with the same loop.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>

#include "autograd/profile.h"
#include "autograd/tape.h"
#include "core/math.h"
#include "core/parallel.h"
#include "examples/common/command_line.h"
#include "nn/optim/optim.h"
#include "ops/create.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/loss.h"
#include "ops/norm.h"
#include "ops/softmax.h"

using namespace stretto;

namespace {

struct Settings {
  std::vector<std::string> shapes{"2048x512", "2048x2048", "8192x512", "8192x2048"};
  std::string dtype = "f32", only;
  int64_t parameters = 10'000'000;
  int threads = 2, rounds = 15;
  bool processor = false;
};

// Seconds: wall-clock time, or the CPU time of all threads, which other programs hardly disturb.
double now(bool processor) {
  if (processor) return double(std::clock()) / CLOCKS_PER_SEC;
  return steady_seconds();
}

// An op, and the tensors that it must read and write.
struct Work {
  std::string name;
  std::function<void()> run;
  Tensors reads, writes;
  int64_t output_bytes = 0;  // of a new output
};

// y = a, or a ^ b if b is not null.
STRETTO_CLONES void stream(const uint64_t* a, const uint64_t* b, uint64_t* y, int64_t n) {
  if (b) {
    for (int64_t i = 0; i < n; ++i) y[i] = a[i] ^ b[i];
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = a[i];
  }
}

STRETTO_CLONES uint64_t read(const uint64_t* a, int64_t n) {
  uint64_t all = 0;
  for (int64_t i = 0; i < n; ++i) all ^= a[i];
  return all;
}

// Reads and writes in place; with zero = 0 nothing changes.
STRETTO_CLONES void touch(uint64_t* y, int64_t n, uint64_t zero) {
  for (int64_t i = 0; i < n; ++i) y[i] ^= zero;
}

void copy_of(const Work& w) {
  static volatile uint64_t zero = 0;
  Tensor output;
  if (w.output_bytes > 0) output = empty({w.output_bytes}, {.dtype = u8});
  const int64_t count = w.reads[0].numel();
  parallel_for(count, 32768, [&](int64_t begin, int64_t end) {
    constexpr int64_t block = 1024;  // elements of each operand in turn
    for (int64_t at = begin; at < end; at += block) {
      const int64_t n = std::min(block, end - at);
      const auto place = [&](const Tensor& x) {
        return reinterpret_cast<uint64_t*>(static_cast<char*>(x.raw_data()) +
                                           at * item_size(x.dtype()));
      };
      const auto words = [&](const Tensor& x) { return n * item_size(x.dtype()) / 8; };
      const Tensor &a = w.reads[0], &b = w.reads.back();
      if (output.defined()) {
        auto* y = static_cast<char*>(output.raw_data()) + at * w.output_bytes / count;
        stream(place(a), w.reads.size() > 1 ? place(b) : nullptr, reinterpret_cast<uint64_t*>(y),
               words(a));
      } else if (read(place(a), words(a)) == 1) {
        zero = 0;
      }
      for (const Tensor& x : w.writes) touch(place(x), words(x), zero);
    }
  });
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + ptrdiff_t(v.size() / 2), v.end());
  return v[v.size() / 2];
}

void measure(const std::string& shape, const Work& w, const Settings& o) {
  const auto time = [&o](const auto& f, int times) {
    const double begin = now(o.processor);
    for (int i = 0; i < times; ++i) f();
    return (now(o.processor) - begin) / times;
  };
  const auto copy = [&w] { copy_of(w); };
  w.run();
  copy();
  const int times = std::clamp(int(1e-2 / std::max(time(w.run, 1), 1e-6)), 1, 1000);
  std::vector<double> op_times, copies;
  for (int i = 0; i < o.rounds; ++i) {
    op_times.push_back(time(w.run, times));
    copies.push_back(time(copy, times));
  }
  double bytes = double(w.output_bytes);
  for (const Tensor& x : w.reads) bytes += double(x.numel() * item_size(x.dtype()));
  for (const Tensor& x : w.writes) bytes += 2 * double(x.numel() * item_size(x.dtype()));
  const double op = median(op_times), peer = median(copies);
  const double least = *std::min_element(op_times.begin(), op_times.end());
  const double least_peer = *std::min_element(copies.begin(), copies.end());
  std::printf("%-22s %-10s %9.3f %9.3f %8.2f %9.3f %9.3f %8.2f %8.1f\n", w.name.c_str(),
              shape.c_str(), op * 1e3, peer * 1e3, peer / op, least * 1e3, least_peer * 1e3,
              least_peer / least, bytes / least * 1e-9);
  std::fflush(stdout);
}

// Measures y = f(x), then only its backward, repeated on one graph. Backward reads `backward_reads`
// and the gradient.
template <class F>
void both(const std::string& name, const std::string& shape, const Settings& o, F f,
          const Tensors& inputs, int forward_writes, const Tensors& backward_reads) {
  const Tensor& x = inputs[0];
  const int64_t bytes = x.numel() * item_size(x.dtype());
  if (name.find(o.only) == std::string::npos) return;
  measure(shape,
          {name,
           [&] {
             NoGrad guard;
             f();
           },
           {x.detach()},
           {},
           forward_writes * bytes},
          o);
  const Tensor y = f();
  const Tensor g = y.dim() > 0 ? randn(y.shape()).to(y.dtype()) : Tensor();
  Tensors reads = backward_reads;
  if (g.defined()) reads.push_back(g);
  if (!reads[0].defined()) reads[0] = y.detach();
  measure(shape,
          {name + " backward",
           [&] { grad({y}, inputs, g.defined() ? Tensors{g} : Tensors{}, {.retain_graph = true}); },
           reads,
           {},
           bytes},
          o);
}

void rows(const std::string& shape, const Settings& o, DType dtype) {
  const size_t cross = shape.find('x');
  const int64_t m = std::stoll(shape.substr(0, cross)), n = std::stoll(shape.substr(cross + 1));
  const auto leaf = [&](const Shape& s) { return randn(s).to(dtype).set_requires_grad(true); };
  const Tensor x = leaf({m, n}), w = leaf({n}), b = leaf({n}), of_y;
  const Tensor from_x = x.detach();
  const Tensor ids = randint(0, n, {m});
  both("layer_norm", shape, o, [&] { return layer_norm(x, w, b); }, {x, w, b}, 1, {from_x});
  both("rms_norm", shape, o, [&] { return rms_norm(x, w); }, {x, w}, 1, {from_x});
  both("gelu", shape, o, [&] { return gelu(x); }, {x}, 1, {from_x});
  both("gelu_tanh", shape, o, [&] { return gelu_tanh(x); }, {x}, 1, {from_x});
  both("relu", shape, o, [&] { return relu(x); }, {x}, 1, {of_y});
  both("silu", shape, o, [&] { return silu(x); }, {x}, 1, {from_x});
  both("exp", shape, o, [&] { return exp(x); }, {x}, 1, {of_y});
  both("tanh", shape, o, [&] { return tanh(x); }, {x}, 1, {of_y});
  both("sigmoid", shape, o, [&] { return sigmoid(x); }, {x}, 1, {of_y});
  both("softmax", shape, o, [&] { return softmax(x); }, {x}, 1, {of_y});
  both("log_softmax", shape, o, [&] { return log_softmax(x); }, {x}, 1, {of_y});
  both("cross_entropy", shape, o, [&] { return cross_entropy(x, ids); }, {x}, 0, {from_x});
  const RandomKey key = next_random_key();
  both("dropout", shape, o, [&] { return dropout(x, 0.1, key); }, {x}, 1, {});
  const Tensor z = randn({m, n}).to(dtype);
  if (std::string("add").find(o.only) != std::string::npos)
    measure(shape, {"add", [&] { add(from_x, z); }, {from_x, z}, {}, x.numel() * item_size(dtype)},
            o);
}

void optimizer(const Settings& o, DType dtype) {
  const int64_t n = o.parameters;
  Tensor w = randn({n}).to(dtype).set_requires_grad(true);
  const Tensor g = randn({n}).to(dtype);
  const std::string size = std::to_string(n);
  w.set_grad(g.clone());
  nn::AdamW adam({w}, {.lr = 1e-3});
  adam.step();
  const Tensor own = w.grad(), weight = w.detach();
  Tensors state{weight};
  for (const auto& s : adam.state()[0].tensors) state.push_back(s.tensor);
  const std::string name = "AdamW";
  if (name.find(o.only) == std::string::npos) return;
  measure(size, {"AdamW", [&] { adam.step(); }, {own}, state, 0}, o);
  measure(size, {"l2_norm", [&] { nn::clip_grad_norm({w}, 1e30); }, {own}, {}, 0}, o);
  measure(size,
          {"clip, AdamW",
           [&] {
             nn::clip_grad_norm({w}, double(n));
             adam.step();
           },
           {own},
           state,
           0},
          o);
}

int run(const Settings& o) {
  set_num_threads(o.threads);
  manual_seed(1);
  const DType dtype = o.dtype == "bf16" ? bf16 : f32;
  std::printf("%s, %d threads, medians and least of %d rounds\n", o.dtype.c_str(), num_threads(),
              o.rounds);
  std::printf("%-22s %-10s %9s %9s %8s %9s %9s %8s %8s\n", "op", "shape", "ms", "copy ms",
              "of copy", "least ms", "copy ms", "of copy", "GB/s");
  for (const std::string& shape : o.shapes) rows(shape, o, dtype);
  optimizer(o, dtype);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings o;
  return examples::run_program(
      argc, argv, "row_kernels", "Compares memory-bound ops with copies of the same bytes.",
      [&](CLI::App& app) {
        app.add_option("--shapes", o.shapes)->delimiter(',');
        app.add_option("--dtype", o.dtype, "f32 or bf16");
        app.add_option("--parameters", o.parameters, "The number of parameters for AdamW");
        app.add_option("--only", o.only, "Ops whose names contain this");
        app.add_option("--threads", o.threads);
        app.add_option("--rounds", o.rounds);
        app.add_flag("--processor", o.processor,
                     "Measure CPU time: for one thread on a busy machine");
      },
      [&] { return run(o); });
}
