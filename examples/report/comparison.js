// Several runs over one another. A run keeps its colour throughout; from the tenth on, dashes tell
// those of one colour apart.

// What names of folders have in common at their beginning says nothing.
function shortNames(names) {
  const parts = names.map((name) => name.replace(/\/+$/, '').split('/'));
  let common = 0;
  while (names.length > 1 && parts.every((p) => p.length > common + 1 && p[common] === parts[0][common])) ++common;
  return parts.map((p) => p.slice(common).join('/'));
}

// Rows: runs; columns: the options whose values are not the same in all.
function differences(runs) {
  const options = [...new Set(runs.flatMap(({run}) => run.settings.map(([option]) => option)))].sort();
  const valueOf = ({run}, option) => run.settings.find(([name]) => name === option)?.[1] ?? '–';
  const differing = options.filter((option) => new Set(runs.map((r) => valueOf(r, option))).size > 1);
  if (runs.some(({run}) => run.program !== runs[0].run.program)) differing.unshift('program');
  return {differing, same: options.length - differing.filter((o) => o !== 'program').length,
    value: (r, option) => option === 'program' ? r.run.program : valueOf(r, option)};
}

function comparison(data) {
  const names = shortNames(data.runs.map((run) => run.name));
  const runs = data.runs.map((run, i) => ({run, name: names[i], m: measured(run), colour: i,
    dash: [undefined, '7 4', '2 4'][Math.floor(i / 10) % 3]}));
  // A path, whatever stands in it, and never a scheme.
  const address = (path) => (path.startsWith('/') ? '' : './') + path.split('/').map(encodeURIComponent).join('/');
  const named = ({run, name, colour}) => element('span', {}, swatch(colourOf(colour)), element('a', {href: address(run.link)}, name));
  const page = [element('header', {}, element('p', {class: 'eyebrow'}, 'Stretto · comparison'),
    element('h1', {}, `${runs.length} ${runs.length === 1 ? 'run' : 'runs'}`))];
  if (data.problems.length)
    page.push(element('ul', {class: 'problem'}, data.problems.map((line) => element('li', {}, line))));

  page.push(section('How they did', (part) => part.append(element('div', {class: 'scroll runs', tabindex: 0, role: 'region', 'aria-label': 'How they did'},
    table('Results of the runs', ['run', 'validation', 'best', 'training', 'unit', 'steps', 'time', 'tokens/s', 'memory', ''], runs.map((r) => {
      const last = r.m.step.length - 1;
      return [named(r), lossShown(r.m.valid[last]), lossShown(r.m.best), lossShown(r.m.train[last]), r.run.loss.unit, shown(r.m.step[last]), duration(r.m.seconds[last]),
        shown(r.m.meanSpeed === null ? null : Math.round(r.m.meanSpeed)), bytes(r.m.peak), stateNames[r.run.state] ?? r.run.state];
    }), {hideCaption: true})))));

  const {differing, same, value} = differences(runs);
  page.push(section('What differs in their settings', (part) => {
    if (differing.length === 0) part.append(element('p', {class: 'note'}, 'Nothing.'));
    else part.append(element('div', {class: 'scroll runs', tabindex: 0, role: 'region', 'aria-label': 'What differs in their settings'},
      table('Settings that differ', ['run', ...differing], runs.map((r) => [named(r), ...differing.map((option) => value(r, option))]), {hideCaption: true})));
    part.append(element('p', {class: 'note', style: 'margin-top:8px'}, `${same} others are the same in all.`));
  }));

  for (const unit of [...new Set(runs.map(({run}) => run.loss.unit))]) {
    const those = runs.filter(({run}) => run.loss.unit === unit);
    for (const [title, key] of [['Validation loss', 'valid'], ['Training loss', 'train']])
      page.push(section(title, (part) => part.append(element('p', {class: 'note'}, unit), overStepsOrTime((which, extra) => chart({title, yName: unit, yShown: lossShown, extra, ...axis(which),
        height: key === 'valid' ? 380 : 280, references: those.length && commonReferences(those),
        curves: those.map((r) => ({name: r.name, x: along(r.m, which), y: r.m[key], colour: colourOf(r.colour), dash: r.dash}))})))));
  }
  const pieces = runs.flatMap(({run, name}) => run.music.map((piece) => ({label: piece.title, group: name, data: piece})));
  if (pieces.length) page.push(section('Music', (part) => part.append(player(pieces))));
  const kinds = [...new Set(runs.flatMap(({run}) => run.charts.map((c) => `${c.x}|${c.y}`)))];
  for (const kind of kinds) {
    const [x, y] = kind.split('|');
    page.push(section(`Loss against the ${x}`, (part) => part.append(element('p', {class: 'note'}, y), chart({title: `Loss against the ${x}`, xName: x, yName: y, yShown: lossShown,
      curves: runs.flatMap((r) => r.run.charts.filter((c) => `${c.x}|${c.y}` === kind).flatMap((c) => c.curves.map((curve, i) =>
        ({...curve, name: `${r.name}: ${curve.name}`, colour: colourOf(r.colour), dash: ['none', '6 4', '2 4'][i % 3]}))))}))));
  }
  page.push(section('Speed and memory', (part) => part.append(speedAndMemory(runs))));
  const texts = runs.flatMap(({run, name}) => run.texts.map((text) => ({...text, title: `${name}: ${text.title}`})));
  if (texts.length) page.push(section('Texts', (part) => part.append(...texts.map((text) =>
    element('details', {}, element('summary', {}, text.title), textSample(text))))));
  page.push(element('footer', {}, 'Made by stretto-report. Each name leads to the page of that run.'));
  document.title = `${runs.length} runs`;
  return page;
}

// A line that all runs have, such as what counting achieves on the same data.
function commonReferences(runs) {
  const key = (references) => JSON.stringify(references);
  return runs.every(({run}) => key(run.loss.references) === key(runs[0].run.loss.references)) ? runs[0].run.loss.references : [];
}
