// Generated cases with sizes and settings that the files of cases/ do not have: outputs by the loops
// of tests/reference/, and gradients that all implementations must agree on.
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/view.h"
#include "tests/conformance/subjects.h"
#include "tests/reference/adaptive.h"
#include "tests/reference/attention.h"
#include "tests/reference/linear_attention.h"
#include "tests/reference/random_features.h"
#include "tests/reference/relative_bias.h"
#include "tests/reference/rotary.h"
#include "tests/reference/spe.h"
#include "tests/support/catch.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using conformance::Candidate;
using conformance::Case;
using conformance::Config;
using conformance::Result;
using testing::fixed_noise;

namespace {

class Generated {
 public:
  Generated(const std::string& subject, const std::string& config)
      : case_{.name = config, .subject = subject, .config = Config(config), .tensors = {}} {}

  // Adds an input of noise in [−1, 1), times `scale`, plus `shift`, that gets a gradient.
  Tensor leaf(const std::string& name, const Shape& shape, double scale = 1, double shift = 0) {
    leaves_.push_back(name);
    return constant(name, fixed_noise(shape, 100 + leaves_.size()) * scale + shift);
  }
  Tensor constant(const std::string& name, const Tensor& x) {
    case_.tensors.set(name, x);
    return x;
  }

  // Checks every candidate in every dtype against these outputs, and against the gradients of the
  // first candidate in f64.
  void check(const std::vector<std::pair<const char*, Tensor>>& outputs) {
    for (const auto& [name, y] : outputs) {
      case_.tensors.set(str("out.", name), y);
      case_.tensors.set(str("gout.", name), fixed_noise(y.shape(), 99));
    }
    for (const std::string& name : leaves_)
      case_.tensors.set("grad." + name, zeros_like(case_.tensors[name]));
    const std::vector<Candidate> candidates = conformance::candidates(case_.subject);
    for (const auto& [name, x] : run(case_, candidates.at(0), f64).computed)
      if (name.rfind("grad.", 0) == 0) case_.tensors.set(name, x);
    for (const DType dtype : {f64, f32, bf16})
      for (const Candidate& candidate : candidates) {
        INFO(case_.subject << " " << case_.name << ", " << candidate.name << ", " << name(dtype));
        const Result result = run(case_, candidate, dtype);
        INFO("worst " << result.worst << " at " << result.where);
        CHECK(result.worst <= conformance::tolerance(dtype));
      }
  }

 private:
  Case case_;
  std::vector<std::string> leaves_;
};

struct Setting {
  int64_t b = 2, h = 2, g = 2, m = 5, n = 5, d = 4, dv = 4;
  bool causal = false;
  int64_t window = 0;
  bool padding = false;
};

// One row, one query of many keys, lengths that no block or chunk divides, a head of 41, empty
// tensors. Batch entry 2 has only padded keys.
const Setting settings[] = {
    {.m = 1, .n = 1},
    {.b = 1, .m = 1, .n = 9, .causal = true},
    {.b = 1, .h = 3, .g = 3, .m = 7, .n = 7, .d = 41, .dv = 3, .causal = true},
    {.b = 1, .h = 4, .m = 3, .n = 8, .d = 2, .causal = true, .padding = true},
    {.b = 3, .h = 6, .m = 6, .n = 6, .d = 2, .padding = true},
    {.b = 1, .h = 1, .g = 1, .m = 66, .n = 66, .d = 2, .causal = true},
    {.b = 1, .m = 65, .n = 130, .d = 2},
    {.b = 1, .m = 67, .n = 71, .d = 2, .causal = true, .window = 5},
    {.b = 1, .m = 9, .n = 9, .d = 3, .window = 1},
    {.b = 1, .m = 4, .n = 12, .d = 2, .causal = true, .window = 40},
    {.b = 0, .m = 3, .n = 3, .causal = true},
    {.b = 1, .m = 6, .n = 2},  // queries before the first key
    {.b = 1, .m = 3, .n = 0},
    {.b = 1, .m = 0, .n = 3, .causal = true},
    {.b = 1, .m = 0, .n = 0, .causal = true},
};

// A case of attention. A subject adds its parameters and options.
struct Attention : Generated, Setting {
  Tensor q, k, v;
  AttentionOptions o;

