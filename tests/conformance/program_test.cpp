// The program `conformance`: its output, its exit status, the file it writes, and files that are
// broken in many ways.
#include "tests/conformance/program.h"

#include <regex>
#include <sstream>

#include "core/device.h"
#include "core/random.h"
#include "nn/files/safetensors.h"
#include "ops/create.h"
#include "ops/view.h"
#include "tests/conformance/case.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using nn::NamedTensor;

namespace {

struct Ran {
  int status;
  std::string out, err;
};

Ran run(const std::vector<std::string>& arguments) {
  std::ostringstream out, err;
  const int status = conformance::run_program(arguments, out, err);
  return {status, out.str(), err.str()};
}

const Tensor x = tensor(std::vector<double>{1, 2, 3, 4}, {2, 2});
const Tensor xx = tensor(std::vector<double>{7, 10, 15, 22}, {2, 2});

void save(const std::string& path, const std::string& subject,
          const std::vector<NamedTensor>& tensors, const std::string& config = "{}",
          const std::string& name = "c") {
  nn::save_safetensors(
      path, tensors,
      {{"format", "conformance-1"}, {"case", name}, {"subject", subject}, {"config", config}});
}

void save_product(const std::string& path, const Tensor& y, const std::string& name = "c") {
  save(path, "op.matmul", {{"in.a", x}, {"in.b", x}, {"out.y", y}}, "{}", name);
}

// A case of Shaw's attention with every kind of tensor that a file can have; its values are noise.
std::vector<NamedTensor> shaw_case() {
  std::vector<NamedTensor> tensors;
  for (const char* name :
       {"in.q", "in.k", "in.v", "grad.in.q", "grad.in.k", "grad.in.v", "out.y", "gout.y"})
    tensors.push_back({name, testing::fixed_noise({1, 2, 3, 4}, tensors.size())});
  for (const char* name : {"param.rel_k", "param.rel_v", "grad.param.rel_k"})
    tensors.push_back({name, testing::fixed_noise({5, 4}, tensors.size())});
  tensors.push_back({"in.key_padding", zeros({1, 3}, {.dtype = boolean})});
  return tensors;
}

constexpr const char* shaw_config =
    R"({"B": 1, "H": 2, "M": 3, "N": 3, "D": 4, "clip": 2, "causal": false, "key_padding": true})";

// Expects status 2 and one clear line with the path.
void check_refused(const std::string& path, const std::string& text = "") {
  const Ran ran = run({path});
  INFO(ran.out << ran.err);
  CHECK(ran.status == 2);
  CHECK(ran.out == "0 passed, 0 failed, 0 skipped\n");
  CHECK_THAT(ran.err, Containing(path + ": "));
  CHECK_THAT(ran.err, Containing(text));
  CHECK(std::count(ran.err.begin(), ran.err.end(), '\n') == 1);
}

}  // namespace

TEST_CASE("conformance program: it prints a line per case and the totals, and returns the status") {
  const testing::TempDir dir;
  const std::string good = dir.file("good"), bad = dir.file("bad"), strange = dir.file("strange");
  save_product(good, xx, "product");
  save_product(bad, x, "a name\nwith more");
  save(strange, "attention.unheard_of", {{"out.y", x}});
  const std::string missing = dir.file("missing");

  Ran ran = run({good});
  CHECK(ran.status == 0);
  CHECK(ran.out == "PASS product op.matmul worst=0 at out.y\n1 passed, 0 failed, 0 skipped\n");
  CHECK(ran.err.empty());
  ran = run({good, strange, bad, good});
  CHECK(ran.status == 1);
  CHECK(ran.out ==
        "PASS product op.matmul worst=0 at out.y\n"
        "SKIP c attention.unheard_of worst=nan at -\n"
        "FAIL a_name?with_more op.matmul worst=4.5 at out.y\n"
        "PASS product op.matmul worst=0 at out.y\n"
        "2 passed, 1 failed, 1 skipped\n");
  CHECK(ran.err ==
        "conformance: " + bad + ": the only implementation is off by 4.5, tolerance 1e-09\n");
  ran = run({missing, good, bad});
  CHECK(ran.status == 2);
  CHECK_THAT(ran.out, Containing("1 passed, 1 failed, 0 skipped\n"));
  CHECK_THAT(ran.err, Containing(missing + ": cannot open: No such file or directory\n"));
}

