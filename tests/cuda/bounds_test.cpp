// Edge cases of kernels: more rows than a launch has blocks, unaligned tensors, lengths that are no
// multiple of a tile. Here every barrier and bounds check of the kernels matters
// (tests/cuda/ptx/scripts/mutations.sh removes them one by one).
#include <functional>
#include <vector>

#include "autograd/tape.h"
#include "cuda/random.h"
#include "cuda/softmax.h"
#include "nn/optim/optim.h"
#include "ops/attention/rotary.h"
#include "ops/create.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/feed_forward.h"
#include "ops/fft/fft.h"
#include "ops/indexing.h"
#include "ops/loss.h"
#include "ops/norm.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/view.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

namespace {

// Checks that f of many rows on the GPU, repeats of eight rows, is bit-identical to repeats of f of
// the eight rows.
void check_rows(const char* what, const Tensor& x, int64_t repeats,
                const std::function<Tensor(const Tensor&)>& f) {
  CAPTURE(what, str(x), repeats);
  Shape one{1}, many{repeats}, flat = x.shape();
  for (const int64_t s : x.shape()) {
    one.push_back(s);
    many.push_back(s);
  }
  flat[0] *= repeats;
  const Tensor few = f(x.to(gpu)), all = f(x.to(gpu).view(one).expand(many).reshape(flat));
  REQUIRE(all.numel() == few.numel() * repeats);
  const auto expected = few.to_vector<double>(), got = all.to_vector<double>();
  int64_t wrong = 0;
  for (size_t i = 0; i < got.size(); ++i)
    wrong += !same_bits(got[i], expected[i % expected.size()]);
  CHECK(wrong == 0);
}

Tensor gradient(const Tensor& x, const std::function<Tensor(const Tensor&)>& f) {
  const Tensor leaf = x.detach().set_requires_grad();
  const Tensor y = f(leaf);
  return grad({y}, {leaf}, {y.detach() + 1.0})[0];
}

}  // namespace

TEST_CASE("kernels accept tensors at any offset", "[cuda]") {
  NEEDS_GPU();
  uint64_t stream = 100;
  for (const DType t : floating) {
    for (const int64_t offset : {0, 1, 2, 3}) {
      for (const Shape& shape :
           {Shape{5}, Shape{64}, Shape{3, 24}, Shape{70, 33}, Shape{2, 1100}}) {
        CAPTURE(name(t), offset, str(shape));
        const Tensor x = noise(shape, ++stream, t), shifted = begins_at(offset, x);
        check_equal(x, shifted.clone());
        check_equal(x + x, shifted + shifted);
        check_equal(x.transpose(0, -1).contiguous(), shifted.transpose(0, -1).contiguous());
        check_equal(x * 2.0, shifted * 2.0);
        check_equal(max(x, -1), max(shifted, -1));
        check_equal(sort(x).values, sort(shifted).values);
        const RandomKey key{3, stream};
        check_equal(dropout(x, 0.5, key), dropout(shifted, 0.5, key));
        check_equal(dropout_add(x, x, 0.5, key), dropout_add(shifted, shifted, 0.5, key));
        cuda::fill_uniform(shifted, key);
        check_equal(rand(shape, key, {.dtype = t}), shifted);
        // Results are bit-identical at every offset.
        const Tensor aligned = begins_at(0, x), unaligned = begins_at(offset, x);
        CHECK(same_values(softmax(aligned), softmax(unaligned)));
        CHECK(same_values(layer_norm(aligned), layer_norm(unaligned)));
        CHECK(same_values(logsumexp(aligned, -1), logsumexp(unaligned, -1)));
        CHECK(same_values(cumsum(aligned, -1), cumsum(unaligned, -1)));
        const auto exact = sum(x.to(f64), {-1}).to_vector<double>(),
                   size = sum(abs(x.to(f64)), {-1}).to_vector<double>();
        check_close(sum(x.to(f64), {-1}), sum(unaligned, {-1}), [&](size_t i) {
          return size[i] * double(shape.back()) * unit(t == f64 ? f64 : f32) +
                 (t == bf16 ? 1.01 * unit(bf16) * std::abs(exact[i]) : 0);
        });
        if (shape.dim() < 2) continue;
        CHECK(same_values(sum(aligned, {0}), sum(unaligned, {0})));
        const Tensor ids = tensor<int64_t>({1, 0, 1, 1});
        check_equal(index_select(x, 0, ids), index_select(unaligned, 0, ids.to(gpu)));
      }
    }
  }
}

