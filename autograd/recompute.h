// What checkpoint() needs to run a function twice and have it do the same.
//
// The second run happens in the backward pass, maybe on another thread, after other calls have
// drawn random numbers and changed what they change. Therefore whatever a function takes from state
// that its calls change goes through recorded(): the first run notes it, the second gets the note.
//
//     const Tensor rows = recorded("MyMap", [&] { return next_draw(); });
//
// Keys of the program's random state (next_random_key) go this way by themselves. What cannot be
// done twice is refused, in the first run where it can be seen there: setting the random state,
// drawing inside parallel_for, changing a tensor in place that was made outside of the function, a
// cache or state that the call would advance, a result of recorded ops that is not an input. In the
// second run: a tensor that the first one read and that was changed in between, and taking other
// things than the first run took. Not seen: threads that the function itself starts, and variables
// of C++ that it changes.
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

/// True where the ops that run now will be differentiated: they are recorded, or are of the first
/// run of checkpoint(), whose second will be.
bool backward_follows();

/// True in a second run of checkpoint().
bool is_recomputing();

/// Throws in both runs of checkpoint(): "<op> <what> cannot be run again".
void check_not_recomputed(const char* op, const char* what);

/// What one function took and read in its first run, for its second.
struct RecomputeRecord {
  struct Taken {
    const char* what = "";
    std::any value;
  };
  struct Read {
    Tensor tensor;
    const Storage* storage = nullptr;
    uint32_t version = 0;
    const char* op = "";
  };
  std::vector<Taken> taken;
  std::set<const Storage*> inputs;   // which Saved watches over
  std::map<const void*, Read> read;  // tensors from outside, by their handles
  /// Throws when one of them has changed since.
  void check_unchanged() const;
};

/// For its life this thread runs the function of a record, for the first time or again.
class RecomputeScope final : public RandomSource {
 public:
  RecomputeScope(RecomputeRecord& record, bool again);
  ~RecomputeScope();
  RecomputeScope(const RecomputeScope&) = delete;
  RecomputeScope& operator=(const RecomputeScope&) = delete;

  /// The run is over: throws when it took less than the first one.
  void finish() const;
  bool again() const { return again_; }
  template <class F>
  auto take(const char* what, F&& next) -> std::invoke_result_t<F&>;
  RandomKey next_key() override;
  void before_set() override;

  // For the tape.
  void note_reads(const char* op, const Tensors& inputs);
  void check_in_place(const char* op, const Tensor& x) const;

 private:
  // The function's next(), outside of the function: as what surrounds it sees it.
  struct Outside;
  bool from_outside(const Tensor& x) const { return x.storage().scope < thread_state.scope; }
  const std::any& noted(const char* what);

  RecomputeRecord& record_;
  const bool again_;
  size_t next_ = 0;
  ThreadState before_;
};

/// next(); but what it gave in the first run in the second run of checkpoint(), which must not be
/// changed in place. Inside next() tensors from outside may be changed. `what` is for errors.
template <class F>
auto recorded(const char* what, F&& next) -> std::invoke_result_t<F&> {
  return thread_state.recompute ? thread_state.recompute->take(what, next) : next();
}

struct RecomputeScope::Outside {
  explicit Outside(const RecomputeScope& recompute) { thread_state = recompute.before_; }
  ~Outside() { thread_state = inside; }
  const ThreadState inside = thread_state;
};

template <class F>
auto RecomputeScope::take(const char* what, F&& next) -> std::invoke_result_t<F&> {
  using T = std::invoke_result_t<F&>;
  check(!thread_state.in_body, what,
        "inside parallel_for, under checkpoint(): what the second run "
        "would take depends on the order of threads; take it before");
  if (again_) return std::any_cast<const T&>(noted(what));
  T value = [&] {
    const Outside outside(*this);
    return recorded(what, next);
  }();
  record_.taken.push_back({what, value});
  return value;
}

}  // namespace stretto
