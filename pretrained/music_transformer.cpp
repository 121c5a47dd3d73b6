#include "pretrained/music_transformer.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "core/one_line.h"
#include "pretrained/files/published_names.h"

namespace stretto::nn::pretrained {
namespace {

namespace fs = std::filesystem;

const WeightsFile::Entry* find(const WeightsFile& file, const std::string& name) {
  const auto at = std::find_if(file.entries().begin(), file.entries().end(),
                               [&](const WeightsFile::Entry& e) { return e.name == name; });
  return at == file.entries().end() ? nullptr : &*at;
}

// Returns the shape of a matrix of the file.
std::array<int64_t, 2> matrix(const WeightsFile& file, const std::string& name) {
  constexpr int64_t most = 1 << 24;
  const WeightsFile::Entry* e = find(file, name);
  check(e != nullptr && e->shape.dim() == 2 && std::min(e->shape[0], e->shape[1]) >= 1 &&
            std::max(e->shape[0], e->shape[1]) <= most,
        "load_pretrained", one_line(file.path()), ": a Music Transformer needs the matrix ", name,
        " of at most ", most, " rows and columns");
  return {e->shape[0], e->shape[1]};
}

// Expanded tensors take no space in a file, but would in the model.
void check_size(const WeightsFile& file) {
  std::error_code ignored;
  const auto bytes = double(fs::file_size(file.path(), ignored));
  double values = 0;
  for (const WeightsFile::Entry& e : file.entries()) {
    double product = 1;
    for (const int64_t size : e.shape) product *= double(size);
    values += product;
  }
  check(values <= bytes, "load_pretrained", one_line(file.path()), ": its tensors have ", values,
        " elements, more than the file has bytes");
}

}  // namespace

std::optional<MusicTransformerConfig> music_transformer_config(const WeightsFile& file) {
  const auto layer = [](int64_t i, const char* name) {
    return str("transformer.encoder.layers.", i, ".", name);
  };
  if (!find(file, layer(0, "self_attn.Er"))) return {};
  check_size(file);
  const auto [vocabulary, d_model] = matrix(file, "embedding.weight");
  const auto [max_length, d_head] = matrix(file, layer(0, "self_attn.Er"));
  check(d_model % d_head == 0, "load_pretrained", one_line(file.path()), ": the width ", d_model,
        " is not a multiple of the head dimension ", d_head);
  LanguageModel::Options o = gwinndr_options(vocabulary, max_length);
  o.layer.d_model = d_model;
  o.layer.attention.n_heads = d_model / d_head;
  o.layer.feed_forward.d_hidden = matrix(file, layer(0, "linear1.weight"))[0];
  o.n_layers = std::count_if(file.entries().begin(), file.entries().end(),
                             [](const auto& e) { return e.name.ends_with(".self_attn.Er"); });
  MusicTransformerConfig m{{o, gwinndr_names(), max_length}};
  constexpr int64_t own_vocabulary = 390, end = 388;  // 388 events, the end and the padding
  if (vocabulary == own_vocabulary) m.end_token = end;
  return m;
}

std::string state_dict_in(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored) || fs::exists(fs::path(path) / "config.json", ignored))
    return path;
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, ignored)) {
    const fs::path extension = entry.path().extension();
    if (extension == ".pickle" || extension == ".pth" || extension == ".pt")
      found.push_back(entry.path().string());
  }
  return found.size() == 1 ? found[0] : path;
}

}  // namespace stretto::nn::pretrained
