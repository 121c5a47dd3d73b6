// What all parts of the page use: elements, numbers, and colours. Text of a run only ever becomes
// text: nothing here or elsewhere sets innerHTML.

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else if (key === 'class') made.className = value;
    else if (key === 'style') made.style.cssText = value;
    else if (value !== undefined && value !== false) made.setAttribute(key, value === true ? '' : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

function drawn(name, attributes = {}, ...children) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function icon(path) {
  return drawn('svg', {viewBox: '0 0 16 16', 'aria-hidden': 'true'}, drawn('path', {d: path}));
}

const colourOf = (index) => `var(--s${index % 10})`;
const swatch = (colour, kind = '') => element('span', {class: `swatch ${kind}`, style: `background:${colour}`, 'aria-hidden': 'true'});
// For a canvas, which knows no variables.
const resolved = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const whenColoursChange = [];
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  for (const draw of whenColoursChange) draw();
});

const isNumber = (x) => typeof x === 'number' && Number.isFinite(x);

// Four digits that count; whole numbers whole.
function shown(x) {
  if (!isNumber(x)) return '–';
  if (Number.isInteger(x)) return x.toLocaleString('en-US');
  const size = Math.abs(x);
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) return x.toExponential(3).replace('e', ' e');
  return x.toLocaleString('en-US', {minimumSignificantDigits: 4, maximumSignificantDigits: 4});
}

// Four decimals, so that those below one another can be compared.
const lossShown = (x) => isNumber(x) ? x.toFixed(Math.abs(x) < 1000 ? 4 : 1) : '–';

function bytes(x) {
  if (!isNumber(x)) return '–';
  if (x === 0) return '0';
  if (x < 1e6) return `${(x / 1e3).toPrecision(3)} kB`;
  if (x < 1e9) return `${x < 1e8 ? (x / 1e6).toPrecision(3) : Math.round(x / 1e6)} MB`;
  return `${(x / 1e9).toPrecision(3)} GB`;
}

function duration(seconds) {
  if (!isNumber(seconds)) return '–';
  const two = (x) => String(Math.floor(x)).padStart(2, '0');
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${two(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${two(seconds / 60 % 60)} min`;
}

const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, '0')}`;

// Multiples of 1, 2 or 5 times a power of ten.
function ticks(low, high, most) {
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((x) => x * power).find((x) => x >= rough * 0.999);
  const all = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) all.push(i * step);
  return {step, values: all};
}

function tickLabel(value, {step, values}) {
  const most = Math.max(...values.map(Math.abs));
  if (value === 0) return '0';
  if (step >= 1e5 && most >= 1e6) return `${+(value / 1e6).toFixed(3)}M`;
  if (step >= 1e2 && most >= 1e4) return `${+(value / 1e3).toFixed(3)}k`;
  return value.toFixed(Math.max(0, Math.min(9, -Math.floor(Math.log10(step) + 1e-9))));
}

// `heads` of columns; a cell that is a number stands right. Made when it is first opened.
function table(caption, heads, rows, options = {}) {
  const right = heads.map((_, i) => i > 0 && rows.every((row) => looksNumeric(row[i])));
  const cell = (name, value, i, more = {}) =>
    element(name, {class: right[i] ? 'number' : undefined, ...more}, value instanceof Node ? value : String(value ?? ''));
  return element('table', {class: options.class},
    caption ? element('caption', options.hideCaption ? {class: 'hidden'} : {}, caption) : null,
    element('thead', {}, element('tr', {}, heads.map((head, i) => cell('th', head, i, {scope: 'col'})))),
    element('tbody', {}, rows.map((row) => element('tr', {}, row.map((value, i) =>
      i === 0 ? cell('th', value, i, {scope: 'row'}) : cell('td', value, i))))));
}
const looksNumeric = (text) => text === undefined || text === '' || /^[-–+]?[\d.,]*( ?e[-+]?\d+)?( ?(%|MB|GB|kB|s|min|h|\d+))*$/.test(String(text));

function lazyTable(summary, make) {
  const details = element('details', {}, element('summary', {}, summary));
  details.addEventListener('toggle', () => {
    if (details.open && details.children.length === 1)
      details.append(element('div', {class: 'scroll tall', tabindex: 0, role: 'region', 'aria-label': summary}, make()));
  });
  return details;
}

// A part of the page; one whose data are broken must not take the others with it.
function section(title, make, level = 'h2') {
  const part = element('section', {}, title ? element(level, {}, title) : null);
  try {
    if (make(part) === false) return null;
  } catch (error) {
    part.append(element('p', {class: 'problem'}, `This part cannot be shown: ${error.message}`));
  }
  return part;
}
