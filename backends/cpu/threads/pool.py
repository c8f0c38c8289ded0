"""Threads that wait for launches, written with llvmlite alone, for Linux.

A thread turns in place for a while after a launch, then sleeps until it is woken. A launch waits
only for threads that have begun to work on it: one that sleeps, or whose core another process has
taken, is not missed, since the others do its pieces. (A barrier, as in OpenMP, waits for all, which
takes milliseconds on a machine that has other work.)

While it turns, a thread offers its core to others now and then, such as the threads of another
library. So these are not held up, and the thread has used little of the core when a launch comes:
the system lets it work instead of taking the core away in the middle of a piece, for which all
others would wait. (Were it to sleep instead, it would be woken on the core of the thread that
launches, and take turns with that.)

Words of the pool, each on a line of its own:

    launches    odd while there is one to work on; one more when it begins, and when it ends
    job         of the launch (see `sharing`)
    sleepers    how many threads sleep, or are about to
    taken       1 while a launch has the threads; another one that begins meanwhile, or inside,
                runs alone
    over        1: threads shall end
    thread t    the launch that it works on, or 0
"""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import sys
from typing import Any

from llvmlite import ir

from cubepy.backends.cpu.threads.sharing import LINE, WORK, Code
from cubepy.backends.llvm.word_code import number, word

SPINS = 200_000
"""How often a thread looks for a launch before it sleeps, about 5 ms: waking one takes 20 to 70 us.
"""
OFFER = 256
"""Turns after which a thread offers its core: about 6 us, and a system call takes 0.3."""
WOKEN = 2
"""How many others a thread wakes that was woken itself."""
LAUNCHES, JOB, SLEEPERS, TAKEN, OVER, STATES = (LINE * n for n in range(6))
MEMBER, STOP = "cubepy_pool_member", "cubepy_pool_stop"
WORDS, SYSTEM_CALL, TEAM = "pool", "system_call", "team"
"""What the code is told when it is loaded."""
_FUTEX = {"x86_64": 202, "aarch64": 98}  # the numbers of system calls
_YIELD = {"x86_64": 24, "aarch64": 124}
_HALF = ir.IntType(32)
_PAUSE = {
    "x86_64": ("llvm.x86.sse2.pause", ()),
    "aarch64": ("llvm.aarch64.hint", (ir.Constant(_HALF, 1),)),
}
_WAIT, _WAKE = 128, 129  # of this process only
_all = (1 << 31) - 1


def usable() -> bool:
    """Whether this system has what the pool is made of."""
    return (
        sys.platform.startswith("linux")
        and platform.machine() in _FUTEX
        and ctypes.sizeof(ctypes.c_void_p) == 8
    )


