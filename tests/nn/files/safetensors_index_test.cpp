// Weights in several files with an index.
#include <filesystem>

#include "nn/files/safetensors.h"
#include "nn/files/weights.h"
#include "nn/linear.h"
#include "ops/create.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using nn::load_safetensors;
using nn::save_safetensors;
using stretto::testing::TempDir;
using stretto::testing::write_file;

namespace {

// Two shards, weight and bias of a Linear(2 → 3), and the path of their index.
struct Shards {
  const TempDir dir;
  const std::string index = dir.file("model.safetensors.index.json");

  Shards() {
    save_safetensors(dir.file("m-1.safetensors"), {{"weight", full({3, 2}, 4)}},
                     {{"format", "pt"}, {"a", "1"}});
    save_safetensors(dir.file("m-2.safetensors"), {{"bias", full({3}, 5)}, {"x", zeros({1})}},
                     {{"format", "other"}});
    write_file(index, good);
  }
  const std::string good =
      R"({"metadata": {"total_size": 36, "more": [1, {"weight_map": {"a": "/etc/passwd"}}]},)"
      R"( "weight_map": {"x": "m-2.safetensors", "weight": "m-1.safetensors",)"
      R"( "bias": "m-2.safetensors"}})";
};

std::string error_of(const std::string& path) {
  try {
    load_safetensors(path);
  } catch (const Error& e) {
    return e.what();
  }
  return "(loaded)";
}

}  // namespace

TEST_CASE("an index opens its shards as if they were one file") {
  const Shards shards;
  for (const std::string& path : {shards.index, shards.dir.str()}) {
    const nn::SafetensorsFile file(path);
    CHECK(file.path() == shards.index);
    CHECK(file.entries().size() == 3);
    CHECK(file.metadata() == nn::Metadata{{"format", "pt"}, {"a", "1"}});
    CHECK(file["bias"].to_vector<float>() == std::vector<float>(3, 5));
    CHECK(load_safetensors(path).tensors.size() == 3);
    nn::Linear layer({.in = 2, .out = 3});
    nn::load_weights(path, layer, {{"x", ""}});
    CHECK(layer.weight.to_vector<float>() == std::vector<float>(6, 4));
    CHECK(layer.bias.to_vector<float>() == std::vector<float>(3, 5));
  }
}

TEST_CASE("a directory opens its single file, or else its index") {
  const Shards shards;
  save_safetensors(shards.dir.file("model.safetensors"), {{"whole", ones({1})}});
  CHECK(load_safetensors(shards.dir.str())["whole"].item() == 1);
  const TempDir none;
  CHECK(error_of(none.str()) ==
        "[safetensors] " + none.str() +
            ": is not a regular file, nor a directory with model.safetensors "
            "or model.safetensors.index.json");
}

TEST_CASE("shards may be links, as in the cache of Hugging Face's hub") {
  const Shards shards;
  const TempDir elsewhere;
  std::filesystem::rename(shards.dir.file("m-1.safetensors"), elsewhere.file("blob"));
  std::filesystem::create_symlink(elsewhere.file("blob"), shards.dir.file("m-1.safetensors"));
  CHECK(load_safetensors(shards.index).tensors.size() == 3);
}

// A shard with extra tensors, new weights saved over old shards, an index with a missing name.
TEST_CASE("the index determines which tensors are read, and from which shard") {
  const Shards shards;
  const TempDir& dir = shards.dir;
  save_safetensors(dir.file("m-1.safetensors"),
                   {{"weight", full({3, 2}, 4)}, {"bias", full({3}, 9)}, {"more", zeros({2})}},
                   {{nn::digest_key, ""}});
  write_file(shards.index, R"({"weight_map": {"weight": "m-1.safetensors",)"
                           R"( "bias": "m-2.safetensors", "absent": "m-1.safetensors"}})");
  const nn::SafetensorsFile file(shards.index);
  CHECK(file.entries().size() == 2);
  CHECK(file["bias"].to_vector<float>() == std::vector<float>(3, 5));
  CHECK_THROWS_WITH(file["more"], Containing("no tensor \"more\""));
  CHECK_THROWS_WITH(file["absent"], "[safetensors] " + dir.file("m-1.safetensors") +
                                        ": has no tensor \"absent\", which the index " +
                                        shards.index + " maps to it");
  CHECK_THAT(error_of(shards.index), Containing("has no tensor \"absent\", which the index"));
  nn::Linear layer({.in = 2, .out = 3});
  nn::load_weights(shards.index, layer);
  CHECK(layer.weight.to_vector<float>() == std::vector<float>(6, 4));
  CHECK(layer.bias.to_vector<float>() == std::vector<float>(3, 5));
  // It is an error if the model needs it.
  write_file(shards.index, R"({"weight_map": {"weight": "m-1.safetensors",)"
                           R"( "bias": "bare.safetensors"}})");
  save_safetensors(dir.file("bare.safetensors"), {{"x", ones({1})}});
  CHECK_THROWS_WITH(nn::load_weights(shards.index, layer), Containing("bias: not in the file"));
  CHECK(nn::load_weights(shards.index, layer, {}, {.strict = false}).missing ==
        std::vector<std::string>{"bias"});
}

TEST_CASE("an index may have any name, and a byte order mark") {
  const Shards shards;
  for (const std::string& text : {shards.good, "\xEF\xBB\xBF" + shards.good, "\n " + shards.good}) {
    const std::string blob = shards.dir.file("9f86d081884c7d65");
    write_file(blob, text);
    CHECK(load_safetensors(blob).tensors.size() == 3);
  }
}

