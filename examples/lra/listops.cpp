#include "examples/lra/listops.h"

#include <algorithm>
#include <array>
#include <functional>
#include <unordered_set>

#include "examples/common/file.h"
#include "examples/common/settings.h"
#include "examples/lra/tsv.h"

namespace stretto::examples {
namespace {

constexpr std::array<const char*, 15> texts{"0", "1", "2",    "3",    "4",    "5",   "6", "7",
                                            "8", "9", "[MAX", "[MED", "[MIN", "[SM", "]"};
// The operators in the order of the published generator.
constexpr std::array<uint8_t, 4> operators{list_min, list_max, list_med, list_sum};

bool is_operator(uint8_t token) { return token >= list_max && token <= list_sum; }

}  // namespace

// --------------------------------------------------------------------------------- generation

namespace {

// Stops drawing when the tree exceeds the limit: it will not be used.
bool grow(PortableRandom& random, const ListOpsOptions& o, int depth, ListOpsExpression& tokens) {
  const auto full = [&] { return int64_t(tokens.size()) >= o.max_length; };
  const double r = depth < o.max_depth ? double(random.next() >> 11) * 0x1p-53 : 1;
  if (r > 0.25) {
    tokens.push_back(uint8_t(random.below(10)));
    return !full();
  }
  const int n = 2 + random.below(o.max_args - 1);
  const size_t head = tokens.size();
  tokens.push_back(list_max);
  for (int i = 0; i < n; ++i)
    if (full() || !grow(random, o, depth + 1, tokens)) return false;
  tokens[head] = operators[size_t(random.below(4))];
  tokens.push_back(list_end);
  return !full();
}

}  // namespace

bool draw_listops(PortableRandom& random, const ListOpsOptions& options,
                  ListOpsExpression& tokens) {
  tokens.clear();
  return grow(random, options, 1, tokens);
}

ListOpsData generate_listops(uint64_t seed, int64_t count, const ListOpsOptions& options) {
  ListOpsData data;
  std::vector<ListOpsExpression>& all = data.expressions;
  const auto text = [&](size_t i) {
    return std::string_view(reinterpret_cast<const char*>(all[i].data()), all[i].size());
  };
  const auto hash = [&](size_t i) { return std::hash<std::string_view>()(text(i)); };
  const auto equal = [&](size_t a, size_t b) { return text(a) == text(b); };
  std::unordered_set<size_t, decltype(hash), decltype(equal)> known(16, hash, equal);

  PortableRandom random(seed);
  ListOpsExpression tokens;
  int64_t last = 0;  // the last draw that produced a new tree
  while (int64_t(all.size()) < count) {
    require(data.draws - last < 1'000'000,
            "ListOps: found only " + as_text(int64_t(all.size())) + " of " + as_text(count) +
                " different expressions longer than " + as_text(options.min_length) +
                " and shorter than " + as_text(options.max_length));
    ++data.draws;
    if (!draw_listops(random, options, tokens)) continue;
    if (int64_t(tokens.size()) <= options.min_length) continue;
    all.push_back(tokens);
    if (known.insert(all.size() - 1).second) {
      last = data.draws;
    } else {
      all.pop_back();
    }
  }
  return data;
}

// --------------------------------------------------------------------------------- evaluation

namespace {

// An operator whose list is still open, and the count of each digit in it.
struct OpenList {
  uint8_t operation;
  int64_t n = 0;
  std::array<int64_t, 10> counts{};

