#include "nn/models/generation.h"

#include <array>
#include <cmath>
#include <limits>

#include "autograd/tape.h"
#include "ops/create.h"
#include "ops/indexing.h"
#include "tests/support/catch.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using nn::generate;
using nn::GenerationOptions;
using nn::sample;
using nn::SamplingOptions;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

Tensor logits(std::initializer_list<double> probabilities) {
  std::vector<double> values;
  for (const double p : probabilities) values.push_back(std::log(p));
  return tensor(values, {int64_t(values.size())});
}

// The number of times each token is sampled, for n random numbers evenly spaced over [0, 1).
std::vector<int64_t> counts(const Tensor& x, const SamplingOptions& o, int64_t n = 1000) {
  std::vector<int64_t> list(size_t(x.numel()));
  for (int64_t i = 0; i < n; ++i) ++list[size_t(sample(x, o, (double(i) + 0.5) / double(n)))];
  return list;
}

}  // namespace

using Counts = std::vector<int64_t>;

TEST_CASE("sample: shares of the random number are the probabilities") {
  const Tensor x = logits({0.1, 0.6, 0.3});
  CHECK(counts(x, {}) == Counts{100, 600, 300});
  // The most likely token first.
  CHECK(sample(x, {}, 0) == 1);
  CHECK(sample(x, {}, 0.599) == 1);
  CHECK(sample(x, {}, 0.601) == 2);
  CHECK(sample(x, {}, 0.899) == 2);
  CHECK(sample(x, {}, 0.901) == 0);
  CHECK(sample(x, {}, 1 - 0x1p-24) == 0);
  CHECK(sample(zeros({2}), {}, 0.5) == 1);  // exactly at the border
  CHECK(counts(x.to(f32), {}) == Counts{100, 600, 300});
}

TEST_CASE("sample: temperature changes the probabilities") {
  const Tensor x = logits({0.2, 0.8});
  CHECK(counts(x, {.temperature = 0.5}) == Counts{59, 941});  // 0.04 : 0.64
  CHECK(counts(x, {.temperature = 2}) == Counts{333, 667});   // √0.2 : √0.8
  CHECK(counts(x, {.temperature = 0}) == Counts{0, 1000});
  CHECK(counts(x, {.temperature = 1e-300}) == Counts{0, 1000});
  CHECK(sample(tensor<float>({1e30f, -1e30f, 0}), {.temperature = 1e-3}, 0.5) == 0);
}

TEST_CASE("sample: ties go to the lower token") {
  const Tensor x = tensor<float>({1, 3, 3, 0, 3});
  CHECK(sample(x, {.temperature = 0}, 0.9) == 1);
  CHECK(counts(x, {.top_k = 1}) == Counts{0, 1000, 0, 0, 0});
  CHECK(counts(x, {.top_k = 2}) == Counts{0, 500, 500, 0, 0});
  CHECK(sample(zeros({5}), {}, 0) == 0);
  CHECK(sample(zeros({5}), {}, 0.99) == 4);
  CHECK(sample(tensor<float>({-0.0f, 0, -0.0f, 0}), {}, 0.3) == 1);  // −0 ties with 0
  CHECK(sample(tensor<float>({-0.0f, 0, -0.0f, 0}), {}, 0.7) == 2);
}

TEST_CASE("sample: top_k keeps only the k most likely tokens") {
  const Tensor x = logits({0.1, 0.4, 0.2, 0.3});
  CHECK(counts(x, {.top_k = 1}) == Counts{0, 1000, 0, 0});
  CHECK(counts(x, {.top_k = 2}, 700) == Counts{0, 400, 0, 300});
  CHECK(counts(x, {.top_k = 4}) == Counts{100, 400, 200, 300});
  CHECK(counts(x, {.top_k = 99}) == Counts{100, 400, 200, 300});
}

TEST_CASE("sample: top_p keeps only the most likely tokens that together reach p") {
  const Tensor x = tensor<float>({0, 0, 0, 0});  // a quarter each, exactly
  CHECK(counts(x, {.top_p = 1e-9}) == Counts{1000, 0, 0, 0});
  CHECK(counts(x, {.top_p = 0.25}) == Counts{1000, 0, 0, 0});
  CHECK(counts(x, {.top_p = 0.26}) == Counts{500, 500, 0, 0});
  CHECK(counts(x, {.top_p = 0.5}) == Counts{500, 500, 0, 0});
  CHECK(counts(x, {.top_p = 0.76}) == Counts{250, 250, 250, 250});
  CHECK(counts(x, {.top_p = 1}) == Counts{250, 250, 250, 250});
  const Tensor y = logits({0.1, 0.6, 0.3});
  CHECK(counts(y, {.top_p = 0.61}, 900) == Counts{0, 600, 300});
  CHECK(counts(y, {.top_p = 0.59}) == Counts{0, 1000, 0});
  // Applied to the tokens that top_k has left, after the temperature.
  CHECK(counts(y, {.top_k = 2, .top_p = 0.65}) == Counts{0, 1000, 0});
  CHECK(counts(y, {.temperature = 100, .top_p = 0.5}, 2)[0] == 0);
}

