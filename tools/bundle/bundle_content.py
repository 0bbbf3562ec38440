"""Derives the content of a bundle from its tests, so that they can run."""

import collections
import os
import re
import sys

# Programs that every target machine has: coreutils, diffutils, grep and sed.
MACHINE = set(
    "basename cat cmp cp cut diff dirname echo false grep head ln ls mkdir mv od paste printf rm "
    "rmdir sed seq sort tac tail tee test touch tr true uniq wc".split()
)
# Commands of lit's own shell.
SHELL = {"cd", "export", ":"}
# Programs that only change how a command runs, and their flags.
WRAPPERS = {"env", "-i", "-u", "not", "--crash"}
# Substitutions that run a Python of the machine.
PYTHONS = {"%lit", "%python", "%numpy_python", "%flashattn_python", "%sanitized_python"}
# Packed whether or not a test runs them.
TOOLS = ["flash-compile", "flash-lsp-server", "flash-opt", "flash-run"]
LIBRARIES = ["libFlashAttnAOTRuntime.a", "libFlashAttnC.so", "libFlashAttnONNX.so"]

# Features of lit.cfg.py that only a build tree has, and folders that are left out of the bundle.
BUILD_FEATURES = {
    "bundle": "makes a bundle",
    "package": "installs a build tree",
    "plugin": "loads a plugin into LLVM's own tools",
}
FOLDERS = {"Unit": "programs of GoogleTest, which name files of the build tree"}
# Same as in lit.cfg.py.
SUFFIXES = (".mlir", ".test", ".py", ".c")
NO_TESTS = {"lit.cfg.py", "plant_faults.py", "summary.py"}
# Scripts that change the sources.
OF_SOURCES = {"plant_faults.py"}

Content = collections.namedtuple("Content", "programs libraries files left_out missing")


def read_commands(path):
    """Returns the features that a test requires, and the text of each of its commands."""
    from lit.TestRunner import parseIntegratedTestScriptCommands

    features, commands, pending = set(), [], ""
    keywords = ["REQUIRES:", "RUN:", "REDEFINE:", "DEFINE:"]
    for _, keyword, text in parseIntegratedTestScriptCommands(path, keywords):
        if keyword == "REQUIRES:":
            features.update(re.findall(r"[\w-]+", text))
            continue
        pending += text.strip()
        if pending.endswith("\\"):
            pending = pending[:-1] + " "
            continue
        # A definition `%{name} = COMMAND` counts as the command.
        commands.append(re.sub(r"^%\{[\w-]+\} *= *", "", pending))
        pending = ""
    return features, commands


def find_programs(command):
    """Returns the programs that a command runs, as the test names them, and the features in its conditions."""
    from lit.ShCommands import Command, Pipeline
    from lit.ShUtil import ShParser

    features = set(re.findall(r"%if ([\w-]+) %\{", command))
    command = re.sub(r"%if !?[\w-]+ %\{|%\} %else %\{|%\}", " ; ", command)
    command = re.sub(r"^[ ;]+|[ ;]+$|;(?=[ ;]+;)", "", command)
    programs = []

    def walk(node):
        if isinstance(node, Pipeline):
            for part in node.commands:
                walk(part)
        elif not isinstance(node, Command):
            walk(node.lhs)
            walk(node.rhs)
        else:
            words = [str(word) for word in node.args]
            # `not env -u HOME A=1 PROGRAM`
            while words and (words[0] in WRAPPERS or "=" in words[0]):
                if words[0] == "not":
                    programs.append("not")
                del words[: 2 if words[0] == "-u" else 1]
            programs.extend(words[:1])

    if command:
        walk(ShParser(command).parse())
    return programs, features


def list_tests(root):
    """Returns the paths of the tests, and of all files, relative to `root`."""
    tests, files = [], []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - {"__pycache__", *FOLDERS})
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), root)
            files.append(path)
            is_input = "Inputs" in path.split(os.sep)
            if name.endswith(SUFFIXES) and not is_input and path not in NO_TESTS:
                tests.append(path)
    return tests, files


class Finder:
    """Finds files by the names that tests use, and collects a message for each missing file."""

    def __init__(self, folders):
        self.folders = folders
        self.found, self.missing = {}, {}

    def take(self, name, user):
        if name in self.found or name in self.missing:
            return
        paths = [os.path.join(folder, name) for folder in self.folders]
        path = next(filter(os.path.isfile, paths), None)
        if path:
            self.found[name] = path
        else:
            places = " or ".join(self.folders)
            self.missing[name] = f"expected '{name}', which {user} runs, in {places} but found none"


def find(root, lit, program_folders, library_folder):
    """Returns the content of the bundle for the tests below `root`.

    Programs are searched in `program_folders`, in this order. A test that requires a feature of a build
    tree is left out, with the reason. `missing` contains a message for each program of a test that is
    neither found nor on every machine, unless the test also names the program as a feature.
    """
    sys.path.insert(0, lit)
    programs, libraries = Finder(program_folders), Finder([library_folder])
    for name in TOOLS:
        programs.take(name, "the user")
    for name in LIBRARIES:
        libraries.take(name, "the user")
    left_out = {f: FOLDERS[f] for f in FOLDERS if os.path.isdir(os.path.join(root, f))}
    tests, files = list_tests(root)
    for test in tests:
        features, commands = read_commands(os.path.join(root, test))
        reasons = [BUILD_FEATURES[feature] for feature in sorted(features & set(BUILD_FEATURES))]
        if reasons:
            left_out[test] = ", ".join(reasons)
            continue
        for command in commands:
            names, conditions = find_programs(command)
            features |= conditions
            elsewhere = MACHINE | SHELL | PYTHONS | features | {"%" + name for name in features}
            for name in names:
                # `%{name}` is checked at its definition, and the test itself creates %t.
                if name not in elsewhere and not name.startswith(("%{", "%t")):
                    programs.take(name, test)
            for name in re.findall(r"%flashattn_lib/([\w.-]+)", command):
                libraries.take(name, test)
            if "%fakecuda" in command:
                libraries.take("libFakeCUDA.so", test)

    kept = [test for test in tests if test not in left_out]

    def is_needed(path):
        # Inputs and lit.local.cfg are needed if a test in their folder, or below it, is kept.
        folder = re.sub(r"(^|/)(Inputs/.*|lit\.local\.cfg$)", r"\1", path)
        has_tests = folder != path and any(test.startswith(folder) for test in kept)
        return path in kept or path in NO_TESTS - OF_SOURCES or has_tests

    missing = [*programs.missing.values(), *libraries.missing.values()]
    return Content(
        sorted(programs.found.values()),
        sorted(libraries.found.values()),
        list(filter(is_needed, files)),
        sorted(left_out.items()),
        missing,
    )
