"""Pickles of arrays are read; a pickle that asks for anything else does not run."""

import io
import os
import pickle
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pmeta.data.importers import pickles
from pmeta.data.importers.pickles import load_dict, load_pickle


def load(data: bytes):
    return load_pickle(io.BytesIO(data), "x.pkl")


CONTENT = {
    "bytes": np.arange(12, dtype=np.uint8).reshape(3, 4),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "big endian": np.arange(3, dtype=">i4"),
    "strings": np.array(["ab", "c"]),
    "empty": np.zeros((0, 3), np.int32),
    "no axes": np.array(5),
    "many": [np.float32(2.5), np.int64(7), 1, -3.5, "x", b"y", b"", None, True],
    "nested": {"a": [(1, 2), {"b": np.ones(2, bool)}]},
}


def assert_same(got, want):
    if isinstance(want, np.ndarray):
        assert isinstance(got, np.ndarray)
        assert got.dtype.newbyteorder("=") == want.dtype.newbyteorder("=")
        assert np.array_equal(got, want)
    elif isinstance(want, dict):
        assert list(got) == list(want)
        for key in want:
            assert_same(got[key], want[key])
    elif isinstance(want, list | tuple):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            assert_same(g, w)
    else:
        assert got == want


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_and_containers_come_back(protocol):
    assert_same(load(pickle.dumps(CONTENT, protocol)), CONTENT)


def test_both_names_of_numpys_core_are_known():
    data = pickle.dumps(CONTENT["bytes"], 2)
    new, old = b"numpy._core.multiarray", b"numpy.core.multiarray"
    assert new in data
    assert_same(load(data.replace(new, old)), CONTENT["bytes"])


