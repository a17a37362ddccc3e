"""The options that locate a table: `url`, a JDBC URL of PostgreSQL, and `table-name`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote

from everfold.connectors.options import OptionValues, wrong_option_error
from everfold.plan.nodes import Table

PREFIX = "jdbc:postgresql:"
_SETTINGS = {
    "user": "user", "sslmode": "sslmode", "sslrootcert": "sslrootcert", "sslcert": "sslcert", "sslkey": "sslkey",
    "ApplicationName": "application_name", "channelBinding": "channel_binding", "gssEncMode": "gssencmode",
    "connectTimeout": "connect_timeout", "loginTimeout": "connect_timeout", "options": "options",
}  # fmt: skip
"""Parameters of pgJDBC, and their names in libpq."""
_SERVERS = {"any": "any", "primary": "primary", "secondary": "standby", "preferSecondary": "prefer-standby"}
_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a database.

    servers: hosts and ports. settings: of libpq, including secrets. unused: parameters of the URL
    that have no effect.
    """

    servers: str
    settings: Mapping[str, str] = field(repr=False)
    search_path: str | None = None
    unused: tuple[str, ...] = ()

    def with_user(self, user: str | None, password: str | None) -> Address:
        """Return the address with this user and password instead of those of the URL."""
        given = {"user": user, "password": password}
        settings = {**self.settings, **{key: value for key, value in given.items() if value is not None}}
        return Address(self.servers, settings, self.search_path, self.unused)


def parse_url(url: str) -> Address:
    """Parse `jdbc:postgresql://host:port,host2:port2/database?parameter=value`.

    Raises ValueError; its message never contains the URL.
    """
    if not url.startswith(PREFIX):
        raise ValueError("it must be `jdbc:postgresql://host:port/database`: other databases are not supported yet")
    if "\0" in url:
        raise ValueError("it contains a character that is not allowed in a URL")
    rest, _, query = url[len(PREFIX) :].partition("?")
    hosts, ports, database = "localhost", "5432", rest
    if rest.startswith("//"):
        authority, _, database = rest[2:].partition("/")
        hosts, ports = _servers(authority)
    settings = {"host": hosts, "port": ports}
    if unquote(database):
        settings["dbname"] = unquote(database)
    search_path: str | None = None
    unused = []
    for name, value in parse_qsl(query, keep_blank_values=True):
        if "password" in name.lower():
            raise ValueError("it contains a password, but URLs are printed: use the option `password`")
        if name in _SETTINGS:
            settings[_SETTINGS[name]] = value
        elif name == "currentSchema":
            search_path = value
        elif name == "ssl":
            if value.lower() in ("", "true"):
                settings.setdefault("sslmode", "verify-full")
        elif name == "targetServerType" and value in _SERVERS:
            settings["target_session_attrs"] = _SERVERS[value]
        else:
            unused.append(name)
    servers = ",".join(f"{host}:{port}" for host, port in zip(hosts.split(","), ports.split(","), strict=True))
    return Address(servers, settings, search_path, tuple(unused))


def _servers(authority: str) -> tuple[str, str]:
    hosts, ports = [], []
    for server in authority.split(","):
        if "@" in server:
            raise ValueError("it contains a user before the host: use the options `username` and `password`")
        host, bracket, port = server.rpartition("]") if server.startswith("[") else ("", "", server)
        if bracket:
            host, port = host[1:], port.removeprefix(":")
        else:
            host, _, port = server.partition(":")
        if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise ValueError("its port is not a number from 1 to 65535")
        hosts.append(host or "localhost")
        ports.append(port or "5432")
    return ",".join(hosts), ",".join(ports)


def address_of(options: OptionValues) -> Address:
    """Return the address of the database, with user and password."""
    address = parse_url(options.string("url"))
    return address.with_user(options.string_or_none("username"), options.string_or_none("password"))


def locate_table(table: Table, options: OptionValues) -> str:
    """Return the servers, the database and the table in a normalized spelling."""
    address = address_of(options)
    servers = ",".join(sorted(address.servers.lower().split(",")))
    database = address.settings.get("dbname") or address.settings.get("user", "")
    parts = name_parts(table, options.string("table-name"))
    name = ".".join(part if quoted else part.lower() for part, quoted in parts)
    if len(parts) == 1 and address.search_path:
        name = f"{address.search_path}.{name}"
    return f"{servers}/{database}/{name}"


def name_parts(table: Table, name: str) -> tuple[tuple[str, bool], ...]:
    """Return the schema (if given) and the name of the table, each with whether it is quoted.

    Raises SqlError `wrong-option-value` for anything else.
    """
    found, at = [], 0
    while (part := _PART.match(name, at)) is not None and "\0" not in name:
        quoted, plain = part.groups()
        found.append((quoted.replace('""', '"'), True) if quoted is not None else (plain, False))
        at = part.end()
        if at == len(name):
            break
        if name[at] != ".":
            found.clear()
            break
        at += 1
    if at != len(name) or not 1 <= len(found) <= 2:
        raise wrong_option_error(
            table, "table-name", 'option `table-name` takes `name` or `schema.name`, each part in `"…"` if necessary'
        )
    return tuple(found)
