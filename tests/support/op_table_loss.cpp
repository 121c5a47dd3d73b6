// Losses [ops/loss.h].
#include <cmath>

#include "ops/create.h"
#include "ops/loss.h"
#include "tests/support/op_table.h"

namespace stretto::testing {
namespace {

Array cross_entropy_reference(const Array& logits, const Array& targets,
                              const CrossEntropyOptions& options) {
  const int64_t d = logits.shape.dim() - 1, classes = logits.shape[d];
  const double epsilon = options.label_smoothing;
  std::vector<Number> counted;
  Array losses = build(targets.shape, [&](const Shape& at) {
    const auto target = int64_t(targets.at(at).value);
    if (target == options.ignore_index) return Number();
    std::vector<Number> powers, row;
    Shape index = at;
    index.push_back(0);
    for (int64_t c = 0; c < classes; ++c) row.push_back(logits.at(with_entry(index, d, c)));
    const Number top = exact_number(largest(row));
    for (const Number& v : row) powers.push_back(exp(v - top));
    const Number lse = top + log(total(powers));
    Number loss = Number(1 - epsilon) * (lse - row[size_t(target)]);
    if (epsilon != 0)
      for (const Number& v : row) loss = loss + Number(epsilon / double(classes)) * (lse - v);
    counted.push_back(loss);
    return loss;
  });
  if (options.reduction == Reduction::none) return losses;
  Number sum = total(counted);
  if (options.reduction == Reduction::mean && !counted.empty())
    sum = sum * (Number(1) / Number(double(counted.size())));
  return Array{{}, {sum}};
}

Op cross_entropy_op(const std::string& name, const CrossEntropyOptions& options) {
  Op op = {
      .name = "cross_entropy " + name,
      .call = [=](const Tensors& x) { return cross_entropy(x[0], x[1], options); },
      .reference = [=](const Arrays& x) { return cross_entropy_reference(x[0], x[1], options); },
      .large = {{{700, 101}}, {{700}, Domain::index, 101}}};
  const auto add = [&](const Shape& logits, Domain domain) {
    op.samples.push_back(
        {{logits}, {Shape(logits.begin(), logits.dim() - 1), domain, logits.back()}});
  };
  add({5}, Domain::index);
  add({3, 4}, Domain::index32);
  add({29, 17}, Domain::index);
  add({2, 3, 23}, Domain::index);
  add({0, 3}, Domain::index);
  add({4, 1}, Domain::index);
  op.errors = {{[] {
                  cross_entropy(ones({2, 3}), ones({2}));
                },
                "[cross_entropy] targets f32 [2]; must be i64 or i32"},
               {[] {
                  cross_entropy(ones({2, 3}), zeros({3}, {.dtype = i64}));
                },
                "[cross_entropy] targets i64 [3] for logits f32 [2, 3]"},
               {[] {
                  cross_entropy(ones({2, 3}), tensor<int64_t>({0, 3}));
                },
                "[cross_entropy] target 3 at position 1; accepted: 0 to 2, or -100 to ignore"},
               {[] {
                  cross_entropy(ones({2, 3}), tensor<int64_t>({0, 1}), {.label_smoothing = 2});
                },
                "[cross_entropy] label_smoothing 2; accepted: 0 to 1"},
               {[] { cross_entropy(arange(3), scalar(0, {.dtype = i64})); },
                "[cross_entropy] logits i64 [3]; must be a floating-point tensor [.., V]"}};
  return op;
}

// In chunks of two rows, with a bias.
Op linear_cross_entropy_op(const std::string& name, LinearCrossEntropyOptions options) {
  options.chunk_rows = 2;
  Op op = {
      .name = "linear_cross_entropy " + name,
      .call =
          [=](const Tensors& x) { return linear_cross_entropy(x[0], x[1], x[2], x[3], options); },
      .reference =
          [=](const Arrays& x) {
            Array logits = linear_reference(x[0], x[1], &x[2]);
            for (Number& z : logits.values) {
              z.storing += std::fabs(z.value);
              if (options.soft_cap == 0) continue;
              const Number c(options.soft_cap);
              z = c * tanh(z * Number(options.logit_scale / options.soft_cap));
              z.storing += 3 * std::fabs(z.value);  // scaled, divided, tanh
            }
            return cross_entropy_reference(
                logits, x[3],
                {options.ignore_index, options.label_smoothing, options.reduction, {}});
          },
      .large = {{{70, 40}}, {{101, 40}}, {{101}}, {{70}, Domain::index, 101}},
      .any_layout_exact = false};  // as linear
  for (const auto& [x, classes] : std::vector<std::pair<Shape, int64_t>>{
           {{3, 2}, 3}, {{2, 2, 1}, 2}, {{29, 3}, 17}, {{2}, 3}, {{0, 3}, 2}, {{3, 0}, 2}})
    op.samples.push_back({{x},
                          {{classes, x.back()}},
                          {{classes}},
                          {Shape(x.begin(), x.dim() - 1), Domain::index, classes}});
  const Tensor x = ones({3, 2}), w = ones({4, 2}), ids = tensor<int64_t>({0, 4, 1});
  op.errors = {{[=] { linear_cross_entropy(x, w, {}, ids, {.chunk_rows = 1}); },
                "[linear_cross_entropy] target 4 at position 1; accepted: 0 to 3, or -100"},
               {[=] {
                  linear_cross_entropy(x, ones({4, 3}), {}, ids);
                },
                "[linear_cross_entropy] x f32 [3, 2], weight f32 [4, 3]; x must be [.., in] and"},
               {[=] { linear_cross_entropy(x, w, ones({3}), ids, {.chunk_rows = 1}); },
                "[linear_cross_entropy] bias f32 [3] for weight f32 [4, 2]; it must be [V]"},
               {[=] { linear_cross_entropy(x, w, {}, ids, {.chunk_rows = -1}); },
                "[linear_cross_entropy] chunk_rows -1; must not be negative"}};
  return op;
}

Op nll_op(const std::string& name, NllOptions options) {
  Op op = {.name = "nll_loss " + name,
           .call = [=](const Tensors& x) { return nll_loss(x[0], x[1], options); },
           .reference =
               [=](const Arrays& x) {
                 std::vector<Number> counted;
                 Array losses = build(x[1].shape, [&](Shape at) {
                   const auto target = int64_t(x[1].at(at).value);
                   if (target == options.ignore_index) return Number();
                   at.push_back(target);
                   counted.push_back(-x[0].at(at));
                   return counted.back();
                 });
                 if (options.reduction == Reduction::none) return losses;
                 const Number sum = total(counted);
                 const bool divided = options.reduction == Reduction::mean && !counted.empty();
                 return Array{{}, {divided ? sum / Number(double(counted.size())) : sum}};
               },
           .large = {{{700, 101}}, {{700}, Domain::index, 101}}};
  for (const Shape& x :
       {Shape{5}, Shape{3, 4}, Shape{29, 17}, Shape{2, 3, 23}, Shape{0, 3}, Shape{4, 1}})
    op.samples.push_back({{x},
                          {Shape(x.begin(), x.dim() - 1),
                           x.dim() == 2 ? Domain::index32 : Domain::index, x.back()}});
  op.errors = {{[] {
                  nll_loss(ones({2, 3}), ones({2}));
                },
                "[nll_loss] targets f32 [2]; must be i64 or i32"},
               {[] {
                  nll_loss(ones({2, 3}), tensor<int64_t>({0, 3}));
                },
                "[nll_loss] target 3 at position 1; accepted: 0 to 2, or -100 to ignore"},
               {[] {
                  nll_loss(ones({1, 0}), tensor<int64_t>({0}));
                },
                "[nll_loss] log probabilities f32 [1, 0] have no classes"},
               {[] { nll_loss(arange(3), scalar(0, {.dtype = i64})); },
                "[nll_loss] log probabilities i64 [3]; must be a floating-point tensor [.., V]"}};
  return op;
}

// Weights of classes: exact in every dtype.
double class_weight(int64_t c) { return 0.5 + 0.25 * double(c % 4); }
Tensor class_weights(const Tensor& x) {
  std::vector<double> w;
  for (int64_t c = 0; c < x.size(-1); ++c) w.push_back(class_weight(c));
  return tensor(w, {x.size(-1)}, cpu).to(x.dtype()).to(x.device());
}

// The logarithms of softmax of one row of x, of which `at` is the index without the class.
std::vector<Number> log_softmax_row(const Array& x, Shape at) {
  at.push_back(0);
  std::vector<Number> row, powers;
  for (int64_t c = 0; c < x.shape.back(); ++c) row.push_back(x.at(with_entry(at, at.dim() - 1, c)));
  const Number top = exact_number(largest(row));
  for (const Number& v : row) powers.push_back(exp(v - top));
  const Number log_total = log(total(powers));
  for (Number& v : row) v = (v - top) - log_total;
  return row;
}

// The weighted mean or sum of losses.
Array weighted(const Array& losses, double weights, Reduction reduction) {
  if (reduction == Reduction::none) return losses;
  const Number sum = total(losses.values);
  return Array{{}, {reduction == Reduction::mean && weights > 0 ? sum / Number(weights) : sum}};
}

// cross_entropy() with class weights.
Op weighted_cross_entropy_op(const std::string& name, const CrossEntropyOptions& options) {
  Op op = {.name = "cross_entropy weighted, " + name,
           .call =
               [=](const Tensors& x) {
                 CrossEntropyOptions o = options;
                 o.weight = class_weights(x[0]);
                 return cross_entropy(x[0], x[1], o);
               },
           .reference =
               [=](const Arrays& x) {
                 const double epsilon = options.label_smoothing;
                 double weights = 0;
                 const Array losses = build(x[1].shape, [&](const Shape& at) {
                   const auto target = int64_t(x[1].at(at).value);
                   if (target == options.ignore_index) return Number();
                   const std::vector<Number> row = log_softmax_row(x[0], at);
                   weights += class_weight(target);
                   Number loss = Number((epsilon - 1) * class_weight(target)) * row[size_t(target)];
                   for (size_t c = 0; epsilon != 0 && c < row.size(); ++c)
                     loss = loss - Number(epsilon / double(row.size()) * class_weight(int64_t(c))) *
                                       row[c];
                   return loss;
                 });
                 return weighted(losses, weights, options.reduction);
               },
           .large = {{{700, 101}}, {{700}, Domain::index, 101}}};
  for (const Shape& x : {Shape{5}, Shape{3, 4}, Shape{29, 17}, Shape{2, 3, 7}, Shape{0, 3}})
    op.samples.push_back({{x}, {Shape(x.begin(), x.dim() - 1), Domain::index, x.back()}});
  op.errors = {{[] {
                  cross_entropy(ones({2, 3}), tensor<int64_t>({0, 1}), {.weight = ones({2})});
                },
                "[cross_entropy] weight f32 [2] for f32 [2, 3]; it must be [V] of the same dtype"},
               {[] {
                  nll_loss(ones({2, 3}), tensor<int64_t>({0, 1}), {.weight = ones({2})});
                },
                "[nll_loss] weight f32 [2] for f32 [2, 3]; it must be [V] of the same dtype"}};
  return op;
}

// cross_entropy() with probabilities as targets.
Op soft_cross_entropy_op(const std::string& name, bool weights,
                         const CrossEntropyOptions& options) {
  Op op = {.name = "cross_entropy soft targets, " + name,
           .call =
               [=](const Tensors& x) {
                 CrossEntropyOptions o = options;
                 if (weights) o.weight = class_weights(x[0]);
                 return cross_entropy(x[0], x[1], o);
               },
           .reference =
               [=](const Arrays& x) {
                 const double epsilon = options.label_smoothing;
                 Shape rows = x[0].shape;
                 rows.erase(rows.dim() - 1);
                 const Array losses = build(rows, [&](Shape at) {
                   const std::vector<Number> row = log_softmax_row(x[0], at);
                   at.push_back(0);
                   Number loss;
                   for (size_t c = 0; c < row.size(); ++c) {
                     Number t = x[1].at(with_entry(at, at.dim() - 1, int64_t(c)));
                     if (epsilon != 0)
                       t = t * Number(1 - epsilon) + Number(epsilon / double(row.size()));
                     if (weights) t = t * Number(class_weight(int64_t(c)));
                     loss = loss - t * row[c];
                   }
                   return loss;
                 });
                 return weighted(losses, double(losses.values.size()), options.reduction);
               },
           .large = {{{300, 101}}, {{300, 101}, Domain::probability}}};
  for (const Shape& x : {Shape{5}, Shape{3, 4}, Shape{29, 17}, Shape{2, 3, 7}, Shape{0, 3}})
    op.samples.push_back({{x}, {x, Domain::probability}});
  op.errors = {{[] {
                  cross_entropy(ones({2, 0}), ones({2, 0}));
                },
                "[cross_entropy] logits f32 [2, 0] have no classes"},
               {[] {
                  cross_entropy(ones({2, 3}), ones({2, 3}, {.dtype = f64}));
                },
                "[cross_entropy] targets f64 [2, 3]; must be i64 or i32"}};
  return op;
}

Op weighted_nll_op(Reduction reduction) {
  return {.name = str("nll_loss weighted, reduction ", int(reduction)),
          .call =
              [=](const Tensors& x) {
                return nll_loss(
                    x[0], x[1],
                    {.ignore_index = 1, .reduction = reduction, .weight = class_weights(x[0])});
              },
          .reference =
              [=](const Arrays& x) {
                double weights = 0;
                const Array losses = build(x[1].shape, [&](Shape at) {
                  const auto target = int64_t(x[1].at(at).value);
                  if (target == 1) return Number();
                  weights += class_weight(target);
                  at.push_back(target);
                  return Number(-class_weight(target)) * x[0].at(at);
                });
                return weighted(losses, weights, reduction);
              },
          .samples = {{{{5}}, {{}, Domain::index, 5}},
                      {{{3, 4}}, {{3}, Domain::index, 4}},
                      {{{2, 3, 7}}, {{2, 3}, Domain::index32, 7}},
                      {{{0, 3}}, {{0}, Domain::index, 3}}},
          .large = {{{700, 101}}, {{700}, Domain::index, 101}}};
}

// A loss of pairs of elements.
Op pair_loss_op(const std::string& name, Domain domain,
                const std::function<Tensor(const Tensor&, const Tensor&, Reduction)>& call,
                Number (*loss)(const Number&, const Number&), Reduction reduction) {
  const char* names[] = {" mean", " sum", " none"};
  Op op = {.name = name + names[int(reduction)],
           .call = [=](const Tensors& x) { return call(x[0], x[1], reduction); },
           .reference =
               [=](const Arrays& x) {
                 Array losses = build(x[0].shape,
                                      [&](const Shape& i) { return loss(x[0].at(i), x[1].at(i)); });
                 if (reduction == Reduction::none) return losses;
                 const Number sum = total(losses.values);
                 const bool divided = reduction == Reduction::mean && !losses.values.empty();
                 return Array{{}, {divided ? sum / Number(double(losses.values.size())) : sum}};
               },
           .elementwise = reduction == Reduction::none};  // the values are checked for their range
  const auto sample = [&](const Shape& shape) {
    return Sample{{shape, domain}, {shape, Domain::probability}};
  };
  for (const Shape& shape : {Shape{}, Shape{5}, Shape{3, 4}, Shape{2, 3, 5}, Shape{0, 3}})
    op.samples.push_back(sample(shape));
  op.large = sample({300, 101});
  op.errors = {{[=] { call(ones({2}), ones({3}), reduction); },
                "] f32 [2] for target f32 [3]; both must have one shape"},
               {[=] { call(arange(3), arange(3), reduction); }, "] i64 [3] for"}};
  return op;
}

Number distance(const Number& x, const Number& t) { return abs(x - t); }
Number huber(const Number& x, const Number& t) {
  const Number d = x - t;
  return std::fabs(d.value) <= 0.5 ? Number(0.5) * (d * d) : Number(0.5) * (abs(d) - Number(0.25));
}
Number divergence(const Number& q, const Number& t) { return t * (log(t) - q); }
Number log_divergence(const Number& q, const Number& t) { return exp(t) * (t - q); }
Number squared_distance(const Number& x, const Number& t) { return (x - t) * (x - t); }
Number two_class_loss(const Number& p, const Number& t) {
  return -(t * log(p) + (Number(1) - t) * log(Number(1) - p));
}
Number two_class_logit_loss(const Number& x, const Number& t) {
  return t * softplus(-x) + (Number(1) - t) * softplus(x);
}

}  // namespace

void add_loss_ops(std::vector<Op>& table) {
  table.push_back(cross_entropy_op("mean", {}));
  table.push_back(cross_entropy_op("sum", {.reduction = Reduction::sum}));
  table.push_back(cross_entropy_op("none", {.reduction = Reduction::none}));
  table.push_back(cross_entropy_op("ignoring 0", {.ignore_index = 0}));
  table.push_back(
      cross_entropy_op("smoothed", {.label_smoothing = 0.1, .reduction = Reduction::none}));
  table.push_back(
      cross_entropy_op("smoothed, ignoring 1, mean", {.ignore_index = 1, .label_smoothing = 0.3}));
  table.push_back(weighted_cross_entropy_op("mean", {}));
  table.push_back(weighted_cross_entropy_op("none", {.reduction = Reduction::none}));
  table.push_back(weighted_cross_entropy_op("smoothed, ignoring 1",
                                            {.ignore_index = 1, .label_smoothing = 0.25}));
  table.push_back(linear_cross_entropy_op("mean", {}));
  table.push_back(linear_cross_entropy_op(
      "sum, smoothed, ignoring 1",
      {.ignore_index = 1, .label_smoothing = 0.1, .reduction = Reduction::sum}));
  table.push_back(linear_cross_entropy_op(
      "none, capped", {.reduction = Reduction::none, .logit_scale = 0.5, .soft_cap = 2}));
  table.push_back(soft_cross_entropy_op("mean", false, {}));
  table.push_back(soft_cross_entropy_op("none", true, {.reduction = Reduction::none}));
  table.push_back(soft_cross_entropy_op("smoothed, sum", true,
                                        {.label_smoothing = 0.25, .reduction = Reduction::sum}));
  table.push_back(nll_op("mean", {}));
  table.push_back(nll_op("sum, ignoring 1", {.ignore_index = 1, .reduction = Reduction::sum}));
  table.push_back(nll_op("none, ignoring 0", {.ignore_index = 0, .reduction = Reduction::none}));
  for (const Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
    table.push_back(weighted_nll_op(reduction));
    table.push_back(pair_loss_op("l1_loss", Domain::any, l1_loss, distance, reduction));
    table.push_back(pair_loss_op(
        "huber_loss", Domain::any,
        [](const Tensor& x, const Tensor& t, Reduction r) {
          return huber_loss(x, t, {.delta = 0.5, .reduction = r});
        },
        huber, reduction));
    table.push_back(pair_loss_op(
        "kl_div", Domain::any,
        [](const Tensor& q, const Tensor& t, Reduction r) {
          return kl_div(q, t, {.reduction = r});
        },
        divergence, reduction));
    table.push_back(pair_loss_op(
        "kl_div of logarithms", Domain::any,
        [](const Tensor& q, const Tensor& t, Reduction r) {
          return kl_div(q, t, {.log_target = true, .reduction = r});
        },
        log_divergence, reduction));
    table.push_back(pair_loss_op("mse_loss", Domain::any, mse_loss, squared_distance, reduction));
    table.push_back(pair_loss_op("binary_cross_entropy", Domain::probability, binary_cross_entropy,
                                 two_class_loss, reduction));
    table.push_back(pair_loss_op("binary_cross_entropy_with_logits", Domain::any,
                                 binary_cross_entropy_with_logits, two_class_logit_loss,
                                 reduction));
  }
}

}  // namespace stretto::testing