// Each operand and each gradient in turn begins at an unaligned address.
TEST_CASE("activations, RoPE, residual branches and losses accept operands at any offset",
          "[cuda]") {
  NEEDS_GPU();
  struct Op {
    const char* name;
    std::function<Tensors(const Tensors& in)> run;  // of three operands, the last of one row
  };
  const RandomKey key{3, 4};
  const Tensor ids = tensor<int64_t>({7, 0, 23, 5}).to(gpu);
  const std::vector<Op> ops{
      {"activate", [](const Tensors& in) { return Tensors{activate(in[0], Activation::gelu)}; }},
      {"gated_activation",
       [&](const Tensors& in) {
         return Tensors{gated_activation(in[0], in[1], Activation::silu, 0.25, key)};
       }},
      {"dropout", [&](const Tensors& in) { return Tensors{dropout(in[0], 0.25, key)}; }},
      {"rotate",
       [](const Tensors& in) {
         return Tensors{rotate(in[0].view({1, 1, 4, in[0].size(1)}), 3)};
       }},
      {"add_layer_norm",
       [&](const Tensors& in) {
         return add_layer_norm(in[0], in[1], {0.25, key}, in[2], in[2]);
       }},
      {"add_rms_norm",
       [&](const Tensors& in) {
         return add_rms_norm(in[0], in[1], {0.25, key}, in[2]);
       }},
      {"cross_entropy", [&](const Tensors& in) {
         return Tensors{cross_entropy(in[0], ids, {.reduction = Reduction::none})};
       }}};
  for (const auto& [op, run] : ops)
    for (const DType t : floating)
      for (const int64_t width : {24, 1040}) {
        // The results and gradients if operand `which` (3: the gradients) begins at the offset.
        const auto results = [&, &run = run](size_t which, int64_t offset) {
          const auto at = [&](size_t i, const Shape& shape) {
            return begins_at(i == which ? offset : 0, noise(shape, 400 + i, t));
          };
          Tensors in, slopes;
          for (size_t i = 0; i < 3; ++i)
            in.push_back(at(i, i < 2 ? Shape{4, width} : Shape{width}).set_requires_grad());
          Tensors all = run(in);
          for (const Tensor& y : all) slopes.push_back(at(3, y.shape()).to(y.dtype()));
          for (const Tensor& g : grad(all, in, slopes))
            if (g.defined()) all.push_back(g);
          return all;
        };
        const Tensors expected = results(0, 0);
        for (const size_t which : {0, 1, 2, 3})
          for (const int64_t offset : {1, 2, 3}) {
            CAPTURE(op, name(t), width, which, offset);
            const Tensors got = results(which, offset);
            for (size_t i = 0; i < expected.size(); ++i) CHECK(same_values(got[i], expected[i]));
          }
      }
}

TEST_CASE("views with gaps, repeats and steps are copied and summed", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : {f32, f64, bf16, i64}) {
    const auto values = [&](const Shape& shape, uint64_t stream) {
      return t == i64 ? mul(noise(shape, stream), 100).to(i64) : noise(shape, stream, t);
    };
    // A sum in chunks, the last of which is shorter.
    for (const int64_t columns : {8, 9}) {
      const Tensor parts = values({301, columns}, 149), whole = sum(parts.to(f64), {0});
      const auto size = sum(abs(parts.to(f64)), {0}).to_vector<double>();
      check_close(whole, sum(parts.to(gpu), {0}), [&](size_t i) {
        return size[i] * (301 * unit(t == f64 ? f64 : f32) + (t == bf16 ? 1.01 * unit(bf16) : 0));
      });
    }
    const Tensor even = values({6, 40, 32}, 150), odd = values({6, 40, 33}, 151);
    const Tensor filled = even.clone(), gpu_copy = even.to(gpu);
    filled.slice(2, 0, 27).fill_(7);
    gpu_copy.slice(2, 0, 27).fill_(7);
    check_equal(filled, gpu_copy);
    const Tensor wide = values({1, 3, 10006}, 152);  // summed by a block, without vector loads
    for (const Tensor& x :
         {even.slice(2, 0, 24), even.slice(2, 0, 27), even.slice(2, 0, 32, 2), odd.slice(2, 0, 32),
          odd.slice(1, 0, 32), even.slice(0, 0, 6, 2), even.slice(1, 0, 1).expand({6, 40, 32}),
          even.transpose(0, 2), even.slice(1, 0, 4).transpose(0, 2), wide.slice(2, 0, 5001),
          wide.slice(2, 0, 5002, 2), wide.slice(2, 0, 10006, 2)}) {
      check_equal(x.contiguous(), on_gpu(x).contiguous());
      check_equal(x * 3.0, on_gpu(x) * 3.0);
      for (const Dims& dims : {Dims{0}, Dims{1}, Dims{2}, Dims{0, 1}, Dims{1, 2}, Dims{0, 2}}) {
        CAPTURE(name(t), str(x), str(x.strides()), str(dims));
        const Tensor exact = sum(x.to(f64), dims);
        const auto v = exact.to_vector<double>(),
                   most = sum(abs(x.to(f64)), dims).to_vector<double>();
        const double n = double(x.numel()) / double(exact.numel());
        check_close(exact, sum(on_gpu(x), dims), [&](size_t i) {
          return most[i] * n * unit(t == f64 ? f64 : f32) +
                 (t == bf16 ? 1.01 * unit(bf16) * std::abs(v[i]) : 0);
        });
      }
    }
  }
}

