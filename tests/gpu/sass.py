"""Reads machine code of NVIDIA GPUs as nvdisasm prints it: instructions, basic blocks, loops."""

import re
from dataclasses import dataclass, field

# "        /*0a30*/              @!P0 BRA `(.L_x_12) ;"
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
LABEL = re.compile(r"^(\.L_x_\d+):")
SECTION = re.compile(r"^\s*\.section\s+\.text\.(\w+)")
TARGET = re.compile(r"`\((\.L_x_\d+)\)")


@dataclass
class Instruction:
    name: str  # with its modifiers: "LDG.E.128"
    operands: str
    is_predicated: bool

    def has(self, *words):
        return any(word in self.name.split(".") for word in words)


@dataclass
class Block:
    instructions: list = field(default_factory=list)
    successors: list = field(default_factory=list)


def read_functions(text):
    """Name of each kernel -> its items: labels as strings, Instructions."""
    functions, items = {}, None
    for line in text.splitlines():
        if section := SECTION.match(line):
            items = functions.setdefault(section[1], [])
        elif items is None:
            continue
        elif label := LABEL.match(line):
            items.append(label[1])
        elif found := INSTRUCTION.match(line):
            items.append(Instruction(found[2], found[3], found[1] is not None and found[1] != "@PT"))
    return functions


def ends_path(instruction):
    """Whether nothing runs behind it."""
    is_conditional = instruction.is_predicated or re.match(r"!?U?P\d", instruction.operands)
    return instruction.has("BRA", "EXIT", "RET", "BRX", "BPT") and not is_conditional


class Graph:
    """Basic blocks of a kernel, numbered in the order of their addresses, and its loops."""

    def __init__(self, items):
        self.blocks, starts = [Block()], {}
        for item in items:
            block = self.blocks[-1]
            if isinstance(item, str):
                if block.instructions:
                    self.blocks.append(Block())
                starts[item] = len(self.blocks) - 1
                continue
            block.instructions.append(item)
            if item.has("BRA", "EXIT", "RET", "BRX", "BPT"):
                self.blocks.append(Block())
        for number, block in enumerate(self.blocks):
            last = block.instructions[-1] if block.instructions else None
            if last and last.has("BRA") and (target := TARGET.search(last.operands)):
                block.successors.append(starts[target[1]])
            if number + 1 < len(self.blocks) and not (last and ends_path(last)):
                block.successors.append(number + 1)
        self.loops = self._find_loops()

    def _dominators(self):
        """Blocks that every path from the entry to a block goes through; None: it is not reached."""
        before = [[] for _ in self.blocks]
        for number, block in enumerate(self.blocks):
            for successor in block.successors:
                before[successor].append(number)
        dominators = [None] * len(self.blocks)
        dominators[0] = {0}
        changed = True
        while changed:
            changed = False
            for number in range(1, len(self.blocks)):
                known = [dominators[b] for b in before[number] if dominators[b] is not None]
                if not known:
                    continue
                now = set.intersection(*known) | {number}
                if now != dominators[number]:
                    dominators[number], changed = now, True
        return dominators, before

    def _find_loops(self):
        """First block of each natural loop -> all its blocks."""
        dominators, before = self._dominators()
        loops = {}
        for number, block in enumerate(self.blocks):
            for head in block.successors:
                if dominators[number] is None or head not in dominators[number]:
                    continue
                body, open_blocks = loops.setdefault(head, {head}), [number]
                while open_blocks:
                    at = open_blocks.pop()
                    if at not in body:
                        body.add(at)
                        open_blocks += [b for b in before[at] if dominators[b] is not None]
        return loops

    def instructions(self, blocks=None):
        for number, block in enumerate(self.blocks):
            if blocks is None or number in blocks:
                yield from block.instructions

    def in_loops(self):
        """Instructions of every loop, each once."""
        return list(self.instructions(set().union(*self.loops.values())))

    def innermost(self):
        """Loops without another in them."""
        return [body for head, body in self.loops.items()
                if not any(other != head and other in body for other in self.loops)]

    def outermost_in(self, head):
        """Heads of the loops directly in a loop."""
        body = self.loops[head]
        inside = {h: b for h, b in self.loops.items() if h != head and h in body}
        return {h: b for h, b in inside.items()
                if not any(h in other for o, other in inside.items() if o != h)}

    def path_through(self, head, weigh, weight_of_loop):
        """The path of one round of a loop that has the most of what weigh counts, and of those the
        fewest instructions: (counted, instructions). weight_of_loop(instructions): how often an inner
        loop runs."""
        body, inner = self.loops[head], self.outermost_in(head)
        owner = {b: h for h, blocks in inner.items() for b in blocks}
        best = {}

        def cost(number):
            if number in inner:
                return tuple(weight_of_loop(list(self.instructions(inner[number]))) * part
                             for part in self.path_through(number, weigh, weight_of_loop))
            instructions = self.blocks[number].instructions
            return sum(map(weigh, instructions)), len(instructions)

        def exits(number):
            blocks = inner.get(number, {number})
            return {owner.get(s, s) for b in blocks for s in self.blocks[b].successors
                    if s in body and s not in blocks}

        def walk(number):
            if number in best:
                return best[number]
            best[number] = None  # on the way: a path does not come back here
            ends = any(head in self.blocks[b].successors for b in inner.get(number, {number}))
            found = [(0, 0)] if ends else []
            found += [rest for s in exits(number) if s != head and (rest := walk(s))]
            if found:
                rest = max(found, key=lambda pair: (pair[0], -pair[1]))
                here = cost(number)
                best[number] = here[0] + rest[0], here[1] + rest[1]
            return best[number]

        return walk(head)
