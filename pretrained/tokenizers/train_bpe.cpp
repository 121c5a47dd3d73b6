#include "pretrained/tokenizers/train_bpe.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "core/error.h"
#include "core/one_line.h"
#include "core/utf8.h"
#include "pretrained/tokenizers/components/pre_tokenizer.h"
#include "pretrained/tokenizers/files/families.h"
#include "pretrained/tokenizers/models/merge_table.h"
#include "pretrained/tokenizers/text/byte_level.h"

namespace stretto::nn {

using namespace tokenizers;

namespace {

constexpr const char* train_op = "train_bpe";

Definition components_of(WordSplit split) {
  Definition d;
  d.name = train_op;
  switch (split) {
    case WordSplit::gpt2:
      set_byte_level_bpe(d, Family::gpt2);
      break;
    case WordSplit::llama3:
      set_byte_level_bpe(d, Family::llama3);
      break;
    case WordSplit::qwen2:
      set_byte_level_bpe(d, Family::qwen2);
      d.normalizer = {};
      break;
    case WordSplit::smollm:
      set_byte_level_bpe(d, Family::smollm);
      break;
  }
  return d;
}

// Passes a word through the stages from `stage` on, and counts the results.
class Counter {
 public:
  explicit Counter(WordSplit split) : stages_(make_pre_tokenizers(components_of(split)).stages) {
    buffers_.resize(stages_.size());
  }
  void add(const Word& word, size_t stage = 0) {
    if (stage == stages_.size()) {
      const auto found = counts_.find(word.text);
      if (found != counts_.end()) {
        ++found->second;
      } else {
        counts_.emplace(std::string(word.text), 1);
      }
      return;
    }
    auto next = [&, stage](const Word& part) { add(part, stage + 1); };
    stages_[stage]->split(word, WordSink(next), buffers_[stage], scratch_);
  }
  WordCounts sorted() const {
    WordCounts words(counts_.begin(), counts_.end());
    std::sort(words.begin(), words.end());
    return words;
  }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return hash_bytes(text); }
  };
  std::vector<std::unique_ptr<PreTokenizer>> stages_;
  std::vector<std::string> buffers_;
  MatchScratch scratch_;
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> counts_;
};

// A merge of two symbols into one.
struct LearnedMerge {
  int32_t left, right, symbol;
};

// Learns merges from counted words of symbols: the algorithm of the package tokenizers, with its
// order of ties.
class MergeLearner {
 public:
  struct Options {
    int64_t most;                                     // the largest number of new symbols
    int64_t min_count;                                // of a pair
    std::function<int32_t(int32_t, int32_t)> symbol;  // returns the symbol of a merged pair
    std::function<bool()> is_full;                    // true if no further merge is wanted
    std::function<void(int64_t)> progress;            // called with the number of merges
  };

  // Adds a word of symbols that occurs `count` times.
  void add(const std::vector<int32_t>& symbols, int64_t count) {
    words_.push_back({uint32_t(symbols.size()), symbols_.size(), count});
    symbols_.insert(symbols_.end(), symbols.begin(), symbols.end());
  }

  // Returns the merges in their order.
  std::vector<LearnedMerge> learn(const Options& options) {
    count_pairs();
    std::vector<LearnedMerge> merges;
    while (!heap_.empty() && int64_t(merges.size()) < options.most && !options.is_full()) {
      std::pop_heap(heap_.begin(), heap_.end(), is_worse);
      Candidate top = std::move(heap_.back());
      heap_.pop_back();
      const int64_t count = counts_[top.pair];
      if (top.count != count) {  // other merges took some
        push(top.pair, count, std::move(top.words));
        continue;
      }
      if (count < options.min_count) break;
      const auto left = int32_t(top.pair >> 32), right = int32_t(uint32_t(top.pair));
      const int32_t symbol = options.symbol(left, right);
      merges.push_back({left, right, symbol});
      for (const uint32_t word : top.words) merge_in_word(word, left, right, symbol);
      push_new_pairs();
      if (options.progress) options.progress(int64_t(merges.size()));
    }
    return merges;
  }

 private:
  struct Candidate {
    int64_t count;
    uint64_t pair;
    std::vector<uint32_t> words;
  };
  struct Range {
    uint32_t size;
    size_t begin;
    int64_t count;
  };

  static uint64_t key_of(int32_t left, int32_t right) {
    return uint64_t(uint32_t(left)) << 32 | uint32_t(right);
  }
  static bool is_worse(const Candidate& a, const Candidate& b) {
    return a.count != b.count ? a.count < b.count : a.pair > b.pair;
  }

  void push(uint64_t pair, int64_t count, std::vector<uint32_t> words) {
    if (count <= 0) return;
    heap_.push_back({count, pair, std::move(words)});
    std::push_heap(heap_.begin(), heap_.end(), is_worse);
  }
  void push_new_pairs() {
    for (auto& [pair, words] : new_pairs_) push(pair, counts_[pair], std::move(words));
    new_pairs_.clear();
  }

