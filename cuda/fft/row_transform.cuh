// Transforms of rows by the threads of a block, 16 elements each, for products of rows.
//
// A product of polynomials with 2H real coefficients p_j is one of polynomials with H complex
// coefficients modulo z^H = −i,
//
//     p_0 … p_2H−1  ↦  c_j = p_j − i p_j+H,        z^2H = −1
//
// so the transform of c consists of its values at the H roots z of that equation, and no pass has
// to separate the bins of real rows. There z̄ = 1/z: conjugate values are those of the reversed
// row, which correlations need.
//
// A thread holds 16 coefficients. Forward, polynomials modulo z^S = ρ² are reduced modulo z^(S/2) =
// ±ρ, four times in registers between exchanges through shared memory, and the values end up in
// bit-reversed order. Backward, transforms of even and odd bins are joined as usual, from that
// order. Both multiply before they add, a ± w b in six fused operations, and a thread stores to the
// places it has loaded from, so that one barrier per exchange suffices. For 2^8 … 2^14 complex
// elements, up to 2^11 in f64. Tested against the CPU.
#pragma once

#include "cuda/fft/unit_root.cuh"
#include "cuda/runtime/common.cuh"

namespace stretto::cuda {

constexpr int held = 16;  // elements per thread

template <class T>
struct Values {
  T re[held], im[held];
};

/// a, b ← a + w b, a − w b
template <class T>
__device__ inline void join(Values<T>& z, int a, int b, T wr, T wi) {
  const T re = fma(-wi, z.im[b], fma(wr, z.re[b], z.re[a]));
  const T im = fma(wi, z.re[b], fma(wr, z.im[b], z.im[a]));
  z.re[b] = fma(T(2), z.re[a], -re);
  z.im[b] = fma(T(2), z.im[a], -im);
  z.re[a] = re;
  z.im[a] = im;
}

/// A thread's factors of the stages of a pass: 1, 1, 2 and 4 of them.
template <class T>
struct Factors {
  Pack<T, 2> v[8];
};

/// The place of factor `number` of eight of thread `at` of `count`: pairs are read by 16 bytes.
template <class T>
__device__ inline int factor_place(int number, int count, int at) {
  return sizeof(T) == 4 ? (number / 2 * count + at) * 2 + number % 2 : number * count + at;
}
template <class T>
__device__ inline void load_pair(const T* from, int q, int count, int at, Pack<T, 2>& first,
                                 Pack<T, 2>& second) {
  if constexpr (sizeof(T) == 4) {
    const auto both = reinterpret_cast<const Pack<T, 4>*>(from)[q * count + at];
    first = {both.v[0], both.v[1]};
    second = {both.v[2], both.v[3]};
  } else {
    const auto* const packs = reinterpret_cast<const Pack<T, 2>*>(from);
    first = packs[2 * q * count + at];
    second = packs[(2 * q + 1) * count + at];
  }
}
template <class T>
__device__ inline void store_pair(T* to, int q, int count, int at, T r0, T i0, T r1, T i1) {
  if constexpr (sizeof(T) == 4) {
    reinterpret_cast<Pack<T, 4>*>(to)[q * count + at] = {r0, i0, r1, i1};
  } else {
    auto* const packs = reinterpret_cast<Pack<T, 2>*>(to);
    packs[2 * q * count + at] = {r0, i0};
    packs[(2 * q + 1) * count + at] = {r1, i1};
  }
}
/// The factors of the last `stages` stages; of three, the first one's takes the place of two.
template <int stages, class T>
__device__ inline Factors<T> load_factors(const T* from, int count, int at) {
  Factors<T> w = {};
  if (stages == 3) w.v[1] = reinterpret_cast<const Pack<T, 2>*>(from)[at];
#pragma unroll
  for (int q = stages == 4 ? 0 : stages == 1 ? 2 : 1; q < 4; ++q)
    load_pair(from, q, count, at, w.v[2 * q], w.v[2 * q + 1]);
  return w;
}

/// cos(πk/32), 0 ≤ k ≤ 16
template <class T>
__device__ constexpr T cosine(int k) {
  constexpr T all[] = {T(1),
                       T(0.99518472667219688624),
                       T(0.98078528040323044913),
                       T(0.95694033573220886494),
                       T(0.92387953251128675613),
                       T(0.88192126434835502971),
                       T(0.83146961230254523708),
                       T(0.77301045336273696081),
                       T(0.70710678118654752440),
                       T(0.63439328416364549822),
                       T(0.55557023301960222474),
                       T(0.47139673682599764856),
                       T(0.38268343236508977173),
                       T(0.29028467725446236764),
                       T(0.19509032201612826785),
                       T(0.098017140329560601994),
                       T(0)};
  return all[k];
}

/// The factors of the first pass forward: e^(−2πi k/64) for k = 8, 4, 2, 10, 1, 9, 5 and 13.
template <class T>
__device__ inline Factors<T> first_factors() {
  constexpr int turns[] = {8, 4, 2, 10, 1, 9, 5, 13};
  Factors<T> w;
#pragma unroll
  for (int i = 0; i < 8; ++i) w.v[i] = {cosine<T>(turns[i]), -cosine<T>(held - turns[i])};
  return w;
}

/// Four stages, or the last ones from `stage` on: distances 8, 4, 2 and 1.
template <int stage, class T>
__device__ inline void forward_pass(Values<T>& z, const Factors<T>& w) {
  constexpr int distance = 8 >> stage, own = stage == 0 ? 0 : 1 << (stage - 1);
#pragma unroll
  for (int i = 0; i < held / 2; ++i) {
    const int block = i / distance, a = 2 * distance * block + i % distance;
    const Pack<T, 2> f = w.v[own + block / 2];
    if (block % 2 == 0)
      join(z, a, a + distance, f.v[0], f.v[1]);
    else
      join(z, a, a + distance, f.v[1], -f.v[0]);  // times −i
  }
  if constexpr (stage < 3) forward_pass<stage + 1>(z, w);
}

/// Four stages: distances 1, 2, 4 and 8.
template <int stage, class T>
__device__ inline void backward_pass(Values<T>& z, const Factors<T>& w) {
  constexpr int distance = 1 << stage, own = stage == 0 ? 1 : distance / 2;
#pragma unroll
  for (int i = 0; i < held / 2; ++i) {
    const int k = i % distance, a = i / distance * 2 * distance + k;
    const Pack<T, 2> f = w.v[stage == 0 ? 0 : own + k % own];
    if (k < own)
      join(z, a, a + distance, f.v[0], f.v[1]);
    else
      join(z, a, a + distance, -f.v[1], f.v[0]);  // times i
  }
  if constexpr (stage < 3) backward_pass<stage + 1>(z, w);
}

/// The first pass backward, or the first stages of it up to `end`: its factors are e^(2πi k/16).
template <int stage, int end, class T>
__device__ inline void first_backward_pass(Values<T>& z) {
  constexpr int distance = 1 << stage;
#pragma unroll
  for (int i = 0; i < held / 2; ++i) {
    const int k = i % distance, a = i / distance * 2 * distance + k, b = a + distance;
    const int turn = (8 >> stage) * k;  // in sixteenths
    if (turn % 4 == 0) {
      const T re = turn == 0 ? z.re[b] : -z.im[b], im = turn == 0 ? z.im[b] : z.re[b];
      z.re[b] = z.re[a] - re;
      z.im[b] = z.im[a] - im;
      z.re[a] += re;
      z.im[a] += im;
    } else {
      const T c = cosine<T>(4 * (turn % 4)), s = cosine<T>(held - 4 * (turn % 4));
      if (turn < 4)
        join(z, a, b, c, s);
      else
        join(z, a, b, -s, c);
    }
  }
  if constexpr (stage + 1 < end) first_backward_pass<stage + 1, end>(z);
}

/// The layout of a thread's elements in a pass that joins elements m apart: element k is
/// at first(t) + gap(k). Each 16 elements are followed by a gap, so that stores and loads
/// have no bank conflicts.
template <int m>
struct Places {
  __device__ static int first(int t) {
    const int at = t / m * (held * m) + t % m;
    return at + at / 16;
  }
  __device__ static constexpr int gap(int k) { return k * m + k * m / 16; }
};

template <int from, int to, class T>
__device__ inline void exchange(Values<T>& z, Pack<T, 2>* room, int t) {
  Pack<T, 2>* const out = room + Places<from>::first(t);
#pragma unroll
  for (int k = 0; k < held; ++k) out[Places<from>::gap(k)] = {z.re[k], z.im[k]};
  __syncthreads();
  const Pack<T, 2>* const in = room + Places<to>::first(t);
#pragma unroll
  for (int k = 0; k < held; ++k) {
    const Pack<T, 2> v = in[Places<to>::gap(k)];
    z.re[k] = v.v[0];
    z.im[k] = v.v[1];
  }
}

/// The tables of a transform of H = 2^log elements, one after the other: eight factors for each of
/// `count` polynomials forward, or places backward, and a thread's part of the factors of the
/// results, e^(iπj/2H)/H = e^(iπt/2H)/H · e^(iπk/32). Its first factor backward includes this part.
struct Tables {
  int log;
  STRETTO_HD constexpr int passes() const { return log > 12 ? 3 : log > 8 ? 2 : 1; }
  /// The number of polynomials in pass 1, 2, … forward.
  STRETTO_HD constexpr int forward_count(int pass) const {
    return pass == passes() ? 1 << (log - 4) : 1 << (4 * pass);
  }
  /// The distance in pass 0, 1, … backward, counted from the last one, which joins
  /// elements H/16 apart.
  STRETTO_HD constexpr int backward_count(int pass) const { return 1 << (log - 4 - 4 * pass); }
  STRETTO_HD constexpr int forward_first(int pass) const {  // in complex elements
    int at = 0;
    for (int p = 1; p < pass; ++p) at += 8 * forward_count(p);
    return at;
  }
  STRETTO_HD constexpr int backward_first(int pass) const {
    int at = forward_first(passes() + 1);
    for (int p = 0; p < pass; ++p) at += 8 * backward_count(p);
    return at;
  }
  STRETTO_HD constexpr int ends() const { return backward_first(passes()); }
  STRETTO_HD constexpr int size() const { return ends() + (1 << (log - 4)); }
};

/// Factor `number` of the stages that split polynomial `block` of 2^level.
__device__ inline void forward_factor(int level, int block, int number, double& c, double& s) {
  const int deeper = number < 2 ? number : number < 4 ? 2 : 3;
  const int of = number < 2 ? 0 : number < 4 ? 2 * (number - 2) : 2 * (number - 4);
  const int bits = level + deeper;
  const unsigned index = (unsigned(block) << deeper) + unsigned(of);
  const int64_t reversed = bits == 0 ? 0 : int64_t(__brev(index) >> (32 - bits));
  unit_root_of(1 + 4 * reversed, int64_t(8) << bits, c, s);
}

/// Computes the contents of the tables.
template <class T>
__global__ void make_tables(T* tables, Tables plan) {
  auto* const all = reinterpret_cast<Pack<T, 2>*>(tables);
  const int points = 1 << plan.log;
#pragma unroll 1
  for (int i = int(thread_index()); i < points; i += int(thread_count())) {
    double c, s;
    if (i < points / held) {
      unit_root_of(i, 4 * int64_t(points), c, s);
      all[plan.ends() + i] = {T(c / points), T(-s / points)};
    }
#pragma unroll 1
    for (int pass = 1; pass <= plan.passes(); ++pass) {
      const int count = plan.forward_count(pass),
                level = pass == plan.passes() ? plan.log - 4 : 4 * pass;
      const int at = i % count, number = i / count;
      if (number >= 8) continue;
      forward_factor(level, at, number, c, s);
      const bool three = pass == plan.passes() && plan.log == 11;
      const int place =
          three && number < 2 ? (1 - number) * count + at : factor_place<T>(number, count, at);
      all[plan.forward_first(pass) + place] = {T(c), T(s)};
    }
#pragma unroll 1
    for (int pass = 0; pass < plan.passes(); ++pass) {
      const int m = plan.backward_count(pass), at = i % m, number = i / m;
      if (number >= 8) continue;
      const int stage = number < 2 ? number : number < 4 ? 2 : 3;
      const int index = number < 2 ? 0 : number < 4 ? number - 2 : number - 4;
      if (pass > 0 || number > 0) {
        unit_root_of(at + int64_t(index) * m, int64_t(2 * m) << stage, c, s);
      } else {  // 2πt/(2m) + πt/2H, m being H/16
        unit_root_of(33 * int64_t(at), 4 * int64_t(points), c, s);
        c /= points;
        s /= points;
      }
      all[plan.backward_first(pass) + factor_place<T>(number, m, at)] = {T(c), T(-s)};
    }
  }
}

template <class T, int log>
struct RowTransform {
  static constexpr Tables tables{log};
  static constexpr int points = 1 << log, threads = points / held, m1 = points / 16;
  static constexpr int m2 = log > 8 ? points / 256 : 1, m3 = log > 12 ? points / 4096 : 1;
  static constexpr int last = log > 12 ? log - 12 : log > 8 ? log - 8 : 4;  // stages
  static constexpr int last_m = log > 12 ? m3 : log > 8 ? m2 : m1;
  const T* factors;
  Pack<T, 2>* room;
  int t;

