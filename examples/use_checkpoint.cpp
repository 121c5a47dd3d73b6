// Continues a text with a model that the program train_lm has trained.
//
//     train_lm --preset nano --tokens chars --out run
//     use_checkpoint run/checkpoint.safetensors [--device cuda] [--dtype bf16]
#include <stretto/stretto.h>

#include <cstdio>
#include <string>
using namespace stretto;

int main(int argc, char** argv) {
  const nn::DeviceConfig config = nn::parse_device_args(argc, argv, nn::Processes::one, "FILE");
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s FILE, a checkpoint of train_lm\n", argv[0]);
    return 2;
  }
  // The settings of the run are in the checkpoint's metadata, under the names of its options.
  const nn::Metadata metadata = nn::load_training_state(argv[1]).metadata;
  const auto text = [&](const char* name) -> const std::string& {
    check(metadata.contains(name), argv[1], "no \"", name, "\"; not a checkpoint of train_lm");
    return metadata.at(name);
  };
  const auto number = [&](const char* name) -> int64_t { return std::stoll(text(name)); };
  const nn::TokenKind kind = text("tokens") == "bytes"   ? nn::TokenKind::bytes
                             : text("tokens") == "chars" ? nn::TokenKind::chars
                                                         : nn::TokenKind::words;
  const auto tokenizer = nn::VocabularyTokenizer::from_note(kind, text("vocabulary.tokens"));

  // train_lm's default, --position xl, is the position of Transformer-XL.
  nn::LanguageModel::Options options = nn::transformer_xl(tokenizer.size());
  options.n_layers = number("layers");
  options.layer.d_model = number("d_model");
  options.layer.attention.n_heads = number("heads");
  options.layer.feed_forward.d_hidden = number("d_hidden");
  options.memory.length = number("memory");
  nn::LanguageModel model(options);
  model.to(config.device).to(config.dtype);
  std::printf("%s\n", nn::load_weights(argv[1], model).describe().c_str());

  const nn::EvalMode guard(model);
  std::vector<int64_t> tokens = tokenizer.encode("the ");
  const nn::GenerationOptions sampling{.max_tokens = 60,
                                       .sampling = {.temperature = 0.8, .top_p = 0.9}};
  const std::vector<int64_t> written = nn::generate_batch(model, {tokens}, sampling).front();
  tokens.insert(tokens.end(), written.begin(), written.end());
  std::printf("%s\n", tokenizer.decode(tokens).c_str());
}
