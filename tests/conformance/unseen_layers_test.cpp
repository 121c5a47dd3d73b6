// Generated cases of whole layers, by formulas in ops of f64, and how much of the error of bf16
// layers is due to bf16 itself: the same formulas with each tensor between two ops rounded to bf16
// once, forward and backward, while all arithmetic is exact. The errors of both are relative to f64.
#include <cmath>

#include "autograd/tape.h"
#include "nn/positions/sinusoid.h"
#include "ops/attention/mask.h"
#include "ops/attention/skew.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "tests/conformance/subjects.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using conformance::Candidate;
using conformance::candidates;
using conformance::Case;
using conformance::Config;
using conformance::Result;
using conformance::tolerance;
using testing::fixed_noise;

namespace {

/// `memory` ≥ 0 makes a layer of Transformer-XL, which is causal and post-norm with ReLU.
struct Setting {
  int64_t b, l, e, h, ff;
  bool pre = false, gelu = false, causal = false, padding = false;
  int64_t memory = -1, clamp = 0;
};

/// `scale` multiplies the inputs and the weights of the queries.
struct Noise {
  DType dtype = f64;
  uint64_t seed = 0;
  double scale = 1;
};

class Layer {
 public:
  Layer(const Setting& setting, const Noise& given)
      : s(setting), noise(given), xl(s.memory >= 0), d(s.e / s.h) {
    const DefaultDevice host(cpu);
    input("in.x", {s.b, s.l, s.e}, noise.scale);
    const char* prefix = xl ? "param." : "param.attn.";
    weights(str(prefix, "q"), s.e, s.e, noise.scale);
    for (const char* name : {"k", "v", "o"}) weights(str(prefix, name), s.e, s.e);
    if (xl) weights("param.r", s.e, s.e);
    for (const char* name : {"param.u", "param.v_bias"})
      if (xl) input(name, {s.h, d});
    weights("param.ff.1", s.ff, s.e);
    weights("param.ff.2", s.e, s.ff);
    for (const char* name : {"param.norm.1", "param.norm.2"}) {
      input(str(name, ".weight"), {s.e}, 0.3, 1);
      input(str(name, ".bias"), {s.e}, 0.3);
    }
  }

  // Returns the case, with the output and the gradients of the formula.
  Case make() {
    const DefaultDevice host(cpu);
    Case c{.name = xl ? "xl" : "encoder",
           .subject = xl ? "layer.xl" : "layer.encoder",
           .config = Config(config()),
           .tensors = {}};
    if (s.padding) {
      std::vector<uint8_t> padded(size_t(s.b * s.l));
      for (size_t i = 1; i < padded.size(); i += 3) padded[i] = 1;
      c.tensors.set("in.key_padding", tensor(padded, {s.b, s.l}));
      hidden = tensor(padded, {s.b, 1, 1, s.l}).to(boolean);
    }
    if (xl) {
      memory = rounded(fixed_noise({s.b, s.memory, s.e}, 3 + noise.seed) * 0.5 + 0.5);
      c.tensors.set("in.memory", memory);
    }
    const Tensor y = output();
    const Tensor cotangent = rounded(fixed_noise(y.shape(), 10000 * noise.seed + 99));
    c.tensors.set("out.y", rounded(y.detach()));
    c.tensors.set("gout.y", cotangent);
    stretto::Tensors leaves;
    for (const auto& [name, x] : inputs) leaves.push_back(x);
    const stretto::Tensors gradients = grad({y}, leaves, {cotangent});
    size_t i = 0;
    for (const auto& [name, x] : inputs) {
      c.tensors.set(name, x.detach());
      c.tensors.set("grad." + name, rounded(gradients[i++]));
    }
    return c;
  }

  std::vector<double> before_relu;

