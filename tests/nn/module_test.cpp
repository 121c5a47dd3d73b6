#include "nn/module.h"

#include <algorithm>

#include "autograd/tape.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/files/safetensors.h"
#include "nn/files/weights.h"
#include "nn/linear.h"
#include "nn/optim/optim.h"
#include "nn/stack.h"
#include "nn/training/checkpoint.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace stretto;

namespace {

struct Block : nn::Module {
  struct Options {
    int64_t width = 4;
  };
  Block(Module& parent, std::string name, Options o)
      : Module(parent, std::move(name)), options(o) {}
  const Options options;
  nn::Linear linear{*this, "linear", {.in = options.width, .out = options.width, .bias = false}};
  nn::Dropout dropout{*this, "dropout", {.p = 0.5}};
  std::string label() const override { return "Block"; }
};

struct Model : nn::Module {
  struct Options {
    int64_t blocks = 2;
  };
  explicit Model(Options o) : options(o) {}
  const Options options;
  nn::Embedding embedding{*this, "embedding", {.count = 1000, .dim = 4}};
  nn::List<Block> layers{*this, "layers", options.blocks, Block::Options{}};
  Tensor scale = parameter("scale", ones({4}));
  Tensor tied = shared_parameter("tied", embedding.weight);
  Tensor running = buffer("running", zeros({4}));
  Tensor counts = buffer("counts", zeros({2}, {.dtype = i64}));
  std::string label() const override { return "Model"; }

  // For tests of names.
  void add_parameter(const std::string& name, const Tensor& value = ones({1})) {
    added.push_back(parameter(name, value));
  }
  Tensors added;
  void add_buffer(const std::string& name, const Tensor& value) { buffer(name, value); }
};

struct Plain : nn::Module {
  nn::Linear linear{*this, "linear", {.in = 2, .out = 2}};
};

std::vector<std::string> names(const std::vector<nn::NamedTensor>& named) {
  std::vector<std::string> result;
  for (const auto& n : named) result.push_back(n.name);
  return result;
}

}  // namespace

TEST_CASE("a module lists its parameters once, in the order of declaration") {
  Model model({});
  CHECK(names(model.named_parameters()) ==
        std::vector<std::string>{"embedding.weight", "layers.0.linear.weight",
                                 "layers.1.linear.weight", "scale"});
  CHECK(names(model.named_buffers()) == std::vector<std::string>{"running", "counts"});
  CHECK(model.parameter_count() == 4000 + 16 + 16 + 4);
  CHECK(model.parameters()[0].same(model.embedding.weight));
  for (const Tensor& p : model.parameters()) CHECK(p.requires_grad());
  CHECK_FALSE(model.running.requires_grad());
  CHECK(model.layers.size() == 2);
  CHECK(model.layers[1].linear.weight.same(model.parameters()[2]));
}

TEST_CASE("describe() prints a module's tree") {
  Model model({.blocks = 1});
  model.to(f64);
  CHECK(model.describe() ==
        "Model                              4,020\n"
        "  embedding: Embedding(1000 × 4)   4,000\n"
        "    weight [1000, 4] f64\n"
        "  layers: List                        16\n"
        "    0: Block                          16\n"
        "      linear: Linear(4 → 4, no bias)  16\n"
        "        weight [4, 4] f64\n"
        "      dropout: Dropout(0.5)\n"
        "  scale [4] f64\n"
        "  tied [1000, 4] f64 = embedding.weight\n"
        "  running [4] buffer f64\n"
        "  counts [2] buffer i64\n");
}

TEST_CASE("a module without a label shows the name of its class") {
  CHECK(Plain().label() == "Plain");
  CHECK(nn::Module().label() == "Module");
}

