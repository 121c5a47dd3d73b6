// Trains a language model on sequences of whole numbers, whatever they stand for: music tokenized by
// another program, events, the letters of a genome. All of it is in this file: copy it for data of
// your own.
//
// Input: --data FILE with a sequence per line, commas or blanks between the numbers; or generated
// sequences. Output, in --out DIR: checkpoint, metrics.csv, the loss curve, and generated.csv, which
// continues a held-out sequence.
#include <algorithm>
#include <iostream>

#include "core/digest.h"
#include "examples/common/counting.h"
#include "examples/common/error.h"
#include "examples/common/file.h"
#include "examples/common/text_file.h"
#include "examples/training/model_program.h"
#include "nn/data/crops.h"
#include "nn/data/draws.h"
#include "nn/models/generation.h"
#include "nn/training/evaluate.h"

namespace stretto::examples {
namespace {

using Sequences = std::vector<std::vector<int64_t>>;

struct TokensSettings : ModelSettings {
  TokensSettings() : ModelSettings{.position = "xl"} {}

  int64_t vocabulary = 64;
  int64_t length = 128;
  double weight_decay = 0.01;

  template <class S, class F>
  static void each(S& s, F&& f) {
    f("vocabulary", s.vocabulary, "Number of different tokens: 0 to vocabulary - 1",
      between(2, 1 << 24));
    each_of_run(s, f);
    each_of_model(s, f);
    f("length", s.length, "Sequence length of training crops in tokens", between(2, 1 << 20));
    f("weight_decay", s.weight_decay, "Decoupled weight decay", require_not_negative);
  }
  void check() const {
    check_each(*this);
    check_model();
    check_position(positions());
  }
  nn::PositionSettings positions() const { return position_settings(length); }
  nn::LanguageModel::Options model() const {
    nn::LanguageModel::Options o{.vocabulary = vocabulary, .n_layers = layers, .layer = layer()};
    nn::add_position(position, positions(), o.layer, o.input);
    return o;
  }
  double least_memory() const {
    return least_memory_of<nn::LanguageModel>(model(), double(batch * length), double(vocabulary));
  }
};

Sequences read_sequences(const std::string& path, int64_t vocabulary) {
  Sequences all;
  each_line(read_whole_file(path), path, [&](std::string_view line, int64_t number) {
    std::vector<int64_t> sequence;
    const auto skip_blanks = [&] {
      line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    };
    for (skip_blanks(); !line.empty(); skip_blanks()) {
      const std::string text(line.substr(0, line.find_first_of(", \t")));
      int64_t token = -1;
      require(read_text(text, token) && 0 <= token && token < vocabulary,
              path + ": line " + as_text(number) + ": \"" + text + "\" is not a token, 0 to " +
                  as_text(vocabulary - 1) + " (--vocabulary)");
      sequence.push_back(token);
      line.remove_prefix(text.size());
      skip_blanks();
      if (line.starts_with(',')) line.remove_prefix(1);
    }
    if (sequence.size() > 1) all.push_back(std::move(sequence));
  });
  return all;
}

// Each sequence repeats a motif of 4 to 16 tokens, now and then shifted by one.
Sequences generate_sequences(uint64_t seed, int64_t vocabulary) {
  Sequences all(200);
  for (size_t i = 0; i < all.size(); ++i) {
    nn::Draws draws(seed, int64_t(i));
    std::vector<int64_t> motif(size_t(4 + draws.below(13)));
    for (int64_t& token : motif) token = draws.below(vocabulary);
    for (int64_t shift = 0; all[i].size() < 400; shift += draws.below(4) == 0)
      for (const int64_t token : motif) all[i].push_back((token + shift) % vocabulary);
  }
  return all;
}

class TokensProgram : public TokenProgram<TokensSettings> {
 public:
  TokensProgram() : TokenProgram({.out = "out/tokens"}) {}

  void declare(OptionList& options) {
    options.input("data", data_,
                  "Sequences of whole numbers, one per line; without it, they are generated");
    options("every", every_, "One of this many sequences is held out for validation",
            between(2, INT64_MAX));
    run_.declare(options);
    options.settings(settings);
    describe_position(options, settings, {settings.positions()});
    options("generate", generate_, "Number of tokens to generate (0: none)", between(0, 1 << 20));
    options("prime", prime_, "Prompt length: tokens of a held-out sequence to continue",
            between(1, 1 << 20));
    declare_sampling(options, sampling_);
  }

