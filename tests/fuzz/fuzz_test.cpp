// A short run of each fuzz target, and tests of mutate(). STRETTO_FUZZ_ROUNDS=n sets the
// number of inputs.

#include <cstdint>
#include <cstdlib>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>

#include "tests/fuzz/mutate.h"
#include "tests/support/catch.h"

using namespace stretto::testing;

namespace {

std::int64_t rounds() {
  const char* text = std::getenv("STRETTO_FUZZ_ROUNDS");
  return text != nullptr ? std::stoll(text) : 5000;
}

void run_and_check(const FuzzTarget& target) {
  const std::int64_t n = rounds();
  const FuzzCount count = fuzz(target, n, 1);
  CHECK(count.accepted + count.refused == n);
  // A target that accepts or rejects nearly all inputs would test too little.
  CHECK(count.accepted > n / 100);
  CHECK(count.refused > n / 100);
}

const FuzzTarget any_input = {[](std::string_view) { return true; }, {"seed", "12"}, {"word"}};

}  // namespace

TEST_CASE("the MIDI reader accepts or rejects damaged files without defects", "[fuzz][midi]") {
  run_and_check(midi_target());
}

TEST_CASE("load_safetensors accepts or rejects damaged files without defects",
          "[fuzz][safetensors]") {
  run_and_check(safetensors_target());
}

TEST_CASE("the readers of NumPy's files accept or reject damaged files without defects",
          "[fuzz][npy]") {
  run_and_check(npy_target());
  run_and_check(npz_target());
}

TEST_CASE("GgufFile accepts or rejects damaged files without defects", "[fuzz][gguf]") {
  run_and_check(gguf_target());
}

TEST_CASE("PyTorchFile accepts or rejects damaged files without defects", "[fuzz][pytorch]") {
  run_and_check(pytorch_target());
}

TEST_CASE("a damaged index of shards is accepted or rejected and opens no other files",
          "[fuzz][safetensors]") {
  run_and_check(safetensors_index_target());
}

TEST_CASE("chat templates are rendered or refused without defects", "[fuzz][chat_template]") {
  run_and_check(chat_template_target());
}

TEST_CASE("the configurations of published models are read or refused without defects",
          "[fuzz][pretrained]") {
  run_and_check(model_config_target());
}

TEST_CASE("the readers of data sets accept or reject damaged files without defects", "[fuzz]") {
  run_and_check(tsv_target());
}

TEST_CASE("the readers of tokenizers accept or reject damaged files without defects",
          "[fuzz][tokenizers]") {
  run_and_check(tokenizer_json_target());
  run_and_check(sentencepiece_target());
  run_and_check(bpe_files_target());
  run_and_check(word_piece_folder_target());
  run_and_check(gguf_vocabulary_target());
}

TEST_CASE("mutations are diverse, short and the same for the same seed", "[fuzz]") {
  PortableRandom a(3), b(3), other(4);
  std::set<std::string> all;
  std::string chain;
  for (int i = 0; i < 2000; ++i) {
    const std::string mutated = mutate("seed 123", any_input, a, 40);
    CHECK(mutated.size() <= 40);
    CHECK(mutated == mutate("seed 123", any_input, b, 40));
    all.insert(mutated);
    chain = mutate(chain, any_input, other, 40);  // its own last result
    CHECK(chain.size() <= 40);
  }
  CHECK(all.size() > 1500);
  const auto some = [&](const char* part) {
    for (const std::string& text : all)
      if (text.find(part) != std::string::npos) return true;
    return false;
  };
  CHECK(some("word"));
  CHECK(some("18446744073709551615"));
  CHECK(some("\xFF\xFF\xFF\xFF"));
}

TEST_CASE("a fuzz run reports the input that broke the reader", "[fuzz]") {
  const FuzzTarget broken = {[](std::string_view input) {
                               if (input.size() > 4) throw std::runtime_error("too long");
                               return true;
                             },
                             {"seed"},
                             {}};
  std::string message;
  try {
    fuzz(broken, 1000, 1);
  } catch (const FuzzFailure& failure) {
    message = failure.what();
  }
  CHECK_THAT(message, Containing("round ") && Containing(": too long; the input: "));

  const FuzzTarget bad_seed = {[](std::string_view) { return false; }, {"\n"}, {}};
  CHECK_THROWS_WITH(fuzz(bad_seed, 1, 1), "seed 0 is refused");
  const FuzzTarget worse = {
      [](std::string_view) -> bool { throw std::runtime_error("no"); }, {"a\n"}, {}};
  CHECK_THROWS_WITH(fuzz(worse, 1, 1), "seed 0: no; the input: 610a");
}
