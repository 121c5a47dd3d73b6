#include "nn/models/transformer_xl.h"

namespace stretto::nn {
namespace {

LayerOptions layer(int64_t d_model, int64_t n_heads, int64_t d_head, int64_t d_hidden,
                   double dropout, double attention_dropout = 0) {
  return {.d_model = d_model,
          .attention = {.n_heads = n_heads,
                        .d_key = d_head,
                        .d_value = d_head,
                        .bias = false,
                        .dropout = attention_dropout},
          .feed_forward = {.d_hidden = d_hidden},
          .norm = NormPlace::post,
          .dropout = dropout};
}

LanguageModel::Options published(int64_t vocabulary, int64_t n_layers, LayerOptions layer,
                                 int64_t memory) {
  LanguageModel::Options o = transformer_xl(vocabulary);
  o.n_layers = n_layers;
  o.layer = std::move(layer);
  o.memory.length = memory;
  return o;
}

LanguageModel::Options characters_12l(int64_t vocabulary) {
  return published(vocabulary, 12, layer(512, 8, 64, 2048, 0.1), 512);
}

LanguageModel::Options characters_24l(int64_t vocabulary) {
  return published(vocabulary, 24, layer(1024, 8, 128, 3072, 0.15, 0.15), 768);
}

LanguageModel::Options wikitext_103(LanguageModel::Options o, int64_t div) {
  o.adaptive = {.cutoffs = {20'000, 40'000, 200'000}, .div = div};
  o.tied_projections = {false, true, true, true};
  return o;
}

LanguageModel::Options one_billion_words(int64_t n_layers, LayerOptions layer) {
  LanguageModel::Options o = published(793'471, n_layers, std::move(layer), 32);
  o.adaptive = {.cutoffs = {60'000, 100'000, 640'000}, .div = 4};
  return o;
}

}  // namespace

LanguageModel::Options transformer_xl(int64_t vocabulary) {
  return {.vocabulary = vocabulary,
          .n_layers = 12,
          .layer = {.d_model = 512,
                    .attention = {.n_heads = 8, .bias = false},
                    .feed_forward = {.d_hidden = 2048},
                    .norm = NormPlace::post,
                    .dropout = 0.1},
          .final_norm = false,
          .tied = true,
          .adaptive = AdaptiveOptions{},
          .shared_sinusoids = true,
          .output_dropout = true,
          .init_std = 0.02};
}

LanguageModel::Options enwik8_12l() { return characters_12l(204); }
LanguageModel::Options text8_12l() { return characters_12l(27); }
LanguageModel::Options enwik8_24l() { return characters_24l(204); }
LanguageModel::Options text8_24l() { return characters_24l(27); }

LanguageModel::Options wt103_base() {
  return wikitext_103(published(267'735, 16, layer(410, 10, 41, 2100, 0.1), 150), 1);
}
LanguageModel::Options wt103_large() {
  return wikitext_103(published(267'735, 18, layer(1024, 16, 64, 4096, 0.2, 0.2), 384), 4);
}

LanguageModel::Options lm1b_base() { return one_billion_words(18, layer(1024, 8, 128, 4096, 0)); }
LanguageModel::Options lm1b_large() {
  return one_billion_words(24, layer(1280, 16, 80, 8192, 0.05, 0.05));
}

}  // namespace stretto::nn
