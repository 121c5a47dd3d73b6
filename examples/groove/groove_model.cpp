// groove_model(): --attention and --position by name. A new one is a line here.

#include <map>

#include "examples/common/settings.h"
#include "examples/groove/groove_settings.h"
#include "examples/groove/groove_tokens.h"
#include "nn/linear_attention.h"
#include "nn/relative_bias.h"
#include "nn/rotary.h"

namespace stretto::examples {
namespace {

using Settings = GrooveSettings;
using Options = nn::MusicTransformer::Options;

constexpr double kEpsilon = 1e-6;  // of denominators, as published

struct Attention {
  bool has_scores;  // that positions can act on
  nn::MakeKernel (*make)(const Settings&);
};

const std::map<std::string, Attention>& attentions() {
  static const std::map<std::string, Attention> all{
      {"softmax", {true, [](const Settings&) { return nn::softmax_kernel(); }}},
      {"performer",
       {false,
        [](const Settings& s) {
          return nn::linear_kernel(
              nn::favor(
                  {.features = s.features, .kind = nn::FavorKind::hyperbolic, .redraw = s.redraw}),
              {.eps = kEpsilon});
        }}},
      {"linear-relu",
       {false,
        [](const Settings&) { return nn::linear_kernel(nn::relu_plus(), {.eps = kEpsilon}); }}},
      {"linear-elu", {false, [](const Settings&) {
                        return nn::linear_kernel(nn::elu_plus_one(), {.eps = kEpsilon});
                      }}}};
  return all;
}

struct Position {
  bool needs_scores;
  void (*put)(const Settings&, Options&);
};

const std::map<std::string, Position>& positions() {
  static const std::map<std::string, Position> all{
      {"none", {false, [](const Settings&, Options&) {}}},
      {"sinusoid",
       {false, [](const Settings&, Options& o) { o.sinusoid = nn::Sinusoid::interleaved; }}},
      {"learned", {false, [](const Settings& s, Options& o) { o.learned_length = s.length; }}},
      {"rope", {false, [](const Settings&, Options& o) { o.position = nn::rotary(); }}},
      {"alibi", {true, [](const Settings&, Options& o) { o.position = nn::alibi(); }}},
      {"music", {true, [](const Settings& s, Options& o) {
                   o.relative = true;
                   o.relative_length = s.length;
                 }}}};
  return all;
}

template <class T>
std::vector<std::string> names(const std::map<std::string, T>& table) {
  std::vector<std::string> all;
  for (const auto& entry : table) all.push_back(entry.first);
  return all;
}

std::string joined(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : ", ") + word;
  return all;
}

template <class T>
const T& find(const std::map<std::string, T>& table, const std::string& option,
              const std::string& name) {
  const auto it = table.find(name);
  require(it != table.end(), option + " " + name + ": accepted are " + joined(names(table)));
  return it->second;
}

}  // namespace

std::vector<std::string> groove_attentions() { return names(attentions()); }
std::vector<std::string> groove_positions() { return names(positions()); }

Options groove_model(const Settings& s) {
  const Attention& attention = find(attentions(), "--attention", s.attention);
  const Position& position = find(positions(), "--position", s.position);
  if (position.needs_scores && !attention.has_scores) {
    std::vector<std::string> possible;
    for (const auto& [name, other] : positions())
      if (!other.needs_scores) possible.push_back(name);
    throw UsageError("--position " + s.position + ": acts on scores, which --attention " +
                     s.attention + " does not have; accepted with it are " + joined(possible));
  }
  Options o{};
  if (s.published_model) o = nn::music_performer(groove_vocabulary);
  o.vocabulary = groove_vocabulary;
  o.d_model = s.d_model;
  o.n_layers = s.layers;
  o.n_heads = s.heads;
  o.d_hidden = s.d_hidden;
  o.dropout = s.dropout;
  o.attention_dropout = s.attention_dropout;
  o.relative = false;
  o.kernel = attention.make(s);
  position.put(s, o);
  return o;
}

}  // namespace stretto::examples