TEST_CASE("sample: forbidden tokens are never sampled") {
  const Tensor x = logits({0.1, 0.6, 0.3});
  CHECK(counts(x, {.forbidden = {1}}, 400) == Counts{100, 0, 300});
  CHECK(sample(x, {.temperature = 0, .forbidden = {1}}, 0) == 2);
  CHECK(counts(x, {.top_k = 1, .forbidden = {1, 2}}) == Counts{1000, 0, 0});
  CHECK(counts(x, {.forbidden = {7, -1}}) == Counts{100, 600, 300});
}

TEST_CASE("sample: a logit of minus infinity is never sampled") {
  const Tensor x = tensor<float>({-infinity, 0, -infinity, 0});
  CHECK(counts(x, {}) == Counts{0, 500, 0, 500});
  for (const double draw : {0.0, 0.5, 1 - 0x1p-24, 1 - 0x1p-53}) {
    const int64_t token = sample(x, {}, draw);
    CHECK((token == 1 || token == 3));
  }
  CHECK(counts(x, {.top_k = 3}) == Counts{0, 500, 0, 500});
}

TEST_CASE("sample: errors") {
  const Tensor x = zeros({3});
  CHECK_THROWS_WITH(sample(tensor<float>({0, NAN, 1}), {}, 0.5), "[sample] the logits contain NaN");
  CHECK_THROWS_WITH(sample(tensor<float>({0, infinity, 1}), {}, 0.5),
                    Containing("[sample] the largest logit is inf; must be finite"));
  CHECK_THROWS_WITH(sample(tensor<float>({-infinity, -infinity}), {}, 0.5),
                    Containing("[sample] the largest logit is -inf"));
  CHECK_THROWS_WITH(sample(x, {.temperature = -1}, 0),
                    "[sample] temperature -1; must be 0 or more");
  CHECK_THROWS_WITH(sample(x, {.temperature = NAN}, 0), Containing("[sample] temperature nan"));
  CHECK_THROWS_WITH(sample(x, {.temperature = infinity}, 0), Containing("temperature inf"));
  CHECK_THROWS_WITH(sample(x, {.top_k = -1}, 0), "[sample] top_k -1; must be 0 (all) or more");
  for (const double p : {0.0, -0.5, 1.01, double(NAN)})
    CHECK_THROWS_WITH(sample(x, {.top_p = p}, 0), Containing("; must be above 0, at most 1"));
  CHECK_THROWS_WITH(sample(x, {.forbidden = {0, 1, 2}}, 0), "[sample] every token is forbidden");
  CHECK_THROWS_WITH(sample(zeros({1, 3}), {}, 0), "[sample] logits f32 [1, 3]; must be [V]");
  CHECK_THROWS_WITH(sample(zeros({0}), {}, 0), "[sample] logits f32 [0]; must be [V]");
}

TEST_CASE("generate: it passes the prompt once, then each new token") {
  std::vector<std::vector<int64_t>> seen;
  auto model = [&](const Tensor& tokens) {
    CHECK_FALSE(grad_enabled());
    CHECK(tokens.dtype() == i64);
    CHECK(tokens.size(0) == 1);
    seen.push_back(tokens.to_vector<int64_t>());
    Tensor y = zeros({1, tokens.size(1), 10});  // the next token is the last one plus 1
    y[0][-1].slice(0, seen.back().back() + 1, seen.back().back() + 2).fill_(100);
    return y;
  };
  const GenerationOptions options{.max_tokens = 4};
  CHECK(generate(model, {7, 2, 1}, options) == std::vector<int64_t>{2, 3, 4, 5});
  CHECK(seen == std::vector<std::vector<int64_t>>{{7, 2, 1}, {2}, {3}, {4}});
  CHECK(grad_enabled());
}

