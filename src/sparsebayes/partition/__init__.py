"""The RVM on partitions of the candidates: schedules, the loop that drives them, checkpoints."""

from .checkpoints import Checkpoints
from .drive import Driven, drive
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
    "Driven",
    "Incremental",
    "Polished",
    "Schedule",
    "SplitMerge",
    "Task",
    "WorkingSet",
    "automatic_size",
    "drive",
]
