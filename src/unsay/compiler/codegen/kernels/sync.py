"""How threads meet: the barrier between instructions, the stop decision, and the pool's workers.

    sync block (zeroed, of one step)               pool block (isa.abi.PoolState)
      0   arrived    threads at the barrier          generation   moves once per step
     64   phase      moves at each barrier;          done         workers that have finished the step
                     bit 31: all stop here
     68   sleepers   threads asleep on phase
    128   seen       a thread saw the interrupt word
    192   dealt      of each thread's units of work, 64 bytes apart: how many were given out since the last barrier

A thread that sees the interrupt word in a tile loop sets `seen` and leaves its kernel; whether the step stops is
decided once per barrier, by the last to arrive, and published in the same word that releases the others. So all
threads leave at the same barrier, and an interrupt cleared too early cannot make an unfinished step look finished.
Waiting is a short spin, then a futex (waiting.py): with fewer cores than threads nobody burns the time of the one that
works. Orders are those of the C11 memory model, so weakly ordered machines need nothing more.
"""

from __future__ import annotations

from unsay.compiler.codegen.builder import Module
from unsay.compiler.codegen.kernels.dot import Architecture
from unsay.compiler.codegen.kernels.waiting import WAITING
from unsay.isa.abi import PoolState, StepArgs

SPINS = 300
"""Tries before a thread sleeps: 6 to 15 us. Five times as many save nothing where each thread has a core of its own,
and cost a token half as long again where another program wants one: both threads then share the other."""

