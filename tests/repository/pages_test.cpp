// The code on the pages of docs/: every block marked cpp is an example of one file, or stands below,
// or in one of the other files *_pages_test.cpp, and runs. Blocks are compared line by line,
// without the indentation.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "stretto.h"
#include "tests/support/catch.h"
#include "tests/support/find_upwards.h"
#include "tests/support/in_temp_dir.h"
#include "tests/support/sources.h"

namespace fs = std::filesystem;
using namespace stretto;  // NOLINT

using testing::InTempDir;

namespace {

const fs::path root = testing::find_upwards("stretto.h").parent_path();

// The lines of a text without blanks at their ends, each with a line break.
std::string without_indentation(const std::string& text) {
  std::istringstream lines(text);
  std::string all;
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find_first_not_of(' ');
    if (begin != std::string::npos)
      all += line.substr(begin, line.find_last_not_of(' ') + 1 - begin);
    all += '\n';
  }
  return all;
}

// The blocks of a page between ```cpp and ```.
std::vector<std::string> programs_of(const std::string& page) {
  const std::string mark = "```cpp\n";
  std::vector<std::string> blocks;
  for (size_t at = page.find(mark); at != std::string::npos; at = page.find(mark, at)) {
    at += mark.size();
    blocks.push_back(page.substr(at, page.find("```", at) - at));
  }
  return blocks;
}

nn::LanguageModel::Options small_model() {
  return {.vocabulary = 12,
          .n_layers = 2,
          .layer = {.d_model = 16,
                    .attention = {.n_heads = 2, .position = nn::rotary()},
                    .feed_forward = {.d_hidden = 32}}};
}

// What fragments take for granted.
struct Setting {
  nn::LanguageModel model{(manual_seed(1), small_model())};
  const Tensor inputs = randint(0, 12, {4, 8}), targets = randint(0, 12, {4, 8});
  const nn::Batch batch{inputs, targets};
};

}  // namespace

TEST_CASE("Code on pages is in an example of one file, in these tests, or quoted from the library",
          "[repository][docs]") {
  std::string code = "\n";
  for (const auto& entry : fs::directory_iterator(root / "tests/repository"))
    if (const std::string test = entry.path().filename().string(); test.ends_with("pages_test.cpp"))
      code += without_indentation(testing::text_of("tests/repository/" + test));
  for (const auto& entry : fs::directory_iterator(root / "examples"))
    if (entry.path().extension() == ".cpp")
      code += without_indentation(testing::text_of("examples/" + entry.path().filename().string()));
  for (const char* quoted : {"llama_models.cpp", "files/published_names.cpp"})
    code += without_indentation(testing::text_of(std::string("pretrained/") + quoted));
  std::vector<std::string> pages{"README.md"};
  for (const auto& entry : fs::directory_iterator(root / "docs"))
    if (entry.path().extension() == ".md")
      pages.push_back("docs/" + entry.path().filename().string());
  int found = 0;
  for (const std::string& page : pages)
    for (const std::string& block : programs_of(testing::text_of(page))) {
      INFO(page << ":\n" << block);
      CHECK(code.find("\n" + without_indentation(block)) != std::string::npos);
      ++found;
    }
  CHECK(found > 20);
}

TEST_CASE("Blocks of code are found in a page", "[repository][docs]") {
  CHECK(programs_of("a\n```cpp\nint x;\n  int y;\n```\n```sh\nls\n```\n```cpp\n```\n") ==
        std::vector<std::string>{"int x;\n  int y;\n", ""});
  CHECK(without_indentation("  a b \n\n    c\n") == "a b\n\nc\n");
}

// ------------------------------------------------------------------ concepts.md, from-pytorch.md

TEST_CASE("concepts.md: the mask of two queries to six keys", "[repository][docs]") {
  const Tensor mask = attention_mask(2, 6, {.causal = true});  // bool [M, N]
  std::printf("%s\n", to_string(mask.to(i64)).c_str());
  const std::string shown = "```\n" + to_string(mask.to(i64)) + "\n```\n";
  INFO(shown);
  CHECK(testing::text_of("docs/concepts.md").find(shown) != std::string::npos);
}

TEST_CASE("from-pytorch.md: a padding mask", "[repository][docs]") {
  const Tensor q = randn({2, 2, 3, 4}), k = randn({2, 2, 3, 4}), v = randn({2, 2, 3, 4});
  const Tensor padding = tensor<bool>({false, false, true, false, true, true}, {2, 3});
  // PyTorch: F.scaled_dot_product_attention(q, k, v, attn_mask=~padding[:, None, None, :])
  const Tensor y = attention(q, k, v, {.mask = {.key_padding = padding}});
  // One key is left in the second sequence.
  CHECK(allclose(y[1], v[1].slice(1, 0, 1).expand({2, 3, 4})));
}

