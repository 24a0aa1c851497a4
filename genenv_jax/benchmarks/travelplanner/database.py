"""TravelPlanner's database: the tables that a plan is checked against.

The standard library reads them as the official tools do with pandas: rows with a missing value are left
out of every table but the distances, and rows keep the order of the file.  A name matches any row of its
city whose name contains it; the first such row gives price and properties.
"""

import csv
import dataclasses
import math
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

# Strings that pandas reads as a missing value (`pandas.read_csv`, na_values).
_MISSING = frozenset(
    "|#N/A|#N/A N/A|#NA|-1.#IND|-1.#QNAN|-NaN|-nan|1.#IND|1.#QNAN|<NA>|N/A|NA|NULL|NaN|None|n/a|nan"
    "|null".split("|")
)
_LENGTH = re.compile(r"[0-9][0-9,]*(?:[.][0-9]+)? ?km")
_CAR_SEATS = 5
_TAXI_SEATS = 4


class Restaurant(NamedTuple):
    """One restaurant; `cost` is the average price of a meal in dollars, `cuisines` a list in one string."""

    name: str
    city: str
    cost: float
    cuisines: str


class Attraction(NamedTuple):
    """One attraction."""

    name: str
    city: str


class Accommodation(NamedTuple):
    """One accommodation; `price` is dollars per night for a room of `guests` people."""

    name: str
    city: str
    price: float
    room_type: str
    rules: str
    nights: float
    guests: float

    def cost(self, people: int) -> float:
        """Dollars per night for as many rooms as `people` need."""
        return self.price * math.ceil(people / self.guests)


class Flight(NamedTuple):
    """One flight; `price` is dollars per person, `date` looks like 2022-03-16, times like 15:40."""

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
    Accommodation: ("NAME|city|price|room type|house_rules|minimum nights|maximum occupancy".split("|")),
    Flight: ("Flight Number|Price|DepTime|ArrTime|FlightDate|OriginCityName|DestCityName".split("|")),
}
_NUMBERS = ("Average Cost", "Price", "price", "minimum nights", "maximum occupancy")


def read_row(kind: type[Row], record: Mapping[str, Any]) -> Row:
    """A row of a table or of the reference information; ValueError says what is wrong with `record`."""
    values = []
    for column in _COLUMNS[kind]:
        if column not in record:
            raise ValueError(f"no column {column!r}")
        values.append(float(record[column]) if column in _NUMBERS else record[column])
    return kind(*values)


def text_of(place: Place) -> str:
    """A place in the form that plans use: "Name, City"."""
    return f"{place.name}, {place.city}"


class Drive(NamedTuple):
    """The road between two cities, in the words of the database ("2 hours 3 mins", "317 km")."""

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


# Flights are packed: the official table has 3.9 million, which would take 1.2 GB as Python objects.
_FORMATS = ("S16", float, "S8", "S8", "S10", np.int32, np.int32)
_FLIGHT = np.dtype(list(zip(Flight._fields, _FORMATS, strict=True)))


