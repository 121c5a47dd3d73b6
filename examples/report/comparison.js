// Comparison of several runs. A run has the same color everywhere; from the eleventh on, dashes
// distinguish runs of the same color.

// Removes the leading folders that all names have in common.
function shortNames(names) {
  const parts = names.map((name) => name.replace(/\/+$/, '').split('/'));
  let common = 0;
  while (names.length > 1 && parts.every((p) => p.length > common + 1 && p[common] === parts[0][common])) ++common;
  return parts.map((p) => p.slice(common).join('/'));
}

// Returns the options whose values differ among these runs, the number of the other options, and a
// function that returns a run's value of an option.
function differences(runs) {
  const options = [...new Set(runs.flatMap(({run}) => run.settings.map(([option]) => option)))].sort();
  const valueOf = ({run}, option) => run.settings.find(([name]) => name === option)?.[1] ?? '–';
  const differing = options.filter((option) => new Set(runs.map((r) => valueOf(r, option))).size > 1);
  if (runs.some(({run}) => run.program !== runs[0].run.program)) differing.unshift('program');
  return {differing, same: options.length - differing.filter((o) => o !== 'program').length,
    value: (r, option) => option === 'program' ? r.run.program : valueOf(r, option)};
}

// The last value of additional columns of metrics.csv, such as an accuracy.
function lastNumbers(runs) {
  const own = ({m}) => m.others.filter(({name, y}) => !['learning_rate', 'gradient_norm'].includes(name) && y.some(isNumber));
  const those = runs.filter((r) => own(r).length), names = [...new Set(those.flatMap((r) => own(r).map(({name}) => name)))];
  if (names.length === 0) return [];
  return [{title: 'Last values of other columns of metrics.csv', heads: names.slice(0, mostResults), left: Math.max(0, names.length - mostResults),
    rows: those.map((r) => ({r, cells: names.slice(0, mostResults).map((name) =>
      shown(own(r).find((other) => other.name === name)?.y.filter(isNumber).at(-1)))}))}];
}

const mostResults = 60;  // maximum number of columns of a table

/// Merges the result tables of the same title: a row per run, a column per value.
/// [{title, heads, rows: [{r, cells}], left}], where `left` is the number of columns that are not shown.
function finalResults(runs) {
  const all = new Map();
  for (const r of runs)
    for (const t of r.run.tables) {
      if (!all.has(t.title)) all.set(t.title, {title: t.title, columns: new Map(), rows: new Map()});
      const {columns, rows} = all.get(t.title);
      if (!rows.has(r)) rows.set(r, new Map());
      // The first cells of a row are its name: as many as needed to distinguish the rows.
      let names = 1;
      const nameOf = (row) => row.slice(0, names).map((cell, i) => i === 0 ? cell : `${t.columns[i]} ${cell}`).join(', ');
      while (names < t.columns.length - 1 && new Set(t.rows.map(nameOf)).size < t.rows.length) ++names;
      for (const row of t.rows)
        t.columns.slice(names).forEach((column, i) => {
          const key = JSON.stringify([nameOf(row), column]);
          if (!columns.has(key)) columns.set(key, [nameOf(row), column]);
          rows.get(r).set(key, row[names + i]);
        });
    }
  return [...all.values()].map(({title, columns, rows}) => {
    const keys = [...columns.keys()].slice(0, mostResults), different = (i) => new Set([...columns.values()].map((c) => c[i])).size > 1;
    const head = ([name, column]) => !different(1) ? name || column : different(0) ? `${name}: ${column}` : column;
    return {title, heads: keys.map((key) => head(columns.get(key))), left: columns.size - keys.length,
      rows: [...rows].map(([r, cells]) => ({r, cells: keys.map((key) => cells.get(key) ?? '–')}))};
  });
}

