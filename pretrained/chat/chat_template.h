// Chat templates: the text that a published chat model expects for a conversation.
//
//     const auto chat =
//         nn::ChatTemplate::parse(text, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
//     const std::string prompt = chat.render({{"user", "Hello!"}});
//     const std::vector<int64_t> tokens = chat.encode({{"user", "Hello!"}}, tokenizer);
//
// Models carry their template as "chat_template" in tokenizer_config.json, in chat_template.jinja,
// or as tokenizer.chat_template in a GGUF file.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace stretto::nn {

class SubwordTokenizer;  // pretrained/tokenizers/subword_tokenizer.h

/// One message of a conversation.
struct ChatMessage {
  std::string role;     ///< Author: "system", "user" or "assistant" for most models.
  std::string content;  ///< Text of the message, in UTF-8.
};

/// Value of a variable that a template reads.
using ChatVariable = std::variant<bool, int64_t, std::string>;

/// Options of ChatTemplate::render().
struct ChatOptions {
  /// Whether the text ends with the beginning of the assistant's next message.
  bool add_generation_prompt = true;
  /// Further variables that the template reads, for example {"enable_thinking", false}. A special
  /// token of the same name is replaced.
  std::map<std::string, ChatVariable> variables = {};
};

/// A template that turns a conversation into the text that a model was trained on. Copies share the
/// parsed template; several threads may use one object.
///
/// The language is the part of Jinja that published templates use, with the rules of transformers:
/// trim_blocks, lstrip_blocks, undefined names print as nothing, lists and dictionaries cannot be
/// changed. Supported are {{ }}, {# #}, if, for, set (also of namespaces, and as a block), macro,
/// generation, break and continue; integers, texts, lists, tuples and dictionaries with their
/// operators; and the filters, tests, methods and functions that are needed for conversations of
/// text. Anything else raises Error when it is reached, with its name and its line: the result is
/// never an approximation. The same holds for operations on text that is not ASCII and needs tables
/// of Unicode: upper, lower, capitalize and title.
///
/// Templates are not trusted: their size, depth, number of steps and size of texts are limited.
class ChatTemplate {
 public:
  /// Parses a template. `special_tokens` are variables such as bos_token and eos_token; a token
  /// that the tokenizer lacks is left out. Throws Error, with the line, if the syntax is wrong or
  /// a tag is not supported, or if a text is not UTF-8.
  static ChatTemplate parse(const std::string& text,
                            const std::map<std::string, std::string>& special_tokens = {});

  /// Returns the prompt for the messages. The special tokens are part of the text, so the tokenizer
  /// must not add them again. Throws Error if the template refuses the conversation (with its own
  /// text), uses something that is not supported, or exceeds a limit; and if a text is not UTF-8.
  ///
  /// Reference: `apply_chat_template(messages, tokenize=False)` of transformers.
  std::string render(const std::vector<ChatMessage>& messages,
                     const ChatOptions& options = {}) const;

  /// Returns the ids of the prompt for the messages. Only the template's own text has control
  /// tokens (SubwordTokenizer::escape_special(), with the source of the template): those that are
  /// written in a message are encoded as ordinary characters, so that the text of a user cannot end
  /// its message and begin another one, and the template does not find them in the message. In
  /// messages of the role "assistant" only special tokens are: templates read others there, such as
  /// `</think>`. Other conversations have the ids of the rendered text. Throws Error as render() and
  /// escape_special() do.
  std::vector<int64_t> encode(const std::vector<ChatMessage>& messages,
                              const SubwordTokenizer& tokenizer,
                              const ChatOptions& options = {}) const;

 private:
  struct Parsed;
  explicit ChatTemplate(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}
  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace stretto::nn