 private:
  std::string config() const {
    const std::string sizes =
        str(R"({"B": )", s.b, R"(, "E": )", s.e, R"(, "H": )", s.h, R"(, "ff": )", s.ff);
    if (xl)
      return str(sizes, R"(, "M": )", s.l, R"(, "mem": )", s.memory,
                 s.clamp > 0 ? str(R"(, "clamp": )", s.clamp) : "", "}");
    return str(sizes, R"(, "L": )", s.l, R"(, "norm": ")", s.pre ? "pre" : "post",
               R"(", "activation": ")", s.gelu ? "gelu" : "relu", R"(", "causal": )",
               s.causal ? "true" : "false", s.padding ? R"(, "key_padding": true})" : "}");
  }

  void input(const std::string& name, const Shape& shape, double scale = 1, double shift = 0) {
    const Tensor x = fixed_noise(shape, 10000 * noise.seed + 100 + inputs.size());
    inputs[name] = rounded(x * scale + shift).set_requires_grad();
  }
  void weights(const std::string& name, int64_t out, int64_t in, double scale = 1) {
    input(name + ".weight", {out, in}, scale / std::sqrt(double(in)));
    if (!xl || name.rfind("param.ff", 0) == 0) input(name + ".bias", {out}, 0.3);
  }

  // Returns a tensor as an op stores it; the gradient is rounded, too.
  Tensor rounded(const Tensor& x) const { return noise.dtype == bf16 ? x.to(bf16).to(f64) : x; }

  Tensor linear(const std::string& name, const Tensor& x) const {
    const Tensor y = matmul(x, inputs.at(name + ".weight").transpose(0, 1));
    const auto bias = inputs.find(name + ".bias");
    return rounded(bias == inputs.end() ? y : y + bias->second);
  }
  Tensor norm(const std::string& name, const Tensor& x) const {
    const Tensor centered = x - mean(x, {-1}, true);
    const Tensor variance = mean(centered * centered, {-1}, true);
    return rounded(centered * rsqrt(variance + 1e-5) * inputs.at(name + ".weight") +
                   inputs.at(name + ".bias"));
  }
  Tensor heads(const Tensor& x) const {
    return x.reshape({x.size(0), x.size(1), s.h, d}).transpose(1, 2);
  }

  Tensor attention(const Tensor& x) const {
    const std::string prefix = xl ? "param." : "param.attn.";
    const Tensor all = xl ? cat({memory, x}, 1) : x;
    const int64_t n = all.size(1);
    const Tensor q = heads(linear(prefix + "q", x)), k = heads(linear(prefix + "k", all));
    const Tensor v = heads(linear(prefix + "v", all));
    Tensor scores;
    if (xl) {
      std::vector<double> distances;
      for (int64_t distance = n - 1; distance >= 0; --distance)
        distances.push_back(double(s.clamp > 0 ? std::min(distance, s.clamp) : distance));
      const Tensor sinusoids =
          nn::sinusoids(distances, s.e, nn::Sinusoid::concatenated, {.dtype = f64});
      const Tensor r = heads(linear("param.r", rounded(sinusoids).unsqueeze(0)));
      const Tensor content = rounded(q + inputs.at("param.u").unsqueeze(1));
      const Tensor position = rounded(q + inputs.at("param.v_bias").unsqueeze(1));
      scores =
          matmul(content, k.transpose(-1, -2)) + skew(matmul(position, r.transpose(-1, -2)), n);
    } else {
      scores = matmul(q, k.transpose(-1, -2));
    }
    scores = scores / std::sqrt(double(d));
    const double never = -std::numeric_limits<double>::infinity();
    if (xl || s.causal)
      scores = masked_fill(scores, attention_mask(s.l, n, {.causal = true}), never);
    if (s.padding) scores = masked_fill(scores, hidden, never);
    const Tensor y = rounded(matmul(softmax(scores, -1), v));
    return linear(prefix + "o", y.transpose(1, 2).reshape({s.b, s.l, s.e}));
  }

  Tensor feed_forward(const Tensor& x) {
    const Tensor units = linear("param.ff.1", x);
    if (!s.gelu) before_relu = units.to_vector<double>();
    return linear("param.ff.2",
                  rounded(s.gelu ? units * (erf(units * std::sqrt(0.5)) + 1) * 0.5 : relu(units)));
  }

  Tensor output() {
    const Tensor& x = inputs.at("in.x");
    Tensor y = rounded(x + attention(s.pre ? norm("param.norm.1", x) : x));
    if (!s.pre) y = norm("param.norm.1", y);
    y = rounded(y + feed_forward(s.pre ? norm("param.norm.2", y) : y));
    return s.pre ? y : norm("param.norm.2", y);
  }

  const Setting s;
  const Noise noise;
  const bool xl;
  const int64_t d;
  std::map<std::string, Tensor> inputs;
  Tensor memory, hidden;
};

bool compared(const std::string& name) {
  return name.rfind("out.", 0) == 0 || name.rfind("grad.", 0) == 0;
}

double worst_of(const Case& got, const Case& want) {
  double worst = 0;
  for (const auto& [name, x] : got.tensors)
    if (compared(name)) worst = std::max(worst, testing::worst_error(x, want.tensors[name]));
  return worst;
}

// Returns Σ (got − want)² in units of the tensor's scale, as in worst_error().
double squares(const Tensor& got, const Tensor& want) {
  const double largest = std::max(1.0, max(abs(want)).item());
  const Tensor error = got.to(cpu).to(f64) - want;
  return sum(error * error).item() / (largest * largest);
}

}  // namespace

