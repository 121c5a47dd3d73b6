// Files of torch.save(): zip archives (.pt, .pth, .bin) and the older format, a sequence of
// pickles. Nothing in them is executed: classes and functions are a closed list, and others are an
// error with their name (pretrained/files/pytorch/pickle.h).
//
//   zip archive    NAME/data.pkl: the pickle; NAME/data/KEY: the values of a storage
//   older format   pickles of a magic number, a version, the system, the content and the list of
//                  keys; then for each key the number of values (i64) and the values
//
// https://github.com/pytorch/pytorch/blob/main/torch/serialization.py
#pragma once

#include <memory>
#include <string>

#include "../../../nn/files/weights_file.h"

namespace stretto::nn {

/// An open file of torch.save(). Dicts, lists and tuples are flattened: the tensor
/// d["optimizer"]["state"][0] is called "optimizer.state.0"; a file of one tensor calls it
/// "tensor". Strings, numbers and dtypes in dicts are metadata. Tensors of all dtypes of the
/// library can be read; F16 becomes f32, I8 and I16 become i32.
///
/// Views of one storage share memory if they are read together and most of the storage is needed.
/// They can be expanded (a stride of 0) or transposed, and are then not contiguous.
class PyTorchFile : public WeightsFile {
 public:
  /// Opens a file. Throws Error for a file that refers to an unknown class or function, a
  /// compressed entry, a big-endian file, and dicts that contain themselves or are nested more than
  /// 64 deep.
  explicit PyTorchFile(std::string path);
  ~PyTorchFile() override;

  void visit(const Wanted& wanted, const Use& use, const ReadAs& read_as = {}) const override;

 private:
  struct Content;
  std::unique_ptr<Content> content_;
};

}  // namespace stretto::nn
