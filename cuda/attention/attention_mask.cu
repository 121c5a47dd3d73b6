// Fused attention: summaries of the masks that are tensors (attention_mask.cuh). Read and reduced a
// block of 32 keys per warp; no sums. Tested against the CPU, with random masks.
#include "cuda/attention/attention.cuh"
#include "cuda/attention/attention_mask.cuh"

namespace stretto::cuda {
namespace {

constexpr int block = TensorMask::block, warps = 8;
constexpr uint32_t all_lanes = 0xffffffffu;

/// lowest, highest and any_global [B, blocks] from segments [B, N, words] and global [B, N]; null:
/// not wanted. One warp per block of keys.
__global__ void __launch_bounds__(warps * 32)
    attention_key_blocks(int64_t* lowest, int64_t* highest, uint8_t* any_global,
                         const int* segments, int words, const uint8_t* global, int n, int blocks,
                         int64_t batch) {
  const int64_t to = thread_index() / 32, b = to / blocks;
  if (b >= batch) return;
  const int x = int(to - b * blocks);
  const int64_t key = b * n + min(x * block + int(threadIdx.x) % 32, n - 1);
  if (segments) {
    const int64_t id = words == 1 ? segments[key] : reinterpret_cast<const int64_t*>(segments)[key];
    int64_t low = id, high = id;
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      low = min(low, int64_t(__shfl_xor_sync(all_lanes, low, lanes)));
      high = max(high, int64_t(__shfl_xor_sync(all_lanes, high, lanes)));
    }
    if (threadIdx.x % 32 == 0) lowest[to] = low, highest[to] = high;
  }
  if (global) {
    const bool any = __any_sync(all_lanes, global[key] != 0);
    if (threadIdx.x % 32 == 0) any_global[to] = any;
  }
}

/// sights [units, rows of blocks, columns of blocks] from hidden [units, m, n], the units being
/// [batch, heads]. One warp per tile.
__global__ void __launch_bounds__(warps * 32)
    attention_hidden_blocks(uint8_t* sights, Scores hidden, int64_t units, int heads, int m, int n,
                            int rows, int columns) {
  const int64_t to = thread_index() / 32, tiles = int64_t(rows) * columns;
  const int unit = int(to / tiles), tile = int(to - unit * tiles);
  if (to >= units * tiles) return;
  const int y = tile / columns, x = tile % columns;
  const int key = min(x * block + int(threadIdx.x) % 32, n - 1);
  const uint8_t* const from = hidden.of<const uint8_t>(unit / heads, unit % heads);
  bool any = false, all = true;
#pragma unroll 4
  for (int r = 0; r < block; ++r) {
    const int query = min(y * block + r, m - 1);
    const bool seen = from[query * hidden.query + key * hidden.key] == 0;
    any = any || seen;
    all = all && seen;
  }
  any = __any_sync(all_lanes, any);
  all = __all_sync(all_lanes, all);
  if (threadIdx.x % 32 == 0)
    sights[to] = uint8_t(all ? Sight::all : any ? Sight::some : Sight::none);
}

void summarize_keys(TensorMask& mask, int64_t batch, Device device, Tensors& kept) {
  const auto make = [&](DType type) {
    kept.push_back(empty({batch, mask.blocks}, {.dtype = type, .device = device}));
    return kept.back();
  };
  int64_t *lowest = nullptr, *highest = nullptr;
  uint8_t* any_global = nullptr;
  if (mask.segments) lowest = make(i64).data<int64_t>(), highest = make(i64).data<int64_t>();
  if (mask.global) any_global = make(u8).data<uint8_t>();
  launch("attention", device.index, attention_key_blocks,
         unsigned(ceil_div(batch * mask.blocks, int64_t(warps))), warps * 32, lowest, highest,
         any_global, mask.segments, mask.words, mask.global, mask.n, mask.blocks, batch);
  mask.lowest = lowest, mask.highest = highest, mask.any_global = any_global;
}

void summarize_hidden(TensorMask& mask, const Tensor& hidden, Tensors& kept) {
  const int64_t batch = hidden.size(0), heads = hidden.size(1), m = hidden.size(2),
                n = hidden.size(3), rows = ceil_div(m, int64_t(block)),
                columns = ceil_div(n, int64_t(block));
  const Tensor sights =
      empty({batch, heads, rows, columns}, {.dtype = u8, .device = hidden.device()});
  kept.push_back(sights);
  launch("attention", hidden.device().index, attention_hidden_blocks,
         unsigned(ceil_div(sights.numel(), int64_t(warps))), warps * 32, sights.data<uint8_t>(),
         mask.hidden, batch * heads, int(heads), int(m), int(n), int(rows), int(columns));
  mask.sights = scores_of(sights);
}

}  // namespace

TensorMask tensor_mask(const AttentionOperands& inputs, bool summarized, Tensors& kept) {
  const AttentionMask& from = inputs.options.mask;
  TensorMask mask;
  mask.m = int(inputs.q.size(2));
  mask.n = int(inputs.k.size(2));
  mask.blocks = int(ceil_div(mask.n, block));
  if (from.prefix_lengths.defined()) mask.prefix = from.prefix_lengths.data<int64_t>();
  if (from.segments.defined()) {
    mask.segments = static_cast<const int*>(from.segments.raw_data());
    mask.words = from.segments.dtype() == i64 ? 2 : 1;
  }
  if (from.global_tokens.defined()) {
    mask.global = from.global_tokens.data<uint8_t>();
    mask.window = window_of(from.window);
    mask.after = window_of(from.window_after);
  }
  if (from.hidden.defined()) mask.hidden = scores_of(from.hidden);
  if (!summarized) return mask;
  if (mask.segments || mask.global) summarize_keys(mask, inputs.q.size(0), inputs.q.device(), kept);
  if (mask.hidden.data) summarize_hidden(mask, from.hidden, kept);
  return mask;
}

}  // namespace stretto::cuda
