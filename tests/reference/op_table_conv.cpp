// Convolutions, pooling, interpolation, normalization of channels [ops/conv/, ops/channel_norm.h].
#include "ops/channel_norm.h"
#include "ops/conv/conv.h"
#include "ops/conv/interpolate.h"
#include "ops/conv/pool.h"
#include "ops/create.h"
#include "ops/similarity.h"
#include "tests/reference/channel_norm.h"
#include "tests/reference/convolution.h"
#include "tests/support/op_table.h"

namespace stretto::testing {
namespace {

Array with_shape(const Array& x, const Shape& shape) { return {shape, x.values}; }

// [.., L] as [.., 1, L] and back.
Array with_height(const Array& x) {
  Shape shape = x.shape;
  shape.insert(shape.dim() - 1, 1);
  return with_shape(x, shape);
}
Array without_height(const Array& x) {
  Shape shape = x.shape;
  shape.erase(shape.dim() - 2);
  return with_shape(x, shape);
}

Op conv2d_op(const std::string& name, Conv2dOptions o, bool bias,
             const std::vector<Sample>& samples, const Sample& large) {
  return {.name = "conv2d " + name,
          .call = [=](const Tensors& x) { return conv2d(x[0], x[1], bias ? x[2] : Tensor(), o); },
          .reference =
              [=](const Arrays& x) {
                return reference::convolution(x[0], x[1], bias ? &x[2] : nullptr, o);
              },
          .samples = samples,
          .large = large};
}

Op conv1d_op(const std::string& name, Conv1dOptions o, bool bias,
             const std::vector<Sample>& samples, const Sample& large) {
  return {.name = "conv1d " + name,
          .call = [=](const Tensors& x) { return conv1d(x[0], x[1], bias ? x[2] : Tensor(), o); },
          .reference =
              [=](const Arrays& x) {
                return without_height(reference::convolution(with_height(x[0]), with_height(x[1]),
                                                             bias ? &x[2] : nullptr,
                                                             {.stride = {1, o.stride},
                                                              .padding = {0, o.padding},
                                                              .dilation = {1, o.dilation},
                                                              .groups = o.groups}));
              },
          .samples = samples,
          .large = large};
}

void add_convolutions(std::vector<Op>& table) {
  table.push_back(conv1d_op("", {}, false,
                            {{{{2, 3, 7}}, {{4, 3, 3}}},
                             {{{1, 2, 3}}, {{2, 2, 3}}},
                             {{{1, 2, 4}}, {{1, 2, 1}}},
                             {{{0, 3, 7}}, {{4, 3, 3}}},
                             {{{1, 0, 4}}, {{2, 0, 2}}},
                             {{{1, 2, 4}}, {{0, 2, 2}}}},
                            {{{3, 5, 301}}, {{9, 5, 4}}}));
  table.push_back(conv1d_op("1 × 1, bias", {}, true,
                            {{{{2, 3, 5}}, {{4, 3, 1}}, {{4}}}, {{{0, 3, 5}}, {{4, 3, 1}}, {{4}}}},
                            {{{2, 17, 300}}, {{11, 17, 1}}, {{11}}}));
  table.push_back(conv1d_op("stride 2, padding, bias", {.stride = 2, .padding = 1}, true,
                            {{{{2, 3, 7}}, {{4, 3, 3}}, {{4}}},
                             {{{1, 2, 1}}, {{2, 2, 3}}, {{2}}},
                             {{{1, 0, 4}}, {{2, 0, 2}}, {{2}}}},
                            {{{2, 5, 401}}, {{9, 5, 3}}, {{9}}}));
  table.push_back(conv1d_op("depthwise", {.padding = 3, .groups = 3}, true,
                            {{{{1, 3, 3}}, {{3, 1, 4}}, {{3}}}, {{{2, 3, 90}}, {{3, 1, 7}}, {{3}}}},
                            {{{2, 3, 1000}}, {{3, 1, 7}}, {{3}}}));
  table.push_back(conv1d_op(
      "depthwise, more padding than the kernel", {.padding = 4, .dilation = 2, .groups = 2}, false,
      {{{{1, 2, 5}}, {{2, 1, 2}}}, {{{2, 2, 0}}, {{2, 1, 2}}}}, {{{9, 2, 500}}, {{2, 1, 2}}}));
  table.push_back(conv2d_op("", {}, true,
                            {{{{1, 2, 4, 3}}, {{2, 2, 2, 2}}, {{2}}},
                             {{{2, 3, 5, 9}}, {{5, 3, 3, 2}}, {{5}}},
                             {{{2, 2, 3, 2}}, {{3, 2, 1, 1}}, {{3}}},
                             {{{2, 0, 3, 2}}, {{3, 0, 1, 1}}, {{3}}}},
                            {{{2, 3, 25, 31}}, {{9, 3, 3, 3}}, {{9}}}));
  table.push_back(conv2d_op("patches", {.stride = 2}, false,
                            {{{{1, 1, 3, 4}}, {{2, 1, 2, 2}}}, {{{2, 3, 7, 5}}, {{4, 3, 2, 2}}}},
                            {{{3, 3, 32, 32}}, {{17, 3, 2, 2}}}));
  table.push_back(
      conv2d_op("stride, padding, dilation, groups",
                {.stride = {2, 3}, .padding = {2, 1}, .dilation = {1, 2}, .groups = 2}, true,
                {{{{1, 2, 2, 4}}, {{2, 1, 3, 2}}, {{2}}}, {{{2, 4, 6, 9}}, {{6, 2, 3, 3}}, {{6}}}},
                {{{2, 6, 41, 43}}, {{4, 3, 3, 2}}, {{4}}}));
  table.push_back(
      conv2d_op("depthwise", {.padding = {1, 2}, .dilation = {1, 2}, .groups = 3}, true,
                {{{{1, 3, 2, 2}}, {{3, 1, 2, 2}}, {{3}}}, {{{2, 3, 9, 11}}, {{3, 1, 3, 3}}, {{3}}}},
                {{{2, 3, 25, 23}}, {{3, 1, 3, 3}}, {{3}}}));
  table.back().tight = "gradients of the input are summed in the opposite order";
  table.push_back(conv2d_op("depthwise, stride 2", {.stride = 2, .padding = 1, .groups = 2}, false,
                            {{{{1, 2, 2, 2}}, {{2, 1, 3, 3}}}, {{{2, 2, 7, 6}}, {{2, 1, 3, 3}}}},
                            {{{2, 2, 45, 43}}, {{2, 1, 3, 3}}}));
  table.back().errors = {
      {[] {
         conv2d(ones({2, 3, 4}), ones({1, 3, 2, 2}));
       },
       "[conv2d] x f32 [2, 3, 4], weight f32 [1, 3, 2, 2]; x must be [N, C, H, W] and weight [O, C "
       "/ groups, KH, KW], of one floating-point dtype"},
      {[] {
         conv1d(ones({2, 3, 4}), ones({1, 3, 2}, {.dtype = f64}));
       },
       "[conv1d] x f32 [2, 3, 4], weight f64 [1, 3, 2]; x must be [N, C, L] and weight [O, C / "
       "groups, K], of one floating-point dtype"},
      {[] {
         conv1d(ones({2, 3, 4}), ones({4, 2, 2}));
       },
       "[conv1d] x f32 [2, 3, 4], weight f32 [4, 2, 2], groups 1; x must be"},
      {[] {
         conv1d(ones({2, 4, 4}), ones({3, 2, 2}), {}, {.groups = 2});
       },
       "groups 2; x must be [N, C, L] and weight [O, C / groups, K], and groups must divide O"},
      {[] {
         conv1d(ones({2, 3, 4}), ones({4, 3, 2}), ones({3}));
       },
       "[conv1d] bias f32 [3] for weight f32 [4, 3, 2]; it must be [O] of the same dtype"},
      {[] {
         conv1d(ones({2, 3, 4}), ones({4, 3, 3}), {}, {.dilation = 2});
       },
       "[conv1d] a kernel of size 3 with dilation 2 for an input of size 4 with padding 0; the "
       "kernel must fit into it"},
      {[] {
         conv1d(ones({2, 3, 4}), ones({4, 3, 0}));
       },
       "[conv1d] a kernel of size 0"},
      {[] {
         conv2d(ones({2, 3, 4, 4}), ones({4, 3, 2, 2}), {}, {.stride = {1, 0}});
       },
       "[conv2d] stride 0, padding 0, dilation 1; stride and dilation must be at least 1, padding "
       "at least 0"},
      {[] {
         conv2d(ones({1, 1, 4, 4}), ones({1, 1, 2, 2}), {}, {.padding = INT64_MAX / 2});
       },
       "[conv2d] stride 1, padding 4611686018427387903, dilation 1; too large"}};
}

Op avg_pool_op(int64_t spatial, Size2d kernel, Size2d stride, Size2d padding, bool all) {
  const AvgPoolOptions o{.stride = stride, .padding = padding, .count_include_pad = all};
  Op op = {.name = str("avg_pool", int(spatial), "d", all ? "" : " without padding"),
           .call =
               [=](const Tensors& x) {
                 return spatial == 1 ? avg_pool1d(x[0], kernel.width, o)
                                     : avg_pool2d(x[0], kernel, o);
               },
           .reference =
               [=](const Arrays& x) {
                 if (spatial == 2)
                   return reference::average_pool(x[0], kernel, stride, padding, all);
                 return without_height(
                     reference::average_pool(with_height(x[0]), kernel, stride, padding, all));
               }};
  if (spatial == 1) {
    op.samples = {{{{2, 3, 4}}}, {{{1, 2, 29}}}, {{{0, 2, 7}}}};
    op.large = {{{7, 9, 1001}}};
  } else {
    op.samples = {{{{1, 2, 4, 3}}}, {{{2, 3, 11, 8}}}, {{{2, 0, 7, 7}}}};
    op.large = {{{3, 5, 45, 47}}};
  }
  return op;
}

Op max_pool_op(int64_t spatial, Size2d kernel, Size2d stride, Size2d padding, Size2d dilation) {
  const MaxPoolOptions o{.stride = stride, .padding = padding, .dilation = dilation};
  Op op = {.name = str("max_pool", int(spatial), "d"),
           .call =
               [=](const Tensors& x) {
                 return spatial == 1 ? max_pool1d(x[0], kernel.width, o)
                                     : max_pool2d(x[0], kernel, o);
               },
           .reference =
               [=](const Arrays& x) {
                 if (spatial == 2)
                   return reference::max_pool(x[0], kernel, stride, padding, dilation);
                 return without_height(
                     reference::max_pool(with_height(x[0]), kernel, stride, padding, dilation));
               }};
  if (spatial == 1) {
    op.samples = {{{{2, 3, 4}}}, {{{1, 2, 29}}}, {{{0, 2, 7}}}};
    op.large = {{{7, 9, 1001}}};
  } else {
    op.samples = {{{{1, 2, 4, 3}}}, {{{2, 3, 11, 8}}}, {{{2, 0, 7, 7}}}};
    op.large = {{{3, 5, 45, 47}}};
  }
  return op;
}

void add_pools(std::vector<Op>& table) {
  table.push_back(avg_pool_op(1, {1, 3}, {1, 2}, {0, 1}, true));
  table.push_back(avg_pool_op(1, {1, 2}, 1, {0, 1}, false));
  table.push_back(avg_pool_op(2, 2, {1, 2}, 0, true));
  table.push_back(avg_pool_op(2, {3, 2}, {2, 1}, {1, 0}, false));
  table.push_back(max_pool_op(1, {1, 3}, {1, 2}, {0, 1}, 1));
  table.push_back(max_pool_op(2, {3, 2}, {2, 1}, {1, 0}, {1, 2}));
  table.back().errors = {
      {[] {
         max_pool2d(ones({2, 3, 4}), 2);
       },
       "[max_pool2d] x f32 [2, 3, 4]; must be a floating-point tensor [N, C, H, W]"},
      {[] { avg_pool1d(arange(3), 2); },
       "[avg_pool1d] x i64 [3]; must be a floating-point tensor [N, C, L]"},
      {[] {
         avg_pool1d(ones({1, 1, 4}), 3, {.padding = 2});
       },
       "[avg_pool1d] padding 2 for a kernel of size 3; accepted: 0 to half of the kernel"},
      {[] {
         avg_pool2d(ones({1, 1, 4, 4}), 2, {.stride = {1, -1}});
       },
       "[avg_pool2d] kernel 2, stride -1, dilation 1; must be at least 1"},
      {[] {
         max_pool1d(ones({1, 1, 4}), 3, {.dilation = 2});
       },
       "[max_pool1d] a kernel of size 3 with dilation 2 for an input of size 4 with padding 0; the "
       "kernel must fit into it"},
      {[] {
         max_pool1d(ones({1, 1, 1}), 2, {.padding = 1, .dilation = 2});
       },
       "[max_pool1d] the window at position -1 of an input of size 1 has no element of it; use "
       "less "
       "padding or dilation"}};
}

Op interpolate_op(const std::string& name, int64_t spatial, Size2d size, InterpolateOptions o) {
  Op op = {.name = "interpolate " + name,
           .call =
               [=](const Tensors& x) {
                 return interpolate(
                     x[0], spatial == 1 ? Shape{size.width} : Shape{size.height, size.width}, o);
               },
           .reference =
               [=](const Arrays& x) {
                 if (spatial == 2) return reference::interpolated(x[0], size, o);
                 return without_height(reference::interpolated(with_height(x[0]), size, o));
               }};
  if (spatial == 1) {
    op.samples = {{{{2, 3, 4}}}, {{{1, 2, 1}}}, {{{1, 2, 17}}}, {{{0, 2, 7}}}};
    op.large = {{{40, 90, 31}}};
  } else {
    op.samples = {{{{1, 2, 4, 3}}}, {{{2, 3, 11, 8}}}, {{{1, 1, 1, 5}}}, {{{2, 0, 7, 7}}}};
    op.large = {{{30, 50, 9, 11}}};
  }
  return op;
}

void add_interpolations(std::vector<Op>& table) {
  using Mode = InterpolateMode;
  table.push_back(interpolate_op("nearest 1-d", 1, {1, 7}, {}));
  table.push_back(interpolate_op("nearest 2-d", 2, {5, 6}, {}));
  table.push_back(interpolate_op("linear 1-d", 1, {1, 7}, {.mode = Mode::linear}));
  table.push_back(interpolate_op("linear 2-d", 2, {5, 4}, {.mode = Mode::linear}));
  table.push_back(interpolate_op("linear 2-d, aligned corners", 2, {1, 5},
                                 {.mode = Mode::linear, .align_corners = true}));
  table.back().errors = {
      {[] {
         interpolate(ones({2, 3}), {2});
       },
       "[interpolate] x f32 [2, 3]; must be a floating-point tensor [N, C, L] or [N, C, H, W]"},
      {[] {
         interpolate(ones({2, 3, 4}), {2, 2});
       },
       "[interpolate] sizes [2, 2] for x f32 [2, 3, 4]; must be one for each spatial dimension"},
      {[] {
         interpolate(ones({2, 3, 4}), {0});
       },
       "[interpolate] sizes [0] for x f32 [2, 3, 4]; must be at least 1"},
      {[] {
         interpolate(ones({2, 3, 4}), {2}, {.align_corners = true});
       },
       "[interpolate] align_corners for InterpolateMode::nearest; it needs "
       "InterpolateMode::linear"}};
}

// Group norm, or batch norm in training if `groups` is 0.
Op channel_norm_op(const std::string& name, int64_t groups, bool weight, bool bias) {
  Op op = {.name = name,
           .call =
               [=](const Tensors& x) {
                 const Tensor w = weight ? x[1] : Tensor(), b = bias ? x.back() : Tensor();
                 return groups > 0 ? group_norm(x[0], groups, w, b)
                                   : batch_norm(x[0], {}, {}, w, b, {.training = true});
               },
           .reference =
               [=](const Arrays& x) {
                 const Array *w = weight ? &x[1] : nullptr, *b = bias ? &x.back() : nullptr;
                 return groups > 0 ? reference::group_norm(x[0], groups, w, b, 1e-5)
                                   : reference::batch_norm(x[0], w, b, 1e-5);
               }};
  const auto sample = [&](const Shape& x) {
    Sample s = {{x}};
    if (weight) s.push_back({{x[1]}});
    if (bias) s.push_back({{x[1]}});
    return s;
  };
  for (const Shape& x : {Shape{2, 4}, Shape{3, 2, 2}, Shape{5, 4, 7}, Shape{2, 6, 3, 4}})
    op.samples.push_back(sample(x));
  if (groups > 0) op.samples.push_back(sample({0, 4, 3}));
  op.large = sample({7, 6, 31, 33});
  return op;
}

// batch_norm() in evaluation.
Op running_batch_norm_op() {
  const auto statistic = [](int64_t c, bool variance) {  // exact in every dtype
    return (variance ? 0.5 : -0.25) + 0.25 * double(c % 3);
  };
  const auto running = [=](const Tensor& x, bool variance) {
    std::vector<double> v;
    for (int64_t c = 0; c < x.size(1); ++c) v.push_back(statistic(c, variance));
    return tensor(v, {x.size(1)}, cpu).to(compute_type(x.dtype())).to(x.device());
  };
  Op op = {.name = "batch_norm, running statistics",
           .call =
               [=](const Tensors& x) {
                 return batch_norm(x[0], running(x[0], false), running(x[0], true), x[1], x[2]);
               },
           .reference =
               [=](const Arrays& x) {
                 return build(x[0].shape, [&](const Shape& at) {
                   const Number d = x[0].at(at) - Number(statistic(at[1], false));
                   const Number scale = rsqrt(Number(statistic(at[1], true)) + Number(1e-5));
                   return d * scale * x[1].at({at[1]}) + x[2].at({at[1]});
                 });
               },
           .samples = {{{{2, 3}}, {{3}}, {{3}}},
                       {{{2, 4, 7}}, {{4}}, {{4}}},
                       {{{0, 4, 7}}, {{4}}, {{4}}}},
           .large = {{{7, 6, 31, 33}}, {{6}}, {{6}}}};
  op.errors = {
      {[] {
         group_norm(ones({2, 4, 3}), 3);
       },
       "[group_norm] 3 groups of the channels of f32 [2, 4, 3]; the number must divide C"},
      {[] { group_norm(ones({4}), 2); },
       "[group_norm] got f32 [4]; accepted: a floating-point tensor [N, C, ..]"},
      {[] {
         group_norm(ones({2, 4, 3}), 2, ones({3}));
       },
       "[group_norm] weight or bias f32 [3] for x f32 [2, 4, 3]; it must be [C] of the same dtype"},
      {[] {
         batch_norm(ones({2, 4}), {}, {});
       },
       "[batch_norm] running statistics are undefined; evaluation needs running_mean and "
       "running_var"},
      {[] {
         batch_norm(ones({2, 4}), ones({3}), ones({4}));
       },
       "[batch_norm] running statistics f32 [3] for x f32 [2, 4]; must be f32 [C]"},
      {[] {
         batch_norm(ones({1, 4}), {}, {}, {}, {}, {.training = true});
       },
       "[batch_norm] x f32 [1, 4] has 1 value per channel; training needs at least 2"},
      {[] {
         batch_norm(ones({2, 4}), {}, {}, {}, {}, {.training = true, .momentum = 2});
       },
       "[batch_norm] momentum 2; accepted: 0 to 1"}};
  return op;
}

Op cosine_similarity_op(int64_t d) {
  Op op = {.name = str("cosine_similarity along ", int(d)),
           .call = [=](const Tensors& x) { return cosine_similarity(x[0], x[1], d); },
           .reference =
               [=](const Arrays& x) {
                 const Shape shape = broadcast_of(x[0].shape, x[1].shape);
                 return reduced(build(with_entry(shape, d, 1),
                                      [&](Shape at) {
                                        Number ab, aa, bb;
                                        for (at[d] = 0; at[d] < shape[d]; ++at[d]) {
                                          const Number &a = x[0].at(at), &b = x[1].at(at);
                                          ab = ab + a * b, aa = aa + a * a, bb = bb + b * b;
                                        }
                                        return ab * rsqrt(aa) * rsqrt(bb);
                                      }),
                                {d}, false, [](const std::vector<Number>& v) { return v[0]; });
               },
           .samples = {{{{2, 3}}, {{2, 3}}}, {{{4, 1, 5}}, {{3, 5}}}, {{{2, 17, 3}}, {{17, 1}}}},
           .large = {{{90, 70, 11}}, {{90, 70, 11}}}};
  op.errors = {
      {[] {
         cosine_similarity(ones({2, 3}), ones({2, 3}, {.dtype = f64}));
       },
       "[cosine_similarity] a f32 [2, 3], b f64 [2, 3]; both must have one floating-point"},
      {[] {
         cosine_similarity(ones({2, 3}), ones({2, 3}), 1, 0);
       },
       "[cosine_similarity] eps 0; must be positive"}};
  return op;
}

}  // namespace

void add_conv_ops(std::vector<Op>& table) {
  add_convolutions(table);
  add_pools(table);
  add_interpolations(table);
  table.push_back(channel_norm_op("group_norm", 2, false, false));
  table.push_back(channel_norm_op("group_norm weight bias", 1, true, true));
  table.push_back(channel_norm_op("batch_norm", 0, false, false));
  table.push_back(channel_norm_op("batch_norm weight bias", 0, true, true));
  table.push_back(running_batch_norm_op());
  table.push_back(cosine_similarity_op(1));
}

}  // namespace stretto::testing
