// Stochastic positional encoding in models: generation, training, recompute().

#include "autograd/tape.h"
#include "nn/init.h"
#include "nn/models/language_model.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/loss.h"
#include "ops/reduce.h"
#include "tests/cuda/traffic.h"
#include "tests/nn/positions/spe.h"
#include "tests/support/module_gradcheck.h"

using testing::Layers;
using testing::layers_of;
using testing::spe_codes;
using testing::spe_kernels;

namespace {

using Caches = std::vector<nn::KeyValueCache>;

// x through the model chunk by chunk.
Tensor generated(const Layers& model, const Tensor& x, const AttentionMask& visible,
                 const std::vector<int64_t>& pieces, const nn::KeyValueCache& empty = {}) {
  Caches caches(3, empty);
  Tensors parts;
  int64_t at = 0;
  for (const int64_t n : pieces) {
    parts.push_back(model(x.slice(1, at, at + n), visible, &caches));
    at += n;
  }
  return cat(parts, 1);
}

Tensor loss_of(const Tensor& y) { return sum(y * fixed_noise(y.shape(), 2)); }

Tensors gradients(const nn::Module& model) {
  Tensors all;
  for (const Tensor& p : model.parameters()) {
    REQUIRE(p.grad().defined());
    all.push_back(p.grad().clone());
    p.set_grad({});
  }
  return all;
}

void check_equal(const Tensors& a, const Tensors& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK(worst_error(a[i], b[i]) < 1e-11);
}

}  // namespace

TEST_CASE("Spe: token by token equals one pass, with every kernel") {
  STRETTO_NOT_ON_MACHINE();
  NoGrad guard;
  const int64_t l = 23;
  const Tensor x = fixed_noise({2, l, 8}, 1), other = fixed_noise({2, l, 8}, 2);
  const AttentionMask causal{.causal = true};
  const std::vector<int64_t> steps(size_t(l), 1);
  for (const auto& code : spe_codes())
    for (const auto& kernel : spe_kernels())
      for (const bool training : {false, true}) {
        INFO(code.name << ", " << kernel.name << (training ? ", training" : ""));
        manual_seed(4);
        const auto model = layers_of(code.make, kernel.make);
        model->train(training);
        // In training the chunks continue with the noise of their first call.
        const auto drawn = [&](auto&& f) {
          manual_seed(7);
          return f();
        };
        const Tensor y = drawn([&] { return (*model)(x, causal); });
        for (const auto& pieces : {steps, {7, 1, 1, 5, 9}, {1, 22}})
          CHECK(worst_error(drawn([&] { return generated(*model, x, causal, pieces); }), y) <
                1e-11);
        const Tensor changed = cat({x.slice(1, 0, 9), other.slice(1, 9)}, 1);
        CHECK(worst_error(drawn([&] { return (*model)(changed, causal); }).slice(1, 0, 9),
                          y.slice(1, 0, 9)) < 1e-13);
      }
}

TEST_CASE(
    "Spe: generation computes codes in blocks, and detects changed parameters and positions") {
  // The composed implementation computes each position when it is needed.
  const auto codes = spe_codes(), plain = spe_codes(Implementation::composed);
  const Tensor x = fixed_noise({2, 90, 8}, 1);
  const AttentionMask causal{.causal = true};
  for (size_t i = 0; i < codes.size(); ++i) {
    INFO(codes[i].name);
    const auto outputs = [&](const nn::MakePositionalEncoding& make) {
      manual_seed(4);
      const auto model = layers_of(make, nn::linear_kernel());
      model->eval();
      Tensors all;
      Caches caches(3), others(3);
      const auto steps = [&](Caches& to, std::vector<int64_t> pieces) {
        for (const int64_t n : pieces) {
          const int64_t at = to[0].length();
          all.push_back((*model)(x.slice(1, at, at + n), causal, &to));
        }
      };
      const std::vector<int64_t> ones(40, 1);
      {
        NoGrad guard;
        steps(caches, {3});
        steps(caches, ones);
        steps(others, {50, 1, 1});  // another sequence, at other positions
        steps(caches, {1, 5, 1});
        for (auto [name, p] : model->named_parameters())
          if (name.find("freqs") != name.npos || name.find("filter_k") != name.npos)
            p.copy_(p + 0.1);
        steps(caches, {1, 1});
        Caches wider(3);
        for (const int64_t r : {9, 6}) {
          for (int64_t layer = 0; layer < 3; ++layer) model->spe(layer)->set_realizations(r);
          if (r == 9) steps(wider, {2, 1, 1});
        }
      }
      steps(caches, {1, 1});  // on the tape
      all.push_back(grad({sum(square(all.back()))}, {model->spe(0)->parameters().front()})[0]);
      return all;
    };
    check_equal(outputs(codes[i].make), outputs(plain[i].make));
  }
}

