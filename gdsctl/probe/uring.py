"""io_uring without a binding: three system calls and two rings in shared memory.

liburing keeps its fast path in inline functions that no shared library exports, so ctypes could not call it. A block
costs two stores and no call of its own here: each slot of the queue keeps its submission entry, in which only the offset
changes. Layout: Linux, include/uapi/linux/io_uring.h.

Completions are posted only while we are inside io_uring_enter (IORING_SETUP_DEFER_TASKRUN, Linux 6.1), or on x86 in
program order: elsewhere Python has no load-acquire, and the lane is not offered.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import mmap
import os
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any

from gdsctl.probe.engine import SLICE, Job, Log, MismatchError, Pace, Stop, TransferError
from gdsctl.probe.pattern import Pattern
from gdsctl.record import Record

_SETUP, _ENTER, _REGISTER = 425, 426, 427  # the same on every architecture
_COOP_TASKRUN, _SINGLE_ISSUER, _DEFER_TASKRUN = 1 << 8, 1 << 12, 1 << 13
_FEAT_SINGLE_MMAP, _FEAT_EXT_ARG = 1, 1 << 8
_GETEVENTS, _EXT_ARG = 1, 1 << 3
_UNTIL = struct.Struct(
    "=QIIQ"
)  # io_uring_getevents_arg: no signal mask, its size, padding, a __kernel_timespec's address
_REGISTER_BUFFERS = 0
_READ_FIXED, _WRITE_FIXED, _READ, _WRITE = 4, 5, 22, 23
_SQES_AT = 0x10000000
_PARAMS = struct.Struct("=10I8IQ8IQ")
_SQE_WORDS = 8

_AGAIN = frozenset({errno.EINTR, errno.ETIME, errno.EAGAIN, errno.EBUSY})
"""What io_uring_enter(2) says where the same call may do in a moment, or after completions have been taken."""

_UNMERGED = 2
"""So many blocks of one io_uring_enter go to the device as they are; of more, neighbours may be merged to larger requests
(Linux, io_uring/io_uring.c: need_plug = max_ios > 2), and a block size would be measured that nobody asked for.
"""

_LOOKS = 4096
"""Looks at the ring between two at how much has been noted down."""

_libc = ctypes.CDLL(None, use_errno=True)
_quick = ctypes.CDLL(None)
"""Without the copy of errno, which costs a tenth of a call."""


class Support(Record, frozen=True, kw_only=True):
    """`why`: what stands against it."""

    usable: bool
    why: str = ""


def support() -> Support:
    """Does this kernel give us a queue? Containers often forbid it (seccomp), some distributions by sysctl."""
    try:
        ring = _Ring(2)
    except OSError as error:
        return Support(usable=False, why=f"io_uring_setup: {error.strerror}")
    ring.close()
    if not ring.posts_inside_enter and os.uname().machine not in ("x86_64", "i686"):
        return Support(usable=False, why="io_uring needs Linux 6.1 on this architecture")
    return Support(usable=True)


def _syscall(number: int, *arguments: Any) -> int:
    result: int = _libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


class _Ring:
    def __init__(self, entries: int) -> None:
        self.posts_inside_enter = True
        params = bytearray(_PARAMS.size)
        try:
            self.descriptor = self._setup(entries, params, _SINGLE_ISSUER | _DEFER_TASKRUN)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self.posts_inside_enter = False
            self.descriptor = self._setup(entries, params, 0)
        fields = _PARAMS.unpack(params)
        sq_entries, cq_entries, features = fields[0], fields[1], fields[5]
        self.waits_for_a_time = bool(features & _FEAT_EXT_ARG)
        _, sq_tail, sq_mask, _, _, _, sq_array = fields[10:17]
        cq_head, cq_tail, cq_mask, _, _, cqes = fields[19:25]
        try:
            if not features & _FEAT_SINGLE_MMAP:
                raise OSError(errno.ENOSYS, "Linux 5.4 or newer is needed")  # noqa: TRY301 -- closes the ring
            length = max(sq_array + 4 * sq_entries, cqes + 16 * cq_entries)
            self._rings = mmap.mmap(self.descriptor, length, flags=mmap.MAP_SHARED)
            self._entries = mmap.mmap(self.descriptor, 64 * sq_entries, flags=mmap.MAP_SHARED, offset=_SQES_AT)
        except BaseException:
            os.close(self.descriptor)
            raise
        self.words = memoryview(self._rings)[: length // 4 * 4].cast("I")
        self.sqes = memoryview(self._entries).cast("Q")
        self.sq_tail, self.sq_array, self.sq_mask = sq_tail // 4, sq_array // 4, self.words[sq_mask // 4]
        self.cq_head, self.cq_tail, self.cq_mask = cq_head // 4, cq_tail // 4, self.words[cq_mask // 4]
        self.cqes = cqes // 4

    def _setup(self, entries: int, params: bytearray, flags: int) -> int:
        struct.pack_into("=I", params, 8, flags)
        return _syscall(_SETUP, ctypes.c_uint(entries), (ctypes.c_char * len(params)).from_buffer(params))

    def register(self, address: int, length: int) -> bool:
        """Pin one buffer for all transfers; False where the limit of locked memory stands against it."""
        vector = struct.pack("=QQ", address, length)
        with contextlib.suppress(OSError):
            _syscall(
                _REGISTER, ctypes.c_uint(self.descriptor), ctypes.c_uint(_REGISTER_BUFFERS), vector, ctypes.c_uint(1)
            )
            return True
        return False

    def close(self) -> None:
        self.words.release()
        self.sqes.release()
        self._rings.close()
        self._entries.close()
        os.close(self.descriptor)


class _Slots:
    """A ring whose submission entries each have a block of memory of their own; in an entry only the offset changes."""

    def __init__(self, jobs: Sequence[Job], memory: Any) -> None:
        """`jobs`: of each slot, blocks all alike; `memory`: a HostBuffer of so many. Raises OSError without a ring."""
        self.memory = memory
        self._block = jobs[0].block_bytes
        self.ring = _Ring(len(jobs))
        fixed = self.ring.register(memory.address(), self._block * len(jobs))
        self.counts = [ctypes.c_uint(count) for count in range(len(jobs) + 1)]
        self._fixed = ctypes.c_long(_ENTER), ctypes.c_uint(self.ring.descriptor), ctypes.c_size_t(0)
        self._read, self._write = (_READ_FIXED, _WRITE_FIXED) if fixed else (_READ, _WRITE)
        for slot, job in enumerate(jobs):
            at = slot * _SQE_WORDS
            self.ring.sqes[at] = self.operation(job, reads=job.direction == "read")
            self.ring.sqes[at + 2] = self.address(slot)
            self.ring.sqes[at + 3] = self._block
            self.ring.sqes[at + 4] = slot

    def operation(self, job: Job, *, reads: bool) -> int:
        """The first word of a submission entry."""
        return (self._read if reads else self._write) | job.descriptor << 32

    def address(self, slot: int) -> int:
        start: int = self.memory.address()
        return start + slot * self._block

    def load(self, slot: int, content: bytearray) -> None:
        self.memory.view[slot * self._block : (slot + 1) * self._block] = content

    def carry(self, streams: Sequence[Iterator[int]], logs: Sequence[Log], stop: Stop, at_once: int) -> bool:
        """Keep a block of each slot's stream of offsets under way until all are through or it is time to stop.

        A call submits `at_once` blocks at most. A block's time begins when the one before it in its slot was seen to be
        done. Returns True where it ended for a full log and is to be called again; raises TransferError.
        """
        ring, block, clock = self.ring, self._block, time.perf_counter_ns
        words, sqes = ring.words, ring.sqes
        array, sq_mask, sq_tail = ring.sq_array, ring.sq_mask, ring.sq_tail
        cqes, cq_mask, cq_tail, cq_head = ring.cqes, ring.cq_mask, ring.cq_tail, ring.cq_head
        enter, counts, (number, descriptor, size) = _quick.syscall, self.counts, self._fixed
        one, wait, none = counts[1], ctypes.c_uint(_GETEVENTS), None
        notes = [log.back_to_back().append for log in logs]
        tail, head = words[sq_tail], words[cq_head]
        unsubmitted = looks = 0
        failure: TransferError | MismatchError | None = None
        full, filling = False, clock() < stop.at
        for slot, stream in enumerate(streams) if filling else ():
            if (offset := next(stream, None)) is not None:
                sqes[slot * _SQE_WORDS + 1] = offset
                words[array + (tail & sq_mask)] = slot
                tail = (tail + 1) & 0xFFFFFFFF
                unsubmitted += 1
        words[sq_tail] = tail
        under_way = unsubmitted
        while under_way:
            if unsubmitted > at_once:
                unsubmitted = self.ahead(unsubmitted, at_once)
            taken = enter(number, descriptor, counts[unsubmitted], one, wait, none, size)
            unsubmitted -= taken if taken >= 0 else self._once_more(unsubmitted)
            now = clock()
            if now >= stop.at:
                filling = False
            end = words[cq_tail]
            while head != end:
                at = cqes + (head & cq_mask) * 4
                slot = words[at]
                head = (head + 1) & 0xFFFFFFFF
                notes[slot](now)
                if words[at + 2] != block:
                    failure = _earlier(failure, _failure(sqes[slot * _SQE_WORDS + 1], words[at + 2]))
                    filling = False
                if filling and (offset := next(streams[slot], None)) is not None:
                    sqes[slot * _SQE_WORDS + 1] = offset
                    words[array + (tail & sq_mask)] = slot
                    tail = (tail + 1) & 0xFFFFFFFF
                    unsubmitted += 1
                else:
                    under_way -= 1
            words[cq_head] = head
            words[sq_tail] = tail
            looks += 1
            if looks % _LOOKS == 0 and any(log.full for log in logs):
                full, filling = True, False
        if failure is not None:
            raise failure
        return full

    def ahead(self, unsubmitted: int, at_once: int) -> int:
        """Submit what is beyond `at_once`, so many by a call and without waiting; returns how many are left."""
        number, descriptor, size = self._fixed
        part, zero = self.counts[at_once], self.counts[0]
        while unsubmitted > at_once:
            if (taken := _quick.syscall(number, descriptor, part, zero, zero, None, size)) <= 0:
                break
            unsubmitted -= taken
        return unsubmitted

    def _once_more(self, count: int) -> int:
        """io_uring_enter again, as it failed: how many it took, or why not (TransferError)."""
        try:
            return _syscall(
                _ENTER,
                ctypes.c_uint(self.ring.descriptor),
                ctypes.c_uint(count),
                ctypes.c_uint(1),
                ctypes.c_uint(_GETEVENTS),
                None,
                ctypes.c_size_t(0),
            )
        except OSError as error:
            if error.errno in _AGAIN:
                return 0
            raise TransferError(self.ring.sqes[1], 0, error) from error

    def close(self) -> None:
        self.ring.close()


class StreamsLane:
    """The blocks of several threads, one of each under way at once."""

    def __init__(self, jobs: Sequence[Job], memory: Any) -> None:
        """`jobs`: of the threads, neither checked nor mixed nor at a given rate; `memory`: a HostBuffer of a block each.

        Raises OSError where the system gives no ring.
        """
        self._slots = _Slots(jobs, memory)
        for slot, job in enumerate(jobs):
            if job.direction == "write":
                self._slots.load(slot, Pattern(job.seed, job.block_bytes, job.generations).block(0))

    def drive(self, orders: Sequence[Sequence[int]], stop: Stop, logs: Sequence[Log], *, again: bool) -> None:
        """Move each thread's blocks in its order, once or over and over, until all are through or it is time to stop."""
        streams = [
            itertools.chain.from_iterable(itertools.repeat(order)) if again and order else iter(order)
            for order in orders
        ]
        while self._slots.carry(streams, logs, stop, len(streams)):
            for log in logs:
                log.relieve()

    def close(self) -> None:
        self._slots.close()


