#include "pretrained/files/gguf/gguf.h"

#include <algorithm>

#include "core/one_line.h"
#include "pretrained/files/dequantize.h"
#include "pretrained/files/gguf/gguf_header.h"

namespace stretto::nn {

using namespace files;

namespace {

// The types of GgufValue::Value, for errors.
constexpr const char* expected_types[] = {"a bool",
                                          "an integer",
                                          "a number",
                                          "a string",
                                          "an array of bools",
                                          "an array of integers",
                                          "an array of numbers",
                                          "an array of strings",
                                          "an array of arrays"};
static_assert(std::size(expected_types) == std::variant_size_v<GgufValue::Value>);

std::string as_text(const GgufValue::Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* number = std::get_if<int64_t>(&value)) return str(*number);
  if (const auto* number = std::get_if<double>(&value)) return str(*number);
  return std::get<bool>(value) ? "true" : "false";
}

std::string supported_types() {
  return "F32, F64, F16, BF16, I8, I16, I32, I64, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K";
}

}  // namespace

struct GgufFile::Content {
  explicit Content(const std::string& path)
      : file("GGUF", path), header(read_gguf_header(file, path)) {}
  InputFile file;
  GgufHeader header;
};

GgufFile::GgufFile(std::string path)
    : WeightsFile("GGUF", std::move(path)), content_(std::make_unique<Content>(path_)) {
  values_ = std::move(content_->header.values);
  const auto parts = get<int64_t>("split.count", 1);
  check(parts <= 1, op_, path_, ": is one of ", parts,
        " files of a model; join them with llama-gguf-split --merge");
  for (const GgufTensor& t : content_->header.tensors)
    entries_.push_back({t.name, t.type, t.shape});
  constexpr size_t scalars = 4;
  for (const auto& [key, v] : values_)
    if (v.value.index() < scalars) metadata_.emplace(key, as_text(v.value));
}

GgufFile::~GgufFile() = default;

const GgufValue* GgufFile::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

void GgufFile::wrong_type(const std::string& key, const GgufValue* found, size_t expected) const {
  const std::string type = found ? found->type : "missing";
  const bool vowel = type[0] == 'a' || type[0] == 'i' || type[0] == 'f';  // an f32
  fail(op_, path_, ": key ", in_quotes(key), " is ",
       !found  ? ""
       : vowel ? "an "
               : "a ",
       type, "; expected ", expected_types[expected]);
}

void GgufFile::visit(const Wanted& wanted, const Use& use, const ReadAs& read_as) const {
  for (const GgufTensor& t : content_->header.tensors) {
    if (!wanted(t.name)) continue;
    const ValueFormat* format = find_gguf_format(t.type);
    check(format && format->supported, op_, path_, ": ", in_quotes(t.name), " has ", t.type,
          ", which is not supported; accepted: ", supported_types());
    const std::optional<DType> dtype = read_as ? read_as(t.name) : std::nullopt;
    use({t.name, read_values(content_->file, t.offset, *format, t.shape, dtype)});
  }
}

}  // namespace stretto::nn
