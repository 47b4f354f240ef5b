"""Storage options of object stores: object_store's keys, and the equivalent keys of fsspec."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from txlog.base.errors import InvalidInputError, not_installed
from txlog.base.texts import without_secrets_within
from txlog.base.uris import scheme_of
from txlog.store.base import kind_of

BACKEND = "txlog.backend"  # The value is `obstore` or `fsspec`.
UNITY = "txlog.unity"
"""The storage option of a table of Unity Catalog, which gives the credentials: a `UnityTable`."""

# The options of fsspec's file systems by kind, with obstore's names. None: the option is ignored.
_FROM_FSSPEC: dict[str, dict[str, str | None]] = {
    "s3": {
        "key": "access_key_id", "secret": "secret_access_key", "token": "session_token",
        "endpoint_url": "endpoint", "anon": "skip_signature", "requester_pays": "request_payer",
        "use_ssl": None,
    },
    "gs": {"endpoint_url": "base_url", "project": None, "access": None},
    "az": {
        "account_name": "account_name", "account_key": "account_key", "sas_token": "sas_token",
        "tenant_id": "tenant_id", "client_id": "client_id", "client_secret": "client_secret",
        "anon": "skip_signature", "account_host": None,
    },
}  # fmt: skip
_LISTINGS = ("use_listings_cache", "skip_instance_cache", "asynchronous", "default_block_size",
             "default_cache_type", "listings_expiry_time", "max_paths")  # fmt: skip

# Options that only fsspec has, so they select it.
_ONLY_FSSPEC = {"profile", "session", "config_kwargs", "s3_additional_kwargs", "credential",
                "client_kwargs", "default_fill_cache", "version_aware", "loop"}  # fmt: skip

# Options of deltalake that its object_store does not have.
_OF_OTHERS = re.compile(
    r"(aws_)?(s3_)?(allow_unsafe_rename|locking_provider|force_credential_load)$"
    r"|delta_dynamo_|dynamo_|mount_allow_unsafe_rename|.*_dynamodb$|oncedel_|backoff_config\."
)
_TO_S3FS = {"access_key_id": "key", "secret_access_key": "secret", "session_token": "token"}
_TO_ADLFS = {"account_name": "account_name", "account_key": "account_key", "sas_key": "sas_token",
             "sas_token": "sas_token", "tenant_id": "tenant_id", "client_id": "client_id",
             "client_secret": "client_secret"}  # fmt: skip


class Place(NamedTuple):
    """The location of a file in an object store."""

    kind: str  # `s3`, `gs` or `az`.
    bucket: str  # The bucket; for Azure, the container.
    account: str | None  # The account for Azure, if the URI names it.
    key: str  # Literal, without a slash at either end; empty for the bucket itself.


def place_of(uri: str) -> Place:
    """Parse a URI: `s3://bucket/key`, `abfss://container@account.host/key`.

    Raises
    ------
    InvalidInputError
        The URI names no bucket.
    """
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    account = None
    kind = kind_of(scheme.lower())
    if "@" in bucket:
        user, _, host = bucket.partition("@")
        if kind == "az":
            bucket, account = user, host.partition(".")[0]
        else:  # Credentials in a URI are ignored.
            bucket = host
    if not bucket or kind is None:
        raise InvalidInputError(
            argument="uri",
            reason=f"{uri!r} names no bucket",
            remedy="Write scheme://bucket/folder",
        )
    return Place(kind, bucket, account, key.strip("/"))


def is_for_obstore(uri: str, options: Mapping[str, Any]) -> bool:
    """Return whether to use obstore: it is installed and knows the options."""
    if kind_of(scheme_of(uri) or "") is None:
        return False
    if UNITY in options:  # Only obstore asks for new credentials while a table is open.
        return True
    chosen = options.get(BACKEND)
    if chosen not in (None, "obstore", "fsspec"):
        raise InvalidInputError(
            argument="storage_options",
            field=BACKEND,
            reason=f"{chosen!r} is not a backend",
            remedy="Choose 'obstore' or 'fsspec', or omit the option",
        )
    if chosen is not None:
        return bool(chosen == "obstore")
    from importlib.util import find_spec

    if find_spec("obstore") is None:
        return False
    clients = options.get("client_kwargs")
    simple = isinstance(clients, Mapping) and {*clients} <= {"endpoint_url", "region_name"}
    return not (_ONLY_FSSPEC - ({"client_kwargs"} if simple else set())) & {*options}


def connect(place: Place, options: Mapping[str, Any]) -> Any:
    """Return obstore's client of a bucket. This sends no request.

    Raises
    ------
    InvalidInputError
        An option is unknown or has an invalid value.
    UnsupportedFeatureError
        obstore is not installed.
    """
    try:
        from obstore import store as obstore
    except ImportError as error:
        reason = f"a package for {place.kind}:// is missing: {error}"
        raise not_installed("cloud", place.kind, reason, path=place.bucket) from error
    config, retries = obstore_config(place.kind, options)
    if place.account is not None and not any("account_name" in name for name in config):
        config["account_name"] = place.account
    made = {"s3": obstore.S3Store, "gs": obstore.GCSStore, "az": obstore.AzureStore}[place.kind]
    more: dict[str, Any] = {}
    if UNITY in options:  # The catalog gives credentials, and renews them.
        more["credential_provider"] = options[UNITY].provider(place.kind)
    try:
        return made(place.bucket, config=config, retry_config=retries or None, **more)
    except Exception as error:
        name = next((one for one in config if f"'{one}'" in str(error)), None)
        message = str(error).partition("\n\nDebug source")[0].strip()
        raise InvalidInputError(
            argument="storage_options",
            field=name,
            reason=without_options(message, options),
            remedy="Use object_store's keys, such as AWS_REGION or azure_storage_account_name",
        ) from None


def obstore_config(kind: str, options: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """Return obstore's configuration and its retry settings. Pure."""
    config: dict[str, str] = {}
    retries: dict[str, Any] = {}
    for given, value in options.items():
        name = str(given).lower()
        if name.startswith("txlog.") or value is None or _OF_OTHERS.match(name):
            continue
        if name == "max_retries":
            retries["max_retries"] = int(value)
        elif name == "retry_timeout":
            retries["retry_timeout"] = _seconds(value)
        elif name == "client_kwargs" and isinstance(value, Mapping):
            config.update(_of_botocore(value))
        elif name == "connection_string" or name.endswith("storage_connection_string"):
            config.update(_of_connection_string(str(value)))
        elif kind == "gs" and name == "token":
            config.update(_of_google_token(value))
        elif given in _FROM_FSSPEC[kind] or given in _LISTINGS:
            option = _FROM_FSSPEC[kind].get(given)
            if option is not None:
                config[option] = _text(value)
        else:
            config[name] = _text(value)
    if any(
        name.endswith(("endpoint", "endpoint_url", "base_url")) and value.startswith("http://")
        for name, value in config.items()
    ) and ({"endpoint_url", "client_kwargs"} & {*options} or "connection_string" in options):
        config.setdefault("allow_http", "true")  # fsspec does not need this option.
    return config, retries


