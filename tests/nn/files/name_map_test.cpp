#include "nn/files/name_map.h"

#include <algorithm>

#include "nn/files/weights.h"
#include "nn/linear.h"
#include "ops/create.h"
#include "ops/elementwise.h"
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

TEST_CASE(
    "NameMap: numbers are copied in order, and the first rule that matches the whole name "
    "applies") {
  NameMap map;
  map.rename("h.{}.w", "layers.{}.weight")
      .rename("h.{}.head.{}", "heads.{}-{}")
      .rename("h.7.w", "never")
      .drop("h.{}.mask");
  CHECK(mapped(map, "h.0.w") == Names{"layers.0.weight"});
  CHECK(mapped(map, "h.7.w") == Names{"layers.7.weight"});
  CHECK(mapped(map, "h.123.w") == Names{"layers.123.weight"});
  CHECK(mapped(map, "h.1.head.20") == Names{"heads.1-20"});
  CHECK(mapped(map, "h.3.mask").empty());
  // Rules match only whole names, and {} only numbers.
  for (const char* other : {"h..w", "h.x.w", "h.0.w2", "xh.0.w", "h.0", "h.0.W", "", "h.-1.w"})
    CHECK(mapped(map, other) == Names{other});
  CHECK(mapped({{"a", "b"}, {"c", ""}}, "a") == Names{"b"});
  CHECK(mapped({{"a", "b"}, {"c", ""}}, "c").empty());
  CHECK(mapped({}, "a") == Names{"a"});
  CHECK_THROWS_WITH(NameMap().rename("a.{}", "b.{}.{}"),
                    "[NameMap] \"b.{}.{}\" has more {} or * than \"a.{}\"");
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
  CHECK_THROWS_WITH(
      map({{"h.4.qkv", zeros({7, 2})}}),
      "[load] h.4.qkv: file has f32 [7, 2], which cannot be split into 3 equal parts");
  CHECK_THROWS_WITH(
      map({{"h.4.qkv", zeros({})}}),
      Containing("h.4.qkv: file has f32 [], which cannot be split into 3 equal parts"));
}

TEST_CASE("NameMap: join orders parts by their numbers, wherever they are in the file") {
  NameMap map;
  map.join("bias.{}", "bias");
  const auto joined = map({{"bias.10", full({1}, 10)}, {"x", ones({1})}, {"bias.2", full({2}, 2)}});
  REQUIRE(names_of(joined) == Names{"x", "bias"});
  CHECK(joined[1].tensor.tensor.to_vector<double>() == std::vector<double>{2, 2, 10});
  CHECK(joined[1].origin == "bias.2 and those after it");
  CHECK_THROWS_WITH(
      map({{"bias.0", zeros({2})}, {"bias.1", zeros({2, 2})}}),
      "[load] bias.1: file has f32 [2, 2], which cannot be joined to bias.0, f32 [2]");
  CHECK_THROWS_WITH(map({{"bias.0", zeros({})}}), Containing("bias.0: file has f32 []"));
  CHECK_THROWS_WITH(NameMap().join("bias", "b"),
                    "[NameMap] \"bias\" has no {}, which orders the parts");
}

