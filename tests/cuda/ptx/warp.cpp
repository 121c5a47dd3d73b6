// How a warp runs: its groups of lanes take turns, the one with the lowest program counter first.
#include <algorithm>

#include "interpreter.h"

namespace interpreter {

/// True if the lanes that an instruction needs are together; otherwise the group waits for them.
bool Block::ready(Warp& w, Group& g, const Instruction& i) {
  u32 needed = w.alive;
  if (i.flow == Flow::sync) {
    const u32* members = w.lane<u32>(i.s[3]);
    const u32 first = members[__builtin_ctz(g.mask)];
    for_lanes(g.mask, [&](int l) {
      if (!(members[l] >> l & 1)) fail(i, w, l, "diverged: a lane that its own mask does not name");
      if (members[l] != first) fail(i, w, l, "diverged: lanes with different masks");
    });
    needed = first & w.alive;
  } else if (i.flow == Flow::aligned && w.alive != all_lanes) {
    fail(i, w, __builtin_ctz(g.mask),
         "diverged: an instruction of a whole warp, which has ended in part");
  } else if (i.flow == Flow::barrier && w.alive != w.lanes) {
    fail(i, w, __builtin_ctz(g.mask),
         "barrier: in diverged code, other threads of the warp have ended");
  }
  if ((g.mask & needed) == needed) return true;
  g.waiting = true;
  return false;
}

void Block::diverged(Warp& w) {
  const Group& g = w.groups[0];
  const Instruction& i = kernel.code[size_t(g.pc)];
  const std::string what = i.flow == Flow::barrier ? "barrier: in diverged code"
                                                   : "diverged: lanes of the mask are elsewhere";
  fail(i, w, __builtin_ctz(g.mask), what);
}

/// A group of lanes while it runs: `pc` and `mask` are ahead of those in Warp::groups, which are
/// sorted by program counter, with one group for each.
struct Block::Turn {
  Turn(Warp& warp, size_t n)
      : w(warp),
        groups(warp.groups),
        chosen(n),
        pc(groups[n].pc),
        mask(groups[n].mask),
        stop(n + 1 < groups.size() ? groups[n + 1].pc : INT32_MAX),
        alone(groups.size() == 1) {}

  Group& group() { return groups[chosen]; }
  void take_out() { groups.erase(groups.begin() + long(chosen)); }
  /// Continues lanes at `at`, joined with the group there.
  void put(int at, u32 lanes) {
    const auto it = std::lower_bound(groups.begin(), groups.end(), at,
                                     [](const Group& g, int other) { return g.pc < other; });
    if (it != groups.end() && it->pc == at) {
      it->mask |= lanes;
      it->waiting = false;
    } else {
      groups.insert(it, {at, lanes, false});
    }
  }
  void put_back() {
    take_out();
    put(pc, mask);
  }

