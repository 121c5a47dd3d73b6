// DeBERTa, Transformer-XL and gwinndr's Music Transformer: sizes, and what is refused by name.
// Their results are compared in pretrained_test.cpp.
#include <filesystem>
#include <fstream>

#include "stretto_pretrained.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/error_of.h"
#include "tests/support/gradcheck.h"
#include "tests/support/pytorch_bytes.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using testing::error_of;
using testing::TempDir;

namespace {

const std::string deberta = R"({"model_type": "deberta-v2", "vocab_size": 11, "hidden_size": 8,
  "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12,
  "max_position_embeddings": 16, "relative_attention": true, "position_buckets": 4,
  "norm_rel_ebd": "layer_norm", "share_att_key": true, "pos_att_type": "p2c|c2p",
  "position_biased_input": false})";

const std::string transformer_xl = R"({"model_type": "transfo-xl", "vocab_size": 11, "n_layer": 1,
  "d_model": 8, "d_embed": 8, "n_head": 2, "d_head": 4, "d_inner": 12, "mem_len": 5,
  "clamp_len": 4, "same_length": true, "cutoffs": [4], "div_val": 2, "tie_projs": [false, true],
  "eos_token_id": 0})";

nn::Bert::Options deberta_options() {
  nn::Bert::Options o = nn::deberta_v3_base(11);
  o.n_layers = 1;
  o.layer.d_model = 8;
  o.layer.attention.n_heads = 2;
  o.layer.feed_forward.d_hidden = 12;
  o.disentangled->max_distance = 16;
  o.disentangled->buckets = 4;
  return o;
}

nn::LanguageModel::Options transformer_xl_options() {
  nn::LanguageModel::Options o = nn::transformer_xl(11);
  o.n_layers = 1;
  o.layer.d_model = 8;
  o.layer.attention.n_heads = 2;
  o.layer.feed_forward.d_hidden = 12;
  o.adaptive = {.cutoffs = {4}, .div = 2};
  o.tied_projections = {false, true};
  o.tied_biases = false;
  return o;
}

// Returns the text of a configuration with a change.
std::string changed(std::string text, const std::string& from, const std::string& to) {
  if (!from.empty()) text.replace(text.find(from), from.size(), to);
  return text;
}

// Writes the configuration next to the weights of a model and loads the folder.
nn::Pretrained load(const std::string& config, const nn::Module& model, const nn::NameMap& names,
                    const std::vector<std::string>& more_files = {}, DType dtype = f32) {
  const TempDir folder;
  std::ofstream(folder.file("config.json")) << config;
  for (const std::string& name : more_files) std::ofstream(folder.file(name)) << "a\nb\n";
  nn::save_weights(folder.file("model.safetensors"), model, names);
  return nn::load_pretrained(folder.str(), {.dtype = dtype});
}

nn::LanguageModel::Options music_options(int64_t vocabulary) {
  nn::LanguageModel::Options o = nn::gwinndr_options(vocabulary, 5);
  o.n_layers = 2;
  o.layer.d_model = 6;
  o.layer.attention.n_heads = 2;
  o.layer.feed_forward.d_hidden = 10;
  return o;
}

}  // namespace

TEST_CASE("load_pretrained drops the heads of BERT", "[pretrained]") {
  nn::Bert::Options o = nn::bert_base(11);
  o.n_layers = 1;
  o.layer.d_model = 8;
  o.layer.attention.n_heads = 2;
  o.layer.feed_forward.d_hidden = 12;
  o.max_length = 16;
  const nn::Bert model(o);
  const TempDir folder;
  testing::write_file(folder.file("config.json"),
                      R"({"model_type": "bert", "vocab_size": 11, "hidden_size": 8,
      "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12,
      "max_position_embeddings": 16})");
  const auto load = [&](const std::string& head) {
    std::vector<nn::NamedTensor> tensors = nn::bert_names().backwards(model.named_tensors());
    tensors.push_back({head, zeros({3, 8})});
    nn::save_safetensors(folder.file("model.safetensors"), tensors);
    return nn::load_pretrained(folder.str());
  };
  for (const char* head :
       {"classifier.weight", "qa_outputs.weight", "cls.predictions.transform.dense.weight"})
    CHECK(load(head).bert().options.n_layers == 1);
  CHECK_THAT(error_of<Error>([&] { load("regression.weight"); }), Containing("regression.weight"));
}

