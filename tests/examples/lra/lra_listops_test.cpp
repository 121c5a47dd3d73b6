// ListOps: random expressions, their values, and files.

#include <array>
#include <cmath>
#include <set>

#include "examples/common/error.h"
#include "examples/lra/listops.h"
#include "examples/lra/tsv.h"
#include "tests/examples/temp_dir.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto;                     // NOLINT
using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT

int value(const std::string& text) { return evaluate_listops(parse_listops(text)); }

std::string refused(const std::string& text) {
  return error_of<UsageError>([&] { parse_listops(text); });
}

std::string refused(const ListOpsExpression& tokens) {
  return error_of<UsageError>([&] { evaluate_listops(tokens); });
}

constexpr ListOpsOptions small{.max_depth = 4, .max_args = 5, .min_length = 5, .max_length = 30};

struct Moments {
  double n = 0, sum = 0, squares = 0;
  void add(double x) { n += 1, sum += x, squares += x * x; }
  double mean() const { return sum / n; }
  double variance() const { return squares / n - mean() * mean(); }
};

}  // namespace

TEST_CASE("expressions evaluate to the values of their operators", "[examples]") {
  CHECK(value("7") == 7);
  CHECK(value("[MAX 2 9 [MIN 4 7 ] 0 ]") == 9);
  CHECK(value("[MIN 2 9 [MAX 4 7 ] 1 ]") == 1);
  CHECK(value("[SM 9 8 7 ]") == 4);
  CHECK(value("[MED 9 1 5 ]") == 5);
  CHECK(value("[MED 1 2 ]") == 1);  // 1.5, rounded down
  CHECK(value("[MED 9 2 3 0 ]") == 2);
  CHECK(value("[MED 4 4 8 8 ]") == 6);
  CHECK(value("[MED 3 ]") == 3);
  CHECK(value("[SM [MED 9 9 1 ] [MAX 8 8 ] [MIN 0 5 ] 5 ]") == 2);
  CHECK(value("[MAX [SM 5 5 ] 0 ]") == 0);
}

TEST_CASE("deeply nested expressions do not exhaust the stack", "[examples]") {
  constexpr int64_t depth = 200'000;
  ListOpsExpression tokens;
  for (int64_t i = 0; i < depth; ++i) {
    tokens.push_back(list_sum);
    tokens.push_back(1);
  }
  tokens.push_back(4);
  tokens.insert(tokens.end(), size_t(depth), list_end);
  CHECK(evaluate_listops(tokens) == 4);
  CHECK(parse_listops(listops_text(tokens)) == tokens);
  tokens.pop_back();
  CHECK(refused(tokens) == "the expression ends in 1 open list");
}

TEST_CASE("expressions are written as left-nested pairs", "[examples]") {
  CHECK(listops_text(parse_listops("3")) == "3");
  CHECK(listops_text(parse_listops("[MAX 2 9 ]")) == "( ( ( [MAX 2 ) 9 ) ] )");
  CHECK(listops_text(parse_listops("[SM 1 [MIN 4 7 ] 2 ]")) ==
        "( ( ( ( [SM 1 ) ( ( ( [MIN 4 ) 7 ) ] ) ) 2 ) ] )");
  CHECK(parse_listops("( ( ( [MAX 2 ) 9 ) ] )") == ListOpsExpression{list_max, 2, 9, list_end});
}

TEST_CASE("incomplete or invalid expressions are rejected", "[examples]") {
  CHECK(refused("") == "the expression is empty");
  CHECK(refused("( )") == "the expression is empty");
  CHECK(refused("1 2") == "the expression continues after its end");
  CHECK(refused("[MAX 1 ] ]") == "the expression continues after its end");
  CHECK(refused("]") == "a bracket is closed that was not opened");
  CHECK(refused("[MAX ]") == "a list has no arguments");
  CHECK(refused("[MAX [MIN 3 ") == "the expression ends in 2 open lists");
  CHECK(refused("[FIRST 1 2 ]") ==
        "\"[FIRST\" is not a token; the tokens are 0-9 ] [MAX [MED [MIN [SM");
  CHECK(refused("[MAX 10 ]") == "\"10\" is not a token; the tokens are 0-9 ] [MAX [MED [MIN [SM");
  CHECK(refused(std::string("1\0", 2) + std::string(100, 'x')).size() < 120);
  CHECK(refused(ListOpsExpression{list_max, 3, 15, list_end}) == "token 15; must be 0 to 14");
}

