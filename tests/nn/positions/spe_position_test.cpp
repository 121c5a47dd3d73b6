// Stochastic positional encoding as a positional encoding: what it does to attention inputs, its
// noise, and what is shared.
#include <algorithm>
#include <cmath>

#include "nn/init.h"
#include "nn/positions/spe.h"
#include "nn/training/checkpoint.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/nn/positions/spe.h"
#include "tests/support/temp_dir.h"

using nn::Spe;
using testing::layers_of;
using testing::spe_codes;

namespace {

// An Spe in f64.
struct Alone : nn::Module {
  explicit Alone(const nn::MakePositionalEncoding& make, nn::HeadShape shape = {2, 4, 4, 8})
      : position(make(*this, shape)) {
    to(f64);
  }
  Spe& spe() const { return dynamic_cast<Spe&>(*position); }
  std::unique_ptr<nn::PositionalEncoding> position;
};

Tensor named(const nn::Module& m, const std::string& name) {
  for (const auto& list : {m.named_parameters(), m.named_buffers()})
    for (const nn::NamedTensor& n : list)
      if (n.name == name) return n.tensor;
  FAIL("no " << name);
  return {};
}

std::vector<std::string> names(const std::vector<nn::NamedTensor>& all) {
  std::vector<std::string> list;
  for (const nn::NamedTensor& n : all) list.push_back(n.name);
  return list;
}

RandomKey key_of(const Tensor& buffer) {
  const std::vector<int64_t> v = buffer.to_vector<int64_t>();
  return {uint64_t(v[0]), uint64_t(v[1])};
}

nn::AttentionInputs some_call(int64_t m, int64_t n) {
  return {
      fixed_noise({2, 2, m, 4}, 1), fixed_noise({2, 2, n, 4}, 2), fixed_noise({2, 2, n, 3}, 3), {}};
}

}  // namespace

TEST_CASE("Spe: queries and keys become those of spe()") {
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{7, 7}, {3, 7}, {1, 1}, {1, 7}})
    for (const int64_t first : {0, 5})
      for (const bool gated : {false, true})
        for (const bool conv : {false, true}) {
          manual_seed(4);
          Alone a(conv ? nn::conv_spe({.realizations = 6, .taps = {5}, .gated = gated})
                       : nn::sine_spe({.realizations = 6, .sines = 3, .gated = gated}));
          a.eval();
          const SpeNoise noise(key_of(named(a, "position.draw")), 6);
          const auto p = [&](const char* name) { return named(a, str("position.", name)); };
          const SpeCode code = conv ? SpeCode::conv(p("filter_q"), p("filter_k"), noise)
                                    : SpeCode::sine(p("freqs"), p("offsets"), p("gains"), noise);
          SpeOptions o{.first = first};
          if (gated) o.gate = SpeGate{p("gate"), SpeNoise(key_of(p("gate_draw")), 6)};
          nn::AttentionInputs inputs = some_call(m, n);
          const SpePair want = spe(inputs.q, inputs.k, code, o);
          const Tensor v = inputs.v;
          inputs.first_position = first;
          inputs.options.scale = 0.3;
          a.position->apply(inputs);
          CHECK(same_bits(inputs.q, want.q));
          CHECK(same_bits(inputs.k, want.k));
          CHECK(same_bits(inputs.v, v));
          CHECK(inputs.q.shape() == Shape{2, 2, m, 6});
          CHECK(*inputs.options.scale == Approx(0.3 * std::sqrt(4.0 / 6)).epsilon(1e-15));
          nn::AttentionInputs plain = some_call(m, n);
          a.position->apply(plain);
          CHECK_FALSE(plain.options.scale.has_value());  // it sets 1/√R itself
        }
}

TEST_CASE("Spe: scores have the mean of softmax attention with relative positions") {
  // By ops/spe/spe.h the template is P; softmax scores are Σ_d q_d k_d P_d(distance) / √D.
  manual_seed(4);
  Alone a(nn::sine_spe({.realizations = 20000, .sines = 2, .gated = true}));
  const auto p = [&](const char* name) { return named(a, str("position.", name)); };
  const Tensor lags = spe_template(
      SpeCode::sine(p("freqs"), p("offsets"), p("gains"), SpeNoise({1, 2}, 1)), 3, p("gate"));
  for (const std::optional<double>& scale : {std::optional<double>(), {0.25}}) {
    nn::AttentionInputs inputs = some_call(3, 3);
    const Tensor q = inputs.q, k = inputs.k;
    inputs.options.scale = scale;
    a.position->apply(inputs);
    const double given = inputs.options.scale.value_or(1 / std::sqrt(20000.0));
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < 3; ++j) {
        const Tensor product = q[1][1][i] * k[1][1][j];
        const double want =
            sum(product * lags[1].select(1, i - j + 2)).item() * scale.value_or(0.5);
        const Tensor terms = inputs.q[1][1][i] * inputs.k[1][1][j] * (20000 * given);
        const double error = std::sqrt(var(terms).item() / 20000);
        CHECK(std::fabs(mean(terms).item() - want) < 4 * error);
      }
  }
}

