"""TravelPlanner's data base: the tables that a plan is checked against.

Read with the standard library as the official tools read them with pandas: rows with a missing value
are left out of every table but the distances, rows keep the order of the file, and a name is looked for
as a part of a row's name within one city, the first such row giving price and properties.
"""

from __future__ import annotations

import csv
import dataclasses
import itertools
import math
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

# What pandas reads as a missing value (`pandas.read_csv`, na_values).
_MISSING = frozenset(
    "|#N/A|#N/A N/A|#NA|-1.#IND|-1.#QNAN|-NaN|-nan|1.#IND|1.#QNAN|<NA>|N/A|NA|NULL|NaN|None|n/a|nan"
    "|null".split("|")
)
_CHUNK = 100_000  # rows of a flight table that are held as Python objects
_LENGTH = re.compile(r"[0-9][0-9,]*(?:[.][0-9]+)? ?km")
_CAR_SEATS = 5
_TAXI_SEATS = 4


class Restaurant(NamedTuple):
    """One restaurant; `cost` is the average of a meal in dollars, `cuisines` a list in one text."""

    name: str
    city: str
    cost: float
    cuisines: str


class Attraction(NamedTuple):
    """One attraction."""

    name: str
    city: str


class Accommodation(NamedTuple):
    """One accommodation; `price` is dollars a night for a room of `guests` people."""

    name: str
    city: str
    price: float
    room_type: str
    rules: str
    nights: float
    guests: float

    def cost(self, people: int) -> float:
        """Dollars a night for as many rooms as `people` need."""
        return self.price * math.ceil(people / self.guests)


class Flight(NamedTuple):
    """One flight; `price` is dollars a person, `date` as 2022-03-16, times as 15:40."""

    number: str
    price: float
    departure: str
    arrival: str
    date: str
    origin: str
    destination: str


Place = Restaurant | Attraction | Accommodation
Row = TypeVar("Row", Restaurant, Attraction, Accommodation, Flight)

# The columns of each kind of row, in the order of its fields.
_COLUMNS: Mapping[type, Sequence[str]] = {
    Restaurant: "Name|City|Average Cost|Cuisines".split("|"),
    Attraction: "Name|City".split("|"),
    Accommodation: (
        "NAME|city|price|room type|house_rules|minimum nights|maximum occupancy".split("|")
    ),
    Flight: (
        "Flight Number|Price|DepTime|ArrTime|FlightDate|OriginCityName|DestCityName".split("|")
    ),
}
_NUMBERS = ("Average Cost", "Price", "price", "minimum nights", "maximum occupancy")


def read_row(kind: type[Row], record: Mapping[str, Any]) -> Row:
    """A row of a table or of the reference information; ValueError says what is wrong with the record."""
    values = []
    for column in _COLUMNS[kind]:
        if column not in record:
            raise ValueError(f"no column {column!r}")
        values.append(float(record[column]) if column in _NUMBERS else record[column])
    return kind(*values)


def text_of(place: Place) -> str:
    """A place as plans name it."""
    return f"{place.name}, {place.city}"


class Drive(NamedTuple):
    """The road between two cities, in the words of the data base ("2 hours 3 mins", "317 km")."""

    duration: str
    distance: str

    @property
    def kilometres(self) -> float:
        """Length of the road."""
        return float(self.distance.replace("km", "").replace(",", ""))

    def car_cost(self, people: int = 1) -> int:
        """Dollars for as many cars as `people` need."""
        return int(self.kilometres * 0.05) * math.ceil(people / _CAR_SEATS)

    def taxi_cost(self, people: int = 1) -> int:
        """Dollars for as many taxis as `people` need."""
        return int(self.kilometres) * math.ceil(people / _TAXI_SEATS)


