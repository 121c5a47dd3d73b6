#include "pretrained/chat/chat_template_values.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/one_line.h"
#include "core/utf8.h"

namespace stretto::nn::chat {
namespace {

using Kind = Value::Kind;
constexpr int most_value_depth = 50;
constexpr size_t most_namespaces = 10'000;

// Names of the attributes that Python's types have.
struct Attributes {
  std::set<std::string> methods;  // a template gets these and not an item
  std::set<std::string> changes;  // methods that change the object: undefined for templates
};

const Attributes& attributes_of(Kind kind) {
  static const std::map<Kind, Attributes> all = {
      {Kind::integer,
       {{"as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes",
         "imag", "numerator", "real", "to_bytes"}}},
      {Kind::text,
       {{"capitalize",   "casefold",    "center",    "count",      "encode",       "endswith",
         "expandtabs",   "find",        "format",    "format_map", "index",        "isalnum",
         "isalpha",      "isascii",     "isdecimal", "isdigit",    "isidentifier", "islower",
         "isnumeric",    "isprintable", "isspace",   "istitle",    "isupper",      "join",
         "ljust",        "lower",       "lstrip",    "maketrans",  "partition",    "removeprefix",
         "removesuffix", "replace",     "rfind",     "rindex",     "rjust",        "rpartition",
         "rsplit",       "rstrip",      "split",     "splitlines", "startswith",   "strip",
         "swapcase",     "title",       "translate", "upper",      "zfill"}}},
      {Kind::list,
       {{"copy", "count", "index"},
        {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"}}},
      {Kind::tuple, {{"count", "index"}}},
      {Kind::range, {{"count", "index", "start", "step", "stop"}}},
      {Kind::view, {{"isdisjoint", "mapping"}}},
      {Kind::generator,
       {{"close", "gi_code", "gi_frame", "gi_running", "gi_yieldfrom", "send", "throw"}}},
      {Kind::dictionary,
       {{"copy", "fromkeys", "get", "items", "keys", "values"},
        {"clear", "pop", "popitem", "setdefault", "update"}}},
      {Kind::macro,
       {{"arguments", "caller", "catch_kwargs", "catch_varargs", "explicit_caller", "name"}}},
  };
  static const Attributes none;
  const auto found = all.find(kind == Kind::boolean ? Kind::integer : kind);
  return found != all.end() ? found->second : none;
}

int depth_of(const Value& value) {
  if (value.is(Kind::method)) return depth_of(value.method().object) + 1;
  return value.is_sequence() || value.is(Kind::dictionary) ? value.items().depth : 0;
}

}  // namespace

const char* Value::type() const {
  static constexpr const char* types[] = {"an undefined value",
                                          "none",
                                          "a boolean",
                                          "an integer",
                                          "a text",
                                          "safe text",
                                          "a list",
                                          "a tuple",
                                          "a range",
                                          "a view",
                                          "a generator",
                                          "a dictionary",
                                          "a namespace",
                                          "a macro",
                                          "a function",
                                          "a method"};
  return types[static_cast<int>(kind)];
}

const Value* Items::find(const std::string& key) const {
  const auto at = std::find(keys.begin(), keys.end(), key);
  return at == keys.end() ? nullptr : &values[static_cast<size_t>(at - keys.begin())];
}

void Items::set(const std::string& key, Value value) {
  const auto at = static_cast<size_t>(std::find(keys.begin(), keys.end(), key) - keys.begin());
  if (at == keys.size()) {
    keys.push_back(key);
    values.emplace_back();
  }
  values[at] = std::move(value);
}

// ---- Limits.

void Operations::step() {
  if (++steps_ > most_steps) wrong("more than ", most_steps, " steps; the template may not end");
}

void Operations::use_bytes(size_t bytes) {
  if (bytes > most_bytes - bytes_)
    wrong("more than ", most_bytes, " bytes of texts and lists are made");
  bytes_ += bytes;
}

// ---- New values.

Value Operations::text(std::string value) {
  use_bytes(value.size() + 64);
  return {Kind::text, std::move(value)};
}

Value Operations::sequence(std::vector<Value> values, Kind kind) {
  use_bytes(values.size() * sizeof(Value) + 64);
  auto made = std::make_shared<Items>(Items{std::move(values)});
  for (const Value& value : made->values) made->depth = std::max(made->depth, 1 + depth_of(value));
  if (made->depth > most_value_depth) wrong("lists nested too deeply");
  return {kind, std::move(made)};
}

Value Operations::dictionary(const Items& members) {
  auto made = std::make_shared<Items>();
  for (size_t i = 0; i < members.keys.size(); ++i) {
    use_bytes(sizeof(Value) + members.keys[i].size() + 64 + 16 * made->keys.size());
    made->depth = std::max(made->depth, 1 + depth_of(members.values[i]));
    made->set(members.keys[i], members.values[i]);
  }
  if (made->depth > most_value_depth) wrong("dictionaries nested too deeply");
  return {Kind::dictionary, std::move(made)};
}

Value Operations::name_space(const Items& members) {
  if (namespaces_.size() >= most_namespaces) wrong("more than ", most_namespaces, " namespaces");
  const std::shared_ptr<void> not_owned;
  Value made(Kind::space, std::shared_ptr<void>(not_owned, &namespaces_.emplace_back()));
  for (size_t i = 0; i < members.keys.size(); ++i)
    set_member(made, members.keys[i], members.values[i]);
  return made;
}

void Operations::set_member(const Value& space, const std::string& name, Value value) {
  if (name.starts_with("_")) wrong("a namespace cannot have the attribute ", in_quotes(name));
  use_bytes(sizeof(Value) + name.size() + space.items().keys.size());
  space.items().set(name, std::move(value));
}

// ---- What a value is.

bool Operations::is_true(const Value& value) {
  if (value.is_number()) return value.number != 0;
  if (value.is_any_text()) return !value.text().empty();
  if (value.is(Kind::generator)) return true;
  if (value.is_sequence() || value.is(Kind::dictionary)) return !value.items().values.empty();
  return value.kind > Kind::none;
}

void Operations::check_defined(const Value& value) const {
  if (value.is(Kind::undefined)) wrong(value.text());
}

int64_t Operations::integer(const Value& value, const char* what) const {
  check_defined(value);
  if (!value.is_number()) wrong(what, " is ", value.type(), "; expected an integer");
  return value.number;
}

const std::string& Operations::text_of(const Value& value, const char* what) const {
  check_defined(value);
  if (!value.is_text()) wrong(what, " is ", value.type(), "; expected a text");
  return value.text();
}

std::string Operations::printed(const Value& value) {
  switch (value.kind) {
    case Kind::undefined:
      return "";
    case Kind::none:
      return "None";
    case Kind::boolean:
      return value.number != 0 ? "True" : "False";
    case Kind::integer:
      return std::to_string(value.number);
    case Kind::text:
    case Kind::safe_text:
      use_bytes(value.text().size() / 8);
      return value.text();
    default:
      unsupported("printing ", value.type());
  }
}

int64_t Operations::length(const Value& value) {
  if (value.is(Kind::undefined)) return 0;
  if (value.is_any_text()) {
    const std::string& all = value.text();
    use_bytes(all.size() / 8);
    return std::count_if(all.begin(), all.end(),
                         [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  }
  const bool has_items = value.is_sequence() || value.is(Kind::dictionary);
  if (!has_items || value.is(Kind::generator)) wrong(value.type(), " has no length");
  return static_cast<int64_t>(value.items().values.size());
}

Value Operations::iterated(const Value& value) {
  if (value.is_sequence()) return value;
  std::vector<Value> items;
  if (value.is_text()) {
    const std::string& all = value.text();
    for (size_t at = 0; at < all.size(); at += utf8_size(all[at]))
      items.push_back(text(all.substr(at, utf8_size(all[at]))));
  } else if (value.is(Kind::dictionary)) {
    for (const std::string& key : value.items().keys) items.push_back(text(key));
  } else if (value.is(Kind::safe_text)) {
    unsupported("iterating over safe text");
  } else if (!value.is(Kind::undefined)) {
    wrong(value.type(), " is not a sequence");
  }
  return sequence(std::move(items));
}

std::vector<Value> Operations::drained(const Value& value) {
  const Value whole = iterated(value);
  Items& items = whole.items();
  use_bytes(items.values.size() * sizeof(Value));
  if (!whole.is(Kind::generator)) return items.values;
  const auto first = items.values.begin() + static_cast<std::ptrdiff_t>(items.taken);
  items.taken = items.values.size();
  return {first, items.values.end()};
}

std::vector<const Value*> Operations::bound(const std::string& what, const Arguments& arguments,
                                            const std::vector<std::string>& parameters,
                                            size_t required) const {
  std::vector<const Value*> values(parameters.size());
  const size_t positional = arguments.values.size() - arguments.names.size();
  if (positional > parameters.size())
    wrong(what, " accepts ", parameters.size(), " arguments, got ", positional);
  for (size_t i = 0; i < positional; ++i) values[i] = &arguments.values[i];
  for (size_t i = 0; i < arguments.names.size(); ++i) {
    const std::string& name = arguments.names[i];
    const auto found = std::find(parameters.begin(), parameters.end(), name);
    const auto at = static_cast<size_t>(found - parameters.begin());
    if (at == parameters.size() || values[at] != nullptr)
      unsupported("the argument ", in_quotes(name), " of ", what);
    values[at] = &arguments.values[positional + i];
  }
  for (size_t i = 0; i < required; ++i)
    if (values[i] == nullptr) wrong(what, " needs ", required, " arguments");
  return values;
}

// ---- Operators.

bool Operations::equal(const Value& a, const Value& b) {
  step();
  if (a.is_number() && b.is_number()) return a.number == b.number;
  for (const Value* value : {&a, &b})
    if (value->is(Kind::safe_text) || value->is(Kind::method))
      unsupported("comparing ", value->type());
  if (a.kind != b.kind) return false;
  if (a.kind <= Kind::none) return true;
  if (a.is_text() || a.is(Kind::function)) {
    use_bytes(std::min(a.text().size(), b.text().size()) / 16);
    return a.text() == b.text();
  }
  const bool compares_items = a.is_indexed() || a.is(Kind::view) || a.is(Kind::dictionary);
  if (a.object == b.object || !compares_items) return a.object == b.object;
  if (a.is(Kind::view)) unsupported("comparing views of dictionaries");
  const Items &x = a.items(), &y = b.items();
  if (!a.is(Kind::dictionary))
    return std::equal(x.values.begin(), x.values.end(), y.values.begin(), y.values.end(),
                      [&](const Value& p, const Value& q) { return equal(p, q); });
  if (x.keys.size() != y.keys.size()) return false;
  use_bytes(x.keys.size() * y.keys.size());
  for (size_t i = 0; i < x.keys.size(); ++i) {
    const Value* other = y.find(x.keys[i]);
    if (other == nullptr || !equal(x.values[i], *other)) return false;
  }
  return true;
}

bool Operations::contains(const Value& whole, const Value& part) {
  if (whole.is_text()) {
    const std::string& wanted = text_of(part, "the left operand of \"in\"");
    use_bytes(whole.text().size() / 4 * (1 + wanted.size() / 16));
    return whole.text().find(wanted) != std::string::npos;
  }
  if (whole.is(Kind::dictionary)) {
    if (part.is(Kind::list) || part.is(Kind::dictionary))
      wrong(part.type(), " cannot be a key of a dictionary");
    use_bytes(whole.items().keys.size());
    return part.is_text() && whole.items().find(part.text()) != nullptr;
  }
  const Value values = iterated(whole);
  size_t first = 0;
  size_t& at = values.is(Kind::generator) ? values.items().taken : first;
  while (at < values.items().values.size())
    if (equal(values.items().values[at++], part)) return true;
  return false;
}

bool Operations::compared(const std::string& op, const Value& a, const Value& b) {
  if (op == "==") return equal(a, b);
  if (op == "!=") return !equal(a, b);
  if (op == "in") return contains(b, a);
  if (op == "not in") return !contains(b, a);
  check_defined(a);
  check_defined(b);
  const bool numbers = a.is_number() && b.is_number();
  if (a.is_sequence() && b.is_sequence()) unsupported("the order of lists");
  if (!numbers && !(a.is_text() && b.is_text()))
    wrong("cannot compare ", a.type(), " and ", b.type(), " by ", op);
  // UTF-8 has the order of the code points.
  const int order =
      numbers ? (a.number > b.number) - (a.number < b.number) : a.text().compare(b.text());
  return op == "<" ? order < 0 : op == "<=" ? order <= 0 : op == ">" ? order > 0 : order >= 0;
}

Value Operations::repeated(const std::string& part, int64_t times) {
  const auto count = part.empty() ? 0 : static_cast<size_t>(std::max<int64_t>(times, 0));
  if (count > 0) use_bytes(count > SIZE_MAX / part.size() ? SIZE_MAX : count * part.size());
  std::string result;
  for (size_t i = 0; i < count; ++i) result += part;
  return text(std::move(result));
}

Value Operations::arithmetic(const std::string& op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    check_defined(*value);
    if (value->is(Kind::safe_text)) unsupported(op, " of safe text");
  }
  if (a.is_number() && b.is_number()) {
    const int64_t m = a.number, n = b.number;
    int64_t result = 0;
    if (op == "/" || op == "**") unsupported("the operator ", op);
    if ((op == "//" || op == "%") && n == 0) wrong("division by zero");
    const bool overflow = op == "+"   ? __builtin_add_overflow(m, n, &result)
                          : op == "-" ? __builtin_sub_overflow(m, n, &result)
                          : op == "*" ? __builtin_mul_overflow(m, n, &result)
                                      : m == INT64_MIN && n == -1;
    if (overflow) unsupported("an integer of more than 64 bits");
    if (op != "//" && op != "%") return result;
    const int64_t rest = m % n;
    const bool down = rest != 0 && (rest < 0) != (n < 0);  // Python rounds down
    return op == "%" ? rest + (down ? n : 0) : m / n - (down ? 1 : 0);
  }
  if (op == "+" && a.is_text() && b.is_text()) return text(a.text() + b.text());
  if (op == "+" && a.kind == b.kind && a.is_list_or_tuple()) {
    std::vector<Value> values = a.items().values;
    values.insert(values.end(), b.items().values.begin(), b.items().values.end());
    return sequence(std::move(values), a.kind);
  }
  if (op == "*" && (a.is_number() || b.is_number())) {
    const Value &part = a.is_number() ? b : a, &times = a.is_number() ? a : b;
    if (part.is_text()) return repeated(part.text(), times.number);
    if (part.is_list_or_tuple()) unsupported("the operator * of a list");
  }
  if (op == "%" && a.is_text()) unsupported("the operator % of a text");
  wrong("the operator ", op, " does not accept ", a.type(), " and ", b.type());
}

Value Operations::attribute(const Value& object, const std::string& name) {
  check_defined(object);
  const bool closed =
      object.is(Kind::method) || object.is(Kind::function) || object.is(Kind::safe_text);
  if (closed || name.starts_with("__"))
    unsupported("the attribute ", in_quotes(name), " of ", object.type());
  const Attributes& attributes = attributes_of(object.kind);
  if (attributes.changes.contains(name))
    return undefined("the method " + in_quotes(name) + " would change " + object.type());
  if (attributes.methods.contains(name))
    return {Kind::method, std::make_shared<Method>(Method{object, name})};
  if (object.is(Kind::dictionary) || object.is(Kind::space)) {
    use_bytes(object.items().keys.size());
    if (const Value* found = object.items().find(name)) return *found;
  }
  return undefined(std::string(object.type()) + " has no attribute " + in_quotes(name));
}

Value Operations::item(const Value& object, const Value& index) {
  check_defined(object);
  if (index.is_text()) {
    if (!object.is(Kind::dictionary)) return attribute(object, index.text());
    use_bytes(object.items().keys.size());
    const Value* found = object.items().find(index.text());
    return found != nullptr ? *found : attribute(object, index.text());
  }
  if (object.is(Kind::safe_text)) unsupported("an item of safe text");
  if (index.is_number() && (object.is_text() || object.is_indexed())) {
    const int64_t size = length(object);
    const int64_t at = index.number < 0 ? index.number + size : index.number;
    if (at >= 0 && at < size) {
      if (!object.is_text()) return object.items().values[static_cast<size_t>(at)];
      const std::string& all = object.text();
      use_bytes(all.size());
      size_t start = 0;
      for (int64_t i = 0; i < at; ++i) start += utf8_size(all[start]);
      return text(all.substr(start, utf8_size(all[start])));
    }
  }
  return undefined(std::string(object.type()) + " has no such item");
}

Value Operations::member_at(const Value& value, const std::string& path) {
  Value found = value;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('.', at), path.size());
    const std::string part = path.substr(at, end - at);
    const bool is_index =
        !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == part.npos;
    found = item(found, is_index ? Value(int64_t{std::stoll(part)}) : text(part));
    at = end + 1;
  }
  return found;
}

Value Operations::slice(const Value& object, const std::optional<int64_t> (&parts)[3]) {
  check_defined(object);
  if (!object.is_text() && !object.is_indexed()) wrong(object.type(), " has no slices");
  const int64_t size = length(object);
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
  use_bytes(chosen.size() * sizeof(size_t));
  if (!object.is_text()) {
    std::vector<Value> values;
    for (const size_t i : chosen) values.push_back(object.items().values[i]);
    return sequence(std::move(values), object.kind);
  }
  const std::string& whole = object.text();
  use_bytes(whole.size());
  std::vector<size_t> starts;
  for (size_t at = 0; at < whole.size(); at += utf8_size(whole[at])) starts.push_back(at);
  std::string part;
  for (const size_t i : chosen) part.append(whole, starts[i], utf8_size(whole[starts[i]]));
  return text(std::move(part));
}

}  // namespace stretto::nn::chat
