// Executes the tree of a chat template, with the values and rules of Python.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "chat_template_parser.h"

namespace stretto::nn::chat {

struct Sequence;
struct Dictionary;
struct Namespace;
struct Method;
struct Scope;
struct Loop;

/// A value that a name, attribute or item lacks. Prints as nothing; operations raise `reason`.
struct Undefined {
  std::shared_ptr<const std::string> reason;
};
struct None {};
using Text = std::shared_ptr<const std::string>;
/// Text of the filter "safe": it can only be printed, since Jinja escapes what is added to it.
struct SafeText {
  Text text;
};
struct Macro {
  const Node* node;
  Scope* scope;
  int64_t serial;  // of the scope, which may have ended
};
struct Function {
  const char* name;
};
using Value =
    std::variant<Undefined, None, bool, int64_t, Text, SafeText, std::shared_ptr<Sequence>,
                 std::shared_ptr<Dictionary>, Namespace*, Macro, Function, std::shared_ptr<Method>>;
using SequencePtr = std::shared_ptr<Sequence>;
using DictionaryPtr = std::shared_ptr<Dictionary>;

/// A sequence of Python; the kind decides what may be done with it.
struct Sequence {
  enum class Kind { list, tuple, range, view, generator };
  Kind kind = Kind::list;
  std::vector<Value> items = {};
  size_t taken = 0;  // items that a generator has given
  int depth = 1;
};
struct Dictionary {
  std::vector<std::pair<std::string, Value>> items = {};
  int depth = 1;
  const Value* find(const std::string& key) const;
  void set(const std::string& key, Value value);
};
struct Namespace {
  std::map<std::string, Value> members;
};
/// A method with its object.
struct Method {
  Value object;
  std::string name;
};

/// Arguments of a call.
struct Arguments {
  std::vector<Value> values = {};
  std::vector<std::pair<std::string, Value>> named = {};
};

/// Variables of the template, a macro or a round of a loop.
struct Scope {
  Scope* outer = nullptr;
  std::map<std::string, Value> variables = {};
  Loop* loop = nullptr;
  int64_t serial = 0;
};

/// Executes a tree once.
class Runner {
 public:
  explicit Runner(const Node& program, std::map<std::string, Value> variables);
  std::string run();

 private:
  enum class Flow { next, break_loop, continue_loop };
  struct OpenScope;

  // Limits of one rendering. A conversation of 1,000 messages stays far below them.
  static constexpr int64_t most_steps = 4'000'000;
  // The bytes of all texts and lists that are made, plus a fraction of each text that is read.
  static constexpr size_t most_bytes = size_t{256} << 20;
  static constexpr int most_nested = 600;
  static constexpr size_t most_namespaces = 10'000;

  // Counts the nesting of expressions, statements and macros.
  struct Nested {
    explicit Nested(Runner& of) : runner(of) {
      if (++runner.nested_ > most_nested) runner.wrong("nested or recursive too deeply");
    }
    ~Nested() { --runner.nested_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    Runner& runner;
  };

  // Statements (chat_template_runner.cpp).
  Flow run(const Node& node, Scope& scope);
  Flow run_body(const Node& body, Scope& scope);
  Flow run_branches(const Node& node, Scope& scope);
  Flow run_loop(const Node& node, Scope& scope);
  std::string captured(const Node& body, Scope& scope);
  void assign(const Node& target, Value value, Scope& scope);
  std::optional<Value> pull(Loop& loop);
  bool advance(Loop& loop);
  int64_t length(Loop& loop);
  Value loop_member(Loop& loop, const std::string& name);
  Value call_macro(const Macro& macro, Arguments arguments);

