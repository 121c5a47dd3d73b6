// Helpers for all parts of the page: elements, numbers, and colors. Text of a run is only ever
// inserted as text: no script of the page sets innerHTML.

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

const colorOf = (index) => `var(--s${index % 10})`;
const swatch = (color, kind = '') => element('span', {class: `swatch ${kind}`, style: `background:${color}`, 'aria-hidden': 'true'});
// For a canvas, which does not support CSS variables.
const resolved = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const whenColorsChange = [];
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  for (const draw of whenColorsChange) draw();
});

const isNumber = (x) => typeof x === 'number' && Number.isFinite(x);

// Four significant digits; integers in full.
function shown(x) {
  if (!isNumber(x)) return '–';
  if (Number.isInteger(x)) return x.toLocaleString('en-US');
  const size = Math.abs(x);
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) return x.toExponential(3).replace('e', ' e');
  return x.toLocaleString('en-US', {minimumSignificantDigits: 4, maximumSignificantDigits: 4});
}

// Four decimals, so that numbers in a column can be compared.
function lossShown(x) {
  if (!isNumber(x)) return '–';
  const size = Math.abs(x), digits = size < 1000 ? 4 : 1;
  return size < 1e9 ? x.toLocaleString('en-US', {minimumFractionDigits: digits, maximumFractionDigits: digits}) : shown(x);
}

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

// Multiples of 1, 2 or 5 times a power of ten; no fractions for `whole` values.
function ticks(low, high, most, whole) {
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(whole ? 1 : 0, [1, 2, 5, 10].map((x) => x * power).find((x) => x >= rough * 0.999));
  const first = Math.ceil(low / step - 1e-9), count = Math.min(most + 2, Math.floor(high / step + 1e-9) - first + 1);
  const values = new Set();  // removes duplicates of values too near to each other
  for (let i = 0; i < count; ++i) values.add((first + i) * step + 0);
  return {step, values: [...values]};
}

// Units of an axis, the largest first; one is used when the axis reaches `from`.
const byteUnits = [['GB', 1e9], ['MB', 1e6], ['kB', 1e3], ['B', 1]].map(([name, size]) => ({name, size, from: size}));
const timeUnits = [{name: 'h', size: 3600, from: 7200}, {name: 'min', size: 60, from: 120}, {name: 's', size: 1, from: 0}];
const largeUnits = [['G', 1e9], ['M', 1e6]].map(([name, size]) => ({name, size, from: 10 * size})).concat({name: '', size: 1, from: 0});

/// Ticks with their labels, all in one unit: [{value, label}].
function labeledTicks(low, high, most, {units, whole} = {}) {
  const far = Math.max(Math.abs(low), Math.abs(high));
  const all = units ?? (far < 1e15 ? largeUnits : [{name: '', size: 1, from: 0}]);
  const unit = all.find(({from}) => far >= from) ?? all.at(-1);
  const {step, values} = ticks(low / unit.size, high / unit.size, most, whole && unit.size === 1);
  const space = unit.name && units ? ' ' : '';
  return values.map((value) => ({value: value * unit.size, label: tickLabel(value, step, far / unit.size) + space + unit.name}));
}

// With the decimals that the step needs.
function tickLabel(value, step, far) {
  if (value !== 0 && (step < 1e-6 || far >= 1e15))
    return value.toExponential(Math.max(0, Math.min(15, Math.floor(Math.log10(Math.abs(value)) + 1e-9) - Math.floor(Math.log10(step) + 1e-9)))).replace('e+', 'e');
  const digits = step < 1e-6 ? 0 : Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return value.toLocaleString('en-US', {minimumFractionDigits: digits, maximumFractionDigits: digits});
}

// `heads` are the headings of columns; cells that are numbers are right-aligned.
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
// A number with its units, such as "1,234", "1.2e-05", "–", "12 %" or "3 min 05 s". Each character can
// match in only one way, so that matching takes linear time.
const looksNumeric = (text) => text === undefined || text === '' ||
  String(text).length <= 40 && /^[-–+]?[\d.,]*(?: ?e[-+]?\d+)?(?: ?(?:%|MB|GB|kB|B|s|min|h)(?: \d+)?)*$/.test(String(text));

/// `box` scrolls; while it is too narrow for its content, a hint is shown above it.
function withScrollHint(box, what = 'columns') {
  const hint = element('p', {class: 'note scroll-hint', hidden: true}, `Scroll sideways for more ${what} →`);
  const look = () => {
    const beyond = box.scrollWidth - box.clientWidth;
    hint.hidden = beyond <= 1;
    box.classList.toggle('cut', box.scrollLeft < beyond - 1);
  };
  new ResizeObserver(look).observe(box);
  box.addEventListener('scroll', look);
  return element('div', {class: 'scrolling'}, hint, box);
}
const scrolling = (label, content, kind = '') =>
  withScrollHint(element('div', {class: `scroll ${kind}`, tabindex: 0, role: 'region', 'aria-label': label}, content));

function lazyTable(summary, make) {
  const details = element('details', {}, element('summary', {}, summary));
  details.addEventListener('toggle', () => {
    if (details.open && details.children.length === 1) details.append(scrolling(summary, make(), 'tall'));
  });
  return details;
}

// A section of the page; broken data of one section must not affect the others.
function section(title, make, level = 'h2') {
  const part = element('section', {}, title ? element(level, {}, title) : null);
  try {
    if (make(part) === false) return null;
  } catch (error) {
    part.append(element('p', {class: 'problem'}, `This part cannot be shown: ${error.message}`));
  }
  return part;
}
