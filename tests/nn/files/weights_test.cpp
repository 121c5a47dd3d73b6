#include "nn/files/weights.h"

#include <cmath>
#include <functional>

#include "nn/linear.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using nn::LoadReport;
using nn::NamedTensor;
using nn::NameMap;
using stretto::testing::read_file;
using stretto::testing::safetensors_bytes;
using stretto::testing::TempDir;
using stretto::testing::write_file;

namespace {

using Names = std::vector<std::string>;

struct Net : nn::Module {
  nn::Linear first{*this, "first", {.in = 2, .out = 3}};
  nn::Linear second{*this, "second", {.in = 3, .out = 1, .bias = false}};
};

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "(nothing thrown)";
}

std::vector<float> values(const nn::Module& m) {
  std::vector<float> all;
  for (const auto& [name, value] : m.named_parameters())
    for (const float v : value.to_vector<float>()) all.push_back(v);
  return all;
}

std::string bytes_of(const std::vector<uint16_t>& halves) {
  return {reinterpret_cast<const char*>(halves.data()), 2 * halves.size()};
}

}  // namespace

TEST_CASE("weights: names that do not match are reported with the most similar name of the file") {
  const TempDir dir;
  Net net;
  const std::vector<float> before = values(net);
  const std::string path = dir.file("w");
  nn::save_safetensors(path, {{"first.w", zeros({3, 2})},
                              {"first.b", zeros({3})},
                              {"far away", zeros({3})},
                              {"second.weight", zeros({1, 3})}});
  CHECK(error_of([&] { nn::load_weights(path, net); }) ==
        "[load] first.weight: not in the file (expected f32 [3, 2]; similar: first.w f32 [3, "
        "2], first.b f32 [3]); first.bias: not in the file (expected f32 [3]; similar: first.b "
        "f32 [3], first.w f32 [3, 2]); far away: in the file, but not expected; first.b: in the "
        "file, but not expected; first.w: in the file, but not expected (" +
            path + ")");
  CHECK(error_of([&] {
          nn::load_weights(path, net, {{"first.w", "first.weight"}});
        })
            .starts_with("[load] first.bias: not in the file (expected f32 [3]; similar: "
                         "first.b f32 [3], far away f32 [3]); far away: in the"));
  CHECK(values(net) == before);
}

TEST_CASE("weights: a map that matches nothing gives a short error") {
  const TempDir dir;
  struct Many : nn::Module {
    nn::List<nn::Linear> layers{*this, "layers", 100, nn::Linear::Options{.in = 1, .out = 1}};
  } many;
  std::vector<NamedTensor> file;
  for (int i = 0; i < 100; ++i)
    for (const char* kind : {".kernel", ".offset"})
      file.push_back({str("h.", i, kind, "\n", std::string(500, 'x')), zeros({1, 1})});
  const std::string path = dir.file("w");
  nn::save_safetensors(path, file);
  const std::string message = error_of([&] { nn::load_weights(path, many); });
  CHECK_THAT(message, Containing("; and 197 more that are not in the file; ") &&
                          Containing("; and 197 more that are not expected ("));
  CHECK(message.size() < 5000);
  CHECK(message.find('\n') == std::string::npos);
}

