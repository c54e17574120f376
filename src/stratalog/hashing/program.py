"""SHA3-256 of many records at once, written for LLVM.

Keccak's state is 25 words of 64 bits, and nothing in it depends on what is hashed: every record
takes the same steps. So the words become vectors, each record has a lane of them, and one step
serves as many records as a vector of the processor holds.

    lane             0         1         2         3
    state word 0   record 0  record 1  record 2  record 3
    …
    state word 24  record 0  record 1  record 2  record 3

Records of a group are absorbed block by block, 136 bytes each, until the longest is done. To keep
lanes busy, the caller passes an order in which neighbours have about the same length.

The digests are not stored. They are added up as a setsum adds them: as eight columns of 32 bits,
in words with room for four thousand million of them. The caller reduces the columns.

This module defines one function, in LLVM's language:

    void sum_records(i64 count, ptr order, ptr headers, ptr bodies, ptr bounds, ptr totals)

    order      count × u64    the next record; no shorter than the one before
    headers    count × 16     the bytes hashed before each body
    bodies                    all bodies, one after the other
    bounds     count+1 × u32  the beginning of each body, and the end of the last one
    totals     8 × u64        the columns are added to these
"""

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

from stratalog.hashing.block import BLOCK_BYTES, HEADER_BYTES

NAME = "sum_records"

STATE_WORDS = 25
BLOCK_WORDS = BLOCK_BYTES // 8
DIGEST_WORDS = 4
PADDING_FIRST, PADDING_LAST = 0x06, 0x80

_BYTE, _BOUND, _WORD = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_ADDRESS = ir.PointerType()
_NOTHING = ir.VoidType()


def sum_records(lanes: int) -> str:
    """The program for vectors of ``lanes`` words, as text."""
    module = ir.Module("stratalog.hashing")
    block = _define_block(module)
    absorb = _define_absorb(module, lanes)
    permute = _define_permute(module, lanes)
    _define_sum_records(module, lanes, block, absorb, permute)
    return str(module)


class _Code:
    """Writes the body of one function. Indexes and lengths are words."""

    def __init__(self, module: ir.Module, name: str, result: ir.Type, *takes: ir.Type) -> None:
        self.function = ir.Function(module, ir.FunctionType(result, takes), name)
        self.ir = ir.IRBuilder(self.function.append_basic_block())
        if name != NAME:
            self.function.linkage = "internal"

    def word(self, value: int) -> ir.Value:
        return ir.Constant(_WORD, value)

    def room(self, kind: ir.Type, count: int) -> ir.Value:
        """Memory for ``count`` values of a kind, while the function runs."""
        made = self.ir.alloca(kind, count)
        made.align = 64
        return made

    def address(self, base: ir.Value, index: ir.Value | int, kind: ir.Type = _WORD) -> ir.Value:
        place = self.word(index) if isinstance(index, int) else index
        return self.ir.gep(base, [place], source_etype=kind)

    def get(self, base: ir.Value, index: ir.Value | int, kind: ir.Type = _WORD) -> ir.Value:
        return self.ir.load(self.address(base, index, kind), typ=kind)

    def put(
        self, value: ir.Value, base: ir.Value, index: ir.Value | int, kind: ir.Type = _WORD
    ) -> None:
        self.ir.store(value, self.address(base, index, kind))

    def copy(self, to: ir.Value, source: ir.Value, size: ir.Value) -> None:
        kinds = [_ADDRESS, _ADDRESS, _WORD]
        copy = self.function.module.declare_intrinsic("llvm.memcpy", kinds)
        self.ir.call(copy, [to, source, size, ir.Constant(ir.IntType(1), 0)])

    def clear(self, to: ir.Value, size: ir.Value) -> None:
        clear = self.function.module.declare_intrinsic("llvm.memset", [_ADDRESS, _WORD])
        self.ir.call(clear, [to, ir.Constant(_BYTE, 0), size, ir.Constant(ir.IntType(1), 0)])

    @contextmanager
    def times(self, count: ir.Value | int) -> Iterator[ir.Value]:
        """Repeat the code written inside ``count`` times, at least once. Yields the iteration."""
        limit = self.word(count) if isinstance(count, int) else count
        before, inside = self.ir.block, self.function.append_basic_block()
        self.ir.branch(inside)
        self.ir.position_at_end(inside)
        number = self.ir.phi(_WORD)
        number.add_incoming(self.word(0), before)
        yield number
        following = self.ir.add(number, self.word(1))
        number.add_incoming(following, self.ir.block)
        after = self.function.append_basic_block()
        self.ir.cbranch(self.ir.icmp_unsigned("<", following, limit), inside, after)
        self.ir.position_at_end(after)


