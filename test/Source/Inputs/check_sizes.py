"""Checks that no class, function or file of a source tree outgrows what a reader holds in mind.

usage: check_sizes.py FOLDER...

At most 25 fields a class (its own, not static), 100 lines a function (from its first line to its last
brace, what is nested in it included) and 600 lines a file, in .h, .cpp and .c. Tables (.def, .inc) and
TableGen are not read. The parser is one of braces: it counts on code that a compiler takes and that
clang-format has laid out. Prints a line for what is over, and how much was read.
"""

import pathlib
import re
import sys

FIELDS, FUNCTION_LINES, FILE_LINES = 25, 100, 600

# Comments, raw strings, strings, characters and directives, which may hold braces of their own.
# A digit before a quote makes it a separator: 10'000.
NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^()\\ ]*)\(.*?\)(?P=d)"|"(?:[^"\\\n]|\\.)*"'
    r"|(?<![0-9a-fA-F])'(?:[^'\\\n]|\\.)+'|^[ \t]*#(?:[^\n\\]|\\.|\\\n)*",
    re.DOTALL | re.MULTILINE,
)
CLASS = re.compile(r"^(typedef\s+)?(template\s*<.*>\s*)?(class|struct|union)\b(?P<name>[^:(]*)")
FUNCTION = re.compile(r"((\w+::)*(operator\s*(\(\)|[^\s(]+)|~?\w+))\s*\(")
NO_FIELD = re.compile(r"^(using|typedef|friend|static|template|enum|class\s+\w+$|struct\s+\w+$)\b")


def blank(match):
    """As many lines, and a value where one stood."""
    text = match[0]
    value = "0" if text[0] in "\"'R" else ""
    return value + "\n" * text.count("\n")


def without_brackets(text):
    """Without what stands in (…) and <…>, innermost first."""
    before = None
    while before != text:
        before, text = text, re.sub(r"<[^<>()]*>", "", text)
        text = re.sub(r"\([^()]*\)", "()", text) if text == before else text
        if text == before:
            return text
    return text


def count_fields(statement):
    """How many fields a statement of a class's body declares."""
    statement = re.sub(r"^((public|private|protected)\s*:\s*)+", "", statement.strip())
    if not statement or NO_FIELD.match(statement) or re.match(r"operator\b", statement):
        return 0
    # Template arguments may hold parentheses, default arguments and commas.
    while True:
        shorter = re.sub(r"\(([^()<>]*)\)(?=[^()]*>)|<[^<>]*>", "", statement)
        if shorter == statement:
            break
        statement = shorter
    declared = re.split(r"=|\{", statement)[0]
    if "(" in declared or "operator" in declared:
        return 0
    # Commas in an initialiser of a declarator do not declare another one.
    while True:
        shorter = re.sub(r"\([^()]*\)|\{[^{}]*\}|\[[^\[\]]*\]", "", statement)
        if shorter == statement:
            break
        statement = shorter
    return statement.count(",") + 1


class Scope:
    def __init__(self, kind, name, line):
        self.kind, self.name, self.line = kind, name, line
        self.fields = 0


def scope_of(header, parent, line):
    """The scope that a brace opens behind `header`; None for braces that hold an initial value."""
    if parent.kind in ("function", "block"):
        return Scope("block", "", line)
    if re.match(r"^(inline\s+)?namespace\b|^extern\b\s*0?$", header):
        return Scope("namespace", "", line)
    match = CLASS.match(header)
    if match and "=" not in header:
        name = match["name"].replace("final", "").split()
        return Scope("class", name[-1] if name else "(unnamed)", line)
    if header.startswith("enum"):
        return Scope("block", "", line)
    match = FUNCTION.search(header)
    if match and not re.search(r"(^|[^=!<>])=\s*$", header):
        behind = without_brackets(header)
        # `Name(…) : field{…}, other{…} {…}`: all but the last brace hold values.
        if re.search(r"\)\s*(noexcept\s*)?:\s.*\w$", behind):
            return None
        if not re.search(r"\breturn\b|=", behind.split("(")[0]) or "operator" in behind:
            return Scope("function", match[1], line)
    return None


def measure(text):
    """(kind, name, line, size) of every class and function."""
    text = NOISE.sub(blank, text)
    scopes, values = [Scope("namespace", "", 1)], 0
    header, header_line, line = "", None, 1
    for character in text:
        if character == "\n":
            line += 1
        if character == "{":
            scope = None if values else scope_of(" ".join(header.split()), scopes[-1], header_line or line)
            if scope is None and scopes[-1].kind not in ("function", "block"):
                values += 1
                header += "{"
                continue
            scopes.append(scope)
        elif character == "}":
            if values:
                values -= 1
                header += "}"
                continue
            scope = scopes.pop()
            if scope.kind == "class":
                yield scope.kind, scope.name, scope.line, scope.fields
                # `struct {…} name;` is a field of that type.
                header, header_line = "struct_ ", line
                if scopes[-1].kind == "class":
                    continue
            elif scope.kind == "function":
                yield scope.kind, scope.name, scope.line, line - scope.line + 1
        elif character == ";" and not values:
            if scopes[-1].kind == "class" and header.strip() != "struct_":
                scopes[-1].fields += count_fields(" ".join(header.split()))
        else:
            header += character
            if header_line is None and not character.isspace():
                header_line = line
            # An access specifier is no part of what follows it.
            if re.fullmatch(r"\s*(public|private|protected)\s*:", header):
                header, header_line = "", None
            continue
        header, header_line = "", None
    if len(scopes) != 1:
        raise ValueError(f"expected as many closing braces as opening ones but got {len(scopes) - 1} more")


def check(path):
    """(what is over, how many classes and functions)."""
    text = path.read_text()
    lines = text.count("\n")
    over = [f"{path}: {lines} lines, {FILE_LINES} at most"] if lines > FILE_LINES else []
    found = list(measure(text))
    for kind, name, line, size in found:
        if kind == "class" and size > FIELDS:
            over.append(f"{path}:{line}: class {name} has {size} fields, {FIELDS} at most")
        if kind == "function" and size > FUNCTION_LINES:
            over.append(f"{path}:{line}: function {name} has {size} lines, {FUNCTION_LINES} at most")
    return over, found


def main(folders):
    over, kinds, files = [], [], 0
    for folder in folders:
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if path.suffix in (".h", ".cpp", ".c"):
                problems, found = check(path)
                over += problems
                kinds += [kind for kind, *_ in found]
                files += 1
    print("\n".join(over), end="\n" if over else "")
    print(
        f"{files} files, {kinds.count('class')} classes, {kinds.count('function')} functions, "
        f"{len(over)} over"
    )
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
