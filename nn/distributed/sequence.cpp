#include "nn/distributed/sequence.h"

#include <algorithm>

#include "autograd/tape.h"
#include "core/error.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/view.h"

namespace stretto::nn {
namespace {

// Of those before this process (or after it, with `later`). Each round exchanges the sums of blocks
// of 1, 2, 4 … processes with the block beside.
Tensor sum_of_others(const Tensor& x, bool later, ProcessGroup& group) {
  const NoGrad guard;
  Tensor block = x.detach().clone(), others = zeros_like(block);
  const Tensor theirs = empty_like(block);
  const size_t bytes = size_t(block.numel() * item_size(block.dtype()));
  for (int bit = 1; bit < group.size(); bit <<= 1) {
    group.exchange(group.rank() ^ bit, block.raw_data(), bytes, theirs.raw_data(), bytes);
    const bool they_are_later = !(group.rank() & bit);
    if (they_are_later == later) others = others + theirs;
    block = block + theirs;
  }
  return others;
}

}  // namespace

Tensor sum_of_earlier(const Tensor& x, ProcessGroup& group) {
  check(x.device().is_cpu() && (x.dtype() == f32 || x.dtype() == f64), "sum_of_earlier", "got ", x,
        "; accepted: f32 and f64 on the CPU");
  return record(
      "sum_of_earlier", {x}, sum_of_others(x.contiguous(), false, group),
      [&group](Backward& b) { return Tensors{sum_of_others(b.grad().contiguous(), true, group)}; });
}

Tensor linear_attention_of_whole(const Tensor& q, const Tensor& k, const Tensor& v,
                                 LinearAttentionOptions options, ProcessGroup& group) {
  constexpr const char* op = "linear_attention_of_whole";
  check_linear_attention(q, k, v, options);
  check(options.mask.causal && !options.mask.key_padding.defined(), op,
        "a sequence over processes is causal, without key_padding");
  check(q.size(2) == k.size(2), op, "q ", q, " and k ", k,
        "; a process has as many queries as keys");
  const auto wide = [](const Tensor& x) { return x.dtype() == f64 ? x : x.to(f32); };
  const Tensor keys = wide(k), values = wide(v);
  const Tensor s = matmul(keys.transpose(-1, -2), values), z = sum(keys, {2});
  // Chunk by chunk, so that no more than chunk² products stand side by side.
  LinearState state{.sums = sum_of_earlier(cat({s, z.unsqueeze(-1)}, 3), group)};
  options.form = Form::composed;
  Tensors y;
  for (int64_t i = 0; i < q.size(2); i += options.chunk) {
    const int64_t end = std::min(q.size(2), i + options.chunk);
    const auto rows = [&](const Tensor& x) { return x.slice(2, i, end); };
    y.push_back(linear_attention(rows(q), rows(k), rows(v), state, options));
  }
  return y.empty() ? linear_attention(q, k, v, options) : cat(y, 2);
}

}  // namespace stretto::nn
