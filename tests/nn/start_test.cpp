// Constructors leave no parameter uninitialized: every public module is constructed with NaN in the
// memory that it allocates.
#include <cxxabi.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <typeinfo>
#include <vector>

#include "ops/create.h"
#include "ops/reduce.h"
#include "stretto.h"
#include "tests/support/catch.h"
#include "tests/support/sources.h"

using namespace stretto;

namespace {

// Fills the blocks that the allocator returns next with NaN, as STRETTO_ALLOC=exact does for all.
void fill_free_memory_with_nan() {
  Tensors blocks;
  for (int64_t bytes = 64; bytes <= 32768; bytes += bytes < 512 ? 64 : bytes / 16)
    for (int i = 0; i < 24; ++i) blocks.push_back(full({bytes}, 255, {.dtype = u8, .device = cpu}));
}

struct Parent : nn::Module {};

using MakeModule = std::function<std::unique_ptr<nn::Module>()>;

// A child module below a parent.
template <class M, class Options = typename M::Options>
MakeModule child(Options options) {
  struct Owner : nn::Module {
    explicit Owner(const Options& o) : module(*this, "module", o) {}
    M module;
  };
  return [options] { return std::make_unique<Owner>(options); };
}

const nn::LayerOptions layer{
    .d_model = 8, .attention = {.d_model = 8, .n_heads = 2}, .feed_forward = {.d_hidden = 12}};

nn::LayerOptions with(const nn::MakePositionalEncoding& position) {
  nn::LayerOptions l = layer;
  l.attention.position = position;
  return l;
}

struct Experts : nn::Module {
  nn::MoE moe{*this,
              {.d_model = 4, .d_hidden = 6},
              {.n_experts = 3, .d_shared = 5, .shared_gate = true, .selection_bias = true}};
};

// AdaptiveSoftmax with its own tables.
struct Softmax : nn::Module {
  nn::AdaptiveOptions options{
      .vocabulary = 20, .d_model = 8, .d_embedding = 4, .cutoffs = {5, 10}, .div = 2};
  nn::AdaptiveSoftmax output{*this, "output", {options}};
};

std::vector<MakeModule> modules() {
  const nn::InputOptions learned{.learned_length = 6, .norm = true};
  std::vector<MakeModule> all{
      child<nn::Linear>({.in = 3, .out = 4}),
      child<nn::Embedding>({.count = 5, .dim = 3}),
      child<nn::Norm>({.dim = 5}),
      child<nn::LayerNorm>({.dim = 5}),
      child<nn::RMSNorm>({.dim = 5}),
      child<nn::Dropout>({.p = 0.5}),
      child<nn::Conv1d>({.in = 4, .out = 6, .kernel = 3, .groups = 2}),
      child<nn::Conv2d>({.in = 4, .out = 6, .kernel = 3}),
      child<nn::GroupNorm>({.groups = 2, .dim = 4}),
      child<nn::BatchNorm>({.dim = 4}),
      child<nn::LatentAttention>(
          {.d_model = 8, .n_heads = 2, .d_latent = 5, .d_query_latent = 3, .d_position = 4}),
      child<nn::Mamba2>({.d_model = 8, .d_head = 4, .d_state = 5, .n_groups = 2}),
      child<nn::FeedForward>({.d_model = 4, .d_hidden = 6, .gated = true}),
      child<nn::Sequential>({nn::step<nn::Linear>({.in = 3, .out = 4}), relu}),
      child<nn::AbsolutePosition>({.d_model = 4, .input = learned}),
      child<nn::AbsolutePosition>({.d_model = 4, .input = learned, .drawn = false}),
      child<nn::InputEmbedding>({.vocabulary = 7, .d_model = 4, .input = learned}),
      child<nn::TransformerLayer, nn::LayerOptions>(layer),
      child<nn::Bert>({.vocabulary = 7, .max_length = 5, .n_layers = 1, .layer = layer}),
      child<nn::Bert>(
          {.vocabulary = 7,
           .n_layers = 1,
           .layer = layer,
           .disentangled = nn::Disentangled::Options{.buckets = 8, .shared_projections = true},
           .relative_norm = true,
           .kernel_size = 3}),
      [] {
        auto linear = std::make_unique<nn::Linear>(nn::LinearOptions{.in = 3, .out = 4});
        linear->set_lora({.rank = 2});
        return linear;
      },
      child<nn::DecoderLayer, nn::LayerOptions>(layer),
      child<nn::TransformerLayer, nn::LayerOptions>(with(nn::relative_sinusoid())),
      child<nn::Encoder, nn::StackOptions>({.n_layers = 2, .layer = layer, .final_norm = true}),
      child<nn::Decoder, nn::StackOptions>({.n_layers = 2, .layer = layer, .final_norm = true}),
      child<nn::InputEmbedding>(
          {.vocabulary = 20,
           .d_model = 8,
           .adaptive = nn::AdaptiveOptions{.d_embedding = 4, .cutoffs = {5, 10}, .div = 2}}),
      [] { return std::make_unique<Softmax>(); },
      [] { return std::make_unique<Experts>(); },
      child<nn::MultiHeadAttention>(
          {.d_model = 8, .n_heads = 4, .n_kv_heads = 2, .qk_norm = nn::Norm::Options{}}),
      child<nn::MultiHeadAttention>({.d_model = 8, .gate = nn::AttentionGate::per_element}),
      child<nn::MultiHeadAttention>(
          {.d_model = 8, .position = nn::inkling_relative({.extent = 5})}),
      child<nn::LanguageModel>(
          {.vocabulary = 9, .n_layers = 2, .layer = layer, .input = learned, .output_bias = true}),
      child<nn::LanguageModel>({.vocabulary = 9,
                                .n_layers = 2,
                                .layer = layer,
                                .adaptive = nn::AdaptiveOptions{},
                                .shared_sinusoids = true,
                                .output_dropout = true,
                                .init_std = 0.02}),
      child<nn::LanguageModel>({.vocabulary = 9,
                                .n_layers = 2,
                                .layer = layer,
                                .input = {.learned_length = 6},
                                .adaptive = nn::AdaptiveOptions{},
                                .init_std = 0.02}),
      child<nn::SequenceToSequence>({.source_vocabulary = 9,
                                     .target_vocabulary = 8,
                                     .layer = layer,
                                     .input = learned,
                                     .output_bias = true}),
      child<nn::SequenceClassifier>(
          {.vocabulary = 9, .layer = layer, .input = learned, .pairs = true}),
      child<nn::PatchEmbedding>({.channels = 2, .patch = 3, .d_model = 8}),
      child<nn::VisionTransformer>(
          {.image = 6, .patch = 3, .channels = 2, .n_classes = 4, .n_layers = 2, .layer = layer}),
  };
  for (const bool bidirectional : {false, true})
    for (const nn::PositionEntry& p : nn::positions()) {
      const nn::PositionSettings s{.length = 6,
                                   .bidirectional = bidirectional,
                                   .plane = bidirectional ? Shape{2, 3} : Shape{},
                                   .realizations = 3,
                                   .sines = 2,
                                   .taps = 4};
      nn::LayerOptions l = layer;
      nn::InputOptions input;
      if (!nn::refusal(p.name, "softmax", s, l).empty()) continue;
      nn::add_position(p.name, s, l, input);
      if (!p.add) all.push_back(child<nn::MultiHeadAttention>(l.attention));
    }
  all.push_back(child<nn::MultiHeadAttention>(with(nn::shared_by_layers(nn::kerple())).attention));
  all.push_back(child<nn::MultiHeadAttention>(with(nn::disentangled({.buckets = 8})).attention));
  for (const nn::MakeFeatureMap& map :
       {nn::elu_plus_one(), nn::relu_plus(), nn::favor({.features = 4, .redraw = 2}),
        nn::favor({.features = 4, .kind = nn::FavorKind::hyperbolic}),
        nn::favor({.features = 4, .orthogonal = false})}) {
    nn::LayerOptions l = layer;
    l.attention.kernel = nn::linear_kernel(map);
    all.push_back(child<nn::MultiHeadAttention>(l.attention));
  }
  for (const nn::MakeKernel& kernel :
       {nn::retention_kernel(), nn::lightning_kernel(), nn::gla_kernel(), nn::gated_delta_kernel(),
        nn::kda_kernel()}) {
    nn::LayerOptions l = layer;
    l.attention.kernel = kernel;
    all.push_back(child<nn::MultiHeadAttention>(l.attention));
  }
  return all;
}

// Returns the class of a module without namespaces and template arguments.
std::string class_of(const nn::Module& module) {
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(typeid(module).name(), nullptr, nullptr, nullptr), std::free);
  std::string name = text.get();
  name = name.substr(0, name.find('<'));
  return name.substr(name.rfind(':') + 1);
}

