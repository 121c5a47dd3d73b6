#include "pretrained/chat/chat_template_parser.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/one_line.h"

namespace stretto::nn::chat {
namespace {

using Kind = Token::Kind;
constexpr int most_nested = 100;  // brackets, operators before a value, tags
constexpr int most_depth = 250;   // of the tree

// One method per rule of the grammar; each takes its tokens.
class Parser {
 public:
  explicit Parser(const std::string& source) : tokens_(tokens_of(source)) {}

  NodePtr run() { return statements({}); }

 private:
  // Counts the nesting of the rules that call themselves.
  struct Nested {
    explicit Nested(Parser& of) : parser(of) {
      if (++parser.nested_ > most_nested) parser.wrong("nested too deeply");
    }
    ~Nested() { --parser.nested_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    Parser& parser;
  };

  const Token& token(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  bool is(const char* symbol) const { return is(Kind::symbol, symbol); }
  bool is_word(const char* name) const { return is(Kind::name, name); }
  bool is(Kind kind, const char* value, size_t ahead = 0) const {
    return token(ahead).kind == kind && token(ahead).value == value;
  }
  bool take(const char* symbol) { return is(symbol) && ++at_ > 0; }
  bool take_word(const char* name) { return is_word(name) && ++at_ > 0; }
  void expect(const char* symbol) {
    if (!take(symbol)) wrong(str("expected \"", symbol, "\""));
  }
  std::string expect_name() {
    if (token().kind != Kind::name) wrong("expected a name");
    return tokens_[at_++].value;
  }
  void expect(Kind kind, const char* what) {
    if (token().kind != kind) wrong(str("expected ", what));
    ++at_;
  }
  [[noreturn]] void wrong(const std::string& what) const {
    const Token& t = token();
    const bool quoted = t.kind >= Kind::name && t.kind <= Kind::symbol;
    fail_at(t.line, what, ", at ", quoted ? in_quotes(t.value) : one_line(t.value, 40));
  }

  template <class... Children>
  NodePtr make(NodeKind kind, int line, std::string text = {}, Children... children) const {
    auto node = std::make_unique<Node>(Node{kind, line, std::move(text)});
    (add(*node, std::move(children)), ...);
    return node;
  }
  static void add(Node& node, NodePtr child) {
    if (child) node.depth = std::max(node.depth, child->depth + 1);
    if (node.depth > most_depth) fail_at(node.line, "nested too deeply");
    node.children.push_back(std::move(child));
  }

  // Takes statements up to a tag whose name is in `ends`; its name is the next token.
  NodePtr statements(const std::set<std::string>& ends) {
    const Nested guard(*this);
    NodePtr body = make(NodeKind::body, token().line);
    for (;;) {
      const int line = token().line;
      switch (token().kind) {
        case Kind::end:
          if (!ends.empty()) wrong(str("expected {% ", *ends.rbegin(), " %}"));
          return body;
        case Kind::text:
          add(*body, make(NodeKind::text, line, tokens_[at_++].value));
          break;
        case Kind::open_output:
          ++at_;
          add(*body, make(NodeKind::output, line, {}, tuple(true)));
          expect(Kind::close_output, "}}");
          break;
        default:
          expect(Kind::open_tag, "a tag");
          if (token().kind == Kind::name && ends.contains(token().value)) return body;
          add(*body, statement());
          expect(Kind::close_tag, "%}");
      }
    }
  }
  // Takes the end of the opening tag, the statements and the name of the tag that ends them.
  NodePtr block(const std::set<std::string>& ends) {
    take(":");
    expect(Kind::close_tag, "%}");
    return statements(ends);
  }
  NodePtr block_to(const char* end) {
    NodePtr body = block({end});
    ++at_;
    return body;
  }

  NodePtr statement() {
    const int line = token().line;
    const std::string tag = expect_name();
    if (tag == "if") return branches(line);
    if (tag == "for") return loop(line);
    if (tag == "set") return set(line);
    if (tag == "macro") return macro(line);
    if (tag == "generation")
      return outside_loops(
          [&] { return make(NodeKind::generation, line, {}, block_to("endgeneration")); });
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) fail_at(line, "{% ", tag, " %} is not directly inside a loop");
      return make(tag == "break" ? NodeKind::break_loop : NodeKind::continue_loop, line);
    }
    if (tag.starts_with("end") || tag == "else" || tag == "elif")
      fail_at(line, "the tag {% ", one_line(tag, 80), " %} has no beginning");
    fail_at(line, "the tag {% ", one_line(tag, 80), " %} is not supported; ", render_yourself);
  }

