// The backward pass [autograd/tape.h]: visits nodes by falling creation number, so every node is
// reached after all its consumers, without recursion and in one fixed order.
#pragma once

#include <queue>
#include <unordered_map>

#include "autograd/tape.h"

namespace stretto {

/// Puts outputs on the tape, unconditionally (record, checkpoint).
void attach(const char* op, const Tensors& inputs, Tensors& outputs, BackwardFn backward,
            Keep keep);

struct Engine {
  const uint64_t pass = next_pass();
  BackwardOptions options;
  /// For grad(): the gradients of the tensors asked for; nothing arrives in leaves.
  bool capture = false;
  std::unordered_map<TapeEntry*, Tensor> captured;
  /// For a pass inside a closure of another: that takes what arrives in leaves that are not
  /// captured here, as if they were its own.
  Engine* outer = nullptr;

  void start(const char* op, const Tensors& outputs, const Tensors& gradients);
  void run();

  /// The gradients of `inputs`, leaves, from a gradient that has arrived at y; for checkpoint().
  static Tensors inner(Backward& b, const Tensor& y, const Tensors& inputs);

 private:
  struct ByNumber {
    bool operator()(const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) const {
      return a->number < b->number;
    }
  };
  static uint64_t next_pass();
  void send(const std::shared_ptr<TapeEntry>& entry, const Tensor& g);
  void arrive_at_leaf(const std::shared_ptr<TapeEntry>& entry, const Tensor& g);
  void finish_leaf(TapeEntry& entry, Tensor g);

  std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, ByNumber> queue_;
  std::unordered_map<Node*, Tensors> pending_;
  // A leaf's hooks see the sum of a pass; all of it arrives before the pass ends.
  std::vector<std::shared_ptr<TapeEntry>> leaf_order_;
  std::unordered_map<TapeEntry*, Tensor> leaves_;
};

}  // namespace stretto