TEST_CASE("load_pretrained reads the settings of DeBERTa", "[pretrained]") {
  const nn::Bert model(deberta_options());
  const nn::NameMap names = nn::deberta_names(model.options);
  const nn::Pretrained p = load(deberta, model, names);
  CHECK(p.model_type == "deberta-v2");
  CHECK(p.max_length == 16);
  CHECK_FALSE(p.model->training());
  CHECK_THROWS_WITH(p.language_model(), Containing("a deberta-v2 model is a Bert, not a Langu"));
  CHECK(p.bert()(nn::TokenBatch(zeros({1, 20}, {.dtype = i64}))).size(1) == 20);  // no table
  CHECK(testing::worst_error(p.bert().relative.detach(), model.relative.detach()) == 0);

  const auto error = [&](const std::string& from, const std::string& to) {
    return error_of<Error>([&] { load(changed(deberta, from, to), model, names); });
  };
  const std::string any = "\"vocab_size\": 11", more = any + ", ";
  CHECK_THAT(error("\"relative_attention\": true", "\"relative_attention\": false"),
             Containing("\"relative_attention\" is false; supported is true"));
  CHECK_THAT(error("p2c|c2p", "p2c|p2p"), Containing("\"pos_att_type\" has \"p2p\"; supported"));
  CHECK_THAT(error("\"p2c|c2p\"", "[]"), Containing("\"pos_att_type\" is empty"));
  CHECK_THAT(error("layer_norm", "batch_norm"), Containing("\"norm_rel_ebd\" has \"batch_norm\""));
  CHECK_THAT(error("\"position_buckets\": 4", "\"position_buckets\": 40"),
             Containing("\"position_buckets\" is 40 for distances up to 16"));
  CHECK_THAT(error("\"num_attention_heads\": 2", "\"num_attention_heads\": 3"),
             Containing("\"hidden_size\" is 8, not a multiple of 3"));
  CHECK_THAT(error(any, more + "\"embedding_size\": 4"),
             Containing("\"embedding_size\" differs from \"hidden_size\""));
  CHECK_THAT(error(any, more + "\"attention_head_size\": 3"),
             Containing("\"attention_head_size\" is not"));
  CHECK_THAT(error(any, more + "\"conv_kernel_size\": 2"),
             Containing("\"conv_kernel_size\" is 2; supported are odd sizes"));
  CHECK_THAT(error(any, more + "\"conv_kernel_size\": 3"),
             Containing("activation \"tanh\" is not supported"));
  CHECK_THAT(error(any, more + "\"conv_kernel_size\": 3, \"conv_act\": \"gelu\""),
             Containing("convolution.window.weight: not in the file"));
  CHECK_THAT(error(any, more + "\"new_trick\": 1"), Containing("\"new_trick\" = 1"));
}

TEST_CASE("load_pretrained reads the settings of Transformer-XL", "[pretrained]") {
  const nn::LanguageModel model(transformer_xl_options());
  const nn::NameMap names =
      nn::transformer_xl_names(model.options, nn::TransformerXLSource::hugging_face);
  // Its list of words is not a vocabulary of WordPiece.
  const nn::Pretrained p = load(transformer_xl, model, names, {"vocab.txt"});
  CHECK_FALSE(p.tokenizer);
  CHECK(p.max_length == 0);
  CHECK(p.generation.end_tokens == std::vector<int64_t>{0});
  const nn::LanguageModel& loaded = p.language_model();
  CHECK(loaded.options.memory.zero_start);
  CHECK(loaded.options.memory.length == 5);
  CHECK(loaded.options.memory.clamp == 4);
  CHECK(loaded.options.memory.same_length == nn::SameLength::original);
  CHECK(loaded.options.tied_projections == std::vector<bool>{false, true});
  const nn::Pretrained narrow = load(transformer_xl, model, names, {}, bf16);
  CHECK(narrow.language_model().hidden(zeros({1, 6}, {.dtype = i64})).dtype() == bf16);
  CHECK_THROWS_WITH(p.bert(), Containing("a transfo-xl model is a LanguageModel, not"));

  const auto error = [&](const std::string& from, const std::string& to) {
    return error_of<Error>([&] { load(changed(transformer_xl, from, to), model, names); });
  };
  const std::string any = "\"vocab_size\": 11", more = any + ", ";
  CHECK(error(any, "\"n_token\": 11") == "(nothing thrown)");
  CHECK_THAT(error(any, more + "\"n_token\": 12"), Containing("\"n_token\" differs from"));
  CHECK_THAT(error("[4]", "[4, 3]"), Containing("\"cutoffs\" has 3 after 4; they must rise"));
  CHECK_THAT(error("[4]", "[11]"), Containing("less than the vocabulary, 11"));
  CHECK_THAT(error("\"div_val\": 2", "\"div_val\": 9"), Containing("have no features"));
  CHECK_THAT(error("[false, true]", "[true]"), Containing("has 1 entries for 2 clusters"));
  CHECK_THAT(error("[false, true]", "[1, 2]"), Containing("expected a list of true and false"));
  CHECK_THAT(error(any, more + "\"proj_share_all_but_first\": false"), Containing("disagree"));
  CHECK_THAT(error("\"mem_len\": 5", "\"mem_len\": 0"), Containing("leaves no key"));
  CHECK_THAT(error("\"mem_len\": 5", "\"mem_len\": 99999999"), Containing("expected at most"));
  CHECK_THAT(error("\"d_model\": 8", "\"d_model\": 7"), Containing("must be even"));
  CHECK_THAT(error(any, more + "\"attn_type\": 2"), Containing("\"attn_type\" is not 0"));
  CHECK_THAT(error(any, more + "\"ext_len\": 2"), Containing("\"ext_len\" is not 0"));
  CHECK_THAT(error(any, more + "\"adaptive\": false"), Containing("\"adaptive\" is false"));
  CHECK_THAT(error(any, more + "\"sample_softmax\": 9"), Containing("\"sample_softmax\" is above"));
}

