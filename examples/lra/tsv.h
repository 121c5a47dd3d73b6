// Tables in text files: fields parted by tabs, one row a line.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace stretto::examples {

/// Calls `row` with the fields of each line of the file (each_line(), text_file.h). A UsageError of
/// `row` becomes "FILE, line 7: …". Throws UsageError for a file that cannot be read or is no text,
/// and for lines with another number of fields than `columns`; commas or semicolons in place of the
/// tabs are named.
/// `quotes`: a field may stand in double quotes, doubled inside, as Python's csv module writes it
/// (but no field reaches over the end of its line).
void read_tsv(const std::string& path, size_t columns, bool quotes,
              const std::function<void(const std::vector<std::string_view>&)>& row);

/// A line as Python's csv.writer has it, quoted only where it must be, with CR LF. A field that
/// begins with a byte order mark is quoted too.
std::string tsv_line(const std::vector<std::string>& fields);

}  // namespace stretto::examples
