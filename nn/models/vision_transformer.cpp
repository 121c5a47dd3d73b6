#include "nn/models/vision_transformer.h"

#include "nn/init.h"
#include "nn/models/input_embedding.h"
#include "nn/positions/plane.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/view.h"

namespace stretto::nn {
namespace {

constexpr const char* op = "VisionTransformer";

VisionTransformer::Options checked(VisionTransformer::Options o) {
  check(o.n_layers >= 1 && o.layer.d_model >= 1 && o.n_classes >= 0, op, "n_layers ", o.n_layers,
        ", layer.d_model ", o.layer.d_model, ", n_classes ", o.n_classes,
        "; the first two must be at least 1, n_classes not negative");
  check(o.patch.height >= 1 && o.patch.width >= 1 && o.image.height >= 1 && o.image.width >= 1 &&
            o.image.height % o.patch.height == 0 && o.image.width % o.patch.width == 0,
        op, "images of ", o.image.height, " x ", o.image.width, " pixels, patches of ",
        o.patch.height, " x ", o.patch.width, "; patches must divide images");
  check(o.pooling != Pooling::first, op, "Pooling::first; accepted: cls, mean");
  return o;
}

VisionTransformer::Options vit(int64_t n_layers, int64_t d_model, int64_t n_heads,
                               int64_t n_classes) {
  return {.n_classes = n_classes,
          .n_layers = n_layers,
          .layer = {.d_model = d_model,
                    .attention = {.n_heads = n_heads},
                    .feed_forward = {.d_hidden = 4 * d_model, .activation = Activation::gelu},
                    .norm_eps = 1e-6}};
}

}  // namespace

VisionTransformer::VisionTransformer(Options o)
    : options(checked(std::move(o))), cls(make_cls()), positions(make_positions()) {
  make();
}

VisionTransformer::VisionTransformer(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)),
      options(checked(std::move(o))),
      cls(make_cls()),
      positions(make_positions()) {
  make();
}

Tensor VisionTransformer::make_cls() {
  return options.pooling == Pooling::cls ? parameter("cls", zeros({options.layer.d_model}))
                                         : Tensor();
}

Tensor VisionTransformer::make_positions() {
  const int64_t d = options.layer.d_model, first = cls.defined() ? 1 : 0;
  if (options.position == ImagePosition::none) return {};
  if (options.position == ImagePosition::sinusoid)
    return buffer("positions",
                  pad(sinusoids_2d(options.rows(), options.columns(), d, Sinusoid::concatenated), 0,
                      first, 0));
  Tensor table = empty({first + options.rows() * options.columns(), d});
  normal_(table, 0, 0.02);
  return parameter("positions", table);
}

void VisionTransformer::make() {
  check_position(op, encoder.layers, positions.defined(), ".position");
  lecun_normal_(patches.projection.weight);
  constant_(patches.projection.bias, 0);
  for (const TransformerLayer& layer : encoder.layers) {
    init_encoder_layer(layer);
    if (const auto* a = dynamic_cast<MultiHeadAttention*>(layer.mixer.get()))
      for (const Linear* l : {&a->q, &a->k, &a->v, &a->out})
        if (l->bias.defined()) constant_(l->bias, 0);
  }
  if (options.n_classes == 0) return;
  head.emplace(*this, "head", Linear::Options{options.layer.d_model, options.n_classes});
  constant_(head->weight, 0);
  constant_(head->bias, 0);
}

std::string VisionTransformer::label() const {
  return str(op, "(", options.n_layers, " layers, ", options.rows(), " x ", options.columns(),
             " patches)");
}

Tensor VisionTransformer::tokens(const Tensor& images) const {
  check(images.dim() == 4 && images.size(2) == options.image.height &&
            images.size(3) == options.image.width,
        op, "images ", images, "; must be [B, ", options.channels, ", ", options.image.height, ", ",
        options.image.width, "]");
  Tensor x = patches(images);
  if (cls.defined()) x = cat({cls.expand({x.size(0), 1, x.size(2)}), x}, 1);
  if (positions.defined()) x = x + positions;
  const ForwardContext forward = begin_forward();
  return encoder(dropout(x, forward), {}, forward);
}

Tensor VisionTransformer::encode(const Tensor& images) const {
  const Tensor x = tokens(images);
  return cls.defined() ? x.select(1, 0) : mean(x, {1});
}

Tensor VisionTransformer::operator()(const Tensor& images) const {
  check(head.has_value(), op, "a model with n_classes 0 has no head; call encode()");
  return (*head)(encode(images));
}

VisionTransformer::Options vit_tiny(int64_t n_classes) { return vit(12, 192, 3, n_classes); }
VisionTransformer::Options vit_small(int64_t n_classes) { return vit(12, 384, 6, n_classes); }
VisionTransformer::Options vit_base(int64_t n_classes) { return vit(12, 768, 12, n_classes); }
VisionTransformer::Options vit_large(int64_t n_classes) { return vit(24, 1024, 16, n_classes); }

}  // namespace stretto::nn
