// A complete training run that can be stopped and resumed: sorts letters, "gcabfd" → "abcdfg".
//
//     resumed_training [STEPS] [--device cuda] [--dtype bf16]
//
// The checkpoint is in out/resumed_training; a second run with more STEPS continues from it.
#include <stretto/stretto.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>
using namespace stretto;

constexpr int64_t letters = 8, length = 6, separator = letters;  // tokens 0 … 7, and 8

// A batch: six letters, the separator and the letters sorted. It depends on the arguments only, so
// a resumed run continues with the batches that it has not seen.
nn::Batch words(int64_t count, uint64_t seed, int64_t step) {
  nn::Draws draws(seed, step);
  std::vector<std::vector<int64_t>> rows;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<int64_t> row;
    for (int64_t n = 0; n < length; ++n) row.push_back(draws.below(letters));
    std::vector<int64_t> sorted = row;
    std::sort(sorted.begin(), sorted.end());
    row.push_back(separator);
    row.insert(row.end(), sorted.begin(), sorted.end());
    rows.push_back(row);
  }
  nn::Batch batch = nn::next_token_batch(rows);               // inputs, targets [count, 12]
  batch.targets.slice(1, 0, length).fill_(nn::ignore_index);  // random letters have no loss
  return batch;
}

int main(int argc, char** argv) {
  const nn::DeviceConfig config = nn::parse_device_args(argc, argv, nn::Processes::one, "[STEPS]");
  const int64_t steps = argc > 1 ? std::atoll(argv[1]) : 400;

  manual_seed(1);
  nn::LanguageModel model({.vocabulary = letters + 1,
                           .n_layers = 2,
                           .layer = {.d_model = 64,
                                     .attention = {.n_heads = 4, .position = nn::rotary()},
                                     .feed_forward = {.d_hidden = 128},
                                     .dropout = 0.1}});
  model.to(config.device).to(config.dtype);
  nn::AdamW optimizer(model.parameters(), {.weight_decay = 0.1});
  const std::vector<nn::Batch> held_out{words(200, 2, 0), words(200, 2, 1)};  // another seed

  nn::Trainer trainer(model, optimizer,
                      {.steps = steps,
                       .schedule = nn::WarmupCosine{.peak = 3e-3, .warmup = 50},
                       .max_grad_norm = 1,
                       .evaluate_every = 100,
                       .folder = "out/resumed_training",
                       .stop = nn::stop_on_signals()});
  if (trainer.resume()) std::printf("resumed after step %d\n", int(trainer.steps_done()));
  const bool finished = trainer.run(
      [&](int64_t step) {
        const nn::Batch batch =
            trainer.stage_batch(step, [](int64_t i) { return words(32, 1, i); });
        return cross_entropy(model(batch.inputs), batch.targets);
      },
      [&] { return nn::mean_loss(model, held_out); });  // in evaluation mode
  if (!finished) return nn::stop_exit_code();           // Ctrl-C: the checkpoint is saved

  const nn::EvalMode guard(model);  // no dropout, no gradients
  const std::string word = "gcabfd";
  std::vector<int64_t> prompt;
  for (const char letter : word) prompt.push_back(letter - 'a');
  prompt.push_back(separator);
  nn::LanguageModel::Cache cache;
  std::string answer;
  for (const int64_t token :
       nn::generate([&](const Tensor& x) { return model(x.to(config.device), &cache); }, prompt,
                    {.max_tokens = length, .sampling = {.temperature = 0}}))
    answer += token < letters ? char('a' + token) : '?';
  std::printf("%s sorted: %s\n", word.c_str(), answer.c_str());
}
