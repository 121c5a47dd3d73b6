// --device and --dtype of a command line.
#include "nn/training/place.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"

using namespace stretto;

namespace {

struct Line {
  explicit Line(std::vector<std::string> words) : words_(std::move(words)) {
    for (std::string& word : words_) argv.push_back(word.data());
    argv.push_back(nullptr);
    argc = int(words_.size());
  }
  std::vector<std::string> rest() const { return {argv.begin() + 1, argv.begin() + argc}; }

  int argc;
  std::vector<char*> argv;

 private:
  std::vector<std::string> words_;
};

}  // namespace

TEST_CASE("take_place takes its options and leaves the others") {
  Line none({"program"});
  const nn::Place plain = nn::take_place(none.argc, none.argv.data());
  CHECK(plain.device == cpu);
  CHECK(plain.dtype == f32);
  CHECK(none.argc == 1);

  Line both({"program", "a", "--dtype", "bf16", "b", "--device", "cpu", "--other"});
  const nn::Place place = nn::take_place(both.argc, both.argv.data());
  CHECK(place.device == cpu);
  CHECK(place.dtype == bf16);
  CHECK(both.rest() == std::vector<std::string>{"a", "b", "--other"});
  CHECK(both.argv[size_t(both.argc)] == nullptr);
}
