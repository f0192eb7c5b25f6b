"""Lookup order, checksums and downloads, on a small file made here."""

import functools
import hashlib
import http.server
import threading

import pytest

from papers.data import files, list_datasets
from papers.data.registry import DATASETS, DataFile

CONTENT = b"a,b\n1,2\n"
FILE = DataFile("small.csv", hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    """Three folders of our own; nothing of the machine is looked at."""
    names = ("home", "environment", "cache", "served")
    folders = {name: tmp_path / name for name in names}
    for folder in folders.values():
        folder.mkdir()
    monkeypatch.setenv("SPARSEBAYES_DATA", str(folders["environment"]))
    monkeypatch.setenv("SPARSEBAYES_CACHE", str(folders["cache"]))
    monkeypatch.delenv("SPARSEBAYES_DATA_URL", raising=False)
    return folders


@pytest.fixture
def server(places):
    handler = functools.partial(QuietHandler, directory=str(places["served"]))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as service:
        thread = threading.Thread(target=service.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{service.server_port}"
        service.shutdown()
        thread.join()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


def test_data_home_is_looked_in_first_then_the_variable_then_the_cache(places):
    for name in ("cache", "environment", "home"):
        (places[name] / FILE.name).write_bytes(CONTENT)
        assert files.locate(FILE, places["home"]) == places[name] / FILE.name
    assert files.locate(FILE) == places["environment"] / FILE.name


def test_file_missing_from_data_home_is_found_in_the_next_place(places):
    (places["cache"] / FILE.name).write_bytes(CONTENT)
    assert files.read(FILE, places["home"]) == CONTENT


def test_offline_error_names_the_file_the_folders_and_the_cure(places):
    with pytest.raises(FileNotFoundError) as caught:
        files.read(FILE, places["home"])
    message = str(caught.value)
    assert FILE.name in message
    for name in ("home", "environment", "cache"):
        assert str(places[name]) in message
    assert "SPARSEBAYES_DATA" in message
    assert "SPARSEBAYES_DATA_URL" in message


def test_edited_local_file_is_refused_by_its_checksum(places):
    (places["environment"] / FILE.name).write_bytes(CONTENT + b"3,4\n")
    with pytest.raises(OSError, match="not the data set it should be.*delete or replace"):
        files.read(FILE)


def test_download_goes_to_the_cache_once(places, server, monkeypatch):
    monkeypatch.setenv("SPARSEBAYES_DATA_URL", server + "/")
    (places["served"] / FILE.name).write_bytes(CONTENT)
    assert files.read(FILE) == CONTENT
    (places["served"] / FILE.name).unlink()
    assert files.read(FILE) == CONTENT
    assert [path.name for path in places["cache"].iterdir()] == [FILE.name]


def test_download_goes_to_data_home_where_one_is_named(places, monkeypatch):
    monkeypatch.setenv("SPARSEBAYES_DATA_URL", places["served"].as_uri())
    (places["served"] / FILE.name).write_bytes(CONTENT)
    new = places["home"] / "not" / "there" / "yet"
    assert files.read(FILE, new) == CONTENT
    assert (new / FILE.name).read_bytes() == CONTENT
    assert not list(places["cache"].iterdir())


def test_download_with_the_wrong_checksum_is_refused_and_leaves_nothing(
    places, server, monkeypatch
):
    monkeypatch.setenv("SPARSEBAYES_DATA_URL", server)
    (places["served"] / FILE.name).write_bytes(CONTENT[:-1])
    with pytest.raises(OSError, match="refused.*Nothing was kept"):
        files.read(FILE)
    assert not list(places["cache"].iterdir())


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "no-address", "file:///no/such/folder"])
def test_failed_download_says_so_and_counts_as_not_found(places, monkeypatch, url):
    monkeypatch.setenv("SPARSEBAYES_DATA_URL", url)
    with pytest.raises(FileNotFoundError, match=f"The download of {url}/small.csv failed"):
        files.read(FILE)
    assert not list(places["cache"].iterdir())


def test_interrupted_write_leaves_neither_file_nor_part(places, monkeypatch):
    def interrupt(part, path):
        assert part.read_bytes() == CONTENT
        assert not path.exists()
        raise KeyboardInterrupt

    monkeypatch.setenv("SPARSEBAYES_DATA_URL", places["served"].as_uri())
    (places["served"] / FILE.name).write_bytes(CONTENT)
    monkeypatch.setattr(files.os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        files.read(FILE)
    assert not list(places["cache"].iterdir())


def test_cache_folder_follows_the_variable_and_the_platform(monkeypatch, tmp_path):
    assert files.cache_folder() == tmp_path / "cache"
    monkeypatch.setenv("SPARSEBAYES_CACHE", "")
    monkeypatch.setattr(files.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert files.cache_folder() == tmp_path / "sparsebayes"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert files.cache_folder() == tmp_path / ".cache" / "sparsebayes"


def test_list_says_which_files_are_here_without_reading_them(places):
    boston = places["environment"] / DATASETS["boston"].file.name
    boston.write_bytes(b"not read")
    found = {entry.name: entry.path for entry in list_datasets()}
    assert found["boston"] == boston
    assert found["abalone"] is None
    assert set(found) == set(DATASETS)
