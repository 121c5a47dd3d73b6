#include "nn/models/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/tape.h"
#include "nn/models/generation.h"
#include "nn/models/sequence_to_sequence.h"
#include "ops/create.h"
#include "tests/support/catch.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using nn::beam_search;
using nn::BeamSearchOptions;
using nn::Hypothesis;
using Tokens = std::vector<int64_t>;

namespace {

constexpr int64_t vocabulary = 3, start = 2, end_token = 0;

// Logits [V] that depend on the whole history, so that every token matters.
std::vector<double> logits_after(const Tokens& history) {
  uint64_t hash = 17;
  for (const int64_t t : history) hash = hash * 31 + uint64_t(t) + 1;
  std::vector<double> x;
  for (uint64_t v = 0; v < uint64_t(vocabulary); ++v)
    x.push_back(4 * uniform_from_bits(random_bits({.seed = 8, .stream = hash}, v)));
  return x;
}

double log_probability(const Tokens& history, int64_t token) {
  const std::vector<double> x = logits_after(history);
  double total = 0;
  for (const double value : x) total += std::exp(value);
  return x[size_t(token)] - std::log(total);
}

// A model for beam_search() with the logits of logits_after(). Its cache has each row's history.
struct Remembering {
  std::vector<Tokens> rows{{}};
  int64_t calls = 0;

