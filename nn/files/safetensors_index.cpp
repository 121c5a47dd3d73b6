#include "nn/files/safetensors_index.h"

#include <algorithm>
#include <filesystem>

#include "core/input_file.h"
#include "nn/files/json.h"
#include "nn/files/other_format.h"
#include "nn/files/safetensors_header.h"

namespace stretto::nn::files {

std::map<std::string, std::string> read_index(const char* op, const std::string& path) {
  const auto bad = [&](const auto&... parts) { fail(op, path, ": ", parts...); };
  const InputFile file(op, path);
  if (file.size() > int64_t(max_header))
    bad("an index of ", file.size(), " bytes; at most ", max_header, " allowed");
  std::string text(size_t(file.size()), '\0');
  file.read(text.data(), file.size(), 0);
  const size_t byte_order_mark = text.starts_with("\xEF\xBB\xBF") ? 3 : 0;
  if (const size_t first = text.find_first_not_of(" \t\r\n", byte_order_mark);
      first == std::string::npos || text[first] != '{')
    bad("the index does not begin with {", other_format(file));
  const Json root = parse_json(op, text, path + ": the index");
  const auto found = std::find_if(root.members.begin(), root.members.end(),
                                  [](const JsonMember& m) { return m.first == "weight_map"; });
  if (found == root.members.end()) bad("the index has no \"weight_map\"", other_format(file));
  const Json& names = found->second;
  if (!names.is_object()) bad("\"weight_map\" holds ", kind_of(names), ", not an object");
  if (names.members.size() > max_names) bad("more than ", max_names, " tensors");
  std::map<std::string, std::string> shards;
  for (const auto& [name, shard] : names.members) {
    if (!shard.is_string()) bad(in_quotes(name), " maps to ", kind_of(shard), ", not to a file");
    const auto invalid = [](unsigned char c) { return c == '/' || c == '\\' || c < ' '; };
    if (shard.text.empty() || shard.text == "." || shard.text == ".." ||
        std::any_of(shard.text.begin(), shard.text.end(), invalid))
      bad(in_quotes(name), " maps to ", in_quotes(shard.text),
          "; a shard must be a file name without a directory");
    shards[name] = shard.text;
  }
  return shards;
}

std::map<std::string, std::set<std::string>> names_by_shard(
    const char* op, const std::string& path, const std::map<std::string, std::string>& index) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::map<std::string, std::set<std::string>> names;
  for (const auto& [name, shard] : index) names[(folder / shard).string()].insert(name);
  check(names.size() <= 1000, op, path, ": ", names.size(), " shards; at most 1000 allowed");
  std::error_code ignored;
  for (const auto& [shard, own] : names)
    check(std::filesystem::exists(shard, ignored), op, path, ": the shard ",
          in_quotes(std::filesystem::path(shard).filename().string()), " is missing");
  return names;
}

}  // namespace stretto::nn::files
