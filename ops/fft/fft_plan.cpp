#include "ops/fft/fft_plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <utility>

#include "core/formulas/fft_butterfly.h"

namespace stretto {
namespace {

// One radix-R step: transforms `s` interleaved sequences of R·m elements to R·s sequences
// of m elements.
template <int R, class T>
STRETTO_CLONES void run_pass(Planes<T> from, Planes<T> to, int64_t m, int64_t s,
                             const T* twiddles) {
  for (int64_t p = 0; p < m; ++p) {
    const T *xr = from.re + p * s, *xi = from.im + p * s;
    T *yr = to.re + p * R * s, *yi = to.im + p * R * s;
    T wr[R], wi[R];
    unroll<R - 1>([&](auto j) STRETTO_INLINE {
      wr[j + 1] = twiddles[(p * (R - 1) + j) * 2];
      wi[j + 1] = twiddles[(p * (R - 1) + j) * 2 + 1];
    });
    const int64_t step = m * s;
#pragma GCC ivdep
    for (int64_t q = 0; q < s; ++q) {
      T re[R], im[R];
      unroll<R>([&](auto k) STRETTO_INLINE {
        re[k] = xr[q + k * step];
        im[k] = xi[q + k * step];
      });
      Butterfly<R, T>::run(re, im);
      yr[q] = re[0];
      yi[q] = im[0];
      unroll<R - 1>([&](auto i) STRETTO_INLINE {
        constexpr int j = i + 1;
        yr[q + j * s] = re[j] * wr[j] - im[j] * wi[j];
        yi[q + j * s] = re[j] * wi[j] + im[j] * wr[j];
      });
    }
  }
}

// x_j ← x_j f_j.
template <class T>
STRETTO_CLONES void multiply(Planes<T> x, const T* factors, int64_t n, int64_t lanes) {
  for (int64_t j = 0; j < n; ++j) {
    const T fr = factors[2 * j], fi = factors[2 * j + 1];
    const Planes<T> xj = x.at(j * lanes);
#pragma GCC ivdep
    for (int64_t l = 0; l < lanes; ++l) {
      const T re = xj.re[l], im = xj.im[l];
      xj.re[l] = re * fr - im * fi;
      xj.im[l] = re * fi + im * fr;
    }
  }
}

// Computes the bins from the transform Z of the packed samples, in place. Even and odd samples have
// the spectra E_k = (Z_k + Z̄_m−k)/2 and O_k = (Z_k − Z̄_m−k)/2i, and X_k = E_k + w^k O_k.
template <class T>
STRETTO_CLONES void split_bins(Planes<T> z, int64_t m, int64_t lanes, const T* twiddles, T edge,
                               T half) {
  const Planes<T> last = z.at(m * lanes);
#pragma GCC ivdep
  for (int64_t l = 0; l < lanes; ++l) {
    const T re = z.re[l], im = z.im[l];
    z.re[l] = edge * (re + im);
    last.re[l] = edge * (re - im);
    z.im[l] = last.im[l] = 0;
  }
  for (int64_t k = 1; k <= m / 2; ++k) {
    const T wr = twiddles[2 * k], wi = twiddles[2 * k + 1];
    const Planes<T> a = z.at(k * lanes), b = z.at((m - k) * lanes);
#pragma GCC ivdep
    for (int64_t l = 0; l < lanes; ++l) {
      const T er = half * (a.re[l] + b.re[l]), ei = half * (a.im[l] - b.im[l]);
      const T qr = half * (a.im[l] + b.im[l]), qi = half * (b.re[l] - a.re[l]);
      const T tr = wr * qr - wi * qi, ti = wr * qi + wi * qr;
      b.re[l] = er - tr;
      b.im[l] = ti - ei;
      a.re[l] = er + tr;
      a.im[l] = ei + ti;
    }
  }
}

// The transpose of split_bins: computes the spectrum of the packed samples from the bins, in place.
// With S_k = X_k + X̄_m−k and t_k = w^−k (X_k − X̄_m−k): Z_k = S_k + i t_k.
template <class T>
STRETTO_CLONES void join_bins(Planes<T> x, int64_t m, int64_t lanes, const T* twiddles, T edge,
                              T half) {
  const Planes<T> last = x.at(m * lanes);
#pragma GCC ivdep
  for (int64_t l = 0; l < lanes; ++l) {
    const T a = edge * x.re[l], b = edge * last.re[l];
    x.re[l] = a + b;
    x.im[l] = a - b;
  }
  for (int64_t k = 1; k <= m / 2; ++k) {
    const T wr = twiddles[2 * k], wi = -twiddles[2 * k + 1];
    const Planes<T> a = x.at(k * lanes), b = x.at((m - k) * lanes);
#pragma GCC ivdep
    for (int64_t l = 0; l < lanes; ++l) {
      const T sr = half * (a.re[l] + b.re[l]), si = half * (a.im[l] - b.im[l]);
      const T dr = half * (a.re[l] - b.re[l]), di = half * (a.im[l] + b.im[l]);
      const T tr = wr * dr - wi * di, ti = wr * di + wi * dr;
      b.re[l] = sr + ti;
      b.im[l] = tr - si;
      a.re[l] = sr - ti;
      a.im[l] = si + tr;
    }
  }
}

// A square of elements, one row per vector of 32 bytes. Interleaving rows i and i + width/2 rotates
// the bits of an element's index (row, then column) by one; after as many steps as the row has bits
// the square is transposed.
template <class T>
struct SquareOf {
  static constexpr int width = 32 / int(sizeof(T));
  typedef T Row __attribute__((vector_size(32)));
  Row v[width];

