"""Runs what a document prints, and compares what it shows with what comes out.

usage: check_document.py DOCUMENT --source ROOT --build TREE --work FOLDER [--python PROGRAM]
                         [--cc PROGRAM] [--cxx PROGRAM]

Everything runs from top to bottom in one session, in a copy of the checkout that has the build tree as
build/release. A reader may count on these rules, so they are all there are:

- An `sh` block is run as printed. A command with a comment that begins with `needs` or `takes` is not:
  of it the programs, files and flags are looked up.
- A `python` block is run in one session with the others of the page, or with such a comment in its first
  line compiled only.
- A block whose first line is a comment with nothing but a file's name is written to that file in the current
  folder, and another block of the page must use it.
- A `text`, `mlir` or `ptx` block right behind one that runs shows its output: these lines in this order,
  apart from white space and, but for `text`, the names of values. `...` stands for any lines, or for any
  text within one.
- Any other `mlir` block is a module that flash-opt reads.
- A block without a language is a picture.

Links must lead somewhere.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys

FENCE = re.compile(r"^( *)```([a-z]*)\n(.*?)^ *```$", re.S | re.M)
FILE_NAME = re.compile(r"^(?://|#|/\*)\s*([\w-]+\.\w+)\s*(?:\*/)?$")
NOT_RUN = re.compile(r"#\s*(?:needs|takes)\b")
OUTPUTS = ("text", "mlir", "ptx")
TIMEOUT = 600

# What a Python session of its own does: a line of JSON with a block's file, line and text comes in, one with its
# output or its error goes out.
PYTHON_SESSION = r"""
import contextlib, io, json, sys, traceback
names = {"__name__": "__main__"}
for request in sys.stdin:
    request = json.loads(request)
    text, error = io.StringIO(), None
    try:
        code = compile("\n" * request["line"] + request["code"], request["file"], "exec")
        with contextlib.redirect_stdout(text):
            exec(code, names)
    except BaseException:
        error = traceback.format_exc()
    sys.__stdout__.write(json.dumps({"output": text.getvalue(), "error": error}) + "\n")
    sys.__stdout__.flush()
