#include "examples/lra/text.h"

#include <algorithm>

#include "examples/common/settings.h"
#include "examples/lra/tsv.h"

namespace stretto::examples {
namespace {

int32_t binary_label(std::string_view text) {
  require(text == "0" || text == "1" || text == "0.0" || text == "1.0",
          "its label is \"" + std::string(text.substr(0, 20)) + "\"; must be 0 or 1");
  return text[0] - '0';
}

std::vector<uint16_t> ids_of(std::string_view text, int64_t max_length) {
  require(!text.empty(), "its text is empty");
  return byte_ids(text, max_length);
}

}  // namespace

std::vector<uint16_t> byte_ids(std::string_view text, int64_t max_length) {
  const std::string_view kept = text.substr(0, size_t(std::max<int64_t>(max_length, 0)));
  std::vector<uint16_t> ids;
  ids.reserve(kept.size());
  for (const char c : kept) ids.push_back(uint16_t(1 + uint8_t(c)));
  return ids;
}

LabeledSequences read_reviews(const std::string& path, int64_t max_length) {
  LabeledSequences data;
  read_tsv(path, 4, false, [&](const std::vector<std::string_view>& fields) {
    data.labels.push_back(binary_label(fields[0]));
    data.sequences.add(ids_of(fields[3], max_length));
  });
  require(data.size() > 0, path + ": is empty");
  return data;
}

LabeledSequences read_text_pairs(const std::string& path, int64_t max_length) {
  LabeledSequences data;
  read_tsv(path, 5, false, [&](const std::vector<std::string_view>& fields) {
    data.labels.push_back(binary_label(fields[0]));
    data.sequences.add(ids_of(fields[3], max_length));
    data.others.add(ids_of(fields[4], max_length));
  });
  require(data.size() > 0, path + ": is empty");
  return data;
}

}  // namespace stretto::examples