void add_classes(const nn::Module& module, std::set<std::string>& names) {
  names.insert(class_of(module));
  for (const auto& [name, child] : module.children()) add_classes(*child, names);
}

}  // namespace

TEST_CASE("constructors leave no parameter uninitialized", "[module]") {
  if (default_device().is_cuda()) STRETTO_SKIP("what is filled with NaN is memory of the CPU");
  std::set<std::string> made;
  for (const MakeModule& make : modules()) {
    fill_free_memory_with_nan();
    manual_seed(1);
    const std::unique_ptr<nn::Module> module = make();
    add_classes(*module, made);
    INFO(module->describe());
    for (const auto& tensors : {module->named_parameters(), module->named_buffers()})
      for (const auto& [name, x] : tensors) {
        INFO(name);
        CHECK(std::isfinite(sum(abs(x.to(f64))).item()));
      }
  }
  // Every class of a public header has been constructed.
  static const std::regex derived(R"(^class (\w+)( final)? : public (\w+) \{)");
  std::set<std::string> bases{"Module"}, missing;
  for (int pass = 0; pass < 3; ++pass)  // bases before the classes derived from them
    for (const testing::Source& file : testing::sources()) {
      if (file.path.rfind("nn/", 0) != 0 || !file.path.ends_with(".h")) continue;
      for (const std::string& line : file.lines)
        if (std::smatch m; std::regex_search(line, m, derived) && bases.count(m[3])) {
          bases.insert(m[1]);
          if (!made.count(m[1])) missing.insert(m[1]);
        }
    }
  CHECK(missing == std::set<std::string>{"AnyList", "AttentionKernel", "FeatureMap", "Mixer",
                                         "PositionWise", "PositionalEncoding"});
}