TEST_CASE("from-pytorch.md: indexing, shapes and functions of tensors", "[repository][docs]") {
  const Tensor x = rand({2, 4, 6}), y = rand({2, 4, 6}), m = x[0];
  const Tensor idx = tensor<int64_t>({1, 0}), mask = gt(x, 0.5), ids = tensor<int64_t>({3, 0, 8});
  CHECK(x.index({idx}).shape() == Shape{2, 4, 6});
  CHECK(equal(x.index({mask}), masked_select(x, mask)));
  CHECK(x.index({0, Slice(), idx}).shape() == Shape{4, 2});
  CHECK(x.index({"...", Slice(1, 3)}).shape() == Shape{2, 4, 2});
  const Tensor z = x.clone();
  z.index_put_({idx}, y);
  CHECK(equal(z, stack({y[1], y[0]})));
  z.index_put_({mask}, 0);
  z.index_put_({idx}, y, true);
  CHECK(equal(masked_select(z, mask), masked_select(stack({y[1], y[0]}), mask)));
  const Tensor at = zeros({4, 1}, {.dtype = i64});
  CHECK(equal(scatter(m, 1, at, gather(m, 1, at)), m));
  CHECK(allclose(index_add(x, 0, idx, y), index_select(index_select(x, 0, idx) + y, 0, idx)));
  CHECK(equal(nonzero(one_hot(ids, 9)).select(1, 1), ids));
  CHECK(bincount(ids).numel() == 9);
  CHECK(movedim(x, 0, -1).shape() == Shape{4, 6, 2});
  CHECK(unflatten(x, 1, {2, -1}).shape() == Shape{2, 2, 2, 6});
  CHECK(diagonal(m, 1).shape() == Shape{4});
  CHECK(unfold(m, 0, 3, 1).shape() == Shape{2, 6, 3});
  CHECK(meshgrid({ids, idx})[0].shape() == Shape{3, 2});
  CHECK(chunk(x, 3, -1)[2].shape() == Shape{2, 4, 2});
  CHECK(split(x, 4).size() == 1);
  CHECK(equal(unbind(x, 0)[1], x[1]));
  CHECK(equal(roll(roll(m, {2, -1}, {0, 1}), {-2, 1}, {0, 1}), m));
  CHECK(repeat(m, {2, 1}).shape() == Shape{8, 6});
  CHECK(repeat_interleave(m, 3, 0).shape() == Shape{12, 6});
  CHECK(equal(floor(x), trunc(x)));
  CHECK(equal(round(tensor<float>({0.5f, 1.5f})), tensor<float>({0, 2})));
  CHECK(allclose(log1p(expm1(x)), x));
  CHECK(allclose(pow(x, 2 * ones_like(x)), x * x));
  CHECK(equal(remainder(tensor<float>({-1}), 3), tensor<float>({2})));
  CHECK(equal(floor_divide(tensor<int64_t>({-1}), 3), tensor<int64_t>({-1})));
  CHECK_FALSE(any(isnan(x)));
  CHECK(all(mask, {1}).shape() == Shape{2, 6});
  CHECK(allclose(einsum("bij,bkj->bik", {x, y}), matmul(x, y.transpose(1, 2))));
  CHECK(equal(argmin(x, 1), argmax(-x, 1)));
  CHECK(allclose(prod(x).log(), sum(log(x))));
  CHECK(allclose(square(stretto::std(x)), var(x)));
  CHECK(allclose(norm(x, 1, {1}), x.abs().sum({1})));
  CHECK(allclose(cumprod(x, 1).log(), cumsum(log(x), 1), 1e-4, 1e-5));
  CHECK(allclose(logcumsumexp(x, 1).select(1, -1), logsumexp(x, 1)));
  CHECK(multinomial(bernoulli(ones({5})), 4).shape() == Shape{4});
  CHECK(allclose(x.clone().sub_(y).div_(2).clamp_(0, 1).masked_fill_(mask, 0),
                 masked_fill(clamp((x - y) / 2, 0, 1), mask, 0)));
  CHECK(equal(from_dlpack(to_dlpack(x)), x));
}

// ----------------------------------------------------------------------------------- training.md