TEST_CASE("weights: strict = false loads a part and returns a report") {
  const TempDir dir;
  Net net;
  const std::vector<float> before = values(net);
  const std::string path = dir.file("w");
  nn::save_safetensors(path, {{"fc.weight", full({3, 2}, 5)},
                              {"mask", zeros({7})},
                              {"pooler", zeros({2})},
                              {"second.weight", full({1, 3}, 6)}});
  NameMap names;
  names.rename("fc.*", "first.*").drop("mask");
  CHECK_THROWS_WITH(nn::load_weights(path, net, names),
                    Containing("first.bias: not in the file (expected f32 [3]; similar: pooler "
                               "f32 [2]); pooler: in the file, but not expected"));
  const LoadReport report = nn::load_weights(path, net, names, {.strict = false});
  CHECK(report.loaded == Names{"first.weight", "second.weight"});
  CHECK(report.missing == Names{"first.bias"});
  CHECK(report.unused == Names{"pooler"});
  CHECK(report.dropped == Names{"mask"});
  CHECK(report.describe() ==
        "loaded 2 of 3 tensors; not in the file: first.bias; not expected: pooler; dropped: "
        "mask");
  CHECK(net.first.weight.to_vector<float>() == std::vector<float>(6, 5));
  CHECK(net.first.bias.to_vector<float>() ==
        std::vector<float>(before.begin() + 6, before.begin() + 9));
  CHECK(net.second.weight.to_vector<float>() == std::vector<float>(3, 6));

  // A tensor that is split counts once in the report, also if none of its parts is used.
  nn::save_safetensors(path, {{"ab", zeros({2})}, {"second.weight", zeros({1, 3})}});
  CHECK(
      nn::load_weights(path, net, NameMap().split("ab", {"first.a", "first.b"}), {.strict = false})
          .unused == Names{"ab"});

  // Shapes must match all the same, and a file without any matching tensor is an error.
  const std::vector<float> now = values(net);
  nn::save_safetensors(path, {{"first.weight", zeros({2, 3})}, {"second.weight", zeros({1, 3})}});
  CHECK(error_of([&] { nn::load_weights(path, net, {}, {.strict = false}); }) ==
        "[load] first.weight: file has f32 [2, 3], the model f32 [3, 2] (" + path + ")");
  nn::save_safetensors(path, {{"a", zeros({3, 2})}});
  CHECK_THAT(error_of([&] { nn::load_weights(path, net, {}, {.strict = false}); }),
             Containing("[load] first.weight: not in the file (expected f32 [3, 2]; similar: a "
                        "f32 [3, 2]); "));
  CHECK(values(net) == now);
}

TEST_CASE("weights: they can be loaded from an open file and from tensors in memory") {
  const TempDir dir;
  Net net, other, third;
  nn::save_weights(dir.file("w"), net);
  const nn::SafetensorsFile open(dir.file("w"));
  CHECK(open.entries().size() == 3);
  CHECK(open.metadata() == nn::Metadata{{"format", "pt"}});
  nn::load_weights(open, other);
  CHECK(values(other) == values(net));
  nn::Safetensors file = nn::load_safetensors(dir.file("w"));
  for (NamedTensor& n : file.tensors) n.name = "net." + n.name;
  CHECK(nn::load_weights(file, third, NameMap().strip("net.")).loaded.size() == 3);
  CHECK(values(third) == values(net));
  file.tensors.pop_back();
  CHECK_THAT(error_of([&] { nn::load_weights(file, third, NameMap().strip("net.")); }),
             Containing("second.weight: not in the file (tensors in memory)"));
}

TEST_CASE("weights: dropped and unused tensors may have any dtype") {
  const TempDir dir;
  const std::string path = dir.file("w");
  write_file(path,
             safetensors_bytes(R"({"weight":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                               R"("scale":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[8,12]},)"
                               R"("t":{"dtype":"U16","shape":[2],"data_offsets":[12,16]}})",
                               std::string(16, '\0')));
  nn::Linear layer({.in = 2, .out = 1, .bias = false});
  NameMap names;
  names.drop("scale").drop("t");
  CHECK(nn::load_weights(path, layer, names).dropped == Names{"scale", "t"});
  CHECK(layer.weight.to_vector<float>() == std::vector<float>{0, 0});
  CHECK(nn::load_weights(path, layer, {}, {.strict = false}).unused == Names{"scale", "t"});
  CHECK(error_of([&] { nn::load_weights(path, layer); }) ==
        "[load] scale: in the file, but not expected; t: in the file, but not expected (" + path +
            ")");
  CHECK(error_of([&] {
          nn::load_weights(path, layer, {{"weight", ""}, {"scale", "weight"}, {"t", ""}});
        }) == "[safetensors] " + path +
                  ": \"scale\": dtype \"F8_E4M3\" is not supported; accepted: F32, F64, BF16, F16, "
                  "I64, I32, I16, I8, U8, BOOL");
  CHECK_THAT(error_of([&] { nn::load_safetensors(path); }), Containing("\"F8_E4M3\" is not"));
  const nn::SafetensorsFile open(path);
  CHECK(open.entries()[1].dtype == "F8_E4M3");
  CHECK(open["weight"].shape() == Shape{1, 2});
  CHECK_THROWS_WITH(open["no"], Containing(path + ": no tensor \"no\""));
}

