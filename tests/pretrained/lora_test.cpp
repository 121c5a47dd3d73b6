#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "nn/models/moe.h"
#include "stretto_pretrained.h"
#include "tests/pretrained/output_of.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/error_of.h"
#include "tests/support/published_models.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using testing::error_of;
using testing::same_bits;
using testing::worst_error;

namespace {

nn::LanguageModel::Options options() {
  nn::LanguageModel::Options o = nn::llama(11);
  o.n_layers = 2;
  o.layer.d_model = 16;
  o.layer.attention.n_heads = 4;
  o.layer.attention.n_kv_heads = 2;
  o.layer.feed_forward.d_hidden = 24;
  o.init_std = 0.2;
  return o;
}

const Tensor& tokens() {
  static const Tensor x = tensor(std::vector<int64_t>{3, 1, 4, 1, 5, 9, 2, 6}, {1, 8});
  return x;
}

// Gives the adapters values that change the outputs.
void randomize(const nn::Module& model) {
  const NoGrad guard;
  for (const nn::NamedTensor& n : nn::lora_parameters(model)) nn::normal_(n.tensor, 0, 0.3);
}

}  // namespace

TEST_CASE("adapters of experts are trained, but not saved", "[lora]") {
  nn::LanguageModel::Options o = options();
  o.layer.feed_forward.network = nn::moe({.n_experts = 2});
  nn::LanguageModel model(o);
  nn::add_lora(model, {.targets = {"gate"}});
  CHECK(error_of<Error>([&] {
          nn::peft_tensors(model, nn::llama_names(o));
        }).starts_with("[save_lora] layers.0.feed_forward.experts.0.gate: PEFT cannot adapt"));
}

TEST_CASE("LoRA trains the adapters only and starts from the unchanged model", "[lora]") {
  manual_seed(1);
  nn::LanguageModel model(options());
  model.to(f64);
  const Tensor before = model(tokens()).detach();
  const std::vector<std::string> names = nn::add_lora(model, {.rank = 3, .targets = {"q", "up"}});
  CHECK(names == std::vector<std::string>{"layers.0.self_attention.q", "layers.0.feed_forward.up",
                                          "layers.1.self_attention.q", "layers.1.feed_forward.up"});
  CHECK(same_bits(model(tokens()), before));
  int64_t trained = 0;
  for (const nn::NamedTensor& n : model.named_parameters()) {
    CHECK(n.tensor.requires_grad() == (n.name.find(".lora.") != std::string::npos));
    CHECK(n.tensor.dtype() == f64);
    if (n.tensor.requires_grad()) trained += n.tensor.numel();
  }
  CHECK(trained == 2 * (3 * (16 + 16) + 3 * (16 + 24)));

  randomize(model);
  nn::gradcheck(model, [&] { return mean(square(model(tokens()))); });

  SECTION("a step changes nothing else") {
    nn::AdamW optimizer(model.parameters(), {.lr = 0.1});
    std::map<std::string, Tensor> old;
    for (const nn::NamedTensor& n : model.named_parameters())
      old[n.name] = n.tensor.detach().clone();
    mean(square(model(tokens()))).backward();
    optimizer.step();
    for (const nn::NamedTensor& n : model.named_parameters())
      CHECK(same_bits(n.tensor.detach(), old[n.name]) ==
            (n.name.find(".lora.") == std::string::npos));
  }
  SECTION("merging gives the same outputs without adapters") {
    const Tensor adapted = model(tokens()).detach();
    CHECK(worst_error(adapted, before) > 1e-3);
    nn::merge_lora(model);
    CHECK(worst_error(model(tokens()), adapted) < 1e-12);
    CHECK(nn::lora_parameters(model).empty());
    CHECK(model.named_parameters().size() ==
          nn::LanguageModel(options()).named_parameters().size());
  }
  SECTION("a clone has the adapters, with their values") {
    const auto copy = nn::clone(model);
    CHECK(same_bits((*copy)(tokens()), model(tokens())));
    CHECK(nn::lora_parameters(*copy).size() == 8);
  }
}

TEST_CASE("LoRA on a feed-forward network without gate changes its output", "[lora]") {
  nn::FeedForward network({.d_model = 6, .d_hidden = 10});
  network.to(f64);
  const Tensor x = randn({2, 6}, {.dtype = f64});
  nn::add_lora(network, {.rank = 2, .targets = {"linear1", "linear2"}});
  randomize(network);
  const auto weight = [](const nn::Linear& l) { return l.weight + l.lora()->delta(); };
  const Tensor hidden = relu(linear(x, weight(network.linear1), network.linear1.bias));
  CHECK(worst_error(network(x), linear(hidden, weight(network.linear2), network.linear2.bias)) <
        1e-12);
}

