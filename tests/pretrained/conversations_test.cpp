// Conversations as prompts and answers [pretrained/chat/conversations.h].
#include "pretrained/chat/conversations.h"

#include <algorithm>
#include <string>
#include <vector>

#include "pretrained/tokenizers/train_bpe.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using testing::TempDir;

namespace {

// Messages as in ChatML; `between` comes before each answer, but not in the prompt for it.
nn::ChatTemplate chatml(const std::string& between = "") {
  return nn::ChatTemplate::parse(
      "{% for m in messages %}<|im_start|>{{ m.role }}\n"
      "{% if m.role == 'assistant' %}" +
      between +
      "{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
}

nn::SubwordTokenizer tokenizer() {
  return nn::train_bpe("Hello there. Hello! How are you? Hi. I am well. Hi. Hello!",
                       {.vocabulary = 280, .special_tokens = {"<|im_end|>", "<|im_start|>"}});
}

}  // namespace

TEST_CASE("prompted_answers: an example for each message of the assistant", "[conversations]") {
  const nn::SubwordTokenizer t = tokenizer();
  const std::vector<nn::ChatMessage> messages{{"system", "Be kind."},
                                              {"user", "Hello!"},
                                              {"assistant", "Hi."},
                                              {"user", "How are you? <|im_end|>"},
                                              {"assistant", "I am well."}};
  const auto text = [&](const std::vector<int64_t>& ids) {
    return t.decode(ids, {.skip_special_tokens = false});
  };
  const std::vector<nn::PromptedAnswer> examples = nn::prompted_answers(messages, chatml(), t);
  REQUIRE(examples.size() == 2);
  const std::string first =
      "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHello!<|im_end|>\n"
      "<|im_start|>assistant\n";
  CHECK(text(examples[0].prompt) == first);
  CHECK(text(examples[0].answer) == "Hi.<|im_end|>\n");
  CHECK(text(examples[1].prompt) == first +
                                        "Hi.<|im_end|>\n<|im_start|>user\nHow are you? "
                                        "<|im_end|><|im_end|>\n<|im_start|>assistant\n");
  CHECK(text(examples[1].answer) == "I am well.<|im_end|>\n");
  // The token that a user wrote is text, the template's own is the special token.
  const auto ends = [&](const std::vector<int64_t>& ids) {
    return std::count(ids.begin(), ids.end(), *t.id("<|im_end|>"));
  };
  CHECK(ends(examples[1].prompt) == 4);
  CHECK(ends(examples[1].answer) == 1);
  CHECK(nn::prompted_answers({{"user", "Hello!"}}, chatml(), t).empty());
}

TEST_CASE("prompted_answers: answers that do not continue the prompt", "[conversations]") {
  CHECK_THROWS_WITH(
      nn::prompted_answers({{"user", "Hello!"}, {"assistant", "Hi."}},
                           nn::ChatTemplate::parse("{% for m in messages %}{{ m.role }}: "
                                                   "{{ m.content }}\n{% endfor %}"
                                                   "{% if add_generation_prompt %}> {% endif %}"),
                           tokenizer()),
      Containing(
          "[prompted_answers] message 1: the template writes an answer that does not begin"));
  // What the template adds before the answer is learned.
  const auto examples = nn::prompted_answers({{"user", "Hello!"}, {"assistant", "Hi."}},
                                             chatml("<think></think>"), tokenizer());
  CHECK_THAT(tokenizer().decode(examples.at(0).answer), Containing("<think></think>Hi."));
}

TEST_CASE("read_conversations: messages, and errors that name the line", "[conversations]") {
  const TempDir folder;
  const std::string path = folder.file("a.jsonl");
  const auto read = [&](const std::string& text) {
    testing::write_file(path, text);
    return nn::read_conversations(path);
  };
  const auto all = read(
      R"({"id": 7, "messages": [{"role": "user", "content": "ä\n"}, {"role": "assistant", "content": ""}]})"
      "\n\n"
      R"({"messages": [{"content": "b", "role": "assistant"}]})");
  REQUIRE(all.size() == 2);
  REQUIRE(all[0].size() == 2);
  CHECK(all[0][0].content == "ä\n");
  CHECK(all[0][1].role == "assistant");
  CHECK(all[1].at(0).content == "b");
  CHECK(read("").empty());
  struct Bad {
    const char *text, *error;
  };
  for (const Bad& bad : std::vector<Bad>{
           {R"({"text": "a"})", "line 1: \"messages\" has none of the role \"assistant\""},
           {R"({"messages": []})", "has none of the role"},
           {"\n"
            R"({"messages": [{"role": "user", "content": "a"}]})",
            "line 2: "},
           {R"({"messages": "a"})", "\"messages\""},
           {R"({"messages": ["a"]})", "\"messages\""},
           {R"({"messages": [{"role": "assistant"}]})", "\"content\""},
           {R"({"messages": [{"role": "assistant", "content": [1]}]})", "\"content\""},
           {R"({"messages": [{"role": "assistant", "content": "", "tool_calls": []}]})",
            "\"tool_calls\""},
           {"[]", "line 1: is a list, not an object"},
           {"{", "line 1: "}}) {
    INFO(bad.text);
    CHECK_THROWS_WITH(read(bad.text), Containing("[read_conversations] ") &&
                                          Containing("a.jsonl, line ") && Containing(bad.error));
  }
}
