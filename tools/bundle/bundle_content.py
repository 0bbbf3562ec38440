"""What a bundle must hold so that its tests can run: read from the tests themselves."""

import collections
import os
import re
import sys

# What every machine has that the bundle is for: coreutils, diffutils, grep and sed.
MACHINE = set("cat cmp cp diff echo false grep head ls mkdir mv rm sed sort tail touch tr true uniq wc".split())
# What lit itself runs.
SHELL = {"cd", "export", ":"}
# Pythons of the machine.
PYTHONS = {"%python", "%numpy_python", "%flashattn_python"}
# What a user gets, run by a test or not.
TOOLS = ["flash-opt", "flash-run"]
LIBRARIES = ["libFlashAttnC.so"]

# Features of lit.cfg.py that only a build tree has, and folders that are not for the bundle.
BUILD_FEATURES = {
    "bundle": "makes a bundle",
    "package": "installs a build tree",
    "plugin": "loads a plugin into LLVM's own tools",
}
FOLDERS = {"Unit": "programs of GoogleTest, which name files of the build tree"}
# As in lit.cfg.py.
SUFFIXES = (".mlir", ".test", ".py", ".c")
NO_TESTS = {"lit.cfg.py", "summary.py"}

Content = collections.namedtuple("Content", "programs libraries files left_out missing")


def read_commands(path):
    """The features that a test names, and the text of each of its commands."""
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
        # `%{name}` stands for the command in its definition.
        commands.append(re.sub(r"^%\{[\w-]+\} *= *", "", pending))
        pending = ""
    return features, commands


def find_programs(command):
    """The programs that a command runs, as the test names them, and the features it asks for."""
    from lit.ShCommands import Command, Pipeline
    from lit.ShUtil import ShParser

    features = set(re.findall(r"%if ([\w-]+) %\{", command))
    command = re.sub(r"%if [\w-]+ %\{|%\} %else %\{|%\}", " ; ", command)
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
            # The program behind what only changes how it runs: `not env -u HOME A=1 PROGRAM`.
            while words and (words[0] in ("env", "not", "--crash", "-i") or "=" in words[0] or words[0] == "-u"):
                if words[0] == "not":
                    programs.append("not")
                del words[: 2 if words[0] == "-u" else 1]
            programs.extend(words[:1])

    if command:
        walk(ShParser(command).parse())
    return programs, features


def list_tests(root):
    """Paths below `root` of the tests, and of all files."""
    tests, files = [], []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - {"__pycache__", *FOLDERS})
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), root)
            files.append(path)
            if name.endswith(SUFFIXES) and "Inputs" not in path.split(os.sep) and path not in NO_TESTS:
                tests.append(path)
    return tests, files


def find(root, lit, folders, library_folder):
    """What the bundle holds for the tests below `root`.

    Programs are looked for in `folders`, in this order, libraries in `library_folder`. A test is left out, with
    the reason, where it requires what no bundle has. `missing` has a message for each program of a test that
    is neither found, nor on every machine, nor a feature by which the test says that it may be missing.
    """
    sys.path.insert(0, lit)
    programs, libraries, missing = {}, {}, {}
    left_out = {folder: reason for folder, reason in FOLDERS.items() if os.path.isdir(os.path.join(root, folder))}

    def take(found, name, places, user):
        path = next((p for p in (os.path.join(place, name) for place in places) if os.path.isfile(p)), None)
        if path:
            found[name] = path
        else:
            missing.setdefault(name, f"expected '{name}', which {user} runs, in {' or '.join(places)} but found none")

    for name in TOOLS:
        take(programs, name, folders, "the user")
    for name in LIBRARIES:
        take(libraries, name, [library_folder], "the user")
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
            for name in names:
                known = MACHINE | SHELL | PYTHONS | features | {"%" + feature for feature in features}
                if name not in known and not name.startswith(("%{", "%t")) and name not in programs:
                    take(programs, name, folders, test)
            wanted = re.findall(r"%flashattn_lib/([\w.-]+)", command)
            wanted += ["libFakeCUDA.so"] if "%fakecuda" in command else []
            for name in wanted:
                if name not in libraries:
                    take(libraries, name, [library_folder], test)

    kept = [test for test in tests if test not in left_out]

    def is_needed(path):
        # Inputs go with the tests beside them and below.
        folder = re.sub(r"(^|/)Inputs/.*", r"\1", path)
        return path in kept or path in NO_TESTS or (
            folder != path and any(test.startswith(folder) for test in kept))

    return Content(sorted(programs.values()), sorted(libraries.values()), [f for f in files if is_needed(f)],
                   sorted(left_out.items()), list(missing.values()))
