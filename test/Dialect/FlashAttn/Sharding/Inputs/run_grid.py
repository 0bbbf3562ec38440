"""Makes functions that one process can run of functions that a grid of processes runs.

usage: run_grid.py PROPAGATED PARTITIONED

PROPAGATED is what sharding-propagation gives, PARTITIONED what shard-partition makes of that, of static
shapes. Printed is a module with two functions for each function F: F_whole, F without its shardings, and
F_grid, which does in turn what each process does: its arguments are cut as PROPAGATED says, values of
processes follow each other, a collective reads those of its group, and the results are put together.
"""

import itertools
import math
import re
import sys

NAME = r"%[\w$.-]+"


def read_functions(text):
    """The lines above the functions, and (name, arguments, result types, ops) of each function."""
    above, functions, ops = [], [], None
    for line in text.splitlines():
        header = re.match(r"  func\.func @(\w+)\((.*?)\) -> (.*) \{$", line)
        if header:
            name, arguments, results = header.groups()
            ops = []
            arguments = [a.split(": ") for a in re.findall(rf"{NAME}: [^,]+", arguments)]
            functions.append((name, arguments, results.strip("()").split(", "), ops))
        elif line == "  }":
            ops = None
        elif ops is None:
            above.append(line)
        elif ops and ops[-1].count("{") != ops[-1].count("}"):
            ops[-1] += "\n" + line
        else:
            ops.append(line)
    return above, functions


def shape_of(kind):
    return [int(size) for size in re.findall(r"(\d+)x", kind)]


def element_of(kind):
    return re.search(r"x([a-z]\w*)>", kind).group(1)