  Warp& w;
  std::vector<Group>& groups;
  const size_t chosen;
  int pc;
  u32 mask;
  const int stop;  // here it meets the next group, or is no longer the lowest
  const bool alone;
};

// What the group does after an instruction. skipped: as `next`, but the instruction is not a step.
enum class Block::After : u8 { next, skipped, regrouped, at_barrier };

// The loop of run_warp(), one function for each Flow, inlined so that a turn stays in registers.

/// Runs an instruction in the lanes m; a destination is valid where all sources are.
[[gnu::always_inline]] inline void Block::execute(const Instruction& i, Warp& w, u32 m) {
  i.run(i, w, m);
  const u32 set = w.valid[i.valid_s[0]] & w.valid[i.valid_s[1]] & w.valid[i.valid_s[2]];
  u32& valid = w.valid[i.valid_d];
  valid = (valid & ~m) | (m & set);
  for (u8 k = 0; k < i.sets; ++k) w.valid[i.valid_list[k]] |= m;
}

[[gnu::always_inline]] inline Block::After Block::branch(Turn& t, const Instruction& i, u32 m) {
  if (m == t.mask) {
    t.pc = i.target;
    if (t.alone || (t.pc < t.stop && t.pc >= t.group().pc)) return After::next;
    t.put_back();
  } else if (m == 0) {
    ++t.pc;
    return After::next;
  } else {
    ++counters.diverged;
    t.take_out();
    t.put(i.target, m);
    t.put(t.pc + 1, t.mask & ~m);
  }
  return After::regrouped;
}

[[gnu::always_inline]] inline Block::After Block::exit(Turn& t, u32 m) {
  t.w.alive &= ~m;
  t.take_out();
  if (t.mask & ~m) t.put(t.pc + 1, t.mask & ~m);
  for (Group& g : t.groups) g.waiting = false;
  return After::regrouped;
}

/// A branch to one of several targets, selected by a register.
[[gnu::always_inline]] inline Block::After Block::branch_by_table(Turn& t, const Instruction& i,
                                                                  u32 m) {
  const u32* which = t.w.lane<u32>(i.s[0]);
  t.take_out();
  if (t.mask & ~m) t.put(t.pc + 1, t.mask & ~m);
  for_lanes(m, [&](int l) {
    if (which[l] >= u32(i.target)) fail(i, t.w, l, "branch: beyond the end of its table");
    t.put(int(i.list[which[l]]), 1u << l);
  });
  return After::regrouped;
}

/// Flow::sync, aligned and barrier: an instruction that needs other lanes of the warp.
[[gnu::always_inline]] inline Block::After Block::run_together(Turn& t, const Instruction& i,
                                                               u32 m) {
  t.group().pc = t.pc;
  t.group().mask = t.mask;
  if (m != t.mask) {
    if (m) {
      t.group().mask = m;
      if (i.flow != Flow::sync || !ready(t.w, t.group(), i)) diverged(t.w);
    } else {
      ++t.pc;
      if (t.pc < t.stop) return After::skipped;
      t.put_back();
      return After::regrouped;
    }
  }
  if (!ready(t.w, t.group(), i)) return After::regrouped;
  if (i.flow == Flow::barrier) {
    ++counters.barriers;
    t.w.state = Warp::at_barrier;
    t.w.barrier = int(t.w.lane<u32>(i.s[0])[0]);
    t.w.barrier_threads = i.s[1] ? int(t.w.lane<u32>(i.s[1])[0]) : 0;
    t.w.at = &i;
    t.group().pc = t.pc + 1;
    return After::at_barrier;
  }
  if (i.orders_memory) ++t.w.epoch;
  ++counters.warp_synchronizations;
  execute(i, t.w, m);
  t.group().mask = t.mask;
  ++t.pc;
  return After::next;
}

void Block::run_warp(Warp& w, u64 steps) {
  const Instruction* const code = kernel.code.data();
  u64* const executed = kernel.executed.data();
  for (;;) {
    if (w.groups.empty()) {
      w.state = Warp::done;
      return;
    }
    size_t chosen = 0;
    while (chosen < w.groups.size() && w.groups[chosen].waiting) ++chosen;
    if (chosen == w.groups.size()) diverged(w);
    Turn t(w, chosen);
    for (;;) {
      const Instruction& i = code[t.pc];
      const u32 m = t.mask & (w.mask(i.guard) ^ i.flip);
      ++executed[t.pc];
      After after = After::next;
      if (i.flow == Flow::plain) [[likely]] {
        if (m) execute(i, w, m);
        ++t.pc;
      } else if (i.flow == Flow::branch) {
        after = branch(t, i, m);
      } else if (i.flow == Flow::exit) {
        after = exit(t, m);
      } else if (i.flow == Flow::table) {
        after = branch_by_table(t, i, m);
      } else {
        after = run_together(t, i, m);
      }
      if (after == After::skipped) continue;
      if (after == After::at_barrier) return;
      if (after == After::regrouped) break;
      if (t.pc >= t.stop) {
        t.put_back();
        break;
      }
      if (--steps == 0) {
        t.group().pc = t.pc;
        return;
      }
    }
    if (steps == 0 || --steps == 0) return;
  }
}

}  // namespace interpreter
