#include "nn/spe.h"

#include <cmath>
#include <optional>

#include "autograd/tape.h"
#include "nn/init.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"

namespace stretto::nn {
namespace {

constexpr size_t remembered = 1024;
constexpr int64_t at_a_time = 32;  // positions, in generation

SpeModels models_of(SpeShare shared) {
  if (shared == SpeShare::nothing) return {};
  return std::make_shared<PerModel<std::weak_ptr<SpeShared>>>();
}

const SineSpeOptions& checked(const SineSpeOptions& o) {
  check(o.sines >= 1, "SineSpe", o.sines, " sines; must be at least 1");
  return o;
}

const ConvSpeOptions& checked(const ConvSpeOptions& o) {
  const bool line = o.taps.dim() == 1 && o.shape.empty();
  const bool plane = o.taps.dim() == 2 && o.shape.dim() == 2;
  bool positive = true;
  for (const Shape& sizes : {o.taps, o.shape})
    for (const int64_t n : sizes) positive = positive && n >= 1;
  check((line || plane) && positive, "ConvSpe", "taps ", o.taps, ", shape ", o.shape,
        "; accepted: taps {P}, or taps {P1, P2} with a shape {h, w}, all of them at least 1");
  return o;
}

}  // namespace

// --------------------------------------------------------------------------------------- draws

SpeDraws::SpeDraws(Tensor frozen) : frozen_(std::move(frozen)) {
  if (SkipInit::active()) return;
  const RandomKey key = next_random_key();
  frozen_.copy_(stretto::tensor<int64_t>({int64_t(key.seed), int64_t(key.stream)}));
}

// Streams are taken one after another, and checkpoint() runs a call again in the random state of
// its first run: the draw of that run is the last one before this state, whatever came afterwards.
const RandomKey* SpeDraws::last_before(RandomState now) const {
  for (auto it = drawn_.rbegin(); it != drawn_.rend(); ++it)
    if (it->seed == now.seed && it->stream < now.next_stream) return &*it;
  return nullptr;
}

RandomKey SpeDraws::operator()(bool training, bool goes_on) {
  if (!training) {
    const std::vector<int64_t> key = frozen_.to_vector<int64_t>();
    return {uint64_t(key[0]), uint64_t(key[1])};
  }
  const bool again = Backward::running();
  if (goes_on && !drawn_.empty()) {
    if (!again) return drawn_.back();
    if (const RandomKey* key = last_before(random_state())) return *key;
    check(!forgotten_, "Spe", "a call that is run again in the backward pass, more than ",
          remembered, " draws after its first run");
  }
  const RandomKey key = next_random_key();
  if (again) return key;  // known from the first run
  // A random state that was set back runs through its streams once more.
  std::erase_if(drawn_, [&](RandomKey k) { return k.seed == key.seed && k.stream >= key.stream; });
  drawn_.push_back(key);
  if (drawn_.size() > remembered) {
    drawn_.pop_front();
    forgotten_ = true;
  }
  return key;
}

// ---------------------------------------------------------------------------------- both codes

// Where the noise of a code comes from: that of one layer, or of all that share it.
struct Spe::Drawn {
  explicit Drawn(int64_t r, const Tensor& frozen) : realizations(r), draws(frozen) {}
  int64_t realizations;
  SpeDraws draws;
  int64_t layers = 0;
  // A code whose values at some positions are kept, and what it was made from.
  struct Kept {
    SpeCode code;
    RandomKey key;
    int64_t first, end;
    bool recorded;
    std::vector<std::pair<const Storage*, uint32_t>> parameters;  // with their versions
  };
  std::optional<Kept> kept;
};

struct SpeShared {
  HeadShape shape;
  Tensors parameters;
  std::shared_ptr<void> drawn;  // Spe::Drawn, with SpeShare::draws
};

Spe::Spe(Module& parent, const char* op, HeadShape shape, Common common, const SpeModels& models,
         const std::function<std::vector<Parameter>()>& parameters)
    : Position(parent),
      gate(common.gated ? empty({shape.n_heads, shape.d_key}) : Tensor()),
      op_(op),
      shape_(shape),
      common_(common) {
  check(common.realizations >= 1, op, common.realizations, " realizations; must be at least 1");
  const bool shares_draws = common.shared == SpeShare::draws;
  if (models) shared_ = (*models)(parent).lock();
  if (shared_) {
    const HeadShape& first = shared_->shape;
    check(first.n_heads == shape.n_heads && first.d_key == shape.d_key, op, shape.n_heads,
          " heads of ", shape.d_key, " numbers share the code of ", first.n_heads, " heads of ",
          first.d_key, "; all layers that share must have one shape");
    parameters_ = shared_->parameters;
    drawn_ = std::static_pointer_cast<Drawn>(shared_->drawn);
  } else {
    for (const Parameter& p : parameters()) parameters_.push_back(parameter(p.name, p.value));
  }
  if (!drawn_)
    drawn_ =
        std::make_shared<Drawn>(common.realizations, buffer("draw", zeros({2}, {.dtype = i64})));
  if (models && !shared_) {
    shared_ = std::make_shared<SpeShared>(SpeShared{shape, parameters_, {}});
    if (shares_draws) shared_->drawn = drawn_;
    (*models)(parent) = shared_;
  }
  layer_ = drawn_->layers++;
  if (!common.gated) return;
  normal_(gate);
  parameter("gate", gate);
  gate_draws_ = std::make_unique<SpeDraws>(buffer("gate_draw", zeros({2}, {.dtype = i64})));
}

int64_t Spe::realizations() const { return drawn_->realizations; }

void Spe::set_realizations(int64_t r) {
  check(r >= 1, op_, r, " realizations; must be at least 1");
  drawn_->realizations = r;
}

// A code is kept in two cases. For a pass of layers that share it, from the first layer to the
// last; not in what checkpoint() runs again: each layer of that has a backward pass of its own. And
// in generation, which asks for one position after another, where a filter needs the noise of P
// positions for each: 32 made at a time draw that of (P + 31) / 32, and take H·D·R·64 numbers.
SpeCode Spe::code_of(const AttentionCall& call) const {
  Drawn& d = *drawn_;
  const RandomKey key = d.draws(training(), call.continued || layer_ > 0);
  const auto anew = [&] { return code(parameters_, SpeNoise(key, d.realizations)); };
  if (Backward::running()) return anew();
  const int64_t n = call.n_keys(), end = call.first + n;
  const bool own_dtype = (call.q.dtype() == f64) == (parameters_[0].dtype() == f64);
  const bool pass = common_.keep && own_dtype && d.layers > 1 && !call.continued && n > 0;
  const bool generation = common_.ahead && own_dtype && call.continued && n <= at_a_time &&
                          !training() && !grad_enabled();
  if (!pass && !generation) {
    d.kept.reset();
    return anew();
  }
  decltype(Drawn::Kept::parameters) parameters;
  for (const Tensor& p : parameters_) parameters.emplace_back(&p.storage(), p.storage().version);
  const auto fits = [&, &kept = d.kept] {
    return kept && kept->key.seed == key.seed && kept->key.stream == key.stream &&
           kept->code.realizations() == d.realizations && kept->first <= call.first &&
           kept->end >= end && kept->recorded == grad_enabled() && kept->parameters == parameters;
  };
  const auto keep = [&](int64_t length, double queries) {
    d.kept = {anew().kept(length, queries, call.first),
              key,
              call.first,
              call.first + length,
              grad_enabled(),
              parameters};
  };
  if (pass && layer_ == 0) keep(n, 0.5);
  if (generation && !fits()) keep(at_a_time, 1);
  const SpeCode found = fits() ? d.kept->code : anew();
  if (pass && layer_ == d.layers - 1) d.kept.reset();
  return found;
}

void Spe::apply(AttentionCall& call) const {
  const int64_t heads = call.q.size(1), key_heads = call.k.size(1);
  check(heads == key_heads, op_, key_heads, " key heads for ", heads,
        " heads; each head has a code of its own for its keys; accepted: n_key_heads 0 or ", heads);
  SpeOptions o{.first = call.first, .form = common_.form};
  const SpeCode code = code_of(call);
  if (gate_draws_)
    o.gate = SpeGate{gate, SpeNoise((*gate_draws_)(training(), call.continued), realizations())};
  const SpePair made = spe(call.q, call.k, code, o);
  if (call.options.scale)
    *call.options.scale *= std::sqrt(double(shape_.d_key) / double(realizations()));
  call.q = made.q;
  call.k = made.k;
}

std::string Spe::described(const std::string& what) const {
  constexpr const char* shared[] = {"", ", parameters shared", ", draws shared"};
  return str(op_, "(", realizations(), " realizations, ", what, common_.gated ? ", gated" : "",
             shared[int(common_.shared)], ")");
}

// ---------------------------------------------------------------------------------------- sine

// A shared code is not kept for the pass: a query or key takes 2K·D·R products, K = 5 to 10, where
// a kept code takes D·R products and as many numbers from memory, and 2·H·D·L·R of memory.
SineSpe::SineSpe(Module& parent, HeadShape shape, Options o, const SpeModels& models)
    : Spe(parent, "SineSpe", shape,
          {.realizations = checked(o).realizations,
           .gated = o.gated,
           .shared = o.shared,
           .form = o.form,
           .ahead = o.form != SpeForm::composed},
          models,
          [&]() -> std::vector<Parameter> {
            const Shape size{shape.n_heads, shape.d_key, o.sines};
            Tensor freqs = empty(size), offsets = empty(size), gains = empty(size);
            for (const Tensor& x : {freqs, offsets, gains}) normal_(x);
            if (!SkipInit::active()) {
              const Tensor norm = sqrt(sum(square(gains), {2}, true));
              freqs.copy_(freqs - 4);
              gains.copy_(gains * 2 / sqrt(norm));
            }
            return {{"freqs", freqs}, {"offsets", offsets}, {"gains", gains}};
          }),
      options(o) {}

SpeCode SineSpe::code(const Tensors& p, SpeNoise noise) const {
  return SpeCode::sine(p[0], p[1], p[2], std::move(noise));
}

std::string SineSpe::label() const { return described(str(options.sines, " sines")); }

MakePosition sine_spe(SineSpeOptions options) {
  return position<SineSpe>(options, models_of(options.shared));
}

// ---------------------------------------------------------------------------------------- conv

// A shared code is kept for the pass: a query or key takes P·D·R products without, P = 128 and
// more. For the queries of every other head it is not: that would save time again, a fifth of a
// step of the published model, and cost H·D·L·R / 2 of memory.
ConvSpe::ConvSpe(Module& parent, HeadShape shape, Options o, const SpeModels& models)
    : Spe(parent, "ConvSpe", shape,
          {.realizations = checked(o).realizations,
           .gated = o.gated,
           .shared = o.shared,
           .form = o.form,
           .keep = o.form != SpeForm::composed,
           .ahead = o.form != SpeForm::composed && o.shape.empty()},
          models,
          [&]() -> std::vector<Parameter> {
            Shape size{shape.n_heads, shape.d_key};
            double taps = 1;
            for (const int64_t n : o.taps) {
              size.push_back(n);
              taps *= double(n);
            }
            std::vector<Parameter> filters;
            for (const char* name : {"filter_q", "filter_k"}) {
              filters.push_back({name, empty(size)});
              uniform_(filters.back().value, 0, std::sqrt(2 / taps));
            }
            return filters;
          }),
      options(o) {}

SpeCode ConvSpe::code(const Tensors& p, SpeNoise noise) const {
  return SpeCode::conv(p[0], p[1], std::move(noise), options.shape);
}

std::string ConvSpe::label() const { return described(str("taps ", options.taps)); }

MakePosition conv_spe(ConvSpeOptions options) {
  return position<ConvSpe>(options, models_of(options.shared));
}

}  // namespace stretto::nn
