// The page: all results of one run, or a comparison of several.

const stateNames = {training: 'training', stopped: 'stopped', failed: 'failed', scoring: 'scoring', done: 'done'};

// Columns of metrics.csv by name, losses in the run's unit. The first column, the step, is the x axis of the curves;
// `others` are the columns without a specific chart.
const ownCharts = ['seconds', 'train_loss', 'valid_loss', 'tokens_per_second', 'peak_bytes'];
function measured(run) {
  const {columns, rows} = run.metrics;
  const column = (name) => {
    const index = columns.indexOf(name);
    return rows.map((row) => index < 0 ? null : row[index]);
  };
  const scaled = (values) => values.map((x) => isNumber(x) ? x * run.loss.scale : null);
  const m = {axis: columns[0] ?? 'step', step: rows.map((row) => row[0]), seconds: column('seconds'),
    train: scaled(column('train_loss')), valid: scaled(column('valid_loss')), speed: column('tokens_per_second'), memory: column('peak_bytes'),
    others: columns.map((name, i) => ({name, y: rows.map((row) => row[i])})).slice(1).filter(({name}) => !ownCharts.includes(name))};
  const numbers = m.valid.filter(isNumber);
  m.best = numbers.length ? Math.min(...numbers) : null;
  m.bestStep = m.step[m.valid.indexOf(m.best)];
  const speeds = m.speed.filter((x) => isNumber(x) && x > 0);
  m.meanSpeed = speeds.length ? speeds.reduce((a, b) => a + b) / speeds.length : null;
  const peaks = m.memory.filter(isNumber);
  m.peak = peaks.length ? Math.max(...peaks) : null;
  return m;
}

function facts(run, m) {
  const item = (name, value, more) => element('div', {}, element('dt', {}, name), element('dd', {}, value, more ? element('small', {}, more) : null));
  const last = m.step.length - 1, setting = run.settings.find(([option]) => option === '--steps');
  const planned = setting && Number(setting[1]) > 0 ? `of ${shown(Number(setting[1]))}` : '';
  return element('dl', {class: 'facts'},
    item('Validation loss', lossShown(m.valid[last]), m.best !== null && m.best < m.valid[last] ? `best ${lossShown(m.best)} at step ${shown(m.bestStep)}` : run.loss.unit),
    item('Training loss', lossShown(m.train[last]), 'smoothed'),
    item('Steps', shown(m.step[last]), planned),
    item('Time', duration(m.seconds[last]), 'training and validation'),
    item('Speed', shown(m.meanSpeed === null ? null : Math.round(m.meanSpeed)), 'tokens/s, mean'),
    m.peak === null ? null : item('Memory', bytes(m.peak), 'peak, all tensors'));
}

// A chart over steps or over time, as the reader chooses.
function overStepsOrTime(measurements, make) {
  const timed = measurements.some((m) => m.seconds.some(isNumber));
  const host = element('div');
  const show = (which) => host.replaceChildren(make(which));
  const switches = (which) => choice('Horizontal axis', ['steps', 'time'], which, (i) => show(i));
  const build = make;
  make = (which) => build(which, timed ? switches(which) : null);
  show(0);
  return host;
}
const axis = (which, m) => which === 0 ? {xName: m.axis, xShown: shown} : {xName: 'time', xShown: duration, xUnits: timeUnits};
const along = (m, which) => which === 0 ? m.step : m.seconds;

function speedAndMemory(runs) {
  const curves = (key) => runs.map(({name, m, color, dash}) => ({name, x: m.step, y: m[key], color: colorOf(color), dash}));
  const one = (title, unit, key, more) => element('div', {}, element('h3', {}, title),
    chart({title, xName: runs[0].m.axis, yName: unit, curves: runs.length === 1 ? curves(key).map((c) => ({...c, name: unit})) : curves(key), height: 220, fromZero: true, ...more}));
  const remembered = runs.some(({m}) => m.peak !== null);
  return element('div', {class: 'pair'}, one('Speed', 'tokens/s', 'speed', {yShown: (x) => shown(isNumber(x) ? Math.round(x) : x)}),
    remembered ? one('Memory', 'peak, all tensors', 'memory', {yShown: bytes, yUnits: byteUnits}) : null);
}

// A small chart per additional column of metrics.csv, such as those of user programs.
function otherColumns(runs) {
  const names = [...new Set(runs.flatMap(({m}) => m.others.filter(({y}) => y.some(isNumber)).map(({name}) => name)))];
  if (names.length === 0) return null;
  const most = 40;
  return section('Other columns of metrics.csv', (part) => {
    part.append(element('div', {class: 'pair'}, names.slice(0, most).map((name) => element('div', {}, element('h3', {dir: 'auto'}, name),
      chart({title: name, xName: runs.find(({m}) => m.others.some((other) => other.name === name)).m.axis, yName: name, height: 220, curves: runs.flatMap((r) => r.m.others.filter((other) => other.name === name)
        .map(({y}) => ({name: runs.length === 1 ? name : r.name, x: r.m.step, y, color: colorOf(r.color), dash: r.dash})))})))));
    if (names.length > most) part.append(element('p', {class: 'note'}, `${shown(names.length - most)} more columns are in metrics.csv.`));
  });
}

