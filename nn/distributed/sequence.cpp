#include "nn/distributed/sequence.h"

#include <algorithm>
#include <utility>

#include "autograd/tape.h"
#include "core/error.h"
#include "ops/attention/attention_implementations.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/view.h"

namespace stretto::nn {
namespace {

void check_of_whole(const char* op, const AttentionOptions& o) {
  check(o.mask.is_causal() && !o.mask.key_padding.defined() && o.dropout == 0, op,
        "a sequence over processes is causal, without key_padding and dropout of the weights");
}

void check_once(const char* op) { check(!grad_enabled(), op, "has no gradient of its gradient"); }

// Of those before this process (or after it, with `later`). Each round exchanges the sums of blocks
// of 1, 2, 4 … processes with the block beside.
Tensor sum_of_others(const Tensor& x, bool later, ProcessGroup& group) {
  const NoGrad guard;
  Tensor block = x.detach().clone(), others = zeros_like(block);
  const Tensor theirs = empty_like(block);
  const size_t bytes = size_t(block.numel() * item_size(block.dtype()));
  for (int bit = 1; bit < group.size(); bit <<= 1) {
    group.send_recv(group.rank() ^ bit, block.raw_data(), bytes, theirs.raw_data(), bytes);
    const bool they_are_later = !(group.rank() & bit);
    if (they_are_later == later) others = others + theirs;
    block = block + theirs;
  }
  return others;
}

// x goes to a process, or what has its shape comes from there.
void send(const Tensor& x, int peer, ProcessGroup& group) {
  const Tensor rows = x.detach().contiguous();
  group.send_recv(peer, rows.raw_data(), size_t(rows.numel() * item_size(rows.dtype())), nullptr,
                  0);
}
Tensor receive(const Tensor& like, int peer, ProcessGroup& group) {
  Tensor rows = empty(like.shape(), options_of(like));
  group.send_recv(peer, nullptr, 0, rows.raw_data(),
                  size_t(rows.numel() * item_size(rows.dtype())));
  return rows;
}

// Of this process's queries to keys that begin `back` positions before them.
AttentionWithLse of_block(AttentionOperands x, int64_t back) {
  const int64_t m = x.q.size(2);
  AttentionOptions& o = x.options;
  o.mask.causal = back == 0;
  for (RelativeTable* table : {&o.relative_keys, &o.relative_values, &o.relative_bias})
    if (table->defined() && back > 0)
      *table = {.rows = relative_rows(*table, 1 - m - back, 2 * m - 1), .zero_row = m - 1};
  return attention_with_lse(x.q, x.k, x.v, o);
}

// Two parts of the keys together: l = log(e^a + e^b), out = e^(a − l) out_a + e^(b − l) out_b.
AttentionWithLse joined(const AttentionWithLse& a, const AttentionWithLse& b) {
  const Tensor top = maximum(a.lse, b.lse);
  const Tensor l = top + log(exp(a.lse - top) + exp(b.lse - top));
  const auto share = [&](const AttentionWithLse& x) {
    return x.out * exp(x.lse - l).unsqueeze(-1);
  };
  return {share(a) + share(b), l};
}

AttentionWithLse of_all_blocks(AttentionOperands x, ProcessGroup& group) {
  const NoGrad guard;
  const Tensor k = x.k, v = x.v;
  AttentionWithLse all = of_block(x, 0);
  for (int turn = 1; turn < group.size(); ++turn) {
    const int peer = group.rank() ^ turn;
    if (peer > group.rank()) {
      send(k, peer, group), send(v, peer, group);
    } else {
      x.k = receive(k, peer, group), x.v = receive(v, peer, group);
      all = joined(all, of_block(x, (group.rank() - peer) * k.size(2)));
    }
  }
  return all;
}

// With w = e^(l_b − l), block b's share: the gradient of out_b is w g, that of l_b is
// w (g·out_b − g·out).
AttentionOperands block_gradients(AttentionOperands x, int64_t back, const AttentionWithLse& whole,
                                  const Tensor& g) {
  Tensors leaves;
  x.for_each_tensor([&](Tensor& t) {
    if (!t.defined()) return;
    t = t.detach().set_requires_grad();
    leaves.push_back(t);
  });
  AttentionWithLse block;
  {
    const GradMode recorded(true);
    block = of_block(x, back);
  }
  const NoGrad guard;
  const Tensor out = block.out.detach(), w = exp(block.lse.detach() - whole.lse);
  const Tensors found = grad({block.out, block.lse}, leaves,
                             {g * w.unsqueeze(-1), w * sum(g * (out - whole.out), {-1})});
  x.for_each_tensor([next = found.begin()](Tensor& t) mutable {
    if (t.defined()) t = *next++;
  });
  return x;
}

Tensors gradients_of_all_blocks(AttentionOperands x, const AttentionWithLse& whole, const Tensor& g,
                                ProcessGroup& group) {
  const NoGrad guard;
  const Tensor k = x.k, v = x.v;
  AttentionOperands all = block_gradients(x, 0, whole, g);
  for (int turn = 1; turn < group.size(); ++turn) {
    const int peer = group.rank() ^ turn;
    if (peer > group.rank()) {
      send(k, peer, group), send(v, peer, group);
      for (Tensor* t : {&all.k, &all.v}) *t = *t + receive(*t, peer, group);
      continue;
    }
    x.k = receive(k, peer, group), x.v = receive(v, peer, group);
    AttentionOperands more = block_gradients(x, (group.rank() - peer) * k.size(2), whole, g);
    for (Tensor* t : {&more.k, &more.v}) {
      send(*t, peer, group);
      *t = {};
    }
    const Tensors others = more.tensors();
    all.for_each_tensor([at = others.begin()](Tensor& t) mutable {
      if (const Tensor& other = *at++; other.defined()) t = t.defined() ? t + other : other;
    });
  }
  return all.tensors();
}

// What goes along a chain of processes, each giving to one neighbour and taking from the other:
// those of odd rank take first, so that nobody waits for more than a neighbour.
template <class Give, class Take>
void along_chain(const ProcessGroup& group, Give give, Take take) {
  const bool odd = group.rank() % 2 != 0;
  if (odd) take();
  give();
  if (!odd) take();
}

// How the last n positions before a piece of m get to it: whole pieces in turns 1, 2, …, each the
// one that the neighbour has got in the turn before, and of the last turn's no more than needed.
struct EarlierRows {
  int64_t m, n;
  ProcessGroup& group;

