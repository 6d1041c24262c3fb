"""A campaign: simulated runs that measure, for every combination of loss, group size,
capacity and xmit_interval, spread over Spark.

`runs` plans the runs and has the schema of the results. `worker` carries out a run on
an executor. `jobs` gives runs to executors, and sees to it that no run blocks others.
`results` stores rows, so that a campaign can continue after it was stopped. `points`
aggregates the rows and chooses settings. `report` makes the page. What the figures mean
is in `ringcast.sim.runs.measure`.
"""
