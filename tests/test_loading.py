"""Names to objects, builders to workloads, and which files a model came from."""

from __future__ import annotations

import ast
import dataclasses
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchbench import loading
from benchbench.errors import LoadError
from benchbench.models import Inputs, Workload
from benchbench.records import Case, Target

Write = Callable[..., Path]

LINEAR = """
import torch
def build():
    return torch.nn.Linear(4, 3), torch.arange(8.0).reshape(2, 4)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def write(folder: Path) -> Write:
    def writer(name: str, text: str = LINEAR) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return writer


def case(path: str, **fields: Any) -> Case:
    options = fields.pop("options", {})
    known = {
        "key": "k",
        "group": "g",
        "model": "mine",
        "model_target": Target(path=path, options=options),
        "mode": "eager",
        "mode_target": Target(path="benchbench.modes.eager.Eager"),
        "device": "cpu",
        "workload": "forward",
        "dtype": "float32",
        "batch_size": 1,
    }
    return Case(**{**known, **fields})


def load(path: str, dtype: str = "float32", **fields: Any) -> Workload:
    import torch

    return loading.build_workload(
        case(path, **fields), device=torch.device("cpu"), dtype=getattr(torch, dtype)
    )


# ---- names ----


@pytest.mark.parametrize(
    "path",
    [
        "kit.tools.nets.build",
        "kit.tools.nets:build",
        "kit/tools/nets.py:build",
        "kit/tools/nets.py",
        "kit.tools.nets.Family.build",
        "kit/tools/nets.py:Family.build",
        "kit.again",
    ],
)
def test_every_form_finds_the_same_module(path: str, write: Write) -> None:
    write("kit/__init__.py", "from kit.tools.nets import build as again\n")
    write("kit/tools/__init__.py", "")
    write("kit/tools/nets.py", "def build(): ...\nclass Family:\n    build = build\n")
    found = loading.resolve(path)
    assert callable(found)
    assert found is sys.modules["kit.tools.nets"].build


def test_an_attribute_wins_over_a_submodule_of_the_same_name(write: Write) -> None:
    write("kit/__init__.py", "from kit.build import build\n")
    write("kit/build.py", "def build(): ...\n")
    assert callable(loading.resolve("kit.build"))
    assert callable(loading.resolve("kit.build.build"))


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("kit.nets.biuld", r"kit.nets has no 'biuld' \(did you mean 'build'\?\)"),
        ("kit.nest.build", r"has no 'nest' \(did you mean 'nets'\?\)"),
        ("kit.nets:bild", r"did you mean 'build'"),
        ("kit/nets.py:bild", r"did you mean 'build'"),
        ("kit/nest.py", r"there is no file 'kit/nest.py' \(did you mean 'nets.py'\?\)"),
        ("kti.nets.build", r"there is no module 'kti' \(did you mean 'kit'\?\)"),
        ("kit.nets.build.deeper", r"has no 'deeper'"),
        ("nothing", r"accepted: package.module.attribute"),
        ("", r"names nothing|is no target"),
        (":build", r"names nothing"),
        ("kit/nets.py:", r"names nothing"),
        ("kit/nets:build", r"'kit/nets' is no module"),
        ("a..b", r"is no target"),
    ],
)
def test_a_wrong_name_gets_the_nearest_one(path: str, said: str, write: Write) -> None:
    write("kit/__init__.py", "")
    write("kit/nets.py", "def build(): ...\n")
    with pytest.raises(LoadError, match=said):
        loading.resolve(path)


@pytest.mark.parametrize("path", ["bad.build", "bad.py", "bad:build", "pack/bad.py", "pack.bad.f"])
@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("import not_there_at_all", ModuleNotFoundError),
        ("from json import not_there_at_all", ImportError),
        ("raise AttributeError('mine')", AttributeError),
        ("1 / 0", ZeroDivisionError),
        ("import sys; sys.exit(0)", SystemExit),
        ("this is no Python", SyntaxError),
    ],
)
def test_an_error_inside_the_users_file_is_passed_on(
    path: str, line: str, error: type[BaseException], write: Write
) -> None:
    """Case 58 and 7: never 'not found' for a file that is there; the place is named."""
    write("pack/__init__.py", "")
    for name in ("bad.py", "pack/bad.py"):
        write(name, f"x = 1\n{line}\n")
    for _ in range(2):  # a second try must not find half a module
        with pytest.raises(error) as raised:
            loading.resolve(path)
        where = loading.where_raised(raised.value)
        assert where is not None
        assert where.startswith(("bad.py:2", "pack/bad.py:2"))


def test_an_error_in_a_packages_init_is_passed_on(write: Write) -> None:
    write("pack/__init__.py", "import not_there_at_all\n")
    write("pack/nets.py")
    with pytest.raises(ModuleNotFoundError, match="not_there_at_all"):
        loading.resolve("pack/nets.py")


def test_a_file_may_import_helpers_beside_it_and_relative_ones(write: Write) -> None:
    write("far/helper.py", "value = 1\n")
    write("far/model.py", "import helper\ndef build(): return helper.value\n")
    write("far/pack/__init__.py", "")
    write("far/pack/helper.py", "value = 2\n")
    write("far/pack/model.py", "from .helper import value\ndef build(): return value\n")
    assert loading.resolve("far/model.py")() == 1
    assert loading.resolve("far/pack/model.py")() == 2


@pytest.mark.parametrize("name", ["json.py", "my-model.py", "模型.py", "benchbench.py", "a b.py"])
def test_a_file_of_any_name(name: str, write: Write) -> None:
    write(f"far/{name}", "def build(): return 'mine'\n")
    first = loading.resolve(f"far/{name}")
    assert first() == "mine"
    assert loading.resolve(f"far/{name}") is first
    import json

    assert hasattr(json, "loads")


def test_two_files_of_one_name(write: Write) -> None:
    for number in (1, 2):
        write(f"m{number}/model.py", f"def build(): return {number}\n")
    assert [loading.resolve(f"m{n}/model.py")() for n in (1, 2)] == [1, 2]


def test_a_constant_edited_within_the_same_second_is_seen(write: Write) -> None:
    """Case 43: Python's bytecode is trusted by whole second and size, so none is written."""
    script = "from benchbench import loading; print(loading.resolve('edit.py')())"
    printed = []
    for value in (1, 2):
        file = write("edit.py", f"import part\ndef build(): return {value}, part.x\n")
        part = write("part.py", f"x = {value}\n")
        for path in (file, part):
            os.utime(path, (1_700_000_000, 1_700_000_000))
        run = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
        printed.append(run.stdout.decode().strip())
    assert printed == ["(1, 1)", "(2, 2)"]


