// Text of chat templates: the characters that Python strips as white space.
#pragma once

#include <string>

#include "../../core/utf8.h"

namespace stretto::nn::chat {

/// True if all bytes are below 128.
bool is_ascii(const std::string& text);
/// True for the characters of Python's str.isspace().
bool is_space(char32_t code);
/// Returns the position of the first character from `at` on that is not white space.
size_t skip_space(const std::string& text, size_t at);
/// Returns the end of the text before `end` without its trailing white space.
size_t skip_space_backwards(const std::string& text, size_t end);

}  // namespace stretto::nn::chat
