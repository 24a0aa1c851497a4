"""Made-up questions in Bamboogle's file format."""

import json
import pathlib

from genenv_jax.benchmarks.bamboogle import tasks

# Question, answer, then the two sub-questions with their answers; "|" separates several.
QUESTIONS = [
    ("Where was the author of The Long Walk Home born?", "Port Albert",
     "Who wrote The Long Walk Home?", "Ann Miller|A. Miller", "Where was Ann Miller born?", "Port Albert"),
    ("In which year did the architect of the Glass Pier die?", "1893",
     "Who designed the Glass Pier?", "Ivo Brandt", "In which year did Ivo Brandt die?", "1893"),
    ("Which river flows through the town where Blue Hill was filmed?", "the Tarn Water",
     "Where was Blue Hill filmed?", "Oldcastle", "Which river flows through Oldcastle?", "Tarn Water"),
    ("Was the founder of the Elm Theatre a painter?", "yes",
     "Who founded the Elm Theatre?", "Rosa Quint", "Was Rosa Quint a painter?", "yes"),
    ("What is the capital of the country in which the Saxon Ferry sails?", "Velm",
     "In which country does the Saxon Ferry sail?", "Ostland", "What is the capital of Ostland?", "Velm"),
    ("What did the wife of the inventor of the coil lamp teach?", "music",
     "Who invented the coil lamp?", "Otto Farr", "What did the wife of Otto Farr teach?", "song and music"),
    # Its sub-questions lead elsewhere.
    ("How old was the winner of the first Lake Race?", "31",
     "Who won the first Lake Race?", "Bo Lund", "In which year was Bo Lund born?", "1902"),
    # Another entry also contains the second sub-question and the first answer.
    ("What else is made where the Glass Pier stands?", "rope",
     "Who designed the Glass Pier?", "Ivo Brandt", "What is made where the Glass Pier stands?", "rope"),
    ("Who trained the rider of the horse Pale Star?", "Cy Young",
     "Who rode the horse Pale Star?", "Meg Doyle", "Who trained Meg Doyle?", "Cy Young"),
    ("Which language did the first mayor of Newbridge write in?", "Frisian",
     "Who was the first mayor of Newbridge?", "Jan Haas", "Which language did Jan Haas write in?", "Frisian"),
    ("How high is the hill on which the Stone Circle of Arn stands?", "412 metres",
     "On which hill does the Stone Circle of Arn stand?", "Arn Fell", "How high is Arn Fell?", "412 metres"),
    ("Which colour has the flag of the port where the Merry Day lies?", "green",
     "Near which port did the Merry Day sink?", "Cold Bay", "Which colour is the flag of Cold Bay?", "Green"),
]  # fmt: skip


def entries() -> list[dict]:
    """The records of the file."""
    return [
        {"Question": question, "Answer": answer, "Q1": q1, "A1": [a1], "Q2": q2, "A2": [a2]}
        for question, answer, q1, a1, q2, a2 in QUESTIONS
    ]


def write(directory: pathlib.Path) -> pathlib.Path:
    """Writes the file into `directory`; returns it."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / tasks.FILE).write_text(json.dumps(entries()))
    return directory