_PARTS = {
    "await_change": """
; the value of %word once it is no longer %old; %sleepers counts those asleep on it
define internal i32 @await_change(ptr %word, ptr %sleepers, i32 %old, i32 %spins) noinline #0 {
entry:
  br label %spin
spin:
  %tries = phi i32 [ 0, %entry ], [ %tries.next, %again ]
  %now = load atomic i32, ptr %word acquire, align 4
  %same = icmp eq i32 %now, %old
  br i1 %same, label %again, label %changed
again:
  call void @pause()
  %tries.next = add i32 %tries, 1
  %more = icmp ult i32 %tries.next, %spins
  br i1 %more, label %spin, label %sleep
sleep:
  %before = atomicrmw add ptr %sleepers, i32 1 seq_cst
  %value = zext i32 %old to i64
  call void @futex(ptr %word, i64 128, i64 %value)
  %after = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  %woken = load atomic i32, ptr %word acquire, align 4
  %early = icmp eq i32 %woken, %old
  br i1 %early, label %sleep, label %changed
changed:
  %result = phi i32 [ %now, %spin ], [ %woken, %sleep ]
  ret i32 %result
}""",
    "wake": """
; wake whoever sleeps on %word; call after changing it with seq_cst
define internal void @wake(ptr %word, ptr %sleepers) #0 {
entry:
  %asleep = load atomic i32, ptr %sleepers seq_cst, align 4
  %any = icmp ne i32 %asleep, 0
  br i1 %any, label %call, label %done
call:
  call void @futex(ptr %word, i64 129, i64 2147483647)
  br label %done
done:
  ret void
}""",
    "interrupted": """
; whether the interrupt word is set; if so, the step will stop at the next barrier
define internal i1 @interrupted(ptr %args) alwaysinline #0 {
entry:
  %interrupt.at = getelementptr i8, ptr %args, i64 {interrupt}
  %interrupt = load ptr, ptr %interrupt.at
  %word = load atomic i32, ptr %interrupt monotonic, align 4
  %set = icmp ne i32 %word, 0
  br i1 %set, label %tell, label %done
tell:
  %sync.at = getelementptr i8, ptr %args, i64 {sync}
  %sync = load ptr, ptr %sync.at
  %seen = getelementptr i8, ptr %sync, i64 128
  store atomic i32 1, ptr %seen monotonic, align 4
  br label %done
done:
  ret i1 %set
}""",
    "deal": """
; the number of a unit of work, of those of thread %owner, that no thread has got since the last barrier, from 0 on;
; how many are got, 1 or none
define internal i64 @deal(ptr %args, i64 %owner, i64 %many) alwaysinline #0 {
entry:
  %sync.at = getelementptr i8, ptr %args, i64 {sync}
  %sync = load ptr, ptr %sync.at
  %place = mul i64 %owner, 64
  %dealt = getelementptr i8, ptr %sync, i64 192
  %own = getelementptr i8, ptr %dealt, i64 %place
  %unit = atomicrmw add ptr %own, i64 %many monotonic
  ret i64 %unit
}""",
    "barrier": """
; wait for all threads of the step; whether all are to stop here
define internal i1 @barrier(ptr %args, i32 %threads) noinline #0 {
entry:
  %sync.at = getelementptr i8, ptr %args, i64 {sync}
  %sync = load ptr, ptr %sync.at
  %phase = getelementptr i8, ptr %sync, i64 64
  %sleepers = getelementptr i8, ptr %sync, i64 68
  %old = load atomic i32, ptr %phase monotonic, align 4
  %before = atomicrmw add ptr %sync, i32 1 acq_rel
  %arrived = add i32 %before, 1
  %last = icmp eq i32 %arrived, %threads
  br i1 %last, label %publish, label %wait
publish:
  store atomic i32 0, ptr %sync monotonic, align 4
  %dealt = getelementptr i8, ptr %sync, i64 192
  br label %clear
clear:
  %owner = phi i32 [ 0, %publish ], [ %owner.next, %clear ]
  %place = mul i32 %owner, 64
  %own = getelementptr i8, ptr %dealt, i32 %place
  store atomic i64 0, ptr %own monotonic, align 8
  %owner.next = add i32 %owner, 1
  %more = icmp ult i32 %owner.next, %threads
  br i1 %more, label %clear, label %decide
decide:
  %set = call i1 @interrupted(ptr %args)
  %seen.at = getelementptr i8, ptr %sync, i64 128
  %seen = load atomic i32, ptr %seen.at monotonic, align 4
  %stop = icmp ne i32 %seen, 0
  %bit = select i1 %stop, i32 -2147483648, i32 0
  %next = add i32 %old, 1
  %word = or i32 %next, %bit
  store atomic i32 %word, ptr %phase seq_cst, align 4
  call void @wake(ptr %phase, ptr %sleepers)
  ret i1 %stop
wait:
  %now = call i32 @await_change(ptr %phase, ptr %sleepers, i32 %old, i32 {spins})
  %told = icmp slt i32 %now, 0
  ret i1 %told
}""",
    "run": """
; one step on all threads of the pool, the caller being thread 0; 1 if it was interrupted
define i32 @run(ptr %pool, ptr %args) #0 {
entry:
  %threads.at = getelementptr i8, ptr %args, i64 {num_threads}
  %threads = load i32, ptr %threads.at
  %workers = sub i32 %threads, 1
  %pool.args = getelementptr i8, ptr %pool, i64 {pool_args}
  %generation = getelementptr i8, ptr %pool, i64 {pool_generation}
  %sleepers = getelementptr i8, ptr %pool, i64 {pool_sleepers}
  %done = getelementptr i8, ptr %pool, i64 {pool_done}
  %waiting = getelementptr i8, ptr %pool, i64 {pool_waiting}
  store ptr %args, ptr %pool.args
  store atomic i32 0, ptr %done monotonic, align 4
  %alone = icmp eq i32 %workers, 0
  br i1 %alone, label %work, label %start
start:
  %moved = atomicrmw add ptr %generation, i32 1 seq_cst
  call void @wake(ptr %generation, ptr %sleepers)
  br label %work
work:
  %result = call i32 @step(ptr %args, i32 0)
  br label %check
check:
  %finished = load atomic i32, ptr %done acquire, align 4
  %all = icmp eq i32 %finished, %workers
  br i1 %all, label %leave, label %wait
wait:
  %now = call i32 @await_change(ptr %done, ptr %waiting, i32 %finished, i32 {spins})
  br label %check
leave:
  ret i32 %result
}""",
    "worker": """
; the life of thread %index of the pool: a step each time the generation moves, until the pool closes
define void @worker(ptr %pool, i32 %index) #0 {
entry:
  %pool.args = getelementptr i8, ptr %pool, i64 {pool_args}
  %generation = getelementptr i8, ptr %pool, i64 {pool_generation}
  %sleepers = getelementptr i8, ptr %pool, i64 {pool_sleepers}
  %closing.at = getelementptr i8, ptr %pool, i64 {pool_closing}
  %done = getelementptr i8, ptr %pool, i64 {pool_done}
  %waiting = getelementptr i8, ptr %pool, i64 {pool_waiting}
  br label %idle
idle:
  %last = phi i32 [ 0, %entry ], [ %now, %work ]
  %spins = phi i32 [ {spins}, %entry ], [ %patience, %work ]
  %now = call i32 @await_change(ptr %generation, ptr %sleepers, i32 %last, i32 %spins)
  %closing = load atomic i32, ptr %closing.at acquire, align 4
  %close = icmp ne i32 %closing, 0
  br i1 %close, label %leave, label %work
work:
  %args = load ptr, ptr %pool.args
  %result = call i32 @step(ptr %args, i32 %index)
  %stopped = icmp ne i32 %result, 0
  %patience = select i1 %stopped, i32 0, i32 {spins} ; who stopped the step wants the core
  %before = atomicrmw add ptr %done, i32 1 seq_cst
  call void @wake(ptr %done, ptr %waiting)
  br label %idle
leave:
  ret void
}""",
    "close": """
; send every worker of the pool home
define void @close(ptr %pool) #0 {
  %generation = getelementptr i8, ptr %pool, i64 {pool_generation}
  %sleepers = getelementptr i8, ptr %pool, i64 {pool_sleepers}
  %closing = getelementptr i8, ptr %pool, i64 {pool_closing}
  store atomic i32 1, ptr %closing seq_cst, align 4
  %moved = atomicrmw add ptr %generation, i32 1 seq_cst
  call void @wake(ptr %generation, ptr %sleepers)
  ret void
}""",
}


def add_sync(module: Module, architecture: Architecture) -> None:
    """Write the synchronisation functions and the pool's entries (emit.ENTRIES) into the module."""
    waiting = WAITING[architecture]
    numbers = {f"{{{name}}}": str(number) for name, number in _numbers().items()}
    for name, text in {"pause": waiting.pause, "futex": waiting.futex, **_PARTS}.items():
        for placeholder, number in numbers.items():
            text = text.replace(placeholder, number)
        module.add_text(name, text.strip())


def _numbers() -> dict[str, int]:
    arguments = {name: getattr(StepArgs, name).offset for name in ("interrupt", "sync", "num_threads")}
    pool = {f"pool_{field[0]}": getattr(PoolState, field[0]).offset for field in PoolState._fields_}
    return {
        **arguments,
        **pool,
        "spins": SPINS,
    }
