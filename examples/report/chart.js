// Curves with axes, a legend that hides and shows curves, a crosshair controlled by the pointer and
// the arrow keys, and a table of the values.

const canBeDrawn = (x) => isNumber(x) && Math.abs(x) <= 1e300;  // differences stay finite

/// spec: {title, xName, yName, curves: [{name, x, y, color, dash, width}], references: [[label, y]],
/// height, xShown, yShown, xUnits, yUnits (of base.js), fromZero, extra (elements for the head)}
function chart(spec) {
  const curves = spec.curves.map((curve) => {
    const points = [];
    curve.x.forEach((x, i) => points.push([x, canBeDrawn(curve.y[i]) ? curve.y[i] : null]));
    return {width: 2, ...curve, shown: true, points: points.filter(([x]) => canBeDrawn(x))};
  }).filter((curve) => curve.points.some(([, y]) => y !== null));
  if (curves.length === 0) return element('p', {class: 'note'}, 'Nothing has been measured yet.');
  const whole = curves.every((curve) => curve.points.every(([x]) => Number.isInteger(x)));
  const references = (spec.references ?? []).filter(([, y]) => canBeDrawn(y));
  const xShown = spec.xShown ?? shown, yShown = spec.yShown ?? shown;

  const legend = element('div', {class: 'legend', role: 'group', 'aria-label': 'Curves'});
  for (const curve of curves) {
    const button = element('button', {class: 'toggle', type: 'button', 'aria-pressed': 'true', onclick: () => {
      curve.shown = !curve.shown;
      button.setAttribute('aria-pressed', curve.shown);
      draw();
    }}, swatch(curve.color, curve.dash && curve.dash !== 'none' ? 'dashed' : ''), curve.name);
    legend.append(button);
  }
  const plot = element('div', {class: 'plot', tabindex: 0, role: 'slider',
    'aria-label': `${spec.title}: ${spec.yName} against ${spec.xName}. Arrow keys read the curves off.`});
  const readout = element('div', {class: 'readout', hidden: true, 'aria-hidden': 'true'});
  let svg = null, scale = null, xs = [], at = -1;

  function nearest(curve, x) {
    let low = 0, high = curve.points.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      curve.points[middle][0] <= x ? low = middle : high = middle;
    }
    return Math.abs(curve.points[low][0] - x) <= Math.abs(curve.points[high][0] - x) ? curve.points[low] : curve.points[high];
  }

  function limits() {
    const visible = curves.filter((curve) => curve.shown);
    const all = (visible.length ? visible : curves).flatMap((curve) => curve.points).filter(([, y]) => y !== null);
    let [left, right] = [Infinity, -Infinity], [low, high] = [Infinity, -Infinity];
    for (const [x, y] of all) {
      left = Math.min(left, x), right = Math.max(right, x);
      low = Math.min(low, y), high = Math.max(high, y);
    }
    for (const [, y] of references) low = Math.min(low, y), high = Math.max(high, y);
    if (spec.fromZero) low = Math.min(low, 0), high *= 1.08;
    if (left === right) left -= Math.max(1, Math.abs(left) * 1e-3), right += Math.max(1, Math.abs(right) * 1e-3);
    if (!(high > low)) low -= Math.abs(low) * 0.1 || 1, high += Math.abs(high) * 0.1 || 1;
    const air = spec.fromZero ? 0 : (high - low) * 0.06;
    return {left, right, low: low - air, high: high + air};
  }

  function draw() {
    const width = Math.max(plot.clientWidth, 240), height = spec.height ?? 320;
    const {left, right, low, high} = limits();
    const yTicks = labeledTicks(low, high, Math.max(4, Math.round(height / 56)), {units: spec.yUnits});
    const gutter = 14 + 7 * Math.max(0, ...yTicks.map(({label}) => label.length));
    const inner = {x: gutter, y: 10, width: width - gutter - 12, height: height - 52};
    scale = {inner, x: (x) => inner.x + (x - left) / (right - left) * inner.width,
             y: (y) => inner.y + (high - y) / (high - low) * inner.height,
             back: (pixel) => left + (pixel - inner.x) / inner.width * (right - left)};
    svg = drawn('svg', {viewBox: `0 0 ${width} ${height}`, height, 'aria-hidden': 'true'});
    for (const {value, label} of yTicks) {
      const y = scale.y(value);
      svg.append(drawn('line', {class: 'grid', x1: inner.x, x2: inner.x + inner.width, y1: y, y2: y}),
        drawn('text', {x: inner.x - 8, y: y + 4, 'text-anchor': 'end'}, label));
    }
    const xTicks = labeledTicks(left, right, Math.max(2, Math.floor(inner.width / 84)), {units: spec.xUnits, whole});
    const bottom = inner.y + inner.height;
    svg.append(drawn('line', {class: 'axis', x1: inner.x, x2: inner.x + inner.width, y1: bottom, y2: bottom}));
    for (const {value, label} of xTicks) {
      const x = scale.x(value);
      svg.append(drawn('line', {class: 'axis', x1: x, x2: x, y1: bottom, y2: bottom + 4}),
        drawn('text', {x, y: bottom + 18, 'text-anchor': 'middle'}, label));
    }
    svg.append(drawn('text', {x: inner.x + inner.width, y: bottom + 36, 'text-anchor': 'end'}, spec.xName));
    for (const [, y] of references)
      svg.append(drawn('line', {class: 'reference', x1: inner.x, x2: inner.x + inner.width, y1: scale.y(y), y2: scale.y(y)}));
    for (const curve of curves) {
      if (!curve.shown) continue;
      let path = '', pen = 'M';
      const missing = (i) => (curve.points[i]?.[1] ?? null) === null;  // a point between gaps is a dot
      for (const [x, y] of curve.points) {
        if (y === null) { pen = 'M'; continue; }
        path += `${pen}${scale.x(x).toFixed(1)} ${scale.y(y).toFixed(1)}`;
        pen = 'L';
      }
      svg.append(drawn('path', {class: 'curve', d: path, style: `stroke:${curve.color}`, 'stroke-width': curve.width,
        'stroke-dasharray': curve.dash ?? 'none', 'stroke-opacity': curve.opacity ?? 1}));
      curve.points.forEach(([x, y], i) => {
        if (!missing(i) && missing(i - 1) && missing(i + 1)) svg.append(drawn('circle', {r: 3, cx: scale.x(x), cy: scale.y(y), style: `fill:${curve.color}`}));
      });
    }
    for (const [label, y] of references)
      svg.append(drawn('text', {class: 'over', x: inner.x + inner.width - 4, y: scale.y(y) - 5, 'text-anchor': 'end'}, `${label} ${yShown(y)}`));
    svg.append(drawn('g', {class: 'pointer'}));
    plot.replaceChildren(svg, readout);
    xs = [...new Set(curves.filter((curve) => curve.shown).flatMap((curve) => curve.points.map(([x]) => x)))].sort((a, b) => a - b);
    plot.setAttribute('aria-valuemin', 0);
    plot.setAttribute('aria-valuemax', Math.max(0, xs.length - 1));
    at = Math.min(at, xs.length - 1);
    say(at < 0 ? xs.length - 1 : at);
    if (at >= 0) point(at);
  }

  // The values at an x, one per curve; the nearest point of curves that have none there.
  function values(index) {
    return curves.filter((curve) => curve.shown && xs.length).map((curve) => {
      const [x, y] = nearest(curve, xs[index]);
      const near = Math.abs(scale.x(x) - scale.x(xs[index])) < 24;
      return {curve, x, y: near ? y : null};
    }).filter((value) => value.y !== null);
  }
  function say(index) {
    plot.setAttribute('aria-valuenow', Math.max(0, index));
    plot.setAttribute('aria-valuetext', index < 0 ? 'no values' : `${spec.xName} ${xShown(xs[index])}: ` +
      values(index).map(({curve, y}) => `${curve.name} ${yShown(y)}`).join(', '));
  }

  function point(index) {
    at = index;
    const {inner} = scale, x = scale.x(xs[index]), found = values(index);
    const marks = [drawn('line', {class: 'cross', x1: x, x2: x, y1: inner.y, y2: inner.y + inner.height})];
    for (const value of found)
      marks.push(drawn('circle', {class: 'dot', r: 4.5, cx: scale.x(value.x), cy: scale.y(value.y), style: `fill:${value.curve.color}`}));
    svg.querySelector('.pointer').replaceChildren(...marks);
    readout.replaceChildren(element('table', {}, element('tbody', {},
      element('tr', {}, element('th', {colspan: 2}, `${spec.xName} ${xShown(xs[index])}`)),
      found.map(({curve, y}) => element('tr', {}, element('td', {}, swatch(curve.color), curve.name), element('td', {}, yShown(y)))))));
    readout.hidden = false;
    const width = readout.offsetWidth, room = plot.clientWidth;
    const beside = x + 16 + width <= room ? x + 16 : x - 16 - width;
    readout.style.left = `${Math.max(0, Math.min(beside, room - width))}px`;
    say(index);
  }
  function leave() {
    if (!svg) return;  // not drawn yet
    at = -1;
    readout.hidden = true;
    svg.querySelector('.pointer').replaceChildren();
  }
  function nearestIndex(x) {
    let low = 0, high = xs.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      xs[middle] <= x ? low = middle : high = middle;
    }
    return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
  }

  const follow = (event) => {
    if (xs.length) point(nearestIndex(scale.back(event.clientX - plot.getBoundingClientRect().left)));
  };
  plot.addEventListener('pointermove', follow);
  plot.addEventListener('pointerdown', follow);
  plot.addEventListener('pointerleave', () => { if (document.activeElement !== plot) leave(); });
  plot.addEventListener('focus', () => { if (at < 0 && xs.length && plot.matches(':focus-visible')) point(xs.length - 1); });
  plot.addEventListener('blur', leave);
  plot.addEventListener('keydown', (event) => {
    const here = at < 0 ? xs.length - 1 : at, last = xs.length - 1;
    const to = {ArrowLeft: here - 1, ArrowDown: here - 1, ArrowRight: here + 1, ArrowUp: here + 1,
                PageDown: here - 10, PageUp: here + 10, Home: 0, End: last}[event.key];
    if (event.key === 'Escape') leave();
    if (to === undefined || last < 0) return;
    event.preventDefault();
    point(Math.max(0, Math.min(last, to)));
  });

  function numbers() {
    const all = [...new Set(curves.flatMap((curve) => curve.points.map(([x]) => x)))].sort((a, b) => a - b).slice(0, 2000);
    const by = curves.map((curve) => new Map(curve.points));
    return table(spec.title, [spec.xName, ...curves.map((curve) => curve.name)],
      all.map((x) => [xShown(x), ...by.map((map) => map.has(x) ? yShown(map.get(x)) : '')]), {hideCaption: true});
  }
  new ResizeObserver(() => { if (!svg || plot.clientWidth !== Number(svg.viewBox.baseVal.width)) draw(); }).observe(plot);
  return element('div', {class: 'chart'},
    element('div', {class: 'chart-head'}, legend, spec.extra ?? null), plot,
    lazyTable(`Table of ${spec.title.toLowerCase()}`, numbers));
}

// Buttons to choose one of a few names; `choose` is called with its index.
function choice(label, names, chosen, choose) {
  const buttons = names.map((name, i) => element('button', {type: 'button', 'aria-pressed': String(i === chosen), onclick: () => {
    buttons.forEach((button, k) => button.setAttribute('aria-pressed', String(k === i)));
    choose(i);
  }}, name));
  return element('div', {class: 'choice', role: 'group', 'aria-label': label}, buttons);
}
