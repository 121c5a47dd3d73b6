#include "pretrained/files/open_weights.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/input_file.h"
#include "core/one_line.h"
#include "nn/files/other_format.h"
#include "nn/files/safetensors.h"
#include "nn/files/safetensors_index.h"
#include "pretrained/files/gguf/gguf.h"
#include "pretrained/files/pytorch/pytorch.h"

namespace stretto::nn {

using namespace files;
namespace fs = std::filesystem;

namespace {

constexpr const char* op = "load";

std::unique_ptr<WeightsFile> open_file(const std::string& path) {
  FileFormat format;
  {
    const InputFile file(op, path);
    format = format_of(file);
  }
  if (format == FileFormat::gguf) return std::make_unique<GgufFile>(path);
  if (format == FileFormat::zip || format == FileFormat::pickle)
    return std::make_unique<PyTorchFile>(path);
  return std::make_unique<SafetensorsFile>(path);
}

// Shards that are not safetensors files, with an index of their tensors.
class ShardedWeights : public WeightsFile {
 public:
  ShardedWeights(std::string path, const std::map<std::string, std::string>& index)
      : WeightsFile(op, std::move(path)) {
    for (auto& [shard, names] : names_by_shard(op_, path_, index)) {
      shards_.push_back({open_file(shard), std::move(names)});
      const Shard& opened = shards_.back();
      for (const Entry& e : opened.file->entries())
        if (opened.names.contains(e.name)) entries_.push_back(e);
      metadata_.insert(opened.file->metadata().begin(), opened.file->metadata().end());
    }
  }

  void visit(const Wanted& wanted, const Use& use, const ReadAs& read_as) const override {
    for (const Shard& shard : shards_) {
      std::set<std::string> missing = shard.names;
      for (const Entry& e : shard.file->entries()) missing.erase(e.name);
      for (const std::string& name : missing)
        check(!wanted(name), op_, shard.file->path(), ": has no tensor ", in_quotes(name),
              ", which the index ", path_, " maps to it");
      const auto in_shard = [&](const std::string& name) {
        return shard.names.contains(name) && wanted(name);
      };
      shard.file->visit(in_shard, use, read_as);
    }
  }

 private:
  struct Shard {
    std::unique_ptr<WeightsFile> file;
    std::set<std::string> names;  // the tensors that the index maps to it
  };
  std::vector<Shard> shards_;
};

// The file of a directory.
std::string file_in(const std::string& folder) {
  std::error_code ignored;
  for (const char* name : {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                           "pytorch_model.bin.index.json"})
    if (const fs::path path = fs::path(folder) / name; fs::exists(path, ignored))
      return path.string();
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().extension() == ".gguf") found.push_back(entry.path().string());
  check(found.size() <= 1, op, folder, ": has ", found.size(),
        " files *.gguf; pass the path of one of them");
  check(found.size() == 1, op, folder,
        ": is not a regular file, nor a directory with model.safetensors, "
        "model.safetensors.index.json, pytorch_model.bin, pytorch_model.bin.index.json or a file "
        "*.gguf");
  return found[0];
}

}  // namespace

std::unique_ptr<WeightsFile> open_weights(const std::string& path) {
  std::error_code ignored;
  const std::string file = fs::is_directory(path, ignored) ? file_in(path) : path;
  if (!file.ends_with(".json") && !looks_like_index(file)) return open_file(file);
  const std::map<std::string, std::string> index = read_index(op, file);
  const auto is_safetensors = [](const auto& entry) {
    return entry.second.ends_with(".safetensors");
  };
  if (std::all_of(index.begin(), index.end(), is_safetensors))
    return std::make_unique<SafetensorsFile>(file);
  return std::make_unique<ShardedWeights>(file, index);
}

}  // namespace stretto::nn
