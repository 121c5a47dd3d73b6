#include "nn/files/name_map.h"

#include "nn/linear.h"
#include "nn/training/checkpoint.h"
#include "ops/create.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using nn::NamedTensor;
using nn::NameMap;

namespace {

std::vector<std::string> names_of(const std::vector<NameMap::Mapped>& all) {
  std::vector<std::string> names;
  for (const NameMap::Mapped& m : all) names.push_back(m.tensor.name);
  return names;
}

std::vector<std::string> mapped(const NameMap& map, const std::string& name) {
  return names_of(map({{name, arange(0, 6).reshape({6, 1})}}));
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("NameMap: numbers travel, in order; the first rule for the whole name counts") {
  NameMap map;
  map.rename("h.{}.w", "layers.{}.weight")
      .rename("h.{}.head.{}", "heads.{}-{}")
      .rename("h.7.w", "never")
      .drop("h.{}.mask");
  CHECK(mapped(map, "h.0.w") == Names{"layers.0.weight"});
  CHECK(mapped(map, "h.7.w") == Names{"layers.7.weight"});
  CHECK(mapped(map, "h.123.w") == Names{"layers.123.weight"});
  CHECK(mapped(map, "h.1.head.20") == Names{"heads.1-20"});
  CHECK(mapped(map, "h.3.mask") == Names{});
  // Only whole names, only numbers.
  for (const char* other : {"h..w", "h.x.w", "h.0.w2", "xh.0.w", "h.0", "h.0.W", "", "h.-1.w"})
    CHECK(mapped(map, other) == Names{other});
  CHECK(mapped({{"a", "b"}, {"c", ""}}, "a") == Names{"b"});
  CHECK(mapped({{"a", "b"}, {"c", ""}}, "c") == Names{});
  CHECK(mapped({}, "a") == Names{"a"});
  CHECK_THROWS_WITH(NameMap().rename("a.{}", "b.{}.{}"),
                    "[NameMap] \"b.{}.{}\" has more {} than \"a.{}\"");
}

TEST_CASE("NameMap: split and convert") {
  NameMap map;
  map.split("h.{}.qkv", {"{}.q", "{}.k", "{}.v"}).convert("t", "u", [](const Tensor& x) {
    return x.transpose(0, 1);
  });
  const auto parts = map({{"h.4.qkv", arange(0, 6).reshape({6, 1})}});
  REQUIRE(names_of(parts) == Names{"4.q", "4.k", "4.v"});
  CHECK(parts[0].tensor.tensor.to_vector<double>() == std::vector<double>{0, 1});
  CHECK(parts[2].tensor.tensor.to_vector<double>() == std::vector<double>{4, 5});
  CHECK(parts[1].tensor.tensor.shape() == Shape{2, 1});
  CHECK(map({{"t", zeros({2, 3})}})[0].tensor.tensor.shape() == Shape{3, 2});
  CHECK_THROWS_WITH(map({{"h.4.qkv", zeros({7, 2})}}),
                    "[load] h.4.qkv: file has f32 [7, 2], which cannot be cut in 3 equal parts");
  CHECK_THROWS_WITH(map({{"h.4.qkv", zeros({})}}),
                    Containing("h.4.qkv: file has f32 [], which cannot be cut in 3 equal parts"));
}

TEST_CASE("NameMap: join puts parts in the order of their numbers, wherever they stand") {
  NameMap map;
  map.join("bias.{}", "bias");
  const auto joined = map({{"bias.10", full({1}, 10)}, {"x", ones({1})}, {"bias.2", full({2}, 2)}});
  REQUIRE(names_of(joined) == Names{"x", "bias"});
  CHECK(joined[1].tensor.tensor.to_vector<double>() == std::vector<double>{2, 2, 10});
  CHECK(joined[1].origin == "bias.2 and those after it");
  CHECK_THROWS_WITH(map({{"bias.0", zeros({2})}, {"bias.1", zeros({2, 2})}}),
                    "[load] bias.1: file has f32 [2, 2], which cannot follow bias.0, f32 [2]");
  CHECK_THROWS_WITH(map({{"bias.0", zeros({})}}), Containing("bias.0: file has f32 []"));
  CHECK_THROWS_WITH(NameMap().join("bias", "b"),
                    "[NameMap] \"bias\" has no {}: nothing to order the parts by");
}

TEST_CASE("load_weights takes a shared weight that is in the file twice") {
  const testing::TempDir dir;
  nn::Linear layer({.in = 2, .out = 1, .bias = false});
  const NameMap names{{"a", "weight"}, {"b", "weight"}};
  nn::save_safetensors(dir.file("same"), {{"a", ones({1, 2})}, {"b", ones({1, 2})}});
  nn::load_weights(dir.file("same"), layer, names);
  CHECK(layer.weight.to_vector<double>() == std::vector<double>{1, 1});
  nn::save_safetensors(dir.file("other"), {{"a", ones({1, 2})}, {"b", zeros({1, 2})}});
  CHECK_THROWS_WITH(nn::load_weights(dir.file("other"), layer, names),
                    Containing("weight (b): in the file twice, with other values"));
}

TEST_CASE("load_weights tells the file's name beside the model's") {
  const testing::TempDir dir;
  nn::Linear layer({.in = 2, .out = 3});
  const Tensor before = layer.weight.detach().clone();
  const std::string path = dir.file("w");
  nn::save_safetensors(path, {{"fc", zeros({3, 1})}, {"b", zeros({3})}, {"x.1", zeros({1})}});
  CHECK_THROWS_WITH(
      nn::load_weights(path, layer, {{"fc", "weight"}, {"b", "bias"}, {"x.{}", "gate.{}"}}),
      "[load] weight (fc): file has f32 [3, 1], the model f32 [3, 2]; gate.1 (x.1): in the file, "
      "but not wanted here (" +
          path + ")");
  CHECK(layer.weight.to_vector<float>() == before.to_vector<float>());
}
