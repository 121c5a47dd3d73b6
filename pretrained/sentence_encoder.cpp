#include "pretrained/sentence_encoder.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "autograd/tape.h"
#include "core/one_line.h"
#include "core/utf8.h"
#include "nn/data/crops.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "pretrained/files/json_reader.h"
#include "pretrained/tokenizers/text/unicode.h"

namespace stretto::nn {

using files::JsonReader;

namespace {

std::string in_folder(const std::string& folder, const std::string& file) {
  return (std::filesystem::path(folder) / file).string();
}

// Reads the kind of pooling; exactly one of the modes is set.
Pooling read_pooling(const std::string& path) {
  JsonReader c = JsonReader::of_file("SentenceEncoder", path);
  const std::string mode = c.text("pooling_mode", "");  // newer files
  const bool mean = c.flag("pooling_mode_mean_tokens", false) || mode == "mean";
  const bool cls = c.flag("pooling_mode_cls_token", false) || mode == "cls";
  for (const char* name : {"pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens",
                           "pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken"})
    c.require(name, false);
  c.require("include_prompt", true);
  c.ignore({"word_embedding_dimension", "embedding_dimension"});
  c.finish();
  if (mean == cls) c.refuse("exactly one of the modes \"mean\" and \"cls\" must be set");
  return mean ? Pooling::mean : Pooling::first;
}

// Returns the text of sentences' default prompt; empty: none.
std::string default_prompt(const std::string& folder) {
  const std::string path = in_folder(folder, "config_sentence_transformers.json");
  if (!std::filesystem::exists(path)) return "";
  JsonReader c = JsonReader::of_file("SentenceEncoder", path);
  const std::string name = c.text("default_prompt_name", "");
  std::optional<JsonReader> prompts = c.object("prompts");
  if (name.empty()) return "";
  if (!prompts) c.refuse("\"default_prompt_name\" without \"prompts\"");
  return prompts->text(name);
}

// Checks the fields that newer versions write: the output must be the tokens of texts.
void check_task(JsonReader& c) {
  c.require("transformer_task", "feature-extraction");
  c.require("module_output_name", "token_embeddings");
  std::optional<JsonReader> modalities = c.object("modality_config");
  if (!modalities) return;
  if (std::optional<JsonReader> text = modalities->object("text")) {
    text->require("method", "forward");
    text->require("method_output_name", "last_hidden_state");
    text->finish();
  }
  modalities->finish();
}

// Returns the limit of the tokenizer in tokens; tokenizers without one have a very large number.
int64_t model_max_length(const std::string& folder) {
  constexpr int64_t none = int64_t{1} << 24;
  const std::string path = in_folder(folder, "tokenizer_config.json");
  if (!std::filesystem::exists(path)) return none;
  JsonReader c = JsonReader::of_file("SentenceEncoder", path);
  const double length = c.number("model_max_length", double(none));
  if (length < 1) c.refuse("\"model_max_length\" must be at least 1");
  return int64_t(std::min(length, double(none)));
}

// Returns the text in lower case, each code point by itself.
std::string lower_case(const std::string& sentence) {
  std::string storage, lower;
  const std::string_view text = repaired_utf8(sentence, storage);
  for (size_t at = 0; at < text.size();) tokenizers::append_lower(lower, next_code_point(text, at));
  return lower;
}

}  // namespace

SentenceEncoder SentenceEncoder::load(const std::string& path, const PretrainedOptions& options) {
  const char* op = "SentenceEncoder";
  const std::string modules = in_folder(path, "modules.json");
  std::string transformer = path;  // the folder of the model
  Pooling pooling = Pooling::mean;
  bool normalizes = false;
  if (std::filesystem::exists(modules))
    for (JsonReader& module : JsonReader::list_of_file(op, modules)) {
      const std::string type = module.text("type"), name = type.substr(type.rfind('.') + 1);
      const std::string folder = module.text("path", "");
      check(folder.find("..") == std::string::npos && !folder.starts_with('/'), op,
            one_line(modules), ": the path ", in_quotes(folder), " leaves the folder");
      if (name == "Pooling")
        pooling = read_pooling(in_folder(path, folder + "/config.json"));
      else if (name == "Normalize")
        normalizes = true;
      else if (name == "Transformer" && !folder.empty())
        transformer = in_folder(path, folder);
      else
        check(name == "Transformer", op, one_line(modules), ": the module ", in_quotes(type),
              " is not supported; supported are Transformer, Pooling, Normalize");
    }
  SentenceEncoder encoder(load_pretrained(transformer, options));
  encoder.pooling_ = pooling;
  encoder.normalize_ = normalizes;
  encoder.prompt_ = default_prompt(path);
  check(dynamic_cast<const Bert*>(encoder.model_.model.get()) != nullptr, op, one_line(transformer),
        ": a model of the type ", in_quotes(encoder.model_.model_type),
        " does not encode sentences; supported are BERT, RoBERTa and DeBERTa");
  check(encoder.model_.tokenizer.has_value(), op, one_line(transformer), ": has no tokenizer");
  encoder.max_length_ = encoder.model_.bert().options.max_length;
  std::optional<int64_t> length;
  if (const std::string config = in_folder(transformer, "sentence_bert_config.json");
      std::filesystem::exists(config)) {
    JsonReader c = JsonReader::of_file(op, config);
    if (c.has("max_seq_length")) length = c.size("max_seq_length");
    encoder.lower_case_ = c.flag("do_lower_case", false);
    check_task(c);
    c.finish();
  }
  encoder.max_length_ =
      std::min(encoder.max_length_, length ? *length : model_max_length(transformer));
  return encoder;
}

Tensor SentenceEncoder::encode_batch(const std::vector<std::vector<int64_t>>& rows) const {
  const PaddedRows padded = pad_rows(rows, 0, model_.tokenizer->pad().value_or(0));
  const Device device = model_.model->device();
  const Tensor y = model_.bert()(TokenBatch(padded.tokens.to(device), padded.padding.to(device)));
  if (pooling_ == Pooling::first) return y.select(1, 0).to(cpu);
  const Tensor hidden = padded.padding.to(device).unsqueeze(-1);
  const Tensor sums = sum(masked_fill(y, hidden, 0), {1});
  std::vector<double> counts;
  for (const auto& row : rows) counts.push_back(double(row.size()));
  return (sums / tensor(counts, {int64_t(rows.size()), 1}, device).to(y.dtype())).to(cpu);
}

Tensor SentenceEncoder::encode(const std::vector<std::string>& sentences, int64_t batch) const {
  check(batch >= 1, "SentenceEncoder", "batch ", batch, "; must be at least 1");
  const NoGrad guard;
  std::vector<std::vector<int64_t>> rows;
  for (const std::string& sentence : sentences) {
    const std::string text = prompt_ + sentence;
    std::vector<int64_t> row = model_.tokenizer->encode(lower_case_ ? lower_case(text) : text);
    if (int64_t(row.size()) > max_length_) {  // the last token is the end marker
      row[size_t(max_length_) - 1] = row.back();
      row.resize(size_t(max_length_));
    }
    rows.push_back(std::move(row));
  }
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return rows[a].size() > rows[b].size(); });
  const BertOptions& o = model_.bert().options;
  Tensor result = zeros({int64_t(rows.size()), o.layer.d_model},
                        {.dtype = model_.bert().embedding.weight.dtype(), .device = cpu});
  for (size_t begin = 0; begin < order.size(); begin += size_t(batch)) {
    const size_t end = std::min(order.size(), begin + size_t(batch));
    std::vector<std::vector<int64_t>> chunk;
    for (size_t i = begin; i < end; ++i) chunk.push_back(rows[order[i]]);
    Tensor vectors = encode_batch(chunk);
    if (normalize_) {
      const Tensor lengths = sqrt(sum(square(vectors), {1}, true));
      vectors = vectors / clamp(lengths, 1e-12, std::numeric_limits<double>::max());
    }
    for (size_t i = begin; i < end; ++i)
      result.select(0, int64_t(order[i])).copy_(vectors.select(0, int64_t(i - begin)));
  }
  return result;
}

}  // namespace stretto::nn