  Attention(const std::string& subject, const Setting& s, const std::string& config = "")
      : Generated("attention." + subject,
                  str(R"({"B": )", s.b, R"(, "H": )", s.h, R"(, "M": )", s.m, R"(, "N": )", s.n,
                      R"(, "D": )", s.d, R"(, "Dv": )", s.dv, R"(, "key_heads": )", s.g,
                      s.causal ? R"(, "causal": true)" : "",
                      s.window > 0 ? str(R"(, "window": )", s.window) : "",
                      s.padding ? R"(, "key_padding": true)" : "", config, "}")),
        Setting(s),
        q(leaf("in.q", {b, h, m, d}, 1.5)),
        k(leaf("in.k", {b, g, n, d}, 1.5)),
        v(leaf("in.v", {b, g, n, dv})) {
    o.mask.causal = causal;
    o.mask.window = window;
    if (!padding) return;
    std::vector<double> padded;
    for (int64_t i = 0; i < b * n; ++i) padded.push_back(i / n == 2 || (i % n + i / n) % 3 == 1);
    o.mask.key_padding = constant("in.key_padding", tensor(padded, {b, n}).to(boolean));
  }
  void check() { Generated::check({{"y", reference::attention(q, k, v, o)}}); }
};

}  // namespace

TEST_CASE("conformance, unseen: attention.dot, attention.alibi") {
  for (const Setting& s : settings) {
    Attention("dot", s).check();
    Attention alibi("alibi", s);
    alibi.o.bias = reference::alibi_bias(s.h, s.m, s.n);
    alibi.check();
  }
}

TEST_CASE("conformance, unseen: attention.shaw") {
  for (const Setting& s : settings)
    for (const int64_t clip : {0, 3, 80})
      for (const bool values : {true, false}) {
        Attention a("shaw", s, str(R"(, "clip": )", clip, values ? "" : R"(, "values": false)"));
        const auto table = [&](const char* name, int64_t width) -> RelativeTable {
          return {a.leaf(name, {2 * clip + 1, width}).unsqueeze(0), clip, OutOfRange::clip};
        };
        a.o.relative_keys = table("param.rel_k", s.d);
        if (values) a.o.relative_values = table("param.rel_v", s.dv);
        a.check();
      }
}

TEST_CASE("conformance, unseen: attention.skewed") {
  for (Setting s : settings)
    for (const bool bidirectional : {false, true})
      for (const bool clip : {false, true})
        for (const int64_t length : {1, 4, 90}) {
          s.causal = !bidirectional;
          if (s.causal && s.m > s.n) continue;
          const bool shared = length == 4;
          Attention a(
              "skewed", s,
              str(R"(, "Lmax": )", length, bidirectional ? R"(, "two_sided": true)" : "",
                  clip ? R"(, "beyond": "clip")" : "", shared ? R"(, "shared": true)" : ""));
          const Shape shape{shared ? 1 : s.h, bidirectional ? 2 * length - 1 : length, s.d};
          a.o.relative_keys = {a.leaf("param.rel", shape), length - 1,
                               clip ? OutOfRange::clip : OutOfRange::zero};
          a.check();
        }
}

TEST_CASE("conformance, unseen: attention.skewed_local, attention.xl, attention.kerple") {
  for (Setting s : settings) {
    s.causal = true;
    if (s.m > s.n) continue;
    for (const double least : {0.1, 0.001}) {
      Attention a("kerple", s);
      const Tensor p = a.leaf("param.p", {s.h}, 0.4, 0.4 + least);
      a.o.bias =
          reference::kerple_log_bias(p, a.leaf("param.a", {s.h}, 0.4, 0.4 + least), s.m, s.n);
      a.check();
    }
    s.window = 0;
    for (const int64_t block : {1, 3, 64}) {
      Attention a("skewed_local", s, str(R"(, "block": )", block));
      a.o.mask.block = block;
      a.o.relative_keys = {a.leaf("param.rel", {s.h, 2 * block, s.d}), 2 * block - 1};
      a.check();
    }
    for (const bool same_length : {false, true}) {
      const int64_t mem = s.n - s.m;
      Attention a("xl", s, str(R"(, "mem": )", mem, same_length ? R"(, "same_length": true)" : ""));
      if (same_length) a.o.mask.window = mem + 1;
      if (s.n > 0) a.o.relative_keys = {a.leaf("in.r", {s.h, s.n, s.d}), s.n - 1};
      if (s.n == 0) a.leaf("in.r", {s.h, 0, s.d});
      a.o.relative_query = a.q + a.leaf("param.v", {s.h, s.d}).unsqueeze(1);
      a.q = a.q + a.leaf("param.u", {s.h, s.d}).unsqueeze(1);
      a.check();
    }
  }
}

