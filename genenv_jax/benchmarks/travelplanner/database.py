"""TravelPlanner's data base: the tables that a plan is checked against.

Read with the standard library as the official tools read them with pandas: rows with a missing value
are left out of every table but the distances, rows keep the order of the file, and a name is looked for
as a part of a row's name within one city, the first such row giving price and properties.
"""

from __future__ import annotations

import csv
import dataclasses
import math
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

# What pandas reads as a missing value (`pandas.read_csv`, na_values).
_MISSING = frozenset(
    "|#N/A|#N/A N/A|#NA|-1.#IND|-1.#QNAN|-NaN|-nan|1.#IND|1.#QNAN|<NA>|N/A|NA|NULL|NaN|None|n/a|nan"
    "|null".split("|")
)
_CHUNK = 100_000  # rows of a flight table that are held as Python objects
_CAR_SEATS = 5
_TAXI_SEATS = 4
_FLIGHT_COLUMNS = (
    "Flight Number",
    "Price",
    "DepTime",
    "ArrTime",
    "ActualElapsedTime",
    "FlightDate",
    "OriginCityName",
    "DestCityName",
    "Distance",
)


class Restaurant(NamedTuple):
    """One restaurant; `cost` is the average of a meal in dollars, `cuisines` a list in one text."""

    name: str
    city: str
    cost: float
    cuisines: str
    rating: float


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
    rating: float


class Flight(NamedTuple):
    """One flight; `price` is dollars a person, `date` as 2022-03-16, times as 15:40."""

    number: str
    price: float
    departure: str
    arrival: str
    date: str
    origin: str
    destination: str


class Drive(NamedTuple):
    """The road between two cities, in the words of the data base ("2 hours 3 mins", "317 km")."""

    duration: str
    distance: str

    @property
    def kilometres(self) -> float:
        """Length of the road."""
        return float(self.distance.replace("km", "").replace(",", ""))

    @property
    def is_open(self) -> bool:
        """Roads that take a day or more have no price, and no plan may use them."""
        return "day" not in self.duration

    def car_cost(self) -> int:
        """Dollars a car of five."""
        return int(self.kilometres * 0.05)

    def taxi_cost(self) -> int:
        """Dollars a taxi of four."""
        return int(self.kilometres)


def cars(people: int) -> int:
    """Cars that `people` need for self-driving."""
    return math.ceil(people / _CAR_SEATS)


def taxis(people: int) -> int:
    """Taxis that `people` need."""
    return math.ceil(people / _TAXI_SEATS)


def restaurant_of(row: dict[str, Any]) -> Restaurant:
    """From a row of the table or of the reference information; KeyError, ValueError if malformed."""
    cost, rating = float(row["Average Cost"]), float(row["Aggregate Rating"])
    return Restaurant(row["Name"], row["City"], cost, row["Cuisines"], rating)


def attraction_of(row: dict[str, Any]) -> Attraction:
    """See `restaurant_of`."""
    return Attraction(row["Name"], row["City"])


def accommodation_of(row: dict[str, Any]) -> Accommodation:
    """See `restaurant_of`."""
    return Accommodation(
        row["NAME"],
        row["city"],
        float(row["price"]),
        row["room type"],
        row["house_rules"],
        float(row["minimum nights"]),
        float(row["maximum occupancy"]),
        float(row["review rate number"]),
    )


def flight_of(row: dict[str, Any]) -> Flight:
    """See `restaurant_of`."""
    return Flight(
        row["Flight Number"],
        float(row["Price"]),
        row["DepTime"],
        row["ArrTime"],
        row["FlightDate"],
        row["OriginCityName"],
        row["DestCityName"],
    )


