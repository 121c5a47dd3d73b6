// Side: whether a function computes for queries or for keys.
//
// Reference: none (a name)
#pragma once

namespace stretto {

/// The two operands of an attention score.
enum class Side { query, key };
/// Both sides, queries first.
inline constexpr Side both_sides[] = {Side::query, Side::key};

}  // namespace stretto
