#include "tests/cuda/kernel_cases.h"

#include <dlfcn.h>

#include <sstream>

#include "core/gpu_runtime.h"
#include "cuda/attention.h"
#include "cuda/attention_decode.h"
#include "cuda/create.h"
#include "cuda/elementwise.h"
#include "cuda/elu_features.h"
#include "cuda/fft.h"
#include "cuda/indexing.h"
#include "cuda/linear_attention.h"
#include "cuda/loss.h"
#include "cuda/norm.h"
#include "cuda/optim.h"
#include "cuda/random.h"
#include "cuda/random_features.h"
#include "cuda/reduce.h"
#include "cuda/skew.h"
#include "cuda/softmax.h"
#include "cuda/sort.h"
#include "cuda/spe_conv.h"
#include "cuda/spe_sine.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/fft/fft_conv.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/spe/spe.h"
#include "ops/view.h"

namespace stretto::testing {
namespace {

namespace em = elementwise;
const Device gpu(DeviceType::cuda, 0);

constexpr double straight = 1.05, transposing = 1.2;
constexpr double processors = 132;  // each fetches what rows share
constexpr double alone = 32;        // a number that a row writes by itself costs a sector

struct Cases {
  const int64_t rows;
  DType dtype;
  double item = double(item_size(dtype));
  std::vector<KernelCase> all;
  uint64_t stream = 9000;

  Tensor noise(const Shape& shape) {
    return randn(shape, RandomKey{17, ++stream}, {.dtype = dtype, .device = gpu});
  }
  Tensor wide(const Shape& shape) { return empty(shape, {.dtype = f32, .device = gpu}); }
  Tensor ids(const Shape& shape, int64_t below) {
    return cuda::randint(shape, 0, uint64_t(below), RandomKey{17, ++stream}, gpu);
  }
  /// `items` of the dtype and `bytes` besides.
  KernelCase& add(const std::string& name, double items, double bytes, double budget,
                  std::function<void()> run) {
    all.push_back({name, items * item + bytes, budget, std::move(run)});
    return all.back();
  }
  /// A number for each lane; how many bytes that makes for a warp.
  double lanes() const { return 32 * std::min(item, 4.0) * 0.9; }

