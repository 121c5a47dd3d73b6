// A call that fails leaves caches and states unchanged: when it is repeated, the results are
// bit-identical to those of a run without failures.
#include <functional>
#include <memory>

#include "autograd/tape.h"
#include "nn/attention/linear_attention.h"
#include "nn/models/language_model.h"
#include "nn/models/sequence_to_sequence.h"
#include "nn/models/transformer_xl.h"
#include "nn/positions/disentangled.h"
#include "nn/positions/fire.h"
#include "nn/positions/relative_bias.h"
#include "nn/positions/relative_sinusoid.h"
#include "nn/positions/relative_table.h"
#include "nn/positions/rotary.h"
#include "nn/positions/spe.h"
#include "ops/create.h"
#include "tests/cuda/traffic.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/memory_failures.h"

using namespace stretto;
using testing::fail_until_it_fits;
using testing::fixed_noise;
using testing::same_bits;

namespace {

Tensor some_tokens(int64_t batch, int64_t length, int64_t vocabulary = 11) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < batch * length; ++i)
    ids.push_back(int64_t(random_bits({.seed = 9}, uint64_t(i)) % uint64_t(vocabulary)));
  return tensor(ids, {batch, length});
}

/// A sequence of calls, each of which continues a state: `call(state, i)`.
template <class State>
struct Calls {
  std::function<Tensor(State&, size_t)> call;
  size_t count;

  /// Checks that calls that run out of memory at every allocation, before they succeed, give the
  /// same results as calls that never fail.
  void check(const State& start = {}) const {
    State undisturbed = start, disturbed = start;
    for (size_t i = 0; i < count; ++i) {
      const Tensor want = call(undisturbed, i);
      Tensor got;
      // Usually three failures or more; fewer if sizes are not rounded up (STRETTO_ALLOC=exact).
      CHECK(fail_until_it_fits([&] { got = call(disturbed, i); }) > 0);
      CHECK(same_bits(got, want));
    }
  }
};

/// Runs f with the tape and without it, because caches then differ.
template <class F>
void with_and_without_tape(F&& f) {
  f();
  NoGrad guard;
  f();
}

struct Kind {
  const char* name;
  nn::LanguageModel::Options options;
};

std::vector<Kind> kinds() {
  const nn::LanguageModel::Options tiny{
      .vocabulary = 11,
      .n_layers = 2,
      .layer = {.d_model = 8,
                .attention = {.n_heads = 2,
                              .bias = false,
                              .position = nn::music_relative({.max_length = 6})},
                .feed_forward = {.d_hidden = 12},
                .dropout = 0.1}};
  std::vector<Kind> all{{"music", tiny}};
  const auto add = [&](const char* name, auto change) {
    all.push_back({name, tiny});
    change(all.back().options);
  };
  const auto add_position = [&](const char* name, const nn::MakePositionalEncoding& position,
                                const nn::MakeKernel& kernel = {}) {
    add(name,
        [&](auto& o) { o.layer.attention.position = position, o.layer.attention.kernel = kernel; });
  };
  add("blocks", [](auto& o) { o.block = 3; });
  add("sinusoids", [](auto& o) {
    o.layer.attention.position = {}, o.input.sinusoid = nn::Sinusoid::interleaved;
  });
  add("learned", [](auto& o) { o.layer.attention.position = {}, o.input.learned_length = 20; });
  add("post-norm, tied", [](auto& o) { o.layer.norm = nn::NormPlace::post, o.tied = true; });
  add("short convolutions", [](auto& o) {
    o.layer.attention.taps = 3, o.layer.branch_taps = 4, o.layer.network_scale = true;
  });
  add_position("shaw", nn::shaw_relative({.max_distance = 4}));
  add_position("bert", nn::bert_relative({.max_length = 20}));
  add_position("transformer-xl", nn::relative_sinusoid());
  add_position("t5", nn::t5_bias({.buckets = 6, .max_distance = 12}));
  add_position("alibi", nn::alibi());
  add_position("kerple", nn::kerple());
  add_position("fire", nn::fire({.hidden = 4}));
  add_position("deberta", nn::disentangled({.max_distance = 9, .buckets = 4}));
  add_position("rotary", nn::rotary());
  add_position("xpos", nn::rotary({.xpos = true}));
  add("linear", [](auto& o) {
    o.layer.attention.position = nn::no_position(), o.layer.attention.kernel = nn::linear_kernel();
  });
  add("favor", [](auto& o) {
    o.layer.attention.position = {}, o.input.sinusoid = nn::Sinusoid::interleaved;
    o.layer.attention.kernel = nn::linear_kernel(nn::favor({.features = 6}));
  });
  add("linear, composed", [](auto& o) {
    o.layer.attention.position = nn::no_position(),
    o.layer.attention.kernel =
        nn::linear_kernel(nn::relu_plus(), {.implementation = Implementation::composed});
  });
  add_position("rotary, linear", nn::rotary(), nn::linear_kernel());
  const auto sine = nn::sine_spe({.realizations = 6, .sines = 2});
  const auto conv = nn::conv_spe({.realizations = 6, .taps = {5}});
  add_position("sine", sine);
  add_position("conv", conv);
  add_position("sine, linear", sine, nn::linear_kernel());
  add_position("conv, linear", conv, nn::linear_kernel());
  add_position("conv, shared draws",
               nn::conv_spe({.realizations = 6, .taps = {5}, .shared = nn::SpeShare::draws}),
               nn::linear_kernel());
  return all;
}

