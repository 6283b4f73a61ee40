"""Background jobs: granted calls that outlive the answer to their callers.

    job          `Job`, and the interface `Jobs`          run        one job in its process
    inprocess    without a store: they end with it        queue      rows without a worker, taken by any process
    durable      with a store                             attempts   the call of a stored job, made again or not

    start ──> wait ──┬─ result in time ──> forget      an ordinary call, of which no job was ever seen
                     └─ it takes longer ──> hand_over  a job: written down first, then announced

`scheduler` makes calls at times, each as such a job; `tools` are those by which a model manages its own.
"""
