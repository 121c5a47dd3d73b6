// Tensors that are parts of one block of memory: layers of one input in one product, gates, RoPE, and
// norms with a residual branch give the same values and gradients as separate ops, in fewer launches.
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/tape.h"
#include "nn/attention/attention.h"
#include "nn/feed_forward.h"
#include "nn/optim/optim.h"
#include "nn/positions/relative_table.h"
#include "nn/positions/rotary.h"
#include "ops/attention/attention.h"
#include "ops/attention/rotary.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/feed_forward.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/reduce.h"
#include "tests/cuda/kernel_counts.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

namespace {

// Rows of a block [.., sizes] on the GPU as parts, and the same values as separate tensors.
struct Operands {
  Tensors parts, separate;
};
Operands operands_of(const Tensor& values, int64_t d, const Shape& sizes) {
  const Tensor block = values.to(gpu);
  Operands made{.parts = split_into_parts(block.clone(), d, sizes), .separate = {}};
  int64_t first = 0;
  for (const int64_t size : sizes) {
    made.separate.push_back(block.slice(d, first, first + size).clone());
    first += size;
  }
  for (Tensors* all : {&made.parts, &made.separate})
    for (const Tensor& x : *all) x.set_requires_grad();
  return made;
}

bool is_packed(const nn::MultiHeadAttention& m) {
  return join_parts({m.q.weight, m.k.weight, m.v.weight}, 0).defined();
}

double difference(const Tensor& a, const Tensor& b) {
  return max(abs(a.to(cpu).to(f64) - b.to(cpu).to(f64))).item();
}

}  // namespace

TEST_CASE("packed linear layers agree with separate ones", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : floating)
    for (const bool bias : {false, true})
      for (const Shape& sizes : {Shape{8, 16}, Shape{24, 8, 8}, Shape{3, 5}}) {
        CAPTURE(name(t), bias, str(sizes));
        int64_t all = 0;
        for (const int64_t size : sizes) all += size;
        const Tensor x = noise({2, 5, 16}, 1, t).to(gpu).set_requires_grad();
        const Operands w = operands_of(noise({all, 16}, 2, t), 0, sizes),
                       b = operands_of(noise({all}, 3, t), 0, sizes);
        const auto results = [&](const Tensors& weights, const Tensors& biases, bool joined) {
          Tensors given = biases, leaves{x};
          if (!bias) given = Tensors(size_t(sizes.dim()));
          const Tensors y = linear(x, weights, given);
          leaves.insert(leaves.end(), weights.begin(), weights.end());
          if (bias) leaves.insert(leaves.end(), biases.begin(), biases.end());
          // Gradients that are parts of one block, or not.
          Tensors slopes;
          const Tensors block = split_into_parts(noise({2, 5, all}, 4, t).to(gpu), -1, sizes);
          for (const Tensor& g : block) slopes.push_back(joined ? g : g.clone());
          Tensors found = y;
          for (const Tensor& g : grad(y, leaves, slopes)) found.push_back(g);
          return found;
        };
        const Tensors expected = results(w.separate, b.separate, false);
        for (const bool joined : {true, false}) {
          const Tensors got = results(w.parts, b.parts, joined);
          CHECK(join_parts({got[0], got[1]}, -1).defined());
          REQUIRE(got.size() == expected.size());
          for (size_t i = 0; i < got.size(); ++i) {
            CAPTURE(i, joined);
            REQUIRE(got[i].shape() == expected[i].shape());
            // Sums of up to 40 products of order 1; of x, one product after the other in bf16.
            CHECK(difference(got[i], expected[i]) <= 40 * 4 * unit(t));
          }
        }
      }
}

TEST_CASE("packed layers are one product each way, whether all gradients are needed or one",
          "[cuda]") {
  NEEDS_GPU();
  if (!has_counters()) STRETTO_SKIP("needs the counters of the PTX interpreter");
  const Tensor x = noise({2, 5, 16}, 1).to(gpu) * 1.0;
  const Operands w = operands_of(noise({32, 16}, 2), 0, {16, 8, 8});
  const Tensors none(3);
  Tensors y;
  CHECK(launches_of([&] { y = linear(x, w.parts, none); }).all == 1);
  const Tensors g = split_into_parts(noise({2, 5, 32}, 4).to(gpu), -1, {16, 8, 8});
  CHECK(launches_of([&] { grad(y, w.parts, g, {.retain_graph = true}); }).all == 1);
  Tensors one;
  CHECK(launches_of([&] { one = grad(y, {w.parts[1]}, g); }).all == 1);
  CHECK(difference(one[0], matmul(g[1].flatten(0, 1).transpose(0, 1), x.flatten(0, 1))) < 1e-5);
}