TEST_CASE("conformance program: each dtype has its tolerance, and some cases are for f64 only") {
  const testing::TempDir dir;
  const std::string path = dir.file("case");
  const Tensor off = tensor(std::vector<double>{7, 10, 15, 22 * (1 + 1e-4)}, {2, 2});
  save_product(path, off);
  CHECK(run({path}).status == 1);
  CHECK(run({"--dtype", "f64", path}).status == 1);
  CHECK(run({"--dtype", "f32", path}).status == 0);
  save_product(path, tensor(std::vector<double>{7, 10, 15, 23}, {2, 2}));
  CHECK(run({path, "--dtype", "f32"}).status == 1);
  CHECK(run({path, "--dtype", "bf16"}).status == 0);
  save(path, "op.softmax", {{"in.x", x}, {"out.y", x}}, R"({"scale": 1000})");
  CHECK(run({path}).status == 1);
  CHECK(run({"--dtype", "f32", path}).out ==
        "SKIP c op.softmax worst=nan at -\n0 passed, 0 failed, 1 skipped\n");
}

TEST_CASE("conformance program: --write stores the result of the fastest implementation") {
  const testing::TempDir dir;
  const std::string path = dir.file("case"), written = dir.file("out.safetensors");
  save(path, "op.matmul",
       {{"in.a", x}, {"in.b", x}, {"out.y", x}, {"gout.y", ones({2, 2})}, {"grad.in.b", x}});
  CHECK(run({"--dtype", "f32", "--write", written, path}).status == 1);  // wrong, but computed
  const nn::Safetensors file = nn::load_safetensors(written);
  REQUIRE(file.tensors.size() == 2);
  CHECK(testing::same_bits(file["out.y"], xx.to(f32)));
  CHECK(testing::same_bits(file["grad.in.b"], tensor(std::vector<float>{4, 4, 6, 6}, {2, 2})));

  save(path, "attention.unheard_of", {{"out.y", x}});
  const std::string nothing = dir.file("nothing");
  CHECK(run({"--write", nothing, path}).status == 0);
  CHECK(dir.entries() == 2);
  save_product(path, xx);
  const Ran ran = run({"--write", dir.file("no/folder"), path});
  CHECK(ran.status == 2);
  CHECK_THAT(ran.err, Containing("No such file or directory"));
}

TEST_CASE("conformance program: an invalid command line is an error") {
  auto refused = [](const std::vector<std::string>& arguments, const std::string& text) {
    const Ran ran = run(arguments);
    CHECK(ran.status == 2);
    CHECK(ran.out.empty());
    CHECK_THAT(ran.err, Containing(text));
    CHECK(std::count(ran.err.begin(), ran.err.end(), '\n') == 1);
  };
  refused({}, "[conformance] no cases; usage: conformance [--device cpu|cuda] ");
  refused({"--dtype"}, "[conformance] --dtype needs a value; usage: ");
  refused({"--dtype", "f16", "c"}, "[conformance] --dtype f16; accepted: f64, f32, bf16");
  refused({"--device", "tpu", "c"}, "[conformance] --device tpu; accepted: cpu, cuda");
  refused({"--fast", "c"}, "[conformance] unknown option --fast; usage: ");
  refused({"--write", "o", "a", "b"}, "[conformance] --write is for one case, given 2");
  if (!cuda_available()) refused({"--device", "cuda", "c"}, "[conformance] ");
  const Ran help = run({"--help"});
  CHECK(help.status == 0);
  CHECK_THAT(help.out, Containing("CASE.safetensors..."));
}