TEST_CASE("conformance, unseen: layer.encoder and layer.xl") {
  const Setting settings[] = {
      {1, 1, 2, 1, 1, false, false, true},
      {2, 9, 6, 3, 7, false, true, false, true},
      {1, 5, 10, 5, 4, true, false, true, true},
      {2, 3, 4, 2, 9, true, true},
      {.b = 1, .l = 1, .e = 2, .h = 1, .ff = 1, .memory = 0},
      {.b = 2, .l = 1, .e = 6, .h = 3, .ff = 5, .memory = 6, .clamp = 2},
      {.b = 1, .l = 7, .e = 4, .h = 1, .ff = 3, .memory = 2, .clamp = 1},
      {.b = 2, .l = 3, .e = 10, .h = 5, .ff = 4, .memory = 4, .clamp = 6},
      {.b = 1, .l = 4, .e = 4, .h = 2, .ff = 3, .memory = 3, .clamp = 100},
  };
  for (const Setting& s : settings) {
    const Case c = Layer(s, {}).make();
    for (const DType dtype : {f64, f32})
      for (const Candidate& candidate : candidates(c.subject)) {
        const Result result = run(c, candidate, dtype);
        INFO(c.subject << ", " << candidate.name << ", " << name(dtype) << ": worst "
                       << result.worst << " at " << result.where);
        CHECK(result.worst <= tolerance(dtype));
      }
  }
}

TEST_CASE("bf16 layers lose what rounding once per op loses") {
  for (const Setting& s :
       {Setting{2, 7, 16, 4, 24, true, true, true}, Setting{2, 9, 6, 3, 7, true, true, false, true},
        Setting{2, 7, 16, 4, 24, false, true, true}})
    for (const double scale : {1.0, 3.0}) {
      std::map<std::string, std::map<std::string, double>> sums;  // by candidate and tensor
      double worst = 0;
      for (uint64_t seed = 0; seed < 16; ++seed) {
        const Case exact = Layer(s, {.seed = seed, .scale = scale}).make();
        const Case once = Layer(s, {.dtype = bf16, .seed = seed, .scale = scale}).make();
        for (const auto& [name, x] : once.tensors)
          if (compared(name)) sums[""][name] += squares(x, exact.tensors[name]);
        for (const Candidate& candidate : candidates(exact.subject)) {
          const Result result = run(exact, candidate, bf16);
          worst = std::max(worst, result.worst);
          for (const auto& [name, x] : result.computed)
            sums[candidate.name][name] += squares(x, exact.tensors[name]);
        }
      }
      INFO((s.pre ? "pre-norm" : "post-norm") << ", L " << s.l << ", scale " << scale);
      CHECK(worst < tolerance(bf16));
      for (const auto& [candidate, errors] : sums)
        for (const auto& [name, sum] : errors) {
          // A gradient is rounded when an op returns it, and again when several are added. Fused
          // attention also rounds its weights and their gradients, as operands. That makes three
          // roundings for one of the simulation; squares of independent errors add up.
          INFO(candidate << ", " << name << ": " << std::sqrt(sum / sums[""][name])
                         << " times the errors of rounding once");
          CHECK(sum <= 3 * sums[""][name]);
        }
    }
}

TEST_CASE("bf16 gradients jump only if rounding moves a unit across the kink of ReLU") {
  const Setting settings[] = {
      {2, 7, 16, 4, 24, true, false, false, true},
      {1, 3, 8, 2, 4, true},
      {.b = 1, .l = 3, .e = 8, .h = 2, .ff = 4, .memory = 4},
      {.b = 2, .l = 5, .e = 16, .h = 4, .ff = 24, .memory = 6},
      {.b = 1, .l = 6, .e = 8, .h = 2, .ff = 12, .memory = 3, .clamp = 4},
  };
  int clear = 0, jumps = 0;
  for (const Setting& s : settings)
    for (const double scale : {1.0, 3.0})
      for (uint64_t seed = 0; seed < 24; ++seed) {
        INFO("L " << s.l << ", memory " << s.memory << ", scale " << scale << ", seed " << seed);
        Layer layer(s, {.seed = seed, .scale = scale});
        Layer rounding(s, {.dtype = bf16, .seed = seed, .scale = scale});
        const Case exact = layer.make(), once = rounding.make();
        // The largest change of a unit by rounding, and the smallest distance of a unit from 0.
        double moved = 0, nearest = 1e9;
        for (size_t i = 0; i < layer.before_relu.size(); ++i) {
          moved = std::max(moved, std::fabs(layer.before_relu[i] - rounding.before_relu[i]));
          nearest = std::min(nearest, std::fabs(layer.before_relu[i]));
        }
        const bool far = nearest > 2 * moved;
        clear += far;
        jumps += worst_of(once, exact) > tolerance(bf16);
        for (const Candidate& candidate : candidates(exact.subject)) {
          const Result result = run(exact, candidate, bf16);
          INFO(candidate.name << ": " << result.worst << " at " << result.where);
          CHECK(testing::worst_error(result.computed["out.y"], exact.tensors["out.y"]) <
                tolerance(bf16));
          if (far) CHECK(result.worst < tolerance(bf16));
        }
      }
  CHECK(clear > 20);
  CHECK(jumps > 20);  // of the simulation itself: any arithmetic on bf16 tensors has them
}
