#include "examples/lra/tsv.h"

#include "examples/common/file.h"
#include "examples/common/settings.h"
#include "examples/common/text_file.h"

namespace stretto::examples {
void read_tsv(const std::string& path, size_t columns, bool quotes,
              const std::function<void(const std::vector<std::string_view>&)>& row) {
  const MappedFile file(path);
  std::vector<std::string> unquoted(columns + 1);
  std::vector<std::string_view> fields;
  each_line(file.bytes(), path, [&](std::string_view line, int64_t number) {
    try {
      fields.clear();
      for (size_t at = 0;; ++at) {
        require(fields.size() < columns, "has more than " + as_text(int64_t(columns)) + " fields");
        fields.push_back(next_field(line, at, '\t', quotes, unquoted[fields.size()]));
        if (at == line.size()) break;
      }
      require(fields.size() == columns, "has " + as_text(int64_t(fields.size())) + " of " +
                                            as_text(int64_t(columns)) + " tab-separated fields" +
                                            csv_hint(line, int64_t(columns)));
      row(fields);
    } catch (const UsageError& e) {
      throw UsageError(path + ", line " + as_text(number) + ": " + e.what());
    }
  });
}

std::string tsv_line(const std::vector<std::string>& fields) {
  std::string line;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) line += '\t';
    const bool marked = without_byte_order_mark(fields[i]).size() < fields[i].size();
    if (!marked && fields[i].find_first_of("\t\"\r\n") == std::string::npos) {
      line += fields[i];
      continue;
    }
    line += '"';
    for (const char c : fields[i]) line += c == '"' ? std::string("\"\"") : std::string(1, c);
    line += '"';
  }
  return line + "\r\n";
}

}  // namespace stretto::examples
