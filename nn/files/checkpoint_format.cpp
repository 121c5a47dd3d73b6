#include "nn/files/checkpoint_format.h"

#include "core/one_line.h"
#include "core/version.h"

namespace stretto::nn::files {
namespace {

constexpr const char* format_key = "stretto.format";
constexpr const char* version_key = "stretto.version";
constexpr std::string_view format_name = "checkpoint-";
constexpr int format = 2;

std::string release() { return str(STRETTO_VERSION_MAJOR, ".", STRETTO_VERSION_MINOR, "."); }
std::string version() { return str(release(), STRETTO_VERSION_PATCH); }

}  // namespace

Metadata checkpoint_texts() {
  return {{format_key, std::string(format_name) + std::to_string(format)},
          {version_key, version()},
          {digest_key, ""}};
}

bool is_checkpoint(const std::string& path, const Metadata& metadata) {
  const auto found = metadata.find(format_key);
  if (found == metadata.end() || !found->second.starts_with(format_name)) return false;
  const std::string saved_format = found->second.substr(format_name.size());
  const auto text = metadata.find(version_key);  // not written by version 0.1
  const std::string writer = text == metadata.end() ? "0.1" : text->second;
  check(saved_format == std::to_string(format) && writer.starts_with(release()), "load", path,
        ": is a checkpoint written by Stretto ", one_line(writer, 20), " (format ",
        one_line(saved_format, 20), "); this is ", version(), " (format ", format, ")");
  check(metadata.contains(digest_key), "load", path, ": metadata \"", digest_key, "\" is missing");
  return true;
}

}  // namespace stretto::nn::files
