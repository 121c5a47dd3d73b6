"""Expected values of tests/pretrained/chat_template_test.cpp, from transformers' own renderer.

    python tests/pretrained/chat_template_expected.py build/chat_templates [TEMPLATES]

needs transformers, jinja2 and gguf. TEMPLATES is a folder of templates of published models, *.jinja; without
it only the template of the downloaded SmolLM2 is used. Writes cases.json: templates, and random conversations
with the text of apply_chat_template or its error.
"""

import datetime
import glob
import json
import os
import random
import sys

from transformers.utils import chat_template_utils

WORDS = ["Hello", "world", "How are you?", "42", "naïve café", "日本語のテキスト", "🙂👍🏽", "a\u0301", "\u00a0", "\u2003",
         " ", "  ", "\n", "\n\n", "\t", "\r\n", "\r", "<think>", "</think>", "</think>\n\nyes", "/no_think", "/think",
         "<|im_end|>", "[INST]", "</s>", "'quotes'", '"double"', "\\", "{{ x }}", "{% if %}", "{#", "&<>", "\x00", "\x7f",
         "\u2028", "\ufeff", "<tool_response>", "</tool_response>", "/system_override", "long " * 50, "[[dialect]]"]
CONTENTS = ["", " ", "\n", "Hi", "You are a helpful assistant.", "  padded  ", "text\n", "\nfirst", "<think>\nhm\n</think>\n\nyes",
            "<tool_response>x</tool_response>", "</think>", "a</think>b</think>c"]


def content(r):
    if r.random() < 0.4:
        return r.choice(CONTENTS)
    return "".join(r.choice(WORDS) + r.choice(["", " "]) for _ in range(r.randint(1, 6)))


def conversation(r):
    kind = r.random()
    if kind < 0.05:
        roles = [r.choice(["system", "user", "assistant", "tool", "developer", "critic", ""]) for _ in range(r.randint(0, 5))]
    else:
        roles = ["system"] if r.random() < 0.4 else []
        for _ in range(r.randint(1, 5)):
            roles += ["user", "assistant"]
        if r.random() < 0.7:
            roles.pop()
        if r.random() < 0.05:
            roles.insert(r.randint(0, len(roles)), r.choice(roles))
    return [{"role": role, "content": content(r)} for role in roles]


def variables(r):
    chosen = {}
    for name, values in {"enable_thinking": [True, False], "date_string": ["26 Jul 2024"], "custom_instructions": ["Be brief."],
                         "thinking": [True, False], "reasoning_effort": ["low", "high"], "n": [0, 3, -2]}.items():
        if r.random() < 0.25:
            chosen[name] = r.choice(values)
    return chosen


