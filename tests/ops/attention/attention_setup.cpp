#include "tests/ops/attention/attention_setup.h"

#include <cmath>

#include "ops/create.h"
#include "tests/support/gradcheck.h"

namespace stretto::testing {

std::string describe(const AttentionSetup& s) {
  const char* out_of_range = s.out_of_range == OutOfRange::zero ? "zero" : "clip";
  return str("B ", s.batch, ", H ", s.heads, ", G ", s.key_heads, ", M ", s.queries, ", N ", s.keys,
             ", D ", s.d, ", Dv ", s.d_value, s.causal ? ", causal" : "", ", window ", s.window,
             ", block ", s.block, ", padded ", s.padded, ", table ", s.table, " ", out_of_range,
             s.bidirectional ? " bidirectional" : "", s.shared ? " shared" : "",
             s.relative_query ? str(", position query ", s.d_query) : "",
             s.relative_bias ? ", lag bias" : "", s.values ? ", value table" : "", ", bias ",
             s.bias, ", scale ", s.scale, ", dropout ", s.dropout, ", window_after ",
             s.window_after, ", segments ", s.segments, s.prefix ? ", prefix" : "", ", global ",
             s.global, ", hidden ", s.hidden,
             !s.sinks        ? ""
             : s.query_sinks ? ", sinks of queries"
                             : ", sinks",
             ", soft cap ", s.soft_cap);
}

namespace {

// The shape of the named axes of "BHMN", without leading axes of size 1.
Shape shape_of(const std::string& axes, const Shape& all) {
  Shape shape;
  for (int64_t d = 0; d < 4; ++d) {
    const bool has = axes.find("BHMN"[d]) != std::string::npos;
    if (has || shape.dim() > 0) shape.push_back(has ? all[d] : 1);
  }
  return shape;
}

// Adds the masks that are tensors.
void add_masks(AttentionMask& mask, const AttentionSetup& s, int64_t n, uint64_t stream) {
  uint64_t at = 0;
  const auto draw = [&](int64_t below) {
    return int64_t(random_bits({7, stream}, at++) % uint64_t(std::max<int64_t>(below, 1)));
  };
  const auto mask_of = [&](const Shape& shape, int64_t one_in) {
    Tensor x = zeros(shape, {.dtype = boolean, .device = cpu});
    for (int64_t i = 0; i < x.numel(); ++i) x.data<bool>()[i] = draw(one_in) == 0;
    return x;
  };
  const auto ids_of = [&](const Shape& shape, auto id) {
    const Tensor x = empty(shape, {.dtype = i64, .device = cpu});
    for (int64_t i = 0; i < x.numel(); ++i) x.data<int64_t>()[i] = id(i);
    return x.to(default_device());
  };
  mask.window_after = s.window_after;
  if (s.segments < 0) mask.segments = ids_of({s.batch, n}, [&](int64_t) { return draw(3) - 1; });
  if (s.segments > 0) {
    int64_t id = 0;
    mask.segments = ids_of({s.batch, n}, [&](int64_t) { return id += draw(n) < s.segments; });
  }
  if (s.prefix) mask.prefix_lengths = ids_of({s.batch}, [&](int64_t) { return draw(n + 9); });
  if (s.global > 0) {
    const Tensor global = mask_of({s.batch, n}, std::max<int64_t>(1, n / s.global));
    for (int64_t b = 0; b < s.batch; ++b) global.data<bool>()[b * n] = true;
    mask.global_tokens = global.to(default_device());
  }
  if (!s.hidden.empty())
    mask.hidden =
        mask_of(shape_of(s.hidden, {s.batch, s.heads, s.queries, n}), 3).to(default_device());
}

}  // namespace

AttentionCase make_inputs(const AttentionSetup& s, DType dtype, uint64_t stream) {
  const int64_t n = s.keys > 0 ? s.keys : s.queries, groups = s.key_heads ? s.key_heads : s.heads;
  const int64_t d_value = s.d_value > 0 ? s.d_value : s.d;
  auto leaf = [&](const Shape& shape) {
    Tensor x = fixed_noise(shape, stream++, dtype);
    return dtype == f64 ? x.set_requires_grad() : x;
  };
  auto table = [&](int64_t length, int64_t last) {
    Shape shape{s.shared ? 1 : s.heads, s.bidirectional ? 2 * length - 1 : length};
    if (last > 0) shape.push_back(last);
    return RelativeTable{leaf(shape), length - 1, s.out_of_range};
  };
  AttentionCase in;
  in.q = leaf({s.batch, s.heads, s.queries, s.d});
  in.k = leaf({s.batch, groups, n, s.d});
  in.v = leaf({s.batch, groups, n, d_value});
  AttentionOptions& o = in.options;
  o.mask = {.causal = s.causal, .window = s.window, .block = s.block};
  if (s.scale > 0) o.scale = s.scale;
  const int64_t d_query = s.relative_query && s.d_query > 0 ? s.d_query : s.d;
  if (s.relative_query && s.table > 0)
    o.relative_query = leaf({s.batch, s.heads, s.queries, d_query});
  if (s.table > 0) o.relative_keys = table(s.table, d_query);
  if (s.values) o.relative_values = table(s.table > 0 ? s.table : 7, d_value);
  if (s.relative_bias) o.relative_bias = table(s.table > 0 ? s.table : 7, 0);
  if (!s.bias.empty()) {
    o.bias = leaf(shape_of(s.bias, {s.batch, s.heads, s.queries, n}));
  }
  if (s.dropout > 0) {
    o.dropout = s.dropout;
    o.dropout_key = RandomKey{5, stream};
  }
  if (s.padded != 0) {
    const Tensor padding = zeros({s.batch, n}, {.dtype = boolean, .device = cpu});
    bool* at = padding.data<bool>();
    for (int64_t i = 0; i < s.padded; ++i)
      at[random_bits({3, stream}, uint64_t(i)) % uint64_t(s.batch * n)] = true;
    for (int64_t j = 0; j < n && s.padded < 0; ++j) at[j] = true;
    o.mask.key_padding = padding.to(default_device());
  }
  add_masks(o.mask, s, n, stream);
  if (s.sinks) o.sinks = leaf(s.query_sinks ? Shape{s.batch, s.heads, s.queries} : Shape{s.heads});
  o.soft_cap = s.soft_cap;
  return in;
}

Tensor AttentionCase::operator()(Implementation implementation) const {
  AttentionOptions o = options;
  o.implementation = implementation;
  return attention(q, k, v, o);
}

Tensors AttentionCase::leaves() const {
  Tensors all;
  for_each_tensor([&](const Tensor& x) {
    if (x.defined()) all.push_back(x);
  });
  return all;
}

AttentionSetup random_setup(uint64_t number) {
  uint64_t index = 0;
  auto pick = [&](std::initializer_list<int64_t> choices) {
    const uint32_t draw = random_bits({.seed = 41, .stream = number}, index++);
    return choices.begin()[draw % choices.size()];
  };
  AttentionSetup s;
  s.batch = pick({1, 2, 3});
  s.heads = pick({1, 2, 4});
  s.key_heads = s.heads / std::min(s.heads, pick({1, 1, 2, 4}));
  s.queries = pick({1, 5, 63, 64, 65, 130});
  s.keys = std::max<int64_t>(1, s.queries + pick({0, 0, 0, 1, 7, 65, -1, -60}));
  s.d = pick({1, 8, 41});
  s.d_value = pick({s.d, s.d, 1, 6, 48});
  s.causal = pick({0, 1, 1});
  switch (pick({0, 0, 1, 2})) {
    case 1:
      s.window = pick({1, 2, 9, 64, 200});
      break;
    case 2:
      s.block = pick({1, 4, 33, 64, 100, 300});
      break;
    default:
      break;
  }
  s.padded = pick({0, 0, 3, 50, -1});
  s.table = pick({0, 1, 4, 64, s.keys - 1, s.keys, s.keys + 1, 300});
  s.bidirectional = pick({0, 1});
  s.shared = pick({0, 1});
  s.out_of_range = pick({0, 1}) ? OutOfRange::clip : OutOfRange::zero;
  s.relative_query = pick({0, 0, 1});
  s.relative_bias = pick({0, 0, 1});
  s.values = pick({0, 0, 0, 1});
  constexpr const char* biases[] = {"", "HN", "BHMN", "HMN", "MN", "BM", "-"};
  s.bias = biases[pick({0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6})];
  s.scale = double(pick({0, 0, 1}));
  s.d_query = pick({0, 0, 1, 8, 16, 50});
  return s;
}

AttentionSetup random_masked_setup(uint64_t number) {
  AttentionSetup s = random_setup(number);
  uint64_t index = 1000;
  auto pick = [&](std::initializer_list<int64_t> choices) {
    const uint32_t draw = random_bits({.seed = 41, .stream = number}, index++);
    return choices.begin()[draw % choices.size()];
  };
  if (s.block == 0) {
    s.window_after = pick({0, 0, 1, 2, 9, 64, 200});
    s.prefix = s.causal && pick({0, 0, 1});
  }
  if (s.keys == 0 || s.queries <= s.keys) {
    s.segments = pick({0, 0, 1, 3, 20, -1});
    if (s.window + s.window_after > 0) s.global = pick({0, 0, 1, 3, 40});
  }
  constexpr const char* axes[] = {"", "MN", "BHMN", "BMN", "HN", "M"};
  s.hidden = axes[pick({0, 0, 0, 1, 2, 3, 4, 5})];
  s.sinks = pick({0, 0, 1});
  s.soft_cap = double(pick({0, 0, 1}));
  s.query_sinks = pick({0, 1});
  return s;
}

AttentionSetup for_kernels(AttentionSetup s) {
  if (!default_device().is_cuda()) return s;
  for (int64_t* x : {&s.d, &s.d_value, &s.d_query}) *x = (*x + 7) / 8 * 8;
  return s;
}

double attention_rounding(const AttentionSetup& s, DType dtype) {
  const double unit = dtype == f64 ? 0x1p-53 : 0x1p-24, d = double(std::max(s.d, s.d_query));
  const double scale = s.scale > 0 ? s.scale : 1 / std::sqrt(double(s.d));
  const double size = 2 * d * scale + 2;                      // bound on the size of a score
  const double score = (2 * d * (d + 2) * scale + 4 * size);  // bound on its error, in units
  const double sums = unit * 2 * (2 * score + double(std::max(s.keys, s.queries)) + 16);
  return dtype == bf16 ? sums + (s.values ? 1.5 : 1) * 0x1p-8 : sums;
}

}  // namespace stretto::testing
