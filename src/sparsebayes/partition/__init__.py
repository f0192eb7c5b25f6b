"""The RVM on partitions of the candidates: schedules, the loop that runs them, checkpoints."""

from .checkpoints import Checkpoints
from .loop import ScheduleResult, run_schedule
from .schedules import (
    SCHEDULES,
    Incremental,
    Polished,
    Schedule,
    SplitMerge,
    Task,
    WorkingSet,
    automatic_size,
)

__all__ = [
    "SCHEDULES",
    "Checkpoints",
    "Incremental",
    "Polished",
    "Schedule",
    "ScheduleResult",
    "SplitMerge",
    "Task",
    "WorkingSet",
    "automatic_size",
    "run_schedule",
]
