#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

namespace stretto::testing {
namespace {

constexpr std::size_t kMaxPool = 256;

std::size_t below(PortableRandom& random, std::size_t n) {
  return static_cast<std::size_t>(random.below(static_cast<int>(n)));
}

/// A random position in `text`; if `end`, also just after it.
std::size_t place(const std::string& text, PortableRandom& random, bool end = false) {
  return below(random, text.size() + (end ? 1 : 0));
}

/// A value at which counts, offsets and lengths often go wrong.
std::uint64_t extreme(PortableRandom& random) {
  constexpr std::array<std::uint64_t, 6> kPowers = {7, 8, 15, 16, 31, 32};
  switch (random.below(5)) {
    case 0:
      return below(random, 4);
    case 1:
      return ~std::uint64_t{0} - below(random, 2);
    case 2:
      return (std::uint64_t{1} << 63) - below(random, 2);
    case 3:
      return random.next() >> random.below(64);
    default: {
      const std::uint64_t power = std::uint64_t{1} << kPowers[below(random, kPowers.size())];
      return power - below(random, 2);
    }
  }
}

void set_number(std::string& text, PortableRandom& random) {
  const std::uint64_t number = extreme(random);
  const std::size_t size = std::size_t{1} << random.below(4);
  const bool little_endian = random.below(2) == 0;
  const std::size_t at = place(text, random);
  for (std::size_t i = 0; i < size && at + i < text.size(); ++i) {
    const std::size_t shift = 8 * (little_endian ? i : size - 1 - i);
    text[at + i] = static_cast<char>(number >> shift & 0xFF);
  }
}

/// Replaces the decimal number at or after a random position, if there is one.
void set_decimal(std::string& text, PortableRandom& random) {
  constexpr const char* kDigits = "0123456789";
  const std::size_t begin = text.find_first_of(kDigits, place(text, random));
  if (begin == std::string::npos) return;
  const std::size_t end = std::min(text.find_first_not_of(kDigits, begin), text.size());
  const std::string sign = random.below(8) == 0 ? "-" : "";
  text.replace(begin, end - begin, sign + std::to_string(extreme(random)));
}

/// Inserts a part of `other` or overwrites bytes with it.
void put_in(std::string& text, std::string_view other, PortableRandom& random) {
  const std::size_t at = place(text, random, true);
  const std::size_t replaced = random.below(2) == 0 ? 0 : other.size();
  text.replace(at, std::min(replaced, text.size() - at), other);
}

std::string_view piece(const std::string& text, PortableRandom& random) {
  if (text.empty()) return {};
  const std::size_t at = place(text, random);
  return std::string_view(text).substr(at, 1 + below(random, text.size() - at));
}

void change(std::string& text, const FuzzTarget& target, PortableRandom& random) {
  const int kind = random.below(10);
  if (kind == 0 && !target.words.empty()) {
    return put_in(text, target.words[below(random, target.words.size())], random);
  }
  if (kind == 1) {
    return put_in(text, piece(target.seeds[below(random, target.seeds.size())], random), random);
  }
  if (text.empty()) {
    text += static_cast<char>(random.below(256));
    return;
  }
  const std::size_t at = place(text, random);
  switch (kind) {
    case 2:
      text[at] ^= static_cast<char>(1 << random.below(8));
      break;
    case 3:
      text[at] = static_cast<char>(random.below(256));
      break;
    case 4:
      text.insert(at, 1, static_cast<char>(random.below(256)));
      break;
    case 5:
      text.erase(at, 1 + below(random, 8));
      break;
    case 6:
      text.erase(at);
      break;
    case 7:
      put_in(text, std::string(piece(text, random)), random);
      break;
    case 8:
      set_decimal(text, random);
      break;
    default:
      set_number(text, random);
      break;
  }
}

std::string hex(const std::string& bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

bool run(const FuzzTarget& target, const std::string& input, const std::string& round) {
  std::string defect;
  try {
    return target.run(input);
  } catch (const std::exception& error) {
    defect = error.what();
  }
  throw FuzzFailure(round + ": " + defect + "; the input: " + hex(input));
}

}  // namespace

std::string mutate(std::string input, const FuzzTarget& target, PortableRandom& random,
                   std::size_t max_size) {
  const int changes = 1 << random.below(4);
  for (int i = 0; i < changes; ++i) {
    change(input, target, random);
    if (input.size() > max_size) input.resize(max_size);
  }
  return input;
}

FuzzCount fuzz(const FuzzTarget& target, std::int64_t rounds, std::uint64_t seed) {
  for (std::size_t i = 0; i < target.seeds.size(); ++i) {
    const std::string name = "seed " + std::to_string(i);
    if (!run(target, target.seeds[i], name)) throw FuzzFailure(name + " is refused");
  }
  PortableRandom random(seed);
  std::vector<std::string> pool = target.seeds;
  FuzzCount count;
  for (std::int64_t round = 0; round < rounds; ++round) {
    std::string input = mutate(pool[below(random, pool.size())], target, random);
    if (!run(target, input, "round " + std::to_string(round))) {
      ++count.refused;
      continue;
    }
    ++count.accepted;
    if (pool.size() < kMaxPool) {
      pool.push_back(std::move(input));
    } else {
      const std::size_t mutants = kMaxPool - target.seeds.size();
      pool[target.seeds.size() + below(random, mutants)] = std::move(input);
    }
  }
  return count;
}

}  // namespace stretto::testing
