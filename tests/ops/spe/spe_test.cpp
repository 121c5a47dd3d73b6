// spe() in all implementations against loops over the paper's equations: values, positions, errors.
#include "ops/spe/spe.h"

#include <cmath>
#include <limits>

#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "tests/ops/spe/spe_setup.h"
#include "tests/reference/spe.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using testing::CodeKind;
using testing::exact_noise;
using testing::fixed_noise;
using testing::same_bits;
using testing::spe_ways;
using testing::SpeCall;
using testing::SpeSetup;
using testing::SpeWay;
using testing::strided_copy;
using testing::within;
using testing::worst_error;

namespace {

constexpr CodeKind kinds[] = {CodeKind::sine, CodeKind::conv, CodeKind::image};

void check_pair(const SpePair& got, const SpePair& want, double tolerance) {
  CHECK(worst_error(got.q, want.q) <= tolerance);
  CHECK(worst_error(got.k, want.k) <= tolerance);
}

}  // namespace

TEST_CASE("spe agrees with the reference") {
  for (const SpeSetup& s : testing::spe_setups()) {
    const SpeCall call(s);
    const SpePair want = call.reference();
    for (const SpeWay way : spe_ways) {
      INFO(name(way) << ", " << describe(s));
      check_pair(call(way), want, within(1e-12));
    }
  }
}

TEST_CASE("spe agrees with the reference in f32 and bf16") {
  // A result sums D·2K or D·P products of about 1, times (RD)^(−1/4); f32 inputs are rounded first.
  for (const SpeSetup& s : testing::spe_setups())
    for (const DType dtype : {f32, bf16}) {
      const SpeCall call(s, dtype);
      const SpePair want = call.reference();
      const double terms = double(s.d * std::max(2 * s.sines, s.taps * s.tap_rows)) + 20;
      const double tolerance = dtype == f32 ? terms * 0x1p-23 : 0x1p-8;
      for (const SpeWay way : spe_ways) {
        INFO(name(way) << ", " << name(dtype) << ", " << describe(s));
        const SpePair got = call(way);
        CHECK(got.q.dtype() == dtype);
        check_pair(got, want, tolerance);
      }
    }
}

TEST_CASE("spe: given noise may have another dtype and be longer than needed") {
  for (const CodeKind kind : kinds) {
    const SpeCall call({.kind = kind, .given = true});
    Tensor z = call.z.to(f32);
    if (kind != CodeKind::sine) z = cat({z, z}, 4);
    if (kind == CodeKind::image) z = cat({z, z}, 3);
    if (kind == CodeKind::conv) z = z.squeeze(3);
    const Tensors& in = call.inputs;
    const SpeCode code = kind == CodeKind::sine
                             ? SpeCode::sine(in[2], in[3], in[4], strided_copy(z))
                             : SpeCode::conv(in[2], in[3], strided_copy(z),
                                             kind == CodeKind::image ? Shape{3, 5} : Shape{});
    for (const Implementation implementation : {Implementation::composed, testing::fused_form()})
      check_pair(spe(in[0], in[1], code, call.options(in, implementation)), call.reference(),
                 within(1e-12));
  }
}

TEST_CASE("spe: codes depend neither on the length nor on the first position of a call") {
  for (const CodeKind kind : kinds) {
    SpeCall call({.kind = kind, .queries = 20, .keys = 20, .rows = 4});
    for (const SpeWay way : spe_ways) {
      INFO(name(way) << ", " << describe(call.s));
      const SpePair whole = call(way);
      for (const int64_t first : {0, 7, 19})
        for (const int64_t n : {1, 7}) {
          if (first + n > 20) continue;
          SpeCall part = call;
          part.s.first = first, part.s.queries = part.s.keys = n;
          Tensors in = call.inputs;
          for (const size_t i : {0, 1}) in[i] = in[i].slice(2, first, first + n);
          const SpePair got = part(way, in);
          CHECK(worst_error(got.q, whole.q.slice(2, first, first + n)) <= within(1e-14));
          CHECK(worst_error(got.k, whole.k.slice(2, first, first + n)) <= within(1e-14));
        }
    }
  }
}

