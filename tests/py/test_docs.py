# SPDX-License-Identifier: Apache-2.0
"""Help text, man page and example file of each tool tell the same story."""

import functools
import glob
import os
import re
import subprocess
import unittest

import luabpf

TOOLS = sorted(glob.glob(os.path.join(luabpf.ROOT, "tools", "*.py")))
# An option begins a help line or follows a comma there; other dashes in the
# text (examples, prose) are not options.
HELP_LINE = re.compile(r"^ {2,4}(-[-\w]+.*)$", re.M)
OPTION = re.compile(r"(?:^|, )(--?[A-Za-z][-\w]*)")
USAGE_MARK = "\nUSAGE message:\n\n"


def tool_help(tool):
    done = subprocess.run(
        ["/usr/bin/python3", tool, "--help"], text=True, check=True,
        stdout=subprocess.PIPE, env=dict(os.environ, COLUMNS="80"))
    return done.stdout


def options_of(help_text):
    head = help_text.partition("\nexamples:")[0]
    found = []
    for line in HELP_LINE.findall(head):
        found += OPTION.findall(re.split(r" {2,}", line)[0])
    return sorted(set(found))


def plain_roff(text):
    """Text of a man page in man(7) or mdoc(7) with its options as typed."""
    text = re.sub(r"\\f(?:\(..|\[[^]]*\]|.)", "", text)
    text = text.replace("\\-", "-").replace("\\&", "")
    return re.sub(r"\bFl (?:Fl )?(-?[\w-]+)", r"-\1", text)


def words_of(text):
    return set(re.findall(r"(?<![\w-])--?[A-Za-z][-\w]*", text))


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def each_tool(test):
    @functools.wraps(test)
    def run(self):
        self.assertTrue(TOOLS, "no tool in tools/")
        for tool in TOOLS:
            name = os.path.basename(tool)[:-3]
            with self.subTest(name):
                test(self, tool, name)
    return run


class DocsTest(unittest.TestCase):
    def test_options_are_seen(self):
        text = ("usage: x [-h] [-p PIDS]\n\nx does - or -z.\n\n"
                "options:\n  -h, --help  show\n"
                "  -p PIDS, --pid PIDS\n              like -q of others\n"
                "    --lua-only  x\n\nexamples:\n  --not-one\n")
        self.assertEqual(options_of(text),
                         ["--help", "--lua-only", "--pid", "-h", "-p"])
        self.assertEqual(words_of(plain_roff(
            ".BR \\-p , \" \\-\\-lua\\-only\"\n\\fB\\-F\\fR \\fIHZ\\fR\n"
            ".It Fl c Ar N , Fl -cpu\nnot-this")),
            {"-p", "--lua-only", "-F", "-c", "--cpu"})

    @each_tool
    def test_man_page_has_every_option(self, tool, name):
        page = os.path.join(luabpf.ROOT, "man", "man8", name + ".8")
        self.assertTrue(os.path.exists(page), f"{page} is missing")
        options = options_of(tool_help(tool))
        self.assertTrue(options, "no options seen in --help")
        known = words_of(plain_roff(read(page)))
        self.assertEqual([o for o in options if o not in known], [],
                         "not in the man page")

    @each_tool
    def test_man_page_has_no_other_long_option(self, tool, name):
        page = os.path.join(luabpf.ROOT, "man", "man8", name + ".8")
        self.assertTrue(os.path.exists(page), f"{page} is missing")
        match = re.search(r'^\.S[hH] "?OPTIONS"?$(.*?)^\.S[hH]',
                          read(page), re.M | re.S)
        self.assertTrue(match, "no section OPTIONS")
        named = {w for w in words_of(plain_roff(match.group(1)))
                 if w.startswith("--")}
        self.assertEqual(sorted(named - set(options_of(tool_help(tool)))),
                         [], "in the man page but not in --help")

    @each_tool
    def test_example_file_ends_with_help_text(self, tool, name):
        example = tool[:-3] + "_example.txt"
        self.assertTrue(os.path.exists(example), f"{example} is missing")
        _, mark, usage = read(example).partition(USAGE_MARK)
        self.assertTrue(mark, "no line 'USAGE message:'")
        self.assertEqual(usage, tool_help(tool),
                         "stale: run make docs")

    @each_tool
    def test_version_is_told(self, tool, name):
        done = subprocess.run(
            ["/usr/bin/python3", tool, "--version"], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (0, f"{name} {luabpf.__version__}\n", ""))


if __name__ == "__main__":
    unittest.main()
