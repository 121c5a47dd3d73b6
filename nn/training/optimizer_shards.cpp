#include "nn/training/optimizer_shards.h"

#include <algorithm>
#include <cstring>

#include "autograd/tape.h"

namespace stretto::nn {
namespace {

size_t bytes_of(const Tensor& x) { return size_t(x.numel() * item_size(x.dtype())); }

}  // namespace

OptimizerShards::OptimizerShards(Optimizer& optimizer, ProcessGroup& group)
    : optimizer_(optimizer), group_(group) {
  const Tensors all = optimizer.parameters();
  int64_t total = 0, before = 0;
  for (const Tensor& p : all) total += p.numel();
  size_t i = 0;
  for (int rank = 0; rank < group.size(); ++rank) {
    // A parameter is with the process in whose share its middle lies.
    while (i < all.size() && (2 * before + all[i].numel()) * group.size() < 2 * total * (rank + 1))
      before += all[i++].numel();
    ends_.push_back(rank + 1 == group.size() ? all.size() : i);
  }
}

int OptimizerShards::owner(size_t i) const {
  return int(std::upper_bound(ends_.begin(), ends_.end(), i) - ends_.begin());
}

void OptimizerShards::step() {
  const Tensors all = optimizer_.parameters();
  for (size_t i = 0; i < all.size(); ++i)
    if (owner(i) != group_.rank()) all[i].set_grad({});
  optimizer_.step();
  tell_values();
}

void OptimizerShards::tell_values() {
  const NoGrad guard;
  const Tensors all = optimizer_.parameters();
  std::vector<size_t> places{0}, ends;
  for (const Tensor& p : all) places.push_back(places.back() + bytes_of(p));
  for (const size_t end : ends_) ends.push_back(places[end]);
  const Tensor values = empty({int64_t(places.back())}, {.dtype = u8, .device = Device()});
  char* const bytes = static_cast<char*>(values.raw_data());
  for (size_t i = 0; i < all.size(); ++i) {
    if (owner(i) != group_.rank()) continue;
    const Tensor own = all[i].detach().to(Device()).contiguous();
    std::memcpy(bytes + places[i], own.raw_data(), bytes_of(own));
  }
  group_.all_gather_pieces(bytes, ends);
  for (size_t i = 0; i < all.size(); ++i) {
    if (owner(i) == group_.rank()) continue;
    const Tensor theirs = empty(all[i].shape(), {.dtype = all[i].dtype(), .device = Device()});
    std::memcpy(theirs.raw_data(), bytes + places[i], bytes_of(theirs));
    all[i].copy_(theirs);
  }
}

void OptimizerShards::gather() {
  const Tensors all = optimizer_.parameters();
  std::vector<ParameterState> states = optimizer_.state();
  for (size_t i = ends_[0]; i < all.size(); ++i) {
    ParameterState& state = states[i];
    const int from = owner(i);
    if (group_.rank() == from) {
      group_.exchange(0, &state.steps, sizeof state.steps, nullptr, 0);
      for (const NamedTensor& kept : state.tensors) {
        const Tensor own = kept.tensor.to(Device()).contiguous();
        group_.exchange(0, own.raw_data(), bytes_of(own), nullptr, 0);
      }
    } else if (group_.leads()) {
      group_.exchange(from, nullptr, 0, &state.steps, sizeof state.steps);
      state.tensors.clear();
      if (state.steps == 0) continue;
      for (const std::string& name : optimizer_.state_names(i)) {
        const DType dtype = all[i].dtype() == f64 ? f64 : f32;
        Tensor theirs = empty(all[i].shape(), {.dtype = dtype, .device = Device()});
        group_.exchange(from, nullptr, 0, theirs.raw_data(), bytes_of(theirs));
        state.tensors.push_back({name, theirs});
      }
    }
  }
  if (group_.leads()) optimizer_.load_state(states);
}

void OptimizerShards::keep_own() {
  std::vector<ParameterState> states = optimizer_.state();
  for (size_t i = 0; i < states.size(); ++i)
    if (owner(i) != group_.rank()) states[i] = {};
  optimizer_.load_state(states);
}

}  // namespace stretto::nn
