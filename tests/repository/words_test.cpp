// The words that pages, public headers, error texts and help do not use: names that were replaced,
// words that mean something else to readers, and British spelling.
#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/repository/sources.h"
#include "tests/support/catch.h"
#include "tests/support/find_upwards.h"

namespace fs = std::filesystem;
using namespace stretto;

namespace {

const fs::path root = testing::find_upwards("stretto.h").parent_path();

struct Word {
  const char* pattern;  // of ECMAScript, between word boundaries
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
    {"needs_all_keys", "is_dense"},
    {"keeps_state", "has_recurrent_state"},
    {"takes_pieces", "supports_sequence_parallel"},
    {"key_width", "encoded_dim"},
    {"attention_and_sums", "attention_with_lse"},
    {"log_sum", "lse"},
    {"sum_pieces", "reduce_scatter"},
    {"share_pieces", "all_gather_chunks"},
    {"sum_of_earlier", "exclusive_prefix_sum"},
    {"after_earlier_rows", "with_left_halo"},
    {"keys_and_values_of_whole", "gather_left_kv"},
    {"(linear_)?attention_of_whole", "sequence_parallel_attention"},
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

// Words of readers' pages.
constexpr Word words[] = {
    {"(the )?house", "the repository"},
    {"rooms?", "directories"},
    {"lags?", "relative position, distance"},
    {"two-sided", "bidirectional"},
    {"the other side", "positions after the query"},
    {"(the )?way back", "the backward pass"},
    {"parts of a batch", "micro-batches"},
    {"stretch(es)?", "range, chunk"},
    {"go(es)? on with", "continues, resumes"},
    {"beyond the table", "out of range"},
    {"remarks?", "annotation"},
    {"known by counting|counting alone", "n-gram baseline"},
    {"same bits", "bit-identical"},
    {"plain attention", "dot-product attention without positions"},
    {"frozen draws?", "fixed noise"},
    {"so many", "the number of"},
    {"but for", "except"},
    {"no better than", "at most"},
    {"beside", "next to, besides, compared with"},
    {"told", "reported, raised"},
};

constexpr Word british[] = {
    {"optimis(e|ed|es|er|ers|ing|ation|ations)", "optimize"},
    {"normalis(e|ed|es|ing|ation|ations)", "normalize"},
    {"initialis(e|ed|es|ing|ation|ations)", "initialize"},
    {"uninitialised", "uninitialized"},
    {"synchronis(e|ed|es|ing|ation)", "synchronize"},
    {"quantis(e|ed|es|ing|ation)", "quantize"},
    {"tokenis(e|ed|es|er|ers|ing|ation)", "tokenize"},
    {"harmonis(e|ed|es|er|ing|ation)", "harmonize"},
    {"recognis(e|ed|es|ing)", "recognize"},
    {"organis(e|ed|es|ing|ation)", "organize"},
    {"summaris(e|ed|es|ing)", "summarize"},
    {"generalis(e|ed|es|ing|ation)", "generalize"},
    {"specialis(e|ed|es|ing|ation|ations)", "specialize"},
    {"minimis(e|ed|es|ing)", "minimize"},
    {"maximis(e|ed|es|ing)", "maximize"},
    {"colours?", "color"},
    {"neighbours?|neighbouring", "neighbor"},
    {"behaviours?", "behavior"},
    {"favour(s|ed|able)?", "favor"},
    {"centres?|centred", "center"},
    {"grey", "gray"},
    {"licence", "license"},
    {"catalogue", "catalog"},
    {"labelled|labelling", "labeled"},
    {"modelled|modelling", "modeled"},
    {"cancelled|cancelling", "canceled"},
    {"travelled|travelling", "traveled"},
    {"learnt", "learned"},
    {"artefacts?", "artifact"},
    {"programme", "program"},
    {"analys(e|ed|es|ing)", "analyze"},
    {"whilst", "while"},
};

template <size_t N>
void find(const std::string& text, const std::string& where, const Word (&list)[N],
          std::vector<std::string>& found) {
  for (const Word& word : list) {
    const std::regex pattern("\\b(" + std::string(word.pattern) + ")\\b");
    for (std::sregex_iterator at(text.begin(), text.end(), pattern), end; at != end; ++at) {
      const auto line = 1 + std::count(text.begin(), text.begin() + at->position(), '\n');
      found.push_back(where + ":" + std::to_string(line) + ": " + at->str() + "; write " +
                      word.instead);
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
      "examples/character_model\\.cpp:.*: the house; .*|examples/piano/.*: stretch; .*");
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
    find(text, page, british, found);
  }
  check_none(found);
}

TEST_CASE("Comments of public headers use the field's words", "[repository][words]") {
  const std::string umbrella = testing::text_of("stretto.h");
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
    find(only(text, true), file.path, british, found);
  }
  check_none(found);
}