TEST_CASE("spe: phases are exact at far positions") {
  for (const int64_t first : {int64_t(1) << 20, int64_t(1) << 30}) {
    const SpeCall call({.first = first}, f64);
    const SpePair want = call.reference();
    // f, below ½, is off by two units in the last place in either computation.
    check_pair(call(SpeWay::fused), want, 6.3 * double(first) * 0x1p-52);
    const SpeCall narrow({.first = first}, f32);
    const SpePair fused_codes = narrow(SpeWay::fused), by_paper = narrow(SpeWay::composed);
    check_pair(fused_codes, by_paper, 1e-6);
  }
}

TEST_CASE("spe_template agrees with the reference and is 0 beyond the filter") {
  for (const int64_t n : {1, 2, 3, 8}) {
    const SpeCall sine({.kind = CodeKind::sine}, f64), conv({.kind = CodeKind::conv}, f64);
    const Tensor gate = sine.inputs.back();
    const Tensor p = reference::sine_template(sine.inputs[2], sine.inputs[3], sine.inputs[4], n);
    const Tensor c = reference::conv_template(conv.inputs[2], conv.inputs[3], n);
    CHECK(worst_error(spe_template(sine.code(), n), p) < 1e-14);
    CHECK(worst_error(spe_template(conv.code(), n), c) < 1e-14);
    CHECK(worst_error(spe_template(conv.code().kept(5), n), c) < 1e-14);
    CHECK(worst_error(spe_template(sine.code(), n, gate), reference::gated_template(p, gate)) <
          1e-14);
    const Tensor out_of_range = spe_template(conv.code(), n);
    for (int64_t tau = 3; tau < n; ++tau)
      for (const int64_t at : {n - 1 - tau, n - 1 + tau})
        CHECK(worst_error(out_of_range.select(2, at), zeros({2, 3}, {.dtype = f64})) == 0);
  }
  for (const CodeKind kind : {CodeKind::sine, CodeKind::conv}) {
    SpeCall call({.kind = kind}, f64);
    call.with_gradients();
    const Tensors parameters(call.inputs.begin() + 2, call.inputs.end());
    testing::check_gradients(
        [&](const Tensors& in) {
          Tensors all = call.inputs;
          std::copy(in.begin(), in.end(), all.begin() + 2);
          return spe_template(call.code(all), 4, in.back());
        },
        parameters);
  }
}

TEST_CASE("spe: a closed gate leaves the code unchanged, an open one removes positions") {
  for (const CodeKind kind : kinds)
    for (const SpeWay way : spe_ways) {
      SpeCall call({.kind = kind, .batch = 1});
      SpeSetup plain = call.s;
      plain.gated = false;
      call.inputs.back().fill_(-1000);
      check_pair(call(way), SpeCall(plain).reference(), within(1e-14));
      call.inputs.back().fill_(1000);
      // The same vector at two positions, as query and as key.
      for (const size_t i : {0, 1})
        call.inputs[i] = exact_noise({1, 2, 1, 3}, 9).expand({1, 2, 6, 3}).clone();
      const SpePair y = call(way);
      for (int64_t l = 0; l < 6; ++l) {
        CHECK(worst_error(y.q.select(2, l), y.k.select(2, 0)) < within(1e-15));
        CHECK(worst_error(y.k.select(2, l), y.k.select(2, 0)) < within(1e-15));
      }
    }
}

TEST_CASE("spe accepts operands in any layout") {
  for (const CodeKind kind : kinds)
    for (const SpeWay way : spe_ways) {
      SpeCall call({.kind = kind});
      const SpePair want = call(way);
      for (Tensor& x : call.inputs) x = strided_copy(x);
      const SpePair got = call(way);
      CHECK(worst_error(got.q, want.q) < within(1e-14));
      CHECK(worst_error(got.k, want.k) < within(1e-14));
    }
}

TEST_CASE("spe: a NaN stays in its own row") {
  for (const CodeKind kind : kinds)
    for (const SpeWay way : spe_ways) {
      INFO(name(way) << ", kind " << int(kind));
      SpeCall call({.kind = kind});
      const SpePair want = call(way);
      call.inputs[0].select(0, 0).select(0, 1).select(0, 2).slice(0, 1, 2).fill_(NAN);
      const SpePair got = call(way);
      CHECK(worst_error(got.k, want.k) == 0);
      for (int64_t b = 0; b < 2; ++b)
        for (int64_t h = 0; h < 2; ++h)
          for (int64_t l = 0; l < 6; ++l) {
            const auto row = [&](const Tensor& x) {
              return x.select(0, b).select(0, h).select(0, l);
            };
            if (b == 0 && h == 1 && l == 2)
              CHECK(std::isnan(row(got.q).to_vector<double>()[0]));
            else
              CHECK(worst_error(row(got.q), row(want.q)) <= within(1e-14));
          }
    }
}