class Grid:
    def __init__(self, shape):
        self.shape = shape
        self.processes = list(itertools.product(*map(range, shape)))

    def count(self, axes):
        return math.prod(self.shape[axis] for axis in axes)

    def index(self, process, axes):
        index = 0
        for axis in axes:
            index = index * self.shape[axis] + process[axis]
        return index

    def group(self, process, axes):
        """The processes that differ from this one along `axes` alone, in their order."""
        same = [p for p in self.processes if all(p[i] == process[i] or i in axes for i in range(len(p)))]
        return sorted(same, key=lambda p: self.index(p, axes))

    def slice(self, process, kind, splits):
        """Offsets and sizes of a process's part of a tensor, as `[…] [… ] [1, …]`."""
        shape = shape_of(kind)
        splits = splits + [[]] * (len(shape) - len(splits))
        sizes = [size // self.count(axes) for size, axes in zip(shape, splits)]
        offsets = [size * self.index(process, axes) for size, axes in zip(sizes, splits)]
        return f"{offsets} {sizes} {[1] * len(shape)}", f"tensor<{'x'.join(map(str, sizes))}x{element_of(kind)}>"


def read_shardings(ops):
    """The split axes of what is sharded, by its name, and those of what a sharding gives."""
    shardings, before, behind = {}, {}, {}
    for op in ops:
        if made := re.match(rf"    ({NAME}) = shard\.sharding @\w+ split_axes = \[(.*)\] :", op):
            splits = re.findall(r"\[([\d, ]*)\]", made.group(2))
            shardings[made.group(1)] = [[int(axis) for axis in re.findall(r"\d+", split)] for split in splits]
        elif used := re.match(rf"    ({NAME}) = shard\.shard ({NAME}(?:#\d+)?) to ({NAME})", op):
            result, source, sharding = used.groups()
            before[source], behind[result] = shardings[sharding], shardings[sharding]
    return before, behind


def print_whole(name, arguments, results, ops):
    renamed, lines = {}, []
    for op in ops:
        if used := re.match(rf"    ({NAME}) = shard\.shard ({NAME}(?:#\d+)?) to", op):
            renamed[used.group(1)] = renamed.get(used.group(2), used.group(2))
        elif " = shard.sharding " not in op:
            lines.append(re.sub(NAME, lambda m: renamed.get(m.group(), m.group()), op))
    types = ", ".join(results)
    header = ", ".join(f"{name}: {kind}" for name, kind in arguments)
    return [f"  func.func @{name}_whole({header}) -> ({types}) {{", *lines, "  }"]


class Printer:
    def __init__(self, grid):
        self.grid, self.lines, self.scalars, self.indices, self.fresh = grid, [], set(), set(), 0

    def new(self):
        self.fresh += 1
        return f"%t{self.fresh}"

    def of(self, process, text):
        """The text of an op with the names that one process's values have."""
        suffix = "_" + "_".join(map(str, process))

        def rename(match):
            name, number = match.groups()
            if name in self.scalars:
                return name
            if name in self.indices:
                return f"%p{name[1:]}{suffix}_{(number or '#0')[1:]}"
            return f"%p{name[1:]}{suffix}{number or ''}"

        return re.sub(rf"({NAME})(#\d+)?", rename, text)

    def empty(self, kind):
        value = self.new()
        self.lines.append(f"    {value} = tensor.empty() : {kind}")
        return value

    def insert(self, part, part_type, into, into_type, where, name=None):
        name = name or self.new()
        self.lines.append(f"    {name} = tensor.insert_slice {part} into {into}{where} : {part_type} into {into_type}")
        return name

    def collective(self, op):
        """False if it is an op of each process alone."""
        if found := re.match(rf"    ({NAME})(?::\d+)? = shard\.(\w+) (?:on )?@\w+ axes = \[(.*?)\] : index", op):
            result, what, axes = found.groups()
            assert what in ("process_multi_index", "grid_shape"), f"expected no {what}"
            self.indices.add(result)
            for process in self.grid.processes:
                for i, axis in enumerate(map(int, re.findall(r"\d+", axes))):
                    number = (process if what == "process_multi_index" else self.grid.shape)[axis]
                    self.lines.append(f"    {self.of(process, f'{result}#{i}')} = arith.constant {number} : index")
            return True
        found = re.match(
            rf"    ({NAME}) = shard\.all_(gather|reduce|slice) ({NAME}(?:#\d+)?) on @\w+ grid_axes = \[(.*?)\]"
            r"(?: \w+_axis = (\d+))?.* : (\S+) -> (\S+)$",
            op,
        )
        if not found:
            assert "shard." not in op, f"expected a collective that is known here but got {op}"
            return False
        result, kind, source, axes, dim, given, made = found.groups()
        axes = [int(axis) for axis in re.findall(r"\d+", axes)]
        for process in self.grid.processes:
            name = self.of(process, result)
            sources = [self.of(member, source) for member in self.grid.group(process, axes)]
            if kind == "reduce":
                self.sum(name, sources, given, made)
                continue
            splits = [[]] * int(dim) + [axes]
            if kind == "slice":
                where, _ = self.grid.slice(process, given, splits)
                source_here = self.of(process, source)
                self.lines.append(f"    {name} = tensor.extract_slice {source_here}{where} : {given} to {made}")
                continue
            whole = self.empty(made)
            for member, part in zip(self.grid.group(process, axes), sources):
                where, _ = self.grid.slice(member, made, splits)
                is_last = part == sources[-1]
                whole = self.insert(part, given, whole, made, where, name if is_last else None)
        return True

    def sum(self, name, sources, given, made):
        dims = ", ".join(f"d{i}" for i in range(len(shape_of(made))))
        maps = ", ".join([f"affine_map<({dims}) -> ({dims})>"] * (len(sources) + 1))
        iterators = ", ".join(['"parallel"'] * len(shape_of(made)))
        types = ", ".join([given] * len(sources))
        element, total = element_of(given), element_of(made)
        arguments = ", ".join(f"%a{i}: {element}" for i in range(len(sources)))
        body, value = [], None
        for i in range(len(sources)):
            part = f"%a{i}"
            if element != total:
                body.append(f"      %e{i} = arith.extf %a{i} : {element} to {total}")
                part = f"%e{i}"
            if value:
                body.append(f"      %s{i} = arith.addf {value}, {part} : {total}")
            value = f"%s{i}" if value else part
        into = self.empty(made)
        self.lines += [
            f"    {name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{iterators}]}}",
            f"      ins({', '.join(sources)} : {types}) outs({into} : {made}) {{",
            f"    ^bb0({arguments}, %out: {total}):",
            *body,
            f"      linalg.yield {value} : {total}",
            f"    }} -> {made}",
        ]


def print_grid(grid, name, arguments, results, ops, before, behind, returned):
    printer = Printer(grid)
    printer.scalars = {argument for argument, kind in arguments if not kind.startswith("tensor")}
    for argument, kind in arguments:
        if argument in printer.scalars:
            continue
        for process in grid.processes:
            where, part = grid.slice(process, kind, before[argument])
            value = printer.of(process, argument)
            printer.lines.append(f"    {value} = tensor.extract_slice {argument}{where} : {kind} to {part}")
    for op in ops[:-1]:
        if not printer.collective(op):
            printer.lines += [printer.of(process, op) for process in grid.processes]
    values = re.search(r"return (.*) :", ops[-1]).group(1).split(", ")
    wholes = []
    for value, kind, source in zip(values, results, returned):
        whole = printer.empty(kind)
        for process in grid.processes:
            where, part = grid.slice(process, kind, behind[source])
            whole = printer.insert(printer.of(process, value), part, whole, kind, where)
        wholes.append(whole)
    types = ", ".join(results)
    header = ", ".join(f"{name}: {kind}" for name, kind in arguments)
    return [
        f"  func.func @{name}_grid({header}) -> ({types}) {{",
        *printer.lines,
        f"    return {', '.join(wholes)} : {types}",
        "  }",
    ]


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        _, whole = read_functions(file.read())
    with open(sys.argv[2], encoding="utf-8") as file:
        above, parts = read_functions(file.read())
    grids = [line for line in above if "shard.grid" in line]
    shapes = dict(re.search(r"shard\.grid (@\w+)\(shape = ([\dx]+)\)", line).groups() for line in grids)
    print("\n".join(line for line in above if line.startswith("#")))
    for (name, arguments, results, ops), (_, _, _, part_ops) in zip(whole, parts):
        # One of them is a function's.
        name_of_grid = next(re.search(r"shard\.sharding (@\w+)", op).group(1) for op in ops if "shard.sharding" in op)
        grid = Grid([int(size) for size in shapes[name_of_grid].split("x")])
        before, behind = read_shardings(ops)
        returned = re.search(r"return (.*) :", ops[-1]).group(1).split(", ")
        print("\n".join(print_whole(name, arguments, results, ops)))
        print("\n".join(print_grid(grid, name, arguments, results, part_ops, before, behind, returned)))


main()
