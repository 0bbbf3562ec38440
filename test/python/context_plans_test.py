# Plans of context parallelism: over random masks, lengths and shards, the launches of all ranks show each visible pair
# of the sequence once and no other; each rank receives what another one sends, and no key that no query sees.
# REQUIRES: python-package
# RUN: %flashattn_python %s

import pickle
import random
import unittest

import flashattn
import numpy
from flashattn import ArgumentError, Mask, Shards, _context, _reference, _sets, affine_set, causal
from flashattn import causal_if, documents, prefix, sink, tree, window
from flashattn._shards import Segment, coalesce, segments_of


def pairs_of(mask, nq, nk, offset):
    """The visible pairs of the whole sequence, in plain arithmetic."""
    positions, keys = numpy.arange(nq)[:, None] + offset, numpy.arange(nk)[None, :]
    return numpy.broadcast_to(_reference.visible(mask, positions, keys, nq, nk), (nq, nk))


def value_of(name, number, is_query):
    if isinstance(number, _context.Taken):
        rows = numpy.concatenate([segment.rows() for segment in number.segments])
        number = numpy.asarray(number.tensor).reshape(-1, numpy.shape(number.tensor)[-1])[0][rows]
    elif not isinstance(number, int) and name.startswith("per_sequence"):
        number = int(numpy.asarray(number).reshape(-1)[0])
    if isinstance(number, int):
        return number
    return numpy.asarray(number, numpy.int64)[:, None] if is_query else numpy.asarray(number, numpy.int64)[None, :]


def pairs_of_launch(launch, nq, nk):
    height, width = launch.rows[1] - launch.rows[0], launch.keys[1] - launch.keys[0]
    if launch.mask is None:
        return numpy.ones((height, width), bool)
    p, k = numpy.arange(height)[:, None] + launch.offset, numpy.arange(width)[None, :]
    numbers = [value_of(name, x, name.startswith("per_query")) for name, x in launch.numbers]
    shown = _sets.parse(launch.mask)((p, k, height, width, *numbers))
    return numpy.broadcast_to(shown, (height, width))


def check(test, problem, scheme):
    nq, nk, ranks = problem.q_shards.length, problem.k_shards.length, problem.q_shards.ranks
    wanted = pairs_of(problem.mask, nq, nk, problem.offset)
    plans = [_context.make_plan(problem, scheme, rank) for rank in range(ranks)]
    counts = numpy.zeros((nq, nk), int)
    for plan in plans:
        rows = problem.q_shards.rows(plan.rank)
        for stage in plan.stages:
            keys = [problem.k_shards.rows(piece.source)[piece.start : piece.end] for piece in stage.pieces]
            keys = numpy.concatenate([numpy.zeros(0, int), *keys])
            test.assertEqual(keys.tolist(), [k for piece in stage.pieces for k in piece.segment.rows().tolist()])
            keys = keys if stage.order is None else keys[stage.order]
            if scheme == "gather":
                test.assertTrue((keys[1:] > keys[:-1]).all())
            merged = _context.merged_rows(plan, len(rows))
            for launch in (part for whole in stage.launches for part in _context.cut_launch(whole, merged)):
                own, of_launch = rows[slice(*launch.rows)], keys[slice(*launch.keys)]
                shown = pairs_of_launch(launch, nq, nk)
                numpy.add.at(counts, (own[:, None], of_launch[None, :]), shown.astype(int))
                if problem.reads_positions:
                    first, step = launch.q_line
                    test.assertEqual(own.tolist(), (first + step * numpy.arange(len(own))).tolist())
                    first, step = launch.k_line
                    test.assertEqual(of_launch.tolist(), (first + step * numpy.arange(len(of_launch))).tolist())
    test.assertTrue((counts == wanted).all(), (problem, scheme, numpy.argwhere(counts != wanted)[:5]))
    # What one rank sends, another one receives, in the same stage and order.
    for at in range(len(plans[0].stages)):
        sent = [(plan.rank, to, first, end) for plan in plans for to, first, end in plan.sends[at]]
        received = [
            (piece.source, plan.rank, piece.start, piece.end)
            for plan in plans for piece in plan.stages[at].pieces if piece.source != plan.rank
        ]  # fmt: skip
        test.assertEqual(sorted(sent), sorted(received))
    return plans


