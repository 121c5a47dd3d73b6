// Times training and decoding on a CPU, one case per request from cpu_speed.py, which alternates
// with other libraries.
//
// A request is a line "SECONDS CASE", e.g. "0.5 core music 512 4 f32". The answer is a line with
// the median time in milliseconds, the number of runs, and the error of cases whose results can be
// checked (else nan): √(Σ (y − y₆₄)² / Σ y₆₄²), where y₆₄ is computed in f64 from the same inputs;
// the largest of the result and the gradients.
#include <CLI/CLI.hpp>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <map>
#include <sstream>

#include "autograd/profile.h"
#include "autograd/tape.h"
#include "core/cpu.h"
#include "core/math.h"
#include "core/parallel.h"
#include "examples/common/command_line.h"
#include "examples/common/error.h"
#include "nn/attention/feature_map.h"
#include "nn/attention/linear_attention.h"
#include "nn/models/gated_layers.h"
#include "nn/models/language_model.h"
#include "nn/models/moe.h"
#include "nn/optim/optim.h"
#include "nn/positions/relative_table.h"
#include "ops/attention/attention.h"
#include "ops/attention/gated_linear_attention.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/fft/fft_conv.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/view.h"

using namespace stretto;
using examples::UsageError;

namespace {

/// A case.
struct Case {
  std::function<void()> run;              // is timed
  std::function<Tensors()> results = {};  // computes the results to check; empty: none
  std::function<void()> prepare = [] {};  // runs before each run, untimed
};
using Words = std::vector<std::string>;

int64_t number(const std::string& word) { return std::stoll(word); }

/// Inputs are rounded to `stored` and computed with in `used`, which is f64 for the reference.
struct Types {
  DType stored, used;
};

class Inputs {
 public:
  explicit Inputs(Types types) : types_(types) {}
  /// Returns normal random numbers, the same for all types except for rounding.
  Tensor operator()(const Shape& shape, double scale = 1) {
    return mul(randn(shape, RandomKey{7, ++stream_}), scale).to(types_.stored).to(types_.used);
  }
  /// Returns an input that gets a gradient.
  Tensor leaf(const Shape& shape, double scale = 1) {
    leaves_.push_back((*this)(shape, scale).set_requires_grad());
    return leaves_.back();
  }
  const Tensors& leaves() const { return leaves_; }

