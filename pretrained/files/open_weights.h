// Opens a file of weights of any format.
#pragma once

#include <memory>
#include <string>

#include "../../nn/files/weights_file.h"

namespace stretto::nn {

/// Opens a file of weights. The format is recognized by the content of the file, not by its name:
///
/// - a safetensors file, also a checkpoint (SafetensorsFile);
/// - a GGUF file (GgufFile);
/// - a file of torch.save() (PyTorchFile): .pt, .pth, .bin;
/// - an index (JSON) of shards in one of these formats, in the same directory;
/// - a directory with the first of: model.safetensors, model.safetensors.index.json,
///   pytorch_model.bin, pytorch_model.bin.index.json, a single file *.gguf.
///
/// Throws Error, one line with the path, if the file is invalid or its format is unknown.
std::unique_ptr<WeightsFile> open_weights(const std::string& path);

}  // namespace stretto::nn
