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

void check_options(const char* op, const AttentionOptions& o) {
  const char* other = setting_besides(o.mask, {"causal", "window", "block", "key_padding"});
  if (!other && o.sinks.defined()) other = "sinks";
  check(!other, op, other ? other : "",
        " is not supported; accepted masks: causal, window and block");
  check(o.mask.is_causal() && !o.mask.key_padding.defined() && o.dropout == 0, op,
        "sequence parallelism needs a causal mask, no key_padding and no dropout of the weights");
}

void check_once(const char* op) { check(!grad_enabled(), op, "has no second derivative"); }

// Returns the sum over all lower ranks, or with `higher` over all higher ranks. In round b each
// rank has the sum over its aligned block of 2^b ranks, and exchanges it with rank XOR 2^b, which
// is in the adjacent block.
Tensor sum_of_others(const Tensor& x, bool higher, ProcessGroup& group) {
  const NoGrad guard;
  Tensor block = x.detach().clone(), others = zeros_like(block);
  const Tensor received = empty_like(block);
  const size_t bytes = size_t(block.numel() * item_size(block.dtype()));
  for (int bit = 1; bit < group.size(); bit <<= 1) {
    group.send_recv(group.rank() ^ bit, block.raw_data(), bytes, received.raw_data(), bytes);
    const bool peer_is_higher = !(group.rank() & bit);
    if (peer_is_higher == higher) others = others + received;
    block = block + received;
  }
  return others;
}

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

// Computes attention of this rank's queries to a block of keys; the block begins `back` positions
// before the first query.
AttentionWithLse block_attention(AttentionOperands x, int64_t back) {
  const int64_t m = x.q.size(2);
  AttentionOptions& o = x.options;
  o.mask.causal = back == 0;
  for (RelativeTable* table : {&o.relative_keys, &o.relative_values, &o.relative_bias})
    if (table->defined() && back > 0)
      *table = {.rows = relative_rows(*table, 1 - m - back, 2 * m - 1), .zero_row = m - 1};
  return attention_with_lse(x.q, x.k, x.v, o);
}

// Merges attention to two blocks of keys. With la and lb the logarithms of their sums of
// exponentials (lse): l = log(e^la + e^lb), out = e^(la − l) out_a + e^(lb − l) out_b.
AttentionWithLse merged(const AttentionWithLse& a, const AttentionWithLse& b) {
  const Tensor top = maximum(a.lse, b.lse);
  const Tensor l = top + log(exp(a.lse - top) + exp(b.lse - top));
  const auto weighted = [&](const AttentionWithLse& x) {
    return x.out * exp(x.lse - l).unsqueeze(-1);
  };
  return {weighted(a) + weighted(b), l};
}

// In turn t ranks r and r XOR t are paired: the lower rank sends its keys and values to the higher.
AttentionWithLse all_blocks_attention(AttentionOperands x, ProcessGroup& group) {
  const NoGrad guard;
  const Tensor k = x.k, v = x.v;
  AttentionWithLse all = block_attention(x, 0);
  for (int turn = 1; turn < group.size(); ++turn) {
    const int peer = group.rank() ^ turn;
    if (peer > group.rank()) {
      send(k, peer, group), send(v, peer, group);
    } else {
      x.k = receive(k, peer, group), x.v = receive(v, peer, group);
      all = merged(all, block_attention(x, (group.rank() - peer) * k.size(2)));
    }
  }
  return all;
}

// Returns the gradients through one block b. With g the gradient of the merged output and
// w = e^(l_b − l) the weight of the block, the gradient of out_b is w g, and the gradient of l_b is
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
    block = block_attention(x, back);
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

Tensors all_block_gradients(AttentionOperands x, const AttentionWithLse& whole, const Tensor& g,
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
    AttentionOperands block = block_gradients(x, (group.rank() - peer) * k.size(2), whole, g);
    for (Tensor* t : {&block.k, &block.v}) {
      send(*t, peer, group);
      *t = {};
    }
    const Tensors others = block.tensors();
    all.for_each_tensor([at = others.begin()](Tensor& t) mutable {
      if (const Tensor& other = *at++; other.defined()) t = t.defined() ? t + other : other;
    });
  }
  return all.tensors();
}

// A shift along the ranks: each rank sends to one adjacent rank and receives from the other one.
// Odd ranks receive first, so that all pairs exchange in parallel and no rank waits for a chain of
// others.
template <class Send, class Receive>
void shift(const ProcessGroup& group, Send send_rows, Receive receive_rows) {
  const bool odd = group.rank() % 2 != 0;
  if (odd) receive_rows();
  send_rows();
  if (!odd) receive_rows();
}

// The exchange that gives each rank r the n positions before its chunk of m positions (fewer if the
// lower ranks have fewer). In turn t each rank sends the chunk that it received in turn t − 1, and
// receives the chunk of rank r − t. The last turn transfers only the rows that are needed.
struct HaloExchange {
  int64_t m, n;
  ProcessGroup& group;

  int turns() const {
    return n == 0 ? 0 : int(std::min<int64_t>((n + m - 1) / m, group.size() - 1));
  }
  // The first row of a chunk that a turn needs.
  int64_t begin(int turn) const { return std::max<int64_t>(0, m * turn - n); }
  bool receives(int turn) const { return group.rank() >= turn; }
  bool sends(int turn) const { return group.rank() >= turn - 1 && group.rank() + 1 < group.size(); }
};

