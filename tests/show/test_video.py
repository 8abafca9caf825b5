"""Videos show the task beside what its critic predicts; what cannot be drawn is one line."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from bridgerl.cli.main import main
from bridgerl.plots import themed
from bridgerl.show import screen
from bridgerl.show.panel import SIZE, Panel, Prediction
from conftest import TINY, Run, environment, finished

POLE = "InvertedPendulum-v5"


def _trained(env: str, critic: str, out: Path) -> Path:
    swap = {"toy_envs:Point-v0": env, "cdq": critic, "600": "200"}
    assert main([*(swap.get(word, word) for word in TINY), "--quiet", "--out", str(out)]) == 0
    (found,) = out.glob("*/*/seed0")
    return found


@pytest.fixture(scope="module")
def pole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that has learnt next to nothing: its episodes are short."""
    return _trained(POLE, "tqc", tmp_path_factory.mktemp("runs"))


@pytest.fixture
def gl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something that draws. Where MUJOCO_GL promises it, as in the gate, it must be there."""
    promised = "MUJOCO_GL" in os.environ
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    found = screen.choose_backend()
    monkeypatch.delenv("MUJOCO_GL", raising=False)  # Programs are to find it themselves.
    if found is None and not promised:
        pytest.skip(f"no video can be made here: {screen.NO_GL}")
    assert found is not None, screen.NO_GL


def _frames(file: Path) -> list[np.ndarray]:
    import imageio.v2 as imageio

    reader: Any = imageio.get_reader(file)
    with reader:
        return [np.asarray(frame, float) for frame in reader]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Of its reader.
@pytest.mark.usefixtures("gl")
def test_a_video_shows_the_first_episode_beside_its_distribution(
    pole: Path, tmp_path: Path, cli: Run
) -> None:
    file = tmp_path / "pole.mp4"
    ended = cli("evaluate", str(pole), "--episodes", "1", "--video", str(file), "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    result = json.loads(ended.stdout)
    frames = _frames(file)
    assert len(frames) == result["video"]["frames"] == result["lengths"][0]
    assert {frame.shape for frame in frames} == {(SIZE, 2 * SIZE, 3)}
    picture, panel = np.split(frames[0], 2, 1)
    assert picture.mean() < 60  # A dark room,
    assert picture.max() > 80  # with something in it.
    assert panel.mean() > 200  # White paper, on which
    later = np.split(frames[-1], 2, 1)[1]
    assert np.abs(panel - later).max() > 100  # things move.


FILM = """
import sys
from pathlib import Path
from bridgerl.show.film import film
for name in ("pole.gif", "pole.webp", "pole.png"):
    print(film(Path(sys.argv[1]), Path(name), seconds=0.4)["frames"])
