// With PTX_CONTRACT=1, products are fused with sums wherever ptxas may do so: mul without a rounding
// mode whose only use is an add or sub without one. ptxas chooses among these; results that are
// promised bit for bit must not depend on its choice.
#include <algorithm>
#include <cstdlib>

#include "ptx.h"

namespace interpreter {
namespace {

/// Calls f(register) for each register that an operand mentions.
template <class F>
void each_register(const Operand& o, const F& f) {
  if (o.kind == Operand::in_register) f(size_t(o.reg));
  for (const Operand& part : o.parts) each_register(part, f);
}

/// Where a register is mentioned and set: indices of statements.
struct Mentions {
  int count = 0, sets = 0;
  size_t set = 0, last = 0;
};
std::vector<Mentions> mentions_of(const Function& f) {
  std::vector<Mentions> all(f.registers.size());
  for (size_t at = 0; at < f.body.size(); ++at) {
    const Statement& s = f.body[at];
    const auto mention = [&](size_t reg) { ++all[reg].count, all[reg].last = at; };
    if (s.guard >= 0) mention(size_t(s.guard));
    for (const Operand& o : s.operands) each_register(o, mention);
    if (s.operands.empty() || s.operands[0].kind == Operand::memory) continue;
    each_register(s.operands[0], [&](size_t reg) { ++all[reg].sets, all[reg].set = at; });
  }
  return all;
}

bool may_be_fused(const Statement& s) {
  constexpr const char* fixed[] = {"rn", "rz", "rm", "rp", "sat"};
  return s.type().kind == 'f' && s.operands.size() == 3 &&
         std::none_of(std::begin(fixed), std::end(fixed),
                      [&](const char* modifier) { return s.has(modifier); });
}

}  // namespace

void contract(Function& f) {
  static const bool on = std::getenv("PTX_CONTRACT") != nullptr;
  if (!on) return;
  const std::vector<Mentions> mentions = mentions_of(f);
  for (size_t at = 0; at < f.body.size(); ++at) {
    const Statement& mul = f.body[at];
    if (mul.op[0] != "mul" || mul.guard >= 0 || !may_be_fused(mul)) continue;
    const int product = mul.operands[0].reg;
    const Mentions& used = mentions[size_t(product)];
    if (used.count != 2 || used.last <= at) continue;
    Statement& sum = f.body[used.last];
    if ((sum.op[0] != "add" && sum.op[0] != "sub") || !may_be_fused(sum) ||
        sum.type() != mul.type() || sum.has("ftz") != mul.has("ftz"))
      continue;
    // The factors have the same values at the sum.
    const auto constant = [&](const Operand& o) {
      if (o.kind != Operand::in_register) return true;
      const Mentions& m = mentions[size_t(o.reg)];
      return m.sets == 1 && m.set < at;
    };
    if (!constant(mul.operands[1]) || !constant(mul.operands[2])) continue;
    const bool first =
        sum.operands[1].kind == Operand::in_register && sum.operands[1].reg == product;
    const Operand other = sum.operands[first ? 2 : 1];
    sum.op[0] = sum.op[0] == "add" ? "fma" : first ? "fms" : "fnma";
    sum.operands = {sum.operands[0], mul.operands[1], mul.operands[2], other};
  }
}

}  // namespace interpreter