  int turns() const {
    return n == 0 ? 0 : int(std::min<int64_t>((n + m - 1) / m, group.size() - 1));
  }
  /// The first of the rows that a turn brings, of a piece.
  int64_t begin(int turn) const { return std::max<int64_t>(0, m * turn - n); }
  bool takes(int turn) const { return group.rank() >= turn; }
  bool gives(int turn) const { return group.rank() >= turn - 1 && group.rank() + 1 < group.size(); }
};

// x [B, G, M, D] after those rows: as many as there are.
Tensor with_earlier_rows(const Tensor& x, const EarlierRows& all) {
  const NoGrad guard;
  Tensors pieces{x.detach()};
  for (int turn = 1; turn <= all.turns(); ++turn) {
    const Tensor newest = pieces.back();
    const auto rows = [&](const Tensor& piece) { return piece.slice(2, all.begin(turn), all.m); };
    along_chain(
        all.group,
        [&] {
          if (all.gives(turn)) send(rows(newest), all.group.rank() + 1, all.group);
        },
        [&] {
          if (all.takes(turn)) pieces.push_back(receive(rows(x), all.group.rank() - 1, all.group));
        });
  }
  std::reverse(pieces.begin(), pieces.end());
  return cat(pieces, 2);
}

// The way back: a piece's gradient goes to whom it came from, and is added there.
Tensor earlier_rows_gradient(const Tensor& g, const EarlierRows& all) {
  const NoGrad guard;
  int64_t end = g.size(2);
  Tensors pieces;
  for (int turn = 0; turn <= all.turns() && all.takes(turn); ++turn) {
    const int64_t begin = end - (turn == 0 ? all.m : all.m - all.begin(turn));
    pieces.push_back(g.slice(2, begin, end).clone());
    end = begin;
  }
  for (int turn = all.turns(); turn >= 1; --turn)
    along_chain(
        all.group,
        [&] {
          if (all.takes(turn)) send(pieces[size_t(turn)], all.group.rank() - 1, all.group);
        },
        [&] {
          if (!all.gives(turn)) return;
          const Tensor& piece = pieces[size_t(turn) - 1];
          const Tensor rows = piece.slice(2, all.begin(turn), all.m);
          rows.copy_(rows + receive(rows, all.group.rank() + 1, all.group));
        });
  return pieces[0];
}

// With a window or blocks: how many keys before a process's m positions these see, the most of all
// processes and this one's. They begin where a block does.
std::pair<int64_t, int64_t> earlier_keys(int64_t m, const AttentionMask& mask,
                                         const ProcessGroup& group) {
  const auto of = [&](int rank) {
    const int64_t first = rank * m;
    return std::min(first, mask.block > 0 ? first % mask.block + mask.block : mask.window - 1);
  };
  int64_t most = 0;
  for (int rank = 0; rank < group.size(); ++rank) most = std::max(most, of(rank));
  return {most, of(group.rank())};
}

}  // namespace

Tensor exclusive_prefix_sum(const Tensor& x, ProcessGroup& group) {
  check(x.device().is_cpu() && (x.dtype() == f32 || x.dtype() == f64), "exclusive_prefix_sum",
        "got ", x, "; accepted: f32 and f64 on the CPU");
  return record("exclusive_prefix_sum", {x}, sum_of_others(x.contiguous(), false, group),
                [&group](Backward& b) {
                  check_once("exclusive_prefix_sum");
                  return Tensors{sum_of_others(b.grad().contiguous(), true, group)};
                });
}

Tensor with_left_halo(const Tensor& x, int64_t n, ProcessGroup& group) {
  constexpr const char* op = "with_left_halo";
  check(x.dim() == 4 && x.device().is_cpu() && (x.dtype() == f32 || x.dtype() == f64), op, "got ",
        x, "; accepted: [B, G, M, D] in f32 and f64 on the CPU");
  check(n >= 0, op, n, " rows");
  const EarlierRows all{x.size(2), x.size(2) > 0 ? n : 0, group};
  return record(op, {x}, with_earlier_rows(x, all), [all](Backward& b) {
    check_once("with_left_halo");
    return Tensors{earlier_rows_gradient(b.grad(), all)};
  });
}

std::pair<Tensor, Tensor> gather_left_kv(const Tensor& k, const Tensor& v,
                                         const AttentionOptions& o, ProcessGroup& group) {
  check_of_whole("gather_left_kv", o);
  const int64_t n = (group.size() - 1) * k.size(2);
  // One after the other on all processes, and so backward.
  Tensor keys = with_left_halo(k, n, group);
  return {std::move(keys), with_left_halo(v, n, group)};
}

Tensor sequence_parallel_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                          LinearAttentionOptions options, ProcessGroup& group) {
  constexpr const char* op = "sequence_parallel_linear_attention";
  check_linear_attention(q, k, v, options);
  check(options.mask.causal && !options.mask.key_padding.defined(), op,
        "a sequence over processes is causal, without key_padding");
  check(q.size(2) == k.size(2), op, "q ", q, " and k ", k,
        "; a process has as many queries as keys");
  const auto wide = [](const Tensor& x) { return x.to(compute_type(x.dtype())); };
  const Tensor keys = wide(k), values = wide(v);
  const Tensor s = matmul(keys.transpose(-1, -2), values), z = sum(keys, {2});
  // Chunk by chunk, so that no more than chunk² products stand side by side.
  LinearState state{.sums = exclusive_prefix_sum(cat({s, z.unsqueeze(-1)}, 3), group)};
  options.implementation = Implementation::composed;
  Tensors y;
  for (int64_t i = 0; i < q.size(2); i += options.chunk) {
    const int64_t end = std::min(q.size(2), i + options.chunk);
    const auto rows = [&](const Tensor& x) { return x.slice(2, i, end); };
    y.push_back(linear_attention(rows(q), rows(k), rows(v), state, options));
  }
  return y.empty() ? linear_attention(q, k, v, options) : cat(y, 2);
}