 private:
  Types types_;
  uint64_t stream_ = 0;
  Tensors leaves_;
};

/// Runs f and its backward with the given gradient.
Case trained(const Inputs& inputs, const Tensor& gradient, const std::function<Tensor()>& f) {
  const auto pass = [inputs, gradient, f] {
    for (const Tensor& x : inputs.leaves()) x.set_grad({});
    Tensor y = f();
    y.backward(gradient);
    return y;
  };
  return {[pass] { pass(); },
          [inputs, pass] {
            Tensors all{pass().detach()};
            for (const Tensor& x : inputs.leaves()) all.push_back(x.grad());
            return all;
          }};
}

/// product FORM M N K BATCH: C [M, N] = A B; FORM says for A and B: N as stored, T transposed.
Case product(const Words& w, Types types) {
  const int64_t m = number(w[2]), n = number(w[3]), k = number(w[4]), batch = number(w[5]);
  Inputs input(types);
  const auto operand = [&](bool transposed, int64_t rows, int64_t columns) {
    Shape shape = transposed ? Shape{columns, rows} : Shape{rows, columns};
    if (batch > 1) shape = Shape{batch, shape[0], shape[1]};
    const Tensor x = input(shape);
    return transposed ? x.transpose(-1, -2) : x;
  };
  const Tensor a = operand(w[1][0] == 'T', m, k), b = operand(w[1][1] == 'T', k, n);
  return {[=] { matmul(a, b); }, [=] { return Tensors{matmul(a, b)}; }};
}

/// core KIND L B: causal attention with 8 heads of dimension 64 (plain-128, inkling: 128), with all
/// gradients.
Case core(const Words& w, Types types) {
  const std::string& kind = w[1];
  const int64_t L = number(w[2]), B = number(w[3]), H = 8;
  const int64_t D = kind == "plain-128" || kind == "inkling" ? 128 : 64;
  Inputs input(types);
  const Tensor q = input.leaf({B, H, L, D}), k = input.leaf(q.shape()), v = input.leaf(q.shape()),
               g = input(q.shape());
  AttentionOptions o{.mask = {.causal = true}};
  if (kind == "packed") {  // eight documents of equal length
    std::vector<int64_t> documents(static_cast<size_t>(B * L));
    for (size_t i = 0; i < documents.size(); ++i) documents[i] = int64_t(i) % L / (L / 8);
    o.mask.segments = tensor(documents, {B, L});
  }
  Tensor u, r;
  if (kind == "music" || kind == "xl")
    o.relative_keys = {.rows = input.leaf({H, L, D}, 0.1), .zero_row = L - 1};
  if (kind == "shaw" || kind == "shaw-values")
    o.relative_keys = {.rows = input.leaf({1, L, D}, 0.1), .zero_row = L - 1};
  if (kind == "shaw-values")
    o.relative_values = {.rows = input.leaf({1, L, D}, 0.1), .zero_row = L - 1};
  if (kind == "shaw-16") {
    o.relative_keys = {
        .rows = input.leaf({1, 17, D}, 0.1), .zero_row = 16, .out_of_range = OutOfRange::clip};
    o.relative_values = {
        .rows = input.leaf({1, 17, D}, 0.1), .zero_row = 16, .out_of_range = OutOfRange::clip};
  }
  if (kind == "bias") o.bias = input.leaf({H, L, L}, 0.1);
  if (kind == "t5") o.relative_bias = {.rows = input.leaf({H, L}, 0.1), .zero_row = L - 1};
  if (kind == "inkling") {
    const int64_t P = 16, extent = 1024;
    o.relative_query = input.leaf({B, H, L, P});
    o.relative_keys = {.rows = input.leaf({1, extent, P}, 0.1), .zero_row = extent - 1};
  }
  if (kind == "xl") {
    u = input.leaf({H, 1, D}, 0.1);
    r = input.leaf({H, 1, D}, 0.1);
  }
  return trained(input, g, [=] {
    if (!u.defined()) return attention(q, k, v, o);
    AttentionOptions with_biases = o;
    with_biases.relative_query = add(q, r);
    return attention(add(q, u), k, v, with_biases);
  });
}

/// retention L B: RetNet's, with 8 heads, keys of dimension 64 and values of 128; with all gradients.
Case retention(const Words& w, Types types) {
  const int64_t L = number(w[1]), B = number(w[2]), H = 8, D = 64;
  Inputs input(types);
  const Tensor q = input.leaf({B, H, L, D}), k = input.leaf(q.shape()),
               v = input.leaf({B, H, L, 2 * D}), g = input(v.shape());
  std::vector<double> log_decay;
  for (int64_t h = 0; h < H; ++h) log_decay.push_back(std::log1p(-std::exp2(-5.0 - double(h))));
  const GatedLinearAttentionOptions o{.log_decay = tensor(log_decay, {H})};
  return trained(input, g, [=] { return gated_linear_attention(q, k, v, o); });
}

/// conv L: causal convolution of 512 rows with filters of the same length, with both gradients.
Case conv(const Words& w, Types types) {
  const int64_t L = number(w[1]);
  Inputs input(types);
  const Tensor x = input.leaf({512, L}), filters = input.leaf({512, L}), g = input({512, L});
  return trained(input, g, [=] { return fft_conv(x, filters); });
}

/// layer KIND L B: a pre-norm layer of width 512, or RetNet's, with all gradients.
Case layer(const Words& w, Types types) {
  const std::string& kind = w[1];
  const int64_t L = number(w[2]), B = number(w[3]), d = 512;
  nn::LayerOptions options{.d_model = d,
                           .attention = {.n_heads = 8},
                           .feed_forward = {.d_hidden = 2048, .activation = nn::Activation::gelu}};
  if (kind == "relative") options.attention.position = nn::music_relative({.max_length = L});
  if (kind == "linear") options.attention.kernel = nn::linear_kernel();
  if (kind == "performer")
    options.attention.kernel = nn::linear_kernel(nn::favor({.features = 128}));
  if (kind == "retnet") options = nn::retnet_layer(d, 8);
  if (kind == "moe") {  // as many active parameters as the others
    options.feed_forward.d_hidden = 1024;
    options.feed_forward.network = nn::moe({.n_experts = 8, .top_k = 2});
  }
  const auto made = std::make_shared<nn::TransformerLayer>(options);
  made->to(types.used);
  Inputs input(types);
  const Tensor x = input.leaf({B, L, d}), g = input({B, L, d});
  Case c = trained(input, g, [=] { return (*made)(x, {.causal = true}); });
  return {[=] {
    made->zero_grad();
    c.run();
  }};
}

struct Gpt {
  int64_t layers, heads, width, length, batch, vocabulary;
};
Gpt gpt_of(const std::string& name) {
  if (name == "nano") return {4, 4, 128, 64, 12, 65};
  if (name == "char") return {6, 6, 384, 256, 8, 65};
  if (name == "music") return {6, 8, 512, 512, 2, 400};
  throw UsageError("a GPT is nano, char or music, not " + name);
}
std::shared_ptr<nn::LanguageModel> make_gpt(const Gpt& g, bool relative = false) {
  nn::LanguageModel::Options options{
      .vocabulary = g.vocabulary,
      .n_layers = g.layers,
      .layer = {.d_model = g.width,
                .attention = {.n_heads = g.heads},
                .feed_forward = {.d_hidden = 4 * g.width, .activation = nn::Activation::gelu}}};
  if (relative)
    options.layer.attention.position = nn::music_relative({.max_length = g.length});
  else
    options.input.learned_length = g.length;
  return std::make_shared<nn::LanguageModel>(options);
}

/// gpt NAME: a complete training step: forward, loss, backward, clipping, AdamW.
Case gpt(const Words& w, Types types) {
  const Gpt g = gpt_of(w[1]);
  const auto model = make_gpt(g);
  model->to(types.used);
  const auto optimizer = std::make_shared<nn::AdamW>(model->parameters(), nn::AdamW::Options{});
  const Tensor inputs = randint(0, g.vocabulary, {g.batch, g.length}),
               targets = randint(0, g.vocabulary, {g.batch, g.length});
  return {[=] {
    optimizer->zero_grad();
    cross_entropy((*model)(inputs), targets).backward();
    nn::clip_grad_norm(model->parameters(), 1.0);
    optimizer->step();
  }};
}

constexpr int64_t decoded = 32, before_end = 64;

bool is_relative(const Words& w) {
  if (w[2] != "plain" && w[2] != "relative")
    throw UsageError("positions are plain or relative, not " + w[2]);
  return w[2] == "relative";
}

/// decode NAME plain|relative: generates 32 tokens one by one after a prompt of length − 64 tokens.
Case decode(const Words& w, Types types) {
  const Gpt g = gpt_of(w[1]);
  const auto model = make_gpt(g, is_relative(w));
  model->to(types.used);
  model->eval();
  const Tensor prompt = randint(0, g.vocabulary, {1, g.length - before_end});
  const auto cache = std::make_shared<nn::LanguageModel::Cache>();
  return {.run =
              [=] {
                const NoGrad guard;
                for (int i = 0; i < decoded; ++i)
                  (*model)(tensor<int64_t>({i}).view({1, 1}), cache.get());
              },
          .prepare =
              [=] {
                const NoGrad guard;
                *cache = {};
                (*model)(prompt, cache.get());
              }};
}

STRETTO_CLONES uint64_t sum_of(const uint64_t* x, int64_t n) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}

