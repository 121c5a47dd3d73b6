// Executes the tree of a chat template.

#include <algorithm>
#include <utility>

#include "core/one_line.h"
#include "pretrained/chat/chat_template_parser.h"

namespace stretto::nn::chat {
namespace {

using Kind = Value::Kind;
constexpr int most_nested = 600;  // expressions, statements and macros

struct Loop;

// Variables of the template, a macro or a round of a loop.
struct Scope {
  Scope* outer = nullptr;
  int64_t serial = 0;  // its number in the order of their beginnings
  Loop* loop = nullptr;
  std::map<std::string, Value> variables = {};
};

// A loop while it runs. Items are taken one by one, as in Python: the test of a later item may
// depend on what the body does.
struct Loop {
  const Node& node;
  Scope& outer;
  Value values;
  bool tested;  // items must pass the test of the loop
  bool in_test = false;
  size_t at = 0;  // of values, except of a generator
  int64_t index0 = -1;
  std::optional<int64_t> length = {};
  std::optional<Value> before = {}, current = {};
  bool peeked = false;
  std::optional<Value> after = {};  // if peeked: the next item, nothing at the end
};

struct Macro {
  const Node& node;
  int64_t scope;  // its serial, since it may have ended
};

class Runner : public Operations {
 public:
  explicit Runner(std::map<std::string, Value> variables) {
    globals_.variables = std::move(variables);
    open_scopes_.push_back(&globals_);
  }

  std::string run_program(const Node& program) {
    return output_of([&] { run(program, globals_); });
  }

 private:
  enum class Flow { next, break_loop, continue_loop };

  // While a node is executed: counts the nesting, and errors have the line of the node.
  struct At {
    At(Runner& of, const Node& node) : runner(of), line(std::exchange(of.line_, node.line)) {
      if (++runner.nested_ > most_nested) runner.wrong("nested or recursive too deeply");
      runner.step();
    }
    ~At() {
      --runner.nested_;
      runner.line_ = line;
    }
    At(const At&) = delete;
    At& operator=(const At&) = delete;
    Runner& runner;
    int line;
  };

  struct OpenScope {
    OpenScope(Runner& of, Scope& outer) : runner(of), scope{&outer, ++of.scopes_} {
      runner.open_scopes_.push_back(&scope);
    }
    ~OpenScope() { runner.open_scopes_.pop_back(); }
    OpenScope(const OpenScope&) = delete;
    OpenScope& operator=(const OpenScope&) = delete;
    Runner& runner;
    Scope scope;
  };

  // ---- Statements.

  Flow run(const Node& node, Scope& scope) {
    const At guard(*this, node);
    const std::vector<NodePtr>& children = node.children;
    switch (node.kind) {
      case NodeKind::body:
        for (const NodePtr& statement : children)
          if (const Flow flow = run(*statement, scope); flow != Flow::next) return flow;
        break;
      case NodeKind::text:
        append(node.text);
        break;
      case NodeKind::output:
        append(printed(evaluate(*children[0], scope)));
        break;
      case NodeKind::branches: {
        size_t i = 0;
        for (; i + 1 < children.size(); i += 2)
          if (is_true(evaluate(*children[i], scope))) return run(*children[i + 1], scope);
        return i < children.size() ? run(*children[i], scope) : Flow::next;
      }
      case NodeKind::loop:
        return run_loop(node, scope);
      case NodeKind::set:
        assign(*children[0], evaluate(*children[1], scope), scope);
        break;
      case NodeKind::set_block:
        assign(*children[0], text(output_of([&] { run_inside(*children[1], scope); })), scope);
        break;
      case NodeKind::macro:
        scope.variables[node.text] = {Kind::macro,
                                      std::make_shared<Macro>(Macro{node, scope.serial})};
        break;
      case NodeKind::generation:
        run_inside(*children[0], scope);
        break;
      case NodeKind::break_loop:
        return Flow::break_loop;
      default:
        return Flow::continue_loop;
    }
    return Flow::next;
  }

