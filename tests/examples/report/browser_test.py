"""Tests when a browser test is skipped and when it fails."""

import os
import stat
import sys
import tempfile

from browser import Browser, BrowserEnded, find_browser, look_with, why_it_cannot_run


def program(folder, name, script):
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write("#!/bin/sh\n" + script)
    os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
    return path


def main():
    with tempfile.TemporaryDirectory() as folder:
        # A browser that ends at once cannot show any page: a skip, with its last line of output.
        bad = program(folder, "bad", "echo first >&2; echo no fonts >&2; exit 133\n")
        assert why_it_cannot_run(bad) == f"{bad} has ended: no fonts", why_it_cannot_run(bad)
        assert look_with(bad, lambda: 0) == 77
        assert look_with(None, lambda: 0) == 77
        silent = program(folder, "silent", "exit 0\n")
        assert why_it_cannot_run(silent) == f"{silent} has ended: it printed nothing"

        real = find_browser()
        if not real or why_it_cannot_run(real):
            return
        without_fonts = os.path.join(folder, "fonts.conf")
        with open(without_fonts, "w") as file:
            file.write(f"<fontconfig><cachedir>{folder}/fonts</cachedir></fontconfig>")
        bare = program(folder, "bare", f"FONTCONFIG_FILE={without_fonts} exec {real} \"$@\"\n")
        assert look_with(bare, lambda: 0) == 77

        # A browser that can show a page but ends at another one is a failure.
        def killed():
            with Browser(real) as browser:
                browser.process.kill()
                browser.run("1 + 1")

        def crashed():
            with Browser(real) as browser:
                browser.call("Page.navigate", url="chrome://crash")
                browser.run("1 + 1")

        def wrong():
            return 1

        assert look_with(real, killed) == 1
        assert look_with(real, crashed) == 1
        assert look_with(real, wrong) == 1
        assert look_with(real, lambda: 0) == 0


if __name__ == "__main__":
    sys.exit(main())
