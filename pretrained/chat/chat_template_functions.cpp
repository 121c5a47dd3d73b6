// Filters, tests, methods and functions of chat templates.

#include <algorithm>
#include <cstring>
#include <ctime>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "core/one_line.h"
#include "pretrained/chat/chat_template_runner.h"
#include "pretrained/chat/chat_template_text.h"

namespace stretto::nn::chat {
namespace {

bool is_ascii(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 128; });
}
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

}  // namespace

// Returns the value of each parameter, null if it is not given. Parameters without a name ("") are
// only positional.
std::vector<const Value*> Runner::bind(const std::string& what, const Arguments& arguments,
                                       const std::vector<std::string>& names,
                                       size_t required) const {
  std::vector<const Value*> bound(names.size());
  if (arguments.values.size() > names.size())
    wrong(what, " accepts ", names.size(), " arguments, got ", arguments.values.size());
  for (size_t i = 0; i < arguments.values.size(); ++i) bound[i] = &arguments.values[i];
  for (const auto& [name, value] : arguments.named) {
    const auto at = std::find(names.begin(), names.end(), name) - names.begin();
    if (static_cast<size_t>(at) == names.size() || bound[static_cast<size_t>(at)] != nullptr)
      unsupported("the argument ", in_quotes(name), " of ", what);
    bound[static_cast<size_t>(at)] = &value;
  }
  for (size_t i = 0; i < required; ++i)
    if (bound[i] == nullptr) wrong(what, " needs ", required, " arguments");
  return bound;
}

// ---- Filters.

Value Runner::filter(const std::string& name, const Value& value, const Arguments& arguments) {
  const std::string what = "the filter " + in_quotes(name);
  if (name == "default" || name == "d") {
    const auto bound = bind(what, arguments, {"default_value", "boolean"}, 0);
    const bool falsy = bound[1] != nullptr && is_true(*bound[1]) && !is_true(value);
    if (!std::holds_alternative<Undefined>(value) && !falsy) return value;
    return bound[0] != nullptr ? *bound[0] : text("");
  }
  const bool safe = std::holds_alternative<SafeText>(value);
  if (name == "safe" || name == "string") {
    bind(what, arguments, {}, 0);
    if (safe) return value;
    const Value made = text(printed(value));
    return name == "string" ? made : SafeText{std::get<Text>(made)};
  }
  if (safe) unsupported(what, " of safe text");
  if (std::optional<Value> made = text_filter(name, value, arguments)) return *made;
  if (std::optional<Value> made = sequence_filter(name, value, arguments)) return *made;
  unsupported(what);
}

std::optional<Value> Runner::text_filter(const std::string& name, const Value& value,
                                         const Arguments& arguments) {
  const std::string what = "the filter " + in_quotes(name);
  if (name == "trim") {
    const auto bound = bind(what, arguments, {"chars"}, 0);
    return stripped(printed(value), true, true, bound[0]);
  }
  if (name == "replace") {
    const auto bound = bind(what, arguments, {"old", "new", "count"}, 2);
    return replaced(printed(value), printed(*bound[0]), printed(*bound[1]), bound[2]);
  }
  if (name == "upper" || name == "lower" || name == "capitalize" || name == "title") {
    bind(what, arguments, {}, 0);
    return in_case(printed(value), name == "title" ? "title of the filter" : name);
  }
  if (name == "tojson") {
    const auto bound = bind(what, arguments, {"ensure_ascii", "indent"}, 0);
    const bool indented = bound[1] != nullptr && !std::holds_alternative<None>(*bound[1]);
    const int64_t indent = indented ? integer(*bound[1], "the indent of tojson") : -1;
    if (indented && (indent < 0 || indent > 16)) unsupported("an indent of ", indent);
    std::string made = json(value, indent, 1);
    if (bound[0] != nullptr && is_true(*bound[0]) &&
        (!is_ascii(made) || made.find('\x7f') != made.npos))
      unsupported("tojson with ensure_ascii of this text");
    return text(std::move(made));
  }
  return std::nullopt;
}

