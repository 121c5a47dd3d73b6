// Turns statements into instructions: operands become offsets into the warp's registers, labels
// program counters, and a call the callee's own instructions.
#pragma once

#include <algorithm>

#include "interpreter.h"

namespace interpreter {

struct Place {  // a register of the warp; offset 0: none
  u32 offset = 0;
  u16 valid = 0;
  int bytes = 0;
};

struct Frame {  // a function being decoded
  const Function* function;
  bool entry;
  std::vector<Place> registers;
  std::map<std::string, std::map<s64, Place>> params;  // of calls: by name and offset
  std::vector<int> pcs;                                // of its statements
  std::vector<std::pair<size_t, int>> branches;        // instruction → label
  std::vector<std::pair<u32*, int>> table_entries;
  std::vector<size_t> returns;
};

class Decoder {
 public:
  Decoder(Kernel& kernel, Module& module, const std::map<std::string, u64>& symbols)
      : k_(kernel), module_(module), symbols_(symbols) {}

  void decode(const Function& entry);

 private:
  struct Symbol {
    Space space;
    u64 address;
  };

  // ---- registers

  Place fresh(int bytes) {
    if (k_.valid.size() > 0xffff) throw Unknown("more than 65,535 registers");
    const Place p{next_, u16(k_.valid.size()), bytes};
    next_ += bytes == 0 ? 64u : u32(32 * bytes);
    k_.valid.push_back(0);
    return p;
  }
  Place number(u64 value, int bytes) {
    if (bytes < 8) value &= bytes == 0 ? 1 : (u64(1) << (8 * bytes)) - 1;
    Place& p = numbers_[{value, bytes}];
    if (p.offset) return p;
    p = {next_, 0, bytes};
    next_ += bytes == 0 ? 64u : u32(32 * bytes);
    k_.numbers.push_back({p.offset, bytes, value});
    return p;
  }
  Place special(const std::string& name) {
    Place& p = specials_[name];
    if (p.offset) return p;
    p = {next_, 0, name == "%clock64" ? 8 : 4};
    next_ += u32(32 * p.bytes);
    k_.specials.push_back({name, p.offset});
    return p;
  }
  Place source(Frame& f, const Operand& o, int bytes) {
    switch (o.kind) {
      case Operand::in_register: {
        const Place p = f.registers[size_t(o.reg)];
        if (bytes >= 0 && p.bytes != bytes) throw Unknown("the size of a register");
        return p;
      }
      case Operand::number:
        return number(o.value, std::max(bytes, 0));
      case Operand::special:
        return special(o.name);
      case Operand::symbol:
        return number(symbol(o.name).address + u64(o.offset), bytes == 4 ? 4 : 8);
      default:
        throw Unknown("an operand");
    }
  }
  Place destination(Frame& f, const Operand& o) {
    if (o.kind == Operand::none) return {};
    if (o.kind != Operand::in_register) throw Unknown("a destination");
    return f.registers[size_t(o.reg)];
  }

  Symbol symbol(const std::string& name) {
    if (const auto it = symbol_.find(name); it != symbol_.end()) return it->second;
    if (const auto it = symbols_.find(name); it != symbols_.end())
      return {Space::global, it->second};
    throw Unknown("the symbol " + name);
  }

  // ---- variables

  void place(const Variable& v);
  /// The shared and local variables of a function and of those that it calls.
  void collect(const Function& f);

  // ---- functions

  static const std::string& callee(const Statement& s) {
    for (const Operand& o : s.operands)
      if (o.kind == Operand::symbol) return o.name;
    throw Unknown("an indirect call: " + s.text);
  }

  void body(Frame& f);

  void call(Frame& f, const Statement& s);

  // ---- instructions

  Instruction& emit(const Statement* s) {
    k_.code.emplace_back();
    Instruction& i = k_.code.back();
    i.source = s;
    i.guard = always_.offset;
    i.pipe = s ? pipe_of(*s) : Pipe::control;
    i.flow = Flow::plain;
    i.valid_d = 1;  // that of carry_, which is never read
    return i;
  }

  static Pipe pipe_of(const Statement& s);

  void list(Instruction& i, const std::vector<Place>& places, size_t destinations);

  void statement(Frame& f, const Statement& s);
  bool k_param(const Statement& s) const {
    const Operand& base = s.operands.at(1).parts.at(0);
    const auto it = symbol_.find(base.name);
    return base.kind != Operand::symbol ||
           (it != symbol_.end() && it->second.space == Space::param);
  }

  /// Parameters and results of calls are registers.
  void param_move(Frame& f, const Statement& s);

  void operate(Frame& f, const Statement& s, Instruction& i);
  void memory(Frame& f, const Statement& s, Instruction& i);
  void barrier(Frame& f, const Statement& s, Instruction& i);
  void exchange(Frame& f, const Statement& s, Instruction& i);
  void matrix(Frame& f, const Statement& s, Instruction& i);
  void async_copy(Frame& f, const Statement& s, Instruction& i);
  bool together(Frame& f, const Statement& s, Instruction& i);
  void set_source(Instruction& i, size_t n, Place p) {
    i.s[n] = p.offset;
    if (n < i.valid_s.size()) i.valid_s[n] = p.valid;
  }
  void set_destination(Instruction& i, Place p) {
    i.d = p.offset;
    i.valid_d = p.offset ? p.valid : u16(1);
  }

  Kernel& k_;
  Module& module_;
  const std::map<std::string, u64>& symbols_;
  std::map<std::string, Symbol> symbol_;
  std::map<std::pair<u64, int>, Place> numbers_;
  std::map<std::string, Place> specials_;
  std::vector<std::string> dynamic_;
  std::vector<const Function*> active_;
  Place always_, carry_;
  u32 next_ = 64;
};

}  // namespace interpreter