def random_mask(rng, nq, nk):
    size = max(nq, nk)
    starts = [0] + sorted(rng.sample(range(1, size), min(3, size - 1))) if size > 1 else [0]
    of_query = numpy.array([rng.randrange(-2, size + 2) for _ in range(nq)], numpy.int32)
    of_key = numpy.array([rng.randrange(-2, size + 2) for _ in range(nk)], numpy.int32)
    masks = [
        None, causal, window(rng.randrange(6), 0), window(rng.randrange(6), rng.randrange(6)), window(None, 2),
        sink(2) & causal, window(3, 0) | sink(2) & causal, prefix(rng.randrange(size + 2)) | causal,
        causal_if(rng.randrange(2)), affine_set("(p, k)[nq, nk] : (p - k >= 0, k mod 4 == 0)"),
        affine_set("(a, b)[m, n] : (a floordiv 4 - b floordiv 4 >= 0, n - 2 - b >= 0)"),
        affine_set("(p, k)[nq, nk, u] : (u - k >= 0)", per_query=[of_query]),
        affine_set("(p, k)[nq, nk, s, u, w] : (p + s - w >= 0, k - u >= 0)", per_sequence=[1], per_query=[of_query],
                   per_key=[of_key]),
        affine_set("(p, k)[nq, nk, w] : (p - w >= 0)", per_key=[of_key]) | window(1, 1),
        Mask("#flashattn.any_of<[]>"), window(2, 0) | affine_set("(p, k)[nq, nk] : (k - nk + 1 == 0)"),
    ]  # fmt: skip
    if nq == nk:
        masks += [documents(starts=starts, length=nq, causal=True), documents(starts=starts, length=nq)]
        parents = [-1]
        for i in range(1, nq):  # in depth-first order: the parent is the last node or one above it
            above = [i - 1]
            while parents[above[-1]] >= 0:
                above.append(parents[above[-1]])
            parents.append(rng.choice([*above, -1]))
        masks.append(tree(parents))
    return rng.choice(masks)


def random_shards(rng, length, ranks):
    kind = rng.randrange(5)
    if kind < 3:
        return [Shards.contiguous, Shards.zigzag, Shards.striped][kind](length, ranks)
    rows = list(range(length))
    cuts = sorted(rng.choices(rows + [length], k=min(7, length)))
    chunks = [(a, b - a) for a, b in zip([0, *cuts], [*cuts, length]) if b > a]
    held = [[] for _ in range(ranks)]
    for chunk in chunks:
        rng.choice(held).append(chunk)
    if kind == 4:  # in any order
        for of_rank in held:
            rng.shuffle(of_rank)
    return Shards(length, held)


