// ListOps (Nangia & Bowman 2018) as in the Long Range Arena: nested lists that begin with an
// operator, and the digit that they evaluate to.
//
//     [MAX 2 9 [MIN 4 7 ] 0 ]   →   9
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "examples/common/portable_random.h"
#include "examples/lra/sequences.h"

namespace stretto::examples {

/// A digit is its own token; the other tokens are in the order of their spellings "[MAX", "[MED",
/// "[MIN", "[SM", "]". MED is the median (for an even count the mean of the middle two, rounded
/// down), SM the sum modulo 10.
enum ListOpsToken : uint8_t { list_max = 10, list_med, list_min, list_sum, list_end };

/// Tokens in written order. Length limits count digits, operators and closing brackets.
using ListOpsExpression = std::vector<uint8_t>;

struct ListOpsOptions {
  int max_depth = 10;
  int max_args = 10;
  int64_t min_length = 500;   ///< expressions are longer than this
  int64_t max_length = 2000;  ///< and shorter than this
};

/// Draws a random tree into `tokens`. Returns false if it has `max_length` tokens or more; the
/// tokens are then incomplete. A node is an operator with probability 1/4 (never at max_depth),
/// else a uniform digit. An operator has 2 to max_args children (uniform) and is one of four
/// (uniform). Order of the random numbers: operator or digit; then the digit, or the number of
/// children, the children, and the operator.
bool draw_listops(PortableRandom& random, const ListOpsOptions& options, ListOpsExpression& tokens);

struct ListOpsData {
  std::vector<ListOpsExpression> expressions;  ///< all different
  int64_t draws = 0;                           ///< number of trees drawn to find them
};

/// Returns the first `count` different trees of the required length for a seed. Throws UsageError
/// if a million draws in a row produce nothing new.
ListOpsData generate_listops(uint64_t seed, int64_t count, const ListOpsOptions& options = {});

/// Returns the value of an expression of any depth. Throws UsageError if the expression is not
/// complete.
int evaluate_listops(const ListOpsExpression& tokens);

/// Returns the text, with parentheses around each pair of the left-nested form: "( ( (
/// [MAX 2 ) 9 ) ] )".
std::string listops_text(const ListOpsExpression& tokens);
/// Parses such a text, ignoring parentheses. Throws UsageError if it is not an expression.
ListOpsExpression parse_listops(std::string_view text);

/// Write and read files of the Long Range Arena: a header "Source", tab, "Target", then a line for
/// each expression with the digit that it evaluates to, quoted as by Python's csv module. Lines end
/// in CR LF; reading also accepts LF. Reading throws UsageError, naming the line, for errors, such
/// as a digit that is not the expression's value.
void write_listops(const std::string& path, const std::vector<ListOpsExpression>& expressions);
std::vector<ListOpsExpression> read_listops(const std::string& path);

/// Returns sequences of ids. Id 0 is padding, ids from 1 on are the tokens in the order of their
/// spellings, and the last id, for unknown tokens, never occurs. `strip_brackets` leaves out
/// closing brackets, as in the published results, whose tokenizer dropped them; such sequences no
/// longer have a unique value.
LabeledSequences listops_sequences(const std::vector<ListOpsExpression>& expressions,
                                   bool strip_brackets = false);
/// Returns 17, or 16 without closing brackets.
int64_t listops_vocabulary(bool strip_brackets);

}  // namespace stretto::examples
