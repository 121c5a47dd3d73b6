#include "nn/models/gated_layers.h"

#include "nn/attention/gated_linear_attention.h"
#include "nn/positions/rotary.h"

namespace stretto::nn {
namespace {

// SwiGLU with about the parameters of a network of 4 d_model, and RMS norms.
LayerOptions llama_like(int64_t d_model, int64_t n_heads) {
  return {.d_model = d_model,
          .attention = {.n_heads = n_heads, .bias = false},
          .feed_forward = {.d_hidden = (8 * d_model / 3 + 15) / 16 * 16,
                           .activation = Activation::silu,
                           .bias = false,
                           .gated = true},
          .norm_kind = NormKind::rms};
}

void check_heads(const char* op, int64_t d_model, int64_t n_heads, int64_t divisor) {
  check(n_heads >= 1 && d_model >= 1 && d_model % divisor == 0, op, "d_model ", d_model,
        " with n_heads ", n_heads, "; must be a multiple of ", divisor);
}

}  // namespace

LayerOptions retnet_layer(int64_t d_model, int64_t n_heads) {
  check_heads("retnet_layer", d_model, n_heads, 2 * n_heads);
  return {.d_model = d_model,
          .attention = {.n_heads = n_heads,
                        .d_key = d_model / n_heads,
                        .d_value = 2 * d_model / n_heads,
                        .bias = false,
                        .position = rotary(),
                        .kernel = retention_kernel()},
          .feed_forward = {.d_hidden = 2 * d_model, .activation = Activation::gelu, .bias = false}};
}

LayerOptions gla_layer(int64_t d_model, int64_t n_heads) {
  check_heads("gla_layer", d_model, n_heads, 2 * n_heads);
  LayerOptions o = llama_like(d_model, n_heads);
  o.attention.d_key = d_model / n_heads / 2;
  o.attention.d_value = d_model / n_heads;
  o.attention.kernel = gla_kernel();
  return o;
}

LayerOptions gated_deltanet_layer(int64_t d_model, int64_t n_heads) {
  check_heads("gated_deltanet_layer", d_model, n_heads, n_heads);
  LayerOptions o = llama_like(d_model, n_heads);
  o.attention.d_key = d_model / n_heads;
  o.attention.d_value = 2 * d_model / n_heads;
  o.attention.kernel = gated_delta_kernel();
  return o;
}

LayerOptions kda_layer(int64_t d_model, int64_t n_heads) {
  check_heads("kda_layer", d_model, n_heads, n_heads);
  LayerOptions o = llama_like(d_model, n_heads);
  o.attention.kernel = kda_kernel();
  return o;
}

}  // namespace stretto::nn
