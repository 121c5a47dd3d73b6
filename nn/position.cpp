#include "nn/position.h"

namespace stretto::nn {
namespace {

// Stands in the place of a position that another attention owns.
class SharedPosition : public Position {
 public:
  SharedPosition(Module& parent, const Position& of) : Position(parent), of_(of) {}
  void apply(AttentionCall& call) const override { of_.apply(call); }
  int64_t key_width(HeadShape shape) const override { return of_.key_width(shape); }
  std::string label() const override { return "shared " + of_.label(); }

 private:
  const Position& of_;
};

}  // namespace

MakePosition shared_by_layers(MakePosition make) {
  if (!make) return {};
  const auto first = std::make_shared<const Position*>(nullptr);
  return [=](Module& parent, HeadShape shape) -> std::unique_ptr<Position> {
    if (*first) return std::make_unique<SharedPosition>(parent, **first);
    std::unique_ptr<Position> made = make(parent, shape);
    *first = made.get();
    return made;
  };
}

}  // namespace stretto::nn