  Tensor operator()(const Tensor& tokens) {
    CHECK_FALSE(grad_enabled());
    CHECK(tokens.dtype() == i64);
    REQUIRE(tokens.size(0) == int64_t(rows.size()));
    ++calls;
    std::vector<double> all;
    for (int64_t i = 0; i < tokens.size(0); ++i) {
      Tokens& history = rows[size_t(i)];
      for (const int64_t t : tokens[i].to_vector<int64_t>()) {
        history.push_back(t);
        for (const double x : logits_after(history)) all.push_back(x);
      }
    }
    return tensor(all, {tokens.size(0), tokens.size(1), vocabulary});
  }
  void reorder(const Tensor& from) {
    std::vector<Tokens> kept;
    for (const int64_t row : from.to_vector<int64_t>()) kept.push_back(rows[size_t(row)]);
    rows = std::move(kept);
  }
};

std::vector<Hypothesis> search(const BeamSearchOptions& options, const Tokens& prompt = {start},
                               int64_t* calls = nullptr) {
  Remembering model;
  const auto found = beam_search([&](const Tensor& t) { return model(t); },
                                 [&](const Tensor& rows) { model.reorder(rows); }, prompt, options);
  if (calls) *calls = model.calls;
  return found;
}

// Returns all sequences that end or have the maximum length, best first.
std::vector<Hypothesis> every_sequence(const BeamSearchOptions& o, const Tokens& prompt) {
  std::vector<Hypothesis> all, open{{}};
  for (int64_t n = 1; n <= o.max_tokens; ++n) {
    std::vector<Hypothesis> longer;
    for (const Hypothesis& h : open)
      for (int64_t token = 0; token < vocabulary; ++token) {
        Tokens history = prompt;
        history.insert(history.end(), h.tokens.begin(), h.tokens.end());
        Hypothesis next = h;
        next.tokens.push_back(token);
        next.log_probability += log_probability(history, token);
        next.score =
            next.log_probability / std::pow((5 + double(n)) / 6, o.length_penalty);  // GNMT, eq. 14
        const bool ends = std::count(o.end_tokens.begin(), o.end_tokens.end(), token) > 0;
        (ends || n == o.max_tokens ? all : longer).push_back(next);
      }
    open = longer;
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
  return all;
}

}  // namespace

TEST_CASE("beam_search: a beam wide enough for everything finds the result of exhaustive search") {
  for (const double alpha : {0.0, 0.6, 2.0})
    for (const Tokens& end : {Tokens{end_token}, Tokens{}, Tokens{end_token, 1}})
      for (const Tokens& prompt : {Tokens{start}, Tokens{1, 2, 1}}) {
        const BeamSearchOptions o{
            .beam = 243, .length_penalty = alpha, .max_tokens = 5, .end_tokens = end, .n_best = 7};
        const auto found = search(o, prompt), all = every_sequence(o, prompt);
        REQUIRE(found.size() == 7);
        for (size_t i = 0; i < found.size(); ++i) {
          CHECK(found[i].tokens == all[i].tokens);
          CHECK(found[i].score == Approx(all[i].score).epsilon(1e-12));
          CHECK(found[i].log_probability == Approx(all[i].log_probability).epsilon(1e-12));
        }
      }
}

TEST_CASE("beam_search: a wider beam finds no worse result here, and scores are right") {
  double best = -std::numeric_limits<double>::infinity();
  for (const int64_t beam : {1, 2, 4, 8, 64}) {
    const BeamSearchOptions o{
        .beam = beam, .max_tokens = 7, .end_tokens = {end_token}, .n_best = beam};
    const auto found = search(o);
    REQUIRE(!found.empty());
    CHECK(int64_t(found.size()) <= beam);
    for (const Hypothesis& h : found) {
      double sum = 0;
      Tokens history{start};
      for (const int64_t t : h.tokens) {
        CHECK(history.back() != end_token);
        sum += log_probability(history, t);
        history.push_back(t);
      }
      CHECK((history.back() == end_token || h.tokens.size() == 7));
      CHECK(h.log_probability == Approx(sum).epsilon(1e-12));
    }
    CHECK(std::is_sorted(found.begin(), found.end(),
                         [](const auto& a, const auto& b) { return a.score > b.score; }));
    CHECK(found[0].score >= best);  // for this model; in general a wider beam may do worse
    best = found[0].score;
  }
}

TEST_CASE("beam_search: a beam of one is greedy decoding") {
  for (const int64_t seed : {1, 2, 0}) {
    const Tokens prompt{start, seed};
    Remembering model;
    const Tokens greedy =
        nn::generate([&](const Tensor& t) { return model(t); }, prompt,
                     {.max_tokens = 9, .end_tokens = {end_token}, .sampling = {.temperature = 0}});
    for (const double alpha : {0.0, 3.0}) {
      const auto found = search(
          {.beam = 1, .length_penalty = alpha, .max_tokens = 9, .end_tokens = {end_token}}, prompt);
      REQUIRE(found.size() == 1);
      CHECK(found[0].tokens == greedy);
    }
  }
}

TEST_CASE("beam_search: ties are broken by the lower row, then by the lower token") {
  const auto model = [](const Tensor& t) { return zeros({t.size(0), t.size(1), 3}); };
  std::vector<Tokens> reorders;
  const auto found =
      beam_search(model, [&](const Tensor& rows) { reorders.push_back(rows.to_vector<int64_t>()); },
                  {start}, {.beam = 4, .max_tokens = 3, .n_best = 4});
  std::vector<Tokens> tokens;
  for (const Hypothesis& h : found) tokens.push_back(h.tokens);
  CHECK(tokens == std::vector<Tokens>{{0, 0, 0}, {0, 0, 1}, {0, 0, 2}, {0, 1, 0}});
  CHECK(reorders == std::vector<Tokens>{{0, 0, 0}, {0, 0, 0, 1}});
}

TEST_CASE(
    "beam_search: finished hypotheses are kept, and the search stops when none can beat them") {
  // Token 0, which ends a sequence, has probability 0.6; token 1 has 0.4.
  const auto model = [](const Tensor& t) {
    std::vector<double> all;
    for (int64_t i = 0; i < t.numel(); ++i)
      for (const double p : {0.6, 0.4}) all.push_back(std::log(p));
    return tensor(all, {t.size(0), t.size(1), 2});
  };
  int64_t calls = 0;
  const auto run = [&](BeamSearchOptions o) {
    calls = 0;
    o.end_tokens = {0};
    return beam_search([&](const Tensor& t) { return ++calls, model(t); }, [](const Tensor&) {},
                       {1}, o);
  };
  auto found = run({.beam = 3, .max_tokens = 50});
  CHECK(calls == 1);
  CHECK(found[0].tokens == Tokens{0});
  CHECK(found[0].log_probability == Approx(std::log(0.6)));
  found = run({.beam = 3, .max_tokens = 50, .n_best = 2});
  CHECK(calls == 2);
  CHECK(found[1].tokens == Tokens{1, 0});
  found = run({.beam = 3, .max_tokens = 50, .n_best = 3});
  CHECK(calls == 3);
  CHECK(found[2].tokens == Tokens{1, 1, 0});
  // A longer one may win by the penalty: log 0.24 / (7/6)^α > log 0.6 from α = 6.7 on.
  CHECK(run({.beam = 3, .length_penalty = 6, .max_tokens = 2})[0].tokens == Tokens{0});
  CHECK(run({.beam = 3, .length_penalty = 7, .max_tokens = 2})[0].tokens != Tokens{0});
  CHECK(run({.beam = 2, .max_tokens = 0})[0].tokens.empty());
  CHECK(calls == 0);
}

TEST_CASE("beam_search: ended hypotheses take places in the beam") {
  // Token 0, which ends, has probability 0.5, token 1 0.3 and token 2 0.2. After the second step the
  // beam is full; [1, 1, 0], which has a better score than [1, 0], is never begun.
  const auto model = [](const Tensor& tokens) {
    const Tensor row = tensor({std::log(0.5), std::log(0.3), std::log(0.2)});
    return row.expand({tokens.size(0), tokens.size(1), 3});
  };
  const auto found = beam_search(
      model, [](const Tensor&) {}, {start},
      {.beam = 3, .length_penalty = 4, .max_tokens = 5, .end_tokens = {end_token}, .n_best = 3});
  REQUIRE(found.size() == 3);
  CHECK(found[0].tokens == Tokens{0});
  CHECK(found[1].tokens == Tokens{1, 0});
  CHECK(found[2].tokens == Tokens{2, 0});
}

TEST_CASE("beam_search: forbidden and impossible tokens are never chosen") {
  const BeamSearchOptions o{.beam = 9, .max_tokens = 3, .n_best = 9, .forbidden = {1}};
  const auto found = search(o);
  CHECK(found.size() == 8);  // no more exist
  for (const Hypothesis& h : found) CHECK(std::count(h.tokens.begin(), h.tokens.end(), 1) == 0);
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const auto one_way = [&](const Tensor& t) {
    return tensor(std::vector<float>{-infinity, 0, -infinity}, {1, 1, 3}).expand({t.size(0), 1, 3});
  };
  const auto only =
      beam_search(one_way, [](const Tensor&) {}, {1}, {.beam = 4, .max_tokens = 3, .n_best = 4});
  REQUIRE(only.size() == 1);
  CHECK(only[0].tokens == Tokens{1, 1, 1});
  CHECK(only[0].log_probability == 0);
}

TEST_CASE("beam_search: a finished hypothesis is kept if the others cannot continue") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  // After 2, token 0 ends the sequence and 1 continues with the logits `after`.
  const auto run = [&](const std::vector<double>& after, BeamSearchOptions o) {
    o.end_tokens = {0};
    return beam_search(
        [&](const Tensor& t) {
          std::vector<double> all;
          for (const int64_t token : t.to_vector<int64_t>()) {
            const std::vector<double> first{1, 0.5, -infinity};
            const std::vector<double>& x = token == 2 ? first : after;
            all.insert(all.end(), x.begin(), x.end());
          }
          return tensor(all, {t.size(0), t.size(1), 3});
        },
        [](const Tensor&) {}, {2}, o);
  };
  const std::vector<double> nothing(3, -infinity);
  for (const BeamSearchOptions& o : {BeamSearchOptions{.beam = 2, .max_tokens = 5, .n_best = 2},
                                     BeamSearchOptions{.beam = 3, .max_tokens = 5, .n_best = 3}}) {
    const auto found = run(nothing, o);
    REQUIRE(found.size() == 1);
    CHECK(found[0].tokens == Tokens{0});
    // The only possible token is forbidden.
    BeamSearchOptions forbidding = o;
    forbidding.forbidden = {2};
    const auto others = run({-infinity, -infinity, 0}, forbidding);
    REQUIRE(others.size() == 1);
    CHECK(others[0].tokens == Tokens{0});
  }
  // Without a finished hypothesis this is an error.
  CHECK_THROWS_WITH(run(nothing, {.beam = 2, .forbidden = {0}}),
                    Containing("[beam_search] the largest logit is -inf"));
  // A row that cannot continue does not affect the others: after token 1 no token is possible.
  const auto found = beam_search(
      [&](const Tensor& t) {
        std::vector<double> all;
        for (const int64_t token : t.to_vector<int64_t>())
          for (int64_t next = 0; next < 3; ++next)
            all.push_back(token == 1 ? -infinity : double(next));
        return tensor(all, {t.size(0), t.size(1), 3});
      },
      [](const Tensor&) {}, {2}, {.beam = 2, .max_tokens = 3, .end_tokens = {0}, .n_best = 2});
  for (const Hypothesis& h : found)
    CHECK(std::find(h.tokens.begin(), h.tokens.end() - 1, 1) == h.tokens.end() - 1);
}