TEST_CASE("generate: it ends at the end token, at max_tokens, or when the callback returns false") {
  int64_t calls = 0;
  auto model = [&](const Tensor& tokens) {
    ++calls;
    Tensor y = zeros({1, tokens.size(1), 10});
    const int64_t next = (tokens[0][-1].item() < 9 ? int64_t(tokens[0][-1].item()) : 0) + 1;
    y[0][-1].slice(0, next, next + 1).fill_(100);
    return y;
  };
  CHECK(generate(model, {1}, {.max_tokens = 5, .end_tokens = {4}}) ==
        std::vector<int64_t>{2, 3, 4});
  CHECK(calls == 3);
  CHECK(generate(model, {1}, {.max_tokens = 0}).empty());
  CHECK(calls == 3);
  CHECK(generate(model, {1, 4}, {.max_tokens = 2, .end_tokens = {4}}) ==
        std::vector<int64_t>{5, 6});
  std::vector<int64_t> heard;
  const auto tokens = generate(model, {1}, {.max_tokens = 50}, [&](int64_t token) {
    heard.push_back(token);
    return token != 6;
  });
  CHECK(tokens == std::vector<int64_t>{2, 3, 4, 5, 6});
  CHECK(heard == tokens);
  CHECK_THROWS_WITH(generate(model, {}, {}),
                    "[generate] the prompt is empty; pass at least a start token");
  CHECK_THROWS_WITH(generate(model, {1}, {.max_tokens = -1}), Containing("max_tokens -1"));
}

TEST_CASE("generate: it ends at one of several end tokens, or at a stop string") {
  auto model = [&](const Tensor& tokens) {
    Tensor y = zeros({1, tokens.size(1), 30});
    const auto next = int64_t(tokens[0][-1].item()) + 1;
    y[0][-1].slice(0, next, next + 1).fill_(100);
    return y;
  };
  CHECK(generate(model, {1}, {.max_tokens = 20, .end_tokens = {9, 4, 6}}) ==
        std::vector<int64_t>{2, 3, 4});
  GenerationOptions o{.max_tokens = 9, .stop_strings = {"zz", "gh"}};
  CHECK_THROWS_WITH(generate(model, {1}, o),
                    "[generate] stop_strings need the text of the tokens; set "
                    "GenerationOptions::decode");
  std::vector<std::vector<int64_t>> decoded;
  o.decode = [&](const std::vector<int64_t>& tokens) {
    decoded.push_back(tokens);
    std::string text;
    for (const int64_t token : tokens) text += char('a' + token);
    return text;
  };
  CHECK(generate(model, {1}, o) == std::vector<int64_t>{2, 3, 4, 5, 6, 7});  // cdefgh
  CHECK(decoded.size() == 6);
  CHECK(decoded[1] == std::vector<int64_t>{2, 3});  // without the prompt
  o.stop_strings = {"b"};                           // in the prompt only
  CHECK(generate(model, {1}, o).size() == 9);
  o.stop_strings = {"c", ""};
  CHECK_THROWS_WITH(generate(model, {1}, o),
                    "[before_stop] a stop string is empty; must have at least one byte");
}

TEST_CASE("generate: a long text is decoded only from near its end for stop strings") {
  const auto model = [](const Tensor& tokens) { return zeros({1, tokens.size(1), 26}); };
  int64_t decoded = 0;
  GenerationOptions o{.max_tokens = 3000, .stop_strings = {"qz-"}, .seed = 3};
  o.decode = [&](const std::vector<int64_t>& tokens) {
    decoded += int64_t(tokens.size());
    std::string text;
    for (const int64_t token : tokens) text += char('a' + token);
    return text;
  };
  const std::vector<int64_t> all = generate(model, {0}, {.max_tokens = 3000, .seed = 3});
  const std::string text = o.decode(all);
  decoded = 0;
  CHECK(generate(model, {0}, o) == all);
  CHECK(decoded < 3000 * 400);
  // A decoder that changes the first character, as SentencePiece removes a leading blank.
  const auto decode = o.decode;
  o.decode = [&](const std::vector<int64_t>& tokens) { return decode(tokens).replace(0, 1, "?"); };
  decoded = 0;
  CHECK(generate(model, {0}, o) == all);
  CHECK(decoded < 3000 * 400);
  o.decode = decode;
  // Every three letters that the text contains end it where they first occur.
  for (const size_t at : {5, 90, 260, 270, 1000, 2990}) {
    o.stop_strings = {"-", text.substr(at, 3)};
    CHECK(generate(model, {0}, o).size() == text.find(o.stop_strings[1]) + 3);
  }
}

TEST_CASE("generate: it reports why it has ended") {
  const auto model = [](const Tensor& tokens) {
    Tensor y = zeros({1, tokens.size(1), 10});
    const auto next = int64_t(tokens[0][-1].item()) + 1;
    y[0][-1].slice(0, next, next + 1).fill_(100);
    return y;
  };
  using nn::GenerationEnd;
  const auto end_of = [&](GenerationOptions o, int64_t refused = -1) {
    std::vector<GenerationEnd> ends;
    o.decode = [](const std::vector<int64_t>& tokens) { return std::to_string(tokens.back()); };
    o.on_end = [&](int64_t prompt, GenerationEnd end) {
      CHECK(prompt == 0);
      ends.push_back(end);
    };
    generate(model, {1}, o, [&](int64_t token) { return token != refused; });
    REQUIRE(ends.size() == 1);
    return ends[0];
  };
  CHECK(end_of({.max_tokens = 4}) == GenerationEnd::max_tokens);
  CHECK(end_of({.max_tokens = 0}) == GenerationEnd::max_tokens);
  CHECK(end_of({.max_tokens = 4, .end_tokens = {5}}) == GenerationEnd::end_token);
  CHECK(end_of({.max_tokens = 4, .stop_strings = {"5"}}) == GenerationEnd::stop_string);
  CHECK(end_of({.max_tokens = 4}, 3) == GenerationEnd::callback);
}