TEST_CASE("spe: invalid codes are rejected") {
  const SpeCall sine({}, f64), conv({.kind = CodeKind::conv}, f64),
      image({.kind = CodeKind::image}, f64);
  const Tensors &in = sine.inputs, &filters = conv.inputs;
  const RandomKey key{1, 2};
  CHECK_THROWS_WITH(SpeNoise(key, 0), "[SpeNoise] R = 0; must be at least 1");
  CHECK_THROWS_WITH(SpeNoise(arange(3)), "[SpeNoise] got i64 [3]; must be a floating-point tensor");
  CHECK_THROWS_WITH(SpeCode().heads(), Containing("make one with SpeCode::sine or conv"));

  CHECK_THROWS_WITH(
      SpeCode::sine(in[2], in[3], zeros({2, 3, 5}, {.dtype = f64}), {key, 4}),
      "[SpeCode::sine] freqs f64 [2, 3, 2], offsets f64 [2, 3, 2], gains f64 [2, 3, 5]; all three "
      "must be [H, D, K]");
  CHECK_THROWS_WITH(SpeCode::sine(in[2], in[3].to(f32), in[4], {key, 4}),
                    Containing("all must have one floating-point dtype"));
  const Tensor none = zeros({2, 3, 0});
  CHECK_THROWS_WITH(SpeCode::sine(none, none, none, {key, 4}),
                    "[SpeCode::sine] freqs f32 [2, 3, 0]; H, D and K must be at least 1");
  CHECK_THROWS_WITH(
      SpeCode::sine(in[2], in[3], in[4], zeros({2, 3, 2, 5})),
      "[SpeCode::sine] noise f32 [2, 3, 2, 5]; must be [2, 3, 4, R] with R at least 1");

  CHECK_THROWS_WITH(SpeCode::conv(filters[2], zeros({2, 3, 4}, {.dtype = f64}), {key, 4}),
                    "[SpeCode::conv] filter_q f64 [2, 3, 3], filter_k f64 [2, 3, 4]; both must be "
                    "[H, D, P]");
  CHECK_THROWS_WITH(SpeCode::conv(filters[2], filters[3], {key, 4}, {2, 3}),
                    Containing("both must be [H, D, P1, P2], as the shape is {h, w}"));
  CHECK_THROWS_WITH(SpeCode::conv(filters[2], filters[3].to(f32), {key, 4}),
                    Containing("both must have one floating-point dtype"));
  CHECK_THROWS_WITH(SpeCode::conv(none, none, {key, 4}),
                    "[SpeCode::conv] filter_q f32 [2, 3, 0]; all sizes must be at least 1");
  CHECK_THROWS_WITH(SpeCode::conv(filters[2], filters[3], {key, 4}, {6}),
                    Containing("accepted: none for a code of one dimension"));
  CHECK_THROWS_WITH(SpeCode::conv(filters[2], filters[3], {key, 4}, {1, 2, 3}),
                    "[SpeCode::conv] shape [1, 2, 3]; accepted: none, or two sizes {h, w}");
  CHECK_THROWS_WITH(SpeCode::conv(image.inputs[2], image.inputs[3], {key, 4}, {0, 3}),
                    Containing("both sizes must be at least 1"));
  CHECK_THROWS_WITH(
      SpeCode::conv(filters[2], filters[3], zeros({2, 3, 0, 9})),
      "[SpeCode::conv] noise f32 [2, 3, 0, 9]; must be [2, 3, R, n] with R at least 1");
  CHECK_THROWS_WITH(
      SpeCode::conv(image.inputs[2], image.inputs[3], zeros({2, 3, 4, 4, 6}), {3, 5}),
      "[SpeCode::conv] the noise f32 [2, 3, 4, 4, 6] is enough for only 3 rows of 4 positions, "
      "but the shape is [3, 5]");

  CHECK_THROWS_WITH(sine.code().kept(-1), "[SpeCode::kept] length is -1; must be 0 or more");
  CHECK_THROWS_WITH(sine.code().kept(1, -1), "[SpeCode::kept] first is -1; must be 0 or more");
}