 private:
  void prepare() override {
    use_device(settings.steps, settings.least_memory());
    const Sequences all = data_.empty() ? generate_sequences(settings.seed, settings.vocabulary)
                                        : read_sequences(data_, settings.vocabulary);
    for (size_t i = 0; i < all.size(); ++i)
      ((int64_t(i) + 1) % every_ == 0 ? valid_ : train_).push_back(all[i]);
    require(!train_.empty() && !valid_.empty(),
            data_ + ": " + counted(int64_t(all.size()), "sequence") +
                " of two or more tokens; --every " + as_text(every_) + " are needed");
    TokenCounts counts(settings.vocabulary);
    Digest print;
    for (const std::vector<int64_t>& sequence : train_) {
      counts.add(sequence);
      total_ += int64_t(sequence.size());
      print.add(int64_t(sequence.size()));
      for (const int64_t token : sequence) print.add(token);
    }
    baselines_ = counts.loss(valid_);
    curve_ = {.title = "Loss, position " + settings.position,
              .references = {{"bigram", baselines_.bigram}}};
    if (generate_ > 0) files_ = {"generated.csv"};
    create(vaswani_adam(settings.weight_decay),
           {print.text(), "sequences than those of --data (or of --seed without it)"},
           settings.batch * settings.length);
  }
  void begin() override {
    std::cout << (data_.empty() ? "Generated " : "Read ") << train_.size() << " sequences of "
              << total_ << " tokens for training and " << valid_.size()
              << " for validation. Position " << settings.position << ", " << model_and_machine()
              << std::endl;
  }
  // Random crops; a sequence is chosen with a probability proportional to its length.
  nn::Batch training(int64_t i) override {
    nn::Draws draws(settings.seed, i);
    Sequences crops;
    while (int64_t(crops.size()) < settings.batch) {
      int64_t at = draws.below(total_);
      auto sequence = train_.begin();
      for (; at >= int64_t(sequence->size()); ++sequence) at -= int64_t(sequence->size());
      const int64_t n = int64_t(sequence->size()), most = settings.length + 1;
      const auto first = sequence->begin() + std::min(at, std::max<int64_t>(0, n - most));
      crops.emplace_back(first, first + std::min<int64_t>(most, sequence->end() - first));
    }
    return nn::next_token_batch(crops, settings.length);
  }
  double validate() override {
    return nn::mean_loss(*model, [this](const auto& score) {
      Sequences windows;
      const auto flush = [&] {
        check_interrupt();
        if (!windows.empty()) score(nn::next_token_batch(windows, settings.length));
        windows.clear();
      };
      for (const std::vector<int64_t>& sequence : valid_)
        for (auto at = sequence.begin(); sequence.end() - at > 1;) {
          const auto end = at + std::min<int64_t>(settings.length + 1, sequence.end() - at);
          windows.emplace_back(at, end);
          at = end - 1;
          if (int64_t(windows.size()) == settings.batch) flush();
        }
      flush();
    });
  }
  void report() override {
    show_losses(
        "Validation loss, nats per token", "",
        {{"unigram", baselines_.unigram}, {"bigram", baselines_.bigram}, {"model", validate()}});
    draw_curve();
    if (generate_ == 0) return;
    std::vector<int64_t> tokens = valid_.front();
    tokens.resize(std::min(tokens.size(), size_t(prime_)));
    const nn::EvalMode guard(*model);
    nn::LanguageModel::Cache cache =
        model->make_cache(settings.cache_limit(settings.positions(), settings.length));
    const std::vector<int64_t> drawn = nn::generate(
        [&](const Tensor& next) { return (*model)(next.to(model->device()), &cache); }, tokens,
        {.max_tokens = generate_, .seed = settings.seed, .sampling = sampling_},
        [](int64_t) {
          check_interrupt();
          return true;
        });
    std::string given, written;
    for (const int64_t token : tokens) given += (given.empty() ? "" : ",") + as_text(token);
    for (const int64_t token : drawn) written += "," + as_text(token);
    write_file_atomically(path("generated.csv"), given + written + "\n");
    show(ReportText{"Generated tokens", given, written});
    std::cout << "Wrote " << path("generated.csv") << std::endl;
  }

  std::string data_;
  int64_t every_ = 10, generate_ = 256, prime_ = 32;
  nn::SamplingOptions sampling_;
  Sequences train_, valid_;
  int64_t total_ = 0;  // tokens for training
  CountingLoss baselines_{};
};

}  // namespace
}  // namespace stretto::examples

int main(int argc, char** argv) {
  return stretto::examples::run_program<stretto::examples::TokensProgram>(
      argc, argv, "train_tokens", "Trains a language model on sequences of whole numbers.");
}
