// The configuration of each kernel of fused attention for tiles: the launch table, tuned on an H200.
//
// There are kernels for f32 (3 parts) and, in bf16, for head dimensions up to 32, 64 and 128; for
// Positions; without dropout, where that is faster; and for masks that are tensors and the soft cap.
#pragma once

#include "cuda/attention/attention.cuh"

namespace stretto::cuda {

/// Calls f.operator()<Positions>() with the relative terms of the inputs, to select a kernel.
template <class F>
void with_positions(const AttentionArgs& a, const F& f) {
  if (a.value_table.count > 0 || a.has_terms())
    f.template operator()<Positions::all>();
  else if (!a.table.rows.data)
    f.template operator()<Positions::none>();
  else if (a.operands.p.data == a.operands.q.data)
    f.template operator()<Positions::shared>();
  else
    f.template operator()<Positions::separate>();
}
/// Calls f.operator()<tile_of(T)>(), where T has the members that follow from the inputs: positions,
/// head, parts, dropout and extended. d: the larger of D and Dv.
template <auto tile_of, class F>
void with_tile(const AttentionArgs& a, int64_t d, const F& f) {
  with_positions(a, [&]<Positions P>() {
    const auto for_head = [&]<bool Drops, bool Extended>() {
      // Kernels for all terms also serve separate position queries with extended masks.
      constexpr bool all = P == Positions::all || (Extended && P == Positions::separate);
      constexpr int small = all || Extended ? 64 : 32;
      const auto call = [&]<int Head, int Parts = 1>() {
        constexpr AttentionTile tile{.positions = all ? Positions::all : P,
                                     .head = Head,
                                     .parts = Parts,
                                     .dropout = Drops || all,
                                     .extended = Extended};
        f.template operator()<tile_of(tile)>();
      };
      if (a.sizes.parts > 1)
        call.template operator()<64, 3>();
      else if (d <= small)
        call.template operator()<small>();
      else if (d <= 64)
        call.template operator()<64>();
      else
        call.template operator()<128>();
    };
    if (is_extended(a))
      for_head.template operator()<true, true>();
    else if (a.dropout.below > 0)
      for_head.template operator()<true, false>();
    else
      for_head.template operator()<false, false>();
  });
}

/// Only bf16 kernels of head dimension 64 are compiled without dropout, too.
constexpr bool with_dropout(const AttentionTile& t) {
  return t.dropout || t.parts > 1 || t.head != 64;
}

constexpr AttentionTile forward_tile(AttentionTile t) {
  t.dropout = with_dropout(t);
  if (t.parts > 1) return t;
  if (t.head <= 64) {
    t.slabs = t.has_all() ? 1 : 2, t.blocks_per_sm = 2;
    if (t.head == 32 || !t.dropout) t.step = 64;
  } else {
    t.warps = t.has_all() ? 4 : 8;
    if (!t.has_table() && !t.extended) t.step = 64;
  }
  return t;
}

constexpr AttentionTile queries_tile(AttentionTile t) {
  const bool separate = t.positions == Positions::separate;
  t.dropout = with_dropout(t);
  if (t.parts > 1) t.step = t.has_table() ? 16 : 32;
  if (t.parts > 1 || t.has_all()) return t;
  if (t.extended || t.head != 64) {
    t.warps = 8, t.step = t.head == 128 ? 32 : 64;
    if (t.head == 32) t.q_steps = t.g_steps = 2;
  } else if (!t.dropout) {
    t.slabs = 2;
    if (!separate) t.q_steps = 4, t.g_steps = t.has_table() ? 2 : 4;
  } else if (separate) {
    t.warps = 8, t.step = 64;
  } else {
    t.slabs = 2;
  }
  return t;
}

constexpr AttentionTile keys_tile(AttentionTile t) {
  t.dropout = with_dropout(t);
  if (t.parts > 1) {
    if (t.extended && !t.has_all()) t.step = 16;
  } else if (t.has_all()) {
    t.head == 64 ? t.blocks_per_sm = 2 : t.step = 16;
  } else if (t.extended || t.head == 128) {
    t.warps = 8;
  } else {
    t.slabs = t.blocks_per_sm = 2;
  }
  return t;
}

/// Of the extended kernels, those for all terms also serve a bias without a table.
constexpr AttentionTile relative_tile(AttentionTile t) {
  if (t.extended && !t.has_table()) t.positions = Positions::all;
  if (t.has_all() && (t.parts > 1 || t.head == 128)) t.step = 16;
  if (t.parts > 1) return t;
  if (t.head <= 64) t.blocks_per_sm = 2;
  if (t.has_all()) return t;
  if (t.head == 128)
    t.warps = 8;
  else if (!t.extended)
    t.slabs = 2;
  return t;
}

}  // namespace stretto::cuda
