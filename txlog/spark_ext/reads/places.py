"""The paths of data files for Spark, which contain constants of the files.

Spark takes constants of a file from the names of its folders: for `p=1/`, column `p` is 1. The
folders of a Delta table have no such meaning, so each file gets a *virtual* path with such folders.
Hadoop's ViewFs, a file system of mount points, resolves it to the real path. Rules: spec/spark.md,
SPK-3 to SPK-5.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc

from txlog.base.errors import UnsupportedFeatureError
from txlog.base.moments import format_moment
from txlog.log.paths import decode_path
from txlog.schema.types import DataType, DecimalType, PrimitiveType, StructField
from txlog.stats.partition import format_partition_values
from txlog.store.base import Store, is_confined
from txlog.store.open import require_allowed

FRAGMENT_COLUMN = "_txlog_fragment"  # The last virtual folder.

_LOCAL_FILES = "/_txlog_local"

# The schemes of stores in Hadoop.
_HADOOP_SCHEMES = {"s3": "s3a", "s3n": "s3a", "gcs": "gs"}
_HADOOP = frozenset(
    {"file", "hdfs", "viewfs", "webhdfs", "s3a", "gs", "abfs", "abfss", "wasb", "wasbs", "oss",
     "cosn", "obs", "ofs", "o3fs", "dbfs"}
)  # fmt: skip

# A relative path in a log that is also a valid URI.
_STEP = r"(?:[A-Za-z0-9_\-.=+,:@~!$&'()*;]|%[0-9A-Fa-f]{2})+"
_PLAIN = f"^{_STEP}(?:/{_STEP})*$"
_DOTTED = r"(?:^|/)\.\.?(?:/|$)|^[A-Za-z][A-Za-z0-9+.\-]*:"
# Names of files that Spark treats as hidden, and colons, which Hadoop does not allow in paths.
_ODD_NAME = r"(?:^|/)(?:[_.]|%5F|%2E)[^/]*$|(?::|%3A)[^/]*$"
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://([^/]*)(/.*)?", re.DOTALL)
_ROOT = r"^(?P<root>[A-Za-z][A-Za-z0-9+.\-]*://[^/]*)"

# Characters with a special meaning for Spark in the name of a folder.
_ESCAPED = re.compile("[\x00-\x1f\x7f\"#%'*/:=?\\\\{\\[\\]^]")


@dataclass(frozen=True)
class Volume:
    """A file system in Hadoop: a scheme and an authority."""

    scheme: str
    authority: str

    @property
    def uri(self) -> str:
        """The URI of the volume's root, without a slash at the end."""
        return f"{self.scheme}://{self.authority}"

    @property
    def mount(self) -> str:
        """The name of the mount table that maps virtual folders to the volume."""
        text = re.sub(r"[^a-z0-9]+", "-", f"{self.scheme}-{self.authority}".lower()).strip("-")
        digest = hashlib.sha256(self.uri.encode()).hexdigest()[:8]
        return f"txlog-{text}-{digest}"

    @property
    def root(self) -> str:
        """The beginning of all virtual URIs of the volume."""
        return f"viewfs://{self.mount}/"

    @property
    def settings(self) -> dict[str, str]:
        """The settings with which Hadoop resolves the virtual paths of the volume.

        The folders of the real path follow the virtual ones, encoded, so that Spark sees no `=` in
        them. Hadoop decodes the text of the group, because it inserts it into a URI. Local files
        have a separate link, because manifests are local and Spark searches for them below
        `basePath`.
        """
        mount = f"fs.viewfs.mounttable.{self.mount}"
        folders = rf"^/(?s:.*?){FRAGMENT_COLUMN}=-?\d+(?<txlogFolders>(?:/[^/]+)*)(?=/[^/]+$)"
        return {
            f"{mount}.linkRegex.{folders}": f"{self.uri}${{txlogFolders}}/",
            f"{mount}.link.{_LOCAL_FILES}": "file:///",
        }

    def local(self, path: str) -> str:
        """Return the virtual URI of a local file from its absolute path."""
        return f"{self.root.rstrip('/')}{_LOCAL_FILES}{path}"


