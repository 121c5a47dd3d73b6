// The values of chat templates, with the rules of Python, and the limits of one rendering.
#pragma once

#include <concepts>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../../core/error.h"

namespace stretto::nn::chat {

/// Throws Error "[chat_template] line …: …".
template <class... Parts>
[[noreturn]] void fail_at(int line, const Parts&... parts) {
  fail("chat_template", "line ", line, ": ", parts...);
}

inline constexpr const char* render_yourself = "render the prompt yourself and pass it as text";

struct Items;
struct Method;

struct Value {
  enum class Kind {
    undefined,  // text: why it is; prints as nothing, operations raise the reason
    none,
    boolean,    // number
    integer,    // number
    text,       // text
    safe_text,  // of the filter "safe"; can only be printed, since Jinja escapes what is added to it
    list,       // items, also of the other sequences
    tuple,
    range,
    view,
    generator,
    dictionary,  // items
    space,       // items; a namespace
    macro,       // object: of the Runner
    function,    // text: name
    method       // method
  };

  Value() = default;
  Value(std::same_as<bool> auto yes) : kind(Kind::boolean), number(yes) {}
  Value(std::same_as<int64_t> auto integer) : kind(Kind::integer), number(integer) {}
  Value(Kind of, std::shared_ptr<void> shared) : kind(of), object(std::move(shared)) {}
  Value(Kind of, std::string text) : Value(of, std::make_shared<std::string>(std::move(text))) {}

  bool is(Kind other) const { return kind == other; }
  bool is_number() const { return is(Kind::boolean) || is(Kind::integer); }
  bool is_text() const { return is(Kind::text); }
  bool is_any_text() const { return is(Kind::text) || is(Kind::safe_text); }
  bool is_list_or_tuple() const { return is(Kind::list) || is(Kind::tuple); }
  bool is_indexed() const { return is_list_or_tuple() || is(Kind::range); }
  bool is_sequence() const { return kind >= Kind::list && kind <= Kind::generator; }

  const std::string& text() const { return *static_cast<const std::string*>(object.get()); }
  Items& items() const { return *static_cast<Items*>(object.get()); }
  const Method& method() const { return *static_cast<const Method*>(object.get()); }
  const char* type() const;  // for error texts: "a list", …

  Kind kind = Kind::none;
  int64_t number = 0;
  std::shared_ptr<void> object = {};
};

/// The items of a sequence, or of a dictionary or namespace with their keys.
struct Items {
  std::vector<Value> values = {};
  std::vector<std::string> keys = {};
  size_t taken = 0;  // items that a generator has given
  int depth = 1;     // of nested sequences and dictionaries

  const Value* find(const std::string& key) const;
  void set(const std::string& key, Value value);
};

/// A method with its object.
struct Method {
  Value object;
  std::string name;
};

/// Arguments of a call; the last ones have the names.
struct Arguments {
  std::vector<Value> values = {};
  std::vector<std::string> names = {};
};

/// The operations on values in one rendering, which count towards its limits.
class Operations {
 public:
  // A conversation of 1,000 messages stays far below the limits.
  static constexpr int64_t most_steps = 4'000'000;
  // The bytes of all texts and lists that are made, plus a fraction of each text that is read.
  static constexpr size_t most_bytes = size_t{256} << 20;

  void step();
  void use_bytes(size_t bytes);
  template <class... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    fail_at(line_, parts...);
  }
  template <class... Parts>
  [[noreturn]] void unsupported(const Parts&... parts) const {
    wrong(parts..., " is not supported; ", render_yourself);
  }

  // New values.
  Value text(std::string value);
  Value sequence(std::vector<Value> values, Value::Kind kind = Value::Kind::list);
  Value dictionary(const Items& members);
  Value name_space(const Items& members);
  static Value undefined(std::string reason) { return {Value::Kind::undefined, std::move(reason)}; }

  // What a value is; an error names it as `what`.
  static bool is_true(const Value& value);
  void check_defined(const Value& value) const;
  int64_t integer(const Value& value, const char* what) const;
  const std::string& text_of(const Value& value, const char* what) const;
  std::string printed(const Value& value);
  int64_t length(const Value& value);
  Value iterated(const Value& value);              // as a sequence
  std::vector<Value> drained(const Value& value);  // the items that are left

  // Operators.
  bool compared(const std::string& op, const Value& a, const Value& b);
  Value arithmetic(const std::string& op, const Value& a, const Value& b);
  Value attribute(const Value& object, const std::string& name);
  Value item(const Value& object, const Value& index);
  Value member_at(const Value& value, const std::string& path);  // such as "a.0.b"
  Value slice(const Value& object, const std::optional<int64_t> (&parts)[3]);
  void set_member(const Value& space, const std::string& name, Value value);

  // Returns the argument of each parameter, null if it is not given. A parameter without a name ("")
  // cannot be passed by name. Errors name the call as `what`.
  std::vector<const Value*> bound(const std::string& what, const Arguments& arguments,
                                  const std::vector<std::string>& parameters,
                                  size_t required) const;

  // Filters, tests, functions and methods (chat_template_functions.cpp).
  Value filter(const std::string& name, const Value& value, const Arguments& arguments);
  bool test(const std::string& name, const Value& value, const Arguments& arguments);
  Value call_function(const std::string& name, const Arguments& arguments);
  Value call_method(const Method& method, const Arguments& arguments);

 protected:
  int line_ = 1;

 private:
  bool equal(const Value& a, const Value& b);
  bool contains(const Value& whole, const Value& part);
  Value repeated(const std::string& part, int64_t times);

  std::deque<Items> namespaces_;  // all, so that cycles of references are freed
  int64_t steps_ = 0;
  size_t bytes_ = 0;
};

}  // namespace stretto::nn::chat