TEST_CASE("conformance program: a damaged file is judged or rejected") {
  const testing::TempDir dir;
  const std::string path = dir.file("case");
  save(path, "attention.shaw", shaw_case(), shaw_config);
  CHECK(run({path}).status == 1);  // a valid case with noise as its expected values
  const std::string whole = testing::read_file(path);
  for (size_t length = 0; length < whole.size(); length += length < 1200 ? 37 : 211) {
    testing::write_file(path, whole.substr(0, length));
    check_refused(path);
  }
  int64_t refused = 0;
  for (uint64_t i = 0; i < 400; ++i) {
    std::string damaged = whole;
    const auto draw = [&](uint64_t j) { return random_bits({.seed = 5, .stream = j}, i); };
    damaged[draw(0) % 1400] = char(draw(1));  // most of the header, and its length
    testing::write_file(path, damaged);
    const Ran ran = run({path});
    CHECK((ran.status == 0 || ran.status == 1 || ran.status == 2));
    CHECK((ran.status == 2) == (std::count(ran.out.begin(), ran.out.end(), '\n') == 1));
    refused += ran.status == 2;
  }
  CHECK(refused > 100);
}

TEST_CASE("conformance program: tensors that do not fit are an error") {
  const testing::TempDir dir;
  const std::string path = dir.file("case");
  const std::vector<NamedTensor> whole = shaw_case();
  for (size_t i = 0; i < whole.size(); ++i) {
    std::vector<NamedTensor> tensors = whole;
    tensors[i].tensor = zeros({3, 2, 7}, options_of(whole[i].tensor));
    INFO(whole[i].name << " of another shape");
    save(path, "attention.shaw", tensors, shaw_config);
    check_refused(path, whole[i].name);
    tensors[i].tensor = zeros({}, options_of(whole[i].tensor));
    save(path, "attention.shaw", tensors, shaw_config);
    check_refused(path, whole[i].name);
    tensors.erase(tensors.begin() + int64_t(i));
    const bool needed = whole[i].name.rfind("in.", 0) == 0 || whole[i].name == "param.rel_k" ||
                        whole[i].name == "out.y" || whole[i].name == "gout.y";
    save(path, "attention.shaw", tensors, shaw_config);
    if (needed) check_refused(path, whole[i].name == "out.y" ? "out" : "");
  }
}

TEST_CASE("conformance program: configs that do not fit are an error") {
  const testing::TempDir dir;
  const std::string path = dir.file("case");
  auto refused = [&](const std::string& config, const std::string& text) {
    INFO(config);
    save(path, "attention.shaw", shaw_case(), config);
    check_refused(path, text);
  };
  refused("[1]", "its config is no JSON object");
  refused("{", "its config is no JSON object");
  refused(std::string(100000, '['), "its config is no JSON object");
  refused("{}", "its config has no clip");
  refused(R"({"clip": "2"})", "config: clip is of JSON type string; must be an integer");
  refused(R"({"clip": 3})", "param.rel_k is f64 [5, 4]; must be [2·3 + 1, 4]");
  refused(R"({"clip": 4611686018427387904})", "param.rel_k is f64 [5, 4]; must be [2·");
  refused(R"({"clip": 2, "causal": 1})", "config: causal is of JSON type number");
  refused(R"({"clip": 2, "window": -1})", "window -1");
  refused(R"({"clip": 2, "D": 5})", "config: D is 5, by the tensors it is 4");
  refused(R"({"clip": 2, "L": 7})", "config: L is 7, by the tensors it is 3");
  refused(R"({"clip": 2, "mem": 1})", "config: mem is 1, by the tensors it is 0");

  // Sizes that would need all memory are compared with the tensors first.
  const Tensor rows = testing::fixed_noise({2, 4, 6}, 1);
  save(path, "layer.encoder", {{"in.x", rows}, {"out.y", rows}, {"param.attn.q.weight", rows}},
       R"({"E": 1000000000, "H": 1, "ff": 1000000000})");
  check_refused(path, "in.x is f64 [2, 4, 6]");
  save(path, "skew", {{"in.x", rows}, {"out.y", rows}}, R"({"N": 1000000000000})");
  check_refused(path, "config: N is 1000000000000 for in.x f64 [2, 4, 6]");
  save(path, "optim.adamw", {{"in.w", rows}, {"out.w", rows}}, R"({"steps": 1000000000000})");
  check_refused(path, "the case has no tensor in.grad.1");
  save(path, "layer.encoder", {{"in.x", rows}, {"out.y", rows}},
       R"({"E": 6, "H": 2, "ff": 1, "norm": "both"})");
  check_refused(path, "the case has no tensor param.attn.q.weight");
}
