// A conversation with a published language model.
//
// Input: MODEL, a folder or a GGUF file; lines of the user from the terminal, --prompt, or --file.
// Output: the answers on standard output as they are generated; on standard error, tokens per second.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>

#include "autograd/tape.h"
#include "examples/common/command_line.h"
#include "examples/common/error.h"
#include "examples/common/file.h"
#include "examples/common/settings.h"
#include "examples/published/model_options.h"

namespace stretto::examples {
namespace {

struct Options {
  ModelOptions model;
  std::string prompt, system, file;
  bool raw = false, quiet = false;
  int64_t max_tokens = 512, top_k = -1, seed = 0;
  double temperature = -1, top_p = -1;
};

void describe(CLI::App& app, Options& o) {
  declare_language_model(app, o.model);
  app.add_option("--prompt", o.prompt, "Answer this text and exit")->option_text("TEXT");
  app.add_option("--file", o.file, "Answer each line of a file, independently, and exit")
      ->option_text("FILE");
  app.add_option("--system", o.system, "System message")->option_text("TEXT");
  app.add_flag("--raw", o.raw, "Continue the text as it is, without the model's chat template");
  app.add_flag("--quiet", o.quiet, "No line with the speed after an answer");
  app.add_option("--max-tokens", o.max_tokens, "Largest number of tokens of an answer")
      ->capture_default_str();
  app.add_option("--temperature", o.temperature,
                 "Divides the logits; 0: always the most probable token (-1: the model's default)")
      ->capture_default_str();
  app.add_option("--top-k", o.top_k,
                 "Only the k most probable tokens (0: all; -1: the model's default)")
      ->capture_default_str();
  app.add_option("--top-p", o.top_p,
                 "Only the most probable tokens that reach this probability (-1: the model's "
                 "default)")
      ->capture_default_str();
  app.add_option("--seed", o.seed, "Seed of the random numbers")->capture_default_str();
}

// One conversation. The KV cache holds the tokens that the model has seen; a new prompt that
// continues them is computed from where they end.
class Conversation {
 public:
  Conversation(const Options& o, const nn::Pretrained& model) : o_(o), model_(model) {
    generation_ = model.generation;
    generation_.max_tokens = o.max_tokens;
    if (o.temperature >= 0) generation_.sampling.temperature = o.temperature;
    if (o.top_k >= 0) generation_.sampling.top_k = o.top_k;
    if (o.top_p >= 0) generation_.sampling.top_p = o.top_p;
    if (!o.raw) {
      require(!model.chat_template.empty(),
              o.model.path + ": has no chat template; --raw continues a text");
      template_ = as_usage([&] { return model.chat(); });
    }
    start();
  }

  // Forgets all messages.
  void start() {
    messages_.clear();
    if (!o_.system.empty()) messages_.push_back({"system", o_.system});
  }

  // Generates the answer to a message of the user and prints it as it grows.
  void answer(const std::string& text) {
    const std::vector<int64_t> prompt = prompt_of(text);
    const int64_t limit = model_.max_length;
    require(limit == 0 || int64_t(prompt.size()) < limit,
            "the conversation has " + as_text(int64_t(prompt.size())) +
                " tokens; the model was trained on " + as_text(limit));
    const std::vector<int64_t> rest = unseen(prompt);
    nn::TextStream stream(*model_.tokenizer);
    std::string written;
    const auto show = [&](const std::string& piece) {
      written += piece;
      std::cout << piece << std::flush;
    };
    generation_.seed = uint64_t(o_.seed) + uint64_t(turn_++);
    int64_t n = 0;
    const auto begin = std::chrono::steady_clock::now();
    auto first = begin;
    nn::generate(
        [&](const Tensor& tokens) {
          for (const int64_t token : tokens.to_vector<int64_t>()) seen_.push_back(token);
          return model_.language_model()(tokens.to(model_.model->device()), &cache_);
        },
        rest, generation_,
        [&](int64_t token) {
          if (n++ == 0) first = std::chrono::steady_clock::now();
          show(stream.add(int32_t(token)));
          return limit == 0 || int64_t(seen_.size()) + 1 < limit;
        });
    show(stream.finish());
    std::cout << std::endl;
    messages_.push_back({"assistant", written});
    if (o_.quiet) return;
    const std::chrono::duration<double> prefill = first - begin,
                                        decoding = std::chrono::steady_clock::now() - first;
    std::cerr << "(" << rest.size() << " tokens read in " << prefill.count() << " s; " << n
              << " generated";
    if (n > 1) std::cerr << ", " << double(n - 1) / decoding.count() << " tokens/s";
    std::cerr << ")\n";
  }

