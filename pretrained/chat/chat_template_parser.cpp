#include "pretrained/chat/chat_template_parser.h"

#include <algorithm>
#include <utility>

#include "core/one_line.h"

namespace stretto::nn::chat {
namespace {

using Kind = Token::Kind;
using Words = std::vector<std::string>;
constexpr int most_nested = 100;  // brackets, operators before a value, tags
constexpr int most_depth = 250;   // of the tree

bool contains(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Operators with two operands that bind equally.
struct Level {
  NodeKind kind;
  bool chained;  // one node has all operands
  Words operators;
};

// From the weakest to the strongest.
const std::vector<Level>& levels() {
  static const std::vector<Level> all = {
      {NodeKind::logical_or, false, {"or"}},
      {NodeKind::logical_and, false, {"and"}},
      {NodeKind::compare, true, {"==", "!=", "<", "<=", ">", ">=", "in", "not in"}},
      {NodeKind::binary, false, {"+", "-"}},
      {NodeKind::concatenate, true, {"~"}},
      {NodeKind::binary, false, {"*", "/", "//", "%"}},
      {NodeKind::binary, false, {"**"}}};
  return all;
}

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
  // True if the token is this symbol or name.
  bool is(const char* value, size_t ahead = 0) const {
    const Token& t = token(ahead);
    return (t.kind == Kind::symbol || t.kind == Kind::name) && t.value == value;
  }
  bool take(const char* value) { return is(value) && ++at_ > 0; }
  void expect(const char* value) {
    if (!take(value)) wrong(str("expected \"", value, "\""));
  }
  std::string expect_name() {
    if (token().kind != Kind::name) wrong("expected a name");
    return tokens_[at_++].value;
  }
  [[noreturn]] void wrong(const std::string& what) const {
    const Token& t = token();
    const bool shown = t.kind == Kind::text || t.kind == Kind::end;
    fail_at(t.line, what, ", at ", shown ? one_line(t.value, 40) : in_quotes(t.value));
  }
  [[noreturn]] static void unsupported(int line, const std::string& what) {
    fail_at(line, what, " is not supported; ", render_yourself);
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

  // ---- Statements.

  // Takes statements up to a tag whose name is in `ends`; its name is the next token.
  NodePtr statements(const Words& ends) {
    const Nested guard(*this);
    NodePtr body = make(NodeKind::body, token().line);
    for (;;) {
      const int line = token().line;
      if (token().kind == Kind::end) {
        if (!ends.empty()) wrong(str("expected {% ", ends.back(), " %}"));
        return body;
      }
      if (token().kind == Kind::text) {
        add(*body, make(NodeKind::text, line, tokens_[at_++].value));
      } else if (take("{{")) {
        add(*body, make(NodeKind::output, line, {}, tuple(true)));
        expect("}}");
      } else {
        expect("{%");
        if (token().kind == Kind::name && contains(ends, token().value)) return body;
        add(*body, statement());
        expect("%}");
      }
    }
  }
  // Takes the end of the opening tag, the statements and the name of the tag that ends them.
  NodePtr block(const Words& ends) {
    take(":");
    expect("%}");
    return statements(ends);
  }
  NodePtr block_to(const char* end) {
    NodePtr body = block({end});
    ++at_;
    return body;
  }
  // As block_to(), for statements that belong to no loop around them.
  NodePtr outer_block_to(const char* end) {
    const int loops = std::exchange(loops_, 0);
    NodePtr body = block_to(end);
    loops_ = loops;
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
      return make(NodeKind::generation, line, {}, outer_block_to("endgeneration"));
    const std::string shown = "{% " + one_line(tag, 80) + " %}";
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) fail_at(line, shown, " is not directly inside a loop");
      return make(tag == "break" ? NodeKind::break_loop : NodeKind::continue_loop, line);
    }
    if (tag.starts_with("end") || tag == "else" || tag == "elif")
      fail_at(line, "the tag ", shown, " has no beginning");
    unsupported(line, "the tag " + shown);
  }

  NodePtr branches(int line) {
    NodePtr node = make(NodeKind::branches, line);
    do {
      add(*node, tuple(false));
      add(*node, block({"elif", "else", "endif"}));
    } while (take("elif"));
    if (take("else"))
      add(*node, block_to("endif"));
    else
      ++at_;
    return node;
  }