TEST_CASE("linear layers are packed only if shapes, dtypes and biases allow it", "[cuda]") {
  NEEDS_GPU();
  const Tensor x = noise({4, 16}, 1).to(gpu);
  const Operands w = operands_of(noise({24, 16}, 2), 0, {16, 8}),
                 b = operands_of(noise({24}, 3), 0, {16, 8});
  const auto expect = [&](const Tensors& weights, const Tensors& biases) {
    const Tensors y = linear(x, weights, biases);
    for (size_t i = 0; i < 2; ++i)
      CHECK(difference(y[i], linear(x, weights[i].clone(), biases[i])) < 1e-5);
  };
  expect(w.parts, {b.parts[0], {}});
  expect(w.parts, {b.parts[0], b.separate[1]});
  expect({w.parts[1], w.parts[0]}, {{}, {}});
  expect({w.parts[0], w.separate[1]}, {{}, {}});
  CHECK(linear(noise({0, 16}, 1).to(gpu), w.parts, b.parts)[1].shape() == Shape{0, 8});
  CHECK_THROWS_WITH(linear(x, w.parts, {{}}), Containing("[linear] got 2 weights and 1 biases"));
  CHECK_THROWS_WITH(linear(x, w.parts, {b.parts[1], b.parts[0]}), Containing("[linear] bias"));
  const Tensors other = split_into_parts(noise({24}, 3).to(gpu), 0, {8, 16});
  CHECK_THROWS_WITH(linear(x, w.parts, other), Containing("[linear] bias"));
  CHECK_THROWS_WITH(linear(ones({}, options_of(x)), w.parts, b.parts), Containing("[linear] x"));
  CHECK_THROWS_WITH(linear(x.to(bf16), w.parts, b.parts), Containing("[matmul]"));
}

TEST_CASE("second derivatives of packed layers are those of separate ones", "[cuda]") {
  NEEDS_GPU();
  const Tensor x = noise({3, 8}, 1, f64).to(gpu).set_requires_grad();
  const Operands w = operands_of(noise({16, 8}, 2, f64), 0, {8, 8});
  const auto second = [&](const Tensors& weights) {
    const Tensors y = linear(x, weights, Tensors(2));
    const Tensor first = grad({y[0] * y[1] * y[1]}, {weights[0]}, {ones({3, 8}, options_of(x))},
                              {.create_graph = true})[0];
    return grad({sum(first * first)}, {x})[0];
  };
  CHECK(difference(second(w.parts), second(w.separate)) < 1e-10);
}

TEST_CASE("parameters of attention are packed on a GPU, in any dtype and in clones", "[cuda]") {
  NEEDS_GPU();
  nn::MultiHeadAttention m({.d_model = 32, .n_heads = 4, .n_kv_heads = 2});
  CHECK(!is_packed(m));
  const Tensor before = m.k.weight.clone();
  m.to(gpu);
  CHECK(is_packed(m));
  CHECK(join_parts({m.q.bias, m.k.bias, m.v.bias}, 0).defined());
  CHECK(same_values(m.k.weight, before));
  m.to(bf16);
  CHECK(is_packed(m));
  CHECK(same_values(m.k.weight, before.to(bf16)));
  CHECK(is_packed(*nn::clone(m)));
  m.to(cpu).to(f32).to(gpu);
  CHECK(is_packed(m));
  nn::FeedForward gated({.d_model = 32, .d_hidden = 64, .gated = true});
  gated.to(gpu);
  CHECK(join_parts({gated.linear1.weight, gated.up->weight}, 0).defined());
  CHECK(join_parts({gated.linear1.bias, gated.up->bias}, 0).defined());
}