TEST_CASE("optimizers accept tensors of any length and offset", "[cuda]") {
  NEEDS_GPU();
  uint64_t stream = 200;
  for (const DType t : floating) {
    for (const int64_t offset : {0, 1}) {
      CAPTURE(name(t), offset);
      struct Set {
        Tensors weights;
        void set_gradients(uint64_t first) {
          for (const Tensor& w : weights)
            w.set_grad(begins_like(w, noise(w.shape(), first++, w.dtype())));
        }
        static Tensor begins_like(const Tensor& w, const Tensor& g) {
          return w.device() == cpu ? g : begins_at(w.offset(), g);
        }
      };
      const auto make = [&](Device device) {
        Set set;
        uint64_t at = 300;
        // More tensors than one launch handles, some longer than the chunk of a block.
        for (int i = 0; i < 104; ++i) {
          const int64_t lengths[] = {1, 2, 3, 4, 5, 4095, 4096, 4097, 9001};
          const Tensor w = noise({i < 9 ? lengths[i] : i % 7 + 1}, ++at, t);
          set.weights.push_back((device == cpu ? w : begins_at(offset, w)).set_requires_grad());
        }
        return set;
      };
      const auto compare = [&](auto steps) {
        Set cpu_set = make(cpu), gpu_set = make(gpu);
        cpu_set.set_gradients(stream += 1000);
        gpu_set.set_gradients(stream);
        steps(cpu_set.weights);
        steps(gpu_set.weights);
        for (size_t i = 0; i < cpu_set.weights.size(); ++i)
          check_close(cpu_set.weights[i].detach(), gpu_set.weights[i].detach(), [&](size_t) {
            return 200 * unit(t == f64 ? f64 : f32) + (t == bf16 ? 8 * unit(bf16) : 0);
          });
      };
      compare([](const Tensors& w) { nn::SGD(w, {.lr = 0.1, .momentum = 0.9}).step(); });
      compare([](const Tensors& w) { nn::AdamW(w, {.lr = 0.1, .amsgrad = true}).step(); });
      compare([](const Tensors& w) {
        nn::clip_grad_norm(w, 0.5);
        nn::SGD(w, {.lr = 10}).step();
      });
    }
  }
}

// One block per row: 516 elements are read once, 4100 by a larger block, 4101 are read twice.
TEST_CASE("softmax is correct for more rows than a launch has blocks", "[cuda][large]") {
  NEEDS_GPU();
  for (const int64_t width : {516, 4100, 4101}) {
    const Tensor x = noise({8, width}, 1);
    check_rows("softmax", x, 513, [](const Tensor& t) { return softmax(t); });
    check_rows("softmax backward", x, 513,
               [](const Tensor& t) { return cuda::softmax_backward(t, t, false); });
  }
}

TEST_CASE("norms are correct for more rows than a launch has blocks", "[cuda][large]") {
  NEEDS_GPU();
  for (const int64_t width : {516, 4100}) {
    const Tensor x = noise({8, width}, 2);
    check_rows("layer_norm", x, 513, [](const Tensor& t) { return layer_norm(t); });
    check_rows("layer_norm far from 0", x + 1000, 513,
               [](const Tensor& t) { return layer_norm(t); });
    check_rows("rms_norm", x, 513, [](const Tensor& t) { return rms_norm(t); });
  }
}