/// floor NAME plain|relative: a lower bound for `decode`: all threads read, 32 times, as many bytes
/// as a token reads of weights, position tables, and keys and values on average.
Case floor(const Words& w, Types types) {
  const Gpt g = gpt_of(w[1]);
  const bool relative = is_relative(w);
  const auto model = make_gpt(g, relative);
  const int64_t cached = g.length - before_end + decoded / 2, each = cached * g.width * g.layers;
  int64_t count = each * (relative ? 3 : 2);
  for (const auto& [name, x] : model->named_parameters())
    if (name.find("embedding") == name.npos && name.find(".position.") == name.npos)
      count += x.numel();
  const int64_t words = count * item_size(types.used) / int64_t(sizeof(uint64_t));
  const Tensor all = zeros({words}, {.dtype = i64});
  return {[=] {
    const auto* const x = reinterpret_cast<const uint64_t*>(all.data<int64_t>());
    std::atomic<uint64_t> sum{0};
    for (int i = 0; i < decoded; ++i)
      parallel_for(words, 1 << 15,
                   [&](int64_t begin, int64_t end) { sum += sum_of(x + begin, end - begin); });
    if (sum != 0) throw UsageError("zeros do not add up to zero");
  }};
}

// Independent chains of fused multiply-adds, as many as hide their latency, in registers only.
#if defined(__x86_64__)
constexpr int64_t steps_of_peak = 100'000;

// 8 chains of 16 f32: 25.6 million operations.
__attribute__((target("avx512f"))) float chains_avx512() {
  const __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.1f);
  __m512 s[8];
  for (int a = 0; a < 8; ++a) s[a] = _mm512_set1_ps(float(a));
  for (int64_t i = 0; i < steps_of_peak; ++i)
#pragma GCC unroll 8
    for (int a = 0; a < 8; ++a) s[a] = _mm512_fmadd_ps(s[a], x, y);
  for (int a = 1; a < 8; ++a) s[0] = _mm512_add_ps(s[0], s[a]);
  return _mm512_cvtss_f32(s[0]);
}

// 10 chains of 8 f32: as many operations.
__attribute__((target("avx2,fma"))) float chains_avx2() {
  const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.1f);
  __m256 s[10];
  for (int a = 0; a < 10; ++a) s[a] = _mm256_set1_ps(float(a));
  for (int64_t i = 0; i < steps_of_peak * 8 / 5; ++i)