  // Adds to the count of a pair; a word in which it is new is noted once.
  void change(uint64_t pair, uint32_t word, int64_t by) {
    counts_[pair] += by;
    if (by < 0) return;
    std::vector<uint32_t>& words = new_pairs_[pair];
    if (words.empty() || words.back() != word) words.push_back(word);
  }

  void count_pairs() {
    for (uint32_t w = 0; w < words_.size(); ++w) {
      const Range& word = words_[w];
      const int32_t* symbols = symbols_.data() + word.begin;
      for (uint32_t i = 0; i + 1 < word.size; ++i)
        change(key_of(symbols[i], symbols[i + 1]), w, word.count);
    }
    push_new_pairs();
  }

  void merge_in_word(uint32_t w, int32_t left, int32_t right, int32_t symbol) {
    Range& word = words_[w];
    int32_t* s = symbols_.data() + word.begin;
    uint32_t to = 0;  // symbols before it are final
    for (uint32_t from = 0; from < word.size; ++from) {
      if (s[from] != left || from + 1 == word.size || s[from + 1] != right) {
        s[to++] = s[from];
        continue;
      }
      if (to > 0) {
        change(key_of(s[to - 1], left), w, -word.count);
        change(key_of(s[to - 1], symbol), w, word.count);
      }
      s[to++] = symbol;
      ++from;
      if (from + 1 < word.size) {
        change(key_of(right, s[from + 1]), w, -word.count);
        change(key_of(symbol, s[from + 1]), w, word.count);
      }
    }
    word.size = to;
  }

  std::vector<int32_t> symbols_;  // of all words
  std::vector<Range> words_;
  std::unordered_map<uint64_t, int64_t> counts_;
  std::unordered_map<uint64_t, std::vector<uint32_t>> new_pairs_;  // of one merge: their words
  std::vector<Candidate> heap_;
};

// The vocabulary while it grows: special tokens, the alphabet of bytes, merged tokens.
class GrowingVocabulary {
 public:
  explicit GrowingVocabulary(const BpeTraining& options) {
    for (const std::string& token : options.special_tokens) {
      check(token.size() > 1 && find_invalid_utf8(token).at == token.size(), train_op,
            "the special token ", in_quotes(token), " must be UTF-8 of at least two bytes");
      check(insert(token), train_op, "the special token ", in_quotes(token), " occurs twice");
    }
    std::vector<std::string> alphabet;
    for (int byte = 0; byte < 256; ++byte) alphabet.emplace_back(byte_character(uint8_t(byte)));
    std::sort(alphabet.begin(), alphabet.end());  // by bytes, hence by code point
    for (const std::string& character : alphabet) insert(character);
    for (int byte = 0; byte < 256; ++byte)
      of_byte_.push_back(ids_.at(std::string(byte_character(uint8_t(byte)))));
  }
  int32_t of_byte(uint8_t byte) const { return of_byte_[byte]; }
  // Two pairs can make the same token.
  int32_t merged(int32_t left, int32_t right) {
    const std::string text = tokens_[size_t(left)].text + tokens_[size_t(right)].text;
    insert(text);
    return ids_.at(text);
  }
  const std::vector<Token>& tokens() const { return tokens_; }

 private:
  bool insert(const std::string& text) {
    if (!ids_.emplace(text, int32_t(tokens_.size())).second) return false;
    tokens_.push_back({text, int32_t(tokens_.size()), 0});
    return true;
  }
  std::vector<Token> tokens_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<int32_t> of_byte_;
};

void set_tables(Definition& d, const GrowingVocabulary& vocabulary,
                const std::vector<LearnedMerge>& merges, const BpeTraining& options) {
  d.vocabulary = vocabulary.tokens();
  // A pair that was merged twice counts from the second time on.
  std::vector<LearnedMerge> last;
  std::unordered_set<uint64_t> seen;
  for (auto merge = merges.rbegin(); merge != merges.rend(); ++merge)
    if (seen.insert(uint64_t(uint32_t(merge->left)) << 32 | uint32_t(merge->right)).second)
      last.push_back(*merge);
  for (auto merge = last.rbegin(); merge != last.rend(); ++merge)
    d.merges.emplace_back(d.vocabulary[size_t(merge->left)].text,
                          d.vocabulary[size_t(merge->right)].text);
  for (size_t i = 0; i < options.special_tokens.size(); ++i) {
    AddedToken token;
    token.content = options.special_tokens[i];
    token.id = int32_t(i);
    token.special = true;
    d.added.push_back(std::move(token));
  }
  if (!options.special_tokens.empty()) d.special.eos = options.special_tokens[0];
}

}  // namespace

WordCounts count_words(std::string_view text, WordSplit split) {
  std::string storage;
  Counter counter(split);
  counter.add({repaired_utf8(text, storage), true});
  return counter.sorted();
}

SubwordTokenizer train_bpe(std::string_view text, const BpeTraining& options) {
  return train_bpe(count_words(text, options.split), options);
}