std::optional<Value> Runner::sequence_filter(const std::string& name, const Value& value,
                                             const Arguments& arguments) {
  const std::string what = "the filter " + in_quotes(name);
  if (name == "selectattr" || name == "rejectattr" || name == "select" || name == "reject")
    return selected(value, arguments, name.ends_with("attr"), name.starts_with("select"));
  if (name == "map") return mapped(value, arguments);
  if (name == "join") {
    const auto bound = bind(what, arguments, {"d"}, 0);
    return joined(value, bound[0] != nullptr ? printed(*bound[0]) : "");
  }
  const bool known = name == "length" || name == "count" || name == "list" || name == "first" ||
                     name == "last" || name == "items";
  if (!known) return std::nullopt;
  bind(what, arguments, {}, 0);
  if (name == "length" || name == "count") return length_of(value);
  if (name == "list") return sequence(drained(value));
  if (name == "items") {
    if (std::holds_alternative<Undefined>(value)) return sequence({}, Sequence::Kind::generator);
    const auto* d = std::get_if<DictionaryPtr>(&value);
    if (d == nullptr) wrong("items of ", type_of(value), "; expected a dictionary");
    return sequence(drained(call_method({value, "items"}, {})), Sequence::Kind::generator);
  }
  const SequencePtr values = iterated(value);
  const bool once = values->kind == Sequence::Kind::generator;
  if (name == "last" && once) wrong("the last item of a generator");
  size_t& taken = values->taken;
  if ((once ? taken : 0) >= values->items.size())
    return undefined("no " + name + " item, the sequence was empty");
  if (name == "last") return values->items.back();
  return once ? values->items[taken++] : values->items[0];
}

Value Runner::member_at(const Value& value, const std::string& path) {
  Value found = value;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('.', at), path.size());
    const std::string part = path.substr(at, end - at);
    const bool digits =
        !part.empty() && part.size() < 10 &&
        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    found = item(found, digits ? Value(int64_t{std::stoll(part)}) : text(part));
    at = end + 1;
  }
  return found;
}

Value Runner::selected(const Value& value, const Arguments& arguments, bool by_attribute,
                       bool keep) {
  if (!arguments.named.empty()) unsupported("a named argument of a selection");
  const size_t used = by_attribute ? 1 : 0;
  if (arguments.values.size() < used) wrong("the selection needs an attribute");
  Arguments rest;
  for (size_t i = used + 1; i < arguments.values.size(); ++i)
    rest.values.push_back(arguments.values[i]);
  std::vector<Value> chosen;
  for (const Value& candidate : is_true(value) ? drained(value) : std::vector<Value>{}) {
    step();
    const Value subject = by_attribute
                              ? member_at(candidate, text_of(arguments.values[0], "the attribute"))
                              : candidate;
    const bool passes = arguments.values.size() > used
                            ? test(text_of(arguments.values[used], "the test"), subject, rest)
                            : is_true(subject);
    if (passes == keep) chosen.push_back(candidate);
  }
  return sequence(std::move(chosen), Sequence::Kind::generator);
}

Value Runner::mapped(const Value& value, const Arguments& arguments) {
  std::vector<Value> made;
  const bool by_attribute = arguments.values.empty();
  const auto bound = by_attribute
                         ? bind("the filter \"map\"", arguments, {"attribute", "default"}, 1)
                         : std::vector<const Value*>{};
  Arguments rest = arguments;
  if (!by_attribute) rest.values.erase(rest.values.begin());
  for (const Value& item_of : is_true(value) ? drained(value) : std::vector<Value>{}) {
    step();
    if (by_attribute) {
      const Value member = member_at(item_of, text_of(*bound[0], "the attribute"));
      const bool missing = std::holds_alternative<Undefined>(member) && bound[1] != nullptr;
      made.push_back(missing ? *bound[1] : member);
    } else {
      made.push_back(filter(text_of(arguments.values[0], "the filter"), item_of, rest));
    }
  }
  return sequence(std::move(made), Sequence::Kind::generator);
}

Value Runner::joined(const Value& values, const std::string& separator) {
  std::string all;
  bool first = true;
  for (const Value& value : drained(values)) {
    if (std::holds_alternative<SafeText>(value)) unsupported("join of safe text");
    use_bytes(separator.size());
    if (!std::exchange(first, false)) all += separator;
    all += printed(value);
  }
  return text(std::move(all));
}

