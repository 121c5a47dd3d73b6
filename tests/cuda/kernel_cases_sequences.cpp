// Kernels that mix positions: transforms, positional codes, attention.
#include <cmath>
#include <span>

#include "cuda/attention/attention.h"
#include "cuda/attention/attention_decode.h"
#include "cuda/attention/elu_features.h"
#include "cuda/attention/gated_linear_attention.h"
#include "cuda/attention/linear_attention.h"
#include "cuda/attention/random_features.h"
#include "cuda/attention/rotary.h"
#include "cuda/attention/skew.h"
#include "cuda/fft/fft.h"
#include "cuda/spe/spe_conv.h"
#include "cuda/spe/spe_sine.h"
#include "ops/elementwise.h"
#include "ops/fft/fft_conv.h"
#include "ops/spe/spe.h"
#include "tests/cuda/kernel_case_list.h"

namespace stretto::testing {

void KernelCaseList::transforms() {
  const int64_t heads = rows / 128;
  const double n = double(heads) * 256 * 256;
  // The reads of 32 lanes are unaligned: one more sector, which the neighboring warp
  // finds in cache.
  const double shifted = 1 + 1 / item;
  const Tensor x = noise({heads, 256, 511}), y = noise({heads, 256, 256});
  add("skew", 2 * n, 0, straight, [=] { cuda::skew(x, 256); }).loads(shifted).accesses(lanes());
  add("unskew", n + n * 511 / 256, 0, straight, [=] { cuda::unskew(y, 511); })
      .loads(shifted)
      .accesses(lanes());
  // A block rotates 8 heads of a position by one row of the tables.
  const int64_t turned = rows / 16;
  const Tensor q = noise({1, turned, 128, 64}), out = empty_like(q),
               table = full({128, 32}, 0.5, {.dtype = compute_type(dtype), .device = gpu});
  const double blocks = std::ceil(double(turned) / 8);
  add("rotary", 2 * double(q.numel()),
      2 * double(table.numel() * item_size(table.dtype())) * std::min(processors, blocks), straight,
      [=] { cuda::rotate(q, table, table, false, false, out); })
      .accesses(lanes());
  if (dtype != f32) return;
  for (const int64_t length : {int64_t(512), int64_t(2048), int64_t(8192)}) {
    const int64_t height = rows * 512 / length;
    const double values = double(rows) * 512;
    const std::string of = " of " + std::to_string(length);
    const Tensor z = noise({height, length, 2}), to = empty_like(z), real = noise({height, length}),
                 bins = noise({height, length / 2 + 1, 2});
    // Roots of unity are written once and read with strides by each multiprocessor that has rows.
    const double roots = 8 * double(length) * (1 + std::min(processors, double(height)));
    constexpr double at_strides = 1.3;
    add("fft" + of, 4 * values, roots, straight, [=] { cuda::fft_complex(z, to, false, 1); })
        .loads(at_strides)
        .accesses(220);
    // Each block reads tables of factors and a filter.
    const int64_t filters = std::max<int64_t>(1, height / 64);
    const Tensor many = noise({height / filters, filters, length}), few = noise({filters, length});
    add("convolution" + of, 2 * values,
        22 * double(length) * std::min(4 * processors, double(height)), straight,
        [=] { fft_conv(many, few, {.implementation = ConvForm::fft}); })
        .accesses(120);
    // Rows of bins are unaligned.
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

void KernelCaseList::linear_attentions() {
  if (dtype == f64) return;
  // One head per 128 rows of 64: enough heads that no sequence is cut into segments.
  const int64_t heads = rows / 16, length = 128, width = 64;
  const double n = double(heads * length * width), r = double(heads * length);
  const Shape shape{1, heads, length, width};
  const cuda::LinearAttentionOperands in{.q = noise(shape) * 0.1 + 2.0,
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
  // Both passes read everything; the first writes a value per query, which the second reads.
  add("linear attention backward", 8 * n + 3 * n, 16 * r, straight, [=, dk = noise(shape)] {
    cuda::linear_attention_backward(in, totals, g, {}, {.q = y, .k = dk, .v = y, .before = {}});
  });
  add("elu features", 2 * n, 0, straight, [=] { cuda::elu_features(g, y); });
  add("elu features backward", 3 * n, 0, straight,
      [=] { cuda::elu_features_backward(g, in.v, y); });
  if (dtype == f32) gated_linear_attentions();
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

// Heads of two chunks. A chunk's state is stored by forward and read by backward.
void KernelCaseList::gated_linear_attentions() {
  const int64_t heads = rows / 16, length = 128, width = 64;
  const Shape shape{1, heads, length, width}, of_tokens{1, heads, length};
  const double n = double(shape.numel()), tokens = double(of_tokens.numel());
  for (const bool by_feature : {false, true})
    for (const bool delta : {false, true}) {
      const cuda::GatedLinearAttentionInputs in{
          .q = noise(shape),
          .k = noise(shape) * 0.1,
          .v = noise(shape),
          .log_decay = wide(by_feature ? shape : of_tokens).fill_(-0.1),
          .beta = delta ? wide(of_tokens).fill_(0.5) : Tensor(),
          .scale = 0.125};
      const Tensor y = noise(shape), state = wide({1, heads, width, width}).fill_(0),
                   states = wide({1, heads, 2, width, width});
      const cuda::GatedLinearAttentionGradients to{.q = empty_like(y),
                                                   .k = empty_like(y),
                                                   .v = empty_like(y),
                                                   .log_decay = empty_like(in.log_decay),
                                                   .beta = delta ? empty_like(in.beta) : Tensor(),
                                                   .state = state};
      const std::string name = std::string("linear attention with decay") +
                               (by_feature ? " by feature" : "") + (delta ? ", delta rule" : "");
      // In the order of the rows: all operands, the decays, β, the states.
      const double logs = by_feature ? n : tokens, betas = delta ? tokens : 0, kept = n;
      add(name, 0, 4 * (4 * n + logs + betas + 2 * n), straight,
          [=] { cuda::gated_linear_attention(in, y, state, states); });
      all.back().run();
      // By feature, the state before each group of 16 positions is computed again.
      const double again = by_feature ? 0.75 * (3 * n + logs + betas) : 0;
      add(name + " backward", 0,
          4 * (4 * n + logs + betas + kept + again + 3 * n + logs + betas + n), straight,
          [=] { cuda::gated_linear_attention_backward(in, states, y, to); });
      // Sums of rows are written with gaps between lanes; rows of the state by element.
      for (KernelCase& one : std::span(all).last(2)) one.accesses(100).warps = 4;
    }
}

namespace {

AttentionOperands causal(const Tensor& q, const Tensor& k, const Tensor& v) {
  AttentionOperands call;
  call.q = q, call.k = k, call.v = v;
  call.options.mask.causal = true;
  call.options.scale = 0.125;
  return call;
}

}  // namespace

// Adds forward and backward with their minimum bytes. In f32, tiles of three bf16 parts fill shared
// memory with one block of four warps.
void KernelCaseList::attention(const std::string& name, const AttentionOperands& call,
                               double forward, double backward, int64_t times) {
  const Tensor out = empty_like(call.q), g = noise(call.q.shape());
  const cuda::AttentionSaved saved = cuda::attention(call, out, true);
  add(name, 0, forward, straight, [=] { cuda::attention(call, out, true); });
  add(name + " backward", 0, backward, straight, [=] {
    AttentionOperands into{
        .q = empty_like(call.q), .k = empty_like(call.k), .v = empty_like(call.v)};
    if (call.options.relative_query.defined()) into.options.relative_query = empty_like(call.q);
    cuda::attention_backward(call, out, saved, g, call.options.relative_keys.defined(), into);
  });
  for (KernelCase& one : std::span(all).last(2)) {
    one.times = times;
    if (dtype == f32) one.loads(2.1).warps = 4;
  }
}

// Heads with one block of queries and keys, so that each kernel reads every operand once.
void KernelCaseList::attentions() {
  const bool cut = dtype == f32;  // kernels read operands as three bf16 parts
  const int64_t length = cut ? 64 : 128, d = 64, heads = 8, batch = rows / length;
  const Shape shape{batch, heads, length, d};
  const double n = double(batch * heads * length * d), lines = double(batch * heads * length);
  for (const std::string kind :
       {"attention", "attention with positions", "attention with positions and dropout"}) {
    const bool table = kind != "attention";
    AttentionOperands call{
        noise(shape), noise(shape), noise(shape), {.mask = {.causal = true}, .scale = 0.125}};
    if (kind.ends_with("dropout"))
      call.options.dropout = 0.1, call.options.dropout_key = RandomKey{18, 1};
    const double rows_of_table = table ? double(heads * length * d) : 0;
    if (table) call.options.relative_keys = {noise({heads, length, d}), length - 1};
    // Each block reads the table. The kernel of δ reads two operands. The kernels of the gradients
    // of keys, queries and the table (whose partial sums are added) read four and the table.
    const double read = cut ? 6 : item, extra = table ? n : 0;
    const double segments = std::min(132.0, double(batch)), parts = 4 * rows_of_table;
    const auto cutting = [&](double whole) { return cut ? 10 * (whole * n + rows_of_table) : 0; };
    // Saved for backward: in bf16 the remainder of rounding the output, in f32 the sums of weights.
    const double rest = cut ? 4 * lines : 2 * n, again = cut ? 2 * rest : rest;
    attention(kind, call, cutting(3) + (3 * n + extra) * read + n * item + 4 * lines + rest,
              cutting(4) + 2 * n * item + (table ? 3 : 2) * (4 * n + extra) * read + 3 * n * item +
                  4 * lines * (table ? 7 : 5) + again + (table ? (2 * segments + 1) * parts : 0));
  }
  // With relative values and relative queries: blocks of 64, each of which reads both tables.
  const int64_t few = 64, entries = rows / few;
  const Shape short_ones{entries, heads, few, d};
  const double lines_of = double(rows * heads), n_of = lines_of * double(d);
  const double both = 2 * double(heads * few * d);
  AttentionOperands call = causal(noise(short_ones), noise(short_ones), noise(short_ones));
  call.options.relative_query = noise(short_ones);
  call.options.relative_keys = {noise({heads, few, d}), few - 1};
  call.options.relative_values = {noise({heads, few, d}), few - 1};
  const double read = cut ? 6 : item, segments = std::min(132.0, double(entries));
  const auto cutting = [&](double whole) { return cut ? 10 * (whole * n_of + both) : 0; };
  const double rest = cut ? 4 * lines_of : 2 * n_of, again = cut ? 2 * rest : rest;
  attention("attention with rows of values", call,
            cutting(4) + 6 * n_of * read + n_of * item + 4 * lines_of + rest,
            cutting(5) + 2 * n_of * item + 3 * 7 * n_of * read + 4 * n_of * item +
                7 * 4 * lines_of + again + (2 * segments + 1) * 4 * both);
}

// Attention of the papers' models: without positions, with relative keys, with relative queries.
void KernelCaseList::published_attentions() {
  // One head, with the whole batch unless that takes too long. The table's gradient then has 16
  // partial sums in bf16 and 8 in f32; with 8 heads and batch 16 it has 9.
  const int64_t batch = dtype == bf16 ? 16 : 1, length = 2048, d = 64;
  const Shape shape{batch, 1, length, d};
  const double n = double(batch * length * d), rows_of_table = double(length * d);
  for (const int positions : {0, 1, 2}) {
    AttentionOperands call{
        noise(shape), noise(shape), noise(shape), {.mask = {.causal = true}, .scale = 0.125}};
    if (positions > 0) call.options.relative_keys = {noise({1, length, d}), length - 1};
    if (positions > 1) call.options.relative_query = noise(shape);
    constexpr const char* names[] = {"", " with positions", " with position queries"};
    const double operands = positions > 1 ? 5 : 4, table = positions > 0 ? rows_of_table : 0;
    attention(std::string("attention of 2048") + names[positions], call,
              (operands * n + table) * item + (dtype == bf16 ? 2 * n : 0),
              2 * (operands * n + table) * item, 16 * 8 / batch);
  }
}

// Attention of new queries to a cached sequence; the sums of splits are small in comparison. Each
// key head reads the shared table.
void KernelCaseList::decoding() {
  const int64_t d = 64, heads = 8;
  for (const auto& [queries, groups, table] :
       {std::tuple{1, 8, false}, {1, 8, true}, {4, 2, false}, {4, 2, true}}) {
    const Shape shape{1, heads, queries, d}, of_keys{1, groups, rows, d};
    const Tensor q = noise(shape), k = noise(of_keys), v = noise(of_keys), out = empty_like(q);
    AttentionOperands call = causal(q, k, v);
    if (table) call.options.relative_keys = {noise({groups == 8 ? heads : 1, rows, d}), rows - 1};
    const double cache = (table ? 3 : 2) * double(k.numel());
    add("attention of " + std::to_string(queries) + (table ? " with positions" : ""),
        2 * double(q.numel()) + cache, 0, 1.1, [=] { cuda::attention_decode(call, out); });
  }
}

// sineSPE of four matrices with 64 dimensions, 64 realizations and 5 sinusoids. Each block of 32
// positions (forward, dx) or of 4 dimensions (sums) computes or reads its inputs again.
void KernelCaseList::positions() {
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

// convSPE, queries and keys of one head with filters of 128 taps. Each block of 64 positions and 32
// realizations reads operands (eight elements in two vector loads) and filters (forward, dx); each
// block of a dimension and 32 realizations reads all positions (sums).
void KernelCaseList::noise_codes() {
  const int64_t n = rows / 16, d = 64, r = 64, taps = 128;
  const Tensor x = noise({4, 1, n, d}), y = empty_like(x), w = wide({1, d, 1, taps}).fill_(0.1);
  const cuda::NoiseCode code{{1, 2}, int64_t(1) << 40, 0, int64_t(1) << 30, r, {w, w}, {}};
  const double values = 2 * double(x.numel()), filters = 16 * double(n) / 64 * double(d * taps);
  const cuda::NoiseSide o{x, 7, y};
  const auto forward = [=] { cuda::apply_noise_code(code, {o, o}); };
  add("convSPE", 2 * values, filters, transposing, forward).loads(2.6).accesses(60);
  // Partial sums of dx per 32 realizations, and their sum, are written and read again in f32.
  const auto dx = [=] { cuda::noise_code_dx(code, {o, o}, {y, empty_like(y)}); };
  add("convSPE dx", 2 * values, filters + 2 * 3 * 4 * values, transposing, dx).accesses(60);
  const auto sums = [=] { cuda::noise_code_sums(code, {o, o}); };
  add("convSPE sums", double(d) * 2 * values, 0, transposing, sums).accesses(60);
}

}  // namespace stretto::testing