class FlightTable:
    """Flights in columns, so that the official table of 3.8 million rows takes some 300 MB.

    Args:
      flights: in the order of the table; of several with the same number the first gives the price.
    """

    def __init__(self, flights: Iterable[Flight]):
        self._cities: dict[str, int] = {}
        chunks = [self._pack([])]  # there may be no flights
        flights = iter(flights)
        while rows := list(itertools.islice(flights, _CHUNK)):
            chunks.append(self._pack(rows))
        self._columns = columns = Flight(*map(np.concatenate, zip(*chunks, strict=True)))
        self._names = list(self._cities)
        self._routes = columns.origin * len(self._names) + columns.destination
        self._by_number = np.argsort(columns.number, kind="stable")
        self._by_route = np.argsort(self._routes, kind="stable")
        self.size = len(columns.number)

    def _pack(self, rows: Sequence[Flight]) -> list[np.ndarray]:
        """The columns of some rows: texts as bytes, cities as their numbers."""
        columns = []
        for name in Flight._fields:
            column = [getattr(row, name) for row in rows]
            if name == "price":
                columns.append(np.array(column, np.float64))
            elif name in ("origin", "destination"):
                numbers = [self._cities.setdefault(city, len(self._cities)) for city in column]
                columns.append(np.array(numbers, np.int64))
            else:
                columns.append(np.array([text.encode() for text in column], bytes))
        return columns

    def _numbered(self, number: str) -> np.ndarray:
        """Rows of the flights of this number."""
        key = number.encode("utf-8", "replace")
        column = self._columns.number
        # numpy takes a text for equal to one with zeros behind it.
        if not key or key.endswith(b"\0") or len(key) > column.itemsize:
            return self._by_number[:0]
        return _rows(column, self._by_number, np.bytes_(key))

    def _route(self, origin: str, destination: str) -> int:
        """The number of a route; -1 where a city has no flights."""
        ends = self._cities.get(origin), self._cities.get(destination)
        return -1 if None in ends else ends[0] * len(self._names) + ends[1]

    def exists(self, number: str, origin: str, destination: str) -> bool:
        """Whether a flight of this number goes from `origin` to `destination`, on any day."""
        routes = self._routes[self._numbered(number)]
        return bool((routes == self._route(origin, destination)).any())

    def price(self, number: str) -> float | None:
        """Dollars a person of the first flight of this number, wherever it goes."""
        rows = self._numbered(number)
        return float(self._columns.price[rows[0]]) if len(rows) else None

    def between(self, origin: str, destination: str, date: str) -> list[Flight]:
        """Flights of a day, in the order of the table."""
        rows = _rows(self._routes, self._by_route, self._route(origin, destination))
        rows = rows[self._columns.date[rows] == date.encode()]
        return [self._flight(int(row)) for row in rows]

    def _flight(self, row: int) -> Flight:
        number, price, departure, arrival, date, origin, destination = (
            column[row] for column in self._columns
        )
        return Flight(
            number.decode(),
            float(price),
            departure.decode(),
            arrival.decode(),
            date.decode(),
            self._names[origin],
            self._names[destination],
        )


def _rows(column: np.ndarray, order: np.ndarray, key: Any) -> np.ndarray:
    """Rows where a column has `key`, in the order of the table; `order` sorts the column."""
    begin, end = (
        np.searchsorted(column, key, side=side, sorter=order) for side in ("left", "right")
    )
    return order[begin:end]


