// One fuzz target for the readers of data sets (examples/lra): each reads every input.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "examples/common/error.h"
#include "examples/lra/image.h"
#include "examples/lra/listops.h"
#include "examples/lra/text.h"
#include "examples/lra/tsv.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/mutate.h"

namespace stretto::testing {
namespace {

using namespace stretto::examples;  // NOLINT

constexpr int64_t kMaxLength = 7;

void require(bool good, const char* what) {
  if (!good) throw FuzzFailure(what);
}

/// Runs a reader on the file at `path`. Returns false if it rejects the file with a valid error.
template <class Read>
bool reads(const std::string& path, Read read) {
  try {
    read();
    return true;
  } catch (const UsageError& error) {
    const std::string message = error.what();
    require(message.rfind(path, 0) == 0, "an error that does not begin with the path");
    require(message.find('\n') == std::string::npos, "an error of several lines");
    require(message.size() < path.size() + 200, "an error that repeats the file");
    return false;
  }
}

void check_ids(const SequenceList& list, int64_t longest, int first, int last) {
  for (int64_t i = 0; i < list.size(); ++i) {
    require(list.length(i) >= 1 && list.length(i) <= longest, "a sequence's length");
    for (int64_t t = 0; t < list.length(i); ++t)
      require(list[i][t] >= first && list[i][t] <= last, "an id");
  }
}

void check_data(const LabeledSequences& data, int labels, std::size_t file_size) {
  require(data.size() > 0 && data.sequences.size() == data.size(), "sequences and labels");
  require(!data.pairs() || data.others.size() == data.size(), "pairs");
  const auto ids = static_cast<std::size_t>(data.sequences.total() + data.others.total());
  require(ids <= file_size, "more ids than bytes");
  for (const int32_t label : data.labels) require(label >= 0 && label < labels, "a label");
}

void check_texts(const LabeledSequences& data, std::size_t file_size) {
  check_data(data, 2, file_size);
  check_ids(data.sequences, kMaxLength, 1, 256);
  check_ids(data.others, kMaxLength, 1, 256);
}

void check_expressions(const std::vector<ListOpsExpression>& all, std::size_t file_size) {
  for (const ListOpsExpression& tokens : all)
    require(parse_listops(listops_text(tokens)) == tokens,
            "an expression changes when written and read");
  for (const bool strip : {false, true}) {
    const LabeledSequences data = listops_sequences(all, strip);
    check_data(data, 10, file_size);
    check_ids(data.sequences, static_cast<int64_t>(file_size), 1, strip ? 14 : 15);
  }
}

/// Checks that the rows of the file are the same after writing and reading them again.
bool reads_rows(const std::string& path) {
  static MemoryFile copy;
  using Rows = std::vector<std::vector<std::string>>;
  const auto rows_of = [](const std::string& file) {
    Rows rows;
    read_tsv(file, 2, true, [&](const std::vector<std::string_view>& fields) {
      rows.emplace_back(fields.begin(), fields.end());
    });
    return rows;
  };
  Rows rows;
  if (!reads(path, [&] { rows = rows_of(path); })) return false;
  std::string text;
  for (const std::vector<std::string>& row : rows) text += tsv_line(row);
  copy.hold(text);
  require(rows_of(copy.path()) == rows, "rows change when written and read");
  return !rows.empty();
}

bool run(std::string_view input) {
  static MemoryFile file;
  file.hold(input);
  const std::string& path = file.path();
  const std::size_t size = input.size();
  bool accepted = reads_rows(path);
  accepted |= reads(path, [&] { check_texts(read_reviews(path, kMaxLength), size); });
  accepted |= reads(path, [&] { check_texts(read_text_pairs(path, kMaxLength), size); });
  accepted |= reads(path, [&] { check_expressions(read_listops(path), size); });
  accepted |= reads(path, [&] {
    const LabeledSequences data = read_images(path);
    check_data(data, 10, size);
    check_ids(data.sequences, image_pixels, 0, 255);
  });
  return accepted;
}

}  // namespace

FuzzTarget tsv_target() {
  return {run,
          {"1\t10\tt3/12_10.txt\tGood\n0\t1\tx\tVery bad.\r\n1\t7\ty\tq",
           "1.0\tp 1\tp 2\tone text\tanother\n0\ta\tb\t\x80\xFF\tc\r\n",
           "Source\tTarget\r\n( ( ( [MAX 2 ) 9 ) ] )\t9\r\n7\t7\r\n",
           "Source\tTarget\n( ( ( ( [SM ( ( ( [MED 2 ) 5 ) ] ) ) 9 ) 4 ) ] )\t6\n",
           "\"a\tb\"\t\"c\"\"d\"\r\n\t\"\"\n", "\3" + std::string(image_pixels, '\x7F')},
          {"\t",
           "\r\n",
           "\n",
           "\r",
           "\"",
           "\"\"",
           "Source\tTarget\n",
           "( ",
           " )",
           "[MAX ",
           "[MIN ",
           "[MED ",
           "[SM ",
           "] ",
           "1.0\t",
           "0\t",
           std::string(1, '\0'),
           "\x1B[2J",
           "1\t7\ty\tq\n",
           "\t\t\t",
           "\xEF\xBB\xBF",
           "\x1F\x8B\x08",
           "PK\x03\x04"}};
}

}  // namespace stretto::testing

#ifdef STRETTO_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto run = stretto::testing::tsv_target().run;
  run({reinterpret_cast<const char*>(data), size});
  return 0;
}
#endif
