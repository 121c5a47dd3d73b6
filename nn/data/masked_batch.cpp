#include "nn/data/masked_batch.h"

#include "core/error.h"
#include "core/random.h"
#include "ops/create.h"

namespace stretto::nn {
namespace {

constexpr const char* op = "masked_batch";

void check_options(const MaskingOptions& o) {
  check(o.vocabulary >= 1 && o.mask_token >= 0 && o.mask_token < o.vocabulary, op, "vocabulary ",
        o.vocabulary, ", mask_token ", o.mask_token,
        "; vocabulary must be at least 1, and mask_token one of its ids");
  check(o.share >= 0 && o.share <= 1 && o.masked >= 0 && o.random >= 0 && o.masked + o.random <= 1,
        op, "share ", o.share, ", masked ", o.masked, ", random ", o.random,
        "; must be probabilities, masked + random at most 1");
}

// Returns for each id whether its tokens may be selected as targets and whether it may be drawn as
// a random token: false for mask_token and the special ids.
std::vector<bool> ordinary_ids(const MaskingOptions& o) {
  std::vector<bool> ordinary(size_t(o.vocabulary), true);
  ordinary[size_t(o.mask_token)] = false;
  for (const int64_t id : o.special) {
    check(id >= 0 && id < o.vocabulary, op, "special token ", id, "; must be 0 to ",
          o.vocabulary - 1);
    ordinary[size_t(id)] = false;
  }
  return ordinary;
}

// Positions with `padding` are not selected.
Batch masked(const Tensor& tokens, const Tensor& padding, const MaskingOptions& o, uint64_t seed,
             int64_t step) {
  check(tokens.dim() == 2 && (tokens.dtype() == i64 || tokens.dtype() == i32), op, "tokens ",
        tokens, "; must be i64 or i32 [B, L]");
  check_options(o);
  const std::vector<bool> ordinary = ordinary_ids(o);
  std::vector<int64_t> drawable;
  for (int64_t id = 0; id < o.vocabulary; ++id)
    if (ordinary[size_t(id)]) drawable.push_back(id);
  check(o.random == 0 || !drawable.empty(), op, "random is ", o.random, ", but all ", o.vocabulary,
        " ids are special, so no random token can be drawn; set random to 0, or leave an id that "
        "is not special");

  // The seed is changed so that this key differs from the keys of the program's random state with
  // the same seed.
  const RandomKey key{seed ^ 0x6d61736b6564ull, uint64_t(step)};
  std::vector<int64_t> inputs = tokens.to_vector<int64_t>(), targets(inputs.size(), ignore_index);
  std::vector<int64_t> missing(inputs.size());
  if (padding.defined()) missing = padding.to(i64).to_vector<int64_t>();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (missing[i] != 0) continue;
    const int64_t id = inputs[i];
    check(id >= 0 && id < o.vocabulary, op, "token ", id, "; must be 0 to ", o.vocabulary - 1);
    const Random4 bits = philox(key, i);
    if (!ordinary[size_t(id)] || uniform_from_bits(bits.v[0]) >= o.share) continue;
    targets[i] = id;
    const double u = uniform_from_bits(bits.v[1]);
    if (u < o.masked)
      inputs[i] = o.mask_token;
    else if (u < o.masked + o.random)
      inputs[i] = drawable[below_from_bits(drawable.size(), bits.v[2], bits.v[3])];
  }
  return {tensor(inputs, tokens.shape(), cpu), tensor(targets, tokens.shape(), cpu), padding};
}

}  // namespace

Batch masked_batch(const Tensor& tokens, const MaskingOptions& options, uint64_t seed,
                   int64_t step) {
  return masked(tokens, {}, options, seed, step);
}

Batch masked_batch(const PaddedRows& rows, const MaskingOptions& options, uint64_t seed,
                   int64_t step) {
  check(rows.padding.shape() == rows.tokens.shape(), op, "tokens ", rows.tokens, ", padding ",
        rows.padding, "; shapes must be equal");
  return masked(rows.tokens, rows.padding, options, seed, step);
}

}  // namespace stretto::nn
