// Music playback: a piano roll with a cursor, and sound by Web Audio. Positions are in ticks of the
// song; its tempo marks define the length of a tick.

const noteNames = ['C', 'C♯', 'D', 'E♭', 'E', 'F', 'F♯', 'G', 'A♭', 'A', 'B♭', 'B'];
const noteName = (pitch) => noteNames[pitch % 12] + (Math.floor(pitch / 12) - 1);
const voiceColors = [1, 4, 2, 0, 3, 5, 6, 7, 8, 9];

// The song of the page's data: voices of notes {start, end, pitch, velocity} in order, and times.
function readSong(data) {
  const voices = data.voices.map((voice, i) => {
    const notes = [];
    for (let k = 0; k + 3 < voice.notes.length; k += 4) {
      const [start, length, pitch, velocity] = voice.notes.slice(k, k + 4);
      notes.push({start, end: start + Math.max(1, length), pitch, velocity});
    }
    return {...voice, notes, color: voiceColors[i % 10], on: true};
  });
  const tempos = [];
  let seconds = 0;
  for (const [tick, perMinute] of data.tempos) {
    const last = tempos.at(-1);
    if (last) seconds += (tick - last.tick) * last.perTick;
    tempos.push({tick, seconds, perMinute, perTick: 60 / (Math.max(1, perMinute) * data.ticks)});
  }
  const all = voices.flatMap((voice) => voice.notes);
  const end = all.reduce((most, note) => Math.max(most, note.end), data.ticks);
  const find = (key, value) => {
    let low = 0, high = tempos.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      tempos[middle][key] <= value ? low = middle : high = middle - 1;
    }
    return tempos[low];
  };
  const song = {title: data.title, file: data.file, cut: data.cut, ticks: data.ticks, voices, end,
    count: all.length,
    low: all.reduce((least, note) => Math.min(least, note.pitch), all.length ? 127 : 60),
    high: all.reduce((most, note) => Math.max(most, note.pitch), all.length ? 0 : 72),
    secondsAt: (tick) => { const t = find('tick', tick); return t.seconds + (tick - t.tick) * t.perTick; },
    tickAt: (time) => { const t = find('seconds', time); return t.tick + (time - t.seconds) / t.perTick; },
    tempoAt: (tick) => find('tick', tick).perMinute};
  song.seconds = song.secondsAt(end);
  return song;
}

// Instruments: plain oscillators with an envelope, chosen by the General MIDI program.
class Synthesizer {
  constructor(voices, volume) {
    this.context = new AudioContext();
    this.out = this.context.createGain();
    this.out.gain.value = 0.5 * volume;
    const limit = this.context.createDynamicsCompressor();
    this.out.connect(limit).connect(this.context.destination);
    this.voices = voices.map((voice) => {
      const gain = this.context.createGain();
      gain.gain.value = voice.on ? 1 : 0;
      gain.connect(this.out);
      return gain;
    });
  }
  get now() { return this.context.currentTime; }
  set volume(value) { this.out.gain.setTargetAtTime(0.5 * value, this.now, 0.02); }
  turn(voice, on) { this.voices[voice].gain.setTargetAtTime(on ? 1 : 0, this.now, 0.015); }
  close() {
    this.out.gain.setTargetAtTime(0, this.now, 0.02);
    setTimeout(() => this.context.close(), 150);
  }