  template <class Body>
  NodePtr outside_loops(const Body& body) {
    const int loops = std::exchange(loops_, 0);
    NodePtr node = body();
    loops_ = loops;
    return node;
  }

  NodePtr branches(int line) {
    NodePtr node = make(NodeKind::branches, line);
    for (bool more = true; more;) {
      add(*node, tuple(false));
      add(*node, block({"elif", "else", "endif"}));
      more = take_word("elif");
    }
    if (take_word("else"))
      add(*node, block_to("endif"));
    else
      ++at_;
    return node;
  }

  NodePtr loop(int line) {
    std::vector<NodePtr> targets;
    const bool unpacks = target_list(targets, false);
    if (!take_word("in")) wrong("expected \"in\"");
    NodePtr values = tuple(false);
    NodePtr test = take_word("if") ? expression() : nullptr;
    if (is_word("recursive")) fail_at(line, "a recursive loop is not supported; ", render_yourself);
    ++loops_;
    NodePtr body = block({"endfor", "else"});
    --loops_;
    NodePtr other = take_word("else") ? block({"endfor"}) : nullptr;
    ++at_;
    NodePtr node = make(NodeKind::loop, line, {}, std::move(values), std::move(test),
                        std::move(body), std::move(other));
    for (NodePtr& target : targets) add(*node, std::move(target));
    node->number = unpacks;
    return node;
  }

  NodePtr set(int line) {
    std::vector<NodePtr> targets;
    const bool unpacks = target_list(targets, true);
    NodePtr node;
    if (take("=")) {
      node = make(NodeKind::set, line, {}, tuple(true));
    } else {
      if (is("|"))
        fail_at(line, "a filter of a {% set %} block is not supported; ", render_yourself);
      if (unpacks) wrong("expected \"=\"");
      node = outside_loops([&] { return make(NodeKind::set_block, line, {}, block_to("endset")); });
    }
    for (NodePtr& target : targets) add(*node, std::move(target));
    node->number = unpacks;
    return node;
  }

  NodePtr macro(int line) {
    NodePtr node = make(NodeKind::macro, line, expect_name());
    std::vector<NodePtr> defaults;
    expect("(");
    while (!is(")")) {
      if (!node->names.empty()) expect(",");
      if (is(")")) break;
      node->names.push_back(expect_name());
      if (take("="))
        defaults.push_back(expression());
      else if (!defaults.empty())
        wrong("a parameter without default follows one with a default");
    }
    expect(")");
    add(*node, outside_loops([&] { return block_to("endmacro"); }));
    for (NodePtr& value : defaults) add(*node, std::move(value));
    return node;
  }

  // Takes the names of an assignment; true if they unpack a value.
  bool target_list(std::vector<NodePtr>& targets, bool with_namespace) {
    const bool bracket = take("(");
    bool unpacks = false;
    do {
      if (unpacks && (is("=") || is(")") || is_word("in"))) break;  // a comma at the end
      const Token& t = token();
      expect_name();
      targets.push_back(constant_or_name(t));
      if (targets.back()->kind != NodeKind::name || t.value == "loop")
        fail_at(t.line, "cannot assign to ", in_quotes(t.value));
      if (with_namespace && take(".")) {
        targets.back()->kind = NodeKind::space_member;
        targets.back()->names = {expect_name()};
      }
    } while (take(",") && (unpacks = true));
    if (bracket) expect(")");
    return unpacks;
  }

  // Expressions, from the weakest operator to the strongest. The first takes some with commas
  // between them; without a comma it is the expression itself.
  NodePtr tuple(bool with_condition, bool in_brackets = false) {
    const int line = token().line;
    std::vector<NodePtr> items;
    bool comma = false;
    while (token().kind != Kind::close_output && token().kind != Kind::close_tag && !is(")")) {
      items.push_back(with_condition ? expression() : logical_or());
      if (!take(",")) break;
      comma = true;
    }
    if (items.size() == 1 && !comma) return std::move(items[0]);
    if (items.empty() && !in_brackets) wrong("expected an expression");
    NodePtr node = make(NodeKind::tuple, line);
    for (NodePtr& item : items) add(*node, std::move(item));
    return node;
  }