TEST_CASE("a module rejects duplicate, empty and dotted names") {
  Model model({});
  CHECK_THROWS_WITH(model.add_parameter("scale"),
                    Containing("[parameter] the name \"scale\" is taken"));
  CHECK_THROWS_WITH(model.add_parameter("layers"), Containing("\"layers\" is taken"));
  CHECK_THROWS_WITH(model.add_parameter("running"), Containing("\"running\" is taken"));
  CHECK_THROWS_WITH(model.add_parameter("a.b"), Containing("\"a.b\" cannot be a name"));
  CHECK_THROWS_WITH(model.add_parameter(""), Containing("cannot be a name"));
  CHECK_THROWS_WITH(model.add_parameter("x", ones({2}).set_requires_grad() * 0.02),
                    "[parameter] \"x\" must be a leaf, but is the result of a recorded op; "
                    "detach() it first");
  CHECK_THROWS_WITH(model.add_parameter("x", ones({2}, {.dtype = i64})),
                    "[parameter] \"x\" must be a floating-point tensor; got i64 [2]");
  CHECK_THROWS_WITH(model.add_parameter("x", {}),
                    Containing("[parameter] \"x\" must be a floating-point tensor"));
  CHECK_THROWS_WITH(nn::Linear(model, "scale", {.in = 1, .out = 1}), Containing("is taken"));
  CHECK_THROWS_WITH(nn::Linear(model, "embedding", {.in = 1, .out = 1}), Containing("is taken"));
  CHECK_THROWS_WITH(model.add_buffer("b", {}), Containing("requires no gradient"));
  CHECK_THROWS_WITH(model.add_buffer("b", model.scale), Containing("requires no gradient"));
  CHECK(model.children().size() == 2);
}

TEST_CASE("apply() visits the whole tree, children before parents") {
  nn::Encoder model(
      {.n_layers = 2,
       .layer = {.d_model = 8, .attention = {.n_heads = 2}, .feed_forward = {.d_hidden = 16}}});
  std::vector<const nn::Module*> seen;
  int64_t linears = 0;
  const NoGrad guard;
  model.apply([&](nn::Module& m) {
    for (const auto& [name, child] : m.children())
      CHECK(std::count(seen.begin(), seen.end(), child) == 1);
    seen.push_back(&m);
    if (auto* linear = dynamic_cast<nn::Linear*>(&m)) linear->weight.fill_(double(++linears));
  });
  CHECK(seen.back() == &model);
  CHECK(linears == 2 * 6);
  CHECK(model.get_parameter("layers.1.feed_forward.linear2.weight").slice(0, 0, 1).mean().item() ==
        12);
}

TEST_CASE("children unregister when they are destroyed, and may outlive their parent") {
  Model model({});
  {
    nn::Linear extra(model, "extra", {.in = 2, .out = 3});
    CHECK(model.parameter_count() == 4036 + 9);
  }
  CHECK(model.parameter_count() == 4036);
  // A constructor that throws after it registered leaves nothing behind.
  CHECK_THROWS_WITH(nn::Linear(model, "bad", {.in = 0, .out = 3}), Containing("must be positive"));
  CHECK(model.children().size() == 2);

  auto parent = std::make_unique<Plain>();
  auto child =
      std::make_unique<nn::Linear>(*parent, "late", nn::Linear::Options{.in = 2, .out = 3});
  parent.reset();
  CHECK(child->parameter_count() == 9);
}

TEST_CASE("training mode reaches all children, and new children take it from their parent") {
  Model model({});
  CHECK(model.layers[0].dropout.training());
  model.eval();
  CHECK_FALSE(model.training());
  CHECK_FALSE(model.layers[1].dropout.training());
  nn::Dropout late(model, "late", {.p = 0.1});
  CHECK_FALSE(late.training());
  model.train();
  CHECK(late.training());
}

TEST_CASE("zero_grad drops gradients") {
  Plain m;
  sum(m.linear(ones({1, 2}))).backward();
  CHECK(m.linear.weight.grad().defined());
  m.zero_grad();
  CHECK_FALSE(m.linear.weight.grad().defined());
  CHECK_FALSE(m.linear.bias.grad().defined());
}

TEST_CASE("Module::to converts tensors behind their handles, and shared ones stay shared") {
  Model model({});
  const Tensor handle = model.layers[0].linear.weight;
  const std::vector<double> before = handle.to_vector<double>();
  sum(square(handle)).backward();
  REQUIRE(handle.grad().defined());
  model.to(f64);
  CHECK(handle.dtype() == f64);
  CHECK(handle.to_vector<double>() == before);
  CHECK(handle.requires_grad());
  CHECK_FALSE(handle.grad().defined());
  CHECK(model.running.dtype() == f64);
  CHECK(model.counts.dtype() == i64);
  CHECK(model.tied.same(model.embedding.weight));
  CHECK(model.embedding.weight.dtype() == f64);
  // The tape uses the new dtype.
  sum(square(handle)).backward();
  CHECK(handle.grad().dtype() == f64);
  model.to(f32);
  CHECK(handle.to_vector<double>() == before);
  CHECK_THROWS_WITH(model.to(i64), Containing("[Module::to] got i64"));
  CHECK_NOTHROW(model.to(cpu));
}

