// Filters, tests, methods and functions of chat templates.

#include <algorithm>
#include <cstring>
#include <ctime>
#include <map>
#include <string_view>
#include <utility>

#include "core/one_line.h"
#include "nn/files/json.h"
#include "pretrained/chat/chat_template_text.h"
#include "pretrained/chat/chat_template_values.h"

namespace stretto::nn::chat {
namespace {

using Kind = Value::Kind;

// A call of a filter, method or function.
struct Call {
  const std::string& name;
  const Value& value;                   // that is filtered, or has the method
  std::vector<const Value*> arguments;  // by parameter; null if not given
};

struct Callable {
  std::vector<std::string> parameters;  // "": cannot be passed by name
  size_t required;
  Value (*run)(Operations&, const Call&);
};
using Callables = std::map<std::string, Callable>;

Value dispatch(Operations& on, const Callables& all, const std::string& what,
               const std::string& name, const Value& value, const Arguments& arguments) {
  const auto found = all.find(name);
  if (found == all.end()) on.unsupported(what);
  const auto& [parameters, required, run] = found->second;
  return run(on, {name, value, on.bound(what, arguments, parameters, required)});
}

bool is_given(const Value* argument) { return argument != nullptr && !argument->is(Kind::none); }

// ---- Text.

// strip, lstrip, rstrip and the filter trim.
Value strip(Operations& on, const Call& call) {
  const std::string from = on.printed(call.value);
  const bool left = call.name != "rstrip", right = call.name != "lstrip";
  size_t first = 0, end = from.size();
  if (!is_given(call.arguments[0])) {
    if (left) first = skip_space(from, 0);
    if (right) end = std::max(first, skip_space_backwards(from, end));
    on.use_bytes(first + from.size() - end);
    return on.text(from.substr(first, end - first));
  }
  const std::string& all = on.text_of(*call.arguments[0], "the characters");
  on.use_bytes(from.size() / 4 * (1 + all.size() / 16));
  const auto listed = [&](size_t at, size_t next) {
    return all.find(from.substr(at, next - at)) != std::string::npos;
  };
  while (left && first < end && listed(first, first + utf8_size(from[first])))
    first += utf8_size(from[first]);
  while (right && first < end && listed(previous_start(from, end), end))
    end = previous_start(from, end);
  return on.text(from.substr(first, end - first));
}

Value split_at_spaces(Operations& on, const std::string& from, int64_t most) {
  on.use_bytes(from.size());
  std::vector<Value> parts;
  for (size_t at = skip_space(from, 0); at < from.size(); at = skip_space(from, at)) {
    const size_t start = at;
    for (size_t next = at; at < from.size() && !is_space(next_code_point(from, next));) at = next;
    if (most-- == 0) at = from.size();
    parts.push_back(on.text(from.substr(start, at - start)));
  }
  return on.sequence(std::move(parts));
}

Value split(Operations& on, const Call& call) {
  const std::string& from = call.value.text();
  int64_t most = -1;
  if (call.arguments[1] != nullptr) most = on.integer(*call.arguments[1], "the number of splits");
  if (!is_given(call.arguments[0])) return split_at_spaces(on, from, most);
  const std::string& separator = on.text_of(*call.arguments[0], "the separator");
  if (separator.empty()) on.wrong("the separator of split is empty");
  on.use_bytes(from.size() / 4 * (1 + separator.size() / 16));
  std::vector<Value> parts;
  size_t at = 0;
  for (size_t found = 0; most-- != 0 && (found = from.find(separator, at)) != std::string::npos;) {
    parts.push_back(on.text(from.substr(at, found - at)));
    at = found + separator.size();
  }
  parts.push_back(on.text(from.substr(at)));
  return on.sequence(std::move(parts));
}

Value replaced(Operations& on, const std::string& from, const std::string& old,
               const std::string& with, const Value* count) {
  int64_t most = is_given(count) ? on.integer(*count, "the number of replacements") : -1;
  if (old.empty()) on.unsupported("replacing the empty text");
  on.use_bytes(from.size() / 4 * (1 + old.size() / 16));
  std::string made;
  size_t at = 0;
  for (size_t found = 0; most-- != 0 && (found = from.find(old, at)) != std::string::npos;) {
    on.use_bytes(with.size());
    made.append(from, at, found - at).append(with);
    at = found + old.size();
  }
  return on.text(made.append(from, at));
}

// upper, lower, capitalize and title. The filter title and the method title differ in the
// characters after which a word starts.
Value in_case(Operations& on, const Call& call, bool is_filter) {
  const std::string from = on.printed(call.value);
  const std::string& how = call.name;
  if (!is_ascii(from)) on.unsupported(how, " of a text that is not ASCII");
  const auto is_upper = [](char c) { return c >= 'A' && c <= 'Z'; };
  const auto is_lower = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto starts_word = [&](char before) {
    if (!is_filter) return !is_upper(before) && !is_lower(before);
    return std::string_view("-({[<").find(before) != std::string_view::npos ||
           is_space(static_cast<unsigned char>(before));
  };
  std::string made = from;
  for (size_t i = 0; i < made.size(); ++i) {
    const bool starts = i == 0 || (how == "title" && starts_word(from[i - 1]));
    const bool up = how == "upper" || (how != "lower" && starts);
    if (up ? is_lower(from[i]) : is_upper(from[i])) made[i] ^= 0x20;
  }
  return on.text(std::move(made));
}

Value change_case(Operations& on, const Call& call) { return in_case(on, call, false); }

Value filtered_title(Operations& on, const Call& call) { return in_case(on, call, true); }

Value joined(Operations& on, const Value& values, const std::string& separator) {
  std::string all;
  bool first = true;
  for (const Value& value : on.drained(values)) {
    if (value.is(Kind::safe_text)) on.unsupported("join of safe text");
    on.use_bytes(separator.size());
    if (!std::exchange(first, false)) all += separator;
    all += on.printed(value);
  }
  return on.text(std::move(all));
}

// As Python's json.dumps with ensure_ascii=False; in one line if the indent is negative.
std::string json(Operations& on, const Value& value, int64_t indent, int level) {
  on.step();
  if (value.is_text()) return files::quoted_json(value.text());
  if (value.is(Kind::none)) return "null";
  if (value.is(Kind::boolean)) return value.number != 0 ? "true" : "false";
  if (value.is(Kind::integer)) return std::to_string(value.number);
  const bool is_dictionary = value.is(Kind::dictionary);
  if (!is_dictionary && !value.is_list_or_tuple())
    on.wrong("tojson does not accept ", value.type());
  const auto new_line = [&](int depth) {
    return indent < 0 ? "" : "\n" + std::string(static_cast<size_t>(indent * depth), ' ');
  };
  std::string all;
  for (size_t i = 0; i < value.items().values.size(); ++i) {
    std::string part = json(on, value.items().values[i], indent, level + 1);
    if (is_dictionary) part = files::quoted_json(value.items().keys[i]) + ": " + part;
    on.use_bytes(part.size() + static_cast<size_t>(std::max<int64_t>(indent, 0) * level));
    all += (i == 0 ? "" : indent < 0 ? ", " : ",") + new_line(level) + part;
  }
  if (!all.empty()) all += new_line(level - 1);
  return is_dictionary ? "{" + all + "}" : "[" + all + "]";
}

Value to_json(Operations& on, const Call& call) {
  const Value *ensure_ascii = call.arguments[0], *indent = call.arguments[1];
  const int64_t spaces = is_given(indent) ? on.integer(*indent, "the indent of tojson") : -1;
  if (is_given(indent) && (spaces < 0 || spaces > 16)) on.unsupported("an indent of ", spaces);
  std::string made = json(on, call.value, spaces, 1);
  if (ensure_ascii != nullptr && on.is_true(*ensure_ascii) &&
      (!is_ascii(made) || made.find('\x7f') != made.npos))
    on.unsupported("tojson with ensure_ascii of this text");
  return on.text(std::move(made));
}

// ---- Filters.

Value default_value(Operations& on, const Call& call) {
  const Value *other = call.arguments[0], *boolean = call.arguments[1];
  const bool replaces_false = boolean != nullptr && on.is_true(*boolean);
  if (!call.value.is(Kind::undefined) && (!replaces_false || on.is_true(call.value)))
    return call.value;
  return other != nullptr ? *other : on.text("");
}

Value filtered_replace(Operations& on, const Call& call) {
  return replaced(on, on.printed(call.value), on.printed(*call.arguments[0]),
                  on.printed(*call.arguments[1]), call.arguments[2]);
}

Value filtered_join(Operations& on, const Call& call) {
  const Value* separator = call.arguments[0];
  return joined(on, call.value, separator != nullptr ? on.printed(*separator) : "");
}

Value list_of(Operations& on, const Call& call) { return on.sequence(on.drained(call.value)); }

Value length_of(Operations& on, const Call& call) { return on.length(call.value); }

Value first_or_last(Operations& on, const Call& call) {
  const Value values = on.iterated(call.value);
  const bool once = values.is(Kind::generator), last = call.name == "last";
  if (last && once) on.wrong("the last item of a generator");
  auto& [items, keys, taken, depth] = values.items();
  if (taken >= items.size())
    return Operations::undefined("no " + call.name + " item, the sequence was empty");
  return last ? items.back() : items[once ? taken++ : 0];
}

Value members(Operations& on, const Call& call) {
  const bool keys = call.name != "values", values = call.name != "keys";
  std::vector<Value> made;
  for (size_t i = 0; i < call.value.items().keys.size(); ++i) {
    const Value key = keys ? on.text(call.value.items().keys[i]) : Value();
    const Value& value = call.value.items().values[i];
    made.push_back(!values ? key : !keys ? value : on.sequence({key, value}, Kind::tuple));
  }
  return on.sequence(std::move(made), Kind::view);
}

Value filtered_items(Operations& on, const Call& call) {
  if (call.value.is(Kind::undefined)) return on.sequence({}, Kind::generator);
  if (!call.value.is(Kind::dictionary))
    on.wrong("items of ", call.value.type(), "; expected a dictionary");
  Value made = members(on, call);
  made.kind = Kind::generator;
  return made;
}

const Callables& filters() {
  static const Callables all = {
      {"capitalize", {{}, 0, change_case}},
      {"count", {{}, 0, length_of}},
      {"d", {{"default_value", "boolean"}, 0, default_value}},
      {"default", {{"default_value", "boolean"}, 0, default_value}},
      {"first", {{}, 0, first_or_last}},
      {"items", {{}, 0, filtered_items}},
      {"join", {{"d"}, 0, filtered_join}},
      {"last", {{}, 0, first_or_last}},
      {"length", {{}, 0, length_of}},
      {"list", {{}, 0, list_of}},
      {"lower", {{}, 0, change_case}},
      {"replace", {{"old", "new", "count"}, 2, filtered_replace}},
      {"title", {{}, 0, filtered_title}},
      {"tojson", {{"ensure_ascii", "indent"}, 0, to_json}},
      {"trim", {{"chars"}, 0, strip}},
      {"upper", {{}, 0, change_case}},
  };
  return all;
}

// select, reject, selectattr and rejectattr.
Value selected(Operations& on, const std::string& name, const Value& value,
               const Arguments& arguments) {
  if (!arguments.names.empty()) on.unsupported("a named argument of a selection");
  const std::vector<Value>& given = arguments.values;
  const size_t attributes = name.ends_with("attr") ? 1 : 0;
  if (given.size() < attributes) on.wrong("the selection needs an attribute");
  Arguments rest;
  if (given.size() > attributes)
    rest.values.assign(given.begin() + static_cast<std::ptrdiff_t>(attributes) + 1, given.end());
  std::vector<Value> chosen;
  for (const Value& candidate : on.is_true(value) ? on.drained(value) : std::vector<Value>{}) {
    on.step();
    const Value subject = attributes == 0
                              ? candidate
                              : on.member_at(candidate, on.text_of(given[0], "the attribute"));
    const bool passes = given.size() > attributes
                            ? on.test(on.text_of(given[attributes], "the test"), subject, rest)
                            : on.is_true(subject);
    if (passes == name.starts_with("select")) chosen.push_back(candidate);
  }
  return on.sequence(std::move(chosen), Kind::generator);
}

Value mapped(Operations& on, const Value& value, const Arguments& arguments) {
  const bool by_attribute = arguments.values.size() == arguments.names.size();
  std::vector<const Value*> options;
  Arguments rest = arguments;
  if (by_attribute)
    options = on.bound("the filter \"map\"", arguments, {"attribute", "default"}, 1);
  else
    rest.values.erase(rest.values.begin());
  std::vector<Value> made;
  for (const Value& item : on.is_true(value) ? on.drained(value) : std::vector<Value>{}) {
    on.step();
    if (!by_attribute) {
      made.push_back(on.filter(on.text_of(arguments.values[0], "the filter"), item, rest));
      continue;
    }
    Value member = on.member_at(item, on.text_of(*options[0], "the attribute"));
    if (member.is(Kind::undefined) && options[1]) member = *options[1];
    made.push_back(std::move(member));
  }
  return on.sequence(std::move(made), Kind::generator);
}

// ---- Methods.

Value starts_or_ends(Operations& on, const Call& call) {
  const Value& wanted = *call.arguments[0];
  const std::string& whole = call.value.text();
  const std::vector<Value> all =
      wanted.is(Kind::tuple) ? wanted.items().values : std::vector<Value>{wanted};
  return std::any_of(all.begin(), all.end(), [&](const Value& part) {
    const std::string& affix = on.text_of(part, "the argument");
    return call.name == "endswith" ? whole.ends_with(affix) : whole.starts_with(affix);
  });
}

Value join(Operations& on, const Call& call) {
  const std::vector<Value> parts = on.drained(*call.arguments[0]);
  for (const Value& part : parts) on.text_of(part, "a joined value");
  return joined(on, on.sequence(parts), call.value.text());
}

Value replace(Operations& on, const Call& call) {
  return replaced(on, call.value.text(), on.text_of(*call.arguments[0], "the old text"),
                  on.text_of(*call.arguments[1], "the new text"), call.arguments[2]);
}

Value get(Operations& on, const Call& call) {
  const Value *key = call.arguments[0], *other = call.arguments[1];
  on.use_bytes(call.value.items().keys.size());
  if (const Value* found = key->is_text() ? call.value.items().find(key->text()) : nullptr)
    return *found;
  return other != nullptr ? *other : Value();
}

const Callables& methods_of(Kind kind) {
  static const Callables of_text = {
      {"capitalize", {{}, 0, change_case}},
      {"endswith", {{""}, 1, starts_or_ends}},
      {"join", {{""}, 1, join}},
      {"lower", {{}, 0, change_case}},
      {"lstrip", {{""}, 0, strip}},
      {"replace", {{"", "", ""}, 2, replace}},
      {"rstrip", {{""}, 0, strip}},
      {"split", {{"sep", "maxsplit"}, 0, split}},
      {"startswith", {{""}, 1, starts_or_ends}},
      {"strip", {{""}, 0, strip}},
      {"title", {{}, 0, change_case}},
      {"upper", {{}, 0, change_case}},
  };
  static const Callables of_dictionary = {
      {"get", {{"", ""}, 1, get}},
      {"items", {{}, 0, members}},
      {"keys", {{}, 0, members}},
      {"values", {{}, 0, members}},
  };
  static const Callables none;
  return kind == Kind::text ? of_text : kind == Kind::dictionary ? of_dictionary : none;
}

// ---- Functions.

Value range(Operations& on, const Call& call) {
  int64_t parts[] = {0, 0, 1};
  for (size_t i = 0; i < 3; ++i)
    if (call.arguments[i] != nullptr)
      parts[i] = on.integer(*call.arguments[i], "an argument of range");
  const auto [first, second, by] = parts;
  const bool only_end = call.arguments[1] == nullptr;
  const int64_t end = only_end ? first : second;
  if (by == 0) on.wrong("the step of range is 0");
  std::vector<Value> items;
  for (int64_t i = only_end ? 0 : first; by > 0 ? i < end : i > end;) {
    if (items.size() == 100'000) on.wrong("a range of more than 100000 items");
    items.emplace_back(i);
    if (__builtin_add_overflow(i, by, &i)) break;
  }
  return on.sequence(std::move(items), Kind::range);
}

Value time_text(Operations& on, const Call& call) {
  const std::string& format = on.text_of(*call.arguments[0], "the format");
  static constexpr std::string_view codes = "aAbBcdDeFHIjmMpSTuUVwWxXyY%";
  for (size_t i = 0; i < format.size(); ++i)
    if (format[i] == '%' && (++i == format.size() || codes.find(format[i]) == codes.npos))
      on.unsupported("the format ", in_quotes(format), " of strftime_now");
  if (format.size() > 256) on.unsupported("a format of more than 256 bytes");
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  localtime_r(&now, &parts);
  std::vector<char> shown(16384);
  const size_t size = std::strftime(shown.data(), shown.size(), format.c_str(), &parts);
  return on.text(std::string(shown.data(), size));
}

Value raise_exception(Operations& on, const Call& call) {
  on.wrong("the template refuses the conversation: ",
           one_line(on.printed(*call.arguments[0]), 400));
}

const Callables& functions() {
  static const Callables all = {
      {"raise_exception", {{"message"}, 1, raise_exception}},
      {"range", {{"", "", ""}, 1, range}},
      {"strftime_now", {{"format"}, 1, time_text}},
  };
  return all;
}

// ---- Tests.

// The operators that tests stand for; selectattr accepts the operators themselves.
const std::map<std::string, std::string>& comparisons() {
  static const std::map<std::string, std::string> all = {
      {"==", "=="}, {"eq", "=="},         {"equalto", "=="}, {"!=", "!="},
      {"ne", "!="}, {"<", "<"},           {"lt", "<"},       {"lessthan", "<"},
      {"<=", "<="}, {"le", "<="},         {">", ">"},        {"gt", ">"},
      {">=", ">="}, {"greaterthan", ">"}, {"ge", ">="},      {"in", "in"}};
  return all;
}

// Returns whether the value passes a test without arguments; nothing if there is no such test.
std::optional<bool> passes(const Operations& on, const std::string& name, const Value& value) {
  const bool is_open = value.is(Kind::undefined) || value.is_any_text();
  if (name == "defined") return !value.is(Kind::undefined);
  if (name == "undefined") return value.is(Kind::undefined);
  if (name == "none") return value.is(Kind::none);
  if (name == "boolean") return value.is(Kind::boolean);
  if (name == "true") return value.is(Kind::boolean) && value.number != 0;
  if (name == "false") return value.is(Kind::boolean) && value.number == 0;
  if (name == "integer") return value.is(Kind::integer);
  if (name == "number") return value.is_number();
  if (name == "odd") return on.integer(value, "the value") % 2 != 0;
  if (name == "even") return on.integer(value, "the value") % 2 == 0;
  if (name == "string") return value.is_any_text();
  if (name == "mapping") return value.is(Kind::dictionary);
  if (name == "iterable") return is_open || value.is_sequence() || value.is(Kind::dictionary);
  if (name == "sequence") return is_open || value.is_indexed() || value.is(Kind::dictionary);
  return std::nullopt;
}

}  // namespace

Value Operations::filter(const std::string& name, const Value& value, const Arguments& arguments) {
  const std::string what = "the filter " + in_quotes(name);
  const bool is_safe = value.is(Kind::safe_text);
  if (name == "safe" || name == "string") {
    bound(what, arguments, {}, 0);
    Value made = is_safe ? value : text(printed(value));
    if (name == "safe") made.kind = Kind::safe_text;
    return made;
  }
  if (is_safe && name != "default" && name != "d") unsupported(what, " of safe text");
  if (name == "map") return mapped(*this, value, arguments);
  for (const char* selection : {"select", "reject", "selectattr", "rejectattr"})
    if (name == selection) return selected(*this, name, value, arguments);
  return dispatch(*this, filters(), what, name, value, arguments);
}

bool Operations::test(const std::string& name, const Value& value, const Arguments& arguments) {
  const std::string what = "the test " + in_quotes(name);
  if (const auto found = comparisons().find(name); found != comparisons().end())
    return compared(found->second, value, *bound(what, arguments, {""}, 1)[0]);
  const std::optional<bool> result = passes(*this, name, value);
  if (!result) unsupported(what);
  bound(what, arguments, {}, 0);
  return *result;
}

Value Operations::call_function(const std::string& name, const Arguments& arguments) {
  if (name != "namespace" && name != "dict")
    return dispatch(*this, functions(), "the function " + name, name, {}, arguments);
  Items members;
  const size_t positional = arguments.values.size() - arguments.names.size();
  if (positional > 0) {
    const Value& first = arguments.values[0];
    if (positional > 1 || !first.is(Kind::dictionary)) unsupported(name, " of such arguments");
    members = first.items();
  }
  for (size_t i = 0; i < arguments.names.size(); ++i) {
    members.keys.push_back(arguments.names[i]);
    members.values.push_back(arguments.values[positional + i]);
  }
  return name == "dict" ? dictionary(members) : name_space(members);
}

Value Operations::call_method(const Method& method, const Arguments& arguments) {
  const auto& [object, name] = method;
  const std::string what = "the method " + in_quotes(name) + " of " + object.type();
  return dispatch(*this, methods_of(object.kind), what, name, object, arguments);
}

}  // namespace stretto::nn::chat
