// Pre-tokenizers: what splits the text into words.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "../files/definition.h"
#include "../text/pattern.h"

namespace stretto::nn::tokenizers {

/// A word, and the number of bytes at its start that come from the first character of the text.
struct Word {
  std::string_view text;
  size_t first;

  Word part(size_t begin, size_t end) const {
    return {text.substr(begin, end - begin), first > begin ? std::min(first, end) - begin : 0};
  }
};

/// A reference to a function of words, as long as the function lives.
class WordSink {
 public:
  template <class F>
  requires(!std::is_same_v<F, WordSink>) explicit WordSink(F& f)
      : object_(&f),
        call_([](void* object, const Word& word) { (*static_cast<F*>(object))(word); }) {}
  void operator()(const Word& word) const {
    if (!word.text.empty()) call_(object_, word);
  }

 private:
  void* object_;
  void (*call_)(void*, const Word&);
};

/// A pre-tokenizer. Immutable, hence thread-safe.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Passes the words of `word` to `sink`; `buffer` holds changed text while it runs.
  virtual void split(const Word& word, WordSink sink, std::string& buffer,
                     MatchScratch& scratch) const = 0;
};

/// The pre-tokenizers of a definition in their order.
struct PreTokenizers {
  std::vector<std::unique_ptr<PreTokenizer>> stages;
  bool byte_level = false;  ///< The last one is ByteLevel: the words are raw bytes for the model.
};

/// Throws Error for a component that is not supported.
PreTokenizers make_pre_tokenizers(const Definition& definition);

}  // namespace stretto::nn::tokenizers
