// Per-thread state. Bodies of parallel_for inherit it from the calling thread (core/parallel.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "device.h"
#include "dtype.h"

namespace stretto {

struct RandomSource;   // core/random.h
class RecomputeScope;  // autograd/recompute.h
class PoolBlocks;      // core/storage.h

struct ThreadState {
  bool recording = true;                 // ops are put on the tape (autograd/tape.h)
  bool in_body = false;                  // inside parallel_for
  bool first_run = false;                // in the recording run of recompute()
  bool recorded_later = false;           // first_run, and the ops that run now will be recorded in
                                         // the recomputing run
  const char* backward_op = nullptr;     // the op whose backward closure is running
  RandomSource* random = nullptr;        // source of keys; null: the program's random state
  RecomputeScope* recompute = nullptr;   // the current run of recompute(); null: none
  Device device;                         // the value of default_device()
  bool skip_init = false;                // leave new parameters uninitialized (nn/init.h)
  std::optional<DType> parameter_dtype;  // with skip_init: the dtype of new parameters
  uint64_t scope = 0;                    // number of the run of recompute(); see Storage::scope
  // New tensors on the pool's device are allocated in this pool; null: no pool.
  const std::shared_ptr<PoolBlocks>* pool = nullptr;
};

inline constinit thread_local ThreadState thread_state;

}  // namespace stretto