// As Python's json.dumps with ensure_ascii=False.
std::string Runner::json(const Value& value, int64_t indent, int level) {
  step();
  if (const std::string* t = as_text(value)) return nlohmann::json(*t).dump();
  if (std::holds_alternative<None>(value)) return "null";
  if (const auto* yes = std::get_if<bool>(&value)) return *yes ? "true" : "false";
  if (const auto* number = std::get_if<int64_t>(&value)) return std::to_string(*number);
  const auto* d = std::get_if<DictionaryPtr>(&value);
  const auto* s = std::get_if<SequencePtr>(&value);
  if (d == nullptr && (s == nullptr || (*s)->kind > Sequence::Kind::tuple))
    wrong("tojson does not accept ", type_of(value));
  const auto new_line = [&](int depth) {
    return indent < 0 ? "" : "\n" + std::string(static_cast<size_t>(indent * depth), ' ');
  };
  std::string all;
  const auto add = [&](const std::string& part) {
    use_bytes(part.size() + static_cast<size_t>(std::max<int64_t>(indent, 0) * level));
    all += (all.empty() ? "" : indent < 0 ? ", " : ",") + new_line(level) + part;
  };
  if (d != nullptr)
    for (const auto& [name, member] : (*d)->items)
      add(nlohmann::json(name).dump() + ": " + json(member, indent, level + 1));
  else
    for (const Value& member : (*s)->items) add(json(member, indent, level + 1));
  if (!all.empty()) all += new_line(level - 1);
  return d != nullptr ? "{" + all + "}" : "[" + all + "]";
}

// ---- Tests.

bool Runner::test(const std::string& name, const Value& value, const Arguments& arguments) {
  const std::string what = "the test " + in_quotes(name);
  static const std::map<std::string, std::string> operators = {
      {"eq", "=="}, {"equalto", "=="}, {"ne", "!="},         {"lt", "<"},  {"lessthan", "<"},
      {"le", "<="}, {"gt", ">"},       {"greaterthan", ">"}, {"ge", ">="}, {"in", "in"}};
  if (const auto found = operators.find(name); found != operators.end())
    return compared(found->second, value, *bind(what, arguments, {""}, 1)[0]);
  // selectattr accepts the operators themselves.
  for (const char* op : {"==", "!=", "<", "<=", ">", ">="})
    if (name == op) return compared(name, value, *bind(what, arguments, {""}, 1)[0]);
  const bool is_undefined = std::holds_alternative<Undefined>(value);
  const auto* yes = std::get_if<bool>(&value);
  const auto* s = std::get_if<SequencePtr>(&value);
  const bool is_text = as_text(value) != nullptr || std::holds_alternative<SafeText>(value);
  const bool is_dictionary = std::holds_alternative<DictionaryPtr>(value);
  const auto unary = [&](bool holds) {
    bind(what, arguments, {}, 0);
    return holds;
  };
  if (name == "defined") return unary(!is_undefined);
  if (name == "undefined") return unary(is_undefined);
  if (name == "none") return unary(std::holds_alternative<None>(value));
  if (name == "boolean") return unary(yes != nullptr);
  if (name == "true") return unary(yes != nullptr && *yes);
  if (name == "false") return unary(yes != nullptr && !*yes);
  if (name == "integer") return unary(std::holds_alternative<int64_t>(value));
  if (name == "number") return unary(as_integer(value).has_value());
  if (name == "odd") return unary(integer(value, "the value") % 2 != 0);
  if (name == "even") return unary(integer(value, "the value") % 2 == 0);
  if (name == "string") return unary(is_text);
  if (name == "mapping") return unary(is_dictionary);
  if (name == "iterable") return unary(is_undefined || is_text || is_dictionary || s != nullptr);
  if (name == "sequence")
    return unary(is_undefined || is_text || is_dictionary ||
                 (s != nullptr && (*s)->kind <= Sequence::Kind::range));
  unsupported(what);
}

// ---- Calls.

Value Runner::call(const Value& callee, Arguments arguments) {
  if (const auto* u = std::get_if<Undefined>(&callee)) wrong(*u->reason);
  if (const auto* macro = std::get_if<Macro>(&callee))
    return call_macro(*macro, std::move(arguments));
  if (const auto* function = std::get_if<Function>(&callee))
    return call_function(function->name, arguments);
  if (const auto* method = std::get_if<std::shared_ptr<Method>>(&callee))
    return call_method(**method, arguments);
  wrong(type_of(callee), " cannot be called");
}