  play(index, voice, note, when, length) {
    const loud = 0.05 + 0.22 * (note.velocity / 127) ** 1.5;
    if (voice.drums) return this.drum(index, note.pitch, when, loud);
    const hertz = 440 * 2 ** ((note.pitch - 69) / 12), program = voice.program;
    if (program >= 16 && program < 24 || program >= 40 && program < 80)
      return this.sustained(index, hertz, when, length, loud * 0.8);
    this.plucked(index, hertz, when, length, loud, program >= 24 && program < 40);
  }
  tone(type, hertz, when, end, into, cents = 0) {
    const source = this.context.createOscillator();
    source.type = type;
    source.frequency.value = hertz;
    source.detune.value = cents;
    source.connect(into);
    source.start(when);
    source.stop(end);
  }
  // Attack, then decay to the fraction `rest` of the loudness with time constant `fall`, then release.
  envelope(index, when, length, {loud, attack, fall, rest, release, cutoff}) {
    const gain = this.context.createGain(), filter = this.context.createBiquadFilter();
    filter.frequency.value = cutoff;
    filter.Q.value = 0.3;
    gain.gain.setValueAtTime(0, when);
    gain.gain.linearRampToValueAtTime(loud, when + attack);
    gain.gain.setTargetAtTime(loud * rest, when + attack, fall);
    const end = when + Math.max(length, attack + 0.03);
    gain.gain.setTargetAtTime(0, end, release);
    filter.connect(gain).connect(this.voices[index]);
    return {into: filter, end: end + 6 * release};
  }
  sustained(index, hertz, when, length, loud) {
    const {into, end} = this.envelope(index, when, length,
      {loud, attack: 0.05, fall: 0.3, rest: 0.8, release: 0.09, cutoff: Math.min(9000, 5 * hertz + 600)});
    this.tone('triangle', hertz, when, end, into, -4);
    this.tone('triangle', hertz, when, end, into, 4);
    this.tone('sine', 2 * hertz, when, end, into);
  }
  plucked(index, hertz, when, length, loud, strings) {
    const {into, end} = this.envelope(index, when, length,
      {loud: loud * 1.2, attack: 0.005, fall: Math.max(0.15, 0.9 - hertz / 1800), rest: 0.02,
       release: 0.07, cutoff: Math.min(11000, (strings ? 6 : 4) * hertz + 900)});
    this.tone(strings ? 'sawtooth' : 'triangle', hertz, when, end, into);
    this.tone('sine', strings ? hertz : 2 * hertz, when, end, into, 2);
  }
  drum(index, pitch, when, loud) {
    const low = pitch === 35 || pitch === 36, snare = pitch >= 37 && pitch <= 40;
    const metal = pitch === 42 || pitch === 44 || pitch === 46 || pitch >= 49;
    const length = low ? 0.22 : snare ? 0.16 : pitch === 42 || pitch === 44 ? 0.06 : 0.25;
    const gain = this.context.createGain();
    gain.gain.setValueAtTime(loud * (low ? 3 : metal ? 0.6 : 1.4), when);
    gain.gain.exponentialRampToValueAtTime(0.001, when + length);
    gain.connect(this.voices[index]);
    if (!metal) {
      const source = this.context.createOscillator();
      source.frequency.setValueAtTime(low ? 140 : snare ? 220 : 90 + 4 * pitch, when);
      source.frequency.exponentialRampToValueAtTime(low ? 42 : snare ? 150 : 70, when + length);
      source.connect(gain);
      source.start(when);
      source.stop(when + length);
    }
    if (low || !(metal || snare)) return;
    const hiss = this.context.createBufferSource(), filter = this.context.createBiquadFilter();
    hiss.buffer = this.noise();
    filter.type = 'highpass';
    filter.frequency.value = metal ? 6500 : 1400;
    hiss.connect(filter).connect(gain);
    hiss.start(when);
    hiss.stop(when + length);
  }
  noise() {
    if (this.hiss) return this.hiss;
    const rate = this.context.sampleRate;
    this.hiss = this.context.createBuffer(1, rate / 2, rate);
    const samples = this.hiss.getChannelData(0);
    for (let i = 0; i < samples.length; ++i) samples[i] = 2 * Math.random() - 1;
    return this.hiss;
  }
}

