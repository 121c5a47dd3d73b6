#include "core/digest.h"

#define XXH_INLINE_ALL  // header only: no library to link
#include <xxhash.h>

#include <cstdio>

namespace stretto {

struct Digest::State {
  XXH64_state_t xxh;
};

Digest::Digest() : state_(std::make_unique<State>()) { XXH64_reset(&state_->xxh, 0); }
Digest::~Digest() = default;

void Digest::add(const void* data, int64_t bytes) {
  if (bytes == 0) return;  // `data` of an empty tensor may be null
  XXH64_update(&state_->xxh, data, size_t(bytes));
}

uint64_t Digest::value() const { return XXH64_digest(&state_->xxh); }

std::string Digest::text() const {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value()));
  return text;
}

}  // namespace stretto
