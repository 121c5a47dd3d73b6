// The expressions of chat templates.

#include <algorithm>
#include <set>

#include "core/one_line.h"
#include "pretrained/chat/chat_template_runner.h"
#include "pretrained/chat/chat_template_text.h"

namespace stretto::nn::chat {
namespace {

using Names = std::map<std::string, std::set<std::string>>;

bool listed(const Names& names, const std::string& type, const std::string& name) {
  const auto found = names.find(type == "a boolean" ? "an integer" : type);
  return found != names.end() && found->second.contains(name);
}

// True if Python's type has the attribute: then a template gets it and not an item.
bool is_method(const std::string& type, const std::string& name) {
  static const Names methods = {
      {"a text",
       {"capitalize",   "casefold",    "center",    "count",      "encode",       "endswith",
        "expandtabs",   "find",        "format",    "format_map", "index",        "isalnum",
        "isalpha",      "isascii",     "isdecimal", "isdigit",    "isidentifier", "islower",
        "isnumeric",    "isprintable", "isspace",   "istitle",    "isupper",      "join",
        "ljust",        "lower",       "lstrip",    "maketrans",  "partition",    "removeprefix",
        "removesuffix", "replace",     "rfind",     "rindex",     "rjust",        "rpartition",
        "rsplit",       "rstrip",      "split",     "splitlines", "startswith",   "strip",
        "swapcase",     "title",       "translate", "upper",      "zfill"}},
      {"a dictionary", {"copy", "fromkeys", "get", "items", "keys", "values"}},
      {"a list", {"copy", "count", "index"}},
      {"a tuple", {"count", "index"}},
      {"a range", {"count", "index", "start", "step", "stop"}},
      {"a view", {"isdisjoint", "mapping"}},
      {"a generator",
       {"close", "gi_code", "gi_frame", "gi_running", "gi_yieldfrom", "send", "throw"}},
      {"an integer",
       {"as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes",
        "imag", "numerator", "real", "to_bytes"}},
      {"a macro",
       {"arguments", "caller", "catch_kwargs", "catch_varargs", "explicit_caller", "name"}},
  };
  return listed(methods, type, name);
}

// True for methods that change the object: they are undefined for templates.
bool is_change(const std::string& type, const std::string& name) {
  static const Names changes = {
      {"a dictionary", {"clear", "pop", "popitem", "setdefault", "update"}},
      {"a list", {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"}}};
  return listed(changes, type, name);
}

}  // namespace

Value Runner::evaluate(const Node& node, Scope& scope) {
  step();
  const Nested guard(*this);
  line_ = node.line;
  return evaluate_node(node, scope);
}

Value Runner::evaluate_node(const Node& node, Scope& scope) {
  const auto child = [&](size_t i) {
    Value value = evaluate(*node.children[i], scope);
    line_ = node.line;
    return value;
  };
  switch (node.kind) {
    case NodeKind::constant_text:
      return text(node.text);
    case NodeKind::constant_integer:
      return node.number;
    case NodeKind::constant_boolean:
      return node.number != 0;
    case NodeKind::constant_none:
      return None{};
    case NodeKind::unsupported:
      unsupported(node.text);
    case NodeKind::name:
      return evaluate_name(node, scope);
    case NodeKind::attribute:
      return evaluate_attribute(node, scope);
    case NodeKind::item: {
      const Value object = child(0);
      return item(object, child(1));
    }
    case NodeKind::slice:
      return evaluate_slice(node, scope);
    case NodeKind::call:
      return evaluate_call(node, scope);
    case NodeKind::filter: {
      const Value value = child(0);
      return filter(node.text, value, evaluate_arguments(node, scope));
    }
    case NodeKind::test: {
      const Value value = child(0);
      return test(node.text, value, evaluate_arguments(node, scope));
    }
    case NodeKind::logical_not:
      return !is_true(child(0));
    case NodeKind::negative: {
      int64_t value = integer(child(0), "the operand of -");
      if (__builtin_sub_overflow(int64_t{0}, value, &value))
        unsupported("an integer of more than 64 bits");
      return value;
    }
    case NodeKind::binary:
      return evaluate_binary(node, scope);
    case NodeKind::logical_and:
    case NodeKind::logical_or: {
      Value a = child(0);
      return is_true(a) == (node.kind == NodeKind::logical_or) ? a : child(1);
    }
    case NodeKind::compare:
      return evaluate_compare(node, scope);
    case NodeKind::concatenate: {
      std::string all;
      for (size_t i = 0; i < node.children.size(); ++i) {
        const Value value = child(i);
        if (std::holds_alternative<SafeText>(value)) unsupported("~ of safe text");
        all += printed(value);
      }
      return text(std::move(all));
    }
    case NodeKind::conditional:
      if (is_true(child(0))) return child(1);
      return node.children[2] ? child(2) : undefined("a conditional expression has no else");
    case NodeKind::dictionary:
      return evaluate_dictionary(node, scope);
    default:
      return evaluate_list(node, scope);
  }
}

Value Runner::evaluate_list(const Node& node, Scope& scope) {
  std::vector<Value> items;
  for (const NodePtr& child : node.children) items.push_back(evaluate(*child, scope));
  line_ = node.line;
  return sequence(std::move(items),
                  node.kind == NodeKind::tuple ? Sequence::Kind::tuple : Sequence::Kind::list);
}

Value Runner::evaluate_dictionary(const Node& node, Scope& scope) {
  std::vector<std::pair<std::string, Value>> items;
  for (size_t i = 0; i < node.children.size(); i += 2) {
    const Value key = evaluate(*node.children[i], scope);
    if (as_text(key) == nullptr) unsupported(type_of(key), " as a key of a dictionary");
    items.emplace_back(*as_text(key), evaluate(*node.children[i + 1], scope));
  }
  line_ = node.line;
  return dictionary(items);
}

Value Runner::evaluate_name(const Node& node, Scope& scope) {
  const std::string& name = node.text;
  for (const Scope* s = &scope; s != nullptr; s = s->outer) {
    const auto found = s->variables.find(name);
    if (found != s->variables.end()) return found->second;
    if (s->loop != nullptr && name == "loop") unsupported("the variable loop without an attribute");
  }
  for (const char* function : {"namespace", "range", "dict", "raise_exception", "strftime_now",
                               "lipsum", "cycler", "joiner"})
    if (name == function) return Function{function};
  for (const char* implicit : {"caller", "varargs", "kwargs"})
    if (name == implicit) unsupported("the variable ", implicit);
  return undefined(in_quotes(name) + " is undefined");
}

Value Runner::evaluate_attribute(const Node& node, Scope& scope) {
  const Node& object = *node.children[0];
  if (object.kind == NodeKind::name && object.text == "loop") {
    for (Scope* s = &scope; s != nullptr && !s->variables.contains("loop"); s = s->outer)
      if (s->loop != nullptr) return loop_member(*s->loop, node.text);
  }
  const Value value = evaluate(object, scope);
  line_ = node.line;
  return attribute(value, node.text);
}

Value Runner::attribute(const Value& object, const std::string& name) {
  if (const auto* u = std::get_if<Undefined>(&object)) wrong(*u->reason);
  const std::string type = type_of(object);
  const bool closed = type == "a method" || type == "a function" || type == "safe text";
  if (closed || name.starts_with("__"))
    unsupported("the attribute ", in_quotes(name), " of ", type);
  if (const auto* space = std::get_if<Namespace*>(&object)) {
    const auto found = (*space)->members.find(name);
    if (found != (*space)->members.end()) return found->second;
  }
  if (is_change(type, name))
    return undefined("the method " + in_quotes(name) + " would change " + type);
  if (is_method(type, name)) return std::make_shared<Method>(Method{object, name});
  if (const auto* d = std::get_if<DictionaryPtr>(&object)) {
    use_bytes((*d)->items.size());
    if (const Value* found = (*d)->find(name)) return *found;
  }
  return undefined(type + " has no attribute " + in_quotes(name));
}

Value Runner::item(const Value& object, const Value& index) {
  if (const auto* u = std::get_if<Undefined>(&object)) wrong(*u->reason);
  if (const std::string* name = as_text(index)) {
    const auto* d = std::get_if<DictionaryPtr>(&object);
    if (d != nullptr) use_bytes((*d)->items.size());
    const Value* found = d != nullptr ? (*d)->find(*name) : nullptr;
    return found != nullptr ? *found : attribute(object, *name);
  }
  if (std::holds_alternative<SafeText>(object)) unsupported("an item of safe text");
  const std::optional<int64_t> number = as_integer(index);
  const auto* s = std::get_if<SequencePtr>(&object);
  const std::string* t = as_text(object);
  if (number && (t != nullptr || (s != nullptr && (*s)->kind <= Sequence::Kind::range))) {
    const int64_t size = length_of(object);
    const int64_t at = *number < 0 ? *number + size : *number;
    if (at >= 0 && at < size) {
      if (s != nullptr) return (*s)->items[static_cast<size_t>(at)];
      use_bytes(t->size());
      size_t start = 0;
      for (int64_t i = 0; i < at; ++i) next_code_point(*t, start);
      size_t end = start;
      next_code_point(*t, end);
      return text(t->substr(start, end - start));
    }
  }
  return undefined(type_of(object) + " has no such item");
}

Value Runner::evaluate_slice(const Node& node, Scope& scope) {
  const Value object = evaluate(*node.children[0], scope);
  std::optional<int64_t> parts[3];
  for (size_t i = 0; i < 3; ++i) {
    if (!node.children[i + 1]) continue;
    const Value part = evaluate(*node.children[i + 1], scope);
    line_ = node.line;
    if (!std::holds_alternative<None>(part)) parts[i] = integer(part, "a part of the slice");
  }
  line_ = node.line;
  if (const auto* u = std::get_if<Undefined>(&object)) wrong(*u->reason);
  const auto* s = std::get_if<SequencePtr>(&object);
  if (as_text(object) == nullptr && (s == nullptr || (*s)->kind > Sequence::Kind::range))
    wrong(type_of(object), " has no slices");
  const int64_t size = length_of(object);
  const int64_t step = parts[2].value_or(1);
  if (step == 0) wrong("the step of a slice is 0");
  // The bounds of Python: between 0 and size, or -1 and size - 1 for a negative step.
  const int64_t low = step < 0 ? -1 : 0;
  const auto bound = [&](const std::optional<int64_t>& part, int64_t otherwise) {
    if (!part) return otherwise;
    return std::clamp(*part < 0 ? *part + size : *part, low, size + low);
  };
  const int64_t first = bound(parts[0], step < 0 ? size - 1 : 0);
  const int64_t last = bound(parts[1], step < 0 ? -1 : size);
  std::vector<size_t> chosen;
  for (int64_t i = first; step < 0 ? i > last : i < last;) {
    chosen.push_back(static_cast<size_t>(i));
    if (step > size || step < -size) break;  // i + step may overflow
    i += step;
  }
  return chosen_items(object, chosen);
}

Value Runner::chosen_items(const Value& object, const std::vector<size_t>& chosen) {
  use_bytes(chosen.size() * sizeof(size_t));
  if (const auto* s = std::get_if<SequencePtr>(&object)) {
    std::vector<Value> items;
    for (const size_t i : chosen) items.push_back((*s)->items[i]);
    return sequence(std::move(items), (*s)->kind);
  }
  const std::string& whole = *as_text(object);
  use_bytes(whole.size());
  std::vector<size_t> starts;
  for (size_t at = 0; at < whole.size(); next_code_point(whole, at)) starts.push_back(at);
  starts.push_back(whole.size());
  std::string part;
  for (const size_t i : chosen) part.append(whole, starts[i], starts[i + 1] - starts[i]);
  return text(std::move(part));
}

Arguments Runner::evaluate_arguments(const Node& node, Scope& scope) {
  Arguments arguments;
  const size_t first_named = node.children.size() - node.names.size();
  for (size_t i = 1; i < node.children.size(); ++i) {
    Value value = evaluate(*node.children[i], scope);
    if (i < first_named)
      arguments.values.push_back(std::move(value));
    else
      arguments.named.emplace_back(node.names[i - first_named], std::move(value));
  }
  line_ = node.line;
  return arguments;
}

Value Runner::evaluate_call(const Node& node, Scope& scope) {
  const Value callee = evaluate(*node.children[0], scope);
  Arguments arguments = evaluate_arguments(node, scope);
  Value value = call(callee, std::move(arguments));
  line_ = node.line;
  return value;
}

// ---- Operators.

Value Runner::evaluate_compare(const Node& node, Scope& scope) {
  Value a = evaluate(*node.children[0], scope);
  for (size_t i = 0; i < node.names.size(); ++i) {
    Value b = evaluate(*node.children[i + 1], scope);
    line_ = node.line;
    if (!compared(node.names[i], a, b)) return false;
    a = std::move(b);
  }
  return true;
}

bool Runner::compared(const std::string& op, const Value& a, const Value& b) {
  if (op == "==") return equal(a, b);
  if (op == "!=") return !equal(a, b);
  if (op == "in") return contains(b, a);
  if (op == "not in") return !contains(b, a);
  for (const Value* value : {&a, &b})
    if (const auto* u = std::get_if<Undefined>(value)) wrong(*u->reason);
  const std::optional<int64_t> m = as_integer(a), n = as_integer(b);
  const std::string *s = as_text(a), *t = as_text(b);
  if (!(m && n) && !(s != nullptr && t != nullptr)) {
    const bool lists = a.index() == b.index() && std::holds_alternative<SequencePtr>(a);
    if (lists) unsupported("the order of lists");
    wrong("cannot compare ", type_of(a), " and ", type_of(b), " by ", op);
  }
  // UTF-8 has the order of the code points.
  const int order = m ? (*m > *n) - (*m < *n) : s->compare(*t);
  return op == "<" ? order < 0 : op == "<=" ? order <= 0 : op == ">" ? order > 0 : order >= 0;
}

Value Runner::repeated(const std::string& part, int64_t times) {
  const auto count = part.empty() ? 0 : static_cast<size_t>(std::max<int64_t>(times, 0));
  if (count > 0) use_bytes(count > SIZE_MAX / part.size() ? SIZE_MAX : count * part.size());
  std::string result;
  for (size_t i = 0; i < count; ++i) result += part;
  return text(std::move(result));
}

Value Runner::evaluate_binary(const Node& node, Scope& scope) {
  const Value a = evaluate(*node.children[0], scope);
  const Value b = evaluate(*node.children[1], scope);
  line_ = node.line;
  const std::string& op = node.names[0];
  for (const Value* value : {&a, &b}) {
    if (const auto* u = std::get_if<Undefined>(value)) wrong(*u->reason);
    if (std::holds_alternative<SafeText>(*value)) unsupported(op, " of safe text");
  }
  const auto lists = [](const Value& v) {
    const auto* s = std::get_if<SequencePtr>(&v);
    return s != nullptr && (*s)->kind <= Sequence::Kind::tuple;
  };
  const std::optional<int64_t> m = as_integer(a), n = as_integer(b);
  if (m && n) {
    int64_t result = 0;
    if (op == "/" || op == "**") unsupported("the operator ", op);
    if ((op == "//" || op == "%") && *n == 0) wrong("division by zero");
    const bool overflow = op == "+"   ? __builtin_add_overflow(*m, *n, &result)
                          : op == "-" ? __builtin_sub_overflow(*m, *n, &result)
                          : op == "*" ? __builtin_mul_overflow(*m, *n, &result)
                                      : *m == INT64_MIN && *n == -1;
    if (overflow) unsupported("an integer of more than 64 bits");
    if (op != "//" && op != "%") return result;
    const int64_t rest = *m % *n;
    const bool down = rest != 0 && (rest < 0) != (*n < 0);  // Python rounds down
    return op == "%" ? rest + (down ? *n : 0) : *m / *n - (down ? 1 : 0);
  }
  if (op == "+" && as_text(a) != nullptr && as_text(b) != nullptr)
    return text(*as_text(a) + *as_text(b));
  if (op == "+" && lists(a) && lists(b)) {
    const Sequence &x = *std::get<SequencePtr>(a), &y = *std::get<SequencePtr>(b);
    if (x.kind == y.kind) {
      std::vector<Value> items = x.items;
      items.insert(items.end(), y.items.begin(), y.items.end());
      return sequence(std::move(items), x.kind);
    }
  }
  if (op == "*" && n && as_text(a) != nullptr) return repeated(*as_text(a), *n);
  if (op == "*" && m && as_text(b) != nullptr) return repeated(*as_text(b), *m);
  if (op == "*" && ((n && lists(a)) || (m && lists(b)))) unsupported("the operator * of a list");
  if (op == "%" && as_text(a) != nullptr) unsupported("the operator % of a text");
  wrong("the operator ", op, " does not accept ", type_of(a), " and ", type_of(b));
}

}  // namespace stretto::nn::chat
