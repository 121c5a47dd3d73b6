#include "examples/lra/image.h"

#include "examples/common/file.h"
#include "examples/common/settings.h"
#include "examples/common/text_file.h"

namespace stretto::examples {
namespace {

constexpr size_t pixels = size_t(image_pixels);

bool is_made_of(const std::string& bytes, size_t record) {
  if (bytes.empty() || bytes.size() % record != 0) return false;
  for (size_t at = 0; at < bytes.size(); at += record)
    if (uint8_t(bytes[at]) > 9) return false;
  return true;
}

}  // namespace

uint16_t gray_value(uint8_t red, uint8_t green, uint8_t blue) {
  const int64_t weighted = 2989 * int64_t(red) + 5870 * int64_t(green) + 1140 * int64_t(blue);
  return uint16_t(weighted * 511 / (10'000 * 510));
}

LabeledSequences read_images(const std::string& path) {
  const std::string bytes = read_whole_file(path);
  constexpr const char* records =
      "records of a label from 0 to 9 and 3072 (color) or 1024 (gray) bytes";
  const bool color = is_made_of(bytes, 1 + 3 * pixels);
  if (!color && !is_made_of(bytes, 1 + pixels)) {
    refuse_known_format(bytes, path, records);
    throw UsageError(path + ": " + as_text(int64_t(bytes.size())) + " bytes are not " + records);
  }
  const size_t record = 1 + (color ? 3 : 1) * pixels;
  LabeledSequences data;
  std::vector<uint16_t> ids(pixels);
  for (size_t at = 0; at < bytes.size(); at += record) {
    data.labels.push_back(uint8_t(bytes[at]));
    const auto byte = [&](size_t plane, size_t i) {
      return uint8_t(bytes[at + 1 + plane * pixels + i]);
    };
    for (size_t i = 0; i < pixels; ++i)
      ids[i] = color ? gray_value(byte(0, i), byte(1, i), byte(2, i)) : byte(0, i);
    data.sequences.add(ids);
  }
  return data;
}

}  // namespace stretto::examples