// Draws bars of four beats, keys at the left, the notes of the enabled voices, and the cursor.
function drawRoll(canvas, song, position, playing) {
  const width = canvas.clientWidth, ratio = devicePixelRatio || 1;
  if (width === 0) return;
  const low = Math.max(0, song.low - 2), high = Math.min(127, song.high + 2), rows = high - low + 1;
  const row = Math.max(4, Math.min(10, Math.floor(340 / rows))), foot = 20, keys = 34;
  const height = rows * row + foot;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio), canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  // A view of whole bars, which advances like a page when the cursor leaves it.
  const bar = 4 * song.ticks, bars = Math.max(1, Math.ceil(song.end / bar));
  const seen = Math.min(bars, Math.max(2, Math.round((width - keys) / 110))) * bar;
  const first = Math.min(Math.max(0, bars * bar - seen), Math.floor(position / seen) * seen);
  const x = (tick) => keys + (tick - first) / seen * (width - keys);
  const y = (pitch) => (high - pitch) * row;
  const pen = canvas.getContext('2d');
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  const colors = {ground: resolved('--raised'), black: resolved('--black-row'), line: resolved('--line'),
    edge: resolved('--edge'), soft: resolved('--soft'), ink: resolved('--ink')};
  pen.fillStyle = colors.ground;
  pen.fillRect(0, 0, width, height);
  pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
  for (let pitch = low; pitch <= high; ++pitch) {
    pen.fillStyle = colors.black;
    if ([1, 3, 6, 8, 10].includes(pitch % 12)) pen.fillRect(0, y(pitch), width, row);
  }
  for (let pitch = Math.ceil(low / 12) * 12; pitch <= high; pitch += 12) {
    pen.fillStyle = colors.line;
    pen.fillRect(0, y(pitch) + row - 1, width, 1);
    pen.fillStyle = colors.soft;
    if (y(pitch) >= row) pen.fillText(noteName(pitch), 8, y(pitch) + row - 3);
  }
  const beatWidth = song.ticks / seen * (width - keys), barsApart = beatWidth * 4 < 40 ? 2 : 1;
  for (let tick = Math.ceil(first / song.ticks) * song.ticks; tick <= first + seen; tick += song.ticks) {
    const whole = tick % bar === 0;
    if (!whole && beatWidth < 10) continue;
    pen.globalAlpha = whole ? 0.75 : 1;
    pen.fillStyle = whole ? colors.edge : colors.line;
    pen.fillRect(Math.round(x(tick)), 0, 1, rows * row);
    pen.globalAlpha = 1;
    if (whole && tick < first + seen && (tick / bar) % barsApart === 0) {
      pen.fillStyle = colors.soft;
      pen.fillText(tick === first ? `bar ${tick / bar + 1}` : tick / bar + 1, x(tick) + 4, height - 6);
    }
  }
  pen.fillStyle = colors.line;
  pen.fillRect(keys - 1, 0, 1, rows * row);
  pen.fillRect(0, rows * row, width, 1);
  pen.save();
  pen.beginPath();
  pen.rect(keys, 0, width - keys, rows * row);
  pen.clip();
  const sounding = [];
  song.voices.forEach((voice, i) => {
    pen.fillStyle = resolved(`--s${voice.color}`);
    pen.globalAlpha = voice.on ? 1 : 0.13;
    const inset = row < 6 ? 0 : Math.min(i, 3) * Math.min(1, row / 8);  // both voices of a unison stay visible
    for (const note of voice.notes) {
      if (note.start > first + seen) break;
      if (note.end < first) continue;
      const left = x(note.start) + 1;
      pen.fillRect(left, y(note.pitch) + inset * 0.5 + 0.5, Math.max(2, x(note.end) - left - 0.5), row - 1 - inset);
      if (playing && voice.on && note.start <= position && position < note.end) sounding.push([note, left]);
    }
  });
  pen.globalAlpha = 1;
  pen.strokeStyle = colors.ink;
  pen.lineWidth = 1.5;
  for (const [note, left] of sounding)
    pen.strokeRect(left - 0.5, y(note.pitch) - 0.5, Math.max(3, x(note.end) - left), row + 0.5);
  pen.restore();
  pen.fillStyle = colors.ink;
  pen.fillRect(Math.round(x(position)) - 1, 0, 2, rows * row);
  canvas.tickAt = (pixel) => first + Math.max(0, pixel - keys) / (width - keys) * seen;
}