  NodePtr expression() {
    const Nested guard(*this);
    const int line = token().line;
    NodePtr value = logical_or();
    while (take_word("if")) {
      NodePtr test = logical_or();
      NodePtr other = take_word("else") ? expression() : nullptr;
      value = make(NodeKind::conditional, line, {}, std::move(test), std::move(value),
                   std::move(other));
    }
    return value;
  }
  NodePtr logical_or() {
    return logical(NodeKind::logical_or, "or", [&] { return logical_and(); });
  }
  NodePtr logical_and() {
    return logical(NodeKind::logical_and, "and", [&] { return logical_not(); });
  }
  template <class Operand>
  NodePtr logical(NodeKind kind, const char* word, const Operand& operand) {
    NodePtr a = operand();
    for (int line = token().line; take_word(word); line = token().line)
      a = make(kind, line, {}, std::move(a), operand());
    return a;
  }
  NodePtr logical_not() {
    const int line = token().line;
    if (!take_word("not")) return compare();
    const Nested guard(*this);
    return make(NodeKind::logical_not, line, {}, logical_not());
  }
  NodePtr compare() {
    NodePtr first = sum();
    NodePtr node = nullptr;
    for (;;) {
      const int line = token().line;
      std::string op;
      for (const char* symbol : {"==", "!=", "<", "<=", ">", ">="})
        if (is(symbol)) op = symbol;
      if (is_word("in")) op = "in";
      if (is_word("not") && is(Kind::name, "in", 1)) op = "not in";
      if (op.empty()) return node ? std::move(node) : std::move(first);
      at_ += op == "not in" ? 2 : 1;
      if (!node) node = make(NodeKind::compare, line, {}, std::move(first));
      add(*node, sum());
      node->names.push_back(op);
    }
  }
  NodePtr sum() {
    return binary({"+", "-"}, [&] { return concatenate(); });
  }
  NodePtr concatenate() {
    const int line = token().line;
    NodePtr first = product();
    if (!is("~")) return first;
    NodePtr node = make(NodeKind::concatenate, line, {}, std::move(first));
    while (take("~")) add(*node, product());
    return node;
  }
  NodePtr product() {
    return binary({"*", "/", "//", "%"}, [&] { return power(); });
  }
  NodePtr power() {
    return binary({"**"}, [&] { return sign(); });
  }

  template <class Operand>
  NodePtr binary(const std::vector<std::string>& symbols, const Operand& operand) {
    NodePtr a = operand();
    while (token().kind == Kind::symbol &&
           std::find(symbols.begin(), symbols.end(), token().value) != symbols.end()) {
      const Token& op = tokens_[at_++];
      a = make(NodeKind::binary, op.line, op.value, std::move(a), operand());
    }
    return a;
  }

  NodePtr sign(bool with_filters = true) {
    const int line = token().line;
    NodePtr node;
    if (take("-")) {
      const Nested guard(*this);
      node = make(NodeKind::negative, line, {}, sign(false));
    } else {
      node = primary();
    }
    node = postfix(std::move(node));
    for (;;) {
      const int at = token().line;
      if (!with_filters) return node;
      if (take("|")) {
        node = make(NodeKind::filter, at, dotted_name(), std::move(node));
        if (is("(")) arguments(*node);
      } else if (take_word("is")) {
        node = test(std::move(node), at);
      } else if (is("(")) {
        node = make(NodeKind::call, at, {}, std::move(node));
        arguments(*node);
      } else {
        return node;
      }
    }
  }
  std::string dotted_name() {
    std::string name = expect_name();
    while (take(".")) name += "." + expect_name();
    return name;
  }

  NodePtr test(NodePtr value, int line) {
    const bool negated = take_word("not");
    NodePtr node = make(NodeKind::test, line, dotted_name(), std::move(value));
    const Kind kind = token().kind;
    if (is("(")) {
      arguments(*node);
    } else if (is("[") || is("{") || kind == Kind::string || kind == Kind::integer ||
               kind == Kind::real ||
               (kind == Kind::name && !is_word("else") && !is_word("or") && !is_word("and"))) {
      if (is_word("is")) wrong("tests cannot be chained");
      add(*node, postfix(primary()));
    }
    return negated ? make(NodeKind::logical_not, line, {}, std::move(node)) : std::move(node);
  }

