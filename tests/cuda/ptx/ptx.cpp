#include "ptx.h"

#include <cctype>
#include <cstdlib>
#include <cstring>
#include <set>

namespace interpreter {
namespace {

using Words = std::vector<std::string>;

bool blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

std::string_view trim(std::string_view s) {
  while (!s.empty() && blank(s.front())) s.remove_prefix(1);
  while (!s.empty() && blank(s.back())) s.remove_suffix(1);
  return s;
}

/// The parts of s between separators outside of brackets, trimmed.
std::vector<std::string_view> split(std::string_view s, char by) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t from = 0;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '{' || s[i] == '[' || s[i] == '(') ++depth;
    if (s[i] == '}' || s[i] == ']' || s[i] == ')') --depth;
    if (s[i] == by && depth == 0) {
      parts.push_back(trim(s.substr(from, i - from)));
      from = i + 1;
    }
  }
  parts.push_back(trim(s.substr(from)));
  return parts;
}

Words words_of(std::string_view s) {
  Words words;
  for (size_t i = 0; i < s.size();) {
    while (i < s.size() && blank(s[i])) ++i;
    const size_t from = i;
    while (i < s.size() && !blank(s[i])) ++i;
    if (i > from) words.emplace_back(s.substr(from, i - from));
  }
  return words;
}

std::string without_comments(const std::string& s) {
  std::string out;
  out.reserve(s.size());
  for (size_t i = 0; i < s.size(); ++i) {
    if (s.compare(i, 2, "//") == 0) {
      while (i < s.size() && s[i] != '\n') ++i;
      out += '\n';
    } else if (s.compare(i, 2, "/*") == 0) {
      i = s.find("*/", i) + 1;
      out += ' ';
    } else {
      out += s[i];
    }
  }
  return out;
}

u64 number(std::string_view s) {
  const std::string text(s);
  if (text.size() > 2 && text[0] == '0' && std::strchr("fFdD", text[1]))
    return std::strtoull(text.c_str() + 2, nullptr, 16);
  if (text[0] == '-') return u64(std::strtoll(text.c_str(), nullptr, 0));
  return std::strtoull(text.c_str(), nullptr, 0);
}

Space space_named(std::string_view word) {
  if (word == ".global") return Space::global;
  if (word == ".shared") return Space::shared;
  if (word == ".local") return Space::local;
  if (word == ".param") return Space::param;
  if (word == ".const") return Space::constant;
  return Space::generic;
}

/// ".shared .align 4 .b8 name[32] = {…}"
Variable variable(std::string_view text) {
  Variable v;
  const size_t equals = text.find('=');
  const Words words = words_of(text.substr(0, equals));
  int item = 1;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == ".align") v.align = std::atoi(words[++i].c_str());
    if (words[i] == ".extern") v.external = true;
    if (const Space s = space_named(words[i]); s != Space::generic) v.space = s;
    if (const Type t = type_named(words[i].substr(1)); t.kind) item = t.bytes();
  }
  std::string_view name = words.back();
  u64 count = 1;
  if (const size_t bracket = name.find('['); bracket != std::string_view::npos) {
    for (size_t at = bracket; at != std::string_view::npos; at = name.find('[', at + 1))
      count *= std::strtoull(std::string(name.substr(at + 1)).c_str(), nullptr, 0);
    name = name.substr(0, bracket);
  }
  v.name = name;
  v.size = count * u64(item);
  v.align = std::max(v.align, item);
  if (equals == std::string_view::npos) return v;
  v.values.resize(v.size);
  std::string_view list = trim(text.substr(equals + 1));
  if (!list.empty() && list.front() == '{') list = list.substr(1, list.size() - 2);
  size_t at = 0;
  for (std::string_view part : split(list, ',')) {
    if (part.empty()) continue;
    if (!std::isdigit(part[0]) && part[0] != '-')
      throw Unknown("the initial value " + std::string(part) + " of " + v.name);
    const u64 bits = number(part);
    std::memcpy(&v.values.at(at), &bits, size_t(item));
    at += size_t(item);
  }
  return v;
}

