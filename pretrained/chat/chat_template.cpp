#include "pretrained/chat/chat_template.h"

#include "core/error.h"
#include "core/one_line.h"
#include "core/utf8.h"
#include "pretrained/chat/chat_template_parser.h"
#include "pretrained/tokenizers/subword_tokenizer.h"

namespace stretto::nn {
namespace {

void check_text(const std::string& text, const std::string& what) {
  check(find_invalid_utf8(text).at == text.size(), "chat_template", what, " is not UTF-8");
}

chat::Value value_of(const std::string& text, const std::string& what) {
  check_text(text, what);
  return {chat::Value::Kind::text, text};
}

}  // namespace

struct ChatTemplate::Parsed {
  chat::NodePtr program;
  std::map<std::string, std::string> special_tokens;
  std::string source;
};

ChatTemplate ChatTemplate::parse(const std::string& text,
                                 const std::map<std::string, std::string>& special_tokens) {
  constexpr size_t most = size_t{1} << 20;
  check(text.size() <= most, "chat_template", "the template has ", text.size(), " bytes; at most ",
        most, " are accepted");
  check_text(text, "the template");
  for (const auto& [name, token] : special_tokens) check_text(token, in_quotes(name));
  auto parsed = std::make_shared<Parsed>(Parsed{chat::parse(text), special_tokens, text});
  return ChatTemplate(std::move(parsed));
}

std::string ChatTemplate::render(const std::vector<ChatMessage>& messages,
                                 const ChatOptions& options) const {
  using Kind = chat::Value::Kind;
  std::map<std::string, chat::Value> variables;
  for (const auto& [name, token] : parsed_->special_tokens)
    variables[name] = value_of(token, in_quotes(name));
  for (const auto& [name, variable] : options.variables) {
    if (const auto* text = std::get_if<std::string>(&variable))
      variables[name] = value_of(*text, in_quotes(name));
    else if (const auto* yes = std::get_if<bool>(&variable))
      variables[name] = *yes;
    else
      variables[name] = std::get<int64_t>(variable);
  }
  auto list = std::make_shared<chat::Items>(chat::Items{.depth = 2});
  for (const ChatMessage& message : messages) {
    auto fields = std::make_shared<chat::Items>();
    fields->set("role", value_of(message.role, "the role of a message"));
    fields->set("content", value_of(message.content, "the content of a message"));
    list->values.emplace_back(Kind::dictionary, std::move(fields));
  }
  variables["messages"] = {Kind::list, std::move(list)};
  variables["tools"] = {};
  variables["documents"] = {};
  variables["add_generation_prompt"] = options.add_generation_prompt;
  return chat::run(*parsed_->program, std::move(variables));
}

std::vector<int64_t> ChatTemplate::encode(const std::vector<ChatMessage>& messages,
                                          const SubwordTokenizer& tokenizer,
                                          const ChatOptions& options) const {
  std::string text = render(messages, options);
  // A noncharacter of Unicode that occurs nowhere: U+FDD0 to U+FDEF.
  std::string all = text, escape = "\xEF\xB7\x90";
  for (const ChatMessage& message : messages) all += message.content;
  while (all.find(escape) != std::string::npos) {
    check(++escape[2] != '\xB0', "chat_template",
          "the messages contain each of the noncharacters U+FDD0 to U+FDEF; leave one out");
  }
  std::vector<ChatMessage> escaped = messages;
  bool same = true;
  for (ChatMessage& message : escaped) {
    const size_t size = message.content.size();
    const bool is_answer = message.role == "assistant";
    message.content = tokenizer.escape_special(message.content, escape,
                                               is_answer ? std::string_view() : parsed_->source);
    same = same && message.content.size() == size;
  }
  if (!same) text = render(escaped, options);
  return tokenizer.encode(text, {.add_special_tokens = false, .escape = same ? "" : escape});
}

}  // namespace stretto::nn
