"""The file of a recording: torn, full, another's, of another version."""

import gzip
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from scheduler_service.commands.main import main
from scheduler_service.core.model import Cluster
from scheduler_service.core.state.state import State
from scheduler_service.engine_settings import stages_of
from scheduler_service.recording import begin
from scheduler_service.run.recording.file import File
from scheduler_service.run.recording.record import Recording
from scheduler_service.run.recording.replay import Summary, Unreadable, replay
from tests.run.live import CONFIG, Site
from tests.run.recorded import again, lead, recorder, replayed


def test_a_torn_line_is_removed_before_going_on(tmp_path: Path) -> None:
    path, state = tmp_path / "recording", State(Cluster("c", 1))
    recorder(path)(state, 1).close()
    whole = path.read_text()
    path.write_text(whole + '["Stepped",{"comm')
    summary = replayed(path)
    assert summary.torn
    recorder(path)(state, 1).close()
    assert path.read_text() == whole + whole
    assert replayed(path).sections == 2


def test_another_file_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "notes"
    path.write_text("what I must not forget\n")
    made = begin(CONFIG.model_copy(update={"record": path}), stages_of, State(Cluster("c", 1)), 1)
    assert not isinstance(made, Recording)
    assert "is no recording" in caplog.text
    assert path.read_text() == "what I must not forget\n"


def test_a_file_has_one_writer(tmp_path: Path) -> None:
    first = File(tmp_path / "recording")
    with pytest.raises(ValueError, match="another process records"):
        File(tmp_path / "recording")
    first.close()
    File(tmp_path / "recording").close()


@pytest.mark.parametrize("name", ["recording", "recording.gz"])
async def test_a_full_disk_ends_the_recording_and_not_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    monkeypatch.setattr("scheduler_service.run.recording.file.PACKED_AT", 5000)
    left = [40_000 if name == "recording" else 8_000]
    write = os.write

    def until_full(fd: int, data: Any) -> int:
        taken = min(len(data), left[0])
        if not taken:
            raise OSError(28, "No space left on device")
        left[0] -= taken
        return write(fd, bytes(data)[:taken])

    monkeypatch.setattr("scheduler_service.run.recording.file.os.write", until_full)
    site, path = Site(9), tmp_path / name
    assert await lead(site, path, 40) is None
    assert site.store.commit_no > 50
    stopped = [record.message for record in caplog.records if "has stopped" in record.message]
    assert len(stopped) == 1
    assert "No space left" in stopped[0]
    assert any("of the steps of this leadership" in record.message for record in caplog.records)
    summary = replayed(path)
    assert summary.steps > 5
    assert (summary.unended, summary.torn) == (1, False)


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    path = tmp_path / "recording"
    recorder(path)(State(Cluster("c", 1)), 1).close()
    whole = path.read_text()
    for spoiled, why in [
        (whole.replace('"format":1', '"format":2'), "format 2; this version reads 1"),
        (whole.replace('"rows":1', '"lines":1'), "another version"),
        (whole.replace('"policy":"fitgpp"', '"policy":"guess"'), "'guess', which this version does not have"),
        (whole.replace('"fitgpp_cap"', '"fitgpp_hat"'), "needs the setting 'fitgpp_cap'"),
        ("\n".join(whole.splitlines()[1:]), "does not begin"),
        ("?" + whole, "line 1"),
        ("", "is no recording, or nothing is recorded in it yet"),
        ("hi\n", "is no recording, or nothing is recorded in it yet"),
    ]:
        assert spoiled != whole
        path.write_text(spoiled)
        with pytest.raises(Unreadable, match=why):
            replay(path, again, Summary())
    packed = tmp_path / "recording.gz"
    packed.write_bytes(gzip.compress(whole.encode())[:-20])
    summary = Summary()
    assert replay(packed, again, summary) is None
    assert summary.torn
    result = CliRunner().invoke(main, ["record", "show", str(path)])
    assert result.exit_code == 2
    assert "ebb-scheduler: " in result.stderr
