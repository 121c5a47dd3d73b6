// The loss of connectionist temporal classification [ops/ctc.h].
#include <algorithm>
#include <vector>

#include "ops/create.h"
#include "ops/ctc.h"
#include "tests/reference/ctc.h"
#include "tests/support/op_table.h"

namespace stretto::testing {
namespace {

Op ctc_op(Reduction reduction) {
  // The first T frames and S labels count in the first sequence, one less in the others.
  const auto lengths = [](int64_t batch, int64_t longest, int64_t least) {
    std::vector<int64_t> all;
    for (int64_t n = 0; n < batch; ++n) all.push_back(std::max(longest - (n > 0), least));
    return all;
  };
  Op op = {.name = str("ctc_loss, reduction ", int(reduction)),
           .call =
               [=](const Tensors& x) {
                 const int64_t batch = x[0].size(1);
                 return ctc_loss(x[0], x[1], tensor(lengths(batch, x[0].size(0), 1), {batch}),
                                 tensor(lengths(batch, x[1].size(1), 0), {batch}),
                                 {.blank = x[0].size(2) - 1, .reduction = reduction});
               },
           .reference =
               [=](const Arrays& x) {
                 const int64_t batch = x[0].shape[1];
                 const std::vector<int64_t> labels = lengths(batch, x[1].shape[1], 0);
                 std::vector<Number> losses = reference::ctc(
                     x[0], x[1], lengths(batch, x[0].shape[0], 1), labels, x[0].shape[2] - 1);
                 if (reduction == Reduction::none) return Array{{batch}, losses};
                 for (size_t n = 0; reduction == Reduction::mean && n < losses.size(); ++n)
                   losses[n] = losses[n] / Number(double(std::max<int64_t>(labels[n], 1) * batch));
                 return Array{{}, {total(losses)}};
               },
           .samples = {{{{3, 1, 3}}, {{1, 1}, Domain::index, 2}},
                       {{{4, 2, 3}}, {{2, 2}, Domain::index, 2}},
                       {{{5, 3, 4}}, {{3, 2}, Domain::index, 3}},
                       {{{1, 1, 2}}, {{1, 1}, Domain::index, 1}},
                       {{{2, 2, 3}}, {{2, 0}, Domain::index, 2}},
                       {{{3, 0, 3}}, {{0, 1}, Domain::index, 2}}},
           .large = {{{6, 5, 4}}, {{5, 2}, Domain::index, 3}}};
  const auto error = [](const Shape& x, const std::vector<int64_t>& targets, int64_t inputs,
                        int64_t labels, int64_t blank) {
    return [=] {
      ctc_loss(zeros(x), tensor(targets, {1, int64_t(targets.size())}), tensor({inputs}),
               tensor({labels}), {.blank = blank});
    };
  };
  op.errors = {
      {error({3, 4}, {1}, 3, 1, 0),
       "[ctc_loss] log probabilities f32 [3, 4]; must be a floating-point tensor [T, N, C]"},
      {error({3, 2, 4}, {1}, 3, 1, 0),
       "[ctc_loss] targets i64 [1, 1] for log probabilities f32 [3, 2, 4]; must be i64 or "
       "i32 [N, S]"},
      {error({3, 1, 4}, {1}, 3, 1, 4), "[ctc_loss] blank 4 of 4 classes; must be one of them"},
      {error({3, 1, 4}, {1}, 4, 1, 0), "[ctc_loss] input length 4 at position 0; accepted: 1 to 3"},
      {error({3, 1, 4}, {1}, 3, 2, 0),
       "[ctc_loss] target length 2 at position 0; accepted: 0 to 1"},
      {error({3, 1, 4}, {1, 0}, 3, 2, 0),
       "[ctc_loss] target 0 at position [0, 1]; accepted: 0 to 3 except the blank 0"},
      {[] {
         ctc_loss(zeros({3, 1, 4}), zeros({1, 1}, {.dtype = i64}), ones({1}), ones({1}));
       },
       "[ctc_loss] input length f32 [1]; must be i64 or i32 [1]"}};
  return op;
}

}  // namespace

void add_ctc_ops(std::vector<Op>& table) {
  for (const Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none})
    table.push_back(ctc_op(reduction));
}

}  // namespace stretto::testing
