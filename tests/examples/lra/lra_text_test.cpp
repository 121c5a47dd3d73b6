// Reviews, pairs of texts and images as sequences.

#include "examples/common/error.h"
#include "examples/lra/image.h"
#include "examples/lra/listops.h"
#include "examples/lra/text.h"
#include "tests/examples/temp_dir.h"
#include "tests/support/catch.h"
#include "tests/support/data_folder.h"

namespace {

using namespace stretto;                     // NOLINT
using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT
using stretto::testing::data_path;

std::vector<int> ids(const SequenceList& list, int64_t i) {
  return {list[i], list[i] + list.length(i)};
}

}  // namespace

TEST_CASE("byte_ids gives byte + 1, as 0 is padding", "[examples]") {
  CHECK(byte_ids(std::string("a\0\xFF", 3), 10) == std::vector<uint16_t>{98, 1, 256});
  CHECK(byte_ids("abc", 2) == std::vector<uint16_t>{98, 99});
  CHECK(byte_ids("abc", 3).size() == 3);
  CHECK(byte_ids("", 3).empty());
}

TEST_CASE("reviews are read; bad lines are reported", "[examples]") {
  const TempDir folder;
  const std::string path = folder.file("r.tsv");
  write_file(path, "1\t9\ttest/pos/1_9\tgood \"film\n0\t2\ttest/neg/3_2\tb\xC3\xA9\xC2\x85!\n");
  const LabeledSequences data = read_reviews(path, 5);
  CHECK(data.labels == std::vector<int32_t>{1, 0});
  CHECK(!data.pairs());
  CHECK(ids(data.sequences, 0) == std::vector<int>{104, 112, 112, 101, 33});
  CHECK(ids(data.sequences, 1) == std::vector<int>{99, 196, 170, 195, 134});
  const auto read = [&](const std::string& lines) {
    write_file(path, lines);
    return error_of<UsageError>([&] { read_reviews(path, 100); });
  };
  const std::string good = "1\t9\tname\ttext\n";
  CHECK(read("") == path + ": is empty");
  CHECK(read(good + "2\t9\tname\ttext\n") == path + ", line 2: its label is \"2\"; must be 0 or 1");
  CHECK(read(good + good + "1\t9\tname\t") == path + ", line 3: its text is empty");
  CHECK(read("1\t9\ttext\n") == path + ", line 1: has 3 of 4 tab-separated fields");
  CHECK(read(good + "1\t9\tname\tte\txt\n") == path + ", line 2: has more than 4 fields");
  CHECK(error_of<UsageError>([] { read_reviews("/nowhere", 9); }) ==
        "cannot read '/nowhere': No such file or directory");
}

TEST_CASE("tables may have a byte order mark and empty last lines", "[examples]") {
  const TempDir folder;
  const std::string path = folder.file("t.tsv"), mark = "\xEF\xBB\xBF";
  for (const char* end : {"\n\n", "\r\n\r\n\r\n", ""}) {
    write_file(path, mark + "1\t9\tname\tgood\n0\t2\tname\tbad" + end);
    const LabeledSequences reviews = read_reviews(path, 9);
    CHECK(reviews.labels == std::vector<int32_t>{1, 0});
    CHECK(reviews.sequences.length(1) == 3);
    write_file(path, mark + "1\tA\tB\tfirst\tsecond" + end);
    CHECK(read_text_pairs(path, 9).others.length(0) == 6);
    write_file(path, mark + "Source\tTarget\n[MAX 1 2 ]\t2" + end);
    CHECK(read_listops(path).size() == 1);
  }
  write_file(path, "1\t9\tname\tgood\n\n1\t9\tname\tgood\n");
  CHECK(error_of<UsageError>([&] { read_reviews(path, 9); }) ==
        path + ", line 2: has 1 of 4 tab-separated fields");
}

TEST_CASE("files that are not tables are reported", "[examples]") {
  const TempDir folder;
  const std::string path = folder.file("t.tsv");
  const auto error_for = [&](const std::string& bytes, auto read) {
    write_file(path, bytes);
    const std::string text = error_of<UsageError>([&] { read(path); });
    REQUIRE(text.rfind(path, 0) == 0);
    return text.substr(path.size());
  };
  const auto reviews = [](const std::string& p) { read_reviews(p, 9); };
  const auto pairs = [](const std::string& p) { read_text_pairs(p, 9); };
  const auto listops = [](const std::string& p) { read_listops(p); };
  const auto images = [](const std::string& p) { read_images(p); };
  const std::string gz = "\x1F\x8B\x08 packed", table = "; expected a tab-separated table";
  CHECK(error_for(gz, reviews) == ": is gzip-compressed" + table);
  CHECK(error_for(gz, pairs) == ": is gzip-compressed" + table);
  CHECK(error_for(gz, listops) == ": is gzip-compressed" + table);
  CHECK(error_for(gz, images) ==
        ": is gzip-compressed; expected records of a label from 0 to 9 and 3072 (color) or 1024 "
        "(gray) bytes");
  CHECK(error_for("PK\x03\x04", listops) == ": is a zip archive" + table);
  CHECK(error_for(std::string("\xFF\xFE"
                              "1\0\t\0",
                              6),
                  reviews) == ": is UTF-16 text" + table);
  CHECK(error_for(std::string("\x02\0\x05\n", 4), reviews) == ": is binary (byte 1 is 0)" + table);
  const std::string hint = "; it looks like CSV, with commas in place of tabs";
  CHECK(error_for("1,9,name,a text\n", reviews) ==
        ", line 1: has 1 of 4 tab-separated fields" + hint);
  CHECK(error_for("Source,Target\n7,7\n", listops) ==
        ", line 1: has 1 of 2 tab-separated fields" + hint);
  // Valid text may contain bytes that look like these formats.
  write_file(path, std::string("1\t9\tname\tPK\x03\x04,\0,\n", 17));
  CHECK(read_reviews(path, 9).sequences.length(0) == 7);
}

