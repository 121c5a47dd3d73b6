// new_model as a user runs it, and training on conversations by finetune.
#include <filesystem>

#include "pretrained/pretrained.h"
#include "tests/examples/tiny_run.h"

namespace {

using namespace stretto;                     // NOLINT
using namespace stretto::examples::testing;  // NOLINT

// Conversations with four questions, each with its own answer.
std::string chats(int repeats) {
  std::string lines;
  for (int i = 0; i < 4 * repeats; ++i) {
    const std::string letter(1, char('a' + i % 4));
    lines += R"({"messages": [{"role": "user", "content": "What follows )" + letter +
             R"(?"}, {"role": "assistant", "content": "After it comes )" +
             std::string(1, char('b' + i % 4)) + ".\"}]}\n";
  }
  return lines;
}

struct Made {
  Made() {
    write_file(data(), "What follows a? After it comes b. What follows b? After it comes c.\n");
    write_file(folder.file("chats.jsonl"), chats(20));
  }
  Ended make(const Arguments& more = {}) const {
    Arguments all{"--data", data(),         "--layers", "2",        "--d-model", "32",    "--heads",
                  "2",      "--vocabulary", "280",      "--length", "64",        "--out", model()};
    all.insert(all.end(), more.begin(), more.end());
    return run(find_program("new_model"), all);
  }
  std::string data() const { return folder.file("text.txt"); }
  std::string model() const { return folder.file("model"); }
  TempDir folder;
};

}  // namespace

TEST_CASE("a new model learns the answers of conversations", "[examples][finetune]") {
  NEEDS_PROGRAM("new_model");
  const Made made;
  const Ended ended = made.make();
  INFO(ended.err);
  REQUIRE(ended.status == 0);
  const nn::Pretrained p = nn::load_pretrained(made.model());
  CHECK(p.model_type == "llama");
  CHECK(p.max_length == 64);
  CHECK(p.tokenizer->eos() == 0);
  CHECK(p.generation.end_tokens == std::vector<int64_t>{0});
  CHECK_THAT(ended.out, Containing("Made a model of "));
  CHECK(p.parsed_template().render({{"user", "a"}}) ==
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");

  const std::string chats = made.folder.file("chats.jsonl"), out = made.folder.file("out");
  const Arguments train{
      made.model(), "--full", "--conversations", chats,  "--batch",     "8",
      "--steps",    "120",    "--length",        "63",   "--warmup",    "5",
      "--out",      out,      "--learning-rate", "0.01", "--overwrite", "--evaluate-every",
      "60"};
  const Ended trained = run(find_program("finetune"), train);
  INFO(trained.out << trained.err);
  REQUIRE(trained.status == 0);
  CHECK_THAT(trained.out, Containing("Read 72 answers for training and 8 answers for validation."));
  const nn::Pretrained q = nn::load_pretrained(out);
  for (int i = 0; i < 4; ++i)
    CHECK(q.chat({{"user", "What follows " + std::string(1, char('a' + i)) + "?"}}) ==
          "After it comes " + std::string(1, char('b' + i)) + ".");

  // Again, on one thread: the same bits.
  const std::string bytes = read_file(out + "/model.safetensors");
  Arguments again = train;
  again.insert(again.end(), {"--threads", "1"});
  REQUIRE(run(find_program("finetune"), again).status == 0);
  CHECK(read_file(out + "/model.safetensors") == bytes);
}

TEST_CASE("new_model and conversations: what is refused", "[examples][finetune]") {
  NEEDS_PROGRAM("new_model");
  const Made made;
  REQUIRE(made.make().status == 0);
  struct Bad {
    Arguments arguments;
    std::string expected;
  };
  const std::string other = made.folder.file("other");
  for (const Bad& bad : std::vector<Bad>{
           {{}, "--out: " + made.model() + " has a model's file config.json"},
           {{"--out", other, "--d-model", "30"}, "--d-model 30: must be an even multiple"},
           {{"--out", other, "--kv-heads", "3"}, "--kv-heads 3: must divide --heads 2"},
           {{"--out", other, "--vocabulary", "257"}, "--vocabulary 257"},
           {{"--out", other, "--data", ""}, "--data"},
           {{"--out", other, "--data", made.folder.file("none")}, "none"}}) {
    const Ended ended = made.make(bad.arguments);
    INFO(bad.expected);
    CHECK(ended.status == 2);
    CHECK_THAT(ended.complaint(), Containing(bad.expected));
    CHECK(!std::filesystem::exists(other));
  }
  const auto finetune = [&](const std::string& text, const Arguments& more = {}) {
    write_file(made.folder.file("bad.jsonl"), text);
    Arguments all{made.model(), "--full", "--conversations", made.folder.file("bad.jsonl"),
                  "--out",      other,    "--steps",         "1"};
    all.insert(all.end(), more.begin(), more.end());
    const Ended ended = run(find_program("finetune"), all);
    CHECK(ended.status == 2);
    return ended.complaint();
  };
  CHECK_THAT(finetune("{}"), Containing("bad.jsonl, line 1: "));
  CHECK_THAT(finetune(""),
             Containing("bad.jsonl: no answer is left for training; there are too few"));
  write_file(made.folder.file("empty.jsonl"), "\n");
  CHECK_THAT(finetune(chats(1), {"--validation", made.folder.file("empty.jsonl")}),
             Containing("empty.jsonl: no answer is left for validation"));
  CHECK_THAT(finetune(chats(5), {"--length", "8"}),
             Containing("no answer is left for training; --length 8 is less"));
}