class Plans(unittest.TestCase):
    def test_random(self):
        rng = random.Random(53)
        _context._CUT_ROWS = 4  # so that launches are cut in short sequences too
        for _ in range(250):
            ranks, nq = rng.choice([1, 2, 3, 4]), rng.choice([1, 2, 7, 16, 33])
            nk = nq if rng.random() < 0.7 else rng.choice([1, 5, 12, 40])
            mask = random_mask(rng, nq, nk)
            offset = nk - nq if rng.random() < 0.7 else rng.randrange(-3, 9)
            problem = _context.Problem(
                random_shards(rng, nq, ranks), random_shards(rng, nk, ranks), mask, offset,
                reads_positions=rng.random() < 0.25,
            )  # fmt: skip
            for scheme in _context.SCHEMES:
                check(self, problem, scheme)

    def test_only_needed_rows_travel(self):
        n, ranks, width = 131072, 4, 4096
        shards = Shards.contiguous(n, ranks)
        plans = [flashattn.plan_context(shards, rank, window(width - 1, 0)) for rank in range(ranks)]
        self.assertEqual([plan.received_rows() for plan in plans], [0, *[width - 1] * (ranks - 1)])
        # Sink tokens travel alone, not with the keys between them and the window.
        mask = window(width - 1, 0) | sink(4) & causal
        plans = [flashattn.plan_context(shards, rank, mask) for rank in range(ranks)]
        self.assertEqual([plan.received_rows() for plan in plans], [0, width + 3, width + 3, width + 3])
        # Both sides of a window.
        plans = [flashattn.plan_context(shards, rank, window(99, 7)) for rank in range(ranks)]
        self.assertEqual([plan.received_rows() for plan in plans], [7, 106, 106, 99])
        # A causal mask over zigzag chunks: the later ranks' second chunks are hidden from the earlier ranks' first.
        plans = [flashattn.plan_context(Shards.zigzag(n, ranks), rank, causal) for rank in range(ranks)]
        block = n // ranks
        self.assertEqual([plan.received_rows() for plan in plans], [3 * block - r * block // 2 for r in range(ranks)])
        # Documents: no key of another document, in whatever order the chunks are dealt.
        starts = [0, 50000, 50001, 90000, n]
        for cut in (shards, flashattn.balanced_shards(n, ranks, causal, starts)):
            for rank in range(ranks):
                plan = flashattn.plan_context(cut, rank, causal, cu_seqlens=starts)
                rows = cut.rows(rank)
                first = numpy.asarray(starts)[numpy.searchsorted(starts, rows, "right") - 1]
                wanted = numpy.zeros(n, bool)
                for begin in set(first.tolist()):
                    wanted[begin : rows[first == begin].max() + 1] = True
                wanted[rows] = False
                self.assertEqual(plan.received_rows(), wanted.sum())

    def test_ring_holds_two_blocks(self):
        for ranks in (2, 3, 4, 8):
            for shards in (Shards.contiguous(4096, ranks), Shards.zigzag(4096, ranks), Shards.striped(4096, ranks)):
                for rank in range(ranks):
                    plan = flashattn.plan_context(shards, rank)
                    self.assertLessEqual(plan.foreign_rows(), 2 * -(-4096 // ranks))
                    self.assertEqual(plan.received_rows(), 4096 - shards.count(rank))

    def test_wrong_arguments(self):
        shards = Shards.contiguous(8, 2)
        for options, wanted in (
            ({"rank": 2}, "expected rank from 0 to 1 but got 2"),
            ({"rank": -1}, "expected rank from 0 to 1 but got -1"),
            ({"k_shards": Shards.contiguous(8, 3)}, "expected k_shards of 2 ranks, as shards, but got 3"),
            ({"scheme": "heads"}, "expected scheme ring, gather but got 'heads'"),
            ({"cu_seqlens": [0, 9]}, "expected cu_seqlens from 0 to 8 that do not decrease but got"),
            ({"mask": documents(starts=[0], length=9)}, "expected .* with a number for each of 8 rows but got 9"),
        ):
            with self.subTest(options), self.assertRaisesRegex(ArgumentError, wanted):
                flashattn.plan_context(shards, **{"rank": 0, **options})

    def test_balanced_documents(self):
        """Log-normal documents over 4 ranks: the slowest rank sees at most 1.1 times the mean of the pairs."""
        rng = numpy.random.default_rng(5)
        for n in (8192, 131072):
            for spread in (0.8, 1.2, 1.6):
                lengths = numpy.minimum(rng.lognormal(numpy.log(n / 24), spread, 200).astype(int) + 1, n)
                starts = numpy.unique(numpy.minimum(numpy.concatenate([[0], numpy.cumsum(lengths)]), n))
                shards = flashattn.balanced_shards(n, 4, causal, starts)
                counts = numpy.arange(n) - starts[numpy.searchsorted(starts, numpy.arange(n), "right") - 1] + 1
                loads = [counts[shards.rows(rank)].sum() for rank in range(4)]
                self.assertLess(max(loads), 1.1 * numpy.mean(loads), (n, spread, shards))
        self.assertEqual(flashattn.balanced_shards(4096, 4, None), Shards.contiguous(4096, 4))
        self.assertEqual(flashattn.balanced_shards(4096, 4, causal), Shards.zigzag(4096, 4))


class Cuts(unittest.TestCase):
    def test_segments(self):
        rng = random.Random(3)
        for _ in range(300):
            rows = sorted(rng.sample(range(60), rng.randrange(0, 30)))
            found = segments_of(numpy.array(rows, int))
            self.assertEqual([row for segment in found for row in segment.rows().tolist()], rows)
            self.assertEqual(coalesce(found), found)
        given = [Segment(0, 2), Segment(2, 3), Segment(5, 0), Segment(9, 1)]
        self.assertEqual(coalesce(given), (Segment(0, 5), Segment(9, 1)))

    def test_shards(self):
        for length in (0, 1, 5, 64, 65):
            for ranks in (1, 2, 3, 8):
                for kind in ("contiguous", "zigzag", "striped"):
                    shards = getattr(Shards, kind)(length, ranks)
                    self.assertEqual(sorted(shards.order.tolist()), list(range(length)))
                    self.assertEqual(Shards.parse(shards.text), shards)
                    self.assertEqual(pickle.loads(pickle.dumps(shards)), shards)
                    for rank in range(ranks):
                        self.assertEqual(shards.count(rank), len(shards.rows(rank)))
        self.assertEqual(Shards.zigzag(8, 2).rows(0).tolist(), [0, 1, 6, 7])
        self.assertEqual(Shards.striped(5, 2).rows(1).tolist(), [1, 3])
        self.assertEqual(Shards.zigzag(16, 4).grouped(2).rows(0).tolist(), [0, 1, 2, 3, 12, 13, 14, 15])
        self.assertNotEqual(Shards.zigzag(8, 2), Shards.contiguous(8, 2))


unittest.main(verbosity=0)