TEST_CASE("NameMap: join_named concatenates tensors in the order of their names") {
  const nn::Conversion plus_one{"plus 1", [](const Tensor& x) { return x + 1; },
                                [](const Tensor& x) { return x - 1; }};
  const NameMap map =
      NameMap()
          .join_named({"[m.]{}.q", "[m.]{}.k", "[m.]{}.v"}, "layers.{}.w", {2, 1, 3}, plus_one)
          .rename("{}.w", "layers.{}.w");
  const std::vector<NamedTensor> file = {
      {"m.4.v", arange(3).to(f32)}, {"m.4.q", full({2}, 7)}, {"m.4.k", full({1}, 5)}};
  const auto joined = map(file);
  REQUIRE(names_of(joined) == Names{"layers.4.w"});
  CHECK(joined[0].tensor.tensor.to_vector<double>() == std::vector<double>{8, 8, 6, 1, 2, 3});
  CHECK(map.is_joined("4.k"));
  CHECK_FALSE(map.whole("layers.4.w").has_value());
  const auto back = map.backwards({joined[0].tensor});
  REQUIRE(back.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(back[i].name == Names{"m.4.q", "m.4.k", "m.4.v"}[i]);
    CHECK(back[i].tensor.to_vector<double>() ==
          std::vector<std::vector<double>>{{7, 7}, {5}, {0, 1, 2}}[i]);
  }
  CHECK(map.describe() ==
        "[m.]{}.q  → layers.{}.w; plus 1, joined as part 1 of 3\n"
        "[m.]{}.k  → layers.{}.w; plus 1, joined as part 2 of 3\n"
        "[m.]{}.v  → layers.{}.w; plus 1, joined as part 3 of 3\n"
        "{}.w      → layers.{}.w\n");
  CHECK_THROWS_WITH(map({{"4.q", zeros({2})}, {"m.4.q", ones({2})}}),
                    "[load] m.4.q: is number 0 of layers.4.w, and so is 4.q");
  CHECK_THROWS_WITH(
      NameMap().join_named({"q", "k"}, "w", {1}),
      Containing("\"w\" is joined from 2 tensors with 1 shares; expected at least one tensor"));
  CHECK_THROWS_WITH(NameMap().join_named({}, "w"), Containing("joined from 0 tensors"));
  CHECK_THROWS_WITH(NameMap().join_named({"q", "k.{}"}, "w", {1, 1}).backwards({{"w", ones({2})}}),
                    Containing("\"k.{}\" → \"w\": the name in the model has too few"));
  CHECK_THROWS_WITH(
      NameMap()
          .join_named({"q", "k"}, "w", {1, 1}, {"halved", [](const Tensor& x) { return x / 2; }})
          .backwards({{"w", ones({2})}}),
      Containing("\"q\" is halved, which has no inverse"));
}

TEST_CASE("NameMap: two tensors with the same number cannot be joined") {
  NameMap map;
  map.join("bias.{}", "bias");
  CHECK_THROWS_WITH(map({{"bias.1", zeros({2})}, {"bias.01", ones({2})}}),
                    "[load] bias.01: is number 1 of bias, and so is bias.1");
}

TEST_CASE("NameMap: wildcards for any text, and for optional text") {
  NameMap map;
  map.drop("*.inv_freq")
      .rename("[model.]h.{}.*", "layers.{}.*")
      .rename("*/*:{}", "*-{}-*")
      .rename("[x.]*y", "*");
  CHECK(mapped(map, "a.7.rotary.inv_freq").empty());
  CHECK(mapped(map, "inv_freq") == Names{"inv_freq"});
  CHECK(mapped(map, "model.h.3.a.b") == Names{"layers.3.a.b"});
  CHECK(mapped(map, "h.3.a.b") == Names{"layers.3.a.b"});
  CHECK(mapped(map, "model.model.h.3.a") == Names{"model.model.h.3.a"});
  CHECK(mapped(map, "scope/name/x:0") == Names{"scope-0-name/x"});  // the shortest match
  CHECK(mapped(map, "x.1y2y") == Names{"1y2"});
  CHECK(mapped(map, "y") == Names{""});
  // Numbers are matched whole wherever the text before them ends.
  CHECK(mapped(NameMap().rename("*{}", "{}*"), "a12b345") == Names{"345a12b"});
  CHECK(mapped(NameMap().rename("*{}.*", "{}"), "a1b22.c") == Names{"22"});
  for (const char* bad : {"[a", "a]", "]a[", "[a][b]", "[[a]]", "[a{}]", "[*]"})
    CHECK_THROWS_WITH(NameMap().drop(bad), Containing("only one [text] is allowed"));
  CHECK_THROWS_WITH(NameMap().rename("a", "[b]a"),
                    Containing("[text] is allowed only in names of the file"));
  CHECK_THROWS_WITH(NameMap().rename("a{}", "b*"), Containing("has more {} or * than \"a{}\""));
}

