// The values of chat templates.

#include <algorithm>

#include "pretrained/chat/chat_template_runner.h"
#include "pretrained/chat/chat_template_text.h"

namespace stretto::nn::chat {

constexpr int most_value_depth = 50;

const Value* Dictionary::find(const std::string& key) const {
  for (const auto& [name, value] : items)
    if (name == key) return &value;
  return nullptr;
}

void Dictionary::set(const std::string& key, Value value) {
  for (auto& [name, old] : items)
    if (name == key) {
      old = std::move(value);
      return;
    }
  items.emplace_back(key, std::move(value));
}

Value Runner::text(std::string value) {
  use_bytes(value.size() + 64);
  return std::make_shared<const std::string>(std::move(value));
}

Value Runner::undefined(std::string reason) const {
  return Undefined{std::make_shared<const std::string>(std::move(reason))};
}

int Runner::depth_of(const Value& value) {
  if (const auto* s = std::get_if<SequencePtr>(&value)) return (*s)->depth;
  if (const auto* d = std::get_if<DictionaryPtr>(&value)) return (*d)->depth;
  if (const auto* m = std::get_if<std::shared_ptr<Method>>(&value))
    return depth_of((*m)->object) + 1;
  return 0;
}

Value Runner::sequence(std::vector<Value> items, Sequence::Kind kind) {
  use_bytes(items.size() * sizeof(Value) + 64);
  auto made = std::make_shared<Sequence>(Sequence{kind, std::move(items)});
  for (const Value& value : made->items) made->depth = std::max(made->depth, 1 + depth_of(value));
  if (made->depth > most_value_depth) wrong("lists nested too deeply");
  return made;
}

Value Runner::dictionary(const std::vector<std::pair<std::string, Value>>& items) {
  auto made = std::make_shared<Dictionary>();
  for (const auto& [name, value] : items) {
    use_bytes(sizeof(Value) + name.size() + 64 + 16 * made->items.size());
    made->depth = std::max(made->depth, 1 + depth_of(value));
    made->set(name, value);
  }
  if (made->depth > most_value_depth) wrong("dictionaries nested too deeply");
  return made;
}

std::string Runner::type_of(const Value& value) {
  if (const auto* s = std::get_if<SequencePtr>(&value)) {
    static const char* kinds[] = {"a list", "a tuple", "a range", "a view", "a generator"};
    return kinds[static_cast<int>((*s)->kind)];
  }
  static const char* types[] = {
      "an undefined value", "none",        "a boolean", "an integer", "a text",  "safe text", "",
      "a dictionary",       "a namespace", "a macro",   "a function", "a method"};
  return types[value.index()];
}

const std::string* Runner::as_text(const Value& value) {
  const auto* found = std::get_if<Text>(&value);
  return found ? found->get() : nullptr;
}

std::optional<int64_t> Runner::as_integer(const Value& value) {
  if (const auto* yes = std::get_if<bool>(&value)) return *yes;
  if (const auto* number = std::get_if<int64_t>(&value)) return *number;
  return std::nullopt;
}

int64_t Runner::integer(const Value& value, const char* what) const {
  if (const auto* u = std::get_if<Undefined>(&value)) wrong(*u->reason);
  const std::optional<int64_t> number = as_integer(value);
  if (!number) wrong(what, " is ", type_of(value), "; expected an integer");
  return *number;
}

const std::string& Runner::text_of(const Value& value, const char* what) const {
  if (const auto* u = std::get_if<Undefined>(&value)) wrong(*u->reason);
  const std::string* found = as_text(value);
  if (found == nullptr) wrong(what, " is ", type_of(value), "; expected a text");
  return *found;
}

std::string Runner::printed(const Value& value) {
  const std::string* t = as_text(value);
  if (const auto* safe = std::get_if<SafeText>(&value)) t = safe->text.get();
  if (t != nullptr) {
    use_bytes(t->size() / 8);
    return *t;
  }
  if (std::holds_alternative<Undefined>(value)) return "";
  if (std::holds_alternative<None>(value)) return "None";
  if (const auto* yes = std::get_if<bool>(&value)) return *yes ? "True" : "False";
  if (const auto* number = std::get_if<int64_t>(&value)) return std::to_string(*number);
  unsupported("printing ", type_of(value));
}

bool Runner::is_true(const Value& value) const {
  if (std::holds_alternative<Undefined>(value) || std::holds_alternative<None>(value)) return false;
  if (const std::optional<int64_t> number = as_integer(value)) return *number != 0;
  if (const std::string* t = as_text(value)) return !t->empty();
  if (const auto* safe = std::get_if<SafeText>(&value)) return !safe->text->empty();
  if (const auto* d = std::get_if<DictionaryPtr>(&value)) return !(*d)->items.empty();
  if (const auto* s = std::get_if<SequencePtr>(&value))
    return (*s)->kind == Sequence::Kind::generator || !(*s)->items.empty();
  return true;
}

SequencePtr Runner::iterated(const Value& value) {
  if (const auto* s = std::get_if<SequencePtr>(&value)) return *s;
  std::vector<Value> items;
  if (const std::string* t = as_text(value)) {
    for (size_t at = 0; at < t->size();) {
      const size_t start = at;
      next_code_point(*t, at);
      items.push_back(text(t->substr(start, at - start)));
    }
  } else if (const auto* d = std::get_if<DictionaryPtr>(&value)) {
    for (const auto& [name, ignored] : (*d)->items) items.push_back(text(name));
  } else if (!std::holds_alternative<Undefined>(value)) {
    if (std::holds_alternative<SafeText>(value)) unsupported("iterating over safe text");
    wrong(type_of(value), " is not a sequence");
  }
  return std::get<SequencePtr>(sequence(std::move(items)));
}

std::vector<Value> Runner::drained(const Value& value) {
  const SequencePtr values = iterated(value);
  use_bytes(values->items.size() * sizeof(Value));
  if (values->kind != Sequence::Kind::generator) return values->items;
  const auto first = values->items.begin() + static_cast<std::ptrdiff_t>(values->taken);
  values->taken = values->items.size();
  return {first, values->items.end()};
}

int64_t Runner::length_of(const Value& value) {
  const std::string* t = as_text(value);
  if (const auto* safe = std::get_if<SafeText>(&value)) t = safe->text.get();
  if (t != nullptr) use_bytes(t->size() / 8);
  if (t != nullptr)
    return std::count_if(t->begin(), t->end(),
                         [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  if (const auto* d = std::get_if<DictionaryPtr>(&value))
    return static_cast<int64_t>((*d)->items.size());
  if (std::holds_alternative<Undefined>(value)) return 0;
  const auto* s = std::get_if<SequencePtr>(&value);
  if (s == nullptr || (*s)->kind == Sequence::Kind::generator)
    wrong(type_of(value), " has no length");
  return static_cast<int64_t>((*s)->items.size());
}

bool Runner::equal(const Value& a, const Value& b) {
  step();
  const std::optional<int64_t> m = as_integer(a), n = as_integer(b);
  if (m && n) return *m == *n;
  for (const Value* value : {&a, &b})
    if (std::holds_alternative<SafeText>(*value) || type_of(*value) == "a method")
      unsupported("comparing ", type_of(*value));
  if (a.index() != b.index()) return false;
  if (const std::string* s = as_text(a)) {
    use_bytes(std::min(s->size(), as_text(b)->size()) / 16);
    return *s == *as_text(b);
  }
  if (const auto* s = std::get_if<SequencePtr>(&a)) {
    const Sequence &x = **s, &y = *std::get<SequencePtr>(b);
    if (&x == &y) return true;
    if (x.kind != y.kind || x.kind == Sequence::Kind::generator) return false;
    if (x.kind == Sequence::Kind::view) unsupported("comparing views of dictionaries");
    return std::equal(x.items.begin(), x.items.end(), y.items.begin(), y.items.end(),
                      [&](const Value& p, const Value& q) { return equal(p, q); });
  }
  if (const auto* d = std::get_if<DictionaryPtr>(&a)) {
    const Dictionary &x = **d, &y = *std::get<DictionaryPtr>(b);
    if (x.items.size() != y.items.size()) return false;
    use_bytes(x.items.size() * y.items.size());
    return std::all_of(x.items.begin(), x.items.end(), [&](const auto& entry) {
      const Value* other = y.find(entry.first);
      return other != nullptr && equal(entry.second, *other);
    });
  }
  if (const auto* space = std::get_if<Namespace*>(&a)) return *space == std::get<Namespace*>(b);
  if (const auto* macro = std::get_if<Macro>(&a)) {
    const auto& other = std::get<Macro>(b);
    return macro->node == other.node && macro->serial == other.serial;
  }
  if (const auto* function = std::get_if<Function>(&a))
    return function->name == std::get<Function>(b).name;
  return true;  // both none, or both undefined
}

bool Runner::contains(const Value& whole, const Value& part) {
  if (const std::string* t = as_text(whole)) {
    const std::string& wanted = text_of(part, "the left operand of \"in\"");
    use_bytes(t->size() / 4 * (1 + wanted.size() / 16));
    return t->find(wanted) != std::string::npos;
  }
  if (const auto* d = std::get_if<DictionaryPtr>(&whole)) {
    if (type_of(part) == "a list" || type_of(part) == "a dictionary")
      wrong(type_of(part), " cannot be a key of a dictionary");
    use_bytes((*d)->items.size());
    return as_text(part) != nullptr && (*d)->find(*as_text(part)) != nullptr;
  }
  if (std::holds_alternative<Undefined>(whole)) return false;
  const SequencePtr values = iterated(whole);
  if (values->kind != Sequence::Kind::generator)
    return std::any_of(values->items.begin(), values->items.end(),
                       [&](const Value& value) { return equal(value, part); });
  while (values->taken < values->items.size())
    if (equal(values->items[values->taken++], part)) return true;
  return false;
}

}  // namespace stretto::nn::chat