  template <int stages = 4>
  __device__ Factors<T> of(int first, int count, int at) const {
    return load_factors<stages>(factors + 2 * first, count, at);
  }

  /// c_j from a row of n elements
  __device__ void load(Values<T>& z, const T* row, int n) const {
    row += t;
    if (n == points) {
#pragma unroll
      for (int k = 0; k < held; ++k) z.re[k] = row[k * m1];
    } else {
#pragma unroll
      for (int k = 0; k < held; ++k) z.re[k] = k * m1 < n - t ? row[k * m1] : T(0);
    }
#pragma unroll
    for (int k = 0; k < held; ++k) z.im[k] = T(0);
    if (n <= points) return;
#pragma unroll
    for (int k = 0; k < held; ++k)
      if (k * m1 < n - t - points) z.im[k] = -row[k * m1 + points];
  }

  __device__ void forward(Values<T>& z) const {
    forward_pass<0>(z, first_factors<T>());
    if constexpr (log > 8) {
      exchange<m1, m2>(z, room, t);
      forward_pass<0>(z, of(tables.forward_first(1), 16, t / m2));
    }
    if constexpr (log > 12) {
      exchange<m2, m3>(z, room, t);
      forward_pass<0>(z, of(tables.forward_first(2), 256, t / m3));
    }
    if constexpr (last_m > 1) exchange<last_m, 1>(z, room, t);
    forward_pass<4 - last>(z, of<last>(tables.forward_first(tables.passes()), threads, t));
  }

