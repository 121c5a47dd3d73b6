// The program lra: its output and files, stopping and resuming, invalid inputs.

#include <cmath>

#include "examples/common/settings.h"
#include "examples/lra/lra_settings.h"
#include "examples/lra/sequences.h"
#include "tests/examples/tiny_run.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT

/// Trains on short expressions.
class TinyLra : public TinyRun {
 public:
  TinyLra()
      : TinyRun("lra", words("--small --expressions 200 --held-out-expressions 40 --max-depth 2 "
                             "--min-expression 2 --max-expression 8 --max-length 8 --layers 1 "
                             "--d-model 16 --d-head 0 --heads 2 --d-hidden 32 --batch 8 --warmup 5 "
                             "--steps 60 --save-every 7")) {}
};

}  // namespace

TEST_CASE("lra trains, evaluates and draws, also with data that it wrote before", "[examples]") {
  NEEDS_PROGRAM("lra");
  const TinyLra tiny;
  const Ended ended = tiny.run({"--write-data"});
  INFO(ended.err);
  REQUIRE(ended.status == 0);
  CHECK_THAT(ended.out,
             Containing("Generated 200 examples for training, 40 for validation and 40 "
                        "for testing. Task listops, attention softmax, position sinusoid, "));
  CHECK_THAT(ended.out, Containing("\nValidation accuracy "));
  CHECK_THAT(ended.out, Containing("\nTest accuracy "));
  CHECK_THAT(ended.err, Containing(", baseline "));
  CHECK_THAT(read_file(tiny.out("loss.svg")), Containing(">class frequencies</text>"));
  CHECK_THAT(ended.out, Containing(") of 40; most frequent class "));
  CHECK(count_lines(read_file(tiny.out("evaluation.csv"))) == 3);
  CHECK(count_lines(read_file(tiny.out("metrics.csv"))) == 21);
  CHECK(count_lines(read_file(tiny.out("basic_train.tsv"))) == 201);
  CHECK(count_lines(read_file(tiny.out("basic_test.tsv"))) == 41);
  CHECK(tiny.drew("loss"));

  // --evaluate prints the same results from the checkpoint and does not change it.
  const auto results = [](const std::string& text) { return text.substr(text.find("Validation")); };
  const auto before = contents(tiny.out());
  const Ended again = tiny.resume({"--evaluate", "--out", tiny.file("again")});
  INFO(again.err);
  CHECK(again.status == 0);
  CHECK(results(again.out) == results(ended.out));
  CHECK(contents(tiny.out()) == before);
  CHECK(!std::filesystem::exists(tiny.file("again/checkpoint.safetensors")));

  // Training on the written files gives the same results.
  const Ended read =
      tiny.run({"--data", tiny.out("basic_train.tsv"), "--validation", tiny.out("basic_val.tsv"),
                "--test", tiny.out("basic_test.tsv"), "--out", tiny.file("read")});
  INFO(read.err);
  CHECK(read.status == 0);
  CHECK_THAT(read.out, Containing("Read 200 examples"));
  CHECK(results(read.out) == results(ended.out));
}

TEST_CASE("lra reports classes without examples", "[examples]") {
  NEEDS_PROGRAM("lra");
  const TinyLra tiny;
  std::string rows = "Source\tTarget\n";
  for (int i = 0; i < 20; ++i) rows += i % 10 == 0 ? "7\t7\n" : "2\t2\n";
  write_file(tiny.file("two.tsv"), rows);
  const Ended ended = tiny.run({"--data", tiny.file("two.tsv"), "--steps", "1"});
  INFO(ended.err);
  REQUIRE(ended.status == 0);
  CHECK_THAT(ended.out, Containing("\nClasses without training examples: 0, 1, 3, 4, 5, 6, "));
  CHECK_THAT(ended.out, Containing("\nClasses without validation examples: 0, 1, 3, "));
  CHECK_THAT(ended.out, !Containing("Classes without test examples"));
}

TEST_CASE("lra compares validation with the class frequencies on the same examples", "[examples]") {
  NEEDS_PROGRAM("lra");
  const TinyLra tiny;
  const auto rows = [](int twos, int sevens) {
    std::string text = "Source\tTarget\n";
    for (int i = 0; i < twos; ++i) text += "2\t2\n";
    for (int i = 0; i < sevens; ++i) text += "7\t7\n";
    return text;
  };
  write_file(tiny.file("train.tsv"), rows(18, 2));
  write_file(tiny.file("valid.tsv"), rows(10, 10));  // sorted: the first ten have the same class
  const Ended ended =
      tiny.run({"--data", tiny.file("train.tsv"), "--validation", tiny.file("valid.tsv"),
                "--validation-examples", "10", "--steps", "1", "--evaluate-every", "1"});
  INFO(ended.err);
  REQUIRE(ended.status == 0);
  const size_t at = ended.err.find(", baseline ");
  REQUIRE(at != std::string::npos);
  const double counting = std::stod(ended.err.substr(at + 11));
  int64_t sevens = 0;
  for (const int64_t row : sample_rows(20, 10, LraSettings().seed)) sevens += row >= 10;
  CHECK((sevens > 0 && sevens < 10));
  CHECK(counting ==
        Approx((double(10 - sevens) * std::log(30.0 / 19) + double(sevens) * std::log(10.0)) / 10)
            .margin(1e-4));
}

TEST_CASE("lra rejects invalid inputs in one line", "[examples]") {
  NEEDS_PROGRAM("lra");
  const TinyLra tiny;
  REQUIRE(tiny.run({"--steps", "3"}).status == 0);
  write_file(tiny.file("bad.tsv"), "Source\tTarget\r\n[MAX 1 2 ]\t2\r\n[MAX 1 2 ]\t1\r\n");
  write_file(tiny.file("bad.gz"), "\x1F\x8B\x08 packed");
  write_file(tiny.file("escapes.tsv"), "Source\tTarget\r\n7\t\x1B[2J\r7\x7F\r\n");
  const std::string checkpoint = tiny.out("checkpoint.safetensors");
  check_refusals(
      tiny,
      {
          {{"--task", "path"}, "--task path: accepted values are image, listops, retrieval, text"},
          {{"--data", tiny.file("none")},
           "cannot read '" + tiny.file("none") + "': No such file or directory"},
          {{"--data", tiny.file("bad.tsv")},
           tiny.file("bad.tsv") +
               ", line 3: its target is \"1\", but the expression evaluates to 2"},
          {{"--data", tiny.file("bad.gz")},
           tiny.file("bad.gz") + ": is gzip-compressed; expected a tab-separated table"},
          {{"--data", tiny.file("escapes.tsv")},
           tiny.file("escapes.tsv") +
               ", line 2: its target is \" [2J 7 \", but the expression evaluates to 7"},
          {{"--task", "text"}, "--task text: needs --data FILE"},
          {{"--validation", tiny.file("bad.tsv")}, "--validation: needs --data FILE"},
          {{"--validation-examples", "-1"},
           "--validation-examples -1: accepted values are 0 to 9223372036854775807"},
          {{"--steps", "3", "--resume", tiny.file("bad.tsv")},
           "[safetensors] " + tiny.file("bad.tsv") +
               ": header of 6055482651772809043 bytes; at most 100000000 allowed; it looks like "
               "text: \"Source?Target?"
               "?[MAX 1 2 ]?2?"
               "?[MAX 1 2 ]?1?"
               "?\""},
      });
}