class Language:
    """Random templates of the constructs that published ones use, right and wrong ones."""

    NAMES = ["messages", "messages[0]", "messages[-1]", "messages[0].content", "messages[0]['role']", "x", "y", "ns.a", "ns.b", "ns",
             "bos_token", "missing", "loop.index", "loop.index0", "loop.first", "loop.last", "loop.length", "loop.revindex",
             "loop.revindex0", "loop.previtem", "loop.nextitem", "m", "m.content", "m.role", "m['content']", "n", "tools",
             "add_generation_prompt", "m.get('role')", "m.items()", "m.missing", "enable_thinking", "f", "f()", "f(1)", "f(x, b=2)"]
    TEXTS = ["'a'", "'b c'", "''", "' x '", "'\\n'", "'é漢🙂'", "'a,b,,c'", "'Ab-cd Ef'", "'\\u00e9\\x41'", '"d\\"q"', "'aXbXc'", "'\u2003z\u00a0'"]
    FILTERS = ["trim", "length", "upper", "lower", "title", "capitalize", "tojson", "tojson(indent=2)", "first", "last", "list", "string",
               "default('d')", "default('d', true)", "join(', ')", "join", "replace('a', 'b')", "replace('a', 'b', 1)", "items", "safe",
               "selectattr('role', 'equalto', 'user')|list", "rejectattr('role', 'in', ['user'])|list|length", "map(attribute='role')|join(',')",
               "map('upper')|list|join", "select('string')|list|length", "reject('none')|first", "trim('a ')", "count", "map(attribute='zz')|list|length",
               "selectattr('content')|list|length", "map('length')|join('-')"]
    TESTS = ["defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "true", "false", "boolean", "number", "integer",
             "odd", "even", "equalto(1)", "eq 'a'", "in ['a', 1, none]", "in(messages)", "ne x", "lt(3)"]
    METHODS = ["strip()", "lstrip()", "rstrip()", "strip('a ')", "lstrip('\\n')", "split()", "split(',')", "split('X', 1)", "split('X')[-1]", "startswith('a')",
               "endswith(('c', 'x'))", "replace('b', '--')", "upper()", "lower()", "title()", "capitalize()", "join(['p', 'q'])", "items()", "keys()|list|join",
               "values()|list|length", "get('role', 'none')", "get('zz')", "append(1)", "pop()", "rstrip(none)", "split(none, 1)", "split(maxsplit=1)", "split(sep=',')", "zz", "zz.zz",
               "replace('a', 'b', 1)", "count", "strip"]
    BINARY = ["+", "+", "+", "~", "~", "-", "*", "//", "%", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or", "/", "**"]
    SLICES = ["[0]", "[-1]", "[1:]", "[:-1]", "[::-1]", "[1:3]", "[::2]", "[-2::-1]", "['a']", "[5]", "[true]", "[x]", "[:n]", "[n:]", "[::n]", "[none:2]", "[10:-10:-3]"]

    def __init__(self, r):
        self.r = r

    def expression(self, depth=2):
        r, e = self.r, lambda: self.expression(depth - 1)
        if depth <= 0 or r.random() < 0.2:
            return r.choice([lambda: r.choice(self.NAMES), lambda: r.choice(self.TEXTS), lambda: str(r.choice([0, 1, 2, 7, 100])),
                             lambda: r.choice(["true", "false", "none"])])()
        return r.choice([
            lambda: f"{e()} {r.choice(self.BINARY)} {e()}", lambda: f"{e()} ~ {e()}", lambda: f"{e()} == {e()}", lambda: f"{e()} and {e()}",
            lambda: f"({e()}){r.choice(['', '|' + r.choice(self.FILTERS)])}", lambda: f"{e()}|{r.choice(self.FILTERS)}",
            lambda: f"{e()}|{r.choice(self.FILTERS)}", lambda: f"({e()}) is {r.choice(['', 'not '])}{r.choice(self.TESTS)}",
            lambda: f"({e()}).{r.choice(self.METHODS)}", lambda: f"{r.choice(self.TEXTS)}.{r.choice(self.METHODS)}", lambda: f"({e()}){r.choice(self.SLICES)}",
            lambda: f"{r.choice(self.NAMES)}{r.choice(self.SLICES)}", lambda: f"not {e()}", lambda: f"-({e()}|length)", lambda: f"[{e()}, {e()}]",
            lambda: f"({e()}, {e()})", lambda: "{'a': " + e() + ", 'b': " + e() + "}", lambda: f"({e()} if {e()} else {e()})", lambda: f"({e()} if {e()})",
            lambda: f"range({e()}|length)", lambda: f"range(1, {r.choice([3, 9])}, {r.choice([2, -1])})|list", lambda: f"f({e()})", lambda: f"{e()} < {e()} <= {e()}"])()

    def tag(self, inside):
        return self.r.choice(["{%", "{%", "{%-", "{%+"]) + f" {inside} " + self.r.choice(["%}", "%}", "-%}", "+%}"])

    def text(self):
        return self.r.choice(["", "", "t", "\n", " \n ", "  ", "\n\n  ", "\t\n", " a ", "{# c #}", "\n  {#- c -#}\n ", "{#+ c +#}\n", "\r\n", "\u00a0\n\u2003", "é"])

    def statement(self, depth=3):
        r, e = self.r, self.expression
        body = lambda: "".join(self.text() + self.statement(depth - 1) for _ in range(r.randint(1, 2))) + self.text() if depth > 0 else self.text()
        output = lambda: r.choice(["{{", "{{-"]) + " " + e() + " " + r.choice(["}}", "-}}"])
        if r.random() < 0.4 or depth <= 0:
            return output()
        return r.choice([
            lambda: self.tag(f"if {e()}") + body() + self.tag("endif"),
            lambda: self.tag(f"if {e()}") + body() + self.tag(f"elif {e()}") + body() + self.tag("else") + body() + self.tag("endif"),
            lambda: self.tag("for m in messages" + r.choice(["", " if m.role == 'user'", f" if {e(2)}"])) + body() + self.tag("endfor"),
            lambda: self.tag(f"for x in {e()}") + body() + r.choice(["", self.tag("else") + body()]) + self.tag("endfor"),
            lambda: self.tag("for x, y in " + r.choice(["m.items()", "messages[0]|items", "[(1, 2), (3, 4)]", "messages", e()])) + body() + self.tag("endfor"),
            lambda: self.tag(f"set {r.choice(['x', 'y', 'ns.a', 'ns.b', 'x.a', 'messages'])} = {e()}"),
            lambda: self.tag(f"set x, y = {e()}, {e()}"), lambda: self.tag("set y") + body() + self.tag("endset"),
            lambda: self.tag(f"set ns = namespace(a={e(1)}, b={e(1)})"),
            lambda: self.tag(f"macro f({r.choice(['', 'a', 'a=1', 'a, b', 'a, b=x', 'x, b=[]'])})") + body() + self.tag("endmacro") + "{{ f(1) }}",
            lambda: self.tag("generation") + body() + self.tag("endgeneration"), lambda: self.tag(r.choice(["break", "continue"])),
            lambda: "{{ raise_exception(" + e(1) + ") }}"])()

    def template(self):
        start = "{% set ns = namespace(a=1, b='q') %}{% set x, y, n, m = ' aXb ', [1, 'a'], 2, messages[-1] %}"
        start += "{% macro f(a=2, b='b') %} [{{ a }}{{ b }}]{% endmacro %}"
        body = "".join(self.text() + self.statement(self.r.randint(0, 2)) for _ in range(self.r.randint(1, 4))) + self.text()
        return start + (self.tag("for m in messages") + body + self.tag("endfor") if self.r.random() < 0.5 else body)


def render(text, case, tokens):
    try:
        result, _ = chat_template_utils.render_jinja_template(
            [case["messages"]], chat_template=text, add_generation_prompt=case["add_generation_prompt"],
            **{**tokens, **case["variables"]})
        return {"expected": result[0]}
    except Exception as error:  # whatever transformers raises
        return {"error": f"{type(error).__name__}: {error}"}


def templates(folder):
    found = {os.path.basename(p): open(p, newline="").read() for p in sorted(glob.glob(f"{folder}/*.jinja"))} if folder else {}
    for path in glob.glob("build/published/smollm2/*/*Q4_1.gguf"):
        from gguf import GGUFReader
        found["SmolLM2 (GGUF)"] = bytes(GGUFReader(path).fields["tokenizer.chat_template"].parts[-1]).decode()
    return found


def main():
    out, folder = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    per_template = int(os.environ.get("CASES", "12"))
    tokens = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    r = random.Random(34)
    all_templates, cases = [], []
    for name, text in templates(folder).items():
        all_templates.append({"name": name, "text": text})
        for _ in range(per_template):
            case = {"template": len(all_templates) - 1, "messages": conversation(r),
                    "add_generation_prompt": r.random() < 0.6, "variables": variables(r)}
            cases.append({**case, **render(text, case, tokens)})
    language = Language(r)
    for i in range(int(os.environ.get("RANDOM_TEMPLATES", "3000"))):
        text = language.template()
        all_templates.append({"name": f"random {i}", "text": text})
        case = {"template": len(all_templates) - 1, "messages": conversation(r), "add_generation_prompt": r.random() < 0.6,
                "variables": variables(r)}
        cases.append({**case, **render(text, case, tokens)})
    os.makedirs(out, exist_ok=True)
    with open(f"{out}/cases.json", "w") as file:
        json.dump({"date": str(datetime.date.today()), "tokens": tokens, "templates": all_templates, "cases": cases}, file)
    print(len(all_templates), "templates,", len(cases), "cases,", sum("error" in c for c in cases), "with an error")


if __name__ == "__main__":
    main()