TEST_CASE("NameMap: patterns with many stars are matched quickly") {
  std::string stars;
  for (int i = 0; i < 50; ++i) stars += "*a";
  CHECK(mapped(NameMap().drop(stars + "b"), std::string(20'000, 'a')).size() == 1);
}

TEST_CASE("NameMap: unequal parts by rows, by heads and by groups") {
  const Tensor x = arange(0, 24).reshape({12, 2});
  const auto rows = [&](const NameMap& map) {
    std::vector<std::vector<double>> all;
    for (const NameMap::Mapped& m : map({{"x", x}}))
      all.push_back(m.tensor.tensor.slice(1, 0, 1).to_vector<double>());
    return all;
  };
  using Rows = std::vector<std::vector<double>>;
  const Rows unequal{{0, 2, 4, 6, 8, 10, 12, 14}, {16, 18}, {20, 22}};
  CHECK(rows(NameMap().split("x", {{"q", 8}, {"k", 2}, {"v", 2}})) == unequal);  // by rows
  CHECK(rows(NameMap().split("x", {{"q", 4}, "k", "v"})) == unequal);            // by heads
  // Two groups of (q q q q k v): grouped keys side by side, as in Falcon.
  CHECK(rows(NameMap().split("x", {{"q", 4}, "k", "v"}, {.groups = 2})) ==
        Rows{{0, 2, 4, 6, 12, 14, 16, 18}, {8, 20}, {10, 22}});
  // [H, 3, D] with two heads of two rows.
  CHECK(rows(NameMap().split("x", {"q", "k", "v"}, {.groups = 2})) ==
        Rows{{0, 2, 12, 14}, {4, 6, 16, 18}, {8, 10, 20, 22}});
  const auto columns = NameMap().split("x", {"a", "b"}, {.dim = 1})({{"x", x}});
  CHECK(columns[1].tensor.tensor.shape() == Shape{12, 1});
  CHECK(columns[1].tensor.tensor.to_vector<double>()[2] == 5);
  const auto converted =
      NameMap().split("x", {{"a", 1}, {"b", 3}}, {.groups = 1, .first = nn::transposed()})(
          {{"x", arange(0, 8).reshape({2, 4})}});
  CHECK(converted[0].tensor.tensor.to_vector<double>() == std::vector<double>{0, 4});
  CHECK(converted[1].tensor.tensor.to_vector<double>() == std::vector<double>{1, 5, 2, 6, 3, 7});

  const auto error = [&](NameMap::SplitOptions options, const Tensor& value) {
    try {
      NameMap().split("x", {{"q", 4}, "k", "v"}, std::move(options))({{"x", value}});
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(error({}, zeros({7, 2})) ==
        "[load] x: file has f32 [7, 2], which cannot be split into parts of 4 : 1 : 1");
  CHECK(
      error({.groups = 5}, x) ==
      "[load] x: file has i64 [12, 2], which cannot be split into parts of 4 : 1 : 1 in each of 5 "
      "groups");
  CHECK(error({.dim = 2}, x) ==
        "[load] x: file has i64 [12, 2], which cannot be split into parts of 4 : 1 : 1 along "
        "dimension "
        "2");
  CHECK(error({.first = nn::transposed()}, zeros({2})) ==
        "[load] x: has f32 [2]; [transposed] a matrix has 2 dimensions");
  CHECK_THROWS_WITH(NameMap().split("x", {{"q", 0}}), Containing("\"q\" has a share of 0"));
  CHECK_THROWS_WITH(NameMap().split("x", {}), Containing("is split into no parts"));
  CHECK_THROWS_WITH(NameMap().split("x", {"a"}, {.groups = 0}), Containing("into 0 groups; "));
  CHECK_THROWS_WITH(NameMap().convert("x", "y", nn::Conversion{}),
                    Containing("without a function"));
}

TEST_CASE("NameMap: an error lists a file's names in one line") {
  const NameMap map = NameMap()
                          .split("*.qkv", {"q", "k", "v"})
                          .join("*-{}", "all")
                          .convert("*.t", "*", nn::transposed());
  const std::string name = "a\n" + std::string(1000, 'x');
  const auto check_short = [&](const std::vector<NamedTensor>& file) {
    try {
      map(file);
      FAIL("nothing thrown");
    } catch (const Error& e) {
      const std::string message = e.what();
      CHECK(message.find('\n') == std::string::npos);
      CHECK(message.starts_with("[load] a?xxx"));
      CHECK(message.size() < 600);
    }
  };
  check_short({{name + ".qkv", zeros({2})}});
  check_short({{name + ".t", zeros({2})}});
  check_short({{name + "-1", zeros({2})}, {name + "-01", zeros({2})}});
  check_short({{name + "-1", zeros({2})}, {name + "-2", zeros({2, 2})}});
}

TEST_CASE("NameMap: one tensor can be copied to two names") {
  const NameMap map = NameMap().copy("wte", {"embedding.weight", "out.weight"});
  const auto both = map({{"wte", arange(2)}});
  REQUIRE(names_of(both) == Names{"embedding.weight", "out.weight"});
  CHECK(both[0].tensor.tensor.same(both[1].tensor.tensor));
  CHECK_THROWS_WITH(NameMap().copy("wte", {}), Containing("copied to no tensors"));
}

TEST_CASE("NameMap: a prefix is removed from every name, and rules can be put first") {
  NameMap published;
  published.rename("h.{}.w", "layers.{}.weight").rename("h.{}.b", "layers.{}.bias").drop("mask");
  NameMap map = published;
  map.strip("module.").prefer(NameMap().rename("h.{}.w", "special.{}").rename("mask", "seen"));
  CHECK(mapped(map, "module.h.1.w") == Names{"special.1"});
  CHECK(mapped(map, "h.1.b") == Names{"layers.1.bias"});
  CHECK(mapped(map, "module.mask") == Names{"seen"});
  CHECK(mapped(map, "module.other") == Names{"other"});
  CHECK(map.targets("module.h.1.w") == Names{"special.1"});
  CHECK(published.targets("mask").empty());
  CHECK(map({{"module.h.1.b", ones({1})}})[0].origin == "module.h.1.b");
  NameMap twice = published;
  twice.prefer(twice);
  CHECK(twice.targets("h.1.w") == Names{"layers.1.weight"});
}

TEST_CASE("NameMap: its rules can be printed") {
  NameMap map;
  map.strip("module.")
      .rename("[model.]h.{}.w", "layers.{}.weight")
      .split("h.{}.qkv", {{"{}.q", 4}, "{}.k", "{}.v"}, {.groups = 2, .first = nn::transposed()})
      .split("ab", {"a", "b"})
      .copy("wte", {"in", "out"})
      .join("b.{}", "b")
      .convert("t", "u", nn::transposed())
      .drop("*.mask");
  CHECK(map.describe() ==
        "module.         stripped from every name\n"
        "[model.]h.{}.w  → layers.{}.weight\n"
        "h.{}.qkv        → {}.q (4), {}.k (1), {}.v (1); transposed, split along dimension 0 in "
        "each of 2 groups\n"
        "ab              → a, b; split along dimension 0\n"
        "wte             → in, out; to each\n"
        "b.{}            → b; joined in the order of the numbers\n"
        "t               → u; transposed\n"
        "*.mask          dropped\n");
}

TEST_CASE("NameMap: the inverse map restores the file's tensors") {
  NameMap map;
  map.strip("module.")
      .rename("[model.]h.{}.w", "layers.{}.weight")
      .split("h.{}.qkv", {{"{}.q", 4}, "{}.k", "{}.v"}, {.groups = 2, .first = nn::transposed()})
      .split("ab", {"a", "b"}, {.dim = 1})
      .copy("wte", {"in", "out"})
      .join("part.{}.{}", "whole.{}", {1, 3, 2})
      .rename("scope/*:{}", "*.{}.x")
      .drop("*.mask");
  const std::vector<NamedTensor> file = {{"module.model.h.1.w", arange(0, 3)},
                                         {"module.h.2.qkv", arange(0, 24).reshape({2, 12})},
                                         {"module.ab", arange(0, 8).reshape({2, 4})},
                                         {"module.wte", arange(5)},
                                         {"module.part.7.0", arange(1)},
                                         {"module.part.7.1", arange(3)},
                                         {"module.part.7.2", arange(2)},
                                         {"module.scope/name:3", arange(4)},
                                         {"module.other", arange(2)},
                                         {"module.a.mask", arange(1)}};
  std::vector<NamedTensor> model;
  for (const NameMap::Mapped& m : map(file)) model.push_back(m.tensor);
  CHECK(model.size() == 11);
  const std::vector<NamedTensor> back = map.backwards(model);
  CHECK(back.size() == file.size() - 1);  // without the dropped ones
  for (const NamedTensor& n : back) {
    INFO(n.name);
    const auto was = std::find_if(file.begin(), file.end(),
                                  [&](const NamedTensor& f) { return f.name == n.name; });
    REQUIRE(was != file.end());
    CHECK(n.tensor.shape() == was->tensor.shape());
    CHECK(n.tensor.to_vector<int64_t>() == was->tensor.to_vector<int64_t>());
  }
}

TEST_CASE("NameMap: a rule without an inverse is an error") {
  const auto error = [](const NameMap& map, const std::vector<NamedTensor>& model) {
    try {
      map.backwards(model);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("(nothing thrown)");
  };
  const Tensor x = ones({2});
  CHECK(
      error(NameMap().rename("h.{}.b", "b"), {{"b", x}}) ==
      "[save] b: not invertible: \"h.{}.b\" → \"b\": the name in the model has too few {} or * to "
      "restore the name in the file");
  CHECK(error(NameMap().rename("c", "b").rename("h.{}.b", "b"), {{"b", x}}) == "(nothing thrown)");
  CHECK(error(NameMap().convert("t", "u", [](const Tensor& t) { return t; }), {{"u", x}}) ==
        "[save] u: not invertible: \"t\" is converted, which has no inverse");
  CHECK(error(NameMap().join("b.{}", "b"), {{"b", x}}) ==
        "[save] b: not invertible: the shares of \"b.{}\" are not known");
  CHECK(error(NameMap().join("b.{}", "b", {1, 2}), {{"b", x}}) ==
        "[save] b: model has f32 [2], which cannot be split into parts of 1 : 2");
  CHECK(error(NameMap().rename("h.7", "x.7").rename("h.{}", "y.{}"), {{"y.7", x}}) ==
        "[save] y.7: not invertible: \"h.7\" would be read by another rule, \"h.7\"");
  CHECK(error(NameMap().drop("*.mask"), {{"a.mask", x}}) ==
        "[save] a.mask: no rule yields it, and \"*.mask\" would map it to another name");
  CHECK(error(NameMap().copy("wte", {"in", "out"}), {{"in", x}, {"out", zeros({2})}}) ==
        "[save] wte: in and out both map to it, but differ");
  CHECK(error(NameMap().copy("wte", {"in", "out"}), {{"out", x}}) == "(nothing thrown)");
  const NameMap split = NameMap().split("qkv", {{"q", 2}, "k", "v"});
  CHECK(error(split, {{"q", x}, {"v", x}}) ==
        "[save] qkv: the model has only 2 of the 3 parts of this tensor, for example q");
  CHECK(error(split, {{"q", ones({4})}, {"k", x}, {"v", ones({3})}}) ==
        "[save] v: model has f32 [3], which cannot be joined to q, f32 [4], in parts of 2 : 1 : 1");
}

TEST_CASE("load_weights accepts a shared weight that is in the file twice") {
  const testing::TempDir dir;
  nn::Linear layer({.in = 2, .out = 1, .bias = false});
  const NameMap names{{"a", "weight"}, {"b", "weight"}};
  nn::save_safetensors(dir.file("same"), {{"a", ones({1, 2})}, {"b", ones({1, 2})}});
  nn::load_weights(dir.file("same"), layer, names);
  CHECK(layer.weight.to_vector<double>() == std::vector<double>{1, 1});
  nn::save_safetensors(dir.file("other"), {{"a", ones({1, 2})}, {"b", zeros({1, 2})}});
  CHECK_THROWS_WITH(nn::load_weights(dir.file("other"), layer, names),
                    Containing("weight (b): in the file twice, with different values"));
}

TEST_CASE("errors of load_weights give the name in the file next to the model's") {
  const testing::TempDir dir;
  nn::Linear layer({.in = 2, .out = 3});
  const Tensor before = layer.weight.detach().clone();
  const std::string path = dir.file("w");
  nn::save_safetensors(path, {{"fc", zeros({3, 1})}, {"b", zeros({3})}, {"x.1", zeros({1})}});
  CHECK_THROWS_WITH(
      nn::load_weights(path, layer, {{"fc", "weight"}, {"b", "bias"}, {"x.{}", "gate.{}"}}),
      "[load] weight (fc): file has f32 [3, 1], the model f32 [3, 2]; gate.1 (x.1): in the file, "
      "but not expected (" +
          path + ")");
  CHECK(layer.weight.to_vector<float>() == before.to_vector<float>());
}