function copied(text) {
  const pre = element('pre', {}, element('code', {}, text));
  const button = element('button', {type: 'button', onclick: async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = 'Copied';
    } catch {
      getSelection().selectAllChildren(pre);
      button.textContent = 'Selected';
    }
    setTimeout(() => { button.textContent = 'Copy'; }, 1500);
  }}, 'Copy');
  return element('div', {class: 'command'}, pre, button);
}

// Text in a right-to-left script runs from right to left; aligned columns keep their order.
function textSample({given, text, aligned}) {
  const box = element('div', {class: 'sample', tabindex: 0, role: 'region', 'aria-label': 'Text'},
    element('pre', aligned ? {class: 'aligned', dir: 'ltr'} : {dir: 'auto'},
      given ? element('span', {class: 'given', title: 'prompt'}, given) : null, text));
  return aligned ? withScrollHint(box) : box;
}

function words(run, m) {
  const at = m.step.length ? ` at step ${shown(m.step.at(-1))}` : '';
  return {
    training: `This page was written during training${at}. Reload it for newer results.`,
    stopped: `Training was stopped${at}. Resume it with --resume.`,
    failed: `Training failed${at}: ${run.failure}`,
    scoring: 'Training is complete; the final evaluation was still running when this page was written.'}[run.state];
}

// The page of a run; without metrics, of a program that only uses a trained model.
function onePage(run) {
  const m = measured(run), trains = run.metrics.columns.length > 0;
  const page = [element('header', {}, element('p', {class: 'eyebrow'}, trains ? 'Stretto · training report' : 'Stretto'),
    element('h1', {}, run.program, element('span', {class: 'state'}, stateNames[run.state] ?? run.state)),
    element('p', {class: 'soft'}, element('bdi', {}, run.name), element('br'), run.about),
    words(run, m) ? element('p', {class: 'problem'}, words(run, m)) : null, trains ? facts(run, m) : null)];

  if (trains) page.push(section(run.loss.title || 'Loss', (part) => {
    part.append(overStepsOrTime([m], (which, extra) => chart({title: 'Loss', yName: run.loss.unit, yShown: lossShown, ...axis(which, m), extra, references: run.loss.references,
      curves: [{name: 'training', x: along(m, which), y: m.train, color: colorOf(0)}, {name: 'validation', x: along(m, which), y: m.valid, color: colorOf(1)}]})));
    if (run.metrics.measured > run.metrics.rows.length)
      part.append(element('p', {class: 'note'}, `${shown(run.metrics.rows.length)} of ${shown(run.metrics.measured)} measurements; all of them are in metrics.csv.`));
    part.querySelector('.chart')?.parentElement.prepend(element('p', {class: 'note'}, run.loss.unit));
  }));
  if (run.tables.length) page.push(section('Results', (part) => part.append(element('div', {class: 'tables'},
    run.tables.map((t) => element('div', {}, element('h3', {}, t.title), scrolling(t.title, table(t.title, t.columns, t.rows, {hideCaption: true}))))))));
  if (run.music.length) page.push(section('Music', (part) => part.append(player(run.music.map((data) => ({label: data.title, data}))))));
  for (const text of run.texts) page.push(section(element('bdi', {}, text.title), (part) => part.append(textSample(text))));
  for (const c of run.charts) page.push(section(c.title, (part) => part.append(element('p', {class: 'note'}, c.y),
    chart({title: c.title, xName: c.x, yName: c.y, yShown: lossShown, references: c.references, curves: c.curves.map((curve, i) => ({...curve, color: colorOf(i)}))}))));
  for (const group of run.maps) page.push(section(group.title, (part) => part.append(heatMaps(group))));
  if (trains) page.push(section('Speed and memory', (part) => part.append(speedAndMemory([{name: run.name, m, color: 0}]))));
  page.push(otherColumns([{name: run.name, m, color: 0}]));
  page.push(section('Reproduction', (part) => {
    part.append(element('p', {class: 'note'}, run.commands.length > 1 ? 'The commands of this run, in this order:' : 'The command of this run:'),
      ...run.commands.map(copied));
    const list = (settings) => element('dl', {class: 'settings'}, settings.map(([option, value, given]) =>
      element('div', {class: given ? 'set' : ''}, element('dt', {}, option), element('dd', {dir: 'auto'}, value === '' ? '–' : value))));
    if (run.settings.length)
      part.append(element('details', {}, element('summary', {}, `All ${run.settings.length} settings; those set on the command line are in bold`), list(run.settings)));
  }));
  page.push(element('footer', {}, `Written ${run.written} by stretto ${run.version}. This file is self-contained and needs no network.`));
  document.title = `${run.program} · ${run.name}`;
  return page;
}

document.addEventListener('DOMContentLoaded', () => {
  const host = document.getElementById('page');
  try {
    const data = JSON.parse(document.getElementById('data').textContent);
    host.replaceChildren(...(data.kind === 'comparison' ? comparison(data) : onePage(data.runs[0])).filter(Boolean));
  } catch (error) {
    host.replaceChildren(element('p', {class: 'problem'}, `This page's data cannot be read: ${error.message}`));
  }
});