class FlightTable:
    """All flights in one structured array, with indices sorted by number and by route."""

    def __init__(self, flights: Iterable[Flight]):
        cities: dict[str, int] = {}

        def row(flight: Flight) -> tuple[Any, ...]:
            number, price, *times, origin, destination = flight
            ends = (cities.setdefault(city, len(cities)) for city in (origin, destination))
            return (number.encode(), price, *(time.encode() for time in times), *ends)

        self._rows = np.fromiter(map(row, flights), _FLIGHT)
        self.size = len(self._rows)
        self._cities, self._names = cities, list(cities)
        routes = self._rows["origin"].astype(np.int64) * len(cities) + self._rows["destination"]
        self._by_number, self._numbers = _ordered(self._rows["number"])
        self._by_route, self._routes = _ordered(routes)

    def __iter__(self) -> Iterator[Flight]:
        return (self._flight(row) for row in self._rows)

    def exists(self, number: str, origin: str, destination: str) -> bool:
        """Whether a flight with this number goes from `origin` to `destination`, on any day."""
        ends = (self._cities.get(origin), self._cities.get(destination))
        return any((row["origin"], row["destination"]) == ends for row in self._of(number))

    def price(self, number: str) -> float | None:
        """Dollars per person of the first flight with this number, wherever it goes; None if none has it."""
        rows = self._of(number)
        return float(rows[0]["price"]) if len(rows) else None

    def between(self, origin: str, destination: str, date: str) -> list[Flight]:
        """The flights of a route on a day, in the order of the table."""
        if origin not in self._cities or destination not in self._cities:
            return []
        route = self._cities[origin] * len(self._cities) + self._cities[destination]
        rows = self._rows[_equal(self._by_route, self._routes, route)]
        return [self._flight(row) for row in rows[rows["date"] == date.encode()]]

    def _of(self, number: str) -> np.ndarray:
        key = number.encode("utf-8", "replace").rstrip(b"\0")
        if key != number.encode("utf-8", "replace"):  # NumPy ignores trailing zero bytes
            return self._rows[:0]
        return self._rows[_equal(self._by_number, self._numbers, np.bytes_(key))]

    def _flight(self, row: np.void) -> Flight:
        number, price, *times, origin, destination = row.tolist()
        ends = (self._names[origin], self._names[destination])
        return Flight(number.decode(), price, *(time.decode() for time in times), *ends)


def _ordered(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The stable sort order of `values`, as row indices, and the sorted values."""
    order = np.argsort(values, kind="stable")
    return order, values[order]


def _equal(order: np.ndarray, values: np.ndarray, key: Any) -> np.ndarray:
    """The indices of the rows whose value is `key`."""
    begin, end = (np.searchsorted(values, key, side) for side in ("left", "right"))
    return order[begin:end]


@dataclasses.dataclass(frozen=True)
class Database:
    """All tables; rows of each city are in the order of the file."""

    restaurants: dict[str, list[Restaurant]]
    attractions: dict[str, list[Attraction]]
    accommodations: dict[str, list[Accommodation]]
    drives: dict[tuple[str, str], Drive | None]  # None: no road, or one of a day or more
    states: dict[str, str]  # the state of each city
    flights: FlightTable  # the flight table, or the part of it that is known

    def restaurant(self, name: str, city: str) -> Restaurant | None:
        """The first restaurant of `city` whose name contains `name`."""
        return next((row for row in self.restaurants.get(city, ()) if name in row.name), None)

    def attraction(self, name: str, city: str) -> Attraction | None:
        """The first attraction of `city` whose name contains `name`."""
        return next((row for row in self.attractions.get(city, ()) if name in row.name), None)

    def accommodation(self, name: str, city: str) -> Accommodation | None:
        """The first accommodation of `city` whose name contains `name`."""
        return next(iter(self.accommodations_named(name, city)), None)

    def accommodations_named(self, name: str, city: str) -> list[Accommodation]:
        """All accommodations of `city` whose names contain `name`."""
        return [row for row in self.accommodations.get(city, ()) if name in row.name]

    def drive(self, origin: str, destination: str) -> Drive | None:
        """The road that a plan may use between two cities, or None."""
        return self.drives.get((origin, destination))


def load(directory: pathlib.Path, flights: Iterable[Flight]) -> Database:
    """Reads the tables in the upstream directory `database`.

    Raises FileNotFoundError, or ValueError naming a malformed record as file:line.
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
    """The rows of a table that have no missing values; raises like `load`."""
    for where, record in _records(path, _COLUMNS[kind]):
        if _MISSING.isdisjoint(record.values()):
            try:
                yield read_row(kind, record)
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from None


def _records(path: pathlib.Path, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """("file:line", record) for each line of a table; ValueError if the table lacks one of `columns`."""
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
            raise ValueError(f"{where}: distance {drive.distance!r} is not a length")
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