TEST_CASE("beam_search: a model with a cache gives the result of one that recomputes everything") {
  manual_seed(6);
  nn::SequenceToSequence model({.source_vocabulary = 6,
                                .target_vocabulary = 6,
                                .n_encoder_layers = 1,
                                .n_decoder_layers = 2,
                                .layer = {.d_model = 8,
                                          .attention = {.n_heads = 2, .bias = false},
                                          .feed_forward = {.d_hidden = 12},
                                          .norm = nn::NormPlace::post,
                                          .dropout = 0.1},
                                .input = {.sinusoid = nn::Sinusoid::interleaved}});
  model.to(f64);
  model.eval();
  for (const Tensor& p : model.parameters()) p.detach().mul_(2);  // larger differences of logits
  NoGrad guard;
  const Tensor source = tensor(Tokens{3, 1, 4, 1, 5}, {1, 5}), context = model.encode(source);
  const BeamSearchOptions o{
      .beam = 5, .length_penalty = 0.6, .max_tokens = 8, .end_tokens = {end_token}, .n_best = 5};
  nn::SequenceToSequence::Cache cache;
  const auto cached =
      beam_search([&](const Tensor& t) { return model.decode(t, context, {}, &cache); },
                  [&](const Tensor& rows) { cache.reorder(rows); }, {start, 1}, o);
  Remembering memory;
  const auto again = beam_search(
      [&](const Tensor& t) {
        memory(t);
        Tokens all;
        for (const Tokens& row : memory.rows) all.insert(all.end(), row.begin(), row.end());
        const auto n = int64_t(memory.rows.size());
        return model.decode(tensor(all, {n, int64_t(all.size()) / n}), context.expand({n, -1, -1}));
      },
      [&](const Tensor& rows) { memory.reorder(rows); }, {start, 1}, o);
  REQUIRE(cached.size() == again.size());
  for (size_t i = 0; i < cached.size(); ++i) {
    CHECK(cached[i].tokens == again[i].tokens);
    CHECK(cached[i].score == Approx(again[i].score).epsilon(1e-10));
  }
}

