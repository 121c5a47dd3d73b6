"""Expected values of tests/music/event_tokenizer_test.cpp, from MidiTok.

    python tests/music/miditok_expected.py FOLDER expected.tsv
    STRETTO_MIDITOK=expected.tsv build/release/tests/stretto_tests "Event tokens of real files*"

needs miditok 3 and mido. Writes the tokens of each MIDI file in FOLDER, a row each: tokenizer with its options after
plus signs, file, ids. MidiTok reads a note that never ends differently (it drops the note), so files with such notes
are left out. Its reader, symusic 0.6, starts the first pedal of each channel above 0 at tick 0, even if it is only
released; correct_pedals() corrects this, and gives each pedal at least one step.
"""

import collections
import glob
import sys

from miditok import REMI, TSD, TokenizerConfig
from symusic import Pedal, Score


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


def correct_pedals(path, score):
    """Corrects the pedals of a score."""
    import mido

    starts = collections.defaultdict(set)  # by name of the track and release
    for track in mido.MidiFile(path).tracks:
        now, down = 0, {}
        for event in track:
            now += event.time
            if event.type != "control_change" or event.control != 64:
                continue
            if event.value >= 64:
                down.setdefault(event.channel, now)
            elif event.channel in down:
                starts[track.name, now].add(down.pop(event.channel))
    step = score.ticks_per_quarter // 8
    for track in score.tracks:
        all_pedals, track.pedals = list(track.pedals), []
        for pedal in all_pedals:
            end = pedal.time + pedal.duration
            start = max(starts[track.name, end], default=None) if pedal.time == 0 else pedal.time
            if start is not None:  # else a release of a pedal that is up
                track.pedals.append(Pedal(start, max(end - start, step)))


OPTIONS = [
    "",
    "+time_signatures",
    "+rests",
    "+sustain_pedals",
    "+time_signatures+rests+sustain_pedals+pitch_bends",
    "+time_signatures+rests+sustain_pedals+sustain_pedal_duration+pitch_bends",
]
KINDS = {"tsd-multitrack": (TSD, True), "remi-multitrack": (REMI, True), "tsd": (TSD, False)}


def tokenizer(kind, options):
    method, programs = KINDS[kind]
    config = dict(use_programs=programs, use_tempos=True, use_time_signatures=False)
    for option in options.split("+")[1:]:
        config[option if option == "sustain_pedal_duration" else "use_" + option] = True
    return method(TokenizerConfig(**config))


def main(folder, out):
    tokenizers = {kind + options: tokenizer(kind, options) for kind in KINDS for options in OPTIONS}
    files = sorted(glob.glob(folder + "/**/*.mid", recursive=True))
    with open(out, "w") as rows:
        for path in files:
            if unclosed(path):
                continue
            score = Score(path)
            correct_pedals(path, score)
            for name, method in tokenizers.items():  # tsd last
                if name.split("+")[0] == "tsd":  # one sequence per track: comparable if there is only one
                    if len(score.tracks) != 1 or score.tracks[0].is_drum:
                        continue
                    score.tracks[0].program = 0  # without programs, MidiTok's vocabulary has only Pedal_0
                    tokens = method(score)[0]
                else:
                    tokens = method(score)
                rows.write("\t".join([name, path, " ".join(map(str, tokens.ids))]) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