TEST_CASE("the target \"all\" is every Linear of the layers, not the output projection", "[lora]") {
  nn::LanguageModel model(options());
  const std::vector<std::string> names = nn::add_lora(model, {.rank = 2, .targets = {"all"}});
  CHECK(names.size() == 2 * 7);
  CHECK(model.out);
  CHECK(model.out->lora() == nullptr);
  const std::vector<nn::NamedTensor> saved =
      nn::peft_tensors(model, nn::llama_names(model.options));
  CHECK(saved.size() == 2 * names.size());
  CHECK(saved[0].name == "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
}

TEST_CASE("adapters are saved in PEFT's format and loaded again", "[lora]") {
  nn::LanguageModel model(options()), other(options());
  nn::copy_state(model, other);
  nn::add_lora(model, {.rank = 3, .alpha = 7});
  randomize(model);
  const nn::NameMap names = nn::llama_names(model.options);
  const testing::TempDir dir;
  nn::save_lora(dir.file("adapter"), model, names, "base");
  const nn::Safetensors file = nn::load_safetensors(dir.file("adapter/adapter_model.safetensors"));
  CHECK(file["base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight"].shape() ==
        Shape{8, 3});
  nn::load_lora(dir.file("adapter"), other, names);
  CHECK(same_bits(model(tokens()), other(tokens())));

  // rsLoRA divides alpha by √rank.
  std::string config = testing::read_file(dir.file("adapter/adapter_config.json"));
  config.insert(config.find('{') + 1, R"("use_rslora": true,)");
  testing::write_file(dir.file("adapter/adapter_config.json"), config);
  nn::LanguageModel scaled(options());
  nn::load_lora(dir.file("adapter"), scaled, names);
  CHECK(scaled.layers[0].self_attention().q.lora()->options.scale == Approx(7 / std::sqrt(3)));
}

TEST_CASE("adapters of some layers are saved with the names of these layers", "[lora]") {
  const auto targets = [](const std::vector<std::string>& layers, int64_t blocks) {
    nn::LanguageModel::Options o;
    o.vocabulary = 7;
    o.n_layers = blocks;
    o.layer.d_model = 8;
    o.layer.attention.position = nn::no_position();
    o.layer.feed_forward.d_hidden = 12;
    o.tied = true;
    nn::LanguageModel model(o);
    nn::add_lora(model, {.rank = 2, .alpha = 3, .targets = layers});
    const testing::TempDir dir;
    nn::save_lora(dir.str(), model, nn::gpt2_names(o));
    const auto config = nlohmann::json::parse(testing::read_file(dir.file("adapter_config.json")));
    CHECK(config["lora_alpha"].is_number_integer());
    CHECK(config["task_type"] == "CAUSAL_LM");
    return config["target_modules"].get<std::vector<std::string>>();
  };
  using Names = std::vector<std::string>;
  CHECK(targets({"linear1"}, 2) == Names{"c_fc"});
  CHECK(targets({"linear2", "out"}, 2) == Names{"c_proj"});
  CHECK(targets({"linear2"}, 1) == Names{"transformer.h.0.mlp.c_proj"});  // not attn.c_proj
  CHECK(targets({"layers.1.feed_forward.linear1"}, 2) == Names{"transformer.h.1.mlp.c_fc"});
  CHECK_THROWS_WITH(targets({"q"}, 1), Containing("its weight is not one tensor of the file"));
}

TEST_CASE("adapters that PEFT has written give its outputs", "[lora]") {
  const std::string folder = testing::expected_values("STRETTO_EXPECTED_MODELS", "pretrained");
  if (folder.empty()) STRETTO_SKIP("no adapters of tests/pretrained/expected.py");
  for (const std::string name : {"llama", "qwen2", "qwen3_next-equal-heads", "qwen3_5",
                                 "olmo_hybrid", "gpt2", "gpt_neox", "bloom", "t5", "bert", "olmo3",
                                 "granite", "gpt_oss", "inkling2_text", "mpnet", "modernbert"}) {
    INFO(name);
    const nn::Pretrained p = nn::load_pretrained(folder + "/" + name, {.dtype = f64});
    const std::string adapter = folder + "/" + name + "-peft";
    const nn::Safetensors expected = nn::load_safetensors(adapter + "/expected.safetensors");
    nn::load_lora(adapter, *p.model, p.names);
    const NoGrad guard;
    CHECK(worst_error(testing::output_of(p, expected), expected["output"]) < 2e-5);
  }
}

TEST_CASE("LoRA names what does not fit", "[lora]") {
  nn::LanguageModel model(options());
  const nn::NameMap names = nn::llama_names(model.options);
  CHECK_THROWS_WITH(nn::add_lora(model, {.targets = {"q", "q_proj"}}),
                    Containing("no Linear is named \"q_proj\"; the model has for example"));
  CHECK_THROWS_WITH(nn::add_lora(model, {.rank = 0}), Containing("rank 0"));
  for (const nn::NamedTensor& n : model.named_parameters()) CHECK(n.tensor.requires_grad());
  const testing::TempDir dir;
  CHECK_THROWS_WITH(nn::save_lora(dir.file("x"), model, names), Containing("has no adapters"));
  CHECK_FALSE(std::filesystem::exists(dir.file("x")));

  nn::add_lora(model, {.rank = 3});
  nn::save_lora(dir.file("a"), model, names);
  const std::string path = dir.file("a/adapter_config.json");
  std::string config((std::istreambuf_iterator<char>(std::ifstream(path).rdbuf())), {});
  const auto error = [&](const std::string& from, const std::string& to) {
    std::string changed = config;
    changed.replace(changed.find(from), from.size(), to);
    std::ofstream(path) << changed;
    nn::LanguageModel fresh(options());
    try {
      nn::load_lora(dir.file("a"), fresh, names);
    } catch (const Error& e) {
      for (const nn::NamedTensor& n : fresh.named_parameters()) CHECK(n.tensor.requires_grad());
      return std::string(e.what());
    }
    return std::string("no error");
  };
  CHECK(error("3", "3") == "no error");
  CHECK_THAT(error("\"r\": 3", "\"r\": 4"), Containing("expected [4, 16] and [16, 4]"));
  CHECK_THAT(error("\"r\": 3", "\"r\": 3, \"use_dora\": true"),
             Containing("\"use_dora\" is true; supported is false"));
  CHECK_THAT(error("\"r\": 3", "\"r\": 3, \"rank_pattern\": {\"q\": 2}"),
             Containing("not supported: \"q\" = 2"));
  CHECK_THAT(error("\"r\": 3", "\"r\": 3, \"init_lora_weights\": \"pissa_niter_4\""),
             Containing("\"init_lora_weights\" is \"pissa_niter_4\"; supported are true, false"));
  CHECK_THAT(error("\"r\": 3", "\"r\": 3, \"modules_to_save\": [\"lm_head\"]"),
             Containing("\"modules_to_save\" is not supported"));
  CHECK(error("\"r\": 3", "\"r\": 3, \"modules_to_save\": [], \"eva_config\": {\"rho\": 2.0}") ==
        "no error");
  CHECK_THAT(error("LORA", "LOHA"), Containing("\"peft_type\" is \"LOHA\""));
  CHECK_THAT(error("LORA", "LORA\", \"new\": \"x"), Containing("\"new\" = \"x\""));
}

TEST_CASE("an adapter of a fused matrix is split as the matrix", "[lora]") {
  const bool neox = GENERATE(false, true);
  nn::LanguageModel::Options o;
  o.vocabulary = 11;
  o.n_layers = 2;
  o.layer.d_model = 12;
  o.layer.attention.n_heads = 3;
  o.layer.attention.position = nn::no_position();
  o.layer.feed_forward.d_hidden = 10;
  const nn::NameMap names = neox ? nn::gpt_neox_names(o) : nn::gpt2_names(o);
  nn::LanguageModel model(o), expected(o);
  model.to(f64);
  expected.to(f64);
  manual_seed(4);
  std::vector<nn::NamedTensor> in_file = names.backwards(model.named_tensors()), adapters;
  const std::string fused = neox ? ".attention.query_key_value" : ".attn.c_attn";
  for (nn::NamedTensor& n : in_file)
    if (n.name.ends_with(fused + ".weight")) {
      const std::string layer = n.name.substr(0, n.name.size() - std::string(".weight").size());
      const Tensor a = randn({2, 12}, {.dtype = f64}), b = randn({36, 2}, {.dtype = f64});
      adapters.push_back({"base_model.model." + layer + ".lora_A.weight", a});
      adapters.push_back({"base_model.model." + layer + ".lora_B.weight", b});
      const Tensor delta = matmul(b, a) * 1.5;
      n.tensor = n.tensor + (neox ? delta : delta.transpose(0, 1));
    }
  nn::load_weights(nn::Safetensors{in_file, {}}, expected, names);
  const testing::TempDir dir;
  nn::save_safetensors(dir.file("adapter_model.safetensors"), adapters);
  testing::write_file(dir.file("adapter_config.json"),
                      R"({"peft_type": "LORA", "r": 2, "lora_alpha": 3, "target_modules": [")" +
                          fused.substr(fused.rfind('.') + 1) + "\"]}");
  CHECK(nn::load_lora(dir.str(), model, names).size() == 6);
  CHECK(worst_error(model(tokens()), expected(tokens())) < 1e-12);
  CHECK_THROWS_WITH(nn::save_lora(dir.file("again"), model, names),
                    Containing("its weight is not one tensor of the file"));
}

