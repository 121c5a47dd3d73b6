#include <cmath>

#include "autograd/tape.h"
#include "nn/dropout.h"
#include "nn/feed_forward.h"
#include "nn/linear.h"
#include "nn/optim/optim.h"
#include "nn/training/checkpoint.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using stretto::testing::read_file;
using stretto::testing::TempDir;
using stretto::testing::write_file;

namespace {

struct Net : nn::Module {
  struct Options {
    int64_t hidden = 8;
  };
  explicit Net(Options o) : options(o) {}
  const Options options;
  nn::Linear in{*this, "in", {.in = 4, .out = 4}};
  nn::FeedForward ff{*this, "ff", {.d_model = 4, .d_hidden = options.hidden, .dropout = 0.25}};
  Tensor tied = shared_parameter("tied", in.weight);
  Tensor seen = buffer("seen", zeros({1}, {.dtype = i64}));
  Tensor unused = parameter("unused", ones({2}));
  Tensor operator()(const Tensor& x) { return linear_twice(ff(in(x))); }
  Tensor linear_twice(const Tensor& x) { return x + in(x); }
};

// One step on random data; it depends on the random state, the weights and the optimizer's state.
void train_step(Net& net, nn::Optimizer& optimizer) {
  optimizer.zero_grad();
  const Tensor x = randn({16, 4}, {.dtype = net.in.weight.dtype()});
  mean(square(net(x))).backward();
  nn::clip_grad_norm(net.parameters(), 1);
  optimizer.step();
  net.seen.fill_(net.seen.item() + 16);
}

std::vector<float> weights(const nn::Module& m) {
  std::vector<float> all;
  for (const auto& list : {m.named_parameters(), m.named_buffers()})
    for (const auto& n : list)
      for (float v : n.tensor.to_vector<float>()) all.push_back(v);
  return all;
}

// Ten steps in one run against five, a checkpoint, and five more in a new program.
template <class MakeOptimizer>
void check_resume(DType dtype, MakeOptimizer make) {
  const TempDir dir;
  const std::string path = dir.file("a.safetensors");
  manual_seed(3);
  Net net({});
  net.to(dtype);
  auto optimizer = make(net.parameters());
  for (int i = 0; i < 5; ++i) train_step(net, *optimizer);
  nn::save_checkpoint(path, net, optimizer.get(), {.step = 5, .metadata = {{"data", "17"}}});
  for (int i = 0; i < 5; ++i) train_step(net, *optimizer);

  manual_seed(77);
  Net again({});
  again.to(dtype);
  auto restored = make(again.parameters());
  const nn::TrainingState state = nn::load_checkpoint(path, again, restored.get());
  CHECK(state.step == 5);
  CHECK(state.metadata == nn::Metadata{{"data", "17"}});
  // The restored state is saved as the same bytes.
  nn::save_checkpoint(dir.file("b"), again, restored.get(), state);
  CHECK(read_file(dir.file("b")) == read_file(path));
  for (int i = 0; i < 5; ++i) train_step(again, *restored);
  CHECK(weights(again) == weights(net));
  CHECK(again.tied.same(again.in.weight));
  CHECK(again.in.weight.dtype() == dtype);
}

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "(nothing thrown)";
}

nn::AdamW adamw(const nn::Module& m) { return nn::AdamW(m.parameters(), {.lr = 0.01}); }

}  // namespace

TEST_CASE("training resumes bit for bit") {
  for (DType dtype : {f32, f64, bf16}) {
    check_resume(dtype, [](Tensors p) {
      return std::make_unique<nn::SGD>(std::move(p), nn::SGD::Options{.lr = 0.1, .momentum = 0.9});
    });
    check_resume(dtype, [](Tensors p) {
      return std::make_unique<nn::SGD>(std::move(p), nn::SGD::Options{.lr = 0.1});
    });
    check_resume(dtype, [](Tensors p) {
      return std::make_unique<nn::AdamW>(std::move(p), nn::AdamW::Options{.lr = 0.01});
    });
    check_resume(dtype, [](Tensors p) {
      return std::make_unique<nn::Adam>(std::move(p),
                                        nn::Adam::Options{.lr = 0.01, .amsgrad = true});
    });
  }
}

