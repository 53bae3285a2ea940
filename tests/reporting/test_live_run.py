import io
import json
from collections.abc import Callable
from pathlib import Path
from time import sleep

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from tiny import tiny_recipe

from graftseg.core.files import locked, write_checked, write_text
from graftseg.core.run_folder import LOCK, RunFolder
from graftseg.core.teacher_checks import TeacherCheck
from graftseg.reporting.viewer.live import MAX_POINTS, LiveRun, live_routes, thinned
from graftseg.reporting.viewer.view import Parent, wait_for_run


def line(step: int, **extra: object) -> str:
    facts = {"stage": 0, "method": "bcp", "step": step, "global_step": step, "lr": 0.1, "total": 1 / step}
    return json.dumps(facts | {"terms": {"L": float(step)}} | extra) + "\n"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    folder.update_manifest({"status": "running"})
    write_text(folder.recipe_file, tiny_recipe().to_yaml())
    return folder


def test_only_new_points_are_sent(run: RunFolder) -> None:
    live = LiveRun(run, lambda: 0.0)
    run.log_file.write_text(line(1) + line(2)[:-5])
    assert dict(live.new_messages())["points"] == {
        "curves": {"total": [[1, 1.0]], "lr": [[1, 0.1]], "terms/L": [[1, 1.0]]}
    }
    run.log_file.write_text(line(1) + line(2) + line(3, validation={"dice": 0.5}, total=float("nan")))
    messages = dict(live.new_messages())
    assert messages["points"]["curves"]["total"] == [[2, 0.5]]
    assert messages["points"]["curves"]["validation/dice"] == [[3, 0.5]]
    assert "points" not in dict(live.new_messages())


def test_the_state_has_the_rate_and_the_remaining_time(run: RunFolder) -> None:
    now = [0.0]
    live = LiveRun(run, lambda: now[0])
    run.log_file.write_text(line(1))
    assert dict(live.new_messages())["state"]["remaining"] is None
    now[0] = 2.0
    run.log_file.write_text(line(1) + line(5))
    state = dict(live.new_messages())["state"]
    assert (state["step"], state["total"], state["steps_per_second"], state["remaining"]) == (5, 9, 2.0, 2.0)
    assert state["stages"] == [
        {"method": "bcp-pretrain", "first": 1, "last": 4},
        {"method": "bcp", "first": 5, "last": 9},
    ]


def test_skipped_self_training_is_replaced_by_more_steps(run: RunFolder) -> None:
    now = [0.0]
    live = LiveRun(run, lambda: now[0])
    list(live.new_messages())
    check = TeacherCheck(1, 3, {"a": "no foreground"}, "skip", added=6)
    write_checked(run.teacher_file, {"checks": [check.to_json()]})
    now[0] = 2.0
    run.log_file.write_text(line(11))
    state = dict(live.new_messages())["state"]
    assert (state["total"], state["steps_per_second"], state["remaining"]) == (15, 5.5, 4 / 5.5)
    assert state["stages"] == [
        {"method": "bcp-pretrain", "first": 1, "last": 4},
        {"method": "bcp-pretrain", "first": 5, "last": 15},
    ]


def test_the_state_has_the_stages_after_all_checks(run: RunFolder) -> None:
    live = LiveRun(run)
    extend = TeacherCheck(1, 3, {"a": "no foreground"}, "extend")
    stop = TeacherCheck(2, 3, {"a": "grew"}, "stop", step=1)
    write_checked(run.teacher_file, {"checks": [extend.to_json(), stop.to_json()]})
    state = dict(live.new_messages())["state"]
    assert [(stage["method"], stage["last"]) for stage in state["stages"]] == [
        ("bcp-pretrain", 4),
        ("bcp-pretrain", 6),
        ("bcp", 7),
        ("bcp-pretrain", 9),
    ]


def test_a_resumed_run_has_a_shorter_log(run: RunFolder) -> None:
    live = LiveRun(run)
    run.log_file.write_text(line(1) + line(2) + line(3))
    list(live.new_messages())
    run.log_file.write_text(line(1))
    assert dict(live.new_messages())["points"]["curves"]["total"] == [[1, 1.0]]


def test_a_resumed_run_may_have_a_longer_log_before_it_is_read(run: RunFolder) -> None:
    live = LiveRun(run)
    write_text(run.log_file, line(1) + line(2, total=5.0))
    list(live.new_messages())
    write_text(run.log_file, line(1) + line(2) + line(3))
    assert dict(live.new_messages())["points"]["curves"]["total"] == [[1, 1.0], [2, 0.5], [3, 1 / 3]]


def test_curves_keep_their_last_point_and_few_others() -> None:
    points = [[float(step), 0.0] for step in range(1, 1001)]
    kept = thinned({"total": points})["total"]
    assert kept[-1] == [1000.0, 0.0]
    assert len(kept) <= MAX_POINTS


def test_events_end_with_the_training(run: RunFolder) -> None:
    run.log_file.write_text(line(1))
    run.save_snapshot(1, {"X_in": np.eye(4, dtype=np.float32), "Y_in": np.eye(4, dtype=np.uint8)})
    client = TestClient(Starlette(routes=live_routes(run)))
    run.update_manifest({"status": "finished"})
    text = client.get("/api/live").text
    events = [part.splitlines()[0].removeprefix("event: ") for part in text.split("\n\n") if part]
    assert events == ["points", "state", "snapshot", "end"]
    assert json.loads(text.split("event: snapshot\ndata: ")[1].split("\n")[0]) == {
        "step": 1,
        "pictures": ["X_in", "Y_in"],
    }
    for name in ("X_in", "Y_in"):
        assert client.get(f"/api/snapshots/1/{name}.png").content.startswith(b"\x89PNG")
    assert client.get("/api/snapshots/2/X_in.png").status_code == 404
    assert client.get("/api/snapshots/1/none.png").status_code == 404


def test_a_run_with_a_lock_is_running(run: RunFolder) -> None:
    assert not LiveRun(run).is_running
    with locked(run.path / LOCK, ""):
        assert LiveRun(run).is_running


def test_events_of_an_own_page_end_with_the_command(run: RunFolder) -> None:
    run.log_file.write_text(line(1))
    run.update_manifest({"status": "finished"})
    answers = iter([False, True])
    client = TestClient(Starlette(routes=live_routes(run, lambda: next(answers))))
    text = client.get("/api/live").text
    assert text.count("event: state") == 2
    assert 'event: end\ndata: {"closes": true}' in text


@pytest.mark.parametrize("status", ["stopped", "running", "failed"])
def test_the_page_waits_until_an_earlier_run_is_resumed(run: RunFolder, status: str) -> None:
    run.update_manifest({"status": status})
    ended = Parent(io.BytesIO())
    wait_for(ended.has_ended)
    assert not wait_for_run(run, ended)
    run.update_manifest({"status": "running"})
    with locked(run.path / LOCK, ""):
        assert wait_for_run(run, ended)


def wait_for(condition: Callable[[], bool]) -> None:
    while not condition():
        sleep(0.001)
