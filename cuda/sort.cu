// Stable sorting of rows.
//
// Elements become unsigned keys of the same order; (key, position) is a total order, so that
// every element has exactly one place. Runs of up to 1024 elements are sorted in shared memory
// (bitonic sort, Batcher 1968), then merged in pairs: each element finds its rank in the other
// run by binary search. O(n log² n) comparisons, log2(n / 1024) passes over keys and positions.
// Tested against the CPU.
#include "cuda/runtime/common.cuh"
#include "cuda/sort.h"

namespace stretto::cuda {
namespace {

constexpr int run_size = 1024;

template <class T>
using key_t = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <class T>
__device__ inline key_t<T> key_of(T x, bool descending) {
  using Key = key_t<T>;
  Key key;
  if constexpr (std::is_same_v<T, int64_t>) {
    key = Key(x) ^ (Key(1) << 63);
  } else {
    const compute_t<T> v = cast<compute_t<T>>(x) + compute_t<T>(0);  // −0 is 0
    constexpr Key sign = Key(1) << (8 * sizeof(Key) - 1);
    if constexpr (sizeof(Key) == 8) {
      key = Key(__double_as_longlong(v));
    } else {
      key = __float_as_uint(v);
    }
    key = v != v ? ~Key(0) : key & sign ? ~key : key | sign;
  }
  return descending ? ~key : key;
}

template <class Key>
__device__ inline bool before(Key a, uint32_t i, Key b, uint32_t j) {
  return a < b || (a == b && i < j);
}

/// The place of element i of a run in shared memory. In every other row of the banks the order is
/// reversed, so that the lower elements of the pairs at distance 1, 2, 4 … are in different banks,
/// and so are the upper ones.
template <class Word>
__device__ inline int slot(int i) {
  constexpr int banks = 128 / int(sizeof(Word));
  return i & banks ? i ^ (banks - 1) : i;
}

/// keys, order [rows, n]: sorts each run of `size` elements (a power of two, 2 ·
/// blockDim.x) of a row.
template <class T>
__global__ void sort_runs(key_t<T>* keys, uint32_t* order, const T* x, int64_t items, int64_t runs,
                          int64_t n, int size, bool descending) {
  using Key = key_t<T>;
  __shared__ Key memory[run_size + run_size * sizeof(uint32_t) / sizeof(Key)];
  Key* const key = memory;
  uint32_t* const at = reinterpret_cast<uint32_t*>(memory + run_size);
#pragma unroll 1
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int64_t row = runs == 1 ? item : item / runs;
    const int64_t first = (item - row * runs) * size;
    // No barrier: a thread overwrites only those elements of the last run that
    // it has itself stored.
    for (int i = threadIdx.x; i < size; i += blockDim.x) {
      const bool in_range = first + i < n;
      key[slot<Key>(i)] = in_range ? key_of(x[row * n + first + i], descending) : ~Key(0);
      at[slot<uint32_t>(i)] = in_range ? uint32_t(first + i) : ~uint32_t(0);
    }
#pragma unroll 1
    for (int width = 2; width <= size; width *= 2) {
#pragma unroll 1
      for (int step = width / 2; step > 0; step /= 2) {
        __syncthreads();
        const int low = 2 * int(threadIdx.x) - (int(threadIdx.x) & (step - 1)), high = low + step;
        const bool rising = (low & width) == 0;
        Key &a = key[slot<Key>(low)], &b = key[slot<Key>(high)];
        uint32_t &i = at[slot<uint32_t>(low)], &j = at[slot<uint32_t>(high)];
        if (before(b, j, a, i) == rising) {
          const Key k = a;
          a = b;
          b = k;
          const uint32_t p = i;
          i = j;
          j = p;
        }
      }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < size && first + i < n; i += blockDim.x) {
      keys[row * n + first + i] = key[slot<Key>(i)];
      order[row * n + first + i] = at[slot<uint32_t>(i)];
    }
  }
}

/// Merges runs of `width` elements (a power of two) in pairs: from `keys` and
/// `order` to the others.
template <class Key>
__global__ void merge_runs(Key* to_keys, uint32_t* to_order, const Key* keys, const uint32_t* order,
                           uint64_t total, Divider n, uint64_t width) {
#pragma unroll 1
  for (uint64_t i = thread_index(); i < total; i += thread_count()) {
    const uint64_t row = n.quotient(i), start = row * n.size, place = i - start;
    const uint64_t pair = place & ~(2 * width - 1), mine = place & ~(width - 1);
    const uint64_t other = mine == pair ? pair + width : pair;
    const Key key = keys[i];
    const uint32_t at = order[i];
    uint64_t low = other < n.size ? other : n.size;
    uint64_t high = other + width < n.size ? other + width : n.size;
    const uint64_t first = low;
    while (low < high) {
      const uint64_t middle = (low + high) / 2;
      if (before(keys[start + middle], order[start + middle], key, at)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    const uint64_t to = start + pair + (place - mine) + (low - first);
    to_keys[to] = key;
    to_order[to] = at;
  }
}

/// Converts keys [n] back to integers, in place.
__global__ void from_keys(int64_t* keys, uint64_t n, bool descending) {
#pragma unroll 1
  for (uint64_t i = thread_index(); i < n; i += thread_count()) {
    const uint64_t key = uint64_t(keys[i]);
    keys[i] = int64_t((descending ? ~key : key) ^ (uint64_t(1) << 63));
  }
}

/// values, indices [rows, k] of x [rows, n] by `order` [rows, n]
template <class T>
__global__ void take_first(T* values, int64_t* indices, const T* x, const uint32_t* order,
                           uint64_t total, uint64_t n, Divider k) {
#pragma unroll 1
  for (uint64_t i = thread_index(); i < total; i += thread_count()) {
    const uint64_t row = k.quotient(i);
    const uint32_t at = order[row * n + (i - row * k.size)];
    indices[i] = int64_t(at);
    values[i] = x[row * n + at];
  }
}

/// counts [total]: the number of elements of sorted [n] before values [total]
template <class T>
__global__ void search(int64_t* counts, const T* sorted, uint64_t n, const T* values,
                       uint64_t total, bool right) {
#pragma unroll 1
  for (uint64_t i = thread_index(); i < total; i += thread_count()) {
    const auto key = key_of(values[i], false);
    uint64_t low = 0, high = n;
    while (low < high) {
      const uint64_t middle = (low + high) / 2;
      const auto other = key_of(sorted[middle], false);
      if (other < key || (right && other == key)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    counts[i] = int64_t(low);
  }
}

constexpr int threads = 256;

}  // namespace

Tensor sort_order(const Tensor& x, bool descending, Tensor* sorted) {
  const int64_t n = x.dim() == 0 ? 1 : x.size(-1), rows = n == 0 ? 0 : x.numel() / n;
  check(n < int64_t(1) << 32, "sort", "rows of ", n, " elements; on CUDA at most 2^32 − 1");
  const int device = x.device().index;
  Tensor order = empty({rows, n}, {.dtype = i32, .device = x.device()});
  Tensor keys =
      empty({rows, n}, {.dtype = item_size(x.dtype()) == 8 ? i64 : i32, .device = x.device()});
  if (sorted) *sorted = keys;
  if (x.numel() == 0) return order;
  int size = 64;
  while (size < run_size && size < n) size *= 2;
  const int64_t runs = ceil_div(n, size);
  dispatch_number(x.dtype(), "sort", [&]<class T>() {
    using Key = key_t<T>;
    auto keys_of = [](const Tensor& t) { return static_cast<Key*>(t.raw_data()); };
    auto order_of = [](const Tensor& t) { return static_cast<uint32_t*>(t.raw_data()); };
    launch("sort", device, sort_runs<T>, blocks_for(rows * runs, 1), unsigned(size / 2),
           keys_of(keys), order_of(order), static_cast<const T*>(x.data<T>()), rows * runs, runs, n,
           size, descending);
    if (runs == 1) return;
    Tensor other_keys = empty_like(keys), other_order = empty_like(order);
    for (int64_t width = size; width < n; width *= 2) {
      launch("sort", device, merge_runs<Key>, blocks_for(x.numel(), threads), threads,
             keys_of(other_keys), order_of(other_order), static_cast<const Key*>(keys_of(keys)),
             static_cast<const uint32_t*>(order_of(order)), uint64_t(x.numel()), Divider(n),
             uint64_t(width));
      std::swap(keys, other_keys);
      std::swap(order, other_order);
    }
  });
  if (sorted) {
    launch("sort", device, from_keys, blocks_for(x.numel(), threads), threads, keys.data<int64_t>(),
           uint64_t(x.numel()), descending);
    *sorted = keys;
  }
  return order;
}

void sort_rows(const Tensor& x, bool descending, const Tensor& values, const Tensor& indices) {
  if (values.numel() == 0) return;
  const Tensor order = sort_order(x, descending, nullptr);
  dispatch_number(x.dtype(), "sort", [&]<class T>() {
    launch("sort", x.device().index, take_first<T>, blocks_for(values.numel(), threads), threads,
           values.data<T>(), indices.data<int64_t>(), static_cast<const T*>(x.data<T>()),
           static_cast<const uint32_t*>(order.raw_data()), uint64_t(values.numel()),
           uint64_t(x.numel() / order.size(0)), Divider(values.numel() / order.size(0)));
  });
}

Tensor search_sorted(const Tensor& sorted, const Tensor& values, bool right) {
  Tensor counts = empty(values.shape(), {.dtype = i64, .device = values.device()});
  if (counts.numel() == 0) return counts;
  dispatch_number(values.dtype(), "searchsorted", [&]<class T>() {
    launch("searchsorted", values.device().index, search<T>, blocks_for(counts.numel(), threads),
           threads, counts.data<int64_t>(), static_cast<const T*>(sorted.data<T>()),
           uint64_t(sorted.numel()), static_cast<const T*>(values.data<T>()),
           uint64_t(counts.numel()), right);
  });
  return counts;
}

}  // namespace stretto::cuda
