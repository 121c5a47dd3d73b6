// Translates numbers from English to French with an encoder-decoder Transformer and beam search.
//
// Every eleventh number below a thousand is held out.
#include <stretto/stretto.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <sstream>
#include <string>
using namespace stretto;

std::vector<std::string> split(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

std::string english(int n) {
  static const auto small = split(
      "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
      "fifteen sixteen seventeen eighteen nineteen");
  static const auto tens = split("twenty thirty forty fifty sixty seventy eighty ninety");
  if (n >= 100)
    return english(n / 100) + " hundred" + (n % 100 > 0 ? " and " + english(n % 100) : "");
  if (n >= 20) return tens[size_t(n / 10 - 2)] + (n % 10 > 0 ? " " + english(n % 10) : "");
  return small[size_t(n)];
}

std::string french(int n) {
  static const auto small = split(
      "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze "
      "seize dix-sept dix-huit dix-neuf");
  static const auto tens = split("vingt trente quarante cinquante soixante soixante");
  if (n >= 200) return french(n / 100) + (n % 100 > 0 ? " cent " + french(n % 100) : " cents");
  if (n >= 100) return n > 100 ? "cent " + french(n - 100) : "cent";
  if (n >= 80) return n > 80 ? "quatre vingt " + french(n - 80) : "quatre vingts";
  if (n < 20) return small[size_t(n)];
  const int rest = n >= 60 ? n - 60 : n % 10;
  const std::string& ten = tens[size_t(n / 10 - 2)];
  return rest == 0 ? ten : ten + (rest % 10 == 1 ? " et " : " ") + french(rest);
}

enum { padding, begin, end };

// The vocabulary of a language; the id of a word is its index.
struct Words {
  explicit Words(std::string (*say)(int)) {
    for (int n = 1; n < 1000; ++n) encode(say(n));
  }
  std::vector<int64_t> encode(const std::string& text) {
    std::vector<int64_t> numbers;
    for (const std::string& word : split(text)) {
      numbers.push_back(std::ranges::find(all, word) - all.begin());
      if (numbers.back() == size()) all.push_back(word);
    }
    return numbers;
  }
  std::string decode(const std::vector<int64_t>& tokens) const {
    std::string text;
    for (int64_t token : tokens)
      if (token > end) text += (text.empty() ? "" : " ") + all[size_t(token)];
    return text;
  }
  int64_t size() const { return int64_t(all.size()); }
  std::vector<std::string> all{"<padding>", "<begin>", "<end>"};
};

int main(int argc, char** argv) {
  const nn::DeviceConfig config = nn::parse_device_args(argc, argv);  // --device cuda, --dtype bf16
  const Device device = config.device;
  Words source(english), target(french);
  manual_seed(1);
  nn::SequenceToSequence::Options options = nn::transformer_base(source.size(), target.size());
  options.n_encoder_layers = options.n_decoder_layers = 2;
  options.layer.d_model = 64, options.layer.attention.n_heads = 4,
  options.layer.feed_forward.d_hidden = 128;
  nn::SequenceToSequence model(options);
  model.to(device).to(config.dtype);
  nn::AdamW optimizer(model.parameters(), {.lr = 2e-3});
  for (int step = 1; step <= 400; ++step) {
    std::vector<std::vector<int64_t>> from, to;
    for (int64_t n : randint(1, 1000, {64}).to_vector<int64_t>()) {
      if (n % 11 == 0) continue;  // held out
      from.push_back(source.encode(english(int(n))));
      to.push_back(target.encode(french(int(n))));
      to.back().insert(to.back().begin(), begin);
      to.back().push_back(end);
    }
    const nn::PaddedRows read = nn::pad_rows(from, 0, padding).to(device);
    const Tensor written = nn::pad_rows(to, 0, padding).tokens.to(device);
    const Tensor logits = model(read.tokens, written.slice(1, 0, -1), read.padding);
    const Tensor loss = cross_entropy(logits, written.slice(1, 1), {.ignore_index = padding});
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    if (step % 100 == 0) std::printf("step %d  loss %.4f\n", step, loss.item());
  }

  const nn::EvalMode guard(model);
  int asked = 0, right = 0;
  for (int n = 11; n < 1000; n += 11) {
    const Tensor context =
        model.encode(nn::pad_rows({source.encode(english(n))}).tokens.to(device));
    nn::SequenceToSequence::Cache cache;
    const nn::Hypothesis best = nn::beam_search(
        [&](const Tensor& tokens) { return model.decode(tokens.to(device), context, {}, &cache); },
        [&](const Tensor& rows) { cache.reorder(rows.to(device)); }, {begin},
        {.beam = 4, .length_penalty = 0.6, .max_tokens = 12, .end_tokens = {end}})[0];
    const std::string said = target.decode(best.tokens);
    right += target.encode(said) == target.encode(french(n));
    if (++asked % 15 == 0) std::printf("%s: %s\n", english(n).c_str(), said.c_str());
  }
  std::printf("held out: %d of %d right\n", right, asked);
}