Value Runner::call_function(const std::string& name, const Arguments& arguments) {
  if (name == "raise_exception") {
    const auto bound = bind(name, arguments, {"message"}, 1);
    wrong("the template refuses the conversation: ", one_line(printed(*bound[0]), 400));
  }
  if (name == "strftime_now")
    return time_text(text_of(*bind(name, arguments, {"format"}, 1)[0], "the format"));
  if (name == "range") return range(arguments);
  if (name != "namespace" && name != "dict") unsupported("the function ", name);
  std::vector<std::pair<std::string, Value>> members;
  if (!arguments.values.empty()) {
    const auto* d = std::get_if<DictionaryPtr>(&arguments.values[0]);
    if (arguments.values.size() > 1 || d == nullptr) unsupported(name, " of such arguments");
    members = (*d)->items;
  }
  members.insert(members.end(), arguments.named.begin(), arguments.named.end());
  if (name == "dict") return dictionary(members);
  if (namespaces_.size() >= most_namespaces) wrong("more than ", most_namespaces, " namespaces");
  Namespace& made = namespaces_.emplace_back();
  for (auto& [member, value] : members) {
    if (member.starts_with("_")) wrong("a namespace cannot have the attribute ", in_quotes(member));
    use_bytes(sizeof(Value) + member.size());
    made.members[member] = std::move(value);
  }
  return &made;
}

Value Runner::range(const Arguments& arguments) {
  const auto bound = bind("range", arguments, {"", "", ""}, 1);
  const int64_t first = integer(*bound[0], "an argument of range");
  const bool two = bound[1] != nullptr;
  const int64_t begin = two ? first : 0;
  const int64_t end = two ? integer(*bound[1], "an argument of range") : first;
  const int64_t by = bound[2] != nullptr ? integer(*bound[2], "an argument of range") : 1;
  if (by == 0) wrong("the step of range is 0");
  std::vector<Value> items;
  for (int64_t i = begin; by > 0 ? i < end : i > end;) {
    if (items.size() == 100'000) wrong("a range of more than 100000 items");
    items.emplace_back(i);
    if (__builtin_add_overflow(i, by, &i)) break;
  }
  return sequence(std::move(items), Sequence::Kind::range);
}

Value Runner::time_text(const std::string& format) {
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') continue;
    const char code = ++i < format.size() ? format[i] : '\0';
    if (code == '\0' || std::strchr("aAbBcdDeFHIjmMpSTuUVwWxXyY%", code) == nullptr)
      unsupported("the format ", in_quotes(format), " of strftime_now");
  }
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  localtime_r(&now, &parts);
  if (format.size() > 256) unsupported("a format of more than 256 bytes");
  std::vector<char> shown(16384);
  const size_t size = std::strftime(shown.data(), shown.size(), format.c_str(), &parts);
  return text(std::string(shown.data(), size));
}

Value Runner::call_method(const Method& method, const Arguments& arguments) {
  const std::string& name = method.name;
  const std::string what = "the method " + in_quotes(name);
  if (const std::string* t = as_text(method.object)) return call_text_method(*t, name, arguments);
  const auto* d = std::get_if<DictionaryPtr>(&method.object);
  if (d == nullptr) unsupported(what, " of ", type_of(method.object));
  if (name == "get") {
    const auto bound = bind(what, arguments, {"", ""}, 1);
    const std::string* key = as_text(*bound[0]);
    use_bytes((*d)->items.size());
    if (const Value* found = key != nullptr ? (*d)->find(*key) : nullptr) return *found;
    return bound[1] != nullptr ? *bound[1] : None{};
  }
  if (name != "items" && name != "keys" && name != "values")
    unsupported(what, " of ", type_of(method.object));
  bind(what, arguments, {}, 0);
  std::vector<Value> members;
  for (const auto& [key, value] : (*d)->items)
    members.push_back(name == "keys"     ? text(key)
                      : name == "values" ? value
                                         : sequence({text(key), value}, Sequence::Kind::tuple));
  return sequence(std::move(members), Sequence::Kind::view);
}

Value Runner::call_text_method(const std::string& text_of_call, const std::string& name,
                               const Arguments& arguments) {
  const std::string what = "the method " + in_quotes(name);
  if (name == "strip" || name == "lstrip" || name == "rstrip")
    return stripped(text_of_call, name != "rstrip", name != "lstrip",
                    bind(what, arguments, {""}, 0)[0]);
  if (name == "split") {
    const auto bound = bind(what, arguments, {"sep", "maxsplit"}, 0);
    const int64_t most = bound[1] != nullptr ? integer(*bound[1], "the number of splits") : -1;
    if (bound[0] == nullptr || std::holds_alternative<None>(*bound[0]))
      return split_at_spaces(text_of_call, most);
    return split(text_of_call, text_of(*bound[0], "the separator"), most);
  }
  if (name == "startswith" || name == "endswith") {
    const Value& wanted = *bind(what, arguments, {""}, 1)[0];
    const auto* s = std::get_if<SequencePtr>(&wanted);
    const bool tuple = s != nullptr && (*s)->kind == Sequence::Kind::tuple;
    const std::vector<Value> all = tuple ? (*s)->items : std::vector<Value>{wanted};
    return std::any_of(all.begin(), all.end(), [&](const Value& part) {
      const std::string& affix = text_of(part, "the argument");
      return name == "endswith" ? text_of_call.ends_with(affix) : text_of_call.starts_with(affix);
    });
  }
  if (name == "replace") {
    const auto bound = bind(what, arguments, {"", "", ""}, 2);
    return replaced(text_of_call, text_of(*bound[0], "the old text"),
                    text_of(*bound[1], "the new text"), bound[2]);
  }
  if (name == "join") {
    const std::vector<Value> parts = drained(*bind(what, arguments, {""}, 1)[0]);
    for (const Value& part : parts) text_of(part, "a joined value");
    return joined(sequence(parts), text_of_call);
  }
  if (name == "upper" || name == "lower" || name == "capitalize" || name == "title") {
    bind(what, arguments, {}, 0);
    return in_case(text_of_call, name);
  }
  unsupported(what, " of a text");
}

