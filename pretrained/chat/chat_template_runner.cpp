#include "pretrained/chat/chat_template_runner.h"

#include <algorithm>

#include "core/one_line.h"

namespace stretto::nn::chat {

/// A loop while it runs. Items are taken one by one, as in Python: the test of a later item may
/// depend on what the body does.
struct Loop {
  const Node& node;
  Scope& outer;
  SequencePtr values;
  bool tested;    // items must pass the test of the loop
  size_t at = 0;  // of values, except of a generator
  int64_t index0 = -1;
  std::optional<int64_t> length = {};
  std::optional<Value> before = {}, current = {};
  bool peeked = false;
  std::optional<Value> after = {};  // if peeked: the next item, nothing at the end
};

struct Runner::OpenScope {
  OpenScope(Runner& of, Scope& outer) : runner(of), scope{&outer, {}, nullptr, ++of.scopes_} {
    runner.open_scopes_.push_back(&scope);
  }
  ~OpenScope() { runner.open_scopes_.pop_back(); }
  OpenScope(const OpenScope&) = delete;
  OpenScope& operator=(const OpenScope&) = delete;
  Runner& runner;
  Scope scope;
};

Runner::Runner(const Node& program, std::map<std::string, Value> variables)
    : program_(program), globals_{nullptr, std::move(variables)} {
  open_scopes_.push_back(&globals_);
}

std::string Runner::run() {
  std::string out;
  out_ = &out;
  run(program_, globals_);
  return out;
}

void Runner::step() {
  if (++steps_ > most_steps) wrong("more than ", most_steps, " steps; the template may not end");
}

void Runner::use_bytes(size_t bytes) {
  bytes_ += std::min(bytes, most_bytes);
  if (bytes_ > most_bytes) wrong("more than ", most_bytes, " bytes of texts and lists are made");
}

void Runner::append(const std::string& value) {
  use_bytes(value.size());
  *out_ += value;
}

Runner::Flow Runner::run(const Node& node, Scope& scope) {
  step();
  const Nested guard(*this);
  line_ = node.line;
  switch (node.kind) {
    case NodeKind::body:
      return run_body(node, scope);
    case NodeKind::text:
      append(node.text);
      break;
    case NodeKind::output: {
      const Value value = evaluate(*node.children[0], scope);
      line_ = node.line;
      append(printed(value));
      break;
    }
    case NodeKind::branches:
      return run_branches(node, scope);
    case NodeKind::loop:
      return run_loop(node, scope);
    case NodeKind::set: {
      Value value = evaluate(*node.children[1], scope);
      line_ = node.line;
      assign(*node.children[0], std::move(value), scope);
      break;
    }
    case NodeKind::set_block: {
      std::string value = captured(*node.children[1], scope);
      assign(*node.children[0], text(std::move(value)), scope);
      break;
    }
    case NodeKind::macro:
      scope.variables[node.text] = Macro{&node, &scope, scope.serial};
      break;
    case NodeKind::generation: {
      OpenScope inner(*this, scope);
      run(*node.children[0], inner.scope);
      break;
    }
    case NodeKind::break_loop:
      return Flow::break_loop;
    default:
      return Flow::continue_loop;
  }
  return Flow::next;
}

Runner::Flow Runner::run_body(const Node& body, Scope& scope) {
  for (const NodePtr& statement : body.children) {
    const Flow flow = run(*statement, scope);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Runner::Flow Runner::run_branches(const Node& node, Scope& scope) {
  size_t i = 0;
  for (; i + 1 < node.children.size(); i += 2)
    if (is_true(evaluate(*node.children[i], scope))) return run(*node.children[i + 1], scope);
  return i < node.children.size() ? run(*node.children[i], scope) : Flow::next;
}

Runner::Flow Runner::run_loop(const Node& node, Scope& scope) {
  const Value values = evaluate(*node.children[1], scope);
  line_ = node.line;
  Loop loop{node, scope, iterated(values), node.children[2] != nullptr};
  bool finished_a_round = false;
  while (advance(loop)) {
    step();
    OpenScope inner(*this, scope);
    inner.scope.loop = &loop;
    assign(*node.children[0], *loop.current, inner.scope);
    const Flow flow = run(*node.children[3], inner.scope);
    if (flow == Flow::break_loop) break;
    finished_a_round |= flow == Flow::next;
  }
  if (finished_a_round || !node.children[4]) return Flow::next;
  OpenScope inner(*this, scope);
  return run(*node.children[4], inner.scope);
}

std::optional<Value> Runner::pull(Loop& loop) {
  Sequence& values = *loop.values;
  size_t& at = values.kind == Sequence::Kind::generator ? values.taken : loop.at;
  while (at < values.items.size()) {
    Value value = values.items[at++];
    if (!loop.tested) return value;
    step();
    OpenScope inner(*this, loop.outer);
    assign(*loop.node.children[0], value, inner.scope);
    if (is_true(evaluate(*loop.node.children[2], inner.scope))) return value;
  }
  return std::nullopt;
}

bool Runner::advance(Loop& loop) {
  std::optional<Value> next =
      std::exchange(loop.peeked, false) ? std::exchange(loop.after, std::nullopt) : pull(loop);
  line_ = loop.node.line;
  if (!next) return false;
  ++loop.index0;
  loop.before = std::move(loop.current);
  loop.current = std::move(next);
  return true;
}

int64_t Runner::length(Loop& loop) {
  if (loop.length) return *loop.length;
  if (!loop.tested && loop.values->kind != Sequence::Kind::generator) {
    loop.length = static_cast<int64_t>(loop.values->items.size());
  } else {  // takes all items, as LoopContext does
    std::vector<Value> rest;
    while (std::optional<Value> value = pull(loop)) rest.push_back(std::move(*value));
    const bool waiting = loop.peeked && loop.after;
    loop.length = static_cast<int64_t>(rest.size()) + loop.index0 + 1 + waiting;
    loop.values = std::get<SequencePtr>(sequence(std::move(rest)));
    loop.tested = false;
    loop.at = 0;
  }
  return *loop.length;
}

Value Runner::loop_member(Loop& loop, const std::string& name) {
  const auto peek = [&] {
    if (!std::exchange(loop.peeked, true)) loop.after = pull(loop);
  };
  if (name == "index0") return loop.index0;
  if (name == "index") return loop.index0 + 1;
  if (name == "first") return loop.index0 == 0;
  if (name == "last") {
    peek();
    return !loop.after.has_value();
  }
  if (name == "length") return length(loop);
  if (name == "revindex") return length(loop) - loop.index0;
  if (name == "revindex0") return length(loop) - loop.index0 - 1;
  if (name == "previtem")
    return loop.index0 > 0 ? *loop.before : undefined("there is no previous item");
  if (name == "nextitem") {
    peek();
    return loop.after ? *loop.after : undefined("there is no next item");
  }
  unsupported("loop.", one_line(name, 80));
}

void Runner::assign(const Node& target, Value value, Scope& scope) {
  if (target.kind == NodeKind::name) {
    scope.variables[target.text] = std::move(value);
    return;
  }
  if (target.kind == NodeKind::tuple) {
    std::vector<Value> values = drained(value);
    const size_t count = target.children.size();
    if (values.size() != count)
      wrong("cannot unpack ", values.size(), " values to ", count, " names");
    for (size_t i = 0; i < count; ++i) assign(*target.children[i], std::move(values[i]), scope);
    return;
  }
  const Value space = evaluate_name(target, scope);
  Namespace* const* found = std::get_if<Namespace*>(&space);
  if (found == nullptr)
    wrong("cannot assign to an attribute of ", in_quotes(target.text), ", not a namespace");
  const std::string& name = target.names[0];
  if (name.starts_with("_")) wrong("a namespace cannot have the attribute ", in_quotes(name));
  use_bytes(sizeof(Value) + name.size());
  (*found)->members[name] = std::move(value);
}

std::string Runner::captured(const Node& body, Scope& scope) {
  std::string value;
  std::string* const outside = std::exchange(out_, &value);
  OpenScope inner(*this, scope);
  run(body, inner.scope);
  out_ = outside;
  return value;
}

Value Runner::call_macro(const Macro& macro, Arguments arguments) {
  const auto open = std::find(open_scopes_.begin(), open_scopes_.end(), macro.scope);
  if (open == open_scopes_.end() || macro.scope->serial != macro.serial)
    unsupported("calling a macro after the end of the loop or macro that defines it");
  const Nested guard(*this);
  const Node& node = *macro.node;
  const std::vector<std::string>& names = node.names;
  if (arguments.values.size() > names.size())
    wrong("the macro ", in_quotes(node.text), " accepts ", names.size(), " arguments, got ",
          arguments.values.size());
  OpenScope inner(*this, *macro.scope);
  std::map<std::string, Value>& variables = inner.scope.variables;
  std::vector<bool> given(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    Value value = undefined("the parameter " + in_quotes(names[i]) + " was not provided");
    const auto named =
        std::find_if(arguments.named.begin(), arguments.named.end(),
                     [&](const auto& argument) { return argument.first == names[i]; });
    given[i] = true;
    if (i < arguments.values.size()) {
      value = std::move(arguments.values[i]);
    } else if (named != arguments.named.end()) {
      value = std::move(named->second);
      arguments.named.erase(named);
    } else {
      given[i] = false;
    }
    variables[names[i]] = std::move(value);
  }
  if (!arguments.named.empty())
    wrong("the macro ", in_quotes(node.text), " has no parameter ",
          in_quotes(arguments.named[0].first));
  const size_t required = names.size() - (node.children.size() - 1);
  for (size_t i = required; i < names.size(); ++i)
    if (!given[i]) variables[names[i]] = evaluate(*node.children[1 + i - required], inner.scope);
  std::string result;
  std::string* const outside = std::exchange(out_, &result);
  run(*node.children[0], inner.scope);
  out_ = outside;
  line_ = node.line;
  return text(std::move(result));
}

}  // namespace stretto::nn::chat
