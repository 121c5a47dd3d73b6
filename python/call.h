// A call from Python: the name of a function, tensors by name, and options as JSON.
#pragma once

#include <algorithm>
#include <any>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../core/one_line.h"
#include "../core/tensor.h"
#include "../nn/files/json.h"

namespace stretto::python {

/// The arguments of a call. A function reads every argument that it accepts.
class Arguments {
 public:
  using Json = nn::files::Json;

  /// Parses `options`, a JSON object. `object` is the model or tokenizer whose member is called.
  Arguments(std::string function, const char* options, std::map<std::string, Tensor> tensors,
            std::any object)
      : function_(std::move(function)),
        options_(nn::files::parse_json(function_.c_str(), options, "options")),
        tensors_(std::move(tensors)),
        object_(std::move(object)) {}

  /// Returns a tensor; undefined if absent.
  Tensor tensor(const std::string& name) {
    read_.push_back(name);
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? Tensor() : found->second;
  }
  /// Returns an option: bool, int64_t, double, text, or optional.
  template <class T>
  T get(const std::string& name, T otherwise = {}) {
    const Json& value = json(name);
    if (value.is_null()) return otherwise;
    if (const char* accepted = read(value, otherwise)) wrong(name, accepted);
    return otherwise;
  }
  /// Returns the value whose name the option is; the first one if absent.
  template <class T>
  T choice(const std::string& name, std::initializer_list<std::pair<const char*, T>> values) {
    const std::string text = get<std::string>(name, values.begin()->first);
    std::string accepted;
    for (const auto& [known, value] : values) {
      if (text == known) return value;
      accepted += (accepted.empty() ? "\"" : ", \"") + std::string(known) + '"';
    }
    wrong(name, accepted);
  }
  /// Returns an option as it is; null if absent.
  const Json& json(const std::string& name) {
    read_.push_back(name);
    return options_[name];
  }
  /// Returns the object of the call.
  template <class T>
  const T& object() const {
    const T* found = std::any_cast<T>(&object_);
    check(found != nullptr, function_.c_str(), "called without its object");
    return *found;
  }
  /// Throws unless every tensor and option was read; the error lists those that were.
  void finish() const {
    std::vector<std::string> given;
    for (const auto& [name, tensor] : tensors_) given.push_back(name);
    for (const auto& member : options_.members) given.push_back(member.first);
    std::string accepted;
    for (const std::string& name : read_) accepted += (accepted.empty() ? "" : ", ") + name;
    for (const std::string& name : given)
      check(std::find(read_.begin(), read_.end(), name) != read_.end(), function_.c_str(),
            "unknown argument ", in_quotes(name), "; accepted: ", accepted);
  }
  [[noreturn]] void wrong(const std::string& name, const std::string& accepted) const {
    fail(function_.c_str(), name, " is ", one_line(nn::files::json_text(options_[name])),
         "; accepted: ", accepted);
  }

 private:
  // Each reads a value, or returns what is accepted.
  static const char* read(const Json& value, bool& to) {
    to = value.truth;
    return value.kind == Json::Kind::boolean ? nullptr : "true, false";
  }
  static const char* read(const Json& value, int64_t& to) {
    to = value.integer;
    return value.kind == Json::Kind::integer ? nullptr : "integers of 64 bits";
  }
  static const char* read(const Json& value, double& to) {
    to = value.number;
    const bool is_number = value.kind == Json::Kind::integer || value.kind == Json::Kind::number;
    return is_number ? nullptr : "numbers";
  }
  static const char* read(const Json& value, std::string& to) {
    to = value.text;
    return value.is_string() ? nullptr : "text";
  }
  template <class T>
  static const char* read(const Json& value, std::optional<T>& to) {
    return read(value, to.emplace());
  }

  std::string function_;
  Json options_;
  std::map<std::string, Tensor> tensors_;
  std::any object_;
  std::vector<std::string> read_;
};

/// What a function returns to Python.
struct Returned {
  Tensors tensors = {};       ///< Converted to the library of the inputs.
  std::string json = "null";  ///< A value that is no tensor.
  std::any object = {};       ///< A model or tokenizer, for later calls.
};

/// Functions by their names.
using Functions = std::map<std::string, Returned (*)(Arguments&)>;
/// Attention in all forms, and positions.
extern const Functions attention_functions;
/// Published models, and tokenizers of text and music.
extern const Functions model_functions;

}  // namespace stretto::python