function comparison(data) {
  const names = shortNames(data.runs.map((run) => run.name));
  const runs = data.runs.map((run, i) => ({run, name: names[i], m: measured(run), color: i,
    dash: [undefined, '7 4', '2 4'][Math.floor(i / 10) % 3]}));
  const named = ({run, name, color}) => element('span', {}, swatch(colorOf(color)),
    run.link ? element('a', {href: run.link, dir: 'auto'}, name) : element('bdi', {}, name));
  const page = [element('header', {}, element('p', {class: 'eyebrow'}, 'Stretto · comparison'),
    element('h1', {}, `${runs.length} ${runs.length === 1 ? 'run' : 'runs'}`))];
  if (data.problems.length)
    page.push(element('ul', {class: 'problem'}, data.problems.map((line) => element('li', {dir: 'auto'}, line))));

  const results = [...finalResults(runs), ...lastNumbers(runs)];
  if (results.length) page.push(section('Final results', (part) => part.append(element('div', {class: 'results'},
    results.map(({title, heads, rows, left}) => element('div', {}, element('h3', {}, title),
      scrolling(title, table(title, ['run', ...heads], rows.map(({r, cells}) => [named(r), ...cells]), {hideCaption: true}), 'runs'),
      left ? element('p', {class: 'note'}, `${shown(left)} more columns are on the pages of the runs.`) : null))))));

  page.push(section('Training', (part) => part.append(scrolling('Training',
    table('The training of each run', ['run', 'validation', 'best', 'training', 'unit', 'steps', 'time', 'tokens/s', 'memory', ''], runs.map((r) => {
      const last = r.m.step.length - 1;
      return [named(r), lossShown(r.m.valid[last]), lossShown(r.m.best), lossShown(r.m.train[last]), r.run.loss.unit, shown(r.m.step[last]), duration(r.m.seconds[last]),
        shown(r.m.meanSpeed === null ? null : Math.round(r.m.meanSpeed)), bytes(r.m.peak), stateNames[r.run.state] ?? r.run.state];
    }), {hideCaption: true}), 'runs'))));

  const set = runs.filter(({run}) => run.settings.length), {differing, same, value} = differences(set);
  if (set.length) page.push(section('Different settings', (part) => {
    if (differing.length === 0) part.append(element('p', {class: 'note'}, 'None.'));
    else part.append(scrolling('Different settings',
      table('Settings that differ', ['run', ...differing], set.map((r) => [named(r), ...differing.map((option) => value(r, option))]), {hideCaption: true}), 'runs'));
    part.append(element('p', {class: 'note', style: 'margin-top:8px'}, same === 1 ? '1 other setting is the same in all runs.' : `${shown(same)} other settings are the same in all runs.`));
  }));

  const kindOf = ({run, m}) => JSON.stringify([run.loss.unit, m.axis]);
  for (const kind of [...new Set(runs.map(kindOf))]) {
    const all = runs.filter((r) => kindOf(r) === kind), unit = all[0].run.loss.unit;
    for (const [title, column, key] of [['Validation loss', 'valid_loss', 'valid'], ['Training loss', 'train_loss', 'train']]) {
      const those = all.filter(({run}) => run.metrics.columns.includes(column));
      if (those.length === 0) continue;
      page.push(section(title, (part) => part.append(element('p', {class: 'note'}, unit), overStepsOrTime(those.map(({m}) => m), (which, extra) => chart({title, yName: unit, yShown: lossShown, extra, ...axis(which, those[0].m),
        height: key === 'valid' ? 380 : 280, references: commonReferences(those),
        curves: those.map((r) => ({name: r.name, x: along(r.m, which), y: r.m[key], color: colorOf(r.color), dash: r.dash}))})))));
    }
  }
  const pieces = runs.flatMap(({run, name}) => run.music.map((piece) => ({label: piece.title, group: name, data: piece})));
  if (pieces.length) page.push(section('Music', (part) => part.append(player(pieces))));
  const axesOf = (c) => JSON.stringify([c.x, c.y]);
  for (const kind of [...new Set(runs.flatMap(({run}) => run.charts.map(axesOf)))]) {
    const [x, y] = JSON.parse(kind);
    page.push(section(`Loss against the ${x}`, (part) => part.append(element('p', {class: 'note'}, y), chart({title: `Loss against the ${x}`, xName: x, yName: y, yShown: lossShown,
      curves: runs.flatMap((r) => r.run.charts.filter((c) => axesOf(c) === kind).flatMap((c) => c.curves.map((curve, i) =>
        ({...curve, name: `${r.name}: ${curve.name}`, color: colorOf(r.color), dash: ['none', '6 4', '2 4'][i % 3]}))))}))));
  }
  const fast = runs.filter(({run}) => run.metrics.columns.includes('tokens_per_second'));
  if (fast.length) page.push(section('Speed and memory', (part) => part.append(speedAndMemory(fast))));
  page.push(otherColumns(runs));
  const texts = runs.flatMap(({run, name}) => run.texts.map((text) => ({...text, title: `${name}: ${text.title}`})));
  if (texts.length) page.push(section('Texts', (part) => part.append(...texts.map((text) =>
    element('details', {}, element('summary', {dir: 'auto'}, text.title), textSample(text))))));
  page.push(element('footer', {}, 'Made by stretto-report. The name of a run links to its page, if it has one.'));
  document.title = `${runs.length} ${runs.length === 1 ? 'run' : 'runs'}`;
  return page;
}

// Reference lines that all runs share, such as the n-gram baselines of the same data.
function commonReferences(runs) {
  const key = (references) => JSON.stringify(references);
  return runs.every(({run}) => key(run.loss.references) === key(runs[0].run.loss.references)) ? runs[0].run.loss.references : [];
}
