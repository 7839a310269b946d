"""Configuration: names, keys and values from the command line and from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchbench.config import compose
from benchbench.config_files import load_yaml
from benchbench.errors import ConfigError
from benchbench.records import Limits, Settings, TimingPolicy
from benchbench.schema import LimitsConf, MeasureConf, SettingsConf


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a user's folder of configurations with two models, a mode and two suites."""
    files = {
        "model/模型.yaml": "_target_: my.own.build\noptions: {depth: 2}\n",
        "model/hf/llama-2.7b.yaml": "_target_: my.own.build\n",
        "mode/mymode.yaml": "_target_: my.own.Mode\noptions: {level: 1}\n",
        "suite/mine.yaml": "# @package _global_\nmodel: mlp\nmode: [ACLGraph, eager]\n"
        "name: 1e3\nbatch_size: 010\n",
        "suite/off.yaml": "# @package _global_\nmode: off\n",
        "suite/boolean.yaml": "# @package _global_\nmode: false\n",
        "suite/typo.yaml": "# @package _global_\nbatchsize: 4\n",
        "suite/mistyped.yaml": "# @package _global_\nmeasure: {max_time_s: soon}\n",
        "suite/twice.yaml": "# @package _global_\nseed: 1\nseed: 2\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def error(*words: str, config_dirs: tuple[str, ...] = ()) -> str:
    with pytest.raises(ConfigError) as caught:
        compose(list(words), config_dirs=config_dirs)
    text = str(caught.value)
    assert len(text.splitlines()) <= 4
    return text


# ---- selections -------------------------------------------------------------------------------


def test_defaults() -> None:
    conf = compose([])
    assert list(conf.model) == ["llama"]
    assert list(conf.mode) == ["eager", "inductor", "npugraph_ex", "max-autotune"]
    assert conf.device.kind == "auto"


@pytest.mark.parametrize(
    "words", [["model=[mlp,llama]"], ["model=[mlp, llama]"], ["+model=[mlp,llama]"]]
)
def test_lists_keep_their_order(words: list[str]) -> None:
    assert list(compose(words).model) == ["mlp", "llama"]


@pytest.mark.parametrize("typed", ["aclgraph", "ACLGraph", "npugraph-ex", "NPUGraph_EX"])
def test_aliases_have_one_canonical_name(typed: str) -> None:
    """Case 23: one name in what is stored, what was typed is kept."""
    conf = compose([f"mode=[{typed},eager]", f"mode.{typed}.options.frozen_parameter=true"])
    assert list(conf.mode) == ["npugraph_ex", "eager"]
    assert conf.mode["npugraph_ex"].options["frozen_parameter"] is True
    assert conf.origin.typed == {"npugraph_ex": typed}


@pytest.mark.parametrize(
    ("typed", "name"),
    [("ge", "max-autotune"), ("max_autotune", "max-autotune"), ("MaxAutotune", "max-autotune"),
     ("default", "inductor")],
)  # fmt: skip
def test_more_aliases(typed: str, name: str) -> None:
    assert name in compose([f"mode={typed}"]).mode


def test_reduce_overhead_means_what_the_device_has() -> None:
    assert "npugraph_ex" in compose(["mode=reduce-overhead", "device=npu"]).mode
    assert "cudagraphs" in compose(["mode=reduce-overhead", "device=cuda"]).mode


def test_a_suite_beats_the_file_and_the_command_line_beats_the_suite() -> None:
    assert list(compose(["suite=smoke"]).model) == ["mlp"]
    conf = compose(["suite=smoke", "model=bert", "measure.max_time_s=9"])
    assert list(conf.model) == ["bert"]
    assert conf.measure.max_time_s == 9
    assert compose(["suite=null"]).measure.max_time_s == TimingPolicy().max_time_s


def test_device_with_its_number() -> None:
    device = compose(["device=cuda:1"]).device
    assert (device.kind, device.index) == ("cuda", 1)


def test_a_name_given_twice_is_a_note() -> None:
    conf = compose(["mode=[eager,eager]"])
    assert list(conf.mode) == ["eager"]
    assert "eager is named twice" in " ".join(conf.origin.notes.values())


def test_the_baseline_comes_by_itself_and_can_be_left_out() -> None:
    assert list(compose(["mode=inductor"]).mode) == ["eager", "inductor"]
    assert list(compose(["mode=inductor", "baseline=null"]).mode) == ["inductor"]


# ---- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["mode=max-autotun"], ["unknown mode 'max-autotun'", "did you mean 'max-autotune'"]),
        (["mode=[eager,inducto]"], ["unknown mode 'inducto'", "'inductor'"]),
        (["model=lama"], ["'llama'"]),
        (["device=cud"], ["'cuda'"]),
        (["suite=smok"], ["'smoke'"]),
        (["baseline=eagr"], ["unknown baseline 'eagr'", "'eager'"]),
        (["modle=llama"], ["unknown key 'modle'"]),
        (["batchsize=4"], ["'batch_size'"]),
        (["measure.max_tim_s=3"], ["'measure.max_time_s'"]),
        (["mode.inductor.fulgraph=true"], ["'mode.inductor.fullgraph'"]),
        (["mode.inducto.fullgraph=true"], ["unknown mode 'inducto'", "'inductor'"]),
        (["measure.max_time_s=abc"], ["measure.max_time_s", "'abc'", "a number"]),
        (["settings.threads=two"], ["settings.threads", "'two'", "a whole number"]),
        (["mode=eager,max-autotune"], ["mode=[eager,max-autotune]", "-m mode=eager,max-autotune"]),
        (["batch_size=1,8"], ["batch_size=[1,8]", "-m"]),
        (["mode=[]"], ["selects nothing"]),
        (["mode="], ["an empty name"]),
        (["mode=[eager,]"], ["an empty name"]),
        (["mode=false"], ["a boolean", "quote it"]),
        (["mode=off"], ["unknown mode 'off'"]),
        (["mode=[eager,", "inductor]"], ["split", "'mode=[eager, inductor]'"]),
        (["mode=[eager"], ["not closed"]),
        (["llama"], ["'llama' is not KEY=VALUE"]),
        (["=3"], ["is not a key"]),
        (["mode=[eager]", "mode.ge.options.frozen_parameter=true"], ["mode=[eager,max-autotune]"]),
        (["mode.cudagraphs.fullgraph=true"], ["not selected", "cudagraphs"]),
        (["mode.npugraph_ex.mode=max-autotune"], ["torch.compile's `mode`", "npugraph_ex"]),
        (["compile.mode=max-autotune"], ["torch.compile's `mode`"]),
        (["batch_size=range(1,4)"], ["-m", "batch_size=[1,2,4]"]),
        (["hydra.searchpath=[/no/such/place]"], ["/no/such/place"]),
        (["model=nowhere/mine.py", "model.llama.size=tiny"], ["not selected"]),
        (["batch_size=[1,,2]"], ["cannot be read at '[1,,'", "KEY=[1,2,4]"]),
        (["measure=quick"], ["measure: 'quick' is not a set of keys", "max_time_s"]),
        (["size=[tiny,full]"], ["size: ", "is not one name", "size=NAME"]),
        (["mode.inductor.options=7"], ["mode.inductor.options", "options.KEY=VALUE"]),
        (["accuracy=perhaps"], ["'perhaps' is not true or false"]),
        (["settings.environment=[a]"], ["settings.environment", "a list", "NAME=VALUE"]),
        (["name=${model}"], ["name: ", "quote it"]),
    ],
)
def test_errors_help(words: list[str], parts: list[str]) -> None:
    """Cases 10, 23, 59, 61: what is wrong, the value, the nearest match, what to type next."""
    text = error(*words)
    for part in parts:
        assert part in text