TEST_CASE("F16: all 65,536 values are read exactly") {
  const TempDir dir;
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = uint16_t(i);
  write_file(
      dir.file("w"),
      safetensors_bytes(R"({"h":{"dtype":"F16","shape":[256,256],"data_offsets":[0,131072]}})",
                        bytes_of(halves)));
  const Tensor x = nn::load_safetensors(dir.file("w"))["h"];
  CHECK(x.dtype() == f32);
  CHECK(x.shape() == Shape{256, 256});
  size_t wrong = 0;
  for (size_t i = 0; i < halves.size(); ++i) {
    // IEEE 754 binary16: 5 bits of exponent, 10 of fraction.
    const int exponent = int(i >> 10 & 31), fraction = int(i & 1023);
    const double size = exponent == 31  ? (fraction == 0 ? INFINITY : NAN)
                        : exponent == 0 ? fraction * std::pow(2.0, -24)
                                        : (1024 + fraction) * std::pow(2.0, exponent - 25);
    const double want = i >= 32768 ? -size : size;
    const float got = x.data<float>()[i];
    wrong += std::isnan(want) ? !std::isnan(got)
                              : double(got) != want || std::signbit(got) != std::signbit(want);
  }
  CHECK(wrong == 0);
}

TEST_CASE("F16: weights are converted to the model's dtype") {
  const TempDir dir;
  const std::string path = dir.file("w");
  const std::string header = R"({"weight":{"dtype":"F16","shape":[1,2],"data_offsets":[0,4]}})";
  write_file(path, safetensors_bytes(header, bytes_of({0x3c00, 0xc100})));
  nn::Linear layer({.in = 2, .out = 1, .bias = false});
  nn::load_weights(path, layer);
  CHECK(layer.weight.to_vector<float>() == std::vector<float>{1, -2.5f});
  write_file(path, safetensors_bytes(header, bytes_of({0x3c00, 0x7c00})));
  CHECK(error_of([&] { nn::load_weights(path, layer); }) ==
        "[load] weight: holds values that are not finite (" + path + ")");
}

TEST_CASE("weights: parameters take over the memory that was read, unless a view of them exists") {
  const TempDir dir;
  Net net;
  nn::save_weights(dir.file("w"), net);
  Net other;
  const Tensor view = other.second.weight.detach();
  const void* before = other.first.weight.raw_data();
  const int64_t live = memory_stats(cpu).live;
  nn::load_weights(dir.file("w"), other);
  CHECK(memory_stats(cpu).live == live);
  CHECK(values(other) == values(net));
  if (other.first.weight.device().is_cpu()) CHECK(other.first.weight.raw_data() != before);
  CHECK(view.to_vector<float>() == net.second.weight.to_vector<float>());
  CHECK(other.first.weight.requires_grad());

  // A gradient is kept.
  other.first.weight.set_grad(ones({3, 2}));
  nn::load_weights(dir.file("w"), other);
  CHECK(other.first.weight.grad().to_vector<float>() == std::vector<float>(6, 1));
  // A backward pass detects that a saved tensor has changed.
  const Tensor x = zeros({3, 1}).set_requires_grad();
  const Tensor product = sum(x * other.second.weight.transpose(0, 1));
  nn::load_weights(dir.file("w"), other);
  CHECK_THROWS_WITH(product.backward(), Containing("changed"));
}