const std::set<std::string_view> specials = {
    "%tid.x",       "%tid.y",   "%tid.z",       "%ntid.x",      "%ntid.y",           "%ntid.z",
    "%ctaid.x",     "%ctaid.y", "%ctaid.z",     "%nctaid.x",    "%nctaid.y",         "%nctaid.z",
    "%laneid",      "%warpid",  "%lanemask_eq", "%lanemask_lt", "%lanemask_le",      "%lanemask_gt",
    "%lanemask_ge", "%clock",   "%clock64",     "%smid",        "%dynamic_smem_size"};

/// One function's text. Names declared in an inner { } end with it.
class Parser {
 public:
  Parser(Function& function, const std::map<int, std::string>& files)
      : f_(function), files_(files) {}

  void parse(std::string_view body) {
    scopes_.emplace_back();
    size_t from = 0;
    int brackets = 0;
    for (size_t i = 0; i < body.size(); ++i) {
      const char c = body[i];
      const std::string_view so_far = trim(body.substr(from, i - from));
      if (c == '[' || c == '(') ++brackets;
      if (c == ']' || c == ')') --brackets;
      if (c == '\n' && so_far.starts_with(".loc")) {
        locate(so_far);
        from = i + 1;
      } else if (c == ';') {
        statement(so_far);
        from = i + 1;
      } else if (c == ':' && brackets == 0 && so_far.find_first_of(" \t\n") == so_far.npos &&
                 !so_far.empty() && so_far[0] != '@') {
        pending_ = so_far;
        f_.labels[size_t(label(so_far))] = int(f_.body.size());
        defined_.insert(label(so_far));
        from = i + 1;
      } else if (c == '{' && so_far.empty()) {
        scopes_.emplace_back();
        scopes_.back().id = ++last_scope_;
        from = i + 1;
      } else if (c == '}' && so_far.empty()) {
        scopes_.pop_back();
        from = i + 1;
      }
    }
    for (int l = 0; l < int(f_.labels.size()); ++l)
      if (!defined_.count(l) && !table_labels_.count(l))
        throw Unknown("a branch to nowhere in " + f_.name);
  }

 private:
  struct Scope {
    int id = 0;
    std::map<std::string, int, std::less<>> names;     // a register and its index
    std::map<std::string, int, std::less<>> families;  // "%r" of "%r<9>" and its bytes
  };

  // ".loc 2 96 3, function_name …, inlined_at 1 51 5": a line, and the line of the call that
  // it was inlined into, which has had a .loc of its own. Reported as
  // "cuda/runtime/index.h:96 < cuda/runtime/map.cuh:51".
  void locate(std::string_view s) {
    const Words words = words_of(s);
    auto key = [&](size_t at) {
      return words.at(at) + ' ' + words.at(at + 1) + ' ' +
             words.at(at + 2).substr(0, words[at + 2].find(','));
    };
    auto line_of = [&](size_t at) {
      const auto file = files_.find(std::atoi(words.at(at).c_str()));
      return (file == files_.end() ? "?" : file->second) + ':' + words.at(at + 1);
    };
    std::string text;
    if (words.at(2) != "0") text = line_of(1);  // line 0: the compiler's own
    for (size_t w = 4; w + 3 < words.size(); ++w)
      if (words[w] == "inlined_at") {
        const auto call = chains_.find(key(w + 1));
        if (!text.empty()) text += " < ";
        text += call == chains_.end() ? line_of(w + 1) : call->second;
      }
    if (text.empty()) return;
    static std::set<std::string> all;
    where_ = &*all.insert(chains_[key(1)] = text).first;
  }

  int add(const std::string& name, int bytes) {
    f_.registers.push_back({name, bytes});
    return int(f_.registers.size()) - 1;
  }