# ---- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("name=1e3", "1e3"),
        ("name=001", "001"),
        ("name=off", "off"),
        ("name=epoch=9.ckpt", "epoch=9.ckpt"),
        ("name=a(b)", "a(b)"),
        ("name=模型", "模型"),
        ('name="模型"', "模型"),
        ("name=a,b", "a,b"),
        ("name=..", ".."),
        ("name=x y: z ", "x y: z "),
        ("name=null", None),
    ],
)
def test_names_are_kept_as_typed(typed: str, value: str | None) -> None:
    """Cases 59, 61, 64."""
    assert compose([typed]).name == value


def test_odd_values_reach_options_as_text() -> None:
    conf = compose(
        ["model.mine._target_=a.b.c", "model.mine.options.x=模型", "model.mine.options.y=[1,a(b)]"]
    )
    assert conf.model["mine"].options == {"x": "模型", "y": [1, "a(b)"]}


def test_a_file_and_the_command_line_mean_the_same(tmp_path: Path) -> None:
    """Case 61: off, no, 010, 1e3, null in a file are what they are as a word."""
    values = [
        "off",
        "no",
        "yes",
        "010",
        "1e3",
        "1_000",
        "-1",
        ".5",
        "true",
        "False",
        "null",
        "0x1F",
        "12:30",
    ]
    path = tmp_path / "x.yaml"
    path.write_text("".join(f"k{i}: {value}\n" for i, value in enumerate(values)), encoding="utf-8")
    by_file = load_yaml(path)
    words = [f"model.mine.options.k{i}={value}" for i, value in enumerate(values)]
    by_word = compose(["model.mine._target_=a.b.c", *words]).model["mine"].options
    assert by_file == by_word
    assert [type(v) for v in by_file.values()] == [type(v) for v in by_word.values()]