TEST_CASE("weights: the model is converted while it is loaded") {
  const TempDir dir;
  struct Big : nn::Module {
    nn::Linear linear{*this, "linear", {.in = 1000, .out = 500}};
    Tensor count = buffer("count", zeros({1}), {.dtype = nn::BufferDtype::at_least_f32});
    Tensor mean = buffer("mean", zeros({2}));
  } big;
  big.mean.fill_(1.001);
  big.count.fill_(1.001);
  nn::save_weights(dir.file("w"), big);
  nn::load_weights(dir.file("w"), big, {}, {.dtype = bf16});
  CHECK(big.linear.weight.dtype() == bf16);
  CHECK(big.mean.dtype() == bf16);
  CHECK(big.count.dtype() == f32);
  CHECK(big.count.item() == double(1.001f));
  const std::vector<float> loaded = big.linear.weight.to_vector<float>();
  nn::load_weights(dir.file("w"), big, {}, {.dtype = f64});
  CHECK(big.linear.weight.dtype() == f64);
  CHECK(big.linear.weight.to(f32).to(bf16).to_vector<float>() == loaded);
  CHECK_THROWS_WITH(nn::load_weights(dir.file("w"), big, {}, {.dtype = i64}),
                    Containing("[load] got i64; accepted: f32, f64, bf16"));
}

TEST_CASE("weights: a conversion that computes gets the values of the file") {
  const TempDir dir;
  nn::save_safetensors(dir.file("w"), {{"w", full({2, 2}, 1.001)}});
  nn::Linear layer({.in = 2, .out = 2, .bias = false});
  layer.to(bf16);
  DType seen = i64;
  nn::Conversion conversion{"noted", [&](const Tensor& x) {
                              seen = x.dtype();
                              return x;
                            }};
  for (const bool moves_only : {false, true}) {
    conversion.moves_only = moves_only;
    const NameMap names = NameMap().convert("w", "weight", conversion);
    CHECK(names.moves_only("w") == moves_only);
    nn::load_weights(dir.file("w"), layer, names);
    CHECK(seen == (moves_only ? bf16 : f32));
    CHECK(layer.weight.to_vector<float>() == std::vector<float>(4, 1));
  }
}

TEST_CASE("weights: memory holds each tensor once, whatever the map does with it") {
  const TempDir dir;
  struct Model : nn::Module {
    explicit Model(int n) {
      for (int i = 0; i < n; ++i)
        for (const char* part : {"q", "k", "v"})
          parts.push_back(parameter(str(part, i), empty({64, 64})));
    }
    Tensors parts;
  };
  constexpr int n = 20;
  std::vector<NamedTensor> file;
  for (int i = 0; i < n; ++i) file.push_back({str("qkv", i), ones({64, 192})});
  nn::save_safetensors(dir.file("w"), file);
  file.clear();
  NameMap names;
  names.split("qkv{}", {"q{}", "k{}", "v{}"}, {.first = nn::transposed()});
  Model model(n);
  const int64_t live = memory_stats(cpu).live, tensor = 64 * 192 * 4;
  reset_peak_memory(cpu);
  nn::load_weights(dir.file("w"), model, names);
  CHECK(memory_stats(cpu).peak - live <= (n + 3) * tensor);  // values, and one that is converted
  CHECK(memory_stats(cpu).live == live);
}

TEST_CASE("weights are saved under the authors' names, bit for bit") {
  const TempDir dir;
  struct Attention : nn::Module {
    nn::Linear q{*this, "q", {.in = 4, .out = 4}}, k{*this, "k", {.in = 4, .out = 2}},
        v{*this, "v", {.in = 4, .out = 2}};
  } attention;
  NameMap names;
  names
      .split("h.attn.weight", {{"q.weight", 2}, "k.weight", "v.weight"},
             {.first = nn::transposed()})
      .split("h.attn.bias", {{"q.bias", 2}, "k.bias", "v.bias"}, {.groups = 2});
  nn::save_weights(dir.file("a"), attention, names, {{"by", "us"}});
  const nn::Safetensors file = nn::load_safetensors(dir.file("a"));
  REQUIRE(file.tensors.size() == 2);
  CHECK(file["h.attn.weight"].shape() == Shape{4, 8});
  CHECK(file["h.attn.bias"].shape() == Shape{8});
  CHECK(file.metadata == nn::Metadata{{"by", "us"}});
  const std::vector<float> before = values(attention);
  for (const auto& [name, value] : attention.named_parameters()) Tensor(value).detach().fill_(0);
  nn::load_weights(dir.file("a"), attention, names);
  CHECK(values(attention) == before);
  nn::save_weights(dir.file("b"), attention, names, {{"by", "us"}});
  CHECK(read_file(dir.file("b")) == read_file(dir.file("a")));

  // After an error nothing is written.
  names.prefer(NameMap().rename("q", "q.weight"));
  CHECK_THAT(error_of([&] { nn::save_weights(dir.file("c"), attention, names); }),
             Containing("[save] h.attn.weight: the model has only 2 of the 3 parts of this tensor, "
                        "for example k.weight"));
  CHECK(dir.entries() == 2);
}