TEST_CASE("a backward pass detects that set_data() replaced a saved tensor") {
  Tensor x = ones({3}).set_requires_grad();
  const Tensor y = sum(mul(x, x));
  x.set_data(zeros({3}));
  CHECK_THROWS_WITH(y.backward(), Containing("changed in place"));
  CHECK(x.to_vector<float>() == std::vector<float>(3, 0));
  CHECK_THROWS_WITH(x.set_data(zeros({3}, {.dtype = i64})), Containing("requires a gradient"));
  const Tensor result = mul(x, 2.0);
  CHECK_THROWS_WITH(result.set_data(ones({3})), Containing("[set_data]"));
  CHECK_THROWS_AS(x.set_data({}), Error);
  x.set_data(ones({2, 2}));
  CHECK(x.shape() == Shape{2, 2});
  sum(x).backward();
  CHECK(x.grad().shape() == Shape{2, 2});
}

TEST_CASE("clone copies values, dtypes, modes and freezing, and takes no random numbers") {
  manual_seed(5);
  Model model({.blocks = 3});
  model.to(bf16);
  model.layers[1].eval();
  model.scale.set_requires_grad(false);
  model.scale.fill_(7);
  const RandomState before = random_state();
  const auto copy = nn::clone(model);
  CHECK(random_state().next_stream == before.next_stream);
  CHECK(random_state().seed == before.seed);
  CHECK(copy->options.blocks == 3);
  CHECK(names(copy->named_parameters()) == names(model.named_parameters()));
  for (size_t i = 0; i < model.parameters().size(); ++i) {
    const Tensor a = model.parameters()[i], b = copy->parameters()[i];
    CHECK(a.dtype() == b.dtype());
    CHECK(a.requires_grad() == b.requires_grad());
    CHECK(a.to_vector<float>() == b.to_vector<float>());
    CHECK(a.raw_data() != b.raw_data());
  }
  CHECK(copy->tied.same(copy->embedding.weight));
  CHECK(copy->training());
  CHECK_FALSE(copy->layers[1].dropout.training());
  CHECK(copy->layers[0].dropout.training());
  // Without options a module is constructed by default.
  const Plain plain;
  CHECK(nn::clone(plain)->linear.weight.to_vector<float>() ==
        plain.linear.weight.to_vector<float>());
}

namespace {

// A custom module with a setting of its own, below another one.
struct Knob : nn::Module {
  using Module::Module;
  int64_t turns = 1;

 protected:
  void copy_settings(const Module& from) override { turns = static_cast<const Knob&>(from).turns; }
};
struct Panel : nn::Module {
  Knob left{*this, "left"}, right{*this, "right"};
};

}  // namespace

TEST_CASE("clone copies settings made after construction") {
  Panel panel;
  panel.right.turns = 5;
  const auto copy = nn::clone(panel);
  CHECK(copy->left.turns == 1);
  CHECK(copy->right.turns == 5);
  Panel other;
  nn::copy_state(panel, other);  // only the values
  CHECK(other.right.turns == 1);
  nn::clone_state(panel, other);
  CHECK(other.right.turns == 5);
}

TEST_CASE("copy_state copies by name and reports mismatches") {
  Model a({}), b({}), c({.blocks = 3});
  b.to(f64);
  nn::copy_state(a, b);
  CHECK(b.scale.dtype() == f64);
  CHECK(a.embedding.weight.to_vector<double>() == b.embedding.weight.to_vector<double>());
  const std::vector<float> before = c.embedding.weight.to_vector<float>();
  CHECK_THROWS_WITH(nn::copy_state(a, c), Containing("the source has no layers.2.linear.weight"));
  CHECK_THROWS_WITH(nn::copy_state(c, a),
                    Containing("the destination has no layers.2.linear.weight"));
  CHECK(c.embedding.weight.to_vector<float>() == before);
  const nn::Linear wide({.in = 3, .out = 2});
  nn::Linear narrow({.in = 2, .out = 2});
  CHECK_THROWS_WITH(nn::copy_state(wide, narrow),
                    Containing("[copy_state] weight: source f32 [2, 3], destination f32 [2, 2]"));
}

