// NumPy's files: one array (.npy), or named arrays in an uncompressed zip archive (.npz).
//
//   6 bytes   "\x93NUMPY", then the version (1.0, 2.0 or 3.0), 2 bytes
//   length    of the header, little-endian: 2 bytes, or 4 since version 2.0
//   header    a Python dict: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
//   data      raw values
//
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <string>
#include <vector>

#include "../../nn/module.h"

namespace stretto::nn {

/// Reads an array of numpy.save(), on the CPU. Little-endian f8, f4, i8, i4, u1 and bool have a
/// dtype of the library; f2 becomes f32; i2 and i1 become i32. In Fortran order, the tensor is a
/// transposed view. Throws Error, one line with the path, for any other type, pickled objects and
/// invalid files; memory is proportional to the size of the file, whatever its header claims.
Tensor load_npy(const std::string& path);

/// Writes x as numpy.save() does, replacing the file at `path` atomically. NumPy has no bf16: it
/// becomes f4, exactly.
void save_npy(const std::string& path, const Tensor& x);

/// Reads all arrays of numpy.savez(), in the order of the file. Throws Error for compressed
/// entries, which numpy.savez_compressed() writes, and otherwise as load_npy().
std::vector<NamedTensor> load_npz(const std::string& path);

/// Writes tensors as numpy.savez() does, replacing the file at `path` atomically. Names must be
/// unique and not empty.
void save_npz(const std::string& path, const std::vector<NamedTensor>& tensors);

}  // namespace stretto::nn
