# Functions of a score as regions: the text, promotion, what is cached, and what does not trace.
# REQUIRES: python-package
# RUN: %flashattn_python %s

import math
import unittest

import numpy
from flashattn import ArgumentError, FlashAttnError, TraceError, _trace, attention, compile
from flashattn import math as fm

SLOPE = 0.5
TABLE = [1.0, 2.0]


def helper(x):
    return x * SLOPE


def one_if(score, b, h, p, k):
    if score > 0:
        return score
    return 0.0


# The function, what the message names.
REFUSED = [
    (one_if, "but got a traced value as condition (if, and, or, not, min, max"),
    (lambda s, b, h, p, k: s if p > k else 0, "but got a traced value as condition"),
    (lambda s, b, h, p, k: max(s, 0), "but got a traced value as condition"),
    (lambda s, b, h, p, k: fm.where(0 < p < k, s, 0), "but got a traced value as condition"),
    (lambda s, b, h, p, k: math.exp(s), "but got float() or a function that calls it, such as one of Python's math"),
    (lambda s, b, h, p, k: int(s), "but got int(); use flashattn.math.floor"),
    (lambda s, b, h, p, k: round(s), "but got round(); use flashattn.math.floor"),
    (lambda s, b, h, p, k: TABLE[h], "but got an index made of a traced value"),
    (lambda s, b, h, p, k: numpy.ones(4)[h], "but got an array of numpy made of a traced value"),
    (lambda s, b, h, p, k: sum(range(k)), "but got an index made of a traced value"),
    (lambda s, b, h, p, k: numpy.exp(s), "but got numpy.exp; use the functions of flashattn.math"),
    (lambda s, b, h, p, k: numpy.where(k > p, s, 0), "but got numpy.where"),
    (lambda s, b, h, p, k: numpy.asarray(s), "but got an array of numpy made of a traced value"),
    (lambda s, b, h, p, k: numpy.add.reduce(s), "but got numpy.add;"),
    (lambda s, b, h, p, k: s * numpy.ones(2), "of '*' in score_mod but got a value of ndarray"),
    (lambda s, b, h, p, k: s.exp(), "but got the attribute 'exp' of a traced value"),
    (lambda s, b, h, p, k: s[0], "but got an element of a traced value"),
    (lambda s, b, h, p, k: len(s), "but got len()"),
    (lambda s, b, h, p, k: [x for x in s], "but got a loop over a traced value"),
    (lambda s, b, h, p, k: {s: 1}, "but got TypeError: unhashable type: 'Traced'"),
    (lambda s, b, h, p, k: s @ s, "but got TypeError: unsupported operand type(s) for @"),
    (lambda s, b, h, p, k: s & 1, "expected integers as operands of '&' in score_mod but got f32"),
    (lambda s, b, h, p, k: s << 1, "expected integers as operands of '<<' in score_mod but got f32"),
    (lambda s, b, h, p, k: ~s, "expected an integer as operand of '~' in score_mod but got f32"),
    (lambda s, b, h, p, k: s + (p << 40), "expected a shift by 0 to 31 bits in score_mod but got 40"),
    (lambda s, b, h, p, k: s + (p >> -1), "expected a shift by 0 to 31 bits in score_mod but got -1"),
    (lambda s, b, h, p, k: s + divmod(p, 3)[0], "but got TypeError: unsupported operand type(s) for divmod()"),
    (lambda s, b, h, p, k: s * 1j, "as operands of '*' in score_mod but got a value of complex"),
    (lambda s, b, h, p, k: (yield s), "expected score_mod to return a score but got a value of generator"),
    (lambda s, b, h, p, k: f"{s}", "expected score_mod to return a score but got a value of str"),
    (lambda s, b, h, p, k: fm.where(p in (1, 2), s, 0), "but got a traced value as condition"),
    (lambda s, b, h, p, k: s + "1", "as operands of '+' in score_mod but got a value of str"),
    (lambda s, b, h, p, k: s == None, "as operands of '==' in score_mod but got a value of NoneType"),
    (lambda s, b, h, p, k: fm.where(k > p, s, None), "as operands of where() in score_mod but got a value of NoneType"),
    (lambda s, b, h, p, k: k + (1 << 40), "expected an integer of 32 bits in score_mod but got 1099511627776"),
    (lambda s, b, h, p, k: None, "expected score_mod to return a score but got a value of NoneType"),
    (lambda s, b, h, p, k: (s, s), "expected score_mod to return a score but got a value of tuple"),
    (lambda s, b, h: s, "expected score_mod to take (score, b, h, p, k) but got <lambda>(s, b, h)"),
    (lambda s: s, "expected score_mod to take (score, b, h, p, k) but got <lambda>(s)"),
    ("alibi", "expected score_mod to be a function or None but got str"),
]  # fmt: skip


