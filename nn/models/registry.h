// Positional encodings and attention kernels by name, for command lines, and their combinations.
//
//     nn::LayerOptions layer{.d_model = 128,
//                            .attention = {.n_heads = 4},
//                            .feed_forward = {.d_hidden = 512}};
//     nn::InputOptions input;
//     layer.attention.kernel = nn::find_kernel("performer").make({.features = 64});
//     nn::add_position("sine", {.length = 512}, layer, input);
//
// To add an encoding, add an entry to registry.cpp.
//
// Reference: none (names; see the headers of the encodings)
#pragma once

#include <string>
#include <vector>

#include "../attention/feature_map.h"
#include "../positions/spe.h"
#include "../transformer.h"
#include "input_embedding.h"

namespace stretto::nn {

/// Settings from which a positional encoding is constructed.
struct PositionSettings {
  int64_t length = 512;  ///< Sequence length in training, a memory included.
  /// Largest length ever used, for the finite tables of learned and bert; 0: `length`.
  int64_t longest = 0;
  bool bidirectional = false;  ///< True for attention without a causal mask.
  /// Length of the table of music and bert, largest distance of shaw and deberta, threshold of
  /// fire, block of music-local. 0: `longest` for bert, 16 for shaw, `length` / 2 for
  /// music-local, otherwise `length`.
  int64_t max_distance = 0;
  OutOfRange out_of_range = OutOfRange::zero;  ///< For music: keys further away than the table.
  Shape plane = {};          ///< {height, width} of the tokens, for window, grid and rope-2d.
  int64_t class_tokens = 0;  ///< Number of tokens before those of the plane.
  Sinusoid layout = Sinusoid::interleaved;  ///< Layout of sinusoid.
  int64_t realizations = 64;                ///< R of sine and conv.
  int64_t sines = 10;                       ///< SineSpeOptions::sines.
  int64_t taps = 128;                       ///< Filter length of conv.
  SpeShare share_sine = SpeShare::draws;    ///< SineSpeOptions::shared.
  SpeShare share_conv = SpeShare::draws;    ///< ConvSpeOptions::shared.
};

/// The kind of attention that an encoding supports.
enum class Direction {
  any,           ///< With and without a causal mask.
  causal,        ///< With a causal mask only.
  bidirectional  ///< Without a causal mask only.
};

/// A named positional encoding.
struct PositionEntry {
  std::string name;                      ///< Name on the command line.
  Direction direction = Direction::any;  ///< Kind of attention that it supports.
  bool scores = true;  ///< Adds terms to the scores: requires a kernel with scores.
  bool added = false;  ///< Is added to the input of the model, not in the attention.
  /// Works with the memory of TransformerXL. All encodings for causal attention work with a cache.
  bool memory = true;
  bool counted = false;  ///< Depends on absolute positions too, not only on relative ones.
  bool plane = false;    ///< Requires PositionSettings::plane.
  /// Rotates pairs of features: requires an even head dimension, in a plane a multiple of 4.
  bool pairs = false;
  /// Sets the encoding in the options of a layer or of the input.
  void (*add)(const PositionSettings&, LayerOptions&, InputOptions&) = nullptr;
};

/// Settings from which a kernel is constructed.
struct KernelSettings {
  int64_t features = 256;  ///< Number of features of performer and performer-hyperbolic.
  int64_t redraw = 0;      ///< FavorOptions::redraw.
  /// LinearKernelOptions::eps of linear-relu; the other linear kernels have 1e-6.
  double relu_eps = 1e-6;
};

/// A named attention kernel.
struct KernelEntry {
  std::string name;       ///< Name on the command line.
  bool scores = false;    ///< Computes a matrix of scores, to which encodings and dropout apply.
  bool memory = true;     ///< Works with the memory of TransformerXL.
  bool segments = false;  ///< Supports packed sequences (ForwardContext::segments).
  MakeKernel (*make)(const KernelSettings&) = nullptr;  ///< Returns a factory of the kernel.
};

/// Returns all positional encodings. docs/positions.md has a table of them.
const std::vector<PositionEntry>& positions();
/// Returns all kernels. docs/attention.md has a table of them.
const std::vector<KernelEntry>& kernels();
/// Returns the names of all positional encodings.
std::vector<std::string> position_names();
/// Returns the names of all kernels.
std::vector<std::string> kernel_names();

/// Returns the entry of a name. Throws an error that lists all names.
const PositionEntry& find_position(const std::string& name);
/// Returns the entry of a name. Throws an error that lists all names.
const KernelEntry& find_kernel(const std::string& name);

/// Returns the reason why a positional encoding cannot be used with a kernel in layers of these
/// options, as a sentence that lists the alternatives; empty if it can. `name` may be "A+B", with A
/// added to the input and B in the attention.
std::string refusal(const std::string& name, const std::string& kernel,
                    const PositionSettings& settings, const LayerOptions& layer);

/// Sets a positional encoding ("A+B" as above) in a model's options. Throws the refusal(), if any,
/// for softmax attention.
void add_position(const std::string& name, const PositionSettings& settings, LayerOptions& layer,
                  InputOptions& input);

}  // namespace stretto::nn