TEST_CASE("adapters are neither mixed nor loaded in part", "[lora]") {
  nn::LanguageModel model(options());
  const nn::NameMap names = nn::llama_names(model.options);
  nn::add_lora(model, {.rank = 3});
  const testing::TempDir dir;
  nn::save_lora(dir.str(), model, names);
  const std::string again = "has an adapter; merge_lora() adds it to the weight";
  CHECK_THROWS_WITH(nn::add_lora(model, {.targets = {"k"}}), Containing(again));
  CHECK_THROWS_WITH(nn::load_lora(dir.str(), model, names), Containing(again));
  nn::merge_lora(model);
  CHECK(nn::load_lora(dir.str(), model, names).size() == 4);

  const std::string path = dir.file("adapter_model.safetensors"),
                    config_path = dir.file("adapter_config.json"),
                    config = testing::read_file(config_path);
  const std::vector<nn::NamedTensor> tensors = nn::load_safetensors(path).tensors;
  const auto error = [&](const std::string& targets, const std::string& more = "") {
    auto changed = nlohmann::json::parse(config);
    changed["target_modules"] = nlohmann::json::parse(targets);
    if (!more.empty()) changed[more] = {1};
    testing::write_file(config_path, changed.dump());
    nn::LanguageModel fresh(options());
    try {
      nn::load_lora(dir.str(), fresh, names);
    } catch (const Error& e) {
      CHECK(nn::lora_parameters(fresh).empty());
      return std::string(e.what());
    }
    return std::string("no error");
  };
  const std::string both = R"(["q_proj", "v_proj"])";
  CHECK(error(both) == "no error");
  CHECK_THAT(error(R"(["q_proj", "v_proj", "k_proj"])"),
             Containing("has no adapter for \"model.layers.0.self_attn.k_proj\", one of"));
  CHECK_THAT(error("\"all-linear\""), Containing("has no adapter for"));
  CHECK(error("\".*(q|v)_proj\"") == "no error");
  std::vector<nn::NamedTensor> part = tensors;
  std::erase_if(part, [](const nn::NamedTensor& n) { return n.name.find("s.1.") != n.name.npos; });
  nn::save_safetensors(path, part);
  CHECK_THAT(error(both), Containing("has no adapter for \"model.layers.1.self_attn.q_proj\""));
  CHECK(error(both, "layers_to_transform") == "no error");
  part = tensors;
  part[0].tensor = full(part[0].tensor.shape(), std::numeric_limits<double>::quiet_NaN());
  nn::save_safetensors(path, part);
  CHECK_THAT(error(both), Containing("holds values that are not finite"));
}

