#include "pretrained/files/pytorch/pytorch.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "core/one_line.h"
#include "nn/files/other_format.h"
#include "pretrained/files/pytorch/pickle_names.h"
#include "pretrained/files/pytorch/zip_archive.h"

namespace stretto::nn {

using namespace files;

namespace {

constexpr const char* op = "PyTorch";
const std::string magic_number = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";  // little-endian
constexpr int64_t protocol_version = 1001;

bool is_integer(const PickleValue& v, int64_t expected) {
  return v.kind == PickleValue::Kind::integer && v.integer == expected;
}

// The number of values from the first to the last one of a tensor.
int64_t span_of(const PickleTensor& t) {
  if (t.shape.numel() == 0) return 0;
  int64_t last = 0;
  for (int64_t d = 0; d < t.shape.dim(); ++d) last += (t.shape[d] - 1) * t.strides[d];
  return last + 1;
}

// The tensors of a visit that view one storage in one dtype. If together they need more bytes than
// the storage has, it is read as a whole, once: memory is then bounded by the size of the file,
// however many tensors view it.
struct Group {
  int64_t bytes = 0, tensors = 0;
  Tensor whole = {};
};
using GroupKey = std::tuple<std::string, const ValueFormat*, std::optional<DType>>;

}  // namespace

struct PyTorchFile::Content {
  // The values of a storage in the file.
  struct Values {
    const ZipArchive::Entry* entry = nullptr;  // null in the older format
    int64_t position = 0, bytes = 0;           // in the older format
  };

  explicit Content(const std::string& path_) : path(path_), file(op, path_) {
    std::string first(size_t(std::min<int64_t>(file.size(), 2)), '\0');
    file.read(first.data(), int64_t(first.size()), 0);
    first == "PK" ? open_archive() : open_pickles();
    check_storages();
    names = flatten(pickle, path);
  }

  template <class... Parts>
  [[noreturn]] void bad(const Parts&... parts) const {
    fail(op, path, ": ", parts...);
  }

  void open_archive() {
    archive.emplace(file, op, path);
    const ZipArchive::Entry* found = nullptr;
    for (const ZipArchive::Entry& entry : archive->entries())
      if (entry.name.ends_with("/data.pkl") || entry.name == "data.pkl") {
        if (found) bad("has ", in_quotes(found->name), " and ", in_quotes(entry.name));
        found = &entry;
      }
    if (!found) bad("is a zip archive without data.pkl, which torch.save() writes");
    const std::string prefix = found->name.substr(0, found->name.size() - 8);
    if (const ZipArchive::Entry* order = archive->find(prefix + "byteorder")) {
      ByteReader in = reader(*order);
      if (in.text(uint64_t(std::min<int64_t>(order->size, 6))) != "little")
        bad("is big-endian; only little-endian files are supported");
    }
    ByteReader in = reader(*found);
    pickle = read_pickle(in);
    for (const PickleStorage& s : pickle.storages)
      if (const ZipArchive::Entry* entry = archive->find(prefix + "data/" + s.key)) {
        if (entry->method != 0 || entry->encrypted) archive->data_position(*entry);  // throws
        values[s.key] = {entry, 0, entry->size};
      }
  }

  ByteReader reader(const ZipArchive::Entry& entry) const {
    const int64_t at = archive->data_position(entry);
    return {file, op, path, at, at + entry.size};
  }

  void open_pickles() {
    if (file.size() < 2 || first_byte() != 0x80)
      bad("is not a file of torch.save()", other_format(file));
    ByteReader in(file, op, path, 0, file.size());
    const Pickle magic = read_pickle(in);
    if (magic.root.kind != PickleValue::Kind::big_integer || magic.text(magic.root) != magic_number)
      bad("is a pickle, but not a file of torch.save()");
    if (!is_integer(read_pickle(in).root, protocol_version))
      bad("has another version than ", protocol_version, " of the older format");
    check_little_endian(read_pickle(in));
    pickle = read_pickle(in);
    const Pickle keys = read_pickle(in);
    if (keys.root.kind != PickleValue::Kind::list) bad("has no list of storages");
    std::map<std::string, const ValueFormat*> formats;
    for (const PickleStorage& s : pickle.storages)
      if (const auto [it, is_new] = formats.emplace(s.key, s.format);
          !is_new && it->second->bytes != s.format->bytes)
        bad("the storage ", in_quotes(s.key), " has two dtypes");
    for (const PickleValue& key : keys.items(keys.root)) {
      if (key.kind != PickleValue::Kind::text) bad("has a storage whose key is not a string");
      const auto format = formats.find(keys.text(key));
      if (format == formats.end()) bad("no tensor has the storage ", in_quotes(keys.text(key)));
      const auto n = in.get<uint64_t>();
      uint64_t bytes = 0;
      if (__builtin_mul_overflow(n, uint64_t(format->second->bytes), &bytes)) bytes = UINT64_MAX;
      in.require(bytes);
      if (!values.emplace(format->first, Values{nullptr, in.position(), int64_t(bytes)}).second)
        bad("the storage ", in_quotes(format->first), " occurs twice");
      in.skip(bytes);
    }
  }

