// Stochastic positional encoding: checks, and the composed form as the paper writes it.
#include "ops/spe/spe.h"

#include <cmath>

#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/spe/spe_streamed.h"

namespace stretto {
namespace {

constexpr const char* op = "spe";

// Where queries and keys stand, and from where to where there are any.
struct Places {
  int64_t queries, keys, begin, end;
};

Places places_of(const Tensor& q, const Tensor& k, int64_t first) {
  const int64_t m = q.size(2), n = k.size(2);
  const int64_t query = n == 0 ? first : first + n - m;
  return {query, first, m == 0 ? first : std::min(query, first), std::max(query + m, first + n)};
}

void check_gate(const Tensor& gate, const SpeNoise& noise, const SpeSource& s) {
  const Shape shape{s.heads, s.d}, draws{s.heads, s.d, s.realizations};
  check(gate.defined() && gate.shape() == shape && is_floating(gate.dtype()), op, "gate ", gate,
        "; must be floating ", shape);
  if (noise.given().defined())
    check(noise.given().shape() == draws && is_floating(noise.given().dtype()), op,
          "noise of the gate ", noise.given(), "; must be floating ", draws);
  else
    check(noise.realizations() == s.realizations, op,
          "noise of the gate with R = ", noise.realizations(),
          " for a code with R = ", s.realizations);
}

Places check_arguments(const Tensor& q, const Tensor& k, const SpeCode& code, const SpeOptions& o) {
  const SpeSource& s = SpeAccess::source(code);
  check(q.dim() == 4 && k.dim() == 4 && q.size(0) == k.size(0) && q.size(1) == s.heads &&
            k.size(1) == s.heads && q.size(3) == s.d && k.size(3) == s.d,
        op, "q ", q, ", k ", k, "; accepted for this code: q [B, ", s.heads, ", M, ", s.d,
        "], k [B, ", s.heads, ", N, ", s.d, "]");
  check(is_floating(q.dtype()) && q.dtype() == k.dtype(), op, "q ", q, ", k ", k,
        "; both must have one floating dtype");
  check_same_device(op, {&q, &k, &s.parameter()});
  check(o.first >= 0, op, "first is ", o.first, "; must be 0 or more");
  const Places at = places_of(q, k, o.first);
  check(at.queries >= 0, op, q.size(2), " queries and ", k.size(2), " keys from position ", o.first,
        " on: the first query would stand at position ", at.queries);
  if (const auto& kept = SpeAccess::kept(code))
    check(at.begin >= at.end || (kept->first <= at.begin && at.end <= kept->end()), op,
          "the kept code has positions ", kept->first, " to ", kept->end() - 1, ", the call needs ",
          at.begin, " to ", at.end - 1);
  else
    s.check_reach(op, at.end);
  if (o.gate) {
    check_gate(o.gate->gate, o.gate->noise, s);
    check_same_device(op, {&q, &o.gate->gate});
  }
  check(o.form != SpeForm::streamed || q.device().is_cpu(), op,
        "no streamed form for CUDA tensors; use SpeForm::composed");
  return at;
}

Tensor draws_of(const SpeGate& gate, const SpeSource& s, const Tensor& like) {
  const Tensor& given = gate.noise.given();
  return given.defined()
             ? given.to(like.device()).to(like.dtype())
             : randn({s.heads, s.d, s.realizations}, gate.noise.key(), options_of(like));
}

// √(1−δ) = e^(−softplus(gate)/2) and √δ = e^(−softplus(−gate)/2) have gradients where δ is 0 or 1.
Tensor root_of_sigmoid(const Tensor& x) { return exp(-0.5 * softplus(-x)); }

SpeGateTerms terms_of(const SpeOptions& o, const SpeSource& s, const Tensor& like) {
  if (!o.gate) return {};
  const Tensor gate = o.gate->gate.to(like.dtype());
  return {root_of_sigmoid(-gate),
          root_of_sigmoid(gate).unsqueeze(-1) * draws_of(*o.gate, s, like) * s.scale()};
}

Tensor composed(SpeSide side, const SpeOperand& operand, const SpeCode& code,
                const SpeGateTerms& gate) {
  const SpeSource& s = SpeAccess::source(code);
  const Tensor& x = operand.x;
  const int64_t n = x.size(2);
  const auto& kept = SpeAccess::kept(code);
  Tensor codes =
      kept && !x.device().is_cpu()
          ? kept->codes[int(side)].slice(2, operand.at - kept->first, operand.at - kept->first + n)
          : s.codes(side, operand.at, n, x.dtype());
  if (gate.factors.defined())  // (24, 25)
    codes = gate.factors.reshape({s.heads, s.d, 1, 1}) * codes + gate.rows.unsqueeze(2);
  // (16, 17): a product [B, D] · [D, R] for each head and position.
  return matmul(x.permute({1, 2, 0, 3}), codes.transpose(1, 2)).permute({2, 0, 1, 3});
}

}  // namespace

SpeNoise::SpeNoise(RandomKey key, int64_t realizations) : key_(key), realizations_(realizations) {
  check(realizations >= 1, "SpeNoise", "R = ", realizations, "; must be at least 1");
}

SpeNoise::SpeNoise(Tensor z) : z_(std::move(z)) {
  check(z_.defined() && is_floating(z_.dtype()), "SpeNoise", "got ", z_,
        "; must be a floating tensor");
  z_ = z_.detach();
}

double SpeSource::scale() const { return std::pow(double(realizations) * double(d), -0.25); }

int64_t SpeCode::heads() const { return SpeAccess::source(*this).heads; }
int64_t SpeCode::d() const { return SpeAccess::source(*this).d; }
int64_t SpeCode::realizations() const { return SpeAccess::source(*this).realizations; }

SpeCode SpeCode::kept(int64_t length, double queries, int64_t first) const {
  const SpeSource& s = SpeAccess::source(*this);
  check(length >= 0, "SpeCode::kept", "length is ", length, "; must be 0 or more");
  check(first >= 0, "SpeCode::kept", "first is ", first, "; must be 0 or more");
  check(queries >= 0 && queries <= 1, "SpeCode::kept", "queries is ", queries,
        "; must be a share of heads, 0 to 1");
  s.check_reach("SpeCode::kept", first + length);
  const DType dtype = s.parameter().dtype() == f64 ? f64 : f32;
  if (s.parameter().device().is_cpu()) return keep_on_cpu(*this, first, length, queries, dtype);
  auto codes = std::make_shared<KeptCodes>();
  codes->first = first;
  codes->length = length;
  codes->query_heads = s.heads;
  for (const SpeSide side : spe_sides)
    codes->codes[int(side)] = s.codes(side, first, length, dtype);
  return SpeAccess::make_kept(*this, codes, {});
}

SpePair spe(const Tensor& q, const Tensor& k, const SpeCode& code, const SpeOptions& options) {
  const Places at = check_arguments(q, k, code, options);
  if (q.dtype() == bf16) {
    const SpePair wide = spe(q.to(f32), k.to(f32), code, options);
    return {wide.q.to(bf16), wide.k.to(bf16)};
  }
  const bool streamed = options.form != SpeForm::composed && q.device().is_cpu();
  if (const auto& kept = SpeAccess::kept(code); kept && (streamed || !q.device().is_cpu()))
    check(kept->codes[1].dtype() == q.dtype(), op, "the kept code is ", kept->codes[1].dtype(),
          ", as its parameters are; q ", q, " must have that dtype");
  const SpeGateTerms gate = terms_of(options, SpeAccess::source(code), q);
  const SpeOperand queries{q, at.queries}, keys{k, at.keys};
  if (streamed) return streamed_spe(queries, keys, code, gate);
  return {composed(SpeSide::query, queries, code, gate), composed(SpeSide::key, keys, code, gate)};
}

Tensor spe_template(const SpeCode& code, int64_t n, const Tensor& gate) {
  const SpeSource& s = SpeAccess::source(code);
  check(n >= 1, "spe_template", "n is ", n, "; must be at least 1");
  const Tensor lags = s.lags(n);
  if (!gate.defined()) return lags;
  const Shape shape{s.heads, s.d};
  check(gate.shape() == shape && is_floating(gate.dtype()), "spe_template", "gate ", gate,
        "; must be floating ", shape);
  const Tensor raw = gate.to(lags.dtype()).unsqueeze(-1);  // (23)
  return sigmoid(-raw) * lags + sigmoid(raw);
}

}  // namespace stretto
