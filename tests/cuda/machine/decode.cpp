// From statements to instructions: operands become offsets into the warp's registers, labels
// program counters, and a call the callee's own instructions.
#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>

#include "machine.h"

namespace machine {
namespace {

struct Place {  // a register of the warp; offset 0 is none
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

void trap(const Instruction& i, Warp& w, u32 mask) {
  w.block->fail(i, w, __builtin_ctz(mask), "trap: the kernel gave up");
}

class Decoder {
 public:
  Decoder(Kernel& kernel, Module& module, const std::map<std::string, u64>& symbols)
      : k_(kernel), module_(module), symbols_(symbols) {}

  void decode(const Function& entry) {
    u64 at = 0;
    for (const Variable& p : entry.params) {
      at = (at + u64(p.align) - 1) / u64(p.align) * u64(p.align);
      k_.params.push_back({at, p.size});
      symbol_[p.name] = {Space::param, at};
      at += p.size;
    }
    k_.param_bytes = at;
    k_.valid.push_back(all_lanes);  // number 0: always set
    k_.granule = k_.shared_granule = 3;
    always_ = number(1, 0);
    carry_ = fresh(0);
    collect(entry);
    k_.dynamic_shared = (k_.shared_bytes + 15) / 16 * 16;
    for (const std::string& name : dynamic_) symbol_[name] = {Space::shared, k_.dynamic_shared};
    if (!dynamic_.empty()) k_.shared_bytes = k_.dynamic_shared;
    Frame frame{&entry, true, {}, {}, {}, {}, {}, {}};
    body(frame);
    Instruction& end = emit(nullptr);  // a body may end without ret
    end.flow = Flow::exit;
    k_.register_bytes = next_;
    k_.executed.assign(k_.code.size(), 0);
  }

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
        return number(symbol(o.name).address + u64(o.offset), 8);
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

  void place(const Variable& v) {
    if (symbol_.count(v.name)) return;
    if (v.space == Space::shared && (v.external || v.size == 0)) {
      dynamic_.push_back(v.name);
      symbol_[v.name] = {Space::shared, 0};
      return;
    }
    u64& total = v.space == Space::shared ? k_.shared_bytes : k_.local_bytes;
    total = (total + u64(v.align) - 1) / u64(v.align) * u64(v.align);
    symbol_[v.name] = {v.space, total};
    total += v.size;
  }
  /// The shared and local variables of a function and of those that it calls.
  void collect(const Function& f) {
    for (const Variable& v : f.variables) place(v);
    auto mentioned = [&](const Operand& o, auto&& self) -> void {
      if (o.kind == Operand::symbol)
        for (const Variable& v : module_.variables())
          if (v.space == Space::shared && v.name == o.name) place(v);
      for (const Operand& part : o.parts) self(part, self);
    };
    for (const Statement& s : f.body) {
      for (const Operand& o : s.operands) mentioned(o, mentioned);
      if (s.op[0] == "call" && callee(s) != "__assertfail") collect(module_.function(callee(s)));
    }
  }

  // ---- functions

  static const std::string& callee(const Statement& s) {
    for (const Operand& o : s.operands)
      if (o.kind == Operand::symbol) return o.name;
    throw Unknown("an indirect call: " + s.text);
  }

  void body(Frame& f) {
    if (std::count(active_.begin(), active_.end(), f.function))
      throw Unknown("recursion in " + f.function->name);
    active_.push_back(f.function);
    for (const Register& r : f.function->registers) f.registers.push_back(fresh(r.bytes));
    for (const Statement& s : f.function->body) {
      f.pcs.push_back(int(k_.code.size()));
      try {
        statement(f, s);
      } catch (const Unknown& e) {
        throw Unknown(std::string(e.what()).find(s.text) != std::string::npos
                          ? e.what()
                          : std::string(e.what()) + ": " + s.text);
      }
    }
    f.pcs.push_back(int(k_.code.size()));
    auto pc = [&](int label) { return f.pcs[size_t(f.function->labels[size_t(label)])]; };
    for (const auto& [at, label] : f.branches) k_.code[at].target = pc(label);
    for (const auto& [entry, label] : f.table_entries) *entry = u32(pc(label));
    for (size_t at : f.returns) k_.code[at].target = f.pcs.back();
    active_.pop_back();
  }