SubwordTokenizer train_bpe(const WordCounts& words, const BpeTraining& options) {
  GrowingVocabulary vocabulary(options);
  const auto first = int64_t(vocabulary.tokens().size());
  check(options.vocabulary >= first && options.vocabulary <= max_ids, train_op, "a vocabulary of ",
        options.vocabulary, " tokens; must be ", first, " (special tokens and bytes) to ", max_ids);
  MergeLearner learner;
  std::vector<int32_t> symbols;
  for (const auto& [word, count] : words) {
    check(count >= 0 && count <= int64_t(1) << 40, train_op, "the word ", in_quotes(word),
          " has the count ", count);
    symbols.clear();
    for (const char c : word) symbols.push_back(vocabulary.of_byte(uint8_t(c)));
    learner.add(symbols, count);
  }
  const int64_t most = options.vocabulary - first;
  int64_t done = 0;
  const std::vector<LearnedMerge> merges =
      learner.learn({INT64_MAX, std::max<int64_t>(options.min_count, 1),
                     [&](int32_t left, int32_t right) { return vocabulary.merged(left, right); },
                     [&] { return int64_t(vocabulary.tokens().size()) >= options.vocabulary; },
                     [&](int64_t) {
                       done = int64_t(vocabulary.tokens().size()) - first;
                       if (options.progress && done % 100 == 0) options.progress(done, most);
                     }});
  if (options.progress && (done % 100 != 0 || done == 0)) options.progress(done, most);
  Definition d = components_of(options.split);
  set_tables(d, vocabulary, merges, options);
  return SubwordTokenizer(std::move(d));
}

TokenMerges TokenMerges::learn(const std::vector<std::vector<int64_t>>& sequences, int64_t tokens,
                               int64_t merges, int64_t min_count,
                               const std::function<void(int64_t, int64_t)>& progress) {
  check(tokens > 0 && merges >= 0 && merges <= INT32_MAX - tokens, train_op, tokens, " tokens and ",
        merges, " merges; must be positive and at most 2147483647 together");
  MergeLearner learner;
  for (const std::vector<int64_t>& sequence : sequences) {
    for (const int64_t token : sequence)
      check(token >= 0 && token < tokens, train_op, "the token ", token, "; must be 0 to ",
            tokens - 1);
    learner.add({sequence.begin(), sequence.end()}, 1);
  }
  auto next = int32_t(tokens);
  const std::vector<LearnedMerge> learned =
      learner.learn({merges, std::max<int64_t>(min_count, 1),
                     [&](int32_t, int32_t) { return next++; }, [] { return false; },
                     [&](int64_t n) {
                       if (progress && (n % 100 == 0 || n == merges)) progress(n, merges);
                     }});
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (const LearnedMerge& merge : learned) pairs.emplace_back(merge.left, merge.right);
  return {tokens, std::move(pairs)};
}

TokenMerges::TokenMerges(int64_t tokens, std::vector<std::pair<int64_t, int64_t>> merges)
    : tokens_(tokens), pairs_(std::move(merges)) {
  check(tokens > 0 && int64_t(pairs_.size()) <= INT32_MAX - tokens, train_op, tokens,
        " tokens and ", pairs_.size(), " merges; must be positive and at most 2147483647 together");
  for (size_t i = 0; i < pairs_.size(); ++i) {
    const int64_t known = tokens_ + int64_t(i);
    const auto& [left, right] = pairs_[i];
    check(left >= 0 && right >= 0 && left < known && right < known, train_op, "the merge ", i,
          " of the tokens ", left, " and ", right, "; must be 0 to ", known - 1);
  }
}

std::vector<int64_t> TokenMerges::encode(const std::vector<int64_t>& sequence) const {
  for (const int64_t token : sequence)
    check(token >= 0 && token < tokens_, train_op, "the token ", token, "; must be 0 to ",
          tokens_ - 1);
  MergeTable table(pairs_.size());
  for (size_t i = 0; i < pairs_.size(); ++i)
    table.set(int32_t(pairs_[i].first), int32_t(pairs_[i].second),
              {uint32_t(i), int32_t(tokens_) + int32_t(i)});
  ModelScratch scratch;
  scratch.symbols.assign(sequence.begin(), sequence.end());
  if (!sequence.empty()) table.apply(scratch);
  return {scratch.symbols.begin(), scratch.symbols.end()};
}

std::vector<int64_t> TokenMerges::decode(const std::vector<int64_t>& encoded) const {
  std::vector<int64_t> result, open;
  for (const int64_t token : encoded) {
    check(token >= 0 && token < size(), train_op, "the token ", token, "; must be 0 to ",
          size() - 1);
    open.push_back(token);
    while (!open.empty()) {
      const int64_t top = open.back();
      open.pop_back();
      if (top < tokens_) {
        result.push_back(top);
      } else {
        open.push_back(pairs_[size_t(top - tokens_)].second);
        open.push_back(pairs_[size_t(top - tokens_)].first);
      }
    }
  }
  return result;
}

int64_t TokenMerges::size() const { return tokens_ + int64_t(pairs_.size()); }

}  // namespace stretto::nn