class Pool:
    """Threads beside those that launch.

    Args:
        threads: how many work on a launch at most, with the one that launches.
    """

    def __init__(self, threads: int) -> None:
        self.members = range(1, threads)
        self.words = (ctypes.c_int64 * (STATES + LINE * (threads + 1)))()
        self.at = -(-ctypes.addressof(self.words) // 64) * 64
        self.library = ctypes.CDLL(None)
        self.system_call = ctypes.cast(self.library.syscall, ctypes.c_void_p).value or 0
        self.made: list[ctypes.c_ulong] = []
        self.process = 0

    def open(self, member: int, stop: int) -> None:
        """Begin the threads; the addresses are those of the functions MEMBER and STOP."""
        self.process, self.stop = os.getpid(), ctypes.CFUNCTYPE(None)(stop)
        create = self.library.pthread_create
        for thread in self.members:
            made = ctypes.c_ulong()
            if (
                create(ctypes.byref(made), None, ctypes.c_void_p(member), ctypes.c_void_p(thread))
                == 0
            ):
                self.made.append(made)
        atexit.register(self.close)

    def close(self) -> None:
        """End the threads: the code that they run goes away with the interpreter. Launches go on
        alone.
        """
        made, self.made = self.made, []
        if made and os.getpid() == self.process:
            self.stop()
            for thread in made:
                self.library.pthread_join(thread, None)

    def known(self) -> dict[str, int]:
        """What the code asks for by name: where the words are, the function for system calls, and
        how many threads may work on a launch.
        """
        return {WORDS: self.at, SYSTEM_CALL: self.system_call, TEAM: len(self.members) + 1}

    def word(self, code: Code, index: int, thread: Any = None) -> Any:
        """The pointer to a word of the pool, or to that of a thread on lines from there on."""
        which = number(index)
        if thread is not None:
            which = code.b.add(which, code.b.mul(thread, number(LINE)))
        return code.address(code.known(WORDS), which)

    def call(self, code: Code, what: int, value: Any) -> None:
        """Sleep while `launches` has a value, or wake so many threads."""
        kind = ir.FunctionType(word, [word], var_arg=True).as_pointer()
        nothing, futex = number(0), number(_FUTEX[platform.machine()])
        launches = code.word_at(code.known(WORDS), number(LAUNCHES))
        function = code.b.inttoptr(code.known(SYSTEM_CALL), kind)
        code.b.call(
            function,
            (futex, launches, ir.Constant(_HALF, what), code.b.trunc(value, _HALF), *[nothing] * 3),
        )

    def offer(self, code: Code) -> None:
        """Let another thread have this core, if one waits for it."""
        kind = ir.FunctionType(word, [word], var_arg=True).as_pointer()
        code.b.call(
            code.b.inttoptr(code.known(SYSTEM_CALL), kind), (number(_YIELD[platform.machine()]),)
        )

    def every(self, code: Code, spins: Any) -> Any:
        """Whether a thread shall offer its core after so many turns."""
        return code.b.icmp_signed("==", code.b.and_(spins, number(OFFER - 1)), number(OFFER - 1))

    def wake(self, code: Code, count: int) -> None:
        """Wake some threads if any sleep."""
        sleepers = code.b.load_atomic(self.word(code, SLEEPERS), "seq_cst", 8)
        with code.b.if_then(code.b.icmp_signed(">", sleepers, number(0))):
            self.call(code, _WAKE, number(count))

    def pause(self, code: Code) -> None:
        """Let the core do other things for some cycles."""
        name, values = _PAUSE[platform.machine()]
        kind = ir.FunctionType(ir.VoidType(), [v.type for v in values])
        code.b.call(code.module.globals.get(name) or ir.Function(code.module, kind, name), values)

    def functions(self, code: Code) -> None:
        """Write what threads run, and what ends them."""
        self.member(code)
        code.function(STOP, 0)
        code.b.store_atomic(number(1), self.word(code, OVER), "seq_cst", 8)
        code.b.atomic_rmw("add", self.word(code, LAUNCHES), number(2), "seq_cst")
        self.call(code, _WAKE, number(_all))
        code.b.ret_void()

    def member(self, code: Code) -> None:
        """`member(thread)`: work on launches until the pool is over."""
        (thread,) = code.function(MEMBER, 1, word).args
        b = code.b
        launches, sleepers = self.word(code, LAUNCHES), self.word(code, SLEEPERS)
        mine = self.word(code, STATES, thread)
        begin = b.block
        look, rest, more, tired, sleep, enter, check, work, left, out = (
            b.append_basic_block() for _ in range(10)
        )
        b.branch(look)

        b.position_at_end(look)
        seen, spins = b.phi(word), b.phi(word)
        now = b.load_atomic(launches, "acquire", 8)
        b.cbranch(b.and_(b.trunc(now, ir.IntType(1)), b.icmp_signed("!=", now, seen)), enter, rest)

        b.position_at_end(rest)
        self.pause(code)
        after = b.add(spins, number(1))
        b.cbranch(self.every(code, spins), more, look)
        b.position_at_end(more)
        self.offer(code)
        b.cbranch(b.icmp_signed("<", after, number(SPINS)), look, tired)
        b.position_at_end(tired)
        b.cbranch(
            b.icmp_signed("!=", b.load_atomic(self.word(code, OVER), "seq_cst", 8), number(0)),
            out,
            sleep,
        )
        b.position_at_end(sleep)
        b.atomic_rmw("add", sleepers, number(1), "seq_cst")
        self.call(code, _WAIT, now)  # returns at once if a launch has begun meanwhile
        b.atomic_rmw("sub", sleepers, number(1), "seq_cst")
        self.wake(code, WOKEN)
        slept = b.block
        b.branch(look)

        b.position_at_end(
            enter
        )  # say so, then look again: either this thread sees the end or the launch sees it
        b.atomic_rmw("xchg", mine, now, "seq_cst")
        b.cbranch(b.icmp_signed("==", b.load_atomic(launches, "seq_cst", 8), now), check, left)
        b.position_at_end(check)
        job = b.load(self.word(code, JOB))
        b.cbranch(b.icmp_signed("<", thread, b.load(code.address(job, number(3)))), work, left)
        b.position_at_end(work)
        b.call(code.module.get_global(WORK), (thread, job))
        b.branch(left)
        b.position_at_end(left)
        b.store_atomic(number(0), mine, "release", 8)
        b.branch(look)

        for block, old, count in (
            (begin, number(0), number(0)),
            (rest, seen, after),
            (more, seen, after),
            (slept, seen, number(0)),
            (left, now, number(0)),
        ):
            seen.add_incoming(old, block)
            spins.add_incoming(count, block)
        b.position_at_end(out)
        b.ret(number(0))

    def start(self, code: Code, job: Any, threads: Any) -> None:
        """Let threads work on a job, and wait until it is done (what `sharing.text` is given)."""
        b, work = code.b, code.module.get_global(WORK)
        launches, taken = self.word(code, LAUNCHES), self.word(code, TAKEN)
        got = b.extract_value(b.cmpxchg(taken, number(0), number(1), "seq_cst"), 1)
        with b.if_else(got) as (together, by_itself):
            with together:
                b.store(job, self.word(code, JOB))
                this = b.add(b.atomic_rmw("add", launches, number(1), "seq_cst"), number(1))
                self.wake(code, 1)
                b.call(work, (number(0), job))
                b.atomic_rmw("add", launches, number(1), "seq_cst")
                with code.count(code.known(TEAM)) as thread:
                    state = self.word(code, STATES, thread)
                    with code.repeat_counted() as (spins, gone):
                        code.branch_if(
                            b.icmp_signed("!=", b.load_atomic(state, "seq_cst", 8), this), gone
                        )
                        self.pause(code)
                        with b.if_then(
                            self.every(code, spins)
                        ):  # the thread may be waiting for this very core
                            self.offer(code)
                b.store_atomic(number(0), taken, "release", 8)
            with by_itself:
                b.call(work, (number(0), job))
