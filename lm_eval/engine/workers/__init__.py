"""Several workers that each hold the model and answer requests, on this machine or on a cluster.

`WorkersExecutor` is the `Executor`. Its `Scheduler` cuts requests into portions and gives them to
whichever worker is free; its `Crew` keeps the workers running. Both know workers only through the
interface `WorkerPool`, which is implemented with processes of this machine (`ProcessPool`) and with
Ray actors (`RayPool`). A worker is in both cases the same process (`worker_process.py`).
"""
