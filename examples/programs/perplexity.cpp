// The perplexity of a published language model on a text.
//
// Input: MODEL, a folder or a GGUF file; FILE, a text in UTF-8.
// Output: one line on standard output with the mean loss per token and the perplexity.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>

#include "autograd/tape.h"
#include "examples/common/command_line.h"
#include "examples/common/file.h"
#include "examples/common/settings.h"
#include "examples/published/model_options.h"
#include "nn/data/contiguous_batches.h"
#include "nn/training/progress.h"
#include "ops/loss.h"

namespace stretto::examples {
namespace {

struct Options {
  ModelOptions model;
  std::string file;
  int64_t length = 0, stride = 0, batch = 1;
};

void describe(CLI::App& app, Options& o) {
  declare_language_model(app, o.model);
  app.add_option("file", o.file, "The text")->option_text("FILE")->required();
  app.add_option("--length", o.length, "Tokens per window (0: the trained length, at most 1024)")
      ->capture_default_str();
  app.add_option("--stride", o.stride,
                 "Distance between windows; a smaller one gives each token more context (0: half "
                 "the length)")
      ->capture_default_str();
  app.add_option("--batch", o.batch, "Windows computed at a time")->capture_default_str();
}

int run(Options o) {
  between(0, 1 << 20)("--length", o.length);
  between(0, 1 << 20)("--stride", o.stride);
  between(1, 1024)("--batch", o.batch);
  const std::string text = read_whole_file(o.file);
  const nn::Pretrained p = load_language_model(o.model);
  const int64_t trained = p.max_length > 0 ? p.max_length : 1024;
  if (o.length == 0) o.length = std::min<int64_t>(trained, 1024);
  if (o.stride == 0) o.stride = (o.length + 1) / 2;
  require(o.stride <= o.length,
          "--stride " + as_text(o.stride) + ": at most --length " + as_text(o.length));
  const nn::TokenStream tokens(p.tokenizer->encode(text, {.allow_special = false}));
  require(tokens.size() >= 2, o.file + ": has fewer than 2 tokens");

  const NoGrad guard;
  const nn::LanguageModel& model = p.language_model();
  const Device device = model.device();
  double sum = 0;
  int64_t scored = 0;
  const int64_t windows =
      1 + std::max<int64_t>(0, tokens.size() - 1 - o.length + o.stride - 1) / o.stride;
  nn::Progress progress((windows + o.batch - 1) / o.batch);
  const auto start = std::chrono::steady_clock::now();
  int64_t step = 0;
  nn::for_each_evaluation_window(
      tokens, {.length = o.length, .stride = o.stride}, o.batch, [&](const nn::Batch& batch, bool) {
        // Most windows are scored only at their last positions: no logits for the others.
        const int64_t columns = batch.targets.size(1);
        int64_t n = 0, first = columns, at = 0;
        for (const int64_t target : batch.targets.to_vector<int64_t>()) {
          if (target != nn::ignore_index) {
            ++n;
            first = std::min(first, at % columns);
          }
          ++at;
        }
        if (n == 0) return;
        const Tensor hidden = model.hidden(batch.inputs.to(device)).slice(1, first, columns);
        const Tensor targets = batch.targets.slice(1, first, columns).to(device);
        sum += double(n) * cross_entropy(model.logits(hidden).to(f32), targets).item();
        scored += n;
        const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
        progress.update(++step, double(scored) / double(tokens.size() - 1), sum / double(scored),
                        double(scored) / elapsed.count());
      });
  progress.finish();
  std::cout << "loss " << sum / double(scored) << " nats per token, perplexity "
            << std::exp(sum / double(scored)) << " on " << scored << " tokens" << std::endl;
  return 0;
}

}  // namespace
}  // namespace stretto::examples

int main(int argc, char** argv) {
  stretto::examples::Options options;
  return stretto::examples::run_program(
      argc, argv, "perplexity", "Computes the perplexity of a published language model on a text.",
      [&](CLI::App& app) { describe(app, options); }, [&] { return run(options); });
}
