"""Other engines, and ours, doing the same work each in a process of its own; benchmarks/compare.py asks them in turn.

contestants.py   who they are, and how their environments are made (environment.py)
protocol.py      the two ends of the pipe: `serve` in the child, `Child` in the parent
unsay_engine.py, llama_cpp_engine.py, openvino_engine.py    the work, one file an engine, the same verbs in each
memory.py, multiply.py      what the machine can do at best, as contestants
rows.py          the targets; works.py measures what they need; verdict.py and table.py say how we stand
recorded.py      what peers reached that cannot be had here
"""