def volume_of(root: str) -> tuple[Volume, str]:
    """Return the volume of a table's root, and the root's folder in it, percent-encoded.

    Raises
    ------
    UnsupportedFeatureError
        Hadoop has no file system for the store.
    """
    if root.startswith("/"):
        return Volume("file", ""), quote(root.rstrip("/"))
    found = _URI.fullmatch(root)
    scheme = found[1].lower() if found else ""
    if found is None or _HADOOP_SCHEMES.get(scheme, scheme) not in _HADOOP:
        raise UnsupportedFeatureError(
            path=root,
            features=(scheme or root,),
            reason="Spark's own reader uses Hadoop's file systems, and Hadoop has none for this "
            "store",
            remedy='Use spark.read.format("txlog")',
        )
    volume = Volume(_HADOOP_SCHEMES.get(scheme, scheme), found[2])
    return volume, quote((found[3] or "").rstrip("/"))


def locations(paths: pa.Array, store: Store) -> pa.Table:
    """Return where files are, from paths in the log: `volume`, `folder` (from `/` on) and `name`.

    `folder` and `name` are percent-encoded, as in a URI. `volume` is dictionary-encoded text.

    Raises
    ------
    UnsupportedFeatureError
        The table may not refer to such a path, or Hadoop has no file system for it.
    """
    volume, base = volume_of(store.root)
    plain = pc.and_(
        pc.match_substring_regex(paths, _PLAIN),
        pc.invert(pc.match_substring_regex(paths, _DOTTED)),
    )
    whole = pc.binary_join_element_wise(base, paths, "/")
    volumes = pa.repeat(pa.scalar(volume.uri), len(paths))
    if is_confined(store.options):  # Each path may be a symbolic link.
        plain = pa.repeat(pa.scalar(False), len(paths))
    if not pc.all(plain).as_py():
        odd = pc.invert(plain)
        found = [_location(path, store, volume, base) for path in paths.filter(odd).to_pylist()]
        whole = pc.replace_with_mask(whole, odd, pa.array([path for _, path in found], pa.string()))
        volumes = pc.replace_with_mask(
            volumes, odd, pa.array([where for where, _ in found], pa.string())
        )
    split = pc.extract_regex(whole, r"^(?P<folder>.*)/(?P<name>[^/]*)$")
    return pa.table(
        {
            "volume": volumes.dictionary_encode(),  # Without files, the dictionary is empty.
            "folder": pc.struct_field(split, "folder"),
            "name": pc.struct_field(split, "name"),
        }
    )


def _location(path: str, store: Store, volume: Volume, base: str) -> tuple[str, str]:
    """Return the volume's URI and the encoded path, for a path that is not a relative URI."""
    decoded = decode_path(path)
    require_allowed(store, decoded)
    if is_confined(store.options):
        store.resolve(decoded)  # Raises if a link leads out of the table's folder.
    found = _URI.fullmatch(decoded)
    if found is not None:
        other, folder = volume_of(decoded)
        return other.uri, folder
    if decoded.startswith("/"):
        return Volume("file", "").uri if volume.scheme == "file" else volume.uri, quote(decoded)
    return volume.uri, f"{base}/{quote(decoded)}"


def uris_in(paths: pa.Array | pa.ChunkedArray) -> list[str]:
    """Return one path, decoded, for each store that paths in a log name, such as `s3://bucket`."""
    roots = pc.struct_field(pc.extract_regex(paths, _ROOT), "root")
    named = roots.unique().drop_null()
    return [decode_path(paths[pc.index(roots, root).as_py()].as_py()) for root in named]


def passed_over(files: pa.Table) -> bool:
    """Return whether Spark would skip, or not find, a file of `FILE_ROWS` by its name or size."""
    odd = pc.match_substring_regex(files["path"], _ODD_NAME, ignore_case=True)
    return bool(pc.any(pc.or_(odd, pc.less_equal(files["size"], 0))).as_py())


def parse_volume(uri: str) -> Volume:
    """Return the volume of a URI that `locations` returned."""
    scheme, _, authority = uri.partition("://")
    return Volume(scheme, authority)


def real_uris(where: pa.Table, volume: Volume) -> pa.Array:
    """Return the URIs of files of one volume."""
    return pc.binary_join_element_wise(
        volume.uri, pc.binary_join_element_wise(where["folder"], where["name"], "/"), ""
    )


