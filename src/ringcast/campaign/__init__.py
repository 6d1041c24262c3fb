"""A campaign: simulated runs that measure, for every combination of loss, group size,
capacity and xmit_interval, spread over Spark.

`runs` says what is to be run and what a row of the results is; `worker` is what an
executor does with a run; `jobs` hands runs to executors and takes care that none can
hold up the others; `results` keeps rows, so that a campaign can go on where it was
stopped; `points` adds them up and chooses; `report` draws the page. The figures mean
what `ringcast.sim.runs.measure` says.
"""