  // Runs statements in a scope of their own.
  Flow run_inside(const Node& body, Scope& scope) {
    OpenScope inner(*this, scope);
    return run(body, inner.scope);
  }

  // Returns the output of what `statements` runs.
  template <class Statements>
  std::string output_of(const Statements& statements) {
    std::string value;
    std::string* const outside = std::exchange(out_, &value);
    statements();
    out_ = outside;
    return value;
  }

  void append(const std::string& value) {
    use_bytes(value.size());
    *out_ += value;
  }

  void assign(const Node& target, Value value, Scope& scope) {
    if (target.kind == NodeKind::name) {
      scope.variables[target.text] = std::move(value);
    } else if (target.kind == NodeKind::tuple) {
      std::vector<Value> values = drained(value);
      const size_t count = target.children.size();
      if (values.size() != count)
        wrong("cannot unpack ", values.size(), " values to ", count, " names");
      for (size_t i = 0; i < count; ++i) assign(*target.children[i], std::move(values[i]), scope);
    } else {
      const Value space = variable(target.text, scope);
      if (!space.is(Kind::space))
        wrong("cannot assign to an attribute of ", in_quotes(target.text), ", not a namespace");
      set_member(space, target.names[0], std::move(value));
    }
  }

  // ---- Loops.

  Flow run_loop(const Node& node, Scope& scope) {
    const NodePtr &test = node.children[2], &body = node.children[3], &other = node.children[4];
    Loop loop{node, scope, iterated(evaluate(*node.children[1], scope)), test != nullptr};
    bool finished_a_round = false;
    while (advance(loop)) {
      step();
      OpenScope inner(*this, scope);
      inner.scope.loop = &loop;
      assign(*node.children[0], *loop.current, inner.scope);
      const Flow flow = run(*body, inner.scope);
      if (flow == Flow::break_loop) break;
      finished_a_round |= flow == Flow::next;
    }
    return finished_a_round || !other ? Flow::next : run_inside(*other, scope);
  }

  // Takes the next item, nothing at the end.
  std::optional<Value> pull(Loop& loop) {
    if (loop.in_test) wrong("the test of a loop needs the next items of the same loop");
    Items& items = loop.values.items();
    size_t& at = loop.values.is(Kind::generator) ? items.taken : loop.at;
    while (at < items.values.size()) {
      Value value = items.values[at++];
      if (!loop.tested) return value;
      step();
      OpenScope inner(*this, loop.outer);
      assign(*loop.node.children[0], value, inner.scope);
      loop.in_test = true;
      const bool passes = is_true(evaluate(*loop.node.children[2], inner.scope));
      loop.in_test = false;
      if (passes) return value;
    }
    return std::nullopt;
  }

  const std::optional<Value>& peek(Loop& loop) {
    if (!loop.peeked) loop.after = pull(loop);
    loop.peeked = true;
    return loop.after;
  }

  bool advance(Loop& loop) {
    std::optional<Value> next = peek(loop);
    loop.peeked = false;
    if (!next) return false;
    ++loop.index0;
    loop.before = std::exchange(loop.current, std::move(next));
    return true;
  }

  int64_t length_of(Loop& loop) {
    if (loop.length) return *loop.length;
    if (!loop.tested && !loop.values.is(Kind::generator)) {
      loop.length = length(loop.values);
    } else {  // takes all items, as LoopContext does
      std::vector<Value> rest;
      while (std::optional<Value> value = pull(loop)) rest.push_back(std::move(*value));
      const bool waiting = loop.peeked && loop.after;
      loop.length = static_cast<int64_t>(rest.size()) + loop.index0 + 1 + waiting;
      loop.values = sequence(std::move(rest));
      loop.tested = false;
      loop.at = 0;
    }
    return *loop.length;
  }