def test_the_parent_side_needs_no_torch() -> None:
    script = (
        "import sys; from benchbench import loading;"
        "loading.resolve('benchbench.errors.LoadError');"
        "loading.source_hashes(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_plugins(write: Write) -> None:
    write("stand_in.py", "seen = ['here']\n")
    assert loading.import_plugin("stand_in.py").seen == ["here"]
    assert loading.import_plugin("stand_in") is sys.modules["stand_in"]
    with pytest.raises(LoadError, match="did you mean 'stand_in'"):
        loading.import_plugin("standin")


# ---- modes ----


def test_modes_get_their_options_by_name(write: Write) -> None:
    write("fast.py", "class Fast:\n    def __init__(self, depth=1): self.depth = depth\n")
    made: Any = loading.build_mode(Target(path="fast.Fast", options={"depth": 3}))
    assert made.depth == 3
    with pytest.raises(LoadError, match=r"takes no option 'dept' \(did you mean 'depth'\?\)"):
        loading.build_mode(Target(path="fast.Fast", options={"dept": 3}))


# ---- models ----


def test_the_builder_gets_what_its_signature_accepts(write: Write) -> None:
    head = "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x): return x\n"
    write("few.py", head + "def build(device, *, width=2):\n  return Net(), (device.type, width)\n")
    write("all.py", head + "def build(**given):\n  return Net(), (sorted(given),)\n")
    write("own.py", head + "def build(seq_len=7):\n  return Net(), (seq_len,)\n")
    assert load("few.py", options={"width": 5}).make_inputs(0).args == ("cpu", 5)
    assert load("own.py").make_inputs(0).args == (7,)
    assert load("own.py", seq_len=9).make_inputs(0).args == (9,)
    everything = ["batch_size", "device", "dtype", "more", "seed", "seq_len", "workload"]
    assert load("all.py", options={"more": 1}).make_inputs(0).args == (everything,)


@pytest.mark.parametrize(
    ("build", "fields", "said"),
    [
        ("def build(width=2): ...", {"options": {"widht": 1}}, "did you mean 'width'"),
        ("def build(width): ...", {}, "needs a value for 'width'"),
        ("def build(x, /): ...", {}, "needs a value for 'x'"),
        ("def build(): ...", {"batch_size": 8}, "batch_size=8 is asked for, but .* takes no"),
        ("def build(): ...", {"seq_len": 8}, "seq_len=8 is asked for"),
        ("def build(): ...", {"workload": "decode"}, "workload=decode is asked for"),
        ("build = 3", {}, "is of type int, not something to call"),
        ("def build(): return None", {}, "returned None"),
        ("def build(): return 3, torch.ones(1)", {}, "gave an int where"),
        ("def build(): return 1, 2, 3", {}, "returned a tuple of 3"),
        ("def build(): return torch.nn.Linear(1, 1)", {}, "returned a module without inputs"),
        ("def build(): return (lambda x: x), torch.ones(1)", {}, "gave a function where a torch"),
        ("def build(): return torch.nn.Linear(1, 1), 5", {}, "inputs of type int"),
        ("def build(): return torch.nn.Linear(1, 1), None", {}, "inputs of type NoneType"),
        (
            "def build(): return torch.compile(torch.nn.Linear(1, 1)), torch.ones(1)",
            {},
            "torch.compile has wrapped already",
        ),
        (
            "def build(dtype): return torch.nn.Linear(1, 1), torch.ones(1)",
            {"dtype": "float16"},
            "built weights of float32, but dtype=float16",
        ),
        (
            "from benchbench.models import Workload\ndef build():\n"
            "    return Workload(module=torch.nn.Linear(1, 1).half(), make_inputs=None, items=1)",
            {},
            "built weights of float16, but dtype=float32",
        ),
        (
            "from benchbench.models import Workload\ndef build():\n"
            "    net = torch.nn.Linear(1, 1, device='meta')\n"
            "    return Workload(module=net, make_inputs=None, items=1)",
            {},
            "built on meta, but device=cpu is asked for",
        ),
    ],
)
def test_refused_builders_say_why(
    build: str, fields: dict[str, Any], said: str, write: Write
) -> None:
    write("odd.py", f"import torch\n{build}\n")
    with pytest.raises(LoadError, match=said):
        load("odd.py", **{"dtype": "float32", **fields})


def test_a_module_as_target_points_to_its_builder(write: Write) -> None:
    write("kit/__init__.py", "")
    write("kit/nets.py")
    with pytest.raises(LoadError, match=r"next: kit\.nets\.build"):
        load("kit.nets")


def test_sys_exit_in_a_builder_is_passed_on(write: Write) -> None:
    """Case 58: the worker, not the loader, turns it into a row."""
    write("quits.py", "import sys\ndef build(): sys.exit(0)\n")
    with pytest.raises(SystemExit):
        load("quits.py")


def test_random_generators_are_seeded_first(write: Write) -> None:
    write(
        "dice.py",
        "import random, numpy, torch\ndef build():\n"
        "    return torch.nn.Linear(3, 3), (random.random(), numpy.random.rand(), torch.rand(2))\n",
    )
    first = load("dice.py", seed=1)
    random.random()  # whoever draws in between changes nothing
    again, other = load("dice.py", seed=1), load("dice.py", seed=2)
    assert first.module.weight.equal(again.module.weight)
    assert not first.module.weight.equal(other.module.weight)
    assert first.make_inputs(1000).args[:2] == again.make_inputs(1000).args[:2]
    assert first.make_inputs(1000).args[0] != other.make_inputs(2000).args[0]


def test_pair_is_converted_unless_the_builder_takes_the_dtype(write: Write) -> None:
    import torch

    net = (
        "import torch\nclass Net(torch.nn.Linear):\n  def __init__(self):\n"
        "    super().__init__(4, 4)\n"
        "    self.register_buffer('turn', torch.ones(2, dtype=torch.complex64))\n"
    )
    inputs = "torch.ones(2, 4), torch.arange(3)"
    write("plain.py", net + f"def build(): return Net(), ({inputs})\n")
    write(
        "own.py", net + f"def build(dtype): return torch.nn.Linear(4, 4, dtype=dtype), ({inputs})\n"
    )
    plain = load("plain.py", "float64")
    assert plain.module.weight.dtype is torch.float64
    assert plain.module.turn.dtype is torch.complex64
    assert [t.dtype for t in plain.make_inputs(0).args] == [torch.float64, torch.int64]
    own = load("own.py", "float64")
    assert [t.dtype for t in own.make_inputs(0).args] == [torch.float32, torch.int64]


def test_training_mode_is_left_and_noted(write: Write) -> None:
    """Case 29: a batch norm in training mode stays what its author made it."""
    write("train.py", "import torch\ndef build(): return torch.nn.BatchNorm1d(4), torch.rand(3, 4)")
    write("evals.py", LINEAR.replace("torch.nn.Linear(4, 3)", "torch.nn.Linear(4, 3).eval()"))
    train, evals = load("train.py"), load("evals.py")
    assert train.module.training
    assert any("training mode" in note for note in train.notes)
    assert not evals.module.training
    assert evals.notes == ()


def test_each_load_is_a_fresh_object(write: Write) -> None:
    """Case 29: two modes never share a module, and start from equal state."""
    write("state.py", "import torch\ndef build(): return torch.nn.BatchNorm1d(4), torch.rand(3, 4)")
    first, second = load("state.py"), load("state.py")
    first.module(*first.make_inputs(0).args)
    assert not first.module.running_mean.equal(second.module.running_mean)
    second.module(*second.make_inputs(0).args)
    assert first.module.running_mean.equal(second.module.running_mean)


def test_items_are_the_true_batch(write: Write) -> None:
    write(
        "batch.py",
        "import torch\ndef build(batch_size):\n"
        "    return torch.nn.Linear(4, 3), torch.rand(batch_size, 4)\n",
    )
    write("fixed.py")
    assert (load("batch.py", batch_size=6).items, load("batch.py").item) == (6, "samples")
    assert (load("fixed.py").items, load("fixed.py").item) == (1, "calls")


# ---- inputs ----


@pytest.mark.parametrize(
    ("inputs", "args", "kwargs"),
    [
        ("x", 1, []),
        ("(x, x)", 2, []),
        ("[x, 3, None]", 3, []),
        ("{'x': x, 'scale': 2}", 0, ["scale", "x"]),
        ("collections.UserDict(x=x)", 0, ["x"]),
        ("Inputs((x,), {'y': x})", 1, ["y"]),
        ("lambda seed: x + seed", 1, []),
        ("lambda seed: {'x': torch.rand(2)}", 0, ["x"]),
    ],
)
def test_forms_of_inputs(inputs: str, args: int, kwargs: list[str], write: Write) -> None:
    write(
        "form.py",
        "import collections, torch\nfrom benchbench.models import Inputs\n"
        f"def build():\n    x = torch.arange(6.0)\n    return torch.nn.Linear(6, 1), {inputs}\n",
    )
    workload = load("form.py", seed=2)
    made = workload.make_inputs(2000)
    assert len(made.args) == args
    assert sorted(made.kwargs) == kwargs
    again, other = workload.make_inputs(2000), workload.make_inputs(2001)
    assert repr(again) == repr(made)
    assert repr(other) != repr(made)


def fixed(text: str, write: Write) -> Workload:
    write("fixed_inputs.py", f"import torch\ndef build(): return torch.nn.Linear(4, 1), {text}\n")
    return load("fixed_inputs.py", seed=3)


def test_fixed_inputs_serve_call_0_and_are_rolled_for_the_others(write: Write) -> None:
    """Case 35: other contents for other calls, of the same range and validity."""
    import torch

    workload = fixed("(torch.arange(8.0).reshape(2, 4), torch.tensor([5, 1, 3]), 'word')", write)
    values, ids, word = workload.make_inputs(3000).args
    assert values.equal(torch.arange(8.0).reshape(2, 4))
    assert (ids.tolist(), word) == ([5, 1, 3], "word")
    seen = [workload.make_inputs(3000 + i).args for i in (0, 1, 2, 3)]
    assert len({str(values) for values, _, _ in seen}) == 4
    for values, ids, word in seen:
        assert values.sort().values.equal(torch.arange(8.0).reshape(2, 4))
        assert (sorted(ids.tolist()), word) == ([1, 3, 5], "word")
    hundred, next_one = (workload.make_inputs(3000 + i).args[0] for i in (100, 101))
    assert not hundred.equal(next_one)


@pytest.mark.parametrize(
    "text",
    [
        "torch.tensor([0, 2, 2, 5])",  # offsets of an embedding bag
        "torch.arange(6)",  # positions
        "torch.tensor([[0, 0, 1], [0, 1, 1]])",  # left padding
        "torch.tensor([[1, 1, 0], [1, 0, 0]])",  # right padding
        "torch.tensor([[True, False], [True, True]])",
        "torch.tensor([[0.0, float('-inf')], [0.0, 0.0]])",  # additive mask
        "torch.tensor(3.0)",
        "torch.ones(1, 1)",
        "torch.zeros(0)",
        "torch.eye(3).to_sparse()",
    ],
)
def test_inputs_whose_order_has_a_meaning_stay(text: str, write: Write) -> None:
    workload = fixed(text, write)
    assert repr(workload.make_inputs(3001)) == repr(workload.make_inputs(3000))
    assert any("same input values" in note for note in workload.notes)


def test_strides_stay_for_every_seed(write: Write) -> None:
    """Other strides would recompile: channels_last must be channels_last in all calls."""
    workload = fixed("torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last)", write)
    strides = {workload.make_inputs(3000 + i).args[0].stride() for i in range(3)}
    assert strides == {(48, 1, 12, 3)}


@pytest.mark.parametrize("text", ["x", "lambda seed: x", "[x, (x, [x]), {'a': x}]"])
def test_writing_into_an_input_leaks_nowhere(text: str, write: Write) -> None:
    write(
        "leak.py",
        f"import torch\nx = torch.arange(4.0)\ndef build(): return torch.nn.Linear(4, 1), {text}\n",
    )
    workload = load("leak.py")
    first = workload.make_inputs(0).args
    before = repr(first)
    first[0].fill_(9.0)
    assert repr(workload.make_inputs(0).args) == before
    assert sys.modules["leak"].x.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_nested_inputs_keep_their_types(write: Write) -> None:
    write(
        "nest.py",
        "import torch\nfrom typing import NamedTuple\n"
        "class Two(NamedTuple):\n    a: object\n    b: object\n"
        "def build():\n    x = torch.rand(4)\n"
        "    return torch.nn.Linear(4, 1), ([x, (x, None)], Two(x, {'k': [x]}))\n",
    )
    first, second = load("nest.py", "float64").make_inputs(0).args
    import torch

    assert type(second).__name__ == "Two"
    assert (type(first), type(first[1]), type(second.b)) == (list, tuple, dict)
    assert {t.dtype for t in (first[0], first[1][0], second.a, second.b["k"][0])} == {torch.float64}


# ---- the golden copy ----


def test_golden_has_the_values_of_the_model_it_judges(write: Write) -> None:
    import torch

    write("fixed.py")
    built = case("fixed.py", dtype="float16")
    place = {"device": torch.device("cpu"), "dtype": torch.float16}
    narrow = loading.build_workload(built, **place)
    golden = loading.build_golden(built, **place)
    assert golden.module.weight.dtype is torch.float64
    assert golden.module.weight.equal(narrow.module.weight.double())
    wide, values = golden.make_inputs(1).args[0], narrow.make_inputs(1).args[0]
    assert wide.dtype is torch.float64
    assert wide.equal(values.double())
    assert golden.module(wide).dtype is torch.float64


# ---- sources ----


def test_sources_name_the_users_files_and_helpers(write: Write, folder: Path) -> None:
    """Case 43: an edit in a helper changes the hashes."""
    write("far/deep/helper.py", "value = 1\n")
    write("far/deep/__init__.py", "")
    write("far/model.py", "import deep.helper\n" + LINEAR)
    load("far/model.py")
    first = loading.source_hashes()
    mine = {name for name in first if not name.startswith(("tests/", "benchbench/"))}
    assert {"model.py", "deep/helper.py", "deep/__init__.py"} <= mine
    assert not any("site-packages" in name or name.endswith("json/__init__.py") for name in first)
    write("far/deep/helper.py", "value = 2\n")
    second = loading.source_hashes()
    assert {name for name in first if first[name] != second[name]} == {"deep/helper.py"}


def test_sources_of_a_shipped_model_are_its_family() -> None:
    path = "benchbench.models.mlp.build"
    load(path)
    load("benchbench.models.bert.build", seq_len=8)
    ours = {name for name in loading.source_hashes(path) if name.startswith("benchbench/")}
    assert ours == {"benchbench/models/mlp.py", "benchbench/models/common.py"}
    assert "benchbench/models/bert.py" in loading.source_hashes()


def test_shipped_models_load_through_their_targets() -> None:
    workload = load(
        "benchbench.models.llama.build",
        workload="decode",
        seq_len=8,
        batch_size=2,
        options={"num_hidden_layers": 1},
    )
    assert workload.max_calls == 128
    with pytest.raises(LoadError, match="did you mean 'num_hidden_layers'"):
        load(
            "benchbench.models.llama.build",
            seq_len=8,
            workload="prefill",
            options={"num_hidden_layer": 1},
        )


def test_no_broad_except_in_the_loader() -> None:
    """An except that turns a defect of the user's file into 'not found' would be the worst."""
    for module in ("loading", "targets", "inputs", "sources"):
        tree = ast.parse((Path(loading.__file__).parent / f"{module}.py").read_text())
        caught = [node.type for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)]
        names = {ast.unparse(kind) for kind in caught if kind is not None}
        assert None not in caught
        assert not names & {"Exception", "BaseException", "ImportError", "ModuleNotFoundError"}


def test_inputs_is_plain_data() -> None:
    assert [field.name for field in dataclasses.fields(Inputs)] == ["args", "kwargs"]
