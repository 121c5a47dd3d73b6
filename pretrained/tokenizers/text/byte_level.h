// The alphabet of byte-level BPE (GPT-2): a printable character for every byte.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stretto::nn::tokenizers {

/// Returns the character of a byte as UTF-8, of 1 or 2 bytes.
std::string_view byte_character(uint8_t byte);

/// Returns the bytes of a text in the alphabet; nothing if it has other characters.
std::optional<std::string> bytes_of_characters(std::string_view text);

}  // namespace stretto::nn::tokenizers
