"""Pages of real runs in a real browser: curves, crosshair, keyboard, music, and no network requests.

page_test.py FOLDER_OF_PROGRAMS; exits with 77 if Chromium (or the program in CHROMIUM) is missing or cannot run.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

from browser import Browser, find_browser, look_with

failures = []


def check(good, what):
    if not good:
        failures.append(what)
        print("FAILED:", what, flush=True)


MODEL = "--layers 1 --d-model 16 --heads 2 --batch 2 --warmup 5 --d-hidden 32 --threads 1".split()
EVIL = "</script><script>window.hurt = 1</script><img src=x onerror='window.hurt = 2'>"


def train(programs, out, name, *settings):
    path = os.path.join(programs, name)
    if not os.path.exists(path):
        print(f"{name} is not built in {programs}")
        sys.exit(77)
    subprocess.run([path, *MODEL, "--steps", "40", "--out", out, *settings], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return os.path.join(out, "report.html")


HEBREW = "שלום עולם"
NUMBER = "1" * 34 + "x"  # looks like a number up to its last character
METRICS = "step,seconds,train_loss,valid_loss,learning_rate,gradient_norm,tokens_per_second,peak_bytes"


def edit(page, change, out=None):
    """Changes the run in a page, as somebody could by hand."""
    with open(page) as file:
        text = file.read()
    mark = re.compile('(<script type="application/json" id="data">)(.*?)(</script>)', re.S)
    data = json.loads(mark.search(text)[2])
    change(data["runs"][0])
    changed = json.dumps(data).replace("<", "\\u003c")
    with open(out or page, "w") as file:
        file.write(mark.sub(lambda found: found[1] + changed + found[3], text, count=1))
    return out or page


def make_pages(programs, folder):
    """Creates pages of three programs, and a comparison of ten runs, one of them broken and one cut off."""
    at = lambda name: os.path.join(folder, name)
    pages = {
        "chorales": train(programs, at("chorales"), "train_chorales", "--length", "64", "--final-stride", "64",
                          "--generate", "64", "--prime", "16"),
        "piano": train(programs, at("piano"), "train_music", "--length", "16", "--eval-length", "32",
                       "--validation-windows", "2", "--eval-windows", "2", "--tokens", "performance", "--generate", "100",
                       "--picture-length", "32", "--attention", "performer", "--features", "8", "--position",
                       "sine", "--realizations", "8")}
    with open(at("text.txt"), "w") as file:
        file.write("".join(f"the king of hill {i % 7} went home {EVIL}\n" for i in range(200)))
    runs = []
    for i in range(10):
        runs.append(at(f"lm-{i}"))
        pages["text"] = train(programs, runs[-1], "train_lm", "--length", "16", "--validation-tokens", "64",
                              "--data", at("text.txt"), "--generate", "200", "--prompt", EVIL,
                              "--learning-rate", f"0.00{i + 1}")
    with open(os.path.join(runs[3], "report.html"), "r+b") as file:
        file.truncate(file.read().find(b'"commands"'))
    with open(os.path.join(runs[4], "metrics.csv"), "r+b") as file:
        file.truncate(os.path.getsize(file.name) - 7)
    def one_step(run):
        run["metrics"]["rows"] = [[1, *run["metrics"]["rows"][0][1:]]]
        run["texts"] = [{"title": HEBREW, "given": HEBREW, "text": f"\n{HEBREW}\nabc", "aligned": False}]
        run["settings"][0][1] = HEBREW
    pages["one"] = edit(pages["text"], one_step, at("one.html"))
    edit(os.path.join(runs[0], "report.html"), lambda run: run["settings"][0].__setitem__(1, NUMBER))
    os.mkdir(at("own"))
    with open(at("own/metrics.csv"), "w") as file:
        file.write(METRICS + ",accuracy\n10,1,2,3,0.001,1,100,40000000,0.25\n20,2,1,2,0.001,1,100,40000000,nan\n")
    told = subprocess.run([os.path.join(programs, "stretto-report"), *runs, at("chorales"), at("own"), "--out", at("all.html")],
                          check=True, capture_output=True, text=True)
    check(len(told.stderr.splitlines()) == 2, f"two lines of complaint: {told.stderr}")
    pages["comparison"] = at("all.html")
    return pages


# Counts starts of audio sources and stops of all audio, and records running timers.
SOUND = """
window.sounds = window.ends = 0;
window.timers = new Set();
const {setInterval: set, clearInterval: clear} = window;
window.setInterval = (...given) => { const id = set(...given); timers.add(id); return id; };
window.clearInterval = id => { timers.delete(id); clear(id); };
const close = AudioContext.prototype.close;
AudioContext.prototype.close = function () { ++window.ends; return close.apply(this); };
for (const kind of [OscillatorNode, AudioBufferSourceNode]) {
  const start = kind.prototype.start;
  kind.prototype.start = function (...given) { ++window.sounds; return start.apply(this, given); };
}
"""

NAMELESS = """[...document.querySelectorAll('button, select, input, [tabindex], summary')].filter(e =>
  !(e.getAttribute('aria-label') || e.closest('label')?.textContent.trim() || e.tagName !== 'SELECT' && e.textContent.trim()))
  .map(e => e.outerHTML.slice(0, 100))"""

CONTRAST = """(() => {
  const pen = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const light = name => {
    pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name);
    pen.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...pen.getImageData(0, 0, 1, 1).data].map(x => x / 255)
      .map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)]; return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05); };
  const pairs = [];
  for (const ground of ['--ground', '--raised', '--sunken']) {
    for (const ink of ['--ink', '--soft', '--accent']) pairs.push([ink, ground, ratio(ink, ground), 4.5]);
    pairs.push(['--edge', ground, ratio('--edge', ground), 2.5]);
  }
  for (let i = 0; i < 10; ++i) pairs.push([`--s${i}`, '--ground', ratio(`--s${i}`, '--ground'), 3]);
  pairs.push(['--warn', '--warn-ground', ratio('--warn', '--warn-ground'), 4.5], ['--on-accent', '--accent', ratio('--on-accent', '--accent'), 4.5]);
  return pairs.filter(([, , found, least]) => found < least).map(String);
})()"""


# The labels of the vertical axis of every chart.
Y_TICKS = """[...document.querySelectorAll('.plot svg')].map(svg => [...svg.querySelectorAll('text')]
  .filter(t => t.getAttribute('text-anchor') === 'end' && !t.classList.contains('over') && t.previousSibling?.classList.contains('grid'))
  .map(t => t.textContent))"""


def check_axes(browser, page):
    for labels in browser.run(Y_TICKS):
        units = {re.sub(r"^[-+\d.,]+(e-?\d+)?", "", label).strip() for label in labels}
        check(len(labels) >= 2 and len(units) == 1, f"{page}: an axis in one unit: {labels}")
        check(len({label.partition(".")[2] and len(label.partition(".")[2]) for label in labels}) == 1 or "e" in "".join(labels),
              f"{page}: an axis with equal decimals: {labels}")
        check(not any(re.search(r"\d{4}", label.partition(".")[0]) for label in labels),
              f"{page}: an axis with thousands apart: {labels}")


def check_charts(browser, page):
    check_axes(browser, page)
    curves = browser.run("[...document.querySelectorAll('path.curve')].map(p => p.getAttribute('d').length)")
    check(len(curves) >= 3 and max(curves) > 20, f"{page}: curves are there: {curves}")
    browser.move_to(".plot", 0.5)
    read = browser.run("(() => { const r = document.querySelector('.readout'); return r.hidden ? '' : r.textContent; })()")
    check("step" in read and "." in read, f"{page}: the crosshair tells values: {read}")
    browser.run("document.querySelector('.plot').focus()")
    browser.press("Home")
    first = browser.run("document.querySelector('.plot').getAttribute('aria-valuetext')")
    browser.press("ArrowRight")
    second = browser.run("document.querySelector('.plot').getAttribute('aria-valuetext')")
    check(first.startswith("step ") and second.startswith("step ") and first != second,
          f"{page}: arrow keys move the crosshair: {first}; {second}")
    browser.run("document.querySelector('.chart summary').click()")
    check(browser.becomes_true("document.querySelectorAll('.chart details tbody tr').length >= 20"),
          f"{page}: the chart's table has its rows")
    browser.run("document.querySelectorAll('.choice button')[1].click()")
    axis = browser.run("document.querySelector('.plot').getAttribute('aria-label')")
    check("against time" in axis, f"{page}: the axis can be time: {axis}")
    # The pointer may leave before a new chart is drawn.
    browser.run("document.querySelectorAll('.choice button')[0].click();"
                " document.querySelector('.plot').dispatchEvent(new PointerEvent('pointerleave'))")


def check_music(browser, page):
    place = "Number(document.querySelector('.player input[aria-label]').value)"
    picture = "document.querySelector('.roll canvas').toDataURL()"
    still = browser.run(picture)
    check(browser.run("sounds") == 0, f"{page}: silence before")
    browser.click(".play")
    check(browser.becomes_true("document.querySelector('.play').textContent === 'Pause'"), f"{page}: it plays")
    check(browser.becomes_true(f"{place} > 0"), f"{page}: the position moves")
    check(browser.becomes_true(f"{picture} !== {json.dumps(still)}"), f"{page}: the cursor moves")
    check(browser.becomes_true("sounds > 0"), f"{page}: there is sound")
    browser.run("document.querySelector('.voices button').click()")
    check(browser.run("document.querySelector('.voices button').getAttribute('aria-pressed')") == "false",
          f"{page}: a voice can be turned off")
    browser.click(".stop")
    check(browser.run(place) == 0, f"{page}: stopped at the beginning")
    check(browser.run("document.querySelector('.play').textContent") == "Play", f"{page}: it is stopped")
    check(browser.becomes_true("ends === 1"), f"{page}: the sound ends")
    check(browser.run("timers.size") == 0, f"{page}: silence after: no timer is left that could start a sound")
    slow = "document.querySelector('.tempo + output').textContent"
    tempo = browser.run(slow)
    browser.run("(() => { const t = document.querySelector('.tempo'); t.value = -100; t.dispatchEvent(new Event('input')); })()")
    check(int(browser.run(slow).split()[0]) == round(int(tempo.split()[0]) / 2), f"{page}: half the tempo of {tempo}")


def check_keyboard(browser, page):
    browser.run("(() => { const b = document.body; b.tabIndex = -1; b.focus(); b.removeAttribute('tabindex'); scrollTo(0, 0); })()")
    reached = set()
    for _ in range(150):
        browser.press("Tab")
        name, outline = browser.run(
            "(() => { const e = document.activeElement; return [e.className || e.type || e.tagName, getComputedStyle(e).outlineStyle]; })()")
        if name == "BODY":
            break
        reached.add(name)
        check(outline != "none", f"{page}: focus is seen on {name}")
    for needed in ["plot", "toggle", "SUMMARY"]:
        check(needed in reached, f"{page}: Tab reaches {needed}: {sorted(reached)}")
    if browser.run("document.querySelector('.player') !== null"):
        for needed in ["main play", "stop", "tempo", "range"]:
            check(needed in reached, f"{page}: Tab reaches {needed}: {sorted(reached)}")


def check_page(browser, page, path):
    check(os.path.getsize(path) < 3_000_000, f"{page}: {os.path.getsize(path)} bytes")
    for scheme in ["light", "dark"]:
        for width in [1280, 380]:
            browser.look_like(width, scheme=scheme)
            browser.open(path)
            scroll = browser.run("document.documentElement.scrollWidth")
            check(scroll <= width, f"{page}: {scroll} pixels wide at {width}")
        poor = browser.run(CONTRAST)
        check(poor == [], f"{page}, {scheme}: too little contrast: {poor}")
    browser.look_like(1280)
    browser.open(path)
    elements = browser.run("document.querySelectorAll('*').length")
    print(f"{page}: {os.path.getsize(path)} bytes, {elements} elements", flush=True)
    check(elements < 10_000, f"{page}: {elements} elements to draw")
    check(browser.run("window.hurt") is None, f"{page}: text of the run was read as a script")
    check(browser.run("document.querySelectorAll('img').length") == 0, f"{page}: text of the run was read as HTML")
    nameless = browser.run(NAMELESS)
    check(nameless == [], f"{page}: controls without a name: {nameless}")
    check_charts(browser, page)
    if browser.run("document.querySelector('.player') !== null"):
        check_music(browser, page)
    check_keyboard(browser, page)
    check(browser.run("document.querySelectorAll('section > .problem').length") == 0, f"{page}: a broken part")
    check(browser.complaints == [], f"{page}: complaints: {browser.complaints}")
    others = {url for url in browser.requests if url != f"file://{path}" and not url.startswith("data:")}
    check(others == set(), f"{page}: requests {others}")
    for way in ["fetch('https://example.org/').then(() => 'went', () => 'refused')",
                "new Promise(done => { const i = new Image(); i.onload = () => done('went');"
                " i.onerror = () => done('refused'); i.src = 'https://example.org/i.png'; })"]:
        check(browser.run(way) == "refused", f"{page}: the page may reach the network: {way}")
    check(any("Content Security Policy" in text for text in browser.complaints), f"{page}: its policy forbids it")
    browser.complaints.clear()
    browser.requests.clear()


def check_maps(browser):
    """Performer weights on 32 tokens are visible, and the legend explains the scale."""
    check(browser.run("document.querySelectorAll('.maps canvas').length") == 4, "attention and templates")
    words = browser.run("[...document.querySelectorAll('.scale figcaption')].map(e => e.textContent)")
    check(len(words) == 2 and re.match(r"Color by the (square|cube|\dth) root of the value; one scale for all maps", words[0]),
          f"the legend says the scale: {words}")
    check(words[1].startswith("Color in proportion to the value minus the minimum"), f"templates: {words}")
    marks = browser.run("[...document.querySelector('.scale .marks').children].map(e => e.textContent)")
    check(len(marks) == 5 and marks[0] == "0", f"values along the legend: {marks}")
    # In the second half of the rows, hardly any cell below the diagonal is as dark as weight 0.
    light = browser.run("""(() => {
      const c = document.querySelector('.maps canvas'), p = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
      const all = [];
      for (let i = c.height >> 1; i < c.height; ++i)
        for (let j = 0; j <= i; ++j) { const k = 4 * (i * c.width + j); all.push(0.21 * p[k] + 0.72 * p[k + 1] + 0.07 * p[k + 2]); }
      return all.sort((a, b) => a - b)[all.length >> 1];
    })()""")
    check(light > 35, f"attention is not black: {light} of 255")


def check_scroll_hints(browser, path):
    hints = """[...document.querySelectorAll('.scrolling')].map(e =>
      [e.lastChild.scrollWidth > e.lastChild.clientWidth + 1, !e.firstChild.hidden, e.lastChild.classList.contains('cut')])"""
    for width in [400, 1200]:
        browser.look_like(width)
        browser.open(path)
        found = browser.run(hints)
        check(found and all(wide == told == cut for wide, told, cut in found), f"wide tables say so at {width}: {found}")
        if width == 400:
            check(any(wide for wide, _, _ in found), f"some are wide at {width}")
    browser.look_like(400)
    browser.open(path)
    browser.run("(() => { const e = document.querySelector('.runs'); e.scrollLeft = e.scrollWidth; })()")
    check(browser.becomes_true("!document.querySelector('.runs').classList.contains('cut')"), "at its end nothing is cut")
    browser.look_like(1280)


def check_comparison(browser, path):
    check_scroll_hints(browser, path)
    browser.open(path)
    check(browser.run("document.querySelectorAll('.problem li').length") == 2, "both problems are told")
    tables = browser.run("""Object.fromEntries([...document.querySelectorAll('.runs')].map(e => [e.getAttribute('aria-label'),
      [...e.querySelectorAll('tr')].map(row => [...row.children].map(cell => cell.textContent))]))""")
    settings = tables["Different settings"]
    check("--learning-rate" in settings[0] and len(settings) == 11, f"what differs is told: {settings}")
    check(any(NUMBER in row for row in settings), "a setting that looks like a number for long")
    check(len(tables["Training"]) == 12, "eleven runs")
    final = next(table for title, table in tables.items() if title.startswith("Held-out bits per byte"))
    check(final[0][:3] == ["run", "unigram", "bigram"] and final[0][3].startswith("length 16, memory 16, context"), f"results: {final[0]}")
    check(len(final) == 10 and all(float(cell) > 0 for row in final[1:] for cell in row[1:]), f"results of all: {final}")
    own = tables["Last values of other columns of metrics.csv"]
    check(own == [["run", "accuracy"], ["own", "0.2500"]], f"a column of one's own: {own}")
    check(browser.run("[...document.querySelectorAll('h3')].some(e => e.textContent === 'accuracy')"), "and its chart")
    links = browser.run("[...document.querySelectorAll('.runs a')].map(e => e.getAttribute('href'))")
    check("./lm-0/report.html" in links and not any("own" in link for link in links), f"links: {set(links)}")


def check_one_step(browser):
    ticks = browser.run("""[...document.querySelectorAll('.plot svg')].map(svg => [...svg.querySelectorAll('text')]
      .filter(t => t.getAttribute('text-anchor') === 'middle').map(t => t.textContent))""")
    check(all(ticks) and not any("." in tick for tick in ticks[0]), f"no fractions of a step: {ticks[0]}")
    check(browser.run("document.querySelector('.plot circle') !== null"), "one step is a dot")
    for selector in [".sample pre", "dd", "h2 bdi"]:
        browser.run("document.querySelectorAll('details').forEach(e => { e.open = true; })")
        found = browser.run(f"""[...document.querySelectorAll({json.dumps(selector)})].filter(e => e.textContent.includes('{HEBREW}'))
          .map(e => getComputedStyle(e).direction)""")
        check(found and set(found) == {"rtl"}, f"{selector}: from right to left: {found}")
    # Its Latin line is aligned left.
    left = browser.run("""(() => { const pre = document.querySelector('.sample pre'), range = document.createRange();
      range.setStart(pre.lastChild, pre.lastChild.data.length - 3); range.setEnd(pre.lastChild, pre.lastChild.data.length);
      return range.getBoundingClientRect().left - pre.getBoundingClientRect().left; })()""")
    check(abs(left) < 2, f"a Latin line of a Hebrew text: {left}")


def check_fonts(path, page, folder):
    """Checks pages with only the DejaVu fonts and without fontconfig rules."""
    dejavu = "/usr/share/fonts/truetype/dejavu"
    if not os.path.isdir(dejavu):
        print(f"{dejavu} is not installed: fonts were not tested")
        return
    rules = os.path.join(folder, "fonts.conf")
    with open(rules, "w") as file:
        file.write(f"<fontconfig><dir>{dejavu}</dir><cachedir>{folder}/fonts</cachedir></fontconfig>")
    with Browser(path, {"FONTCONFIG_FILE": rules}) as browser:
        browser.open(page)
        fonts = browser.fonts(["h1", "p", "td", "button", "select", "pre", ".plot text"])
        check(fonts == {"DejaVu Sans", "DejaVu Sans Mono"}, f"no serifs: {fonts}")


def look(path):
    with tempfile.TemporaryDirectory() as folder:
        pages = make_pages(sys.argv[1], folder)
        with Browser(path) as browser:
            browser.call("Page.addScriptToEvaluateOnNewDocument", source=SOUND)
            for page, file in pages.items():
                if page != "one":
                    check_page(browser, page, file)
            browser.open(pages["piano"])
            check_maps(browser)
            about = browser.run("document.querySelector('header .soft').textContent")
            check(re.search(r"\d,\d{3} parameters, 1 thread,", about), f"numbers as they are read: {about}")
            browser.open(pages["text"])
            check(EVIL in browser.run("document.querySelector('.sample').textContent"), "text as it was given")
            check("bigram" in browser.run("document.querySelector('.plot').textContent"), "the baseline is drawn")
            check_comparison(browser, pages["comparison"])
            browser.open(pages["one"])
            check_one_step(browser)
            check(browser.complaints == [], f"complaints: {browser.complaints}")
        check_fonts(path, pages["piano"], folder)
    print("failures:", len(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    browser_path = find_browser()
    sys.exit(look_with(browser_path, lambda: look(browser_path)))