def python2_array(array: np.ndarray) -> bytes:
    """A small uint8 array by cPickle of Python 2, protocol 2: strings are SHORT_BINSTRING."""

    def number(n: int) -> bytes:
        return b"M" + n.to_bytes(2, "little")

    shape = b"(" + b"".join(number(n) for n in array.shape) + b"t"
    dtype = (
        b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    data = array.tobytes()
    made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    return (
        made + b"(K\x01" + shape + dtype + b"\x89T" + len(data).to_bytes(4, "little") + data + b"tb"
    )


def test_pickles_of_python_2_come_back():
    array = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    data = b"\x80\x02}(U\x0aimage_data" + python2_array(array) + b"U\x05names](U\x01aU\x01beu."
    found = load_dict(io.BytesIO(data), ("image_data", "names"))
    assert_same(found["image_data"], array)
    assert found["names"] == [b"a", b"b"]


class Call:
    """Pickles as a call of `function`."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


def hostile(trace: str) -> dict[str, object]:
    touch = f"open({trace!r}, 'w').close()"
    objects = np.empty(1, dtype=object)
    objects[0] = Call(os.system, f"touch {trace}")
    return {
        "system": Call(os.system, f"touch {trace}"),
        "eval": Call(eval, touch),
        "exec": Call(exec, touch),
        "open": Call(open, trace, "w"),
        "popen": Call(subprocess.Popen, ["touch", trace]),
        "getattr": Call(getattr, "", "join"),
        "import": Call(__import__, "antigravity"),
        "path": Call(Path.touch, Path(trace)),
        "nested": {"image_data": [np.zeros(3), (1, {"deep": Call(os.system, f"touch {trace}")})]},
        "object array": objects,
        "load": Call(np.load, trace),
        "unpickle": Call(pickle.loads, pickle.dumps(Call(os.system, f"touch {trace}"))),
        "fromfile": Call(np.fromfile, "/etc/passwd"),
        "memory": Call(bytearray, 10**12),
        "class": Call(type, "T", (), {}),
    }


@pytest.mark.parametrize("kind", hostile("x"))
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_hostile_pickle_does_not_run(kind, protocol, tmp_path):
    trace = tmp_path / "it_ran"
    data = pickle.dumps(hostile(str(trace))[kind], protocol)
    with pytest.raises(
        ValueError,
        match=r"^x\.pkl asks for .*, and only numpy arrays and plain containers are read: do not",
    ):
        load(data)
    assert not trace.exists()


def test_the_hostile_pickles_of_this_test_do_run_elsewhere(tmp_path):
    pickle.loads(pickle.dumps(hostile(str(tmp_path / "ran"))["eval"]))
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"cos\nsystem\n(S'true'\ntR.", "os.system"),
        (b"(S'true'\nios\nsystem\n.", "os.system"),  # INST
        (b"(cos\nsystem\nS'true'\no.", "os.system"),  # OBJ
        (
            b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R.",
            "posix.system",
        ),  # STACK_GLOBAL
        (b"\x80\x04\x8c\x08builtins\x8c\x0cgetattr.evil\x93.", "builtins.getattr.evil"),
        (
            b"cnumpy.core.multiarray\nos.system\n.",
            "numpy.core.multiarray.os.system",
        ),  # a path through a module
        (
            b"cpmeta.data.importers.pickles\nload_pickle\n.",
            "pmeta.data.importers.pickles.load_pickle",
        ),
        (b"c_codecs\nencode\n(Vx\nVrot13\ntR.", "_codecs.encode to rot13"),
        (b"cnumpy\ndtype\n(VO8\nI0\nI1\ntR.", "numpy arrays of kind 'O8'"),
        (b"cnumpy\ndtype\n(VV8\nI0\nI1\ntR.", "numpy arrays of kind 'V8'"),
        (
            b"cnumpy\ndtype\n(Vu1\nI0\nI1\ntR(I3\nV|\nN(Va\nt(dI1\nI1\nI0\ntb.",
            "numpy arrays of records",
        ),
        (
            b"cnumpy\ndtype\n(Vu1\nI0\nI1\ntR(I3\nVx\nNNNI-1\nI-1\nI0\ntb.",
            "numpy arrays of byte order 'x'",
        ),
        (b"cnumpy\ndtype\n(VS0\nI0\nI1\ntR.", "numpy arrays of kind 'S0'"),
        (
            b"cnumpy.core.multiarray\n_reconstruct\n(tR(I1\n(I-2\nI-2\ntNI00\nS'abcd'\ntb.",
            "numpy arrays of shape (-2, -2)",
        ),
        (
            b"cnumpy.core.multiarray\n_reconstruct\n(tR(I1\n(I4\ntS'u1'\nI00\nS'abcd'\ntb.",
            "numpy arrays without a plain type",
        ),
        (b"ccollections\nOrderedDict\n(tR.", "collections.OrderedDict"),
        (b"c__builtin__\nset\n(lR.", "__builtin__.set"),
    ],
)
def test_every_other_way_in_is_closed(data, what):
    with pytest.raises(ValueError, match="asks for") as caught:
        load(data)
    assert f"x.pkl asks for {what}, and only" in str(caught.value)


def test_a_pickle_cannot_change_what_the_next_one_gets():
    evil = b"cnumpy.core.multiarray\n_reconstruct\n(NN}(S'__name__'\nS'evil'\nutb."
    with pytest.raises(ValueError, match=r"x\.pkl"):
        load(evil)
    assert_same(load(pickle.dumps(CONTENT, 4)), CONTENT)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        pickle.dumps(CONTENT)[:-20],
        b"\x80\x04P1\n.",
        b"cnumpy.core.multiarray\n_reconstruct\n(tRNb.",
    ],
)
def test_a_broken_pickle_is_named(data):
    with pytest.raises(
        ValueError, match=r"^x\.pkl is not a readable pickle \(.*\): copy it again\.$"
    ):
        load(data)


def test_an_array_smaller_than_it_says_is_refused():
    data = pickle.dumps(np.zeros(4, np.uint8), 2).replace(b"K\x04\x85", b"K\x40\x85")
    with pytest.raises(ValueError, match=r"not a readable pickle .*buffer size"):
        load(data)


def test_a_dict_with_the_wrong_keys_says_which_were_wanted(tmp_path):
    path = tmp_path / "x.pkl"
    path.write_bytes(pickle.dumps({"data": 1}))
    with pytest.raises(
        ValueError, match=r"x\.pkl must be a dict with image_data and class_dict, got data\.$"
    ):
        load_dict(path, ("image_data", "class_dict"))
    path.write_bytes(pickle.dumps([1]))
    with pytest.raises(ValueError, match=r"x\.pkl must be a dict with a, got list\.$"):
        load_dict(path, ("a",))


def shared_references(width: int, depth: int) -> bytes:
    """A list of lists that are all the same one: width^depth items in a few hundred bytes."""
    value: list[object] = [0] * width
    for _ in range(depth):
        value = [value] * width
    return pickle.dumps(value, 2)


def test_shared_references_stay_shared():
    data = shared_references(16, 12)
    assert len(data) < 1000
    value = load(data)
    for _ in range(12):
        assert all(part is value[0] for part in value)
        value = value[0]
    assert value == [0] * 16


def test_too_many_items_are_refused(monkeypatch):
    monkeypatch.setattr(pickles, "MOST_ITEMS", 100)
    assert len(load(pickle.dumps([0] * 20))) == 20
    with pytest.raises(ValueError, match=r"asks for more than 100 operations, more than any data"):
        load(pickle.dumps([0] * 200))


@pytest.mark.parametrize("place", [b"r\xff\xff\xff\x7f", b"p2147483647\n"])
def test_a_memo_with_a_far_place_is_refused(place):
    """CPython sets aside twice as many places as the largest number: here 32 GiB."""
    with pytest.raises(ValueError, match=r"asks for place 2,147,483,647 of the memo in operation"):
        load(b"\x80\x02N" + place + b".")


def test_copies_without_end_are_refused(monkeypatch):
    """encode() of one long string, named a thousand times."""
    string = pickle.dumps("x" * 10_000, 2)[2:-1]
    call = b"c_codecs\nencode\nq\x01X\x06\x00\x00\x00latin1q\x020"
    again = b"h\x01h\x00h\x02\x86R0" * 1000
    data = b"\x80\x02" + string + b"0" + call + b"0" + again + b"N."
    assert load(data) is None
    monkeypatch.setattr(pickles, "MOST_BYTES", 2**20)
    with pytest.raises(
        ValueError, match=r"asks for copies of more than its own size and 1,048,576"
    ):
        load(data)


@pytest.mark.parametrize("name", [7, None, ["a"]])
def test_a_name_that_is_no_string(name):
    with pytest.raises(ValueError, match=r"^names in a pickle are strings, got"):
        pickles.text(name)
