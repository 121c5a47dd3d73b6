#include "pretrained/files/pytorch/pickle_names.h"

#include <charconv>
#include <unordered_set>

#include "core/one_line.h"
#include "nn/files/safetensors_header.h"

namespace stretto::nn::files {
namespace {

using Kind = PickleValue::Kind;

constexpr int max_depth = 64;
constexpr size_t max_name_bytes = 100'000'000;  // of all names and texts together

class Flattener {
 public:
  Flattener(const Pickle& pickle, const std::string& path)
      : pickle_(pickle), path_(path), open_(pickle.containers.size()) {
    // Shared containers are visited several times, which a file with nested ones could multiply.
    visits_left_ = 1000;
    for (const auto& items : pickle.containers) visits_left_ += 4 * items.size();
  }

  PickleNames flatten() {
    if (pickle_.root.kind == Kind::tensor)
      add_tensor("tensor", pickle_.root);
    else
      visit("", pickle_.root, true, 0);
    return std::move(names_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void bad(const Parts&... parts) const {
    fail("PyTorch", path_, ": ", parts...);
  }

  void visit(const std::string& name, PickleValue v, bool in_dict, int depth) {
    if (visits_left_-- == 0) bad("repeats its dicts and lists too often");
    if (v.kind == Kind::tensor) return add_tensor(name, v);
    const bool is_dict = v.kind == Kind::dict;
    if (!is_dict && v.kind != Kind::list && v.kind != Kind::tuple) {
      if (in_dict) add_metadata(name, v);
      return;
    }
    if (depth == max_depth) bad("has dicts and lists nested more than ", max_depth, " deep");
    if (open_[v.index]) bad("has a dict or list that contains itself");
    open_[v.index] = true;
    const std::vector<PickleValue>& items = pickle_.items(v);
    const std::string prefix = depth == 0 ? "" : name + '.';
    for (size_t i = 0; i < items.size(); ++i) {
      std::string key = is_dict ? key_text(name, items[i++]) : std::to_string(i);
      visit(prefix + key, items[i], is_dict, depth + 1);
    }
    open_[v.index] = false;
  }

  std::string key_text(const std::string& name, PickleValue key) const {
    if (key.kind == Kind::text) return pickle_.text(key);
    if (key.kind != Kind::integer)
      bad("a dict", name.empty() ? "" : " (" + in_quotes(name) + ")",
          " has a key that is neither a string nor an integer");
    return std::to_string(key.integer);
  }

  void count_bytes(size_t n) {
    name_bytes_ += n;
    if (name_bytes_ > max_name_bytes) bad("has more than ", max_name_bytes, " bytes of names");
  }

  void add_tensor(const std::string& name, PickleValue v) {
    count_bytes(name.size());
    if (names_.tensors.size() == max_names) bad("has more than ", max_names, " tensors");
    if (!unique_.insert(name).second) bad("the name ", in_quotes(name), " occurs twice");
    names_.tensors.push_back({name, v.index});
  }

  void add_metadata(const std::string& name, PickleValue v) {
    std::string text;
    if (v.kind == Kind::text || v.kind == Kind::object) {
      text = pickle_.text(v);
    } else if (v.kind == Kind::integer) {
      text = std::to_string(v.integer);
    } else if (v.kind == Kind::boolean) {
      text = v.integer ? "true" : "false";
    } else if (v.kind == Kind::real) {
      char digits[40];
      text.assign(digits, std::to_chars(digits, digits + sizeof digits, v.real).ptr);
    } else {
      return;
    }
    count_bytes(name.size() + text.size());
    if (names_.metadata.size() == max_names) bad("has more than ", max_names, " strings");
    names_.metadata.emplace(name, std::move(text));
  }

  const Pickle& pickle_;
  const std::string& path_;
  PickleNames names_;
  std::vector<bool> open_;  // the containers around the present one
  std::unordered_set<std::string> unique_;
  size_t visits_left_, name_bytes_ = 0;
};

}  // namespace

PickleNames flatten(const Pickle& pickle, const std::string& path) {
  return Flattener(pickle, path).flatten();
}

}  // namespace stretto::nn::files
