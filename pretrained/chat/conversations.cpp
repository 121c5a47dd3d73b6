#include "pretrained/chat/conversations.h"

#include <algorithm>

#include "core/error.h"
#include "pretrained/files/json_lines.h"
#include "pretrained/files/json_reader.h"

namespace stretto::nn {

std::vector<std::vector<ChatMessage>> read_conversations(const std::string& path) {
  constexpr const char* op = "read_conversations";
  std::vector<std::vector<ChatMessage>> all;
  files::for_each_json_line(op, path, [&](const files::Json& line, const std::string& name) {
    std::vector<ChatMessage>& messages = all.emplace_back();
    for (files::JsonReader& m : files::JsonReader(op, name, line).objects("messages")) {
      messages.push_back({m.text("role"), m.text("content")});
      m.finish();
    }
    check(std::any_of(messages.begin(), messages.end(),
                      [](const ChatMessage& m) { return m.role == "assistant"; }),
          op, name, ": \"messages\" has none of the role \"assistant\", whose text is learned");
  });
  return all;
}

std::vector<PromptedAnswer> prompted_answers(const std::vector<ChatMessage>& messages,
                                             const ChatTemplate& chat,
                                             const SubwordTokenizer& tokenizer) {
  std::vector<PromptedAnswer> examples;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role != "assistant") continue;
    const auto end = messages.begin() + int64_t(i);
    const std::vector<int64_t> prompt = chat.encode({messages.begin(), end}, tokenizer);
    std::vector<int64_t> whole =
        chat.encode({messages.begin(), end + 1}, tokenizer, {.add_generation_prompt = false});
    check(whole.size() > prompt.size() && std::equal(prompt.begin(), prompt.end(), whole.begin()),
          "prompted_answers", "message ", i,
          ": the template writes an answer that does not begin as the prompt for it ends");
    whole.erase(whole.begin(), whole.begin() + int64_t(prompt.size()));
    examples.push_back({prompt, std::move(whole)});
  }
  return examples;
}

}  // namespace stretto::nn
