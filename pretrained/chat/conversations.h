// Conversations to learn from: prompts, and the answers that a model shall give.
//
//     for (const auto& messages : nn::read_conversations("chats.jsonl"))
//       for (const nn::PromptedAnswer& example : nn::prompted_answers(messages, chat, tokenizer)) …
#pragma once

#include <string>
#include <vector>

#include "../../nn/data/crops.h"
#include "chat_template.h"

namespace stretto::nn {

/// Returns the conversations of a file of JSON lines such as
///
///     {"messages": [{"role": "user", "content": "Hello!"}, {"role": "assistant", "content": "Hi."}]}
///
/// Other fields of a line have no effect; a message has these two. Throws Error
/// "[read_conversations] PATH, line 7: …" for a malformed line, and if a conversation has no
/// message of the role "assistant".
std::vector<std::vector<ChatMessage>> read_conversations(const std::string& path);

/// Returns an example for each message of the role "assistant", for prompted_batch(). Its prompt is
/// the conversation before the message, up to the beginning of the answer; its answer is the rest of
/// the message, with the tokens that end it. Throws Error as ChatTemplate::encode() does, and if
/// the template writes an answer that does not begin as the prompt for it ends.
std::vector<PromptedAnswer> prompted_answers(const std::vector<ChatMessage>& messages,
                                             const ChatTemplate& chat,
                                             const SubwordTokenizer& tokenizer);

}  // namespace stretto::nn