TEST_CASE("pairs of texts are read; bad lines are reported", "[examples]") {
  const TempDir folder;
  const std::string path = folder.file("p.tsv");
  write_file(path, "1.0\tA\tB\tfirst\tsecond\n0\tC\tD\tx\ty\n");
  const LabeledSequences data = read_text_pairs(path, 5);
  CHECK(data.labels == std::vector<int32_t>{1, 0});
  REQUIRE(data.pairs());
  CHECK(data.sequences.length(0) == 5);
  CHECK(data.others.length(0) == 5);
  CHECK(ids(data.others, 1) == std::vector<int>{122});
  write_file(path, "1.5\tA\tB\tfirst\tsecond\n");
  CHECK(error_of<UsageError>([&] { read_text_pairs(path, 5); }) ==
        path + ", line 1: its label is \"1.5\"; must be 0 or 1");
  write_file(path, "1\tA\tB\tfirst\t\n");
  CHECK(error_of<UsageError>([&] { read_text_pairs(path, 5); }) ==
        path + ", line 1: its text is empty");
}

TEST_CASE("gray values follow the published weights", "[examples]") {
  CHECK(gray_value(0, 0, 0) == 0);
  CHECK(gray_value(255, 255, 255) == 255);  // 254.97 · 255.5 / 255 = 255.47
  CHECK(gray_value(255, 0, 0) == 76);       // 76.37
  CHECK(gray_value(0, 255, 0) == 149);      // 149.98
  CHECK(gray_value(0, 0, 255) == 29);       // 29.13
  CHECK(gray_value(10, 20, 30) == 18);      // 18.149 · 1.00196
  for (int v = 0; v < 256; ++v) {
    const uint16_t gray = gray_value(uint8_t(v), uint8_t(v), uint8_t(v));
    CHECK(int(gray) == int(v * 0.9999 * 255.5 / 255));
  }
}

TEST_CASE("images are read in color and in gray", "[examples]") {
  const TempDir folder;
  const std::string path = folder.file("c.bin");
  std::string color(1, '\x07');
  for (const int level : {10, 20, 30}) color += std::string(1024, char(level));
  color[1 + 1023] = char(255);  // red of the last pixel
  std::string gray(1, '\x09');
  for (int i = 0; i < 1024; ++i) gray += char(i % 256);
  write_file(path, color + color);
  LabeledSequences data = read_images(path);
  CHECK(data.labels == std::vector<int32_t>{7, 7});
  CHECK(data.sequences.length(1) == image_pixels);
  CHECK(data.sequences[1][0] == 18);
  CHECK(data.sequences[1][1023] == gray_value(255, 20, 30));
  write_file(path, gray);
  data = read_images(path);
  CHECK(data.labels == std::vector<int32_t>{9});
  CHECK(data.sequences[0][255] == 255);
  CHECK(data.sequences[0][1023] == 255);

  // This file size fits both kinds: the labels decide.
  std::string many;
  for (int i = 0; i < 3073; ++i) many += gray;
  write_file(path, many);
  CHECK(read_images(path).size() == 3073);
  const auto refused = [&](const std::string& bytes) {
    write_file(path, bytes);
    return error_of<UsageError>([&] { read_images(path); });
  };
  const std::string expected =
      " bytes are not records of a label from 0 to 9 and 3072 (color) or "
      "1024 (gray) bytes";
  CHECK(refused("") == path + ": 0" + expected);
  CHECK(refused(color + "x") == path + ": 3074" + expected);
  gray[0] = 10;
  CHECK(refused(gray) == path + ": 1025" + expected);
}

TEST_CASE("the prepared data sets are read", "[examples]") {
  const std::string images = data_path("lra/cifar10.test1000.bin");
  const std::string gray = data_path("lra/cifar10_gray_jpeg.valid.bin");
  const std::string reviews = data_path("lra/imdb.small.test.tsv");
  for (const std::string& path : {images, gray, reviews}) STRETTO_NEEDS_DATA(path);
  const LabeledSequences test = read_images(images);
  CHECK(test.size() == 1000);
  CHECK(std::vector<int32_t>(test.labels.begin(), test.labels.begin() + 8) ==
        std::vector<int32_t>{3, 8, 8, 0, 6, 6, 1, 6});
  CHECK(majority(test.labels).correct == 112);
  CHECK(read_images(gray).size() == 2000);
  CHECK(majority(read_images(gray).labels).correct == 200);
  const LabeledSequences texts = read_reviews(reviews, 1000);
  CHECK(texts.size() == 2000);
  CHECK(majority(texts.labels).correct == 1000);
  CHECK(texts.sequences.longest() == 1000);
}