TEST_CASE("packed parameters change independently", "[cuda]") {
  NEEDS_GPU();
  nn::MultiHeadAttention m({.d_model = 16, .n_heads = 2});
  m.to(gpu);
  // An optimizer that takes its step while the backward pass is running.
  for (const Tensor& p : m.parameters())
    p.register_post_accumulate_grad_hook([p] {
      const NoGrad guard;
      p.sub_(p.grad(), 0.1);
      p.set_grad({});
    });
  const Tensor x = noise({2, 6, 16}, 1).to(gpu), context = noise({2, 7, 16}, 2).to(gpu);
  const Tensor k = m.k.weight.clone();
  sum(square(m(x, context, {}))).backward();  // q is a layer, k and v are another
  sum(square(m(x))).backward();
  CHECK(difference(k, m.k.weight) > 1e-3);
  // Gradients in bf16 are summed in f32 over two passes, each for itself.
  nn::MultiHeadAttention narrow({.d_model = 16, .n_heads = 2});
  narrow.to(bf16).to(gpu);
  const auto once = [&](double factor) { (sum(square(narrow(x.to(bf16)))) * factor).backward(); };
  once(1);
  const Tensor first = narrow.q.weight.grad().clone();
  for (int i = 0; i < 512; ++i) once(1.0 / 512);
  CHECK(difference(narrow.q.weight.grad(), first * 2.0) <= max(abs(first)).item() * 4 * unit(bf16));
}

TEST_CASE("attention with packed layers agrees with the CPU", "[cuda]") {
  NEEDS_GPU();
  struct Case {
    const char* name;
    nn::MakePositionalEncoding position;
  };
  for (const auto& [name, position] : {Case{"none", {}}, Case{"rotary", nn::rotary()},
                                       Case{"relative", nn::music_relative({.max_length = 300})}})
    for (const int64_t groups : {4, 2})
      for (const bool bias : {false, true}) {
        CAPTURE(name, groups, bias);
        nn::MultiHeadAttention m({.d_model = 32,
                                  .n_heads = 4,
                                  .n_kv_heads = groups,
                                  .bias = bias,
                                  .position = position});
        const auto copy = nn::clone(m);
        copy->to(gpu);
        REQUIRE(is_packed(*copy));
        const auto run = [&](const nn::MultiHeadAttention& of, const Tensor& x) {
          Tensors leaves = of.parameters();
          leaves.push_back(x);
          const Tensor y = of(x, {.causal = true});
          Tensors all = grad({sum(y * sin(y))}, leaves);
          all.push_back(y);
          return all;
        };
        const Tensor x = noise({2, 260, 32}, 7);  // from 256 keys on, attention is fused in f32
        const Tensors expected = run(m, x.clone().set_requires_grad()),
                      got = run(*copy, x.to(gpu).set_requires_grad());
        for (size_t i = 0; i < got.size(); ++i) {
          CAPTURE(i);
          CHECK(difference(expected[i], got[i]) <= 2e-5 * (1 + max(abs(expected[i])).item()));
        }
      }
}

TEST_CASE("cross-attention and gated networks with packed layers agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  const auto gradients = [](const nn::Module& m, const std::function<Tensor(Device)>& output,
                            Device device) {
    Tensors all = grad({square(output(device)).sum()}, m.parameters());
    all.push_back(output(device));
    return all;
  };
  const auto compare = [&](const auto& m, const auto& output) {
    const auto copy = nn::clone(m);
    copy->to(gpu);
    const Tensors expected = gradients(
                      m, [&](Device at) { return output(m, at); }, cpu),
                  got = gradients(
                      *copy, [&](Device at) { return output(*copy, at); }, gpu);
    for (size_t i = 0; i < got.size(); ++i)
      CHECK(difference(expected[i], got[i]) <= 2e-5 * (1 + max(abs(expected[i])).item()));
  };
  const Tensor x = noise({2, 9, 32}, 1), context = noise({2, 300, 32}, 2);
  compare(
      nn::MultiHeadAttention({.d_model = 32, .n_heads = 4}),
      [&](const nn::MultiHeadAttention& m, Device at) { return m(x.to(at), context.to(at), {}); });
  for (const int64_t hidden : {64, 44})
    compare(
        nn::FeedForward(
            {.d_model = 32, .d_hidden = hidden, .activation = nn::Activation::silu, .gated = true}),
        [&](const nn::FeedForward& m, Device at) { return m(x.to(at)); });
}