TEST_CASE("Spe: the codes that generation caches ahead are small and are released") {
  if (default_device().is_cuda()) STRETTO_SKIP("only the fused implementation caches codes ahead");
  NoGrad guard;
  const Tensor x = fixed_noise({1, 50, 8}, 1);
  manual_seed(4);
  const auto model =
      layers_of(nn::conv_spe({.taps = {100}, .shared = SpeShare::nothing}), nn::linear_kernel());
  model->eval();
  Caches caches(3);
  const AttentionMask causal{.causal = true};
  (*model)(x.slice(1, 0, 10), causal, &caches);
  const int64_t state = memory_stats().live;
  (*model)(x.slice(1, 10, 11), causal, &caches);
  // H·D·R·32 elements for keys and for queries, in three layers, and both filters.
  const int64_t kept = 3 * 2 * 4 * 2 * (64 * 32 + 100) * int64_t(sizeof(double));
  CHECK(memory_stats().live - state >= kept);
  CHECK(memory_stats().live - state <= kept + 4096);
  (*model)(x, causal);  // another pass
  CHECK(memory_stats().live - state <= kept + 4096);
  caches.clear();
  CHECK(memory_stats().live < state);
}

TEST_CASE("Spe: a limited cache knows the positions of its keys") {
  NoGrad guard;
  const Tensor x = fixed_noise({2, 23, 8}, 1);
  const AttentionMask window{.causal = true, .window = 6};
  for (const auto& code : spe_codes()) {
    INFO(code.name);
    manual_seed(4);
    const auto model = layers_of(code.make);
    model->eval();
    const Tensor y = (*model)(x, window);
    nn::KeyValueCache limited;
    limited.limit = 5;
    for (const auto& pieces : {std::vector<int64_t>(23, 1), {7, 1, 1, 5, 9}})
      CHECK(worst_error(generated(*model, x, window, pieces, limited), y) < 1e-11);
  }
}

TEST_CASE("Spe: memory does not grow with the number of tokens") {
  STRETTO_NOT_ON_MACHINE();
  NoGrad guard;
  const Tensor x = fixed_noise({1, 300, 8}, 1);
  for (const auto& code : spe_codes())
    for (const bool training : {false, true}) {
      INFO(code.name);
      manual_seed(4);
      const auto model = layers_of(code.make, nn::linear_kernel());
      model->train(training);
      Caches caches(3);
      const auto live_after = [&](int64_t begin, int64_t end) {
        (*model)(x.slice(1, begin, end), {.causal = true}, &caches);
        return memory_stats().live;
      };
      live_after(0, 20);
      const int64_t live = live_after(20, 21);
      for (int64_t at = 21; at < 300; ++at) CHECK(live_after(at, at + 1) == live);
    }
}

TEST_CASE("Spe: the memory of a pass is released after it") {
  const Tensor x = fixed_noise({1, 40, 8}, 1);
  for (const auto& code : spe_codes()) {
    INFO(code.name);
    manual_seed(4);
    const auto model = layers_of(code.make, nn::linear_kernel());
    { const Tensor y = (*model)(x); }
    const int64_t live = memory_stats().live;
    for (const bool training : {true, false}) {
      model->train(training);
      (*model)(x);
      NoGrad guard;
      (*model)(x);
    }
    CHECK(memory_stats().live == live);
    // Also after recompute() recomputed it, layer by layer from the last.
    model->train();
    const auto again = [&] {
      const nn::ForwardContext forward = nn::begin_forward();
      Tensor y = x;
      for (int64_t i = 0; i < 3; ++i)
        y = recompute(
            [&, i, forward](const Tensors& in) { return model->layer(i, in[0], forward); }, {y});
      return y;
    };
    sum(again()).backward();
    for (const Tensor& p : model->parameters()) p.set_grad({});
    CHECK(memory_stats().live == live);
  }
}

