"""Finished runs on disk: whole, ours, or refused in words."""

from typing import NamedTuple

import numpy as np
import pytest

from sparsebayes.partition import Checkpoints


class Outcome(NamedTuple):
    active: np.ndarray
    log_evidence: float
    n_iter: int
    stop_reason: str


OUTCOME = Outcome(np.array([3, 5]), -1.2345678901234567, 17, "few left")


def _saved(folder):
    checkpoints = Checkpoints(folder, "mine", Outcome)
    checkpoints.save("0-0", OUTCOME)
    checkpoints.save("1-0", OUTCOME._replace(active=np.empty(0, dtype=int)))
    return checkpoints


def test_what_was_saved_comes_back_to_the_bit(tmp_path):
    _saved(tmp_path / "new" / "folder")
    back = Checkpoints(tmp_path / "new" / "folder", "mine", Outcome).load()
    assert list(back) == ["0-0", "1-0"]
    np.testing.assert_array_equal(back["0-0"].active, OUTCOME.active)
    assert back["0-0"][1:] == OUTCOME[1:]
    assert len(back["1-0"].active) == 0


def test_no_half_written_file_is_ever_seen(tmp_path, monkeypatch):
    checkpoints = _saved(tmp_path)

    def stop(*names):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", stop)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.save("2-0", OUTCOME)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["partitions.json", "run-0-0.npz", "run-1-0.npz"]


def test_another_fit_is_refused(tmp_path):
    _saved(tmp_path)
    with pytest.raises(ValueError, match=r"belong to another fit \(different data, parameters"):
        Checkpoints(tmp_path, "theirs", Outcome)


def test_a_file_of_another_fit_is_refused(tmp_path):
    _saved(tmp_path / "a")
    other = Checkpoints(tmp_path / "b", "theirs", Outcome)
    (tmp_path / "b" / "run-0-0.npz").write_bytes((tmp_path / "a" / "run-0-0.npz").read_bytes())
    with pytest.raises(ValueError, match=r"run-0-0.npz' belongs to another fit. Delete this file"):
        other.load()


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "text", "other fields"])
def test_a_damaged_file_is_refused(tmp_path, damage):
    checkpoints = _saved(tmp_path)
    path = tmp_path / "run-0-0.npz"
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        at = content.index(OUTCOME.active.tobytes())
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    elif damage == "other fields":
        np.savez(path, fingerprint="mine", something=1)
    else:
        path.write_bytes(b"" if damage == "empty" else b"not a checkpoint")
    with pytest.raises(ValueError, match=r"run-0-0.npz' is damaged .* Delete this file"):
        checkpoints.load()


@pytest.mark.parametrize("note", ["", "{}", "[]", '{"format": 1, "finger'])
def test_a_damaged_note_is_refused(tmp_path, note):
    _saved(tmp_path)
    (tmp_path / "partitions.json").write_text(note)
    with pytest.raises(ValueError, match=r"partitions.json' cannot be read .* Empty the folder"):
        Checkpoints(tmp_path, "mine", Outcome)


def test_runs_without_their_note_are_refused(tmp_path):
    _saved(tmp_path)
    (tmp_path / "partitions.json").unlink()
    with pytest.raises(ValueError, match="contains runs but no partitions.json"):
        Checkpoints(tmp_path, "mine", Outcome)