TEST_CASE("beam_search: errors") {
  const auto run = [](const BeamSearchOptions& o, const Tensor& logits,
                      const Tokens& prompt = {1}) {
    return beam_search([&](const Tensor&) { return logits; }, [](const Tensor&) {}, prompt, o);
  };
  const Tensor good = zeros({1, 1, 3});
  CHECK_THROWS_WITH(run({}, good, {}),
                    "[beam_search] the prompt is empty; pass at least a start token");
  CHECK_THROWS_WITH(run({.beam = 0}, good), "[beam_search] beam 0; must be at least 1");
  CHECK_THROWS_WITH(run({.beam = 2, .n_best = 3}, good),
                    "[beam_search] n_best 3; must be at least 1 and at most beam, which is 2");
  CHECK_THROWS_WITH(run({.n_best = 0}, good), Containing("[beam_search] n_best 0"));
  CHECK_THROWS_WITH(run({.max_tokens = -1}, good),
                    "[beam_search] max_tokens -1; must be 0 or more");
  for (const double alpha : {-0.1, double(NAN), double(INFINITY)})
    CHECK_THROWS_WITH(run({.length_penalty = alpha}, good),
                      Containing("[beam_search] length_penalty ") && Containing("0 or more"));
  CHECK_THROWS_WITH(run({.forbidden = {0, 1, 2}}, good),
                    "[beam_search] every token is forbidden or impossible");
  CHECK_THROWS_WITH(run({}, zeros({1, 3})), "[beam_search] logits f32 [1, 3]; must be [1, m, V]");
  CHECK_THROWS_WITH(run({.beam = 2, .max_tokens = 2}, zeros({1, 1, 3})),
                    "[beam_search] logits f32 [1, 1, 3]; must be [2, m, V]");
  CHECK_THROWS_WITH(run({}, full({1, 1, 3}, NAN)), "[beam_search] the logits contain NaN");
  CHECK_THROWS_WITH(run({}, full({1, 1, 3}, -INFINITY)),
                    "[beam_search] the largest logit is -inf; must be finite");
}