TEST_CASE("gradients of norms are correct for more rows than a launch has blocks", "[cuda]") {
  NEEDS_GPU();
  for (const int64_t width : {516, 4100}) {
    const Tensor x = noise({8, width}, 3);
    check_rows("layer_norm", x, 34, [](const Tensor& t) {
      return gradient(t, [](const Tensor& u) { return layer_norm(u); });
    });
    check_rows("rms_norm", x, 34, [](const Tensor& t) {
      return gradient(t, [](const Tensor& u) { return rms_norm(u); });
    });
  }
}

TEST_CASE("gradients of a norm's weight and bias are summed over the warps of a block", "[cuda]") {
  NEEDS_GPU();
  const Tensor x = noise({40, 64}, 15), g = noise({40, 64}, 16);
  const auto gradients = [&](Device device, DType t) {
    const Tensors leaves = {ones({64}, {.dtype = t, .device = device}).set_requires_grad(),
                            zeros({64}, {.dtype = t, .device = device}).set_requires_grad()};
    const Tensor y = layer_norm(x.to(t).to(device), leaves[0], leaves[1]);
    return grad({y}, leaves, {g.to(t).to(device)});
  };
  const Tensors exact = gradients(cpu, f64), got = gradients(gpu, f32);
  // Sums of 40 products below 25, whose factors have errors of a sum over 64 elements and
  // a few units.
  for (size_t k = 0; k < 2; ++k)
    check_close(exact[k], got[k], [](size_t) { return 40 * 25 * 128 * unit(f32); });
}

TEST_CASE("a bias without a weight gets its gradient for long rows", "[cuda]") {
  NEEDS_GPU();
  const Tensor x = noise({300, 4101}, 12), g = noise({300, 4101}, 13);
  const Tensor bias = zeros({4101}, {.device = gpu}).set_requires_grad();
  const Tensor y = layer_norm(x.to(gpu), {}, bias);
  const auto size = sum(abs(g.to(f64)), {0}).to_vector<double>();
  check_close(sum(g.to(f64), {0}), grad({y}, {bias}, {g.to(gpu)})[0],
              [&](size_t i) { return size[i] * 300 * unit(f32); });
}

TEST_CASE("reductions are correct for more rows than a launch has blocks", "[cuda]") {
  NEEDS_GPU();
  const Tensor x = noise({8, 516}, 4);
  check_rows("logsumexp", x, 513, [](const Tensor& t) { return logsumexp(t, -1); });
  check_rows("argmax", x, 513, [](const Tensor& t) { return argmax(t, -1); });
  check_rows("sum", noise({8, 1028}, 5), 513, [](const Tensor& t) { return sum(t, {1}); });
  check_rows("cumsum", noise({8, 3}, 6), 513, [](const Tensor& t) { return cumsum(t, -1); });
  check_rows("sort", noise({8, 3}, 7), 513, [](const Tensor& t) { return sort(t).values; });
  check_rows("cross_entropy", x, 513, [](const Tensor& t) {
    const Tensor ids = full({t.size(0)}, 7, {.dtype = i64, .device = gpu});
    return cross_entropy(t, ids, {.label_smoothing = 0.1, .reduction = Reduction::none});
  });
}

TEST_CASE("transposed copies are correct for more tiles than a launch has blocks", "[cuda]") {
  NEEDS_GPU();
  check_rows("transpose", noise({8, 9, 10}, 11), 513,
             [](const Tensor& t) { return t.transpose(1, 2).contiguous(); });
}

TEST_CASE("column sums are correct for more columns than a launch has blocks", "[cuda]") {
  NEEDS_GPU();
  for (const auto& [width, repeats] :
       {std::pair(9, 14601), std::pair(8, 65544)}) {  // 8: vector loads
    CAPTURE(width);
    const Tensor few = noise({2, width}, 8).to(gpu);
    const Tensor all = few.view({2, 1, width}).expand({2, repeats, width}).reshape({2, -1});
    const auto sums = sum(all, {0}).to_vector<double>(), first = sum(few, {0}).to_vector<double>();
    bool same = true;
    for (size_t i = 0; i < sums.size(); ++i)
      same = same && same_bits(sums[i], first[i % first.size()]);
    CHECK(same);
  }
}

TEST_CASE("Fourier transforms are correct for more rows than a launch has blocks", "[cuda]") {
  NEEDS_GPU();
  check_rows("rfft", noise({8, 32}, 9), 4100, [](const Tensor& t) { return rfft(t); });
  check_rows("irfft", noise({8, 17, 2}, 10), 4100, [](const Tensor& t) { return irfft(t, 32); });
  check_rows("a chirp", noise({8, 26}, 14), 2, [](const Tensor& t) { return rfft(t); });
}