TEST_CASE("gradients of packed layers may be expanded tensors", "[cuda]") {
  NEEDS_GPU();
  const Tensor x = noise({1, 6, 16}, 1).to(gpu).set_requires_grad();
  const Operands w = operands_of(noise({24, 16}, 2), 0, {16, 8});
  const auto of_x = [&](const Tensors& weights) {
    const Tensors y = linear(x, weights, Tensors(2));
    return grad({sum(y[0]) + 2 * sum(y[1])}, {x, weights[0], weights[1]});
  };
  const Tensors expected = of_x(w.separate), got = of_x(w.parts);
  for (size_t i = 0; i < 3; ++i) CHECK(difference(expected[i], got[i]) < 1e-4);
  // Only one of the results has a gradient.
  const Tensors y = linear(x, w.parts, Tensors(2));
  CHECK(difference(grad({sum(y[1])}, {x})[0], grad({sum(linear(x, w.separate[1]))}, {x})[0]) <
        1e-5);
}

TEST_CASE("a cache of packed layers does not keep the queries", "[cuda]") {
  NEEDS_GPU();
  const NoGrad guard;
  nn::MultiHeadAttention m({.d_model = 64, .n_heads = 8, .n_kv_heads = 1});
  m.to(gpu);
  const Tensor x = noise({2, 128, 64}, 1).to(gpu);
  m(x);
  const int64_t before = gpu_bytes();
  nn::KeyValueCache cache;
  const Tensor y = m(x, {.causal = true}, &cache);
  const int64_t row = 2 * 128 * item_size(f32);
  CHECK(gpu_bytes() - before <= row * (64 + 2 * 8) + 1024);
}

TEST_CASE("layers with adapters are not packed", "[cuda]") {
  NEEDS_GPU();
  nn::MultiHeadAttention m({.d_model = 16, .n_heads = 2});
  m.to(gpu);
  const Tensor x = noise({2, 6, 16}, 1).to(gpu), before = m(x);
  m.v.set_lora({.rank = 2});
  CHECK(difference(m(x), before) <= 1e-6);
  {
    const NoGrad guard;
    m.v.lora()->b.fill_(0.5);
  }
  CHECK(difference(m(x), before) > 1e-3);
}

TEST_CASE("halves of one block are gate and argument of an activation", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : floating)
    for (const int64_t width : {8, 24, 12, 7})
      for (const double p : {0.0, 0.4}) {
        CAPTURE(name(t), width, p);
        const Operands x = operands_of(noise({3, 5, 2 * width}, 9, t), -1, {width, width});
        const auto results = [&](const Tensors& halves) {
          const Tensor y =
              gated_activation(halves[0], halves[1], Activation::silu, p, RandomKey{4, 2});
          Tensors all = grad({y}, halves, {noise({3, 5, width}, 10, t).to(gpu)});
          CHECK(join_parts(all, -1).defined() == (&halves == &x.parts && width % 8 == 0));
          all.push_back(y);
          return all;
        };
        const Tensors expected = results(x.separate), got = results(x.parts);
        for (size_t i = 0; i < got.size(); ++i) CHECK(same_values(expected[i], got[i]));
      }
}

// Their rows are three widths apart, not two.
TEST_CASE("two of three parts of a block are gate and argument of an activation", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : floating) {
    const int64_t width = 16;
    const Operands x = operands_of(noise({3, 5, 3 * width}, 9, t), -1, {width, width, width});
    for (const auto& [gate, up] : {std::pair<size_t, size_t>{0, 1}, {1, 2}, {0, 2}, {1, 0}}) {
      CAPTURE(name(t), gate, up);
      const auto results = [&, gate = gate, up = up](const Tensors& parts) {
        const Tensor y =
            gated_activation(parts[gate], parts[up], Activation::silu, 0.4, RandomKey{4, 2});
        Tensors all = grad({y}, {parts[gate], parts[up]}, {noise({3, 5, width}, 10, t).to(gpu)});
        all.push_back(y);
        return all;
      };
      const Tensors expected = results(x.separate), got = results(x.parts);
      for (size_t i = 0; i < got.size(); ++i) CHECK(same_values(expected[i], got[i]));
    }
  }
}

