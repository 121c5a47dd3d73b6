#include "examples/text/grammar.h"

#include <array>
#include <vector>

#include "examples/common/portable_random.h"

namespace stretto::examples {
namespace {

struct Name {
  std::string word;
  bool plural;
};

// The rules, one function each:
//   text      → block text
//   block     → "with" subject "when" bracket ":" statement… "end" the same subject
//   statement → block | "let" new name "be" bracket | subject verb object
//   bracket   → ( term… ) | [ term… ] | { term… }
//   term      → name in scope | digit | bracket
class Grammar {
 public:
  explicit Grammar(uint64_t seed) : random_(seed) {}

  std::string text(int64_t bytes) {
    while (int64_t(text_.size()) < bytes) {
      block(0);
      text_ += '\n';
    }
    return std::move(text_);
  }

 private:
  template <size_t N>
  const char* any(const std::array<const char*, N>& words) {
    return words[size_t(random_.below(int(N)))];
  }

  Name new_name() {
    static constexpr std::array<const char*, 12> starts{"b", "d",  "f",  "g",  "k",  "l",
                                                        "m", "pr", "st", "tr", "sk", "v"};
    static constexpr std::array<const char*, 8> vowels{"a", "e", "i", "o", "u", "ai", "ou", "ee"};
    static constexpr std::array<const char*, 4> ends{"n", "r", "l", "m"};
    std::string word;
    for (int i = 1 + random_.weighted({1, 5, 2}); i > 0; --i) {
      const char *vowel = any(vowels), *start = any(starts);
      word = word + start + vowel;
    }
    const bool plural = random_.percent(40);
    return {word + (plural ? "s" : any(ends)), plural};
  }

  // A name in scope; recent names are more likely.
  const Name& name() {
    size_t at = scope_.size() - 1;
    while (at > 0 && random_.percent(55)) --at;
    return scope_[at];
  }

  void line(int depth, const std::string& words) {
    text_ += std::string(size_t(2 * depth), ' ') + words + '\n';
  }

  std::string bracket(int depth) {
    const size_t kind = size_t(random_.below(3));
    std::string inside;
    for (int i = 1 + random_.below(3); i > 0; --i) {
      const int what = random_.weighted({6, 2, depth < 4 ? 3 : 0});
      if (!inside.empty()) inside += ' ';
      inside += what == 0   ? name().word
                : what == 1 ? std::string(1, char('0' + random_.below(10)))
                            : bracket(depth + 1);
    }
    return std::string(1, "([{"[kind]) + inside + ")]}"[kind];
  }

  void sentence(int depth) {
    static constexpr std::array<const char*, 6> adjectives{"old",  "quiet", "green",
                                                           "deep", "small", "other"};
    static constexpr std::array<const char*, 6> verbs{"follow", "answer", "hold",
                                                      "find",   "meet",   "repeat"};
    const Name& subject = name();
    std::string words = subject.plural ? "these " : "this ";
    if (random_.percent(40)) words += any(adjectives) + std::string(" ");
    words += subject.word + " ";
    if (random_.percent(30)) words += "of " + name().word + " ";  // the verb agrees with `subject`
    words += any(verbs) + std::string(subject.plural ? " " : "s ");
    line(depth, words + (random_.percent(60) ? name().word : bracket(1)) + ".");
  }

  void block(int depth) {
    const size_t outside = scope_.size();
    scope_.push_back(new_name());
    const std::string opened = scope_.back().word;
    line(depth, "with " + opened + " when " + bracket(0) + ":");
    for (int i = 2 + random_.below(4); i > 0; --i) {
      const int what = random_.weighted({depth < 5 ? 4 - depth / 2 : 0, 3, 5});
      if (what == 0) {
        block(depth + 1);
      } else if (what == 1) {
        const Name made = new_name();
        line(depth + 1, "let " + made.word + " be " + bracket(0));
        scope_.push_back(made);
      } else {
        sentence(depth + 1);
      }
    }
    scope_.resize(outside);
    line(depth, "end " + opened);
  }

  PortableRandom random_;
  std::vector<Name> scope_;
  std::string text_;
};

}  // namespace

std::string generate_text(uint64_t seed, int64_t bytes) { return Grammar(seed).text(bytes); }

}  // namespace stretto::examples
