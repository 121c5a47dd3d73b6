// The conformance cases in cases/, in f64 and f32, with every candidate of their subject.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "core/error.h"
#include "nn/files/safetensors.h"
#include "ops/create.h"
#include "tests/conformance/subjects.h"
#include "tests/support/catch.h"
#include "tests/support/find_upwards.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
namespace fs = std::filesystem;

namespace {

fs::path folder() {
  if (const char* named = std::getenv("STRETTO_CONFORMANCE")) return named;
  return testing::find_upwards("tests/conformance/cases");
}

std::vector<std::string> files() {
  std::set<std::string> sorted;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder(), ignored))
    if (entry.path().extension() == ".safetensors") sorted.insert(entry.path().string());
  return {sorted.begin(), sorted.end()};
}

}  // namespace

TEST_CASE("conformance cases") {
  if (files().empty())
    STRETTO_SKIP("no cases found; set STRETTO_CONFORMANCE to the folder that has them");
  int64_t judged = 0;
  for (const std::string& path : files()) {
    const conformance::Case c = conformance::load_case(path);
    for (const DType dtype : {f64, f32, bf16}) {
      if (!conformance::judged(c, dtype)) continue;
      for (const auto& candidate : conformance::candidates(c.subject)) {
        const conformance::Result result = conformance::run(c, candidate, dtype);
        INFO(c.name << " (" << c.subject << ", " << candidate.name << ", " << name(dtype)
                    << "): worst " << result.worst << " at " << result.where);
        CHECK(result.worst <= conformance::tolerance(dtype));
        ++judged;
      }
    }
  }
  INFO(files().size() << " files in " << folder());
  CHECK(judged > 0);
}

TEST_CASE("conformance: wrong values, missing tensors and broken files are detected") {
  const DefaultDevice host(cpu);  // tensors of files are on the CPU
  const testing::TempDir dir;
  const std::string path = dir.file("case.safetensors");
  const Tensor x = tensor(std::vector<double>{1, 2, 3, 4}, {2, 2});
  const Tensor y = tensor(std::vector<double>{7, 10, 15, 22}, {2, 2});
  auto save = [&](const std::vector<nn::NamedTensor>& tensors, const std::string& config = "{}",
                  const std::string& format = "conformance-1") {
    nn::save_safetensors(
        path, tensors,
        {{"format", format}, {"case", "c"}, {"subject", "op.matmul"}, {"config", config}});
  };
  auto worst = [&] {
    const conformance::Case c = conformance::load_case(path);
    return conformance::run(c, conformance::candidates(c.subject)[0], f64).worst;
  };
  auto load_error = [&](const std::string& text) {
    CHECK_THROWS_WITH(conformance::load_case(path), path + ": [conformance] " + text);
  };

  save({{"in.a", x}, {"in.b", x}, {"out.y", y}});
  CHECK(worst() == 0);
  save({{"in.a", x}, {"in.b", x}, {"out.y", x}});
  CHECK(worst() == 18.0 / 4);
  save({{"in.a", x}, {"in.b", x}, {"out.y", y}, {"gout.y", y}, {"grad.in.a", y}});
  CHECK(worst() > 0.1);
  save({{"in.a", x}, {"in.b", x}, {"out.y", full({2, 2}, NAN, {.dtype = f64})}});
  CHECK(std::isinf(worst()));

  save({{"in.a", x}, {"out.y", y}});
  CHECK_THROWS_WITH(worst(), "[conformance] the case has no tensor in.b");
  save({{"in.a", x}, {"in.b", x}, {"out.y", y.flatten()}});
  CHECK_THROWS_WITH(
      worst(), "[conformance] out.y is f64 [4] in the file, but the computed output is f64 [2, 2]");
  save({{"in.a", x}, {"in.b", x}, {"out.y", y}, {"out.z", y}});
  CHECK_THROWS_WITH(worst(), "[conformance] op.matmul has no output out.z");

  save({{"in.a", x}, {"in.b", x}});
  load_error("no outputs to compare with");
  save({{"in.a", x}, {"out.y", y}, {"grad.in.a", y}});
  load_error("grad.in.a without the cotangent of any output");
  save({{"in.a", x}, {"out.y", y}, {"gout.y", y.flatten()}});
  load_error("gout.y f64 [4] for out.y f64 [2, 2]; shapes must agree");
  save({{"in.a", x}, {"out.y", y}, {"gout.y", y}, {"grad.in.b", y}});
  load_error("the case has no tensor in.b");
  save({{"in.a", x.to(i64)}, {"out.y", y}, {"gout.y", y}, {"grad.in.a", y}});
  load_error("grad.in.a f64 [2, 2] for in.a i64 [2, 2]; only floating tensors have gradients");
  save({{"in.a", x}, {"in.b", x}, {"out.y", y}}, "[]");
  load_error("its config is no JSON object");
  save({{"in.a", x}, {"in.b", x}, {"out.y", y}}, "{}", "conformance-2");
  load_error("format \"conformance-2\"; known: \"conformance-1\"");
  nn::save_safetensors(path, {{"out.y", y}}, {{"format", "conformance-1"}});
  load_error("no \"case\" in its metadata");
}

