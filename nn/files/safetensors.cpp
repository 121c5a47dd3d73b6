#include "nn/files/safetensors.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "core/atomic_file.h"
#include "core/digest.h"
#include "core/input_file.h"
#include "nn/files/other_format.h"
#include "nn/files/safetensors_header.h"
#include "nn/files/safetensors_index.h"
#include "nn/files/value_format.h"

namespace stretto::nn {

using namespace files;

namespace {

// The value of digest_key: "HEADER:DATA".
constexpr size_t digest_length = 16 + 1 + 16;
constexpr const char* no_digest = "0000000000000000:0000000000000000";

// The position of the digest in a header; npos if it has none. Names and values cannot contain this
// pattern, because their quotes are escaped.
size_t find_digest(const std::string& header) {
  const std::string before = str('"', digest_key, "\":\"");
  const size_t at = header.find(before);
  return at == std::string::npos ? at : at + before.size();
}

// Returns the digest of a header's length and of the header. The header must have no_digest in the
// place of its digest.
std::string header_digest(const std::string& header) {
  const uint64_t length = header.size();
  Digest digest;
  digest.add(&length, 8);
  digest.add(header.data(), int64_t(length));
  return digest.text();
}

// Returns a JSON string. Throws Error if the text is not UTF-8.
std::string json_text(const std::string& path, const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    fail("save", path, ": the string ", in_quotes(text), " is not UTF-8");
  }
}

}  // namespace

// One file with a checked header.
class SafetensorsFile::Shard {
 public:
  explicit Shard(const std::string& path) : path_(path), file_("safetensors", path) {
    if (file_.size() < 8)
      bad("has ", file_.size(), " bytes; needs at least 8", other_format(file_));
    uint64_t length = 0;
    file_.read(&length, 8, 0);
    if (length > max_header)
      bad("header of ", length, " bytes; at most ", max_header, " allowed", other_format(file_));
    if (int64_t(length) > file_.size() - 8)
      bad("truncated: header of ", length, " bytes in a file of ", file_.size(),
          other_format(file_));
    std::string text(length, '\0');
    file_.read(text.data(), int64_t(length), 8);
    header_ = parse_header(path_, text);
    data_start_ = 8 + int64_t(length);
    check_digest(std::move(text));
    check_layout(path_, header_.entries, file_.size() - data_start_);
  }

  const std::vector<files::Entry>& entries() const { return header_.entries; }
  const Metadata& metadata() const { return header_.metadata; }

  // Restricts a shard to the tensors that the index maps to it.
  void restrict_to(const std::string& index, std::set<std::string> names) {
    index_ = index;
    names_ = std::move(names);
  }
  bool has(const std::string& name) const { return !names_ || names_->contains(name); }

  void visit(const Wanted& wanted, const Use& use, const ReadAs& read_as) const {
    check_missing(wanted);
    Digest digest;
    for (const files::Entry& entry : header_.entries) {
      const bool selected = has(entry.name) && wanted(entry.name);
      if (selected) use({entry.name, tensor(entry, digest, read_as)});
      if (!selected && !data_digest_.empty()) skip(entry, digest);
    }
    if (!data_digest_.empty() && digest.text() != data_digest_)
      bad("is damaged: the tensors' data are not those it was saved with");
  }

  template <class... Parts>
  [[noreturn]] void bad(const Parts&... parts) const {
    fail("safetensors", path_, ": ", parts...);
  }

 private:
  void check_missing(const Wanted& wanted) const {
    if (!names_) return;
    std::set<std::string> missing = *names_;
    for (const files::Entry& entry : header_.entries) missing.erase(entry.name);
    for (const std::string& name : missing)
      if (wanted(name))
        bad("has no tensor ", in_quotes(name), ", which the index ", index_, " maps to it");
  }

  Tensor tensor(const files::Entry& entry, Digest& digest, const ReadAs& read_as) const {
    const ValueFormat* format = find_format(entry.dtype);
    if (!format || !format->supported)
      bad(in_quotes(entry.name), ": dtype ", in_quotes(entry.dtype),
          " is not supported; accepted: ", format_names());
    Tensor x = read_values(file_, data_start_ + entry.begin, *format, entry.shape,
                           read_as ? read_as(entry.name) : std::nullopt,
                           data_digest_.empty() ? nullptr : &digest);
    if (const std::optional<int> value = x.dtype() == boolean ? not_boolean(x) : std::nullopt)
      bad(in_quotes(entry.name), ": a BOOL holds ", *value);
    return x;
  }

  void skip(const files::Entry& entry, Digest& digest) const {
    std::vector<char> block(size_t(std::min<int64_t>(entry.end - entry.begin, 1 << 20)));
    for (int64_t at = entry.begin; at < entry.end; at += int64_t(block.size())) {
      const int64_t bytes = std::min(int64_t(block.size()), entry.end - at);
      file_.read(block.data(), bytes, data_start_ + at);
      digest.add(block.data(), bytes);
    }
  }

  // Called before check_layout(), so that a damaged header is reported as damaged.
  void check_digest(std::string header) {
    const auto found = header_.metadata.find(digest_key);
    if (found == header_.metadata.end()) return;
    const std::string& text = found->second;
    const size_t at = find_digest(header);
    if (text.size() != digest_length || text[16] != ':' || at == std::string::npos ||
        header.compare(at, digest_length, text) != 0)
      bad("its digest is malformed");
    header.replace(at, digest_length, no_digest);
    if (header_digest(header) != text.substr(0, 16))
      bad("is damaged: its header is not the one it was saved with");
    data_digest_ = text.substr(17);
  }