TEST_CASE("training.md: accuracy", "[repository][docs]") {
  Setting s;
  auto& [model, inputs, targets, batch] = s;
  const nn::EvalMode guard(model);
  const Tensor right = eq(argmax(model(batch.inputs), -1), batch.targets);  // bool [B, L]
  const Tensor scored = ne(batch.targets, nn::ignore_index);
  const double accuracy = sum(right).item() / sum(scored).item();
  CHECK((accuracy >= 0 && accuracy <= 1));
}

TEST_CASE("training.md: the loss of a held-out stream", "[repository][docs]") {
  Setting s;
  nn::LanguageModel& model = s.model;
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < 1000; ++i) tokens.push_back(i * i % 12);
  const nn::TokenStream held_out(tokens);
  const double loss = nn::mean_loss(model, [&](const auto& score) {
    nn::for_each_evaluation_window(held_out, {.length = 64}, 16,
                                   [&](const nn::Batch& batch, bool) { score(batch); });
  });
  CHECK((loss > 0 && loss < 10));
}

TEST_CASE("training.md: a loss of your own", "[repository][docs]") {
  Setting s;
  nn::LanguageModel& model = s.model;
  nn::AdamW optimizer(model.parameters(), {});
  nn::Trainer trainer(model, optimizer, {.steps = 2, .quiet = true});
  const auto make_batch = [&](int64_t) { return s.batch; };
  const std::vector<nn::Batch> held_out{s.batch};
  const auto loss_of = [&](const nn::Batch& batch) {  // the mean over the scored targets
    return cross_entropy(model(batch.inputs), batch.targets, {.label_smoothing = 0.1});
  };
  trainer.run([&](int64_t step) { return loss_of(trainer.stage_batch(step, make_batch)); },
              [&] { return nn::mean_loss(model, held_out, loss_of); });
  CHECK(trainer.evaluation()->validation == Approx(loss_of(s.batch).item()).epsilon(1e-6));
}

TEST_CASE("training.md: an average of weights", "[repository][docs]") {
  Setting s;
  nn::LanguageModel& model = s.model;
  nn::AdamW optimizer(model.parameters(), {});
  const int64_t steps = 3;
  const auto loss = [&](int64_t) { return cross_entropy(model(s.inputs), s.targets); };
  const std::vector<nn::Batch> held_out{s.batch};
  nn::WeightAverage average(model, {.decay = 0.999});
  nn::Trainer trainer(model, optimizer, {.steps = steps, .average = &average});
  trainer.run(loss, [&] {
    const nn::WeightAverage::Use averaged(average);  // the model has the averages in this scope
    return nn::mean_loss(model, held_out);
  });
  CHECK(average.updates() == steps);
  CHECK(trainer.evaluation()->validation != nn::mean_loss(model, held_out));
}

TEST_CASE("training.md: Muon", "[repository][docs]") {
  Setting s;
  nn::LanguageModel& model = s.model;
  nn::Muon optimizer(
      nn::parameter_groups(model, {{"layers.*.weight", {}}, {"*", {.use_muon = false}}}),
      {.lr = 1e-3, .weight_decay = 0.1});
  CHECK(optimizer.parameters().size() == model.parameters().size());
  CHECK(optimizer.groups().size() == 2);
}

TEST_CASE("training.md: warmup, stable, decay", "[repository][docs]") {
  const nn::Schedule schedule =
      nn::WarmupStableDecay{.peak = 1e-3, .warmup = 100, .steps = 5000, .decay = 0.2};
  CHECK(schedule.at(4000) == 1e-3);
  CHECK(schedule.at(4500) == Approx(5e-4).epsilon(1e-12));
}

TEST_CASE("training.md: buffers", "[repository][docs]") {
  struct Windows : nn::Module {
    Tensor index = buffer("index", arange(8), {.persistent = false});  // not in files
    Tensor counts = buffer("counts", zeros({8}, {.dtype = f64}),
                           {.dtype = nn::BufferDtype::unchanged});  // f64 in a bf16 module
  };
  Windows windows;
  windows.to(bf16);
  CHECK(windows.counts.dtype() == f64);
  CHECK(windows.persistent_buffers().size() == 1);
}