TEST_CASE("Spe: both implementations agree, also in their gradients") {
  const Tensor x = fixed_noise({2, 9, 8}, 1);
  const auto automatic = spe_codes(), composed = spe_codes(Implementation::composed);
  for (size_t i = 0; i < automatic.size(); ++i) {
    INFO(automatic[i].name);
    const auto result = [&](const nn::MakePositionalEncoding& make) {
      manual_seed(4);
      const auto model = layers_of(make);
      Tensors all;
      for (int pass = 0; pass < 2; ++pass) {
        const Tensor y = (*model)(x);
        all.push_back(y.detach());
        loss_of(y).backward();
      }
      for (const Tensor& g : gradients(*model)) all.push_back(g);
      return all;
    };
    check_equal(result(automatic[i].make), result(composed[i].make));
  }
}

TEST_CASE("Spe: gradients reach every parameter in training") {
  STRETTO_NOT_ON_MACHINE();
  const Tensor x = fixed_noise({2, 7, 8}, 1);
  for (const auto& code : spe_codes())
    for (const auto& kernel : spe_kernels()) {
      if (kernel.name == "relu" || kernel.name == "generalized") continue;  // kinks
      INFO(code.name << ", " << kernel.name);
      manual_seed(4);
      const auto model = layers_of(code.make, kernel.make);
      testing::check_parameter_gradients(*model, [&] {
        manual_seed(7);  // the same noise
        return loss_of((*model)(x));
      });
    }
}

TEST_CASE("Spe: recompute() uses the noise of the first run") {
  const Tensor x = fixed_noise({2, 7, 8}, 1), other = fixed_noise({1, 9, 8}, 3);
  for (const auto& code : spe_codes())
    for (const std::string how : {"layer by layer", "whole", "layers 0 and 2"}) {
      INFO(code.name << ", " << how);
      const auto result = [&](bool again) {
        manual_seed(4);
        const auto model = layers_of(code.make, nn::linear_kernel());
        const auto layer = [&](int64_t i, const Tensor& y, const nn::ForwardContext& forward) {
          const auto f = [&, i, forward](const Tensors& t) {
            return t[0] + model->layer(i, t[0], forward);
          };
          const bool here = again && (how == "layer by layer" || (how != "whole" && i != 1));
          return here ? recompute(f, {y}) : f({y});
        };
        const auto all = [&](const Tensors& t) {
          const nn::ForwardContext forward = nn::begin_forward();
          return layer(2, layer(1, layer(0, t[0], forward), forward), forward);
        };
        const auto pass = [&](const Tensor& in) {
          return again && how == "whole" ? recompute(all, {in}) : all({in});
        };
        Tensors results;
        for (int step = 0; step < 2; ++step) {
          // Two passes before one backward, which recomputes them in reverse order.
          const Tensor a = pass(x), b = pass(other);
          results.push_back(a.detach());
          results.push_back(b.detach());
          (loss_of(a) + loss_of(b)).backward();
          for (const Tensor& g : gradients(*model)) results.push_back(g);
        }
        return results;
      };
      check_equal(result(true), result(false));
    }
}

TEST_CASE("Spe: a pass may skip layers, and every pass has gradients") {
  const Tensor x = fixed_noise({2, 7, 8}, 1);
  using Pass = std::vector<int64_t>;
  const std::vector<std::vector<Pass>> steps = {
      {{0, 1}, {1, 2}}, {{0, 1}, {2}}, {{2}, {0}}, {{0}, {1}, {2}}, {{1}, {0, 1, 2}, {0, 2}}};
  for (const auto& code : spe_codes()) {
    if (code.share != SpeShare::draws) continue;
    for (const auto& step : steps) {
      INFO(code.name);
      manual_seed(4);
      const auto model = layers_of(code.make, nn::linear_kernel());
      uint64_t next = random_state().next_stream;
      for (const Pass& pass : step) {
        Tensor y = x;
        const nn::ForwardContext forward = nn::begin_forward();
        for (const int64_t i : pass) y = y + model->layer(i, y, forward);
        for (const Tensor& p : model->parameters()) p.set_grad({});
        sum(y * y).backward();
        // One sample for the pass, and one for each layer's gate.
        const bool gated = model->spe(0)->gate.defined();
        next += 1 + (gated ? pass.size() : 0);
        CHECK(random_state().next_stream == next);
        double total = 0;
        for (const Tensor& p : model->parameters())
          if (p.grad().defined()) total += sum(square(p.grad())).item();
        CHECK(total > 0);
      }
    }
  }
}

