"""Pages of real runs in a real browser: curves, crosshair, keyboard, music, and nothing leaves.

page_test.py FOLDER_OF_PROGRAMS; ends with 77 where there is no Chromium (CHROMIUM names one).
"""

import json
import os
import subprocess
import sys
import tempfile
import time

from browser import Browser, find_browser

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


def make_pages(programs, folder):
    """Of three programs, and of ten runs with one broken and one cut off."""
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
    told = subprocess.run([os.path.join(programs, "stretto-report"), *runs, at("chorales"), "--out", at("all.html")],
                          check=True, capture_output=True, text=True)
    check(len(told.stderr.splitlines()) == 2, f"two lines of complaint: {told.stderr}")
    pages["comparison"] = at("all.html")
    return pages


# Starts of sources of sound are counted, and so are ends of all sound.
SOUND = """
window.sounds = window.ends = 0;
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


def check_charts(browser, page):
    curves = browser.run("[...document.querySelectorAll('path.curve')].map(p => p.getAttribute('d').length)")
    check(len(curves) >= 3 and min(curves) > 20, f"{page}: curves are there: {curves}")
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
    rows = browser.run("new Promise(done => setTimeout(() => done(document.querySelectorAll('.chart tbody tr').length), 100))")
    check(rows >= 20, f"{page}: the chart's table has its rows: {rows}")
    browser.run("document.querySelectorAll('.choice button')[1].click()")
    axis = browser.run("document.querySelector('.plot').getAttribute('aria-label')")
    check("against time" in axis, f"{page}: the axis can be time: {axis}")
    # A pointer that leaves before a new chart is drawn does no harm.
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
    before = browser.run("sounds")
    time.sleep(0.4)
    check(browser.run("sounds") == before, f"{page}: silence after")
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
    seconds = min(browser.open(path) for _ in range(3))
    print(f"{page}: {os.path.getsize(path)} bytes, opens in {seconds:.2f} s", flush=True)
    check(seconds < 1, f"{page}: opens in {seconds} s")
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


def main():
    path = find_browser()
    if not path:
        print("No Chromium is here (Debian: apt install chromium; CHROMIUM names another): pages were not looked at")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        pages = make_pages(sys.argv[1], folder)
        with Browser(path) as browser:
            browser.call("Page.addScriptToEvaluateOnNewDocument", source=SOUND)
            for page, file in pages.items():
                check_page(browser, page, file)
            browser.open(pages["piano"])
            check(browser.run("document.querySelectorAll('.maps canvas').length") == 4, "attention and templates")
            browser.open(pages["text"])
            check(EVIL in browser.run("document.querySelector('.sample').textContent"), "text as it was given")
            browser.open(pages["comparison"])
            check(browser.run("document.querySelectorAll('.problem li').length") == 2, "both problems are told")
            heads = browser.run("[...document.querySelectorAll('.runs')][1].querySelector('thead').textContent")
            check("--learning-rate" in heads, f"what differs is told: {heads}")
            check(browser.run("document.querySelectorAll('.runs tbody tr').length") == 20, "ten runs, twice")
    print("failures:", len(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
