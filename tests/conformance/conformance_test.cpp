// The shared conformance cases, in f64 and f32, by every implementation of their subject.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "core/error.h"
#include "nn/safetensors.h"
#include "ops/create.h"
#include "tests/conformance/subjects.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
namespace fs = std::filesystem;

namespace {

// $STRETTO_CONFORMANCE, else shared/conformance/cases or tests/conformance/cases in a folder that
// contains the current one or this source.
fs::path folder() {
  if (const char* named = std::getenv("STRETTO_CONFORMANCE")) return named;
  for (const fs::path& start : {fs::current_path(), fs::path(__FILE__).parent_path()})
    for (fs::path at = start;; at = at.parent_path()) {
      for (const char* inside : {"shared/conformance/cases", "tests/conformance/cases"})
        if (std::error_code ignored; fs::is_directory(at / inside, ignored)) return at / inside;
      if (at == at.parent_path()) break;
    }
  return {};
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
    for (const DType dtype : {f64, f32}) {
      if (!conformance::judged(c, dtype)) continue;
      for (const auto& implementation : conformance::implementations(c.subject)) {
        const conformance::Result result = conformance::run(c, implementation, dtype);
        INFO(c.name << " (" << c.subject << ", " << implementation.name << ", " << name(dtype)
                    << "): worst " << result.worst << " at " << result.where);
        CHECK(result.worst <= conformance::tolerance(dtype));
        ++judged;
      }
    }
  }
  INFO(files().size() << " files in " << folder());
  CHECK(judged > 0);
}

TEST_CASE("conformance: wrong numbers, missing tensors and broken files are noticed") {
  const testing::TempDir dir;
  const std::string path = dir.file("case.safetensors");
  const Tensor x = tensor(std::vector<double>{1, 2, 3, 4}, {2, 2});
  auto save = [&](const std::vector<nn::NamedTensor>& tensors, const std::string& config = "{}",
                  const std::string& format = "conformance-1") {
    nn::save_safetensors(
        path, tensors,
        {{"format", format}, {"case", "c"}, {"subject", "op.matmul"}, {"config", config}});
  };
  auto worst = [&] {
    const conformance::Case c = conformance::load_case(path);
    return conformance::run(c, conformance::implementations(c.subject)[0], f64).worst;
  };
  const Tensor y = tensor(std::vector<double>{7, 10, 15, 22}, {2, 2});
  save({{"in.a", x}, {"in.b", x}, {"out.y", y}});
  CHECK(worst() == 0);
  save({{"in.a", x}, {"in.b", x}, {"out.y", x}});
  CHECK(worst() == 18.0 / 4);
  save({{"in.a", x}, {"in.b", x}, {"out.y", y.flatten()}});
  CHECK(std::isinf(worst()));
  save({{"in.a", x}, {"in.b", x}, {"out.y", y}, {"gout.y", y}, {"grad.in.a", y}});
  CHECK(worst() > 0.1);
  save({{"in.a", x}, {"out.y", y}});
  CHECK_THROWS_WITH(worst(), "[conformance] the case has no tensor in.b");
  save({{"in.a", x}, {"in.b", x}});
  CHECK_THROWS_WITH(worst(), Containing(": no outputs to compare with"));
  save({{"in.a", x}, {"in.b", x}, {"out.y", y}}, "[]");
  CHECK_THROWS_WITH(worst(), Containing(": its config is no JSON object"));
  save({{"in.a", x}, {"in.b", x}, {"out.y", y}}, "{}", "conformance-2");
  CHECK_THROWS_WITH(worst(), Containing("format \"conformance-2\"; known: \"conformance-1\""));
  save({{"in.x", x}, {"out.y", y}}, R"({"axis": "rows"})");
  const auto softmax = conformance::implementations("op.softmax")[0];
  CHECK_THROWS_WITH(conformance::run(conformance::load_case(path), softmax, f64),
                    Containing("[conformance] c: its config: "));
  CHECK(conformance::implementations("attention.unheard_of").empty());
}
