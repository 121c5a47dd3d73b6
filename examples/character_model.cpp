// Trains a small LLaMA on a text, character by character, and generates a continuation.
//
//     character_model [FILE] [--device cuda] [--dtype bf16]
//     mpirun -n 4 character_model [FILE]
//
// Without a file it learns a cumulative nursery rhyme; the last tenth of the text is held out. The
// checkpoint is written to out/character_model and is the same for any number of processes.
#include <stretto/stretto.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
using namespace stretto;

std::string rhyme() {
  const std::string lines[] = {"the house that Jack built.\n\n",
                               "the malt\nThat lay in ",
                               "the rat\nThat ate ",
                               "the cat\nThat killed ",
                               "the dog\nThat worried ",
                               "the cow with the crumpled horn\nThat tossed ",
                               "the maiden all forlorn\nThat milked ",
                               "the man all tattered and torn\nThat kissed ",
                               "the priest all shaven and shorn\nThat married ",
                               "the cock that crowed in the morn\nThat waked ",
                               "the farmer sowing his corn\nThat kept "};
  std::string text, verse;
  for (const std::string& line : lines) text += "This is " + (verse = line + verse);
  return text;
}

int main(int argc, char** argv) {
  const nn::DeviceConfig config =
      nn::parse_device_args(argc, argv, nn::Processes::several, "[FILE]");
  std::string text = rhyme();
  if (argc > 1) {
    std::ifstream file(argv[1], std::ios::binary);
    std::stringstream bytes;
    bytes << file.rdbuf();
    text = bytes.str();
    // Without a byte order mark. A tenth of the text must be longer than a crop.
    if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
    if (text.size() < 641) {
      std::fprintf(stderr, "character_model: %s cannot be read, or has less than 641 bytes\n",
                   argv[1]);
      return 2;
    }
  }
  const int64_t length = 64;
  const auto tokenizer = nn::VocabularyTokenizer::learn(nn::TokenKind::bytes, text);
  const size_t n_train = text.size() * 9 / 10;
  const nn::TokenStream learned(tokenizer, text.substr(0, n_train));
  const nn::TokenStream held_out(tokenizer, text.substr(n_train));
  const nn::RandomCrops crops(learned, 16, length, 1), others(held_out, 16, length, 2);
  const std::vector<nn::Batch> validation{others(0).to(config.device), others(1).to(config.device)};

  manual_seed(1);
  nn::LanguageModel::Options options = nn::llama(tokenizer.size());
  // Rotary embeddings do not extrapolate to distances past training; the window avoids such
  // distances.
  options.layer.attention.window = length / 2;
  options.n_layers = 2;
  options.layer.d_model = 64;
  options.layer.attention.n_heads = 4;
  options.layer.feed_forward.d_hidden = 128;
  nn::LanguageModel model(options);
  model.to(config.device).to(config.dtype);
  nn::AdamW optimizer(model.parameters(), {});
  nn::Trainer trainer(model, optimizer,
                      {.steps = 300,
                       .schedule = nn::WarmupCosine{.peak = 3e-3, .warmup = 20},
                       .max_grad_norm = 1,
                       .folder = "out/character_model",
                       .overwrite = true,
                       .stop = nn::stop_on_signals()});
  trainer.run(
      [&](int64_t step) {  // for this process's share of the batch
        const nn::Batch batch = trainer.stage_batch(step, std::ref(crops));
        return cross_entropy(model(batch.inputs), batch.targets);
      },
      [&] { return nn::mean_loss(model, validation); });
  std::printf("held out %.3f nats per character\n", nn::mean_loss(model, validation));

  const nn::EvalMode guard(model);
  nn::LanguageModel::Cache cache;
  std::vector<int64_t> tokens = tokenizer.encode(text.substr(0, 8));
  for (int64_t token :
       nn::generate([&](const Tensor& x) { return model(x.to(config.device), &cache); }, tokens,
                    {.max_tokens = 300, .sampling = {.temperature = 0.7}}))
    tokens.push_back(token);
  std::printf("\n%s\n", tokenizer.decode(tokens).c_str());
  nn::process_group().finish();
}