/// A player of several pieces: [{label, group, data}].
function player(pieces) {
  let song = null, synthesizer = null, position = 0, rate = 1, volume = 0.8, timer = 0, frame = 0;
  let began = null, next = [];  // position and clock at the last start; index of the next note per voice
  const pressed = (name, path) => [icon(path), name];
  const triangle = 'M3 1.5v13l11-6.5z', bars = 'M3 2h4v12H3zM9 2h4v12H9z', square = 'M2.5 2.5h11v11h-11z';

  const canvas = element('canvas', {role: 'img'});
  const play = element('button', {class: 'main play', type: 'button', onclick: () => began ? pause() : start()}, pressed('Play', triangle));
  const stop = element('button', {class: 'stop', type: 'button', onclick: () => { pause(); seek(0); }}, pressed('Stop', square));
  const time = element('output', {class: 'position', 'aria-live': 'off'});
  const place = element('input', {type: 'range', min: 0, max: 1000, step: 1, value: 0, 'aria-label': 'Position in the piece',
    oninput: () => seek(Number(place.value) / 1000 * song.seconds)});
  const beat = element('output');
  const tempo = element('input', {type: 'range', min: -100, max: 100, step: 5, value: 0, class: 'tempo', oninput: () => {
    anchor();
    rate = 2 ** (Number(tempo.value) / 100);
    sayTempo();
  }});
  const loud = element('input', {type: 'range', min: 0, max: 100, step: 1, value: 80, 'aria-valuetext': '80 %', oninput: () => {
    volume = (Number(loud.value) / 100) ** 1.5 * 1.12;
    loud.setAttribute('aria-valuetext', `${loud.value} %`);
    if (synthesizer) synthesizer.volume = volume;
  }});
  const voices = element('div', {class: 'voices', role: 'group', 'aria-label': 'Voices'});
  const about = element('span', {class: 'note'});
  const menu = element('select', {'aria-label': 'Piece', onchange: () => load(Number(menu.value))});
  for (const group of [...new Set(pieces.map((piece) => piece.group))]) {
    const options = pieces.flatMap((piece, i) => piece.group === group ? [element('option', {value: i}, piece.label)] : []);
    menu.append(...(group ? [element('optgroup', {label: group}, options)] : options));
  }
  const details = element('div');

  const now = () => performance.now() / 1000;
  const current = () => began ? began.position + (now() - began.at) * rate : position;
  function anchor() {
    if (began) began = {position: current(), at: now()};
  }
  function seek(seconds) {
    position = Math.max(0, Math.min(song.seconds, seconds));
    if (began) {
      began = {position, at: now()};
      silence();
      sound();
    }
    show();
  }
  function silence() {
    if (synthesizer) synthesizer.close();
    synthesizer = null;
  }
  // Replaces the synthesizer by an empty one; the next notes are those from the cursor on.
  function sound() {
    synthesizer = new Synthesizer(song.voices, volume);
    const tick = song.tickAt(current());
    next = song.voices.map((voice) => {
      const index = voice.notes.findIndex((note) => note.start >= tick - 1);
      return index < 0 ? voice.notes.length : index;
    });
    schedule();
  }
  // Schedules the notes of the next moment, further ahead if the browser calls rarely.
  function schedule() {
    if (!synthesizer) return;
    const here = current(), ahead = (document.hidden ? 1.6 : 0.3) * rate;
    song.voices.forEach((voice, v) => {
      for (; next[v] < voice.notes.length; ++next[v]) {
        const note = voice.notes[next[v]], from = song.secondsAt(note.start);
        if (from > here + ahead) break;
        const when = synthesizer.now + 0.05 + Math.max(0, (from - here) / rate);
        synthesizer.play(v, voice, note, when, (song.secondsAt(note.end) - from) / rate);
      }
    });
  }
  function start() {
    if (position >= song.seconds - 0.01) position = 0;
    began = {position, at: now()};
    sound();
    timer = setInterval(tickOver, 60);
    play.replaceChildren(...pressed('Pause', bars));
    const animate = () => {
      show();
      if (began) frame = requestAnimationFrame(animate);
    };
    animate();
  }
  function tickOver() {
    if (current() >= song.seconds + 0.4) {
      pause();
      seek(0);
    } else {
      schedule();
    }
  }
  function pause() {
    position = Math.min(current(), song.seconds);
    began = null;
    clearInterval(timer);
    cancelAnimationFrame(frame);
    silence();
    play.replaceChildren(...pressed('Play', triangle));
    show();
  }

  function show() {
    const seconds = Math.min(current(), song.seconds);
    drawRoll(canvas, song, song.tickAt(seconds), began !== null);
    place.value = Math.round(seconds / song.seconds * 1000);
    place.setAttribute('aria-valuetext', `${clock(seconds)} of ${clock(song.seconds)}`);
    const text = `${clock(seconds)} / ${clock(song.seconds)}`;
    if (time.textContent !== text) time.textContent = text;
  }
  function sayTempo() {
    beat.textContent = `${Math.round(song.tempoAt(song.tickAt(current())) * rate)} bpm`;
    tempo.setAttribute('aria-valuetext', beat.textContent);
  }
  function load(index) {
    if (began) pause();
    song = readSong(pieces[index].data);
    position = 0;
    voices.replaceChildren(...song.voices.map((voice, i) => {
      const button = element('button', {class: 'toggle', type: 'button', 'aria-pressed': 'true', onclick: () => {
        voice.on = !voice.on;
        button.setAttribute('aria-pressed', voice.on);
        if (synthesizer) synthesizer.turn(i, voice.on);
        show();
      }}, swatch(colorOf(voice.color), 'block'), voice.name || `voice ${i + 1}`);
      return button;
    }));
    about.replaceChildren(`${shown(song.count)} notes`, song.cut ? ', only the beginning' : '', song.file ? ` · ${song.file}` : '');
    canvas.setAttribute('aria-label', `Piano roll of “${song.title}”: ${song.voices.length} ${song.voices.length === 1 ? 'voice' : 'voices'}, ` +
      `${song.count} notes from ${noteName(song.low)} to ${noteName(song.high)}, ${clock(song.seconds)} long`);
    details.replaceChildren(lazyTable('Table of the notes', () => table(song.title, ['from', 'voice', 'note', 'beats'],
      song.voices.flatMap((voice) => voice.notes.map((note) => ({voice, note})))
        .sort((a, b) => a.note.start - b.note.start).slice(0, 600)
        .map(({voice, note}) => [song.secondsAt(note.start).toFixed(2) + ' s', voice.name, voice.drums ? `drum ${note.pitch}` : noteName(note.pitch),
          +((note.end - note.start) / song.ticks).toFixed(2)]), {hideCaption: true})));
    sayTempo();
    show();
  }

  canvas.addEventListener('click', (event) =>
    seek(song.secondsAt(canvas.tickAt(event.clientX - canvas.getBoundingClientRect().left))));
  new ResizeObserver(() => show()).observe(canvas);
  whenColorsChange.push(() => show());
  const made = element('div', {class: 'player'},
    element('div', {class: 'piece'}, pieces.length > 1 ? menu : element('h3', {}, pieces[0].label), about),
    element('div', {class: 'controls'}, play, stop, time,
      element('label', {class: 'slider'}, 'Tempo', tempo, beat), element('label', {class: 'slider'}, 'Volume', loud)),
    element('div', {class: 'roll'}, canvas), place, voices, details);
  load(0);
  return made;
}