  const std::string path_;
  const InputFile file_;
  Header header_;
  int64_t data_start_ = 0;
  std::string data_digest_;                     // empty: the file has no digest
  std::string index_;                           // path of the index, for errors
  std::optional<std::set<std::string>> names_;  // unset: all tensors
};

SafetensorsFile::SafetensorsFile(std::string path) : WeightsFile("safetensors", std::move(path)) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::is_directory(path_, ignored)) {
    const fs::path one = fs::path(path_) / "model.safetensors",
                   index = one.string() + ".index.json";
    const bool is_one_file = fs::exists(one, ignored);
    check(is_one_file || fs::exists(index, ignored), "safetensors", path_,
          ": is not a regular file, nor a directory with model.safetensors or "
          "model.safetensors.index.json");
    path_ = (is_one_file ? one : index).string();
  }
  if (path_.ends_with(".json") || looks_like_index(path_))
    open_index(path_);
  else
    shards_.push_back(std::make_unique<Shard>(path_));
  for (const auto& shard : shards_) {
    for (const files::Entry& e : shard->entries())
      if (shard->has(e.name)) entries_.push_back({e.name, e.dtype, e.shape});
    metadata_.insert(shard->metadata().begin(), shard->metadata().end());
  }
}

SafetensorsFile::~SafetensorsFile() = default;

void SafetensorsFile::open_index(const std::string& path) {
  for (auto& [shard, names] : names_by_shard(op_, path, read_index(op_, path))) {
    shards_.push_back(std::make_unique<Shard>(shard));
    shards_.back()->restrict_to(path, std::move(names));
  }
}

void SafetensorsFile::visit(const Wanted& wanted, const Use& use, const ReadAs& read_as) const {
  for (const auto& shard : shards_) shard->visit(wanted, use, read_as);
}

const Tensor& Safetensors::operator[](const std::string& name) const {
  for (const NamedTensor& n : tensors)
    if (n.name == name) return n.tensor;
  fail("safetensors", "no tensor ", in_quotes(name));
}

void save_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                      const Metadata& metadata) {
  std::vector<NamedTensor> sorted = tensors;
  for (const NamedTensor& n : sorted) {
    check(n.tensor.defined(), "save", path, ": ", in_quotes(n.name), " is an undefined tensor");
    check(n.name != metadata_key, "save", path, ": no tensor can be called ", metadata_key);
  }
  std::sort(sorted.begin(), sorted.end(), [](const NamedTensor& a, const NamedTensor& b) {
    const auto rank = [](const NamedTensor& n) { return -item_size(n.tensor.dtype()); };
    return std::pair(rank(a), std::cref(a.name).get()) <
           std::pair(rank(b), std::cref(b.name).get());
  });

  std::set<std::string> names;
  std::string header = "{";
  const auto member = [&](const std::string& key) {
    if (header.back() != '{') header += ',';
    header += json_text(path, key) + ':';
  };
  check(metadata.size() <= max_names && sorted.size() <= max_names, "save", path, ": ",
        sorted.size(), " tensors and ", metadata.size(), " metadata strings; at most ", max_names,
        " of each can be read");
  if (!metadata.empty()) {
    member(metadata_key);
    header += '{';
    for (const auto& [key, value] : metadata) {
      member(key);
      header += json_text(path, key == digest_key ? no_digest : value);
    }
    header += '}';
  }
  int64_t at = 0;
  for (const NamedTensor& n : sorted) {
    check(names.insert(n.name).second, "save", path, ": two tensors are called ",
          in_quotes(n.name));
    const int64_t end = at + n.tensor.numel() * item_size(n.tensor.dtype());
    member(n.name);
    header += str("{\"dtype\":\"", format_name(n.tensor.dtype()), "\",\"shape\":[");
    for (int64_t d = 0; d < n.tensor.dim(); ++d) header += str(d > 0 ? "," : "", n.tensor.size(d));
    header += str("],\"data_offsets\":[", at, ",", end, "]}");
    at = end;
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t length = header.size();
  check(length <= max_header, "save", path, ": a header of ", length, " bytes; at most ",
        max_header, " allowed");

  AtomicFile file(path);
  file.write(&length, 8);
  file.write(header.data(), int64_t(length));
  const bool with_digest = metadata.contains(digest_key);
  Digest digest;
  for (const NamedTensor& n : sorted) {
    const Tensor x = n.tensor.detach().contiguous().to(cpu);
    const int64_t bytes = x.numel() * item_size(x.dtype());
    if (bytes > 0) file.write(x.raw_data(), bytes);
    if (with_digest) digest.add(x.raw_data(), bytes);
  }
  if (with_digest) {
    const std::string text = header_digest(header) + ':' + digest.text();
    file.rewrite(text.data(), int64_t(digest_length), int64_t(8 + find_digest(header)));
  }
  file.commit();
}

Safetensors load_safetensors(const std::string& path) {
  const SafetensorsFile file(path);
  return {.tensors = file.read([](const std::string&) { return true; }),
          .metadata = file.metadata()};
}

Metadata load_safetensors_metadata(const std::string& path) {
  return SafetensorsFile(path).metadata();
}

}  // namespace stretto::nn
