// Matrices as pictures: a byte per cell, on one scale; the pointer and the arrow keys read off values. The color is that
// of a root of the value's share of the scale, so that small weights are visible; the legend names the root.

// Nearly the colors of examples/plot/heat_maps.cpp: the lightness rises evenly.
function heatColors() {
  const strip = element('canvas', {width: 256, height: 1}), pen = strip.getContext('2d', {willReadFrequently: true});
  for (let i = 0; i < 256; ++i) {
    const t = i / 255, chroma = 0.05 + 0.14 * Math.sin(Math.PI * (0.08 + 0.84 * t)) ** 1.2;
    pen.fillStyle = `oklch(${0.14 + 0.83 * t} ${chroma} ${280 + 180 * t}deg)`;
    pen.fillRect(i, 0, 1, 1);
  }
  return pen.getImageData(0, 0, 256, 1).data;
}

const ordinal = (n) => n === 2 ? 'square' : n === 3 ? 'cube' : `${n}th`;
// Describes the color scale: "Color by the 5th root of the value".
function scaleWords({gamma, low}) {
  const root = 1 / gamma, of = low < 0 ? 'the value minus the minimum' : 'the value';
  if (gamma === 1) return `Color in proportion to ${of}`;
  return Math.abs(root - Math.round(root)) < 1e-6 ? `Color by the ${ordinal(Math.round(root))} root of ${of}` : `Color by ${of} to the power of ${shown(gamma)}`;
}
// Two significant digits.
const roughly = (x) => x === 0 ? '0' : Math.abs(x) < 1e-3 || Math.abs(x) >= 1e5 ? x.toExponential(1).replace('e+', 'e') : String(+x.toPrecision(2));

function heatMaps(group) {
  const colors = heatColors();
  const said = element('output', {'aria-live': 'polite'});
  // A byte is 1 + 254 sqrt(share); 0 means not finite.
  const share = (byte) => ((byte - 1) / 254) ** 2;
  const value = (byte) => byte === 0 ? null : group.low + share(byte) * (group.high - group.low);

  const figures = group.maps.map((map) => {
    const cells = Uint8Array.from(atob(map.cells), (c) => c.charCodeAt(0));
    const canvas = element('canvas', {width: map.columns, height: map.rows, tabindex: 0, role: 'application',
      'aria-roledescription': 'heat map'});
    const pen = canvas.getContext('2d'), image = pen.createImageData(map.columns, map.rows);
    let most = 0;
    cells.forEach((byte, i) => {
      const color = 4 * Math.round(255 * share(byte) ** group.gamma);
      for (let k = 0; k < 3; ++k) image.data[4 * i + k] = byte === 0 ? 153 : colors[color + k];
      image.data[4 * i + 3] = 255;
      if (byte > cells[most]) most = i;
    });
    pen.putImageData(image, 0, 0);
    const name = (index, what) => group.coarse > 1
      ? `${what} ${index * group.coarse + 1} to ${(index + 1) * group.coarse}` : `${what} ${index + 1}`;
    const at = (i) => `${name(Math.floor(i / map.columns), group.rows)}, ${name(i % map.columns, group.columns)}: ${shown(value(cells[i]))}`;
    canvas.setAttribute('aria-label', `${map.caption}: ${map.rows} by ${map.columns}; maximum at ${at(most)}. Arrow keys read off the cells.`);
    let cell = most;
    const say = () => { said.textContent = `${map.caption}, ${at(cell)}`; };
    canvas.addEventListener('pointermove', (event) => {
      const box = canvas.getBoundingClientRect();
      const column = Math.floor((event.clientX - box.left) / box.width * map.columns);
      const row = Math.floor((event.clientY - box.top) / box.height * map.rows);
      if (column < 0 || row < 0 || column >= map.columns || row >= map.rows) return;
      cell = row * map.columns + column;
      say();
    });
    canvas.addEventListener('focus', say);
    canvas.addEventListener('keydown', (event) => {
      const step = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -map.columns, ArrowDown: map.columns}[event.key];
      if (!step) return;
      event.preventDefault();
      if (cell + step >= 0 && cell + step < cells.length) cell += step;
      say();
    });
    return {map, most, at, figure: element('figure', {}, canvas, element('figcaption', {}, map.caption))};
  });
  const bar = element('canvas', {width: 256, height: 1, 'aria-hidden': 'true'}), pen = bar.getContext('2d');
  const image = pen.createImageData(256, 1);
  image.data.set(colors);
  pen.putImageData(image, 0, 0);
  // The colors are spread evenly along the bar, with their values below.
  const marks = [0, 0.25, 0.5, 0.75, 1].map((at) => group.low + at ** (1 / group.gamma) * (group.high - group.low));
  return element('div', {},
    group.coarse > 1 ? element('p', {class: 'note'}, `A cell shows the maximum of ${group.coarse} × ${group.coarse} values.`) : null,
    element('div', {class: 'maps'}, figures.map((f) => f.figure)),
    element('div', {class: 'scale'},
      element('figure', {}, bar, element('div', {class: 'marks'}, marks.map((value) => element('span', {}, roughly(value)))),
        element('figcaption', {}, `${scaleWords(group)}; one scale for all maps.`)), said),
    lazyTable('Table of the maxima', () => table(group.title, ['map', 'rows', 'columns', 'maximum at'],
      figures.map(({map, most, at}) => [map.caption, map.rows, map.columns, at(most)]), {hideCaption: true})));
}