TEST_CASE("a checkpoint's tensors have readable names, shared ones are stored once") {
  const TempDir dir;
  manual_seed(1);
  Net net({});
  nn::AdamW optimizer = adamw(net);
  train_step(net, optimizer);
  nn::save_checkpoint(dir.file("a"), net, &optimizer, {.step = 1});
  const nn::Safetensors file = nn::load_safetensors(dir.file("a"));
  std::vector<std::string> names;
  for (const auto& n : file.tensors) names.push_back(n.name);
  const auto has = [&](const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  CHECK(has("model.in.weight"));
  CHECK_FALSE(has("model.tied"));
  CHECK(has("model.seen"));
  CHECK(has("optim.ff.linear1.bias.v"));
  CHECK(file["optim.unused.steps"].item() == 0);
  CHECK(file["optim.in.weight.steps"].item() == 1);
  CHECK_FALSE(has("optim.unused.m"));
  CHECK(file.metadata.at("stretto.optimizer") == "AdamW");
}

TEST_CASE("the training state can be read before a model exists") {
  const TempDir dir;
  manual_seed(1);
  Net net({});
  nn::save_checkpoint(dir.file("a"), net, nullptr, {.step = 12, .metadata = {{"config", "{}"}}});
  manual_seed(2);
  const nn::TrainingState state = nn::load_training_state(dir.file("a"));
  CHECK(state.step == 12);
  CHECK(state.random.seed == 1);
  CHECK(state.metadata.at("config") == "{}");
  CHECK(random_state().seed == 2);
  nn::load_checkpoint(dir.file("a"), net, nullptr);
  CHECK(random_state().seed == 1);
}

TEST_CASE("a checkpoint can store tensors of the program") {
  const TempDir dir;
  const std::string path = dir.file("a.safetensors");
  Net net({});
  const Tensor memory = randn({2, 3, 4});
  nn::save_checkpoint(path, net, nullptr,
                      {.step = 5, .tensors = {{"memory", memory}, {"at", arange(3)}}});
  CHECK(nn::load_training_state(path).tensors.empty());
  nn::TrainingState state = nn::load_checkpoint(path, net, nullptr);
  REQUIRE(state.tensors.size() == 2);
  CHECK(state.tensors[0].name == "at");  // larger items first, as in the file
  CHECK(state.tensors[0].tensor.to_vector<int64_t>() == std::vector<int64_t>{0, 1, 2});
  CHECK(state.tensors[1].name == "memory");
  CHECK(state.tensors[1].tensor.shape() == Shape{2, 3, 4});
  CHECK(state.tensors[1].tensor.to_vector<float>() == memory.to_vector<float>());
  nn::load_weights(path, net);  // ignores them
}

TEST_CASE("a checkpoint that does not fit is rejected before anything changes") {
  const TempDir dir;
  const std::string path = dir.file("a");
  manual_seed(1);
  Net net({}), other({.hidden = 5});
  nn::AdamW optimizer = adamw(net), others = adamw(other);
  train_step(net, optimizer);
  nn::save_checkpoint(path, net, &optimizer, {.step = 1});
  const std::vector<float> before = weights(other);
  const RandomState random = random_state();

  const std::string shapes = error_of([&] { nn::load_checkpoint(path, other, &others); });
  CHECK(shapes ==
        "[load] ff.linear1.weight: file has f32 [8, 4], the model f32 [5, 4]; "
        "ff.linear1.bias: file has f32 [8], the model f32 [5]; "
        "ff.linear2.weight: file has f32 [4, 8], the model f32 [4, 5]; and 6 more (" +
            path + ")");
  CHECK(weights(other) == before);
  CHECK(others.state()[0].steps == 0);
  CHECK(random_state().next_stream == random.next_stream);

  nn::SGD sgd(net.parameters(), {});
  CHECK_THAT(error_of([&] { nn::load_checkpoint(path, net, &sgd); }),
             Containing("was saved with optimizer AdamW, this run uses SGD"));
  nn::AdamW ams(net.parameters(), {.amsgrad = true});
  CHECK_THAT(error_of([&] { nn::load_checkpoint(path, net, &ams); }),
             Containing("[load] optim.in.weight.v_max: not in the file; "));
  Net half({});
  half.to(bf16);
  CHECK_THAT(error_of([&] { nn::load_checkpoint(path, half, nullptr); }),
             Containing("in.weight: file has f32 [4, 4], the model bf16 [4, 4]"));

  const nn::Safetensors file = nn::load_safetensors(path);
  const auto edited = [&](auto edit) {
    nn::Safetensors copy = file;
    edit(copy);
    nn::save_safetensors(dir.file("b"), copy.tensors, copy.metadata);
    return error_of([&] { nn::load_checkpoint(dir.file("b"), net, &optimizer); });
  };
  const auto at = [](nn::Safetensors& f, const std::string& name) {
    return std::find_if(f.tensors.begin(), f.tensors.end(),
                        [&](const auto& n) { return n.name == name; });
  };
  const std::string end = " (" + dir.file("b") + ")";
  CHECK(edited([](auto&) {}) == "(nothing thrown)");
  CHECK(edited([&](auto& f) { f.tensors.erase(at(f, "model.in.bias")); }) ==
        "[load] in.bias: not in the file" + end);
  CHECK(edited([&](auto& f) {
          f.tensors.push_back({"model.extra", ones({1})});
        }) == "[load] extra: in the file, but not expected" + end);
  CHECK(edited([&](auto& f) {
          f.tensors.push_back({"optim.in.bias.w", ones({1})});
        }) == "[load] optim.in.bias.w: in the file, but not expected" + end);
  CHECK(edited([&](auto& f) { at(f, "optim.in.bias.m")->tensor = ones({3}); }) ==
        "[load] optim.in.bias.m: file has f32 [3], the optimizer f32 [4]" + end);
  CHECK(edited([&](auto& f) { at(f, "optim.in.bias.steps")->tensor = ones({1}); }) ==
        "[load] optim.in.bias.steps: file has f32 [1], expected i64 []; optim.in.bias.m: in the "
        "file, but not expected; optim.in.bias.v: in the file, but not expected" +
            end);
  CHECK_THAT(edited([&](auto& f) {
               at(f, "optim.in.bias.steps")->tensor = tensor(std::vector<int64_t>{-4}, {});
             }),
             Containing("has had -4 steps"));
  CHECK_THAT(edited([&](auto& f) { f.metadata.erase("stretto.step"); }),
             Containing("metadata \"stretto.step\" is missing"));
  CHECK_THAT(edited([&](auto& f) { f.metadata["stretto.random_seed"] = "-1"; }),
             Containing("metadata \"stretto.random_seed\" is not a number"));
  CHECK_THAT(edited([&](auto& f) { f.metadata["stretto.step"] = "1x"; }),
             Containing("metadata \"stretto.step\" is not a number"));
  CHECK_THAT(edited([&](auto& f) { f.metadata.clear(); }), Containing("is not a checkpoint"));
  CHECK_THAT(error_of([&] {
               nn::save_checkpoint(path, net, nullptr, {.metadata = {{"stretto.x", ""}}});
             }),
             Containing("metadata key \"stretto.x\" begins with \"stretto.\""));

  nn::save_checkpoint(path, net, nullptr, {});
  CHECK_THAT(error_of([&] { nn::load_checkpoint(path, net, &optimizer); }),
             Containing("was saved with optimizer none"));
}

TEST_CASE("a checkpoint with any single bit flipped is rejected and changes nothing") {
  const TempDir dir;
  const std::string path = dir.file("a");
  manual_seed(1);
  const auto make = [] { return nn::Linear({.in = 2, .out = 2}); };
  nn::Linear layer = make();
  nn::AdamW optimizer = adamw(layer);
  layer.weight.set_grad(ones({2, 2}));
  optimizer.step();
  nn::save_checkpoint(path, layer, &optimizer, {.step = 3, .metadata = {{"layers", "\u001f\n2"}}});
  const std::string bytes = read_file(path);

  nn::Linear other = make();
  nn::AdamW others = adamw(other);
  const std::vector<float> before = weights(other);
  size_t accepted = 0, more_than_a_line = 0;
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = char(flipped[bit / 8] ^ (1 << bit % 8));
    write_file(path, flipped);
    for (const std::string& message : {error_of([&] { nn::load_checkpoint(path, other, &others); }),
                                       error_of([&] { nn::load_checkpoint(path, other, nullptr); }),
                                       error_of([&] { nn::load_weights(path, other); })}) {
      accepted += message == "(nothing thrown)";
      more_than_a_line += message.find('\n') != std::string::npos;
      CHECK_THAT(message, Containing(path));
    }
  }
  CHECK(accepted == 0);
  CHECK(more_than_a_line == 0);
  CHECK(weights(other) == before);
  CHECK(others.state()[0].steps == 0);

  write_file(path, bytes);
  CHECK(nn::load_checkpoint(path, other, &others).step == 3);
  CHECK(weights(other) == weights(layer));
}

