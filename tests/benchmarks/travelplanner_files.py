"""A small country in TravelPlanner's file formats: six cities, eighteen queries."""

import csv
import json
import pathlib
from typing import Any

from genenv_jax.benchmarks.travelplanner import tasks

HOME = "Portfield"
STATES = {
    HOME: "Eastmark", "Ashton": "Northmark", "Brookby": "Northmark", "Calder": "Northmark",
    "Dunmore": "Northmark", "Elmstead": "Southmark",
}  # fmt: skip

# Name, dollars per person, cuisines.  The second's name contains the third's.
RESTAURANTS = [
    ("The Copper Pot", 20, "Cafe, Italian"), ("Annex of the Mill", 15, "French, Bakery"),
    ("Mill", 10, "American"), ("Old Harbour", 12, "Seafood, American"),
    ("Green Lantern", 30, "Chinese, Tea"), ("Casa Azul", 25, "Mexican, BBQ"),
    ("Saffron Room", 18, "Indian, Desserts"), ("Olive Yard", 22, "Mediterranean, Pizza"),
    ("Quick Bite", 11, "Fast Food"), ("Blue Plate", 14, "Italian, French"),
    ("Corner Table", 16, "American, Cafe"), ("Late Kitchen", 17, "BBQ"),
]  # fmt: skip
ATTRACTIONS = ["Clock Museum", "River Walk", "Glass Hall; East Wing", "Old Mill", "Botanic Court"]
# Name, type, dollars per night, minimum nights, rules, people.  Two have the same name.
ACCOMMODATIONS = [
    ("Loft by the Park", "Entire home/apt", 100, 1, "No pets", 2),
    ("Quiet Room", "Private room", 60, 2, "No parties & No smoking", 1),
    ("Bunk Hall", "Shared room", 25, 1, "No parties", 4),
    ("Garden House", "Entire home/apt", 150, 2, "No visitors & No children under 10", 6),
    ("Long Stay Flat", "Private room", 40, 14, "No smoking", 2),
    ("Bunk Hall", "Private room", 30, 5, "No smoking", 2),
]  # fmt: skip
FLIGHTS = {
    (HOME, "Ashton"): [("F0000001", 90), ("F0000002", 60)],
    ("Ashton", HOME): [("F0000003", 80)],
    ("Brookby", HOME): [("F0000004", 70)],
}
# Between the others: 1 hour 10 mins, 80 km.
ROADS = {
    (HOME, "Ashton"): ("2 hours 30 mins", "210 km"), ("Ashton", HOME): ("2 hours 30 mins", "210 km"),
    (HOME, "Dunmore"): ("1 day 3 hours", "2,400 km"), ("Dunmore", HOME): ("1 day 3 hours", "2,400 km"),
    ("Calder", "Dunmore"): ("", ""),
}  # fmt: skip

# Additional requests, by level: for the first and second query of each number of days.
_WISHES = {
    "easy": ("", " We are a couple."),
    "medium": (" I like Italian food.", " We are a group of 3 people, and our rooms must allow smoking."),
    "hard": (
        " I like French and Mexican food, want a private room and do not fly.",
        " The trip is for two people. We want entire rooms, bring our pets, and prefer no self-driving.",
    ),
}  # fmt: skip
_DAYS = {
    3: (("Ashton", ["Ashton"]), ("Brookby", ["Brookby"])),
    5: (("2 cities in Northmark", ["Ashton", "Brookby"]),) * 2,
    7: (("3 cities in Northmark", ["Ashton", "Calder", "Brookby"]),) * 2,
}


def queries() -> list[tuple[str, list[str], list[str]]]:
    """(text, dates, cities of the route) of each training query."""
    found = []
    for wishes in _WISHES.values():
        for days, routes in _DAYS.items():
            pairs = zip(routes, wishes, strict=True)
            for number, ((destination, cities), wish) in enumerate(pairs):
                first = 8 + 7 * number
                dates = [f"2022-03-{first + day:02}" for day in range(days)]
                text = (
                    f"Please plan a {days}-day trip from {HOME} to {destination} from March {first}th "
                    f"to March {first + days - 1}th, 2022, with a budget of ${1_200 * days:,}.{wish}"
                )
                found.append((text, dates, cities))
    return found


