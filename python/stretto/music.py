"""MIDI files as tokens, and back."""

import os

from ._library import call
from ._models import ids_array, ids_list


class Tokenizer:
    """A tokenization by its name: remi, performance, tsd, tsd-multitrack or remi-multitrack.

    `token_names` are the names of the ids. Options: `pedal` (performance), `chords` (remi); and, of the other
    three, `time_signatures`, `rests`, `sustain_pedals`, `sustain_pedal_duration` and `pitch_bends`.
    """

    def __init__(self, name, **options):
        self._result = call("music_tokenizer", options={"name": name, **options})
        self.token_names = self._result.json

    def encode(self, path):
        """Returns the ids of a MIDI file, with the id of its end."""
        return ids_list(call("encode_midi", options={"path": os.fspath(path)}, owner=self._result))

    def decode(self, ids, path):
        """Writes the music of ids, in any order, as a MIDI file."""
        arrays = [("ids", ids_array(ids))]
        call("decode_midi", arrays, {"path": os.fspath(path)}, owner=self._result)
