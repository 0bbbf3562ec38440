# The messages of context parallelism by copy engines, on streams that a test runs in random interleavings: forward and
# backward passes of 2 to 4 ranks end, and every rank reads the rows that were sent, whatever rank is ahead.
# REQUIRES: python-package, torch
# RUN: %flashattn_python %s

import ctypes
import random
import unittest
from unittest import mock

import torch
from flashattn import DeviceError
from flashattn.torch import _messages
from flashattn.torch._messages import SlotExchange


class Stream:
    """Operations in order: functions that return whether they are done."""

    def __init__(self):
        self.cuda_stream, self.todo, self.done = self, [], 0

    def wait_stream(self, other):
        count = other.done + len(other.todo)
        self.todo.append(lambda: other.done >= count)

    def step(self):
        if self.todo and self.todo[0]():
            self.todo.pop(0)
            self.done += 1
            return True
        return False


class Machine:
    """Ranks with memory, two streams each, and the driver's functions on them."""

    def __init__(self, ranks, size):
        self.pools = [torch.zeros(_messages._HEADER + 2 * size, dtype=torch.uint8) for _ in range(ranks)]
        self.streams = [Stream() for _ in range(ranks)]
        self.copies = [Stream() for _ in range(ranks)]
        self.rank = 0

    def word(self, address):
        return ctypes.c_uint32.from_address(address)

    def call(self, name, *arguments):
        if name == "cuStreamWaitValue32_v2":
            stream, address, value, _ = arguments
            stream.todo.append(lambda: ctypes.c_int32(self.word(address).value - value).value >= 0)
        elif name == "cuStreamWriteValue32_v2":
            stream, address, value, _ = arguments

            def write():
                self.word(address).value = value
                return True

            stream.todo.append(write)
        else:
            copy, stream = arguments
            kept = _messages._Copy2D()
            ctypes.pointer(kept)[0] = copy._obj

            def move():
                for row in range(kept.Height):
                    target, source = kept.dstDevice + row * kept.dstPitch, kept.srcDevice + row * kept.srcPitch
                    ctypes.memmove(target, source, kept.WidthInBytes)
                return True

            stream.todo.append(move)

    def make_slots(self, rank, size):
        slots = _messages.Slots.__new__(_messages.Slots)
        slots.size, slots.rank, slots.ranks = size, rank, len(self.pools)
        slots._pool, slots._bases = self.pools[rank], [x.data_ptr() for x in self.pools]
        slots.stream, slots.stage, slots.device = self.copies[rank], 0, None
        return slots

    def run(self, rng):
        streams = [*self.streams, *self.copies]
        while any(stream.todo for stream in streams):
            order = rng.sample(streams, len(streams))
            if not any(stream.step() for stream in order):
                raise AssertionError("the streams wait for one another")


class Messages(unittest.TestCase):
    def check(self, rng, ranks, calls, first_stage=0):
        """Rings in which each rank sends rows that name it, the call and the stage, to the rank behind it."""
        size = 4096
        machine = Machine(ranks, size)
        slots = [machine.make_slots(rank, size) for rank in range(ranks)]
        seen, wanted = [], []
        for each in slots:
            each.stage = first_stage
            pool = each._pool[: _messages._HEADER].view(torch.int32)
            pool.fill_(ctypes.c_int32(first_stage).value)
        current = mock.patch.object(_messages.torch.cuda, "current_stream", lambda _: machine.streams[machine.rank])
        kept = []
        with current, mock.patch.object(_messages, "_call", machine.call), mock.patch.object(
            torch.Tensor, "record_stream", lambda *_: None
        ):
            sent = {
                (call, at): [rng.random() < 0.7 for _ in range(ranks)] for call in range(calls) for at in range(ranks)
            }
            axis = rng.choice([1, 2])
            counts = {key: [rng.randrange(1, 4) for _ in range(ranks)] for key in sent}
            for rank in range(ranks):
                machine.rank = rank
                for call in range(calls):
                    pending = []
                    for at in range(ranks + 1):
                        if at < ranks:
                            exchange = SlotExchange(slots[rank], None, axis, "")
                            target, source = (rank + at) % ranks, (rank - at) % ranks
                            found = None
                            shape = (2, 3, 5, 8) if axis == 2 else (1, 5, 3, 8)
                            if at and sent[call, at][rank]:
                                x = torch.arange(240 if axis == 2 else 120, dtype=torch.float32)
                                x = (x + 1000 * (100 * call + 10 * at + rank)).view(shape)
                                kept.append(x)
                                exchange.send((x, x), [(1, 1 + counts[call, at][rank])], target)
                            if at and sent[call, at][source]:
                                found = exchange.receive((torch.empty(shape),) * 2, counts[call, at][source], source)
                            exchange.start()
                            pending.append((exchange, found, call, at, source))
                        if len(pending) > (at < ranks):  # the stage before
                            exchange, found, call_, at_, source = pending.pop(0)
                            exchange.wait()
                            if found is not None:
                                def read(found=found, key=(call_, at_, source), axis=axis):
                                    first = [1, 1 + counts[key[0], key[1]][key[2]]]
                                    x = torch.arange(240 if axis == 2 else 120, dtype=torch.float32)
                                    x = x + 1000 * (100 * key[0] + 10 * key[1] + key[2])
                                    x = x.view((2, 3, 5, 8) if axis == 2 else (1, 5, 3, 8))
                                    want = x.narrow(axis, first[0], first[1] - first[0])
                                    seen.append(all(torch.equal(y, want) for y in found))
                                    return True

                                machine.streams[rank].todo.append(read)
                                wanted.append(True)
                            exchange.release()
        machine.run(rng)
        self.assertEqual(seen, wanted)

    def test_rings(self):
        rng = random.Random(1)
        for _ in range(150):
            self.check(rng, rng.choice([2, 3, 4]), rng.choice([1, 2, 5]))

    def test_driver_errors(self):
        driver = mock.Mock(cuStreamWaitValue32_v2=lambda *_: 801)
        with mock.patch.object(_messages, "_driver", lambda: driver):
            with self.assertRaisesRegex(DeviceError, "expected cuStreamWaitValue32_v2 to succeed but got error 801 of"):
                _messages._call("cuStreamWaitValue32_v2", None, 0, 1, 0)

    def test_ranks_agree_on_slots(self):
        """Messages go through the process group on all ranks if one of them gets no memory for slots."""
        for works, agreed in ((True, 1), (True, 0), (False, 0)):
            made = mock.Mock(side_effect=None if works else RuntimeError("no peer memory"))
            reduce = lambda x, op, group: x.fill_(min(int(x), agreed))  # noqa: E731
            with mock.patch.object(_messages, "Slots", made), mock.patch.object(_messages.dist, "all_reduce", reduce):
                found = _messages._make_slots(None, torch.device("cpu"), 256)
            self.assertIs(found, made.return_value if works and agreed else None)

    def test_the_cpu_has_no_slots(self):
        self.assertIsNone(_messages.find_slots(None, "keys", torch.device("cpu"), 256))

    def test_stages_wrap(self):
        self.check(random.Random(2), 3, 4, first_stage=(1 << 32) - 3)


unittest.main(verbosity=0)