TEST_CASE("Spe: parameters, their names and initial values") {
  manual_seed(4);
  const Alone sine(nn::sine_spe({.sines = 3}));
  CHECK(names(sine.named_parameters()) ==
        std::vector<std::string>{"position.freqs", "position.offsets", "position.gains",
                                 "position.gate"});
  CHECK(names(sine.named_buffers()) ==
        std::vector<std::string>{"position.draw", "position.gate_draw"});
  CHECK(sine.parameter_count() == 3 * 2 * 4 * 3 + 2 * 4);
  manual_seed(4);
  std::vector<Tensor> drawn;
  for (int i = 0; i < 3; ++i) nn::normal_(drawn.emplace_back(empty({2, 4, 3})));
  const auto p = [&](const nn::Module& m, const char* name) {
    return named(m, str("position.", name));
  };
  CHECK(worst_error(p(sine, "freqs"), drawn[0].to(f64) - 4) < 1e-6);  // initialized in f32
  CHECK(worst_error(p(sine, "offsets"), drawn[1]) == 0);
  const Tensor norm = sqrt(sum(square(drawn[2]), {2}, true));
  CHECK(worst_error(p(sine, "gains"), drawn[2] / (sqrt(norm) / 2)) < 1e-6);
  CHECK(worst_error(sqrt(sum(square(p(sine, "gains")), {2}, true)), 2 * sqrt(norm)) < 1e-6);

  const Alone conv(nn::conv_spe({}), {8, 64, 64, 512});
  CHECK(conv.parameter_count() == 2 * 8 * 64 * 128 + 8 * 64);
  for (const char* name : {"filter_q", "filter_k"}) {
    const Tensor filter = p(conv, name);
    const double top = 1 / std::sqrt(64.0);
    CHECK(min(filter).item() >= 0);
    CHECK(max(filter).item() < top);
    const double n = double(filter.numel());
    CHECK(std::fabs(mean(filter).item() / top - 0.5) < 4 / std::sqrt(12 * n));
  }
  // N(0, 1), 512 values.
  CHECK(std::fabs(mean(p(conv, "gate")).item()) < 4 / std::sqrt(512.0));
  CHECK(std::fabs(var(p(conv, "gate")).item() - 1) < 4 * std::sqrt(2 / 512.0));
  CHECK(worst_error(p(conv, "filter_q"), p(conv, "filter_k")) > 0.01);

  const Alone plain(nn::sine_spe({.sines = 5, .gated = false}));
  CHECK(plain.parameter_count() == 3 * 2 * 4 * 5);
  CHECK(names(plain.named_buffers()) == std::vector<std::string>{"position.draw"});
  const Alone plane(nn::conv_spe({.taps = {3, 2}, .shape = {4, 5}}));
  CHECK(p(plane, "filter_k").shape() == Shape{2, 4, 3, 2});
  CHECK(max(p(plane, "filter_k")).item() < 1 / std::sqrt(3.0));
  CHECK(sine.position->label() == "SineSpe(64 realizations, 3 sines, gated, draws shared)");
  CHECK(plane.position->label() == "ConvSpe(64 realizations, taps [3, 2], gated, draws shared)");
  CHECK(Alone(nn::conv_spe({.gated = false, .shared = SpeShare::draws})).position->label() ==
        "ConvSpe(64 realizations, taps [128], draws shared)");
}

TEST_CASE("Spe: new noise in every training pass, fixed noise in evaluation") {
  for (const auto& code : spe_codes()) {
    INFO(code.name);
    manual_seed(4);
    Alone a(code.make);
    const uint64_t streams = a.spe().gate.defined() ? 2 : 1;
    const auto q = [&] {
      nn::AttentionInputs inputs = some_call(5, 5);
      a.position->apply(inputs);
      return inputs.q;
    };
    const uint64_t before = random_state().next_stream;
    const Tensor first = q();
    CHECK(random_state().next_stream == before + streams);
    CHECK(worst_error(q(), first) > 1e-2);
    manual_seed(9);
    const Tensor again = q();
    manual_seed(9);
    CHECK(same_bits(q(), again));
    a.eval();
    const uint64_t now = random_state().next_stream;
    const Tensor frozen = q();
    CHECK(same_bits(q(), frozen));
    CHECK(random_state().next_stream == now);
    a.train();
    CHECK(worst_error(q(), frozen) > 1e-2);
  }
}

