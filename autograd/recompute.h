// Activation checkpointing, recompute() (Chen et al. 2016): the recording run and the recomputing run.
//
// recompute(f, inputs) runs f twice. The recording run, in the forward pass, computes the result
// without saving anything on the tape. The recomputing run, in the backward pass, repeats f with
// the tape on. This second run may be on another thread, after other calls have used random numbers
// and changed state. Every value that f gets from such state must therefore come from recorded():
// the recording run stores the value, and the recomputing run returns the stored value.
//
//     const Tensor rows = recorded("MyMap", [&] { return next_draw(); });
//
// Keys of the program's random state (next_random_key) are recorded automatically.
//
// Functions that cannot be repeated raise an error, if possible in the recording run:
//   - setting the random state, or calling recorded() inside parallel_for,
//   - an in-place change of a tensor made outside of the function,
//   - using a cache or a recurrent state, which the function would advance twice,
//   - reading the result of recorded ops that is not among the inputs.
// Errors of the recomputing run:
//   - a tensor read by the recording run was changed before the recomputing run,
//   - the recorded values are requested in another order or number.
// Not detected: threads that the function itself starts, and C++ variables that it changes.
#pragma once

#include <any>
#include <map>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include "../core/random.h"
#include "tape.h"

namespace stretto {

/// True if the ops that run now will be differentiated: they are recorded, or they belong to the
/// recording run of recompute() and the recomputing run will record them.
bool backward_follows();

/// True in the recomputing run of recompute().
bool is_recomputing();

/// Throws in both runs of recompute(): "[op] <what> cannot be used under recompute() …". For
/// calls that cannot be repeated.
void check_not_recomputed(const char* op, const char* what);

/// The data that the recording run of a function stores for the recomputing run.
struct RecomputeRecord {
  /// A value passed through recorded().
  struct Value {
    const char* what = "";  ///< The name given to recorded(), for errors.
    std::any value;         ///< The result of the function `next` that was passed to recorded().
  };
  /// A tensor made outside of the function and read by an op of the function.
  struct Read {
    Tensor tensor;         ///< The tensor, detached: a leaf's handle would own its gradient.
    uint32_t version = 0;  ///< The version of its storage.
    const char* op = "";   ///< The first op that read it.
  };
  std::vector<Value> values;  ///< In the order in which they were recorded.
  /// Storages of the inputs. Their changes are detected by Saved, not by check_unchanged().
  std::set<const Storage*> inputs;
  std::map<const Storage*, Read> read;  ///< Tensors read, by their storage.
  /// Throws if a tensor in `read` was changed after it was read.
  void check_unchanged() const;
};

/// A scope for one run of a function on this thread: the recording run or the recomputing run.
class RecomputeScope final : public RandomSource {
 public:
  /// Starts the recording run, or the recomputing run if `recomputing` is true.
  RecomputeScope(RecomputeRecord& record, bool recomputing);
  ~RecomputeScope();
  RecomputeScope(const RecomputeScope&) = delete;
  RecomputeScope& operator=(const RecomputeScope&) = delete;

  /// Checks the end of a run: throws if a recomputing run has not used all recorded values.
  void finish() const;
  /// True in the recomputing run.
  bool recomputing() const { return recomputing_; }
  /// Implements recorded().
  template <class F>
  auto value_of(const char* what, F&& next) -> std::invoke_result_t<F&>;
  /// Returns a key of the program's random state, recorded.
  RandomKey next_key() override;
  /// Throws: the random state cannot be set under recompute().
  void before_set() override;

  // For the tape.

  /// In the recording run: stores in `read` the inputs of an op that were made outside of the
  /// function, and in leaves() those that require a gradient. Throws if one of them is the result
  /// of recorded ops.
  void note_reads(const char* op, const Tensors& inputs);
  /// Returns the leaves that the recording run has read, in the order of their first use.
  const Tensors& leaves() const { return leaves_; }
  /// Throws if x was made outside of the function.
  void check_in_place(const char* op, const Tensor& x) const;

 private:
  struct Outside;
  bool from_outside(const Tensor& x) const { return x.storage().scope < thread_state.scope; }
  const std::any& next_recorded(const char* what);

  RecomputeRecord& record_;
  const bool recomputing_;
  size_t next_ = 0;
  ThreadState before_;
  Tensors leaves_;
  std::set<const TapeEntry*> leaf_entries_;
};

/// Returns next(). In the recording run of recompute() the result is stored; the recomputing run
/// returns the stored result instead, which must not be changed in place. next() itself may change
/// tensors made outside of the function. `what` is the name of the value in errors.
template <class F>
auto recorded(const char* what, F&& next) -> std::invoke_result_t<F&> {
  return thread_state.recompute ? thread_state.recompute->value_of(what, next) : next();
}

/// A scope for the call of next(), in which the thread has the state from before the run.
struct RecomputeScope::Outside {
  /// Starts the scope.
  explicit Outside(const RecomputeScope& recompute) { thread_state = recompute.before_; }
  ~Outside() { thread_state = inside; }
  const ThreadState inside = thread_state;  ///< The state of the run.
};

template <class F>
auto RecomputeScope::value_of(const char* what, F&& next) -> std::invoke_result_t<F&> {
  using T = std::invoke_result_t<F&>;
  check(!thread_state.in_body, what,
        "cannot be called inside parallel_for under recompute(): its result would depend on the "
        "order of the threads; make this call before parallel_for");
  if (recomputing_) return std::any_cast<const T&>(next_recorded(what));
  T value = [&] {
    const Outside outside(*this);
    return recorded(what, next);
  }();
  record_.values.push_back({what, value});
  return value;
}

}  // namespace stretto
