// Muon: its formula, its iteration, and one optimizer for matrices and all other parameters.
#include "nn/optim/muon.h"

#include <cmath>
#include <optional>
#include <tuple>

#include "core/parallel.h"
#include "core/storage.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/optim/weight_average.h"
#include "nn/training/parameter_groups.h"
#include "nn/training/trainer.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/loss.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/gradcheck.h"
#include "tests/support/temp_dir.h"

using namespace stretto;           // NOLINT
using namespace stretto::testing;  // NOLINT
using Values = std::vector<double>;

namespace {

struct Matrix {
  int64_t rows, columns;
  Values values;
  double& operator()(int64_t i, int64_t j) { return values[size_t(i * columns + j)]; }
  double operator()(int64_t i, int64_t j) const { return values[size_t(i * columns + j)]; }
};

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c{a.rows, b.columns, Values(size_t(a.rows * b.columns))};
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < b.columns; ++j)
      for (int64_t k = 0; k < a.columns; ++k) c(i, j) += a(i, k) * b(k, j);
  return c;
}

Matrix transposed(const Matrix& a) {
  Matrix t{a.columns, a.rows, Values(a.values.size())};
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.columns; ++j) t(j, i) = a(i, j);
  return t;
}

// The iteration of Jordan et al. 2024, or of Amsel et al. 2025 (table of the authors' code for five
// steps and a safety factor of 2 %), always with x·xᵀ.
Matrix iteration_loops(Matrix x, bool polar = false) {
  const std::vector<Values> steps =
      polar ? std::vector<Values>{{8.156554524902461, -22.48329292557795, 15.878769915207462},
                                  {4.042929935166739, -2.808917465908714, 0.5000178451051316},
                                  {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
                                  {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
                                  {2.3465413258596377, -1.7097828382687081, 0.42323551169305323}}
            : std::vector<Values>(5, Values{3.4445, -4.7750, 2.0315});
  double squares = 0;
  for (const double v : x.values) squares += v * v;
  const double norm = std::sqrt(squares);
  for (double& v : x.values) v /= polar ? 1.02 * norm + 1e-6 : std::max(norm, 1e-7);
  for (const Values& step : steps) {
    const Matrix gram = product(x, transposed(x)), square = product(gram, gram);
    const Matrix first = product(gram, x), second = product(square, x);
    for (size_t i = 0; i < x.values.size(); ++i)
      x.values[i] = step[0] * x.values[i] + step[1] * first.values[i] + step[2] * second.values[i];
  }
  return x;
}

// Rows divided by the roots of their running mean squares v, at the norm of x (Li et al. 2025).
Matrix with_row_variance(Matrix x, Values& v, double beta) {
  double before = 0, after = 0;
  for (int64_t i = 0; i < x.rows; ++i) {
    double squares = 0;
    for (int64_t j = 0; j < x.columns; ++j) squares += x(i, j) * x(i, j);
    before += squares;
    v[size_t(i)] = beta * v[size_t(i)] + (1 - beta) * squares / double(x.columns);
    for (int64_t j = 0; j < x.columns; ++j) x(i, j) /= std::sqrt(v[size_t(i)]) + 1e-10;
  }
  for (const double value : x.values) after += value * value;
  for (double& value : x.values) value *= std::sqrt(before) / (std::sqrt(after) + 1e-10);
  return x;
}

Tensor of(const Values& values, const Shape& shape, DType dtype = f64) {
  return tensor(values, shape).to(dtype);
}

double largest_difference(const Values& a, const Values& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// A model with all kinds of parameters.
struct Net : nn::Module {
  nn::Embedding embedding{*this, "embedding", {.count = 7, .dim = 6}};
  nn::Linear in{*this, "in", {.in = 6, .out = 10}};
  nn::Norm norm{*this, "norm", {.dim = 10}};
  nn::Linear out{*this, "out", {.in = 10, .out = 7}};
  Tensor operator()(const Tensor& ids) const { return out(relu(norm(in(embedding(ids))))); }
};

std::vector<nn::ParameterGroup> groups_of(const Net& net) {
  return nn::parameter_groups(
      net, {{"embedding.*", {.use_muon = false}}, {"out.*", {.use_muon = false}}});
}

nn::Batch batch_of(int64_t step) {
  std::vector<int64_t> ids, targets;
  for (int64_t i = 0; i < 12; ++i) {
    ids.push_back((i * i + step) % 7);
    targets.push_back((ids.back() + 3) % 7);
  }
  return {tensor(ids, {3, 4}), tensor(targets, {3, 4})};
}

}  // namespace

TEST_CASE("newton_schulz is the iteration of the paper") {
  for (const Shape& shape : {Shape{5, 8}, Shape{8, 5}, Shape{6, 6}, Shape{1, 4}, Shape{4, 1}}) {
    CAPTURE(str(shape));
    const Tensor x = fixed_noise(shape, 3);
    const Matrix start{shape[0], shape[1], x.to_vector<double>()};
    const Values want = iteration_loops(start).values;
    CHECK(largest_difference(nn::polar_express(x).to_vector<double>(),
                             iteration_loops(start, true).values) < 1000 * 8 * 0x1p-52);
    CHECK(nn::polar_express(x.to(bf16)).dtype() == bf16);
    // Rounding errors grow like singular values, by at most 3.4445 per step.
    CHECK(largest_difference(nn::newton_schulz(x).to_vector<double>(), want) < 500 * 8 * 0x1p-52);
    CHECK(largest_difference(nn::newton_schulz(x.to(f32)).to_vector<double>(), want) <
          500 * 8 * 0x1p-23);
    // bf16: a few percent, as in Jordan et al.
    CHECK(largest_difference(nn::newton_schulz(x.to(bf16)).to_vector<double>(), want) < 0.1);
    CHECK(nn::newton_schulz(x.to(bf16)).dtype() == bf16);
  }
  CHECK(nn::newton_schulz(zeros({2, 3})).to_vector<double>() == Values(6, 0));
  CHECK(nn::polar_express(zeros({2, 3})).to_vector<double>() == Values(6, 0));
  CHECK_THROWS_WITH(nn::polar_express(zeros({2})), Containing("[polar_express] x is f32 [2]"));
  CHECK_THROWS_WITH(nn::newton_schulz(zeros({2})),
                    "[newton_schulz] x is f32 [2]; must be a matrix of floating dtype");
  CHECK_THROWS_WITH(nn::newton_schulz(zeros({2, 2}, {.dtype = i64})),
                    Containing("must be a matrix of floating dtype"));
}

TEST_CASE("newton_schulz brings singular values to 0.68 … 1.21") {
  // A diagonal matrix has its diagonal as singular values.
  Values diagonal{1, 0.5, 0.1, 0.02, 0.005, 0.0018};
  Tensor x = zeros({6, 6}, {.dtype = f64});
  for (int64_t i = 0; i < 6; ++i) x[i][i].fill_(diagonal[size_t(i)]);
  const Tensor y = nn::newton_schulz(x);
  for (int64_t i = 0; i < 6; ++i) {
    CHECK(y[i][i].item() >= 0.68);
    CHECK(y[i][i].item() <= 1.21);
    const double polar = nn::polar_express(x)[i][i].item();
    CHECK(polar >= 0.84);
    CHECK(polar <= 1.15);
  }
}

// torch.optim.Muon of PyTorch 2.15 with its iteration in f64 instead of bf16: w = sin(i + 1),
// gradients cos(2i + 3t) in step t, lr 0.02, momentum 0.9, weight decay 0.1, three steps.
TEST_CASE("Muon agrees with PyTorch") {
  struct Case {
    Shape shape;
    bool nesterov;
    nn::MuonScale scale;
    Values expected;
  };
  const std::vector<Case> cases{{{2, 3},
                                 true,
                                 nn::MuonScale::match_rms_adamw,
                                 {0.839876239553, 0.900570850212, 0.139562325695, -0.750512408492,
                                  -0.950764781434, -0.281512729223}},
                                {{2, 3},
                                 false,
                                 nn::MuonScale::original,
                                 {0.845919499201, 0.886948309344, 0.144857020624, -0.737297208709,
                                  -0.950802659382, -0.294696403430}},
                                {{3, 2},
                                 true,
                                 nn::MuonScale::match_rms_adamw,
                                 {0.841905007860, 0.905234670558, 0.138315051154, -0.749286962823,
                                  -0.956092796079, -0.283025154595}},
                                {{3, 2},
                                 false,
                                 nn::MuonScale::original,
                                 {0.867261012120, 0.904906995900, 0.140957055662, -0.735432275388,
                                  -0.984902659125, -0.300809536060}}};
  for (const Case& c : cases) {
    Values start, gradient(6);
    for (int i = 0; i < 6; ++i) start.push_back(std::sin(i + 1));
    const Tensor w = of(start, c.shape).set_requires_grad();
    nn::Muon optimizer({w}, {.lr = 0.02,
                             .momentum = 0.9,
                             .nesterov = c.nesterov,
                             .weight_decay = 0.1,
                             .scale = c.scale});
    for (int t = 1; t <= 3; ++t) {
      for (int i = 0; i < 6; ++i) gradient[size_t(i)] = std::cos(2 * i + 3 * t);
      w.set_grad(of(gradient, c.shape));
      optimizer.step();
    }
    CHECK(largest_difference(w.to_vector<double>(), c.expected) < 1e-11);  // their digits
  }
}

TEST_CASE("Muon equals its formula, with groups, over 50 steps") {
  const Shape shape{4, 9};
  const double mu = 0.8, decay = 0.3, lr = 0.05, lr_scale = 0.5;
  const double factor = 0.2 * 3;  // 0.2 · √9
  using Row = std::optional<double>;
  for (const auto& [dtype, polar, cautious, row_variance] : {std::tuple{f64, false, false, Row()},
                                                             {f32, false, false, Row()},
                                                             {f64, true, false, Row()},
                                                             {f64, false, true, Row()},
                                                             {f32, true, true, Row()},
                                                             {f64, false, false, Row(0.9)},
                                                             {f32, false, true, Row(0.9)},
                                                             {f64, true, false, Row(0)}}) {
    const Tensor w = fixed_noise(shape, 5, dtype).clone().set_requires_grad();
    nn::Muon optimizer(
        {{.parameters = {w}, .lr_scale = lr_scale, .weight_decay = decay}},
        {.lr = lr,
         .momentum = mu,
         .weight_decay = 7,
         .iteration = polar ? nn::MuonIteration::polar_express : nn::MuonIteration::newton_schulz,
         .row_variance = row_variance,
         .cautious_decay = cautious});
    Values expected = w.to_vector<double>(), mean(expected.size()), variance(4);
    for (int t = 1; t <= 50; ++t) {
      const Tensor noise = fixed_noise(shape, 10 + uint64_t(t), dtype);
      const Values g = noise.to_vector<double>();
      w.set_grad(noise);
      optimizer.set_learning_rate(lr / t);
      optimizer.step();
      Matrix u{shape[0], shape[1], Values(g.size())};
      for (size_t i = 0; i < g.size(); ++i) {
        mean[i] = mu * mean[i] + (1 - mu) * g[i];
        u.values[i] = (1 - mu) * g[i] + mu * mean[i];
      }
      Matrix o = iteration_loops(u, polar);
      if (row_variance) o = with_row_variance(o, variance, *row_variance);
      const double rate = lr / t * lr_scale;
      for (size_t i = 0; i < g.size(); ++i) {
        const bool decays = !cautious || expected[i] * o.values[i] >= 0;
        expected[i] =
            (1 - rate * decay * double(decays)) * expected[i] - rate * factor * o.values[i];
      }
    }
    // Each step adds rate · factor · 4e3 roundings of the iteration, and a rounding of the weight.
    const double rounding = dtype == f64 ? 0x1p-53 : 0x1p-24;
    CHECK(largest_difference(w.to_vector<double>(), expected) < 1000 * rounding);
    const std::vector<nn::NamedTensor>& state = optimizer.state()[0].tensors;
    REQUIRE(state.size() == (row_variance ? 2 : 1));
    CHECK(state[0].name == "momentum");
    if (!row_variance) continue;
    CHECK(state[1].name == "row_variance");
    CHECK(state[1].tensor.shape() == Shape{4, 1});
    CHECK(state[1].tensor.dtype() == dtype);
    CHECK(largest_difference(state[1].tensor.to_vector<double>(), variance) < 500 * rounding);
  }
}

TEST_CASE("Muon updates all other parameters as AdamW does") {
  manual_seed(3);
  Net a, b;
  nn::copy_state(a, b);
  const nn::AdamW::Options options{
      .lr = 0.01, .beta1 = 0.8, .beta2 = 0.9, .eps = 1e-6, .weight_decay = 0.2};
  nn::AdamW adamw(a.parameters(), options);
  nn::Muon muon(groups_of(b),
                {.lr = 0.01, .weight_decay = 0.2, .beta1 = 0.8, .beta2 = 0.9, .eps = 1e-6});
  for (int t = 0; t < 5; ++t) {
    for (size_t i = 0; i < a.parameters().size(); ++i) {
      const Tensor p = a.parameters()[i], g = fixed_noise(p.shape(), uint64_t(10 * t) + i, f32);
      p.set_grad(g);
      b.parameters()[i].set_grad(g);
    }
    adamw.step();
    muon.step();
  }
  for (size_t i = 0; i < a.parameters().size(); ++i) {
    const nn::NamedTensor n = a.named_parameters()[i];
    CAPTURE(n.name);
    CHECK((n.tensor.to_vector<float>() == b.parameters()[i].to_vector<float>()) ==
          (n.name != "in.weight"));
  }
  CHECK(std::string(muon.name()) == "Muon");
}

TEST_CASE("Muon does not depend on threads, nor on the layout") {
  const int threads = num_threads();
  for (const DType dtype : {f32, bf16})
    for (const Shape& shape : {Shape{130, 70}, Shape{70, 130}, Shape{0, 3}}) {
      std::vector<std::vector<float>> results;
      for (const int count : {1, 2, 3, 4}) {
        set_num_threads(count);
        const Tensor w = fixed_noise(shape, 60, dtype).clone().set_requires_grad();
        nn::Muon optimizer({w}, {.lr = 0.1, .row_variance = 0.95});
        for (int t = 0; t < 3; ++t) {
          w.set_grad(fixed_noise(shape, 70 + uint64_t(t), dtype));
          optimizer.step();
        }
        results.push_back(w.to_vector<float>());
      }
      for (const auto& result : results) CHECK(result == results[0]);
    }
  set_num_threads(threads);

  const Tensor a = fixed_noise({5, 6}, 61).clone().set_requires_grad();
  const Tensor b = strided_copy(a).set_requires_grad();
  const Tensor g = fixed_noise({5, 6}, 62);
  a.set_grad(strided_copy(g));
  b.set_grad(g);
  nn::Muon optimizer({a, b}, {.lr = 0.1});
  optimizer.step();
  optimizer.step();
  CHECK(a.to_vector<double>() == b.to_vector<double>());
}

TEST_CASE("bf16 steps with row variance are those of f32 up to rounding") {
  const Tensor narrow = fixed_noise({6, 9}, 63, bf16).clone().set_requires_grad();
  const Tensor wide = narrow.detach().to(f32).clone().set_requires_grad();
  nn::Muon a({narrow}, {.lr = 0.01, .row_variance = 0.95});
  nn::Muon b({wide}, {.lr = 0.01, .row_variance = 0.95});
  for (int t = 0; t < 5; ++t) {
    narrow.set_grad(fixed_noise({6, 9}, 64 + uint64_t(t), bf16));
    wide.set_grad(narrow.grad().to(f32));
    a.step();
    b.step();
  }
  const std::vector<nn::NamedTensor>& state = a.state()[0].tensors;
  REQUIRE(state.size() == 3);
  CHECK(state[1].tensor.shape() == Shape{6, 1});
  CHECK(state[1].tensor.dtype() == f32);
  // Five updates of 0.01 · 0.6 · (elements of about 1/3), with the few percent of bf16.
  CHECK(largest_difference(state[2].tensor.to_vector<double>(), wide.to_vector<double>()) < 2e-3);
}

TEST_CASE("bf16 matrices follow an f32 master copy under Muon") {
  const Tensor w = ones({4, 4}, {.dtype = bf16}).set_requires_grad();
  nn::Muon optimizer({w}, {.lr = 1e-4, .weight_decay = 0});
  // Steps of at most 1e-4 · 0.4 · 1.21 are below half a bf16 step next to 1.
  for (int t = 0; t < 300; ++t) {
    w.set_grad(eye(4, {.dtype = bf16}));
    optimizer.step();
  }
  CHECK(w[0][0].item() < 1);
  CHECK(optimizer.state()[0].tensors[1].name == "master");
  CHECK(optimizer.state()[0].tensors[1].tensor.dtype() == f32);
}

TEST_CASE("a run with Muon resumes bit for bit") {
  for (const auto& [dtype_, options_] : {std::pair{f32, nn::Muon::Options()},
                                         {bf16, {}},
                                         {f32, {.row_variance = 0.95}},
                                         {bf16, {.row_variance = 0.95}}}) {
    const DType dtype = dtype_;
    const nn::Muon::Options& options = options_;
    const auto trained = [&](const std::string& folder, const std::vector<int64_t>& stops) {
      std::vector<std::vector<float>> values;
      for (const int64_t steps : stops) {
        manual_seed(4);
        Net net;
        net.to(dtype);
        nn::Muon optimizer(groups_of(net), options);
        nn::WeightAverage average(net, {.decay = 0.9});
        nn::Trainer trainer(
            net, optimizer,
            {.steps = steps,
             .schedule = nn::WarmupStableDecay{.peak = 0.02, .warmup = 3, .steps = 12},
             .max_grad_norm = 1,
             .average = &average,
             .micro_batches = 1,
             .folder = folder,
             .quiet = true});
        trainer.resume();
        trainer.run([&](int64_t i) {
          const nn::Batch batch = trainer.stage_batch(i, batch_of);
          return cross_entropy(net(batch.inputs), batch.targets);
        });
        values.clear();
        for (const Tensor& p : net.parameters()) values.push_back(p.to_vector<float>());
        for (const nn::NamedTensor& n : average.tensors())
          values.push_back(n.tensor.to_vector<float>());
      }
      return values;
    };
    const TempDir a, b;
    CHECK(trained(a.str(), {12}) == trained(b.str(), {5, 12}));
  }
}

TEST_CASE("Muon learns with one learning rate for all parameters") {
  manual_seed(6);
  Net net;
  nn::Muon optimizer(groups_of(net), {.lr = 0.02});
  double first = 0, last = 0;
  for (int64_t step = 0; step < 60; ++step) {
    optimizer.zero_grad();
    const nn::Batch batch = batch_of(step);
    const Tensor loss = cross_entropy(net(batch.inputs), batch.targets);
    loss.backward();
    optimizer.step();
    (step == 0 ? first : last) = loss.item();
  }
  CHECK(first > 1.5);
  CHECK(last < 0.1);
}

TEST_CASE("invalid uses of Muon are errors") {
  const Tensor w = ones({2, 3}).set_requires_grad();
  CHECK_THROWS_WITH(nn::Muon({w}, {.momentum = 1}), "[Muon] momentum must lie in [0, 1), got 1");
  for (const auto& [value, text] : {std::pair{1.0, "1"}, {-0.5, "-0.5"}, {NAN, "nan"}})
    CHECK_THROWS_WITH(nn::Muon({w}, {.row_variance = value}),
                      str("[Muon] row_variance ", text, "; accepted: a decay in [0, 1)"));
  CHECK_THROWS_WITH(nn::Muon({w}, {.lr = -1}), Containing("learning rate must be ≥ 0"));
  nn::Muon optimizer({w}, {});
  CHECK_THROWS_WITH(optimizer.keep_ranges({{0, 3}}),
                    "[Muon] its state cannot be sharded, because the update of an element depends "
                    "on the whole parameter; accepted: SGD, Adam and AdamW");
  CHECK_NOTHROW(optimizer.keep_ranges({}));

  nn::Muon rows({w}, {.row_variance = 0.9});
  CHECK_THROWS_WITH(rows.load_state({{.steps = 1,
                                      .tensors = {{"momentum", zeros({2, 3})},
                                                  {"row_variance", zeros({2, 3})}}}}),
                    "[load_state] parameter 0: row_variance is f32 [2, 3], expected f32 [2, 1]");
}