def test_a_file_selects_and_names_like_the_command_line(folder: Path) -> None:
    """Case 61: selections in a file, names kept as typed."""
    conf = compose(["suite=mine"], config_dirs=[str(folder)])
    assert list(conf.model) == ["mlp"]
    assert list(conf.mode) == ["npugraph_ex", "eager"]
    assert conf.name == "1e3"
    assert conf.batch_size == compose(["batch_size=010"]).batch_size == "010"


@pytest.mark.parametrize(
    ("suite", "parts"),
    [
        ("off", ["unknown mode 'off'"]),
        ("boolean", ["a boolean", "quote it", "mode: 'false'"]),
        ("typo", ["unknown key 'batchsize'", "'batch_size'"]),
        ("mistyped", ["measure.max_time_s", "'soon'"]),
        ("twice", ["twice.yaml:3", "'seed' is there twice"]),
    ],
)
def test_errors_in_files_help(folder: Path, suite: str, parts: list[str]) -> None:
    """Case 61: a boolean mode, a misspelt key, a mistyped value and a repeated key in a file."""
    text = error(f"suite={suite}", config_dirs=(str(folder),))
    for part in parts:
        assert part in text


# ---- the user's own ---------------------------------------------------------------------------


@pytest.mark.parametrize("plus", ["", "+", "++"])
def test_a_model_of_the_command_line_runs_alone(plus: str) -> None:
    conf = compose([f"{plus}model.mine._target_=my_pkg.my_mod.build", "model.mine.options.x=1"])
    assert list(conf.model) == ["mine"]
    assert conf.model["mine"]._target_ == "my_pkg.my_mod.build"
    assert conf.model["mine"].options == {"x": 1}


def test_a_model_of_the_command_line_beside_ours() -> None:
    conf = compose(["model=[llama,mine]", "model.mine._target_=a.b.c"])
    assert list(conf.model) == ["llama", "mine"]


def test_a_model_with_a_chinese_name() -> None:
    """Case 59."""
    conf = compose(["model=模型", "model.模型._target_=a.b.c", "model.模型.options.x=1"])
    assert list(conf.model) == ["模型"]
    assert conf.model["模型"].options == {"x": 1}


def test_a_file_is_a_model() -> None:
    conf = compose(["model=[llama,some/where/mine.py,other.py:make]"])
    assert list(conf.model) == ["llama", "mine", "other"]
    assert conf.model["mine"]._target_ == "some/where/mine.py:build"
    assert conf.model["other"]._target_ == "other.py:make"


def test_a_file_may_not_take_the_name_of_a_model_of_ours() -> None:
    assert "model.mine._target_=some/llama.py:build" in error("model=some/llama.py")


def test_a_mode_of_the_command_line() -> None:
    conf = compose(["mode.mine.backend=tensorrt", "baseline=null"])
    assert list(conf.mode) == ["mine"]
    assert conf.mode["mine"].backend == "tensorrt"
    assert conf.mode["mine"]._target_.endswith(".TorchCompile")
    assert compose(["mode.mine._target_=m.py:Mine"]).mode["mine"]._target_ == "m.py:Mine"


@pytest.mark.parametrize("how", ["flag", "file://", "plain"])
def test_a_folder_of_ones_own(folder: Path, how: str) -> None:
    """Cases 59, 64: names with Chinese, slashes and dots; no package header is needed."""
    words = ["model=[模型,hf/llama-2.7b]", "mode=[mymode,eager]"]
    if how == "flag":
        conf = compose(words, config_dirs=[str(folder)])
    else:
        prefix = "file://" if how == "file://" else ""
        conf = compose([f"hydra.searchpath=[{prefix}{folder}]", *words])
    assert list(conf.model) == ["模型", "hf/llama-2.7b"]
    assert conf.model["模型"].options == {"depth": 2}
    assert list(conf.mode) == ["mymode", "eager"]


def test_options_of_a_mode_of_ones_own_are_held_against_its_file(folder: Path) -> None:
    text = error("mode=mymode", "mode.mymode.options.levle=2", config_dirs=(str(folder),))
    assert "'level'" in text


# ---- one truth --------------------------------------------------------------------------------


def test_schema_and_records_agree() -> None:
    """The mutable schema repeats the frozen types; their fields and defaults must be the same."""
    assert TimingPolicy(**vars(MeasureConf())) == TimingPolicy()
    assert set(vars(LimitsConf())) == {*Limits.__struct_fields__, "timeout_s"}
    assert Settings(**vars(SettingsConf())) == Settings()
    assert vars(compose([]).measure) == vars(MeasureConf())
    assert vars(compose([]).settings) == vars(SettingsConf())