TEST_CASE("a module moves to a GPU and back in place") {
  if (!cuda_available()) STRETTO_SKIP(cuda_description());
  Model model({});
  const Tensor handle = model.layers[0].linear.weight;
  const std::vector<float> before = handle.to_vector<float>();
  model.to("cuda");
  CHECK(handle.device().is_cuda());
  CHECK(model.counts.device().is_cuda());
  CHECK(model.tied.same(model.embedding.weight));
  sum(square(handle)).backward();
  CHECK(handle.grad().device().is_cuda());
  const auto copy = nn::clone(model);
  CHECK(copy->layers[0].linear.weight.device().is_cuda());
  model.to(cpu);
  CHECK(handle.device().is_cpu());
  CHECK(handle.to_vector<float>() == before);
  CHECK(copy->layers[0].linear.weight.to_vector<float>() == before);
}

TEST_CASE("a List can be iterated, const or not") {
  Model model({.blocks = 3});
  int64_t count = 0;
  for (Block& block : model.layers) count += block.options.width;
  const Model& fixed = model;
  for (const Block& block : fixed.layers) {
    CHECK(&block == &fixed.layers[count / 4 - 3]);
    count += block.options.width;
  }
  CHECK(count == 24);
}

TEST_CASE("a parameter can be found by its name") {
  Model model({});
  CHECK(model.get_parameter("layers.1.linear.weight").same(model.layers[1].linear.weight));
  CHECK(model.get_parameter("tied").same(model.embedding.weight));
  CHECK_THROWS_WITH(model.get_parameter("blocks.1.linear.weight"),
                    "[get_parameter] no parameter \"blocks.1.linear.weight\"; a similar one is "
                    "\"layers.1.linear.weight\"");
  for (const auto& [typed, similar] : std::initializer_list<std::pair<const char*, const char*>>{
           {"layers.0.linear.weigth", "layers.0.linear.weight"},
           {"layers.0.linear.weights", "layers.0.linear.weight"},
           {"layers.1.linear.wight", "layers.1.linear.weight"}})
    CHECK_THROWS_WITH(model.get_parameter(typed),
                      Containing(std::string("; a similar one is \"") + similar + "\""));
  CHECK_THROWS_WITH(model.get_parameter("running"), Containing("no parameter \"running\""));
  CHECK_THROWS_WITH(nn::Module().get_parameter("x"),
                    "[get_parameter] no parameter \"x\"; the module has none");
}

TEST_CASE("a frozen module has no gradients, and optimizers do not change it") {
  manual_seed(1);
  Model model({});
  nn::AdamW optimizer(model.parameters(), {.lr = 0.1, .weight_decay = 0.5});
  const Tensor ids = tensor<int64_t>({3, 5});
  const auto step = [&] {
    Tensor x = model.embedding(ids) * model.scale;
    for (const Block& block : model.layers) x = block.linear(x);
    optimizer.zero_grad();
    sum(x * x).backward();
    optimizer.step();
  };
  step();
  model.layers.freeze();
  CHECK_FALSE(model.layers[0].linear.weight.requires_grad());
  CHECK_FALSE(model.layers[0].linear.weight.grad().defined());
  CHECK(model.scale.requires_grad());
  const Tensor before = model.layers[0].linear.weight.detach().clone();
  const Tensor table = model.embedding.weight.detach().clone();
  step();
  CHECK(equal(model.layers[0].linear.weight.detach(), before));
  CHECK_FALSE(equal(model.embedding.weight.detach(), table));
  model.layers.unfreeze();
  step();
  CHECK_FALSE(equal(model.layers[0].linear.weight.detach(), before));
}

TEST_CASE("Module::to returns the module, and device() its device") {
  Plain plain;
  CHECK(&plain.to(f64) == &plain);
  CHECK(plain.to(cpu).to(f32).device() == cpu);
  CHECK(plain.linear.weight.dtype() == f32);
  CHECK(nn::Module().device() == cpu);
}

