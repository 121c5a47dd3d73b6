// Associative recall (Arora et al. 2023, "multi-query associative recall"): a sequence gives pairs of
// a key and a value, then asks for the value of each key, in another order. With --repeats, each key
// comes several times with other values, and the last one counts. Trains small language models with
// several attention kernels and prints the share of right answers on new sequences.
//
//     ./build/release/benchmarks/recall --seeds 3      # minutes
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "core/parallel.h"
#include "core/random.h"
#include "examples/common/command_line.h"
#include "nn/attention/linear_attention.h"
#include "nn/models/gated_layers.h"
#include "nn/models/language_model.h"
#include "nn/optim/optim.h"
#include "nn/positions/rotary.h"
#include "nn/training/evaluate.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/loss.h"
#include "ops/reduce.h"

using namespace stretto;

namespace {

struct Settings {
  std::vector<std::string> models{"linear", "linear-rope", "retnet", "gla", "gated-deltanet"};
  int64_t d_model = 64, heads = 2, layers = 2, pairs = 4, repeats = 4, symbols = 16, batch = 64,
          steps = 3000;
  double lr = 2e-3;
  int seeds = 3, threads = 2;
};

struct Batch {
  Tensor tokens;   // [B, (2 · repeats + 1) · pairs]: key, value, …, then the keys
  Tensor answers;  // [B, pairs], for the last positions
};

// Keys are tokens 0 … symbols − 1, values the `symbols` tokens after them.
Batch sample(const Settings& o, int64_t batch) {
  const auto order = [&](int64_t n) { return topk(rand({batch, n}), n, 1).indices; };
  const Tensor keys = order(o.symbols).slice(1, 0, o.pairs).contiguous();
  Tensors tokens;
  Tensor values;  // the last ones
  for (int64_t i = 0; i < o.repeats; ++i) {
    values = randint(o.symbols, 2 * o.symbols, {batch, o.pairs});
    const Tensor at = order(o.pairs);
    tokens.push_back(stack({gather(keys, 1, at), gather(values, 1, at)}, 2).flatten(1));
  }
  const Tensor asked = order(o.pairs);
  tokens.push_back(gather(keys, 1, asked));
  return {cat(tokens, 1), gather(values, 1, asked)};
}

nn::LayerOptions layer(const std::string& name, const Settings& o) {
  if (name == "retnet") return nn::retnet_layer(o.d_model, o.heads);
  if (name == "gla") return nn::gla_layer(o.d_model, o.heads);
  if (name == "gated-deltanet") return nn::gated_deltanet_layer(o.d_model, o.heads);
  nn::LayerOptions plain = nn::retnet_layer(o.d_model, o.heads);  // the same sizes
  plain.attention.kernel = nn::linear_kernel(nn::elu_plus_one(), {.eps = 1e-6});
  if (name == "linear") plain.attention.position = {};
  return plain;
}

double accuracy(const nn::LanguageModel& model, const Settings& o) {
  const NoGrad guard;
  const Batch b = sample(o, 512);
  const Tensor answers = argmax(model(b.tokens).slice(1, -o.pairs), 2);
  return mean(eq(answers, b.answers).to(f64)).item();
}

void train(const std::string& name, int seed, const Settings& o) {
  manual_seed(uint64_t(seed));
  nn::LanguageModel::Options options{
      .vocabulary = 2 * o.symbols, .n_layers = o.layers, .layer = layer(name, o)};
  if (name == "linear") options.input.sinusoid = nn::Sinusoid::interleaved;
  nn::LanguageModel model(options);
  nn::AdamW optimizer(model.parameters(), {.lr = o.lr});
  std::printf("%-15s seed %d, %lld parameters:", name.c_str(), seed,
              static_cast<long long>(model.parameter_count()));
  for (int64_t step = 1; step <= o.steps; ++step) {
    optimizer.zero_grad();
    const Batch b = sample(o, o.batch);
    cross_entropy(model(b.tokens).slice(1, -o.pairs), b.answers).backward();
    optimizer.step();
    if (step % (o.steps / 4) == 0) {
      std::printf("  step %lld %.1f %%", static_cast<long long>(step), 100 * accuracy(model, o));
      std::fflush(stdout);
    }
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  Settings o;
  return examples::run_program(
      argc, argv, "recall", "Trains models for associative recall.",
      [&](CLI::App& app) {
        app.add_option("--models", o.models)->delimiter(',');
        app.add_option("--d-model", o.d_model);
        app.add_option("--heads", o.heads);
        app.add_option("--layers", o.layers);
        app.add_option("--pairs", o.pairs, "Pairs per sequence");
        app.add_option("--repeats", o.repeats, "Values of each key; the last one counts");
        app.add_option("--symbols", o.symbols, "Number of keys, and of values");
        app.add_option("--batch", o.batch);
        app.add_option("--steps", o.steps);
        app.add_option("--lr", o.lr);
        app.add_option("--seeds", o.seeds);
        app.add_option("--threads", o.threads);
      },
      [&] {
        set_num_threads(o.threads);
        for (const std::string& name : o.models)
          for (int seed = 1; seed <= o.seeds; ++seed) train(name, seed, o);
        return 0;
      });
}
