"""Prints pretrained/tokenizers/text/unicode_differences.cpp: where the properties of characters in `tokenizers`
differ from those of utf8proc 2.8 (Unicode 15.0) and PCRE2 10.42 (Unicode 14.0).

`tokenizers` 0.23.3 contains libraries with five versions of Unicode: Oniguruma (16), Rust's standard
library (17), unicode-segmentation, unicode-normalization-alignments (12.0) and unicode-categories (8).
Every property is measured: each code point passes through the component that uses it.

    python tests/pretrained/tokenizers/unicode_differences.py > pretrained/tokenizers/text/unicode_differences.cpp
"""
import ctypes
import tempfile

import sentencepiece
from message_field import field
from tokenizers import Regex, normalizers, pre_tokenizers

u8 = ctypes.CDLL("libutf8proc.so.2")
u8.utf8proc_category.restype = ctypes.c_int
u8.utf8proc_tolower.restype = ctypes.c_int32
u8.utf8proc_get_property.restype = ctypes.POINTER(ctypes.c_int16 * 12)
pcre = ctypes.CDLL("libpcre2-8.so.0")
pcre.pcre2_compile_8.restype = ctypes.c_void_p
pcre.pcre2_match_data_create_8.restype = ctypes.c_void_p

points = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
names = ["Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi",
         "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"]
category = {c: names[u8.utf8proc_category(c)] for c in points}


def of(*kinds):
    return {c for c in points if category[c] in kinds or category[c][0] in kinds}


def isolated(splitter):
    found = set()
    for c in points:
        around = "a" if c == 0xE000 else "\uE000"
        if len(splitter.pre_tokenize_str(around + chr(c) + around)) > 1:
            found.add(c)
    return found


def pcre_class(text):
    error, offset = ctypes.c_int(), ctypes.c_size_t()
    pattern = text.encode()
    code = ctypes.c_void_p(pcre.pcre2_compile_8(pattern, ctypes.c_size_t(len(pattern)), 0x00080000 | 0x00020000,
                                                ctypes.byref(error), ctypes.byref(offset), None))
    data = ctypes.c_void_p(pcre.pcre2_match_data_create_8(1, None))
    found = set()
    for c in points:
        s = chr(c).encode()
        if pcre.pcre2_match_8(code, s, ctypes.c_size_t(len(s)), ctypes.c_size_t(0), 0, data, None) >= 0:
            found.add(c)
    return found


def removed(normalizer):
    return {c for c in points if normalizer.normalize_str(chr(c)) == ""}


def ranges(found):
    out = []
    for c in sorted(found):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def emit(name, comment, found):
    out = ranges(found)
    print(f"// {comment}")
    print(f"constexpr Range {name}[] = {{")
    line = "   "
    for a, b in out:
        item = f" {{0x{a:X}, 0x{b:X}}},"
        if len(line) + len(item) > 100:
            print(line)
            line = "   "
        line += item
    print(line.rstrip(",") + "};")
    print()


def toggled(name, what, measured, base):
    emit(name + "_changes", f"{what}: changes of the set by utf8proc's categories.", set(measured) ^ set(base))


print('#include "pretrained/tokenizers/text/unicode_differences.h"\n')
print("// Written by tests/pretrained/tokenizers/unicode_differences.py. Each range is inclusive.\n")
print("namespace stretto::nn::tokenizers {\nnamespace {\n")
for kind in ["Lu", "Ll", "Lm", "Lo", "M", "N", "P", "S"]:
    both = isolated(pre_tokenizers.Split(Regex(f"\\p{{{kind}}}"), "isolated")) - {0xE000}
    emit("new_" + kind, f"\\p{{{kind}}} in Unicode 16 but not in 14.", both - pcre_class(f"\\p{{{kind}}}"))

toggled("numeric", "Digits", isolated(pre_tokenizers.Digits(False)), of("N"))
ascii_symbols = {ord(c) for c in "$+<=>^`|~"}
toggled("punctuation", "Punctuation and BertPreTokenizer", isolated(pre_tokenizers.Punctuation("isolated")),
        of("P") | ascii_symbols)
