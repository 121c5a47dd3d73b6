// Makes a new language model of LLaMA's architecture, to be trained by finetune --full.
//
// Input: --data FILE, a text in UTF-8, of which the tokenizer learns. Output, in --out DIR: a folder
// as of a published model, with config.json, random weights, tokenizer and chat template.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/random.h"
#include "examples/common/command_line.h"
#include "examples/common/error.h"
#include "examples/common/file.h"
#include "examples/common/options.h"
#include "examples/common/words.h"
#include "examples/training/output_folder.h"
#include "nn/training/progress.h"
#include "pretrained/pretrained.h"
#include "pretrained/tokenizers/train_bpe.h"

namespace stretto::examples {
namespace {

constexpr const char* end_of_message = "<|im_end|>";  // id 0, which also ends an answer
constexpr const char* chat_template =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

class NewModel {
 public:
  void declare(OptionList& options) {
    options.input("data", data_, "The text of which the tokenizer learns, in UTF-8 (required)");
    options("vocabulary", vocabulary_,
            "Largest number of tokens: 2 special ones, 256 bytes, merges", between(258, 1 << 20));
    options("layers", layers_, "Number of layers", between(1, 1024));
    options("d_model", d_model_, "Model dimension", between(2, 1 << 16));
    options("heads", heads_, "Number of attention heads", between(1, 1024));
    options("kv_heads", kv_heads_, "Number of KV heads, for grouped-query attention (0: --heads)",
            between(0, 1024));
    options("d_hidden", d_hidden_,
            "Hidden dimension of the feed-forward networks (0: 8/3 of --d-model, rounded up to a "
            "multiple of 32)",
            between(0, 1 << 20));
    options("length", length_, "Largest number of positions", between(2, 1 << 20));
    options("seed", seed_, "Seed of the weights", any_value);
    options.path("out", out_, "Folder for the model; must not have one", "DIR");
  }

  int run() {
    require(!data_.empty(), "--data: a text is needed");
    if (kv_heads_ == 0) kv_heads_ = heads_;
    if (d_hidden_ == 0) d_hidden_ = (d_model_ * 8 / 3 + 31) / 32 * 32;
    require(d_model_ % heads_ == 0 && d_model_ / heads_ % 2 == 0,
            "--d-model " + as_text(d_model_) + ": must be an even multiple of --heads " +
                as_text(heads_));
    require(heads_ % kv_heads_ == 0,
            "--kv-heads " + as_text(kv_heads_) + ": must divide --heads " + as_text(heads_));
    for (const std::string& name : nn::pretrained_files()) {
      check_not_input({out_ + "/" + name}, {"--data", data_});
      require(!std::filesystem::exists(out_ + "/" + name),
              "--out: " + out_ + " has a model's file " + name + "; choose another folder");
    }
    const std::string text = read_whole_file(data_);
    const nn::SubwordTokenizer tokenizer = as_usage([&] {
      return nn::train_bpe(
          text, {.vocabulary = vocabulary_, .special_tokens = {end_of_message, "<|im_start|>"}});
    });
    manual_seed(seed_);
    nn::Pretrained p = nn::initialize_pretrained(config(tokenizer.size()));
    p.tokenizer = tokenizer;
    p.chat_template = chat_template;
    p.generation = {.end_tokens = {0}, .sampling = {.temperature = 0}};
    nn::save_pretrained(out_, p);
    std::cout << "Made a model of " << counted(p.model->parameter_count(), "parameter") << " and "
              << counted(tokenizer.size(), "token") << ": finetune " << quoted(out_)
              << " --full trains it" << std::endl;
    return 0;
  }

 private:
  std::string config(int64_t vocabulary) const {
    return nlohmann::ordered_json{{"architectures", {"LlamaForCausalLM"}},
                                  {"model_type", "llama"},
                                  {"vocab_size", vocabulary},
                                  {"hidden_size", d_model_},
                                  {"num_hidden_layers", layers_},
                                  {"num_attention_heads", heads_},
                                  {"num_key_value_heads", kv_heads_},
                                  {"intermediate_size", d_hidden_},
                                  {"hidden_act", "silu"},
                                  {"max_position_embeddings", length_},
                                  {"rms_norm_eps", 1e-5},
                                  {"rope_theta", 10000.0},
                                  {"tie_word_embeddings", true},
                                  {"bos_token_id", nullptr},
                                  {"eos_token_id", 0}}
        .dump(2);
  }

  std::string data_, out_ = "out/new_model";
  int64_t vocabulary_ = 1024, layers_ = 4, d_model_ = 128, heads_ = 4, kv_heads_ = 0, d_hidden_ = 0,
          length_ = 256;
  uint64_t seed_ = 1;
};

}  // namespace
}  // namespace stretto::examples

int main(int argc, char** argv) {
  return stretto::examples::run_program<stretto::examples::NewModel>(
      argc, argv, "new_model",
      "Makes a new language model of LLaMA's architecture, to be trained by finetune --full.");
}