  STRETTO_INLINE void load(int i, const T* from) { std::memcpy(&v[i], from, sizeof(Row)); }
  STRETTO_INLINE void store(int i, T* to) const { std::memcpy(to, &v[i], sizeof(Row)); }
  STRETTO_INLINE void transpose() {
    constexpr int half = width / 2;
    unroll<width == 8 ? 3 : 2>([&](auto) STRETTO_INLINE {
      Row w[width];
      unroll<half>([&](auto i) STRETTO_INLINE {
        const Row a = v[i], b = v[i + half];
        if constexpr (width == 8) {
          w[2 * i] = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
          w[2 * i + 1] = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
        } else {
          w[2 * i] = __builtin_shufflevector(a, b, 0, 4, 1, 5);
          w[2 * i + 1] = __builtin_shufflevector(a, b, 2, 6, 3, 7);
        }
      });
      unroll<width>([&](auto i) STRETTO_INLINE { v[i] = w[i]; });
    });
  }
};

// The address of value i of the first sequence.
template <class T>
STRETTO_INLINE inline T* place_of(Planes<T> x, int64_t i, bool interleaved, int64_t lanes) {
  if (!interleaved) return x.re + i * lanes;
  return (i % 2 == 0 ? x.re : x.im) + i / 2 * lanes;
}

// The cache of the most recently used plans, of all kinds.
class PlanCache {
 public:
  using Plan = std::shared_ptr<const void>;
  using Key = std::pair<const void*, int64_t>;  // kind and length

  Plan find(Key key) {
    std::lock_guard lock(mutex_);
    const auto found = places_.find(key);
    if (found == places_.end()) return nullptr;
    plans_.splice(plans_.begin(), plans_, found->second);
    return plans_.front().plan;
  }

