#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>

#include "mutations.h"
#include "streams.h"

namespace interpreter {
namespace {

u32 next_tag = 1;    // of blocks, over all launches
u64 next_epoch = 1;  // of barriers, over all blocks

std::vector<u32> order_of(u32 n) {
  std::vector<u32> all(n);
  std::iota(all.begin(), all.end(), 0u);
  Schedule& s = schedule();
  if (s.order == Order::backwards) std::reverse(all.begin(), all.end());
  if (s.order == Order::random) std::shuffle(all.begin(), all.end(), s.random);
  return all;
}

Caches& caches_of_all() {
  static Caches all;
  return all;
}

/// A block's share of the first-level cache, next to the blocks that run with it on
/// an H100's multiprocessor.
u64 cache_share(const Counters& c, u64 blocks) {
  constexpr u64 memory = 256 << 10, shared_memory = 228 << 10, reserved = 1 << 10;
  const u64 warps = (c.threads + 31) / 32, registers = std::max<u64>((c.registers + 7) / 8 * 8, 8);
  const u64 shared = c.shared_bytes + reserved;
  const u64 together =
      std::min({u64(32), 64 / warps, 65536 / (warps * 32 * registers), shared_memory / shared,
                (blocks + Caches::processors - 1) / Caches::processors});
  return memory / std::max<u64>(together, 1) - shared;
}

/// Sets a register to a value in all lanes; a register of 0 bytes is a predicate.
void fill(Warp& w, u32 offset, int bytes, u64 value) {
  switch (bytes) {
    case 0:
      w.mask(offset) = value ? all_lanes : 0;
      break;
    case 1:
      return void(std::fill_n(w.lane<u8>(offset), 32, u8(value)));
    case 2:
      return void(std::fill_n(w.lane<u16>(offset), 32, u16(value)));
    case 4:
      return void(std::fill_n(w.lane<u32>(offset), 32, u32(value)));
    default:
      std::fill_n(w.lane<u64>(offset), 32, value);
  }
}

std::string triple(const u32 (&v)[3]) {
  return "(" + std::to_string(v[0]) + ", " + std::to_string(v[1]) + ", " + std::to_string(v[2]) +
         ")";
}

}  // namespace

Schedule& schedule() {
  static Schedule* s = [] {
    auto* made = new Schedule;
    const char* text = std::getenv("PTX_ORDER");
    const std::string order = text ? text : "forwards";
    if (order == "backwards") {
      made->order = Order::backwards;
    } else if (order.starts_with("random")) {
      made->order = Order::random;
      made->random.seed(order.size() > 7 ? std::strtoull(order.c_str() + 7, nullptr, 10) : 1);
    } else if (order != "forwards") {
      std::fprintf(stderr, "ptx: PTX_ORDER is forwards, backwards, random or random:SEED\n");
      std::abort();
    }
    return made;
  }();
  return *s;
}

Block::Block(const Launch& l)
    : launch(l),
      kernel(l.kernel),
      counters(*l.kernel.counters),
      threads(u32(l.block.count())),
      caches(caches_of_all()) {
  static std::vector<u8> registers;  // reused by all launches
  static std::vector<u32> valid;
  const size_t count = (threads + 31) / 32, stride = (kernel.register_bytes + 63) / 64 * 64;
  if (registers.size() < count * stride + 64) registers.resize(count * stride + 64);
  valid.resize(std::max(valid.size(), count * kernel.valid.size()));
  u8* const aligned = registers.data() + (64 - u64(registers.data()) % 64) % 64;
  warps.resize(count);
  for (size_t n = 0; n < count; ++n) {
    Warp& w = warps[n];
    w.block = this;
    w.id = int(n);
    w.registers = aligned + n * stride;
    w.valid = valid.data() + n * kernel.valid.size();
    const u32 left = threads - u32(n) * 32;
    w.lanes = left >= 32 ? all_lanes : (1u << left) - 1;
    for (const auto& [offset, bytes, value] : kernel.numbers) fill(w, offset, bytes, value);
  }
  shared_bytes = kernel.dynamic_shared > kernel.shared_bytes || l.dynamic_shared
                     ? kernel.dynamic_shared + l.dynamic_shared
                     : kernel.shared_bytes;
  shared.resize(shared_bytes);
  shared_state.resize(shared_bytes);
  shared_writer.resize((shared_bytes >> kernel.shared_granule) + 1);
  shared_reader.resize(shared_writer.size());
  counters.threads = std::max<u64>(counters.threads, threads);
  counters.shared_bytes = std::max(counters.shared_bytes, shared_bytes);
  if (counting()) caches.begin(cache_share(counters, l.grid.count()));
  local.resize(kernel.local_bytes * 32 * count);
  local_state.resize(local.size());
  param_state.assign(kernel.param_bytes, written);
}

void Block::set_special(Warp& w, const Kernel::Special& s) {
  const Dim3 g = launch.grid, b = launch.block;
  auto fill = [&](auto&& f) {
    u32* to = w.lane<u32>(s.offset);
    for (u32 l = 0; l < 32; ++l) to[l] = f(l);
  };
  const std::string_view n = s.name;
  const u32 first = u32(w.id) * 32;
  const u32 sizes[] = {b.x, b.y, b.z}, grids[] = {g.x, g.y, g.z};
  const size_t axis = n.ends_with(".x") ? 0 : n.ends_with(".y") ? 1 : 2;
  if (n.starts_with("%tid"))
    return fill([&](u32 l) {
      const u32 t = first + l;
      return axis == 0 ? t % b.x : axis == 1 ? t / b.x % b.y : t / (b.x * b.y);
    });
  if (n.starts_with("%ntid")) return fill([&](u32) { return sizes[axis]; });
  if (n.starts_with("%nctaid")) return fill([&](u32) { return grids[axis]; });
  if (n.starts_with("%ctaid")) return fill([&](u32) { return index[axis]; });
  if (n == "%laneid") return fill([](u32 l) { return l; });
  if (n == "%warpid") return fill([&](u32) { return u32(w.id); });
  if (n == "%lanemask_eq") return fill([](u32 l) { return 1u << l; });
  if (n == "%lanemask_lt") return fill([](u32 l) { return (1u << l) - 1; });
  if (n == "%lanemask_le") return fill([](u32 l) { return (2u << l) - 1; });
  if (n == "%lanemask_gt") return fill([](u32 l) { return ~((2u << l) - 1); });
  if (n == "%lanemask_ge") return fill([](u32 l) { return ~((1u << l) - 1); });
  if (n == "%dynamic_smem_size") return fill([&](u32) { return u32(launch.dynamic_shared); });
  throw Unknown("the special register " + s.name + ": what it holds differs from run to run");
}

void Block::start(u32 x, u32 y, u32 z) {
  index[0] = x, index[1] = y, index[2] = z;
  tag = next_tag++;
  epoch = next_epoch++;
  std::fill(shared.begin(), shared.end(), u8(0xff));
  std::fill(shared_state.begin(), shared_state.end(), u8(unwritten));
  std::fill(local_state.begin(), local_state.end(), u8(unwritten));
  for (Warp& w : warps) {
    std::memcpy(w.valid, kernel.valid.data(), 4 * kernel.valid.size());
    for (const auto& s : kernel.specials)
      if (tag == launch_tag + 1 || s.name.starts_with("%ctaid")) set_special(w, s);
    w.state = Warp::ready;
    w.alive = w.lanes;
    w.epoch = 0;
    w.groups.assign(1, {0, w.lanes, false});
    w.copies.clear();
    w.open.clear();
  }
  ++counters.blocks;
}

void Block::fail(const Instruction& i, const Warp& w, int lane, const std::string& what,
                 Error code) {
  const u32 t = u32(w.id * 32 + lane);
  const Dim3 b = launch.block;
  const u32 thread[3] = {t % b.x, t / b.x % b.y, t / (b.x * b.y)};
  verdict(what + "; kernel " + kernel.name + ", block " + triple(index) + ", thread " +
          triple(thread) + ", at: " + (i.source ? i.source->text : "the end") +
          (i.source && i.source->where ? " (" + *i.source->where + ")" : ""));
  throw Fault{code};
}

void Block::note(u64 address, bool writes) {
  const auto [begin, end] = DeviceMemory::get().block(address);
  order_access(begin, writes, "kernel " + kernel.name);
  Used& last = used[address >> 12 & 15];
  last = {begin, end, writes || (last.begin == begin && last.writes)};
}

void Block::run() {
  const u32 n = u32(warps.size());
  Schedule& s = schedule();
  std::vector<u32> order = order_of(n);
  for (;;) {
    bool any = false;
    if (s.order == Order::random && n > 1) {
      std::shuffle(order.begin(), order.end(), s.random);
      for (u32 k : order)
        if (warps[k].state == Warp::ready) {
          any = true;
          run_warp(warps[k], 1 + s.random() % 48);
        }
    } else {
      for (u32 k : order)
        if (warps[k].state == Warp::ready) {
          any = true;
          run_warp(warps[k], ~u64(0));
        }
    }
    if (!any && !release_barriers()) return;
  }
}

/// __syncthreads_count, _and, _or: reduces the predicates of all waiting threads, for each of them.
void Block::reduce_at_barrier(int barrier) {
  u32 count = 0, all = 0;
  auto here = [&](auto&& f) {
    for (Warp& w : warps)
      if (w.state == Warp::at_barrier && w.barrier == barrier && w.at->target > 0) f(w, *w.at);
  };
  here([&](Warp& w, const Instruction& i) {
    count += u32(__builtin_popcount((w.mask(i.s[2]) ^ u32(i.offset)) & w.lanes));
    all += u32(__builtin_popcount(w.lanes));
  });
  here([&](Warp& w, const Instruction& i) {
    if (i.target == 1) {
      each_lane<u32>(w, i.d, w.lanes, [&](int) { return count; });
    } else {
      set_predicate(w, i.d, w.lanes, (i.target == 2 ? count == all : count > 0) ? all_lanes : 0);
    }
    w.valid[i.valid_d] |= w.lanes;
  });
}

/// Releases the warps whose barrier is complete; false if all have ended.
bool Block::release_barriers() {
  bool waiting = false, released = false;
  for (const Warp& w : warps) {
    if (w.state != Warp::at_barrier) continue;
    waiting = true;
    const u32 expected = w.barrier_threads ? u32(w.barrier_threads) : threads;
    u32 there = 0;
    for (const Warp& o : warps)
      if (o.state == Warp::at_barrier && o.barrier == w.barrier)
        there += u32(w.barrier_threads ? 32 : __builtin_popcount(o.lanes));
    if (there < expected) continue;
    const int barrier = w.barrier;
    reduce_at_barrier(barrier);
    for (Warp& o : warps)
      if (o.state == Warp::at_barrier && o.barrier == barrier) {
        o.state = Warp::ready;
        ++o.epoch;
        released = true;
      }
    epoch = next_epoch++;
    break;
  }
  if (waiting && !released)
    for (const Warp& w : warps)
      if (w.state == Warp::at_barrier)
        fail(*w.at, w, 0, "barrier: threads wait here that others never reach");
  return waiting;
}

void count_lines(const Kernel& k) {
  for (size_t i = 0; i < k.code.size(); ++i)
    if (const Statement* s = k.code[i].source; s && k.executed[i] > 0)
      k.counters->lines[(s->where ? *s->where : "?") + '\t' + s->name()] += k.executed[i];
}

void run(const Launch& l) {
  before_launch(l);
  const auto start = std::chrono::steady_clock::now();
  Kernel& k = l.kernel;
  std::fill(k.executed.begin(), k.executed.end(), 0);
  ++k.counters->launches;
  if (next_tag > 0xf0000000u) {  // tags must not wrap around
    std::fprintf(stderr, "ptx: more than 4 billion blocks\n");
    std::abort();
  }
  auto finish = [&] {
    for (size_t i = 0; i < k.code.size(); ++i)
      k.counters->instructions[int(k.code[i].pipe)] += k.executed[i];
    if (counting_lines()) count_lines(k);
    k.counters->microseconds +=
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  };
  const u32 first = next_tag++;
  Block block(l);
  block.launch_tag = first;
  try {
    const u64 n = l.grid.count();
    const Schedule& s = schedule();
    std::vector<u32> order;
    if (s.order == Order::random && n <= (u64(1) << 24)) order = order_of(u32(n));
    u64 done = 0;  // instructions
    const u64 left_out = n - std::min(n, l.last_blocks);
    for (u64 b = 0; b < n; ++b) {
      const u64 at = !order.empty() ? order[b] : s.order == Order::backwards ? n - 1 - b : b;
      if (at < left_out) continue;
      if (counting()) block.caches.choose(at);
      block.start(u32(at % l.grid.x), u32(at / l.grid.x % l.grid.y),
                  u32(at / (u64(l.grid.x) * l.grid.y)));
      block.run();
      if (!counting()) continue;
      const u64 before =
          std::exchange(done, std::accumulate(k.executed.begin(), k.executed.end(), u64(0)));
      k.counters->work[at * std::min(Counters::shares, n) / n] += done - before;
    }
  } catch (...) {
    finish();
    throw;
  }
  finish();
  after_launch(l);
}

}  // namespace interpreter