 private:
  std::vector<int64_t> prompt_of(const std::string& text) {
    messages_.push_back({"user", text});
    const std::vector<int32_t> ids = template_ ? as_usage([&] {
      return model_.tokenizer->encode(template_->render(messages_), {.add_special_tokens = false});
    })
                                               : model_.tokenizer->encode(text,
                                                                          {.allow_special = false});
    return {ids.begin(), ids.end()};
  }

  // Returns the tokens of the prompt that the cache does not hold yet, at least one.
  std::vector<int64_t> unseen(const std::vector<int64_t>& prompt) {
    const bool continues = template_ && seen_.size() < prompt.size() &&
                           std::equal(seen_.begin(), seen_.end(), prompt.begin());
    if (!continues) {
      seen_.clear();
      cache_ = model_.language_model().make_cache();
    }
    cache_.last_logits_only = true;
    return {prompt.begin() + int64_t(seen_.size()), prompt.end()};
  }

  const Options& o_;
  const nn::Pretrained& model_;
  std::optional<nn::ChatTemplate> template_;
  nn::GenerationOptions generation_;
  std::vector<nn::ChatMessage> messages_;
  std::vector<int64_t> seen_;  // the tokens in the cache
  nn::LanguageModel::Cache cache_;
  int64_t turn_ = 0;
};

void check(const Options& o) {
  require(o.prompt.empty() || o.file.empty(), "--prompt and --file exclude each other");
  require(!o.raw || o.system.empty(), "--system needs the chat template, without --raw");
  between(1, 1 << 20)("--max-tokens", o.max_tokens);
  require(o.temperature == -1 || (o.temperature >= 0 && o.temperature <= 100),
          "--temperature " + as_text(o.temperature) + ": from 0 to 100, or -1");
  require(o.top_p == -1 || (o.top_p > 0 && o.top_p <= 1),
          "--top-p " + as_text(o.top_p) + ": above 0, at most 1, or -1");
  between(-1, 1 << 24)("--top-k", o.top_k);
}

int run(const Options& o) {
  check(o);
  const std::string lines = o.file.empty() ? "" : read_whole_file(o.file);
  const nn::Pretrained model = load_language_model(o.model);
  const NoGrad guard;
  Conversation conversation(o, model);
  if (!o.prompt.empty()) {
    conversation.answer(o.prompt);
    return 0;
  }
  std::istringstream from_file(lines);
  std::istream& in = o.file.empty() ? std::cin : from_file;
  const bool terminal = o.file.empty() && ::isatty(STDIN_FILENO) != 0;
  if (terminal)
    std::cerr << "A conversation with " << printable(o.model.path)
              << ". An empty line starts a new one; Ctrl-D ends.\n";
  for (std::string line;;) {
    if (terminal) std::cerr << "> " << std::flush;
    if (!std::getline(in, line)) break;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || !o.file.empty()) conversation.start();
    if (!line.empty()) conversation.answer(line);
  }
  if (terminal) std::cerr << '\n';
  return 0;
}

}  // namespace
}  // namespace stretto::examples

int main(int argc, char** argv) {
  stretto::examples::Options options;
  return stretto::examples::run_program(
      argc, argv, "chat", "Talks with a published language model.",
      [&](CLI::App& app) { describe(app, options); }, [&] { return run(options); });
}
