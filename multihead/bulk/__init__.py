"""Translation of Parquet or text of any size on a Ray cluster, which resumes where it stopped.

In reading order: `run` (the driver: locks the output, starts the cluster, distributes parts), `job` (what a job is, and
whether a folder holds the same one), `input` (files, rows and parts), `worker` (an actor that translates a part),
`reaper` (ends the processes of the cluster after the driver).
"""
