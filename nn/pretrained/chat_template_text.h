// Text of chat templates: UTF-8, and the characters that Python strips as white space.
#pragma once

#include <cstdint>
#include <string>

namespace stretto::nn::chat {

/// True if `text` is UTF-8 without surrogates and overlong sequences.
bool is_utf8(const std::string& text);
/// True if all bytes are below 128.
bool is_ascii(const std::string& text);
/// Returns the code point at byte `at` of a valid text and moves `at` behind it.
char32_t next_code_point(const std::string& text, size_t& at);
/// Returns the position of the code point that ends before byte `end`.
size_t previous_code_point(const std::string& text, size_t end);
/// Appends a code point as UTF-8.
void append_code_point(std::string& text, char32_t code);
/// True for the characters of Python's str.isspace().
bool is_space(char32_t code);
/// Returns the position of the first character from `at` on that is not white space.
size_t skip_space(const std::string& text, size_t at);
/// Returns the end of the text before `end` without its trailing white space.
size_t skip_space_backwards(const std::string& text, size_t end);

}  // namespace stretto::nn::chat