  NodePtr primary() {
    const Token& t = tokens_[at_];
    switch (t.kind) {
      case Kind::name:
        ++at_;
        return constant_or_name(t);
      case Kind::string: {
        NodePtr node = make(NodeKind::constant_text, t.line);
        while (token().kind == Kind::string) node->text += tokens_[at_++].value;
        return node;
      }
      case Kind::integer:
        return number(tokens_[at_++]);
      case Kind::real:
        ++at_;
        return make(NodeKind::unsupported, t.line,
                    "the floating-point number " + one_line(t.value, 80));
      default:
        break;
    }
    if (take("(")) {
      NodePtr node = tuple(true, true);
      expect(")");
      return node;
    }
    if (is("[") || is("{")) return brackets();
    wrong("expected an expression");
  }
  NodePtr number(const Token& t) const {
    return constant(NodeKind::constant_integer, t, std::stoll(t.value));
  }
  NodePtr constant(NodeKind kind, const Token& t, int64_t value) const {
    NodePtr node = make(kind, t.line);
    node->number = value;
    return node;
  }
  NodePtr constant_or_name(const Token& t) {
    const std::string& name = t.value;
    if (name == "none" || name == "None") return make(NodeKind::constant_none, t.line);
    const bool yes = name == "true" || name == "True";
    if (!yes && name != "false" && name != "False") return make(NodeKind::name, t.line, name);
    return constant(NodeKind::constant_boolean, t, yes);
  }
  NodePtr brackets() {
    const bool is_list = is("[");
    const char* end = is_list ? "]" : "}";
    NodePtr node = make(is_list ? NodeKind::list : NodeKind::dictionary, tokens_[at_++].line);
    while (!is(end)) {
      if (!node->children.empty()) expect(",");
      if (is(end)) break;
      add(*node, expression());
      if (is_list) continue;
      expect(":");
      add(*node, expression());
    }
    ++at_;
    return node;
  }

  NodePtr postfix(NodePtr node) {
    for (;;) {
      const int line = token().line;
      if (take(".")) {
        if (token().kind == Kind::integer) {
          node = make(NodeKind::item, line, {}, std::move(node), number(tokens_[at_++]));
        } else {
          std::string name = expect_name();
          node = make(NodeKind::attribute, line, std::move(name), std::move(node));
        }
      } else if (take("[")) {
        node = subscript(std::move(node), line);
      } else if (is("(")) {
        node = make(NodeKind::call, line, {}, std::move(node));
        arguments(*node);
      } else {
        return node;
      }
    }
  }
  NodePtr subscript(NodePtr object, int line) {
    NodePtr parts[3];
    int n = 0;
    for (;; ++n) {
      if (n < 3 && !is(":") && !is("]") && !is(",")) parts[n] = expression();
      if (n == 2 || !take(":")) break;
    }
    if (is(",")) fail_at(line, "an index of several parts is not supported; ", render_yourself);
    expect("]");
    if (n > 0)
      return make(NodeKind::slice, line, {}, std::move(object), std::move(parts[0]),
                  std::move(parts[1]), std::move(parts[2]));
    if (!parts[0]) wrong("expected an index");
    return make(NodeKind::item, line, {}, std::move(object), std::move(parts[0]));
  }

  void arguments(Node& node) {
    const Nested guard(*this);
    expect("(");
    bool first = true;
    while (!is(")")) {
      if (!std::exchange(first, false)) expect(",");
      if (is(")")) break;
      const int line = token().line;
      if (take("*") || take("**")) {
        expression();
        add(node, make(NodeKind::unsupported, line, "an argument with *"));
        continue;
      }
      if (token().kind == Kind::name && is(Kind::symbol, "=", 1)) {
        node.names.push_back(token().value);
        at_ += 2;
      } else if (!node.names.empty()) {
        wrong("an argument without name follows a named one");
      }
      add(node, expression());
    }
    expect(")");
  }

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  int nested_ = 0;
  int loops_ = 0;  // around the current statement, inside the current macro or block
};

}  // namespace

NodePtr parse(const std::string& source) { return Parser(source).run(); }

}  // namespace stretto::nn::chat