TEST_CASE("adapters of matrices that the model does not use are ignored", "[lora]") {
  nn::Bert::Options o = nn::bert_base(9);
  o.n_layers = 1;
  o.layer.d_model = 8;
  o.layer.attention.n_heads = 2;
  o.layer.feed_forward.d_hidden = 12;
  nn::Bert model(o);
  const nn::NameMap names = nn::bert_names();
  nn::add_lora(model, {.rank = 2});
  const testing::TempDir dir;
  nn::save_lora(dir.str(), model, names);
  const std::string path = dir.file("adapter_model.safetensors");
  std::vector<nn::NamedTensor> tensors = nn::load_safetensors(path).tensors;
  const std::string head = "base_model.model.cls.predictions.transform.dense.lora_";
  const std::vector<nn::NamedTensor> unused{{head + "A.weight", zeros({2, 8})},
                                            {head + "B.weight", zeros({8, 2})}};
  tensors.insert(tensors.end(), unused.begin(), unused.end());
  nn::save_safetensors(path, tensors);
  nn::Bert other(o);
  CHECK(nn::load_lora(dir.str(), other, names).size() == 2);
  nn::save_safetensors(path, unused);
  nn::Bert third(o);
  CHECK_THROWS_WITH(nn::load_lora(dir.str(), third, names),
                    Containing("all adapters belong to matrices that the model does not use"));
  CHECK(third.parameters()[0].requires_grad());
}