bert = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
toggled("control", "Characters that BertNormalizer removes",
        removed(normalizers.BertNormalizer(**{**bert, "clean_text": True})), of("Cc", "Cf", "Co") - {9, 10, 13})
toggled("accent", "Characters that BertNormalizer removes as accents",
        removed(normalizers.BertNormalizer(**{**bert, "strip_accents": True})), of("Mn"))
toggled("mark", "Characters that StripAccents removes", removed(normalizers.StripAccents()), of("M"))
word = {c for c in points if len(pre_tokenizers.Whitespace().pre_tokenize_str("a" + chr(c) + "a")) == 1}
toggled("word", "Words in Whitespace and single_word", word, of("L", "M", "Nd", "Nl", "Pc"))

# Normalization: code points that are newer than unicode-normalization-alignments.
combining = {c for c in points if u8.utf8proc_get_property(c).contents[1] != 0}
newer = set()
forms = {f: getattr(normalizers, f)() for f in ["NFD", "NFKD"]}
for c in points:
    for form, normalizer in forms.items():
        form_of = getattr(u8, "utf8proc_" + form)
        form_of.restype = ctypes.c_char_p
        if c and form_of(chr(c).encode()).decode() != normalizer.normalize_str(chr(c)):
            newer.add(c)
for c in combining:
    k = u8.utf8proc_get_property(c).contents[1]
    text = "a" + (chr(0x345) + chr(c) if k < 240 else chr(c) + chr(0x334))
    if forms["NFD"].normalize_str(text) == text:
        newer.add(c)
emit("opaque", "Normalization leaves these code points and the order around them unchanged.",
     newer | {0x11930, 0x11935, 0x11938})

# Grapheme clusters: "a" and a character become one cluster if the rule for "a" replaces both.
with tempfile.TemporaryDirectory() as folder:
    open(folder + "/rule.tsv", "w").write("61\t58\n")
    open(folder + "/text", "w").write("b c d e f\n" * 20)
    sentencepiece.SentencePieceTrainer.train(input=folder + "/text", model_prefix=folder + "/m", vocab_size=9,
                                             normalization_rule_tsv=folder + "/rule.tsv", minloglevel=2)
    model = open(folder + "/m.model", "rb").read()
    precompiled = normalizers.Precompiled(field(field(model, 3), 2))
extend = {c for c in points if precompiled.normalize_str("a" + chr(c)) == "X"}
u8.utf8proc_grapheme_break.restype = ctypes.c_bool
toggled("extend", "Characters that continue a grapheme cluster", extend,
        {c for c in points if not u8.utf8proc_grapheme_break(0x61, c)})

lower = []
for c in points:
    measured = normalizers.Lowercase().normalize_str(chr(c))
    if c != 0x130 and measured != chr(u8.utf8proc_tolower(c)):
        lower.append((c, ord(measured)))
print("// Lowercase: first, last, and the first code point in lower case.")
print("constexpr Mapped lower[] = {")
runs = []
for c, to in lower:
    if runs and runs[-1][1] == c - 1 and runs[-1][2] - runs[-1][0] == to - c:
        runs[-1][1] = c
    else:
        runs.append([c, c, to])
line = "   "
for a, b, to in runs:
    item = f" {{0x{a:X}, 0x{b:X}, 0x{to:X}}},"
    if len(line) + len(item) > 100:
        print(line)
        line = "   "
    line += item
print(line.rstrip(",") + "};\n")
print("}  // namespace\n")
print("UnicodeDifferences unicode_differences() {")
print("  UnicodeDifferences d;")
for kind in ["Lu", "Ll", "Lm", "Lo", "M", "N", "P", "S"]:
    print(f"  d.new_{kind} = new_{kind};")
for name in ["numeric", "punctuation", "control", "accent", "mark", "word", "extend"]:
    print(f"  d.{name} = {name}_changes;")
print("  d.opaque = opaque;\n  d.lower = lower;\n  return d;\n}\n\n}  // namespace stretto::nn::tokenizers")