"""


@pytest.mark.usefixtures("gl")
def test_gifs_leave_steps_out_and_a_filmstrip_is_one_picture(pole: Path, tmp_path: Path) -> None:
    import imageio.v2 as imageio

    command = [sys.executable, "-c", FILM, str(pole)]
    ended = finished(command, cwd=tmp_path, env=environment())
    assert (ended.returncode, ended.stderr) == (0, "")
    in_gif, in_webp, in_strip = map(int, ended.stdout.split())
    assert len(_frames(tmp_path / "pole.webp")) == in_webp > in_gif
    assert (
        len(_frames(tmp_path / "pole.gif")) == in_gif <= 5
    )  # Ten steps, 25 a second, and every other one.
    assert 1 < in_strip <= 4
    height, width, _ = np.asarray(imageio.imread(tmp_path / "pole.png")).shape
    assert width > height


def _prediction(*, known: bool) -> Prediction:
    levels = (np.arange(100) + 0.5) / 100 if known else np.array([0.5])
    middle = 100 + 10 * np.sin(np.arange(50) / 5)
    return Prediction(np.arange(50), levels, middle[:, None] + 20 * (levels - 0.5), known)


@pytest.mark.parametrize("known", [True, False])
def test_the_panel_moves_with_the_episode(known: bool) -> None:
    panel = Panel(_prediction(known=known))
    first, later, again = (panel.draw(i, "same words") for i in (0, 30, 0))
    assert first.shape == (SIZE, SIZE, 3)
    assert (first != later).any()
    assert (first == again).all()


def test_the_panel_has_the_paper_of_the_page_around_it() -> None:
    for name, brightness in (("light", 255), ("dark", 30)):
        with themed(name):
            drawn = Panel(_prediction(known=True)).draw(20, "").mean(-1)
        # In the corner, and where the rest of the episode is covered.
        assert abs(drawn[0, 0] - brightness) <= 12
        assert abs(drawn[SIZE // 2, SIZE // 2] - brightness) <= 12


def test_a_value_is_a_line_where_a_distribution_is_an_area() -> None:
    blue = [
        (Panel(_prediction(known=known)).draw(20, "")[..., 0] < 200).mean()
        for known in (False, True)
    ]
    assert 3 * blue[0] < blue[1]


def test_a_density_is_highest_where_quantiles_are_closest() -> None:
    levels = (np.arange(100) + 0.5) / 100
    returns = np.where(levels < 0.7, 10 + levels, 20 + 9 * levels)[None]
    said = Prediction(np.arange(1), levels, returns, True)
    at = np.linspace(5, 30, 200)
    density = said.density(0, at)
    assert at[density.argmax()] == pytest.approx(10.35, abs=0.5)
    assert density[np.abs(at - 15).argmin()] < 0.1 < density[np.abs(at - 28).argmin()]


def test_a_frame_of_the_panel_takes_less_than_50_ms() -> None:
    panel = Panel(_prediction(known=True))
    began = time.process_time()
    for i in range(20):
        panel.draw(i, f"step {i}")
    assert (time.process_time() - began) / 20 < 0.05


@pytest.mark.parametrize(
    ("kwargs", "camera"),
    [({}, 0), ({"camera_id": 0}, 0), ({"default_camera_config": {"distance": 9.0}}, -1)],
)
def test_the_camera_follows_a_runner_unless_a_view_was_chosen(
    kwargs: dict[str, Any], camera: int
) -> None:
    env = gym.make("HalfCheetah-v5", **kwargs)
    screen.set_mode(env, "HalfCheetah-v5", "rgb_array")
    assert env.unwrapped.mujoco_renderer.camera_id == camera  # pyright: ignore[reportAttributeAccessIssue]


def test_a_task_without_a_following_camera_keeps_its_view() -> None:
    env = gym.make(POLE)
    screen.set_mode(env, POLE, "rgb_array")
    assert env.unwrapped.mujoco_renderer.camera_id == -1  # pyright: ignore[reportAttributeAccessIssue]


# What cannot be drawn.


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder, in a place without windows."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    code = main(["evaluate", *args])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith("bridgerl: error: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--video pole.avi", "--video pole.avi must end in .gif or .mp4 or .png or .webp"),
        ("--video no/pole.mp4", "there is no folder no"),
        ("--video there.mp4", "there.mp4 is there already; choose another name or add --force"),
        ("--video a.mp4 --video-seconds 0", "--video-seconds must be positive and finite"),
        ("--watch", "there is no window to watch in, as DISPLAY is not set; try --video"),
    ],
)
def test_bad_wishes_for_pictures_are_refused_in_one_line(
    flags: str, message: str, pole: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "there.mp4").write_text("precious")
    assert message in _refused(capsys, str(pole), *flags.split())
    assert [path.read_text() for path in here.iterdir()] == ["precious"]


def test_without_opengl_it_is_said_what_to_install(
    pole: Path, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(screen, "works", lambda backend: False)
    assert "apt-get install libosmesa6" in _refused(capsys, str(pole), "--video", "pole.mp4")
    assert list(here.iterdir()) == []


def test_an_unknown_backend_is_refused(
    pole: Path, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MUJOCO_GL", "magic")
    message = "MUJOCO_GL is 'magic'; it can be egl, osmesa, glfw, or unset"
    assert message in _refused(capsys, str(pole), "--video", "pole.mp4")


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("toy_envs:Point-v0", "toy_envs:Point-v0 cannot be drawn: it has no render mode"),
        ("Pendulum-v1", "drawn by pygame, which is not installed: pip install 'gymnasium[classic"),
    ],
)
def test_an_environment_that_cannot_be_drawn_is_named(
    env: str,
    message: str,
    tmp_path: Path,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = _trained(env, "cdq", tmp_path / "runs")
    monkeypatch.setattr(screen, "works", lambda backend: False)  # Neither asks for OpenGL.
    monkeypatch.setattr(screen, "has_pygame", lambda: False)
    assert message in _refused(capsys, str(run), "--video", "film.mp4")
    assert [path.name for path in here.iterdir()] == ["runs"]
