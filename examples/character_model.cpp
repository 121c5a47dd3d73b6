// Learns a text character by character and writes on, with a small LLaMA.
//
//     character_model [FILE]
//
// Without a file it learns a rhyme that grows verse by verse; the last tenth is held out.
#include <stretto.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
using namespace stretto;

std::string rhyme() {
  const std::string lines[] = {"the house that Jack built.\n\n",
                               "the malt\nThat lay in ",
                               "the rat\nThat ate ",
                               "the cat\nThat killed ",
                               "the dog\nThat worried ",
                               "the cow with the crumpled horn\nThat tossed ",
                               "the maiden all forlorn\nThat milked ",
                               "the man all tattered and torn\nThat kissed ",
                               "the priest all shaven and shorn\nThat married ",
                               "the cock that crowed in the morn\nThat waked ",
                               "the farmer sowing his corn\nThat kept "};
  std::string text, verse;
  for (const std::string& line : lines) text += "This is " + (verse = line + verse);
  return text;
}

// The characters of a text as numbers, in their order.
struct Characters {
  explicit Characters(const std::string& text) {
    const std::set<char> all(text.begin(), text.end());
    of_number.assign(all.begin(), all.end());
  }
  std::vector<int64_t> encode(const std::string& text) const {
    std::vector<int64_t> numbers;
    for (char c : text) numbers.push_back(int64_t(of_number.find(c)));
    return numbers;
  }
  std::string of_number;
};

int main(int argc, char** argv) {
  std::string text = rhyme();
  if (argc > 1) {
    std::ifstream file(argv[1], std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  const int64_t length = 64, batch = 16, steps = 300;
  if (int64_t(text.size()) < 20 * length) {
    std::fprintf(stderr, "the text is missing, or too short to learn from\n");
    return 1;
  }
  const Characters characters(text);
  const int64_t n = int64_t(text.size()), n_train = n * 9 / 10;
  const Tensor all = tensor(characters.encode(text), {n});

  manual_seed(1);
  nn::LanguageModel::Options options = nn::llama(int64_t(characters.of_number.size()));
  options.n_layers = 2;
  options.window = length / 2;  // rotary positions do not go on past the lags that were trained
  options.layer.d_model = 64;
  options.layer.n_heads = 4;
  options.layer.d_hidden = 128;
  nn::LanguageModel model(options);
  nn::AdamW optimizer(model.parameters(), {.lr = 3e-3});
  const nn::Schedule schedule = nn::WarmupCosine{.peak = 3e-3, .warmup = 20, .steps = steps};

  // Windows of length + 1 characters: each but the last is answered by the next.
  const auto loss_at = [&](const std::vector<int64_t>& starts) {
    Tensors windows;
    for (int64_t at : starts) windows.push_back(all.slice(0, at, at + length + 1));
    const Tensor window = stack(windows, 0);
    return cross_entropy(model(window.slice(1, 0, length)), window.slice(1, 1, length + 1));
  };
  const auto held_out = [&] {
    const NoGrad guard;
    std::vector<int64_t> starts;
    for (int64_t at = n_train; at + length < n; at += length) starts.push_back(at);
    return loss_at(starts).item();
  };

  for (int64_t step = 1; step <= steps; ++step) {
    const Tensor loss = loss_at(randint(0, n_train - length, {batch}).to_vector<int64_t>());
    optimizer.zero_grad();
    loss.backward();
    nn::clip_grad_norm(model.parameters(), 1.0);
    optimizer.set_learning_rate(schedule.at(step));
    optimizer.step();
    if (step % 50 == 0)
      std::printf("step %3d  loss %.3f  held out %.3f nats per character\n", int(step), loss.item(),
                  held_out());
  }

  nn::LanguageModel::Cache cache;
  const std::string prompt = text.substr(0, 8);
  std::printf("\n%s", prompt.c_str());
  nn::generate([&](const Tensor& tokens) { return model(tokens, &cache); },
               characters.encode(prompt), {.max_tokens = 300, .sampling = {.temperature = 0.7}},
               [&](int64_t token) {
                 std::putchar(characters.of_number[size_t(token)]);
                 return true;
               });
  std::printf("\n");
}