class QueueLane:
    """`iodepth` blocks under way at once; the next one is submitted as soon as one is done."""

    def __init__(self, job: Job, memory: Any) -> None:
        """`memory`: a HostBuffer of iodepth blocks. Raises OSError where the system gives no ring."""
        self._job = job
        self._pace = Pace(job.every_ns)
        writes = job.read_percent is not None or job.direction == "write"
        if job.checked or writes:
            self._pattern = Pattern(job.seed, job.block_bytes, job.generations)
        self._slots = _Slots([job] * job.iodepth, memory)
        self._reads = job.reads_in_turn()
        if job.every_ns and not self._slots.ring.waits_for_a_time:
            self._slots.close()
            raise OSError(errno.ENOSYS, "io_uring at a given rate needs Linux 5.11")
        if writes:
            for slot in range(job.iodepth):
                self._slots.load(slot, self._pattern.block(0))

    def drive(self, offsets: Sequence[int], stop: Stop, log: Log) -> None:
        """Blocks done are noted with the time at which they were seen, all of one io_uring_enter with the same."""
        job, slots = self._job, self._job.iodepth
        at_once = min(slots, _UNMERGED) if isinstance(offsets, range) else slots
        if job.plain:
            pending = iter(offsets)
            while self._slots.carry([pending] * slots, [log] * slots, stop, at_once):
                log.relieve()
        else:
            self._drive(offsets, stop, log, at_once)

    def _drive(self, offsets: Sequence[int], stop: Stop, log: Log, at_once: int) -> None:
        ring, block, clock = self._slots.ring, self._job.block_bytes, time.perf_counter_ns
        words, sqes, slots = ring.words, ring.sqes, self._job.iodepth
        begun, moving = [0] * slots, [0] * slots
        checked, mixed, paced = self._job.checked, self._job.read_percent is not None, bool(self._job.every_ns)
        pace, reads = self._pace, [self._job.direction == "read"] * slots
        noted = [(side.ends.append, side.latencies.append) for side in (log.split() if mixed else log, log)]
        counts = self._slots.counts
        done = 0
        enter, number = _libc.syscall, ctypes.c_long(_ENTER)
        descriptor, one, flags, none = ctypes.c_uint(ring.descriptor), ctypes.c_uint(1), ctypes.c_uint(_GETEVENTS), None
        size = ctypes.c_size_t(0)
        limit = (ctypes.c_int64 * 2)()
        until = _UNTIL.pack(0, 0, 0, ctypes.addressof(limit))
        until_flags, until_size = ctypes.c_uint(_GETEVENTS | _EXT_ARG), ctypes.c_size_t(len(until))
        pending: Iterator[int] = iter(offsets)
        free = list(range(slots))
        under_way = unsubmitted = 0
        failure: TransferError | MismatchError | None = None
        tail, head = words[ring.sq_tail], words[ring.cq_head]
        while True:
            queued, more = 0, False
            filled: list[int] = []
            now = pace.wait(stop) if paced and not under_way else clock()
            if failure is None and now < stop.at:
                more = True
                while free and (not paced or pace.due <= now):
                    if (offset := next(pending, None)) is None:
                        more = False
                        break
                    slot = free.pop()
                    if mixed:
                        reads[slot] = next(self._reads)
                        sqes[slot * _SQE_WORDS] = self._slots.operation(self._job, reads=reads[slot])
                    if checked and not reads[slot]:
                        self._slots.load(slot, self._pattern.next(offset))
                        filled.append(slot)
                        now = clock()
                    if paced:
                        pace.taken(now)
                    moving[slot] = sqes[slot * _SQE_WORDS + 1] = offset
                    begun[slot] = now
                    words[ring.sq_array + (tail & ring.sq_mask)] = slot
                    tail = (tail + 1) & 0xFFFFFFFF
                    queued += 1
                words[ring.sq_tail] = tail
            under_way += queued
            unsubmitted += queued
            if not under_way:
                break
            if filled:  # one call submits them all, when the last is filled
                now = clock()
                for slot in filled:
                    begun[slot] = now
            unsubmitted = self._slots.ahead(unsubmitted, at_once)
            if paced and free and more:
                limit[0], limit[1] = divmod(max(1, min(pace.due, stop.at) - clock()), 1_000_000_000)
                taken = enter(number, descriptor, counts[unsubmitted], one, until_flags, until, until_size)
            else:
                taken = enter(number, descriptor, counts[unsubmitted], one, flags, none, size)
            if taken >= 0:
                unsubmitted -= taken
            elif (code := ctypes.get_errno()) not in _AGAIN:
                lowest = min(offset for slot, offset in enumerate(moving) if slot not in free)
                raise TransferError(lowest, 0, OSError(code, os.strerror(code)))
            now = clock()
            end = words[ring.cq_tail]
            while head != end:
                at = ring.cqes + (head & ring.cq_mask) * 4
                slot, result = words[at], words[at + 2]
                head = (head + 1) & 0xFFFFFFFF
                under_way -= 1
                note_end, note_latency = noted[reads[slot]]
                note_end(now)
                note_latency(now - begun[slot])
                done += 1
                if result != block:
                    failure = _earlier(failure, _failure(moving[slot], result))
                elif checked and reads[slot]:
                    bad = self._pattern.check(self._slots.address(slot), moving[slot])
                    failure = _earlier(failure, MismatchError(bad)) if bad else failure
                free.append(slot)
            words[ring.cq_head] = head
            if done >= SLICE:
                done = 0
                log.relieve()
        if failure is not None:
            raise failure

    def close(self) -> None:
        self._slots.close()


def _earlier(
    first: TransferError | MismatchError | None, second: TransferError | MismatchError
) -> TransferError | MismatchError:
    """Of blocks that were under way together, the one with the lower offset."""
    return second if first is None or second.offset < first.offset else first


def _failure(offset: int, result: int) -> TransferError:
    if result < 1 << 31:
        return TransferError(offset, result, None)
    code = (1 << 32) - result
    return TransferError(offset, 0, OSError(code, os.strerror(code)))