  // Returns the digit at index i of the sorted list.
  int sorted(int64_t i) const {
    int digit = 0;
    for (; i >= counts[size_t(digit)]; ++digit) i -= counts[size_t(digit)];
    return digit;
  }
  int value() const {
    if (operation == list_max) return sorted(n - 1);
    if (operation == list_min) return sorted(0);
    if (operation == list_med) return (sorted((n - 1) / 2) + sorted(n / 2)) / 2;
    int64_t sum = 0;
    for (int digit = 0; digit < 10; ++digit) sum += digit * (counts[size_t(digit)] % 10);
    return int(sum % 10);
  }
};

}  // namespace

int evaluate_listops(const ListOpsExpression& tokens) {
  std::vector<OpenList> open;
  int result = -1;  // value of the complete expression
  for (const uint8_t token : tokens) {
    require(result < 0, "the expression continues after its end");
    require(token <= list_end, "token " + as_text(int64_t(token)) + "; must be 0 to 14");
    if (is_operator(token)) {
      open.push_back({token});
      continue;
    }
    int value = token;
    if (token == list_end) {
      require(!open.empty(), "a bracket is closed that was not opened");
      require(open.back().n > 0, "a list has no arguments");
      value = open.back().value();
      open.pop_back();
    }
    if (open.empty()) {
      result = value;
    } else {
      ++open.back().n;
      ++open.back().counts[size_t(value)];
    }
  }
  require(!tokens.empty(), "the expression is empty");
  require(open.empty(), "the expression ends in " + as_text(int64_t(open.size())) +
                            (open.size() == 1 ? " open list" : " open lists"));
  return result;
}

// -------------------------------------------------------------------------------------- texts

std::string listops_text(const ListOpsExpression& tokens) {
  evaluate_listops(tokens);  // throws for an incomplete expression
  // The number of children of each operator. One pair is opened before the operator for each child,
  // and one for its closing bracket.
  std::vector<int64_t> n_children(tokens.size());
  std::vector<size_t> open;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] == list_end) {
      open.pop_back();
      continue;
    }
    if (!open.empty()) ++n_children[open.back()];
    if (is_operator(tokens[i])) open.push_back(i);
  }
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) text += ' ';
    if (is_operator(tokens[i])) {
      for (int64_t pair = 0; pair <= n_children[i]; ++pair) text += "( ";
      open.push_back(i);
    } else if (tokens[i] == list_end) {
      open.pop_back();
      text += "] )";  // completes the last pair of the list, and the list
    }
    if (tokens[i] != list_end) text += texts[tokens[i]];
    if (!is_operator(tokens[i]) && !open.empty()) text += " )";
  }
  return text;
}

ListOpsExpression parse_listops(std::string_view text) {
  ListOpsExpression tokens;
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    if (word.empty() || word == "(" || word == ")") continue;
    const auto it = std::find(texts.begin(), texts.end(), word);
    require(it != texts.end(), "\"" + std::string(word.substr(0, 20)) +
                                   "\" is not a token; the tokens are 0-9 ] [MAX [MED [MIN [SM");
    tokens.push_back(uint8_t(it - texts.begin()));
  }
  evaluate_listops(tokens);
  return tokens;
}

void write_listops(const std::string& path, const std::vector<ListOpsExpression>& expressions) {
  std::string text = tsv_line({"Source", "Target"});
  for (const ListOpsExpression& tokens : expressions)
    text += tsv_line({listops_text(tokens), std::to_string(evaluate_listops(tokens))});
  write_file_atomically(path, text);
}

std::vector<ListOpsExpression> read_listops(const std::string& path) {
  std::vector<ListOpsExpression> all;
  bool header = true;
  read_tsv(path, 2, true, [&](const std::vector<std::string_view>& fields) {
    if (header) {
      require(fields[0] == "Source" && fields[1] == "Target",
              "must be the header: Source, a tab, Target");
      header = false;
      return;
    }
    all.push_back(parse_listops(fields[0]));
    const int value = evaluate_listops(all.back());
    require(fields[1] == std::to_string(value),
            "its target is \"" + std::string(fields[1].substr(0, 20)) +
                "\", but the expression evaluates to " + std::to_string(value));
  });
  require(!all.empty(), path + ": has no expressions");
  return all;
}

LabeledSequences listops_sequences(const std::vector<ListOpsExpression>& expressions,
                                   bool strip_brackets) {
  LabeledSequences data;
  std::vector<uint16_t> ids;
  for (const ListOpsExpression& tokens : expressions) {
    ids.clear();
    for (const uint8_t token : tokens)
      if (!strip_brackets || token != list_end) ids.push_back(uint16_t(1 + token));
    data.sequences.add(ids);
    data.labels.push_back(evaluate_listops(tokens));
  }
  return data;
}

int64_t listops_vocabulary(bool strip_brackets) {
  return int64_t(texts.size()) - (strip_brackets ? 1 : 0) + 2;
}

}  // namespace stretto::examples
