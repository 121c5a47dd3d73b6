// The program train_tokens: its file of sequences.
#include "tests/examples/tiny_programs.h"

using namespace stretto::examples::testing;  // NOLINT

TEST_CASE("train_tokens reads sequences of numbers and continues one", "[examples]") {
  NEEDS_PROGRAM("train_tokens");
  TinyRun tiny("train_tokens", tiny_model);
  std::string file = "\n7\n";  // sequences of one token are left out
  for (int i = 0; i < 20; ++i) file += i % 2 == 0 ? "1, 2,3\t4 5,\r\n" : " 5 4 3 2 1\n";
  write_file(tiny.file("data"), file);
  tiny.settings.insert(
      tiny.settings.end(),
      {"--data", tiny.file("data"), "--vocabulary", "8", "--every", "10", "--steps", "200",
       "--learning-rate", "0.01", "--generate", "4", "--prime", "2", "--temperature", "0"});
  const Ended ended = tiny.run();
  INFO(ended.err);
  REQUIRE(ended.status == 0);
  CHECK_THAT(ended.out, Containing("Read 18 sequences of 90 tokens for training and 2 for "));
  CHECK(read_file(tiny.out("generated.csv")).rfind("5,4,3,2,1", 0) == 0);
}

TEST_CASE("train_tokens rejects files that are no sequences", "[examples]") {
  NEEDS_PROGRAM("train_tokens");
  TinyRun tiny("train_tokens", {"--vocabulary", "8", "--every", "100"});
  const std::string path = tiny.file("data");
  tiny.settings.insert(tiny.settings.end(), {"--data", path});
  const std::string range = " is not a token, 0 to 7 (--vocabulary)";
  const std::vector<std::pair<std::string, std::string>> files{
      {"1 2\n1 8\n", "line 2: \"8\"" + range},
      {"1 -2\n", "line 1: \"-2\"" + range},
      {"1,,2\n", "line 1: \"\"" + range},
      {"1;2\n", "line 1: \"1;2\"" + range},
      {"1 2.0\n", "line 1: \"2.0\"" + range},
      {"1 99999999999999999999\n", "line 1: \"99999999999999999999\"" + range},
      {"1 2\n3\n", "1 sequence of two or more tokens; --every 100 are needed"},
      {"", "0 sequences of two or more tokens; --every 100 are needed"}};
  for (const auto& [content, expected] : files) {
    write_file(path, content);
    check_refusals(tiny, {{{}, path + ": " + expected}});
  }
}
