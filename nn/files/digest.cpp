#include "nn/files/digest.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

namespace stretto::nn {
namespace {

template <class T>
T read(const unsigned char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

}  // namespace

// The lanes are kept in registers: they might alias the bytes.
void Digest::blocks(const unsigned char* from, int64_t count) {
  const auto mix = [](uint64_t lane, const unsigned char* bytes) {
    return std::rotl(lane + read<uint64_t>(bytes) * prime2, 31) * prime1;
  };
  uint64_t a = lanes_[0], b = lanes_[1], c = lanes_[2], d = lanes_[3];
  for (; count > 0; --count, from += 32) {
    a = mix(a, from);
    b = mix(b, from + 8);
    c = mix(c, from + 16);
    d = mix(d, from + 24);
  }
  lanes_[0] = a, lanes_[1] = b, lanes_[2] = c, lanes_[3] = d;
}

void Digest::add(const void* data, int64_t bytes) {
  if (bytes == 0) return;  // of an empty tensor, which has no address
  const auto* from = static_cast<const unsigned char*>(data);
  const uint64_t waiting = length_ % 32;
  length_ += uint64_t(bytes);
  if (waiting > 0) {
    const int64_t n = std::min<int64_t>(bytes, int64_t(32 - waiting));
    std::memcpy(rest_ + waiting, from, size_t(n));
    from += n;
    bytes -= n;
    if (waiting + uint64_t(n) < 32) return;
    blocks(rest_, 1);
  }
  blocks(from, bytes / 32);
  if (bytes % 32 > 0) std::memcpy(rest_, from + bytes / 32 * 32, size_t(bytes % 32));
}

uint64_t Digest::value() const {
  uint64_t sum = prime5;
  if (length_ >= 32) {
    sum = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
          std::rotl(lanes_[3], 18);
    for (uint64_t lane : lanes_)
      sum = (sum ^ std::rotl(lane * prime2, 31) * prime1) * prime1 + prime4;
  }
  sum += length_;
  const unsigned char *at = rest_, *end = rest_ + length_ % 32;
  for (; end - at >= 8; at += 8)
    sum =
        std::rotl(sum ^ std::rotl(read<uint64_t>(at) * prime2, 31) * prime1, 27) * prime1 + prime4;
  if (end - at >= 4) {
    sum = std::rotl(sum ^ read<uint32_t>(at) * prime1, 23) * prime2 + prime3;
    at += 4;
  }
  for (; at < end; ++at) sum = std::rotl(sum ^ *at * prime5, 11) * prime1;
  sum = (sum ^ sum >> 33) * prime2;
  sum = (sum ^ sum >> 29) * prime3;
  return sum ^ sum >> 32;
}

std::string Digest::text() const {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value()));
  return text;
}

}  // namespace stretto::nn
