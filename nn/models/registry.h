// Positional encodings and attention kernels by name, for command lines, and their combinations.
//
//     nn::LayerOptions layer{.d_model = 128,
//                            .attention = {.n_heads = 4},
//                            .feed_forward = {.d_hidden = 512}};
//     nn::InputOptions input;
//     layer.attention.kernel = nn::find_kernel("performer").make({.features = 64});
//     nn::add_position("sine", {.length = 512}, layer, input);
//
// To add an encoding or a kernel, add an entry to registry.cpp: a name and a call of its factory.
// What it supports is in the traits of the factory (PositionTraits, KernelTraits).
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
  /// Length of the table of music, bert and inkling, largest distance of shaw and deberta, threshold
  /// of fire, block of music-local. 0: `longest` for bert, 16 for shaw, `length` / 2 for
  /// music-local, min(`length`, 1,024) for inkling, otherwise `length`.
  int64_t max_distance = 0;
  OutOfRange out_of_range = OutOfRange::zero;  ///< For music: keys further away than the table.
  Shape plane = {};          ///< {height, width} of the tokens, for swin, grid and rope-2d.
  int64_t class_tokens = 0;  ///< Number of tokens before those of the plane.
  Sinusoid layout = Sinusoid::interleaved;  ///< Layout of sinusoid.
  int64_t realizations = 64;                ///< R of sine and conv.
  int64_t sines = 10;                       ///< SineSpeOptions::sines.
  int64_t taps = 128;                       ///< Filter length of conv.
  SpeShare share_sine = SpeShare::draws;    ///< SineSpeOptions::shared.
  SpeShare share_conv = SpeShare::draws;    ///< ConvSpeOptions::shared.
};

/// A named positional encoding: in the attention, or added to the input of the model.
struct PositionEntry {
  std::string name;  ///< Name on the command line.
  /// Returns the factory of the encoding in the attention; null for one that is added to the input.
  MakePositionalEncoding (*make)(const PositionSettings&) = nullptr;
  /// Sets the encoding that is added to the input; null for one in the attention.
  void (*add)(const PositionSettings&, InputOptions&) = nullptr;
  /// Returns the traits of the encoding that these settings construct.
  PositionTraits traits(const PositionSettings& settings = {}) const;
};

/// Settings from which a kernel is constructed.
struct KernelSettings {
  int64_t features = 256;  ///< Number of features of performer and performer-hyperbolic.
  int64_t redraw = 0;      ///< FavorOptions::redraw.
};

/// A named attention kernel.
struct KernelEntry {
  std::string name;                                     ///< Name on the command line.
  MakeKernel (*make)(const KernelSettings&) = nullptr;  ///< Returns the factory of the kernel.
  /// Returns the traits of the kernel.
  KernelTraits traits() const { return make({}).traits; }
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

/// Returns what an encoding, or both encodings of "A+B", need and support: A is added to the input, B
/// is in the attention.
PositionTraits position_traits(const std::string& name, const PositionSettings& settings);

/// Returns the reason why a positional encoding cannot be used with a kernel in layers of these
/// options, as a sentence that lists the alternatives; empty if it can. `name` may be "A+B" as above.
std::string refusal(const std::string& name, const std::string& kernel,
                    const PositionSettings& settings, const LayerOptions& layer);

/// Sets a positional encoding ("A+B" as above) in a model's options. Throws the refusal(), if any,
/// for softmax attention.
void add_position(const std::string& name, const PositionSettings& settings, LayerOptions& layer,
                  InputOptions& input);

}  // namespace stretto::nn
