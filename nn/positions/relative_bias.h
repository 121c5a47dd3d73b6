// Positions that are one number per relative position and head, added to the score: T5, ALiBi,
// KERPLE.
//
// Each is a function that makes the table `relative_bias` of ops/attention/attention.h, and a
// module that owns the parameters. The tables cover the relative positions −(N − 1) … M − 1, all
// that M queries and N keys can meet; a causal call needs no more than n_queries = 1 gives.
//
// Reference: tests/reference/relative_bias.cpp, t5_bias(), alibi_bias(), kerple_log_bias()
#pragma once

#include <vector>

#include "positional_encoding.h"

namespace stretto::nn {

// ------------------------------------------------------------------------------------------ T5

/// The first distance of each of the n buckets of one side: 0, 1, … ⌊n/2⌋ − 1 each have a bucket of
/// their own, the others share logarithmically growing ones, and whatever lies beyond max_distance
/// is in the last (Raffel et al. 2020, §2.1, and the authors' code). With e = ⌊n/2⌋ bucket b ≥ e
/// begins at the least a with ln(a/e) / ln(max_distance/e) · (n − e) ≥ b − e; a border that is
/// a whole number is exact. A distance that appears twice leaves the earlier bucket empty. n ≥ 2
/// and e < max_distance < 2³².
std::vector<int64_t> t5_thresholds(int64_t buckets_per_side, int64_t max_distance);

/// The bucket of a relative position (key − query). Two-sided: the past in the lower half of the
/// buckets, the future in the upper; otherwise the future counts as distance 0.
int64_t t5_bucket(int64_t relative, int64_t buckets, int64_t max_distance, bool bidirectional);

/// table [buckets, H] → a bias table [H, lags]; differentiable.
RelativeTable t5_bias(const Tensor& table, int64_t n_queries, int64_t n_keys, int64_t max_distance,
                      bool bidirectional);

struct T5BiasOptions {
  int64_t buckets = 32;  // of both sides together
  int64_t max_distance = 128;
};

/// Relative position bias of T5 (Raffel et al. 2020, §2.1). `table` [buckets, H] starts normal with
/// standard deviation d_model^−½. A causal call has all buckets for the past, another, as of an
/// encoder, half of them for each side; their number must then be even. T5 has one table for all
/// layers, `shared_by_layers(t5_bias(…))`, and no 1/√D: MultiHeadAttention::Options::scale = 1.
class T5Bias : public PositionalEncoding {
 public:
  using Options = T5BiasOptions;
  T5Bias(Module& parent, HeadShape shape, Options options);
  void apply(AttentionInputs& inputs) const override;
  std::string label() const override;

  const Options options;
  const Tensor table;
};

inline MakePositionalEncoding t5_bias(T5Bias::Options options = {}) {
  return positional_encoding<T5Bias>(options);
}

// --------------------------------------------------------------------------------------- ALiBi

/// 2^(−8h/n), h = 1 … n, for a power of two n; otherwise those of the next lower power of two c,
/// then every second one of 2c (Press et al. 2022, §3, and the authors' code).
std::vector<double> alibi_slopes(int64_t n_heads);

/// −slope·|relative position| → a bias table [H, lags] for H slopes, computed in f64 and rounded
/// once.
RelativeTable alibi_bias(const std::vector<double>& slopes, int64_t n_queries, int64_t n_keys,
                         TensorOptions options = {});

struct AlibiOptions {
  int64_t heads = 0;  // > 0: the first `heads` heads have a slope, the others no position
};

/// Attention with linear biases (Press et al. 2022). No parameters. In a call that is not causal
/// the future falls like the past.
class Alibi : public PositionalEncoding {
 public:
  using Options = AlibiOptions;
  Alibi(Module& parent, HeadShape shape, Options options);
  void apply(AttentionInputs& inputs) const override;
  std::string label() const override;

  const Options options;
  const std::vector<double> slopes;  // [H]
};

inline MakePositionalEncoding alibi(Alibi::Options options = {}) {
  return positional_encoding<Alibi>(options);
}

// -------------------------------------------------------------------------------------- KERPLE

enum class KerpleKind { logarithmic, power };

struct KerpleOptions {
  KerpleKind kind = KerpleKind::logarithmic;
};

/// Kernelized relative positional embedding (Chi et al. 2022), l = |relative position|:
///   logarithmic  −p · log(1 + a·l)
///   power        −a · lᵖ
/// p [H] starts uniform in [0.01, 2), a [H] in [0.01, 1). In the formula both are at least 0.01 and
/// the exponent p at most 2, where the kernel stays conditionally positive definite. A parameter
/// that a step took further has no gradient there; the authors write the bound back into it
/// instead. The paper's experiments are causal; otherwise the future falls like the past.
class Kerple : public PositionalEncoding {
 public:
  using Kind = KerpleKind;
  using Options = KerpleOptions;
  Kerple(Module& parent, HeadShape shape, Options options);
  void apply(AttentionInputs& inputs) const override;
  std::string label() const override;

  const Options options;
  const Tensor p, a;
};

/// p and a [H], positive and taken as they are → a bias table [H, lags]; differentiable. bf16 is
/// computed in f32 and rounded once.
RelativeTable kerple_bias(const Tensor& p, const Tensor& a, int64_t n_queries, int64_t n_keys,
                          Kerple::Kind kind = Kerple::Kind::logarithmic);

inline MakePositionalEncoding kerple(Kerple::Options options = {}) {
  return positional_encoding<Kerple>(options);
}

}  // namespace stretto::nn
