// A made-up language for training where no text is at hand.
#pragma once

#include <cstdint>
#include <string>

namespace stretto::examples {

/// About `bytes` of text, the same for a seed on every machine: indented blocks in blocks, each
/// closed by the name that opened it, brackets of three kinds, verbs that agree with the number of
/// their subject, and names that are made up on the spot and used again within their block. What
/// comes next therefore often hangs on something far back, and the far back pays.
std::string generate_text(uint64_t seed, int64_t bytes);

}  // namespace stretto::examples
