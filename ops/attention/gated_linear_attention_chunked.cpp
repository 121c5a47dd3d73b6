// Linear attention with decay, fused: forward and backward.
//
// On the CPU one thread computes one head of one batch entry, from the first chunk to the last. For
// the backward pass, the forward pass stores the state before every 8th chunk. The states between
// are computed again, and the chunks are then visited from the last to the first. The kernels of a
// GPU (cuda/attention/gated_linear_attention.h) do the same with chunks of 64 positions, and store
// the state before each.
#include <vector>

#include "autograd/tape.h"
#include "core/parallel.h"
#include "cuda/attention/gated_linear_attention.h"
#include "cuda/runtime/composed.h"
#include "ops/attention/gated_chunks.h"
#include "ops/attention/gated_linear_attention_implementations.h"
#include "ops/reduce.h"

namespace stretto {
namespace {

using namespace gated_chunks;

constexpr int64_t chunks_per_segment = 8;

int64_t segments_of(const GatedProblem& p) {
  return (p.chunks() + chunks_per_segment - 1) / chunks_per_segment;
}

// Calls f(worker, unit) for every head of every batch entry.
template <class T, class Decays, class F>
void each_unit(const GatedProblem& p, const GatedInputs& in, bool gradients, F&& f) {
  parallel_for(p.units(), 1, [&](int64_t begin, int64_t end) {
    GatedWorker<T, Decays> worker(p, in, gradients);
    for (int64_t unit = begin; unit < end; ++unit) f(worker, unit);
  });
}

// `states` [units, segments, F, Dv] may be undefined.
template <class T, class Decays>
void forward(const GatedProblem& p, const GatedInputs& in, const Tensor& out, const Tensor& after,
             const Tensor& states) {
  const int64_t size = p.state_size(), segments = segments_of(p);
  each_unit<T, Decays>(p, in, false, [&](GatedWorker<T, Decays>& worker, int64_t unit) {
    T* const s = after.data<T>() + unit * size;  // initially the state before
    for (int64_t c = 0; c < p.chunks(); ++c) {
      if (states.defined() && c % chunks_per_segment == 0)
        std::copy_n(s, size, states.data<T>() + (unit * segments + c / chunks_per_segment) * size);
      worker.load(unit / p.heads, unit % p.heads, c);
      worker.compute_values(s);
      worker.attend(s, heads_of<T>(out));
      worker.advance(s);
    }
  });
}

// `ds` [units, F, Dv] is the gradient of the last state and becomes that of the first.
template <class T, class Decays>
void backward(const GatedProblem& p, const GatedInputs& in, const Tensor& states,
              const Tensor& grad, const GatedGradients& to, const Tensor& ds) {
  const int64_t size = p.state_size(), segments = segments_of(p);
  each_unit<T, Decays>(p, in, true, [&](GatedWorker<T, Decays>& worker, int64_t unit) {
    const Tensor memory = empty({chunks_per_segment, size}, options_of(states));
    T* const s = memory.data<T>();
    const auto load = [&](int64_t c) { worker.load(unit / p.heads, unit % p.heads, c); };
    for (int64_t segment = segments - 1; segment >= 0; --segment) {
      const int64_t first = segment * chunks_per_segment;
      const int64_t count = std::min(chunks_per_segment, p.chunks() - first);
      std::copy_n(states.data<T>() + (unit * segments + segment) * size, size, s);
      for (int64_t c = 0; c + 1 < count; ++c) {
        T* const next = std::copy_n(s + c * size, size, s + (c + 1) * size) - size;
        load(first + c);
        worker.compute_values(s + c * size);
        worker.advance(next);
      }
      for (int64_t c = count - 1; c >= 0; --c) {
        load(first + c);
        worker.backward(s + c * size, ds.data<T>() + unit * size, heads_of<T>(grad), to);
      }
    }
  });
}

// The states that forward stores for the backward pass, per head.
int64_t stored_states(const GatedProblem& p, Device device) {
  const int64_t c = cuda::gated_linear_chunk;
  return device.is_cuda() ? (p.n + c - 1) / c : segments_of(p);
}

template <class F>
void with_types(const Tensor& log_decay, F&& f) {
  const bool by_feature = log_decay.dim() == 4;
  if (log_decay.dtype() == f64)
    return by_feature ? f.template operator()<double, FeatureDecays<double>>()
                      : f.template operator()<double, HeadDecays<double>>();
  return by_feature ? f.template operator()<float, FeatureDecays<float>>()
                    : f.template operator()<float, HeadDecays<float>>();
}

GatedInputs inputs_of(const GatedLinearOperands& in) {
  return {rows_contiguous(in.q), rows_contiguous(in.k), rows_contiguous(in.v),
          in.log_decay.detach().contiguous(),
          in.beta.defined() ? in.beta.detach().contiguous() : Tensor()};
}

// Sums the gradients of the heads that share a head, or of its parts.
Tensor of_shared(const Tensor& x, int64_t heads) {
  if (!x.defined() || x.size(1) == heads) return x;
  Shape shape = x.shape();
  shape[1] = x.size(1) / heads;
  shape.insert(1, heads);
  return sum(x.reshape(shape), {2});
}

cuda::GatedLinearAttentionInputs device_inputs_of(const GatedInputs& in, double scale) {
  return {in.q, in.k, in.v, in.log_decay, in.beta, scale};
}

}  // namespace

bool has_chunked_gated_linear_attention(const GatedLinearOperands& in) {
  const Device device = in.q.device();
  return device.is_cpu() || (!cuda::composed("gated_linear_attention", device) &&
                             cuda::serves_gated_linear_attention(in.q, in.k, in.v));
}

GatedLinearResult chunked_gated_linear_attention(const GatedLinearOperands& in) {
  const GatedProblem p{.batch = in.before.size(0),
                       .heads = in.before.size(1),
                       .n = in.k.size(2),
                       .f = in.k.size(3),
                       .dv = in.v.size(3),
                       .chunk = std::min(in.chunk, std::max<int64_t>(1, in.k.size(2))),
                       .delta = in.beta.defined(),
                       .scale = in.scale};
  const Tensors inputs = in.tensors();
  const TensorOptions options = options_of(in.before);
  const bool on_gpu = options.device.is_cuda();
  const Tensor out = heads_beside(in.before, p.heads, p.n, p.dv);
  const Tensor after = in.before.detach().clone();
  const Tensor states =
      recording(inputs) ? empty({p.units(), stored_states(p, options.device), p.f, p.dv}, options)
                        : Tensor();
  if (on_gpu)
    cuda::gated_linear_attention(device_inputs_of(inputs_of(in), p.scale), out, after, states);
  else
    with_types(in.log_decay,
               [&]<class T, class D>() { forward<T, D>(p, inputs_of(in), out, after, states); });

  const auto composed = [in = in.with(Tensors(inputs.size()))](const Tensors& x) {
    const GatedLinearResult y = composed_gated_linear_attention(in.with(x));
    return Tensors{y.out, y.after};
  };
  const std::vector<Saved> saved(inputs.begin(), inputs.end());
  // Gradients: ops/attention/gated_chunks.h.
  const Tensors results = record(
      "gated_linear_attention", inputs, Tensors{out, after},
      [p, on_gpu, composed, states, saved,
       settings = in.with(Tensors(inputs.size()))](Backward& b) {
        const Tensors from = values_of(saved);
        if (grad_enabled()) return composed_gradient(b, composed, from);
        const GatedLinearOperands x = settings.with(from);
        const int64_t parts = on_gpu ? cuda::gated_linear_parts(p.f, p.dv) : 1;
        const auto like = [&](const Tensor& t, int64_t heads) {
          return heads_beside(t, heads, p.n, t.size(3));
        };
        const auto of_positions = [&](const Tensor& t) {
          Shape shape = t.shape();
          shape[1] *= parts;
          return empty(shape, options_of(x.k));
        };
        const GatedGradients to{like(x.q, p.heads * parts), like(x.k, p.heads * parts),
                                like(x.v, p.heads), of_positions(x.log_decay),
                                p.delta ? of_positions(x.beta) : Tensor()};
        const Tensor ds = b.grad(1).clone(), g = rows_contiguous(b.grad(0));
        if (on_gpu)
          cuda::gated_linear_attention_backward(device_inputs_of(inputs_of(x), p.scale), states, g,
                                                {to.q, to.k, to.v, to.log_decay, to.beta, ds});
        else
          with_types(x.log_decay, [&]<class T, class D>() {
            backward<T, D>(p, inputs_of(x), states, g, to, ds);
          });
        Tensors gradients{of_shared(to.q, x.q.size(1)), of_shared(to.k, x.k.size(1)),
                          of_shared(to.v, x.v.size(1)), of_shared(to.log_decay, p.heads), ds};
        if (p.delta) gradients.push_back(of_shared(to.beta, p.heads));
        return gradients;
      });
  return {results[0], results[1]};
}

}  // namespace stretto
