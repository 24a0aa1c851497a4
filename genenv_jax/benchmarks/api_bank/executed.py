"""Which of its own gold calls the official execution rejects.

The official evaluators run every call on a fresh data base (see `benchmark` for what goes wrong there).  Fed
with the gold calls of commit 483554e, tool searches aside, they reject these 82 of 620: a right answer to
them counts as wrong in every published number.  It accepted no other answer to them either, of 3,787 that
were tried.  `bench/official/api_bank.py` finds them.
"""

from __future__ import annotations

REJECTED_GOLD = frozenset(
    f"{split}:{place}"
    for split, places in {
        "level-1-api": """
            QueryScene-level-1-3:0
            EmergencyKnowledge-ModifyRegistration-RecordHealthData-level-2-3:4
            GetMeeting-level-1-2:2
            CancelRegistration-RecordHealthData-QueryRegistration-level-2-1:2
            ForgotPassword-RegisterUser-DeleteAccount-GetUserToken-level-2-1:2
            ForgotPassword-RegisterUser-DeleteAccount-GetUserToken-level-2-1:4
            ForgotPassword-RegisterUser-DeleteAccount-GetUserToken-level-2-1:8
            ModifyPassword-ForgotPassword-DeleteAccount-GetUserToken-level-2-3:2
            ModifyPassword-ForgotPassword-DeleteAccount-GetUserToken-level-2-3:4
            RecordHealthData-AppointmentRegistration-EmergencyKnowledge-level-2-5:0
            CancelTimedSwitch-level-1-2:0
            QueryScene-level-1-1:0
            Dictionary-level-1-1:0
            QueryScene-level-1-5:0
            GetToday-ModifyMeeting-ModifyAlarm-GetUserToken-level-2-2:4
            RecordHealthData-AppointmentRegistration-EmergencyKnowledge-level-2-1:0
            RecordHealthData-AppointmentRegistration-QueryRegistration-level-2-1:0
            RecordHealthData-AppointmentRegistration-EmergencyKnowledge-level-2-3:0
            Dictionary-level-1-3:0
            CancelTimedSwitch-level-1-4:0
            CancelRegistration-RecordHealthData-QueryRegistration-level-2-2:2
            RecordHealthData-AppointmentRegistration-EmergencyKnowledge-level-2-4:0
            GetMeeting-level-1-1:2
            Dictionary-level-1-4:0
            Dictionary-level-1-4:2
            CancelTimedSwitch-level-1-3:0
            CancelTimedSwitch-level-1-1:0
            QueryScene-level-1-2:0
            EmergencyKnowledge-ModifyRegistration-RecordHealthData-level-2-2:4
            ForgotPassword-level-1-1:2
            GetToday-ModifyMeeting-ModifyAlarm-GetUserToken-level-2-1:4
            RecordHealthData-AppointmentRegistration-QueryRegistration-level-2-2:0
            RecordHealthData-AppointmentRegistration-QueryRegistration-level-2-2:4
            RecordHealthData-AppointmentRegistration-EmergencyKnowledge-level-2-2:0
            CancelTimedSwitch-level-1-5:0
            Dictionary-level-1-2:0
            QueryScene-level-1-4:0
            AddAgenda-AddMeeting-GetUserToken-level-2-3:1
            AddAgenda-AddMeeting-GetUserToken-level-2-3:2
            Translate-level-1-4:0
            SearchEngine-level-1-2:0
            CancelRegistration-RecordHealthData-level-2-3:2
            TimedSwitch-level-1-3:0
            ModifyMeeting-level-1-2:2
            TimedSwitch-level-1-1:0
            CancelRegistration-RecordHealthData-level-2-1:2
            Translate-level-1-2:0
            AddMeeting-level-1-1:2
            QueryRegistration-SymptomSearch-RecordHealthData-level-2-2:4
            RecordHealthData-level-1-1:0
            ForgotPassword-ModifyPassword-GetUserToken-level-2-1:2
            DeleteMeeting-level-1-1:2
            ModifyMeeting-level-1-1:2
            CancelRegistration-RecordHealthData-level-2-2:2
            ModifyMeeting-level-1-3:2
            QueryMeeting-level-1-1:2
            TimedSwitch-level-1-2:0
            Translate-level-1-1:0
            Translate-level-1-3:0
            CancelRegistration-RecordHealthData-level-2-4:2
            RecordHealthData-level-1-2:0
            QueryRegistration-SymptomSearch-RecordHealthData-level-2-1:4
        """,
        "level-2-api": """
            RecordHealthData-level-3-2:2
            AddMeeting-level-3-2:4
            ModifyMeeting-level-3-1:4
            DeleteMeeting-level-3-1:4
            QueryMeeting-level-3-1:4
            RecordHealthData-level-3-3:2
            RecordHealthData-level-3-1:2
            AddMeeting-level-3-1:4
            DeleteMeeting-level-3-2:4
            QueryMeeting-level-3-2:4
        """,
        "level-3-batch-inf": """
            10:7
            11:6
            12:6
            13:6
            14:6
            20:5
            21:5
            22:5
            23:5
            24:5
        """,
    }.items()
    for place in places.split()
)