#pragma GCC unroll 10
    for (int a = 0; a < 10; ++a) s[a] = _mm256_fmadd_ps(s[a], x, y);
  for (int a = 1; a < 10; ++a) s[0] = _mm256_add_ps(s[0], s[a]);
  return _mm256_cvtss_f32(s[0]);
}

// 8 chains of 16 dot products of pairs of bf16: 51.2 million operations.
__attribute__((target("avx512f,avx512bf16"))) float chains_bf16() {
  const __m512bh x = (__m512bh)_mm512_set1_epi16(0x3dcd), y = x;  // 0.1
  __m512 s[8];
  for (int a = 0; a < 8; ++a) s[a] = _mm512_set1_ps(float(a));
  for (int64_t i = 0; i < steps_of_peak; ++i)
#pragma GCC unroll 8
    for (int a = 0; a < 8; ++a) s[a] = _mm512_dpbf16_ps(s[a], x, y);
  for (int a = 1; a < 8; ++a) s[0] = _mm512_add_ps(s[0], s[a]);
  return _mm512_cvtss_f32(s[0]);
}
#endif

/// peak: only fused multiply-adds of f32 in registers, 25.6 million operations on each thread, or
/// twice as many in AVX-512's dot products of bf16; none if this CPU multiplies otherwise.
Case peak(const Words&, Types types) {
  float (*chains)() = nullptr;
#if defined(__x86_64__)
  if (types.used == bf16)
    chains = has_bf16_vectors() && isa() == Isa::avx512 ? chains_bf16 : nullptr;
  else if (isa() != Isa::portable && isa() != Isa::emulated)
    chains = includes(isa(), Isa::avx512) ? chains_avx512 : chains_avx2;
#endif
  if (!chains) return {[] {}};
  return {[chains] {
    std::atomic<int> numbers{0};
    parallel_for(num_threads(), 1, [&](int64_t, int64_t) { numbers += std::isfinite(chains()); });
    if (numbers != num_threads()) throw UsageError("chains of 0.999 x + 0.1 grow");
  }};
}

/// copy MIB: copies MIB mebibytes (in f32) to an existing tensor.
Case copied(const Words& w, Types types) {
  const Tensor from = zeros({number(w[1]) << 18}, {.dtype = types.used}), to = empty_like(from);
  return {[=] { to.copy_(from); }};
}

Case make(const Words& w, Types types) {
  static const std::map<std::string, Case (*)(const Words&, Types)> kinds{
      {"product", product}, {"core", core}, {"retention", retention}, {"conv", conv},
      {"layer", layer},     {"gpt", gpt},   {"copy", copied},         {"decode", decode},
      {"floor", floor},     {"peak", peak}};
  const auto at = kinds.find(w[0]);
  if (at == kinds.end()) throw UsageError("no such case: " + w[0]);
  return at->second(w, types);
}

double error(const Words& words, DType t) {
  const Tensors y = make(words, {t, t}).results(), exact = make(words, {t, f64}).results();
  double most = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    const double off = sum(square(y[i].to(f64) - exact[i])).item();
    most = std::max(most, std::sqrt(off / sum(square(exact[i])).item()));
  }
  return most;
}

/// Answers requests. A case is set up once for consecutive requests.
int serve() {
  std::string line, last;
  Case current;
  double off = 0;
  while (std::getline(std::cin, line)) {
    std::istringstream text(line);
    double seconds = 0;
    text >> seconds;
    Words words;
    for (std::string word; text >> word;) words.push_back(word);
    if (words.empty()) throw UsageError("a request is SECONDS CASE, not " + line);
    std::string name;
    for (const std::string& word : words) name += word + " ";
    if (name != last) {
      current = {};
      manual_seed(1);
      const DType t = words.back() == "bf16" ? bf16 : f32;
      current = make(words, {t, t});
      off = current.results ? error(words, t) : std::nan("");
      for (int i = 0; i < 2; ++i) {
        current.prepare();
        current.run();
      }
      last = name;
    }
    std::vector<double> times;
    const double end = steady_seconds() + seconds;
    while (times.empty() || steady_seconds() < end) {
      current.prepare();
      const double begin = steady_seconds();
      current.run();
      times.push_back((steady_seconds() - begin) * 1e3);
    }
    std::nth_element(times.begin(), times.begin() + long(times.size() / 2), times.end());
    std::printf("%.6f %zu %.3g\n", times[times.size() / 2], times.size(), off);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int threads = 2;
  bool about = false;
  return examples::run_program(
      argc, argv, "cpu_speed", "Times the cases requested on standard input.",
      [&](CLI::App& app) {
        app.add_option("--threads", threads);
        app.add_flag("--about", about, "Print only the instruction set of matrix products");
      },
      [&] {
        if (about) {
          std::printf("%s\n", cpu_description().c_str());
          return 0;
        }
        set_num_threads(threads);
        return serve();
      });
}
