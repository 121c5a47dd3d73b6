#include "examples/published/finetune_data.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "examples/common/error.h"
#include "examples/common/settings.h"
#include "examples/common/words.h"
#include "examples/text/corpus.h"
#include "nn/data/contiguous_batches.h"
#include "nn/data/crops.h"
#include "nn/data/epoch_order.h"
#include "nn/data/token_stream.h"
#include "pretrained/chat/conversations.h"

namespace stretto::examples {
namespace {

std::string sizes_of(int64_t train, int64_t valid, const std::string& noun) {
  return counted(train, noun) + " for training and " + counted(valid, noun) + " for validation";
}

class TextData : public FinetuneData {
 public:
  TextData(const FinetuneFiles& files, const FinetuneBatches& b, const nn::Pretrained& model)
      : length_(b.length) {
    const Texts texts = read_texts({.data = files.text,
                                    .validation = files.validation,
                                    .kind = nn::TokenKind::words,
                                    .held_out = files.held_out});
    const auto tokens_of = [&](std::string_view text) {
      return nn::TokenStream(model.tokenizer->encode(text, {.allow_special = false}));
    };
    train_ = tokens_of(texts.train.view);
    valid_ = tokens_of(texts.valid.view);
    require(train_.size() > b.length, files.text + ": " + counted(train_.size(), "training token") +
                                          " are too few; --length " + as_text(b.length) +
                                          " needs " + as_text(b.length + 1));
    require(valid_.size() >= 2, (files.validation.empty() ? files.text : files.validation) +
                                    ": 1 validation token is too few; 2 are needed");
    if (files.most_scored > 0)
      valid_ = valid_.slice(0, 1 + std::min(files.most_scored, valid_.size() - 1));
    crops_.emplace(train_, b.batch, b.length, b.seed);
  }

  nn::Batch batch(int64_t step) override { return (*crops_)(step); }
  void score(int64_t rows, const std::function<void(const nn::Batch&)>& score) const override {
    nn::for_each_evaluation_window(valid_, {.length = length_}, rows,
                                   [&](const nn::Batch& batch, bool) { score(batch); });
  }
  int64_t scored() const override { return valid_.size() - 1; }
  std::string sizes() const override { return sizes_of(train_.size(), valid_.size(), "token"); }
  void add_to(Digest& digest) const override {
    for (const nn::TokenStream* tokens : {&train_, &valid_})
      tokens->each([&](int64_t token) { digest.add(token); });
  }

 private:
  int64_t length_;
  nn::TokenStream train_, valid_;
  std::optional<nn::RandomCrops> crops_;
};

using Conversations = std::vector<std::vector<nn::ChatMessage>>;
using Examples = std::vector<nn::PromptedAnswer>;

class ConversationData : public FinetuneData {
 public:
  ConversationData(const FinetuneFiles& files, const FinetuneBatches& b,
                   const nn::Pretrained& model)
      : length_(b.length), row_length_(b.same_length ? b.length : 0) {
    const auto read = [](const std::string& path) {
      return as_usage([&] { return nn::read_conversations(path); });
    };
    Conversations train = read(files.conversations), valid;
    if (files.validation.empty()) {
      const auto at = train.begin() + int64_t((1 - files.held_out) * double(train.size()));
      valid.assign(at, train.end());
      train.erase(at, train.end());
    } else {
      valid = read(files.validation);
    }
    train_ = examples_of(train, model, "training", files.conversations);
    valid_ = examples_of(valid, model, "validation",
                         files.validation.empty() ? files.conversations : files.validation);
    order_.emplace(int64_t(train_.size()), b.batch, b.seed);
  }

  nn::Batch batch(int64_t step) override {
    Examples rows;
    for (const int64_t row : (*order_)(step)) rows.push_back(train_[size_t(row)]);
    return nn::prompted_batch(rows, row_length_);
  }
  void score(int64_t rows, const std::function<void(const nn::Batch&)>& score) const override {
    for (size_t at = 0; at < valid_.size(); at += size_t(rows))
      score(
          nn::prompted_batch({valid_.begin() + int64_t(at),
                              valid_.begin() + int64_t(std::min(at + size_t(rows), valid_.size()))},
                             row_length_));
  }
  int64_t scored() const override {
    int64_t n = 0;
    for (const nn::PromptedAnswer& e : valid_) n += int64_t(e.answer.size());
    return n;
  }
  std::string sizes() const override {
    std::string text = sizes_of(int64_t(train_.size()), int64_t(valid_.size()), "answer");
    if (left_out_ > 0)
      text +=
          "; left out " + counted(left_out_, "answer") + " longer than --length with the prompt";
    return text;
  }
  void add_to(Digest& digest) const override {
    for (const Examples* part : {&train_, &valid_})
      for (const nn::PromptedAnswer& e : *part)
        for (const std::vector<int64_t>* tokens : {&e.prompt, &e.answer}) {
          digest.add(int64_t(tokens->size()));
          for (const int64_t token : *tokens) digest.add(token);
        }
  }

 private:
  // The examples that are not too long.
  Examples examples_of(const Conversations& conversations, const nn::Pretrained& model,
                       const std::string& part, const std::string& file) {
    const nn::ChatTemplate chat = as_usage([&] { return model.parsed_template(); });
    Examples all;
    for (const std::vector<nn::ChatMessage>& messages : conversations)
      for (nn::PromptedAnswer& e :
           as_usage([&] { return nn::prompted_answers(messages, chat, *model.tokenizer); })) {
        if (int64_t(e.prompt.size() + e.answer.size()) <= length_ + 1)
          all.push_back(std::move(e));
        else
          ++left_out_;
      }
    require(!all.empty(), file + ": no answer is left for " + part + "; " +
                              (conversations.empty() ? "there are too few conversations"
                                                     : "--length " + as_text(length_) +
                                                           " is less than each of them needs"));
    return all;
  }

  int64_t length_, row_length_, left_out_ = 0;
  Examples train_, valid_;
  std::optional<nn::EpochOrder> order_;
};

}  // namespace

std::unique_ptr<FinetuneData> read_finetune_data(const FinetuneFiles& files,
                                                 const FinetuneBatches& batches,
                                                 const nn::Pretrained& model) {
  if (files.conversations.empty()) return std::make_unique<TextData>(files, batches, model);
  return std::make_unique<ConversationData>(files, batches, model);
}

}  // namespace stretto::examples