TEST_CASE("Spe: what layers share") {
  for (const bool conv : {false, true})
    for (const SpeShare share : {SpeShare::nothing, SpeShare::parameters, SpeShare::draws})
      for (const bool training : {false, true}) {
        manual_seed(4);
        struct Three : nn::Module {
          explicit Three(const nn::MakePositionalEncoding& make) {
            for (nn::Module* parent : {&a, &b, &c})
              positions.push_back(make(*parent, {2, 4, 4, 8}));
            to(f64);
          }
          nn::Module a{*this, "a"}, b{*this, "b"}, c{*this, "c"};
          std::vector<std::unique_ptr<nn::PositionalEncoding>> positions;
        };
        const nn::MakePositionalEncoding make =
            conv ? nn::conv_spe({.realizations = 6, .taps = {5}, .gated = false, .shared = share})
                 : nn::sine_spe({.realizations = 6, .sines = 3, .gated = false, .shared = share});
        Three model(make);
        model.train(training);
        CHECK(model.parameter_count() ==
              (share == SpeShare::nothing ? 3 : 1) * (conv ? 2 * 2 * 4 * 5 : 3 * 2 * 4 * 3));
        CHECK(model.named_buffers().size() == (share == SpeShare::draws ? 1 : 3));
        const auto pass = [&] {
          const nn::ForwardContext forward = nn::begin_forward();
          std::vector<Tensor> q;
          for (const auto& position : model.positions) {
            nn::AttentionInputs inputs = some_call(5, 5);
            inputs.forward = forward;
            position->apply(inputs);
            q.push_back(inputs.q);
          }
          return q;
        };
        const std::vector<Tensor> first = pass(), second = pass();
        const double error = worst_error(first[1], first[0]);
        CHECK((share == SpeShare::draws ? error < 1e-13 : error > 1e-2));
        CHECK(same_bits(first[2], first[1]) == (share == SpeShare::draws));
        CHECK(same_bits(first[0], second[0]) == !training);
        CHECK(same_bits(first[2], second[2]) == !training);

        // A later model of the same factory shares nothing with it.
        const Three other(make);
        CHECK(other.parameter_count() == model.parameter_count());
        for (const Tensor& p : model.parameters())
          for (const Tensor& o : other.parameters()) CHECK_FALSE(p.same(o));
      }
}

TEST_CASE("Spe: each layer has its own gate and gate noise") {
  for (const SpeShare share : {SpeShare::parameters, SpeShare::draws}) {
    manual_seed(4);
    const auto model = layers_of(nn::sine_spe({.realizations = 6, .sines = 3, .shared = share}));
    std::vector<std::string> want{"layers.0.position.freqs", "layers.0.position.offsets",
                                  "layers.0.position.gains", "layers.0.position.gate",
                                  "layers.1.position.gate",  "layers.2.position.gate"};
    std::vector<std::string> found, buffers;
    for (const std::string& name : names(model->named_parameters()))
      if (name.find("position") != name.npos) found.push_back(name);
    CHECK(found == want);
    CHECK(!same_bits(named(*model, want[3]), named(*model, want[4])));
    for (const std::string& name : names(model->named_buffers()))
      if (name.ends_with("gate_draw")) buffers.push_back(name);
    CHECK(buffers.size() == 3);
    CHECK(!same_bits(named(*model, buffers[0]), named(*model, buffers[1])));
  }
}

TEST_CASE("Spe: clones, saved files and parameter counts") {
  const testing::TempDir dir;
  const Tensor x = fixed_noise({2, 9, 8}, 1);
  for (const auto& code : spe_codes()) {
    INFO(code.name);
    manual_seed(4);
    auto model = layers_of(code.make);
    model->eval();
    const Tensor y = (*model)(x);
    const auto copy = nn::clone(*model);
    CHECK(same_bits((*copy)(x), y));
    CHECK(copy->parameter_count() == model->parameter_count());
    nn::save_checkpoint(dir.file("a"), *model, nullptr, {});
    manual_seed(5);
    const auto other = layers_of(code.make);
    other->eval();
    CHECK(!same_bits((*other)(x), y));
    nn::load_checkpoint(dir.file("a"), *other, nullptr);
    CHECK(same_bits((*other)(x), y));
    // The copy needs nothing of the original.
    model.reset();
    CHECK(same_bits((*copy)(x), y));
    const uint64_t before = random_state().next_stream;
    CHECK(nn::count_parameters<testing::Layers>(copy->options) == copy->parameter_count());
    CHECK(random_state().next_stream == before);
  }
}

