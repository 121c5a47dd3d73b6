#include "nn/positions/disentangled.h"

#include <cmath>

#include "autograd/tape.h"
#include "nn/attention/attention.h"
#include "nn/init.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/reference/disentangled.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using nn::Disentangled;
using testing::fixed_noise;
using testing::worst_error;

namespace {

struct Parent : nn::Module {};

constexpr nn::HeadShape heads{.n_heads = 4, .d_key = 5, .d_value = 3, .d_model = 6};

nn::AttentionInputs make_call(int64_t m, int64_t n, int64_t groups = 4) {
  return {fixed_noise({2, 4, m, 5}, 1),
          fixed_noise({2, groups, n, 5}, 2),
          fixed_noise({2, groups, n, 3}, 3),
          {}};
}

Tensor output(const nn::AttentionInputs& inputs) {
  return attention(inputs.q, inputs.k, inputs.v, inputs.options);
}

// A Disentangled in f64 whose rows are as large as queries and keys.
struct Scheme {
  Parent parent;
  Disentangled position;
  explicit Scheme(const Disentangled::Options& options) : position(parent, heads, options) {
    parent.to(f64);
    position.rows.detach().copy_(fixed_noise(position.rows.shape(), 4));
  }
};

// The projected rows as [H, 2k, D]; undefined without the projection.
Tensor table(const Disentangled& p, const std::optional<nn::Linear>& projection) {
  if (!projection) return {};
  return (*projection)(p.rows).reshape({p.rows.size(0), 4, 5}).transpose(0, 1).detach();
}

}  // namespace

TEST_CASE("log_bucket returns the values of DeBERTa v2") {
  const std::pair<int64_t, int64_t> released[] = {
      {0, 0},     {1, 1},     {-1, -1},     {127, 127}, {128, 128},   {-128, -128}, {129, 129},
      {131, 131}, {200, 169}, {-200, -169}, {256, 192}, {300, 207},   {400, 233},   {-400, -233},
      {510, 255}, {511, 255}, {-511, -255}, {512, 256}, {-512, -256}, {600, 270},   {2000, 381}};
  for (const auto& [distance, bucket] : released)
    CHECK(nn::log_bucket(distance, 256, 512) == bucket);
  const int64_t small[] = {0, 1, 2, 3, 4, 4, 5, 5, 5, 5, 5, 5, 6};
  for (int64_t d = 0; d <= 12; ++d) {
    CHECK(nn::log_bucket(d, 6, 12) == small[d]);
    CHECK(nn::log_bucket(-d, 6, 12) == -small[d]);
  }
}

TEST_CASE("Disentangled: parameters") {
  manual_seed(3);
  const Scheme v2({.max_distance = 12, .buckets = 6});
  std::vector<std::string> names;
  for (const auto& [name, p] : v2.parent.named_parameters()) names.push_back(name);
  CHECK(names == std::vector<std::string>{"position.rows", "position.k.weight", "position.q.weight",
                                          "position.q.bias"});
  CHECK(v2.position.rows.shape() == Shape{12, 6});
  CHECK(v2.position.k->weight.shape() == Shape{20, 6});
  CHECK(v2.position.label() == "Disentangled(12 rows, content to position, position to content)");

  const Scheme v1({.max_distance = 12, .buckets = 0, .content_to_position = false});
  CHECK(v1.position.rows.shape() == Shape{24, 6});
  CHECK_FALSE(v1.position.k);
  CHECK(v1.position.label() == "Disentangled(24 rows, position to content)");
  const Scheme keys({.max_distance = 12, .buckets = 0, .position_to_content = false});
  CHECK_FALSE(keys.position.q);
  CHECK(keys.position.label() == "Disentangled(24 rows, content to position)");

  Parent parent;
  const Disentangled large(parent, {.n_heads = 1, .d_key = 1, .d_value = 1, .d_model = 100}, {});
  const double n = double(large.rows.numel()), variance = 0.02 * 0.02;
  CHECK(large.rows.size(0) == 1024);
  CHECK(std::fabs(mean(large.rows).item()) < 4 * std::sqrt(variance / n));
  CHECK(std::fabs(var(large.rows).item() - variance) < 4 * variance * std::sqrt(2 / n));
}

