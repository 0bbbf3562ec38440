"""Messages between the ranks of `context_parallel`: by `torch.distributed`, or by the copy engines of GPUs of one host.

Messages by copy engines take no multiprocessor from the attention that runs meanwhile. A rank copies rows straight to a
slot in the receiver's memory, then writes the number of the stage there, for which the receiver's stream waits.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import socket
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch import Tensor

from .. import _environment
from ..errors import ArgumentError, DeviceError

Range = Tuple[int, int]


def narrow(x: Tensor, axis: int, rows: Range) -> Tensor:
    return x if rows == (0, x.shape[axis]) else x.narrow(axis, rows[0], rows[1] - rows[0])


def merge(ranges: Sequence[Range]) -> List[Range]:
    """Returns ranges in the same order, in which neighbors that follow one another are one."""
    merged: List[Range] = []
    for first, end in ranges:
        if merged and merged[-1][1] == first:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((first, end))
    return merged


def gather_rows(x: Tensor, axis: int, ranges: Sequence[Range]) -> Tensor:
    """Returns rows of a tensor; a view if they follow one another."""
    merged = merge(ranges)
    if not merged:
        return x.narrow(axis, 0, 0)
    parts = [narrow(x, axis, rows) for rows in merged]
    return parts[0] if len(parts) == 1 else torch.cat(parts, axis)


def empty_rows(like: Tensor, axis: int, count: int) -> Tensor:
    shape = list(like.shape)
    shape[axis] = count
    return like.new_empty(shape)


def _count(ranges: Sequence[Range]) -> int:
    return sum(end - first for first, end in ranges)


class Exchange:
    """The messages of one stage through a process group. Tensors are sent and received in pairs, such as keys and
    values."""

    def __init__(self, group: Any, axis: int, step: str):
        self._group, self._axis, self._step = group, axis, step
        self._ops: List[Any] = []
        self._works: List[Any] = []
        self._peers: List[int] = []

    def send(self, tensors: Sequence[Tensor], ranges: Sequence[Range], peer: int) -> None:
        """Sends rows of each tensor. Later writes to them must wait for `wait`."""
        for x in tensors:
            self._add(dist.isend, gather_rows(x, self._axis, ranges).contiguous(), peer)

    def receive(self, likes: Sequence[Tensor], count: int, peer: int) -> Tuple[Tensor, ...]:
        """Returns tensors of `count` rows that the messages fill, with other sizes as in `likes`."""
        found = tuple(empty_rows(like, self._axis, count) for like in likes)
        for x in found:
            self._add(dist.irecv, x, peer)
        return found

    def _add(self, function: Any, tensor: Tensor, peer: int) -> None:
        if tensor.numel():
            peer = dist.get_global_rank(self._group, peer)
            self._peers.append(peer)
            self._ops.append(dist.P2POp(function, _as_bytes(tensor), peer, self._group))

    def start(self) -> None:
        if self._ops:
            with torch.profiler.record_function(f"flashattn::context_parallel {self._step}"):
                guard(lambda: self._works.extend(dist.batch_isend_irecv(self._ops)), self._step, self._peers)

    def wait(self) -> None:
        """Makes the current stream, or on the CPU the caller, wait for the messages."""
        for work in self._works:
            guard(work.wait, self._step, self._peers)
        self._works, self._ops = [], []

    def release(self) -> None:
        """Says that the received tensors are not read any more, except by what the current stream has."""


def guard(call: Callable[[], Any], step: str, peers: Sequence[int]) -> None:
    """Makes a call of `torch.distributed`. Raises DeviceError, with the step and the peers, if it fails."""
    try:
        call()
    except RuntimeError as error:
        names = ", ".join(map(str, sorted(set(peers))))
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DeviceError(
            f"expected messages to and from rank {names} in {step} of context_parallel but got: {reason}"
        ) from error


def peers_of(group: Any) -> List[int]:
    """Returns the other ranks of a group."""
    ranks = dist.get_process_group_ranks(group)
    return [rank for rank in ranks if rank != dist.get_rank()]


def check_same(group: Any, fields: Mapping[str, str], device: torch.device) -> None:
    """Raises ArgumentError on every rank of a group if a field differs between them, in which case their messages would
    not match. The ranks exchange 8 bytes for each field."""
    digests = (hashlib.blake2b(text.encode(), digest_size=8).digest() for text in fields.values())
    own = torch.tensor([int.from_bytes(x, "little", signed=True) for x in digests], device=device)
    found = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    guard(lambda: dist.all_gather(found, own, group=group), "the check of arguments", peers_of(group))
    rows = torch.stack(found).tolist()
    usual = max(rows, key=rows.count)
    if all(row == usual for row in rows):
        return
    ranks = [dist.get_global_rank(group, rank) for rank, row in enumerate(rows) if row != usual]
    names = [name for name, column in zip(fields, zip(*rows)) if len(set(column)) > 1]
    raise ArgumentError(
        f"expected the same arguments on all ranks but got others on rank {', '.join(map(str, ranks))}: "
        f"{', '.join(names)}"
    )


def _as_bytes(tensor: Tensor) -> Tensor:
    """Returns a contiguous tensor in a type that every backend sends."""
    return tensor.view(torch.uint8) if tensor.device.type == "cpu" and tensor.element_size() < 4 else tensor


class _Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D of the CUDA driver API."""

    _fields_ = [
        ("srcXInBytes", ctypes.c_size_t), ("srcY", ctypes.c_size_t), ("srcMemoryType", ctypes.c_int),
        ("srcHost", ctypes.c_void_p), ("srcDevice", ctypes.c_uint64), ("srcArray", ctypes.c_void_p),
        ("srcPitch", ctypes.c_size_t), ("dstXInBytes", ctypes.c_size_t), ("dstY", ctypes.c_size_t),
        ("dstMemoryType", ctypes.c_int), ("dstHost", ctypes.c_void_p), ("dstDevice", ctypes.c_uint64),
        ("dstArray", ctypes.c_void_p), ("dstPitch", ctypes.c_size_t), ("WidthInBytes", ctypes.c_size_t),
        ("Height", ctypes.c_size_t),
    ]  # fmt: skip


