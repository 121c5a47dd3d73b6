// The meaning of the operands of each instruction.
#include "decode.h"

namespace interpreter {
namespace {

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

/// The mask that flips a predicate in all lanes if the operand is !p.
s64 negated(const Operand& o) { return o.negated ? s64(all_lanes) : 0; }

}  // namespace

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

/// bar.sync, bar.red and bar.warp.sync.
void Decoder::barrier(Frame& f, const Statement& s, Instruction& i) {
  if (s.has("warp")) {
    i.flow = Flow::sync;
    set_source(i, 3, source(f, s.operands.at(0), 4));
    return;
  }
  i.flow = Flow::barrier;
  size_t at = 0;
  if (s.has("red")) {  // d, barrier, [threads,] predicate
    set_destination(i, destination(f, s.operands.at(at++)));
    const Operand& last = s.operands.back();
    set_source(i, 2, source(f, last, 0));
    i.offset = negated(last);
    i.target = s.has("popc") ? 1 : s.has("and") ? 2 : 3;
  } else if (!s.has("sync")) {
    throw Unknown("a barrier of this kind");
  } else {
    i.target = 0;
  }
  set_source(i, 0, source(f, s.operands.at(at), 4));
  if (s.operands.size() > at + (at ? 2 : 1)) set_source(i, 1, source(f, s.operands.at(at + 1), 4));
}

/// shfl, vote, match and redux: lanes see values of other lanes. Source 3 is the mask of these.
void Decoder::exchange(Frame& f, const Statement& s, Instruction& i) {
  const std::string& op = s.op[0];
  auto operand = [&](size_t n) -> const Operand& { return s.operands.at(n); };
  i.flow = Flow::sync;
  if (operand(0).kind == Operand::list && op != "vote") {  // d|p
    const Place d = destination(f, operand(0).parts.at(0)),
                p = destination(f, operand(0).parts.at(1));
    list(i, {d, p}, 2);
    set_destination(i, d);
  } else {
    set_destination(i, destination(f, operand(0)));
  }
  if (op == "shfl") {
    for (size_t n = 0; n < 4; ++n) set_source(i, n, source(f, operand(n + 1), 4));
    return;
  }
  set_source(i, 0, source(f, operand(1), op == "vote" ? 0 : s.type().bytes()));
  if (op == "vote") i.offset = negated(operand(1));
  set_source(i, 3, source(f, operand(2), 4));
}

/// mma, ldmatrix and movmatrix: matrices whose elements are in the registers of all lanes.
void Decoder::matrix(Frame& f, const Statement& s, Instruction& i) {
  const std::string& op = s.op[0];
  auto operand = [&](size_t n) -> const Operand& { return s.operands.at(n); };
  i.flow = Flow::aligned;
  std::vector<Place> places;
  if (op == "mma") {
    for (const Operand& o : s.operands)
      for (const Operand& part : o.parts) places.push_back(source(f, part, 4));
    if (operand(0).parts.size() != 4) throw Unknown("this mma");
    list(i, places, 4);
  } else if (op == "ldmatrix") {
    for (const Operand& part : operand(0).parts) places.push_back(destination(f, part));
    list(i, places, places.size());
    i.space = space_of(s);
    i.offset = operand(1).offset;
    const Place p = source(f, operand(1).parts.at(0), -1);
    set_source(i, 0, p);
    i.bytes = u8(p.bytes);
  } else {
    set_destination(i, destination(f, operand(0)));
    set_source(i, 0, source(f, operand(1), 4));
  }
}

/// cp.async to shared memory; commit_group and wait_group have no addresses.
void Decoder::async_copy(Frame& f, const Statement& s, Instruction& i) {
  if (s.operands.size() < 3) return;
  const Operand &shared = s.operands[0], &global = s.operands[1];
  const Place to = source(f, shared.parts.at(0), -1);
  const Place from = source(f, global.parts.at(0), 8);
  i.writes = true;
  i.register_bytes = u8(to.bytes);
  set_source(i, 0, to);
  set_source(i, 1, from);
  set_source(i, 2, source(f, s.operands[s.operands.size() > 3 ? 3 : 2], 4));
  i.offset = s64(u64(u32(shared.offset)) | u64(global.offset) << 32);
  k_.granule = std::min(k_.granule, 2);
  k_.shared_granule = std::min(k_.shared_granule, 2);
}

/// Instructions with operands in an order of their own; false for ordinary ones.
bool Decoder::together(Frame& f, const Statement& s, Instruction& i) {
  const std::string& op = s.op[0];
  if (op == "bar" || op == "barrier") {
    i.orders_memory = true;
    barrier(f, s, i);
  } else if (op == "shfl" || op == "vote" || op == "match" || op == "redux") {
    exchange(f, s, i);
  } else if (op == "mma" || op == "ldmatrix" || op == "movmatrix") {
    matrix(f, s, i);
  } else if (op == "cp") {
    async_copy(f, s, i);
  } else if (op == "activemask") {
    set_destination(i, destination(f, s.operands.at(0)));
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
    if (op == "selp") {  // the operand not chosen may be unset: the handler checks
      list(i,
           {destination(f, s.operands[0]), source(f, s.operands[1], bytes),
            source(f, s.operands[2], bytes)},
           0);
      i.valid_d = 1, i.valid_s[0] = i.valid_s[1] = 0;
    }
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
  if (!i.run) throw Unknown("an instruction that the interpreter does not know: " + s.text);
}

}  // namespace interpreter
