#include "nn/distributed/optimizer_shards.h"

#include <cmath>

#include "autograd/tape.h"
#include "ops/create.h"
#include "ops/view.h"

namespace stretto::nn {
namespace {

size_t bytes_of(const Tensor& x) { return size_t(x.numel() * item_size(x.dtype())); }

Tensor flat(const Tensor& x, ElementRange s) {
  return x.detach().reshape({x.numel()}).slice(0, s.begin, s.end);
}

}  // namespace

OptimizerShards::OptimizerShards(Optimizer& optimizer, GradientReducer& reducer,
                                 ProcessGroup& group)
    : optimizer_(optimizer), reducer_(reducer), group_(group) {
  keep_own();
}

// Ranges begin at blocks of the norm (norm_block): each rank computes the sums of squares of whole
// blocks, which are then added in the order of l2_norm.
double OptimizerShards::clip(double max_norm) {
  const NoGrad guard;
  const Tensors all = optimizer_.parameters();
  const std::vector<ElementRange> own = reducer_.ranges(group_.rank());
  std::vector<double> squares;
  Tensors gradients;
  for (size_t i = 0; i < all.size(); ++i) {
    const int64_t n = all[i].numel();
    const size_t before = squares.size();
    squares.resize(before + size_t((n + norm_block - 1) / norm_block));
    if (own[i].begin == own[i].end || !all[i].grad().defined()) continue;
    gradients.push_back(flat(all[i].grad(), own[i]));
    size_t at = before + size_t(own[i].begin / norm_block);
    for (const double sum : block_squares(gradients.back())) squares[at++] = sum;
  }
  // Each block is 0 on all ranks but one.
  group_.all_reduce(squares.data(), int64_t(squares.size()));
  double total = 0;
  for (const double sum : squares) total += sum;
  const double norm = std::sqrt(total);
  if (!gradients.empty())
    clip_to_norm(gradients, scalar(norm, {.dtype = f64, .device = cpu}), max_norm);
  return norm;
}

void OptimizerShards::step() {
  optimizer_.step();
  reducer_.share_parameters();
}

void OptimizerShards::to_root(int from, void* bytes, size_t n) {
  if (from == 0) return;
  group_.is_root() ? group_.send_recv(from, nullptr, 0, bytes, n)
                   : group_.send_recv(0, bytes, n, nullptr, 0);
}

void OptimizerShards::gather() {
  const NoGrad guard;
  const Tensors all = optimizer_.parameters();
  std::vector<ParameterState> whole(all.size());
  for (int from = 0; from < group_.size(); ++from) {
    const std::vector<ElementRange> ranges = reducer_.ranges(from);
    const bool sends = group_.rank() == from;
    if (!sends && !group_.is_root()) continue;
    for (size_t i = 0; i < all.size(); ++i) {
      const ParameterState& own = optimizer_.state()[i];
      const ElementRange s = ranges[i];
      if (all[i].numel() == 0) whole[i] = own;
      if (s.begin == s.end) continue;
      int64_t& steps = whole[i].steps;
      if (sends) steps = own.steps;
      to_root(from, &steps, sizeof steps);
      if (steps == 0) continue;
      const std::vector<std::string> names = optimizer_.state_names(i);
      const TensorOptions kind{.dtype = compute_type(all[i].dtype()), .device = Device()};
      for (size_t k = 0; k < names.size(); ++k) {
        if (k == whole[i].tensors.size() && group_.is_root())
          whole[i].tensors.push_back({names[k], empty(all[i].shape(), kind)});
        const Tensor values = sends ? own.tensors[k].tensor.to(Device()).contiguous()
                                    : empty({s.end - s.begin}, kind);
        to_root(from, values.raw_data(), bytes_of(values));
        if (group_.is_root()) flat(whole[i].tensors[k].tensor, s).copy_(values);
      }
    }
  }
  if (!group_.is_root()) return;
  optimizer_.keep_ranges({});
  optimizer_.load_state(whole);
}

void OptimizerShards::keep_own() { optimizer_.keep_ranges(reducer_.ranges(group_.rank())); }

}  // namespace stretto::nn
