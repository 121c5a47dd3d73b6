// cuRAND's calls over our own philox(): runs the check's plumbing, proves nothing about the bits
// (the real header does, and it serves the host too). See cuda_runtime.h beside this file.
#pragma once

#include "core/random.h"
#include "cuda_runtime.h"

struct curandStatePhilox4_32_10_t {
  stretto::RandomKey key;
  uint64_t next;
};
inline void curand_init(uint64_t seed, uint64_t subsequence, uint64_t offset,
                        curandStatePhilox4_32_10_t* state) {
  *state = {{seed, subsequence}, offset};
}
inline uint32_t curand(curandStatePhilox4_32_10_t* state) {
  return stretto::random_bits(state->key, state->next++);
}