  void elementwise();
  void copies();
  void reductions();
  void norms();
  void losses();
  void indices();
  void created();
  void optimisers();
  void transforms();
  void positions();
  void noise_codes();
  void linear_attentions();
  void attentions();
  void decoding();
};

void Cases::elementwise() {
  const double n = double(rows) * 2048, d = 512, m = double(rows) * d;
  const Tensor x = noise({rows, 2048}), y = noise({rows, 2048});
  const Tensor s = noise({rows, 512}), bias = noise({512}), factor = noise({rows, 1});
  add("gelu", 2 * n, 0, straight, [=] { cuda::unary(em::Gelu(), x); });
  add("gelu backward", 3 * n, 0, straight, [=] { cuda::chain_rule(em::Gelu(), x, y); });
  add("add", 3 * n, 0, straight, [=] { cuda::binary(em::Add(), x, y); });
  add("add number", 2 * n, 0, straight, [=] { cuda::binary(em::Add(), x, 0.5); });
  add("add bias", 2 * m + processors * d, 0, straight, [=] { cuda::binary(em::Add(), s, bias); });
  add("mul by row", 2 * m + double(rows), 0, straight, [=] { cuda::binary(em::Mul(), s, factor); });
  add("less", 2 * n, n, straight, [=] { lt(x, y); });
  add("less than number", n, n, straight, [=] { lt(x, 0.25); });
  // A transposed operand is copied first.
  add("add transposed", (3 + 2) * m, 0, transposing, [=, t = noise({512, rows})] {
    cuda::binary(em::Add(), s, t.transpose(0, 1));
  }).accesses(lanes());
  const int64_t heads = rows / 8;
  const double scores = double(heads) * 64 * 64;
  const Tensor score = noise({heads, 64, 64});
  const Tensor causal = cuda::above_diagonal(64, 64, 0, gpu);
  const Tensor padding = lt(noise({heads, 1, 64}), 0.0);
  add("mask causally", 2 * scores, processors * 64 * 64, straight,
      [=] { masked_fill(score, causal, -1e9); });
  add("mask padding", 2 * scores, double(heads) * 64, straight,
      [=] { masked_fill(score, padding, -1e9); });
  add("where", 3 * n, n, straight, [=, mask = lt(x, y)] { where(mask, x, y); });
}

void Cases::copies() {
  const double n = double(rows) * 512, to = dtype == f32 ? 2 : 4;
  const DType other = dtype == f32 ? bf16 : f32;
  const Tensor x = noise({rows, 512}), wide = noise({rows, 1024});
  const Tensor heads = noise({rows / 64, 64, 8, 64});
  add("convert", n, to * n, straight, [=] { x.to(other); });
  add("copy slice", 2 * n, 0, straight, [=] { wide.slice(1, 128, 640).contiguous(); });
  add("split heads", 2 * n, 0, straight, [=] { heads.permute({0, 2, 1, 3}).contiguous(); });
  add("transpose", 2 * n, 0, transposing, [=] {
    x.transpose(0, 1).contiguous();
  }).accesses(lanes());
  add("transpose and convert", n, to * n, transposing, [=] {
    x.transpose(0, 1).to(other).contiguous();
  }).accesses(lanes() * 0.8);
  add("transpose heads", 2 * n, 0, transposing, [=] {
    heads.permute({0, 2, 3, 1}).contiguous();
  }).accesses(lanes());
  add("reverse dimensions", 2 * n, 0, transposing, [=] {
    heads.permute({3, 2, 1, 0}).contiguous();
  }).accesses(lanes());
  add("flip", 2 * n, 0, straight, [=] { flip(x, 1); }).accesses(lanes());
  add("cat columns", 4 * n, 0, straight, [=, y = noise({rows, 512})] { cat({x, y}, 1); });
  add("cat rows", 4 * n, 0, straight, [=, y = noise({rows, 512})] { cat({x, y}, 0); });
  // What is padded is filled first.
  add("pad rows", 2 * n + (n + 512), 0, straight, [=] { pad(x, 0, 1, 0); });
  add("expand", n + processors * 512, 0, straight, [row = noise({512}), rows = rows] {
    row.expand({rows, 512}).contiguous();
  });
}

void Cases::reductions() {
  const double n = double(rows) * 512, r = double(rows);
  const Tensor x = noise({rows, 512}), batch = noise({rows / 64, 64, 512});
  const Tensor values = empty({rows}, options_of(x)),
               indices = empty({rows}, {.dtype = i64, .device = gpu});
  add("sum rows", n, alone * r, straight, [=] { cuda::sum(x, {1}, false); });
  add("sum columns", n + 512, 0, straight, [=] { cuda::sum(x, {0}, false); });
  add("sum all", n + 1, 0, straight, [=] { cuda::sum(x, {0, 1}, false); });
  add("sum middle", n + n / 64, 0, straight, [=] { cuda::sum(batch, {1}, false); });
  add("sum transposed", n + 512, 0, straight, [=] { cuda::sum(x.transpose(0, 1), {1}, false); });
  add("sum heads", n + 64 * 8, 0, straight, [=, heads = noise({rows / 64, 8, 64, 64})] {
    cuda::sum(heads, {0, 2}, false);
  });
  add("max", n, 2 * alone * r, straight, [=] { cuda::extremes(x, true, values, indices); });
  add("logsumexp", n, alone * r, straight, [=] { cuda::logsumexp(x, values); });
  add("cumsum", 2 * n, 0, straight, [=] { cuda::cumsum(x, 1); });
  add("cumsum of columns", 2 * n, 0, straight, [=] { cuda::cumsum(batch, 1); }).accesses(lanes());
  for (const int64_t width : {int64_t(512), int64_t(1024), int64_t(8192)}) {
    const int64_t height = rows * 512 / width;
    const Tensor p = noise({height, width}), g = noise({height, width});
    const std::string of = " of " + std::to_string(width);
    add("softmax" + of, 2 * n, 0, straight, [=] { cuda::softmax(p, false); });
    add("log_softmax" + of, 2 * n, 0, straight, [=] { cuda::softmax(p, true); });
    add("softmax backward" + of, 3 * n, 0, straight, [=] { cuda::softmax_backward(p, g, false); });
  }
}

void Cases::norms() {
  for (const int64_t width : {int64_t(512), int64_t(2048)}) {
    const int64_t height = rows * 512 / width;
    const double n = double(rows) * 512, d = double(width), r = double(height);
    const std::string of = " of " + std::to_string(width);
    const Tensor x = noise({height, width}), g = noise({height, width}), w = noise({width}),
                 b = noise({width}), shift = wide({height}), scale = wide({height});
    add("layer_norm" + of, 2 * n + processors * 2 * d, 2 * alone * r, straight,
        [=] { cuda::norm(x, w, b, 1e-5, shift, scale); });
    add("rms_norm" + of, 2 * n + processors * d, alone * r, straight,
        [=] { cuda::norm(x, w, {}, 1e-5, {}, scale); });
    all.back().run(), cuda::norm(x, w, b, 1e-5, shift, scale);
    // Blocks' sums of the weight's and the bias's gradient go out and in again, in f32.
    const double parts = 2 * 4 * d * std::min(264.0, r / (width > 1024 ? 1 : 8));
    Tensor dw, db;
    add("layer_norm backward" + of, 3 * n + processors * d, 8 * r + 2 * parts, straight,
        [=]() mutable { cuda::norm_backward(x, w, g, shift, scale, true, true, dw, db); });
    add("rms_norm backward" + of, 3 * n + processors * d, 4 * r + parts, straight,
        [=]() mutable { cuda::norm_backward(x, w, g, {}, scale, true, false, dw, db); });
  }
}

void Cases::losses() {
  for (const int64_t classes : {int64_t(400), int64_t(32000)}) {
    const int64_t height = std::max<int64_t>(rows * 400 / classes, 4);
    const double n = double(height * classes), r = double(height);
    const std::string of = " of " + std::to_string(classes);
    const Tensor x = noise({height, classes}), targets = ids({height}, classes),
                 totals = wide({height, 2}), g = wide({height});
    g.fill_(1), totals.fill_(1);
    add("cross_entropy" + of, n, (8 + 2 * alone) * r, straight, [=] {
      cuda::cross_entropy(x, targets, -100, 0, totals);
    }).accesses(180);  // 400 of bf16 are 50 packs of a row
    add("cross_entropy backward" + of, 2 * n, (8 + 8 + 4) * r, straight,
        [=] { cuda::cross_entropy_backward(x, targets, -100, 0, totals, g); });
  }
}

void Cases::indices() {
  const double n = double(rows) * 512, r = double(rows);
  const Tensor table = noise({1, 400, 512}), which = ids({rows}, 400);
  const Tensor g = noise({1, rows, 512}), x = noise({rows, 512});
  add("embedding", 2 * n, 8 * r, straight, [=] { cuda::take(table, which); });
  // Ids are sorted with their positions first, some 100 bytes for each.
  add("embedding backward", n + 400 * 512, 100 * r, straight, [=] {
    cuda::place(g, which, 400);
  }).accesses(lanes());
  // A number of a row costs a sector.
  const Tensor picked = ids({rows, 1}, 512);
  constexpr double anywhere = 16;
  add("gather", r, 8 * r + 32 * r, straight, [=] { cuda::gather(x, 1, picked); })
      .loads(anywhere)
      .accesses(lanes());
  // Keys and positions are written and read once more, then numbers by position.
  add("sort", 3 * n, (4 + 8 + 8) * n, transposing, [=] { sort(x, 1); })
      .loads(anywhere)
      .accesses(lanes());
}

void Cases::created() {
  const double n = double(rows) * 2048;
  const Tensor x = noise({rows, 2048}), out = empty_like(x);
  add("fill", n, 0, straight, [x, rows = rows] { full({rows, 2048}, 0.5, options_of(x)); });
  add("rand", n, 0, straight, [=] { cuda::fill_uniform(out, {1, 2}); });
  add("randn", n, 0, straight, [=] { cuda::fill_normal(out, {1, 2}); });
  add("dropout", 2 * n, 0, straight, [=] { cuda::dropout(x, 1 << 20, 1.1, {1, 2}); });
  if (dtype != f32) return;
  add("randint", 0, 8 * n, straight, [rows = rows] {
    cuda::randint({rows, 2048}, 0, 100, {1, 2}, gpu);
  });
  add("arange", 0, 8 * n, straight,
      [count = rows * 2048] { cuda::line(count, count, 0, 1, 0, gpu); });
  add("mask above the diagonal", 0, n, straight, [rows = rows] {
    cuda::above_diagonal(rows, 2048, 0, gpu);
  }).accesses(32);
}

void Cases::optimisers() {
  const double n = double(rows) * 512, more = dtype == bf16 ? 8 : 0;  // a master weight
  const Tensor w = noise({rows, 512}), g = noise({rows, 512}), m = wide({rows, 512}),
               v = wide({rows, 512}), norm = full({}, 1e-3, {.dtype = f64, .device = gpu});
  const Tensor master = dtype == bf16 ? w.to(f32) : Tensor();
  m.fill_(0), v.fill_(0);
  add("adamw", 3 * n, (16 + more) * n, straight, [=] {
    const AdamTask task{.weight = w, .gradient = g, .master = master, .m = m, .v = v};
    cuda::adam_steps({&task, 1});
  });
  add("sgd with momentum", 3 * n, (8 + more) * n, straight, [=] {
    const SgdTask task{.weight = w, .gradient = g, .master = master, .momentum = m};
    cuda::sgd_steps({&task, 1});
  });
  add("norm of gradients", n, 0, straight, [=] { cuda::squares({g}); }).accesses(lanes() * 2);
  add("clip", 2 * n, 0, straight, [=] { cuda::clip({g}, norm, 1e-4); });
}

void Cases::transforms() {
  const int64_t heads = rows / 128;
  const double n = double(heads) * 256 * 256;
  // What 32 lanes read begins anywhere: a sector more, which their neighbours find in the cache.
  const double shifted = 1 + 1 / item;
  const Tensor x = noise({heads, 256, 511}), y = noise({heads, 256, 256});
  add("skew", 2 * n, 0, straight, [=] { cuda::skew(x, 256); }).loads(shifted).accesses(lanes());
  add("unskew", n + n * 511 / 256, 0, straight, [=] { cuda::unskew(y, 511); })
      .loads(shifted)
      .accesses(lanes());
  if (dtype != f32) return;
  for (const int64_t length : {int64_t(512), int64_t(2048), int64_t(8192)}) {
    const int64_t height = rows * 512 / length;
    const double values = double(rows) * 512;
    const std::string of = " of " + std::to_string(length);
    const Tensor z = noise({height, length, 2}), to = empty_like(z), real = noise({height, length}),
                 bins = noise({height, length / 2 + 1, 2});
    // Unit roots are made, and read at strides by each multiprocessor that has rows.
    const double roots = 8 * double(length) * (1 + std::min(processors, double(height)));
    constexpr double at_strides = 1.3;
    add("fft" + of, 4 * values, roots, straight, [=] { cuda::fft_complex(z, to, false, 1); })
        .loads(at_strides)
        .accesses(220);
    // A block reads tables of factors and a filter.
    const int64_t filters = std::max<int64_t>(1, height / 64);
    const Tensor many = noise({height / filters, filters, length}), few = noise({filters, length});
    add("convolution" + of, 2 * values,
        22 * double(length) * std::min(4 * processors, double(height)), straight,
        [=] { fft_conv(many, few, {.form = ConvForm::fft}); })
        .accesses(120);
    // Rows of bins begin anywhere.
    add("rfft" + of, 2 * values + 2 * double(height), 0.75 * roots, transposing,
        [=] { cuda::fft_to_bins(real, bins, 1, 1); })
        .loads(at_strides)
        .accesses(220);
    add("irfft" + of, 2 * values + 2 * double(height), 0.75 * roots, straight,
        [=] { cuda::fft_from_bins(bins, real, 1, 1); })
        .loads(at_strides)
        .accesses(220);
  }
}

void Cases::linear_attentions() {
  if (dtype == f64) return;
  // A head for each 128 rows of 64, so many that no sequence is cut into segments.
  const int64_t heads = rows / 16, length = 128, width = 64;
  const double n = double(heads * length * width), r = double(heads * length);
  const Shape shape{1, heads, length, width};
  const cuda::LinearAttentionInputs in{.q = noise(shape) * 0.1 + 2.0,
                                       .k = noise(shape) * 0.1 + 2.0,
                                       .v = noise(shape),
                                       .padding = {},
                                       .before = {},
                                       .causal = true,
                                       .eps = 0};
  const Tensor y = noise(shape), g = noise(shape), totals = wide({1, heads, length});
  add("linear attention", 4 * n, 4 * r, straight,
      [=] { cuda::linear_attention(in, y, totals, {}); });
  all.back().run();
  // Both sweeps read all; the first writes a number for each query, which the second reads.
  add("linear attention backward", 8 * n + 3 * n, 16 * r, straight, [=, dk = noise(shape)] {
    cuda::linear_attention_backward(in, totals, g, {}, {.q = y, .k = dk, .v = y, .before = {}});
  });
  add("elu features", 2 * n, 0, straight, [=] { cuda::elu_features(g, y); });
  add("elu features backward", 3 * n, 0, straight,
      [=] { cuda::elu_features_backward(g, in.v, y); });
  for (const bool own_max : {false, true}) {
    const cuda::RandomFeatures s{.projection = wide({2 * width, width}).fill_(0.1),
                                 .pairs = false,
                                 .own_max = own_max,
                                 .bound = {}};
    const Tensor x = noise(shape), features = noise({1, heads, length, 2 * width}),
                 slopes = noise(features.shape()),
                 places = empty({heads * length}, {.dtype = i32, .device = gpu});
    const std::string with = own_max ? ", own maximum" : "";
    // Each block reads the projection.
    const double projection = 4 * 264 * 2 * double(width * width), marks = own_max ? 4 * r : 0;
    add("random features" + with, 3 * n, projection + marks, straight,
        [=] { cuda::random_features(x, s, features, own_max ? places : Tensor()); });
    all.back().run();
    add("random features backward" + with, (own_max ? 5 : 6) * n, projection + marks, straight,
        [=] {
          cuda::random_features_backward(own_max ? Tensor() : x, s, features, slopes,
                                         own_max ? places : Tensor(), y);
        });
  }
}

// Heads of one block of queries and keys, so that every operand is read once by each kernel.
void Cases::attentions() {
  if (dtype != bf16) return;
  const int64_t length = 128, d = 64, heads = 8, batch = rows / length;
  const Shape shape{batch, heads, length, d};
  const double n = double(batch * heads * length * d), lines = double(batch * heads * length);
  const Tensor q = noise(shape), k = noise(shape), v = noise(shape), g = noise(shape),
               rows_of_lags = noise({heads, length, d}), out = empty_like(q);
  const double parts = 4 * double(heads * length * d);
  for (const bool table : {false, true}) {
    cuda::AttentionCall call{.q = q, .k = k, .v = v, .causal = true, .scale = 0.125};
    if (table) call.rows = rows_of_lags, call.zero_row = length - 1;
    const std::string of = table ? " with positions" : "";
    const double extra = table ? n : 0, segments = std::min(8.0, double(batch));
    const Tensor sums = cuda::attention(call, out);
    add("attention" + of, 4 * n + extra, 4 * lines, straight, [=] { cuda::attention(call, out); });
    // δ; keys, queries and, where there are positions, lags, whose parts are added.
    add("attention backward" + of, 2 * n + (6 * n + extra) + (5 * n + extra) + (table ? 5 * n : 0),
        4 * lines * (table ? 7 : 5) + (table ? (2 * segments + 1) * parts : 0), straight, [=] {
          cuda::AttentionGradients into{.q = empty_like(q), .k = empty_like(k), .v = empty_like(v)};
          cuda::attention_backward(call, out, sums, g, table, into);
        });
  }
}

// Of a sequence that has been generated so far; what splits leave is little of it. Each key head
// reads a table that heads share.
void Cases::decoding() {
  const int64_t d = 64, heads = 8;
  for (const auto& [queries, groups, table] :
       {std::tuple{1, 8, false}, {1, 8, true}, {4, 2, false}, {4, 2, true}}) {
    const Shape shape{1, heads, queries, d}, of_keys{1, groups, rows, d};
    const Tensor q = noise(shape), k = noise(of_keys), v = noise(of_keys), out = empty_like(q);
    cuda::AttentionCall call{.q = q, .k = k, .v = v, .causal = true, .scale = 0.125};
    if (table) call.rows = noise({groups == 8 ? heads : 1, rows, d}), call.zero_row = rows - 1;
    const double cache = (table ? 3 : 2) * double(k.numel());
    add("attention of " + std::to_string(queries) + (table ? " with positions" : ""),
        2 * double(q.numel()) + cache, 0, 1.1, [=] { cuda::attention_decode(call, false, out); });
  }
}

// sineSPE of four matrices of 64 dimensions, realizations and 5 sinusoids: what goes in is made
// again, or read again, by each block of 32 positions (forward, dx) or of 4 dimensions (sums).
void Cases::positions() {
  const int64_t n = rows / 8, d = 64, r = 64, k = 5;
  const Tensor x = noise({4, 2, n, d}), y = empty_like(x);
  const auto small = [&](const Shape& shape) {
    return randn(shape, RandomKey{17, ++stream}, {.dtype = f32, .device = gpu});
  };
  const cuda::SineCode code{abs(small({2, d, k})) * 0.1, small({2, d, 2 * k, r}), small({2, d, r})};
  const double values = double(x.numel()), blocks = 2 * double(n) / 32;
  const double weights = 4 * double(d * (2 * k * r + r + 16 * 2 * k + k));
  add("sineSPE", 2 * values, blocks * weights, transposing, [=] {
    cuda::apply_sine_code(code, x, 7, y);
  }).accesses(100);
  add("sineSPE dx", 2 * values, blocks * weights, transposing, [=] {
    cuda::sine_code_dx(code, x, 7, y);
  }).accesses(100);
  const double passes = double(d) / 4;
  add("sineSPE sums", passes * values + passes * values * 32 / (4 * item),
      66 / 32.0 * blocks * 4 * double(d * (4 * k + 1) * r), transposing,
      [=] { cuda::sine_code_sums(code, x, y, 7); })
      .loads(4)
      .accesses(60);
  noise_codes();
}

// convSPE, both sides of one head with filters of 128 taps. Each block of 64 positions and 32
// realizations reads operands, eight numbers in two packs, and the filters (forward, dx); each of a
// dimension and 32 realizations all positions (sums).
void Cases::noise_codes() {
  const int64_t n = rows / 16, d = 64, r = 64, taps = 128;
  const Tensor x = noise({4, 1, n, d}), y = empty_like(x), w = wide({1, d, 1, taps}).fill_(0.1);
  const cuda::NoiseCode code{{1, 2}, int64_t(1) << 40, 0, int64_t(1) << 30, r, {w, w}, {}};
  const double values = 2 * double(x.numel()), filters = 16 * double(n) / 64 * double(d * taps);
  const cuda::NoiseSide o{x, 7, y};
  const auto forward = [=] { cuda::apply_noise_code(code, {o, o}); };
  add("convSPE", 2 * values, filters, transposing, forward).loads(2.6).accesses(60);
  // Parts of dx for each 32 realizations go out in f32, and in again, and so does their sum.
  const auto dx = [=] { cuda::noise_code_dx(code, {o, o}, {y, empty_like(y)}); };
  add("convSPE dx", 2 * values, filters + 2 * 3 * 4 * values, transposing, dx).accesses(60);
  const auto sums = [=] { cuda::noise_code_sums(code, {o, o}); };
  add("convSPE sums", double(d) * 2 * values, 0, transposing, sums).accesses(60);
}

using Text = const char*();
using Reset = void();
template <class F>
F* found(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_DEFAULT, name));
}

}  // namespace