TEST_CASE("a position table is initialized by its constructor or by reset_parameters()",
          "[module]") {
  const nn::AbsolutePosition::Options own{.d_model = 64, .input = {.learned_length = 50}};
  struct Owner : nn::Module {
    explicit Owner(const nn::AbsolutePosition::Options& o) : a(*this, "a", o), b(*this, "b", o) {}
    nn::AbsolutePosition a, b;
  };
  manual_seed(5);
  const Owner drawn(own);
  // Normal with deviation 0.02: the mean of n squares has the standard deviation 0.02² √(2/n).
  const double n = 50 * 64, variance = 0.02 * 0.02;
  for (const nn::AbsolutePosition* p : {&drawn.a, &drawn.b})
    CHECK(std::abs(mean(square(p->table)).item() - variance) < 5 * variance * std::sqrt(2 / n));
  CHECK(sum(abs(drawn.a.table - drawn.b.table)).item() > 0);
  nn::AbsolutePosition::Options later = own;
  later.drawn = false;
  manual_seed(5);
  const Owner waiting(later);
  CHECK(random_state().next_stream == 0);
  CHECK(sum(abs(waiting.a.table)).item() == 0);
  waiting.a.reset_parameters();
  CHECK(sum(abs(waiting.a.table - drawn.a.table)).item() == 0);
}