def fsspec_options(kind: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options for fsspec, translated from object_store's keys. Pure."""
    if kind is None:
        return dict(options)
    own: dict[str, Any] = {}
    clients: dict[str, Any] = dict(options.get("client_kwargs") or {})
    for given, value in options.items():
        name = str(given).lower()
        short = re.sub(r"^(aws|google|azure)_(storage_)?", "", name)
        if kind == "s3" and (name.startswith("aws_") or name in ("region", "allow_http")):
            if short in _TO_S3FS:
                own[_TO_S3FS[short]] = value
            elif short in ("endpoint", "endpoint_url", "endpoint_url_s3"):
                own["endpoint_url"] = value
            elif short in ("region", "default_region"):
                clients["region_name"] = value
            elif short == "skip_signature":
                own["anon"] = _text(value) == "true"
        elif kind == "gs" and name.startswith("google_"):
            if short in ("service_account", "application_credentials", "service_account_path"):
                own["token"] = value
            elif short == "service_account_key":
                own["token"] = json.loads(value)
            elif short == "base_url":
                own["endpoint_url"] = value
            elif short == "skip_signature" and _text(value) == "true":
                own["token"] = "anon"
        elif kind == "az" and name.startswith("azure_"):
            if short in _TO_ADLFS:
                own[_TO_ADLFS[short]] = value
            elif short == "connection_string":
                own["connection_string"] = value
        elif not _OF_OTHERS.match(name) and name != "client_kwargs":
            own[given] = value
    if clients:
        own["client_kwargs"] = clients
    return own


def without_options(text: str, options: Mapping[str, Any]) -> str:
    """Return a backend's message without option values that it may quote."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            text = without_options(text, value)
        elif isinstance(value, str) and len(value) > 3 and not _is_shown(str(name), value):
            text = text.replace(value, "…")
    return without_secrets_within(text)


def _is_shown(name: str, value: str) -> bool:
    """Return whether a value is an address or a region, which a message may show."""
    return (
        bool(re.search(r"(endpoint|endpoint_url|base_url|region)(_s3)?$", name.lower()))
        and "@" not in value
        and "?" not in value
    )


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _seconds(value: Any) -> timedelta:
    return timedelta(seconds=float(str(value).removesuffix("s")))


def _of_botocore(clients: Mapping[str, Any]) -> dict[str, str]:
    names = {"endpoint_url": "endpoint", "region_name": "region"}
    return {names[name]: str(value) for name, value in clients.items() if name in names}


def _of_connection_string(text: str) -> dict[str, str]:
    parts = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
    names = {
        "AccountName": "account_name", "AccountKey": "account_key", "BlobEndpoint": "endpoint",
        "SharedAccessSignature": "sas_token",
    }  # fmt: skip
    return {names[name]: value for name, value in parts.items() if name in names}


def _of_google_token(token: Any) -> dict[str, str]:
    if isinstance(token, Mapping):
        return {"service_account_key": json.dumps(dict(token))}
    if token == "anon":
        return {"skip_signature": "true"}
    if token in ("google_default", "cache", "cloud"):
        return {}
    return {"service_account": str(token)}
