// train_chorales with invalid inputs: it prints one line, exits with 2 and changes no files.

#include <sys/stat.h>
#include <unistd.h>

#include "core/device.h"
#include "examples/chorales/chorale_program.h"
#include "nn/files/safetensors.h"
#include "nn/linear.h"
#include "nn/training/checkpoint.h"
#include "tests/examples/chorales/train_chorales.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT

/// A finished run, and checks that rejected command lines do not change it.
class Refusals {
 public:
  Refusals() { REQUIRE(tiny.run({"--steps", "3", "--generate", "8"}).status == 0); }

  void check_line(const Ended& ended, const std::string& expected) const {
    INFO(ended.err);
    CHECK(ended.status == 2);
    CHECK(ended.one_line());
    CHECK(ended.out.empty());
    CHECK(ended.err.rfind("train_chorales: ", 0) == 0);
    CHECK_THAT(ended.err, Containing(expected));
    CHECK(ended.err.size() < 600);
  }

  /// Checks for an error line with `expected`, also with a new --out, which must not be created.
  void check(const Arguments& arguments, const std::string& expected) const {
    const auto before = contents(tiny.file(""));
    check_line(tiny.run(arguments), expected);
    Arguments elsewhere = arguments;
    elsewhere.insert(elsewhere.end(), {"--out", tiny.file("new/folder")});
    check_line(tiny.run(elsewhere), expected);
    CHECK(contents(tiny.file("")) == before);
  }

  /// As check(), without the second run with another --out.
  void check_once(const Arguments& arguments, const std::string& expected) const {
    const auto before = contents(tiny.file(""));
    check_line(tiny.run(arguments), expected);
    CHECK(contents(tiny.file("")) == before);
  }

  TinyChorales tiny;
};

