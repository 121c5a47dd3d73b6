// Self-attention of sequences of unequal length in one batch (ForwardContext::left_padding).
//
// Padding shifts the positions of a sequence but not their differences. If all terms of the scores
// are relative, hiding the padding is therefore enough. Otherwise (SPE, FIRE, blocks, rotated
// inputs of a feature map) each sequence is encoded by itself, without its padding.
//
// Reference: none (its tests compare with each sequence by itself)
#pragma once

#include <functional>

#include "../positions/positional_encoding.h"
#include "key_value_cache.h"

namespace stretto::nn {

/// Throws an Error of `op` unless the padding, if any, has one entry per sequence of the batch and no
/// key_padding is set besides.
void check_padding(const char* op, const std::vector<int64_t>& left_padding, int64_t batch,
                   const AttentionMask& mask);

/// Returns the padding among the positions first … first + n − 1, bool [B, n], or an undefined tensor
/// if there is none.
Tensor padding_mask(const std::vector<int64_t>& left_padding, int64_t first, int64_t n,
                    Device device);

/// Returns the mask of a short convolution of x [B, M, C], the positions after those in the cache:
/// its key_padding has the padding of both sources among them. Throws an Error of `op` for sequence
/// parallelism, without a causal mask, and for packed segments with a cache or padding.
AttentionMask convolution_mask(const char* op, const Tensor& x, const AttentionMask& mask,
                               const ForwardContext& forward, const KeyValueCache* cache);

/// Adds the padding to the mask as key_padding, unless none of it is among the keys.
void hide_padding(AttentionInputs& inputs);

/// Replaces q and k by their encodings, with each sequence encoded at its own positions, without
/// its padding. For encodings that change only q, k and the scale; other terms are those of the
/// last sequence, so that kernels without scores report them.
void encode_one_by_one(AttentionInputs& inputs, const PositionalEncoding& encoding);

/// Returns attend(sequence) [1, M', H·Dv] of each sequence without its padding, as [B, M, H·Dv]
/// with zeros for the padding.
Tensor one_by_one(const AttentionInputs& inputs,
                  const std::function<Tensor(AttentionInputs sequence)>& attend);

}  // namespace stretto::nn