TEST_CASE("Spe: passes that skip layers can be differentiated one after the other") {
  const Tensor x = fixed_noise({2, 7, 8}, 1);
  for (const auto& code : spe_codes()) {
    if (code.share != SpeShare::draws) continue;
    INFO(code.name);
    const auto gradients = [&](bool one_backward) {
      manual_seed(4);
      const auto model = layers_of(code.make, nn::linear_kernel());
      const nn::ForwardContext forward = nn::begin_forward();
      Tensors losses;
      for (const int64_t i : {0, 1, 2}) losses.push_back(sum(square(model->layer(i, x, forward))));
      if (one_backward)
        (losses[0] + losses[1] + losses[2]).backward();
      else
        for (const int64_t i : {1, 0, 2}) losses[size_t(i)].backward();
      Tensors all;
      for (const Tensor& p : model->parameters()) all.push_back(p.grad());
      return all;
    };
    const Tensors one = gradients(true), separate = gradients(false);
    for (size_t i = 0; i < one.size(); ++i) {
      REQUIRE(separate[i].defined() == one[i].defined());
      if (one[i].defined()) CHECK(worst_error(separate[i], one[i]) < 1e-5);
    }
  }
}

TEST_CASE("Spe: two interleaved streams compute no more codes than one after the other") {
  STRETTO_NOT_ON_MACHINE();
  NoGrad guard;
  const int64_t l = 40;
  const Tensor x[] = {fixed_noise({1, l, 8}, 1), fixed_noise({1, l, 8}, 2)};
  for (const auto& code : spe_codes()) {
    INFO(code.name);
    manual_seed(4);
    const auto model = layers_of(code.make, nn::linear_kernel());
    model->eval();
    // The second is 11 positions ahead, so the two never need the same codes at once.
    const auto run = [&](bool in_turns, Tensors& all) {
      Caches caches[] = {Caches(3), Caches(3)};
      int64_t at[] = {0, 0};
      const auto step = [&](int s, int64_t n) {
        all.push_back((*model)(x[s].slice(1, at[s], at[s] + n), {.causal = true}, &caches[s]));
        at[s] += n;
      };
      step(0, 1);
      step(1, 12);
      const int64_t before = memory_stats().allocations;
      for (int s : {0, 1})
        for (int64_t i = 0; i < 28; ++i) step(in_turns ? int(i) % 2 : s, 1);
      return memory_stats().allocations - before;
    };
    Tensors turns, alone;
    const int64_t in_turns = run(true, turns), one_by_one = run(false, alone);
    // Codes computed again for each token would need many times as many allocations.
    CHECK(double(in_turns) < 1.02 * double(one_by_one));
    const Tensor whole[] = {(*model)(x[0].slice(1, 0, 29)), (*model)(x[1])};
    Tensors pieces[2];
    Caches caches[] = {Caches(3), Caches(3)};
    for (int64_t i = 0; i < l; ++i)
      for (int s : {0, 1})
        pieces[s].push_back((*model)(x[s].slice(1, i, i + 1), {.causal = true}, &caches[s]));
    CHECK(worst_error(cat(pieces[1], 1), whole[1]) < 1e-11);
    CHECK(worst_error(cat(pieces[0], 1).slice(1, 0, 29), whole[0]) < 1e-11);
  }
}

TEST_CASE("Spe: in training each cache continues with its own noise") {
  NoGrad guard;
  const Tensor x = fixed_noise({1, 9, 8}, 1), z = fixed_noise({1, 9, 8}, 2);
  for (const auto& code : spe_codes()) {
    INFO(code.name);
    const auto run = [&](bool other) {
      manual_seed(4);
      const auto model = layers_of(code.make, nn::linear_kernel());
      Caches a(3), b(3);
      Tensors parts;
      for (int64_t i = 0; i < 9; ++i) {
        parts.push_back((*model)(x.slice(1, i, i + 1), {.causal = true}, &a));
        if (other) (*model)(z.slice(1, i, i + 1), {.causal = true}, &b);
      }
      return cat(parts, 1);
    };
    CHECK(worst_error(run(true), run(false)) < 1e-12);
  }
}