TEST_CASE(
    "queries and keys of one block are rotated in one launch, in place if nobody else has them",
    "[cuda]") {
  NEEDS_GPU();
  for (const DType t : floating)
    for (const int64_t d : {8, 6}) {
      CAPTURE(name(t), d);
      const Operands x = operands_of(noise({2, 3, 5, d}, 11, t), 1, {2, 1});
      const auto results = [&](const Tensors& q_and_k) {
        Tensors y = rotate({q_and_k[0] * 1.0, q_and_k[1] * 1.0}, 3);
        const Tensors g = split_into_parts(noise({2, 3, 5, d}, 12, t).to(gpu), 1, {2, 1});
        Tensors all = grad(y, q_and_k, g);
        all.insert(all.end(), y.begin(), y.end());
        return all;
      };
      const Tensors apart = results(x.separate);
      Tensors y = rotate(x.parts, 3);  // x.parts keeps its values
      CHECK(same_values(x.parts[0], x.separate[0]));
      for (size_t i = 0; i < 2; ++i) CHECK(same_values(y[i], apart[2 + i]));
      CHECK(join_parts(y, 1).defined());
      const Tensors g = split_into_parts(noise({2, 3, 5, d}, 12, t).to(gpu), 1, {2, 1});
      const Tensors of_x = grad(y, x.parts, g);
      for (size_t i = 0; i < 2; ++i) CHECK(same_values(of_x[i], apart[i]));
      CHECK(same_values(g[0], noise({2, 3, 5, d}, 12, t).slice(1, 0, 2)));  // not overwritten
      Tensors own = split_into_parts(noise({2, 3, 5, d}, 11, t).to(gpu), 1, {2, 1});
      const void* const memory = own[0].raw_data();
      const Tensors in_place = rotate(std::move(own), 3);
      CHECK(in_place[0].raw_data() == memory);
      for (size_t i = 0; i < 2; ++i) CHECK(same_values(in_place[i], y[i]));
    }
}

TEST_CASE("rotating does not change parts and gradients that have another handle", "[cuda]") {
  NEEDS_GPU();
  const Tensor x = noise({2, 3, 5, 8}, 11), g = noise({2, 3, 5, 8}, 12);
  const auto parts = [](const Tensor& t) { return split_into_parts(t.to(gpu), 1, {2, 1}); };
  const Tensor expected = rotate(x, 3);
  for (const size_t held : {0, 1}) {
    CAPTURE(held);
    Tensors own = parts(x);
    const Tensors slopes = parts(g);
    const Tensor other = own[held].set_requires_grad();
    const Tensors y = rotate(std::move(own), 3);
    grad(y, {other}, slopes);
    CHECK(same_values(other, parts(x)[held]));
    CHECK(same_values(slopes[held], parts(g)[held]));
    for (size_t i = 0; i < 2; ++i) CHECK(same_values(y[i], parts(expected)[i]));
  }
}