TEST_CASE("training.md: parameter groups and freezing", "[repository][docs]") {
  Setting s;
  nn::LanguageModel& model = s.model;
  nn::AdamW optimizer(
      nn::no_decay_for_norms_and_biases(nn::parameter_groups(
          model, {{"embedding.*", {.lr_scale = 0.1}}, {"layers.{}.norm*", {.lr_scale = 2}}})),
      {.lr = 3e-4, .weight_decay = 0.1});
  CHECK(optimizer.parameters().size() == model.parameters().size());

  model.embedding.freeze();
  model.layers[0].freeze();
  cross_entropy(model(s.inputs), s.targets).backward();
  CHECK(!model.get_parameter("layers.0.norm1.weight").grad().defined());
  CHECK(model.get_parameter("layers.1.norm1.weight").grad().defined());
}

TEST_CASE("training.md: fine-tuning, stopped and resumed", "[repository][docs]") {
  const InTempDir here;
  const nn::LanguageModel::Options options{
      .vocabulary = 12,
      .n_layers = 2,
      .layer = {.d_model = 16, .attention = {.n_heads = 2}, .feed_forward = {.d_hidden = 32}},
      .input = {.scale = false, .learned_length = 8},
      .tied = true};
  const Setting s;
  const nn::LanguageModel publisher(options);
  const nn::NameMap names{{"table", "embedding.weight"}};
  nn::save_weights("published.safetensors", publisher, names);

  // Returns the table of the embedding and a weight of the frozen layer.
  const auto fine_tune = [&](int64_t steps) {
    nn::LanguageModel model(options);
    const auto loss = [&](int64_t) { return cross_entropy(model(s.inputs), s.targets); };
    const auto validate = [&] { return nn::mean_loss(model, std::vector<nn::Batch>{s.batch}); };
    nn::load_weights("published.safetensors", model, names);
    model.layers[0].freeze();
    nn::AdamW optimizer(nn::parameter_groups(model, {{"embedding.*", {.lr_scale = 0.1}}}),
                        {.lr = 1e-4});
    nn::Trainer trainer(model, optimizer, {.steps = steps, .folder = "out/fine_tuned"});
    trainer.resume();  // if the run was stopped: its checkpoint replaces the loaded weights
    trainer.run(loss, validate);
    return Tensors{model.get_parameter("embedding.weight").detach().clone(),
                   model.get_parameter("layers.0.norm1.weight").detach().clone()};
  };
  const Tensors after_two = fine_tune(2), resumed = fine_tune(2), after_four = fine_tune(4);
  CHECK(equal(after_two[0], resumed[0]));
  CHECK_FALSE(equal(after_two[0], after_four[0]));
  CHECK(equal(after_four[1], publisher.get_parameter("layers.0.norm1.weight")));
}

TEST_CASE("training.md: a schedule of your own", "[repository][docs]") {
  const nn::Schedule schedule = [](int64_t step, double progress) {
    const double warmup = std::min(1.0, double(step) / 100);
    return 1e-3 * warmup * (progress < 0.8 ? 1.0 : 5 * (1 - progress));  // constant, then linear
  };
  CHECK(schedule.at(50, 0.1) == 5e-4);
  CHECK(std::abs(schedule.at(1000, 0.9) - 5e-4) < 1e-12);
}

TEST_CASE("training.md: mixed precision", "[repository][docs]") {
  Setting s;
  nn::LanguageModel& model = s.model;
  model.to(bf16);
  nn::AdamW optimizer(model.parameters(), {.lr = 3e-4});
  cross_entropy(model(s.inputs), s.targets).backward();
  optimizer.step();
  CHECK(optimizer.state_names(0) == std::vector<std::string>{"m", "v", "master"});
}

// ----------------------------------------------------------- positions.md, add-a-position.md

TEST_CASE("positions.md: options", "[repository][docs]") {
  const std::vector<nn::MakePositionalEncoding> positions{
      nn::music_relative({.max_length = 512, .bidirectional = true}),
      nn::music_relative({.max_length = 256, .block = 128}),  // music-local: two blocks
      nn::shaw_relative({.max_distance = 16, .values = true, .shared_by_heads = false}),
      nn::inkling_relative({.dim = 16, .extent = 1024, .bidirectional = true}),
      nn::relative_sinusoid({.clamp = 0}),  // clamp 0: no limit
      nn::bert_relative({.max_length = 512, .keys_too = true}),
      nn::disentangled({.max_distance = 512, .buckets = 256}),  // DeBERTa v2 and v3
      nn::t5_bias({.buckets = 32, .max_distance = 128, .shared = true}),
      nn::alibi(),
      nn::kerple({.kind = nn::KerpleKind::power}),
      nn::fire({.hidden = 32, .threshold = 512}),
      nn::rotary({.dims = 0, .base = 10000, .scale = 1}),  // dims 0: all
      nn::swin_bias({.height = 8, .width = 8}),
      nn::grid_relative({.height = 8, .width = 8}),
      nn::rotary_2d({.height = 8, .width = 8, .class_tokens = 1}),
      nn::sine_spe({.realizations = 64, .sines = 10, .gated = true}),
      nn::conv_spe({.realizations = 64, .taps = {128}, .gated = true}),
  };
  for (const nn::MakePositionalEncoding& position : positions) {
    nn::MultiHeadAttention attention({.d_model = 16, .n_heads = 2, .position = position});
    const bool with_class = attention.describe().find("class_tokens") != std::string::npos;
    const Tensor x = randn({1, with_class ? 65 : 64, 16});
    CHECK(attention(x, {.causal = !position.traits.bidirectional}).shape() == x.shape());
  }
}