  NodePtr loop(int line) {
    NodePtr variables = target(false);
    expect("in");
    NodePtr values = tuple(false);
    NodePtr test = take("if") ? expression() : nullptr;
    if (is("recursive")) unsupported(line, "a recursive loop");
    ++loops_;
    NodePtr body = block({"else", "endfor"});
    --loops_;
    NodePtr other = take("else") ? block({"endfor"}) : nullptr;
    ++at_;
    return make(NodeKind::loop, line, {}, std::move(variables), std::move(values), std::move(test),
                std::move(body), std::move(other));
  }

  NodePtr set(int line) {
    NodePtr variables = target(true);
    if (take("=")) return make(NodeKind::set, line, {}, std::move(variables), tuple(true));
    if (is("|")) unsupported(line, "a filter of a {% set %} block");
    if (variables->kind == NodeKind::tuple) wrong("expected \"=\"");
    return make(NodeKind::set_block, line, {}, std::move(variables), outer_block_to("endset"));
  }

  NodePtr macro(int line) {
    NodePtr node = make(NodeKind::macro, line, expect_name());
    std::vector<NodePtr> defaults;
    expect("(");
    separated(")", [&] {
      node->names.push_back(expect_name());
      if (take("="))
        defaults.push_back(expression());
      else if (!defaults.empty())
        wrong("a parameter without default follows one with a default");
    });
    add(*node, outer_block_to("endmacro"));
    for (NodePtr& value : defaults) add(*node, std::move(value));
    return node;
  }

  // Takes the names of an assignment; several are a tuple, which unpacks a value.
  NodePtr target(bool with_namespace) {
    const bool bracket = take("(");
    NodePtr all = make(NodeKind::tuple, token().line);
    bool unpacks = false;
    do {
      if (unpacks && (is("=") || is(")") || is("in"))) break;  // a comma at the end
      const Token& t = token();
      expect_name();
      NodePtr one = constant_or_name(t);
      if (one->kind != NodeKind::name || t.value == "loop")
        fail_at(t.line, "cannot assign to ", in_quotes(t.value));
      if (with_namespace && take(".")) {
        one->kind = NodeKind::space_member;
        one->names = {expect_name()};
      }
      add(*all, std::move(one));
    } while (take(",") && (unpacks = true));
    if (bracket) expect(")");
    return unpacks ? std::move(all) : std::move(all->children[0]);
  }

  // ---- Expressions.

  // Takes items with commas between them, and `end`.
  template <class Item>
  void separated(const char* end, const Item& item) {
    for (bool first = true; !take(end); first = false) {
      if (!first) expect(",");
      if (!first && take(end)) return;
      item();
    }
  }

  // Takes expressions with commas between them; without a comma it is the expression itself.
  NodePtr tuple(bool with_condition, bool in_brackets = false) {
    NodePtr node = make(NodeKind::tuple, token().line);
    bool comma = false;
    while (!is("}}") && !is("%}") && !is(")")) {
      add(*node, with_condition ? expression() : operation());
      comma = take(",");
      if (!comma) break;
    }
    if (node->children.empty() && !in_brackets) wrong("expected an expression");
    const bool single = node->children.size() == 1 && !comma;
    return single ? std::move(node->children[0]) : std::move(node);
  }

  NodePtr expression() {
    const Nested guard(*this);
    const int line = token().line;
    NodePtr value = operation();
    while (take("if")) {
      NodePtr test = operation();
      NodePtr other = take("else") ? expression() : nullptr;
      value = make(NodeKind::conditional, line, {}, std::move(test), std::move(value),
                   std::move(other));
    }
    return value;
  }

  // Takes operands with operators of the level or stronger ones.
  NodePtr operation(size_t number = 0) {
    if (number == levels().size()) return sign();
    const Level& level = levels()[number];
    const int start = token().line;
    if (level.kind == NodeKind::compare && take("not")) {
      const Nested guard(*this);
      return make(NodeKind::logical_not, start, {}, operation(number));
    }
    NodePtr node = operation(number + 1);
    for (bool first = true;; first = false) {
      const int line = token().line;
      const std::string op = take_operator(level.operators);
      if (op.empty()) return node;
      if (first || !level.chained) node = make(level.kind, line, {}, std::move(node));
      add(*node, operation(number + 1));
      node->names.push_back(op);
    }
  }
  std::string take_operator(const Words& operators) {
    const Token& t = token();
    const bool negated = is("not") && is("in", 1);
    std::string op = negated ? "not in" : t.value;
    if ((t.kind != Kind::symbol && t.kind != Kind::name) || !contains(operators, op)) return "";
    at_ += negated ? 2 : 1;
    return op;
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
    while (with_filters) {
      const int at = token().line;
      if (take("|")) {
        node = make(NodeKind::filter, at, dotted_name(), std::move(node));
        if (is("(")) arguments(*node);
      } else if (take("is")) {
        node = test(std::move(node), at);
      } else if (is("(")) {
        node = make(NodeKind::call, at, {}, std::move(node));
        arguments(*node);
      } else {
        break;
      }
    }
    return node;
  }
  std::string dotted_name() {
    std::string name = expect_name();
    while (take(".")) name += "." + expect_name();
    return name;
  }

