#include "decode.h"

#include <cxxabi.h>

#include <cstdlib>

namespace interpreter {
namespace {

void trap(const Instruction& i, Warp& w, u32 mask) {
  w.block->fail(i, w, __builtin_ctz(mask), "trap: the kernel gave up");
}

}  // namespace

void Decoder::decode(const Function& entry) {
  u64 at = 0;
  for (const Variable& p : entry.params) {
    at = (at + u64(p.align) - 1) / u64(p.align) * u64(p.align);
    k_.params.push_back({at, p.size});
    symbol_[p.name] = {Space::param, at};
    at += p.size;
  }
  k_.param_bytes = at;
  k_.max_threads = entry.max_threads;
  k_.valid.push_back(all_lanes);  // index 0: always set
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

void Decoder::place(const Variable& v) {
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

void Decoder::collect(const Function& f) {
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

void Decoder::body(Frame& f) {
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

void Decoder::call(Frame& f, const Statement& s) {
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

Pipe Decoder::pipe_of(const Statement& s) {
  const std::string& op = s.op[0];
  auto is = [&](std::initializer_list<const char*> names) {
    return std::find(names.begin(), names.end(), op) != names.end();
  };
  if (is({"bra", "brx", "ret", "exit", "bar", "barrier", "call", "trap"})) return Pipe::control;
  if (is({"ld", "ldu", "st", "atom", "red"})) return s.has("shared") ? Pipe::shared : Pipe::memory;
  if (is({"ldmatrix", "cp"})) return Pipe::shared;
  if (op == "mma") return Pipe::matrix;
  if (is({"shfl", "vote", "match", "redux", "movmatrix", "activemask"})) return Pipe::warp;
  if (op == "cvt") return Pipe::convert;
  if (is({"ex2", "lg2", "sin", "cos", "rcp", "sqrt", "rsqrt", "tanh"})) return Pipe::special;
  const Type t = s.type();
  const auto in_register = [](const Operand& o) { return o.kind == Operand::in_register; };
  if (t.kind == 'f' && op == "neg") return Pipe::folded;
  if (op == "mov" && t.kind != 'p' &&
      std::all_of(s.operands.begin(), s.operands.end(), in_register))
    return Pipe::folded;
  if (t.kind == 'f' && op != "mov") return t.bits == 64 ? Pipe::f64 : Pipe::floating;
  return t.kind == 'h' || t.kind == 'w' ? Pipe::floating : Pipe::integer;
}

void Decoder::list(Instruction& i, const std::vector<Place>& places, size_t destinations) {
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

void Decoder::statement(Frame& f, const Statement& s) {
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

void Decoder::param_move(Frame& f, const Statement& s) {
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
  // "void stretto::cuda::(anonymous namespace)::f<T>(…)" becomes f<T>
  for (const char* drop : {"(anonymous namespace)::", "stretto::cuda::", "stretto::", "void "})
    for (size_t at; (at = name.find(drop)) != std::string::npos;) name.erase(at, std::strlen(drop));
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    depth += name[i] == '<' ? 1 : name[i] == '>' ? -1 : 0;
    if (name[i] == '(' && depth == 0) return name.substr(0, i);
  }
  return name;
}

}  // namespace interpreter
