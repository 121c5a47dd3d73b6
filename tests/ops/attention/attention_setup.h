// Attention calls for tests: sizes and options in numbers, and calls drawn at random.
#pragma once

#include <string>

#include "ops/attention/attention.h"

namespace stretto::testing {

/// What to call attention with. 0 keys, key heads or d_value mean "as many as on the other side".
struct AttentionSetup {
  int64_t batch = 2, heads = 2, key_heads = 0;
  int64_t queries = 5, keys = 0;
  int64_t d = 8, d_value = 0;
  bool causal = false;
  int64_t window = 0, block = 0;
  int64_t padded = 0;          // so many of all keys are padding, at random; −1: entry 0 whole
  int64_t table = 0;           // > 0: distances 0 … table − 1 have a row in the key table
  bool bidirectional = false;  // the tables also have rows for the future
  bool shared = false;         // by the heads
  OutOfRange out_of_range = OutOfRange::zero;
  bool relative_query = false;
  bool relative_bias = false;  // of `table` distances too, or 7
  bool values = false;         // a value table
  std::string bias = {};       // the axes of a dense one, of "BHMN"; "-" for a number
  double scale = 0;            // 0: 1/√D
  double dropout = 0;
};

/// Every field, as text for INFO.
std::string describe(const AttentionSetup& s);

/// The tensors of a setup: f64 leaves, or constants of another dtype. Values are in [−1, 1).
struct AttentionCase : AttentionOperands {
  Tensor operator()(Implementation implementation) const;
  /// Everything that can have a gradient.
  Tensors leaves() const;
};
AttentionCase make_inputs(const AttentionSetup& s, DType dtype = f64, uint64_t stream = 100);

/// A setup with every choice drawn at random from sizes around the tiles of 64, and from all
/// options; the same number gives the same setup.
AttentionSetup random_setup(uint64_t number);

/// The same where tensors are made on the CPU; on a GPU with heads as wide as its kernels take.
AttentionSetup for_kernels(AttentionSetup s);

/// The largest relative rounding error of one output value, counted from the sums: scores are two
/// sums of D products below √D in size, exp turns their absolute error into a relative one, and the
/// last sum has N terms. Relative to values of size 1. In bf16 sums are f32; weights and the result
/// are rounded to 8 bits, by half of 2⁻⁸ each, and with a value table two values meet a weight.
double attention_rounding(const AttentionSetup& s, DType dtype);

}  // namespace stretto::testing