  NodePtr test(NodePtr value, int line) {
    const bool negated = take("not");
    NodePtr node = make(NodeKind::test, line, dotted_name(), std::move(value));
    const Kind kind = token().kind;
    if (is("(")) {
      arguments(*node);
    } else if (is("[") || is("{") || kind == Kind::string || kind == Kind::integer ||
               kind == Kind::real ||
               (kind == Kind::name && !is("else") && !is("or") && !is("and"))) {
      if (is("is")) wrong("tests cannot be chained");
      add(*node, postfix(primary()));
    }
    return negated ? make(NodeKind::logical_not, line, {}, std::move(node)) : std::move(node);
  }

  NodePtr primary() {
    if (take("(")) {
      NodePtr node = tuple(true, true);
      expect(")");
      return node;
    }
    if (is("[") || is("{")) return brackets();
    const Token& t = token();
    if (t.kind == Kind::string) {
      std::string all;
      while (token().kind == Kind::string) all += tokens_[at_++].value;
      return constant(t, {Value::Kind::text, std::move(all)});
    }
    if (t.kind == Kind::integer) return integer();
    if (t.kind != Kind::name && t.kind != Kind::real) wrong("expected an expression");
    ++at_;
    if (t.kind == Kind::name) return constant_or_name(t);
    return make(NodeKind::unsupported, t.line,
                "the floating-point number " + one_line(t.value, 80));
  }
  NodePtr integer() {
    const Token& t = tokens_[at_++];
    return constant(t, int64_t{std::stoll(t.value)});
  }
  NodePtr constant(const Token& t, Value value) const {
    NodePtr node = make(NodeKind::constant, t.line);
    node->value = std::move(value);
    return node;
  }
  NodePtr constant_or_name(const Token& t) const {
    const std::string& name = t.value;
    if (name == "none" || name == "None") return constant(t, {});
    const bool yes = name == "true" || name == "True";
    if (yes || name == "false" || name == "False") return constant(t, yes);
    return make(NodeKind::name, t.line, name);
  }
  NodePtr brackets() {
    const bool is_list = is("[");
    NodePtr node = make(is_list ? NodeKind::list : NodeKind::dictionary, tokens_[at_++].line);
    separated(is_list ? "]" : "}", [&] {
      add(*node, expression());
      if (is_list) return;
      expect(":");
      add(*node, expression());
    });
    return node;
  }

  NodePtr postfix(NodePtr node) {
    for (;;) {
      const int line = token().line;
      if (take("[")) {
        node = subscript(std::move(node), line);
      } else if (is("(")) {
        node = make(NodeKind::call, line, {}, std::move(node));
        arguments(*node);
      } else if (!take(".")) {
        return node;
      } else if (token().kind == Kind::integer) {
        node = make(NodeKind::item, line, {}, std::move(node), integer());
      } else {
        std::string name = expect_name();
        node = make(NodeKind::attribute, line, std::move(name), std::move(node));
      }
    }
  }
  NodePtr subscript(NodePtr object, int line) {
    NodePtr parts[3];
    int n = 0;
    for (;; ++n) {
      if (!is(":") && !is("]") && !is(",")) parts[n] = expression();
      if (n == 2 || !take(":")) break;
    }
    if (is(",")) unsupported(line, "an index of several parts");
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
    separated(")", [&] {
      const int line = token().line;
      if (take("*") || take("**")) {
        expression();
        add(node, make(NodeKind::unsupported, line, "an argument with *"));
        return;
      }
      if (token().kind == Kind::name && is("=", 1)) {
        node.names.push_back(expect_name());
        ++at_;
      } else if (!node.names.empty()) {
        wrong("an argument without name follows a named one");
      }
      add(node, expression());
    });
  }

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  int nested_ = 0;
  int loops_ = 0;  // around the current statement, inside the current macro or block
};

}  // namespace

NodePtr parse(const std::string& source) { return Parser(source).run(); }

}  // namespace stretto::nn::chat