TEST_CASE("Spe: positions can form a plane") {
  NoGrad guard;
  const Tensor x = fixed_noise({2, 20, 8}, 1);
  for (const SpeShare share : {SpeShare::nothing, SpeShare::draws}) {
    manual_seed(4);
    const auto model = layers_of(
        nn::conv_spe({.realizations = 6, .taps = {3, 2}, .shape = {4, 5}, .shared = share}),
        nn::linear_kernel());
    model->eval();
    const Tensor y = (*model)(x);
    CHECK(worst_error(generated(*model, x, {.causal = true}, std::vector<int64_t>(20, 1)), y) <
          1e-11);
    CHECK_THROWS_WITH((*model)(fixed_noise({2, 21, 8}, 1)), Containing("20"));
  }
}

TEST_CASE("Spe: queries can come from another sequence") {
  NoGrad guard;
  manual_seed(4);
  nn::MultiHeadAttention cross({.d_model = 8, .n_heads = 2, .position = nn::sine_spe()});
  cross.to(f64);
  const Tensor x = fixed_noise({2, 5, 8}, 1), context = fixed_noise({2, 9, 8}, 2);
  for (const bool training : {false, true}) {
    cross.train(training);
    manual_seed(7);
    const Tensor y = cross(x, context, {});
    manual_seed(7);
    nn::KeyValueCache cache;
    const Tensor first = cross(x, context, {}, &cache);
    CHECK(same_bits(first, y));
    CHECK(worst_error(cross(x, context, {}, &cache), y) < 1e-13);  // no new noise
    CHECK(same_bits(cross(x, context, {}), y) == !training);
  }
}

TEST_CASE("LanguageModel with SPE: published counts, generation, gradients") {
  // The published programs shared codes and noise; each layer had a gate.
  struct Published {
    int64_t vocabulary;
    nn::MakePositionalEncoding position;
    int64_t count;
  };
  const auto sine = [](int64_t k, bool gated) {
    return nn::sine_spe({.sines = k, .gated = gated, .shared = SpeShare::draws});
  };
  const auto conv = [](int64_t p, bool gated) {
    return nn::conv_spe({.taps = {p}, .gated = gated, .shared = SpeShare::draws});
  };
  for (const Published& p : {Published{333, sine(5, true), 76'018'509},
                             {333, sine(5, false), 76'006'221},
                             {333, conv(128, true), 76'141'901},
                             {333, conv(512, false), 76'522'829},
                             {794, sine(8, true), 76'495'642},
                             {794, conv(128, true), 76'614'426}}) {
    nn::LanguageModel::Options o = nn::music_performer(p.vocabulary);
    o.layer.attention.position = p.position;
    CHECK(nn::count_parameters<nn::LanguageModel>(o) == p.count);
  }
  nn::LanguageModel::Options own = nn::music_performer(333);
  own.layer.attention.position = nn::sine_spe({.sines = 5, .shared = SpeShare::nothing});
  CHECK(nn::count_parameters<nn::LanguageModel>(own) == 76'018'509 + 23 * 7680);

  for (const nn::MakePositionalEncoding& position : {sine(2, true), conv(4, true)}) {
    nn::LanguageModel::Options o = nn::music_performer(11);
    o.layer.d_model = 8;
    o.n_layers = 2;
    o.layer.attention.n_heads = 2;
    o.layer.feed_forward.d_hidden = 12;
    o.layer.attention.position = position;
    o.layer.dropout = 0;
    manual_seed(4);
    nn::LanguageModel model(o);
    model.to(f64);
    const Tensor tokens = tensor<int64_t>({3, 1, 4, 1, 5, 9, 2, 6, 5}, {1, 9});
    testing::check_parameter_gradients(model, [&] {
      manual_seed(7);
      return cross_entropy(model(tokens.slice(1, 0, 8)), tokens.slice(1, 1));
    });
    model.eval();
    NoGrad guard;
    const Tensor whole = model(tokens);
    nn::LanguageModel::Cache cache;
    for (int64_t i = 0; i < 9; ++i)
      CHECK(worst_error(model(tokens.slice(1, i, i + 1), &cache), whole.slice(1, i, i + 1)) <
            1e-11);
  }
}