TEST_CASE("every mutation of a mapped file loads or is rejected without changing the model") {
  const TempDir dir;
  const std::string path = dir.file("w");
  nn::Linear layer({.in = 2, .out = 2});
  const NameMap names = NameMap().split("[m.]wb", {{"weight", 2}, {"bias", 1}}).drop("*x");
  nn::save_safetensors(path, {{"m.wb", zeros({6})}, {"x", zeros({1})}});
  const std::vector<float> before = values(layer);
  const std::string bytes = read_file(path);
  for (size_t at = 0; at < bytes.size(); ++at)
    for (const int bit : {0, 3, 6}) {
      std::string flipped = bytes;
      flipped[at] = char(flipped[at] ^ (1 << bit));
      write_file(path, flipped);
      const std::string message = error_of([&] { nn::load_weights(path, layer, names); });
      CHECK(message != "(nothing thrown)");  // [6] is neither a matrix nor a vector
      CHECK(message.find('\n') == std::string::npos);
    }
  CHECK(values(layer) == before);
}

namespace {

struct TiedNet : nn::Module {
  nn::Linear in{*this, "in", {.in = 2, .out = 2, .bias = false}};
  nn::Linear out{*this, "out", {.in = 2, .out = 3}};
  Tensor tied = shared_parameter("tied", in.weight);
};

}  // namespace

TEST_CASE("weights: a shared parameter is known by all its names") {
  const TempDir dir;
  const std::string path = dir.file("w");
  const std::vector<NamedTensor> rest{{"out.weight", zeros({3, 2})}, {"out.bias", zeros({3})}};
  const auto save = [&](std::vector<NamedTensor> more) {
    more.insert(more.end(), rest.begin(), rest.end());
    nn::save_safetensors(path, more);
  };
  TiedNet net;
  save({{"tied", full({2, 2}, 7)}});
  const LoadReport report = nn::load_weights(path, net);
  CHECK(report.missing.empty());
  CHECK(report.unused.empty());
  CHECK(report.loaded == Names{"in.weight", "out.weight", "out.bias"});
  CHECK(net.in.weight.to_vector<float>() == std::vector<float>(4, 7));
  CHECK(net.tied.same(net.in.weight));

  save({{"old.tied", full({2, 2}, 8)}});
  nn::load_weights(path, net, {{"old.tied", "tied"}});
  CHECK(net.in.weight.to_vector<float>() == std::vector<float>(4, 8));

  save({{"tied", full({2, 2}, 9)}, {"in.weight", full({2, 2}, 9)}});
  nn::load_weights(path, net);
  CHECK(net.in.weight.to_vector<float>() == std::vector<float>(4, 9));

  save({{"tied", full({2, 2}, 9)}, {"in.weight", full({2, 2}, 1)}});
  CHECK(error_of([&] { nn::load_weights(path, net); }).find("in the file twice, with different") !=
        std::string::npos);
  save({{"tied", full({3, 2}, 9)}});
  CHECK(error_of([&] { nn::load_weights(path, net); }) ==
        "[load] in.weight (tied): file has f32 [3, 2], the model f32 [2, 2] (" + path + ")");
  CHECK(net.in.weight.to_vector<float>() == std::vector<float>(4, 9));
}