TEST_CASE("the error of a damaged checkpoint names the damaged part") {
  const TempDir dir;
  const std::string path = dir.file("a");
  Net net({});
  nn::save_checkpoint(path, net, nullptr, {.metadata = {{"layers", "12"}}});
  const std::string bytes = read_file(path);
  const auto changed = [&](size_t at, char value) {
    std::string copy = bytes;
    copy[at] = value;
    write_file(path, copy);
    return error_of([&] { nn::load_checkpoint(path, net, nullptr); });
  };
  const std::string begin = "[safetensors] " + path + ": is damaged: ";
  CHECK(changed(bytes.find("\"12\"") + 1, '4') ==
        begin + "its header is not the one it was saved with");
  CHECK(error_of([&] { nn::load_training_state(path); }) ==
        begin + "its header is not the one it was saved with");
  CHECK(changed(bytes.size() - 1, char(bytes.back() ^ 1)) ==
        begin + "the tensors' data are not those it was saved with");
  CHECK_THAT(changed(bytes.find("stretto.digest"), 'S'),
             Containing("metadata \"stretto.digest\" is missing"));
}

TEST_CASE("the error of a checkpoint of another version names the version") {
  const TempDir dir;
  const std::string path = dir.file("a");
  manual_seed(1);
  Net net({}), other({});
  nn::save_checkpoint(path, net, nullptr, {.step = 4});
  const nn::Safetensors file = nn::load_safetensors(path);
  const std::vector<float> before = weights(other);
  const auto with = [&](auto edit) {
    nn::Metadata texts = file.metadata;
    edit(texts);
    nn::save_safetensors(path, file.tensors, texts);
    const std::string message = error_of([&] { nn::load_checkpoint(path, other, nullptr); });
    CHECK(error_of([&] { nn::load_training_state(path); }) == message);
    CHECK(error_of([&] { nn::load_weights(path, other); }) == message);
    return message;
  };
  const std::string begin = "[load] " + path + ": is a checkpoint written by Stretto ";
  CHECK(with([](nn::Metadata& texts) {
          texts.erase("stretto.digest");
          texts.erase("stretto.version");
          texts["stretto.format"] = "checkpoint-1";
        }) ==
        begin + "0.1 (format 1); this is " + file.metadata.at("stretto.version") + " (format 2)");
  CHECK_THAT(with([](nn::Metadata& texts) { texts["stretto.format"] = "checkpoint-3"; }),
             Containing(" (format 3); this is "));
  CHECK_THAT(with([](nn::Metadata& texts) { texts["stretto.version"] = "99.1.0"; }),
             Containing("written by Stretto 99.1.0 (format 2); this is "));
  CHECK_THAT(with([](nn::Metadata& texts) { texts.erase("stretto.version"); }),
             Containing("written by Stretto 0.1 (format 2); this is "));
  CHECK_THAT(with([](nn::Metadata& texts) { texts["stretto.version"] = "0.2\n"; }),
             Containing("written by Stretto 0.2? (format 2)"));
  CHECK(with([](nn::Metadata& texts) { texts.erase("stretto.digest"); }) ==
        "[load] " + path + ": metadata \"stretto.digest\" is missing");
  CHECK(weights(other) == before);
  // The same version except for its last number.
  const std::string version = file.metadata.at("stretto.version");
  CHECK(with([&](nn::Metadata& texts) {
          texts["stretto.version"] = version.substr(0, version.rfind('.') + 1) + "77";
        }) == "(nothing thrown)");
  CHECK(weights(other) == weights(net));
}

