#include "tests/cuda/kernel_cases.h"

#include "cuda/activation.h"
#include "cuda/create.h"
#include "cuda/elementwise.h"
#include "cuda/grouped_linear.h"
#include "cuda/indexing.h"
#include "cuda/loss.h"
#include "cuda/norm.h"
#include "cuda/optim.h"
#include "cuda/random.h"
#include "cuda/reduce.h"
#include "cuda/softmax.h"
#include "cuda/sort.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/cuda/kernel_case_list.h"

namespace stretto::testing {
namespace {

namespace em = elementwise;

Tensor ids(const Shape& shape, int64_t below) {
  return cuda::randint(shape, 0, uint64_t(below), RandomKey{17, uint64_t(below)}, gpu);
}

}  // namespace

void KernelCaseList::elementwise() {
  const double n = double(rows) * 2048, d = 512, m = double(rows) * d;
  const Tensor x = noise({rows, 2048}), y = noise({rows, 2048});
  const Tensor s = noise({rows, 512}), bias = noise({512}), factor = noise({rows, 1});
  add("gelu", 2 * n, 0, straight, [=] { cuda::unary(em::Gelu(), x); });
  add("gelu backward", 3 * n, 0, straight, [=] { cuda::chain_rule(em::Gelu(), x, y); });
  add("add", 3 * n, 0, straight, [=] { cuda::binary(em::Add(), x, y); });
  add("add number", 2 * n, 0, straight, [=] { cuda::binary(em::Add(), x, 0.5); });
  add("add bias", 2 * m + processors * d, 0, straight, [=] { cuda::binary(em::Add(), s, bias); });
  add("mul by row", 2 * m + double(rows), 0, straight, [=] { cuda::binary(em::Mul(), s, factor); });
  if (dtype == bf16)
    add("add four", 5 * n, 0, straight, [=] { cuda::add_bf16({x, y, x, y}, empty_like(x)); });
  add("less", 2 * n, n, straight, [=] { lt(x, y); });
  add("less than number", n, n, straight, [=] { lt(x, 0.25); });
  // The transposed operand is copied first.
  add("add transposed", (3 + 2) * m, 0, transposing, [=, t = noise({512, rows})] {
    cuda::binary(em::Add(), s, t.transpose(0, 1));
  }).accesses(lanes());
  const int64_t heads = rows / 8;
  const double scores = double(heads) * 64 * 64;
  const Tensor score = noise({heads, 64, 64});
  const Tensor causal = cuda::above_diagonal(64, 64, 0, gpu);
  const Tensor padding = lt(noise({heads, 1, 64}), 0.0);
  add("mask causally", 2 * scores, processors * 64 * 64, straight,
      [=] { masked_fill(score, causal, -1e9); });
  add("mask padding", 2 * scores, double(heads) * 64, straight,
      [=] { masked_fill(score, padding, -1e9); });
  add("where", 3 * n, n, straight, [=, mask = lt(x, y)] { where(mask, x, y); });
}

void KernelCaseList::copies() {
  const double n = double(rows) * 512, to = dtype == f32 ? 2 : 4;
  const DType other = dtype == f32 ? bf16 : f32;
  const Tensor x = noise({rows, 512}), wide = noise({rows, 1024});
  const Tensor heads = noise({rows / 64, 64, 8, 64});
  add("convert", n, to * n, straight, [=] { x.to(other); });
  add("copy slice", 2 * n, 0, straight, [=] { wide.slice(1, 128, 640).contiguous(); });
  add("split heads", 2 * n, 0, straight, [=] { heads.permute({0, 2, 1, 3}).contiguous(); });
  add("transpose", 2 * n, 0, transposing, [=] {
    x.transpose(0, 1).contiguous();
  }).accesses(lanes());
  add("transpose and convert", n, to * n, transposing, [=] {
    x.transpose(0, 1).to(other).contiguous();
  }).accesses(lanes() * 0.8);
  add("transpose heads", 2 * n, 0, transposing, [=] {
    heads.permute({0, 2, 3, 1}).contiguous();
  }).accesses(lanes());
  add("reverse dimensions", 2 * n, 0, transposing, [=] {
    heads.permute({3, 2, 1, 0}).contiguous();
  }).accesses(lanes());
  add("flip", 2 * n, 0, straight, [=] { flip(x, 1); }).accesses(lanes());
  add("cat columns", 4 * n, 0, straight, [=, y = noise({rows, 512})] { cat({x, y}, 1); });
  add("cat rows", 4 * n, 0, straight, [=, y = noise({rows, 512})] { cat({x, y}, 0); });
  // The output is filled first.
  add("pad rows", 2 * n + (n + 512), 0, straight, [=] { pad(x, 0, 1, 0); });
  add("expand", n + processors * 512, 0, straight, [row = noise({512}), rows = rows] {
    row.expand({rows, 512}).contiguous();
  });
}

void KernelCaseList::reductions() {
  const double n = double(rows) * 512, r = double(rows);
  const Tensor x = noise({rows, 512}), batch = noise({rows / 64, 64, 512});
  const Tensor values = empty({rows}, options_of(x)),
               indices = empty({rows}, {.dtype = i64, .device = gpu});
  add("sum rows", n, sector * r, straight, [=] { cuda::sum(x, {1}, false); });
  add("sum columns", n + 512, 0, straight, [=] { cuda::sum(x, {0}, false); });
  add("sum all", n + 1, 0, straight, [=] { cuda::sum(x, {0, 1}, false); });
  add("sum middle", n + n / 64, 0, straight, [=] { cuda::sum(batch, {1}, false); });
  add("sum transposed", n + 512, 0, straight, [=] { cuda::sum(x.transpose(0, 1), {1}, false); });
  add("sum heads", n + 64 * 8, 0, straight, [=, heads = noise({rows / 64, 8, 64, 64})] {
    cuda::sum(heads, {0, 2}, false);
  });
  add("max", n, 2 * sector * r, straight, [=] { cuda::extremes(x, true, values, indices); });
  add("logsumexp", n, sector * r, straight, [=] { cuda::logsumexp(x, values); });
  add("cumsum", 2 * n, 0, straight, [=] { cuda::cumsum(x, 1); });
  add("cumsum of columns", 2 * n, 0, straight, [=] { cuda::cumsum(batch, 1); }).accesses(lanes());
  for (const int64_t width : {int64_t(512), int64_t(1024), int64_t(8192)}) {
    const int64_t height = rows * 512 / width;
    const Tensor p = noise({height, width}), g = noise({height, width});
    const std::string of = " of " + std::to_string(width);
    add("softmax" + of, 2 * n, 0, straight, [=] { cuda::softmax(p, false); });
    add("log_softmax" + of, 2 * n, 0, straight, [=] { cuda::softmax(p, true); });
    add("softmax backward" + of, 3 * n, 0, straight, [=] { cuda::softmax_backward(p, g, false); });
  }
}

void KernelCaseList::norms() {
  for (const int64_t width : {int64_t(512), int64_t(2048)}) {
    const int64_t height = rows * 512 / width;
    const double n = double(rows) * 512, d = double(width), r = double(height);
    const std::string of = " of " + std::to_string(width);
    const Tensor x = noise({height, width}), g = noise({height, width}), w = noise({width}),
                 b = noise({width}), means = wide({2, height}), scale = wide({height});
    add("layer_norm" + of, 2 * n + processors * 2 * d, 3 * sector * r, straight,
        [=] { cuda::norm(x, w, b, 1e-5, means, scale); });
    add("rms_norm" + of, 2 * n + processors * d, sector * r, straight,
        [=] { cuda::norm(x, w, {}, 1e-5, {}, scale); });
    all.back().run(), cuda::norm(x, w, b, 1e-5, means, scale);
    // Per-block sums of the gradients of weight and bias are written and read again in f32. Two
    // blocks of eight warps fit on a multiprocessor.
    const double parts = 2 * 4 * d * std::min(264.0, r / (width > 1024 ? 1 : 8));
    const cuda::NormSaved saved{x, w, means, scale};
    add("layer_norm backward" + of, 3 * n + processors * d, 12 * r + 2 * parts, straight, [=] {
      cuda::norm_backward(saved, g, {}, true, true);
    }).warps = 16;
    add("layer_norm backward and add" + of, 4 * n + processors * d, 12 * r + 2 * parts, straight,
        [=] { cuda::norm_backward(saved, g, x, true, true); })
        .warps = 16;
    // The branch and its place in the sum are read, the sum is written; backward writes a gradient.
    const Tensor sum = empty_like(x);
    const cuda::ResidualBranch branch{g, sum, 1 << 20, 1.1, {1, 2}};
    add("dropout, add and layer_norm" + of, 4 * n + processors * 2 * d, 3 * sector * r, straight,
        [=] { cuda::norm(x, w, b, 1e-5, means, scale, branch); });
    add("dropout, add and layer_norm backward" + of, 5 * n + processors * d, 12 * r + 2 * parts,
        straight, [=] { cuda::norm_backward(saved, g, x, true, true, branch); })
        .warps = 16;
    add("rms_norm backward" + of, 3 * n + processors * d, 4 * r + parts, straight, [=] {
      cuda::norm_backward({x, w, {}, scale}, g, {}, true, false);
    }).warps = 16;
  }
}

void KernelCaseList::losses() {
  for (const int64_t classes : {int64_t(400), int64_t(32000)}) {
    const int64_t height = std::max<int64_t>(rows * 400 / classes, 4);
    const double n = double(height * classes), r = double(height);
    const std::string of = " of " + std::to_string(classes);
    const Tensor x = noise({height, classes}), targets = ids({height}, classes),
                 totals = wide({height, 2}), g = wide({height});
    g.fill_(1), totals.fill_(1);
    add("cross_entropy" + of, n, (8 + 2 * sector) * r, straight, [=] {
      cuda::cross_entropy(x, targets, -100, 0, totals);
    }).accesses(180);  // 400 bf16 elements are 50 vector loads per row
    add("cross_entropy backward" + of, 2 * n, (8 + 8 + 4) * r, straight,
        [=] { cuda::cross_entropy_backward(x, targets, -100, 0, totals, g); });
  }
}

// Four groups, and as many features as a tile has columns.
void KernelCaseList::grouped_products() {
  const int64_t features = dtype == bf16 ? 128 : 64;
  const Tensor x = noise({rows, features}), g = noise({rows, features}),
               offsets = tensor<int64_t>({0, rows / 4, rows / 2, rows * 3 / 4, rows}, {5}, gpu),
               biases = noise({4, features});
  Tensors w;
  for (int e = 0; e < 4; ++e) w.push_back(noise({features, features}));
  const Tensors b = unbind(biases);
  const double n = double(rows * features), weights = 4 * double(features * features);
  const double access = dtype == bf16 ? 240 : lanes();
  const auto tiles =
      processors * double(features * features);  // of a weight, for each tile of rows
  add("grouped_linear", 2 * n + tiles, 0, straight, [=] {
    cuda::grouped_linear(x, w, b, offsets, false);
  }).accesses(access);
  add("grouped_linear backward", 2 * n + tiles, 0, straight, [=] {
    cuda::grouped_linear(g, w, {}, offsets, true);
  }).accesses(access);
  add("grouped_linear backward of weights", 2 * n + weights, sector * 4 * double(features),
      straight, [=] { cuda::grouped_weight_gradients(g, x, offsets, biases); })
      .accesses(access);
}

void KernelCaseList::indices() {
  const double n = double(rows) * 512, r = double(rows);
  const Tensor table = noise({1, 400, 512}), which = ids({rows}, 400);
  const Tensor g = noise({1, rows, 512}), x = noise({rows, 512});
  add("embedding", 2 * n, 8 * r, straight, [=] { cuda::take(table, which); });
  // First ids are sorted with their positions, about 100 bytes for each. Then each of the 16 strips
  // of columns reads ids and positions, about 8 bytes for each, as ids are searched.
  add("embedding backward", n + 400 * 512, (100 + 16 * 8) * r, straight, [=] {
    cuda::place(g, which, 400);
  }).accesses(lanes());
  // One element per row costs a sector.
  const Tensor picked = ids({rows, 1}, 512);
  constexpr double anywhere = 16;
  add("gather", r, 8 * r + 32 * r, straight, [=] { cuda::gather(x, 1, picked); })
      .loads(anywhere)
      .accesses(lanes());
  // Keys and positions are written and read once more, then elements by position.
  add("sort", 3 * n, (4 + 8 + 8) * n, transposing, [=] { sort(x, 1); })
      .loads(anywhere)
      .accesses(lanes());
}

void KernelCaseList::created() {
  const double n = double(rows) * 2048;
  const Tensor x = noise({rows, 2048}), out = empty_like(x);
  add("fill", n, 0, straight, [x, rows = rows] { full({rows, 2048}, 0.5, options_of(x)); });
  add("rand", n, 0, straight, [=] { cuda::fill_uniform(out, {1, 2}); });
  add("randn", n, 0, straight, [=] { cuda::fill_normal(out, {1, 2}); });
  add("dropout", 2 * n, 0, straight, [=] { cuda::dropout(x, 1 << 20, 1.1, {1, 2}); });
  add("dropout and add", 3 * n, 0, straight, [=, y = noise({rows, 2048})] {
    cuda::dropout(x, 1 << 20, 1.1, {1, 2}, y);
  });
  const Tensor up = noise({rows, 2048}), g = noise({rows, 2048});
  const Activation gelu = Activation::gelu;
  add("gelu and dropout", 2 * n, 0, straight, [=] {
    cuda::activate(x, {}, gelu, 1 << 20, 1.1, {1, 2});
  });
  add("gelu and dropout backward", 3 * n, 0, straight, [=] {
    cuda::activate_backward(x, {}, g, gelu, 1 << 20, 1.1, {1, 2});
  });
  add("gated silu", 3 * n, 0, straight, [=] { cuda::activate(x, up, Activation::silu, 0, 1, {}); });
  add("gated silu backward", 5 * n, 0, straight,
      [=] { cuda::activate_backward(x, up, g, Activation::silu, 0, 1, {}); });
  const Tensors halves = split_into_parts(noise({rows, 2 * 2048}), 1, {2048, 2048});
  add("gated silu of halves", 3 * n, 0, straight,
      [=] { cuda::activate(halves[0], halves[1], Activation::silu, 0, 1, {}); });
  add("gated silu of halves backward", 5 * n, 0, straight,
      [=] { cuda::activate_backward(halves[0], halves[1], g, Activation::silu, 0, 1, {}); });
  if (dtype != f32) return;
  add("randint", 0, 8 * n, straight, [rows = rows] {
    cuda::randint({rows, 2048}, 0, 100, {1, 2}, gpu);
  });
  add("arange", 0, 8 * n, straight,
      [count = rows * 2048] { cuda::line(count, count, 0, 1, 0, gpu); });
  add("mask above the diagonal", 0, n, straight, [rows = rows] {
    cuda::above_diagonal(rows, 2048, 0, gpu);
  }).accesses(32);
}

void KernelCaseList::optimizers() {
  const double n = double(rows) * 512, more = dtype == bf16 ? 8 : 0;  // a master weight
  const Tensor w = noise({rows, 512}), g = noise({rows, 512}), m = wide({rows, 512}),
               v = wide({rows, 512}), norm = full({}, 1e-3, {.dtype = f64, .device = gpu});
  const Tensor master = dtype == bf16 ? w.to(f32) : Tensor();
  m.fill_(0), v.fill_(0);
  add("adamw", 3 * n, (16 + more) * n, straight, [=] {
    const AdamTask task{.weight = w, .gradient = g, .master = master, .m = m, .v = v};
    cuda::adam_steps({&task, 1});
  });
  add("sgd with momentum", 3 * n, (8 + more) * n, straight, [=] {
    const SgdTask task{.weight = w, .gradient = g, .master = master, .momentum = m};
    cuda::sgd_steps({&task, 1});
  });
  add("norm of gradients", n, 0, straight, [=] { cuda::squares({g}); }).accesses(lanes() * 2);
  add("clip", 2 * n, 0, straight, [=] { cuda::clip({g}, norm, 1e-4); });
}

void each_kernel_case(int64_t rows, DType dtype, const std::function<void(const KernelCase&)>& f) {
  KernelCaseList cases{rows, dtype};
  for (const auto family :
       {&KernelCaseList::elementwise, &KernelCaseList::copies, &KernelCaseList::reductions,
        &KernelCaseList::norms, &KernelCaseList::losses, &KernelCaseList::grouped_products,
        &KernelCaseList::indices, &KernelCaseList::created, &KernelCaseList::optimizers,
        &KernelCaseList::transforms, &KernelCaseList::positions, &KernelCaseList::linear_attentions,
        &KernelCaseList::attentions, &KernelCaseList::decoding}) {
    (cases.*family)();
    for (const KernelCase& one : cases.all) f(one);
    cases.all.clear();  // and their tensors
  }
}

void each_long_attention(DType dtype, const std::function<void(const KernelCase&)>& f) {
  KernelCaseList cases{2048, dtype};
  cases.published_attentions();
  for (const KernelCase& one : cases.all) f(one);
}

}  // namespace stretto::testing
