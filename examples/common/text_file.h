// Helpers for readers of texts and tables: refusal of other formats, byte order marks, lines.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace stretto::examples {

/// Throws UsageError "PATH: is gzip-compressed; expected EXPECTED" if
/// known_format(bytes) (core/known_format.h) is not empty.
void refuse_known_format(std::string_view bytes, const std::string& path,
                         const std::string& expected);

/// Returns the parts of `text` before, between and after separators; at most the first `most`.
std::vector<std::string_view> fields_of(std::string_view text, char separator,
                                        size_t most = SIZE_MAX);

/// Returns the field that begins at `at`, and moves `at` to the separator after it or to the end of
/// the line. With `quotes` the field may be in double quotes, with inner quotes doubled (RFC 4180);
/// its content is then in `text`. Throws UsageError for a field that does not end with its quote.
std::string_view next_field(std::string_view line, size_t& at, char separator, bool quotes,
                            std::string& text);

/// Returns `text` without the byte order mark of UTF-8 (EF BB BF) that it may begin with.
std::string_view without_byte_order_mark(std::string_view text);

/// Calls `line` with each line of the table in `bytes` and its number, which counts from 1. Lines
/// end in LF or CR LF; the last line may have no line end. A byte order mark and empty lines at the
/// end are left out. Throws UsageError, naming `path`, for bytes of a known_format(), and also for
/// other binary files if `line` throws UsageError for the first line.
void each_line(std::string_view bytes, const std::string& path,
               const std::function<void(std::string_view, int64_t)>& line);

/// Returns the end of an error about a table: "; it looks like CSV, with commas in place of tabs"
/// (or semicolons) if `line` has no tab and enough commas (or semicolons) for `columns` columns,
/// else "".
std::string csv_hint(std::string_view line, int64_t columns);

}  // namespace stretto::examples