  int reg(std::string_view name) {
    const size_t digits = name.find_last_not_of("0123456789") + 1;
    for (size_t s = scopes_.size(); s-- > 0;) {
      Scope& scope = scopes_[s];
      if (const auto it = scope.names.find(name); it != scope.names.end()) return it->second;
      const auto family = scope.families.find(name.substr(0, digits));
      if (digits < name.size() && family != scope.families.end())
        return scope.names[std::string(name)] = add(std::string(name), family->second);
    }
    return -1;
  }

  // Labels of inline assembly may recur, each in its own braces; all others are unique.
  int label(std::string_view name) {
    std::string key(name);
    if (name[0] != '$' || scopes_.size() > 1) {
      for (const Scope& s : scopes_) {
        const std::string inner = std::to_string(s.id) + ':' + std::string(name);
        if (labels_.count(inner)) return labels_[inner];
      }
      if (name[0] != '$') key = std::to_string(scopes_.back().id) + ':' + key;
    }
    const auto [it, fresh] = labels_.try_emplace(key, int(f_.labels.size()));
    if (fresh) f_.labels.push_back(-1);
    return it->second;
  }

  Operand operand(std::string_view s) {
    Operand o;
    if (s.empty()) throw Unknown("an empty operand in " + f_.name);
    if (s[0] == '!') {
      o = operand(trim(s.substr(1)));
      o.negated = true;
    } else if (s[0] == '{' || s[0] == '(') {
      o.kind = Operand::list;
      const std::string_view inner = trim(s.substr(1, s.size() - 2));
      if (!inner.empty())
        for (std::string_view part : split(inner, ',')) o.parts.push_back(operand(part));
    } else if (s[0] == '[') {
      o.kind = Operand::memory;
      std::string_view inner = split(s.substr(1, s.size() - 2), ',')[0];
      const size_t sign = inner.find_first_of("+-", 1);
      if (sign != inner.npos) {
        o.offset = s64(number(trim(inner.substr(sign + 1))));
        if (inner[sign] == '-') o.offset = -o.offset;
        inner = trim(inner.substr(0, sign));
      }
      o.parts.push_back(operand(inner));
    } else if (const size_t bar = s.find('|'); bar != s.npos) {
      o.kind = Operand::list;
      o.parts = {operand(trim(s.substr(0, bar))), operand(trim(s.substr(bar + 1)))};
    } else if (std::isdigit(s[0]) || s[0] == '-') {
      o.kind = Operand::number;
      o.value = number(s);
    } else if (specials.count(s)) {
      o.kind = Operand::special;
      o.name = s;
    } else if (const int r = reg(s); r >= 0) {
      o.kind = Operand::in_register;
      o.reg = r;
    } else if (s == "_") {
      o.kind = Operand::none;
    } else if (s == "WARP_SZ") {
      o.kind = Operand::number;
      o.value = 32;
    } else if (s[0] == '%') {
      throw Unknown("the special register " + std::string(s));
    } else {
      o.kind = Operand::symbol;
      o.name = s;
      if (const size_t plus = s.find('+'); plus != s.npos) {
        o.name = trim(s.substr(0, plus));
        o.offset = s64(number(trim(s.substr(plus + 1))));
      }
    }
    return o;
  }