// ---- Text.

Value Runner::stripped(const std::string& from, bool left, bool right, const Value* characters) {
  size_t first = 0, end = from.size();
  if (characters == nullptr || std::holds_alternative<None>(*characters)) {
    if (left) first = skip_space(from, 0);
    if (right) end = std::max(first, skip_space_backwards(from, end));
    use_bytes(first + from.size() - end);
    return text(from.substr(first, end - first));
  }
  const std::string& all = text_of(*characters, "the characters");
  use_bytes(from.size() / 4 * (1 + all.size() / 16));
  const auto listed = [&](size_t at, size_t next) {
    return all.find(from.substr(at, next - at)) != std::string::npos;
  };
  while (left && first < end) {
    size_t next = first;
    next_code_point(from, next);
    if (!listed(first, next)) break;
    first = next;
  }
  while (right && first < end) {
    const size_t at = previous_start(from, end);
    if (!listed(at, end)) break;
    end = at;
  }
  return text(from.substr(first, end - first));
}

Value Runner::split(const std::string& from, const std::string& separator, int64_t most) {
  if (separator.empty()) wrong("the separator of split is empty");
  use_bytes(from.size() / 4 * (1 + separator.size() / 16));
  std::vector<Value> parts;
  size_t at = 0;
  for (size_t found = 0; most-- != 0 && (found = from.find(separator, at)) != std::string::npos;) {
    parts.push_back(text(from.substr(at, found - at)));
    at = found + separator.size();
  }
  parts.push_back(text(from.substr(at)));
  return sequence(std::move(parts));
}

Value Runner::split_at_spaces(const std::string& from, int64_t most) {
  use_bytes(from.size());
  std::vector<Value> parts;
  for (size_t at = skip_space(from, 0); at < from.size(); at = skip_space(from, at)) {
    if (most-- == 0) {
      parts.push_back(text(from.substr(at)));
      break;
    }
    const size_t start = at;
    for (size_t next = at; at < from.size() && !is_space(next_code_point(from, next));) at = next;
    parts.push_back(text(from.substr(start, at - start)));
  }
  return sequence(std::move(parts));
}

Value Runner::replaced(const std::string& from, const std::string& old, const std::string& with,
                       const Value* count) {
  const bool all = count == nullptr || std::holds_alternative<None>(*count);
  int64_t most = all ? -1 : integer(*count, "the number of replacements");
  if (old.empty()) unsupported("replacing the empty text");
  use_bytes(from.size() / 4 * (1 + old.size() / 16));
  std::string made;
  size_t at = 0;
  for (size_t found = 0; most-- != 0 && (found = from.find(old, at)) != std::string::npos;) {
    use_bytes(with.size());
    made.append(from, at, found - at).append(with);
    at = found + old.size();
  }
  return text(made.append(from, at));
}

Value Runner::in_case(const std::string& from, const std::string& how) {
  if (!is_ascii(from)) unsupported(how, " of a text that is not ASCII");
  std::string made = from;
  char before = ' ';
  for (size_t i = 0; i < made.size(); ++i) {
    const bool starts = how == "capitalize" ? i == 0
                        : how == "title"    ? !is_letter(before)
                                            : std::strchr("-({[<", before) != nullptr ||
                                               is_space(static_cast<unsigned char>(before));
    before = made[i];
    const bool up = how == "upper" || (how != "lower" && starts);
    made[i] = up ? upper(before) : lower(before);
  }
  return text(std::move(made));
}

}  // namespace stretto::nn::chat
