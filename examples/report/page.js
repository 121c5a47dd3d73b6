// The page: of one run all there is, of several what they have in common.

const stateNames = {training: 'training', stopped: 'stopped', failed: 'failed', scoring: 'scoring', done: 'done'};

// Columns of metrics.csv by name, losses in the run's unit.
function measured(run) {
  const {columns, rows} = run.metrics;
  const column = (name) => {
    const index = columns.indexOf(name);
    return rows.map((row) => index < 0 ? null : row[index]);
  };
  const scaled = (values) => values.map((x) => isNumber(x) ? x * run.loss.scale : null);
  const m = {step: column('step'), seconds: column('seconds'), train: scaled(column('train_loss')), valid: scaled(column('valid_loss')),
    speed: column('tokens_per_second'), memory: column('peak_bytes'), rate: column('learning_rate')};
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
    m.peak === null ? null : item('Memory', bytes(m.peak), 'peak of all tensors'));
}

// Over steps or over time, as the reader chooses.
function overStepsOrTime(make) {
  const host = element('div');
  const show = (which) => host.replaceChildren(make(which));
  const switches = (which) => choice('Horizontal axis', ['steps', 'time'], which, (i) => show(i));
  const build = make;
  make = (which) => build(which, switches(which));
  show(0);
  return host;
}
const axis = (which) => which === 0 ? {xName: 'step', xShown: shown}
  : {xName: 'time', xShown: duration, xTick: (x) => x >= 7200 ? `${+(x / 3600).toFixed(1)} h` : x >= 120 ? `${+(x / 60).toFixed(1)} min` : `${+x.toFixed(1)} s`};
const along = (m, which) => which === 0 ? m.step : m.seconds;

function speedAndMemory(runs) {
  const curves = (key) => runs.map(({name, m, colour}) => ({name, x: m.step, y: m[key], colour: colourOf(colour)}));
  const one = (title, unit, key, more) => element('div', {}, element('h3', {}, title),
    chart({title, xName: 'step', yName: unit, curves: runs.length === 1 ? curves(key).map((c) => ({...c, name: unit})) : curves(key), height: 220, fromZero: true, ...more}));
  const remembered = runs.some(({m}) => m.peak !== null);
  return element('div', {class: 'pair'}, one('Speed', 'tokens/s', 'speed', {yShown: (x) => shown(isNumber(x) ? Math.round(x) : x)}),
    remembered ? one('Memory', 'peak of all tensors', 'memory', {yShown: bytes, yTick: (x) => bytes(x)}) : null);
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

const textSample = ({given, text, aligned}) =>
  element('div', {class: 'sample', tabindex: 0, role: 'region', 'aria-label': 'Text'},
    element('pre', {class: aligned ? 'aligned' : undefined},
      given ? element('span', {class: 'given', title: 'given to the model'}, given) : null, text));

function words(run, m) {
  const at = m.step.length ? ` at step ${shown(m.step.at(-1))}` : '';
  return {
    training: `This page was written during the training${at}. Load it again for what came after.`,
    stopped: `The training was stopped${at}. It goes on with --resume.`,
    failed: `The training failed${at}: ${run.failure}`,
    scoring: 'The training is done; its last results were still in the making when this page was written.'}[run.state];
}

function onePage(run) {
  const m = measured(run);
  const page = [element('header', {}, element('p', {class: 'eyebrow'}, 'Stretto · report of a training'),
    element('h1', {}, run.program, element('span', {class: 'state'}, stateNames[run.state] ?? run.state)),
    element('p', {class: 'soft'}, run.name, element('br'), run.about),
    words(run, m) ? element('p', {class: 'problem'}, words(run, m)) : null, facts(run, m))];

  page.push(section(run.loss.title || 'Loss', (part) => {
    part.append(overStepsOrTime((which, extra) => chart({title: 'Loss', yName: run.loss.unit, yShown: lossShown, ...axis(which), extra, references: run.loss.references,
      curves: [{name: 'training', x: along(m, which), y: m.train, colour: colourOf(0)}, {name: 'validation', x: along(m, which), y: m.valid, colour: colourOf(1)}]})));
    if (run.metrics.measured > run.metrics.rows.length)
      part.append(element('p', {class: 'note'}, `${shown(run.metrics.rows.length)} of ${shown(run.metrics.measured)} measurements; all of them are in metrics.csv.`));
    part.querySelector('.chart')?.parentElement.prepend(element('p', {class: 'note'}, run.loss.unit));
  }));
  if (run.tables.length) page.push(section('Results', (part) => part.append(element('div', {class: 'tables'},
    run.tables.map((t) => element('div', {class: 'scroll'}, element('h3', {}, t.title), table(t.title, t.columns, t.rows, {hideCaption: true})))))));
  if (run.music.length) page.push(section('Music', (part) => part.append(player(run.music.map((data) => ({label: data.title, data}))))));
  for (const text of run.texts) page.push(section(text.title, (part) => part.append(textSample(text))));
  for (const c of run.charts) page.push(section(c.title, (part) => part.append(element('p', {class: 'note'}, c.y),
    chart({title: c.title, xName: c.x, yName: c.y, yShown: lossShown, references: c.references, curves: c.curves.map((curve, i) => ({...curve, colour: colourOf(i)}))}))));
  for (const group of run.maps) page.push(section(group.title, (part) => part.append(heatMaps(group))));
  page.push(section('Speed and memory', (part) => part.append(speedAndMemory([{name: run.name, m, colour: 0}]))));
  page.push(section('To repeat it', (part) => {
    part.append(element('p', {class: 'note'}, run.commands.length > 1 ? 'The commands of this run, one after the other:' : 'The command of this run:'),
      ...run.commands.map(copied));
    const list = (settings) => element('dl', {class: 'settings'}, settings.map(([option, value, given]) =>
      element('div', {class: given ? 'set' : ''}, element('dt', {}, option), element('dd', {}, value === '' ? '–' : value))));
    part.append(element('details', {}, element('summary', {}, `All ${run.settings.length} settings; those that were given are in bold`), list(run.settings)));
  }));
  page.push(element('footer', {}, `Written ${run.written} by stretto ${run.version}. This file holds all that it shows, and asks nothing of the network.`));
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