def _table(name: str) -> list[dict[str, Any]]:
    """Rows of a table of the database."""
    rows: list[dict[str, Any]] = []
    for city in STATES:
        if name == "Restaurants":
            for shop, cost, cuisines in RESTAURANTS:
                row = {"Name": shop, "City": city, "Cuisines": cuisines, "Average Cost": cost}
                rows.append({"": len(rows), **row, "Aggregate Rating": 4.1})
        elif name == "Attractions":
            for sight in ATTRACTIONS:
                row = {"Name": sight, "Latitude": 1.5, "Longitude": 2.5, "Address": "1 High St"}
                rows.append({**row, "Phone": "555", "Website": "x.example", "City": city})
        else:
            for stay, kind, price, nights, rules, people in ACCOMMODATIONS:
                row = {"": len(rows), "NAME": stay, "room type": kind, "price": price}
                row |= {"minimum nights": nights, "review rate number": 4, "house_rules": rules}
                rows.append({**row, "maximum occupancy": people, "city": city})
    return rows


def _road(origin: str, destination: str) -> tuple[str, str]:
    return ROADS.get((origin, destination), ("1 hour 10 mins", "80 km"))


def reference(dates: list[str], cities: list[str]) -> dict[str, Any]:
    """Reference information of a route, as published."""
    record: dict[str, Any] = {}
    for city in cities:
        for name in ("Attractions", "Restaurants", "Accommodations"):
            rows = [row for row in _table(name) if city in (row.get("City"), row.get("city"))]
            record[f"{name} in {city}"] = rows
    stops = [HOME, *cities, HOME]
    for date, origin, destination in zip(dates[::2], stops, stops[1:], strict=False):
        flights = [
            {"Flight Number": number, "Price": price, "DepTime": "10:00", "ArrTime": "11:30",
             "ActualElapsedTime": "1 hours 30 minutes", "FlightDate": date,
             "OriginCityName": origin, "DestCityName": destination, "Distance": 210.0}
            for number, price in FLIGHTS.get((origin, destination), [])
        ]  # fmt: skip
        way = f"from {origin} to {destination}"
        record[f"Flight {way} on {date}"] = flights or f"There is no flight {way} on {date}."
        duration, distance = _road(origin, destination)
        for vehicle in ("Self-driving", "Taxi"):
            text = f"{vehicle.lower()}, {way}, duration: {duration}, distance: {distance}, cost: 1"
            record[f"{vehicle} {way}"] = text
    return record


def _write_csv(path: pathlib.Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def write(directory: pathlib.Path) -> pathlib.Path:
    """Writes all files below `directory`; returns it.

    The validation queries are three training queries and one to a state with too few cities.
    """
    prompts, references, *tables = (directory / path for path in tasks.ALWAYS)
    restaurants, attractions, accommodations, distances, states = tables
    incomplete = {"": 99, "Name": "Nowhere", "City": HOME, "Cuisines": "Cafe", "Average Cost": ""}
    _write_csv(restaurants, [*_table("Restaurants"), {**incomplete, "Aggregate Rating": "NaN"}])
    _write_csv(attractions, _table("Attractions"))
    _write_csv(accommodations, _table("Accommodations"))
    roads = [(a, b, *_road(a, b)) for a in STATES for b in STATES if a != b]
    names = ("origin", "destination", "cost", "duration", "distance")
    rows = [(a, b, "", d, km) for a, b, d, km in roads]
    _write_csv(distances, [dict(zip(names, row, strict=True)) for row in rows])
    states.parent.mkdir(parents=True)
    states.write_text("".join(f"{city}\t{state}\n" for city, state in STATES.items()))
    for path in (prompts, references):
        path.parent.mkdir(parents=True)
    lines, found = [], []
    for text, dates, cities in queries():
        plan = [{"days": 1, "current_city": f"from {HOME} to {cities[0]}"}, {}, {}]
        contents = ("You plan trips.", f"Given information: none.\nQuery: {text}", repr(plan))
        roles = ("system", "user", "assistant")
        messages = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=True)]
        lines.append(json.dumps({"messages": messages}))
        found.append(json.dumps(reference(dates, cities)))
    prompts.write_text("\n".join(lines) + "\n")
    references.write_text("\n".join(found) + "\n\n")
    validation = directory / "HEAD/postprocess/example_evaluation.jsonl"
    validation.parent.mkdir(parents=True)
    texts = [text for text, *_ in queries()[:3]]
    texts.append(texts[-1].replace("Northmark", "Southmark"))
    examples = [{"idx": n, "query": text, "plan": []} for n, text in enumerate(texts, 1)]
    validation.write_text("".join(json.dumps(example) + "\n" for example in examples))
    return directory