TEST_CASE("conformance, unseen: attention.t5") {
  for (const Setting& s : settings)
    for (const auto& [buckets, furthest] :
         {std::pair<int64_t, int64_t>{32, 128}, {6, 50}, {10, 7}}) {
      Attention a("t5", s,
                  buckets == 32
                      ? ""  // the defaults
                      : str(R"(, "num_buckets": )", buckets, R"(, "max_distance": )", furthest));
      a.o.scale = 1;
      a.o.bias = reference::t5_bias(a.leaf("param.bias", {buckets, s.h}), s.m, s.n,
                                    double(furthest), !s.causal);
      a.check();
    }
}

TEST_CASE("conformance, unseen: attention.rope") {
  for (const Setting& s : settings)
    for (const RotaryPairing pairing : {RotaryPairing::half, RotaryPairing::interleaved}) {
      if (s.d % 2 == 1) continue;
      const bool half = pairing == RotaryPairing::half;
      Attention a("rope", s, half ? R"(, "pairing": "half")" : R"(, "pairing": "interleaved")");
      a.q = reference::rotated(a.q, s.n - s.m, {.pairing = pairing});
      a.k = reference::rotated(a.k, 0, {.pairing = pairing});
      a.check();
    }
}

TEST_CASE("conformance, unseen: attention.linear, attention.favor") {
  for (const Setting& s : settings) {
    if (s.window > 0) continue;
    const auto check = [](Attention& a, const auto& features, double eps) {
      a.Generated::check({{"y", reference::linear_attention(features(a.q), features(a.k), a.v,
                                                            {.mask = a.o.mask, .eps = eps})}});
    };
    for (const double eps : {0.0, 0.25}) {
      Attention a("linear", s, str(R"(, "feature": "elu1", "eps": )", eps));
      check(a, reference::elu_plus_one, eps);
    }
    Attention a("favor", s, R"(, "R": 6)");
    std::vector<double> values;  // exact in every dtype
    for (int64_t i = 0; i < 6 * s.d; ++i) values.push_back(double(i * i % 7 - 3) / 2);
    const Tensor projection = a.constant("noise.projection", tensor(values, {6, s.d}));
    check(
        a, [&](const Tensor& x) { return reference::positive_features(x, projection); }, 0);
  }
}