class FlightTable:
    """Flights in columns, so that the official table of 3.8 million rows takes some 300 MB.

    Args:
      flights: in the order of the table; of several with the same number the first gives the price.
    """

    def __init__(self, flights: Iterable[Flight]):
        cities: dict[str, int] = {}
        chunks: list[list[np.ndarray]] = []
        rows: list[Flight] = []

        def flush() -> None:
            columns = zip(*rows, strict=True)
            numbers, prices, departures, arrivals, dates, origins, destinations = columns
            chunks.append(
                [
                    np.array([number.encode() for number in numbers], dtype=bytes),
                    np.array(prices, dtype=np.float64),
                    np.array([time.encode() for time in departures], dtype=bytes),
                    np.array([time.encode() for time in arrivals], dtype=bytes),
                    np.array([date.encode() for date in dates], dtype=bytes),
                    np.array([cities.setdefault(c, len(cities)) for c in origins], dtype=np.int32),
                    np.array(
                        [cities.setdefault(c, len(cities)) for c in destinations], dtype=np.int32
                    ),
                ]
            )
            rows.clear()

        for flight in flights:
            rows.append(flight)
            if len(rows) == _CHUNK:
                flush()
        if rows:
            flush()
        self._cities = cities
        self._names = list(cities)
        self._columns = [np.concatenate(parts) for parts in zip(*chunks, strict=True)]
        self.size = len(self._columns[0]) if chunks else 0
        if chunks:
            self._by_number = np.argsort(self._columns[0], kind="stable")
            self._numbers = self._columns[0][self._by_number]
            self._routes = self._columns[5].astype(np.int64) * len(cities) + self._columns[6]
            self._by_route = np.argsort(self._routes, kind="stable")
            self._routes = self._routes[self._by_route]

    def _rows(self, number: str) -> np.ndarray:
        key = number.encode("utf-8", "replace")
        if not self.size or not key or key.endswith(b"\0") or len(key) > self._numbers.itemsize:
            return np.empty(0, dtype=np.int64)
        begin = np.searchsorted(self._numbers, np.bytes_(key), side="left")
        end = np.searchsorted(self._numbers, np.bytes_(key), side="right")
        return self._by_number[begin:end]

    def exists(self, number: str, origin: str, destination: str) -> bool:
        """Whether a flight of this number goes from `origin` to `destination`, on any day."""
        origin_index, destination_index = self._cities.get(origin), self._cities.get(destination)
        if origin_index is None or destination_index is None:
            return False
        rows = self._rows(number)
        right = (self._columns[5][rows] == origin_index) & (
            self._columns[6][rows] == destination_index
        )
        return bool(right.any())

    def price(self, number: str) -> float | None:
        """Dollars a person of the first flight of this number, wherever it goes."""
        rows = self._rows(number)
        return float(self._columns[1][rows[0]]) if len(rows) else None

    def between(self, origin: str, destination: str, date: str) -> list[Flight]:
        """Flights of a day, in the order of the table."""
        origin_index, destination_index = self._cities.get(origin), self._cities.get(destination)
        if origin_index is None or destination_index is None:
            return []
        key = origin_index * len(self._cities) + destination_index
        begin = np.searchsorted(self._routes, key, side="left")
        end = np.searchsorted(self._routes, key, side="right")
        rows = self._by_route[begin:end]
        rows = rows[self._columns[4][rows] == date.encode()]
        return [self._flight(int(row)) for row in rows]

    def _flight(self, row: int) -> Flight:
        numbers, prices, departures, arrivals, dates, origins, destinations = self._columns
        return Flight(
            numbers[row].decode(),
            float(prices[row]),
            departures[row].decode(),
            arrivals[row].decode(),
            dates[row].decode(),
            self._names[origins[row]],
            self._names[destinations[row]],
        )


@dataclasses.dataclass(frozen=True)
class Database:
    """All tables.

    Attributes:
      restaurants: rows of each city, in the order of the file; likewise the next two.
      drives: the road from a city to another; None where the table has the pair without a road.
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
        drive = self.drives.get((origin, destination))
        return drive if drive is not None and drive.is_open else None

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
    for path, make in (
        ("restaurants/clean_restaurant_2022.csv", restaurant_of),
        ("attractions/attractions.csv", attraction_of),
        ("accommodations/clean_accommodations_2022.csv", accommodation_of),
    ):
        table: dict[str, list[Any]] = {}
        for row in _complete_rows(directory / path, make):
            table.setdefault(row.city, []).append(row)
        tables.append(table)
    return Database(
        *tables,
        drives=_drives(directory / "googleDistanceMatrix/distance.csv"),
        states=_states(directory / "background/citySet_with_states.txt"),
        flights=FlightTable(flights),
    )


def flights_of(path: pathlib.Path) -> Iterator[Flight]:
    """Rows of the official flight table `clean_Flights_2022.csv`; raises as `load`."""
    yield from _complete_rows(path, flight_of, _FLIGHT_COLUMNS)


def _records(path: pathlib.Path, columns: Iterable[str] = ()) -> Iterator[tuple[str, dict]]:
    if not path.is_file():
        raise FileNotFoundError(f"TravelPlanner file {path} is missing")
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file)
            names = next(rows, [])
            for column in columns:
                if column not in names:
                    raise ValueError(f"{path}:1: no column {column!r}")
            for row in rows:
                if not row:
                    continue
                where = f"{path}:{rows.line_num}"
                if len(row) != len(names):
                    raise ValueError(f"{where}: {len(row)} fields, expected {len(names)}")
                yield where, dict(zip(names, row, strict=True))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8: {error}") from None
    except csv.Error as error:
        raise ValueError(f"{path}:{rows.line_num}: {error}") from None


def _complete_rows(
    path: pathlib.Path, make: Callable[[dict[str, Any]], Any], columns: Iterable[str] = ()
) -> Iterator[Any]:
    empty = True
    for where, row in _records(path, columns):
        empty = False
        if any(value in _MISSING for value in row.values()):
            continue
        try:
            yield make(row)
        except KeyError as error:
            raise ValueError(f"{where}: no column {error}") from None
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
    if empty:
        raise ValueError(f"{path}: no rows")


def _drives(path: pathlib.Path) -> dict[tuple[str, str], Drive | None]:
    drives: dict[tuple[str, str], Drive | None] = {}
    for where, row in _records(path, ("origin", "destination", "duration", "distance")):
        drive = None
        if row["duration"] not in _MISSING and row["distance"] not in _MISSING:
            drive = Drive(row["duration"], row["distance"])
            try:
                _ = drive.kilometres
            except ValueError:
                raise ValueError(f"{where}: distance {row['distance']!r} is no length") from None
        drives.setdefault((row["origin"], row["destination"]), drive)
    if not drives:
        raise ValueError(f"{path}: no rows")
    return drives


def _states(path: pathlib.Path) -> dict[str, str]:
    if not path.is_file():
        raise FileNotFoundError(f"TravelPlanner file {path} is missing")
    states = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if not line.strip():
            continue
        city, tab, state = line.rstrip("\r").partition("\t")
        if not tab or not city or not state:
            raise ValueError(f"{path}:{number}: expected a city, a tab and a state")
        states[city] = state
    return states