Tensor sequence_parallel_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                   AttentionOptions o, ProcessGroup& group) {
  constexpr const char* op = "sequence_parallel_attention";
  check_of_whole(op, o);
  check(!o.bias.defined(), op,
        "a dense bias, of which each key has a column: gather_left_kv brings the keys "
        "(Position::is_dense)");
  check(q.size(2) == k.size(2), op, "q ", q, " and k ", k,
        "; a process has as many queries as keys");
  if (o.mask.window > 0 || o.mask.block > 0) {
    const auto [most, mine] = earlier_keys(q.size(2), o.mask, group);
    const auto rows = [&, most = most, mine = mine](const Tensor& x) {
      const Tensor all = with_left_halo(x, most, group);
      return all.slice(2, all.size(2) - mine - x.size(2), all.size(2));
    };
    return attention(q, rows(k), rows(v), o);
  }
  const int64_t past = q.size(2) * group.size() - 1;
  for (const RelativeTable* t : {&o.relative_keys, &o.relative_values, &o.relative_bias})
    check(!t->defined() || t->out_of_range != OutOfRange::error || t->zero_row >= past, op,
          "a table reaches from ", -t->zero_row, ", but relative positions from ", -past, " occur");
  const AttentionOperands x{q, k, v, std::move(o)};
  const AttentionWithLse whole = of_all_blocks(x, group);
  return record(
      op, x.tensors(), whole.out,
      [saved = SavedAttention(x), l = whole.lse, &group](Backward& b) {
        check_once("sequence_parallel_attention");
        return gradients_of_all_blocks(saved(), {b.output(), l}, b.grad(), group);
      },
      Keep::outputs);
}

}  // namespace stretto::nn
