// The component `music`: MIDI files, and music as tokens. It needs nothing of the framework but core.
#pragma once

#include "music/chords.h"
#include "music/event_tokenizer.h"
#include "music/infill.h"
#include "music/midi_file.h"
#include "music/midi_reader.h"
#include "music/midi_writer.h"
#include "music/performance.h"
#include "music/piano_notes.h"
#include "music/remi.h"
#include "music/tempo_map.h"
#include "music/tokenizer.h"