def _define_block(module: ir.Module) -> ir.Function:
    """The address of the block of this number: in the body, or for the first and the last one in
    ``scratch``, where it is assembled. Blocks after the last one are never read."""
    takes = (_ADDRESS, _ADDRESS, _WORD, _WORD, _ADDRESS)
    code = _Code(module, "block", _ADDRESS, *takes)
    header, body, length, number, scratch = code.function.args
    build, word = code.ir, code.word

    item = build.add(length, word(HEADER_BYTES))
    last = build.udiv(item, word(BLOCK_BYTES))
    begin = build.mul(number, word(BLOCK_BYTES))
    inside = code.address(body, build.sub(begin, word(HEADER_BYTES)), _BYTE)
    is_first = build.icmp_unsigned("==", number, word(0))
    is_last = build.icmp_unsigned("==", number, last)
    with build.if_then(build.icmp_unsigned(">", number, last)):
        build.ret(scratch)
    with build.if_then(build.not_(build.or_(is_first, is_last))):
        build.ret(inside)

    left = build.sub(item, begin)
    filled = build.select(is_last, left, word(BLOCK_BYTES))
    with build.if_else(is_first) as (first, other):
        with first:
            code.copy(scratch, header, word(HEADER_BYTES))
            beside = code.address(scratch, HEADER_BYTES, _BYTE)
            code.copy(beside, body, build.sub(filled, word(HEADER_BYTES)))
        with other:
            code.copy(scratch, inside, filled)
    with build.if_then(is_last):
        code.clear(code.address(scratch, filled, _BYTE), build.sub(word(BLOCK_BYTES), filled))
        code.put(ir.Constant(_BYTE, PADDING_FIRST), scratch, filled, _BYTE)
        end = code.get(scratch, BLOCK_BYTES - 1, _BYTE)
        padded = build.or_(end, ir.Constant(_BYTE, PADDING_LAST))
        code.put(padded, scratch, BLOCK_BYTES - 1, _BYTE)
    build.ret(scratch)
    return code.function


def _define_absorb(module: ir.Module, lanes: int) -> ir.Function:
    """Add a block to each lane of the state. ``blocks`` has their addresses."""
    vector = ir.VectorType(_WORD, lanes)
    code = _Code(module, "absorb", _NOTHING, _ADDRESS, _ADDRESS)
    state, blocks = code.function.args
    places = [code.get(blocks, lane, _ADDRESS) for lane in range(lanes)]
    for number in range(BLOCK_WORDS):
        words = ir.Constant(vector, ir.Undefined)
        for lane, place in enumerate(places):
            word = code.ir.load(code.address(place, number), typ=_WORD, align=1)
            words = code.ir.insert_element(words, word, ir.Constant(_BOUND, lane))
        mixed = code.ir.xor(code.get(state, number, vector), words)
        code.put(mixed, state, number, vector)
    code.ir.ret_void()
    return code.function


def _define_permute(module: ir.Module, lanes: int) -> ir.Function:
    """Keccak-f[1600] on every lane of the state."""
    vector = ir.VectorType(_WORD, lanes)
    constants = ir.GlobalVariable(module, ir.ArrayType(_WORD, len(_ROUND_CONSTANTS)), "constants")
    constants.global_constant = True
    constants.linkage = "internal"
    constants.initializer = ir.Constant(constants.value_type, _ROUND_CONSTANTS)

    rotating = ir.FunctionType(vector, [vector] * 3)
    rotate = ir.Function(module, rotating, f"llvm.fshl.v{lanes}i64")

    code = _Code(module, "permute", _NOTHING, _ADDRESS)
    (state,) = code.function.args
    begun = [code.get(state, number, vector) for number in range(STATE_WORDS)]
    before = code.ir.block
    with code.times(len(_ROUND_CONSTANTS)) as number:
        words = [code.ir.phi(vector) for _ in begun]
        inside = code.ir.block
        for word, first in zip(words, begun, strict=True):
            word.add_incoming(first, before)
        constant = _everywhere(code, code.get(constants, number), vector)
        mixed = _round(code, words, constant, rotate)
        assert code.ir.block is inside, "a round does not branch"
        for word, following in zip(words, mixed, strict=True):
            word.add_incoming(following, inside)
    for number, word in enumerate(mixed):
        code.put(word, state, number, vector)
    code.ir.ret_void()
    return code.function


def _everywhere(code: _Code, word: ir.Value, vector: ir.VectorType) -> ir.Value:
    nothing = ir.Constant(vector, ir.Undefined)
    first = code.ir.insert_element(nothing, word, ir.Constant(_BOUND, 0))
    mask = ir.Constant(ir.VectorType(_BOUND, vector.count), [0] * vector.count)
    return code.ir.shuffle_vector(first, nothing, mask)