template <class M, class Options = typename M::Options>
std::unique_ptr<M> evaluating(const Options& options) {
  manual_seed(31);
  auto model = std::make_unique<M>(options);
  model->eval();
  return model;
}

const std::vector<std::pair<int64_t, int64_t>> pieces{{0, 4}, {4, 5}, {5, 6}, {6, 9}};

}  // namespace

TEST_CASE("failed calls leave the cache of a LanguageModel unchanged") {
  STRETTO_NOT_ON_MACHINE();
  const Tensor tokens = some_tokens(2, 9);
  for (const Kind& kind : kinds())
    with_and_without_tape([&] {
      INFO(kind.name << (grad_enabled() ? ", recorded" : ""));
      const auto model = evaluating<nn::LanguageModel>(kind.options);
      Calls<nn::LanguageModel::Cache>{
          [&](auto& cache, size_t i) {
            return (*model)(tokens.slice(1, pieces[i].first, pieces[i].second), &cache);
          },
          pieces.size()}
          .check();
    });
}

TEST_CASE("a call that fits succeeds after one that was too long") {
  const Tensor tokens = some_tokens(2, 20);
  for (const bool learned : {false, true}) {
    nn::LanguageModel::Options o{.vocabulary = 11,
                                 .n_layers = 2,
                                 .layer = {.d_model = 8,
                                           .attention = {.n_heads = 2, .bias = false},
                                           .feed_forward = {.d_hidden = 12},
                                           .dropout = 0.1}};
    o.layer.attention.position = {};
    if (learned)
      o.input.learned_length = 8;
    else
      o.layer.attention.position = nn::bert_relative({.max_length = 8});
    const auto model = evaluating<nn::LanguageModel>(o);
    nn::LanguageModel::Cache cache;
    (*model)(tokens.slice(1, 0, 5), &cache);
    CHECK_THROWS_AS((*model)(tokens.slice(1, 5, 9), &cache), Error);
    CHECK(cache.position == 5);
    for (const auto& layer : cache.layers) CHECK(layer.length() == 5);
    const Tensor y = (*model)(tokens.slice(1, 5, 8), &cache);
    nn::LanguageModel::Cache undisturbed;
    (*model)(tokens.slice(1, 0, 5), &undisturbed);
    CHECK(same_bits(y, (*model)(tokens.slice(1, 5, 8), &undisturbed)));
  }
}

TEST_CASE("failed calls leave the cache of a SequenceToSequence unchanged") {
  const Tensor source = some_tokens(2, 6), target = some_tokens(2, 9);
  Tensor padding = zeros({2, 6}, {.dtype = boolean});
  padding[1].slice(0, 4).fill_(1);
  nn::SequenceToSequence::Options plain{.source_vocabulary = 11,
                                        .target_vocabulary = 11,
                                        .n_encoder_layers = 1,
                                        .n_decoder_layers = 2,
                                        .layer = {.d_model = 8,
                                                  .attention = {.n_heads = 2, .bias = false},
                                                  .feed_forward = {.d_hidden = 12},
                                                  .norm = nn::NormPlace::post,
                                                  .dropout = 0.1},
                                        .input = {.sinusoid = nn::Sinusoid::interleaved}};
  nn::SequenceToSequence::Options relative = plain;
  relative.input.sinusoid = {};
  relative.encoder_position = nn::no_position();
  relative.decoder_position = nn::t5_bias();
  relative.layer.norm = nn::NormPlace::pre;
  for (const auto& options : {plain, relative})
    with_and_without_tape([&] {
      const auto model = evaluating<nn::SequenceToSequence>(options);
      const Tensor context = model->encode(source, padding);
      const auto decode = [&](auto& cache, size_t i) {
        const Tensor part = target.slice(1, pieces[i].first, pieces[i].second);
        return model->decode(part, i == 0 ? context : Tensor(), i == 0 ? padding : Tensor(),
                             &cache);
      };
      Calls<nn::SequenceToSequence::Cache>{decode, pieces.size()}.check();
    });
}

TEST_CASE("a decoder can start again with another context after a failed call") {
  NoGrad guard;
  const auto layer = evaluating<nn::MultiHeadAttention>({.d_model = 8, .n_heads = 2});
  const Tensor x = fixed_noise({2, 3, 8}, 1, f32), wrong = fixed_noise({2, 5, 8}, 2, f32),
               right = fixed_noise({2, 6, 8}, 3, f32);
  nn::KeyValueCache cache;
  const Tensor padding = zeros({2, 6}, {.dtype = boolean});
  CHECK_THROWS_AS((*layer)(x, wrong, {.key_padding = padding}, &cache), Error);
  CHECK(!cache.k.defined());
  CHECK(same_bits((*layer)(x, right, {.key_padding = padding}, &cache),
                  (*layer)(x, right, {.key_padding = padding})));
}