// Returns x [B, G, M, D] with its halo before it; the halo is shorter if the lower ranks have fewer
// than n positions.
Tensor add_halo(const Tensor& x, const HaloExchange& halo) {
  const NoGrad guard;
  Tensors chunks{x.detach()};
  for (int turn = 1; turn <= halo.turns(); ++turn) {
    const Tensor newest = chunks.back();
    const auto rows = [&](const Tensor& chunk) { return chunk.slice(2, halo.begin(turn), halo.m); };
    shift(
        halo.group,
        [&] {
          if (halo.sends(turn)) send(rows(newest), halo.group.rank() + 1, halo.group);
        },
        [&] {
          if (halo.receives(turn))
            chunks.push_back(receive(rows(x), halo.group.rank() - 1, halo.group));
        });
  }
  std::reverse(chunks.begin(), chunks.end());
  return cat(chunks, 2);
}

// The backward pass: the gradient of a halo chunk is sent back to the rank that owns the chunk and
// is added there.
Tensor halo_gradient(const Tensor& g, const HaloExchange& halo) {
  const NoGrad guard;
  int64_t end = g.size(2);
  Tensors chunks;
  for (int turn = 0; turn <= halo.turns() && halo.receives(turn); ++turn) {
    const int64_t begin = end - (turn == 0 ? halo.m : halo.m - halo.begin(turn));
    chunks.push_back(g.slice(2, begin, end).clone());
    end = begin;
  }
  for (int turn = halo.turns(); turn >= 1; --turn)
    shift(
        halo.group,
        [&] {
          if (halo.receives(turn)) send(chunks[size_t(turn)], halo.group.rank() - 1, halo.group);
        },
        [&] {
          if (!halo.sends(turn)) return;
          const Tensor& chunk = chunks[size_t(turn) - 1];
          const Tensor rows = chunk.slice(2, halo.begin(turn), halo.m);
          rows.copy_(rows + receive(rows, halo.group.rank() + 1, halo.group));
        });
  return chunks[0];
}

// With a window or blocks: returns the number of keys before a rank's own m positions that its
// queries may attend to, as {maximum over all ranks, number of this rank}. With blocks, the first
// of these keys is the first one of a block.
std::pair<int64_t, int64_t> halo_sizes(int64_t m, const AttentionMask& mask,
                                       const ProcessGroup& group) {
  const auto of = [&](int rank) {
    const int64_t first = rank * m;
    if (mask.block > first) return first;
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
  check(n >= 0, op, n, " positions; must be ≥ 0");
  const HaloExchange halo{x.size(2), x.size(2) > 0 ? n : 0, group};
  return record(op, {x}, add_halo(x, halo), [halo](Backward& b) {
    check_once("with_left_halo");
    return Tensors{halo_gradient(b.grad(), halo)};
  });
}

std::pair<Tensor, Tensor> gather_left_kv(const Tensor& k, const Tensor& v,
                                         const AttentionOptions& o, ProcessGroup& group) {
  check_options("gather_left_kv", o);
  const int64_t n = (group.size() - 1) * k.size(2);
  // Separate statements: in one expression the order of the two calls is unspecified, and all
  // processes must make and differentiate them in the same order.
  Tensor keys = with_left_halo(k, n, group);
  return {std::move(keys), with_left_halo(v, n, group)};
}

Tensor sequence_parallel_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                          LinearAttentionOptions options, ProcessGroup& group) {
  constexpr const char* op = "sequence_parallel_linear_attention";
  check_linear_attention(q, k, v, options);
  check(options.mask.causal && !options.mask.key_padding.defined(), op,
        "sequence parallelism needs a causal mask and no key_padding");
  check(q.size(2) == k.size(2), op, "q ", q, " and k ", k,
        "; each rank needs as many queries as keys");
  const auto in_sum_dtype = [](const Tensor& x) { return x.to(compute_type(x.dtype())); };
  const Tensor keys = in_sum_dtype(k), values = in_sum_dtype(v);
  const Tensor s = matmul(keys.transpose(-1, -2), values), z = sum(keys, {2});
  // Chunk by chunk, so that only chunk² scores exist at a time.
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
  check_options(op, o);
  check(!o.bias.defined(), op,
        "a dense bias (from an encoding with PositionalEncoding::is_dense) is not supported; use "
        "gather_left_kv");
  check(q.size(2) == k.size(2), op, "q ", q, " and k ", k,
        "; each rank needs as many queries as keys");
  if (o.mask.window > 0 || o.mask.block > 0) {
    const auto [most, own] = halo_sizes(q.size(2), o.mask, group);
    const auto rows = [&, most = most, own = own](const Tensor& x) {
      const Tensor all = with_left_halo(x, most, group);
      return all.slice(2, all.size(2) - own - x.size(2), all.size(2));
    };
    return attention(q, rows(k), rows(v), o);
  }
  const int64_t past = q.size(2) * group.size() - 1;
  for (const RelativeTable* t : {&o.relative_keys, &o.relative_values, &o.relative_bias})
    check(!t->defined() || t->out_of_range != OutOfRange::error || t->zero_row >= past, op,
          "a table begins at relative position ", -t->zero_row, ", but position ", -past,
          " is needed");
  const AttentionOperands x{q, k, v, std::move(o)};
  const AttentionWithLse whole = all_blocks_attention(x, group);
  return record(
      op, x.tensors(), whole.out,
      [saved = SavedAttention(x), l = whole.lse, &group](Backward& b) {
        check_once("sequence_parallel_attention");
        return all_block_gradients(saved(), {b.output(), l}, b.grad(), group);
      },
      Keep::outputs);
}

}  // namespace stretto::nn
