"""Expected values of tests/music/event_tokenizer_test.cpp, from MidiTok.

    python tests/music/miditok_expected.py FOLDER expected.tsv
    STRETTO_MIDITOK=expected.tsv build/release/tests/stretto_tests "Event tokens of real files*"

needs miditok 3. Writes the tokens of each MIDI file in FOLDER, a row each: tokenizer, file, ids. MidiTok reads a
note that never ends differently (it drops the note), so files with such notes are left out.
"""

import collections
import glob
import sys

from miditok import REMI, TSD, TokenizerConfig
from symusic import Score


def unclosed(path):
    """True if a note of the file never ends."""
    import mido

    for track in mido.MidiFile(path).tracks:
        sounding = collections.Counter()
        for event in track:
            if event.type not in ("note_on", "note_off"):
                continue
            key = event.channel, event.note
            if event.type == "note_on" and event.velocity > 0:
                sounding[key] += 1
            elif sounding[key] > 0:
                sounding[key] -= 1
        if any(sounding.values()):
            return True
    return False


def main(folder, out):
    def config(programs):
        return TokenizerConfig(use_programs=programs, use_tempos=True, use_time_signatures=False)

    tokenizers = {"tsd-multitrack": TSD(config(True)), "remi-multitrack": REMI(config(True)), "tsd": TSD(config(False))}
    files = sorted(glob.glob(folder + "/**/*.mid", recursive=True))
    with open(out, "w") as rows:
        for path in files:
            if unclosed(path):
                continue
            score = Score(path)
            for name, tokenizer in tokenizers.items():
                tokens = tokenizer(score)
                if name == "tsd":  # one sequence per track: comparable if there is only one
                    if len(tokens) != 1 or score.tracks[0].is_drum:
                        continue
                    tokens = tokens[0]
                rows.write("\t".join([name, path, " ".join(map(str, tokens.ids))]) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
