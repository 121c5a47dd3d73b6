// What belongs to the thread that computes, and is handed on to those that help it: the bodies of
// parallel_for (core/parallel.h) see the state of the thread that called it.
#pragma once

#include <cstdint>
#include <memory>

#include "device.h"

namespace stretto {

struct RandomSource;   // core/random.h
class RecomputeScope;  // autograd/recompute.h
class PoolBlocks;      // core/storage.h

struct ThreadState {
  bool recording = true;                // ops are put on the tape (autograd/tape.h)
  bool in_body = false;                 // inside parallel_for
  bool first_run = false;               // of the function that checkpoint() runs here
  bool recorded_later = false;          // in a first run: its second will put these ops on the tape
  const char* backward_op = nullptr;    // the op whose backward closure runs
  RandomSource* random = nullptr;       // where keys come from; null: the state of the program
  RecomputeScope* recompute = nullptr;  // the function that checkpoint() runs here
  Device device;                        // where tensors are made when nobody says where
  bool skip_init = false;               // parameters stay as they are made (nn/init.h)
  uint64_t scope = 0;                   // its number; storages remember in which they were made
  const std::shared_ptr<PoolBlocks>* pool = nullptr;  // where memory of its device comes from
};

inline constinit thread_local ThreadState thread_state;

}  // namespace stretto