TEST_CASE("before_stop: text up to the first stop string, without the beginning of one") {
  const auto cut = [](const std::string& text, const std::vector<std::string>& stops) {
    const nn::TextBeforeStop found = nn::before_stop(text, stops);
    return found.text + (found.stopped ? "|" : "");
  };
  CHECK(cut("abc", {}) == "abc");
  CHECK(cut("abc", {"x"}) == "abc");
  CHECK(cut("abcd", {"cd"}) == "ab|");
  CHECK(cut("abc", {"cd"}) == "ab");
  CHECK(cut("abcx", {"cd"}) == "abcx");
  CHECK(cut("aab", {"aabb", "ba"}).empty());
  CHECK(cut("xaaa", {"aab"}) == "xa");
  CHECK(cut("xaab", {"aab", "zz"}) == "x|");
  CHECK(cut("", {"a"}).empty());
  CHECK(cut("abcd", {"abcd", "bc"}) == "a|");  // the one that ends first
  CHECK(cut("abcd", {"cd", "bcd"}) == "a|");
  CHECK(cut("stop and stop", {"stop"}) == "|");
  // Text that was printed remains the beginning of the text that is printed later.
  const std::string text = "aab aba abab abb";
  for (const std::vector<std::string>& stops :
       {std::vector<std::string>{"abab", "bb"}, {"ab a", "b ab"}, {"abb"}, {"c"}}) {
    std::string before;
    for (size_t n = 0; n <= text.size(); ++n) {
      const std::string now = nn::before_stop(text.substr(0, n), stops).text;
      CHECK(now.substr(0, before.size()) == before);
      before = now;
    }
  }
}

TEST_CASE("generate: a seed repeats a run, another one does not") {
  auto model = [](const Tensor& tokens) { return zeros({1, tokens.size(1), 50}); };
  auto run = [&](uint64_t seed) { return generate(model, {0}, {.max_tokens = 40, .seed = seed}); };
  const RandomState before = random_state();
  CHECK(run(1) == run(1));
  CHECK(run(1) != run(2));
  CHECK(random_state().next_stream == before.next_stream);
  // A longer run begins with the shorter one.
  auto longer = generate(model, {0}, {.max_tokens = 60, .seed = 1});
  longer.resize(40);
  CHECK(longer == run(1));
}

TEST_CASE("generate: its random numbers are not those of weights made from the same seed") {
  // All tokens are equally likely: the sampled token is the random number in units of 1/V.
  constexpr int64_t n = 1 << 12;
  const auto model = [&](const Tensor&) { return zeros({1, 1, n}); };
  const auto tokens = generate(model, {0}, {.max_tokens = 50, .seed = 7});
  for (const uint64_t stream : {0, 1, 2}) {
    const Tensor uniform = rand({50}, RandomKey{.seed = 7, .stream = stream}, {.dtype = f32});
    int64_t equal = 0;
    for (size_t i = 0; i < tokens.size(); ++i)
      equal += tokens[i] == int64_t(uniform[int64_t(i)].item() * double(n));
    CHECK(equal < 5);  // 50 in 4096 by chance
  }
  manual_seed(7);
  CHECK(next_random_key().stream == 0);
}

TEST_CASE("generate: frequencies are softmax of the logits, within 4 standard errors") {
  const std::array<double, 5> score{0.3, -1.2, 2.0, 0.0, -3.0};
  auto model = [&](const Tensor& tokens) {
    return tensor(std::vector<double>(score.begin(), score.end()), {1, 1, 5})
        .expand({1, tokens.size(1), 5});
  };
  for (const double temperature : {1.0, 0.5, 3.0}) {
    const int64_t n = 20000;
    const auto tokens = generate(
        model, {0}, {.max_tokens = n, .seed = 17, .sampling = {.temperature = temperature}});
    std::array<double, 5> p{};
    double total = 0;
    for (size_t i = 0; i < 5; ++i) total += p[i] = std::exp(score[i] / temperature);
    for (size_t i = 0; i < 5; ++i) {
      const double share = double(std::count(tokens.begin(), tokens.end(), int64_t(i))) / double(n);
      p[i] /= total;
      INFO("temperature " << temperature << ", token " << i);
      CHECK(std::fabs(share - p[i]) < 4 * std::sqrt(p[i] * (1 - p[i]) / double(n)));
    }
  }
}
