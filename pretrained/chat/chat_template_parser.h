// The syntax of chat templates: tokens and the tree that the parser builds.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "chat_template_values.h"

namespace stretto::nn::chat {

/// A token of a template. Symbols are operators, brackets and the ends of tags: {{ }} {% %}.
struct Token {
  enum class Kind { text, name, string, integer, real, symbol, end };
  Kind kind;
  std::string value;  // as in the template; of a string without quotes and escapes
  int line;
};

/// Splits a template into tokens; white space around tags is removed as by Jinja with trim_blocks
/// and lstrip_blocks.
std::vector<Token> tokens_of(const std::string& source);

enum class NodeKind {
  // Expressions.
  constant,      // value
  unsupported,   // text: what it is; raises an error when it is evaluated
  name,          // text
  attribute,     // [object], text
  item,          // [object, index]
  slice,         // [object, first, last, step], each but the object may be null
  call,          // [function, arguments…]; the last names.size() arguments are named
  filter,        // [value, arguments…], text: name; names as for call
  test,          // [value, arguments…], text: name; names as for call
  negative,      // [value]
  logical_not,   // [value]
  logical_or,    // [a, b]
  logical_and,   // [a, b]
  compare,       // [a, b, …], names: the operators between them
  binary,        // [a, b], names[0]: + - * / // % **
  concatenate,   // [a, b, …]
  conditional,   // [test, value, other or null]
  list,          // [items…]
  tuple,         // [items…]
  dictionary,    // [key, value, key, value, …]
  space_member,  // only as a target: text is the namespace, names[0] the attribute
  // Statements. A target is a name, a space_member or a tuple of them.
  body,        // [statements…]
  text,        // text
  output,      // [value]
  branches,    // [test, body, test, body, …, else body or nothing]
  loop,        // [target, values, test or null, body, else body or null]
  set,         // [target, value]
  set_block,   // [target, body]
  macro,       // [body, defaults of the last parameters…], text: name, names: parameters
  generation,  // [body]
  break_loop,
  continue_loop,
};

struct Node;
using NodePtr = std::unique_ptr<Node>;

/// A node of the tree. Its depth is limited, so recursive functions need no other limit.
struct Node {
  NodeKind kind;
  int line;
  std::string text = {};
  std::vector<NodePtr> children = {};
  std::vector<std::string> names = {};
  Value value = {};
  int depth = 1;
};

/// Parses a template. Throws Error with the line.
NodePtr parse(const std::string& source);

/// Executes a tree once, with the variables of the conversation.
std::string run(const Node& program, std::map<std::string, Value> variables);

}  // namespace stretto::nn::chat