TEST_CASE("relative-attention-2026.md", "[repository][docs]") {
  const nn::MultiHeadAttention layer(
      {.d_model = 1024,
       .n_heads = 8,
       .n_kv_heads = 2,
       .bias = false,
       .qk_norm = nn::NormOptions{.kind = nn::NormKind::rms},
       .taps = 4,
       .scale = 1.0 / 128,
       .position = nn::inkling_relative({.dim = 16, .extent = 1024, .log_floor = 131072})});
  CHECK(layer(randn({1, 3, 1024}), {.causal = true}).shape() == Shape{1, 3, 1024});
}

TEST_CASE("add-a-position.md: checks", "[repository][docs]") {
  nn::MultiHeadAttention attention({.d_model = 16, .n_heads = 2, .position = nn::kerple()});
  attention.to(f64);
  const Tensor x = randn({1, 10, 16}, {.dtype = f64});
  nn::gradcheck(attention, [&] { return sum(square(attention(x, {.causal = true}))); });

  const NoGrad guard;  // one token at a time with a cache gives the full pass
  const Tensor full = attention(x, {.causal = true});
  nn::KeyValueCache cache = attention.make_cache();
  double largest = 0;
  for (int64_t t = 0; t < 10; ++t) {
    const Tensor y = attention(x.slice(1, t, t + 1), {.causal = true}, &cache);
    largest = std::max(largest, max(abs(y - full.slice(1, t, t + 1))).item());
  }
  std::printf("largest difference %g\n", largest);  // at most rounding
  CHECK(cache.length() == 10);
  CHECK(largest < 1e-12);
}

// ---------------------------------------------------------------------------------- processes.md

TEST_CASE("processes.md: the end of main", "[repository][docs]") {
  Setting s;
  nn::LanguageModel& model = s.model;
  nn::SGD optimizer(model.parameters(), {});
  const std::string text = "data";
  Digest digest;
  digest.add(text.data(), int64_t(text.size()));
  const auto status_of = [&](double scale) {
    nn::Trainer trainer(model, optimizer,
                        {.steps = 1, .metadata = {{"data", digest.text()}}, .quiet = true});
    const auto loss = [&](int64_t) { return scale * cross_entropy(model(s.inputs), s.targets); };
    const std::function<double()> validate;
    try {
      const bool finished = trainer.run(loss, validate);
      nn::process_group().finish();
      return finished ? 0 : nn::stop_exit_code();
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      return 1;  // without finish()
    }
  };
  CHECK(status_of(1) == 0);
  CHECK(status_of(INFINITY) == 1);
}

// -------------------------------------------------------------------------------- performance.md

TEST_CASE("performance.md: layers under recompute()", "[repository][docs]") {
  Setting s;
  const auto& layers = s.model.layers;
  Tensor x = randn({2, 5, 16}).set_requires_grad();
  const Tensor plain = layers[1](layers[0](x, {.causal = true}), {.causal = true});
  for (const nn::TransformerLayer& layer : layers)
    x = recompute([&layer](const Tensors& in) { return layer(in[0], {.causal = true}); }, {x});
  CHECK(equal(x, plain));
}

TEST_CASE("performance.md: a profile", "[repository][docs]") {
  Setting s;
  auto& [model, inputs, targets, batch] = s;
  nn::AdamW optimizer(model.parameters(), {});
  Profile profile;
  cross_entropy(model(inputs), targets).backward();
  profile.mark("backward ended");  // time outside ops counts for this name
  optimizer.step();
  profile.mark("optimizer");
  for (const ProfileRow& row : profile.rows())  // longest first
    std::printf("%-28s %4d  %6.2f ms\n", row.name.c_str(), int(row.calls), 1e3 * row.seconds);
  CHECK(profile.rows().size() > 4);
}