TEST_CASE("beam_search: each length penalty has its formula") {
  for (const double alpha : {0.0, 0.6, 1.0, 2.0}) {
    const BeamSearchOptions o{.beam = 200,
                              .length_penalty = alpha,
                              .penalty = nn::LengthPenalty::power,
                              .max_tokens = 4,
                              .end_tokens = {end_token},
                              .n_best = 3};
    std::vector<Hypothesis> all = every_sequence(o, {start});
    for (Hypothesis& h : all)
      h.score = h.log_probability / std::pow(double(h.tokens.size()), alpha);
    std::stable_sort(all.begin(), all.end(),
                     [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
    const std::vector<Hypothesis> found = search(o);
    REQUIRE(found.size() == 3);
    for (size_t i = 0; i < 3; ++i) {
      CHECK(found[i].tokens == all[i].tokens);
      CHECK(found[i].score == Approx(all[i].score).epsilon(1e-12));
    }
  }
  const auto none = search({.penalty = nn::LengthPenalty::power, .max_tokens = 0});
  REQUIRE(none.size() == 1);
  CHECK(none[0].score == 0);
}

TEST_CASE("beam_search: several prompts at once give the results of each alone") {
  const std::vector<Tokens> prompts{{start, 1}, {start, 0}, {1, 1}, {start, 1}, {0, 2}};
  for (const int64_t beam : {1, 2, 5})
    for (const int64_t n_best : {int64_t(1), beam}) {
      const BeamSearchOptions o{.beam = beam,
                                .length_penalty = 0.6,
                                .max_tokens = 6,
                                .end_tokens = {end_token},
                                .n_best = n_best};
      Remembering model;
      model.rows.resize(prompts.size());
      Tokens all;
      for (const Tokens& p : prompts) all.insert(all.end(), p.begin(), p.end());
      const auto found = beam_search([&](const Tensor& t) { return model(t); },
                                     [&](const Tensor& rows) { model.reorder(rows); },
                                     tensor(all, {int64_t(prompts.size()), 2}), o);
      REQUIRE(found.size() == prompts.size());
      for (size_t i = 0; i < prompts.size(); ++i) {
        const std::vector<Hypothesis> alone = search(o, prompts[i]);
        REQUIRE(found[i].size() == alone.size());
        for (size_t h = 0; h < alone.size(); ++h) {
          CHECK(found[i][h].tokens == alone[h].tokens);
          CHECK(found[i][h].score == alone[h].score);
        }
      }
    }
  const auto never = [](const Tensor&) -> Tensor { throw std::logic_error("called"); };
  CHECK(beam_search(never, [](const Tensor&) {}, empty({0, 2}, {.dtype = i64}), {}).empty());
  CHECK_THROWS_WITH(
      beam_search(never, [](const Tensor&) {}, empty({2, 0}, {.dtype = i64}), {}),
      "[beam_search] prompts i64 [2, 0]; must be i64 or i32 [P, m] with m at least 1");
}