  /// Backward, except for the factors e^(iπk/32) of the results, which store() applies.
  __device__ void backward(Values<T>& z) const {
    first_backward_pass<0, last>(z);
    if constexpr (log > 12) {
      exchange<1, m3>(z, room, t);
      backward_pass<0>(z, of(tables.backward_first(2), m3, t % m3));
    }
    if constexpr (log > 8) {
      exchange<m3, m2>(z, room, t);
      backward_pass<0>(z, of(tables.backward_first(1), m2, t % m2));
    }
    exchange<m2, m1>(z, room, t);
    const Factors<T> w = of(tables.backward_first(0), m1, t);
    const Pack<T, 2> end = reinterpret_cast<const Pack<T, 2>*>(factors)[tables.ends() + t];
#pragma unroll
    for (int k = 0; k < held; k += 2) {  // for the others the first factor includes it
      const T re = z.re[k], im = z.im[k];
      z.re[k] = fma(-im, end.v[1], re * end.v[0]);
      z.im[k] = fma(im, end.v[0], re * end.v[1]);
    }
    backward_pass<0>(z, w);
  }

  /// Stores the elements of the product that are in y, in [0, length): element j at j − shift and,
  /// as z^2H = −1, with the opposite sign 2H before that.
  __device__ void store(const Values<T>& z, T* y, int shift, int length) const {
    if (shift == 0 && length == points) {
#pragma unroll
      for (int k = 0; k < held; ++k)
        y[t + k * m1] = z.re[k] * cosine<T>(k) - z.im[k] * cosine<T>(held - k);
      return;
    }
    const bool simple = shift == 0 && length <= points;
#pragma unroll
    for (int k = 0; k < held; ++k) {
      const T c = cosine<T>(k), s = cosine<T>(held - k);
      const T re = z.re[k] * c - z.im[k] * s;
      int at = t - shift + k * m1;
      if (unsigned(at) < unsigned(length)) y[at] = re;
      if (simple) continue;
      if (unsigned(at - 2 * points) < unsigned(length)) y[at - 2 * points] = -re;
      const T im = z.re[k] * s + z.im[k] * c;
      at += points;
      if (unsigned(at) < unsigned(length)) y[at] = -im;
      if (unsigned(at - 2 * points) < unsigned(length)) y[at - 2 * points] = im;
    }
  }
};

}  // namespace stretto::cuda