  void directive(std::string_view s) {
    const Words words = words_of(s);
    if (words[0] == ".reg") {
      const Type t = type_named(words[1].substr(1));
      if (!t.kind || t.bits > 64) throw Unknown("registers " + std::string(s));
      const int bytes = t.kind == 'p' ? 0 : t.bytes();
      if (bytes == 1) throw Unknown("registers " + std::string(s));
      const std::string_view names = s.substr(s.find(words[1]) + words[1].size());
      for (std::string_view name : split(names, ',')) {
        const size_t angle = name.find('<');
        if (angle != name.npos) {
          scopes_.back().families[std::string(name.substr(0, angle))] = bytes;
        } else {
          scopes_.back().names[std::string(name)] = add(std::string(name), bytes);
        }
      }
    } else if (words[0] == ".branchtargets") {
      std::vector<Operand> targets;
      for (std::string_view name : split(s.substr(words[0].size()), ',')) {
        Operand o;
        o.kind = Operand::label;
        o.reg = label(name);
        targets.push_back(o);
      }
      table_labels_.insert(label(pending_));
      tables_[std::string(pending_)] = f_.tables.size();
      f_.tables.push_back(std::move(targets));
    } else if (words[0] != ".loc" && words[0] != ".pragma" && words[0] != ".param") {
      f_.variables.push_back(variable(s));
    }
  }

  void statement(std::string_view s) {
    if (s.empty()) return;
    if (s[0] == '.') return directive(s);
    Statement st;
    st.where = where_;
    for (char c : s) st.text += c == '\n' || c == '\t' ? ' ' : c;
    if (s[0] == '@') {
      const size_t end = s.find_first_of(" \t\n");
      std::string_view name = s.substr(1, end - 1);
      st.guard_negated = name[0] == '!';
      if (st.guard_negated) name.remove_prefix(1);
      st.guard = reg(name);
      if (st.guard < 0) throw Unknown("the guard of " + st.text);
      s = trim(s.substr(end));
    }
    const size_t end = std::min(s.find_first_of(" \t\n"), s.size());
    for (std::string_view part : split(s.substr(0, end), '.')) st.op.emplace_back(part);
    const std::string_view rest = trim(s.substr(end));
    if (st.op[0] == "bra" || st.op[0] == "brx") {
      const auto parts = split(rest, ',');
      if (st.op[0] == "brx") {
        st.operands.push_back(operand(parts[0]));
        Operand table;
        table.kind = Operand::number;
        table.value = tables_.at(std::string(parts[1]));
        st.operands.push_back(table);
      } else {
        Operand target;
        target.kind = Operand::label;
        target.reg = label(parts[0]);
        st.operands.push_back(target);
      }
    } else if (!rest.empty()) {
      for (std::string_view part : split(rest, ',')) st.operands.push_back(operand(part));
    }
    f_.body.push_back(std::move(st));
  }

  Function& f_;
  const std::map<int, std::string>& files_;
  std::map<std::string, std::string> chains_;  // by location as in .loc
  const std::string* where_ = nullptr;
  std::vector<Scope> scopes_;
  int last_scope_ = 0;
  std::map<std::string, int> labels_;
  std::map<std::string, size_t> tables_;
  std::set<int> defined_, table_labels_;
  std::string_view pending_;
};

void params(std::string_view list, std::vector<Variable>& to) {
  for (std::string_view part : split(list, ','))
    if (!part.empty()) to.push_back(variable(part));
}

}  // namespace

Type type_named(std::string_view name) {
  static const std::map<std::string_view, Type> types = {
      {"pred", {'p', 8}},  {"b8", {'b', 8}},    {"u8", {'u', 8}},      {"s8", {'s', 8}},
      {"b16", {'b', 16}},  {"u16", {'u', 16}},  {"s16", {'s', 16}},    {"f16", {'e', 16}},
      {"b32", {'b', 32}},  {"u32", {'u', 32}},  {"s32", {'s', 32}},    {"f32", {'f', 32}},
      {"b64", {'b', 64}},  {"u64", {'u', 64}},  {"s64", {'s', 64}},    {"f64", {'f', 64}},
      {"bf16", {'h', 16}}, {"tf32", {'t', 32}}, {"bf16x2", {'w', 32}}, {"b128", {'b', 128}}};
  const auto it = types.find(name);
  return it == types.end() ? Type{} : it->second;
}