  // If two threads have made the same plan, the first one is used. The bytes of a plan include the
  // plans that it uses, even if these were dropped from the cache.
  Plan insert(Key key, const Plan& plan, int64_t bytes) {
    std::list<Entry> made{{key, plan, bytes}}, dropped;
    std::lock_guard lock(mutex_);
    const auto [place, inserted] = places_.try_emplace(key, made.begin());
    if (!inserted) return place->second->plan;
    plans_.splice(plans_.begin(), made);
    for (bytes_ += bytes; bytes_ > most_fft_plan_bytes && plans_.size() > 1;) {
      bytes_ -= plans_.back().bytes;
      places_.erase(plans_.back().key);
      dropped.splice(dropped.begin(), plans_, std::prev(plans_.end()));
    }
    return plan;
  }

  int64_t bytes() {
    std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  struct Entry {
    Key key;
    Plan plan;
    int64_t bytes;
  };
  std::mutex mutex_;
  std::list<Entry> plans_;  // most recently used first
  std::map<Key, std::list<Entry>::iterator> places_;
  int64_t bytes_ = 0;
};

PlanCache& plan_cache() {
  static auto& all = *new PlanCache;  // never destroyed: static objects may compute when destroyed
  return all;
}

// The plan is constructed outside the lock, because its constructor may look up another plan.
template <class Plan>
std::shared_ptr<const Plan> cached(int64_t n) {
  static const char kind = 0;
  PlanCache& cache = plan_cache();
  PlanCache::Plan plan = cache.find({&kind, n});
  if (!plan) {
    const auto made = std::make_shared<const Plan>(n);
    plan = cache.insert({&kind, n}, made, made->bytes());
  }
  return std::static_pointer_cast<const Plan>(plan);
}

template <class T>
int64_t bytes_of(const std::vector<T>& table) {
  return int64_t(table.capacity() * sizeof(T));
}

}  // namespace

Unit unit_root(int64_t k, int64_t n) {
  int64_t x = 8 * (k % n);  // the angle in units of 2π/(8n)
  const bool below = x > 4 * n;
  if (below) x = 8 * n - x;
  double c, s;
  unit_root_by_octant(x, n, c, s, [n](int64_t eighths, double& cosine, double& sine) {
    const long double angle = (long double)(eighths)*0.78539816339744830962L / (long double)(n);
    cosine = double(std::cos(angle));
    sine = double(std::sin(angle));
  });
  return {c, below ? -s : s};
}

int64_t kept_fft_plan_bytes() { return plan_cache().bytes(); }

template <class T>
std::shared_ptr<const FftPlan<T>> FftPlan<T>::of(int64_t n) {
  return cached<FftPlan<T>>(n);
}

template <class T>
FftPlan<T>::FftPlan(int64_t n) : n_(n) {
  const std::vector<int> radices = fft_radices(n);
  if (n > 1 && radices.empty()) {
    chirp_length_ = 1;
    while (chirp_length_ < 2 * n - 1) chirp_length_ *= 2;
    chirp_plan_ = of(chirp_length_);
    // c_j = e^(−πi j²/n); the filter is its conjugate for |j| < n, transformed in f64.
    std::vector<double> re(static_cast<size_t>(chirp_length_)), im = re, re2 = re, im2 = re;
    chirp_.reserve(size_t(2 * n));
    chirp_spectrum_.reserve(size_t(2 * chirp_length_));
    for (int64_t j = 0; j < n; ++j) {
      const Unit u = unit_root(j * j % (2 * n), 2 * n);
      chirp_.push_back(T(u.cos));
      chirp_.push_back(T(-u.sin));
      for (const int64_t at : {j, (chirp_length_ - j) % chirp_length_}) {
        re[size_t(at)] = u.cos / double(chirp_length_);
        im[size_t(at)] = u.sin / double(chirp_length_);
      }
    }
    const Planes<double> spectrum =
        FftPlan<double>::of(chirp_length_)
            ->forward({re.data(), im.data()}, {re2.data(), im2.data()}, 1);
    for (int64_t k = 0; k < chirp_length_; ++k) {
      chirp_spectrum_.push_back(T(spectrum.re[k]));
      chirp_spectrum_.push_back(T(spectrum.im[k]));
    }
    return;
  }
  int64_t rest = n, stride = 1;
  for (const int r : radices) {
    Pass& pass = passes_.emplace_back(Pass{r, rest / r, stride, {}});
    pass.twiddles.reserve(size_t(2 * pass.m * (r - 1)));
    for (int64_t p = 0; p < pass.m; ++p)
      for (int64_t j = 1; j < r; ++j) {
        const Unit u = unit_root(j * p, rest);
        pass.twiddles.push_back(T(u.cos));
        pass.twiddles.push_back(T(-u.sin));
      }
    rest /= r;
    stride *= r;
  }
}

template <class T>
int64_t FftPlan<T>::bytes() const {
  int64_t sum = bytes_of(chirp_) + bytes_of(chirp_spectrum_);
  for (const Pass& pass : passes_) sum += bytes_of(pass.twiddles);
  return chirp_plan_ ? sum + chirp_plan_->bytes() : sum;
}

template <class T>
Planes<T> FftPlan<T>::forward(Planes<T> x, Planes<T> other, int64_t lanes) const {
  if (chirp_length_ > 0) return through_chirp(x, other, lanes);
  for (const Pass& pass : passes_) {
    const auto run = pass.radix == 8   ? run_pass<8, T>
                     : pass.radix == 4 ? run_pass<4, T>
                     : pass.radix == 2 ? run_pass<2, T>
                     : pass.radix == 3 ? run_pass<3, T>
                     : pass.radix == 5 ? run_pass<5, T>
                                       : run_pass<7, T>;
    run(x, other, pass.m, pass.stride * lanes, pass.twiddles.data());
    std::swap(x, other);
  }
  return x;
}

// −jk = ((k − j)² − j² − k²)/2, so y_k = c_k Σ_j (x_j c_j) c̄_k−j.
template <class T>
Planes<T> FftPlan<T>::through_chirp(Planes<T> x, Planes<T> other, int64_t lanes) const {
  multiply(x, chirp_.data(), n_, lanes);
  const auto rest = size_t((chirp_length_ - n_) * lanes) * sizeof(T);
  std::memset(x.re + n_ * lanes, 0, rest);
  std::memset(x.im + n_ * lanes, 0, rest);
  Planes<T> y = chirp_plan_->forward(x, other, lanes);
  multiply(y, chirp_spectrum_.data(), chirp_length_, lanes);
  y = chirp_plan_->inverse(y, y.re == x.re ? other : x, lanes);
  multiply(y, chirp_.data(), n_, lanes);
  return y;
}

template <class T>
std::shared_ptr<const RealFftPlan<T>> RealFftPlan<T>::of(int64_t n) {
  return cached<RealFftPlan<T>>(n);
}

template <class T>
RealFftPlan<T>::RealFftPlan(int64_t n) : n_(n), complex_(FftPlan<T>::of(n % 2 == 0 ? n / 2 : n)) {
  if (!packed()) return;
  twiddles_.reserve(size_t(2 * (n / 4 + 1)));
  for (int64_t k = 0; k <= n / 4; ++k) {
    const Unit u = unit_root(k, n);
    twiddles_.push_back(T(u.cos));
    twiddles_.push_back(T(-u.sin));
  }
}

template <class T>
int64_t RealFftPlan<T>::bytes() const {
  return bytes_of(twiddles_) + complex_->bytes();
}

template <class T>
Planes<T> RealFftPlan<T>::forward(Planes<T> x, Planes<T> other, int64_t lanes,
                                  BinScale scale) const {
  const Planes<T> z = complex_->forward(x, other, lanes);
  if (packed()) {
    split_bins(z, n_ / 2, lanes, twiddles_.data(), T(scale.edge), T(scale.middle / 2));
    return z;
  }
  const int64_t count = bins() * lanes;
  for (int64_t i = 0; i < count; ++i) {
    const T s = T(i < lanes ? scale.edge : scale.middle);
    z.re[i] *= s;
    z.im[i] = i < lanes ? T(0) : z.im[i] * s;
  }
  return z;
}

template <class T>
Planes<T> RealFftPlan<T>::inverse(Planes<T> x, Planes<T> other, int64_t lanes,
                                  BinScale scale) const {
  if (packed()) {
    join_bins(x, n_ / 2, lanes, twiddles_.data(), T(scale.edge), T(scale.middle / 2));
    return complex_->inverse(x, other, lanes);
  }
  for (int64_t l = 0; l < lanes; ++l) {
    x.re[l] *= T(scale.edge);
    x.im[l] = 0;
  }
  const T half = T(scale.middle / 2);
  for (int64_t k = 1; k < bins(); ++k) {
    const Planes<T> a = x.at(k * lanes), b = x.at((n_ - k) * lanes);
    for (int64_t l = 0; l < lanes; ++l) {
      b.re[l] = a.re[l] *= half;
      a.im[l] *= half;
      b.im[l] = -a.im[l];
    }
  }
  return complex_->inverse(x, other, lanes);
}

template <class T>
STRETTO_CLONES void load_rows(const T* const* rows, int64_t count, bool interleaved, Planes<T> to,
                              int64_t lanes, int64_t room) {
  using Square = SquareOf<T>;
  constexpr int64_t width = Square::width;
  for (int64_t i = 0; i < count; i += width) {
    const int64_t here = std::min(width, count - i);
    int64_t l = 0;
    for (; l + width <= lanes && here == width; l += width) {
      Square square;
      unroll<width>([&](auto r) STRETTO_INLINE { square.load(r, rows[l + r] + i); });
      square.transpose();
      unroll<width>([&](auto c) STRETTO_INLINE {
        square.store(c, place_of(to, i + c, interleaved, lanes) + l);
      });
    }
    for (; l < lanes; ++l)
      for (int64_t c = i; c < i + here; ++c) place_of(to, c, interleaved, lanes)[l] = rows[l][c];
  }
  const auto clear = [&](T* plane, int64_t from) {
    std::memset(plane + from * lanes, 0, size_t((room - from) * lanes) * sizeof(T));
  };
  clear(to.re, interleaved ? (count + 1) / 2 : count);
  clear(to.im, interleaved ? count / 2 : 0);
}

template <class T>
STRETTO_CLONES void store_rows(Planes<T> from, int64_t first, int64_t count, bool interleaved,
                               T* const* rows, int64_t lanes, T scale) {
  using Square = SquareOf<T>;
  constexpr int64_t width = Square::width;
  for (int64_t i = 0; i < count; i += width) {
    const int64_t here = std::min(width, count - i);
    int64_t l = 0;
    for (; l + width <= lanes && here == width; l += width) {
      Square square;
      unroll<width>([&](auto c) STRETTO_INLINE {
        square.load(c, place_of(from, first + i + c, interleaved, lanes) + l);
      });
      square.transpose();
      unroll<width>([&](auto r) STRETTO_INLINE {
        square.v[r] *= scale;
        square.store(r, rows[l + r] + i);
      });
    }
    for (; l < lanes; ++l)
      for (int64_t c = i; c < i + here; ++c)
        rows[l][c] = scale * place_of(from, first + c, interleaved, lanes)[l];
  }
}

template class FftPlan<float>;
template class FftPlan<double>;
template class RealFftPlan<float>;
template class RealFftPlan<double>;
template void load_rows(const float* const*, int64_t, bool, Planes<float>, int64_t, int64_t);
template void load_rows(const double* const*, int64_t, bool, Planes<double>, int64_t, int64_t);
template void store_rows(Planes<float>, int64_t, int64_t, bool, float* const*, int64_t, float);
template void store_rows(Planes<double>, int64_t, int64_t, bool, double* const*, int64_t, double);

}  // namespace stretto