"""


class Failure(Exception):
    pass


class Block:
    def __init__(self, language, body, line, follows):
        self.language, self.body, self.line = language, body, line
        #: The block before it, where nothing stands between.
        self.follows = follows
        lines = body.splitlines()
        name = FILE_NAME.match(lines[0]) if lines else None
        self.file = name.group(1) if name else None


def find_blocks(text):
    blocks, end = [], 0
    for match in FENCE.finditer(text):
        indent, language, body = match.groups()
        body = "".join(line[len(indent) :] or "\n" for line in body.splitlines(keepends=True))
        follows = blocks[-1] if blocks and not text[end : match.start()].strip() else None
        blocks.append(Block(language, body, text.count("\n", 0, match.start()) + 1, follows))
        end = match.end()
    return blocks


def normal(line, language):
    line = " ".join(line.split())
    return line if language == "text" else re.sub(r"%[A-Za-z0-9_#]+(:\d+)?", "%", line)


def compare(shown, language, output):
    """The first line of what is shown that is not in the output, or None."""
    lines = [normal(line, language) for line in output.splitlines()]
    at = 0
    for line in shown.splitlines():
        wanted = normal(line, language)
        if not wanted or wanted == "...":
            continue
        pieces = re.compile(".*".join(re.escape(p.strip()) for p in wanted.split("...")))
        while at < len(lines) and not pieces.search(lines[at]):
            at += 1
        if at == len(lines):
            return line
        at += 1
    return None


def split_commands(body):
    """The commands of an `sh` block; one that goes on behind a backslash is one."""
    commands, pending = [], ""
    for line in body.splitlines(keepends=True):
        pending += line
        if not line.rstrip("\n").endswith("\\"):
            commands.append(pending)
            pending = ""
    return commands + ([pending] if pending else [])


class Session:
    """A shell and a Python in a copy of the checkout."""

    def __init__(self, args):
        self.work = os.path.abspath(args.work)
        shutil.rmtree(self.work, ignore_errors=True)
        self.root = os.path.join(self.work, "flash-mlir")
        for folder in ("home", "bin"):
            os.makedirs(os.path.join(self.work, folder))
        ignored = shutil.ignore_patterns("build", "build-*", "dist", ".git", "__pycache__", "*.egg-info")
        shutil.copytree(args.source, self.root, ignore=ignored)
        os.mkdir(os.path.join(self.root, "build"))
        os.symlink(args.build, os.path.join(self.root, "build", "release"))
        programs = {"python": args.python, "python3": args.python, "cc": args.cc, "c++": args.cxx}
        for name, program in programs.items():
            self._add_program(name, program)
        self.env = self._make_environment(os.path.join(args.build, "bin"))
        self.state = os.path.join(self.work, "state")
        open(self.state, "w").close()
        self.python = None

    def _add_program(self, name, program):
        path = os.path.join(self.work, "bin", name)
        with open(path, "w") as file:
            file.write(f'#!/bin/sh\nexec "{program}" "$@"\n')
        os.chmod(path, 0o755)

    def _make_environment(self, tools):
        # A reader's: without what the tests set, and with no tool of ours on PATH.
        dropped = ("FLASHATTN_", "PYTHON", "XDG_")
        env = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
        path = [p for p in env["PATH"].split(os.pathsep) if os.path.realpath(p) != os.path.realpath(tools)]
        env["PATH"] = os.pathsep.join([os.path.join(self.work, "bin"), *path])
        env["HOME"] = os.path.join(self.work, "home")
        # Nothing is installed or downloaded, and nothing is left beside the sources.
        env.update(FLASHATTN_INSTALL="0", PYTHONDONTWRITEBYTECODE="1", PIP_NO_INDEX="1", PIP_NO_DEPS="1")
        env.update(PIP_NO_BUILD_ISOLATION="0", PIP_DISABLE_PIP_VERSION_CHECK="1")
        return env

    def shell(self, script):
        """Runs it where the last one left off, and returns its output, errors between."""
        wrapped = (
            f'. "{self.state}"; set -eo pipefail\n{script}\n'
            f'{{ declare -px | grep -Ev "^declare -[a-z]+ (PWD|OLDPWD|SHLVL)="; echo "cd \'$PWD\'"; }} > "{self.state}"\n'
        )
        done = subprocess.run(
            ["bash", "-c", wrapped], cwd=self.root, env=self.env, input="", text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT,
        )  # fmt: skip
        if done.returncode != 0:
            raise Failure(f"failed with exit status {done.returncode}:\n{script}\n{done.stdout}")
        return done.stdout

    def run_python(self, file, block):
        if self.python is None:
            with open(os.path.join(self.work, "session.py"), "w") as script:
                script.write(PYTHON_SESSION)
            command = f'. "{self.state}"; exec python3 "{self.work}/session.py"'
            self.python = subprocess.Popen(
                ["bash", "-c", command], cwd=self.root, env=self.env, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
        request = {"file": file, "line": block.line, "code": block.body}
        self.python.stdin.write(json.dumps(request) + "\n")
        self.python.stdin.flush()
        answer = self.python.stdout.readline()
        if not answer:
            raise Failure("Python ended")
        answer = json.loads(answer)
        if answer["error"]:
            raise Failure(answer["error"])
        return answer["output"]

    def look_up(self, command):
        """That a command which is not run has a program, files and flags that exist."""
        words = command.split("#")[0].replace("\\\n", " ").split()
        while words and re.match(r"^[A-Z_]+=|^sudo$", words[0]):
            words.pop(0)
        if not words:
            return
        program = words[0]
        self.shell(f"command -v {program} > {self.work}/found")
        flags_of = program if os.path.basename(program) in ("flash-run", "flash-opt") else None
        if words[1:2] == ["-m"] and words[2].startswith("flashattn"):
            flags_of = f"PYTHONPATH={self.root}/python {program} -m {' '.join(words[2:4])}"
        known = self.shell(f"{flags_of} --help") if flags_of else ""
        for word in words[1:]:
            flag = re.match(r"--[\w-]+", word)
            if flag and flags_of and flag.group() not in known:
                raise Failure(f"expected a flag of {flags_of} but got {flag.group()}")
            if re.match(r"^[\w./-]+/[\w./-]+$", word) and not word.startswith(("-", "/")):
                if not os.path.exists(os.path.join(self.root, word)):
                    raise Failure(f"expected a file of the checkout but got {word}")


class Document:
    def __init__(self, name, session):
        self.name, self.session = name, session
        self.folder = os.path.dirname(os.path.join(session.root, name))
        with open(os.path.join(session.root, name), encoding="utf-8") as file:
            self.text = file.read()
        self.blocks = find_blocks(self.text)
        self.skipped = []

    def run(self):
        ran = 0
        for block in self.blocks:
            try:
                ran += self.run_block(block)
            except Failure as failure:
                raise Failure(f"{self.name}:{block.line}: {failure}") from None
        self.check_files()
        self.check_links()
        return ran

    def run_block(self, block):
        block.output = None
        if block.file:
            self.write_file(block)
        elif block.language == "sh":
            self.run_commands(block)
        elif block.language == "python":
            skip = NOT_RUN.match(block.body)
            if skip:
                self.skipped.append(block.body.splitlines()[0])
                try:
                    compile("\n" * block.line + block.body, self.name, "exec")
                except SyntaxError as error:
                    raise Failure(str(error)) from None
            else:
                block.output = self.session.run_python(self.name, block)
        elif block.language in OUTPUTS and block.follows and block.follows.output is not None:
            line = compare(block.body, block.language, block.follows.output)
            if line is not None:
                raise Failure(
                    f"not in the output of the block before it, or not in this order:\n{line}\n"
                    f"the output is:\n{block.follows.output}"
                )
        elif block.language == "mlir":
            with open(os.path.join(self.session.work, "block.mlir"), "w", encoding="utf-8") as file:
                file.write(block.body)
            flash_opt = os.path.join(self.session.root, "build", "release", "bin", "flash-opt")
            self.session.shell(f"{flash_opt} {self.session.work}/block.mlir")
        elif block.language:
            raise Failure(
                f"expected a block that is run, written to a file that its first line names, or the output of "
                f"the block before it, but got one of {block.language}"
            )
        else:
            return 0
        return 1

    def write_file(self, block):
        """In the session's current folder, which is not to be one with such a file already."""
        path = os.path.join(self.session.shell("pwd").strip(), block.file)
        if os.path.exists(path):
            raise Failure(f"expected a name that is free but got {block.file}")
        with open(path, "w", encoding="utf-8") as file:
            file.write(block.body)

    def run_commands(self, block):
        kept = []
        for command in split_commands(block.body):
            if NOT_RUN.search(command):
                self.session.look_up(command)
                self.skipped.append(" ".join(command.split()))
            else:
                kept.append(command)
        block.output = self.session.shell("".join(kept)) if "".join(kept).strip() else None

    def check_files(self):
        """That every file of the page is used by another block of it."""
        for block in self.blocks:
            others = [other.body for other in self.blocks if other is not block]
            folder_used = any("-S ." in body or "cmake ." in body for body in others)
            if block.file and not any(block.file in body for body in others):
                if block.file != "CMakeLists.txt" or not folder_used:
                    raise Failure(f"{self.name}:{block.line}: no block uses {block.file}")

    def check_links(self):
        prose = FENCE.sub("", self.text)
        for target in re.findall(r"\]\(([^)\s]+)\)", prose):
            if target.startswith(("http:", "https:")):
                continue
            path, _, anchor = target.partition("#")
            path = os.path.normpath(os.path.join(self.folder, path)) if path else None
            if path and not os.path.exists(path):
                raise Failure(f"{self.name}: expected a file at the link {target} but found none")
            if anchor and anchor not in find_anchors(self.text if path is None else open(path).read()):
                raise Failure(f"{self.name}: expected a heading at the link {target} but found none")


def find_anchors(text):
    headings = re.findall(r"^#+ +(.*)$", FENCE.sub("", text), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("document")
    for name in ("source", "build", "work"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--cxx", default="c++")
    args = parser.parse_args()
    document = Document(args.document, Session(args))
    try:
        ran = document.run()
    except Failure as failure:
        sys.exit(f"error: {failure}")
    for command in document.skipped:
        print(f"not run: {command}")
    print(f"{ran} blocks hold")


main()