/// Replaces the first `from` by `to` of equal length, so that all offsets remain valid.
std::string edited(std::string text, const std::string& from, const std::string& to) {
  REQUIRE(from.size() == to.size());
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("train_chorales rejects files that are not chorales", "[examples]") {
  NEEDS_PROGRAM("train_chorales");
  const Refusals refusals;
  const auto file = [&](const char* name) { return refusals.tiny.file(name); };
  const auto refuse = [&](const char* content, const std::string& expected) {
    write_file(file("bad.json"), content);
    refusals.check({"--data", file("bad.json")}, expected);
  };
  refusals.check({"--data", file("none.json")}, file("none.json") + ": no such file");
  refusals.check({"--data", file("out")}, file("out") + ": is a directory");
  const std::string good = read_file(file("tiny.json"));
  refuse("", "is empty");
  refuse(good.substr(0, good.size() / 2).c_str(), "the JSON text ends too early");
  refuse("{\"train\": oops}", "malformed JSON at byte 11 (line 1)");
  refuse("{\"train\": [[[60, 55, 50]]]}", "train[0] step 0 has 3 numbers; expected 4");
}

TEST_CASE("train_chorales rejects options out of range", "[examples]") {
  NEEDS_PROGRAM("train_chorales");
  const Refusals refusals;
  struct Case {
    Arguments arguments;
    std::string expected;
  };
  const std::vector<Case> cases{
      {{"--d-model", "30", "--heads", "4"},
       "--d-model 30 is not a multiple of --heads 4; set --d-head"},
      {{"--layers", "-1"}, "--layers -1: accepted values are 1 to 1000"},
      {{"--d-model", "0"}, "--d-model 0: accepted values are 1 to 65536"},
      {{"--heads", "17"}, "--d-model 16 is not a multiple of --heads 17; set --d-head"},
      {{"--heads", "0"}, "--heads 0: accepted values are 1 to 65536"},
      {{"--d-hidden", "0"}, "--d-hidden 0: accepted"},
      {{"--length", "6"}, "--length 6: must be a multiple of 4"},
      {{"--length", "0"}, "--length 0: accepted"},
      {{"--transpose", "25"}, "--transpose 25: accepted values are 0 to 24"},
      {{"--warmup", "-1"}, "--warmup -1: accepted"},
      {{"--steps", "-1"}, "--steps -1: accepted"},
      {{"--attention-dropout", "nan"}, "--attention-dropout nan: must be"},
      {{"--learning-rate", "0"}, "--learning-rate 0: must be a number above 0"},
      {{"--learning-rate", "inf"}, "--learning-rate inf: must be a number above 0"},
      {{"--weight-decay", "-0.1"}, "--weight-decay -0.1: must be a number of at least 0"},
      {{"--threads", "257"}, "--threads 257: accepted values are 0 to 256"},
      {{"--threads", "-1"}, "--threads -1: accepted"},
      {{"--save-every", "0"}, "--save-every 0: accepted"},
      {{"--evaluate-every", "-1"}, "--evaluate-every -1: accepted"},
      {{"--final-stride", "0"}, "--final-stride 0: accepted"},
      {{"--generate", "8001"}, "--generate 8001: accepted values are 0 to 8000"},
      {{"--prime", "-1"}, "--prime -1: accepted"},
      {{"--minutes", "nan"}, "--minutes nan: must be a number above 0"},
      {{"--minutes", "0"}, "--minutes 0: must be"},
      {{"--temperature", "nan"}, "--temperature nan: must be"},
      {{"--temperature", "-1"}, "--temperature -1: must be"},
      {{"--top-p", "2"}, "--top-p 2: must be above 0 and at most 1"},
      {{"--top-p", "0"}, "--top-p 0: must be"},
      {{"--layers", "1000", "--d-model", "65536"}, " GB of memory, and "},
      {{"--batch", "1048576", "--length", "1048576"}, " GB of memory, and "},
      {{"--bogus"}, "not expected: --bogus"},
      {{"word"}, "not expected: word"},
      {{"--steps", "6", "--heads"}, "--heads: 1 required"},
  };
  for (const Case& c : cases) {
    if (c.arguments.back() == "--heads") {
      refusals.check_once(c.arguments, c.expected);  // must be the last argument
    } else {
      refusals.check(c.arguments, c.expected);
    }
  }
  if (!stretto::cuda_available())
    refusals.check({"--device", "cuda"}, "device cuda:0 cannot be used: ");
}

TEST_CASE("train_chorales rejects a directory that it cannot write to", "[examples]") {
  NEEDS_PROGRAM("train_chorales");
  const Refusals refusals;
  const auto file = [&](const char* name) { return refusals.tiny.file(name); };
  const auto refuse = [&](const std::string& out, const std::string& expected) {
    refusals.check_once({"--out", out}, "--out: " + expected);
  };
  refuse(file("tiny.json"), "cannot write " + file("tiny.json") + ": it is not a folder");
  refuse(file("tiny.json/x"),
         "cannot create the folder " + file("tiny.json/x") + ": Not a directory");
  refuse("/proc/none", "cannot create the folder /proc/none: No such file or directory");
  for (const char* name :
       {"metrics.csv", "checkpoint.safetensors", "loss.svg", "attention.svg", "report.html"}) {
    const std::string folder = file((std::string("blocked-") + name).c_str());
    std::filesystem::create_directories(folder + "/" + name);
    refuse(folder, "cannot write " + folder + "/" + name + ": it is not a file");
  }
  if (::geteuid() != 0) {  // root may write everywhere
    std::filesystem::create_directory(file("locked"));
    ::chmod(file("locked").c_str(), 0500);
    refuse(file("locked"), "cannot write " + file("locked") + ": Permission denied");
    ::chmod(file("locked").c_str(), 0700);
  }
}

TEST_CASE("train_chorales rejects files that are not its checkpoints", "[examples]") {
  NEEDS_PROGRAM("train_chorales");
  Refusals refusals;
  refusals.tiny.settings = refusals.tiny.not_saved;
  const TinyChorales& tiny = refusals.tiny;
  const std::string bad = tiny.file("bad.safetensors");
  const Arguments resume{"--resume", bad};
  refusals.check(resume, bad + ": cannot open: No such file or directory");

  // Without a digest, as in earlier versions; otherwise the digest error would hide all others.
  const std::string good = edited(edited(tiny.checkpoint(), "stretto.digest", "stretto.former"),
                                  "checkpoint-2", "checkpoint-1");
  const auto refuse = [&](const std::string& bytes, const std::string& expected) {
    write_file(bad, bytes);
    refusals.check(resume, expected);
  };
  refuse("", bad + ": has 0 bytes");
  refuse("not a checkpoint at all", bad + ": header of");
  PortableRandom random(5);
  for (int i = 0; i < 12; ++i)
    refuse(good.substr(0, size_t(i < 6 ? 1 + random.below(3000) : random.below(int(good.size())))),
           bad);
  refuse(good.substr(0, good.size() - 1), bad);
  refuse(good + "x", bad + ": 1 bytes after the data of the last tensor");
  refuse(edited(good, "\"shape\":[16", "\"shape\":[61"), bad);
  refuse(edited(good, "\"data_offsets\":[0,8]", "\"data_offsets\":[0,9]"), bad);
  refuse(edited(good, "\"data_offsets\":[0,8]", "\"data_offsets\":[8,0]"), bad);

  refuse(edited(tiny.checkpoint(), "\"layers\":\"1\"", "\"layers\":\"2\""),
         bad + ": is damaged: its header is not the one it was saved with");

  // Valid files with other metadata.
  const auto refuse_with = [&](const std::string& key, const std::string& value,
                               const std::string& expected) {
    auto file = stretto::nn::load_safetensors(tiny.out("checkpoint.safetensors"));
    REQUIRE(file.metadata.erase(key) == 1);
    if (!value.empty()) file.metadata[key] = value;
    stretto::nn::save_safetensors(bad, file.tensors, file.metadata);
    refusals.check(resume, expected);
  };
  refuse_with("layers", "2", "not in the file");
  refuse_with("d_hidden", "64", "file has f32 [");
  refuse_with("d_model", "15", bad + ": --d-model 15 is not a multiple of --heads 2; set --d-head");
  refuse_with(
      "batch", "x",
      bad + ": not a checkpoint of train_chorales (its setting \"batch\" is missing or malformed");
  refuse_with("stretto.step", "x", bad);
  refuse_with("data", "", bad + ": was trained on other chorales");

  stretto::nn::Linear other({.in = 2, .out = 3});
  stretto::nn::save_checkpoint(bad, other, nullptr, {});
  refusals.check(resume, bad + ": not a checkpoint of train_chorales");
  refusals.check({"--resume", tiny.out()}, tiny.out() + ": is not a regular file");
}

TEST_CASE("train_chorales rejects resuming with other settings or data", "[examples]") {
  NEEDS_PROGRAM("train_chorales");
  const Refusals refusals;
  const TinyChorales& tiny = refusals.tiny;
  const std::string from = tiny.out("checkpoint.safetensors");
  const auto refuse = [&](Arguments arguments, const std::string& expected) {
    arguments.insert(arguments.begin(), {"--steps", "3", "--resume", from});
    refusals.check(arguments, expected);
  };
  const auto has = [&](const std::string& value) {
    return ": the run of " + from + " has " + value;
  };
  refuse({"--learning-rate", "0.5"}, "--learning-rate 0.5" + has("0.002;"));
  refuse({"--position", "sinusoid"}, "--position sinusoid" + has("music;"));
  refuse({"--steps", "0"}, "--steps 0" + has("3;"));

  ChoraleSet others = tiny_chorales();
  others.train[1].steps[3][0] += 1;
  save_chorales(tiny.file("others.json"), others);
  refuse({"--data", tiny.file("others.json")}, from + ": was trained on other chorales");

  write_file(tiny.out("metrics.csv"), "something else\n");
  refusals.check_once({"--steps", "3", "--resume", from},
                      "cannot resume '" + tiny.out("metrics.csv") + "'");
}