  void call(Frame& f, const Statement& s) {
    const std::string& name = callee(s);
    if (name == "__assertfail") {
      emit(&s).run = trap;
      return;
    }
    if (s.guard >= 0) throw Unknown("a call under a condition");
    const Function& g = module_.function(name);
    Frame inner{&g, false, {}, {}, {}, {}, {}, {}};
    const Operand* results = nullptr;
    const Operand* arguments = nullptr;
    bool before = true;
    for (const Operand& o : s.operands) {
      if (o.kind == Operand::list) (before ? results : arguments) = &o;
      if (o.kind == Operand::symbol) before = false;
    }
    if (arguments)
      for (size_t i = 0; i < arguments->parts.size(); ++i)
        inner.params[g.params.at(i).name] = f.params[arguments->parts[i].name];
    body(inner);
    if (results)
      for (size_t i = 0; i < results->parts.size(); ++i)
        f.params[results->parts[i].name] = inner.params[g.results.at(i).name];
  }

  // ---- instructions

  Instruction& emit(const Statement* s) {
    k_.code.emplace_back();
    Instruction& i = k_.code.back();
    i.source = s;
    i.guard = always_.offset;
    i.pipe = s ? pipe_of(*s) : Pipe::control;
    i.flow = Flow::plain;
    i.valid_d = 1;  // carry_'s, which nobody asks for
    return i;
  }

  static Pipe pipe_of(const Statement& s) {
    const std::string& op = s.op[0];
    auto is = [&](std::initializer_list<const char*> names) {
      return std::find(names.begin(), names.end(), op) != names.end();
    };
    if (is({"bra", "brx", "ret", "exit", "bar", "barrier", "call", "trap"})) return Pipe::control;
    if (is({"ld", "ldu", "st", "atom", "red"}))
      return s.has("shared") ? Pipe::shared : Pipe::memory;
    if (is({"ldmatrix", "cp"})) return Pipe::shared;
    if (op == "mma") return Pipe::matrix;
    if (is({"shfl", "vote", "match", "redux", "movmatrix", "activemask"})) return Pipe::warp;
    if (op == "cvt") return Pipe::convert;
    if (is({"ex2", "lg2", "sin", "cos", "rcp", "sqrt", "rsqrt", "tanh"})) return Pipe::special;
    const Type t = s.type();
    if (t.kind == 'f' && op != "mov") return t.bits == 64 ? Pipe::f64 : Pipe::floating;
    return t.kind == 'h' || t.kind == 'w' ? Pipe::floating : Pipe::integer;
  }

  void list(Instruction& i, const std::vector<Place>& places, size_t destinations) {
    k_.lists.push_back(std::make_unique<u32[]>(places.size()));
    k_.valid_lists.push_back(std::make_unique<u16[]>(places.size()));
    for (size_t k = 0; k < places.size(); ++k) {
      k_.lists.back()[k] = places[k].offset;
      k_.valid_lists.back()[k] = places[k].offset ? places[k].valid : u16(1);
    }
    i.list = k_.lists.back().get();
    i.valid_list = k_.valid_lists.back().get();
    i.count = u8(places.size());
    i.sets = u8(destinations);
  }

  void statement(Frame& f, const Statement& s) {
    const std::string& op = s.op[0];
    if (op == "call") return call(f, s);
    const bool of_call = (op == "ld" || op == "st") && s.op.at(1).starts_with("param") &&
                         !(op == "ld" && f.entry && k_param(s));
    if (of_call) return param_move(f, s);
    Instruction& i = emit(&s);
    if (s.guard >= 0) {
      i.guard = f.registers[size_t(s.guard)].offset;
      i.flip = s.guard_negated ? all_lanes : 0;
    }
    if (op == "bra") {
      i.flow = Flow::branch;
      f.branches.emplace_back(k_.code.size() - 1, s.operands[0].reg);
    } else if (op == "brx") {
      i.flow = Flow::table;
      const auto& targets = f.function->tables[s.operands[1].value];
      i.s[0] = source(f, s.operands[0], 4).offset;
      list(i, std::vector<Place>(targets.size()), 0);
      i.target = int(targets.size());
      for (size_t t = 0; t < targets.size(); ++t)
        f.table_entries.emplace_back(const_cast<u32*>(i.list) + t, targets[t].reg);
    } else if (op == "ret" || op == "exit") {
      i.flow = op == "exit" || f.entry ? Flow::exit : Flow::branch;
      if (i.flow == Flow::branch) f.returns.push_back(k_.code.size() - 1);
    } else if (op == "trap") {
      i.run = trap;
    } else {
      operate(f, s, i);
    }
  }
  bool k_param(const Statement& s) const {
    const Operand& base = s.operands.at(1).parts.at(0);
    const auto it = symbol_.find(base.name);
    return base.kind != Operand::symbol ||
           (it != symbol_.end() && it->second.space == Space::param);
  }

