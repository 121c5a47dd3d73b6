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
  bool raw = false, quiet = false, ignore_unsupported = false;
  int64_t max_tokens = 512, top_k = -1;
  uint64_t seed = 0;
  double temperature = -1, top_p = -1;
};

void describe(CLI::App& app, Options& o) {
  declare_language_model(app, o.model);
  app.add_option("--prompt", o.prompt, "Answer this text and exit")->option_text("TEXT");
  app.add_option(
         "--file", o.file,
         "Answer each line of a file, independently, and exit; every answer is one line, with "
         "\\n for a line break and \\\\ for a backslash")
      ->option_text("FILE");
  app.add_option("--system", o.system, "System message")->option_text("TEXT");
  app.add_flag("--raw", o.raw,
               "Continue the text as it is, without the model's chat template; special tokens that "
               "are written in it count as such");
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
  app.add_flag("--ignore-unsupported", o.ignore_unsupported,
               "Generate without the settings of generation_config.json that are not supported");
  app.add_option("--seed", o.seed, "Seed of the random numbers")->capture_default_str();
}

// Writes an answer on standard output as it grows. In one line, line breaks are written as \n and
// backslashes as \\.
class Answer {
 public:
  explicit Answer(bool one_line) : one_line_(one_line) {}

  // Returns false if standard output accepts no more text.
  bool add(const std::string& piece) {
    text_ += piece;
    if (!one_line_) return bool(std::cout << piece << std::flush);
    std::string line;
    for (const char c : piece) {
      if (c == '\\' || c == '\n' || c == '\r') line += '\\';
      line += c == '\n' ? 'n' : c == '\r' ? 'r' : c;
    }
    return bool(std::cout << line << std::flush);
  }
  const std::string& text() const { return text_; }

 private:
  const bool one_line_;
  std::string text_;
};

// One conversation. The KV cache holds the tokens that the model has seen; a new prompt that
// continues them is computed from where they end.
class Conversation {
 public:
  Conversation(const Options& o, const nn::Pretrained& model)
      : o_(o), model_(model), limit_(model.max_length) {
    generation_ = model.generation;
    generation_.max_tokens = o.max_tokens;
    if (o.temperature >= 0) generation_.sampling.temperature = o.temperature;
    if (o.top_k >= 0) generation_.sampling.top_k = o.top_k;
    if (o.top_p >= 0) generation_.sampling.top_p = o.top_p;
    if (o.ignore_unsupported) generation_.sampling.constrain = {};
    if (!o.raw) {
      require(!model.chat_template.empty(),
              o.model.path + ": has no chat template; --raw continues a text");
      template_ = as_usage([&] { return model.parsed_template(); });
    }
    start();
  }

  // Forgets all messages.
  void start() {
    messages_.clear();
    if (!o_.system.empty()) messages_.push_back({"system", o_.system});
  }

  // Generates the answer to a message of the user and prints it as it grows. Throws UsageError for a
  // message that the model cannot read; the conversation is then as before it.
  void answer(const std::string& text) {
    generation_.seed = nn::prompt_seed(o_.seed, turn_++);
    std::vector<nn::ChatMessage> messages;
    if (template_) messages = messages_;
    messages.push_back({"user", text});
    const std::vector<int64_t> prompt = prompt_of(messages), rest = unseen(prompt);
    nn::DecodeStream stream(*model_.tokenizer);
    Answer answer(!o_.file.empty());
    int64_t n = 0;
    bool full = false;
    generation_.on_end = [&](int64_t, nn::GenerationEnd end) {
      full = full || end == nn::GenerationEnd::length;
    };
    const auto begin = std::chrono::steady_clock::now();
    auto first = begin;
    nn::generate(
        [&](const Tensor& tokens) {
          Tensor logits = model_.language_model()(tokens.to(model_.model->device()), &cache_);
          for (const int64_t token : tokens.to_vector<int64_t>()) seen_.push_back(token);
          return logits;
        },
        rest, generation_,
        [&](int64_t token) {
          if (n++ == 0) first = std::chrono::steady_clock::now();
          if (!answer.add(stream.add(token))) return false;
          const auto& ends = generation_.end_tokens;
          full = limit_ > 0 && int64_t(seen_.size()) + 1 >= limit_ &&
                 std::find(ends.begin(), ends.end(), token) == ends.end();
          return !full;
        });
    answer.add(stream.finish());
    std::cout << std::endl;
    messages_ = std::move(messages);
    messages_.push_back({"assistant", answer.text()});
    if (full)
      std::cerr << "(the answer ends here: the model was trained on " << limit_ << " tokens)\n";
    if (o_.quiet) return;
    const std::chrono::duration<double> prefill = first - begin,
                                        decoding = std::chrono::steady_clock::now() - first;
    std::cerr << "(" << rest.size() << " tokens read in " << prefill.count() << " s; " << n
              << " generated";
    if (n > 1) std::cerr << ", " << double(n - 1) / decoding.count() << " tokens/s";
    std::cerr << ")\n";
  }

