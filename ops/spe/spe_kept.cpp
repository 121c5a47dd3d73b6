// Cached codes: computed once, and used by several calls of spe(), with one backward closure for
// all of them. The inputs of the code pass through one node of the tape, "spe_kept", and the calls
// depend on the outputs of this node. The node is older than every call, so the engine visits it
// after the backward closures of all calls. These closures store their operands in `pending`.
#include <unordered_set>

#include "autograd/tape.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/loops.h"
#include "ops/matmul.h"
#include "ops/spe/spe_fused.h"

namespace stretto {
namespace {

struct KeptSource : SpeSource {
  struct Pending {
    uint64_t pass;
    SpeCall call;
  };

  KeptSource(std::shared_ptr<const SpeSource> from, SpeSpan span)
      : SpeSource({from->heads, from->d, from->realizations, from->segment, from->dims, span,
                   str("the cached code has positions ", span.p0, " to ", span.p1 - 1)},
                  from->parameter),
        base(std::move(from)) {}
  template <class T>
  void make(const Tensors& plain);
  // The rows of one head and dimension, index h·D + d, from position p0 on.
  template <class T>
  T* kept_rows(Side side, int64_t index, int64_t p0) const {
    return kept[int(side)].data<T>() + (index * reach.size() + p0 - reach.p0) * realizations;
  }

  Tensors inputs(DType) const override { return behind_node; }
  Tensor codes(const Tensors& in, Side side, int64_t p0, int64_t n) const override {
    return base->codes(in, side, p0, n);
  }
  Tensor lags(int64_t n) const override { return base->lags(n); }
  AnySpeRows rows(const Tensors& in, const Tensors& gradients) const override;
  bool keeps(int64_t positions) const override { return base->keeps(positions); }
  bool on_cuda(DType dtype) const override { return base->on_cuda(dtype); }
  void forward_on_cuda(const Tensors& inputs, const SpeCall& call) const override;
  void backward_on_cuda(const Tensors& inputs, const SpeCall& call,
                        const Tensors& gradients) const override {
    base->backward_on_cuda(inputs, call, gradients);
  }
  bool takes(const SpeCall& call, uint64_t pass) const override {
    if (parameter.device().is_cuda()) return false;
    const SpeOperand &q = call.sides[0], &k = call.sides[1];
    pending->push_back({pass, {{{q.x, q.at, q.y}, {k.x, k.at, k.y}}, call.factors}});
    return true;
  }

  const std::shared_ptr<const SpeSource> base;
  Tensor kept[2];  // [H, D, positions, R]; undefined if CUDA computes the code again instead
  Tensors behind_node;
  const std::shared_ptr<std::vector<Pending>> pending = std::make_shared<std::vector<Pending>>();
};

template <class T>
class KeptRows : public SpeRows<T> {
 public:
  KeptRows(const KeptSource& s, const Tensors&, const Tensors&) : s_(s) {}
  void prepare(int64_t h, int64_t d, SpeSpan) override { index_ = h * s_.d + d; }
  const T* rows(Side side, SpeSpan span) override { return s_.kept_rows<T>(side, index_, span.p0); }
  void add_gradient(Side, SpeSpan, const T*) override {}
  void finish_gradient() override {}