TEST_CASE("a seed gives the same expressions everywhere", "[examples]") {
  // Expected values from an independent implementation of generator and random numbers in Python.
  const ListOpsData few = generate_listops(3, 4, small);
  REQUIRE(few.expressions.size() == 4);
  CHECK(few.draws == 47);
  CHECK(listops_text(few.expressions[1]) ==
        "( ( ( ( ( ( [MAX ( ( ( [MAX 8 ) 0 ) ] ) ) 5 ) ( ( ( [MAX 4 ) ( ( ( [MED 4 ) 6 ) ] ) ) ] "
        ") ) 0 ) 1 ) ] )");
  CHECK(listops_text(few.expressions[3]) == "( ( ( ( [MED 8 ) 4 ) ( ( ( [SM 7 ) 9 ) ] ) ) ] )");
  const std::vector<int32_t> values{4, 8, 8, 6};
  CHECK(listops_sequences(few.expressions).labels == values);

  const ListOpsData full = generate_listops(1, 20);
  CHECK(full.draws == 262);
  CHECK(listops_sequences(full.expressions).fingerprint() == "04f284d551b02d55");
  // Here many expressions are drawn twice.
  const ListOpsData crowded =
      generate_listops(2, 300, {.max_depth = 3, .max_args = 3, .min_length = 3, .max_length = 6});
  CHECK(crowded.draws == 3010);
  CHECK(listops_sequences(crowded.expressions).fingerprint() == "a6fceb601be5c96e");
  std::set<std::string> different;
  for (const ListOpsExpression& e : crowded.expressions) different.insert(listops_text(e));
  CHECK(different.size() == 300);
}

TEST_CASE("random expressions keep to the limits", "[examples]") {
  PortableRandom random(8);
  ListOpsExpression tokens;
  for (int i = 0; i < 5000; ++i) {
    const bool whole = draw_listops(random, small, tokens);
    CHECK(whole == (tokens.size() < 30));
    if (!whole) continue;
    evaluate_listops(tokens);
    int depth = 1;
    for (const uint8_t token : tokens) {
      if (token == list_end) --depth;
      if (token >= list_max && token <= list_sum) REQUIRE(++depth <= 4);
    }
  }
  for (const ListOpsExpression& e : generate_listops(4, 50, small).expressions) {
    CHECK(e.size() > 5);
    CHECK(e.size() < 30);
  }
  CHECK(error_of<UsageError>(
            [] { generate_listops(1, 11, {.max_depth = 1, .min_length = 0, .max_length = 3}); }) ==
        "ListOps: found only 10 of 11 different expressions longer than 0 and shorter than 3");
}

TEST_CASE("ListOps has the published distribution", "[examples]") {
  // Compared with 400,000 draws (40,000 of them accepted) of another implementation.
  const ListOpsData data = generate_listops(7, 4000);
  const auto check_near = [](double got, double want, double variance, double n, double n_want) {
    CHECK(std::fabs(got - want) < 4 * std::sqrt(variance * (1 / n + 1 / n_want)));
  };
  check_near(4000.0 / double(data.draws), 0.083, 0.083 * 0.917, double(data.draws), 4e5);
  Moments length, leaves, operators;
  std::array<double, 10> answers{};
  for (const ListOpsExpression& e : data.expressions) {
    double n_operators = 0;
    for (const uint8_t token : e) n_operators += token == list_end;
    length.add(double(e.size()));
    operators.add(n_operators);
    leaves.add(double(e.size()) - 2 * n_operators);
    answers[size_t(evaluate_listops(e))] += 1.0 / 4000;
  }
  check_near(length.mean(), 1036, length.variance(), 4000, 4e4);
  check_near(leaves.mean(), 741, leaves.variance(), 4000, 4e4);
  check_near(operators.mean(), 147, operators.variance(), 4000, 4e4);
  check_near(answers[0], 0.170, 0.17 * 0.83, 4000, 4e4);
  check_near(answers[9], 0.168, 0.168 * 0.832, 4000, 4e4);
  for (size_t digit = 1; digit < 9; ++digit) {
    const double margin = 4 * std::sqrt(0.08 * 0.92 * (1 / 4000.0 + 1 / 4e4));
    CHECK(answers[digit] > 0.073 - margin);
    CHECK(answers[digit] < 0.089 + margin);
  }
}