def _round(
    code: _Code, words: list[ir.Value], constant: ir.Value, rotate: ir.Function
) -> list[ir.Value]:
    """One round. The word at (x, y) has the index x + 5y, and the steps the names of FIPS 202."""
    build = code.ir

    def rotated(word: ir.Value, places: int) -> ir.Value:
        by = ir.Constant(word.type, [places] * word.type.count)
        return build.call(rotate, [word, word, by]) if places else word

    # θ: add to each word the parities of two neighbouring columns
    parities = []
    for x in range(5):
        parity = words[x]
        for y in range(1, 5):
            parity = build.xor(parity, words[x + 5 * y])
        parities.append(parity)
    beside = [build.xor(parities[x - 1], rotated(parities[(x + 1) % 5], 1)) for x in range(5)]

    # ρ and π: rotate each word, and move it to another place
    moved = [words[0]] * STATE_WORDS
    for x in range(5):
        for y in range(5):
            word = build.xor(words[x + 5 * y], beside[x])
            moved[y + 5 * ((2 * x + 3 * y) % 5)] = rotated(word, _ROTATIONS[x, y])

    # χ: in each row, mix a word with its two neighbours; the only nonlinear step
    mixed = []
    for y in range(0, STATE_WORDS, 5):
        for x in range(5):
            second, third = moved[y + (x + 1) % 5], moved[y + (x + 2) % 5]
            mixed.append(build.xor(moved[y + x], build.and_(build.not_(second), third)))

    # ι: make the rounds differ
    mixed[0] = build.xor(mixed[0], constant)
    return mixed


def _rotations() -> dict[tuple[int, int], int]:
    """How far ρ rotates the word at (x, y): FIPS 202, 3.2.2."""
    found, x, y = {(0, 0): 0}, 1, 0
    for step in range(24):
        found[x, y] = (step + 1) * (step + 2) // 2 % 64
        x, y = y, (2 * x + 3 * y) % 5
    return found


def _round_constants() -> list[int]:
    """What ι adds in each round: FIPS 202, 3.2.5."""
    constants, register = [], 1
    for _ in range(24):
        constant = 0
        for power in range(7):
            constant |= (register & 1) << ((1 << power) - 1)
            register = (register << 1) ^ (0x171 * (register >> 7))
        constants.append(constant)
    return constants


_ROTATIONS, _ROUND_CONSTANTS = _rotations(), _round_constants()


def _define_sum_records(
    module: ir.Module,
    lanes: int,
    block: ir.Function,
    absorb: ir.Function,
    permute: ir.Function,
) -> None:
    takes = (_WORD, _ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS)
    code = _Code(module, NAME, _NOTHING, *takes)
    count, order, headers, bodies, bounds, totals = code.function.args
    build, word = code.ir, code.word

    state_bytes = word(STATE_WORDS * lanes * 8)
    state = code.room(ir.VectorType(_WORD, lanes), STATE_WORDS)
    scratch = code.room(_BYTE, BLOCK_BYTES * lanes)
    blocks, lane_headers, lane_bodies = (code.room(_ADDRESS, lanes) for _ in range(3))
    lane_lengths = code.room(_WORD, lanes)

    def last_block(lane: ir.Value | int) -> ir.Value:
        item = build.add(code.get(lane_lengths, lane), word(HEADER_BYTES))
        return build.udiv(item, word(BLOCK_BYTES))

    groups = build.udiv(build.add(count, word(lanes - 1)), word(lanes))
    with code.times(groups) as group:
        first = build.mul(group, word(lanes))
        code.clear(state, state_bytes)

        # A lane of the last group without a record of its own repeats the last record.
        with code.times(lanes) as lane:
            own = build.add(first, lane)
            final = build.sub(count, word(1))
            record = code.get(order, build.select(build.icmp_unsigned("<", own, count), own, final))
            begin = build.zext(code.get(bounds, record, _BOUND), _WORD)
            end = build.zext(code.get(bounds, build.add(record, word(1)), _BOUND), _WORD)
            header = code.address(headers, build.mul(record, word(HEADER_BYTES)), _BYTE)
            code.put(header, lane_headers, lane, _ADDRESS)
            code.put(code.address(bodies, begin, _BYTE), lane_bodies, lane, _ADDRESS)
            code.put(build.sub(end, begin), lane_lengths, lane)

        longest = build.add(last_block(lanes - 1), word(1))
        with code.times(longest) as number:
            with code.times(lanes) as lane:
                header = code.get(lane_headers, lane, _ADDRESS)
                body = code.get(lane_bodies, lane, _ADDRESS)
                length = code.get(lane_lengths, lane)
                own_scratch = code.address(scratch, build.mul(lane, word(BLOCK_BYTES)), _BYTE)
                place = build.call(block, [header, body, length, number, own_scratch])
                code.put(place, blocks, lane, _ADDRESS)
            build.call(absorb, [state, blocks])
            build.call(permute, [state])
            with code.times(lanes) as lane:
                is_done = build.icmp_unsigned("==", number, last_block(lane))
                is_own = build.icmp_unsigned("<", build.add(first, lane), count)
                with build.if_then(build.and_(is_done, is_own)):
                    _add_digest(code, state, lane, lanes, totals)
    build.ret_void()


def _add_digest(code: _Code, state: ir.Value, lane: ir.Value, lanes: int, totals: ir.Value) -> None:
    """Add the first words of a lane's state to the columns, in halves."""
    for number in range(DIGEST_WORDS):
        place = code.ir.add(code.word(number * lanes), lane)
        both = code.get(state, place)
        low = code.ir.and_(both, code.word(0xFFFFFFFF))
        high = code.ir.lshr(both, code.word(32))
        for column, half in ((2 * number, low), (2 * number + 1, high)):
            code.put(code.ir.add(code.get(totals, column), half), totals, column)
