#include "nn/positions/spe.h"

#include <cmath>

#include "autograd/recompute.h"
#include "nn/init.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"

namespace stretto::nn {
namespace {

constexpr int64_t positions_ahead = 32;  // number of positions computed at once in generation

Spe::Models models_of(SpeShare shared) {
  if (shared == SpeShare::nothing) return {};
  return std::make_shared<PerModel<std::weak_ptr<Spe::Draws>>>();
}

}  // namespace

// A code (SpeCode) with precomputed values at positions first … end − 1, and everything it depends
// on.
struct Spe::Made {
  SpeCode code;
  RandomKey key;
  int64_t first, end;
  bool recorded;
  std::vector<std::pair<const Storage*, uint32_t>> parameters;  // storage and version
};

// The random keys of one call's noise.
struct Spe::Keys {
  RandomKey code, gate;
  int64_t realizations = 0;
};

// The encoding's entry in a cache or state.
struct Spe::Memory : EncodingState {
  Memory(const Keys& k, std::shared_ptr<const Made> m) : keys(k), made(std::move(m)) {}
  Keys keys;
  std::shared_ptr<const Made> made;
};

// The parameters of a code and the source of its noise, for one layer or for all layers that share
// the code.
struct Spe::Draws {
  HeadShape shape;
  Tensors parameters;
  int64_t realizations = 0;
  Tensor frozen;  // i64 [2]: the random key in evaluation
  int64_t layers = 0;
};

// The data that layers with a shared code have in common during one forward pass.
struct Spe::Pass {
  std::optional<RandomKey> key;  // random key, set in training only
  std::shared_ptr<const Made> made;
};

Spe::Spe(Module& parent, HeadShape shape, const Kind& kind, const Models& models)
    : PositionalEncoding(parent),
      gate(kind.gated ? empty({shape.n_heads, shape.d_key}) : Tensor()),
      kind_(kind),
      shape_(shape) {
  check(kind.realizations >= 1, kind.name, kind.realizations, " realizations; must be at least 1");
  if (models) first_ = (*models)(parent).lock();
  if (first_)
    check(first_->shape.n_heads == shape.n_heads && first_->shape.d_key == shape.d_key, kind.name,
          shape.n_heads, " heads of dimension ", shape.d_key, " share the code of ",
          first_->shape.n_heads, " heads of dimension ", first_->shape.d_key,
          "; all layers that share a code must have the same number and dimension of heads");
  if (first_ && kind.shared == SpeShare::draws) {
    draws_ = first_;
  } else {
    draws_ = std::make_shared<Draws>();
    draws_->shape = shape;
    draws_->realizations = kind.realizations;
    if (first_) draws_->parameters = first_->parameters;
    for (const auto& [name, value] : first_ ? std::vector<NamedTensor>() : kind.parameters(shape))
      draws_->parameters.push_back(parameter(name, value));
    draws_->frozen = frozen_key("draw");
  }
  if (!first_) first_ = draws_;
  if (models) (*models)(parent) = first_;
  ++draws_->layers;
  if (!kind.gated) return;
  normal_(gate);
  parameter("gate", gate);
  frozen_gate_ = frozen_key("gate_draw");
}

std::string Spe::label() const {
  constexpr const char* shared[] = {"", ", parameters shared", ", draws shared"};
  return str(kind_.name, "(", realizations(), " realizations, ", kind_.size,
             kind_.gated ? ", gated" : "", shared[int(kind_.shared)], ")");
}

int64_t Spe::realizations() const { return draws_->realizations; }

void Spe::set_realizations(int64_t r) {
  check(r >= 1, kind_.name, r, " realizations; must be at least 1");
  draws_->realizations = r;
}

void Spe::copy_settings(const Module& from) {
  set_realizations(static_cast<const Spe&>(from).realizations());
}

Tensor Spe::frozen_key(const char* name) {
  Tensor frozen = host_buffer(name, zeros({2}, {.dtype = i64, .device = cpu}));
  if (SkipInit::active()) return frozen;
  const RandomKey key = next_random_key();
  frozen.copy_(stretto::tensor<int64_t>({int64_t(key.seed), int64_t(key.stream)}));
  return frozen;
}

// Returns null if this call shares nothing with other layers.
Spe::Pass* Spe::pass_of(const AttentionInputs& inputs) const {
  const bool shares = inputs.forward.store && draws_->layers > 1;
  return shares ? &inputs.forward.store->of<Pass>(draws_.get()) : nullptr;
}

Spe::Keys Spe::keys_of(const AttentionInputs& inputs) const {
  return recorded("the draws of Spe", [&]() -> Keys {
    if (training() && inputs.continued) {
      const auto* memory = inputs.encoding_state
                               ? dynamic_cast<const Memory*>(inputs.encoding_state->get())
                               : nullptr;
      if (!memory)
        fail(kind_.name,
             "the inputs continue a cache, but the noise that the cache began with is missing; "
             "accepted: AttentionInputs::encoding_state as the previous call left it");
      return memory->keys;
    }
    const auto draw = [&](const Tensor& frozen) -> RandomKey {
      if (training()) return next_random_key();
      const std::vector<int64_t> key = frozen.to_vector<int64_t>();
      return {uint64_t(key[0]), uint64_t(key[1])};
    };
    Keys keys{{}, {}, realizations()};
    Pass* const pass = training() ? pass_of(inputs) : nullptr;
    keys.code = pass && pass->key ? *pass->key : draw(draws_->frozen);
    if (pass) pass->key = keys.code;
    if (frozen_gate_.defined()) keys.gate = draw(frozen_gate_);
    return keys;
  });
}

// A code is precomputed in two cases:
// - For a forward pass whose layers share the code, except when recompute() recomputes, because
//   each layer then has its own backward pass.
// - In generation, one position at a time. A filter of length P needs the noise of P positions for
//   each position. If 32 positions are precomputed together, this is the noise of (P + 31) / 32
//   positions per position, and H·D·R·64 elements are stored. The elements belong to the cache for
//   which they were computed; other layers at the same positions use them too.
SpeCode Spe::code_of(const AttentionInputs& inputs, const Keys& keys,
                     std::shared_ptr<const Made>& made) const {
  const Draws& d = *draws_;
  const auto compute = [&] {
    return kind_.code(d.parameters, SpeNoise(keys.code, keys.realizations));
  };
  if (is_recomputing()) return compute();
  const int64_t n = inputs.n_keys(), end = inputs.first_position + n;
  const bool own_dtype = (inputs.q.dtype() == f64) == (d.parameters[0].dtype() == f64);
  Pass* const pass = pass_of(inputs);
  const bool whole = kind_.keep && own_dtype && pass && !inputs.continued && n > 0;
  const bool generation = kind_.ahead && own_dtype && inputs.continued && inputs.encoding_state &&
                          n <= positions_ahead && !training() && !grad_enabled();
  if (!whole && !generation) return compute();

  decltype(Made::parameters) parameters;
  for (const Tensor& p : d.parameters) parameters.emplace_back(&p.storage(), p.storage().version);
  const auto fits = [&](const std::shared_ptr<const Made>& m) {
    return m && m->key.seed == keys.code.seed && m->key.stream == keys.code.stream &&
           m->code.realizations() == keys.realizations && m->first <= inputs.first_position &&
           m->end >= end && m->recorded == grad_enabled() && m->parameters == parameters;
  };
  const auto make = [&](int64_t length) {
    return std::make_shared<const Made>(
        Made{compute().kept(length, inputs.first_position), keys.code, inputs.first_position,
             inputs.first_position + length, grad_enabled(), parameters});
  };
  if (generation) {
    if (!fits(made)) made = pass && fits(pass->made) ? pass->made : make(positions_ahead);
    if (pass) pass->made = made;
    return made->code;
  }
  if (!pass->made) {
    pass->made = make(n);
    return pass->made->code;
  }
  // Attentions that do not depend on each other may be differentiated in separate backward passes.
  return fits(pass->made) && pass->made->code.keeps_for(inputs.q) ? pass->made->code : compute();
}

void Spe::apply(AttentionInputs& inputs) const {
  const int64_t heads = inputs.q.size(1), kv_heads = inputs.k.size(1);
  check(heads == kv_heads, kind_.name, "there are ", kv_heads, " key heads for ", heads,
        " query heads, but each head encodes its own keys; set n_kv_heads to 0 or ", heads);
  const Keys keys = keys_of(inputs);
  const auto* before =
      inputs.encoding_state ? dynamic_cast<const Memory*>(inputs.encoding_state->get()) : nullptr;
  auto made = before ? before->made : nullptr;
  SpeOptions o{.first = inputs.first_position, .implementation = kind_.implementation};
  const SpeCode code = code_of(inputs, keys, made);
  if (gate.defined()) o.gate = SpeGate{gate, SpeNoise(keys.gate, keys.realizations)};
  const SpePair encoded = spe(inputs.q, inputs.k, code, o);
  if (inputs.encoding_state && (!inputs.continued || !before || before->made != made))
    *inputs.encoding_state = std::make_shared<const Memory>(keys, made);
  if (inputs.options.scale)
    *inputs.options.scale *= std::sqrt(double(shape_.d_key) / double(keys.realizations));
  inputs.q = encoded.q;
  inputs.k = encoded.k;
}

// A shared code is not precomputed for the forward pass: a query or key takes only 2K·D·R products,
// K = 5 to 10. With a precomputed code it would take D·R products, reads of D·R elements, and
// 2·H·D·L·R elements of memory.
MakePositionalEncoding sine_spe(SineSpeOptions o) {
  check(o.sines >= 1, "SineSpe", o.sines, " sines; must be at least 1");
  Spe::Kind kind{.name = "SineSpe",
                 .size = str(o.sines, " sines"),
                 .realizations = o.realizations,
                 .gated = o.gated,
                 .shared = o.shared,
                 .implementation = o.implementation,
                 .keep = false,
                 .ahead = o.implementation != Implementation::composed};
  kind.parameters = [o](HeadShape shape) -> std::vector<NamedTensor> {
    const Shape size{shape.n_heads, shape.d_key, o.sines};
    Tensor freqs = empty(size), offsets = empty(size), gains = empty(size);
    for (const Tensor& x : {freqs, offsets, gains}) normal_(x);
    if (!SkipInit::active()) {
      freqs.copy_(freqs - 4);
      gains.copy_(gains * 2 / sqrt(sqrt(sum(square(gains), {2}, true))));
    }
    return {{"freqs", freqs}, {"offsets", offsets}, {"gains", gains}};
  };
  kind.code = [](const Tensors& p, const SpeNoise& noise) {
    return SpeCode::sine(p[0], p[1], p[2], noise);
  };
  return positional_encoding<Spe>(kind, models_of(o.shared));
}

// A shared code is precomputed for the forward pass: otherwise a query or key would take P·D·R
// products, with P of 128 and more.
MakePositionalEncoding conv_spe(ConvSpeOptions o) {
  const bool line = o.taps.dim() == 1 && o.shape.empty();
  const bool plane = o.taps.dim() == 2 && o.shape.dim() == 2;
  bool positive = true;
  for (const Shape& sizes : {o.taps, o.shape})
    for (const int64_t n : sizes) positive = positive && n >= 1;
  check((line || plane) && positive, "ConvSpe", "taps ", o.taps, ", shape ", o.shape,
        "; accepted: taps {P}, or taps {P1, P2} with a shape {h, w}, all of them at least 1");
  Spe::Kind kind{.name = "ConvSpe",
                 .size = str("taps ", o.taps),
                 .realizations = o.realizations,
                 .gated = o.gated,
                 .shared = o.shared,
                 .implementation = o.implementation,
                 .keep = o.implementation != Implementation::composed,
                 .ahead = o.implementation != Implementation::composed && line};
  kind.parameters = [o](HeadShape shape) -> std::vector<NamedTensor> {
    Shape size{shape.n_heads, shape.d_key};
    for (const int64_t n : o.taps) size.push_back(n);
    const Tensor q = empty(size), k = empty(size);
    for (const Tensor& x : {q, k}) uniform_(x, 0, std::sqrt(2 / double(o.taps.numel())));
    return {{"filter_q", q}, {"filter_k", k}};
  };
  kind.code = [shape = o.shape](const Tensors& p, const SpeNoise& noise) {
    return SpeCode::conv(p[0], p[1], noise, shape);
  };
  return positional_encoding<Spe>(kind, models_of(o.shared));
}

}  // namespace stretto::nn