TEST_CASE("load_pretrained recognizes gwinndr's Music Transformer by its tensors", "[pretrained]") {
  const nn::LanguageModel model(music_options(390));
  const TempDir folder;
  const std::string path = folder.file("best_acc_weights.pickle");
  nn::save_weights(path, model, nn::gwinndr_names());
  for (const std::string& from : {folder.str(), path}) {
    const nn::Pretrained p = nn::load_pretrained(from, {.dtype = f64});
    CHECK(p.model_type == "gwinndr-music-transformer");
    CHECK_FALSE(p.tokenizer);
    CHECK(p.max_length == 5);
    CHECK(p.generation.end_tokens == std::vector<int64_t>{388});
    const nn::LanguageModel::Options& o = p.language_model().options;
    CHECK(o.n_layers == 2);
    CHECK(o.layer.attention.n_heads == 2);
    for (const auto& [name, value] : model.named_parameters())
      CHECK(testing::worst_error(p.model->get_parameter(name).detach(), value.detach()) == 0);
  }
  std::filesystem::copy_file(path, folder.file("other.pth"));
  CHECK_THROWS_AS(nn::load_pretrained(folder.str()), Error);  // which of the two?
  nn::save_weights(path, nn::LanguageModel(music_options(7)), nn::gwinndr_names());
  CHECK(nn::load_pretrained(path).generation.end_tokens.empty());
}

TEST_CASE("state dicts that are not of a Music Transformer are refused", "[pretrained]") {
  const TempDir folder;
  const std::string path = folder.file("a.pickle"), layer = "transformer.encoder.layers.0.";
  const auto error = [&](const std::vector<nn::NamedTensor>& tensors) {
    nn::save_safetensors(path, tensors);
    return error_of<Error>([&] { nn::load_pretrained(path); });
  };
  const nn::NamedTensor table{layer + "self_attn.Er", zeros({5, 4})},
      words{"embedding.weight", zeros({9, 6})};
  CHECK_THAT(error({words}), Containing("nor the state dict of gwinndr's Music Transformer"));
  CHECK_THAT(error({table}), Containing("needs the matrix embedding.weight"));
  CHECK_THAT(error({table, words}),
             Containing("the width 6 is not a multiple of the head dimension 4"));
  CHECK_THAT(error({{table.name, zeros({5, 3})}, words}), Containing("the matrix " + layer));

  // An expanded tensor: 2^40 elements from a storage of one.
  const testing::PickledTensor huge{.numel = 1, .shape = {1 << 20, 1 << 20}, .strides = {0, 0}};
  testing::write_file(path, testing::torch_zip(testing::pickled_dict(testing::pickled(table.name) +
                                                                     testing::pickled(huge)),
                                               std::string(4, '\0')));
  CHECK_THAT(error_of<Error>([&] { nn::load_pretrained(path); }),
             Containing("elements, more than the file has bytes"));
}