TEST_CASE("Disentangled: errors") {
  auto text = [](const Disentangled::Options& options) -> std::string {
    try {
      Parent other;
      const Disentangled position(other, heads, options);
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  CHECK(text({.max_distance = 0}) == "[Disentangled] max_distance 0; needs at least 1");
  const std::string range =
      "; accepted: 0 for no buckets, or at least 2 with buckets / 2 < max_distance − 1";
  CHECK(text({.max_distance = 9, .buckets = -1}) ==
        "[Disentangled] buckets -1 for max_distance 9" + range);
  CHECK(text({.max_distance = 9, .buckets = 1}) ==
        "[Disentangled] buckets 1 for max_distance 9" + range);
  CHECK(text({.max_distance = 9, .buckets = 16}) ==
        "[Disentangled] buckets 16 for max_distance 9" + range);
  CHECK(text({.max_distance = 9, .buckets = 15}) == "accepted");
  CHECK(text({.content_to_position = false, .position_to_content = false}) ==
        "[Disentangled] content_to_position and position_to_content are both false; set at least "
        "one of them");
  CHECK(text({.max_distance = 9, .buckets = 4, .rows = zeros({9, 6})}) ==
        "[Disentangled] rows f32 [9, 6]; must be [8, 6]");
}

TEST_CASE("Disentangled equals eq. 4 by loops") {
  for (const int64_t buckets : {0, 4, 7})
    for (const int terms : {1, 2, 3})  // content to position, position to content, both
      for (const bool mirrored : {true, false}) {
        const int64_t max_distance = buckets > 0 ? 9 : 4, k = buckets > 0 ? buckets : 4;
        Scheme scheme({.max_distance = max_distance,
                       .buckets = buckets,
                       .content_to_position = terms != 2,
                       .position_to_content = terms != 1,
                       .mirrored = mirrored});
        const Disentangled& p = scheme.position;
        const reference::RowOf row = [=](int64_t distance) {
          const int64_t d = buckets > 0 ? nn::log_bucket(distance, buckets, 9) : distance;
          return reference::delta(d, k);
        };
        const reference::RowOf back = [=](int64_t d) { return row(mirrored ? -d : d); };
        for (const auto& [m, n] : {std::pair{1, 1}, {3, 3}, {14, 14}, {2, 14}, {1, 14}, {14, 5}})
          for (const int64_t groups : {2, 4})
            for (const int mask : {0, 1, 2}) {
              INFO("buckets " << buckets << ", terms " << terms << ", M " << m << ", N " << n);
              nn::AttentionInputs inputs = make_call(m, n, groups);
              inputs.options.mask.causal = mask == 1;
              if (mask == 2) inputs.options.mask.window = 3;
              if (terms == 3 && mask == 2) inputs.options.scale = 0.3;
              AttentionOptions o = inputs.options;
              if (!o.scale) o.scale = 1 / std::sqrt(5.0 * (terms == 3 ? 3 : 2));
              o.bias = reference::disentangled_bias(inputs.q, inputs.k, table(p, p.k), row,
                                                    table(p, p.q), back, *o.scale);
              p.apply(inputs);
              CHECK(worst_error(output(inputs),
                                reference::attention(inputs.q, inputs.k, inputs.v, o)) < 1e-13);
            }
      }
}

TEST_CASE("Disentangled projects by the attention's own projections") {
  const auto options = [](bool shared) {
    return nn::MultiHeadAttention::Options{
        .d_model = 8,
        .n_heads = 2,
        .position = nn::disentangled(
            {.max_distance = 5, .buckets = 4, .shared_projections = shared, .key_bias = true})};
  };
  nn::MultiHeadAttention shared(options(true)), own(options(false));
  shared.to(f64);
  own.to(f64);
  CHECK(shared.named_parameters().size() + 4 == own.named_parameters().size());
  const NoGrad guard;
  for (const auto& [name, value] : own.named_parameters()) {
    const bool projection = name == "position.k.weight" || name == "position.k.bias" ||
                            name == "position.q.weight" || name == "position.q.bias";
    value.copy_(shared.get_parameter(projection ? name.substr(9) : name));
  }
  const Tensor x = fixed_noise({2, 7, 8}, 1);
  CHECK(worst_error(shared(x), own(x)) < 1e-14);

  SECTION("a table of the model replaces the rows") {
    nn::ForwardContext forward = nn::begin_forward();
    forward.shared_table = fixed_noise({8, 8}, 2);
    const Tensor y = shared(x, {}, nullptr, forward);
    CHECK(worst_error(y, shared(x)) > 1e-4);
    shared.get_parameter("position.rows").copy_(forward.shared_table);
    CHECK(worst_error(y, shared(x)) == 0);
    forward.shared_table = fixed_noise({7, 8}, 2);
    CHECK_THROWS_WITH(shared(x, {}, nullptr, forward), Containing("must be [8, 8]"));
  }
  SECTION("an attention without these projections is an error") {
    Parent parent;
    CHECK_THROWS_WITH(Disentangled(parent, heads, {.shared_projections = true}),
                      Containing("need an attention with a projection k of 4 heads"));
  }
}

TEST_CASE("Disentangled: dropout applies to the rows in training") {
  nn::MultiHeadAttention attention(
      {.d_model = 8,
       .n_heads = 2,
       .position = nn::disentangled({.max_distance = 5, .buckets = 4, .dropout = 0.5})});
  const NoGrad guard;
  nn::normal_(attention.get_parameter("position.rows"));
  const Tensor x = fixed_noise({2, 7, 8}, 1).to(f32);
  CHECK(worst_error(attention(x), attention(x)) > 1e-4);
  attention.eval();
  CHECK(worst_error(attention(x), attention(x)) == 0);
}

TEST_CASE("Disentangled: gradients") {
  for (const bool mirrored : {true, false}) {
    const Scheme scheme({.max_distance = 5, .buckets = 2, .mirrored = mirrored});
    const nn::AttentionInputs made = make_call(2, 4, 2);
    for (Tensor x : {made.q, made.k, made.v}) x.set_requires_grad();
    Tensors inputs{made.q, made.k, made.v};
    const Tensors parameters = scheme.parent.parameters();
    inputs.insert(inputs.end(), parameters.begin(), parameters.end());
    testing::check_gradients(
        [&](const Tensors& x) {
          // gradcheck changes copies of its inputs; the position sees them through its own handles.
          for (size_t i = 0; i < parameters.size(); ++i)
            if (!x[i + 3].same(parameters[i])) parameters[i].set_data(x[i + 3].detach());
          nn::AttentionInputs call{x[0], x[1], x[2], {}};
          scheme.position.apply(call);
          return output(call);
        },
        inputs, false);
  }
}

TEST_CASE("Disentangled: all layers can share one table") {
  struct Model : nn::Module {
    Tensor rows = parameter("rows", nn_rows());
    nn::MultiHeadAttention::Options options{
        .d_model = 8,
        .n_heads = 2,
        .position = nn::disentangled({.max_distance = 5, .buckets = 4, .rows = rows})};
    nn::MultiHeadAttention a{*this, "a", options}, b{*this, "b", options};
    static Tensor nn_rows() {
      const Tensor rows = empty({8, 8});
      nn::normal_(rows);
      return rows;
    }
  };
  Model model;
  int64_t tables = 0, projections = 0;
  for (const auto& [name, p] : model.named_parameters()) {
    tables += name.find("rows") != std::string::npos;
    projections += name.find("position.k.weight") != std::string::npos;
  }
  CHECK(tables == 1);
  CHECK(projections == 2);

  // Its gradient comes from both layers, and it is still shared after a conversion.
  model.to(f64);
  const Tensor x = fixed_noise({2, 6, 8}, 1);
  const Tensor y = model.a(x), z = model.b(x), w = fixed_noise(y.shape(), 2);
  const Tensor from_a = grad({y}, {model.rows}, {w})[0], from_b = grad({z}, {model.rows}, {w})[0];
  CHECK(max(abs(from_a)).item() > 1e-6);
  CHECK(max(abs(from_b)).item() > 1e-6);
  CHECK(worst_error(grad({model.a(x) + model.b(x)}, {model.rows}, {w})[0], from_a + from_b) <
        1e-14);
}

TEST_CASE("Disentangled: a bias of the projection k would change nothing") {
  Scheme scheme({.max_distance = 5, .buckets = 4});
  nn::AttentionInputs inputs = make_call(7, 7);
  scheme.position.apply(inputs);
  const Tensor before = output(inputs);
  Tensor& rows = inputs.options.relative_keys.rows;
  rows = rows + fixed_noise({4, 1, 5}, 7);
  CHECK(worst_error(output(inputs), before) < 1e-14);
}

TEST_CASE("Disentangled: f32 agrees with f64, and attention without keys gives zeros") {
  Scheme scheme({.max_distance = 5, .buckets = 4});
  nn::AttentionInputs none = make_call(3, 0);
  scheme.position.apply(none);
  CHECK(max(abs(output(none))).item() == 0);
  nn::AttentionInputs inputs = make_call(9, 9);
  scheme.position.apply(inputs);
  const Tensor want = output(inputs);
  scheme.parent.to(f32);
  inputs = make_call(9, 9);
  for (Tensor* x : {&inputs.q, &inputs.k, &inputs.v}) *x = x->to(f32);
  scheme.position.apply(inputs);
  CHECK(output(inputs).dtype() == f32);
  CHECK(worst_error(output(inputs), want) < 2e-4);  // as in tests/conformance
}
