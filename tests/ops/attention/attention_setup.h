// Attention inputs for tests: sizes and options as numbers, and random inputs.
#pragma once

#include <string>

#include "ops/attention/attention.h"

namespace stretto::testing {

/// Sizes and options of attention. A 0 for keys, key_heads or d_value means the value of queries,
/// heads or d.
struct AttentionSetup {
  int64_t batch = 2, heads = 2, key_heads = 0;
  int64_t queries = 5, keys = 0;
  int64_t d = 8, d_value = 0;
  bool causal = false;
  int64_t window = 0, block = 0;
  int64_t padded = 0;          // number of padded keys, at random places; −1: all keys of entry 0
  int64_t table = 0;           // > 0: the key table has rows for the distances 0 … table − 1
  bool bidirectional = false;  // the tables also have rows for keys after the query
  bool shared = false;         // all heads share the tables
  OutOfRange out_of_range = OutOfRange::zero;
  bool relative_query = false;
  int64_t d_query = 0;         // P, the width of the position queries; 0: d
  bool relative_bias = false;  // a bias for the same distances, or for 7 without a table
  bool values = false;         // a value table
  std::string bias = {};       // the axes of a dense bias, of "BHMN"; "-" for a scalar
  double scale = 0;            // 0: 1/√D
  double dropout = 0;
  int64_t window_after = 0;
  int64_t segments = 0;     // > 0: packed segments of random lengths; −1: random ids
  bool prefix = false;      // prefix lengths from 0 to more than N
  int64_t global = 0;       // global tokens: the first, and others at random places
  std::string hidden = {};  // the axes of a random mask, of "BHMN"
  bool sinks = false, query_sinks = false;  // with query_sinks one for each query
  double soft_cap = 0;
};

/// Returns every field as text for INFO.
std::string describe(const AttentionSetup& s);

/// The tensors of a setup: f64 leaves, or constants of another dtype, with values in [−1, 1).
struct AttentionCase : AttentionOperands {
  Tensor operator()(Implementation implementation) const;
  /// Returns all tensors that can have a gradient.
  Tensors leaves() const;
};
AttentionCase make_inputs(const AttentionSetup& s, DType dtype = f64, uint64_t stream = 100);

/// Returns a random setup with sizes around the tiles of 64 and any of the options; the same number
/// gives the same setup.
AttentionSetup random_setup(uint64_t number);

/// The same with random masks of all kinds, sinks and a soft cap of 1.
AttentionSetup random_masked_setup(uint64_t number);

/// Returns the setup unchanged on the CPU, and on a GPU with head dimensions that kernels support.
AttentionSetup for_kernels(AttentionSetup s);

/// Returns the largest rounding error of an output value, relative to values of size 1: scores are
/// sums of D and of P products below √D in size, exp turns their absolute error into a relative one, and
/// the last sum has N terms. In bf16, sums are f32; weights and the result are rounded to 8 bits,
/// by half of 2⁻⁸ each, and with a value table a weight multiplies two values.
double attention_rounding(const AttentionSetup& s, DType dtype);

}  // namespace stretto::testing