TEST_CASE("malformed indexes are rejected in one line") {
  const Shards shards;
  const TempDir& dir = shards.dir;
  save_safetensors(dir.file("same.safetensors"), {{"weight", full({3, 2}, 4)}});
  write_file(dir.file("bad.safetensors"), "no header");
  std::filesystem::create_directory(dir.file("sub"));
  save_safetensors(dir.file("sub/m.safetensors"), {{"weight", ones({1})}});
  const auto map = [](const std::string& entries) { return "{\"weight_map\":{" + entries + "}}"; };
  const auto in = [&](const std::string& shard) { return map("\"weight\":\"" + shard + "\""); };
  struct Case {
    std::string bytes, text;
  };
  std::string names = "\"0\":\"m\"", many = "\"0\":\"0\"";
  for (int i = 1; i <= 100'000; ++i) names += str(",\"", i, "\":\"m\"");
  for (int i = 1; i <= 1'000; ++i) many += str(",\"", i, "\":\"", i, "\"");
  const std::vector<Case> cases = {
      {"", "the index does not begin with {"},
      {"[]", "the index does not begin with {"},
      {"{", "the index: is not JSON (byte 2)"},
      {shards.good + "x", "the index: is not JSON"},
      {std::string("{}\0", 3), "the index: is not JSON (byte 3)"},
      {std::string(200'000, '['), "the index does not begin with {"},
      {"{\"metadata\":" + std::string(200'000, '['), "the index: more than 64 levels"},
      {"{}", "the index has no \"weight_map\""},
      {R"({"metadata":{"weight_map":{}}})", "the index has no \"weight_map\""},
      {R"({"weight_map":1})", "\"weight_map\" holds a number, not an object"},
      {R"({"weight_map":null})", "\"weight_map\" holds null, not an object"},
      {R"({"weight_map":"m-1.safetensors"})", "\"weight_map\" holds a string, not an object"},
      {R"({"weight_map":["m-1.safetensors"]})", "\"weight_map\" holds a list, not an object"},
      {R"({"weight_map":{},"weight_map":{}})", "\"weight_map\" occurs twice"},
      {map(R"("a":1)"), "\"a\" maps to a number, not to a file"},
      {map(R"("a":-1)"), "\"a\" maps to a number, not to a file"},
      {map(R"("a":1e400)"), "the index: is not JSON"},
      {map(R"("a":true)"), "\"a\" maps to a boolean, not to a file"},
      {map(R"("a":{})"), "\"a\" maps to an object, not to a file"},
      {map(R"("a":["m-1.safetensors"])"), "\"a\" maps to a list, not to a file"},
      {map(R"("weight":"m-1.safetensors","weight":"m-1.safetensors")"),
       "the field \"weight\" occurs twice"},
      {map(names), "more than 100000 tensors"},
      {map(many), "1001 shards; at most 1000 allowed"},
      {in("../" + dir.str().substr(dir.str().rfind('/') + 1) + "/m-1.safetensors"),
       "; a shard must be a file name without a directory"},
      {in(dir.file("m-1.safetensors")), "a shard must be a file name"},
      {in("/etc/passwd"), "\"weight\" maps to \"/etc/passwd\"; a shard must be a file name"},
      {in("sub/m.safetensors"), "a shard must be a file name"},
      {in("./m-1.safetensors"), "a shard must be a file name"},
      {in("..\\\\m-1.safetensors"), "a shard must be a file name"},
      {in(".."), "a shard must be a file name"},
      {in("."), "a shard must be a file name"},
      {in(""), "a shard must be a file name"},
      {in("m-1.safetensors\\u0000"), "a shard must be a file name"},
      {in("m\\n"), "\"weight\" maps to \"m?\"; a shard"},
      {in("m-3.safetensors"), "the shard \"m-3.safetensors\" is missing"},
      {in(std::string(5000, 'm')), "m…\" is missing"},
      {in("sub"), "is not a regular file"},
      {in("model.safetensors.index.json"), "header of "},
      {in("bad.safetensors"), "bad.safetensors: header of "},
      {map(R"("bias":"same.safetensors")"),
       "same.safetensors: has no tensor \"bias\", which the index "},
      {R"({"metadata":{},"metadata":{},"weight_map":{}})", "\"metadata\" occurs twice"},
      {R"({"weight_map":{},"more":[{"a":{"b":1,"c":2,"b":1}}]})", "\"b\" occurs twice"},
      {"<!DOCTYPE html><html>", "the index does not begin with {; it looks like an HTML page"},
  };
  nn::Linear layer({.in = 2, .out = 3});
  const std::vector<float> before = layer.weight.to_vector<float>();
  for (const Case& c : cases) {
    write_file(shards.index, c.bytes);
    const std::string message = error_of(shards.index);
    INFO(c.bytes.substr(0, 300));
    CHECK_THAT(message, Containing(c.text));
    CHECK(message.find("[safetensors] " + dir.str()) == 0);
    CHECK(message.find('\n') == std::string::npos);
    CHECK(message.size() < 3 * dir.str().size() + 350);
    CHECK_THROWS_AS(nn::load_weights(shards.index, layer, {}, {.strict = false}), Error);
  }
  CHECK(layer.weight.to_vector<float>() == before);
  write_file(shards.index, "{\"weight_map\":{}}");
  CHECK(load_safetensors(shards.index).tensors.empty());
  CHECK_THAT(error_of(dir.file("none.json")), Containing("cannot open: No such file"));
}