TEST_CASE("conformance: a config is read key by key") {
  const conformance::Config c(
      R"({"n": 3, "whole": 4.0, "x": 0.5, "on": true, "list": [1, 2], "nothing": null,
          "word": "pre", "large": 18446744073709551615, "far": 1e300})");
  CHECK(c.integer("n") == 3);
  CHECK(c.integer("whole") == 4);
  CHECK(c.integer("nothing", 7) == 7);
  CHECK(c.number("x") == 0.5);
  CHECK(c.number("n") == 3);
  CHECK(c.number("missing", 2) == 2);
  CHECK(c.flag("on", false));
  CHECK(c.flag("missing", true));
  CHECK(c.integers("list") == std::vector<int64_t>{1, 2});
  CHECK(c.choice("word", {"post", "pre"}) == "pre");
  CHECK(c.choice("missing", {"post", "pre"}) == "post");
  CHECK(c.has("n"));
  CHECK_FALSE(c.has("nothing"));
  CHECK_THROWS_WITH(c.integer("missing"), "[conformance] its config has no missing");
  CHECK_THROWS_WITH(c.integer("nothing"), "[conformance] its config has no nothing");
  CHECK_THROWS_WITH(c.integer("x"), "[conformance] config: x is 0.5; must be an integer");
  CHECK_THROWS_WITH(c.integer("far"), Containing("must be an integer"));
  CHECK_THROWS_WITH(c.integer("large"), "[conformance] config: large is too large");
  CHECK_THROWS_WITH(c.integer("on"),
                    "[conformance] config: on is of JSON type boolean; must be an integer");
  CHECK_THROWS_WITH(c.number("word"),
                    "[conformance] config: word is of JSON type string; must be a number");
  CHECK_THROWS_WITH(c.flag("n", false),
                    "[conformance] config: n is of JSON type number; must be true or false");
  CHECK_THROWS_WITH(c.integers("n"),
                    "[conformance] config: n is of JSON type number; must be a list of integers");
  CHECK_THROWS_WITH(c.choice("n", {"post"}),
                    "[conformance] config: n is of JSON type number; must be a text");
  CHECK_THROWS_WITH(c.choice("word", {"post", "both"}),
                    "[conformance] config: word is \"pre\"; accepted: post, both");
}

TEST_CASE("conformance: some cases are for f64 only") {
  auto judged = [](const char* subject, const char* config, DType dtype) {
    return conformance::judged(
        {.name = "c", .subject = subject, .config = conformance::Config(config), .tensors = {}},
        dtype);
  };
  CHECK(judged("op.layer_norm", R"({"shift": 1e6})", f64));
  CHECK_FALSE(judged("op.layer_norm", R"({"shift": 1e6})", f32));
  CHECK(judged("op.layer_norm", "{}", f32));
  CHECK(judged("op.softmax", R"({"scale": 1000})", f64));
  CHECK_FALSE(judged("op.softmax", R"({"scale": 1000})", bf16));
  CHECK(judged("op.softmax", "{}", bf16));
  CHECK(conformance::candidates("attention.unheard_of").empty());
}
