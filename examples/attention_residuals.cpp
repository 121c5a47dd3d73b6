#include <stretto/stretto.h>

#include <cstdio>
using namespace stretto;

constexpr int64_t notes = 12, d = 32, n_layers = 4;

// A Transformer whose residual stream is attention over depth (Kimi Team, "Attention Residuals",
// 2026). Each branch i, attention or a feed-forward network, reads of the earlier outputs v_j
//
//     h_i = Σ_j w_ij v_j,   w_i = softmax(rms_norm(v_j) · query_i)     in place of   h_i = Σ_j v_j
//
// v_0 is the embedding. The queries are parameters, 0 at first: h_i is then the mean of all v_j.
struct Model : nn::Module {
  explicit Model(bool over_depth_) : over_depth(over_depth_) {}

  Tensor input(int64_t i, const Tensors& outputs) const {
    const Tensor v = stack(outputs);  // [i + 1, B, L, d]
    if (!over_depth) return sum(v, {0});
    return sum(softmax(matmul(rms_norm(v), queries[i]), 0).unsqueeze(3) * v, {0});
  }

  Tensor operator()(const Tensor& tokens) const {
    Tensors outputs{embedding(tokens)};
    for (int64_t i = 0; i < n_layers; ++i) {
      outputs.push_back(attention[i](rms_norm(input(2 * i, outputs)), {.causal = true}));
      outputs.push_back(feed_forward[i](rms_norm(input(2 * i + 1, outputs))));
    }
    return out(rms_norm(input(2 * n_layers, outputs)));
  }

  const bool over_depth;
  nn::Embedding embedding{*this, "embedding", {notes, d}};
  nn::List<nn::MultiHeadAttention> attention{
      *this, "attention", n_layers,
      nn::MultiHeadAttentionOptions{.d_model = d, .n_heads = 4, .position = nn::rotary()}};
  nn::List<nn::FeedForward> feed_forward{*this, "feed_forward", n_layers,
                                         nn::FeedForwardOptions{.d_model = d, .d_hidden = 4 * d}};
  nn::Linear out{*this, "out", {d, notes}};
  const Tensor queries = over_depth ? parameter("queries", zeros({2 * n_layers + 1, d})) : Tensor();
};

// A bar of eight notes, played four times, each time higher by the same interval: [B, 32].
Tensor melodies(int64_t batch) {
  const Tensor bar = randint(0, notes, {batch, 1, 8}), interval = randint(0, notes, {batch, 1, 1});
  return ((bar + interval * arange(4).reshape({1, 4, 1})) % notes).flatten(1);
}

// The mean loss per note of the last two bars, in nats.
Tensor loss_of(const Model& model, const Tensor& x) {
  const Tensor logits = model(x.slice(1, 0, 31)).slice(1, 15);
  return cross_entropy(logits, x.slice(1, 16));
}

int main(int argc, char** argv) {
  const nn::DeviceConfig config = nn::parse_device_args(argc, argv);  // --device cuda, --dtype bf16
  for (const bool over_depth : {false, true}) {
    const char* const name = over_depth ? "attention over depth" : "sum of all layers";
    manual_seed(1);
    Model model(over_depth);
    model.to(config.device).to(config.dtype);
    nn::AdamW optimizer(model.parameters(), {});
    const nn::WarmupCosine schedule{.peak = 3e-3, .warmup = 20, .steps = 400};
    for (int64_t step = 1; step <= schedule.steps; ++step) {
      optimizer.set_learning_rate(schedule.at(step));
      optimizer.zero_grad();
      const Tensor loss = loss_of(model, melodies(16).to(config.device));
      loss.backward();
      optimizer.step();
      if (step % 100 == 0) std::printf("%s, step %d: loss %.3f\n", name, int(step), loss.item());
    }
    const nn::EvalMode guard(model);
    manual_seed(2);
    std::printf("%s, %d parameters: held out %.3f\n", name, int(model.parameter_count()),
                loss_of(model, melodies(256).to(config.device)).item());
  }
}