_MEMORY_DEVICE, _WAIT_GEQ = 2, 0


@functools.lru_cache(maxsize=None)
def _driver() -> Any:
    driver = ctypes.CDLL("libcuda.so.1")
    stream, address, value, flags = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint
    driver.cuStreamWaitValue32_v2.argtypes = [stream, address, value, flags]
    driver.cuStreamWriteValue32_v2.argtypes = [stream, address, value, flags]
    driver.cuMemcpy2DAsync_v2.argtypes = [ctypes.POINTER(_Copy2D), stream]
    return driver


def _call(name: str, *arguments: Any) -> None:
    status = getattr(_driver(), name)(*arguments)
    if status:
        raise DeviceError(f"expected {name} to succeed but got error {status} of the CUDA driver")


#: Bytes of the words by which stages are counted, in front of the slots.
_HEADER = 4096
_SLOTS = 2
_WORD = (1 << 32) - 1


class Slots:
    """Memory of each rank to which the other ranks of a group write: two slots for the rows of a stage each.

    Every rank counts the stages of all its calls, which are the same for all ranks. Stage s uses slot s % 2. A sender
    waits until the receiver has released stage s - 2, and the receiver until the rows of stage s have arrived."""

    def __init__(self, group: Any, device: torch.device, size: int):
        from torch.distributed import _symmetric_memory as memory

        self.size = -(-size // 256) * 256
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self._pool = memory.empty(_HEADER + _SLOTS * self.size, dtype=torch.uint8, device=device)
        self._pool[:_HEADER].zero_()
        self._handle = memory.rendezvous(self._pool, group.group_name)
        self._bases = [int(x) for x in self._handle.buffer_ptrs]
        self.device = device
        self.stream = torch.cuda.Stream(device, priority=-1)
        self.stage = 0  # the words of no stage are 0
        torch.cuda.synchronize(device)
        dist.barrier(group)

    def next_stage(self) -> int:
        self.stage = (self.stage + 1) & _WORD
        return self.stage

    def _arrived(self, rank: int, stage: int) -> int:
        """Returns the address of a rank's word for the last stage whose rows have arrived in a slot."""
        return self._bases[rank] + 4 * (stage % _SLOTS)

    def _released(self, rank: int, of: int, stage: int) -> int:
        """Returns the address of a rank's word for the last stage that the rank `of` has released in a slot."""
        return self._bases[rank] + 4 * (_SLOTS + _SLOTS * of + stage % _SLOTS)

    def view(self, stage: int, offset: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Returns a tensor in this rank's slot of a stage, `offset` bytes behind its start."""
        first = _HEADER + stage % _SLOTS * self.size + offset
        count = torch.Size(shape).numel() * torch.empty((), dtype=dtype).element_size()
        return self._pool[first : first + count].view(dtype).view(shape)

    def address(self, rank: int, stage: int, offset: int) -> int:
        return self._bases[rank] + _HEADER + stage % _SLOTS * self.size + offset

    def wait_for_release(self, peer: int, stage: int) -> None:
        address = self._released(self.rank, peer, stage)
        # The comparison is cyclic, so that the first stages wait for nothing.
        _call("cuStreamWaitValue32_v2", self.stream.cuda_stream, address, (stage - _SLOTS) & _WORD, _WAIT_GEQ)

    def announce(self, peer: int, stage: int) -> None:
        _call("cuStreamWriteValue32_v2", self.stream.cuda_stream, self._arrived(peer, stage), stage, 0)

    def wait_for_rows(self, stage: int) -> None:
        current = torch.cuda.current_stream(self.device).cuda_stream
        _call("cuStreamWaitValue32_v2", current, self._arrived(self.rank, stage), stage, _WAIT_GEQ)

    def release(self, stage: int) -> None:
        current = torch.cuda.current_stream(self.device).cuda_stream
        for peer in range(self.ranks):
            if peer != self.rank:
                _call("cuStreamWriteValue32_v2", current, self._released(peer, self.rank, stage), stage, 0)


class SlotExchange(Exchange):
    """The messages of one stage by copy engines. A rank receives from one other rank."""

    def __init__(self, slots: Slots, group: Any, axis: int, step: str):
        super().__init__(group, axis, step)
        self._slots, self._stage = slots, slots.next_stage()
        self._waits = False
        self._jobs: List[Tuple[List[Tensor], Sequence[Range], int]] = []

    def send(self, tensors: Sequence[Tensor], ranges: Sequence[Range], peer: int) -> None:
        if _count(ranges):
            self._jobs.append(([_with_planes(x, self._axis) for x in tensors], merge(ranges), peer))

    def receive(self, likes: Sequence[Tensor], count: int, peer: int) -> Tuple[Tensor, ...]:
        self._waits = self._waits or count > 0
        found, offset = [], 0
        for like in likes:
            shape = list(like.shape)
            shape[self._axis] = count
            x = self._slots.view(self._stage, offset, shape, like.dtype)
            offset += _aligned(x.numel() * x.element_size())
            found.append(x)
        return tuple(found)

    def start(self) -> None:
        if not self._jobs:
            return
        stream = self._slots.stream
        stream.wait_stream(torch.cuda.current_stream(self._slots.device))
        with torch.profiler.record_function(f"flashattn::context_parallel {self._step}"):
            for tensors, ranges, peer in self._jobs:
                self._slots.wait_for_release(peer, self._stage)
                offset, rows = 0, _count(ranges)
                for x in tensors:
                    x.record_stream(stream)
                    address = self._slots.address(peer, self._stage, offset)
                    offset += _aligned(_copy_rows(x, self._axis, ranges, address, rows, stream.cuda_stream))
                self._slots.announce(peer, self._stage)

    def wait(self) -> None:
        if self._waits:
            self._slots.wait_for_rows(self._stage)

    def release(self) -> None:
        self._slots.release(self._stage)

    def finish(self) -> None:
        """Makes the current stream wait until the rows that were sent can be written."""
        torch.cuda.current_stream(self._slots.device).wait_stream(self._slots.stream)


def _aligned(size: int) -> int:
    return -(-size // 256) * 256


def _with_planes(x: Tensor, axis: int) -> Tensor:
    """Returns a tensor whose dimensions before and behind `axis` are dense each, as one copy takes; a copy if need
    be."""
    size = 1
    for dim in range(x.ndim - 1, axis - 1, -1):
        if x.shape[dim] > 1 and x.stride(dim) != size:
            return x.contiguous()
        size *= x.shape[dim]
    plane = None
    for dim in range(axis - 1, -1, -1):
        if x.shape[dim] == 1:
            continue
        if plane is not None and x.stride(dim) != plane:
            return x.contiguous()
        plane = x.stride(dim) * x.shape[dim]
    return x


def _copy_rows(x: Tensor, axis: int, ranges: Sequence[Range], address: int, rows: int, stream: int) -> int:
    """Copies rows to an address, as a dense tensor of `rows` rows. Returns its size in bytes."""
    element = x.element_size()
    row = element
    for dim in range(axis + 1, x.ndim):
        row *= x.shape[dim]
    planes, pitch = 1, row * x.shape[axis]
    for dim in range(axis - 1, -1, -1):
        if x.shape[dim] > 1:
            if planes == 1:
                pitch = x.stride(dim) * element
            planes *= x.shape[dim]
    first_row = 0
    for first, end in ranges:
        copy = _Copy2D(
            srcMemoryType=_MEMORY_DEVICE, srcDevice=x.data_ptr() + first * row, srcPitch=pitch,
            dstMemoryType=_MEMORY_DEVICE, dstDevice=address + first_row * row, dstPitch=row * rows,
            WidthInBytes=(end - first) * row, Height=planes,
        )  # fmt: skip
        _call("cuMemcpy2DAsync_v2", ctypes.byref(copy), stream)
        first_row += end - first
    return planes * rows * row


_slots: Dict[Tuple[str, str], Optional[Slots]] = {}


def find_slots(group: Any, purpose: str, device: torch.device, size: int) -> Optional[Slots]:
    """Returns the slots of a group of at least `size` bytes, which all ranks ask for at the same time. There are none
    on the CPU, while a graph is captured, on several hosts, and with FLASHATTN_COPY_ENGINES=0."""
    if device.type != "cuda" or not _environment.switch("FLASHATTN_COPY_ENGINES", True):
        return None
    if torch.cuda.is_current_stream_capturing():
        return None
    key = group.group_name, purpose
    if key in _slots:
        found = _slots[key]
        if found is None or found.size >= size:
            return found
    elif not _is_one_host(group):
        _slots[key] = None
        return None
    _slots[key] = _make_slots(group, device, size)
    return _slots[key]


def _is_one_host(group: Any) -> bool:
    names: List[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(names, socket.gethostname(), group)
    return len(set(names)) == 1


def _make_slots(group: Any, device: torch.device, size: int) -> Optional[Slots]:
    try:
        found: Optional[Slots] = Slots(group, device, size)
    except (RuntimeError, ImportError, AttributeError, OSError):
        found = None  # a torch or a driver without such memory: messages go through the process group
    works = torch.tensor([found is not None], dtype=torch.int32, device=device)
    dist.all_reduce(works, op=dist.ReduceOp.MIN, group=group)
    return found if int(works) else None
