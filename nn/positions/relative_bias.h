// Encodings that add one scalar per relative position and head to the scores: T5, ALiBi, KERPLE.
//
// Each is a function that computes the table `relative_bias` of ops/attention/attention.h, and a
// module that owns the parameters. M queries and N keys have R = N − 1 + M relative positions,
// −(N − 1) … M − 1, and the tables cover all of them. With a causal mask no relative position is
// above 0: pass n_queries = 1.
//
// Reference: tests/reference/relative_bias.cpp, t5_bias(), alibi_bias(), kerple_log_bias()
#pragma once

#include <vector>

#include "positional_encoding.h"

namespace stretto::nn {

// ------------------------------------------------------------------------------------------ T5

/// Returns the smallest distance of each bucket of one direction; n = buckets_per_side is their
/// number. Distances 0, 1, … ⌊n/2⌋ − 1 have a bucket each, the other buckets grow logarithmically,
/// and the last bucket has all distances from max_distance on (Raffel et al. 2020, §2.1, and the
/// authors' code). With e = ⌊n/2⌋ bucket b ≥ e begins at the least a with
/// ln(a/e) / ln(max_distance/e) · (n − e) ≥ b − e; a border that is a whole number is exact. If two
/// buckets begin at the same distance, the earlier bucket is empty. Throws unless n ≥ 2 and
/// e < max_distance < 2³².
std::vector<int64_t> t5_thresholds(int64_t buckets_per_side, int64_t max_distance);

/// Returns the bucket of a relative position (key − query). Bidirectional: keys up to the
/// query have the lower half of the buckets, later keys the upper half. Otherwise later keys
/// count as distance 0.
int64_t t5_bucket(int64_t relative, int64_t buckets, int64_t max_distance, bool bidirectional);

/// Computes the bias table [H, R] from table [buckets, H]; differentiable.
RelativeTable t5_bias(const Tensor& table, int64_t n_queries, int64_t n_keys, int64_t max_distance,
                      bool bidirectional);

/// Options of T5Bias.
struct T5BiasOptions {
  int64_t buckets = 32;        ///< Number of buckets, of both directions if bidirectional.
  int64_t max_distance = 128;  ///< Distance from which on all keys share the last bucket.
  /// One table for all layers, as in T5 (see shared_by_layers()); false: one per layer.
  bool shared = true;
};

/// Relative position bias of T5 (Raffel et al. 2020, §2.1). With a causal mask all buckets are for
/// keys up to the query. Otherwise, as in an encoder, half of the buckets are for later keys, and
/// the number of buckets must be even. Calls after a cached prefix (AttentionInputs::after_prefix)
/// have the buckets of both directions too. T5 itself has no 1/√D: MultiHeadAttentionOptions::scale = 1.
class T5Bias : public PositionalEncoding {
 public:
  using Options = T5BiasOptions;  ///< Options of the constructor.
  /// Registers `table`, normal with standard deviation d_model^−½. Throws as t5_thresholds().
  T5Bias(Module& parent, HeadShape shape, Options options);
  void apply(AttentionInputs& inputs) const override;
  /// Returns the traits of an encoding with these options.
  static PositionTraits traits(const Options&) { return {.scores = true, .relative = true}; }
  std::string label() const override;

  const Options options;  ///< As passed to the constructor.
  const Tensor table;     ///< [buckets, H].
};

/// Returns a factory of T5Bias.
inline MakePositionalEncoding t5_bias(T5Bias::Options options = {}) {
  const MakePositionalEncoding make = positional_encoding<T5Bias>(options);
  return options.shared ? shared_by_layers(make) : make;
}

// --------------------------------------------------------------------------------------- ALiBi

/// Returns one slope per head: 2^(−8h/n), h = 1 … n, if n is a power of two; otherwise the
/// slopes of the next lower power of two c, then every second slope of 2c (Press et al. 2022,
/// §3, and the authors' code).
std::vector<double> alibi_slopes(int64_t n_heads);

/// Computes the bias table −slope·|relative position| [H, R] of H slopes, in f64, rounded once to
/// the dtype of `options`.
RelativeTable alibi_bias(const std::vector<double>& slopes, int64_t n_queries, int64_t n_keys,
                         TensorOptions options = {});

/// Options of Alibi.
struct AlibiOptions {
  int64_t heads = 0;  ///< Number of heads with a slope, the first ones; 0: all. Others have none.
};

/// ALiBi, attention with linear biases (Press et al. 2022). No parameters. Without a causal mask
/// the bias of later keys falls with their distance too.
class Alibi : public PositionalEncoding {
 public:
  using Options = AlibiOptions;  ///< Options of the constructor.
  /// Computes the slopes. Throws if `heads` is above H.
  Alibi(Module& parent, HeadShape shape, Options options);
  void apply(AttentionInputs& inputs) const override;
  /// Returns the traits of an encoding with these options.
  static PositionTraits traits(const Options&) { return {.scores = true, .relative = true}; }
  std::string label() const override;

  const Options options;             ///< As passed to the constructor.
  const std::vector<double> slopes;  ///< [H], 0 for heads without positions.
};

/// Returns a factory of Alibi.
inline MakePositionalEncoding alibi(Alibi::Options options = {}) {
  return positional_encoding<Alibi>(options);
}

// -------------------------------------------------------------------------------------- KERPLE

/// The two kernels of KERPLE.
enum class KerpleKind {
  logarithmic,  ///< −p · log(1 + a·l).
  power         ///< −a · lᵖ.
};

/// Options of Kerple.
struct KerpleOptions {
  KerpleKind kind = KerpleKind::logarithmic;  ///< Formula of the bias.
};

/// KERPLE, kernelized relative positional embedding (Chi et al. 2022), l = |relative position|:
///   logarithmic  −p · log(1 + a·l)
///   power        −a · lᵖ
/// The formula clamps p and a to at least 0.01 and the exponent p to at most 2, where the kernel
/// stays conditionally positive definite. A parameter outside its bound gets the gradient at the
/// bound if a step against this gradient leads back, else 0; each backward pass decides anew. The
/// parameter can therefore return, as in the authors' code, which clamps the parameter itself
/// before each call. The paper's experiments are causal; without a causal mask the bias of later
/// keys falls with their distance too.
class Kerple : public PositionalEncoding {
 public:
  using Kind = KerpleKind;        ///< Formula of the bias.
  using Options = KerpleOptions;  ///< Options of the constructor.
  /// Registers p, uniform in [0.01, 2), and a, uniform in [0.01, 1).
  Kerple(Module& parent, HeadShape shape, Options options);
  void apply(AttentionInputs& inputs) const override;
  /// Returns the traits of an encoding with these options.
  static PositionTraits traits(const Options&) { return {.scores = true, .relative = true}; }
  std::string label() const override;

  const Options options;  ///< As passed to the constructor.
  const Tensor p;         ///< [H].
  const Tensor a;         ///< [H].
};

/// Computes the bias table [H, R] from p and a [H], which must be positive and are not clamped;
/// differentiable. bf16 is computed in f32 and rounded once.
RelativeTable kerple_bias(const Tensor& p, const Tensor& a, int64_t n_queries, int64_t n_keys,
                          Kerple::Kind kind = Kerple::Kind::logarithmic);

/// Returns a factory of Kerple.
inline MakePositionalEncoding kerple(Kerple::Options options = {}) {
  return positional_encoding<Kerple>(options);
}

}  // namespace stretto::nn