@dataclasses.dataclass(frozen=True)
class Database:
    """All tables.

    Attributes:
      restaurants: rows of each city, in the order of the file; likewise the next two.
      drives: the road from a city to another; None where no plan may use it, since the table has the pair
        without a road or it takes a day or more.
      states: the state of each city.
      flights: the flight table, or as much of it as there is.
    """

    restaurants: dict[str, list[Restaurant]]
    attractions: dict[str, list[Attraction]]
    accommodations: dict[str, list[Accommodation]]
    drives: dict[tuple[str, str], Drive | None]
    states: dict[str, str]
    flights: FlightTable

    def restaurant(self, name: str, city: str) -> Restaurant | None:
        """The first restaurant of `city` whose name contains `name`."""
        return next((row for row in self.restaurants.get(city, ()) if name in row.name), None)

    def attraction(self, name: str, city: str) -> Attraction | None:
        """The first attraction of `city` whose name contains `name`."""
        return next((row for row in self.attractions.get(city, ()) if name in row.name), None)

    def accommodations_named(self, name: str, city: str) -> list[Accommodation]:
        """All accommodations of `city` whose names contain `name`."""
        return [row for row in self.accommodations.get(city, ()) if name in row.name]

    def drive(self, origin: str, destination: str) -> Drive | None:
        """The road that a plan may use between two cities, or None."""
        return self.drives.get((origin, destination))

    def cities_in(self, state: str) -> list[str]:
        """Cities of a state, in the order of the file."""
        return [city for city, its_state in self.states.items() if its_state == state]


def load(directory: pathlib.Path, flights: Iterable[Flight]) -> Database:
    """Reads the tables.

    Args:
      directory: the upstream directory `database`.
      flights: what the flight table is made of.

    Raises:
      FileNotFoundError: a missing file.
      ValueError: a malformed record, named as file:line.
    """
    tables: list[dict[str, list[Any]]] = []
    for path, kind in (
        ("restaurants/clean_restaurant_2022.csv", Restaurant),
        ("attractions/attractions.csv", Attraction),
        ("accommodations/clean_accommodations_2022.csv", Accommodation),
    ):
        table: dict[str, list[Any]] = {}
        for row in read_table(directory / path, kind):
            table.setdefault(row.city, []).append(row)
        tables.append(table)
    return Database(
        *tables,
        drives=_drives(directory / "googleDistanceMatrix/distance.csv"),
        states=_states(directory / "background/citySet_with_states.txt"),
        flights=FlightTable(flights),
    )


def read_table(path: pathlib.Path, kind: type[Row]) -> Iterator[Row]:
    """The rows of a table without missing values; raises as `load`."""
    for where, record in _records(path, _COLUMNS[kind]):
        if _MISSING.isdisjoint(record.values()):
            try:
                yield read_row(kind, record)
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from None


def _records(path: pathlib.Path, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """("file:line", record) of each line of a table that has these columns."""
    if not path.is_file():
        raise FileNotFoundError(f"TravelPlanner file {path} is missing")
    empty = True
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = csv.reader(file)
            names = next(lines, [])
            if missing := [column for column in columns if column not in names]:
                raise ValueError(f"{path}:1: no column {missing[0]!r}")
            for line in filter(None, lines):
                where = f"{path}:{lines.line_num}"
                if len(line) != len(names):
                    raise ValueError(f"{where}: {len(line)} fields, expected {len(names)}")
                empty = False
                yield where, dict(zip(names, line, strict=True))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8: {error}") from None
    except csv.Error as error:
        raise ValueError(f"{path}:{lines.line_num}: {error}") from None
    if empty:
        raise ValueError(f"{path}: no rows")


def _drives(path: pathlib.Path) -> dict[tuple[str, str], Drive | None]:
    drives: dict[tuple[str, str], Drive | None] = {}
    for where, row in _records(path, ("origin", "destination", "duration", "distance")):
        drive = Drive(row["duration"], row["distance"])
        if not _MISSING.isdisjoint(drive) or "day" in drive.duration:
            drive = None
        elif not _LENGTH.fullmatch(drive.distance):
            raise ValueError(f"{where}: distance {drive.distance!r} is no length")
        drives.setdefault((row["origin"], row["destination"]), drive)
    return drives


def _states(path: pathlib.Path) -> dict[str, str]:
    if not path.is_file():
        raise FileNotFoundError(f"TravelPlanner file {path} is missing")
    states = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if line.strip():
            city, _, state = line.partition("\t")
            if not city or not state:
                raise ValueError(f"{path}:{number}: expected a city, a tab and a state")
            states[city] = state
    return states