bool Statement::has(std::string_view modifier) const {
  for (size_t i = 1; i < op.size(); ++i)
    if (op[i] == modifier) return true;
  return false;
}

std::string Statement::name() const {
  std::string all;
  for (const std::string& part : op) all += (all.empty() ? "" : ".") + part;
  return all;
}

Type Statement::type(int from_last) const {
  for (size_t i = op.size(); i-- > 1;)
    if (const Type t = type_named(op[i]); t.kind && from_last-- == 0) return t;
  return {};
}

Module::Module(const std::string& text) : text_(without_comments(text)) {
  const std::string_view all = text_;
  size_t from = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string_view so_far = trim(all.substr(from, i - from));
    if (all[i] == '\n' && (so_far.starts_with(".version") || so_far.starts_with(".target") ||
                           so_far.starts_with(".address_size"))) {
      from = i + 1;
    } else if (all[i] == '\n' && so_far.starts_with(".file")) {
      // .file 4 "/home/me/stretto/build/release/../../cuda/fft/fft.cu": the last two names suffice,
      // or three below cuda/
      const size_t open = so_far.find('"') + 1;
      const std::string_view path = so_far.substr(open, so_far.find('"', open) - open);
      size_t start = path.rfind('/', path.rfind('/') - 1);
      if (start != path.npos && path.substr(0, start).ends_with("/cuda"))
        start -= std::string_view("/cuda").size();
      files_[std::atoi(words_of(so_far)[1].c_str())] = path.substr(start + 1);
      from = i + 1;
    } else if (all[i] == ';') {
      if (so_far.find(".func") == so_far.npos && so_far.find(".entry") == so_far.npos &&
          space_named(
              words_of(so_far)[so_far.starts_with(".visible") || so_far.starts_with(".extern") ||
                                       so_far.starts_with(".weak")
                                   ? 1
                                   : 0]) != Space::generic)
        variables_.push_back(variable(so_far));
      from = i + 1;
    } else if (all[i] == '{' && so_far.find('=') == so_far.npos) {
      int depth = 1;
      const size_t body = i + 1;
      for (++i; depth > 0; ++i) depth += all[i] == '{' ? 1 : all[i] == '}' ? -1 : 0;
      size_t at = so_far.find(".entry");
      at = at == so_far.npos ? so_far.find(".func") + 5 : at + 6;
      std::string_view rest = trim(so_far.substr(at));
      if (!rest.empty() && rest[0] == '(') rest = trim(rest.substr(rest.find(')') + 1));
      const std::string_view name = rest.substr(0, rest.find_first_of(" \t\n("));
      sources_[std::string(name)] = {so_far, all.substr(body, i - 1 - body)};
      from = i--;
    }
  }
}

const Function& Module::function(const std::string& name) {
  if (const auto it = functions_.find(name); it != functions_.end()) return it->second;
  const auto source = sources_.find(name);
  if (source == sources_.end()) throw Unknown("the function " + name + ": no PTX of it");
  Function f;
  f.name = name;
  const std::string_view head = source->second.head;
  f.entry = head.find(".entry") != head.npos;
  if (const size_t bounds = head.find(".maxntid"); bounds != head.npos) {  // ".maxntid 16, 16, 1"
    const char* p = head.data() + bounds + std::strlen(".maxntid");
    f.max_threads = 1;
    do {
      char* end = nullptr;
      f.max_threads *= std::strtoull(p, &end, 10);
      p = end + 1;
    } while (p[-1] == ',');
  }
  const size_t at = head.find(name);
  if (const size_t results = head.find('('); results < at)
    params(head.substr(results + 1, head.find(')') - results - 1), f.results);
  if (const size_t open = head.find('(', at); open != head.npos)
    params(head.substr(open + 1, head.find(')', open) - open - 1), f.params);
  Parser(f, files_).parse(source->second.body);
  contract(f);
  return functions_.emplace(name, std::move(f)).first->second;
}

}  // namespace interpreter