  Value loop_member(Loop& loop, const std::string& name) {
    if (name == "index0") return loop.index0;
    if (name == "index") return loop.index0 + 1;
    if (name == "first") return loop.index0 == 0;
    if (name == "last") return !peek(loop).has_value();
    if (name == "length") return length_of(loop);
    if (name == "revindex") return length_of(loop) - loop.index0;
    if (name == "revindex0") return length_of(loop) - loop.index0 - 1;
    if (name == "previtem")
      return loop.index0 > 0 ? *loop.before : undefined("there is no previous item");
    if (name == "nextitem") return peek(loop).value_or(undefined("there is no next item"));
    unsupported("loop.", one_line(name, 80));
  }

  // ---- Expressions.

  Value evaluate(const Node& node, Scope& scope) {
    const At guard(*this, node);
    const auto child = [&](size_t i) { return evaluate(*node.children[i], scope); };
    switch (node.kind) {
      case NodeKind::constant:
        return node.value;
      case NodeKind::unsupported:
        unsupported(node.text);
      case NodeKind::name:
        return variable(node.text, scope);
      case NodeKind::attribute:
        return evaluate_attribute(node, scope);
      case NodeKind::item: {
        const Value object = child(0);
        return item(object, child(1));
      }
      case NodeKind::slice:
        return evaluate_slice(node, scope);
      case NodeKind::call: {
        const Value callee = child(0);
        return call(callee, arguments_of(node, scope));
      }
      case NodeKind::filter: {
        const Value value = child(0);
        return filter(node.text, value, arguments_of(node, scope));
      }
      case NodeKind::test: {
        const Value value = child(0);
        return test(node.text, value, arguments_of(node, scope));
      }
      case NodeKind::logical_not:
        return !is_true(child(0));
      case NodeKind::negative:
        return arithmetic("-", int64_t{0}, integer(child(0), "the operand of -"));
      case NodeKind::binary: {
        const Value a = child(0);
        return arithmetic(node.names[0], a, child(1));
      }
      case NodeKind::logical_and:
      case NodeKind::logical_or: {
        Value a = child(0);
        return is_true(a) == (node.kind == NodeKind::logical_or) ? a : child(1);
      }
      case NodeKind::compare:
        return evaluate_compare(node, scope);
      case NodeKind::concatenate:
        return evaluate_concatenate(node, scope);
      case NodeKind::conditional:
        if (is_true(child(0))) return child(1);
        return node.children[2] ? child(2) : undefined("a conditional expression has no else");
      case NodeKind::dictionary:
        return evaluate_dictionary(node, scope);
      default: {
        std::vector<Value> items;
        for (size_t i = 0; i < node.children.size(); ++i) items.push_back(child(i));
        return sequence(std::move(items), node.kind == NodeKind::tuple ? Kind::tuple : Kind::list);
      }
    }
  }

  Value variable(const std::string& name, const Scope& scope) {
    for (const Scope* s = &scope; s != nullptr; s = s->outer) {
      const auto found = s->variables.find(name);
      if (found != s->variables.end()) return found->second;
      if (s->loop != nullptr && name == "loop")
        unsupported("the variable loop without an attribute");
    }
    for (const char* function : {"namespace", "range", "dict", "raise_exception", "strftime_now",
                                 "lipsum", "cycler", "joiner"})
      if (name == function) return {Kind::function, name};
    for (const char* implicit : {"caller", "varargs", "kwargs"})
      if (name == implicit) unsupported("the variable ", implicit);
    return undefined(in_quotes(name) + " is undefined");
  }

  Value evaluate_attribute(const Node& node, Scope& scope) {
    const Node& object = *node.children[0];
    if (object.kind == NodeKind::name && object.text == "loop") {
      for (Scope* s = &scope; s != nullptr && !s->variables.contains("loop"); s = s->outer)
        if (s->loop != nullptr) return loop_member(*s->loop, node.text);
    }
    return attribute(evaluate(object, scope), node.text);
  }

