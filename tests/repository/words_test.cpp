// The words that pages, public headers, error texts and help do not use: names that were replaced,
// words that mean something else to readers, and British spelling.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/find_upwards.h"
#include "tests/support/sources.h"

namespace fs = std::filesystem;
using namespace stretto;

namespace {

const fs::path root = testing::find_upwards("stretto.h").parent_path();

struct Word {
  const char* text;
  const char* instead;
};

// Names of versions up to 0.2. They are gone everywhere, also from the sources.
constexpr Word old_names[] = {
    {"n_key_heads", "n_kv_heads"},
    {"lag_bias", "relative_bias"},
    {"position_query", "relative_query"},
    {"two_sided", "bidirectional"},
    {"MakePosition", "MakePositionalEncoding"},
    {"AttentionCall", "AttentionInputs"},
    {"encodes_keys", "caches_encoded_keys"},
    {"needs_all_keys", "PositionTraits::dense"},
    {"keeps_state", "KernelTraits::recurrent"},
    {"takes_pieces", "KernelTraits::sequence_parallel"},
    {"key_width", "encoded_dim"},
    {"attention_and_sums", "attention_with_lse"},
    {"log_sum", "lse"},
    {"sum_pieces", "reduce_scatter"},
    {"share_pieces", "all_gather_chunks"},
    {"sum_of_earlier", "exclusive_prefix_sum"},
    {"after_earlier_rows", "with_left_halo"},
    {"keys_and_values_of_whole", "gather_left_kv"},
    {"attention_of_whole", "sequence_parallel_attention"},
    {"linear_attention_of_whole", "sequence_parallel_linear_attention"},
    {"PartSums", "GradientReducer"},
    {"DeviceSums", "NcclReducer"},
    {"BatchSums", "EvaluationReducer"},
    {"ShareBatches", "DistributedEvaluation"},
    {"PartedStep", "DataParallelStep"},
    {"fed_batch", "stage_batch"},
    {"step_kind", "graph_key"},
    {"running_again", "is_recomputing"},
    {"make_again", "rematerialize"},
    {"take_place", "parse_device_args"},
    {"not_scored", "ignore_index"},
    {"AddedPosition", "AbsolutePosition"},
    {"OrderedSegments", "ContiguousBatches"},
    {"ScoringRule", "EvaluationWindows"},
    {"scoring_segments", "for_each_evaluation_window"},
    {"EncoderLayer", "TransformerLayer"},
};

// Words and phrases that the pages for users do not contain.
constexpr Word words[] = {
    {"house", "the repository"},
    {"room", "directory"},
    {"rooms", "directories"},
    {"lag", "relative position, distance"},
    {"lags", "relative positions, distances"},
    {"two-sided", "bidirectional"},
    {"the other side", "positions after the query"},
    {"way back", "the backward pass"},
    {"parts of a batch", "micro-batches"},
    {"stretch", "range, chunk"},
    {"stretches", "ranges, chunks"},
    {"go on with", "continue, resume"},
    {"goes on with", "continues, resumes"},
    {"beyond the table", "out of range"},
    {"remark", "annotation"},
    {"remarks", "annotations"},
    {"known by counting", "n-gram baseline"},
    {"counting alone", "n-gram baseline"},
    {"same bits", "bit-identical"},
    {"plain attention", "dot-product attention without positions"},
    {"frozen draw", "fixed noise"},
    {"frozen draws", "fixed noise"},
    {"so many", "the number of"},
    {"but for", "except"},
    {"no better than", "at most"},
    {"beside", "next to, besides, compared with"},
    {"told", "reported, raised"},
};

// Beginnings of words in British spelling. "Optimistic" is none.
constexpr Word british[] = {
    {"optimise", "optimize"},     {"optimisi", "optimizi"},   {"optimisa", "optimiza"},
    {"normalis", "normaliz"},     {"initialis", "initializ"}, {"uninitialis", "uninitializ"},
    {"synchronis", "synchroniz"}, {"quantis", "quantiz"},     {"tokenis", "tokeniz"},
    {"harmonis", "harmoniz"},     {"recognis", "recogniz"},   {"organis", "organiz"},
    {"summaris", "summariz"},     {"generalis", "generaliz"}, {"specialis", "specializ"},
    {"minimis", "minimiz"},       {"maximis", "maximiz"},     {"colour", "color"},
    {"neighbour", "neighbor"},    {"behaviour", "behavior"},  {"favour", "favor"},
    {"centre", "center"},         {"centring", "centering"},  {"grey", "gray"},
    {"licence", "license"},       {"catalogue", "catalog"},   {"labelled", "labeled"},
    {"labelling", "labeling"},    {"modelled", "modeled"},    {"modelling", "modeling"},
    {"cancelled", "canceled"},    {"travelled", "traveled"},  {"learnt", "learned"},
    {"artefact", "artifact"},     {"programme", "program"},   {"analyse", "analyze"},
    {"whilst", "while"},
};

struct Token {
  std::string text;
  size_t begin;
};

std::vector<Token> tokens_of(const std::string& text) {
  const auto in_word = [&](size_t i) {
    const auto c = static_cast<unsigned char>(text[i]);
    return std::isalnum(c) || c == '_' ||
           (c == '-' && i > 0 && std::isalpha(static_cast<unsigned char>(text[i - 1])));
  };
  std::vector<Token> all;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!in_word(i)) continue;
    const size_t begin = i;
    while (i < text.size() && in_word(i)) ++i;
    all.push_back({text.substr(begin, i - begin), begin});
  }
  return all;
}

