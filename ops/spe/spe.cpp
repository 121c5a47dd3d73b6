// Stochastic positional encoding: argument checks, the composed implementation as in the paper, and
// the recorded op of the fused implementation.
#include "ops/spe/spe.h"

#include "autograd/tape.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/spe/spe_fused.h"

namespace stretto {
namespace {

constexpr const char* op = "spe";

// Positions of the first query and of the first key.
struct Places {
  int64_t queries, keys;
};

void check_gate(const Tensor& gate, const SpeNoise& noise, const SpeSource& s) {
  const Shape shape{s.heads, s.d}, draws{s.heads, s.d, s.realizations};
  check(gate.defined() && gate.shape() == shape && is_floating(gate.dtype()), op, "gate ", gate,
        "; must be a floating-point tensor ", shape);
  if (noise.given.defined())
    check(noise.given.shape() == draws && is_floating(noise.given.dtype()), op,
          "noise of the gate ", noise.given, "; must be a floating-point tensor ", draws);
  else
    check(noise.realizations == s.realizations, op,
          "the noise of the gate has R = ", noise.realizations,
          ", but the code has R = ", s.realizations);
}

Places check_arguments(const Tensor& q, const Tensor& k, const SpeSource& s, const SpeOptions& o) {
  check(q.dim() == 4 && k.dim() == 4 && q.size(0) == k.size(0) && q.size(1) == s.heads &&
            k.size(1) == s.heads && q.size(3) == s.d && k.size(3) == s.d,
        op, "q ", q, ", k ", k, "; accepted for this code: q [B, ", s.heads, ", M, ", s.d,
        "], k [B, ", s.heads, ", N, ", s.d, "]");
  check(is_floating(q.dtype()) && q.dtype() == k.dtype(), op, "q ", q, ", k ", k,
        "; both must have one floating-point dtype");
  check_same_device(op, {&q, &k, &s.parameter});
  constexpr int64_t most = int64_t{1} << 40;  // so that sums and products do not overflow
  check(o.first >= 0 && o.first <= most, op, "first is ", o.first, "; must be 0 to ", most);
  const int64_t m = q.size(2), n = k.size(2);
  const Places at{n == 0 ? o.first : o.first + n - m, o.first};
  check(at.queries >= 0, op, m, " queries and ", n, " keys from position ", o.first,
        " on: the first query would have position ", at.queries);
  s.check_reach(op, SpeSpan{at.queries, at.queries + m} | SpeSpan{at.keys, at.keys + n});
  if (o.gate) {
    check_gate(o.gate->gate, o.gate->noise, s);
    check_same_device(op, {&q, &o.gate->gate});
  }
  check(o.implementation != Implementation::fused || q.device().is_cpu() || s.on_cuda(q.dtype()),
        op, "no fused implementation for CUDA tensors; use Implementation::composed");
  return at;
}

// √δ for δ = sigmoid(x), as e^(−softplus(−x)/2), which also has a gradient if δ is 0 or 1.
Tensor root_of_sigmoid(const Tensor& x) { return exp(-0.5 * softplus(-x)); }

// Returns the inputs of the recorded ops: q, k, the gate's √(1−δ) [H, D] and √δ ε (RD)^(−¼)
// [H, D, R], with its noise ε (both undefined without a gate), and the inputs of the code.
Tensors inputs_of(const Tensor& q, const Tensor& k, const SpeSource& s,
                  const std::optional<SpeGate>& o) {
  Tensors all = {q, k, {}, {}};
  if (o) {
    const TensorOptions options{.dtype = compute_type(q.dtype()), .device = q.device()};
    const Tensor gate = o->gate.to(options.dtype), &given = o->noise.given;
    const Tensor noise = given.defined()
                             ? given.to(q.device()).to(options.dtype)
                             : randn({s.heads, s.d, s.realizations}, o->noise.key, options);
    all[2] = root_of_sigmoid(-gate);
    all[3] = root_of_sigmoid(gate).unsqueeze(-1) * noise * s.scale();
  }
  for (const Tensor& x : s.inputs(compute_type(q.dtype()))) all.push_back(x);
  return all;
}
Tensors of_code(const Tensors& inputs) { return {inputs.begin() + 4, inputs.end()}; }

// Encoding with a gate (24, 25). √(1−δ) multiplies the inputs in which the code is linear: all 4-d
// inputs, but not the frequencies [H, D, K]. The term that is the same at every position is a
// separate matrix product. The gate therefore reads and writes no tensor of the code's size.
Tensor gated(const SpeSource& s, Side side, int64_t at, const Tensor& x, const Tensors& inputs) {
  Tensors code = of_code(inputs);
  for (Tensor& part : code)
    if (part.dim() == 4) part = part * inputs[2].reshape({s.heads, s.d, 1, 1});
  return spe_encoded(x, s.codes(code, side, at, x.size(2))) + matmul(x, inputs[3]);
}

Tensor composed(const SpeSource& s, Side side, int64_t at, const Tensors& inputs) {
  const Tensor x = inputs[size_t(side)].to(compute_type(inputs[0].dtype()));
  if (inputs[2].defined() && x.device().is_cuda())
    return gated(s, side, at, x, inputs).to(inputs[0].dtype());
  Tensor codes = s.codes(of_code(inputs), side, at, x.size(2));
  if (inputs[2].defined())  // eqs. 24, 25 of the paper (ops/spe/spe.h)
    codes = inputs[2].reshape({s.heads, s.d, 1, 1}) * codes + inputs[3].unsqueeze(2);
  return spe_encoded(x, codes).to(inputs[0].dtype());
}
Tensors composed(const SpeSource& s, const Places& at, const Tensors& inputs) {
  return {composed(s, Side::query, at.queries, inputs), composed(s, Side::key, at.keys, inputs)};
}

Tensor plain(const Tensor& x) { return x.defined() ? x.detach().contiguous() : x; }

SpeCall call_of(const Places& at, const Tensors& in) {
  return {{{rows_contiguous(in[0]), at.queries}, {rows_contiguous(in[1]), at.keys}},
          plain(in[2]),
          plain(in[3])};
}

// Returns an uninitialized tensor [B, H, n, width].
Tensor like(const Tensor& x, int64_t width) {
  if (x.device().is_cuda() && width != x.size(3))
    return empty({x.size(0), x.size(1), x.size(2), width}, options_of(x));
  if (x.device().is_cuda() && x.is_contiguous()) return empty_like(x);
  return heads_beside(x, x.size(1), x.size(2), width);
}

SpePair fused(const std::shared_ptr<const SpeSource>& s, const Places& at, const Tensors& inputs) {
  SpeCall now = call_of(at, inputs);
  for (SpeOperand& o : now.sides) o.y = like(o.x, s->realizations);
  spe_forward(*s, plain_tensors(of_code(inputs)), now);

  const std::vector<Saved> saved(inputs.begin(), inputs.end());
  const auto differentiate = [=](Backward& b) {
    const Tensors in = values_of(saved);
    if (grad_enabled())
      return composed_gradient(
          b, [&](const Tensors& x) { return composed(*s, at, x); }, in);
    const Tensors code = plain_tensors(of_code(in));
    SpeCall call = call_of(at, in);
    for (const Side side : both_sides)
      call.sides[int(side)].y = rows_contiguous(b.grad(size_t(side)));
    bool parameters = false;
    for (size_t i = 4; i < in.size(); ++i) parameters = parameters || b.needs(i);
    const bool later = parameters && s->takes(call, b.pass());
    const Tensors sums = parameters && !later ? zeros_of(code) : Tensors{};
    Tensors result(4);
    for (const Side side : both_sides) {
      SpeOperand& o = call.sides[int(side)];
      if (b.needs(size_t(side))) result[size_t(side)] = o.dx = like(o.x, s->d);
    }
    if (b.needs(2)) call.d_factors = zeros(in[2].shape(), {.dtype = f64, .device = in[2].device()});
    if (b.needs(3)) result[3] = call.d_rows = zeros_like(in[3]);
    spe_backward(*s, code, {call}, sums);
    if (b.needs(2)) result[2] = call.d_factors.to(in[2].dtype());
    result.insert(result.end(), sums.begin(), sums.end());
    result.resize(in.size());
    if (later) result[4] = zeros_like(code[0]);  // so that backward reaches the node "spe_kept"
    return result;
  };
  // Gradients: dx = a t + g Eᵀ, da = Σ x t, dE = Σ xᵀ g, dC = Σ a x g, t = Σ_r g C.
  const Tensors out = record(op, inputs, {now.sides[0].y, now.sides[1].y}, differentiate);
  // Later ops need not save q̂ and k̂, which have the size of q and k: they are recomputed.
  for (const Side side : both_sides)
    rematerialize(out[size_t(side)], [=] {
      const Tensors in = values_of(saved);
      if (grad_enabled()) return composed(*s, at, in)[size_t(side)];
      SpeCall call = call_of(at, in);
      SpeOperand& o = call.sides[int(side)];
      o.y = like(o.x, s->realizations);
      spe_forward(*s, plain_tensors(of_code(in)), call);
      return o.y;
    });
  return {out[0], out[1]};
}

}  // namespace

// One product [B, D] · [D, R] for each head and position.
Tensor spe_encoded(const Tensor& x, const Tensor& code) {
  return matmul(x.permute({1, 2, 0, 3}), code.transpose(1, 2)).permute({2, 0, 1, 3});
}

SpeNoise::SpeNoise(RandomKey random_key, int64_t r) : key(random_key), realizations(r) {
  check(r >= 1, "SpeNoise", "R = ", r, "; must be at least 1");
}

SpeNoise::SpeNoise(Tensor z) {
  check(z.defined() && is_floating(z.dtype()), "SpeNoise", "got ", z,
        "; must be a floating-point tensor");
  given = z.detach();
}

const std::shared_ptr<const SpeSource>& SpeCode::source() const {
  check(source_ != nullptr, "SpeCode", "the code is empty; make one with SpeCode::sine or conv");
  return source_;
}

int64_t SpeCode::heads() const { return source()->heads; }
int64_t SpeCode::d() const { return source()->d; }
int64_t SpeCode::realizations() const { return source()->realizations; }

SpePair spe(const Tensor& q, const Tensor& k, const SpeCode& code, const SpeOptions& options) {
  const std::shared_ptr<const SpeSource>& s = code.source();
  const Places at = check_arguments(q, k, *s, options);
  const Tensors inputs = inputs_of(q, k, *s, options.gate);
  check(inputs[4].dtype() == compute_type(q.dtype()), op, "the cached code is ", inputs[4].dtype(),
        ", as are its parameters; q ", q, " must have that dtype");
  if (options.implementation != Implementation::composed &&
      (q.device().is_cpu() || s->on_cuda(q.dtype())))
    return fused(s, at, inputs);
  const Tensors codes = composed(*s, at, inputs);
  return {codes[0], codes[1]};
}

Tensor spe_template(const SpeCode& code, int64_t n, const Tensor& gate) {
  const SpeSource& s = *code.source();
  check(n >= 1, "spe_template", "n is ", n, "; must be at least 1");
  const Tensor lags = s.lags(n);
  if (!gate.defined()) return lags;
  const Shape shape{s.heads, s.d};
  check(gate.shape() == shape && is_floating(gate.dtype()), "spe_template", "gate ", gate,
        "; must be a floating-point tensor ", shape);
  const Tensor raw = gate.to(lags.dtype()).unsqueeze(-1);  // eq. 23
  return sigmoid(-raw) * lags + sigmoid(raw);
}

}  // namespace stretto