TEST_CASE("conformance, unseen: spe.sine, spe.conv") {
  struct Spe {
    int64_t b, l, h, d, r, sines;
    Shape positions, taps;
    bool gated;
  };
  // One position, head dimension 1, one realization, a head of 41, more positions than a tile has.
  for (const Spe& s :
       {Spe{2, 1, 2, 3, 4, 2, {1}, {3}, true}, Spe{2, 7, 1, 1, 1, 1, {7}, {1}, true},
        Spe{1, 3, 1, 41, 2, 1, {3}, {5}, false}, Spe{1, 67, 1, 2, 3, 1, {67}, {2}, true},
        Spe{2, 6, 2, 3, 4, 3, {2, 3}, {2, 3}, true}, Spe{1, 5, 2, 2, 4, 2, {1, 5}, {3, 1}, false}})
    for (const bool sine : {true, false}) {
      const bool plane = s.positions.dim() == 2;
      Generated a(
          sine ? "spe.sine" : "spe.conv",
          str(R"({"gated": )", s.gated ? "true" : "false",
              plane && !sine ? str(R"(, "shape": )", s.positions, R"(, "kernel": )", s.taps) : "",
              "}"));
      const Tensor q = a.leaf("in.q", {s.b, s.l, s.h, s.d});
      const Tensor k = a.leaf("in.k", {s.b, s.l, s.h, s.d});
      const auto noise = [&](const char* name, const Shape& shape) {  // exact in every dtype
        std::vector<double> values;
        for (int64_t i = 0; i < shape.numel(); ++i)
          values.push_back(double((i * i + 3 * i) % 17 - 8) / 4);
        return a.constant(name, tensor(values, shape));
      };
      Tensor code_q, code_k;
      if (sine) {
        const Shape shape{s.h, s.d, s.sines};
        const Tensor f = a.leaf("param.freqs", shape), offsets = a.leaf("param.offsets", shape);
        const Tensor gains = a.leaf("param.gains", shape);
        const Tensor z = noise("noise.z", {s.h, s.d, 2 * s.sines, s.r});
        code_q = reference::sine_code(f, offsets, gains, z, 0, s.l);
        code_k = reference::sine_code(f, {}, gains, z, 0, s.l);
      } else {
        Shape filter{s.h, s.d}, length{s.h, s.d, s.r};
        for (int64_t i = 0; i < s.taps.dim(); ++i) {
          filter.push_back(s.taps[i]);
          length.push_back(s.positions[i] + s.taps[i] - 1);
        }
        const Tensor w_q = a.leaf("param.filter_q", filter, 0.5, 0.5);
        const Tensor w_k = a.leaf("param.filter_k", filter, 0.5, 0.5);
        const Tensor z = noise("noise.z", length);
        const auto code = [&](const Tensor& w) {
          return plane ? reference::conv_code(w, z, s.positions[1], 0, s.l)
                       : reference::conv_code(w.unsqueeze(2), z.unsqueeze(3), s.l, 0, s.l);
        };
        code_q = code(w_q);
        code_k = code(w_k);
      }
      if (s.gated) {
        const Tensor gate = a.leaf("param.gate", {s.h, s.d}, 2);
        const Tensor epsilon = noise("noise.gate", {s.h, s.d, s.r});
        code_q = reference::gated_code(code_q, gate, epsilon);
        code_k = reference::gated_code(code_k, gate, epsilon);
      }
      a.check({{"q", reference::encoded(q.transpose(1, 2), code_q).transpose(1, 2)},
               {"k", reference::encoded(k.transpose(1, 2), code_k).transpose(1, 2)}});
    }
}

TEST_CASE("conformance, unseen: loss.adaptive_softmax") {
  struct Words {
    int64_t n, d, v;
    Shape cutoffs;
    int64_t div;
    DType index;
  };
  for (const Words& s : {Words{1, 5, 4, {1}, 1, i64}, Words{11, 9, 13, {2, 3, 7}, 2, i32},
                         Words{6, 7, 9, {4, 6}, 1, i64}, Words{5, 6, 7, {}, 1, u8},
                         Words{0, 4, 5, {2}, 2, i64}, Words{4, 41, 10, {9}, 3, i64}}) {
    Generated a("loss.adaptive_softmax",
                str(R"({"V": )", s.v, R"(, "cutoffs": )", s.cutoffs, R"(, "div": )", s.div, "}"));
    const Tensor x = a.leaf("in.x", {s.n, s.d});
    std::vector<nn::AdaptiveCluster> clusters;
    const int64_t n_cutoffs = s.cutoffs.dim();
    for (int64_t i = 0, width = s.d, begin = 0; i <= n_cutoffs; ++i, width /= s.div) {
      const int64_t end = i < n_cutoffs ? s.cutoffs[i] : s.v;
      const int64_t rows = end - begin + (i == 0 ? n_cutoffs : 0);
      begin = end;
      clusters.push_back(
          {a.leaf(str("param.weight.", i), {rows, width}), a.leaf(str("param.bias.", i), {rows})});
      if (s.div > 1) clusters[size_t(i)].projection = a.leaf(str("param.proj.", i), {s.d, width});
    }
    std::vector<int64_t> targets;
    for (int64_t t = 0; t < s.n; ++t) targets.push_back((5 * t + s.v - 1) % s.v);
    const Tensor target = tensor(targets, {s.n});
    a.constant("in.target", target.to(s.index));
    a.check({{"y", tensor(reference::nll_by_loops(x, target, clusters), {s.n})}});
  }
}