TEST_CASE("spe_template: errors name what is accepted") {
  const SpeCall sine({}, f64), image({.kind = CodeKind::image}, f64);
  CHECK_THROWS_WITH(spe_template(sine.code(), 0), "[spe_template] n is 0; must be at least 1");
  CHECK_THROWS_WITH(spe_template(image.code(), 2),
                    Containing("only codes of one dimension have a template"));
  CHECK_THROWS_WITH(spe_template(sine.code(), 2, zeros({3})),
                    "[spe_template] gate f32 [3]; must be a floating-point tensor [2, 3]");
}

TEST_CASE("spe: errors name what is accepted") {
  const SpeCall sine({}, f64), conv({.kind = CodeKind::conv}, f64),
      image({.kind = CodeKind::image}, f64);
  const Tensors& filters = conv.inputs;
  const Tensor &q = sine.inputs[0], &k = sine.inputs[1];
  const RandomKey key{1, 2};
  for (const Implementation implementation : {Implementation::composed, testing::fused_form()}) {
    const SpeOptions plain{.implementation = implementation};
    const SpeCode code = sine.code();
    const Tensor other = zeros({2, 3, 6, 3}, {.dtype = f64});
    CHECK_THROWS_WITH(spe(q, other, code, plain),
                      "[spe] q f64 [2, 2, 6, 3], k f64 [2, 3, 6, 3]; accepted for this code: "
                      "q [B, 2, M, 3], k [B, 2, N, 3]");
    CHECK_THROWS_WITH(spe(q, k.to(f32), code, plain),
                      Containing("both must have one floating-point dtype"));
    CHECK_THROWS_WITH(spe(q, k, code, {.first = -1, .implementation = implementation}),
                      "[spe] first is -1; must be 0 to 1099511627776");
    CHECK_THROWS_WITH(
        spe(q, k.slice(2, 0, 4), code, {.first = 1, .implementation = implementation}),
        "[spe] 6 queries and 4 keys from position 1 on: the first query would have "
        "position -1");
    CHECK_THROWS_WITH(
        spe(q, k, code.kept(5), plain),
        "[spe] the cached code has positions 0 to 4, but positions 0 to 5 are needed");
    CHECK_THROWS_WITH(
        spe(q, k, code.kept(6, 1), plain),
        "[spe] the cached code has positions 1 to 6, but positions 0 to 5 are needed");
    CHECK_NOTHROW(spe(q, k, code.kept(6, 3), {.first = 3, .implementation = implementation}));
    const SpeCode shortest = SpeCode::conv(filters[2], filters[3], zeros({2, 3, 4, 7}));
    CHECK_THROWS_WITH(
        spe(q, k, shortest, plain),
        "[spe] the noise is enough for only 5 positions, but positions 0 to 5 are needed");
    CHECK_THROWS_WITH(shortest.kept(6),
                      "[SpeCode::kept] the noise is enough for only 5 positions, but positions 0 "
                      "to 5 are needed");
    CHECK_THROWS_WITH(
        spe(q, k, image.code(), {.first = 10, .implementation = implementation}),
        "[spe] the code of shape [3, 5] has 15 positions, but positions 10 to 15 are needed");
    auto gated = [&](const Tensor& gate, const SpeNoise& noise) {
      SpeOptions o = plain;
      o.gate = SpeGate{gate, noise};
      return spe(q, k, code, o);
    };
    CHECK_THROWS_WITH(gated(zeros({2, 4}), {key, 4}),
                      "[spe] gate f32 [2, 4]; must be a floating-point tensor [2, 3]");
    CHECK_THROWS_WITH(gated(zeros({2, 3}), {key, 5}),
                      "[spe] the noise of the gate has R = 5, but the code has R = 4");
    CHECK_THROWS_WITH(
        gated(zeros({2, 3}), zeros({2, 3, 1})),
        "[spe] noise of the gate f32 [2, 3, 1]; must be a floating-point tensor [2, 3, 4]");
  }
  CHECK_THROWS_WITH(spe(q.to(f32), k.to(f32), sine.code().kept(6)),
                    Containing("the cached code is f64, as are its parameters"));
}