TEST_CASE("weights that are not finite are loaded only on request") {
  const TempDir dir;
  const std::string path = dir.file("a");
  Net net({}), other({});
  nn::AdamW optimizer = adamw(net), others = adamw(other);
  train_step(net, optimizer);
  const std::vector<float> before = weights(other);
  const auto check_refused = [&](const std::string& name) {
    nn::save_checkpoint(path, net, &optimizer, {});
    const std::string message = error_of([&] { nn::load_checkpoint(path, other, &others); });
    CHECK(message == "[load] " + name + ": holds values that are not finite (" + path + ")");
    CHECK(weights(other) == before);
  };
  const auto set = [](const Tensor& x, float value) { x.detach()[1].fill_(value); };
  set(net.in.bias, NAN);
  check_refused("in.bias");
  CHECK_THAT(error_of([&] { nn::load_weights(path, other); }), Containing("in.bias: holds"));
  nn::load_weights(path, other, {}, {.allow_not_finite = true});
  CHECK(std::isnan(other.in.bias[1].item()));
  nn::load_checkpoint(path, other, &others, {.allow_not_finite = true});
  CHECK(std::isnan(other.in.bias[1].item()));
  set(net.in.bias, -INFINITY);
  CHECK_THAT(error_of([&] {
               nn::save_checkpoint(path, net, nullptr, {});
               nn::load_checkpoint(path, other, nullptr);
             }),
             Containing("in.bias: holds"));
  set(net.in.bias, 0);
  set(optimizer.state()[0].tensors[0].tensor, INFINITY);
  nn::save_checkpoint(path, net, &optimizer, {});
  CHECK_THAT(error_of([&] { nn::load_checkpoint(path, other, &others); }),
             Containing("optim.in.weight.m: holds values that are not finite"));

  // A value that becomes infinite only when it is converted.
  nn::Linear layer({.in = 1, .out = 1});
  nn::save_safetensors(path,
                       {{"weight", full({1, 1}, 1e300, {.dtype = f64})}, {"bias", zeros({1})}});
  CHECK_THAT(error_of([&] { nn::load_weights(path, layer); }), Containing("weight: holds"));
}