class TraceTest(unittest.TestCase):
    def operations(self, function):
        """The lines of the region that are no conversion of an index."""
        lines = [line.strip() for line in _trace.trace(function).splitlines()[1:]]
        return [line for line in lines if "arith.index_cast" not in line]

    def test_text(self):
        self.assertEqual(
            _trace.trace(lambda s, b, h, p, k: s + 0.5 * (k - p)),
            """\
      ^bb0(%score: f32, %batch: index, %head: index, %position: index, %key: index):
        %0 = arith.index_cast %position : index to i32
        %1 = arith.index_cast %key : index to i32
        %2 = arith.subi %1, %0 : i32
        %3 = arith.constant 5.00000000000000000e-01 : f32
        %4 = arith.sitofp %2 : i32 to f32
        %5 = arith.mulf %3, %4 fastmath<contract> : f32
        %6 = arith.addf %score, %5 fastmath<contract> : f32
        flashattn.yield %6 : f32
""",
        )

    def test_nothing_unused_and_nothing_twice(self):
        found = self.operations(lambda s, b, h, p, k: (fm.exp(s), fm.tanh(s) + fm.tanh(s))[1])
        self.assertEqual(
            found,
            [
                "%0 = math.tanh %score : f32",
                "%1 = arith.addf %0, %0 fastmath<contract> : f32",
                "flashattn.yield %1 : f32",
            ],
        )

    def test_promotion(self):
        for function, line in (
            (lambda s, b, h, p, k: k + 1, "arith.addi"),
            (lambda s, b, h, p, k: k + 1.0, "arith.addf"),
            (lambda s, b, h, p, k: k / 2, "arith.mulf"),
            (lambda s, b, h, p, k: k / p, "arith.divf"),
            (lambda s, b, h, p, k: k // 2, "arith.floordivsi"),
            (lambda s, b, h, p, k: s // 2, "math.floor"),
            (lambda s, b, h, p, k: k**2, "arith.muli"),
            (lambda s, b, h, p, k: s**2, "arith.mulf"),
            (lambda s, b, h, p, k: s**0.5, "math.sqrt"),
            (lambda s, b, h, p, k: 2**h, "math.powf"),
            (lambda s, b, h, p, k: (k > p) & (s < 1), "arith.andi %"),
            (lambda s, b, h, p, k: (k > p) + 1, "arith.select"),
            (lambda s, b, h, p, k: ~(k > p), "arith.xori"),
            (lambda s, b, h, p, k: abs(k - p), "math.absi"),
            (lambda s, b, h, p, k: abs(s), "math.absf"),
            (lambda s, b, h, p, k: -s, "arith.negf"),
            (lambda s, b, h, p, k: fm.minimum(k, 3), "arith.minsi"),
            (lambda s, b, h, p, k: fm.maximum(s, 3), "arith.maximumf"),
            (lambda s, b, h, p, k: math.floor(s), "math.floor"),
            (lambda s, b, h, p, k: s == k, "arith.cmpf oeq"),
            (lambda s, b, h, p, k: p != k, "arith.cmpi ne"),
            (lambda s, b, h, p, k: numpy.float32(2) * s, "arith.mulf"),
            (lambda s, b, h, p, k: numpy.int64(2) - k, "arith.subi"),
            (lambda s, b, h, p, k: 3, "arith.constant 3.0"),
            (lambda s, b, h, p, k: s + float("-inf"), "0xFF800000"),
        ):
            with self.subTest(line=line):
                self.assertIn(line, "\n".join(self.operations(function)))

    def test_numbers_are_those_of_python(self):
        """Each function as a bias by hand: scores are 0 but for what it adds."""

        def everything(s, b, h, p, k):
            x = s + k % 5 - (p - k) % 3 + (p - 9) // 4 + (k / 7) ** 2 + abs(p - k) * 0.1
            x = x + fm.where(
                (k > p) & (h != 1) | (k == 3), fm.minimum(k, 6), fm.maximum(p * 0.5, 1)
            )
            x = (
                x
                + fm.exp(-k * 0.2)
                + fm.sqrt(k)
                - fm.log(1.0 + k)
                + fm.log2(k + 1.5)
                + fm.exp2(-p / 5)
            )
            x = x + fm.tanh(k - 5) + fm.sigmoid(p - 8.0) + fm.sin(k) - fm.cos(p) + fm.erf(k / 9)
            x = (
                x
                + fm.rsqrt(k + 1)
                + fm.floor(k / 3)
                - fm.ceil(p / 4)
                + ((k << 1) & 6)
                + (p ^ 3)
                - (k >> 1)
            )
            return (
                x + (k > 4) * 0.3 + (b + 1) * fm.abs(s) - (1 - k) % 2.5 + 2**-1.0 + (~k | 1) * 0.01
            )

        shape = (2, 2, 12, 16)
        q, v = numpy.zeros(shape, numpy.float32), numpy.random.default_rng(0).random(
            shape, numpy.float32
        )
        b, h, p, k = numpy.ogrid[:2, :2, :12, :12]
        expected = everything(numpy.zeros((2, 2, 12, 12)), b, h, p, k).astype(numpy.float32)
        numpy.testing.assert_allclose(
            attention(q, q, v, score_mod=everything),
            attention(q, q, v, bias=expected),
            rtol=0,
            atol=1e-5,
        )

    def test_same_text_for_the_same_numbers(self):
        global SLOPE

        def make(slope):
            return lambda s, b, h, p, k: s * slope

        self.assertIs(_trace.text_of(make(2.0)), _trace.text_of(make(2.0)))
        self.assertNotEqual(_trace.text_of(make(2.0)), _trace.text_of(make(3.0)))
        self.assertNotEqual(_trace.text_of(make(0.0)), _trace.text_of(make(-0.0)))
        self.assertNotEqual(
            _trace.trace(lambda s, b, h, p, k: k * 1), _trace.trace(lambda s, b, h, p, k: k * 1.0)
        )
        # What is read at the time of the call is read each time.
        by_name = lambda s, b, h, p, k: s * SLOPE  # noqa: E731
        by_helper = lambda s, b, h, p, k: helper(s)  # noqa: E731
        by_table = lambda s, b, h, p, k: s * TABLE[0]  # noqa: E731
        before = [_trace.text_of(f) for f in (by_name, by_helper, by_table)]
        SLOPE, TABLE[0] = 0.25, 7.0
        for text, function in zip(before, (by_name, by_helper, by_table)):
            self.assertNotEqual(_trace.text_of(function), text)
        SLOPE, TABLE[0] = 0.5, 1.0
        self.assertEqual([_trace.text_of(f) for f in (by_name, by_helper, by_table)], before)

    def test_compiles_for_gpus(self):
        for number, function in enumerate(
            (
                lambda s, b, h, p, k: fm.tanh(s) + fm.erf(s) + fm.sigmoid(s),
                lambda s, b, h, p, k: fm.exp(s) + fm.exp2(s) + fm.log(s) + fm.log2(s) + fm.rsqrt(s),
                lambda s, b, h, p, k: fm.maximum(s, k) - fm.minimum(s, p) + s**1.5 + 2**s - s**h,
                lambda s, b, h, p, k: s
                + (p - k) // 7
                + (p - k) % 5
                + abs(p - k)
                + ((k << 2) ^ (p >> 1)),
                lambda s, b, h, p, k: fm.where((k > p) & (s < 3) | ~(k == 4), k / s, -s * b),
            )
        ):
            for chip in ("sm_80", "sm_90a"):
                with self.subTest(number=number, chip=chip):
                    self.assertIn(".entry", compile(head_dim=64, chip=chip, score_mod=function).ptx)

    def test_outside_of_a_trace(self):
        self.assertEqual(fm.exp2(3), 8)
        self.assertEqual(fm.where(True, 1, 2), 1)
        self.assertEqual(fm.erf(0.0), 0)
        numpy.testing.assert_array_equal(fm.maximum(numpy.arange(3), 1), [1, 1, 2])

    def test_refused(self):
        q = numpy.zeros((1, 1, 2, 16), numpy.float32)
        for number, (function, message) in enumerate(REFUSED):
            with self.subTest(number=number, message=message):
                with self.assertRaises(TraceError) as caught:
                    attention(q, q, q, score_mod=function)
                self.assertIn(message, str(caught.exception))
                self.assertIsInstance(caught.exception, FlashAttnError)

    def test_what_the_function_raises_stays(self):
        def fails(s, b, h, p, k):
            raise KeyError("mine")

        with self.assertRaises(KeyError):
            _trace.trace(fails)
        with self.assertRaises(ArgumentError):
            attention(*[numpy.zeros((1, 1, 2, 16), numpy.float32)] * 3, softcap=-1)


if __name__ == "__main__":
    unittest.main()