 private:
  // Returns the tokens of a conversation. Removes its oldest turns while they leave too few tokens
  // for the answer; the system message stays.
  std::vector<int64_t> prompt_of(std::vector<nn::ChatMessage>& messages) const {
    const int64_t reserved = std::min(o_.max_tokens, limit_ / 4);  // for the answer
    for (int64_t removed = 0;; ++removed) {
      std::vector<int64_t> tokens = tokens_of(messages);
      const auto n = int64_t(tokens.size());
      const auto oldest = messages.begin() + (messages.front().role == "system" ? 1 : 0);
      if (limit_ == 0 || n + reserved <= limit_ || messages.end() - oldest == 1) {
        require(n > 0, "the message has no tokens");
        const int64_t vocabulary = model_.language_model().options.vocabulary;
        for (const int64_t token : tokens)
          require(token < vocabulary, "the message has the token " + as_text(token) +
                                          "; the model has " + as_text(vocabulary) +
                                          " tokens, from 0");
        require(limit_ == 0 || n < limit_, "the message has " + as_text(n) +
                                               " tokens; the model was trained on " +
                                               as_text(limit_));
        if (removed > 0)
          std::cerr << "(" << removed << " of the oldest turns left out: the model was trained on "
                    << limit_ << " tokens)\n";
        return tokens;
      }
      messages.erase(oldest, oldest + 2);  // of the user and the assistant
    }
  }

  std::vector<int64_t> tokens_of(const std::vector<nn::ChatMessage>& messages) const {
    if (template_) return as_usage([&] { return template_->encode(messages, *model_.tokenizer); });
    std::vector<int64_t> ids = model_.tokenizer->encode(messages.back().content);
    const auto bos = model_.tokenizer->bos();
    const bool twice = ids.size() > 1 && ids[0] == bos && ids[1] == bos;  // also in the text
    if (twice) ids.erase(ids.begin());
    return ids;
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
  const int64_t limit_;  // 0: none
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
  int64_t number = 0, failed = 0;
  for (std::string line; std::cout;) {
    if (terminal) std::cerr << "> " << std::flush;
    if (!std::getline(in, line)) break;
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || !o.file.empty()) conversation.start();
    try {
      if (!line.empty())
        conversation.answer(line);
      else if (!o.file.empty())
        std::cout << std::endl;
    } catch (const UsageError& e) {
      ++failed;
      if (!o.file.empty()) std::cout << std::endl;
      std::cerr << program_name() << ": " << (terminal ? "" : str("line ", number, ": "))
                << printable(e.what()) << '\n';
    }
  }
  if (terminal) std::cerr << '\n';
  return failed > 0 && !terminal ? 1 : 0;
}

}  // namespace
}  // namespace stretto::examples

int main(int argc, char** argv) {
  stretto::examples::Options options;
  return stretto::examples::run_program(
      argc, argv, "chat", "Talks with a published language model.",
      [&](CLI::App& app) { describe(app, options); }, [&] { return run(options); });
}