TEST_CASE("Spe: a clone has the same number of realizations") {
  const Tensor x = fixed_noise({2, 9, 8}, 1);
  for (const SpeShare share : {SpeShare::nothing, SpeShare::parameters, SpeShare::draws}) {
    manual_seed(4);
    const auto model = layers_of(nn::sine_spe({.realizations = 6, .sines = 3, .shared = share}));
    model->eval();
    for (const int64_t layer : {0, 1, 2}) model->spe(layer)->set_realizations(4);
    const auto copy = nn::clone(*model);
    for (const int64_t layer : {0, 1, 2}) CHECK(copy->spe(layer)->realizations() == 4);
    CHECK(same_bits((*copy)(x), (*model)(x)));
  }
}

TEST_CASE("Spe: a scale for the dimension of the head becomes one for the realizations") {
  Alone a(nn::sine_spe({.realizations = 6, .sines = 3}));
  for (const int64_t r : {6, 3}) {
    a.spe().set_realizations(r);
    nn::AttentionInputs inputs = some_call(7, 7);  // heads of 4 features
    inputs.options.scale = 1 / std::sqrt(4.0);
    a.position->apply(inputs);
    CHECK(inputs.q.size(3) == r);
    CHECK(*inputs.options.scale == Approx(1 / std::sqrt(double(r))).epsilon(1e-15));
  }
}

TEST_CASE("Spe: the number of realizations can be changed") {
  const Tensor x = fixed_noise({2, 9, 8}, 1);
  for (const bool conv : {false, true})
    for (const auto& kernel : testing::spe_kernels()) {
      INFO(kernel.name);
      manual_seed(4);
      const auto model =
          layers_of(conv ? nn::conv_spe({.realizations = 6, .taps = {5}, .shared = SpeShare::draws})
                         : nn::sine_spe({.realizations = 6, .sines = 3, .shared = SpeShare::draws}),
                    kernel.make);
      model->eval();
      const Tensor y = (*model)(x);
      Spe& first = *model->spe(0);
      first.set_realizations(40);
      CHECK(model->spe(2)->realizations() == 40);
      if (kernel.projects) {
        CHECK_THROWS_WITH((*model)(x), Containing("shape [B, H, L, 6]; the last size is that of "
                                                  "the projection"));
      } else {
        CHECK((*model)(x).shape() == y.shape());
        CHECK(worst_error((*model)(x), y) > 1e-6);
      }
      first.set_realizations(6);
      CHECK(same_bits((*model)(x), y));
      CHECK_THROWS_WITH(first.set_realizations(0),
                        Containing("0 realizations; must be at least 1"));
    }
}

TEST_CASE("Spe: errors") {
  const auto alone = [](const nn::MakePositionalEncoding& make) { Alone a(make); };
  CHECK_THROWS_WITH(alone(nn::sine_spe({.realizations = 0})),
                    "[SineSpe] 0 realizations; must be at least 1");
  CHECK_THROWS_WITH(alone(nn::sine_spe({.sines = 0})), "[SineSpe] 0 sines; must be at least 1");
  const std::string accepted =
      "; accepted: taps {P}, or taps {P1, P2} with a shape {h, w}, all of them at least 1";
  CHECK_THROWS_WITH(alone(nn::conv_spe({.taps = {0}})), "[ConvSpe] taps [0], shape []" + accepted);
  CHECK_THROWS_WITH(alone(nn::conv_spe({.taps = {3, 2}})),
                    "[ConvSpe] taps [3, 2], shape []" + accepted);
  CHECK_THROWS_WITH(alone(nn::conv_spe({.taps = {3}, .shape = {4, 5}})),
                    "[ConvSpe] taps [3], shape [4, 5]" + accepted);
  CHECK_THROWS_WITH(alone(nn::conv_spe({.taps = {3, 3}, .shape = {4, 0}})),
                    "[ConvSpe] taps [3, 3], shape [4, 0]" + accepted);

  nn::MultiHeadAttention grouped(
      {.d_model = 8, .n_heads = 4, .n_kv_heads = 2, .position = nn::sine_spe()});
  CHECK_THROWS_WITH(grouped(zeros({1, 3, 8})),
                    "[SineSpe] there are 2 key heads for 4 query heads, but each head encodes its "
                    "own keys; set n_kv_heads to 0 or 4");
  nn::MultiHeadAttention cross({.d_model = 8, .n_heads = 2, .position = nn::conv_spe()});
  CHECK_THROWS_WITH(cross(zeros({1, 5, 8}), zeros({1, 3, 8}), {}),
                    Containing("the first query would have position -2"));
  nn::Module parent;
  nn::Module a(parent, "a"), b(parent, "b");
  const nn::MakePositionalEncoding make = nn::sine_spe({.shared = SpeShare::parameters});
  const auto owner = make(a, {2, 4, 4, 8});
  CHECK_THROWS_WITH(
      make(b, {2, 5, 4, 8}),
      "[SineSpe] 2 heads of dimension 5 share the code of 2 heads of dimension 4; "
      "all layers that share a code must have the same number and dimension of heads");
}