TEST_CASE("a residual branch and its norm equal dropout_add and the norm", "[cuda]") {
  NEEDS_GPU();
  uint64_t stream = 5000;
  for (const Shape& shape : {Shape{0, 8}, Shape{5, 8}, Shape{2, 3, 512}, Shape{300, 64},
                             Shape{9, 1024}, Shape{3, 4096}, Shape{3, 8200}, Shape{9, 513}})
    for (const DType t : floating)
      for (const bool center : {true, false})
        for (const double p : {0.0, 0.3, 1.0}) {
          CAPTURE(str(shape), name(t), center, p);
          stream += 8;
          const bool affine = shape[0] != 9, sum_used = shape[0] != 3;
          const double far =
              shape[0] == 5 || shape[0] == 3 ? 3000 : 0;  // rows whose mean is far from 0
          Tensors leaves;
          for (const Tensor& v :
               {noise(shape, stream, t), noise(shape, stream + 1, t) + far,
                noise({shape.back()}, stream + 2, t), noise({shape.back()}, stream + 3, t)})
            leaves.push_back(v.to(gpu).detach().set_requires_grad());
          const Tensor w = affine ? leaves[2] : Tensor(), b = affine ? leaves[3] : Tensor();
          const RandomKey key{3, stream};
          const auto results = [&](bool together) {
            const Tensor x = leaves[0] * 1.0;
            Tensors y;
            if (together) {
              y = center ? add_layer_norm(x, leaves[1], {p, key}, w, b)
                         : add_rms_norm(x, leaves[1], {p, key}, w);
            } else {
              y.push_back(p > 0 ? dropout_add(x, leaves[1], p, key) : leaves[1] + x);
              y.push_back(center ? layer_norm(y[0], w, b) : rms_norm(y[0], w));
            }
            Tensors slopes{noise(shape, stream + 4, t).to(gpu)}, outputs{y[1]};
            if (sum_used) {
              slopes.push_back(noise(shape, stream + 5, t).to(gpu));
              outputs.push_back(y[0]);
            }
            Tensors all = grad(outputs, leaves, slopes);
            all.insert(all.end(), y.begin(), y.end());
            return all;
          };
          const Tensors expected = results(false), got = results(true);
          for (size_t i = 0; i < got.size(); ++i) {
            CAPTURE(i);
            REQUIRE(got[i].defined() == expected[i].defined());
            if (got[i].defined()) CHECK(same_values(expected[i], got[i]));
          }
        }
}

TEST_CASE("a residual branch may begin at any address", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : {f32, bf16})
    for (const int64_t offset : {1, 2, 8}) {
      const auto results = [&](int64_t of_x, int64_t of_residual) {
        return add_layer_norm(begins_at(of_x, noise({3, 64}, 1, t)),
                              begins_at(of_residual, noise({3, 64}, 2, t)), {0.25, {1, 2}});
      };
      const Tensors expected = results(0, 0);
      for (const Tensors& got : {results(offset, 0), results(0, offset)})
        for (size_t i = 0; i < 2; ++i) CHECK(same_values(expected[i], got[i]));
    }
}

TEST_CASE("a residual branch and its norm save the sum and the norm only", "[cuda]") {
  NEEDS_GPU();
  const int64_t bytes = 64 * 512 * item_size(f32);
  Tensor x = noise({64, 512}, 1).to(gpu).set_requires_grad() * 1.0,
         residual = noise({64, 512}, 2).to(gpu).set_requires_grad() * 1.0;
  const int64_t before = gpu_bytes();
  const Tensors y = add_rms_norm(x, residual, {0.25, {1, 2}});
  x = residual = {};
  CHECK(gpu_bytes() - before <= 1024);  // two tensors less, two more
  CHECK(bytes > 1024);
}

TEST_CASE("second derivatives of a residual branch and its norm", "[cuda]") {
  NEEDS_GPU();
  const RandomKey key{2, 3};
  for (const bool center : {true, false}) {
    Tensors leaves;
    for (const auto& [shape, stream] :
         {std::pair<Shape, uint64_t>{{3, 8}, 1}, {{3, 8}, 2}, {{8}, 3}, {{8}, 4}})
      leaves.push_back(noise(shape, stream).to(gpu).set_requires_grad());
    const auto second = [&](bool fused) {
      Tensors y;
      if (fused) {
        y = center ? add_layer_norm(leaves[0], leaves[1], {0.25, key}, leaves[2], leaves[3])
                   : add_rms_norm(leaves[0], leaves[1], {0.25, key}, leaves[2]);
      } else {
        y.push_back(dropout_add(leaves[0], leaves[1], 0.25, key));
        y.push_back(center ? layer_norm(y[0], leaves[2], leaves[3]) : rms_norm(y[0], leaves[2]));
      }
      const Tensors first = grad({sum(y[0] * y[1] * y[1])}, {leaves[0], leaves[1], leaves[2]}, {},
                                 {.create_graph = true});
      return grad({sum(square(first[0])) + sum(first[1] * first[0]) + sum(square(first[2]))},
                  {leaves[0], leaves[1], leaves[2]});
    };
    const Tensors expected = second(false), got = second(true);
    for (size_t i = 0; i < 3; ++i)
      CHECK(difference(expected[i], got[i]) <= 1e-4 * (1 + max(abs(expected[i])).item()));
  }
}
