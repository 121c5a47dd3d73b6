#include "tests/ops/spe/spe_setup.h"

#include <algorithm>

#include "ops/create.h"
#include "ops/indexing.h"
#include "tests/reference/spe.h"
#include "tests/support/gradcheck.h"

namespace stretto::testing {
namespace {

constexpr RandomKey code_key{.seed = 5, .stream = 8}, gate_key{.seed = 5, .stream = 9};

// The noise of a conv code's key, as documented: (head h, feature d) starts at (h·D + d)·2^40, with
// positions in order and R samples for each.
Tensor conv_draws(const SpeSetup& s, int64_t n1, int64_t n2) {
  const Tensor z = empty({s.heads, s.d, s.r, n1, n2}, {.dtype = f64, .device = cpu});
  std::vector<float> values(size_t(n1 * n2 * s.r));
  for (int64_t i = 0; i < s.heads * s.d; ++i) {
    normal_draws(code_key, i << 40, int64_t(values.size()), values.data());
    for (int64_t r = 0; r < s.r; ++r)
      for (int64_t p = 0; p < n1 * n2; ++p)
        z.data<double>()[(i * s.r + r) * n1 * n2 + p] = double(values[size_t(p * s.r + r)]);
  }
  return z;
}

}  // namespace

std::string describe(const SpeSetup& s) {
  const char* kinds[] = {"sine", "conv", "image"};
  return str(kinds[int(s.kind)], ", B ", s.batch, ", H ", s.heads, ", M ", s.queries, ", N ",
             s.keys, ", D ", s.d, ", R ", s.r, ", K ", s.sines, ", P ", s.tap_rows, " x ", s.taps,
             ", shape ", s.rows, " x ", s.columns, ", first ", s.first, s.gated ? ", gated" : "",
             s.given ? ", given" : "");
}

DType exact_dtype() { return default_device().is_cuda() ? f32 : f64; }

double within(double tolerance) { return exact_dtype() == f64 ? tolerance : tolerance * 0x1p29; }

Tensor exact_noise(const Shape& shape, uint64_t stream) {
  return fixed_noise(shape, stream, exact_dtype());
}

Implementation fused_form() {
  return default_device().is_cuda() ? Implementation::automatic : Implementation::fused;
}

const char* name(SpeWay way) {
  constexpr const char* names[] = {"composed", "fused", "kept", "kept in part"};
  return names[int(way)];
}

std::vector<SpeSetup> spe_setups() {
  std::vector<SpeSetup> all;
  for (const CodeKind kind : {CodeKind::sine, CodeKind::conv, CodeKind::image}) {
    SpeSetup s{.kind = kind};
    auto add = [&](auto change) {
      SpeSetup changed = s;
      change(changed);
      all.push_back(changed);
    };
    add([](SpeSetup&) {});
    add([](SpeSetup& c) { c.gated = false; });
    add([](SpeSetup& c) { c.given = true; });
    add([](SpeSetup& c) { c.d = 1, c.r = 1, c.heads = 1; });
    add([](SpeSetup& c) { c.queries = c.keys = 1; });
    add([](SpeSetup& c) { c.queries = 2, c.first = 3; });
    add([](SpeSetup& c) { c.keys = 2, c.first = 5; });
    add([](SpeSetup& c) { c.keys = 0, c.first = 4; });
    add([](SpeSetup& c) { c.queries = 0; });
    add([](SpeSetup& c) { c.batch = 0; });
    add([](SpeSetup& c) { c.batch = 5, c.d = 4; });
    add([](SpeSetup& c) { c.sines = 1, c.taps = 1, c.tap_rows = 1; });
    add([](SpeSetup& c) { c.sines = 5, c.taps = 9, c.tap_rows = 4, c.given = true; });
    add([](SpeSetup& c) { c.d = 9, c.r = 3, c.first = 1; });
  }
  for (const CodeKind kind : {CodeKind::sine, CodeKind::conv, CodeKind::image}) {
    // More positions than a segment, and heads and realizations that no vector length divides.
    all.push_back({.kind = kind,
                   .batch = 1,
                   .heads = 1,
                   .queries = 300,
                   .keys = 330,
                   .d = 5,
                   .r = 21,
                   .taps = 40,
                   .rows = 9,
                   .columns = 41,
                   .first = 7});
    all.push_back({.kind = kind,
                   .batch = 1,
                   .heads = 1,
                   .queries = 10,
                   .keys = 10,
                   .d = 41,
                   .r = 70,
                   .rows = 10,
                   .columns = 1});
  }
  // Long filters: by transforms, except for the last positions of the second setup.
  for (const auto& [taps, length] : {std::pair<int64_t, int64_t>{700, 330}, {300, 650}})
    for (const bool given : {false, true})
      all.push_back({.kind = CodeKind::conv,
                     .batch = 1,
                     .heads = 1,
                     .queries = length - 5,
                     .keys = length,
                     .d = 2,
                     .r = 3,
                     .taps = taps,
                     .first = 3,
                     .given = given});
  return all;
}

SpeCall::SpeCall(const SpeSetup& setup, DType dtype) : s(setup) {
  inputs = {fixed_noise({s.batch, s.heads, s.queries, s.d}, 1, dtype),
            fixed_noise({s.batch, s.heads, s.keys, s.d}, 2, dtype)};
  const Shape shape = s.kind == CodeKind::sine   ? Shape{s.heads, s.d, s.sines}
                      : s.kind == CodeKind::conv ? Shape{s.heads, s.d, s.taps}
                                                 : Shape{s.heads, s.d, s.tap_rows, s.taps};
  for (uint64_t i = 0; i < (s.kind == CodeKind::sine ? 3u : 2u); ++i)
    inputs.push_back(fixed_noise(shape, 3 + i, dtype));
  inputs.push_back(s.gated ? fixed_noise({s.heads, s.d}, 6, dtype) : Tensor());
  if (s.kind == CodeKind::sine)
    z = randn({s.heads, s.d, 2 * s.sines, s.r}, code_key, {.dtype = f64});
  else if (s.kind == CodeKind::conv)
    z = conv_draws(s, 1, end() + s.taps - 1);
  else
    z = conv_draws(s, s.rows + s.tap_rows - 1, s.columns + s.taps - 1);
  epsilon = randn({s.heads, s.d, s.r}, gate_key, {.dtype = f64});
}

SpeCall& SpeCall::with_gradients() {
  for (Tensor& x : inputs)
    if (x.defined()) x.set_requires_grad();
  return *this;
}

SpeCode SpeCall::code(const Tensors& in) const {
  const Tensor given = s.kind == CodeKind::conv ? z.squeeze(3) : z;
  const SpeNoise noise = s.given ? SpeNoise(given) : SpeNoise(code_key, s.r);
  if (s.kind == CodeKind::sine) return SpeCode::sine(in[2], in[3], in[4], noise);
  return SpeCode::conv(in[2], in[3], noise,
                       s.kind == CodeKind::image ? Shape{s.rows, s.columns} : Shape{});
}

SpeOptions SpeCall::options(const Tensors& in, Implementation implementation) const {
  SpeOptions o{.first = s.first, .implementation = implementation};
  if (s.gated) o.gate = SpeGate{in.back(), s.given ? SpeNoise(epsilon) : SpeNoise(gate_key, s.r)};
  return o;
}

SpePair SpeCall::operator()(SpeWay way, const Tensors& in) const {
  SpeCode c = code(in);
  if (way == SpeWay::kept) c = c.kept(end());
  if (way == SpeWay::kept_part) c = c.kept(end() - begin(), begin());
  return spe(in[0], in[1], c,
             options(in, way == SpeWay::composed ? Implementation::composed : fused_form()));
}

int64_t SpeCall::first_query() const {
  return s.keys == 0 ? s.first : s.first + s.keys - s.queries;
}

int64_t SpeCall::begin() const { return std::min(first_query(), s.first); }

int64_t SpeCall::end() const { return std::max(first_query() + s.queries, s.first + s.keys); }

SpePair SpeCall::reference() const {
  auto side = [&](const Tensor& x, bool query, int64_t at) {
    const int64_t n = x.size(2);
    Tensor code;
    if (s.kind == CodeKind::sine)
      code = reference::sine_code(inputs[2], query ? inputs[3] : Tensor(), inputs[4], z, at, n);
    else
      code = reference::conv_code(
          inputs[query ? 2 : 3].reshape(
              {s.heads, s.d, s.kind == CodeKind::image ? s.tap_rows : 1, s.taps}),
          z, s.kind == CodeKind::image ? s.columns : INT64_MAX, at, n);
    if (s.gated) code = reference::gated_code(code, inputs.back(), epsilon);
    return reference::encoded(x, code);
  };
  return {side(inputs[0], true, first_query()), side(inputs[1], false, s.first)};
}

Tensor joined(const SpePair& y) { return cat({y.q, y.k}, 2); }

}  // namespace stretto::testing
