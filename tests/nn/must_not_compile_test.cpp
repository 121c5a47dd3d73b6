// Mistakes that do not compile, each next to the correct code, which does.
#include "stretto.h"
#include "tests/support/catch.h"

namespace stretto {
namespace {

// For use in templates: an expression that depends on a template argument makes `requires` false if
// it does not compile.
#define ONLY_SECOND_COMPILES(wrong, right)            \
  do {                                                \
    constexpr bool takes_wrong = requires { wrong; }; \
    constexpr bool takes_right = requires { right; }; \
    INFO(#wrong << " | " << #right);                  \
    CHECK(!takes_wrong);                              \
    CHECK(takes_right);                               \
  } while (false)

[[maybe_unused]] void take(bool) {}

template <class T>
void handles(T x, T y) {
  ONLY_SECOND_COMPILES(x[0] = y, x[0].copy_(y));
  ONLY_SECOND_COMPILES(x.slice(0, 0, 1) = y, x = y);
  ONLY_SECOND_COMPILES(x[0] = std::move(y), x = std::move(y));
  ONLY_SECOND_COMPILES(x.grad() = y, x.set_grad(y));
  ONLY_SECOND_COMPILES(x.fill_(0) = y, x.fill_(0).add_(y));
  ONLY_SECOND_COMPILES(x.set_requires_grad() = y, x.set_requires_grad().item());
  ONLY_SECOND_COMPILES(sort(x).values = y, sort(x).values.copy_(y));
  ONLY_SECOND_COMPILES(take(x), take(x ? true : false));
}

template <class T>
void members(T x) {
  ONLY_SECOND_COMPILES(x[0.5], x[0]);
  ONLY_SECOND_COMPILES(x[true], x[1]);
  ONLY_SECOND_COMPILES(x.size(0.0), x.size(size_t(0)));
  ONLY_SECOND_COMPILES(x.select(0, 0.5), x.select(0, 1));
  ONLY_SECOND_COMPILES(x.slice(0, 0.5), x.slice(0, 1));
  ONLY_SECOND_COMPILES(x.slice(0, 0, 1.5f), x.slice(0, 0, 1));
  ONLY_SECOND_COMPILES(x.transpose(0, 1.0), x.transpose(0, 1));
  ONLY_SECOND_COMPILES(x.squeeze(true), x.squeeze(1));
  ONLY_SECOND_COMPILES(x.unsqueeze(true), x.unsqueeze(1));
  ONLY_SECOND_COMPILES(x.flatten(true), x.flatten(1));
  ONLY_SECOND_COMPILES(x.reshape({2, true}), x.reshape({2, 1}));
  ONLY_SECOND_COMPILES(x.expand({2.0, -1}), x.expand({2, -1}));
}

template <class T>
void reductions(T x) {
  ONLY_SECOND_COMPILES(max(x, 0.0), max(x, 0));
  ONLY_SECOND_COMPILES(max(x, true), max(x, 1));
  ONLY_SECOND_COMPILES(min(x, 0.0f), min(x, 0));
  ONLY_SECOND_COMPILES(min(x, false), min(x, 0, false));
  ONLY_SECOND_COMPILES(argmax(x, true), argmax(x, -1, true));
  ONLY_SECOND_COMPILES(sum(x, {0, true}), sum(x, {0}, true));
  ONLY_SECOND_COMPILES(sum(x, {0.0}), sum(x, {0}));
  ONLY_SECOND_COMPILES(sum(x, true), sum(x, {}, true));
  ONLY_SECOND_COMPILES(mean(x, {true}), mean(x, {1}));
  ONLY_SECOND_COMPILES(mean(x, {0, 0.5}), mean(x, {0, 1}));
  ONLY_SECOND_COMPILES(var(x, {0}, true), var(x, {0}, 1, true));
  ONLY_SECOND_COMPILES(var(x, {0}, false, true), var(x, {0}, 0, true));
  ONLY_SECOND_COMPILES(var(x, {0}, true, true), var(x, {0}, 0.5, true));
  ONLY_SECOND_COMPILES(cumsum(x, true), cumsum(x, 1));
  ONLY_SECOND_COMPILES(logsumexp(x, true), logsumexp(x, -1, true));
  ONLY_SECOND_COMPILES(sort(x, true), sort(x, -1, true));
  ONLY_SECOND_COMPILES(topk(x, 2.5), topk(x, 2));
  ONLY_SECOND_COMPILES(topk(x, 2, true), topk(x, 2, 1));
  ONLY_SECOND_COMPILES(softmax(x, 1.0), softmax(x, 1));
  ONLY_SECOND_COMPILES(log_softmax(x, true), log_softmax(x));
}

template <class T>
void indexing(T x, T index) {
  ONLY_SECOND_COMPILES(split(x, 1.5), split(x, 1));
  ONLY_SECOND_COMPILES(split(x, 1, true), split(x, 1, 1));
  ONLY_SECOND_COMPILES(gather(x, 0.0, index), gather(x, 0, index));
  ONLY_SECOND_COMPILES(index_select(x, false, index), index_select(x, 0, index));
  ONLY_SECOND_COMPILES(scatter_add(x, 0.0, index, x), scatter_add(x, 0, index, x));
  ONLY_SECOND_COMPILES(pad(x, 0, 1.5, 0), pad(x, 0, 1, 0, 0.5));
  ONLY_SECOND_COMPILES(flip(x, true), flip(x, 1));
  ONLY_SECOND_COMPILES(tril(x, 0.5), tril(x, -1));
  ONLY_SECOND_COMPILES(triu(x, true), triu(x, 1));
  ONLY_SECOND_COMPILES(skew(x, 3.0), skew(x, 3));
  ONLY_SECOND_COMPILES(unskew(x, 3.0), unskew(x, 3));
  ONLY_SECOND_COMPILES(irfft(x, 8.0), irfft(x, 8));
  ONLY_SECOND_COMPILES(irfft2(x, true), irfft2(x, 8));
}

template <class L, class Fraction, class Flag, class Whole>
void numbers(L list, Fraction half, Flag flag, Whole n) {
  ONLY_SECOND_COMPILES(cat(list, flag), cat(list, n));
  ONLY_SECOND_COMPILES(stack(list, half), stack(list, n));
  ONLY_SECOND_COMPILES(arange(half), arange(n));
  ONLY_SECOND_COMPILES(eye(half), eye(n));
  ONLY_SECOND_COMPILES(linspace(half, half, half), linspace(half, half, n));
  ONLY_SECOND_COMPILES(randint(0, half, {2}), randint(0, n, {2}));
  ONLY_SECOND_COMPILES(randperm(half), randperm(n));
  ONLY_SECOND_COMPILES(zeros({2, flag}), zeros({2, n}));
  ONLY_SECOND_COMPILES((Shape{0, flag}), (Shape{0, n}));
  ONLY_SECOND_COMPILES((Shape{0, half}), (Shape{0, size_t(n)}));
}

enum Axis { batch, time_axis };

// A parameter's handle cannot be replaced, as its module has a copy of it; its values can change.
// NOLINTBEGIN(bugprone-macro-parentheses): a member is not an expression
#define STAYS(Type, member)                                               \
  do {                                                                    \
    constexpr auto assigns = []<class M>(M*) {                            \
      return requires(M & m, const M& other) { m.member = other.member; } \
      || requires(M & m, const Tensor& y) { m.member = y; };              \
    };                                                                    \
    constexpr auto copies = []<class M>(M*) {                             \
      return requires(M & m, const Tensor& y) { m.member.copy_(y); };     \
    };                                                                    \
    INFO(#Type "::" #member);                                             \
    CHECK(!assigns(static_cast<Type*>(nullptr)));                         \
    CHECK(copies(static_cast<Type*>(nullptr)));                           \
  } while (false)
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace

TEST_CASE("temporary handles cannot be assigned to, and tensors are no implicit bool") {
  handles(Tensor(), Tensor());
}

TEST_CASE("dimensions, indices and counts must be integers") {
  members(Tensor());
  reductions(Tensor());
  indexing(Tensor(), Tensor());
  numbers(Tensors(), 0.5, true, 2);
  CHECK(zeros({2, 3}).size(time_axis) == 3);
}

TEST_CASE("a registered parameter cannot be replaced") {
  STAYS(nn::Linear, weight);
  STAYS(nn::Linear, bias);
  STAYS(nn::Embedding, weight);
  STAYS(nn::LayerNorm, weight);
  STAYS(nn::LayerNorm, bias);
  STAYS(nn::RMSNorm, weight);
  STAYS(nn::InputEmbedding, tables.weights[0]);
  STAYS(nn::InputEmbedding, tables.projections[0]);
  STAYS(nn::AdaptiveSoftmax, weights[0]);
  STAYS(nn::AdaptiveSoftmax, bias);
  STAYS(nn::AdaptiveSoftmax, cluster_weight);
  STAYS(nn::AdaptiveSoftmax, cluster_bias);
  STAYS(nn::AdaptiveSoftmax, projections[0]);
  STAYS(nn::MusicRelative, table);
  STAYS(nn::ShawRelative, keys);
  STAYS(nn::ShawRelative, values);
  STAYS(nn::BertRelative, table);
  STAYS(nn::T5Bias, table);
  STAYS(nn::Kerple, p);
  STAYS(nn::Kerple, a);
  STAYS(nn::Fire, c);
  STAYS(nn::Fire, multiplier);
  STAYS(nn::SwinBias, table);
  STAYS(nn::GridRelative, height_table);
  STAYS(nn::GridRelative, width_table);
  STAYS(nn::Disentangled, rows);
  STAYS(nn::RelativeSinusoid, u);
  STAYS(nn::RelativeSinusoid, v);
  STAYS(nn::Spe, gate);
  STAYS(nn::Favor, projection);
  STAYS(nn::Favor, schedule);
  STAYS(nn::InputEmbedding, weight);
  STAYS(nn::AbsolutePosition, table);
  STAYS(nn::SequenceClassifier, cls);
  STAYS(nn::LanguageModel, u);
  STAYS(nn::LanguageModel, v);
}

}  // namespace stretto
