// Two fixed-width bitmap faces for labels in plots.
#pragma once

namespace stretto::examples {

/// kRegular is 8 x 13 pixels, kTitle is 10 x 20 pixels and heavier.
enum class Font { kRegular, kTitle };

/// Advance of one character in pixels.
int glyph_width(Font font);

/// Height of one line in pixels, descenders included.
int glyph_height(Font font);

/// Whether pixel (`x`, `y`), counted from the glyph's top left, is inked. Characters outside
/// printable ASCII show as '?'; pixels outside the glyph are blank.
bool glyph_pixel(Font font, char character, int x, int y);

}  // namespace stretto::examples