TEST_CASE("failed calls leave the memory of a LanguageModel unchanged") {
  const Tensor tokens = some_tokens(2, 9);
  for (const int64_t extended : {0, 2})
    for (const int what : {0, 1, 2})
      with_and_without_tape([&] {
        nn::LanguageModel::Options o = nn::transformer_xl(11);
        o.n_layers = 2;
        o.layer.d_model = 8;
        o.layer.attention.n_heads = 2;
        o.layer.feed_forward.d_hidden = 12;
        o.adaptive->cutoffs = {5};
        o.memory = {.length = 4, .extended = extended};
        const auto model = evaluating<nn::LanguageModel>(o);
        Calls<nn::LanguageModel::Cache>{[&](auto& memory, size_t i) {
                                          const Tensor part =
                                              tokens.slice(1, pieces[i].first, pieces[i].second);
                                          return what == 0   ? model->hidden(part, &memory)
                                                 : what == 1 ? model->nll(part, part, &memory)
                                                             : (*model)(part, &memory);
                                        },
                                        pieces.size()}
            .check();
      });
}

TEST_CASE("failed calls leave the caches of layers unchanged") {
  const Tensor x = fixed_noise({2, 9, 8}, 1, f32), context = fixed_noise({2, 5, 8}, 2, f32);
  const AttentionMask window{.causal = true, .window = 4};
  with_and_without_tape([&] {
    for (const auto& position : {nn::music_relative({.max_length = 6}), nn::rotary(),
                                 nn::sine_spe({.realizations = 6, .sines = 2})})
      for (const int64_t limit : {0, 3}) {
        const auto attention =
            evaluating<nn::MultiHeadAttention>({.d_model = 8, .n_heads = 2, .position = position});
        const auto layer = evaluating<nn::TransformerLayer, nn::LayerOptions>(
            {.d_model = 8,
             .attention = {.n_heads = 2, .position = position},
             .feed_forward = {.d_hidden = 12}});
        const auto part = [&](size_t i) { return x.slice(1, pieces[i].first, pieces[i].second); };
        Calls<nn::KeyValueCache>{
            [&](auto& cache, size_t i) { return (*attention)(part(i), window, &cache); },
            pieces.size()}
            .check({.limit = limit});
        Calls<nn::KeyValueCache>{
            [&](auto& cache, size_t i) { return (*layer)(part(i), window, &cache); }, pieces.size()}
            .check({.limit = limit});
        const auto decoder = evaluating<nn::DecoderLayer, nn::LayerOptions>(
            {.d_model = 8,
             .attention = {.n_heads = 2, .position = position},
             .feed_forward = {.d_hidden = 12}});
        Calls<nn::DecoderCache>{
            [&](auto& cache, size_t i) { return (*decoder)(part(i), context, window, {}, &cache); },
            pieces.size()}
            .check({.self = {.limit = limit}});
      }
    const auto stack = evaluating<nn::Decoder, nn::StackOptions>(
        {.n_layers = 2,
         .layer = {.d_model = 8, .attention = {.n_heads = 2}, .feed_forward = {.d_hidden = 12}},
         .final_norm = true});
    Calls<std::vector<nn::DecoderCache>>{[&](auto& cache, size_t i) {
                                           return (*stack)(
                                               x.slice(1, pieces[i].first, pieces[i].second),
                                               context, {.causal = true}, {}, &cache);
                                         },
                                         pieces.size()}
        .check();
  });
}

TEST_CASE("a failed reorder() leaves a cache unchanged") {
  NoGrad guard;
  const auto model =
      evaluating<nn::SequenceToSequence>({.source_vocabulary = 11,
                                          .target_vocabulary = 11,
                                          .n_encoder_layers = 1,
                                          .n_decoder_layers = 2,
                                          .layer = {.d_model = 8,
                                                    .attention = {.n_heads = 2, .bias = false},
                                                    .feed_forward = {.d_hidden = 12},
                                                    .norm = nn::NormPlace::post,
                                                    .dropout = 0.1},
                                          .input = {.sinusoid = nn::Sinusoid::interleaved}});
  const Tensor source = some_tokens(3, 6), target = some_tokens(3, 9);
  Tensor padding = zeros({3, 6}, {.dtype = boolean});
  padding[1].slice(0, 4).fill_(1);
  const Tensor context = model->encode(source, padding);
  Calls<nn::SequenceToSequence::Cache>{
      [&](auto& cache, size_t i) {
        if (i % 2 == 1) {
          cache.reorder(tensor<int64_t>({2, 0, 1}));
          return cache.layers[1].self.k;
        }
        return model->decode(target.slice(1, pieces[i / 2].first, pieces[i / 2].second), context,
                             padding, &cache);
      },
      2 * pieces.size()}
      .check();
}