  uint8_t first_byte() const {
    uint8_t byte = 0;
    file.read(&byte, 1, 0);
    return byte;
  }

  void check_little_endian(const Pickle& system) const {
    if (system.root.kind != PickleValue::Kind::dict) bad("does not describe its system");
    const std::vector<PickleValue>& items = system.items(system.root);
    for (size_t i = 0; i + 1 < items.size(); i += 2)
      if (items[i].kind == PickleValue::Kind::text && system.text(items[i]) == "little_endian" &&
          !(items[i + 1].kind == PickleValue::Kind::boolean && items[i + 1].integer))
        bad("is big-endian; only little-endian files are supported");
  }

  void check_storages() const {
    for (const PickleStorage& s : pickle.storages) {
      const auto found = values.find(s.key);
      if (found == values.end()) bad("the storage ", in_quotes(s.key), " is missing");
      if (s.numel > found->second.bytes / s.format->bytes)
        bad("truncated: the storage ", in_quotes(s.key), " has ", found->second.bytes,
            " bytes; needs ", s.numel, " values of ", s.format->name);
    }
  }

  // The index of a tensor's first value in its storage, in values of its format.
  int64_t first_value(const PickleTensor& t) const {
    const PickleStorage& s = pickle.storages[t.storage];
    return s.begin * s.format->bytes / t.format->bytes + t.offset;
  }

  void check_readable(const std::string& name, const PickleTensor& t) const {
    if (!t.format->supported)
      bad(in_quotes(name), " has ", t.format->name, ", which is not supported; accepted: ",
          "F32, F64, F16, BF16, I64, I32, I16, I8, U8, BOOL");
    if (!t.flag.empty())
      bad(in_quotes(name), " has the flag ", in_quotes(t.flag), ", which is not supported");
  }

  // Reads `count` values of a storage from value `first` on.
  Tensor read(const std::string& name, const PickleTensor& t, int64_t first, int64_t count,
              std::optional<DType> dtype) const {
    const Values& v = values.at(pickle.storages[t.storage].key);
    const int64_t at = v.entry ? archive->data_position(*v.entry) : v.position;
    Tensor x = read_values(file, at + first * t.format->bytes, *t.format, {count}, dtype);
    if (const std::optional<int> value = x.dtype() == boolean ? not_boolean(x) : std::nullopt)
      bad(in_quotes(name), ": a BOOL holds ", *value);
    return x;
  }

  // Reads a tensor, as a view of its group's storage if that is read as a whole.
  Tensor tensor(const std::string& name, const PickleTensor& t, std::optional<DType> dtype,
                Group& group) const {
    const int64_t all = values.at(pickle.storages[t.storage].key).bytes / t.format->bytes;
    const int64_t first = first_value(t);
    if (group.bytes / t.format->bytes <= all)
      return make_view(read(name, t, first, span_of(t), dtype), 0, t.shape, t.strides);
    if (!group.whole.defined()) group.whole = read(name, t, 0, all, dtype);
    return make_view(group.whole, first, t.shape, t.strides);
  }

  const std::string path;
  const InputFile file;
  std::optional<ZipArchive> archive;
  Pickle pickle;
  std::unordered_map<std::string, Values> values;  // by key
  PickleNames names;
};

PyTorchFile::PyTorchFile(std::string path)
    : WeightsFile(op, std::move(path)), content_(std::make_unique<Content>(path_)) {
  for (const NamedPickleTensor& n : content_->names.tensors) {
    const PickleTensor& t = content_->pickle.tensors[n.tensor];
    entries_.push_back({n.name, t.format->name, t.shape});
  }
  metadata_ = std::move(content_->names.metadata);
}

PyTorchFile::~PyTorchFile() = default;

void PyTorchFile::visit(const Wanted& wanted, const Use& use, const ReadAs& read_as) const {
  const Content& c = *content_;
  const auto group_of = [&](const NamedPickleTensor& n) {
    const PickleTensor& t = c.pickle.tensors[n.tensor];
    const std::string& key = c.pickle.storages[t.storage].key;
    return GroupKey(key, t.format, read_as ? read_as(n.name) : std::nullopt);
  };
  std::map<GroupKey, Group> groups;
  std::vector<const NamedPickleTensor*> chosen;
  for (const NamedPickleTensor& n : c.names.tensors) {
    if (!wanted(n.name)) continue;
    const PickleTensor& t = c.pickle.tensors[n.tensor];
    c.check_readable(n.name, t);
    chosen.push_back(&n);
    Group& group = groups[group_of(n)];
    group.bytes += std::min(span_of(t) * t.format->bytes, INT64_MAX - group.bytes);
    ++group.tensors;
  }
  for (const NamedPickleTensor* n : chosen) {
    const GroupKey key = group_of(*n);
    Group& group = groups.at(key);
    use({n->name, c.tensor(n->name, c.pickle.tensors[n->tensor], std::get<2>(key), group)});
    if (--group.tensors == 0) groups.erase(key);
  }
}

}  // namespace stretto::nn