TEST_CASE("ListOps ids include brackets, or omit them as in the published code", "[examples]") {
  const std::vector<ListOpsExpression> e{parse_listops("[SM 0 [MIN 9 [MED 1 ] ] [MAX 3 ] ]"), {5}};
  const LabeledSequences whole = listops_sequences(e), stripped = listops_sequences(e, true);
  const auto ids = [](const LabeledSequences& data, int64_t i) {
    const uint16_t* first = data.sequences[i];
    return std::vector<int>(first, first + data.sequences.length(i));
  };
  CHECK(ids(whole, 0) == std::vector<int>{14, 1, 13, 10, 12, 2, 15, 15, 11, 4, 15, 15});
  CHECK(ids(stripped, 0) == std::vector<int>{14, 1, 13, 10, 12, 2, 11, 4});
  CHECK(ids(stripped, 1) == std::vector<int>{6});
  CHECK(whole.labels == std::vector<int32_t>{4, 5});
  CHECK(stripped.labels == whole.labels);
  CHECK(listops_vocabulary(false) == 17);
  CHECK(listops_vocabulary(true) == 16);
}

TEST_CASE("ListOps files are the same after writing and reading; bad lines are reported",
          "[examples]") {
  const TempDir folder;
  const std::string path = folder.file("basic.tsv");
  const std::vector<ListOpsExpression> all = generate_listops(5, 30, small).expressions;
  write_listops(path, all);
  const std::string text = read_file(path);
  CHECK(text.rfind("Source\tTarget\r\n( ", 0) == 0);
  CHECK(text.substr(text.size() - 2) == "\r\n");
  CHECK(read_listops(path) == all);

  const auto read = [&](const std::string& lines) {
    write_file(path, lines);
    return error_of<UsageError>([&] { read_listops(path); });
  };
  const std::string heading = "Source\tTarget\n", good = "[MAX 1 2 ]\t2\n";
  CHECK(read(heading + good) == "(nothing thrown)");
  CHECK(read("\"Source\"\tTarget\r\n\"( ( [SM 4 ) ] )\"\t\"4\"") == "(nothing thrown)");
  CHECK(read("") == path + ": has no expressions");
  CHECK(read(heading) == path + ": has no expressions");
  CHECK(read(good) == path + ", line 1: must be the header: Source, a tab, Target");
  CHECK(read(heading + good + "[MAX 1 2 ]\t1\n") ==
        path + ", line 3: its target is \"1\", but the expression evaluates to 2");
  CHECK(read(heading + good + good + "[MAX 1 2\t2\n") ==
        path + ", line 4: the expression ends in 1 open list");
  CHECK(read(heading + "\n") == path + ": has no expressions");  // an empty last line
  CHECK(read(heading + "\n" + good) == path + ", line 2: has 1 of 2 tab-separated fields");
  CHECK(read(heading + "3\t3\t3\n") == path + ", line 2: has more than 2 fields");
  CHECK(read(heading + "\"3\t3\n") == path + ", line 2: a quoted field does not end");
  CHECK(read(heading + "\"3\"3\t3\n") == path + ", line 2: text follows a closing quote");
}

TEST_CASE("lines are quoted as Python's csv module does", "[examples]") {
  CHECK(tsv_line({"a b", "", "c,d"}) == "a b\t\tc,d\r\n");
  CHECK(tsv_line({"say \"a\"", "x\ty", "1\n2"}) == "\"say \"\"a\"\"\"\t\"x\ty\"\t\"1\n2\"\r\n");
  const TempDir folder;
  write_file(folder.file("t"), tsv_line({"say \"a\"", "x\ty", ""}) + "a\"b\t\"\"\t\"\"\"\"");
  std::vector<std::vector<std::string>> rows;
  read_tsv(folder.file("t"), 3, true, [&](const std::vector<std::string_view>& fields) {
    rows.emplace_back(fields.begin(), fields.end());
  });
  CHECK(rows ==
        std::vector<std::vector<std::string>>{{"say \"a\"", "x\ty", ""}, {"a\"b", "", "\""}});
}
