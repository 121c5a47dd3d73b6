// Parsed PTX text: functions with their registers, variables, statements and labels.
//
// The parser does not know what an instruction does: decode.h turns statements into instructions. A
// function is parsed at its first use, as a module may have hundreds.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace interpreter {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s8 = int8_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;

/// Thrown for PTX that the interpreter cannot run: an unknown instruction, symbol or variant.
struct Unknown : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A PTX type. kind: b u s f, p (predicate), h (bf16), w (bf16x2), e (f16), 0 (no type).
struct Type {
  char kind = 0;
  int bits = 0;
  int bytes() const { return bits / 8; }
  bool operator==(const Type&) const = default;
};
/// The type that a modifier names ("f32"), or none.
Type type_named(std::string_view name);

enum class Space : u8 { generic, global, shared, local, param, constant };

struct Operand {
  enum Kind : u8 { none, in_register, number, special, symbol, memory, list, label };
  Kind kind = none;
  bool negated = false;        // !%p
  int reg = -1;                // index of a register in its function, or of a label
  u64 value = 0;               // an immediate's bits
  s64 offset = 0;              // memory: added to the address
  std::string name;            // special register, symbol, function
  std::vector<Operand> parts;  // memory: the base; list: its elements; d|p: both
};

struct Statement {
  std::string text;
  std::vector<std::string> op;  // "ld.global.f32", split at its dots
  std::vector<Operand> operands;
  int guard = -1;  // the predicate's register
  bool guard_negated = false;
  const std::string* where = nullptr;  // source location, see Parser::locate; null: unknown

  bool has(std::string_view modifier) const;
  std::string name() const;  // with all modifiers
  /// The i-th type among the modifiers, counted from the last (0).
  Type type(int from_last = 0) const;
};

struct Variable {
  std::string name;
  Space space = Space::generic;
  int align = 1;
  u64 size = 0;
  bool external = false;  // dynamic shared memory
  std::vector<u8> values;
};

struct Register {
  std::string name;
  int bytes;  // 0: a predicate
};

struct Function {
  std::string name;
  bool entry = false;
  u64 max_threads = 1024;  // of a block: .maxntid, from __launch_bounds__
  std::vector<Variable> params, results;
  std::vector<Variable> variables;  // shared and local
  std::vector<Register> registers;
  std::vector<Statement> body;
  std::vector<int> labels;                   // label → statement
  std::vector<std::vector<Operand>> tables;  // of brx.idx
};

/// Fuses products and sums as ptxas may, if PTX_CONTRACT is set.
void contract(Function& f);

class Module {
 public:
  explicit Module(const std::string& text);
  /// Parsed at the first call; throws Unknown if there is no function of that name.
  const Function& function(const std::string& name);
  const std::vector<Variable>& variables() const { return variables_; }

 private:
  struct Source {
    std::string_view head, body;
  };
  std::string text_;
  std::map<std::string, Source, std::less<>> sources_;
  std::map<std::string, Function> functions_;
  std::vector<Variable> variables_;
  std::map<int, std::string> files_;  // of .loc
};

}  // namespace interpreter