 private:
  const KeptSource& s_;
  int64_t index_ = 0;
};

AnySpeRows KeptSource::rows(const Tensors& in, const Tensors& gradients) const {
  return rows_of<KeptRows>(*this, in, gradients);
}

void KeptSource::forward_on_cuda(const Tensors& inputs, const SpeCall& call) const {
  if (!kept[0].defined()) return base->forward_on_cuda(inputs, call);
  for (const Side side : both_sides) {
    const SpeOperand& o = call.sides[int(side)];
    if (!o.y.defined()) continue;
    const Tensor x = o.x.to(f32), &a = call.factors;
    const Tensor code = kept[int(side)].slice(2, o.at - reach.p0, o.span().p1 - reach.p0);
    const Tensor y = spe_encoded(a.defined() ? x * a.reshape({heads, 1, base->d}) : x, code);
    Tensor to = o.y;
    to.copy_(call.rows.defined() ? y + matmul(x, call.rows) : y);
  }
}

template <class T>
void KeptSource::make(const Tensors& plain) {
  for (Tensor& rows : kept)
    rows = empty({heads, d, reach.size(), realizations}, {.dtype = dtype_of<T>(), .device = cpu});
  parallel_for(heads * d, 1, [&](int64_t begin, int64_t end) {
    const auto rows = std::get<SpeRowsPtr<T>>(base->rows(plain, {}));
    for (int64_t i = begin; i < end; ++i)
      for (int64_t p0 = base->begin(reach.p0); p0 < reach.p1; p0 += base->segment) {
        const SpeSpan span = SpeSpan{p0, p0 + base->segment} & reach;
        rows->prepare(i / d, i % d, span);
        for (const Side side : both_sides)
          std::copy_n(rows->rows(side, span), span.size() * realizations,
                      kept_rows<T>(side, i, span.p0));
      }
  });
}

// True if x was computed from outputs of `node`. Searches only nodes created after `node`, which
// have higher numbers.
bool comes_from(const Tensor& x, const Node* node) {
  std::unordered_set<const Node*> seen;
  std::vector<const Node*> left;
  const auto visit = [&](const std::shared_ptr<TapeEntry>& entry) {
    const Node* from = entry ? entry->node.get() : nullptr;
    if (from && from->number >= node->number && seen.insert(from).second) left.push_back(from);
  };
  visit(x.tape());
  while (!left.empty()) {
    const Node* const at = left.back();
    left.pop_back();
    if (at == node) return true;
    for (const auto& entry : at->inputs) visit(entry);
  }
  return false;
}

}  // namespace

bool SpeCode::keeps_for(const Tensor& x) const {
  const auto* kept = dynamic_cast<const KeptSource*>(source().get());
  if (!kept) return true;
  for (const Tensor& behind : kept->behind_node)
    if (behind.tape() && behind.tape()->node) return comes_from(x, behind.tape()->node.get());
  return true;
}

SpeCode SpeCode::kept(int64_t length, int64_t first) const {
  constexpr const char* op = "SpeCode::kept";
  check(length >= 0, op, "length is ", length, "; must be 0 or more");
  check(first >= 0, op, "first is ", first, "; must be 0 or more");
  const auto* already = dynamic_cast<const KeptSource*>(source().get());
  const std::shared_ptr<const SpeSource> base = already ? already->base : source();
  const SpeSpan span{first, first + length};
  base->check_reach(op, span);
  const auto code = std::make_shared<KeptSource>(base, span);
  const Tensors inputs = base->inputs(base->own_dtype()), plain = plain_tensors(inputs);
  if (base->parameter.device().is_cuda()) {
    code->behind_node = inputs;
    if (base->on_cuda(base->own_dtype()) && base->keeps(length))
      for (const Side side : both_sides)
        code->kept[int(side)] = base->codes(plain, side, first, length).contiguous();
    return SpeCode(code);
  }
  base->own_dtype() == f64 ? code->make<double>(plain) : code->make<float>(plain);

  const std::vector<Saved> saved(inputs.begin(), inputs.end());
  const auto backward = [base, saved, pending = code->pending](Backward& b) {
    // The calls of this backward pass; other calls are of backward passes that threw.
    std::vector<SpeCall> calls;
    for (KeptSource::Pending& left : *pending)
      if (left.pass == b.pass()) calls.push_back(std::move(left.call));
    pending->clear();
    const Tensors again = plain_tensors(values_of(saved));
    Tensors gradients = zeros_of(again);
    spe_backward(*base, again, calls, gradients);
    for (size_t i = 0; i < gradients.size(); ++i) gradients[i] = gradients[i] + b.grad(i);
    return gradients;
  };
  Tensors behind;
  for (const Tensor& x : inputs) behind.push_back(x.detach());
  // Gradients: those of the parameters, from dC = Σ a x g over all calls that used the code.
  code->behind_node = record("spe_kept", inputs, behind, backward);
  return SpeCode(code);
}

}  // namespace stretto