def virtual_uris(
    where: pa.Table, volume: Volume, ids: pa.Array | None, constants: list[Constant]
) -> pa.Array:
    """Return virtual URIs of files of one volume, with their constants and fragment ids.

    Without `ids`, files with the same constants and the same real folder have the same virtual
    folder. Spark parses each folder once, so this is much faster for many files.
    """
    parts = [pa.repeat(pa.scalar(volume.root.rstrip("/")), where.num_rows)]
    for constant in constants:
        texts = constant.texts.dictionary_encode()
        folders = [
            NULL_FOLDER if text is None else folder_text(text)
            for text in texts.dictionary.to_pylist()
        ]
        encoded = [quote(f"/{constant.name}={folder}") for folder in folders]
        absent = quote(f"/{constant.name}={NULL_FOLDER}")
        parts.append(pc.fill_null(pa.array(encoded, pa.string()).take(texts.indices), absent))
    own = pa.scalar("0") if ids is None else ids.cast(pa.string())
    parts.append(pc.binary_join_element_wise(f"/{FRAGMENT_COLUMN}%3D", own, ""))
    folders = where["folder"].combine_chunks().dictionary_encode()
    hidden = [_hidden(text) for text in folders.dictionary.to_pylist()]
    parts.append(pa.array(hidden, pa.string()).take(folders.indices))
    parts.append(pc.binary_join_element_wise("/", where["name"].combine_chunks(), ""))
    return pc.binary_join_element_wise(*parts, "")


def _hidden(folder: str) -> str:
    """Return an encoded folder, encoded again to hide names with a special meaning for Spark.

    Such names contain `=`, or are `_temporary`. Hadoop decodes the text once.
    """
    return quote(quote(unquote(folder))).replace("_", "%255F")


def folder_text(text: str) -> str:
    """Return a partition value as Spark writes it in the name of a folder."""
    if text == NULL_FOLDER:
        return "%5F" + text[1:]  # It is a text and not null. Spark compares before it decodes.
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"  # The name of a folder that Spark reads as null.

_SQL_NAMES = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT"}


@dataclass(frozen=True)
class Constant:
    """A constant of each file in virtual folders: its texts, and SQL that converts a text."""

    name: str  # The name in folders and of Spark's column.
    texts: pa.Array
    sql: str
    kind: str = "string"  # The type to which Spark converts the text.


def partition_text(name: str, values: pa.Array, column: StructField) -> Constant:
    """Return the values of a partition column as texts that SQL converts in any time zone."""
    return Constant(name, _texts(values, column.type), _sql(f"`{name}`", column.type))


def _texts(values: pa.Array, kind: DataType) -> pa.Array:
    encoded = values.dictionary_encode()
    distinct = encoded.dictionary
    match kind:
        case PrimitiveType("date"):
            found = distinct.cast(pa.int32()).cast(pa.string())
        case PrimitiveType("timestamp"):
            found = distinct.cast(pa.int64()).cast(pa.string())
        case PrimitiveType("timestamp_ntz"):
            micros = distinct.cast(pa.int64()).to_pylist()
            texts = [format_moment(value, digits=6, separator=" ") for value in micros]
            found = pa.array(texts, pa.string())
        case PrimitiveType("binary"):
            found = pa.array([value.hex() for value in distinct.to_pylist()], pa.string())
        case _:
            found = format_partition_values(distinct, kind)
    return pc.take(found, encoded.indices)


def _sql(text: str, kind: DataType) -> str:
    match kind:
        case PrimitiveType("string"):
            return text
        case PrimitiveType("date"):
            return f"date_from_unix_date(CAST({text} AS INT))"
        case PrimitiveType("timestamp"):
            return f"timestamp_micros(CAST({text} AS BIGINT))"
        case PrimitiveType("binary"):
            return f"unhex({text})"
        case DecimalType(precision, scale):
            return f"CAST({text} AS DECIMAL({precision},{scale}))"
        case PrimitiveType(name):
            return f"CAST({text} AS {_SQL_NAMES.get(name, name.upper())})"
    raise TypeError(f"{kind} is not a type of a partition column")