  // Expressions (chat_template_expressions.cpp).
  Value evaluate(const Node& node, Scope& scope);
  Value evaluate_node(const Node& node, Scope& scope);
  Value evaluate_list(const Node& node, Scope& scope);
  Value evaluate_dictionary(const Node& node, Scope& scope);
  Value evaluate_name(const Node& node, Scope& scope);
  Value evaluate_attribute(const Node& node, Scope& scope);
  Value evaluate_slice(const Node& node, Scope& scope);
  Value chosen_items(const Value& object, const std::vector<size_t>& chosen);
  Value evaluate_call(const Node& node, Scope& scope);
  Value evaluate_compare(const Node& node, Scope& scope);
  Value evaluate_binary(const Node& node, Scope& scope);
  Arguments evaluate_arguments(const Node& node, Scope& scope);
  Value repeated(const std::string& part, int64_t times);
  Value attribute(const Value& object, const std::string& name);
  Value item(const Value& object, const Value& index);
  bool compared(const std::string& op, const Value& a, const Value& b);

  // Filters, tests, methods and functions (chat_template_functions.cpp).
  std::vector<const Value*> bind(const std::string& what, const Arguments& arguments,
                                 const std::vector<std::string>& names, size_t required) const;
  Value filter(const std::string& name, const Value& value, const Arguments& arguments);
  std::optional<Value> text_filter(const std::string& name, const Value& value,
                                   const Arguments& arguments);
  std::optional<Value> sequence_filter(const std::string& name, const Value& value,
                                       const Arguments& arguments);
  Value selected(const Value& value, const Arguments& arguments, bool by_attribute, bool keep);
  Value mapped(const Value& value, const Arguments& arguments);
  Value member_at(const Value& value, const std::string& path);
  Value joined(const Value& values, const std::string& separator);
  std::string json(const Value& value, int64_t indent, int level);
  bool test(const std::string& name, const Value& value, const Arguments& arguments);
  Value call(const Value& callee, Arguments arguments);
  Value call_function(const std::string& name, const Arguments& arguments);
  Value call_method(const Method& method, const Arguments& arguments);
  Value call_text_method(const std::string& text_of_call, const std::string& name,
                         const Arguments& arguments);
  Value range(const Arguments& arguments);
  Value time_text(const std::string& format);
  Value stripped(const std::string& from, bool left, bool right, const Value* characters);
  Value split(const std::string& from, const std::string& separator, int64_t most);
  Value split_at_spaces(const std::string& from, int64_t most);
  Value replaced(const std::string& from, const std::string& old, const std::string& with,
                 const Value* count);
  Value in_case(const std::string& from, const std::string& how);

  // Values (chat_template_values.cpp).
  Value text(std::string value);
  Value sequence(std::vector<Value> items, Sequence::Kind kind = Sequence::Kind::list);
  Value dictionary(const std::vector<std::pair<std::string, Value>>& items);
  Value undefined(std::string reason) const;
  std::string printed(const Value& value);
  bool is_true(const Value& value) const;
  bool equal(const Value& a, const Value& b);
  bool contains(const Value& whole, const Value& part);
  SequencePtr iterated(const Value& value);
  std::vector<Value> drained(const Value& value);
  int64_t integer(const Value& value, const char* what) const;
  const std::string& text_of(const Value& value, const char* what) const;
  int64_t length_of(const Value& value);
  static std::string type_of(const Value& value);
  static int depth_of(const Value& value);
  static const std::string* as_text(const Value& value);
  static std::optional<int64_t> as_integer(const Value& value);

  // Limits.
  void step();
  void use_bytes(size_t bytes);
  void append(const std::string& value);
  template <class... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    fail_at(line_, parts...);
  }
  template <class... Parts>
  [[noreturn]] void unsupported(const Parts&... parts) const {
    fail_at(line_, parts..., " is not supported; ", render_yourself);
  }

  const Node& program_;
  Scope globals_;
  std::deque<Namespace> namespaces_;  // all, so that cycles of references are freed
  std::vector<const Scope*> open_scopes_;
  std::string* out_ = nullptr;
  int line_ = 1;
  int nested_ = 0;
  int64_t scopes_ = 0;
  int64_t steps_ = 0;
  size_t bytes_ = 0;
};

}  // namespace stretto::nn::chat