void each_kernel_case(int64_t rows, DType dtype, const std::function<void(const KernelCase&)>& f) {
  Cases cases{rows, dtype};
  for (const auto family :
       {&Cases::elementwise, &Cases::copies, &Cases::reductions, &Cases::norms, &Cases::losses,
        &Cases::indices, &Cases::created, &Cases::optimisers, &Cases::transforms, &Cases::positions,
        &Cases::linear_attentions, &Cases::attentions, &Cases::decoding}) {
    (cases.*family)();
    for (const KernelCase& one : cases.all) f(one);
    cases.all.clear();  // and their tensors
  }
}

double KernelCounts::operator[](const std::string& column) const {
  for (const auto& [name, value] : columns)
    if (name == column) return value;
  return fail("kernel_counts", "no column ", column), 0;
}

bool has_counters() { return found<Text>("machine_counters") != nullptr; }

std::vector<KernelCounts> all_counts() {
  cuda::synchronize(0);
  std::istringstream table(found<Text>("machine_counters")());
  std::vector<std::string> names;
  std::vector<KernelCounts> all;
  for (std::string line; std::getline(table, line);) {
    std::vector<std::string> cells;
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, '\t');) cells.push_back(cell);
    if (names.empty()) {
      names = cells;
    } else if (cells.size() == names.size()) {
      KernelCounts one{cells[0], {}};
      for (size_t i = 1; i < cells.size(); ++i)
        one.columns.emplace_back(names[i], std::stod(cells[i]));
      all.push_back(std::move(one));
    }
  }
  return all;
}

std::vector<KernelCounts> counts_of(const std::function<void()>& run) {
  cuda::synchronize(0);
  found<Reset>("machine_reset_counters")();
  run();
  std::vector<KernelCounts> all = all_counts();
  std::erase_if(all, [](const KernelCounts& k) { return k["launches"] == 0; });
  return all;
}

}  // namespace stretto::testing