  /// Parameters and results of calls live in registers.
  void param_move(Frame& f, const Statement& s) {
    const bool writes = s.op[0] == "st";
    const Operand &memory = s.operands.at(writes ? 0 : 1), &value = s.operands.at(writes ? 1 : 0);
    auto& slots = f.params[memory.parts.at(0).name];
    const std::vector<Operand> items =
        value.kind == Operand::list ? value.parts : std::vector<Operand>{value};
    const int bytes = std::max(s.type().bytes(), 2);
    for (size_t n = 0; n < items.size(); ++n) {
      Place& slot = slots[memory.offset + s64(n) * s.type().bytes()];
      if (!slot.offset && !writes) throw Unknown("a parameter that was not given");
      if (!slot.offset) slot = fresh(bytes);
      if (slot.bytes != bytes) throw Unknown("the size of a parameter");
      const Place other = writes ? source(f, items[n], bytes) : destination(f, items[n]);
      if (other.bytes != bytes) throw Unknown("the size of a parameter");
      static const std::map<int, Statement> moves = [] {
        std::map<int, Statement> all;
        for (int b : {2, 4, 8}) {
          all[b].op = {"mov", "b" + std::to_string(8 * b)};
          all[b].operands.resize(2);
        }
        return all;
      }();
      Instruction& i = emit(&s);
      i.run = integer_handler(moves.at(bytes));
      i.pipe = Pipe::integer;
      i.d = (writes ? slot : other).offset;
      i.valid_d = (writes ? slot : other).valid;
      i.s[0] = (writes ? other : slot).offset;
      i.valid_s[0] = (writes ? other : slot).valid;
    }
  }