  bool evaluate_compare(const Node& node, Scope& scope) {
    Value a = evaluate(*node.children[0], scope);
    for (size_t i = 0; i < node.names.size(); ++i) {
      Value b = evaluate(*node.children[i + 1], scope);
      if (!compared(node.names[i], a, b)) return false;
      a = std::move(b);
    }
    return true;
  }

  Value evaluate_concatenate(const Node& node, Scope& scope) {
    std::string all;
    for (const NodePtr& child : node.children) {
      const Value value = evaluate(*child, scope);
      if (value.is(Kind::safe_text)) unsupported("~ of safe text");
      all += printed(value);
    }
    return text(std::move(all));
  }

  Value evaluate_slice(const Node& node, Scope& scope) {
    const Value object = evaluate(*node.children[0], scope);
    std::optional<int64_t> parts[3];
    for (size_t i = 0; i < 3; ++i) {
      const Value part = node.children[i + 1] ? evaluate(*node.children[i + 1], scope) : Value();
      if (!part.is(Kind::none)) parts[i] = integer(part, "a part of the slice");
    }
    return slice(object, parts);
  }

  Value evaluate_dictionary(const Node& node, Scope& scope) {
    Items members;
    for (size_t i = 0; i < node.children.size(); i += 2) {
      const Value key = evaluate(*node.children[i], scope);
      if (!key.is_text()) unsupported(key.type(), " as a key of a dictionary");
      members.keys.push_back(key.text());
      members.values.push_back(evaluate(*node.children[i + 1], scope));
    }
    return dictionary(members);
  }

  Arguments arguments_of(const Node& node, Scope& scope) {
    Arguments arguments{{}, node.names};
    for (size_t i = 1; i < node.children.size(); ++i)
      arguments.values.push_back(evaluate(*node.children[i], scope));
    return arguments;
  }

  Value call(const Value& callee, const Arguments& arguments) {
    check_defined(callee);
    if (callee.is(Kind::macro))
      return call_macro(*static_cast<const Macro*>(callee.object.get()), arguments);
    if (callee.is(Kind::function)) return call_function(callee.text(), arguments);
    if (callee.is(Kind::method)) return call_method(callee.method(), arguments);
    wrong(callee.type(), " cannot be called");
  }

  Value call_macro(const Macro& macro, const Arguments& arguments) {
    const Node& node = macro.node;
    const auto open = std::find_if(open_scopes_.begin(), open_scopes_.end(),
                                   [&](const Scope* s) { return s->serial == macro.scope; });
    if (open == open_scopes_.end())
      unsupported("calling a macro after the end of the loop or macro that defines it");
    const std::vector<std::string>& names = node.names;
    const std::vector<const Value*> given =
        bound("the macro " + in_quotes(node.text), arguments, names, 0);
    const At guard(*this, node);
    OpenScope inner(*this, **open);
    std::map<std::string, Value>& variables = inner.scope.variables;
    for (size_t i = 0; i < names.size(); ++i)
      variables[names[i]] =
          given[i] != nullptr
              ? *given[i]
              : undefined("the parameter " + in_quotes(names[i]) + " was not provided");
    const size_t required = names.size() - (node.children.size() - 1);
    for (size_t i = required; i < names.size(); ++i)
      if (given[i] == nullptr)
        variables[names[i]] = evaluate(*node.children[1 + i - required], inner.scope);
    return text(output_of([&] { run(*node.children[0], inner.scope); }));
  }

  Scope globals_ = {};
  std::vector<Scope*> open_scopes_;
  std::string* out_ = nullptr;
  int nested_ = 0;
  int64_t scopes_ = 0;
};

}  // namespace

std::string run(const Node& program, std::map<std::string, Value> variables) {
  return Runner(std::move(variables)).run_program(program);
}

}  // namespace stretto::nn::chat