namespace {

struct Buffers : nn::Module {
  Tensor weight = parameter("weight", full({2}, 1.001));
  Tensor converted = buffer("converted", full({2}, 1.001));
  Tensor exact = buffer("exact", full({2}, 1.001), {.dtype = nn::BufferDtype::at_least_f32});
  Tensor unchanged = buffer("unchanged", full({2}, 1.001, {.dtype = f64}),
                            {.dtype = nn::BufferDtype::unchanged, .persistent = false});
  Tensor host = host_buffer("host", full({2}, 1.001, {.device = cpu}));
  Tensor again = shared_parameter("again", weight);
};

}  // namespace

TEST_CASE("buffers that stay f32 in a bf16 module") {
  Buffers m;
  const std::vector<float> before = m.exact.to_vector<float>();
  m.to(bf16);
  CHECK(m.weight.dtype() == bf16);
  CHECK(m.converted.dtype() == bf16);
  CHECK(m.exact.dtype() == f32);
  CHECK(m.unchanged.dtype() == f64);
  CHECK(m.host.dtype() == f32);
  m.to(f64);
  CHECK(m.exact.dtype() == f64);
  CHECK(m.host.dtype() == f32);
  m.to(f32);
  CHECK(m.exact.to_vector<float>() == before);
  CHECK(m.host.to_vector<float>() == before);
  CHECK(m.converted.to_vector<float>() != before);
  CHECK(names(m.named_tensors()) ==
        std::vector<std::string>{"weight", "converted", "exact", "unchanged", "host", "again"});
}

TEST_CASE("buffers that are not saved") {
  Buffers m;
  CHECK(names(m.named_buffers()) ==
        std::vector<std::string>{"converted", "exact", "unchanged", "host"});
  CHECK(names(m.persistent_buffers()) == std::vector<std::string>{"converted", "exact", "host"});
  CHECK_THAT(m.describe(), Containing("unchanged [2] buffer, not saved f64"));
  m.unchanged.fill_(3);
  Buffers copy;
  nn::clone_state(m, copy);
  CHECK(copy.unchanged.to_vector<double>() == std::vector<double>{3, 3});

  // Files neither contain nor replace them.
  const testing::TempDir folder;
  const std::string weights = folder.file("weights.safetensors");
  const std::string checkpoint = folder.file("checkpoint.safetensors");
  nn::SGD optimizer(m.parameters(), {});
  nn::save_weights(weights, m);
  nn::save_checkpoint(checkpoint, m, &optimizer, {});
  for (const std::string& path : {weights, checkpoint})
    for (const nn::NamedTensor& n : nn::load_safetensors(path).tensors)
      CHECK(n.name.find("unchanged") == std::string::npos);
  m.unchanged.fill_(4);
  m.exact.fill_(5);
  nn::load_weights(weights, m);
  CHECK(m.unchanged.to_vector<double>() == std::vector<double>{4, 4});
  CHECK(m.exact.to_vector<double>() == copy.exact.to_vector<double>());
  m.exact.fill_(5);
  nn::load_checkpoint(checkpoint, m, &optimizer);
  CHECK(m.unchanged.to_vector<double>() == std::vector<double>{4, 4});
  CHECK(m.exact.to_vector<double>() == copy.exact.to_vector<double>());
}

TEST_CASE("a member that is assigned is reported before the old tensor is trained") {
  struct Gain : nn::Module {
    using Module::Module;
    nn::Linear linear{*this, "linear", {.in = 4, .out = 4}};
    Tensor scale = parameter("scale", ones({4}));
  };
  struct Net : nn::Module {
    Gain gain{*this, "gain"};
  };
  const char* const words =
      "[parameters] the member of gain.scale of a Gain refers to another tensor, which would not "
      "be "
      "trained; declare it `const Tensor`, and change values by copy_() under NoGrad";
  Net early;
  CHECK(early.parameters().size() == 3);
  early.gain.scale = ones({4});
  CHECK_THROWS_WITH(early.parameters(), words);
  Net late;
  const nn::SGD optimizer(late.parameters(), {});
  CHECK(late.parameters().size() == 3);
  late.gain.scale = ones({4});
  CHECK_THROWS_WITH(late.zero_grad(), words);
  late.gain.scale = late.gain.linear.bias;
  CHECK_THROWS_WITH(late.named_parameters(), words);
}