TEST_CASE("load_weights reads checkpoints and other files") {
  const TempDir dir;
  manual_seed(1);
  Net net({}), other({});
  nn::AdamW optimizer = adamw(net);
  train_step(net, optimizer);
  nn::save_checkpoint(dir.file("a"), net, &optimizer, {});
  other.to(bf16);
  const RandomState random = random_state();
  nn::load_weights(dir.file("a"), other);
  CHECK(random_state().next_stream == random.next_stream);
  CHECK(other.in.weight.dtype() == bf16);
  CHECK(other.in.weight.to_vector<float>() == net.in.weight.detach().to(bf16).to_vector<float>());
  CHECK(other.seen.item() == 16);

  nn::Linear layer({.in = 2, .out = 3});
  nn::save_safetensors(
      dir.file("b"),
      {{"fc.w", full({3, 2}, 2)}, {"b", ones({3}, {.dtype = f64})}, {"mask", ones({7})}});
  nn::load_weights(dir.file("b"), layer, {{"fc.w", "weight"}, {"b", "bias"}, {"mask", ""}});
  CHECK(layer.weight.to_vector<float>() == std::vector<float>(6, 2));
  CHECK(layer.bias.dtype() == f32);
  CHECK(layer.bias.requires_grad());
  CHECK(error_of([&] {
          nn::load_weights(dir.file("b"), layer, {{"fc.w", "weight"}, {"b", "bias"}});
        }) == "[load] mask: in the file, but not expected (" + dir.file("b") + ")");
  CHECK_THAT(error_of([&] {
               nn::load_weights(dir.file("b"), layer, {{"fc.w", "weight"}, {"b", "weight"}});
             }),
             Containing("weight (fc.w): in the file twice, with different values"));
  CHECK_THAT(
      error_of([&] {
        nn::load_weights(dir.file("b"), layer, {{"fc.w", "bias"}, {"b", "weight"}, {"mask", ""}});
      }),
      Containing(
          "[load] weight (b): file has f64 [3], the model f32 [3, 2]; bias (fc.w): file has"));
}

TEST_CASE("a checkpoint does not depend on the device of the model") {
  if (!cuda_available()) STRETTO_SKIP(cuda_description());
  const TempDir dir;
  manual_seed(1);
  Net net({}), other({});
  nn::AdamW optimizer = adamw(net), others = adamw(other);
  train_step(net, optimizer);
  nn::save_checkpoint(dir.file("cpu"), net, &optimizer, {.step = 1});
  other.to("cuda");
  const nn::TrainingState state = nn::load_checkpoint(dir.file("cpu"), other, &others);
  CHECK(other.in.weight.device().is_cuda());
  nn::save_checkpoint(dir.file("gpu"), other, &others, state);
  CHECK(read_file(dir.file("gpu")) == read_file(dir.file("cpu")));
}

TEST_CASE(
    "a checkpoint with a shared parameter under its second name loads, also into the optimizer") {
  const TempDir dir;
  const std::string path = dir.file("a.safetensors"), other = dir.file("b.safetensors");
  manual_seed(3);
  Net net({});
  nn::Adam optimizer(net.parameters(), {});
  train_step(net, optimizer);
  nn::save_checkpoint(path, net, &optimizer, {.step = 1});
  nn::Safetensors file = nn::load_safetensors(path);
  int renamed = 0;
  for (nn::NamedTensor& n : file.tensors)
    for (const std::string prefix : {"model.", "optim."})
      if (n.name.starts_with(prefix + "in.weight")) {
        n.name.replace(prefix.size(), std::string("in.weight").size(), "tied");
        ++renamed;
      }
  CHECK(renamed == 4);  // itself, steps, m and v
  nn::save_safetensors(other, file.tensors, file.metadata);
  Net again({});
  nn::Adam restored(again.parameters(), {});
  nn::load_checkpoint(other, again, &restored);
  CHECK(weights(again) == weights(net));
  train_step(again, restored);
  manual_seed(3);
  Net first({});
  nn::Adam from_first(first.parameters(), {});
  nn::load_checkpoint(path, first, &from_first);
  train_step(first, from_first);
  CHECK(weights(again) == weights(first));
}
