// gwinndr's Music Transformer by the tensors of its file; for pretrained/pretrained.cpp.
#pragma once

#include <optional>

#include "../nn/files/weights_file.h"
#include "language_models.h"

namespace stretto::nn::pretrained {

/// The model type of music_transformer_config(). These files have no config.json that names one.
inline constexpr const char* music_transformer_type = "gwinndr-music-transformer";

/// What the names and shapes of a state dict determine of a Music Transformer.
struct MusicTransformerConfig {
  LanguageModelConfig config;             ///< Options, names and trained length.
  std::optional<int64_t> end_token = {};  ///< Token that ends a piece, with its own vocabulary.
};

/// Reads the sizes of a Music Transformer with relative attention (its option --rpr): the
/// vocabulary and width from the embedding; the trained length and the head dimension from a table
/// "Er", so that the number of heads is width / head dimension. Returns nothing if the file has no
/// such table. Throws if the shapes do not fit together.
std::optional<MusicTransformerConfig> music_transformer_config(const WeightsFile& file);

/// Returns the path of the only file *.pickle, *.pth or *.pt of a folder without config.json, else
/// the path as given.
std::string state_dict_in(const std::string& path);

}  // namespace stretto::nn::pretrained
