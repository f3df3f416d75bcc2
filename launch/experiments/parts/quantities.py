"""Ranges of numbers in an experiment: higher ones fit no machine, and mistyped ones are rejected at once."""

from typing import Annotated

from annotated_types import Interval

Seconds = Annotated[float, Interval(gt=0, le=10**8)]
Gigabytes = Annotated[float, Interval(gt=0, le=10**6)]
StepCount = Annotated[int, Interval(ge=1, le=2**62)]
NodeCount = Annotated[int, Interval(ge=1, le=10_000)]
ActorCount = Annotated[int, Interval(ge=0, le=10_000)]
EnvironmentCount = Annotated[int, Interval(ge=1, le=1_000_000)]
CheckpointCount = Annotated[int, Interval(ge=1, le=1_000_000)]
ThreadCount = Annotated[int, Interval(ge=0, le=1024)]
Port = Annotated[int, Interval(ge=1, le=65535)]
Seed = Annotated[int, Interval(ge=0, le=2**31 - 1)]