// Adds "where:line: found; write …" for each occurrence: of phrases of up to four words, or, with
// `beginnings`, of words that begin so.
template <size_t N>
void find(const std::string& text, const std::string& where, const Word (&list)[N],
          std::vector<std::string>& found, bool beginnings = false) {
  std::map<std::string, const char*> instead;
  for (const Word& word : list) instead[word.text] = word.instead;
  const std::vector<Token> tokens = tokens_of(text);
  const auto look_up = [&](const std::string& phrase, size_t at) {
    const auto it = instead.find(phrase);
    if (it == instead.end()) return;
    const auto line = 1 + std::count(text.begin(), text.begin() + std::ptrdiff_t(at), '\n');
    found.push_back(where + ":" + std::to_string(line) + ": " + phrase + "; write " + it->second);
  };
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::string phrase = tokens[i].text;
    if (beginnings) {
      phrase[0] = char(std::tolower(static_cast<unsigned char>(phrase[0])));
      for (size_t n = 4; n <= std::min<size_t>(11, phrase.size()); ++n)
        look_up(phrase.substr(0, n), tokens[i].begin);
      continue;
    }
    look_up(phrase, tokens[i].begin);
    for (size_t more = 1; more < 4 && i + more < tokens.size(); ++more) {
      phrase += ' ' + tokens[i + more].text;
      look_up(phrase, tokens[i].begin);
    }
  }
}

// Comments of a header, or string literals of a source, with their lines kept.
std::string only(const std::string& text, bool comments) {
  static const std::regex token(R"re(//[^\n]*|"(?:\\.|[^"\\\n])*")re");
  std::string result;
  size_t at = 0;
  for (std::sregex_iterator m(text.begin(), text.end(), token), end; m != end; ++m) {
    const auto begin = size_t(m->position());
    for (; at < begin; ++at)
      if (text[at] == '\n') result += '\n';
    if ((text[begin] == '/') == comments) result += m->str() + ' ';
    at = begin + size_t(m->length());
  }
  return result;
}

std::vector<std::string> pages() {
  std::vector<std::string> all{"README.md", "CONTRIBUTING.md"};
  for (const auto& entry : fs::directory_iterator(root / "docs"))
    if (entry.path().extension() == ".md" && entry.path().filename() != "derivatives.md")
      all.push_back("docs/" + entry.path().filename().string());
  return all;
}

// Texts that are data, and the tempo stretch of an augmentation.
bool is_allowed(const std::string& line) {
  static const std::regex allowed(
      "examples/character_model\\.cpp:.*: house; .*|examples/piano/.*: stretch; .*");
  return std::regex_match(line, allowed);
}

void check_none(std::vector<std::string> found) {
  std::erase_if(found, is_allowed);
  std::string all;
  for (const std::string& line : found) all += line + '\n';
  INFO(all);
  CHECK(found.empty());
}

}  // namespace

TEST_CASE("Pages use the field's words", "[repository][words]") {
  std::vector<std::string> found;
  for (const std::string& page : pages()) {
    const std::string text = testing::text_of(page);
    find(text, page, old_names, found);
    find(text, page, words, found);
    find(text, page, british, found, true);
  }
  check_none(found);
}

TEST_CASE("Comments of public headers use the field's words", "[repository][words]") {
  std::string umbrella;
  for (const char* header : {"stretto.h", "stretto_music.h", "stretto_pretrained.h"})
    umbrella += testing::text_of(header);
  static const std::regex include(R"re(#include "([^"]+)")re");
  std::vector<std::string> found;
  for (std::sregex_iterator at(umbrella.begin(), umbrella.end(), include), end; at != end; ++at) {
    const std::string path = (*at)[1];
    find(only(testing::text_of(path), true), path, words, found);
  }
  check_none(found);
}

TEST_CASE("Error texts and help use the field's words", "[repository][words]") {
  std::vector<std::string> found;
  for (const testing::Source& file : testing::sources()) {
    if (file.path.starts_with("tests/") || file.path.starts_with("benchmarks/")) continue;
    const std::string texts = only(testing::text_of(file.path), false);
    find(texts, file.path, words, found);
  }
  check_none(found);
}

TEST_CASE("Sources have no names of versions up to 0.2, and American spelling",
          "[repository][words]") {
  std::vector<std::string> found;
  for (const testing::Source& file : testing::sources()) {
    if (file.path.ends_with("words_test.cpp") || file.path.starts_with("tests/conformance/"))
      continue;
    const std::string text = testing::text_of(file.path);
    find(text, file.path, old_names, found);
    find(only(text, true), file.path, british, found, true);
  }
  check_none(found);
}
