#include "nn/attention/key_value_cache.h"

#include <algorithm>
#include <atomic>

#include "autograd/tape.h"
#include "core/all_or_nothing.h"
#include "ops/create.h"
#include "ops/indexing.h"

namespace stretto::nn {

// The buffer behind k and v. Several caches may be views of one buffer: the caches before and after
// a call, or copies that continue independently. The rows of a view never change: new rows are
// reserved once, by the first cache that asks.
struct KeyValueRoom {
  Tensor k, v;                // [B, G, capacity, D], [B, G, capacity, Dv]
  std::atomic<int64_t> used;  // number of reserved rows

  KeyValueRoom(Tensor keys, Tensor values, int64_t n)
      : k(std::move(keys)), v(std::move(values)), used(n) {}

  // Returns the first row of a cache in this buffer, or −1 if the cache has another buffer.
  int64_t begin_of(const KeyValueCache& cache) const {
    if (cache.k.shared_storage() != k.shared_storage() ||
        cache.v.shared_storage() != v.shared_storage())
      return -1;
    return (cache.k.offset() - k.offset()) / k.strides()[2];
  }
  bool take(int64_t begin, int64_t n) {
    return begin + n <= k.size(2) && used.compare_exchange_strong(begin, begin + n);
  }
  void show(KeyValueCache& cache, int64_t begin, int64_t end) const {
    cache.k = k.slice(2, begin, end);
    cache.v = v.slice(2, begin, end);
  }
};

namespace {

Shape with_rows(Shape shape, int64_t n) {
  shape[2] = n;
  return shape;
}

bool continues(const Tensor& x, const Tensor& more) {
  return more.dim() == 4 && x.dtype() == more.dtype() && x.device() == more.device() &&
         with_rows(x.shape(), 0) == with_rows(more.shape(), 0);
}

// Returns a new buffer with the rows of a cache and space for more. Because capacity grows by a
// quarter, all copies together cost a small multiple of the last copy.
std::shared_ptr<KeyValueRoom> room_for(const KeyValueCache& cache, int64_t more) {
  const int64_t have = cache.k.size(2), n = have + more;
  const int64_t capacity = n + std::max<int64_t>(n / 4, 32);
  const auto larger = [&](const Tensor& x) {
    Tensor y = empty(with_rows(x.shape(), capacity), options_of(x));
    y.slice(2, 0, have).copy_(x);
    y.slice(2, have).zero_();  // reorder() copies unreserved rows too
    return y;
  };
  return std::make_shared<KeyValueRoom>(larger(cache.k), larger(cache.v), n);
}

// Returns the tensors, or copies if they are parts of a larger block of memory, as with the queries
// (linear() of several weights), which the cache would keep.
Tensors without_block(const Tensors& keys_and_values) {
  int64_t bytes = 0;
  for (const Tensor& x : keys_and_values) bytes += x.numel() * item_size(x.dtype());
  Tensors own = keys_and_values;
  for (Tensor& x : own)
    if (x.storage().whole && x.storage().bytes > bytes) x = x.clone();
  return own;
}

}  // namespace

void claim(const char* op, KeyValueCache& cache, const Module& layer) {
  check(cache.layer == 0 || cache.layer == layer.serial(), op,
        "the cache was filled by the layer with serial number ", cache.layer, ", but this one has ",
        layer.serial(),
        "; accepted: a cache that this layer of this model has filled, or an empty one");
  cache.layer = layer.serial();
}

void KeyValueCache::append(const Tensor& keys, const Tensor& values) {
  if (!k.defined()) {
    const Tensors own =
        recording({keys, values}) ? Tensors{keys, values} : without_block({keys, values});
    k = own[0];
    v = own[1];
    room = {};
    return;
  }
  const bool grows =  // in place; memory that the tape refers to must not change
      !recording({k, v, keys, values}) && continues(k, keys) && continues(v, values);
  if (!grows) {
    k = cat({k, keys}, 2);
    v = cat({v, values}, 2);
    room = {};
    return;
  }
  const int64_t have = k.size(2), more = keys.size(2);
  int64_t begin = room ? room->begin_of(*this) : -1;
  if (begin < 0 || !room->take(begin + have, more)) {
    room = room_for(*this, more);
    begin = 0;
  }
  const int64_t at = begin + have, end = at + more;
  room->k.slice(2, at, end).copy_(keys);
  room->v.slice(2, at, end).copy_(values);
  room->show(*this, begin, end);
}

void KeyValueCache::trim() {
  if (!k.defined() || limit == 0 || k.size(2) <= limit) return;
  if (kept == 0) return drop_before(dropped + k.size(2) - limit);
  const int64_t n = k.size(2) - limit;
  dropped += n;
  for (Tensor* const x : {&k, &v}) *x = cat({x->slice(2, 0, kept), x->slice(2, kept + n)}, 2);
  room = {};
}

void KeyValueCache::drop_before(int64_t first) {
  if (!k.defined() || first <= dropped) return;
  const int64_t n = std::min(first - dropped, k.size(2));
  dropped += n;
  k = k.slice(2, n);
  v = v.slice(2, n);
  if (room) return;
  k = k.contiguous();
  v = v.contiguous();
}

void KeyValueCache::reorder(const Tensor& rows) {
  all_or_nothing(*this, [&](KeyValueCache& after) {
    after.state.reorder(rows);
    ConvolutionHistories& h = after.histories;
    for (Tensor* const x : {&h.k, &h.v, &h.mixer, &h.network})
      if (x->defined()) *x = index_select(*x, 0, rows);
    if (prefix_lengths.defined()) after.prefix_lengths = index_select(prefix_lengths, 0, rows);
    if (!k.defined()) return;
    const int64_t begin = room ? room->begin_of(*this) : -1;
    if (begin < 0) {
      after.k = index_select(k, 0, rows);
      after.v = index_select(v, 0, rows);
      after.room = {};
      return;
    }
    const int64_t end = begin + k.size(2);
    after.room = std::make_shared<KeyValueRoom>(index_select(room->k, 0, rows),
                                                index_select(room->v, 0, rows), end);
    after.room->show(after, begin, end);
  });
}

}  // namespace stretto::nn