  void operate(Frame& f, const Statement& s, Instruction& i);
  void memory(Frame& f, const Statement& s, Instruction& i);
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

Space space_of(const Statement& s) {
  for (const std::string& m : s.op) {
    if (m == "global") return Space::global;
    if (m.starts_with("shared")) return Space::shared;
    if (m == "local") return Space::local;
    if (m.starts_with("param")) return Space::param;
    if (m == "const") return Space::constant;
  }
  return Space::generic;
}

void Decoder::memory(Frame& f, const Statement& s, Instruction& i) {
  const std::string& op = s.op[0];
  const bool atomic = op == "atom" || op == "red", writes = op == "st";
  const size_t at = writes || op == "red" ? 0 : 1;
  const Operand& address = s.operands.at(at);
  const Operand& base = address.parts.at(0);
  i.space = space_of(s);
  i.offset = address.offset;
  const Place p = source(f, base, base.kind == Operand::in_register ? -1 : 8);
  set_source(i, 0, p);
  const u8 base_bytes = u8(p.bytes);
  i.bytes = u8(s.type().bytes());
  int width = i.bytes;
  if (atomic) {
    i.count = base_bytes;
    if (op == "atom") set_destination(i, destination(f, s.operands.at(0)));
    set_source(i, 1, source(f, s.operands.at(at + 1), i.bytes));
    if (s.operands.size() > at + 2) set_source(i, 2, source(f, s.operands[at + 2], i.bytes));
  } else {
    const Operand& value = s.operands.at(writes ? 0 + 1 : 0);
    const std::vector<Operand> items =
        value.kind == Operand::list ? value.parts : std::vector<Operand>{value};
    std::vector<Place> places;
    for (const Operand& item : items) {
      const int bytes = item.kind == Operand::number ? std::max<int>(i.bytes, 2) : -1;
      places.push_back(writes ? source(f, item, bytes) : destination(f, item));
      if (places.back().offset) i.register_bytes = u8(places.back().bytes);
    }
    list(i, places, 0);
    i.target = int(items.size());
    i.count = base_bytes;
    width *= i.target;
  }
  int log = 0;
  while ((2 << log) <= width) ++log;
  if (i.space == Space::generic || i.space == Space::global) k_.granule = std::min(k_.granule, log);
  if (i.space == Space::generic || i.space == Space::shared)
    k_.shared_granule = std::min(k_.shared_granule, log);
  i.run = memory_handler(s, i);
}

/// Instructions with operands in an order of their own. false: an ordinary one.
bool Decoder::together(Frame& f, const Statement& s, Instruction& i) {
  const std::string& op = s.op[0];
  auto operand = [&](size_t n) -> const Operand& { return s.operands.at(n); };
  auto pair = [&] {  // d|p
    if (operand(0).kind != Operand::list) return set_destination(i, destination(f, operand(0)));
    const Place d = destination(f, operand(0).parts.at(0)),
                p = destination(f, operand(0).parts.at(1));
    list(i, {d, p}, 2);
    set_destination(i, d);
  };
  auto negated = [](const Operand& o) { return o.negated ? s64(all_lanes) : 0; };
  if ((op == "bar" || op == "barrier") && s.has("warp")) {
    i.flow = Flow::sync;
    set_source(i, 3, source(f, operand(0), 4));
  } else if (op == "bar" || op == "barrier") {
    if (!s.has("sync")) throw Unknown("a barrier of this kind");
    i.flow = Flow::barrier;
    set_source(i, 0, source(f, operand(0), 4));
    if (s.operands.size() > 1) set_source(i, 1, source(f, operand(1), 4));
  } else if (op == "shfl") {
    i.flow = Flow::sync;
    pair();
    for (size_t n = 0; n < 4; ++n) set_source(i, n, source(f, operand(n + 1), 4));
  } else if (op == "vote") {
    i.flow = Flow::sync;
    set_destination(i, destination(f, operand(0)));
    set_source(i, 0, source(f, operand(1), 0));
    i.offset = negated(operand(1));
    set_source(i, 3, source(f, operand(2), 4));
  } else if (op == "match" || op == "redux") {
    i.flow = Flow::sync;
    pair();
    set_source(i, 0, source(f, operand(1), s.type().bytes()));
    set_source(i, 3, source(f, operand(2), 4));
  } else if (op == "mma") {
    i.flow = Flow::aligned;
    std::vector<Place> places;
    for (const Operand& o : s.operands)
      for (const Operand& part : o.parts) places.push_back(source(f, part, 4));
    if (operand(0).parts.size() != 4) throw Unknown("this mma");
    list(i, places, 4);
  } else if (op == "ldmatrix") {
    i.flow = Flow::aligned;
    std::vector<Place> places;
    for (const Operand& part : operand(0).parts) places.push_back(destination(f, part));
    list(i, places, places.size());
    i.space = space_of(s);
    i.offset = operand(1).offset;
    const Place p = source(f, operand(1).parts.at(0), -1);
    set_source(i, 0, p);
    i.bytes = u8(p.bytes);
  } else if (op == "movmatrix") {
    i.flow = Flow::aligned;
    set_destination(i, destination(f, operand(0)));
    set_source(i, 0, source(f, operand(1), 4));
  } else if (op == "cp") {
    if (s.operands.size() >= 3) {
      const Place to = source(f, operand(0).parts.at(0), -1);
      const Place from = source(f, operand(1).parts.at(0), 8);
      i.writes = true;
      i.register_bytes = u8(to.bytes);
      set_source(i, 0, to);
      set_source(i, 1, from);
      set_source(i, 2, source(f, operand(s.operands.size() > 3 ? 3 : 2), 4));
      i.offset = s64(u64(u32(operand(0).offset)) | u64(operand(1).offset) << 32);
      k_.granule = std::min(k_.granule, 2);
    }
  } else if (op == "activemask") {
    set_destination(i, destination(f, operand(0)));
  } else {
    return false;
  }
  i.run = collective_handler(s, i);
  return true;
}

void Decoder::operate(Frame& f, const Statement& s, Instruction& i) {
  const std::string& op = s.op[0];
  if (op == "ld" || op == "ldu" || op == "st" || op == "atom" || op == "red") {
    memory(f, s, i);
  } else if (!together(f, s, i)) {
    const Type t = s.type();
    const int bytes = t.kind == 'p' ? 0 : t.bytes();
    auto size_of = [&](size_t n) {  // of operand n
      if (op == "cvt") return -1;
      if (op == "shl" || op == "shr") return n == 2 ? 4 : bytes;
      if (op == "bfi") return n >= 3 ? 4 : bytes;
      if (op == "bfe") return n >= 2 ? 4 : bytes;
      if (op == "selp" || op == "setp") return n == 3 ? 0 : bytes;
      if (op == "mad" && s.has("wide") && n == 3) return 2 * bytes;
      return bytes;
    };
    const bool unpacks = !s.operands.empty() && s.operands[0].kind == Operand::list;
    if (s.operands.empty()) {
    } else if (unpacks) {  // mov.b64 {a, b}, c and setp p|q
      std::vector<Place> places;
      for (const Operand& part : s.operands[0].parts) places.push_back(destination(f, part));
      list(i, places, places.size());
      if (op == "setp") set_destination(i, places[0]);
    } else {
      set_destination(i, destination(f, s.operands[0]));
    }
    for (size_t n = 1; n < s.operands.size(); ++n) {
      const Operand& o = s.operands[n];
      if (o.kind == Operand::list) {  // mov.b64 c, {a, b}
        std::vector<Place> places;
        const int part = bytes / int(o.parts.size());
        for (const Operand& p : o.parts) places.push_back(source(f, p, part));
        list(i, places, 0);
        continue;
      }
      if (n > 4) throw Unknown("this many operands");
      Place p = source(f, o, size_of(n));
      if (op == "cvt" && o.kind == Operand::number) p = number(o.value, bytes);
      set_source(i, n - 1, p);
      if (o.negated) i.offset |= s64(u64(all_lanes) << (t.kind == 'p' && n == 2 ? 32 : 0));
      if (op == "cvt") i.bytes = u8(p.bytes);
    }
    if (op == "setp" && s.operands.size() > 3)
      i.target = s.has("and") ? 1 : s.has("or") ? 2 : 3;
    else if (op == "setp")
      i.target = 0;
    if (op == "add" || op == "addc" || op == "sub" || op == "subc" || op == "mad" || op == "madc")
      i.s[3] = carry_.offset;
    if (op == "cvta") {
      const Space space = space_of(s);
      i.offset = s64(space == Space::shared  ? shared_window
                     : space == Space::local ? local_window
                     : space == Space::param ? param_window
                                             : 0);
      i.run = memory_handler(s, i);
    } else if (op == "cvt") {
      constexpr const char* whole[] = {"", "rni", "rzi", "rmi", "rpi"};
      i.target = (s.has("ftz") ? 8 : 0) | (s.has("sat") ? 16 : 0);
      for (int m = 1; m < 5; ++m) i.target |= s.has(whole[m]) ? m : 0;
      i.register_bytes = u8(destination(f, s.operands.at(0)).bytes);
      i.run = convert_handler(s, i.register_bytes, i.bytes);
    } else {
      i.run = arithmetic_handler(s);
      if (!i.run) i.run = integer_handler(s);
      if (!i.run) i.run = memory_handler(s, i);
    }
  }
  if (!i.run) throw Unknown("an instruction that the machine does not know: " + s.text);
}

}  // namespace

std::unique_ptr<Kernel> decode(Module& module, const std::string& name,
                               const std::map<std::string, u64>& symbols) {
  auto kernel = std::make_unique<Kernel>();
  kernel->name = readable(name);
  kernel->function = &module.function(name);
  kernel->counters = &counters()[kernel->name];
  Decoder(*kernel, module, symbols).decode(*kernel->function);
  return kernel;
}

std::string readable(const std::string& symbol) {
  int status = 0;
  char* text = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
  std::string name = status == 0 ? text : symbol;
  std::free(text);
  // "void stretto::cuda::(anonymous namespace)::f<T>(…)": f<T> says enough
  for (const char* drop : {"(anonymous namespace)::", "stretto::cuda::", "stretto::", "void "})
    for (size_t at; (at = name.find(drop)) != std::string::npos;) name.erase(at, std::strlen(drop));
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    depth += name[i] == '<' ? 1 : name[i] == '>' ? -1 : 0;
    if (name[i] == '(' && depth == 0) return name.substr(0, i);
  }
  return name;
}

}  // namespace machine
