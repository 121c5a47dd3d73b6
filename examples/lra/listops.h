// ListOps (Nangia & Bowman 2018) as the Long Range Arena has it: nested lists with an operator at
// their head, and the digit that they come to.
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

/// A digit is itself; the others stand in the order of their texts "[MAX", "[MED", "[MIN", "[SM",
/// "]". MED is the median, of an even number the mean of the middle two without its fraction; SM
/// the sum modulo 10.
enum ListOpsToken : uint8_t { list_max = 10, list_med, list_min, list_sum, list_end };

/// Tokens in the order of writing. Its length is what limits refer to: digits, operators and
/// closing brackets.
using ListOpsExpression = std::vector<uint8_t>;

struct ListOpsOptions {
  int max_depth = 10;
  int max_args = 10;
  int64_t min_length = 500;   // expressions are longer than this
  int64_t max_length = 2000;  // and shorter than this
};

/// One random tree into `tokens`; false where it has `max_length` tokens or more, which are then
/// cut off. A node is an operator with probability 1/4, or never at max_depth, else an even digit
/// of ten. An operator has 2 to max_args children, evenly, and is one of four. Drawn in this order:
/// which of the two; a digit, or the number of children, the children, and then the operator.
bool draw_listops(PortableRandom& random, const ListOpsOptions& options, ListOpsExpression& tokens);

struct ListOpsData {
  std::vector<ListOpsExpression> expressions;  // all different
  int64_t draws = 0;                           // trees that were drawn for them
};

/// The first `count` different trees of the right length that a seed draws. Throws UsageError where
/// a million draws in a row bring nothing new.
ListOpsData generate_listops(uint64_t seed, int64_t count, const ListOpsOptions& options = {});

/// What an expression comes to, at any depth. Throws UsageError where it is not a whole one.
int evaluate_listops(const ListOpsExpression& tokens);

/// With round brackets around each pair of the left-nested form: "( ( ( [MAX 2 ) 9 ) ] )".
std::string listops_text(const ListOpsExpression& tokens);
/// The same backwards; round brackets are ignored. Throws UsageError for what is no expression.
ListOpsExpression parse_listops(std::string_view text);

/// Files of the Long Range Arena: a line "Source", tab, "Target", then a line for each expression
/// with the digit it comes to, quotes as Python's csv module, CR LF. Reading also takes LF, and
/// throws UsageError, naming the line, also where the digit is another one.
void write_listops(const std::string& path, const std::vector<ListOpsExpression>& expressions);
std::vector<ListOpsExpression> read_listops(const std::string& path);

/// Ids in the order of the tokens' texts from 1 on, after padding, and one for unknown ones that
/// never occurs. `strip_brackets` leaves out closing brackets, as the published results did, whose
/// tokenizer lost them: what is left has no one value.
LabelledSequences listops_sequences(const std::vector<ListOpsExpression>& expressions,
                                    bool strip_brackets = false);
/// 17, or 16 without brackets.
int64_t listops_vocabulary(bool strip_brackets);

}  // namespace stretto::examples
