// Positions and kernels of attention by name, as programs offer them, and what can be combined.
//
//     nn::LayerOptions layer{.d_model = 128,
//                            .attention = {.n_heads = 4},
//                            .feed_forward = {.d_hidden = 512}};
//     nn::InputOptions input;
//     layer.attention.kernel = nn::find_kernel("performer").make({.features = 64});
//     nn::add_position("sine", {.length = 512}, layer, input);
//
// A new scheme is an entry in registry.cpp.
//
// Reference: none (names; the positions' own headers have theirs)
#pragma once

#include <string>
#include <vector>

#include "../attention/feature_map.h"
#include "../positions/spe.h"
#include "../transformer.h"
#include "input_embedding.h"

namespace stretto::nn {

/// What a position may need to know of the model that it is for.
struct PositionSettings {
  int64_t length = 512;  // positions that meet in training, a memory included
  int64_t longest = 0;   // that will ever meet, for tables that end (learned, bert); 0: length
  bool bidirectional = false;  // for attention that sees both sides
  int64_t max_distance = 0;    // lags with a row, or where they end: of music, shaw, deberta, fire;
                               // the block of music-local; 0: what fits `length`, 16 of shaw
  OutOfRange out_of_range = OutOfRange::zero;  // further lags than music has rows for
  Shape plane = {};  // {height, width} of tokens in a plane, of window and grid
  Sinusoid layout = Sinusoid::interleaved;
  // Of sine and conv (SineSpeOptions, ConvSpeOptions).
  int64_t realizations = 64, sines = 10, taps = 128;
  SpeShare share_sine = SpeShare::draws, share_conv = SpeShare::draws;
};

/// Which attention a position is for.
enum class Direction { any, causal, bidirectional };

struct PositionEntry {
  std::string name;
  Direction direction = Direction::any;
  bool scores = true;    // acts on the scores: needs a kernel that has them
  bool added = false;    // to the input of a model, not in its attention
  bool memory = true;    // works with the memory of TransformerXL; all work with a cache
  bool counted = false;  // depends on how far into the text a token is, not on differences alone
  bool plane = false;    // needs PositionSettings::plane
  bool pairs = false;    // turns pairs of numbers: needs an even number in a head
  void (*add)(const PositionSettings&, LayerOptions&, InputOptions&) = nullptr;
};

/// What a kernel may need to know.
struct KernelSettings {
  int64_t features = 256;  // of performer and performer-hyperbolic
  int64_t redraw = 0;      // FavorOptions
  double relu_eps =
      1e-6;  // added to the denominators of linear-relu; 1e-6 in the other linear ones
};

struct KernelEntry {
  std::string name;
  bool scores = false;  // a matrix of them, which positions and dropout act on
  MakeKernel (*make)(const KernelSettings&) = nullptr;
};

/// All of them. The README has a table of the positions, docs/attention.md one of the kernels.
const std::vector<PositionEntry>& positions();
const std::vector<KernelEntry>& kernels();
std::vector<std::string> position_names();
std::vector<std::string> kernel_names();

/// The entry of a name. Throws Error that lists all names.
const PositionEntry& find_position(const std::string& name);
const KernelEntry& find_kernel(const std::string& name);

/// What stands in the way of a position with a kernel in a model of this shape, as a sentence that
/// names the alternatives; empty where nothing does. `name` may be "A+B", A added to the input and
/// B in the attention.
std::string refusal(const std::string& name, const std::string& kernel,
                    const PositionSettings& settings, const LayerOptions& layer);

/// Completes a model's options with a position ("A+B" as above). Throws Error for what
/// refusal() says with softmax attention.
void add_position(const std::string& name, const PositionSettings& settings, LayerOptions& layer,
                  InputOptions& input);

}  // namespace stretto::nn
