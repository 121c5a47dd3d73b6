// Tab-separated tables in text files.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace stretto::examples {

/// Calls `row` with the fields of each line of the file (each_line(), text_file.h). A UsageError of
/// `row` becomes "FILE, line 7: …". Throws UsageError for a file that cannot be read or is not
/// text, and for lines whose number of fields is not `columns`; the error says if the separators
/// are commas or semicolons. With `quotes` a field may be in double quotes, with inner quotes
/// doubled, as Python's csv module writes it (but a field ends with its line).
void read_tsv(const std::string& path, size_t columns, bool quotes,
              const std::function<void(const std::vector<std::string_view>&)>& row);

/// Returns a line as Python's csv.writer writes it, with quotes only if needed and CR LF. A field
/// that begins with a byte order mark is quoted, too.
std::string tsv_line(const std::vector<std::string>& fields);

}  // namespace stretto::examples
